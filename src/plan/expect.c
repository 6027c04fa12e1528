/*
 * Work is counted as the code does it, and costed by the rates. Three things overlap: the disk
 * reads; any thread loads batches; the computing thread, with its team, runs the model. The slowest
 * of disk, computing thread and all cores together decides.
 */
#include "plan/expect.h"

#include "base/check.h"
#include "base/job.h"
#include "io/npy.h"
#include "io/reader.h"
#include "load/load_sources.h"
#include "load/loader_params.h"
#include "plan/load_facts.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"
#include "sample/hazard.h"
#include "sample/offsets.h"

#include <math.h>
#include <string.h>

#define SECTOR_BYTES 512.0
#define HALVINGS 40 /* of a search for a number */
#define SKEW_MOST 4.0

/* Draws and sums are measured on tables of up to 16 MiB; the growth of their cost is continued up
 * to this log2 of bytes. An assumption: in a larger table nearly every access misses the caches
 * already. */
#define LARGEST_TABLE 27.0

/* Work that overlaps. */
typedef struct effort {
    double any;    /* core-seconds of any thread: loading, and the processor's part of I/O */
    double caller; /* seconds of the computing thread … */
    double team;   /* … and its team's core-seconds meanwhile */
    double disk;   /* seconds of the disk */
    double reads, read_bytes;
} effort_t;

/* Everything that the estimates read. */
typedef struct view {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    const plim__manifest_t *manifest;
    const plim__load_plan_t *plan;
    const plim__rates_t *rates;
    plim_recipe_t recipe; /* the plan's, or an evaluation's */
    double threads;
    double row_bytes; /* of a row on disk; 0: batches have none */
    double list_bytes;
} view_t;

static view_t view_of(const plim_job_t *job, const plim_dataset_t *dataset,
                      const plim__rates_t *rates, const plim__load_plan_t *plan)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_dataset_info_t *info = &manifest->info;
    view_t view = {.job = job,
                   .dataset = dataset,
                   .info = info,
                   .manifest = manifest,
                   .plan = plan,
                   .rates = rates,
                   .recipe = plan->recipe,
                   .threads = plim__job_threads(job)};
    if (!plan->recipe.no_features)
        view.row_bytes =
            (double)info->num_features * (double)plim__feature_bytes(info->feature_type);
    view.list_bytes = (double)plim__index_bytes(info->index_type) * (double)info->num_edges /
                      (double)plim__max_i64(info->num_nodes, 1);
    return view;
}

static double seconds_of(const view_t *view, const effort_t *effort)
{
    return fmax(effort->disk, fmax(effort->caller, (effort->any + effort->team) / view->threads));
}

/* Sizes of `seeds` seeds together: by the probe, else by dataset.json. */
static plim__load_size_t size_of(const view_t *view, double seeds)
{
    const plim__load_facts_t facts = {
        .dataset = view->dataset, .recipe = &view->recipe, .probe = view->plan->probe};
    return plim__load_expected(&facts, plim__max_i64((int64_t)seeds, 1));
}

/* A batch, or a part of one, hop by hop. */
typedef struct hops {
    int count;
    double nodes[PLIM_HOPS_MAX + 1]; /* destinations of each hop, then all nodes */
    double edges[PLIM_HOPS_MAX];
    double all_edges;
} hops_t;

/* The sizes of the whole, divided among hops as degrees say. */
static hops_t hops_of(const view_t *view, double seeds)
{
    const plim__load_size_t size = size_of(view, seeds);
    hops_t hops = {.count = view->recipe.num_hops};
    plim_recipe_t shorter = view->recipe;
    plim__load_size_t before = {0, 0};
    double drawn = 0, expanded = 0;
    if (view->info->num_graphs > 0) {
        hops.count = 1;
        hops.nodes[0] = hops.nodes[1] = (double)size.nodes;
        hops.edges[0] = hops.all_edges = (double)(size.edges - size.nodes);
        return hops;
    }
    for (int hop = 0; hop <= hops.count; hop++) {
        shorter.num_hops = hop;
        const plim__load_size_t here =
            plim__load_size_expected(view->manifest, &shorter, (int64_t)fmax(seeds, 1));
        hops.nodes[hop] = (double)here.nodes;
        if (hop > 0) {
            hops.edges[hop - 1] =
                fmax((double)(here.edges - before.edges) - hops.nodes[hop - 1] - 1, 0);
            drawn += hops.edges[hop - 1];
        }
        before = here;
    }
    const double scale = (double)size.nodes / fmax(hops.nodes[hops.count], 1);
    for (int hop = 0; hop <= hops.count; hop++) {
        hops.nodes[hop] = fmax(hops.nodes[hop] * scale, seeds);
        expanded += hop < hops.count ? hops.nodes[hop] + 1 : 0;
    }
    hops.nodes[0] = seeds;
    hops.all_edges = fmax((double)size.edges - expanded, 0);
    for (int hop = 0; hop < hops.count; hop++)
        hops.edges[hop] *= hops.all_edges / fmax(drawn, 1);
    return hops;
}

