/*
 * A model at work: the threads that compute, the model, and the score of a split. Training,
 * evaluation and prediction use it alike; the loader that batches come from is the caller's.
 */
#ifndef PLIM_TRAIN_SESSION_H
#define PLIM_TRAIN_SESSION_H

#include "nn/model.h"
#include "nn/score.h"
#include "plan/train_plan.h"
#include "store/dataset.h"

typedef struct plim__session {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    plim_training_t training; /* loss and metric settled */
    int64_t num_outputs;
    plim_train_event_fn events; /* NULL: nobody listens */
    void *user;
    plim__model_params_t params; /* what the model was made for */
    plim__team_t *team;
    plim__model_t *model;
    plim__parameter_t *parameters; /* the model's table */
    int num_parameters;
    plim__score_t *score;
    int64_t labelled[3]; /* seeds of each split that have a label; set by whoever counts them */
    bool embeddings;     /* passes give them too */
    bool in_order;       /* passes over the training split are in the dataset's order */
} plim__session_t;

/* Settles the settings and remembers who asked; allocates nothing. */
void plim__session_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                         const plim_training_t *training, plim_train_event_fn events, void *user,
                         plim__session_t *session_out);

/*
 * Creates team, model and score for batches as planned; `training` for a model with gradients. The
 * loader comes before: what it needs only while it is made is free again when the model takes its
 * memory. After an error plim__session_end destroys what was made. The parameters' values are zero.
 */
plim_status_t plim__session_open(plim__session_t *session, const plim__train_plan_t *plan,
                                 bool training);
void plim__session_end(plim__session_t *session);

/* Fills in how many seeds of each split have a label, as the loader counts them. */
void plim__session_count_labels(plim__session_t *session, const plim_loader_t *loader);

/*
 * Takes what a forward pass gave for a part of a batch of a split. `first` is the place of its
 * first seed among the split's.
 */
typedef plim_status_t (*plim__session_take_fn)(void *context, const plim_batch_t *batch,
                                               int64_t first, const plim__model_output_t *output);

/* A split, batch after batch, drawn as in epoch 0 whatever the epoch, so that scores can be
 * compared; events show it as an evaluation of `epoch`. The loader's stream is replaced. */
plim_status_t plim__session_pass(plim__session_t *session, plim_loader_t *loader,
                                 plim_split_t split, int64_t epoch, plim__session_take_fn take,
                                 void *context);

/* Adds a batch's outputs to the score: a plim__session_take_fn whose context is the session. */
plim_status_t plim__session_score(void *context, const plim_batch_t *batch, int64_t first,
                                  const plim__model_output_t *output);

/* The same into a score and a mean loss; both are NAN for a split without labels. */
plim_status_t plim__session_evaluate(plim__session_t *session, plim_loader_t *loader,
                                     plim_split_t split, int64_t epoch, double *score_out,
                                     double *loss_out);

/* Tells the listener. */
static inline void plim__session_tell(const plim__session_t *session,
                                      const plim_train_event_t *event)
{
    if (session->events != NULL)
        session->events(session->user, event);
}

#endif
