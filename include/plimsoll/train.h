/*
 * Training, evaluation and prediction under the job's line.
 *
 * A run lives in a directory: run.json (recipe, dataset's fingerprint, machine), metrics.jsonl
 * (what was reached; the same bits however often the run was killed and resumed), timeline.jsonl
 * (memory and speed), last.safetensors (weights, optimiser and position, from which it resumes) and
 * best.safetensors (weights at the best validation). Weights carry PyTorch Geometric's names.
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
    PLIM_GIN
} plim_model_kind_t;

typedef enum plim_aggregation { PLIM_MEAN = 0, PLIM_MAX } plim_aggregation_t;
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
    PLIM_METRIC_RMSE
} plim_metric_t;

typedef struct plim_model {
    plim_model_kind_t kind;
    int num_layers;                 /* 1 … PLIM_HOPS_MAX */
    int64_t hidden;                 /* channels between layers; GAT: all heads together */
    int heads;                      /* GAT */
    plim_aggregation_t aggregation; /* SAGE */
    plim_norm_t norm;
    plim_activation_t activation;
    float dropout;
    bool residual;    /* a layer's input is added to its output where widths agree */
    plim_pool_t pool; /* graph-level tasks */
    plim_precision_t precision;
    bool recompute; /* layers' inputs are computed again in backward instead of kept; same bits */
    int64_t reserved[4]; /* 0 */
} plim_model_t;

#define PLIM_MODEL_INIT                                                                            \
    {                                                                                              \
        PLIM_GCN, 2, 64, 1, PLIM_MEAN, PLIM_NORM_NONE, PLIM_RELU, 0.0f, false, PLIM_POOL_MEAN,     \
            PLIM_PRECISION_F32, false,                                                             \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
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
    int64_t reserved[4]; /* 0 */
} plim_optimiser_t;

#define PLIM_OPTIMISER_INIT                                                                        \
    {                                                                                              \
        PLIM_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.0, 0.0, PLIM_SCHEDULE_NONE, 0, 0.1,              \
        {                                                                                          \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }

/* All that decides a run's result. Make it with PLIM_TRAINING_INIT. */
typedef struct plim_training {
    size_t size; /* of this struct */
    plim_model_t model;
    plim_recipe_t recipe; /* batch_size, fanout, seed; replace is refused, the rest is set by the
                             trainer */
    plim_optimiser_t optimiser;
    plim_loss_t loss;
    plim_metric_t metric;
    int64_t epochs;
    int64_t eval_every; /* epochs; 0: never */
    int64_t patience;   /* evaluations without a better one that end the run; 0: none do */
    bool eval_train;    /* evaluate the training split as often as the others */
    /* Batches an update: each one's mean loss is divided by as many, an epoch's last ones by their
     * own number. 1: each batch is an update. */
    int64_t accumulation;
    /* Below: changes speed and memory, not the result (microbatch: only its last bits). A run is
     * saved when it ends, at the end of an epoch where saving takes at most a twentieth of the time
     * since the last, and as often as these say. */
    int64_t microbatch;        /* seeds at a time; 0: the whole batch, or as many as fit */
    int64_t checkpoint_steps;  /* save every so many updates; 0: not by updates */
    double checkpoint_seconds; /* save at least this often; 0: not by time */
    int64_t memory_steps;      /* a line about memory every so many updates; 0: none */
} plim_training_t;

#define PLIM_TRAINING_INIT                                                                         \
    {                                                                                              \
        sizeof(plim_training_t), PLIM_MODEL_INIT, PLIM_RECIPE_INIT, PLIM_OPTIMISER_INIT,           \
            PLIM_LOSS_AUTO, PLIM_METRIC_AUTO, 10, 1, 0, false, 1, 0, 0, 300.0, 0                   \
    }

/* Enumerations above whose values have names, as in run.json. */
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
    PLIM_WORDS_METRIC
} plim_words_t;

/* The names of its values, by value, ended by NULL; they live as long as the library. Any thread.
 */
PLIM_API const char *const *plim_words(plim_words_t of);

/* The loss of a training on the dataset; PLIM_LOSS_AUTO is resolved. Any thread. */
PLIM_API plim_loss_t plim_training_loss(const plim_dataset_info_t *info,
                                        const plim_training_t *training);

/* The metric likewise. Any thread. */
PLIM_API plim_metric_t plim_training_metric(const plim_dataset_info_t *info,
                                            const plim_training_t *training);

