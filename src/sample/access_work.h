/*
 * The state of an access-probability computation: the hazards of all nodes before and after a hop.
 *
 *     codes, before the hop   ─► pass over indices.npy ─►   counters, of a range of nodes
 *     (all nodes, 16 bits)                                  (32 bits, started from the codes)
 *            ▲                                                    │
 *            └──────────────── codes, after the hop ◄─────────────┘
 *
 * With 6 bytes of memory a node the codes are in memory and there is one range. With less, the
 * codes before and after are in a temporary file, read and written in chunks from front to back,
 * and each range of counters takes a pass of its own. Counters always start from codes, never from
 * counters, so the results are the same.
 */
#ifndef PLIM_SAMPLE_ACCESS_WORK_H
#define PLIM_SAMPLE_ACCESS_WORK_H

#include "io/engine.h"
#include "sample/access.h"
#include "sample/hazard.h"

#define PLIM__ACCESS_CHUNK 65536  /* nodes whose codes are processed at a time */
#define PLIM__ACCESS_RANGES 64    /* maximum number of counter ranges */
#define PLIM__ACCESS_DELAY 64     /* additions between prefetching a counter and adding to it */
#define PLIM__ACCESS_PART_EACH 32 /* bytes of a block for each part in it */

/* Densities are sorted into bins: 512 for each power of two below 1, down to 2^-96. */
#define PLIM__ACCESS_BINS 49152

/* Part of a list in a block: its entries, and the hazard that each receives. */
typedef struct plim__access_part {
    uint32_t begin; /* first entry in the block */
    uint32_t count;
    uint32_t hazard;
} plim__access_part_t;

/* One transfer of indices.npy and the parts of lists in it. */
typedef struct plim__access_slot {
    plim__op_t op;
    char *block;
    plim__access_part_t *parts;
    int num_parts;
} plim__access_slot_t;

/* Sums of access probabilities in units of 2^-28: integers, so that their order does not matter. */
typedef struct plim__access_sums {
    uint64_t chosen;
    uint64_t all;
    uint64_t bytes; /* of the admitted items */
} plim__access_sums_t;

typedef struct plim__access_worker {
    plim__engine_t *engine;
    plim__access_slot_t *slots; /* (depth) */
    char *blocks;               /* (depth, block) buffers of the slots */
    plim__access_part_t *parts; /* (depth, block / PLIM__ACCESS_PART_EACH) parts of the slots */
    uint16_t *codes;            /* (PLIM__ACCESS_CHUNK) before and after the hop */
    uint16_t *codes_after;
    /* For admission: lists, rows. */
    const uint16_t *judged[2]; /* codes of the current chunk; NULL: not wanted */
    uint64_t *bins[2];         /* (PLIM__ACCESS_BINS) bytes in each density bin */
    plim__access_sums_t sums[2];
    plim__reach_t reach;
    uint8_t *at_cut; /* (PLIM__ACCESS_CHUNK) bit `kind`: the item is in the bin of its cut */

    /* The position of the walk over the lists. */
    int64_t node;
    int64_t node_end;      /* end of the task */
    const uint16_t *chunk; /* codes of the nodes from chunk_first on */
    int64_t chunk_first;   /* -1: no chunk */
    plim__list_t list;     /* rest of the current list … */
    uint32_t hazard;       /* … and its hazard */
    uint64_t num_pending;  /* queued additions so far */
    uint32_t *pending_counter[PLIM__ACCESS_DELAY];
    uint32_t pending_hazard[PLIM__ACCESS_DELAY];
} plim__access_worker_t;

/* Division of the memory. */
typedef struct plim__access_layout {
    int workers;
    int depth;        /* transfers in flight of each worker */
    size_t block;     /* bytes of a transfer */
    int64_t capacity; /* number of counters */
    bool in_file;     /* the codes are in a file */
} plim__access_layout_t;

