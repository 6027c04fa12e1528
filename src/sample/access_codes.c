/* The hazards of all nodes between hops: initialises, reads and converts them to counters and
 * back. */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

#define CHUNK_BYTES ((size_t)PLIM__ACCESS_CHUNK * sizeof(uint16_t))

typedef struct sweep {
    plim__access_work_t *work;
    int64_t end;
    plim_status_t (*body)(void *context, int worker, int64_t chunk);
    void *context;
    atomic_llong next;
} sweep_t;

static plim_status_t sweep_worker(void *context, int worker)
{
    sweep_t *sweep = context;
    for (;;) {
        int64_t chunk = atomic_fetch_add(&sweep->next, 1);
        if (chunk >= sweep->end)
            return PLIM_OK;
        plim_status_t status = plim__job_check(sweep->work->job);
        if (status == PLIM_OK)
            status = sweep->body(sweep->context, worker, chunk);
        if (status != PLIM_OK) {
            atomic_store(&sweep->next, sweep->end); /* stops the other workers */
            return status;
        }
    }
}

plim_status_t plim__access_sweep(plim__access_work_t *work, int64_t first, int64_t end,
                                 plim_status_t (*body)(void *context, int worker, int64_t chunk),
                                 void *context)
{
    sweep_t sweep = {.work = work, .end = end, .body = body, .context = context};
    atomic_init(&sweep.next, first);
    return plim__parallel(work->layout.workers, sweep_worker, &sweep);
}

/* Parameters of the sweeps below. */
typedef struct range {
    plim__access_work_t *work;
    const plim__node_set_t *seeds;
    int64_t first; /* chunk of the first counter */
} range_t;

static int64_t file_offset(const plim__access_work_t *work, int which, int64_t chunk)
{
    return (which * plim__access_chunks(work->num_nodes) + chunk) * (int64_t)CHUNK_BYTES;
}

static plim_status_t start_chunk(void *context, int worker, int64_t chunk)
{
    const range_t *range = context;
    plim__access_work_t *work = range->work;
    int64_t first = chunk * PLIM__ACCESS_CHUNK;
    double share = work->params->share;
    double hazard = plim__hazard_of(share < PLIM__CHANCE_MAX ? share : PLIM__CHANCE_MAX);
    uint16_t code = plim__hazard_encode((uint32_t)(hazard * PLIM__HAZARD_ONE));
    uint16_t *codes = work->codes != NULL ? work->codes + first : work->workers[worker].codes;
    int64_t end = plim__min_i64(first + PLIM__ACCESS_CHUNK, work->num_nodes);
    memset(codes, 0, CHUNK_BYTES);
    for (int64_t node = first; node < end; node++) {
        node = plim__node_set_next_before(range->seeds, node, end);
        if (node < 0)
            break;
        /* A seed never gets probability 0, even for a tiny share. */
        codes[node - first] = code > 0 ? code : 1;
    }
    if (work->codes != NULL)
        return PLIM_OK;
    return plim__file_write_at(&work->file, file_offset(work, work->before, chunk), codes,
                               CHUNK_BYTES);
}

static plim_status_t add_seeds(const plim__access_work_t *work, const int64_t *seeds, int64_t count,
                               plim__node_set_t *set)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t seed = seeds != NULL ? seeds[i] : i;
        if (seed < 0 || seed >= work->num_nodes)
            return plim__fail(PLIM_ERR_DATA, "seed %lld is %lld, but the nodes are 0 to %lld",
                              (long long)i, (long long)seed, (long long)work->num_nodes - 1);
        (void)plim__node_set_add(set, seed);
    }
    return PLIM_OK;
}

