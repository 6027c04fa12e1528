/*
 * A loader's plan: fits whole batches or, where the line is too low, the largest parts of them;
 * measures batches where their size would be guessed; and refuses with the minimum line.
 */
#include "plan/load_plan.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "load/loader_params.h"
#include "mem/headroom.h"
#include "mem/size_text.h"
#include "nn/matrix.h"
#include "source/working_set.h"

#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define PROBE_SEEDS 64 /* splits smaller than this are not probed */

/* Bytes on the ledger while the probe runs. */
static int64_t probe_total(const plim__load_facts_t *facts)
{
    const size_t bytes = plim__probe_estimate(facts->job, facts->dataset, facts->recipe);
    return plim__add_saturating_i64(plim__load_fixed(facts),
                                    bytes < (size_t)INT64_MAX ? (int64_t)bytes : INT64_MAX);
}

/* Whether a probe can tell how large batches are. */
static bool can_probe(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    return info->num_graphs == 0 && facts->recipe->num_hops > 0 &&
           info->num_split[PLIM_TRAIN] >= PROBE_SEEDS;
}

/*
 * Whether the plan would have to guess how large batches are. Where it may cut batches they are
 * always measured: what a part may need decides where it is halved, and so the last bits, which
 * must not depend on the arrangement: `plan` is not looked at then.
 */
static bool needs_probe(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return can_probe(facts) && (plim__load_plan_cuts(facts->client) || plan->window_steps > 0 ||
                                plan->slot_nodes < facts->most.nodes);
}

/*
 * Puts the ledger's accounts before the plan's own. The reserve becomes that of the smallest line
 * under which these choices fit; the process is raised to what the plan counts for it.
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
    const int count = plim__ledger_accounts(ledger, PLIM__PLAN_ACCOUNTS, infos);
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
        for (int phase = 0; phase < PLIM_PHASES; phase++)
            accounts[i].phase[phase] = accounts[i].bytes;
    memcpy(accounts + held, plan->accounts, (size_t)plan->num_accounts * sizeof accounts[0]);
    plan->num_accounts += held;
    plan->num_held = held;
    memcpy(plan->accounts, accounts, sizeof accounts);
}

static bool fits_a_slot(const plim__load_plan_t *plan, plim__load_size_t size)
{
    return size.nodes <= plan->slot_nodes && size.edges <= plan->slot_edges;
}

/*
 * Fits parts of part_seeds seeds, each in one slot. What the client computes then depends on that
 * number and on the size that these seeds may need, not on how much a slot happens to hold.
 */
static bool fit_parts(const plim__load_facts_t *facts, plim__load_plan_t *plan_out)
{
    const plim__load_size_t needed = plim__load_needed(facts, facts->part_seeds);
    if (!plim__load_fit(facts, plan_out) || !fits_a_slot(plan_out, needed))
        return false;
    plan_out->part_nodes = needed.nodes;
    plan_out->part_edges = needed.edges;
    return true;
}

/* Whether batches in `parts` equal parts fit under the line. */
static bool fits_cut(const plim__load_facts_t *facts, int64_t parts)
{
    plim__load_facts_t cut = plim__load_cut_at(facts, (facts->part_seeds - 1) / parts + 1);
    plim__load_plan_t plan;
    cut.slots_only = true;
    cut.modest = cut.part_seeds > PLIM__ROWS;
    return fit_parts(&cut, &plan);
}

/* Seeds of a part where batches must be cut: of the fewest equal parts that fit, to a quarter of
 * their number. */
static int64_t cut_seeds(const plim__load_facts_t *facts)
{
    const int64_t all = facts->part_seeds;
    int64_t few = 1, many = 2; /* few do not fit, many do */
    for (; many < all && !fits_cut(facts, many); many *= 2)
        few = many;
    const int64_t exact = plim__max_i64(few / 4, 1);
    while (many - few > exact) {
        const int64_t middle = few + (many - few) / 2;
        if (fits_cut(facts, middle))
            many = middle;
        else
            few = middle;
    }
    return (all - 1) / many + 1;
}

/* Fits whole batches, or else the largest parts of them that fit. */
static bool fit(const plim__load_facts_t *facts, plim__load_plan_t *plan_out)
{
    if (!plim__load_plan_cuts(facts->client))
        return plim__load_fit(facts, plan_out);
    if (fit_parts(facts, plan_out))
        return true;
    if (facts->keeps_cut)
        return false;
    plim__load_facts_t parts = plim__load_cut_at(facts, 1);
    const bool fits = fit_parts(&parts, plan_out); /* larger parts need more */
    if (!fits || facts->client->any_cut)
        return fits;
    parts = plim__load_cut_at(facts, cut_seeds(facts));
    return fit_parts(&parts, plan_out);
}