typedef struct plim__access_work {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__offsets_t *offsets;
    const plim__access_params_t *params;
    plim__access_layout_t layout;
    int64_t num_nodes;
    int64_t num_edges;
    plim__file_t indices;
    size_t entry_bytes;
    int num_hops; /* hops with a fan-out other than 0 */
    int64_t fanout[PLIM__HOPS_MAX];
    float *chances;     /* (PLIM__HAZARD_CODES) */
    uint32_t *counters; /* (capacity) */
    uint16_t *codes;    /* (num_nodes, rounded up to chunks), or NULL: in the file */
    plim__file_t file;  /* two sets of codes; fd -1 if unused */
    int before;         /* index of the set before the hop */
    int64_t edges_done; /* for progress: edges over all passes */
    int64_t edges_total;
    plim__access_worker_t *workers; /* (layout.workers) */
} plim__access_work_t;

static inline int64_t plim__access_chunks(int64_t nodes)
{
    return nodes / PLIM__ACCESS_CHUNK + (nodes % PLIM__ACCESS_CHUNK != 0);
}

/* Calls body(context, worker, chunk) for the chunks [first, end), on all workers. */
plim_status_t plim__access_sweep(plim__access_work_t *work, int64_t first, int64_t end,
                                 plim_status_t (*body)(void *context, int worker, int64_t chunk),
                                 void *context);

/* Writes the hazards of the seeds as the codes before the first hop; `set` is scratch, empty before
 * and after. */
plim_status_t plim__access_codes_start(plim__access_work_t *work, plim__node_set_t *set);

/* Returns the codes of a chunk of nodes, in `buffer` or in place. For codes after the hop: not
 * while only the counters hold them. */
plim_status_t plim__access_codes_before(plim__access_work_t *work, int64_t chunk, uint16_t *buffer,
                                        const uint16_t **codes_out);
plim_status_t plim__access_codes_after(plim__access_work_t *work, int64_t chunk, uint16_t *buffer,
                                       const uint16_t **codes_out);

/* Computes one hop: codes before it to codes after it. */
plim_status_t plim__access_hop(plim__access_work_t *work, int hop);

/* Makes the codes after the hop the codes before the next one. */
plim_status_t plim__access_codes_advance(plim__access_work_t *work);

/* Adds the draws of hop `hop` to the counters of the nodes [first, first + count). */
plim_status_t plim__access_pass(plim__access_work_t *work, int hop, int64_t first, int64_t count);

/* A list or a row that may be admitted or packed, and the bin of its density. Items with
 * probability 0 never are. */
typedef struct plim__access_item {
    float probability;
    uint64_t bytes;
    int bin;
} plim__access_item_t;

plim__access_item_t plim__access_item(const plim__access_work_t *work, int kind, int64_t node,
                                      uint16_t code);

/* Sets worker->judged to the codes of a chunk's lists and rows; NULL for a kind not wanted. */
plim_status_t plim__access_judge(plim__access_work_t *work, plim__access_worker_t *worker,
                                 const bool wanted[PLIM__REACH_KINDS], int64_t chunk);

static inline int64_t plim__access_chunk_nodes(const plim__access_work_t *work, int64_t chunk)
{
    const int64_t left = work->num_nodes - chunk * PLIM__ACCESS_CHUNK;
    return left < PLIM__ACCESS_CHUNK ? left : PLIM__ACCESS_CHUNK;
}

/* Counts bytes, sums and reach of all items; worker 0 then has the bins of all. */
plim_status_t plim__access_count(plim__access_work_t *work, const bool wanted[PLIM__REACH_KINDS]);
void plim__access_sum_bins(plim__access_work_t *work);

/* Fills the two sets and the sums of `access` from the codes of the last hop. */
plim_status_t plim__admission_choose(plim__access_work_t *work, plim__access_t *access);

/* What a working set is made of. */
typedef struct plim__pack_params {
    const plim_dataset_t *dataset;
    const char *scratch;
    uint64_t key;
    plim__working_size_t most;
} plim__pack_params_t;

/* Makes a working set from the codes of the last hop; `rows` is scratch. */
plim_status_t plim__admission_pack(plim__access_work_t *work, const plim__pack_params_t *params,
                                   plim__node_set_t *rows, plim__working_set_t **set_out);

#endif