/* Events of a run, as they happen. Scores are NAN where there is none. */
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
    double loss;      /* mean over what has a label. STEP: of this batch; EPOCH: of the epoch */
    int64_t labelled; /* EPOCH: training seeds with a label */
    double score[3];  /* train, valid, test */
    bool best;        /* EPOCH: the best validation so far */
    double seconds;   /* EPOCH: of the whole epoch, evaluation included */
    int64_t resident_bytes, line_bytes; /* MEMORY */
} plim_train_event_t;

typedef void (*plim_train_event_fn)(void *user, const plim_train_event_t *event);

typedef struct plim_train_result {
    size_t size;        /* of this struct */
    int64_t epochs;     /* done in all, over all stages */
    int64_t best_epoch; /* 0: none was evaluated */
    double loss;        /* of the last epoch */
    double score[3];    /* at the best epoch; train only where it was evaluated */
    bool early;         /* ended by patience */
} plim_train_result_t;

#define PLIM_TRAIN_RESULT_INIT                                                                     \
    {                                                                                              \
        sizeof(plim_train_result_t), 0, 0, 0.0, {0.0, 0.0, 0.0}, false                             \
    }

/*
 * Plans a whole run: loader, model, optimiser, activations, checkpoint and evaluation. The caller
 * releases the plan. Any thread. Peak memory: as plim_load_plan. PLIM_ERR_BUDGET when nothing fits,
 * with the minimum line and settings that would fit; PLIM_ERR_USAGE for settings that the dataset
 * cannot serve; other errors as of plim_load_plan.
 *
 * A run computes the same bits under any line that has room for whole batches. Where there is none
 * for them (or for microbatch, or params->part_seeds), plim_plan_part_seeds says how many seeds are
 * computed at a time, in the fewest equal parts that fit (to a quarter of their number), and the
 * log warns: losses then agree in f32 to about 1e-6, which large learning rates magnify, and to the
 * bit among all runs of the same part_seeds.
 */
PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_plan_params_t *params, plim_plan_t **plan_out);

/* A change of the settings, which changes the result, and the line that it needs. */
typedef struct plim_advice {
    size_t size;         /* of this struct; of an array the first one's counts */
    char change[96];     /* as options: "--hidden 128", "--batch 512 --precision bf16" */
    int64_t total_bytes; /* minimum line with the change, to a MiB */
    int64_t saved_bytes; /* how much that is below the minimum without it */
} plim_advice_t;

#define PLIM_ADVICE_INIT                                                                           \
    {                                                                                              \
        sizeof(plim_advice_t), "", 0, 0                                                            \
    }

/*
 * Finds changes with which a training fits that does not; or, for one whose batches are cut, that
 * keep them whole. For each kind (precision, fan-out, batch, hidden) it gives the smallest change
 * that is enough by itself with 1/32 of the line to spare, else one of several kinds together; none
 * where whole batches fit already or nothing helps. Writes at most `capacity` entries of
 * advice_out[0].size bytes each. Any thread; it reads only dataset.json and the statistics cache
 * and allocates nothing of size. Errors as of plim_train_plan without PLIM_ERR_BUDGET.
 */
PLIM_API plim_status_t plim_train_advise(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training,
                                         const plim_plan_params_t *params, int capacity,
                                         plim_advice_t *advice_out, int *count_out);

/*
 * Trains in a new run directory. Loss and gradient are means over the labels there are: seeds with
 * a class, or known values. A batch without labels is skipped, and an update without labels is not
 * made. `events` may be NULL; it is called on this thread. One training a run directory at a time;
 * any thread. Peak memory: the plan's.
 *
 * PLIM_ERR_USAGE when the directory holds a run or a dataset, the plan is for other settings, or no
 * training seed has a label; PLIM_ERR_STOPPED after plim_job_stop, or when others leave the run
 * less than its minimum: everything is saved; PLIM_ERR_DIVERGED when the loss or a weight is not
 * finite: last.safetensors stays as it was saved before; PLIM_ERR_SPACE, PLIM_ERR_DISK,
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA. A training that fails before its
 * first step leaves no run behind.
 */
PLIM_API plim_status_t plim_train(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training, const plim_plan_t *plan,
                                  const char *run, plim_train_event_fn events, void *user,
                                  plim_train_result_t *result_out);

/* What a run directory says of its run. */
typedef struct plim_run_info {
    size_t size; /* of this struct */
    char dataset[PLIM_PATH_MAX];
    char fingerprint[17];
    int64_t epochs_done, step; /* of last.safetensors; -1 when there is none yet, or it is damaged,
                                  which is an error where it is loaded */
    int64_t part_seeds; /* computed at a time so far, the wish for a plan that is to go on bit for
                           bit; 0: whole batches */
    int64_t part_nodes; /* and what they may need at most; 0: not known */
    int64_t part_edges;
    plim_training_t training;
} plim_run_info_t;

