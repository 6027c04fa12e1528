/*
 * Access probabilities: for every node the probability that a window needs its list, and its row,
 * computed from the graph (not counted from samples). From them follows which lists and rows the
 * caches admit (admission.c).
 *
 * Let q_h(v) be the probability that v is a destination of hop h in the window. A seed is one with
 * chance `share`. The next hop draws each of v's d neighbours with chance min(1, k/d), and v stays
 * in the set; taken as independent:
 *
 *     q_{h+1}(u) = 1 - (1 - q_h(u)) * product over v, u in its list, of (1 - q_h(v) min(1, k/d_v))
 *
 * A list's access probability is the largest q_h of the hops that draw from it, a row's is q after
 * the last hop. A hit saves one I/O either way, so lists and rows compete by probability per byte.
 * Each hop is one sequential pass over indices.npy for each range of nodes whose counters fit
 * `work_bytes`.
 *
 * The order of a working set follows from the same probabilities.
 */
#ifndef PLIM_SAMPLE_ACCESS_H
#define PLIM_SAMPLE_ACCESS_H

#include "base/node_set.h"
#include "mem/arena.h"
#include "sample/reach.h"
#include "source/draw.h"
#include "source/working_set.h"

typedef struct plim__access_params {
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    bool replace;
    const int64_t *seeds; /* (num_seeds) distinct, in any order; NULL: the first nodes */
    int64_t num_seeds;
    const int64_t *others[2]; /* (num_others) further seeds, just as probable */
    int64_t num_others[2];
    double share;         /* share of the seeds in a window, (0, 1] */
    size_t row_bytes;     /* cache bytes of a row; 0: no row cache */
    size_t list_bytes;    /* cache bytes of a list's entry; 0: no list cache */
    size_t list_fixed;    /* cache bytes of a list besides its entries */
    size_t row_capacity;  /* maximum bytes of admitted rows, */
    size_t list_capacity; /* of admitted lists, */
    size_t capacity;      /* and of both together */
    size_t miss_bytes;    /* window bytes of a needed row that is not admitted; 0: not counted */
    size_t miss_capacity; /* bytes for such rows, in addition to `capacity`. With miss_bytes,
                             admission also gets what the expected misses leave of them */
    size_t miss_min;      /* part of miss_capacity that admission never takes */
    bool packed;          /* rows are cached by place in a working set: no set of them is made */
    double row_reads;     /* reads that a missed row costs, and a missed list; 0: one */
    double list_reads;
    size_t work_bytes; /* memory during the computation, besides the result */
    const char *tmp;   /* directory of a temporary file for counters that do not fit */
} plim__access_params_t;

/* The admitted lists and rows: two sealed sets and their bytes in the caches. */
typedef struct plim__access {
    plim__arena_t arena; /* account "admission": memory of both sets */
    plim__node_set_t lists;
    plim__node_set_t rows; /* without lines if params->packed */
    size_t list_bytes;
    size_t row_bytes;
    double list_hits; /* expected hit rates */
    double row_hits;
    double rows_missed; /* expected number of uncached rows that a window needs */
    plim__reach_t reach;
} plim__access_t;

/* Bytes of the result, with params->packed or not, and the minimum of work_bytes. */
size_t plim__access_estimate(int64_t num_nodes, bool packed);
size_t plim__access_work_minimum(const plim_job_t *job, int64_t num_nodes);

/* Whether the codes need a temporary file, and its size. */
bool plim__access_needs_file(const plim_job_t *job, int64_t num_nodes, size_t work_bytes);
int64_t plim__access_file_bytes(int64_t num_nodes);

/* Bytes that computing the result reads, of lists and codes; INT64_MAX below the minimum. */
int64_t plim__access_reads(const plim_job_t *job, const plim_dataset_info_t *info, int num_hops,
                           size_t work_bytes);

/* Computes the result, which is the same for every number of threads, engine and work_bytes.
 * PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED. */
plim_status_t plim__access_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                plim__access_t *access_out);

/* The same from the expected needs in a complete working set, without reading the graph. For caches
 * of the set's first places, so access_out has no sets. If params->list_bytes > 0, the set must
 * have lists. */
void plim__access_of_set(const plim__working_set_t *set, const plim__access_params_t *params,
                         plim__access_t *access_out);
void plim__access_free(plim__access_t *access); /* a zeroed one is harmless */

/*
 * Makes a working set, without its file, of the `most.rows` rows that are most probably needed, or
 * of all with a probability above 0; capacities are ignored. If no row is left out, it has lists
 * with a probability above 0, too: as many of the densest classes as `most` allows. With the same
 * `share` and seeds it is the same under every line. Errors as above.
 */
plim_status_t plim__access_pack(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                const char *scratch, uint64_t key, plim__working_size_t most,
                                plim__working_set_t **set_out);

#endif
