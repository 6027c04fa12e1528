/*
 * Training, evaluation and prediction under the job's line.
 *
 * A run is a directory: run.json (recipe, dataset's fingerprint, machine), metrics.jsonl (losses
 * and scores; the same bits however often the run was killed and resumed), timeline.jsonl (memory
 * and speed), last.safetensors (weights, optimiser and position, for resuming) and best.safetensors
 * (weights at the best validation). Weights have PyTorch Geometric's names.
 *
 * The ranks of a job (plim_transport_t) train one run together: all of them call plim_train_plan,
 * then plim_train or plim_train_resume, with the same settings, whose `shares` are at least as many
 * as the ranks. Each loads and computes its own shares of every batch, and has a line of its own;
 * batches are cut at the smallest number of seeds that any of them plans. Rank 0 alone reads and
 * writes the run's directory and calls `events`. An error or a stop of one rank ends the call on
 * all of them at the same step, with the same status.
 */
#ifndef PLIMSOLL_TRAIN_H
#define PLIMSOLL_TRAIN_H

#include <plimsoll/loader.h>
#include <plimsoll/plan.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_model_kind {
    PLIM_MLP = 0,
    PLIM_GCN,
    PLIM_SAGE,
    PLIM_GAT,
    PLIM_GIN,
    PLIM_GINE, /* reads features of edges */
    PLIM_GATV2,
    PLIM_RGCN /* reads types of edges */
} plim_model_kind_t;

typedef enum plim_aggregation { PLIM_MEAN = 0, PLIM_MAX, PLIM_SUM } plim_aggregation_t;
typedef enum plim_norm { PLIM_NORM_NONE = 0, PLIM_NORM_LAYER, PLIM_NORM_BATCH } plim_norm_t;
typedef enum plim_activation { PLIM_ACTIVATION_NONE = 0, PLIM_RELU, PLIM_ELU } plim_activation_t;
typedef enum plim_pool { PLIM_POOL_MEAN = 0, PLIM_POOL_ADD, PLIM_POOL_MAX } plim_pool_t;
typedef enum plim_precision { PLIM_PRECISION_F32 = 0, PLIM_PRECISION_BF16 } plim_precision_t;

typedef enum plim_loss {
    PLIM_LOSS_AUTO = 0, /* cross-entropy for classes, BCE for multi-label values, squared error for
                           others */
    PLIM_LOSS_CROSS_ENTROPY,
    PLIM_LOSS_BCE, /* with logits; values are 0 or 1 */
    PLIM_LOSS_MSE,
    PLIM_LOSS_MAE
} plim_loss_t;

typedef enum plim_metric {
    PLIM_METRIC_AUTO = 0, /* accuracy for classes, ROC-AUC with BCE, RMSE for values */
    PLIM_METRIC_ACCURACY,
    PLIM_METRIC_ROC_AUC, /* of class 1 among two, or the mean over columns of values */
    PLIM_METRIC_MAE,
    PLIM_METRIC_RMSE,
    PLIM_METRIC_COSINE, /* mean similarity of outputs and values, over seeds with known values */
    PLIM_METRIC_R2, /* 1 less the squared error over the variance; the mean over columns of values
                     */
    PLIM_METRIC_MRR /* of links with negatives of their own */
} plim_metric_t;

typedef struct plim_model {
    plim_model_kind_t kind;
    int num_layers;                 /* 1 … PLIM_HOPS_MAX */
    int64_t hidden;                 /* channels between layers; GAT: all heads together */
    int heads;                      /* GAT, GATv2 */
    plim_aggregation_t aggregation; /* SAGE */
    plim_norm_t norm;
    plim_activation_t activation;
    float dropout;
    bool residual;    /* adds a layer's input to its output if the widths are equal */
    plim_pool_t pool; /* graph-level tasks */
    plim_precision_t precision;
    bool recompute;   /* recompute layers' inputs in backward instead of keeping them; same bits */
    bool loops_twice; /* GCN: self-loops in the dataset count beside the node itself, as in runs of
                         early versions; else a node counts once, as in PyTorch Geometric */
} plim_model_t;

#define PLIM_MODEL_INIT                                                                            \
    {                                                                                              \
        PLIM_GCN, 2, 64, 1, PLIM_MEAN, PLIM_NORM_NONE, PLIM_RELU, 0.0f, false, PLIM_POOL_MEAN,     \
            PLIM_PRECISION_F32, false, false                                                       \
    }

typedef enum plim_optimiser_kind { PLIM_ADAM = 0, PLIM_ADAMW, PLIM_SGD } plim_optimiser_kind_t;
typedef enum plim_schedule {
    PLIM_SCHEDULE_NONE = 0,
    PLIM_SCHEDULE_COSINE, /* to 0 at the last epoch */
    PLIM_SCHEDULE_STEP    /* times schedule_factor every schedule_epochs */
} plim_schedule_t;