#define PLIM_RUN_INFO_INIT                                                                         \
    {                                                                                              \
        sizeof(plim_run_info_t), "", "", -1, -1, 0, 0, 0, PLIM_TRAINING_INIT                       \
    }

/* Reads run.json and the position of last.safetensors. Any thread, also while the run trains. Peak
 * memory: at most 3 MiB in the account "checkpoint". PLIM_ERR_USAGE where there is no run,
 * PLIM_ERR_DATA, PLIM_ERR_IO, PLIM_ERR_UNSUPPORTED for a newer format, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM. */
PLIM_API plim_status_t plim_run_read(const plim_job_t *job, const char *run,
                                     plim_run_info_t *info_out);

/*
 * Continues a run where last.safetensors ends, up to training->epochs in all. Epochs may change but
 * not below those begun, and patience may grow; every other setting that decides the result must be
 * as in run.json. On another kind of processor, with other library versions or a plan of other
 * part_seeds, it continues and logs that bits may differ. As plim_train besides; PLIM_ERR_USAGE
 * also names a setting that differs, or says that patience ended the run or another process has it;
 * PLIM_ERR_DATA for another dataset.
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
 * Creates model, optimiser and scratch memory as planned, with the weights that the recipe's seed
 * gives. Of the settings it uses model, optimiser, loss, metric, the recipe's seed and, where a
 * schedule needs it, epochs. Create the loader first: what it takes while it is made is free then.
 * The trainer retains job and dataset. PLIM_ERR_USAGE for settings that the dataset cannot
 * serve or a plan of other settings; PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_UNSUPPORTED.
 */
PLIM_API plim_status_t plim_trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const plim_training_t *training, const plim_plan_t *plan,
                                           plim_trainer_t **trainer_out);

/* Any thread. The last release destroys the trainer; NULL is harmless. */
PLIM_API void plim_trainer_retain(plim_trainer_t *trainer);
PLIM_API void plim_trainer_release(plim_trainer_t *trainer);

/*
 * Computes a batch, a part or a share of one forward and back, and adds its gradient to the
 * trainer's sum. `batches` is how many batches the coming update takes together (1: each is an
 * update): each one's mean loss is divided by as many. *loss_out (NULL: not wanted) is the sum of
 * the losses of the batch's seeds so far, divided by the labels of the whole batch: behind its last
 * part the batch's mean loss, or its share of it; NAN where the batch has no label, which adds
 * nothing. PLIM_ERR_DIVERGED when the loss is not finite. PLIM_ERR_BUDGET for a part of a batch
 * with batch norm. PLIM_ERR_DATA for a batch of another plan, PLIM_ERR_NOMEM.
 */
PLIM_API plim_status_t plim_trainer_backward(plim_trainer_t *trainer, const plim_batch_t *batch,
                                             int64_t batches, double *loss_out);

/* Writes the sum of gradients since the last update, or the last such call, to the caller's
 * gradient_out (as many values as there are weights) and sets it to zero. The order of additions
 * depends on the batches alone. PLIM_ERR_USAGE when no batch was computed since the last update. */
PLIM_API plim_status_t plim_trainer_gradient(plim_trainer_t *trainer, float *gradient_out);

/* sum[i] += addend[i], in the order of the array: so sums of several gradients have the same bits
 * wherever they are computed. Any thread. */
PLIM_API void plim_gradient_add(float *sum, const float *addend, int64_t count);

/*
 * One step of the optimiser by this gradient (NULL: by the trainer's own sum, which saves the
 * caller an array), and moves the position behind the last batch of plim_trainer_backward. Where
 * none of the batches had a label only the position moves. PLIM_ERR_USAGE when a gradient is given
 * while the trainer holds one that was not taken, or no batch was computed since the last update.
 */
PLIM_API plim_status_t plim_trainer_update(plim_trainer_t *trainer, const float *gradient);

/* Forgets what was computed since the last update: gradients are zero, and batch norm's statistics
 * as they were. */
PLIM_API void plim_trainer_discard(plim_trainer_t *trainer);

/* Where training stands: the loader starts there. A new trainer is at epoch 0, step 0; `updates`
 * counts steps of the optimiser. Outputs may be NULL. */
PLIM_API void plim_trainer_position(const plim_trainer_t *trainer, int64_t *epoch_out,
                                    int64_t *step_out, int64_t *updates_out);

/* One tensor of the model. */
typedef struct plim_parameter {
    size_t size;      /* of this struct */
    const char *name; /* PyTorch Geometric's; lives as long as the trainer */
    int num_dims;
    int64_t shape[4];
    int64_t count;  /* of values */
    bool buffer;    /* in the buffers (batch norm's running statistics), not in the weights */
    int64_t offset; /* of its first value there */
} plim_parameter_t;

