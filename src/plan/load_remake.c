/*
 * Planning a loader again and remaking it: for a stream that is larger than planned, and for
 * batches that were counted and are larger than a slot.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/process.h"
#include "load/loader.h"
#include "plan/load_plan.h"

#include <stdio.h>

#define MARGIN_PART 16 /* slots are larger than counted batches by 1/16: other epochs differ */

/* Bytes of the planned lists of seeds that no stream has taken. */
static int64_t lists_to_come(const plim_loader_t *loader)
{
    int64_t bytes = loader->context.plan.list_bytes;
    for (int i = 0; i < PLIM_STREAMS_MAX; i++) {
        const plim_stream_t *stream = &loader->streams[i];
        if (atomic_load(&stream->references) > 0 && stream->own != NULL)
            bytes -= plim__cost_pages(plim__seeds_list_stays(
                loader->context.info, plim__seeds_count(stream->own, PLIM_TRAIN),
                stream->shuffled));
    }
    return plim__max_i64(bytes, 0);
}

static int64_t checkpoint_bytes(const void *context, const plim__load_plan_t *plan)
{
    (void)plan;
    return ((const plim__load_plan_t *)context)->checkpoint_bytes;
}

/* How a loader is planned again. */
typedef struct change {
    const plim_stream_params_t *stream; /* one more; NULL: none */
    plim__load_size_t slot;             /* its least size */
    bool held;                          /* a batch that the caller holds keeps the old slots */
    const char *what;                   /* for messages */
} change_t;

/* Plans with so many slots; 0: as the planner likes. The cut of batches stays. Nothing is read,
 * since the loader still has its memory. */
static plim_status_t plan_again(const plim_loader_t *loader, const change_t *change, int num_slots,
                                plim__load_plan_t *plan_out)
{
    const plim__load_plan_t *old = &loader->context.plan;
    const int64_t kept = change->held ? (int64_t)loader->slots->arena.size : 0;
    const plim__load_remade_t remade = {old, change->slot, loader->bytes - kept,
                                        lists_to_come(loader)};
    const plim__load_client_t client = {
        .bytes = checkpoint_bytes,
        .context = old,
        .quiet = true,
        .remade = &remade,
        .what = change->what,
        .remedies = change->held
                        ? ", make batches or fan-outs smaller, or release the batches that are held"
                        : ", or make batches or fan-outs smaller"};
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    params.memory = old->line;
    params.num_slots = num_slots;
    params.part_seeds = old->recipe.form == PLIM_NATIVE ? old->part_seeds : 0;
    params.scratch = old->scratch[0] != '\0' ? old->scratch : NULL;
    params.streams = change->stream;
    params.num_streams = change->stream != NULL;
    PLIM_TRY(plim__load_plan_for(loader->context.asked, loader->context.dataset, &old->recipe,
                                 &params, &client, plan_out, NULL));
    plan_out->checkpoint_bytes = old->checkpoint_bytes;
    plan_out->part_nodes = old->part_nodes;
    plan_out->part_edges = old->part_edges;
    return PLIM_OK;
}

/* Plans with one more stream, and as many slots as before if the line allows it. */
static plim_status_t plan_stream(const plim_loader_t *loader, const plim_stream_params_t *stream,
                                 plim__load_plan_t *plan_out)
{
    const plim__load_plan_t *old = &loader->context.plan;
    const change_t change = {.stream = stream,
                             .slot = {old->slot_nodes, old->slot_edges},
                             .held = plim__loader_is_held(loader),
                             .what = "batches"};
    const plim_status_t status = plan_again(loader, &change, old->num_slots, plan_out);
    return status == PLIM_ERR_BUDGET ? plan_again(loader, &change, 0, plan_out) : status;
}

PLIM_API plim_status_t plim_loader_stream(plim_loader_t *loader, const plim_stream_params_t *given,
                                          plim_stream_t **stream_out)
{
    plim_stream_params_t params;
    plim__load_plan_t plan;
    PLIM_TRY(plim__process_check(loader->process));
    PLIM_ENTER(loader->context.asked);
    PLIM_TRY(plim__loader_check(loader));
    PLIM_TRY(plim__load_stream_params(given, &params));
    const plim_status_t status = plim__loader_stream(loader, &params, stream_out);
    if (status != PLIM_ERR_BUDGET)
        return status;
    PLIM_TRY(plan_stream(loader, &params, &plan));
    plim__log(loader->context.asked, PLIM_LOG_INFO,
              "the loader is remade for a stream that is larger than planned");
    PLIM_TRY(plim__loader_remake(loader, &plan));
    return plim__loader_stream(loader, &params, stream_out);
}

/*
 * Makes slots for batches of that size, out of the caches. Slots become fewer where memory is
 * scarce, but two of them stay two: a caller may hold a batch while it asks for the next.
 */
static plim_status_t enlarge_slots(plim_loader_t *loader, int64_t epoch,
                                   const plim__load_size_t *largest)
{
    const plim__load_plan_t *old = &loader->context.plan;
    const int few = old->num_slots < 2 ? 1 : 2;
    plim_status_t status = PLIM_ERR_BUDGET;
    plim__load_plan_t plan;
    char what[128];
    (void)snprintf(what, sizeof what,
                   "epoch %lld has batches of up to %lld nodes and %lld edges, and batches",
                   (long long)epoch, (long long)largest->nodes, (long long)largest->edges);
    const plim__load_size_t spacious = {largest->nodes + largest->nodes / MARGIN_PART,
                                        largest->edges + largest->edges / MARGIN_PART};
    const struct {
        int num_slots;
        const plim__load_size_t *slot;
    } tries[] = {
        {old->num_slots, &spacious}, {old->num_slots, largest}, {few, &spacious}, {few, largest}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0] && status == PLIM_ERR_BUDGET; i++) {
        const change_t change = {.slot = {plim__max_i64(old->slot_nodes, tries[i].slot->nodes),
                                          plim__max_i64(old->slot_edges, tries[i].slot->edges)},
                                 .held = plim__loader_is_held(loader),
                                 .what = what};
        status = plan_again(loader, &change, tries[i].num_slots, &plan);
    }
    PLIM_TRY(status);
    plim__log(
        loader->context.asked, PLIM_LOG_INFO,
        "epoch %lld has batches of up to %lld nodes: slots are made for %lld instead of %lld, "
        "out of the caches",
        (long long)epoch, (long long)largest->nodes, (long long)plan.slot_nodes,
        (long long)old->slot_nodes);
    return plim__loader_remake(loader, &plan);
}

/* Counts the batches from that step on, and makes slots that hold them. */
static plim_status_t make_slots_fit(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    plim_loader_t *loader = stream->loader;
    plim__load_size_t largest;
    PLIM_TRY(plim__stream_count_batches(stream, epoch, step, &largest));
    if (largest.nodes > loader->context.plan.slot_nodes ||
        largest.edges > loader->context.plan.slot_edges)
        PLIM_TRY(enlarge_slots(loader, epoch, &largest));
    stream->counted_epoch = epoch;
    stream->counted_step = step;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_stream_start(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    PLIM_TRY(plim__process_check(stream->process));
    PLIM_ENTER(stream->loader->context.asked);
    PLIM_TRY(plim__stream_check(stream, epoch, step));
    if (plim__stream_must_count(stream, epoch, step))
        PLIM_TRY(make_slots_fit(stream, epoch, step));
    return plim__stream_start(stream, epoch, step);
}