/*
 * How often draws meet which node: the node of rank r, of `nodes` in all, with a probability in
 * proportion to r^-skew, as it is in most graphs. Seeds count as draws. Both numbers follow from
 * the distinct nodes that a probe met.
 */
typedef struct population {
    double nodes, skew;
} population_t;

static double draws_of(const view_t *view, double seeds)
{
    return hops_of(view, seeds).all_edges + seeds;
}

/* Distinct nodes that so many draws meet; the most frequent `cached` nodes are not counted. Ranks
 * 2^i … 2^(i + 1) - 1 count as equally frequent. */
static double nodes_met(const population_t *population, double draws, double cached)
{
    double weights = 0, met = 0;
    for (int i = 0; exp2(i) <= population->nodes; i++)
        weights += fmin(exp2(i), population->nodes + 1 - exp2(i)) * exp2(-i * population->skew);
    for (int i = 0; exp2(i) <= population->nodes; i++) {
        const double count = fmin(exp2(i), population->nodes + 1 - exp2(i));
        const double held = fmin(count, cached);
        cached -= held;
        met += (count - held) * -expm1(-draws * exp2(-i * population->skew) / weights);
    }
    return met;
}

/* The skew with which so many draws meet `met` nodes. */
static void find_skew(population_t *population, double draws, double met)
{
    double low = 0, high = SKEW_MOST;
    for (int i = 0; i < HALVINGS; i++) {
        population->skew = (low + high) / 2;
        if (nodes_met(population, draws, 0) > met)
            low = population->skew;
        else
            high = population->skew;
    }
}

/* Distinct nodes that so many seeds meet: the parabola through the last three sizes of a probe, in
 * logarithms, since growth slows down steadily; flat beyond its top. */
static double nodes_continued(const plim__probe_t *probe, double seeds)
{
    const plim__probe_size_t *last = &probe->sizes[probe->count - 1];
    const double step = log((double)last->seeds / (double)last[-1].seeds);
    const double step_before = log((double)last[-1].seeds / (double)last[-2].seeds);
    const double slope = log((double)last->nodes / (double)last[-1].nodes) / step;
    const double slope_before = log((double)last[-1].nodes / (double)last[-2].nodes) / step_before;
    const double bend = fmin((slope - slope_before) / ((step + step_before) / 2), 0);
    const double start = fmax(slope + bend * step / 2, 0);
    double ahead = log(seeds / (double)last->seeds);
    if (bend < 0)
        ahead = fmin(ahead, start / -bend);
    return (double)last->nodes * exp(ahead * (start + bend * ahead / 2));
}

/*
 * By two numbers of distinct nodes: the largest of a probe, and what all training seeds are
 * expected to meet, or, where the probe had all of them, its smallest. With fewer nodes that are
 * less unequal, few draws meet more of them and many draws fewer. Without a probe all nodes, or
 * those that dataset.json says can be reached.
 */
static population_t population_of(const view_t *view)
{
    const plim__probe_t *probe = &view->plan->probe;
    const int64_t reach = view->manifest->reach, all = view->info->num_nodes;
    population_t population = {.nodes = (double)(reach > 0 ? reach : all)};
    if (probe->count < 2) {
        const double seeds = (double)plim__min_i64(view->recipe.batch_size,
                                                   plim__max_i64(view->info->num_split[0], 1));
        find_skew(&population, draws_of(view, seeds), (double)size_of(view, seeds).nodes);
        return population;
    }
    const plim__probe_size_t *largest = &probe->sizes[probe->count - 1];
    const int64_t seeds = view->info->num_split[PLIM_TRAIN];
    const bool on = probe->count > 2 && seeds > largest->seeds;
    const double other_draws = draws_of(view, on ? (double)seeds : (double)probe->sizes[0].seeds);
    const double other_nodes =
        on ? nodes_continued(probe, (double)seeds) : (double)probe->sizes[0].nodes;
    const double largest_draws = draws_of(view, (double)largest->seeds);
    double low = fmin((double)largest->nodes, population.nodes), high = population.nodes;
    for (int i = 0; i < HALVINGS; i++) {
        population.nodes = sqrt(low * high);
        find_skew(&population, largest_draws, (double)largest->nodes);
        const bool more = nodes_met(&population, other_draws, 0) > other_nodes;
        if (more == on)
            high = population.nodes;
        else
            low = population.nodes;
    }
    return population;
}

/* Of lists or rows: how many, and their bytes. */
typedef struct pieces {
    double count, bytes;
} pieces_t;

/* The lists or rows that `seeds` seeds need and do not find in a cache of so many bytes, by the
 * measured reach. The cache has the most frequent ones. */
static pieces_t missed_of(const plim__reach_t *reach, plim__reach_kind_t kind, double seeds,
                          double cache_bytes)
{
    pieces_t missed = {0, 0};
    for (int i = PLIM__REACH_BINS - 1; i >= 0; i--) {
        const double nodes = (double)reach->bins[kind][i].nodes;
        const double bytes = (double)reach->bins[kind][i].bytes;
        const double cached = fmin(bytes, cache_bytes);
        const double hazard = M_SQRT2 * exp2(i) / PLIM__HAZARD_ONE / (double)reach->seeds;
        const double met = -expm1(-hazard * seeds) * (1 - cached / fmax(bytes, 1));
        cache_bytes -= cached;
        missed.count += nodes * met;
        missed.bytes += bytes * met;
    }
    return missed;
}

