#include "plan/load_plan.h"
#include "load/plan_data.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "load/loader.h"
#include "load/loader_params.h"
#include "load/recipe.h"
#include "load/slots.h"
#include "mem/footprint.h"
#include "mem/size_text.h"
#include "nn/matrix.h"
#include "plan/expect.h"
#include "plan/load_cost.h"
#include "plan/load_fit.h"
#include "plan/statistics.h"

#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
/* A process larger than the nominal one is counted in steps of this: its plan, and so the rows that
 * are packed on a scratch disk, are the same from run to run. */
#define FIXED_STEP ((size_t)8 << 20)

#define TRIAL_SEEDS 64 /* splits smaller than this are not worth one */

/* What can be drawn at all, and is worth a plan. */
static plim_status_t check_recipe(const plim_dataset_t *dataset, const plim_recipe_t *recipe,
                                  const plim_plan_params_t *wishes)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    PLIM_TRY(plim__load_recipe_check(dataset, recipe));
    if (info->num_split[PLIM_TRAIN] == 0 && wishes->num_streams == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s: it has no training split, so there are no batches",
                          plim__dataset_path(dataset));
    return PLIM_OK;
}

static plim_status_t check_wishes(const plim_plan_params_t *wishes)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } given[] = {
        {"memory", wishes->memory, 0, INT64_MAX},
        {"num_slots", wishes->num_slots, 0, PLIM__LOAD_SLOTS_MAX},
        {"window", wishes->window, 0, INT64_MAX},
        {"part_nodes", wishes->part_nodes, 0, INT64_MAX},
        {"part_edges", wishes->part_edges, 0, INT64_MAX},
        {"topology", wishes->topology, 0, 2},
        {"rows", wishes->rows, 0, 2},
        {"hot_rows", wishes->row_cache, -1, INT64_MAX},
        {"hot_lists", wishes->list_cache, -1, INT64_MAX},
    };
    plim__load_plan_t plan;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (given[i].value < given[i].least || given[i].value > given[i].most)
            return plim__fail(PLIM_ERR_USAGE,
                              "a wish of %lld for %s; it is from %lld to %lld, 0 leaves it to the "
                              "plan",
                              (long long)given[i].value, given[i].name, (long long)given[i].least,
                              (long long)given[i].most);
    if (wishes->scratch != NULL && strlen(wishes->scratch) >= sizeof plan.scratch)
        return plim__fail(PLIM_ERR_USAGE, "%s: a scratch directory's path has less than %zu bytes",
                          wishes->scratch, sizeof plan.scratch);
    return PLIM_OK;
}

/* The larger of two fan-outs, -1 being all. */
static int64_t wider(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : plim__max_i64(a, b);
}

/* One more stream of so many seeds. */
static void add_stream(const plim__manifest_t *manifest, const plim_recipe_t *recipe, int64_t seeds,
                       plim__load_streams_t *streams)
{
    plim_recipe_t *envelope = &streams->envelope;
    const int64_t batch = plim__min_i64(recipe->batch_size, seeds);
    const int64_t largest = plim__min_i64(streams->largest.batch_size, streams->most_seeds);
    if (plim__load_size_expected(manifest, recipe, batch).nodes >
        plim__load_size_expected(manifest, &streams->largest, largest).nodes)
        streams->largest = *recipe;
    envelope->batch_size = plim__max_i64(envelope->batch_size, recipe->batch_size);
    for (int i = 0; i < recipe->num_hops; i++)
        envelope->fanout[i] = i < envelope->num_hops ? wider(envelope->fanout[i], recipe->fanout[i])
                                                     : recipe->fanout[i];
    envelope->num_hops =
        envelope->num_hops > recipe->num_hops ? envelope->num_hops : recipe->num_hops;
    streams->most_seeds = plim__max_i64(streams->most_seeds, seeds);
}

/* The index-th of the streams that the plan was told of. */
static plim_status_t stream_at(const plim_plan_params_t *wishes, int index,
                               plim_stream_params_t *params_out)
{
    const char *at = (const char *)wishes->streams + (size_t)index * wishes->streams->size;
    return plim__load_stream_params((const plim_stream_params_t *)(const void *)at, params_out);
}