/* Seeds that are computed at a time. */
static int64_t seeds_of(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return plan->part_seeds > 0 ? plim__min_i64(facts->batch_seeds, plan->part_seeds)
                                : facts->batch_seeds;
}

/* The client with its tighter context, if it has one. */
static plim__load_client_t tight_client(const plim__load_client_t *client)
{
    plim__load_client_t tight = *client;
    if (client->tighter != NULL)
        tight.context = client->tighter;
    return tight;
}

/* Fits, with the tighter client where that keeps batches whole or cuts them less: it changes no
 * bits, and a cut does. False when nothing fits. */
static bool fit_tighter(const plim__load_facts_t *facts, plim__load_plan_t *plan_out,
                        bool *tight_out)
{
    const bool fits = fit(facts, plan_out);
    plim__load_plan_t plan;
    *tight_out = false;
    if (facts->client->tighter == NULL || (fits && seeds_of(facts, plan_out) == facts->part_seeds))
        return fits;
    const plim__load_client_t tight = tight_client(facts->client);
    plim__load_facts_t tighter = *facts;
    tighter.client = &tight;
    if (!fit(&tighter, &plan) || (fits && seeds_of(facts, &plan) <= seeds_of(facts, plan_out)))
        return fits;
    *plan_out = plan;
    *tight_out = true;
    return true;
}

/* The smallest choice for everything: one seed at a time, and the client as tight as it can be. A
 * lower line is refused. */
static int64_t smallest_line(const plim__load_facts_t *facts)
{
    plim__load_facts_t smallest =
        plim__load_plan_cuts(facts->client) ? plim__load_cut_at(facts, 1) : *facts;
    const plim__load_client_t tight = tight_client(facts->client);
    const int64_t minimum = plim__load_minimum(&smallest);
    smallest.client = &tight;
    return plim__min_i64(minimum, plim__load_minimum(&smallest));
}

/* Seeds at a time in the nominal process, so that the cut does not depend on what this process
 * holds or on its threads; 1 where not even that fits. */
static int64_t nominal_seeds(const plim__load_facts_t *facts)
{
    plim__load_facts_t nominal = *facts;
    plim_job_t job = *facts->job;
    plim__load_plan_t plan;
    bool tight;
    job.threads = PLIM__NOMINAL_THREADS;
    job.io_engine = PLIM_IO_THREADS;
    nominal.job = &job;
    nominal.slots_only = true;
    nominal.fixed = PLIM__NOMINAL_PROCESS;
    return fit_tighter(&nominal, &plan, &tight) ? seeds_of(facts, &plan) : 1;
}

/* Fits under the line. Where a cut changes bits, the plan keeps that of the run it continues if it
 * can, else that of the nominal process, and its caches get what is left. */
static bool fit_line(const plim__load_facts_t *facts, plim__load_plan_t *plan_out, bool *tight_out)
{
    if (facts->client->cut_by != PLIM__CUT_AS_NOMINAL)
        return fit_tighter(facts, plan_out, tight_out);
    plim__load_facts_t kept = *facts;
    kept.keeps_cut = true;
    if (facts->params->part_nodes > 0 && fit_tighter(&kept, plan_out, tight_out))
        return true;
    const int64_t seeds = nominal_seeds(facts);
    if (seeds < facts->part_seeds)
        kept = plim__load_cut_at(&kept, seeds);
    return fit_tighter(&kept, plan_out, tight_out);
}

/* Whether the line is accepted; `whole`: with whole batches, or as many seeds as asked for. */
static bool accepts(const plim__load_facts_t *facts, int64_t line, bool whole)
{
    plim__load_client_t client = *facts->client;
    plim__load_facts_t other = *facts;
    plim__load_plan_t plan;
    bool tight;
    client.any_cut |= whole; /* how far they are cut does not matter */
    other.client = &client;
    other.line = line;
    other.slots_only = true;
    if (!fit_line(&other, &plan, &tight))
        return false;
    return !whole || (seeds_of(facts, &plan) >= facts->part_seeds &&
                      fits_a_slot(&plan, plim__load_needed(facts, facts->part_seeds)));
}