/* Nodes that `seeds` seeds need and do not find among `cached` nodes. Without draws they are the
 * seeds, or the nodes of their graphs, and each epoch has all of them. */
static double nodes_missed(const view_t *view, const population_t *population, double seeds,
                           double cached)
{
    const double needed = (double)size_of(view, seeds).nodes;
    const plim__reach_t *reach = &view->plan->reach;
    if (reach->seeds > 0) /* where each row counts as a byte */
        return fmin(missed_of(reach, PLIM__REACH_ROWS, seeds, cached).count, needed);
    if (view->recipe.num_hops > 0 && view->info->num_graphs == 0)
        return fmin(nodes_met(population, draws_of(view, seeds), cached), needed);
    const double all = (double)size_of(view, (double)view->info->num_split[PLIM_TRAIN]).nodes;
    return needed * fmax(1 - cached / fmax(all, 1), 0);
}

/*
 * Lists that hop `hop` of `seeds` seeds needs and does not find among `cached` ones. Seeds come
 * first into the cache, since every epoch needs all of them. The reach is that of the last hop's
 * lists; an earlier hop has its part of them. Where it is not measured, destinations of later hops
 * are neighbours of seeds, and of these: no more nodes than the lists before have entries.
 */
static pieces_t lists_missed(const view_t *view, const population_t *population, const hops_t *hops,
                             int hop, double seeds, double cached)
{
    const plim__reach_t *reach = &view->plan->reach;
    const double all = (double)view->info->num_nodes;
    const double all_seeds = (double)plim__max_i64(view->info->num_split[PLIM_TRAIN], 1);
    const double degree = (double)view->info->num_edges / fmax(all, 1);
    const double missed = seeds * fmax(1 - cached / all_seeds, 0);
    if (hop == 0 || view->info->num_graphs > 0) {
        const double count = missed * fmax(hops->nodes[hop] / seeds, 1);
        return (pieces_t){count, count * view->list_bytes};
    }
    if (reach->seeds > 0) {
        const double part = hops->nodes[hop] / fmax(hops->nodes[hops->count - 1], 1);
        const pieces_t all_missed = missed_of(reach, PLIM__REACH_LISTS, seeds,
                                              cached * (view->list_bytes + PLIM__LOAD_START_BYTES));
        return (pieces_t){all_missed.count * part,
                          (all_missed.bytes - all_missed.count * PLIM__LOAD_START_BYTES) * part};
    }
    const double others = fmax(hops->nodes[hop] - seeds, 1);
    population_t among = {
        .nodes = fmax(fmin(population->nodes, all_seeds * pow(1 + degree, hop)), others)};
    double draws = 0;
    for (int i = 0; i < hop; i++)
        draws += hops->edges[i];
    find_skew(&among, draws, others);
    const double count = missed + nodes_met(&among, draws, fmax(cached - all_seeds, 0));
    return (pieces_t){count, count * view->list_bytes};
}

/* `count` pieces of `bytes` each, spread over a file and read in ascending order: those near each
 * other in one. */
static void add_reads(const view_t *view, double count, double bytes, double file_bytes,
                      double times, effort_t *effort)
{
    if (count < 1)
        return;
    const double merge = (double)view->plan->merge_distance;
    const double distance = fmax(file_bytes / count, bytes);
    const double near = -expm1(-merge / distance);
    const double skipped = count * near * fmin(merge / 2, distance);
    const double read_bytes =
        fmin(count * ((1 - near) * SECTOR_BYTES + bytes) + skipped, file_bytes + SECTOR_BYTES);
    const double reads = fmax(count * (1 - near), read_bytes / (double)PLIM__READ_MERGED) + 1;
    const double each = read_bytes / reads;
    effort->reads += reads * times;
    effort->read_bytes += read_bytes * times;
    effort->disk += reads * times * plim__rate_at(view->rates, PLIM__RATE_READ, each, 0);
    effort->any += reads * times * plim__rate_at(view->rates, PLIM__RATE_READ_CORE, each, 0);
}

/* Many large I/Os. A write is assumed to cost as much as a read. */
static void add_moves(const view_t *view, double bytes, effort_t *effort)
{
    const double count = bytes / plim__rate_x(PLIM__RATE_READ, 1);
    effort->disk += count * view->rates->cost[PLIM__RATE_READ][1];
    effort->any += count * view->rates->cost[PLIM__RATE_READ_CORE][1];
}

/* Reads of a whole range. */
static void add_scan(const view_t *view, double bytes, effort_t *effort)
{
    effort->reads += bytes / plim__rate_x(PLIM__RATE_READ, 1);
    effort->read_bytes += bytes;
    add_moves(view, bytes, effort);
}

/* Lists that a cache of so many bytes holds. */
static double lists_cached(const view_t *view, size_t bytes)
{
    return (double)bytes / (view->list_bytes + PLIM__LOAD_START_BYTES);
}