/* The three splits as the recipe says, and what else the plan was told of. */
static plim_status_t find_streams(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                                  plim__load_streams_t *streams)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    size_t bytes = 0, work = 0;
    *streams = (plim__load_streams_t){
        .envelope = *recipe, .largest = *recipe, .most_seeds = plim__load_largest_split(info)};
    for (int i = 0; i < wishes->num_streams; i++) {
        plim_stream_params_t params;
        PLIM_TRY(stream_at(wishes, i, &params));
        const bool list = params.num_nodes > 0;
        if (params.num_nodes < 0 || params.split < PLIM_TRAIN || params.split > PLIM_TEST)
            return plim__fail(PLIM_ERR_USAGE, "stream %d: there is no split %d, or no list of %lld",
                              i, (int)params.split, (long long)params.num_nodes);
        const plim_recipe_t own = plim__load_stream_recipe(recipe, &params);
        const int64_t seeds = list ? params.num_nodes : info->num_split[params.split];
        PLIM_TRY(plim__load_recipe_check(dataset, &own));
        add_stream(plim__dataset_manifest(dataset), &own, seeds, streams);
        if (!list && (params.split == PLIM_TRAIN || !params.shuffle))
            continue;
        bytes =
            plim__add_saturating_size(bytes, plim__seeds_list_stays(info, seeds, params.shuffle));
        const size_t once = plim__seeds_list_work(job, info, seeds);
        work = once > work ? once : work;
    }
    streams->list_bytes = plim__cost_pages(plim__add_saturating_size(bytes, work));
    return PLIM_OK;
}

static bool may_read(const plim__load_facts_t *facts)
{
    return !facts->beside->quiet && !facts->wishes->no_reading;
}

/* The most that a batch, and the least part of one, can need. */
static plim_status_t find_bounds(plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const bool whole = facts->recipe->form == PLIM_PYG || facts->beside->whole;
    if (info->num_graphs > 0)
        PLIM_TRY(plim__statistics_largest(facts->job, facts->dataset, may_read(facts),
                                          &facts->largest.nodes, &facts->largest.edges,
                                          &facts->largest_guessed));
    facts->most = plim__load_most(facts, facts->part_seeds);
    facts->one = whole ? facts->most : plim__load_most(facts, 1);
    for (int i = 0; i < facts->wishes->num_streams; i++) {
        plim_stream_params_t params;
        PLIM_TRY(stream_at(facts->wishes, i, &params));
        const plim_recipe_t own = plim__load_stream_recipe(facts->recipe, &params);
        plim__load_facts_t other = *facts;
        other.recipe = &own;
        const plim__load_size_t least = plim__load_most(&other, whole ? own.batch_size : 1);
        facts->one.nodes = plim__max_i64(facts->one.nodes, least.nodes);
        facts->one.edges = plim__max_i64(facts->one.edges, least.edges);
    }
    return PLIM_OK;
}

int64_t plim__plan_fixed(plim_ledger_t *ledger)
{
    plim_account_info_t infos[PLIM__PLAN_ACCOUNTS];
    const int64_t all = plim__ledger_reserved(ledger) - plim__ledger_reserve_bytes(ledger);
    const int count = plim__ledger_accounts(ledger, PLIM__PLAN_ACCOUNTS, infos);
    int64_t others = 0;
    for (int i = 0; i < count && i < PLIM__PLAN_ACCOUNTS; i++)
        if (strcmp(infos[i].name, "other processes") == 0)
            others = infos[i].reserved;
    const int64_t own = (int64_t)plim__round_up((size_t)(all - others), FIXED_STEP);
    return plim__max_i64(own, PLIM__NOMINAL_PROCESS) + others;
}