/*
 * An accepted line: `from`, or whole MiB above it, one MiB above a refused line. The next whole MiB
 * is accepted too. A process larger than the nominal one may be refused under a line at which the
 * nominal one cuts batches less than under a lower line. 0 when there is none.
 */
static int64_t accepted_line(const plim__load_facts_t *facts, int64_t from, bool whole)
{
    int64_t refused = from / MIB, accepted, step = 1;
    if (from > INT64_MAX / 4) /* there is no whole MiB above it */
        return accepts(facts, from, whole) ? from : 0;
    if (accepts(facts, from, whole) &&
        (from % MIB == 0 || accepts(facts, plim__whole_mib(from) * MIB, whole)))
        return from;
    for (;; refused = accepted, step *= 2) {
        accepted = refused + step;
        if (accepted > INT64_MAX / 4 / MIB)
            return 0;
        if (accepts(facts, accepted * MIB, whole))
            break;
    }
    while (accepted - refused > 1) {
        const int64_t middle = refused + (accepted - refused) / 2;
        if (accepts(facts, middle * MIB, whole))
            accepted = middle;
        else
            refused = middle;
    }
    return accepted * MIB;
}

/* The minimum of a plan: a line that is accepted; searched for only where it is reported. */
static int64_t minimum_of(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const int64_t smallest = plim__min_i64(smallest_line(facts), plan->total);
    const int64_t minimum = facts->client->quiet ? smallest : accepted_line(facts, smallest, false);
    /* The plan itself shows that its line is accepted. */
    return minimum > 0 ? plim__min_i64(minimum, facts->line) : facts->line;
}

/* Logs that batches come in parts, and a line under which they come whole. */
static void log_parts(const plim__load_facts_t *facts, const char *parts)
{
    /* A run keeps its cut whatever line it is continued under. */
    const int64_t line =
        facts->params->part_nodes > 0 ? 0 : accepted_line(facts, facts->line, true);
    const bool changes_bits = facts->client->cut_by == PLIM__CUT_AS_NOMINAL;
    char whole[96] = "";
    if (line > 0)
        (void)snprintf(whole, sizeof whole, "; with `memory` %lldM they are %s",
                       (long long)plim__whole_mib(line),
                       facts->part_seeds < facts->batch_seeds ? "as large as asked for" : "whole");
    plim__log(facts->job, changes_bits ? PLIM_LOG_WARNING : PLIM_LOG_INFO,
              "batches of %lld come in parts of %s%s%s", (long long)facts->recipe->batch_size,
              parts,
              changes_bits ? ", so the last bits of losses differ from those of whole "
                             "batches, which training may magnify"
                           : "",
              whole);
}

/* The facts by which a minimum is named: where batches are counted, with slots for the largest
 * batch of any epoch, so that a line that was named stays enough. */
static plim__load_facts_t named(const plim__load_facts_t *facts)
{
    plim__load_facts_t largest = *facts;
    if (facts->counted && facts->probe.count > 0) {
        const plim__load_size_t batch = plim__load_needed(facts, facts->part_seeds);
        largest.one.nodes = plim__max_i64(facts->one.nodes, batch.nodes);
        largest.one.edges = plim__max_i64(facts->one.edges, batch.edges);
    }
    return largest;
}

/* Refuses a line under which not even the smallest choices fit. */
static plim_status_t refuse(const plim__load_facts_t *given)
{
    const plim__load_facts_t facts = named(given);
    const int64_t least = plim__max_i64(smallest_line(&facts), facts.line);
    const int64_t minimum =
        plim__whole_mib(plim__max_i64(accepted_line(&facts, least, false), least));
    char text[PLIM__SIZE_TEXT];
    (void)plim__fail(PLIM_ERR_BUDGET,
                     "%s: %s of %lld%s%s %s at least %lld MiB, but the memory line is %s; raise "
                     "`memory` to %lldM or more%s",
                     plim__dataset_path(facts.dataset), facts.client->what,
                     (long long)facts.recipe->batch_size,
                     facts.streams->links ? " seeds (the ends of pairs and of negatives)" : "",
                     facts.recipe->form == PLIM_PYG ? " in PyG's form" : "",
                     facts.client->one ? "needs" : "need", (long long)minimum,
                     plim__size_text(facts.line, text), (long long)minimum, facts.client->remedies);
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", minimum * MIB, facts.line);
}

