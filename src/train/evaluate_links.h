/* Scores of given pairs by the weights of a run over links. */
#ifndef PLIM_TRAIN_EVALUATE_LINKS_H
#define PLIM_TRAIN_EVALUATE_LINKS_H

#include "train/session.h"

/* plim_predict of PLIM_PREDICT_SCORES, begun. Ends the session. */
plim_status_t plim__predict_links(plim__session_t *session, const char *run,
                                  const plim_inference_t *inference, const char *out);

/* The score of the training's valid_pairs, on all ranks alike, with the weights of inference. */
plim_status_t plim__evaluate_valid_pairs(plim__session_t *session, const char *run,
                                         const plim_inference_t *inference, double *score_out);

#endif