#define PLIM_PARAMETER_INIT                                                                        \
    {                                                                                              \
        sizeof(plim_parameter_t), NULL, 0, {0, 0, 0, 0}, 0, false, 0                               \
    }

/* The number of tensors, and the index-th (from 0). PLIM_ERR_USAGE for another index. */
PLIM_API int plim_trainer_num_parameters(const plim_trainer_t *trainer);
PLIM_API plim_status_t plim_trainer_parameter(const plim_trainer_t *trainer, int index,
                                              plim_parameter_t *parameter_out);

/*
 * All weights as one array, parameters in their order without gaps; buffers and the optimiser's
 * moments (0: Adam's exp_avg or SGD's momentum, 1: exp_avg_sq; NULL where there is none) likewise.
 * They live as long as the trainer. Whoever writes to them calls plim_trainer_changed before the
 * next batch.
 */
PLIM_API float *plim_trainer_weights(plim_trainer_t *trainer, int64_t *count_out);
PLIM_API float *plim_trainer_buffers(plim_trainer_t *trainer, int64_t *count_out);
PLIM_API float *plim_trainer_moments(plim_trainer_t *trainer, int index, int64_t *count_out);
PLIM_API void plim_trainer_changed(plim_trainer_t *trainer);

/* Score, by the settings' metric, and mean loss over a split, drawn as in epoch 0; NAN for a split
 * without labels. It makes a stream of its own, which interrupts the others. Errors of
 * plim_stream_next. */
PLIM_API plim_status_t plim_trainer_evaluate(plim_trainer_t *trainer, plim_loader_t *loader,
                                             plim_split_t split, double *score_out,
                                             double *loss_out);

/*
 * Weights, buffers, moments and position as a safetensors file, durable and whole or not at all:
 * the same as a run's last.safetensors, which plim_trainer_resume reads too. Saving: PLIM_ERR_USAGE
 * when a batch was computed since the last update; PLIM_ERR_DIVERGED for weights that are not
 * finite; PLIM_ERR_SPACE, PLIM_ERR_DISK, PLIM_ERR_IO. Resuming: PLIM_ERR_DATA for a damaged file,
 * another dataset or other settings; the trainer's weights are then undefined.
 */
PLIM_API plim_status_t plim_trainer_save(plim_trainer_t *trainer, const char *path);
PLIM_API plim_status_t plim_trainer_resume(plim_trainer_t *trainer, const char *path);

typedef enum plim_predict_kind {
    PLIM_PREDICT_LOGITS = 0, /* f32 (n, outputs) */
    PLIM_PREDICT_CLASSES,    /* int64 (n) */
    PLIM_PREDICT_EMBEDDINGS  /* f32 (n, hidden): what the last layer read */
} plim_predict_kind_t;

/* Which weights, which nodes, and how. */
typedef struct plim_inference {
    size_t size;         /* of this struct */
    const char *weights; /* a safetensors file; NULL: the run's best, else its last */
    bool exact;          /* whole neighbourhoods, layer by layer; else drawn as in training */
    const char *scratch; /* where intermediate layers go; NULL: the run's directory */
} plim_inference_t;

#define PLIM_INFERENCE_INIT                                                                        \
    {                                                                                              \
        sizeof(plim_inference_t), NULL, false, NULL                                                \
    }

/*
 * Scores the splits of a run whose bit s is set in `splits`, by the run's metric, and their mean
 * losses; the others are NAN, and so is a split without labels, which is logged. `events` may be
 * NULL. Any thread. Peak memory: planned first, below the line. PLIM_ERR_BUDGET, PLIM_ERR_SPACE
 * before anything is started; PLIM_ERR_USAGE for an empty split or no labels at all; PLIM_ERR_DATA
 * for another dataset; PLIM_ERR_DIVERGED when weights or outputs are not finite; PLIM_ERR_NOMEM,
 * PLIM_ERR_IO, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_evaluate(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const char *run, const plim_inference_t *inference,
                                     unsigned splits, plim_train_event_fn events, void *user,
                                     double score_out[3], double loss_out[3]);

/*
 * Writes predictions for a split's seeds in the dataset's order, or for all nodes (split -1), to
 * the .npy file `out`, whole or not at all. It replaces an .npy file and nothing else:
 * PLIM_ERR_USAGE. Threads, memory and other errors as of plim_evaluate; PLIM_ERR_DISK.
 */
PLIM_API plim_status_t plim_predict(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const char *run, const plim_inference_t *inference, int split,
                                    plim_predict_kind_t kind, const char *out,
                                    plim_train_event_fn events, void *user);

#ifdef __cplusplus
}
#endif
#endif