/* Refuses a line under which the nominal process computes more seeds at a time than this process
 * has memory for. */
static plim_status_t refuse_cut(const plim__load_facts_t *facts)
{
    plim__load_plan_t plan;
    bool is_tight;
    char text[PLIM__SIZE_TEXT], fixed[PLIM__SIZE_TEXT];
    if (!fit_tighter(facts, &plan, &is_tight))
        return refuse(facts);
    const int64_t minimum =
        plim__whole_mib(plim__max_i64(accepted_line(facts, facts->line, false), facts->line));
    (void)plim__fail(
        PLIM_ERR_BUDGET,
        "%s: under %s batches of %lld are computed %lld seeds at a time in every process, so that "
        "results do not depend on it; this process holds %s and has %d threads, so these parts do "
        "not fit: set `memory` to %lldM, or `microbatch` to %lld, or reduce `threads`",
        plim__dataset_path(facts->dataset), plim__size_text(facts->line, text),
        (long long)facts->recipe->batch_size, (long long)nominal_seeds(facts),
        plim__size_text(facts->fixed, fixed), plim__job_threads(facts->job), (long long)minimum,
        (long long)seeds_of(facts, &plan));
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", minimum * MIB, facts->line);
}

static plim_status_t fit_or_refuse(const plim__load_facts_t *facts, plim__load_plan_t *plan_out,
                                   bool *tight_out)
{
    if (fit_line(facts, plan_out, tight_out))
        return PLIM_OK;
    return facts->client->cut_by == PLIM__CUT_AS_NOMINAL ? refuse_cut(facts) : refuse(facts);
}

/* Sizes of batches: kept ones, else, if it `reads`, measured now. */
static plim_status_t find_probe(plim__load_facts_t *facts, bool reads)
{
    return plim__statistics_probe(facts->job, facts->dataset, facts->recipe, reads, &facts->probe);
}

/* Finds how large counted batches usually are: a line too low for them is refused here, not by the
 * first epoch. The probe may need more than that line. */
static plim_status_t measure_counted(plim__load_facts_t *facts)
{
    if (!can_probe(facts) || facts->client->quiet)
        return PLIM_OK;
    PLIM_TRY(find_probe(facts, false));
    const bool reads = facts->probe.count == 0 && plim__load_may_read(facts) &&
                       probe_total(facts) <= plim__ledger_line(facts->job->ledger);
    return reads ? find_probe(facts, true) : PLIM_OK;
}

/* Batches in PyG's form are counted before each epoch where slots for all possible ones do not fit.
 */
static plim_status_t count_or_not(plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    if (facts->recipe->form != PLIM_PYG || plim__load_fit(facts, plan))
        return PLIM_OK;
    PLIM_TRY(measure_counted(facts));
    facts->counted = true;
    return plim__load_bounds_find(facts);
}

/* Takes the first way that fits of those in which a loader may be made again, else the last, which
 * is refused. `params` are the facts' own. */
static plim_status_t choose_way(plim__load_facts_t *facts, plim_plan_params_t *params)
{
    const plim__load_remade_t *remade = facts->client->remade;
    const bool counted = facts->counted;
    bool fits = false;
    for (int i = 0; i < remade->num_ways && !fits; i++) {
        plim__load_plan_t plan;
        params->num_slots = remade->ways[i].num_slots;
        facts->slot = remade->ways[i].slot;
        facts->counted = counted;
        PLIM_TRY(plim__load_bounds_find(facts));
        PLIM_TRY(count_or_not(facts, &plan));
        fits = plim__load_fit(facts, &plan);
    }
    return PLIM_OK;
}

/*
 * Fits by measured sizes where they would be guessed, else by what dataset.json says. The probe's
 * memory is free again before the loader is made: it counts in the start.
 */