/* What caches and windows hold. */
typedef struct holding {
    double lists, rows; /* cached */
    double window_rows;
} holding_t;

/* As planned; if the rows that a window of `seeds` seeds misses, and the loader's margin, leave
 * memory of the windows free, the loader gives it to the row cache. */
static holding_t holding_of(const view_t *view, const population_t *population, double seeds)
{
    const plim__load_plan_t *plan = view->plan;
    const double all = (double)view->info->num_nodes;
    holding_t holding = {.lists = lists_cached(view, plan->list_cache_bytes),
                         .rows = (double)plan->row_cache_bytes / fmax(view->row_bytes, 1),
                         .window_rows = (double)plan->window_rows};
    if (plan->topology_in_memory)
        holding.lists = all;
    if (plan->rows_in_memory || view->row_bytes == 0)
        holding.rows = all;
    if (!plan->shared)
        return holding;
    double low = 0, high = holding.window_rows;
    for (int i = 0; i < HALVINGS; i++) { /* rows of a window that its caches' growth leaves */
        const double left = (low + high) / 2;
        const double more = PLIM__LOAD_WINDOWS * (holding.window_rows - left);
        const double missed = nodes_missed(view, population, seeds, holding.rows + more);
        if (missed * (1 + 1.0 / PLIM__LOAD_SPARE_PART) > left)
            low = left;
        else
            high = left;
    }
    holding.rows += PLIM__LOAD_WINDOWS * (holding.window_rows - high);
    holding.window_rows = high;
    return holding;
}

/* Steps that a window of the plan has: by its draws, and by the rows that it does not find cached.
 * 0: it holds no whole batch. */
static double window_steps(const view_t *view, const population_t *population,
                           const holding_t *holding, double batch, double most)
{
    int64_t low = 0,
            high = plim__max_i64(plim__min_i64(view->plan->window_steps, (int64_t)most), 1);
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        const double seeds = (double)middle * batch;
        const bool fits =
            size_of(view, seeds).edges <= view->plan->window_draws &&
            (view->plan->rows_in_memory ||
             nodes_missed(view, population, seeds, holding->rows) <= holding->window_rows);
        if (fits)
            low = middle;
        else
            high = middle - 1;
    }
    return (double)low;
}

/* Loads `seeds` seeds in batches of `batch`, `parts` parts each. */
static void add_loading(const view_t *view, double seeds, double batch, double parts,
                        effort_t *effort)
{
    const plim__load_plan_t *plan = view->plan;
    const plim_dataset_info_t *info = view->info;
    const double steps = ceil(seeds / batch);
    const hops_t part = hops_of(view, fmin(batch, seeds) / parts);
    const double lists = view->list_bytes * (double)info->num_nodes;
    const double cached = plan->topology_in_memory ? lists : (double)plan->list_cache_bytes;
    const double table = fmin(log2(fmax(fmin(cached, lists), 1)), LARGEST_TABLE);
    const double draw = plim__rate_at(view->rates, PLIM__RATE_DRAW, table, 0);
    const double copy =
        view->row_bytes > 0 ? plim__rate_at(view->rates, PLIM__RATE_COPY, view->row_bytes, 0) : 0;
    const double count = steps * parts;
    effort->any += count * (part.all_edges * draw + part.nodes[part.count] * copy +
                            view->rates->cost[PLIM__RATE_SHARE][0]);
    if (plan->window_steps == 0)
        return;
    const population_t population = population_of(view);
    const holding_t holding = holding_of(view, &population, (double)plan->window_steps * batch);
    const double together = window_steps(view, &population, &holding, batch, steps);
    /* A batch that no window holds is loaded part by part. */
    const double unit = together > 0 ? fmin(together * batch, seeds) : fmin(batch, seeds) / parts;
    const double units = together > 0 ? ceil(steps / together) : count;
    const hops_t hops = hops_of(view, unit);
    const double missed_rows = nodes_missed(view, &population, unit, holding.rows);
    if (together > 0)
        effort->any += units * (hops.all_edges * draw + missed_rows * copy);
    if (!plan->rows_in_memory && view->row_bytes > 0)
        add_reads(view, missed_rows, view->row_bytes, view->row_bytes * (double)info->num_nodes,
                  units, effort);
    for (int hop = 0; hop < hops.count && !plan->topology_in_memory; hop++) {
        const pieces_t missed = lists_missed(view, &population, &hops, hop, unit, holding.lists);
        add_reads(view, missed.count, missed.bytes / fmax(missed.count, 1), lists, units, effort);
    }
}

/* Before the first batch: offsets, choosing what to cache by a pass over the lists for each hop,
 * filling the caches. */