typedef struct plim_optimiser {
    plim_optimiser_kind_t kind;
    double rate;
    double momentum; /* SGD */
    double beta1, beta2, epsilon;
    double weight_decay;
    double clip_norm; /* 0: never */
    plim_schedule_t schedule;
    int64_t schedule_epochs;
    double schedule_factor;
} plim_optimiser_t;

#define PLIM_OPTIMISER_INIT                                                                        \
    {                                                                                              \
        PLIM_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.0, 0.0, PLIM_SCHEDULE_NONE, 0, 0.1               \
    }

/* Splits, as a sum. */
typedef enum plim_splits {
    PLIM_SPLITS_AUTO = 0, /* valid and test; with eval_train all three */
    PLIM_SPLITS_TRAIN = 1,
    PLIM_SPLITS_VALID = 2,
    PLIM_SPLITS_TEST = 4,
    PLIM_SPLITS_ALL = 7
} plim_splits_t;

typedef enum plim_task {
    PLIM_TASK_LABELS = 0, /* the labels of nodes, or of graphs */
    PLIM_TASK_LINK        /* whether two nodes are linked */
} plim_task_t;

/* Neighbours that are not later than their seed, as PyTorch Geometric's temporal_strategy. */
typedef enum plim_temporal {
    PLIM_TEMPORAL_NONE = 0, /* times decide nothing */
    PLIM_TEMPORAL_UNIFORM,  /* any of them */
    PLIM_TEMPORAL_LAST      /* the latest of them */
} plim_temporal_t;

#define PLIM_CATEGORIES_MAX 32 /* columns of integer features of nodes that models read */

/* How a pair is scored by the rows of its nodes. */
typedef enum plim_decoder {
    PLIM_DECODER_DOT = 0, /* their dot product */
    PLIM_DECODER_MLP,     /* PyG's MLP([hidden, hidden, 1], norm=None) of their product, element by
                             element; its names begin with "decoder." */
    PLIM_DECODER_DISTMULT /* the sum of their product times a learnt vector, element by element:
                             decoder.rel_emb.weight. Where the dataset has types of edges, each
                             has a vector, and pairs have types */
} plim_decoder_t;

/* The settings of a run. Make it with PLIM_TRAINING_INIT. */
typedef struct plim_training {
    size_t size; /* of this struct */
    plim_model_t model;
    plim_recipe_t recipe; /* batch_size, fanout, seed; no replace, draw_by or times; the trainer
                             sets the rest */
    plim_optimiser_t optimiser;
    plim_loss_t loss;
    plim_metric_t metric;
    int64_t epochs;
    int64_t eval_every; /* epochs; 0: never, not even at the end */
    int64_t patience;   /* evaluations without improvement that end the run; 0: never */
    bool eval_train;    /* evaluate the training split as often as the others */
    /* Batches in an update: the mean loss of each is divided by their number; an epoch's last
     * update may have fewer. 1: each batch is an update. */
    int64_t accumulation;
    /* The settings below change speed and memory, not the result (microbatch: only its last bits).
     * A run is saved when it ends, at the end of an epoch if saving takes at most a twentieth of
     * the time since the last save, and as often as these settings say. */
    int64_t microbatch;        /* seeds in a part; 0: the whole batch, or as many as fit */
    int64_t checkpoint_steps;  /* save every N updates; 0: not by updates */
    double checkpoint_seconds; /* save at least this often; 0: not by time */
    int64_t memory_steps;      /* report memory every N updates; 0: never */
    /* Evaluation. Its draws are those of epoch 0 after every epoch, so that scores compare. */
    int64_t eval_fanout[PLIM_HOPS_MAX]; /* neighbours a node, one number a layer, -1: all; first
                                           one 0: the recipe's */
    plim_splits_t eval_splits; /* between epochs; a run that evaluates scores all once at its end */
    bool eval_exact;           /* whole neighbourhoods, layer by layer, instead of batches */
    /* Weights to begin with, a safetensors file with the model's names and shapes, of a run or of
     * PyTorch Geometric; NULL: drawn by the recipe's seed. A run that continues has its own. */
    const char *init;
    /* The number of shares, 1 to PLIM_SHARES_MAX, that each batch is cut into by position. The
     * gradient of each share is summed separately, and the shares are added in an order that their
     * number fixes, so that any number of ranks up to it computes the same bits. 1: whole batches,
     * on one rank. */
    int64_t shares;
    /* A text of the host, in UTF-8 and shorter than PLIM_START_MAX, such as the memory limit that
     * its user gave: run.json keeps it, and plim_run_start returns it when the run continues. NULL:
     * a run that continues keeps its text. */
    const char *start;
    /* Columns of edges that a model reads in addition to those that its kind needs. */
    bool edge_features; /* GAT, GATv2: PyG's edge_dim */
    bool edge_weight;   /* GCN */
    int64_t bases;      /* R-GCN: PyG's num_bases; 0: as many as types of edges, at most 30 */
    /* GINE with integer features of edges: how many values each column has, from 0 on, for a table
     * of embeddings each; first one 0: the features are floats. */
    int64_t edge_categories[PLIM_HOPS_MAX];
    /*
     * PLIM_TASK_LINK: a batch has recipe.batch_size pairs, and the model's last layer gives rows of
     * `hidden` channels, by which `decoder` scores the pair of its nodes; the loss
     * is BCE with logits, over pairs and negatives. Splits and labels are read, but
     * change no batch. Evaluated only by valid_pairs. Batches are whole, as with batch norm;
     * with shares, which divide batch_size, these are.
     */
    plim_task_t task;
    const char *pairs; /* a .npy file as plim_links_t's path, which must stay as it is; NULL: all
                          edges of the dataset */
    double negatives;  /* drawn negative pairs of a pair; also a fraction */
    plim_exclude_t exclude;
    int64_t num_pairs, pairs_checksum; /* the library sets them; of edges the checksum is 0 */
    /* Integer features of nodes: how many values each column has, from 0 on, for a table of
     * embeddings each, whose sum, `hidden` wide, is the first layer's input; first one 0: the
     * features are floats. */
    int64_t node_categories[PLIM_CATEGORIES_MAX];
    /* Pairs that evaluations score, and what they are compared with, as in plim_inference_t: the
     * score of the validation split is MRR, or with negatives that all share the AUC
     * (PLIM_METRIC_ROC_AUC), and it has no loss. With eval_exact and eval_every; NULL: none. */
    const char *valid_pairs, *valid_negatives;
    int64_t valid_drawn;
    int64_t num_valid_pairs, valid_checksum; /* of the files: the library sets them */
    bool valid_shared;
    plim_decoder_t decoder;
    int64_t num_pair_types; /* as plim_links_t's num_types, in all files of pairs: the library sets
                               it */
    /* Batches are disjoint, and nothing in a seed's tree is later than the seed's PLIM_NODE_TIME:
     * no edge by PLIM_EDGE_TIME, or, in a dataset without, no neighbour by PLIM_NODE_TIME. So are
     * evaluations and predictions, which are never exact: a node's neighbourhood depends on the
     * seed. Not with GCN, whose weights are by degrees in the whole graph, nor for links. */
    plim_temporal_t temporal;
} plim_training_t;

