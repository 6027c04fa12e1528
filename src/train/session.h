/*
 * A model with its compute threads and the score of a split. Training, evaluation and prediction
 * use it; the caller owns the loader that delivers batches.
 */
#ifndef PLIM_TRAIN_SESSION_H
#define PLIM_TRAIN_SESSION_H

#include "nn/model.h"
#include "nn/score.h"
#include "peers/peers.h"
#include "plan/train_plan.h"
#include "train/collect.h"

extern const char *const plim__split_names[3]; /* "training", "validation", "test" */

typedef struct plim__session {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    plim_training_t training; /* with loss and metric resolved */
    int64_t num_outputs;
    plim_train_event_fn events; /* NULL: no listener */
    void *user;
    plim__model_params_t params; /* parameters of the model */
    plim__team_t *team;
    plim__model_t *model;
    plim__parameter_t *parameters; /* the model's parameter table */
    int num_parameters;
    int directory;            /* of the weights' file: that of a run being trained, else AT_FDCWD */
    plim__decoder_t *decoder; /* of links, in training; NULL: dot products */
    plim__score_t *score;     /* NULL: of links */
    plim_errors_t *errors;    /* (3, 1 + num_outputs) of evaluated splits, the caller's; or NULL */
    plim__peers_t *peers;     /* ranks that share evaluations; NULL: there are none */
    plim__collect_t *collect; /* brings all rows to rank 0; NULL: ranks score their own shares */
    int64_t embedding_width;  /* with collect */
    int64_t labelled[3];      /* labelled seeds of each split; set by the caller that counts them */
    const plim__hits_t *hits; /* scores are hits@k against this table; NULL: the metric */
    bool embeddings;          /* passes compute embeddings too */
    bool in_order;            /* passes over the training split use the dataset's order */
    bool ends_pass;           /* set by the pass's `take`: the pass ends here */
} plim__session_t;

/* Resolves the settings and stores the caller's pointers; allocates nothing. */
void plim__session_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                         const plim_training_t *training, plim_train_event_fn events, void *user,
                         plim__session_t *session_out);

/*
 * Creates team, model and score for batches of the plan; `training` for a model with gradients.
 * Create the loader first: the memory that only its creation needs is free again when the model
 * allocates. After an error plim__session_end destroys what was made. The parameters' values are
 * zero.
 */
plim_status_t plim__session_open(plim__session_t *session, const plim__train_plan_t *plan,
                                 bool training);
void plim__session_end(plim__session_t *session);

/* Fills in the labelled seeds of each split from the loader's counts. */
void plim__session_count_labels(plim__session_t *session, const plim_loader_t *loader);

/* Warns about seeds of these splits (bits) that have no label. */
void plim__session_warn_labels(const plim__session_t *session, unsigned splits);

/* PLIM_ERR_USAGE if the model cannot read the batch's arrays: it is of another dataset, or its
 * recipe has other types or leaves arrays out. The model itself compares the sizes. */
plim_status_t plim__session_check_batch(const plim__session_t *session, const plim_batch_t *batch);

/* Copies `count` floats of rank 0 to the others; a model's weights and buffers. */
plim_status_t plim__session_share_array(plim__peers_t *peers, plim__stage_t stage, float *values,
                                        int64_t count);
plim_status_t plim__session_share_weights(plim__peers_t *peers, plim__stage_t stage,
                                          const plim__model_arrays_t *arrays);

/* Takes the outputs of a forward pass for a part of a batch of a split, and the seeds' labels. */
typedef plim_status_t (*plim__session_take_fn)(void *context, int64_t rows,
                                               const plim__model_output_t *output,
                                               const void *labels);

/* Passes over a split batch by batch, with the draws of epoch 0 for any epoch, so that scores are
 * comparable; events show it as an evaluation of `epoch`. Replaces the loader's stream. With
 * session->collect, `take` is called on rank 0, with the rows of all ranks. */
plim_status_t plim__session_pass(plim__session_t *session, plim_loader_t *loader,
                                 plim_split_t split, int64_t epoch, plim__session_take_fn take,
                                 void *context);

/* Adds a batch's outputs to the score: a plim__session_take_fn whose context is the session. */
plim_status_t plim__session_score(void *context, int64_t rows, const plim__model_output_t *output,
                                  const void *labels);

/* Runs a pass, each rank over its shares of the steps, and computes score and mean loss of all;
 * both are NAN for a split without labels. */
plim_status_t plim__session_evaluate(plim__session_t *session, plim_loader_t *loader,
                                     plim_split_t split, int64_t epoch, double *score_out,
                                     double *loss_out);

static inline void plim__session_tell(const plim__session_t *session,
                                      const plim_train_event_t *event)
{
    if (session->events == NULL)
        return;
    const locale_t ours = plim__host_locale();
    session->events(session->user, event);
    (void)uselocale(ours);
}

#endif