static plim_status_t choose(plim__load_facts_t *facts, plim__load_plan_t *plan, bool *tight_out)
{
    const bool cuts = plim__load_plan_cuts(facts->client);
    if (facts->client->remade == NULL)
        PLIM_TRY(count_or_not(facts, plan));
    /* A guess may refuse what fits by measured sizes: it decides only where nothing is cut. */
    if (!cuts)
        PLIM_TRY(fit_or_refuse(facts, plan, tight_out));
    const bool probes = needs_probe(facts, plan);
    if (probes && facts->probe.count == 0)
        PLIM_TRY(find_probe(facts, false));
    if (cuts && facts->line < smallest_line(facts))
        return refuse(facts);
    const int64_t probing = probes ? probe_total(facts) : 0;
    const bool may_probe = probing <= facts->line;
    if (probes && facts->probe.count == 0 && may_probe && plim__load_may_read(facts))
        PLIM_TRY(find_probe(facts, true));
    const bool measured = facts->probe.count > 0;
    if (cuts || measured)
        PLIM_TRY(fit_or_refuse(facts, plan, tight_out));
    plan->guessed = probes ? !measured : facts->largest_guessed;
    if (!measured || !may_probe)
        return PLIM_OK;
    plan->start = plim__max_i64(plan->start,
                                probing - plim__load_fixed(facts) - plim__load_early(facts, plan));
    plan->total = plim__max_i64(plan->total, probing);
    return PLIM_OK;
}

/* A client that does not cut gets parts that the loader halves until they fit a slot. */
static void log_plan(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const bool cuts = plim__load_plan_cuts(facts->client);
    const int64_t all = facts->part_seeds;
    int64_t seeds = seeds_of(facts, plan);
    char parts[64];
    if (facts->recipe->form == PLIM_PYG)
        return;
    if (!cuts)
        while (seeds > 1 && !fits_a_slot(plan, plim__load_expected(facts, seeds)))
            seeds = (seeds - 1) / 2 + 1;
    if (facts->client->quiet || seeds >= all)
        return;
    (void)snprintf(parts, sizeof parts, "%s%lld seed%s", cuts ? "" : "about ", (long long)seeds,
                   seeds == 1 ? "" : "s");
    log_parts(facts, parts);
}

/* Fills in what to expect, by measured batch sizes when the statistics cache has them; the plan
 * itself does not depend on them. */
static plim_status_t expect(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const bool reads =
        plan->window_steps > 0 && !(plan->topology_in_memory && plan->rows_in_memory);
    plan->probe = facts->probe;
    if (facts->probe.count == 0 && facts->recipe->num_hops > 0)
        PLIM_TRY(
            plim__statistics_probe(facts->job, facts->dataset, facts->recipe, false, &plan->probe));
    if (reads && !facts->client->quiet)
        PLIM_TRY(plim__statistics_reach(facts->job, facts->dataset, facts->recipe,
                                        facts->params->weigh_nodes, &plan->reaches));
    plim__load_expect(facts->dataset, plan);
    return PLIM_OK;
}

static int64_t nothing(const void *context, const plim__load_plan_t *plan)
{
    (void)context;
    (void)plan;
    return 0;
}

static int64_t checkpoint_bytes(const void *context, const plim__load_plan_t *plan)
{
    (void)plan;
    return ((const plim__load_plan_t *)context)->checkpoint_bytes;
}

plim_status_t plim__load_plan_again(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *old, const plim__load_remade_t *remade,
                                    plim__load_plan_t *plan_out)
{
    const plim__load_client_t client = {
        .bytes = checkpoint_bytes,
        .context = old,
        .quiet = true,
        .old = old,
        .remade = remade,
        .what = remade->what != NULL ? remade->what : "batches",
        .remedies = remade->held
                        ? ", make batches or fan-outs smaller, or release the batches that are held"
                        : ", or make batches or fan-outs smaller"};
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    params.memory = old->line;
    params.part_seeds = old->recipe.form == PLIM_NATIVE ? old->part_seeds : 0;
    params.scratch = old->scratch[0] != '\0' ? old->scratch : NULL;
    params.streams = remade->stream;
    params.num_streams = remade->stream != NULL;
    PLIM_TRY(plim__load_plan_for(job, dataset, &old->recipe, &params, &client, plan_out, NULL));
    plan_out->checkpoint_bytes = old->checkpoint_bytes;
    plan_out->part_nodes = old->part_nodes;
    plan_out->part_edges = old->part_edges;
    return PLIM_OK;
}

/* Plans without a scratch directory that does not exist or is in memory, where nothing would be
 * packed. A shape is planned for another machine, so its directory is not looked at. */
static void check_scratch(const plim_job_t *job, const plim_dataset_t *dataset, bool quiet,
                          plim_plan_params_t *params)
{
    const char *scratch = params->scratch;
    if (scratch == NULL || scratch[0] == '\0' || plim__dataset_is_shape(dataset) ||
        plim__file_check_disk(scratch, 0, "packed rows need") == PLIM_OK)
        return;
    params->scratch = NULL;
    if (!quiet)
        plim__log(job, PLIM_LOG_WARNING, "%s; planned without scratch", plim_last_error());
}