#define PLIM_SHARES_MAX 65536
#define PLIM_START_MAX 8192

#define PLIM_TRAINING_INIT                                                                         \
    {                                                                                              \
        sizeof(plim_training_t), PLIM_MODEL_INIT, PLIM_RECIPE_INIT, PLIM_OPTIMISER_INIT,           \
            PLIM_LOSS_AUTO, PLIM_METRIC_AUTO, 10, 1, 0, false, 1, 0, 0, 300.0, 0,                  \
            {0, 0, 0, 0, 0, 0, 0, 0}, PLIM_SPLITS_AUTO, false, NULL, 1, NULL, false, false, 0,     \
            {0, 0, 0, 0, 0, 0, 0, 0}, PLIM_TASK_LABELS, NULL, 1, PLIM_EXCLUDE_REVERSES, 0, 0, {0}, \
            NULL, NULL, 0, 0, 0, false, PLIM_DECODER_DOT, 0, PLIM_TEMPORAL_NONE                    \
    }

/* Events of a run. Scores are NAN if not evaluated. */
typedef enum plim_train_event_kind {
    PLIM_EVENT_STEP = 0, /* of training */
    PLIM_EVENT_EVAL,     /* of an evaluation: split, step of steps */
    PLIM_EVENT_MEMORY,
    PLIM_EVENT_EPOCH,     /* loss, scores, seconds */
    PLIM_EVENT_CHECKPOINT /* last.safetensors is durable */
} plim_train_event_kind_t;

typedef struct plim_train_event {
    size_t size; /* of this struct in the library; later versions append fields */
    plim_train_event_kind_t kind;
    plim_split_t split;
    int64_t epoch; /* from 1 */
    int64_t step, steps;
    double loss;      /* mean over labels. STEP: of this batch; EPOCH: of the epoch */
    int64_t labelled; /* EPOCH: training seeds with a label */
    double score[3];  /* train, valid, test */
    bool best;        /* EPOCH: the best validation so far */
    double seconds;   /* EPOCH: of the whole epoch, with evaluation */
    int64_t resident_bytes, line_bytes; /* MEMORY */
    /* EPOCH: */
    double split_loss[3];      /* mean loss of evaluated splits: train, valid, test */
    double evaluation_seconds; /* of `seconds` */
    bool sampled;              /* scores are of drawn neighbourhoods */
} plim_train_event_t;

typedef void (*plim_train_event_fn)(void *user, const plim_train_event_t *event);

typedef struct plim_train_result {
    size_t size;        /* of this struct */
    int64_t epochs;     /* completed in all, over all resumes */
    int64_t best_epoch; /* 0: never evaluated */
    double loss;        /* of the last epoch */
    double score[3];    /* at the best epoch, or of the last weights if there is none */
    bool early;         /* ended by patience */
    bool sampled;       /* scores are of drawn neighbourhoods */
} plim_train_result_t;