static void add_start(const view_t *view, effort_t *effort)
{
    const plim__load_plan_t *plan = view->plan;
    const plim_dataset_info_t *info = view->info;
    const double lists = view->list_bytes * (double)info->num_nodes;
    const double rows = view->row_bytes * (double)info->num_nodes;
    const bool chooses = plan->window_steps > 0 && info->num_graphs == 0 &&
                         (plan->list_cache_bytes > 0 || plan->row_cache_bytes > 0);
    add_scan(view, (double)(info->num_nodes + 1) * sizeof(int64_t), effort);
    if (chooses) {
        add_scan(view, (double)view->recipe.num_hops * lists, effort);
        effort->any += (double)view->recipe.num_hops * (double)info->num_edges *
                       view->rates->cost[PLIM__RATE_REVERSE][0];
    }
    if (plan->topology_in_memory)
        add_scan(view, lists, effort);
    else if (plan->list_cache_bytes > 0)
        add_reads(view, lists_cached(view, plan->list_cache_bytes), view->list_bytes, lists, 1,
                  effort);
    if (plan->rows_in_memory)
        add_scan(view, rows, effort);
    else if (plan->row_cache_bytes > 0 && view->row_bytes > 0)
        add_reads(view, fmin((double)plan->row_cache_bytes, rows) / view->row_bytes,
                  view->row_bytes, rows, 1, effort);
}

/* Parts of a batch: as planned, or halves until a slot holds one. */
static double parts_of(const view_t *view, double batch)
{
    const plim__load_plan_t *plan = view->plan;
    int64_t parts = 1;
    if (plan->part_seeds > 0)
        return ceil(batch / (double)plan->part_seeds);
    for (; parts < (int64_t)batch; parts *= 2) {
        const plim__load_size_t size = size_of(view, batch / (double)parts);
        if (size.nodes <= plan->slot_nodes && size.edges <= plan->slot_edges)
            break;
    }
    return (double)parts;
}

static int64_t whole(double value)
{
    return value < 9e18 ? (int64_t)value : INT64_MAX;
}

void plim__load_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                       const plim__rates_t *rates, plim__load_plan_t *plan)
{
    const view_t view = view_of(job, dataset, rates, plan);
    const int64_t seeds = plim__max_i64(view.info->num_split[PLIM_TRAIN], 1);
    const int64_t batch = plim__min_i64(plan->recipe.batch_size, seeds);
    const plim__load_size_t size = size_of(&view, (double)batch);
    const hops_t hops = hops_of(&view, (double)batch);
    effort_t start = {0}, epoch = {0};
    add_start(&view, &start);
    add_loading(&view, (double)seeds, (double)plan->recipe.batch_size,
                parts_of(&view, (double)batch), &epoch);
    plan->expect = (plim__expectation_t){
        .batch_nodes = size.nodes,
        .batch_edges = whole(hops.all_edges),
        .batch_bytes = whole((double)size.nodes * view.row_bytes + (double)size.edges * 4),
        .epoch_steps = (seeds - 1) / plan->recipe.batch_size + 1,
        .epoch_reads = whole(epoch.reads),
        .epoch_read_bytes = whole(epoch.read_bytes),
        .epoch_seconds = seconds_of(&view, &epoch),
        .epoch_core_seconds = epoch.any + epoch.team,
        .start_seconds = seconds_of(&view, &start),
        .run_read_bytes = whole(start.read_bytes),
        .disk_bytes = plan->scratch_bytes,
        .computing_measured = rates->computing_known,
        .disk_measured = rates->disk_known,
        .rates_from_file = rates->from_file};
}

/* Work of the team: shared, if that is faster. */
static void add_team(const view_t *view, double core_seconds, effort_t *effort)
{
    const double shared = core_seconds / view->threads + view->rates->cost[PLIM__RATE_SHARE][0];
    effort->caller += fmin(core_seconds, shared);
    effort->team += core_seconds;
}

/* Work of the computing thread alone. */
static void add_alone(double seconds, effort_t *effort)
{
    effort->caller += seconds;
    effort->team += seconds;
}

/* One layer of one part. */
typedef struct layer {
    bool first;
    double sources, rows, edges; /* rows: destinations */
    double in, out;              /* columns */
    double source_bytes;         /* of its input */
} layer_t;

/* A product's forward pass, or both gradients, of which the first layer needs no input's. */
static void add_product(const view_t *view, const plim_model_t *model, const layer_t *layer,
                        double rows, double in, double out, bool back, effort_t *effort)
{
    const plim__rate_t forward =
        model->precision == PLIM_PRECISION_BF16 ? PLIM__RATE_BF16_FORWARD : PLIM__RATE_F32_FORWARD;
    if (!back) {
        add_team(view, rows * plim__rate_at(view->rates, forward, in, out), effort);
        return;
    }
    add_team(view, rows * plim__rate_at(view->rates, forward + 2, in, out), effort);
    if (!layer->first)
        add_team(view, rows * plim__rate_at(view->rates, forward + 1, in, out), effort);
}

static void add_products(const view_t *view, const plim_model_t *model, const layer_t *layer,
                         bool back, effort_t *effort)
{
    const double in = model->kind == PLIM_SAGE ? 2 * layer->in : layer->in;
    const double rows = model->kind == PLIM_GAT ? layer->sources : layer->rows;
    double out = layer->out;
    if (model->kind == PLIM_GAT && out != (double)model->hidden)
        out *= model->heads; /* the output layer takes the heads' mean */
    add_product(view, model, layer, rows, in, out, back, effort);
    if (model->kind == PLIM_GIN)
        add_product(view, model, layer, layer->rows, layer->out, layer->out, back, effort);
}