/* Disk space for a working set, whose lists may be left out, and for buckets. */
static int64_t scratch_bytes(const plim_dataset_t *dataset, const plim__load_plan_t *plan)
{
    plim__working_size_t packed = plan->working;
    if (packed.lists == 0)
        packed.entries = 0;
    const int64_t set = packed.rows > 0 ? plim__working_set_bytes(dataset, packed) : 0;
    return plim__add_saturating_i64(plan->bucket_bytes, set);
}

plim_status_t plim__load_plan_for(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_recipe_t *recipe, const plim_plan_params_t *given,
                                  const plim__load_client_t *client, plim__load_plan_t *plan_out,
                                  bool *tight_out)
{
    static const plim__load_client_t no_client = {
        .bytes = nothing, .what = "batches", .remedies = ", or make batches or fan-outs smaller"};
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim__load_facts_t facts;
    plim__load_streams_t streams;
    plim__load_plan_t plan;
    bool tight;
    if (given != NULL)
        params = *given;
    if (client == NULL)
        client = &no_client;
    check_scratch(job, dataset, client->quiet, &params);
    PLIM_TRY(plim__load_facts_find(job, dataset, recipe, &params, client, &streams, &facts));
    if (facts.client->remade != NULL)
        PLIM_TRY(choose_way(&facts, &params));
    PLIM_TRY(choose(&facts, &plan, &tight));
    log_plan(&facts, &plan);
    plan.again = plim__load_plan_again;
    plan.scratch_bytes = scratch_bytes(dataset, &plan);
    plan.recipe = *recipe;
    if (!facts.client->quiet)
        PLIM_TRY(expect(&facts, &plan));
    memcpy(plan.fingerprint, plim_dataset_info(dataset)->fingerprint, sizeof plan.fingerprint);
    add_held(&facts, &plan);
    plan.minimum = minimum_of(&facts, &plan);
    *plan_out = plan;
    if (tight_out != NULL)
        *tight_out = tight;
    return PLIM_OK;
}

/* The facts of an alternative, which is compared and not planned. */
static plim_status_t find_alternative(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                      const plim__load_client_t *client,
                                      plim__load_streams_t *streams, plim__load_facts_t *facts)
{
    PLIM_TRY(plim__load_facts_find(job, dataset, recipe, params, client, streams, facts));
    if (client->known != NULL)
        facts->probe = *client->known;
    else if (can_probe(facts))
        PLIM_TRY(find_probe(facts, false));
    return PLIM_OK;
}

bool plim__load_fits(const plim_job_t *job, const plim_dataset_t *dataset,
                     const plim_recipe_t *recipe, const plim_plan_params_t *params,
                     const plim__load_client_t *client, int64_t line, bool whole)
{
    plim__load_streams_t streams;
    plim__load_facts_t facts;
    return find_alternative(job, dataset, recipe, params, client, &streams, &facts) == PLIM_OK &&
           accepts(&facts, line, whole);
}

int64_t plim__load_minimum_for(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_recipe_t *recipe, const plim_plan_params_t *params,
                               const plim__load_client_t *client, bool whole)
{
    plim__load_streams_t streams;
    plim__load_facts_t facts;
    if (find_alternative(job, dataset, recipe, params, client, &streams, &facts) != PLIM_OK)
        return 0;
    return accepted_line(&facts, smallest_line(&facts), whole);
}

plim_status_t plim__load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, const plim_plan_params_t *params,
                              plim__load_plan_t *plan_out)
{
    return plim__load_plan_for(job, dataset, recipe, params, NULL, plan_out, NULL);
}

PLIM_API plim_status_t plim_load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                      plim_plan_t **plan_out)
{
    plim_plan_params_t known = PLIM_PLAN_PARAMS_INIT;
    plim_recipe_t drawn = PLIM_RECIPE_INIT;
    plim_plan_t *plan;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(recipe, "plim_recipe_t", &drawn, sizeof drawn));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_plan_params_t", &known, sizeof known));
    PLIM_TRY(plim__plan_create(job, &plan));
    plim_status_t status = plim__load_plan(job, dataset, &drawn, &known, &plan->numbers.load);
    if (status != PLIM_OK) {
        plim_plan_release(plan);
        return status;
    }
    *plan_out = plan;
    return PLIM_OK;
}