#define PLIM_TRAIN_RESULT_INIT                                                                     \
    {                                                                                              \
        sizeof(plim_train_result_t), 0, 0, 0.0, {0.0, 0.0, 0.0}, false, false                      \
    }

/*
 * Plans a whole run: loader, model, optimiser, activations, checkpoint and evaluation. The caller
 * releases the plan. Any thread. Peak memory: as for plim_load_plan. PLIM_ERR_BUDGET if nothing
 * fits, with the minimum line and settings that fit; PLIM_ERR_USAGE for settings that the dataset
 * cannot serve; other errors as for plim_load_plan.
 *
 * A run computes the same bits under any line under which whole batches fit. Otherwise (or with
 * microbatch, or params->part_seeds) batches are computed in the fewest equal parts that fit (to a
 * quarter of their number), part_seeds of the plan is the number of seeds in a part, and the log
 * warns: losses then agree in f32 to about 1e-6, which large learning rates magnify, and to the bit
 * among all runs of the same part_seeds.
 */
PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_plan_params_t *params, plim_plan_t **plan_out);

/*
 * Trains in a new run directory. Loss and gradient are means over labels: seeds with a class, or
 * known values. Batches without labels are skipped, and so are updates without labels. `events` may
 * be NULL; it is called on this thread. One training at a time in a run directory; any thread. Peak
 * memory: the plan's.
 *
 * PLIM_ERR_USAGE if the directory holds a run or a dataset, the plan is for other settings, or no
 * training seed has a label; PLIM_ERR_STOPPED after plim_job_stop, or if other processes leave the
 * run less than its minimum: the run is saved; PLIM_ERR_DIVERGED if the loss or a weight is not
 * finite: the run stays as it was last saved; PLIM_ERR_SPACE, PLIM_ERR_DISK, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA. A training that fails before the first update of its
 * weights leaves no run behind, unless a stop or a full disk ended it. After an update the run
 * stays; if no step was saved, plim_train_resume starts from its first weights.
 */
PLIM_API plim_status_t plim_train(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training, const plim_plan_t *plan,
                                  const char *run, plim_train_event_fn events, void *user,
                                  plim_train_result_t *result_out);

/* The description of a run, read from its directory. */
typedef struct plim_run_info {
    size_t size; /* of this struct */
    char dataset[PLIM_PATH_MAX];
    char fingerprint[17];
    int64_t epochs_done, step; /* of last.safetensors; -1 if it is missing or damaged */
    int64_t part_seeds; /* seeds in a part; a plan with them keeps the bits; 0: whole batches */
    int64_t part_nodes; /* and their maximum sizes; 0: unknown */
    int64_t part_edges;
    int64_t best_epoch; /* 0: none yet */
    double score[3];    /* at the best epoch, or of the last weights; NAN: not known */
    bool scored;        /* at its end all splits were scored */
    bool early;         /* ended by patience */
    bool sampled;       /* scores are of drawn neighbourhoods */
    plim_training_t training;
    char pairs[PLIM_PATH_MAX]; /* the file of a run over links; "": all edges, or another
                                task */
    char valid_pairs[PLIM_PATH_MAX], valid_negatives[PLIM_PATH_MAX]; /* "": none */
} plim_run_info_t;

#define PLIM_RUN_INFO_INIT                                                                         \
    {                                                                                              \
        sizeof(plim_run_info_t), "", "", -1, -1, 0, 0, 0, 0, {0.0, 0.0, 0.0}, false, false, false, \
            PLIM_TRAINING_INIT, "", "", ""                                                         \
    }

/* Reads run.json and the position of last.safetensors. Any thread, also while the run trains. Peak
 * memory: at most 3 MiB in the account "checkpoint". PLIM_ERR_USAGE if there is no run,
 * PLIM_ERR_DATA, PLIM_ERR_IO, PLIM_ERR_UNSUPPORTED for a newer format, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM. */
PLIM_API plim_status_t plim_run_read(const plim_job_t *job, const char *run,
                                     plim_run_info_t *info_out);

/*
 * Continues a run from last.safetensors, up to training->epochs in all. Epochs may change but not
 * below those begun, and patience may grow; every other setting that changes the result must be as
 * in run.json. On another kind of processor, with other library versions or a plan with other
 * part_seeds, it continues and logs that bits may differ. `init` must be that of run.json, and is
 * needed only if the run has no checkpoint yet. Otherwise as plim_train; PLIM_ERR_USAGE also for
 * another dataset, for a setting that differs (the message names it), after patience ended the run,
 * or if another process holds it.
 */
PLIM_API plim_status_t plim_train_resume(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training, const plim_plan_t *plan,
                                         const char *run, plim_train_event_fn events, void *user,
                                         plim_train_result_t *result_out);

