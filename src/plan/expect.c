/*
 * What to expect of a run: which nodes are met, what the caches miss, and what is read because of
 * it; sizes of batches and disk space. For choosing between recipes and lines: nothing is decided
 * by it. Seconds come by trial (train/trial.c).
 */
#include "plan/train_plan.h"

#include "base/check.h"
#include "io/npy.h"
#include "io/range_reader.h"
#include "load/links.h"
#include "load/load_sources.h"
#include "load/loader_params.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "sample/hazard.h"
#include "source/row_form.h"

#include <math.h>
#include <string.h>

#define SECTOR_BYTES 512.0
#define HALVINGS 40 /* of a search for a number */
#define SKEW_MOST 4.0

/* Everything that the estimates read. */
typedef struct expect_view {
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    const plim__manifest_t *manifest;
    const plim__load_plan_t *plan;
    plim_recipe_t recipe; /* the plan's, or an evaluation's */
    double row_bytes;     /* of a row on disk; 0: batches have none */
    double list_bytes;
} expect_view_t;

/* A batch, or a part of one, hop by hop. */
typedef struct batch_hops {
    int count;
    double nodes[PLIM_HOPS_MAX + 1]; /* destinations of each hop, then all nodes */
    double edges[PLIM_HOPS_MAX];
    double all_edges;
} batch_hops_t;

typedef struct reads {
    double count, bytes;
} reads_t;

static int64_t whole(double value)
{
    return value < 9e18 ? (int64_t)value : INT64_MAX;
}

static expect_view_t view_of(const plim_dataset_t *dataset, const plim__load_plan_t *plan)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_dataset_info_t *info = &manifest->info;
    expect_view_t view = {.dataset = dataset,
                          .info = info,
                          .manifest = manifest,
                          .plan = plan,
                          .recipe = plan->recipe};
    if (!plan->recipe.no_features)
        view.row_bytes =
            (double)info->num_features * (double)plim__feature_bytes(info->feature_type);
    view.list_bytes = (double)plim__index_bytes(info->index_type) * (double)info->num_edges /
                      (double)plim__max_i64(info->num_nodes, 1);
    return view;
}

/* Sizes of `seeds` seeds together: by the probe, else by dataset.json. */
static plim__load_size_t size_of(const expect_view_t *view, double seeds)
{
    const plim__load_facts_t facts = {
        .dataset = view->dataset, .recipe = &view->recipe, .probe = view->plan->probe};
    return plim__load_expected(&facts, plim__max_i64((int64_t)seeds, 1));
}