static plim_status_t find_facts(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__load_streams_t *streams,
                                const plim_plan_params_t *wishes, const plim__load_beside_t *beside,
                                plim__load_facts_t *facts)
{
    *facts = (plim__load_facts_t){
        .job = job,
        .dataset = dataset,
        .recipe = &streams->largest,
        .streams = streams,
        .wishes = wishes,
        .beside = beside,
        .fixed = plim__plan_fixed(job->ledger),
        .epoch_seeds = streams->most_seeds,
        .batch_seeds = plim__min_i64(streams->largest.batch_size, streams->most_seeds)};
    facts->part_seeds = wishes->part_seeds > 0
                            ? plim__min_i64(facts->batch_seeds, wishes->part_seeds)
                            : facts->batch_seeds;
    return find_bounds(facts);
}

/* What stands on the ledger while the probe runs. */
static int64_t probe_total(const plim__load_facts_t *facts, int64_t line)
{
    const size_t bytes = plim__probe_estimate(facts->job, facts->dataset, facts->recipe);
    return plim__add_saturating_i64(plim__load_fixed(facts, line),
                                    bytes < (size_t)INT64_MAX ? (int64_t)bytes : INT64_MAX);
}

/*
 * Whether drawing some batches would make a better plan: one that has to guess how large they are.
 * Where batches may be cut, they are always drawn: what a part may need decides where it is halved,
 * and so the last bits, which must not depend on the arrangement.
 */
static bool needs_probe(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const bool guessed =
        facts->beside->cuts || plan->window_steps > 0 || plan->slot_nodes < facts->most.nodes;
    return guessed && info->num_graphs == 0 && facts->recipe->num_hops > 0 &&
           info->num_split[PLIM_TRAIN] >= TRIAL_SEEDS;
}

/*
 * The accounts that stand on the ledger already come first. The reserve is that of the smallest
 * line under which these choices fit; the process is raised to what the plan counts for it.
 */
static void add_held(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    plim_ledger_t *ledger = facts->job->ledger;
    const int threads = plim__job_threads(facts->job);
    const int64_t used = plan->total - plim__footprint_reserve(plan->line, threads);
    plan->total = plim__min_i64(plan->total, plim__footprint_minimum(used, threads));
    const int64_t reserve = plim__ledger_reserve_bytes(ledger);
    const int64_t raised = facts->fixed - (plim__ledger_reserved(ledger) - reserve);
    plim_account_info_t infos[PLIM__PLAN_ACCOUNTS];
    int count = plim__ledger_accounts(ledger, PLIM__PLAN_ACCOUNTS, infos);
    int64_t other = 0;
    int held = 0;
    plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS];
    for (int i = 0; i < count && i < PLIM__PLAN_ACCOUNTS; i++) {
        if (infos[i].reserved == 0)
            continue;
        if (held + plan->num_accounts + 1 >= PLIM__PLAN_ACCOUNTS) {
            other += infos[i].reserved;
            continue;
        }
        memcpy(accounts[held].name, infos[i].name, sizeof accounts[held].name);
        accounts[held].bytes = infos[i].reserved + (i == 0 ? raised : 0);
        if (strcmp(infos[i].name, "reserve") == 0)
            accounts[held].bytes = plan->total - used;
        held++;
    }
    if (other > 0) {
        (void)snprintf(accounts[held].name, sizeof accounts[held].name, "other");
        accounts[held++].bytes = other;
    }
    for (int i = 0; i < held; i++)
        for (int phase = 0; phase < PLIM__PHASES; phase++)
            accounts[i].phase[phase] = accounts[i].bytes;
    memcpy(accounts + held, plan->accounts, (size_t)plan->num_accounts * sizeof accounts[0]);
    plan->num_accounts += held;
    plan->num_held = held;
    memcpy(plan->accounts, accounts, sizeof accounts);
}

/* What is hot may grow by what is shared with it. */
static int64_t scratch_bytes(const plim_dataset_t *dataset, const plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const size_t row = (size_t)info->num_features * plim__feature_bytes(info->feature_type);
    size_t bytes = plan->row_cache_bytes;
    if (plan->scratch[0] == '\0' || plan->row_cache_bytes == 0)
        return 0;
    if (plan->shared)
        bytes += plan->list_cache_bytes + PLIM__LOAD_WINDOWS * (size_t)plan->window_rows * row;
    return plim__rows_packed_bytes(dataset, bytes);
}