/*
 * Training as steps, for callers with a loop of their own: plim_train is such a loop. A trainer
 * holds the model, its optimiser and the position; batches come from a loader of the same plan:
 *
 *     plim_loader_create(…); plim_trainer_create(…);
 *     for each batch, or part of one, that the loader delivers:
 *         plim_trainer_backward(trainer, batch, 1, &loss);
 *         behind a batch's last part:
 *             plim_trainer_gradient(trainer, gradient);   add gradients of other ranks, …
 *             plim_trainer_update(trainer, gradient);
 *
 * The gradient is divided by the labels of the whole batch, whatever part of its seeds was given:
 * gradients of the parts, or of shares that several processes compute, sum up to the batch's. A
 * trainer belongs to one thread at a time. Only plim_trainer_create, plim_trainer_save and
 * plim_trainer_resume allocate memory, all of it planned. In a forked child calls fail with
 * PLIM_ERR_USAGE, arrays are NULL, and nothing changes.
 */
typedef struct plim_trainer plim_trainer_t;

/*
 * Creates model, optimiser and scratch memory by the plan, with initial weights from the recipe's
 * seed or from the file `init`. Uses the settings' model, optimiser, loss, metric, the recipe's
 * seed and, for a schedule, epochs. Create the loader first: the memory that only its creation
 * needs is then free again. Retains job and dataset. PLIM_ERR_USAGE for settings that the dataset
 * cannot serve, and for a plan of another dataset, of other batches, or of a model, optimiser or
 * metric that takes other memory; PLIM_ERR_DATA for a file without these weights, PLIM_ERR_DIVERGED
 * for weights that are not finite; PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO,
 * PLIM_ERR_UNSUPPORTED.
 */
PLIM_API plim_status_t plim_trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const plim_training_t *training, const plim_plan_t *plan,
                                           plim_trainer_t **trainer_out);

/* Any thread; NULL is harmless. */
PLIM_API void plim_trainer_release(plim_trainer_t *trainer);

/*
 * Computes a batch, or a part or a share of one, forward and backward, and adds its gradient to the
 * trainer's sum. `batches` is the number of batches in the coming update (1: each is an update);
 * the mean loss of each is divided by it. *loss_out (may be NULL) is the sum of the losses of the
 * batch's seeds so far, divided by the labels of the whole batch: after its last part, the batch's
 * mean loss; NAN if the batch has no label, which adds nothing. Of a share it is the share's
 * summand: the values of all shares add up to the mean loss, and so do the epoch losses in the
 * checkpoints of their trainers.
 *
 * PLIM_ERR_USAGE for a batch of another dataset or plan, and for a part or a share of a batch with
 * batch norm: nothing changes. PLIM_ERR_DIVERGED if the loss is not finite, PLIM_ERR_NOMEM: the
 * trainer's sum is then incomplete, and until plim_trainer_discard or a resume this function,
 * plim_trainer_gradient, plim_trainer_update and plim_trainer_save fail with PLIM_ERR_USAGE.
 */
PLIM_API plim_status_t plim_trainer_backward(plim_trainer_t *trainer, const plim_batch_t *batch,
                                             int64_t batches, double *loss_out);

/* Writes the sum of gradients since the last update, or the last such call, to the caller's
 * gradient_out (one value for each weight) and sets it to zero. The order of additions depends only
 * on the batches. PLIM_ERR_USAGE if no batch was computed since the last update. */
PLIM_API plim_status_t plim_trainer_gradient(plim_trainer_t *trainer, float *gradient_out);

/*
 * Makes one optimiser step with this gradient (NULL: with the trainer's own sum, which saves the
 * caller an array), and moves the position after the last batch of plim_trainer_backward. If no
 * batch had a label, only the position moves. PLIM_ERR_USAGE if a gradient is given while the
 * trainer holds one that was not taken, or no batch was computed since the last update.
 */
PLIM_API plim_status_t plim_trainer_update(plim_trainer_t *trainer, const float *gradient);

/* Discards the computation since the last update, and a failure: zeroes the gradients and restores
 * batch norm's statistics. */
PLIM_API void plim_trainer_discard(plim_trainer_t *trainer);

/* The size of a trainer, and its position; start the loader there. A new trainer is at epoch 0,
 * step 0. */
typedef struct plim_trainer_info {
    size_t size; /* of this struct */
    int64_t epoch, step;
    int64_t updates;     /* steps of the optimiser */
    int64_t num_weights; /* values of a gradient */
    int num_parameters;  /* tensors of the model, with its buffers */
} plim_trainer_info_t;

#define PLIM_TRAINER_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(plim_trainer_info_t), 0, 0, 0, 0, 0                                                 \
    }

/* PLIM_ERR_USAGE for an output without a size, or in a forked child. */
PLIM_API plim_status_t plim_trainer_info(const plim_trainer_t *trainer,
                                         plim_trainer_info_t *info_out);