/* What `seeds` seeds need: the sizes of the whole, divided among hops as degrees say. */
static batch_hops_t batch_hops(const expect_view_t *view, double seeds)
{
    const plim__load_size_t size = size_of(view, seeds);
    batch_hops_t hops = {.count = view->recipe.num_hops};
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

static double draws_of(const expect_view_t *view, double seeds)
{
    return batch_hops(view, seeds).all_edges + seeds;
}

/* Distinct nodes that `draws` draws meet; the most frequent `cached` nodes are not counted. Ranks
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

/* The skew with which `draws` draws meet `met` nodes. */
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

/* Distinct nodes that `seeds` seeds meet: the parabola through the last three sizes of a probe, in
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
static population_t population_of(const expect_view_t *view)
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

/* Lists or rows that a cache does not have: their number and bytes. */
typedef struct misses {
    double count, bytes;
} misses_t;

/* The probability that `seeds` seeds need a node of that bin. */
static double chance_of(const plim__reach_t *reach, const plim__reach_bin_t *bin, double seeds)
{
    const double mean = (double)bin->needs / PLIM__HAZARD_ONE / fmax((double)bin->nodes, 1);
    const double hazard = -log1p(-fmin(mean, PLIM__CHANCE_MAX));
    return -expm1(-hazard * seeds / (double)reach->seeds);
}

/* The lists or rows that `seeds` seeds need and do not find in a cache of `cache_bytes`, by one
 * reach. The cache has the most frequent ones. */
static misses_t missed_by(const plim__reach_t *reach, plim__reach_kind_t kind, double seeds,
                          double cache_bytes)
{
    misses_t missed = {0, 0};
    for (int i = PLIM__REACH_BINS - 1; i >= 0; i--) {
        const plim__reach_bin_t *bin = &reach->bins[kind][i];
        const double nodes = (double)bin->nodes, bytes = (double)bin->bytes;
        const double cached = fmin(bytes, cache_bytes);
        const double met = chance_of(reach, bin, seeds) * (1 - cached / fmax(bytes, 1));
        cache_bytes -= cached;
        missed.count += nodes * met;
        missed.bytes += bytes * met;
    }
    return missed;
}

/* Where `seeds` seeds stand between a batch (0) and an epoch (1), in logarithms. */
static double place_of(const plim__reaches_t *reaches, double seeds)
{
    const double batch = (double)reaches->batch.seeds, epoch = (double)reaches->epoch.seeds;
    return epoch > batch ? fmin(fmax(log(seeds / batch) / log(epoch / batch), 0), 1) : 1;
}

/* The same by both reaches, each of which is exact for its own number of seeds. */
static misses_t missed_of(const plim__reaches_t *reaches, plim__reach_kind_t kind, double seeds,
                          double cache_bytes)
{
    const misses_t batch = missed_by(&reaches->batch, kind, seeds, cache_bytes);
    const misses_t epoch = missed_by(&reaches->epoch, kind, seeds, cache_bytes);
    const double place = place_of(reaches, seeds);
    return (misses_t){pow(batch.count, 1 - place) * pow(epoch.count, place),
                      pow(batch.bytes, 1 - place) * pow(epoch.bytes, place)};
}

/* Nodes that `seeds` seeds need and do not find among `cached` nodes. Without draws they are the
 * seeds, or the nodes of their graphs, and each epoch has all of them. */
static double nodes_missed(const expect_view_t *view, const population_t *population, double seeds,
                           double cached)
{
    const double needed = (double)size_of(view, seeds).nodes;
    const plim__reaches_t *reaches = &view->plan->reaches;
    if (reaches->batch.seeds > 0) /* where each row counts as a byte */
        return fmin(missed_of(reaches, PLIM__REACH_ROWS, seeds, cached).count, needed);
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
static misses_t lists_missed(const expect_view_t *view, const population_t *population,
                             const batch_hops_t *hops, int hop, double seeds, double cached)
{
    const plim__reaches_t *reaches = &view->plan->reaches;
    const double all = (double)view->info->num_nodes;
    const double all_seeds = (double)plim__max_i64(view->info->num_split[PLIM_TRAIN], 1);
    const double degree = (double)view->info->num_edges / fmax(all, 1);
    const double missed = seeds * fmax(1 - cached / all_seeds, 0);
    if (hop == 0 || view->info->num_graphs > 0) {
        const double count = missed * fmax(hops->nodes[hop] / seeds, 1);
        return (misses_t){count, count * view->list_bytes};
    }
    if (reaches->batch.seeds > 0) {
        const double part = hops->nodes[hop] / fmax(hops->nodes[hops->count - 1], 1);
        const misses_t all_missed = missed_of(reaches, PLIM__REACH_LISTS, seeds,
                                              cached * (view->list_bytes + PLIM__LOAD_START_BYTES));
        return (misses_t){all_missed.count * part,
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
    return (misses_t){count, count * view->list_bytes};
}

/* `count` chunks of `bytes` each, spread over a file and read in ascending order: those near each
 * other in one. */
static void add_reads(const expect_view_t *view, double count, double bytes, double file_bytes,
                      double times, reads_t *reads_out)
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
    reads_out->count += reads * times;
    reads_out->bytes += read_bytes * times;
}

/* Lists that a cache of `bytes` holds. */
static double lists_cached(const expect_view_t *view, double bytes)
{
    return bytes / (view->list_bytes + PLIM__LOAD_START_BYTES);
}

/* What caches and windows hold. */
typedef struct holding {
    double lists, rows; /* cached */
    double window_rows;
} holding_t;

/* Divides the memory of both caches as the loader does: what a window of `seeds` seeds needs with
 * the highest probability for its bytes comes first. */
static void divide(const expect_view_t *view, double seeds, double room, holding_t *holding)
{
    const plim__reaches_t *reaches = &view->plan->reaches;
    const plim__reach_t *reach = place_of(reaches, seeds) > 0.5 ? &reaches->epoch : &reaches->batch;
    bool taken[PLIM__REACH_KINDS][PLIM__REACH_BINS] = {{false}};
    holding->rows = 0;
    if (!view->plan->topology_in_memory)
        holding->lists = 0;
    while (room > 0) {
        double densest = 0, bytes = 0;
        int kind = 0, bin = 0;
        for (int k = view->plan->topology_in_memory ? PLIM__REACH_ROWS : 0; k < PLIM__REACH_KINDS;
             k++)
            for (int i = 0; i < PLIM__REACH_BINS; i++) {
                const plim__reach_bin_t *here = &reach->bins[k][i];
                const double each = k == PLIM__REACH_ROWS
                                        ? view->row_bytes
                                        : (double)here->bytes / fmax((double)here->nodes, 1);
                const bool packed = k == PLIM__REACH_ROWS ? view->plan->working.rows > 0
                                                          : view->plan->working.lists > 0;
                const double density = chance_of(reach, here, seeds) / fmax(each, 1) *
                                       (packed ? PLIM__LOAD_PACKED_READS : 1);
                if (taken[k][i] || here->nodes == 0 || density <= densest)
                    continue;
                densest = density;
                bytes = each * (double)here->nodes;
                kind = k;
                bin = i;
            }
        if (densest == 0)
            return;
        const double part = fmin(bytes, room);
        taken[kind][bin] = true;
        room -= part;
        if (kind == PLIM__REACH_ROWS)
            holding->rows += part / fmax(view->row_bytes, 1);
        else
            holding->lists += lists_cached(view, part);
    }
}

/* Lists and rows that the caches hold if each window keeps memory for `left` rows. */
static holding_t held_beside(const expect_view_t *view, double seeds, const holding_t *planned,
                             double left)
{
    const double more = PLIM__LOAD_WINDOWS * (planned->window_rows - left);
    holding_t holding = {planned->lists, planned->rows + more, left};
    if (view->plan->reaches.batch.seeds > 0)
        divide(view, seeds, (double)view->plan->list_cache_bytes + holding.rows * view->row_bytes,
               &holding);
    return holding;
}

/* As planned; if the rows that a window of `seeds` seeds misses, and the loader's margin, leave
 * memory of the windows free, the loader gives it to the caches. */
static holding_t holding_of(const expect_view_t *view, const population_t *population, double seeds)
{
    const plim__load_plan_t *plan = view->plan;
    const double all = (double)view->info->num_nodes;
    holding_t holding = {.lists = lists_cached(view, (double)plan->list_cache_bytes),
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
        const holding_t held = held_beside(view, seeds, &holding, left);
        const double missed = nodes_missed(view, population, seeds, held.rows);
        if (missed * (1 + 1.0 / PLIM__LOAD_SLACK_PART) > left)
            low = left;
        else
            high = left;
    }
    return held_beside(view, seeds, &holding, high);
}

/* Steps that a window of the plan has: by its draws, and by the rows that it does not find cached.
 * 0: it holds no whole batch. */
static double window_steps(const expect_view_t *view, const population_t *population,
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

/* Parts of a batch: as planned, or halves until a slot holds one. */
static double batch_parts(const expect_view_t *view, double batch)
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

/* Nodes whose rows or lists can be reached; `otherwise` where that is not measured. */
static double reached_by(const expect_view_t *view, plim__reach_kind_t kind, double otherwise)
{
    const plim__reach_t *reach = &view->plan->reaches.epoch;
    double reached = reach->seeds > 0 ? 0 : otherwise;
    for (int i = 0; i < PLIM__REACH_BINS && reach->seeds > 0; i++)
        reached += (double)reach->bins[kind][i].nodes;
    return reached;
}

/* Bytes among which the rows lie that a cache of `cached` rows misses: of all rows, or of the rest
 * of the working set. And the same of lists. */
static double rows_among(const expect_view_t *view, const population_t *population, double cached)
{
    const plim__load_plan_t *plan = view->plan;
    if (plan->working.rows == 0)
        return view->row_bytes * (double)view->info->num_nodes;
    const double reached =
        fmin(reached_by(view, PLIM__REACH_ROWS, population->nodes), (double)plan->working.rows);
    return view->row_bytes * fmax(reached - cached, 1);
}

static double lists_among(const expect_view_t *view, double cached)
{
    const plim__load_plan_t *plan = view->plan;
    if (plan->working.lists == 0)
        return view->list_bytes * (double)view->info->num_nodes;
    const double most = (double)plan->working.lists;
    return view->list_bytes *
           fmax(fmin(reached_by(view, PLIM__REACH_LISTS, most), most) - cached, 1);
}

/* Bytes of an entry of a column that the loader reads and the plan leaves on disk; 0 for others. */
static double column_on_disk(const expect_view_t *view, unsigned column)
{
    const unsigned read = plim__load_columns(&view->recipe) & ~view->plan->columns_in_memory;
    return (read & column) != 0 ? (double)plim__column_form(view->info, column).bytes : 0;
}

/* Columns on disk, for `times` parts of batches of `seeds` seeds each: entries of drawn edges or of
 * nodes. One that decides draws is read beside the lists, and entry by entry only if batches carry
 * it; the seeds' own times limit draws by time. */
static void add_columns(const expect_view_t *view, double seeds, double times, reads_t *reads)
{
    const batch_hops_t hops = batch_hops(view, seeds);
    const double degree = (double)view->info->num_edges / fmax((double)view->info->num_nodes, 1);
    double expanded = 0;
    for (int hop = 0; hop < hops.count; hop++)
        expanded += hops.nodes[hop];
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const unsigned column = 1U << i;
        const double bytes = column_on_disk(view, column);
        const double file = bytes * (double)plim__column_rows(view->info, column);
        const double entries = column == PLIM_NODE_TIME ? hops.nodes[hops.count] : hops.all_edges;
        if (bytes == 0)
            continue;
        if ((view->recipe.columns & column) != 0)
            add_reads(view, entries, bytes, file, times, reads);
        if (view->recipe.draw_by == column && column != PLIM_NODE_TIME)
            add_reads(view, expanded, degree * bytes, file, times, reads);
        else if (view->recipe.draw_by == column)
            add_reads(view, expanded * degree, bytes, file, times, reads);
        if (column == PLIM_NODE_TIME && (view->recipe.draw_by == column || view->recipe.own_times))
            add_reads(view, hops.nodes[0], bytes, file, times, reads);
    }
}

/* The seeds that are drawn ahead at once: the largest number whose draws fit. */
static double seeds_ahead(const expect_view_t *view, double most)
{
    double low = 0, high = most;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (size_of(view, middle).edges <= view->plan->ahead_draws)
            low = middle;
        else
            high = middle;
    }
    return size_of(view, most).edges <= view->plan->ahead_draws ? most : low;
}

/* Loads `seeds` seeds in batches of the view's recipe. */
static void add_loading(const expect_view_t *view, double seeds, reads_t *reads)
{
    const plim__load_plan_t *plan = view->plan;
    const double batch = (double)view->recipe.batch_size;
    const double steps = ceil(seeds / batch);
    const double parts = batch_parts(view, fmin(batch, fmax(seeds, 1)));
    add_columns(view, fmin(batch, seeds) / parts, steps * parts, reads);
    if (plan->window_steps == 0)
        return;
    const population_t population = population_of(view);
    const holding_t holding = holding_of(view, &population, (double)plan->cache_steps * batch);
    const double together = window_steps(view, &population, &holding, batch, steps);
    /* A batch that no window holds is loaded part by part. */
    double unit = together > 0 ? fmin(together * batch, seeds) : fmin(batch, seeds) / parts;
    double units = together > 0 ? ceil(steps / together) : steps * parts;
    if (plan->ahead_draws > 0 && together > 0 && units >= PLIM__AHEAD_PAYS) {
        const double missed = nodes_missed(view, &population, unit, holding.rows) * units;
        const double bytes = missed * (view->row_bytes + sizeof(int64_t));
        reads->count += bytes / (double)PLIM__AHEAD_CHUNK + units;
        reads->bytes += bytes + units * (double)PLIM__AHEAD_CHUNK;
        unit = fmax(unit, seeds_ahead(view, seeds));
        units = ceil(seeds / unit);
    }
    const batch_hops_t hops = batch_hops(view, unit);
    if (!plan->rows_in_memory && view->row_bytes > 0)
        add_reads(view, nodes_missed(view, &population, unit, holding.rows), view->row_bytes,
                  rows_among(view, &population, holding.rows), units, reads);
    for (int hop = 0; hop < hops.count && !plan->topology_in_memory; hop++) {
        const misses_t missed = lists_missed(view, &population, &hops, hop, unit, holding.lists);
        add_reads(view, missed.count, missed.bytes / fmax(missed.count, 1),
                  lists_among(view, holding.lists), units, reads);
    }
}

/* Bytes read before the first batch: offsets, columns that memory holds, choosing what to cache by
 * a pass over the lists for each hop, filling the caches. */
static double start_bytes(const expect_view_t *view)
{
    const plim__load_plan_t *plan = view->plan;
    const plim_dataset_info_t *info = view->info;
    const double lists = view->list_bytes * (double)info->num_nodes;
    const double rows = view->row_bytes * (double)info->num_nodes;
    const bool chooses = plan->window_steps > 0 && info->num_graphs == 0 &&
                         (plan->list_cache_bytes > 0 || plan->row_cache_bytes > 0);
    reads_t reads = {.bytes = (double)(info->num_nodes + 1) * sizeof(int64_t)};
    for (int i = 0; i < PLIM_COLUMNS; i++)
        if ((plim__load_columns(&view->recipe) & plan->columns_in_memory & 1U << i) != 0)
            reads.bytes += (double)plim__column_form(info, 1U << i).bytes *
                           (double)plim__column_rows(info, 1U << i);
    if (chooses)
        reads.bytes += (double)view->recipe.num_hops * lists;
    if (plan->topology_in_memory)
        reads.bytes += lists;
    else if (plan->list_cache_bytes > 0)
        add_reads(view, lists_cached(view, (double)plan->list_cache_bytes), view->list_bytes,
                  plan->working.lists > 0 ? (double)plan->list_cache_bytes : lists, 1, &reads);
    if (plan->rows_in_memory)
        reads.bytes += rows;
    else if (plan->row_cache_bytes > 0 && view->row_bytes > 0)
        add_reads(view, fmin((double)plan->row_cache_bytes, rows) / view->row_bytes,
                  view->row_bytes, plan->working.rows > 0 ? (double)plan->row_cache_bytes : rows, 1,
                  &reads);
    return reads.bytes;
}

/* What to expect of an epoch of `seeds` seeds, in batches of the view's recipe. */
static plim__expectation_t expect_epoch(const expect_view_t *view, int64_t seeds)
{
    const int64_t batch = plim__min_i64(view->recipe.batch_size, seeds);
    const plim__load_size_t size = size_of(view, (double)batch);
    const double edges = batch_hops(view, (double)batch).all_edges;
    reads_t epoch = {0, 0};
    double columns = 0;
    for (int i = 0; i < PLIM_COLUMNS; i++)
        if ((view->recipe.columns & 1U << i) != 0)
            columns += (1U << i == PLIM_NODE_TIME ? (double)size.nodes : edges) *
                       (double)plim__column_form(view->info, 1U << i).bytes;
    add_loading(view, (double)seeds, &epoch);
    return (plim__expectation_t){.batch_nodes = size.nodes,
                                 .batch_edges = whole(edges),
                                 .batch_bytes = whole((double)size.nodes * view->row_bytes +
                                                      (double)size.edges * 4 + columns),
                                 .epoch_steps = (seeds - 1) / view->recipe.batch_size + 1,
                                 .epoch_reads = whole(epoch.count),
                                 .epoch_read_bytes = whole(epoch.bytes),
                                 .run_read_bytes = whole(start_bytes(view)),
                                 .disk_bytes = view->plan->scratch_bytes};
}

void plim__load_expect(const plim_dataset_t *dataset, plim__load_plan_t *plan)
{
    const expect_view_t view = view_of(dataset, plan);
    plan->expect = expect_epoch(&view, plim__max_i64(view.info->num_split[PLIM_TRAIN], 1));
}

/* Bytes that layer `index` of an exact pass reads: the rows of `rows` nodes by those of `sources`
 * nodes. */
static double exact_layer_bytes(const expect_view_t *view, const plim_model_t *model, int index,
                                double rows, double sources, const plim__exact_cost_t *cost)
{
    const bool first = index == 0;
    const double nodes = (double)view->info->num_nodes;
    const double panels = fmax((double)cost->layers[index].panels, 1);
    const double blocks = fmax((double)cost->layers[index].blocks, 1);
    const double columns = (double)cost->layers[index].columns;
    const double edges = rows / fmax(nodes, 1) * (double)view->info->num_edges;
    const double ids = edges * (double)plim__index_bytes(view->info->index_type);
    const double lists = ids + edges * (double)cost->column_bytes;
    const double states = /* written by a pass, read by the next */
        rows * panels * columns * sizeof(float) * (blocks - 1 + (panels - 1) / panels);
    const double own =
        model->kind == PLIM_SAGE || model->kind == PLIM_RGCN || model->kind == PLIM_GATV2
            ? rows / fmax(sources, 1)
            : 0;
    const double inputs = first ? nodes * view->row_bytes
                          : cost->layers[index - 1].stored
                              ? sources * (double)model->hidden * sizeof(float)
                              : 0;
    const double needed = rows < nodes ? ids : 0; /* to find whose inputs are needed */
    return (panels + own) * inputs + panels * blocks * lists + states + needed;
}

/* Bytes that an exact pass reads, layer by layer: all splits, what their neighbours need, and
 * theirs. */
static double exact_bytes(const expect_view_t *view, const plim_model_t *model,
                          const plim__exact_cost_t *cost)
{
    const plim_dataset_info_t *info = view->info;
    const double nodes = (double)info->num_nodes;
    const double degree = (double)info->num_edges / fmax(nodes, 1);
    double rows[PLIM_HOPS_MAX + 1]; /* [i]: inputs of layer i */
    double bytes = (nodes + 1) * sizeof(int64_t);
    rows[model->num_layers] = (double)(info->num_split[PLIM_TRAIN] + info->num_split[PLIM_VALID] +
                                       info->num_split[PLIM_TEST]);
    for (int i = model->num_layers - 1; i >= 0; i--)
        rows[i] = fmin(rows[i + 1] * (1 + degree), nodes);
    for (int i = 0; i < model->num_layers; i++)
        bytes += exact_layer_bytes(view, model, i, rows[i + 1], rows[i], cost);
    return bytes;
}

/* Bytes that an evaluation of a split reads, by batches of its own fan-out. */
static double split_bytes(const expect_view_t *view, const plim_training_t *training,
                          plim_split_t split)
{
    const plim_stream_params_t stream = plim__plan_settings_evaluation(view->info, training, split);
    plim__load_plan_t load = *view->plan;
    expect_view_t own = *view;
    reads_t reads = {0, 0};
    own.recipe = plim__load_stream_recipe(&view->recipe, &stream);
    own.plan = &load;
    if (own.recipe.num_hops != view->recipe.num_hops ||
        memcmp(own.recipe.fanout, view->recipe.fanout,
               (size_t)own.recipe.num_hops * sizeof own.recipe.fanout[0]) != 0) {
        load.probe.count = 0; /* they are of other draws */
        load.reaches.batch.seeds = 0;
    }
    add_loading(&own, (double)view->info->num_split[split], &reads);
    return reads.bytes;
}

/* Bytes that the evaluations of a run read. At its end the splits are scored that have no score of
 * the best weights; without best weights, all. */
static double evaluation_bytes(const expect_view_t *view, const plim_training_t *training,
                               const plim__exact_cost_t *exact)
{
    const unsigned splits = plim__plan_settings_splits(training);
    const int64_t rounds = training->epochs / training->eval_every;
    const bool best = rounds > 0 && (splits >> PLIM_VALID & 1) != 0 &&
                      (view->info->num_split[PLIM_VALID] > 0 || training->task == PLIM_TASK_LINK);
    double bytes = 0;
    if (exact != NULL) /* a pass scores all splits, and the loader is made again after it */
        return (double)(rounds + !best) *
               (exact_bytes(view, &training->model, exact) + start_bytes(view));
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        const bool between = (splits >> split & 1) != 0;
        const int64_t times = (between ? rounds : 0) + (!best || !between);
        if (view->info->num_split[split] > 0)
            bytes += (double)times * split_bytes(view, training, (plim_split_t)split);
    }
    return bytes;
}

/* Other bytes of a run directory: headers of four checkpoints, and lines of metrics. */
#define RUN_FILES_BYTES ((int64_t)1 << 20)

void plim__train_expect(const plim_dataset_t *dataset, const plim_training_t *training,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan)
{
    expect_view_t view = view_of(dataset, &plan->load);
    plim__expectation_t *expect = &plan->expect;
    const plim_links_t links = plim__plan_settings_links(training);
    if (links.num_pairs > 0) {
        view.recipe.batch_size =
            plim__mul_saturating_i64(plim__plan_settings_places(training), training->shares);
        *expect = expect_epoch(
            &view, plim__links_seeds(&links, training->recipe.batch_size / training->shares));
    }
    expect->run_read_bytes += whole((double)training->epochs * (double)expect->epoch_read_bytes);
    if (training->eval_every > 0)
        expect->run_read_bytes += whole(evaluation_bytes(&view, training, exact));
    /* The last and the best checkpoint, each twice while it is written. The account has weights,
     * moments and gradients: the last has the former two, and the best, weights alone, is as large
     * as the gradients. */
    const int64_t weights =
        plim__plan_account(plan->accounts, &plan->num_accounts, "weights and optimiser")->bytes;
    const int64_t files =
        plim__add_saturating_i64(RUN_FILES_BYTES, plim__mul_saturating_i64(weights, 2));
    expect->disk_bytes = plim__add_saturating_i64(
        expect->disk_bytes, plim__add_saturating_i64(files, plan->evaluation_disk_bytes));
}
