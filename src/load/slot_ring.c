#include "load/slot_ring.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/process.h"

int64_t plim__stream_batch(const plim_stream_t *stream, int64_t step, int64_t *first_out)
{
    *first_out = step * stream->whole_size;
    return plim__min_i64(stream->whole_size,
                         plim__seeds_count(stream->seeds, stream->split) - *first_out);
}

static bool has_links(const plim_stream_t *stream)
{
    return plim__seeds_links(stream->seeds) != NULL;
}

/* The first seed of a share in a batch of `seeds` seeds. Shares of links are whole batches. */
static int64_t first_of(const plim_stream_t *stream, int64_t seeds, int64_t share)
{
    return has_links(stream)
               ? plim__min_i64(share * (stream->whole_size / stream->num_shares), seeds)
               : plim__share_first(seeds, stream->num_shares, share);
}

/* The stream's shares of a batch of `seeds` seeds: returns their number of seeds, and the first. */
static int64_t share_of(const plim_stream_t *stream, int64_t seeds, int64_t *first_out)
{
    *first_out = first_of(stream, seeds, stream->share);
    return first_of(stream, seeds, stream->share + stream->share_count) - *first_out;
}

int64_t plim__stream_count(const plim_stream_t *stream)
{
    const int64_t seeds = plim__seeds_count(stream->seeds, stream->split);
    int64_t first;
    return seeds / stream->whole_size * stream->batch_size +
           share_of(stream, seeds % stream->whole_size, &first);
}

int64_t plim__stream_steps(const plim_stream_t *stream)
{
    const int64_t seeds =
        plim__process_is(stream->process) ? plim__seeds_count(stream->seeds, stream->split) : 0;
    return seeds == 0 ? 0 : (seeds - 1) / stream->whole_size + 1;
}

plim_status_t plim__stream_take(const plim_stream_t *stream, plim__negatives_t *negatives,
                                int64_t epoch, int64_t first, int64_t count, int64_t *ids_out,
                                void *labels_out)
{
    const size_t label_bytes = plim__seeds_label_bytes(stream->seeds);
    char *labels = labels_out;
    while (count > 0) {
        int64_t batch_first, share_first;
        const int64_t seeds = plim__stream_batch(stream, first / stream->batch_size, &batch_first);
        const int64_t share = share_of(stream, seeds, &share_first);
        const int64_t within = first % stream->batch_size;
        const int64_t part = stream->num_shares == 1 ? count : plim__min_i64(count, share - within);
        const int64_t from = batch_first + share_first + within;
        if (has_links(stream))
            PLIM_TRY(plim__seeds_take_links(stream->seeds, negatives, stream->shuffled, epoch, from,
                                            part, ids_out));
        else
            plim__seeds_take(stream->seeds, stream->split, stream->shuffled, epoch, from, part,
                             ids_out, labels);
        ids_out += part;
        if (labels != NULL)
            labels += (size_t)part * label_bytes;
        first += part;
        count -= part;
    }
    return PLIM_OK;
}

PLIM_API plim_status_t plim_stream_input_ids(const plim_stream_t *stream, const plim_batch_t *batch,
                                             int64_t *ids_out)
{
    PLIM_TRY(plim__process_check(stream->process));
    int64_t first = 0, share_first;
    const int64_t seeds = batch->step < plim__stream_steps(stream)
                              ? plim__stream_batch(stream, batch->step, &first)
                              : 0;
    const int64_t share = share_of(stream, seeds, &share_first);
    if (batch->num_pairs > 0 || batch->first_seed + batch->num_seeds > share ||
        !plim__seeds_positions(stream->seeds, stream->shuffled, batch->epoch,
                               first + share_first + batch->first_seed, batch->num_seeds, ids_out))
        return plim__fail(PLIM_ERR_USAGE,
                          "batch %lld of epoch %lld is not one that this stream delivered last",
                          (long long)batch->step, (long long)batch->epoch);
    return PLIM_OK;
}

/* The number of microbatches of a share of `seeds` seeds; an empty share has one, too. */
static int64_t microbatches_of(const plim_stream_t *stream, int64_t seeds)
{
    return seeds > 0 ? (seeds - 1) / stream->microbatch_seeds + 1 : 1;
}