/* Computes the settings' metric and the mean loss over a split, with the draws of epoch 0 and the
 * settings' eval_fanout; eval_exact has no effect. NAN for a split without labels. Makes its own
 * stream, which interrupts the others. Errors of plim_loader_stream and plim_stream_next;
 * PLIM_ERR_USAGE for a loader of another dataset or plan.
 */
PLIM_API plim_status_t plim_trainer_evaluate(plim_trainer_t *trainer, plim_loader_t *loader,
                                             plim_split_t split, double *score_out,
                                             double *loss_out);

/*
 * Saves weights, buffers, moments and position as a safetensors file, durably and atomically, in
 * the form of a run's last.safetensors; plim_trainer_resume reads both. Saving: PLIM_ERR_USAGE if a
 * batch was computed since the last update; PLIM_ERR_DIVERGED for weights that are not finite;
 * PLIM_ERR_SPACE, PLIM_ERR_DISK, PLIM_ERR_IO. Resuming discards the computation since the last
 * update. PLIM_ERR_USAGE for another dataset or other settings: nothing changes; PLIM_ERR_DATA for
 * a damaged file, PLIM_ERR_IO: the trainer's weights are then undefined.
 */
PLIM_API plim_status_t plim_trainer_save(plim_trainer_t *trainer, const char *path);
PLIM_API plim_status_t plim_trainer_resume(plim_trainer_t *trainer, const char *path);

typedef enum plim_predict_kind {
    PLIM_PREDICT_LOGITS = 0,    /* f32 (n, outputs) */
    PLIM_PREDICT_CLASSES,       /* int64 (n) */
    PLIM_PREDICT_EMBEDDINGS,    /* f32 (n, hidden): the last layer's input, of links its output */
    PLIM_PREDICT_PROBABILITIES, /* f32 (n, outputs): of classes, or of each label of several */
    PLIM_PREDICT_SCORES         /* f32 (pairs): of a run over links, of inference->pairs */
} plim_predict_kind_t;

/* Errors of values, over the known ones; NAN without any. */
typedef struct plim_errors {
    double mae, rmse;
    double r2; /* as PLIM_METRIC_R2; of a column whose values are all equal NAN, not in the mean */
} plim_errors_t;

/* Weights and method of an inference. */
typedef struct plim_inference {
    size_t size;         /* of this struct */
    const char *weights; /* a safetensors file; NULL: the run's best, else its last */
    bool exact;          /* whole neighbourhoods, layer by layer; else drawn as in training. Not of
                            a run with `temporal` */
    const char *scratch; /* directory of intermediate layers; NULL: the run's directory */
    /* plim_evaluate of values: with `table`, a .npy file of embeddings (rows, num_targets), the
     * score is hits@k: the row nearest to a seed's values is among the k rows nearest to its
     * output, by cosine. The table is held in memory, as floats. */
    const char *table; /* NULL: the run's metric */
    int64_t hits;      /* k, at least 1 */
    /* plim_evaluate of values: the caller's (3, 1 + num_targets), or NULL: for each split the
     * errors of all targets together, then of each. NAN of other splits, and unless the run's
     * metric is MAE, RMSE or R2. Undefined after an error. */
    plim_errors_t *errors;
    /* Of a run over links: a .npy file of pairs as plim_links_t's path. And what they are compared
     * with: a .npy file of negative pairs, (2, n) or (n, 2), that all pairs share, or of targets
     * for the source of each pair, (pairs, n) in C order with another n and number of pairs than 2,
     * of int32, uint32 or int64; or, with NULL, `drawn` targets for each pair, by the run's seed,
     * of all nodes. */
    const char *pairs;
    const char *negatives;
    int64_t drawn;
} plim_inference_t;

#define PLIM_INFERENCE_INIT                                                                        \
    {                                                                                              \
        sizeof(plim_inference_t), NULL, false, NULL, NULL, 0, NULL, NULL, NULL, 0                  \
    }

/*
 * Computes the run's metric and the mean loss of `splits` (not PLIM_SPLITS_AUTO); the others are
 * NAN, and so is a split without labels, which is logged. `events` may be NULL. Any
 * thread. Peak memory: planned first, below the line. PLIM_ERR_BUDGET, PLIM_ERR_SPACE before any
 * work; PLIM_ERR_USAGE for an empty split, no labels at all or another dataset; PLIM_ERR_DATA;
 * PLIM_ERR_DIVERGED if weights or outputs are not finite; PLIM_ERR_NOMEM, PLIM_ERR_IO,
 * PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_evaluate(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const char *run, const plim_inference_t *inference,
                                     plim_splits_t splits, plim_train_event_fn events, void *user,
                                     double score_out[3], double loss_out[3]);

/*
 * Writes predictions for a split's seeds in the dataset's order, or for PLIM_ALL_NODES, to
 * the file `out`, atomically: .npy or .csv by its ending, otherwise PLIM_ERR_USAGE. It replaces
 * only such a file. A .csv begins each row with the node's id; the ids of out.npy are in
 * out.ids.npy, or in out.ids.csv if they are names, except for all nodes of a dataset that keeps no
 * ids. PLIM_PREDICT_SCORES writes a score for each pair, in their order, with its number as id.
 * Threads, memory and other errors as for plim_evaluate; PLIM_ERR_DISK.
 */