static void add_sums(const view_t *view, const plim_model_t *model, const layer_t *layer, bool back,
                     effort_t *effort)
{
    const double units = layer->edges + (back ? layer->sources : layer->rows);
    if (model->kind == PLIM_MLP)
        return;
    if (back && (model->kind == PLIM_GAT || !layer->first))
        add_alone(layer->edges * view->rates->cost[PLIM__RATE_REVERSE][0], effort);
    if (model->kind == PLIM_GAT) {
        const double channels =
            layer->out == (double)model->hidden ? layer->out / model->heads : layer->out;
        add_team(view,
                 (layer->edges + layer->rows) * model->heads *
                     plim__rate_at(view->rates, back ? PLIM__RATE_ATTEND_BACK : PLIM__RATE_ATTEND,
                                   channels, 0),
                 effort);
        return;
    }
    const double bytes = back ? layer->rows * layer->in * 4 : layer->source_bytes;
    const double large = plim__rate_y(PLIM__RATE_SUM, 1);
    /* Another thread has just written the rows that the first layer reads: no cache has them. */
    const double table = layer->first ? large : fmin(log2(fmax(bytes, 1)), large);
    if (!back || !layer->first)
        add_team(view,
                 units * plim__rate_at(view->rates, back ? PLIM__RATE_SUM_BACK : PLIM__RATE_SUM,
                                       layer->in, table),
                 effort);
}

static void add_epilogue(const view_t *view, const plim_model_t *model, const layer_t *layer,
                         bool last, bool back, effort_t *effort)
{
    const double values = layer->rows * layer->out;
    plim__rate_t rate = PLIM__RATE_EPILOGUE;
    if (!last && model->norm != PLIM_NORM_NONE)
        rate = PLIM__RATE_NORM;
    else if (!last && model->dropout > 0)
        rate = PLIM__RATE_DROPOUT;
    double cost = view->rates->cost[rate][back ? 1 : 0];
    if (rate == PLIM__RATE_NORM && model->dropout > 0)
        cost += fmax(view->rates->cost[PLIM__RATE_DROPOUT][back ? 1 : 0] -
                         view->rates->cost[PLIM__RATE_EPILOGUE][back ? 1 : 0],
                     0);
    add_team(view, values * cost, effort);
    if (model->kind == PLIM_GIN)
        add_team(view, values * cost, effort);
}

/* One part through the model; with gradients in training. */
static void add_model(const view_t *view, const plim_training_t *training, const hops_t *part,
                      bool trains, bool recompute, effort_t *effort)
{
    const plim_model_t *model = &training->model;
    const plim_dataset_info_t *info = view->info;
    const bool graphs = info->num_graphs > 0;
    const double outputs = (double)plim__plan_settings_outputs(info);
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i + 1 == model->num_layers;
        const int hop = part->count > 0 && !graphs ? part->count - 1 - i : 0;
        const layer_t layer = {.first = i == 0,
                               .rows = part->nodes[hop],
                               .sources = part->nodes[part->count == 0 ? 0 : hop + 1],
                               .edges = part->edges[hop],
                               .in = (double)(i == 0 ? info->num_features : model->hidden),
                               .out = last && !graphs ? outputs : (double)model->hidden,
                               .source_bytes =
                                   part->nodes[part->count == 0 ? 0 : hop + 1] *
                                   (i == 0 ? view->row_bytes : (double)model->hidden * 4)};
        const int forwards = trains && recompute ? 2 : 1;
        for (int pass = 0; pass < forwards; pass++) {
            add_sums(view, model, &layer, false, effort);
            if (pass == 0 || model->kind == PLIM_GAT)
                add_products(view, model, &layer, false, effort);
        }
        add_epilogue(view, model, &layer, last && !graphs, false, effort);
        if (!trains)
            continue;
        add_epilogue(view, model, &layer, last && !graphs, true, effort);
        add_products(view, model, &layer, true, effort);
        add_sums(view, model, &layer, true, effort);
    }
}

/* Learnt values, by the account of weights, gradients and moments. */
static double weights_of(const view_t *view, const plim_training_t *training)
{
    const plim_model_t *model = &training->model;
    const double hidden = (double)model->hidden, in = (double)view->info->num_features;
    const double outputs = (double)plim__plan_settings_outputs(view->info);
    const double wide = model->kind == PLIM_SAGE ? 2 : 1;
    const double inner = (double)(model->num_layers > 2 ? model->num_layers - 2 : 0);
    if (model->num_layers == 1)
        return wide * in * outputs;
    return wide * (in * hidden + inner * hidden * hidden + hidden * outputs) +
           (model->kind == PLIM_GIN ? (inner + 1) * hidden * hidden + outputs * outputs : 0);
}