/* The number of the stream's shares of a batch of `seeds` seeds that have one seed more. */
static int64_t larger_shares(const plim_stream_t *stream, int64_t seeds)
{
    const int64_t larger = seeds % stream->num_shares - stream->share;
    return plim__max_i64(0, plim__min_i64(larger, stream->share_count));
}

/* The number of microbatches of the stream's shares of a batch of `seeds` seeds. */
static int64_t batch_microbatches(const plim_stream_t *stream, int64_t seeds)
{
    const int64_t each = seeds / stream->num_shares, larger = larger_shares(stream, seeds);
    if (has_links(stream))
        return stream->share_count;
    return larger * microbatches_of(stream, each + 1) +
           (stream->share_count - larger) * microbatches_of(stream, each);
}

int64_t plim__stream_microbatches(const plim_stream_t *stream, int64_t step)
{
    const int64_t seeds = plim__seeds_count(stream->seeds, stream->split);
    const int64_t full = seeds / stream->whole_size;
    int64_t microbatches =
        plim__min_i64(step, full) * batch_microbatches(stream, stream->whole_size);
    if (step > full)
        microbatches += batch_microbatches(stream, seeds % stream->whole_size);
    return microbatches;
}

plim__load_cut_t plim__load_cut(const plim__load_run_t *run, int64_t sequence)
{
    const plim_stream_t *stream = run->of;
    const int64_t number = sequence - run->first_sequence + run->first_number;
    const int64_t each = batch_microbatches(stream, stream->whole_size);
    plim__load_cut_t cut = {.step = number / each, .number = number % each};
    int64_t begin;
    const int64_t seeds = plim__stream_batch(stream, cut.step, &cut.place);
    cut.batch_first = cut.step * stream->batch_size;
    cut.batch_seeds = share_of(stream, seeds, &begin);
    cut.place += begin;
    if (has_links(stream)) {
        cut.share = stream->share + (int)cut.number;
        cut.first = first_of(stream, seeds, cut.share) - begin;
        cut.end = first_of(stream, seeds, cut.share + 1) - begin;
        return cut;
    }
    /* The larger shares come first. */
    const int64_t larger = larger_shares(stream, seeds);
    const int64_t many = microbatches_of(stream, seeds / stream->num_shares + 1);
    const int64_t few = microbatches_of(stream, seeds / stream->num_shares);
    const int64_t past = cut.number - larger * many; /* not negative: in a smaller share */
    const int64_t share = past < 0 ? cut.number / many : larger + past / few;
    const int64_t part = past < 0 ? cut.number % many : past % few;
    cut.share = stream->share + (int)share;
    cut.first = plim__share_first(seeds, stream->num_shares, cut.share) - begin +
                part * stream->microbatch_seeds;
    cut.end = plim__min_i64(cut.first + stream->microbatch_seeds,
                            plim__share_first(seeds, stream->num_shares, cut.share + 1) - begin);
    return cut;
}

void plim__slot_ring_init(plim__slot_ring_t *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    atomic_init(&ring->next, PLIM__SLOT_RING_CLOSED);
    atomic_init(&ring->failed_at, INT64_MAX);
}

void plim__slot_ring_destroy(plim__slot_ring_t *ring)
{
    pthread_mutex_destroy(&ring->lock);
}

void plim__slot_ring_close(plim__slot_ring_t *ring)
{
    const int64_t next = atomic_exchange(&ring->next, PLIM__SLOT_RING_CLOSED);
    if (next != PLIM__SLOT_RING_CLOSED)
        ring->closed_at = next;
}

void plim__slot_ring_raise(plim__slot_ring_t *ring, int64_t limit)
{
    atomic_store(&ring->limit, limit);
    plim__condition_wake_all(&ring->work);
    plim__condition_wake(&ring->news, 1);
}

void plim__slot_ring_fail(plim__slot_ring_t *ring, int64_t sequence, plim_status_t status)
{
    /* At the limit it is the error of a window: those before it can still be built. */
    if (sequence < atomic_load(&ring->limit))
        plim__slot_ring_close(ring);
    if (sequence < atomic_load(&ring->failed_at)) {
        ring->status = status;
        plim__fail_save(&ring->failure);
        atomic_store(&ring->failed_at, sequence);
    }
    plim__condition_wake(&ring->news, 1);
}