PLIM_API plim_status_t plim_predict(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const char *run, const plim_inference_t *inference,
                                    plim_split_t split, plim_predict_kind_t kind, const char *out,
                                    plim_train_event_fn events, void *user);

/* Declarations that may still change; see docs/c.md. */
#ifdef PLIM_UNSTABLE

/* Scores of pairs against negatives, as OGB's evaluators compute them. */
#define PLIM_LINK_HITS 6
typedef struct plim_link_scores {
    size_t size; /* of this struct */
    int64_t num_pairs;
    int64_t num_negatives; /* of each pair, or that all pairs share */
    bool shared;
    double mrr; /* the mean of 1 / rank among the pair's own negatives, equals half; else NAN */
    double auc; /* of shared negatives, else NAN */
    /* hits@1, 3, 10, 20, 50, 100: the share of pairs whose rank is at most k, or that are above
     * the k-th largest of the shared negatives (1 if there are fewer). */
    double hits[PLIM_LINK_HITS];
} plim_link_scores_t;

#define PLIM_LINK_SCORES_INIT                                                                      \
    {                                                                                              \
        sizeof(plim_link_scores_t), 0, 0, false, 0.0, 0.0,                                         \
        {                                                                                          \
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0                                                           \
        }                                                                                          \
    }

/*
 * Scores inference->pairs of a run over links, by exact rows of all nodes; `exact` has no effect.
 * Both files are read to their ends first. The rows lie in memory or in `scratch`; held are the
 * scores of the pairs, 4 bytes each, if the negatives are shared. Any thread. Errors as for
 * plim_evaluate, and PLIM_ERR_DATA for a pair whose node does not exist.
 */
PLIM_API plim_status_t plim_evaluate_links(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const char *run, const plim_inference_t *inference,
                                           plim_train_event_fn events, void *user,
                                           plim_link_scores_t *scores_out);

/* Enumerations whose values have names, as in run.json. */
typedef enum plim_words {
    PLIM_WORDS_MODEL = 0,
    PLIM_WORDS_AGGREGATION,
    PLIM_WORDS_NORM,
    PLIM_WORDS_ACTIVATION,
    PLIM_WORDS_POOL,
    PLIM_WORDS_PRECISION,
    PLIM_WORDS_OPTIMISER,
    PLIM_WORDS_SCHEDULE,
    PLIM_WORDS_LOSS,
    PLIM_WORDS_METRIC,
    PLIM_WORDS_EVAL_SPLITS,
    PLIM_WORDS_TASK,
    PLIM_WORDS_EXCLUDE,
    PLIM_WORDS_DECODER,
    PLIM_WORDS_TEMPORAL
} plim_words_t;

/* The names of an enumeration's values, ended by NULL; valid as long as the library. Any thread. */
PLIM_API const char *const *plim_words(plim_words_t of);

/* The loss and the metric of a training on the dataset, for PLIM_LOSS_AUTO and PLIM_METRIC_AUTO.
 * Any thread. */
PLIM_API void plim_training_task(const plim_dataset_info_t *info, const plim_training_t *training,
                                 plim_loss_t *loss_out, plim_metric_t *metric_out);

/* The size of one batch. */
typedef struct plim_batch_size {
    int64_t seeds;
    int64_t nodes; /* distinct ones, seeds included */
    int64_t edges; /* drawn, over all hops */
} plim_batch_size_t;

/*
 * Sets nodes and edges of `count` batches by their seeds, as training->recipe.form draws them. Some
 * batches are drawn to measure that (a second or two; the result is kept in the user's cache) if
 * the job's line has room for it; otherwise, and for a dataset that is only a shape, the sizes are
 * expected by the degrees. Any thread. PLIM_ERR_USAGE for settings that do not fit the dataset;
 * PLIM_ERR_UNSUPPORTED, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED. Memory: what
 * drawing takes, at most the job's line.
 */
PLIM_API plim_status_t plim_batch_sizes(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const plim_training_t *training, int count,
                                        plim_batch_size_t *sizes);

/* Other settings, which change the result, and the line that they need. */
typedef struct plim_advice {
    size_t size;                   /* of this struct; for an array, that of its first entry */
    int64_t batch_size;            /* 0: stays */
    int num_hops;                  /* of `fanout`; 0: stays */
    int64_t fanout[PLIM_HOPS_MAX]; /* (num_hops) */
    int64_t hidden;                /* 0: stays */
    bool bf16;                     /* precision is PLIM_PRECISION_BF16; false: stays */
    int64_t total_bytes;           /* minimum line with the change, to a MiB */
    int64_t saved_bytes;           /* reduction of the minimum */
} plim_advice_t;