static bool fits_a_slot(const plim__load_plan_t *plan, plim__load_size_t size)
{
    return size.nodes <= plan->slot_nodes && size.edges <= plan->slot_edges;
}

/* The line, to a MiB, from which on a slot has room for a batch; 0 when there is none. */
static int64_t whole_line(const plim__load_facts_t *facts, int64_t line)
{
    const plim__load_size_t batch = plim__load_needed(facts, facts->part_seeds);
    int64_t low = line, high = line;
    plim__load_plan_t plan;
    do {
        if (high > INT64_MAX / 4)
            return 0;
        low = high;
        high *= 2;
    } while (!plim__load_fit(facts, high, &plan) || !fits_a_slot(&plan, batch));
    while (high - low > MIB) {
        const int64_t middle = low + (high - low) / 2;
        if (plim__load_fit(facts, middle, &plan) && fits_a_slot(&plan, batch))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Says so when batches will come in parts: the loader halves them until they fit. */
static void log_parts(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const int64_t seeds = facts->part_seeds;
    int64_t parts = 1;
    while (parts < seeds && !fits_a_slot(plan, plim__load_expected(facts, (seeds - 1) / parts + 1)))
        parts *= 2;
    if (parts == 1)
        return;
    const int64_t line = whole_line(facts, plan->line);
    const int64_t mebibytes = line / MIB + 1;
    if (line > 0)
        plim__log(facts->job, PLIM_LOG_INFO,
                  "a %s comes in about %lld parts; from about %lld MiB of memory on it comes "
                  "whole",
                  facts->wishes->part_seeds > 0 ? "part of a batch" : "batch", (long long)parts,
                  (long long)mebibytes);
}

static void log_cut(const plim__load_facts_t *facts, int64_t line, int64_t seeds)
{
    const int64_t enough = whole_line(facts, line);
    const int64_t mebibytes = enough / MIB + 1;
    char more[96] = "";
    if (enough > 0)
        (void)snprintf(
            more, sizeof more, "; from about %lld MiB of memory on it is %s", (long long)mebibytes,
            facts->part_seeds < facts->batch_seeds ? "as many as wished for" : "whole batches");
    char parts[96];
    (void)snprintf(parts, sizeof parts, "%lld seed%s at a time", (long long)seeds,
                   seeds == 1 ? "" : "s");
    const long long batch = (long long)facts->recipe->batch_size;
    if (facts->beside->bits)
        plim__log(facts->job, PLIM_LOG_WARNING,
                  "batches of %lld are computed %s: losses differ from those of "
                  "whole batches in the last bits, which training may magnify%s",
                  batch, parts, more);
    else
        plim__log(facts->job, PLIM_LOG_INFO, "batches of %lld come %s%s", batch, parts, more);
}

/* The same facts for batches that are cut at so many seeds. */
static plim__load_facts_t cut_at(const plim__load_facts_t *facts, int64_t seeds)
{
    plim__load_facts_t parts = *facts;
    parts.part_seeds = seeds;
    parts.most = plim__load_most(facts, seeds);
    return parts;
}

/*
 * Whether parts of so many seeds fit under the line, each in one slot, with what a model holds of
 * so many beside them. What is added up then depends on that number and on what so many seeds may
 * need, not on how much a slot happens to hold.
 */
static bool fit_parts(const plim__load_facts_t *parts, int64_t line, plim__load_plan_t *plan_out)
{
    const plim__load_size_t needed = plim__load_needed(parts, parts->part_seeds);
    if (!plim__load_fit(parts, line, plan_out) || !fits_a_slot(plan_out, needed))
        return false;
    plan_out->part_nodes = needed.nodes;
    plan_out->part_edges = needed.edges;
    return true;
}

/* Whether batches come in so many equal parts under the line. */
static bool fits_cut(const plim__load_facts_t *facts, int64_t line, int64_t parts)
{
    plim__load_facts_t cut = cut_at(facts, (facts->part_seeds - 1) / parts + 1);
    plim__load_plan_t plan;
    cut.modest = cut.part_seeds > PLIM__ROWS;
    return fit_parts(&cut, line, &plan);
}

/* Seeds of a part where batches must be cut: of the fewest equal parts that fit, to a quarter of
 * their number. */
static int64_t cut_seeds(const plim__load_facts_t *facts, int64_t line)
{
    const int64_t all = facts->part_seeds;
    int64_t few = 1, many = 2; /* few do not fit, many do */
    for (; many < all && !fits_cut(facts, line, many); many *= 2)
        few = many;
    const int64_t exact = plim__max_i64(few / 4, 1);
    while (many - few > exact) {
        const int64_t middle = few + (many - few) / 2;
        if (fits_cut(facts, line, middle))
            many = middle;
        else
            few = middle;
    }
    return (all - 1) / many + 1;
}

/* Fits whole batches, or else the largest parts of them that fit. */
static bool fit(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan_out)
{
    if (!facts->beside->cuts)
        return plim__load_fit(facts, line, plan_out);
    if (fit_parts(facts, line, plan_out))
        return true;
    if (facts->keeps_cut)
        return false;
    const plim__load_facts_t parts =
        cut_at(facts, facts->beside->any_cut ? 1 : cut_seeds(facts, line));
    return fit_parts(&parts, line, plan_out);
}

/* Seeds that are computed at a time. */
static int64_t seeds_of(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return plan->part_seeds > 0 ? plim__min_i64(facts->batch_seeds, plan->part_seeds)
                                : facts->batch_seeds;
}

/*
 * Before batches are cut: what stands beside takes less where that keeps them whole, or cuts them
 * less, since it changes no bits and a cut does. False when nothing fits.
 */
static bool fit_tighter(const plim__load_facts_t *facts, const plim__load_beside_t *tight,
                        int64_t line, plim__load_plan_t *plan_out, bool *tight_out)
{
    const bool fits = fit(facts, line, plan_out);
    plim__load_facts_t tighter = *facts;
    plim__load_plan_t plan;
    *tight_out = false;
    if (tight->context == NULL || (fits && seeds_of(facts, plan_out) == facts->part_seeds))
        return fits;
    tighter.beside = tight;
    if (!fit(&tighter, line, &plan) ||
        (fits && seeds_of(facts, &plan) <= seeds_of(facts, plan_out)))
        return fits;
    *plan_out = plan;
    *tight_out = true;
    return true;
}

static plim_status_t refuse(const plim__load_facts_t *facts, int64_t line, int64_t minimum)
{
    char text[PLIM__SIZE_TEXT], needed[PLIM__SIZE_TEXT];
    /* Whole MiB, and one above: the process differs by some pages from run to run. */
    const int64_t given = minimum / MIB + (minimum % MIB != 0) + 1;
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s: at least %s in all are needed for %s of %lld%s, and the memory "
                      "line is %s; give --memory %lldM or more%s",
                      plim__dataset_path(facts->dataset),
                      plim__size_text(minimum + MIB / 20, needed), /* rounded up */
                      facts->beside->what, (long long)facts->recipe->batch_size,
                      facts->recipe->form == PLIM_PYG ? " in PyG's form" : "",
                      plim__size_text(line, text), (long long)given, facts->beside->remedies);
}

static int64_t nothing(const void *context, const plim__load_plan_t *plan)
{
    (void)context;
    (void)plan;
    return 0;
}

/* The facts of the nominal process, which decide where batches are cut. `job_out` is their job. */
static plim__load_facts_t nominal_of(const plim__load_facts_t *facts, plim_job_t *job_out)
{
    plim__load_facts_t nominal = *facts;
    *job_out = *facts->job;
    job_out->threads = PLIM__NOMINAL_THREADS;
    job_out->io_engine = PLIM_IO_THREADS;
    nominal.job = job_out;
    nominal.fixed = PLIM__NOMINAL_PROCESS;
    return nominal;
}

/* Whether the cut of batches decides the last bits of the result, so that it may not follow from
 * what this process holds or from its threads. */
static bool cut_decides(const plim__load_facts_t *facts)
{
    return facts->beside->cuts && facts->beside->bits;
}

/* Minimum line, assuming the smallest choice for everything: one seed at a time, and what stands
 * beside the loader tight. */
static int64_t minimum_of(const plim__load_facts_t *facts, const plim__load_beside_t *tight)
{
    plim__load_facts_t tightest = facts->beside->cuts ? cut_at(facts, 1) : *facts;
    plim_job_t job;
    if (tight->context != NULL)
        tightest.beside = tight;
    const int64_t minimum = plim__load_minimum(&tightest);
    if (!cut_decides(facts))
        return minimum;
    tightest = nominal_of(&tightest, &job);
    return plim__max_i64(minimum, plim__load_minimum(&tightest));
}

/* The nominal process computes so many seeds at a time under this line; this one has no room for
 * them. */
static plim_status_t refuse_cut(const plim__load_facts_t *facts, const plim__load_beside_t *tight,
                                int64_t line, int64_t seeds)
{
    plim__load_plan_t plan;
    bool is_tight;
    char text[PLIM__SIZE_TEXT], fixed[PLIM__SIZE_TEXT];
    if (!fit_tighter(facts, tight, line, &plan, &is_tight))
        return refuse(facts, line, minimum_of(facts, tight));
    return plim__fail(
        PLIM_ERR_BUDGET,
        "%s: under %s batches of %lld are computed %lld seeds at a time, whatever the "
        "process; this one holds %s and has %d threads, and they do not fit beside "
        "that: give --microbatch %lld, more --memory or fewer --threads",
        plim__dataset_path(facts->dataset), plim__size_text(line, text),
        (long long)facts->recipe->batch_size, (long long)seeds,
        plim__size_text(facts->fixed, fixed), plim__job_threads(facts->job),
        (long long)seeds_of(facts, &plan));
}

/*
 * Fits under the line. Where the cut of batches decides bits it is that of the nominal process, and
 * this process keeps it: its caches get what is left.
 */
static plim_status_t fit_cut(const plim__load_facts_t *facts, const plim__load_beside_t *tight,
                             int64_t line, plim__load_plan_t *plan_out, bool *tight_out)
{
    plim_job_t job;
    if (!cut_decides(facts))
        return fit_tighter(facts, tight, line, plan_out, tight_out)
                   ? PLIM_OK
                   : refuse(facts, line, minimum_of(facts, tight));
    const plim__load_facts_t nominal = nominal_of(facts, &job);
    if (!fit_tighter(&nominal, tight, line, plan_out, tight_out))
        return refuse(facts, line, minimum_of(facts, tight));
    const int64_t seeds = seeds_of(facts, plan_out);
    plim__load_facts_t kept = seeds < facts->part_seeds ? cut_at(facts, seeds) : *facts;
    kept.keeps_cut = true;
    return fit_tighter(&kept, tight, line, plan_out, tight_out)
               ? PLIM_OK
               : refuse_cut(facts, tight, line, seeds);
}

/*
 * Fits by what dataset.json says, and again by what some seeds really need where that would be
 * guessed. What the probe holds is gone before the loader is made: it belongs to the start.
 */
static plim_status_t choose(plim__load_facts_t *facts, const plim__load_beside_t *tight,
                            int64_t line, plim__load_plan_t *plan, bool *tight_out)
{
    const plim__load_beside_t *beside = facts->beside;
    PLIM_TRY(fit_cut(facts, tight, line, plan, tight_out));
    plan->guessed = facts->largest_guessed;
    if (!needs_probe(facts, plan))
        return PLIM_OK;
    const int64_t probing = probe_total(facts, line);
    const bool room = probing <= line;
    if (beside->quiet && beside->known != NULL)
        facts->probe = *beside->known;
    else
        PLIM_TRY(plim__statistics_probe(facts->job, facts->dataset, facts->recipe,
                                        may_read(facts) && room, &facts->probe));
    plan->guessed = facts->probe.count == 0;
    if (plan->guessed)
        return PLIM_OK;
    PLIM_TRY(fit_cut(facts, tight, line, plan, tight_out));
    if (!room)
        return PLIM_OK;
    plan->start = plim__max_i64(plan->start, probing - plim__load_fixed(facts, line) -
                                                 plim__load_early(facts, plan));
    plan->total = plim__max_i64(plan->total, probing);
    return PLIM_OK;
}

static void log_plan(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const int64_t seeds = seeds_of(facts, plan);
    if (facts->beside->quiet)
        return;
    if (!facts->beside->cuts)
        log_parts(facts, plan);
    else if (seeds < facts->part_seeds)
        log_cut(facts, plan->line, seeds);
}

/* A plan that need not know how large batches are is told, where it has been found out. */
static plim_status_t expect(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    plim__load_facts_t known = *facts;
    if (facts->probe.count == 0 && facts->recipe->num_hops > 0)
        PLIM_TRY(
            plim__statistics_probe(facts->job, facts->dataset, facts->recipe, false, &known.probe));
    plan->expect = plim__load_expect(&known, plan);
    return PLIM_OK;
}

int64_t plim__load_line(const plim_job_t *job, const plim_plan_params_t *wishes)
{
    const int64_t line = plim__ledger_line(job->ledger);
    return wishes->memory > 0 ? plim__min_i64(line, wishes->memory) : line;
}

plim_status_t plim__load_plan_beside(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                                     const plim__load_beside_t *beside, plim__load_plan_t *plan_out,
                                     bool *tight_out)
{
    static const plim__load_beside_t alone = {
        .bytes = nothing, .what = "batches", .remedies = ", or make batches or fan-outs smaller"};
    plim_plan_params_t wanted = {0};
    if (wishes != NULL)
        wanted = *wishes;
    if (beside == NULL)
        beside = &alone;
    PLIM_TRY(check_recipe(dataset, recipe, &wanted));
    PLIM_TRY(check_wishes(&wanted));
    PLIM_TRY(plim__load_cut_check(recipe, wanted.part_seeds));
    plim__load_facts_t facts;
    plim__load_streams_t streams;
    PLIM_TRY(find_streams(job, dataset, recipe, &wanted, &streams));
    PLIM_TRY(find_facts(job, dataset, &streams, &wanted, beside, &facts));
    const int64_t line = plim__load_line(job, &wanted);
    plim__load_beside_t tight = *beside;
    bool is_tight;
    plim__load_plan_t plan;
    tight.context = beside->tighter;
    PLIM_TRY(choose(&facts, &tight, line, &plan, &is_tight));
    if (tight.context != NULL) /* what is said of other lines is of the least that it takes */
        facts.beside = &tight;
    log_plan(&facts, &plan);
    plan.scratch_bytes = scratch_bytes(dataset, &plan);
    if (!beside->quiet)
        PLIM_TRY(expect(&facts, &plan));
    plan.recipe = *recipe;
    plan.line = line;
    add_held(&facts, &plan);
    plan.minimum = minimum_of(&facts, &tight);
    *plan_out = plan;
    if (tight_out != NULL)
        *tight_out = is_tight;
    return PLIM_OK;
}

plim_status_t plim__load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                              plim__load_plan_t *plan_out)
{
    return plim__load_plan_beside(job, dataset, recipe, wishes, NULL, plan_out, NULL);
}

PLIM_API plim_status_t plim_load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                      plim_plan_t **plan_out)
{
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim_plan_t *plan;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_plan_params_t", &wanted, sizeof wanted));
    PLIM_TRY(plim__plan_create(job, &plan));
    plim_status_t status = plim__load_plan(job, dataset, recipe, &wanted, &plan->numbers.load);
    if (status != PLIM_OK) {
        plim_plan_release(plan);
        return status;
    }
    plim__plan_seal(plan, false);
    *plan_out = plan;
    return PLIM_OK;
}