/* One epoch of steps, or an evaluation of `seeds` seeds. */
static effort_t pass_over(const view_t *view, const plim_training_t *training,
                          const plim__train_plan_t *plan, double seeds, bool trains)
{
    const double batch = (double)view->recipe.batch_size;
    const double steps = ceil(seeds / batch);
    const double parts = parts_of(view, fmin(batch, fmax(seeds, 1)));
    const double outputs = (double)plim__plan_settings_outputs(view->info);
    const hops_t part = hops_of(view, fmin(batch, seeds) / parts);
    effort_t loading = {0}, step = {0};
    add_loading(view, seeds, batch, parts, &loading);
    add_model(view, training, &part, trains, plan->recompute, &step);
    add_team(view, fmin(batch, seeds) / parts * outputs * view->rates->cost[PLIM__RATE_LOSS][0],
             &step);
    step.caller *= parts;
    step.team *= parts;
    if (trains) {
        const double *costs = view->rates->cost[PLIM__RATE_UPDATE];
        const double *packs = view->rates->cost[PLIM__RATE_PACK];
        effort_t update = {0};
        add_team(view, weights_of(view, training) * (costs[0] + packs[0]), &update);
        step.caller += update.caller / (double)training->accumulation;
        step.team += update.team / (double)training->accumulation;
    }
    loading.caller += step.caller * steps;
    loading.team += step.team * steps;
    return loading;
}

/* Layer `index` of an exact pass: the rows of `rows` nodes by those of `sources` nodes. */
static void add_exact_layer(const view_t *view, const plim_model_t *model, int index, double rows,
                            double sources, const plim__exact_cost_t *cost, effort_t *effort)
{
    const bool first = index == 0, last = index + 1 == model->num_layers;
    const double nodes = (double)view->info->num_nodes;
    const double slices = fmax((double)cost->layers[index].slices, 1);
    const double blocks = fmax((double)cost->layers[index].blocks, 1);
    const double columns = (double)cost->layers[index].columns;
    const bool max = model->kind == PLIM_SAGE && model->aggregation == PLIM_MAX;
    const layer_t layer = {
        .first = first,
        .sources = sources,
        .rows = rows,
        .edges = rows / fmax(nodes, 1) * (double)view->info->num_edges,
        .in = (double)(first ? view->info->num_features : model->hidden),
        .out = (double)(last ? plim__plan_settings_outputs(view->info) : model->hidden)};
    const double lists = layer.edges * (double)plim__index_bytes(view->info->index_type);
    const double states =
        rows * slices * columns * sizeof(float) * (blocks - 1 + (slices - 1) / slices);
    const double own = model->kind == PLIM_SAGE ? rows / fmax(sources, 1) : 0;
    const double inputs = first                            ? nodes * view->row_bytes
                          : cost->layers[index - 1].stored ? sources * layer.in * sizeof(float)
                                                           : 0;
    add_scan(view, (slices + own) * inputs + slices * blocks * lists + states, effort);
    add_moves(view, states, effort); /* written by a pass, read by the next */
    if (rows < nodes)                /* whose inputs are needed */
        add_scan(view, lists, effort);
    if (cost->layers[index].stored)
        add_moves(view, rows * layer.out * sizeof(float), effort);
    if (model->kind == PLIM_GAT) {
        add_products(view, model, &layer, false, effort);
        add_sums(view, model, &layer, false, effort);
    } else {
        const double table = sources / blocks * columns * sizeof(float);
        const bool before = layer.out <= layer.in && !max; /* the product, since it is narrower */
        add_team(view,
                 slices * (layer.edges + rows) *
                     plim__rate_at(view->rates, PLIM__RATE_SUM, columns,
                                   fmin(log2(fmax(table, 1)), LARGEST_TABLE)),
                 effort);
        add_product(view, model, &layer, before ? sources : rows, layer.in, layer.out, false,
                    effort);
        if (model->kind == PLIM_SAGE)
            add_product(view, model, &layer, rows, layer.in, layer.out, false, effort);
        if (model->kind == PLIM_GIN)
            add_product(view, model, &layer, rows, layer.out, layer.out, false, effort);
    }
    add_epilogue(view, model, &layer, last, false, effort);
}

/* An exact pass, layer by layer: all splits, what their neighbours need, and theirs. */
static effort_t exact_pass(const view_t *view, const plim_training_t *training,
                           const plim__exact_cost_t *cost)
{
    const plim_dataset_info_t *info = view->info;
    const double nodes = (double)info->num_nodes;
    const double degree = (double)info->num_edges / fmax(nodes, 1);
    plim_model_t model = training->model;
    double rows[PLIM_HOPS_MAX + 1]; /* [i]: inputs of layer i */
    effort_t effort = {0};
    model.precision = PLIM_PRECISION_F32; /* whatever training's is */
    rows[model.num_layers] = (double)(info->num_split[PLIM_TRAIN] + info->num_split[PLIM_VALID] +
                                      info->num_split[PLIM_TEST]);
    for (int i = model.num_layers - 1; i >= 0; i--)
        rows[i] = fmin(rows[i + 1] * (1 + degree), nodes);
    add_scan(view, (nodes + 1) * sizeof(int64_t), &effort);
    for (int i = 0; i < model.num_layers; i++)
        add_exact_layer(view, &model, i, rows[i + 1], rows[i], cost, &effort);
    return effort;
}