#define PLIM_ADVICE_INIT                                                                           \
    {                                                                                              \
        .size = sizeof(plim_advice_t)                                                              \
    }

/*
 * Finds changes that make a training fit, or, if its batches are cut, that keep them whole. For
 * each kind (precision, fan-out, batch, hidden) it returns the smallest change that suffices alone
 * with 1/32 of the line to spare; otherwise one change of several kinds; none if whole batches fit
 * already or nothing helps. Writes at most `capacity` entries of advice_out[0].size bytes each. Any
 * thread; reads only dataset.json and the statistics cache and makes no large allocation. Errors as
 * for plim_train_plan without PLIM_ERR_BUDGET.
 */
PLIM_API plim_status_t plim_train_advise(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training,
                                         const plim_plan_params_t *params, int capacity,
                                         plim_advice_t *advice_out, int *count_out);

/* How long a training takes, predicted by a trial. Without checkpoints, which take at most a
 * twentieth of the time. */
typedef struct plim_trial {
    size_t size;         /* of this struct */
    int64_t time;        /* of the trial: seconds since 1970 */
    double steps_per_s;  /* batches in a second of an epoch */
    double start_s;      /* until the first step is made, caches filled */
    double epoch_s;      /* without evaluation */
    double evaluation_s; /* after an epoch; 0: there is none */
    double run_s;        /* of all epochs, with evaluations and the scores at the end */
} plim_trial_t;

#define PLIM_TRIAL_INIT                                                                            \
    {                                                                                              \
        sizeof(plim_trial_t), 0, 0.0, 0.0, 0.0, 0.0, 0.0                                           \
    }

/*
 * Tries a training: opens it as plim_train does, makes steps for about `seconds` (if batches come
 * in windows, until the second window) and evaluates for a quarter of that. Writes no run; the
 * user's cache keeps the result for this dataset, these settings, the plan's line, the job's
 * threads, this processor and the dataset's disk. PLIM_ERR_USAGE for exact evaluations, for a job
 * of several ranks, and as plim_train; other errors of plim_train. Peak memory: the plan's.
 */
PLIM_API plim_status_t plim_train_try(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_training_t *training, const plim_plan_t *plan,
                                      double seconds, plim_trial_t *trial_out);

/* Returns the kept trial; without one *found_out is false and *trial_out unchanged. Any thread.
 * Errors of plim_train_try, but not those of a training. */
PLIM_API plim_status_t plim_train_tried(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const plim_training_t *training, const plim_plan_t *plan,
                                        plim_trial_t *trial_out, bool *found_out);

/* Reads the `start` of a run's settings; "" if there is none. Errors of plim_run_read. */
PLIM_API plim_status_t plim_run_start(const plim_job_t *job, const char *run,
                                      char text_out[PLIM_START_MAX]);

/* Whether plim_train_resume would continue the run with this dataset and these settings; writes
 * nothing. PLIM_ERR_USAGE if not: the message names what differs. Otherwise as plim_run_read. */
PLIM_API plim_status_t plim_run_compare(const plim_job_t *job, const char *run,
                                        const plim_dataset_t *dataset,
                                        const plim_training_t *training);

/* One tensor of the model. */
typedef struct plim_parameter {
    size_t size;      /* of this struct */
    const char *name; /* PyTorch Geometric's name; valid as long as the trainer */
    int num_dims;
    int64_t shape[4];
    int64_t count;  /* number of values */
    bool buffer;    /* in the buffers (batch norm's running statistics), not in the weights */
    int64_t offset; /* index of its first value there */
} plim_parameter_t;

#define PLIM_PARAMETER_INIT                                                                        \
    {                                                                                              \
        sizeof(plim_parameter_t), NULL, 0, {0, 0, 0, 0}, 0, false, 0                               \
    }

/* The index-th tensor, from 0. PLIM_ERR_USAGE for another index. */
PLIM_API plim_status_t plim_trainer_parameter(const plim_trainer_t *trainer, int index,
                                              plim_parameter_t *parameter_out);

/* Arrays of a trainer. */
typedef enum plim_values {
    PLIM_VALUES_WEIGHTS = 0,  /* all parameters in order, without gaps */
    PLIM_VALUES_BUFFERS,      /* batch norm's running statistics */
    PLIM_VALUES_MOMENT,       /* of the optimiser: Adam's exp_avg, or SGD's momentum */
    PLIM_VALUES_SECOND_MOMENT /* Adam's exp_avg_sq */
} plim_values_t;

/* One of them, as long as the trainer lives; NULL if there is none. After writing to it, call
 * plim_trainer_changed before the next batch. */
PLIM_API float *plim_trainer_values(plim_trainer_t *trainer, plim_values_t which,
                                    int64_t *count_out);
PLIM_API void plim_trainer_changed(plim_trainer_t *trainer);

#endif

#ifdef __cplusplus
}
#endif
#endif
