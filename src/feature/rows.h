/*
 * Where rows come from. A row source answers one question: the rows of these nodes, in the type
 * that is wanted. In memory, on disk with a cache before it, fetched before for a whole window, one
 * day on another machine: nothing above knows which.
 */
#ifndef PLIM_FEATURE_ROWS_H
#define PLIM_FEATURE_ROWS_H

#include "base/node_set.h"
#include "store/dataset.h"

typedef struct plim__rows plim__rows_t;

typedef struct plim__rows_stats {
    int64_t rows;      /* gathered … */
    int64_t rows_hot;  /* … from memory */
    int64_t rows_lost; /* hot ones that the kernel had taken back */
    int64_t transfers;
    int64_t bytes_read;
    int64_t wait_ns; /* waited for them, summed over workers */
} plim__rows_stats_t;

/* What a source is, for those who make one: kept as the first member of its struct. */
struct plim__rows {
    plim_status_t (*gather)(plim__rows_t *source, int worker, const int64_t *nodes, int64_t count,
                            plim_dtype_t type, void *rows_out);
    void (*stats)(plim__rows_t *source, plim__rows_stats_t *stats_out);
    void (*destroy)(plim__rows_t *source);
};

/*
 * Writes the rows of nodes[0 … count-1], each valid, to rows_out (count, num_features) as `type`
 * (PLIM_F16 or PLIM_F32). Workers 0 … workers-1 may gather at once, each number by one thread at a
 * time. On disk, ascending nodes and large counts read best. PLIM_ERR_IO, PLIM_ERR_DATA.
 */
static inline plim_status_t plim__rows_gather(plim__rows_t *source, int worker,
                                              const int64_t *nodes, int64_t count,
                                              plim_dtype_t type, void *rows_out)
{
    return source->gather(source, worker, nodes, count, type, rows_out);
}

static inline void plim__rows_stats(plim__rows_t *source, plim__rows_stats_t *stats_out)
{
    source->stats(source, stats_out);
}

static inline void plim__rows_destroy(plim__rows_t *source)
{
    if (source != NULL)
        source->destroy(source);
}

/* All of features.npy in memory, in its own type (account "rows"). */
size_t plim__rows_memory_stays(const plim_dataset_t *dataset); /* once they are read */
size_t plim__rows_memory_estimate(const plim_job_t *job, const plim_dataset_t *dataset);
plim_status_t plim__rows_memory_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       plim__rows_t **source_out);

/*
 * features.npy on disk, read by batched direct I/O: what is less than `gap` bytes apart is one
 * read. Rows of the nodes in `hot` are kept in memory (feature/row_cache.h), the first cache_bytes
 * of them.
 */
typedef struct plim__rows_disk_params {
    int workers;
    int depth; /* I/Os in flight, for each worker */
    size_t gap;
    const plim__node_set_t *hot; /* sealed, borrowed; NULL: none */
    size_t cache_bytes;
    const char *scratch; /* where the packed hot rows are kept for the next start; NULL: nowhere */
    uint64_t cache_key;  /* names what they are kept for: one file each, of the last choice */
    int64_t held;        /* kept in that file: see plim__rows_packed_held */
} plim__rows_disk_params_t;

size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__rows_disk_params_t *params);

/* Of that, what is over once the hot rows are filled. */
size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__rows_disk_params_t *params);
plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__rows_disk_params_t *params,
                                     plim__rows_t **source_out);

/* Bytes on disk of the packed file of so many bytes of hot rows, or of all there are. */
int64_t plim__rows_packed_bytes(const plim_dataset_t *dataset, size_t cache_bytes);

/*
 * What the plan took as held by the process when the packed rows of that key were chosen; 0 when
 * there are none. A process differs by some pages from start to start: whoever reckons with the
 * same figure makes the same choice, and finds its rows there.
 */
int64_t plim__rows_packed_held(const plim_dataset_t *dataset, const char *scratch, uint64_t key);

/* Whether a row is in memory as far as the last plim__rows_disk_refresh knows; never in a source of
 * another kind. Any thread. */
bool plim__rows_disk_holds(plim__rows_t *source, int64_t node);

/*
 * Looks which hot rows the kernel has taken back, and brings them back when there is room under the
 * line and in the control group. Between windows; by one thread, while others may gather. Harmless
 * for a source of another kind.
 */
plim_status_t plim__rows_disk_refresh(plim__rows_t *source);

/* Bytes of hot rows, 0 in a source of another kind; and as plim__row_cache_limit, harmless there.
 */
size_t plim__rows_disk_kept(plim__rows_t *source);
void plim__rows_disk_limit(plim__rows_t *source, size_t bytes);

#endif