/* An evaluation of a split, by batches of its own fan-out. */
static effort_t split_pass(const view_t *view, const plim_training_t *training,
                           const plim__train_plan_t *plan, plim_split_t split)
{
    const plim_stream_params_t stream = plim__plan_settings_evaluation(view->info, training, split);
    plim__load_plan_t load = plan->load;
    view_t own = *view;
    own.recipe = plim__load_stream_recipe(&view->recipe, &stream);
    own.plan = &load;
    for (int i = 0; i < own.recipe.num_hops; i++)
        if (own.recipe.fanout[i] != view->recipe.fanout[i])
            load.probe.count = 0, load.reach.seeds = 0; /* they were of other draws */
    return pass_over(&own, training, plan, (double)view->info->num_split[split], false);
}

/* What else a run directory holds: four headers of checkpoints, and lines. */
#define RUN_FILES_BYTES ((int64_t)1 << 20)

static int64_t account_bytes(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].bytes;
    return 0;
}

/* Adds `rounds` evaluations between epochs, and `again` one at the end. */
static void add_evaluations(double seconds, double read_bytes, int64_t rounds, bool again,
                            plim__expectation_t *expect)
{
    const double times = (double)rounds + (again ? 1 : 0);
    if (rounds > 0)
        expect->evaluation_seconds += seconds;
    expect->run_seconds += times * seconds;
    expect->run_read_bytes += whole(times * read_bytes);
}

/* `rounds` evaluations between epochs. At the end the splits are scored that have no score of the
 * best weights; without best weights, all. */
static void expect_evaluations(const view_t *view, const plim_training_t *training,
                               const plim__exact_cost_t *exact, int64_t rounds,
                               const plim__train_plan_t *plan, plim__expectation_t *expect)
{
    const unsigned splits = plim__plan_settings_splits(training);
    const bool best =
        rounds > 0 && (splits >> PLIM_VALID & 1) != 0 && view->info->num_split[PLIM_VALID] > 0;
    if (exact !=
        NULL) { /* a pass scores all splits, and loader and model are made again after it */
        const effort_t effort = exact_pass(view, training, exact);
        add_evaluations(seconds_of(view, &effort) + expect->start_seconds,
                        effort.read_bytes + (double)plan->load.expect.run_read_bytes, rounds, !best,
                        expect);
        return;
    }
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        if (view->info->num_split[split] == 0)
            continue;
        const effort_t effort = split_pass(view, training, plan, (plim_split_t)split);
        const bool between = (splits >> split & 1) != 0;
        add_evaluations(seconds_of(view, &effort), effort.read_bytes, between ? rounds : 0,
                        !best || !between, expect);
    }
}

/* Checkpoints: the rehearsal's and the last; after epochs, as far as their share allows; those that
 * are asked for; the best weights, and before exact evaluations. Each counts as all of the model's
 * and the optimiser's memory. */
static double checkpoint_seconds(const view_t *view, const plim_training_t *training,
                                 const plim__train_plan_t *plan, int64_t rounds,
                                 const plim__expectation_t *expect)
{
    const double epochs = (double)training->epochs;
    const double steps = epochs * (double)expect->epoch_steps / (double)training->accumulation;
    effort_t save = {0};
    add_moves(view, (double)account_bytes(plan, "weights and optimiser"), &save);
    const double seconds = seconds_of(view, &save);
    double count = 2 + (double)rounds * (training->eval_exact ? 2 : 1);
    if (training->checkpoint_steps > 0)
        count += steps / (double)training->checkpoint_steps;
    if (training->checkpoint_seconds > 0)
        count += expect->run_seconds / training->checkpoint_seconds;
    return count * seconds + fmin(epochs * seconds, PLIM__SAVE_SHARE * expect->run_seconds);
}

void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, const plim__rates_t *rates,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan)
{
    const view_t view = view_of(job, dataset, rates, &plan->load);
    plim__expectation_t *expect = &plan->expect;
    const double epochs = (double)training->epochs;
    const int64_t rounds = training->eval_every > 0 ? training->epochs / training->eval_every : 0;
    const effort_t epoch = pass_over(
        &view, training, plan, (double)plim__max_i64(view.info->num_split[PLIM_TRAIN], 1), true);
    expect->epoch_seconds = seconds_of(&view, &epoch);
    expect->epoch_core_seconds = epoch.any + epoch.team;
    expect->run_seconds = expect->start_seconds + epochs * expect->epoch_seconds;
    expect->run_read_bytes += whole(epochs * (double)expect->epoch_read_bytes);
    if (training->eval_every > 0)
        expect_evaluations(&view, training, exact, rounds, plan, expect);
    expect->run_seconds += checkpoint_seconds(&view, training, plan, rounds, expect);
    /* The last and the best, each twice while it is written. Without gradients the last is what the
     * account has, and the best is as large as these. */
    const int64_t weights = account_bytes(plan, "weights and optimiser");
    const int64_t files =
        plim__add_saturating_i64(RUN_FILES_BYTES, plim__mul_saturating_i64(weights, 2));
    expect->disk_bytes = plim__add_saturating_i64(
        expect->disk_bytes, plim__add_saturating_i64(files, plan->evaluation_disk_bytes));
}
