/*
 * What exact evaluation takes: buffers, and each layer's share of what is left under the line. One
 * place for the plan and for exact.c, which does what is planned here. All of it is pure.
 */
#ifndef PLIM_INFER_EXACT_COST_H
#define PLIM_INFER_EXACT_COST_H

#include "infer/exact_layer.h"
#include "io/reader.h"
#include "store/dataset.h"

#define PLIM__EXACT_AHEAD 6        /* ranges of a stream in memory at once, at most */
#define PLIM__EXACT_AHEAD_STATES 3 /* pieces of states, of which there are larger ones */
#define PLIM__EXACT_TILE 32        /* rows that a worker takes through a product at once */
#define PLIM__EXACT_BATCH 256      /* neighbours' rows on their way to the caches */

/* What exact.c keeps of itself and of each worker, at most; it asserts so. */
#define PLIM__EXACT_OWN_BYTES ((size_t)12 << 10)
#define PLIM__EXACT_WORKER_BYTES ((size_t)24 << 10)

/* How a layer is done under the line: columns in `slices`, sources in `blocks` of `rows`. */
typedef struct plim__exact_choice {
    int64_t slices;
    int64_t columns; /* of a slice; the last one may have fewer */
    int64_t blocks;
    int64_t rows;
    int64_t width; /* of the widest slice's row */
} plim__exact_choice_t;

/* How much is read, written and computed at a time. */
typedef struct plim__exact_sizes {
    int64_t chunk;      /* bytes that are read at once */
    int64_t piece_rows; /* destinations that are finished at once */
    int64_t states;     /* bytes of a piece of states, of all slices */
    int64_t written;    /* bytes of a piece of a matrix or of one slice's states */
    int64_t x, y, h;    /* floats a row of these */
    int64_t tile;       /* floats a row of a worker's tiles */
    size_t kept;        /* of a norm, for a piece */
    size_t front, behind, root, second, scores; /* bytes of these weights */
    size_t arena;                               /* all of it */
    size_t bytes;                               /* the arena, engines and threads */
} plim__exact_sizes_t;

/* How one layer is done. */
typedef struct plim__exact_plan {
    plim__exact_choice_t choice;
    bool in_memory;  /* its output, where that is stored */
    int64_t partial; /* bytes of its states in a store; 0: none */
    int64_t slots;   /* slices whose states are stored */
} plim__exact_plan_t;

/* exact_choose.c. Floats of a row of so many columns, and of all: states of the whole layer. */
int64_t plim__exact_slice_width(const plim__exact_layer_t *layer, int64_t columns);
int64_t plim__exact_slices_most(const plim__exact_layer_t *layer);
/* `capacity` floats; no slices when that is too little. */
plim__exact_choice_t plim__exact_choose(const plim__exact_layer_t *layer, int64_t num_src,
                                        int64_t num_dst, int64_t edges, int64_t input_bytes,
                                        int64_t index_bytes, int64_t capacity);
int64_t plim__exact_minimum_floats(const plim__exact_layer_t *layer, int64_t num_src);

/* What streams, the writer, stores in pieces, norms and giving out rows take. */
size_t plim__exact_buffer_bytes(int64_t capacity);
size_t plim__exact_stream_bytes(int ahead, int64_t capacity);
size_t plim__exact_writer_bytes(int64_t capacity);
int64_t plim__exact_store_bytes(int64_t piece_bytes, int64_t pieces);
size_t plim__exact_epilogue_bytes(const plim__exact_epilogue_t *finish, int64_t rows);
plim__reader_params_t plim__exact_give_reader(size_t row_bytes);
size_t plim__exact_give_bytes(const plim_job_t *job, int64_t piece_rows, int64_t width);

/* The layers that are computed: all, or for embeddings all but the last. */
void plim__exact_layers_shape(const plim_dataset_info_t *info, const plim_model_t *model,
                              int64_t num_outputs, bool embeddings, int *num_layers_out,
                              plim__exact_layer_t *layers_out);
plim__exact_sizes_t plim__exact_sizes(const plim_job_t *job, const plim_dataset_info_t *info,
                                      const plim__exact_layer_t *layers, int num_layers,
                                      int64_t unit);
/* The largest buffers that are small beside `available` bytes. */
plim__exact_sizes_t plim__exact_sizes_fit(const plim_job_t *job, const plim_dataset_info_t *info,
                                          const plim__exact_layer_t *layers, int num_layers,
                                          size_t available);

/* The least memory: everything beyond what the ledger holds now. */
size_t plim__exact_cost_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_model_t *model, int64_t num_outputs, bool embeddings);

/* What is to be computed: [i] of the counts are of the inputs of layer i. */
typedef struct plim__exact_work {
    const plim_dataset_info_t *info;
    int num_layers;
    const plim__exact_layer_t *layers; /* (num_layers) */
    int64_t count[PLIM_HOPS_MAX + 1];  /* nodes */
    int64_t edges[PLIM_HOPS_MAX + 1];  /* into them */
    int64_t piece_rows;
    int64_t most_rows;   /* bytes of a layer's rows in memory at most; 0: all that is left */
    bool stored;         /* the last layer's output, before it is put into the order asked for */
    bool scratch_counts; /* scratch is memory too */
} plim__exact_work_t;

typedef struct plim__exact_fit {
    plim__exact_plan_t plans[PLIM_HOPS_MAX];
    int64_t held;   /* the most in memory: rows, and outputs that stay there */
    int64_t disk;   /* the most in scratch */
    int64_t needed; /* where it does not fit: what would have to be available */
} plim__exact_fit_t;

/* Each layer in `available` bytes; false when that is too little. */
bool plim__exact_fit(const plim__exact_work_t *work, int64_t available, plim__exact_fit_t *fit_out);

#endif