plim_status_t plim__access_codes_start(plim__access_work_t *work, plim__node_set_t *set)
{
    const plim__access_params_t *params = work->params;
    range_t range = {.work = work, .seeds = set};
    PLIM_TRY(add_seeds(work, params->seeds, params->num_seeds, set));
    for (int i = 0; i < 2; i++)
        PLIM_TRY(add_seeds(work, params->others[i], params->num_others[i], set));
    plim_status_t status =
        plim__access_sweep(work, 0, plim__access_chunks(work->num_nodes), start_chunk, &range);
    plim__node_set_clear(set);
    return status;
}

plim_status_t plim__access_codes_before(plim__access_work_t *work, int64_t chunk, uint16_t *buffer,
                                        const uint16_t **codes_out)
{
    *codes_out = buffer;
    if (work->codes == NULL)
        return plim__file_read_at(&work->file, file_offset(work, work->before, chunk), buffer,
                                  CHUNK_BYTES);
    *codes_out = work->codes + chunk * PLIM__ACCESS_CHUNK;
    return PLIM_OK;
}

static void encode(const uint32_t *counters, uint16_t *codes)
{
    for (int64_t i = 0; i < PLIM__ACCESS_CHUNK; i++)
        codes[i] = plim__hazard_encode(counters[i]);
}

plim_status_t plim__access_codes_after(plim__access_work_t *work, int64_t chunk, uint16_t *buffer,
                                       const uint16_t **codes_out)
{
    *codes_out = buffer;
    if (work->codes == NULL)
        return plim__file_read_at(&work->file, file_offset(work, !work->before, chunk), buffer,
                                  CHUNK_BYTES);
    encode(work->counters + chunk * PLIM__ACCESS_CHUNK, buffer);
    return PLIM_OK;
}

static plim_status_t start_counters(void *context, int worker, int64_t chunk)
{
    const range_t *range = context;
    const uint16_t *codes;
    uint32_t *counters = range->work->counters + (chunk - range->first) * PLIM__ACCESS_CHUNK;
    PLIM_TRY(
        plim__access_codes_before(range->work, chunk, range->work->workers[worker].codes, &codes));
    for (int64_t i = 0; i < PLIM__ACCESS_CHUNK; i++)
        counters[i] = plim__hazard_decode(codes[i]);
    return PLIM_OK;
}

static plim_status_t store_counters(void *context, int worker, int64_t chunk)
{
    const range_t *range = context;
    plim__access_work_t *work = range->work;
    uint16_t *codes = work->workers[worker].codes;
    encode(work->counters + (chunk - range->first) * PLIM__ACCESS_CHUNK, codes);
    return plim__file_write_at(&work->file, file_offset(work, !work->before, chunk), codes,
                               CHUNK_BYTES);
}

plim_status_t plim__access_hop(plim__access_work_t *work, int hop)
{
    int64_t chunks = plim__access_chunks(work->num_nodes);
    int64_t step = work->layout.capacity / PLIM__ACCESS_CHUNK;
    for (int64_t first = 0; first < chunks; first += step) {
        range_t range = {.work = work, .first = first};
        int64_t end = plim__min_i64(first + step, chunks);
        PLIM_TRY(plim__access_sweep(work, first, end, start_counters, &range));
        PLIM_TRY(plim__access_pass(work, hop, first * PLIM__ACCESS_CHUNK,
                                   (end - first) * PLIM__ACCESS_CHUNK));
        if (work->codes == NULL)
            PLIM_TRY(plim__access_sweep(work, first, end, store_counters, &range));
    }
    return PLIM_OK;
}

static plim_status_t take_over(void *context, int worker, int64_t chunk)
{
    plim__access_work_t *work = context;
    (void)worker;
    encode(work->counters + chunk * PLIM__ACCESS_CHUNK, work->codes + chunk * PLIM__ACCESS_CHUNK);
    return PLIM_OK;
}

plim_status_t plim__access_codes_advance(plim__access_work_t *work)
{
    work->before = !work->before;
    if (work->codes == NULL)
        return PLIM_OK;
    return plim__access_sweep(work, 0, plim__access_chunks(work->num_nodes), take_over, work);
}
