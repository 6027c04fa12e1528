#include "load/loader_params.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "load/links.h"
#include "mem/arena.h"
#include "source/draw.h"
#include "source/row_form.h"
#include "store/dataset.h"

#include <string.h>

#define CACHED_DEPTH 2 /* I/Os in flight where everything is cached: little is read */

static plim_status_t check_arrays(const plim_recipe_t *recipe)
{
    if ((recipe->edge_index || recipe->edge_ids) && recipe->form == PLIM_NATIVE &&
        recipe->num_hops > 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "in native form a node draws at every hop, so %d hops are not one "
                          "edge_index; choose PyG's form",
                          recipe->num_hops);
    return PLIM_OK;
}

static plim_status_t check_hops(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const char *path = plim__dataset_path(dataset);
    const bool graphs = plim_dataset_info(dataset)->num_graphs > 0;
    if (graphs && recipe->num_hops != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a dataset of many graphs gives whole graphs; leave out `fanout`",
                          path);
    if (graphs && recipe->form != PLIM_NATIVE)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a dataset of many graphs gives whole graphs, in native form only",
                          path);
    if (recipe->form != PLIM_NATIVE && recipe->form != PLIM_PYG)
        return plim__fail(PLIM_ERR_USAGE, "there is no form %d; choose native or PyG's",
                          (int)recipe->form);
    if (recipe->num_hops < 0 || recipe->num_hops > PLIM_HOPS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`fanout` has %d hops; at most %d are supported",
                          recipe->num_hops, PLIM_HOPS_MAX);
    for (int i = 0; i < recipe->num_hops; i++)
        if (recipe->fanout[i] < PLIM_FANOUT_ALL || recipe->fanout[i] > PLIM__FANOUT_MAX)
            return plim__fail(PLIM_ERR_USAGE,
                              "`fanout` of hop %d is %lld; it must be -1 (all) or 0 to %d", i + 1,
                              (long long)recipe->fanout[i], PLIM__FANOUT_MAX);
    return PLIM_OK;
}

/* A tree's number and a node's share 63 bits. */
static plim_status_t check_trees(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (!recipe->disjoint)
        return PLIM_OK;
    if (info->num_graphs > 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: the graphs of a dataset of many are disjoint; leave out `disjoint`",
                          plim__dataset_path(dataset));
    if (plim__blocks_node_bits(info->num_nodes) + plim__blocks_node_bits(recipe->batch_size) > 63)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: disjoint batches of %lld seeds in a graph of %lld nodes; reduce "
                          "`batch_size`",
                          plim__dataset_path(dataset), (long long)recipe->batch_size,
                          (long long)info->num_nodes);
    return PLIM_OK;
}

static plim_status_t check_draws(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const bool by_time = plim__load_by_time(recipe);
    PLIM_TRY(check_trees(dataset, recipe));
    if (recipe->latest && !by_time)
        return plim__fail(PLIM_ERR_USAGE, "`latest` is for draws by edge_time or node_time");
    if (recipe->own_times && recipe->draw_by != PLIM_EDGE_TIME)
        return plim__fail(PLIM_ERR_USAGE, "`own_times` are for draws by edge_time");
    if (recipe->draw_by == 0)
        return PLIM_OK;
    if (recipe->draw_by != PLIM_EDGE_WEIGHT && recipe->draw_by != PLIM_EDGE_TIME &&
        recipe->draw_by != PLIM_NODE_TIME)
        return plim__fail(PLIM_ERR_USAGE, "neighbours are drawn uniformly, or by one of "
                                          "edge_weight, edge_time and node_time");
    if (by_time && !recipe->disjoint)
        return plim__fail(PLIM_ERR_USAGE,
                          "each seed has its own time, so draws by time need `disjoint`");
    if (info->num_graphs > 0)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: a dataset of many graphs gives whole graphs; no column decides draws",
            plim__dataset_path(dataset));
    if (info->max_degree > UINT32_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: the longest list has %lld entries; by weight or time neighbours are "
                          "drawn from lists of fewer than 2^32",
                          plim__dataset_path(dataset), (long long)info->max_degree);
    return PLIM_OK;
}

static const char *missing_column(unsigned wanted, unsigned given)
{
    const int first = __builtin_ctz(wanted & ~given);
    return first < PLIM_COLUMNS ? plim__column_names[first] : "such column as";
}

plim_status_t plim__load_recipe_check(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (recipe->batch_size < 1 || recipe->batch_size > INT32_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`batch_size` is %lld; it must be between 1 and 2^31 - 1",
                          (long long)recipe->batch_size);
    PLIM_TRY(check_hops(dataset, recipe));
    PLIM_TRY(check_arrays(recipe));
    if (recipe->row_type != PLIM_F16 && recipe->row_type != PLIM_F32)
        return plim__fail(PLIM_ERR_USAGE, "rows are delivered as f16 or f32");
    if (recipe->index_type != PLIM_I32 && recipe->index_type != PLIM_I64)
        return plim__fail(PLIM_ERR_USAGE, "ids are delivered as 32 or 64 bits");
    PLIM_TRY(check_draws(dataset, recipe));
    if ((plim__load_columns(recipe) & ~info->columns) != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s has no %s.npy; import it with that column, or leave it "
                          "out of the recipe",
                          plim__dataset_path(dataset),
                          missing_column(plim__load_columns(recipe), info->columns));
    if (recipe->skip_loops && (recipe->edge_index || recipe->edge_ids))
        return plim__fail(PLIM_ERR_USAGE, "edge_index and edge ids are of all edges: leave out "
                                          "skip_loops");
    if (recipe->degrees && info->max_degree > INT32_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: the longest list has %lld entries, but degrees have 32 bits",
                          plim__dataset_path(dataset), (long long)info->max_degree);
    return PLIM_OK;
}

plim_status_t plim__load_cut_check(const plim_recipe_t *recipe, int64_t part_seeds)
{
    if (part_seeds < 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "parts of %lld seeds are impossible; give 1 or more, or 0 for whole "
                          "batches",
                          (long long)part_seeds);
    if (recipe->form == PLIM_PYG && part_seeds > 0 && part_seeds < recipe->batch_size)
        return plim__fail(PLIM_ERR_USAGE,
                          "batches of %lld seeds in PyG's form cannot come in parts of %lld: a "
                          "node's draws depend on the whole batch; choose the native form, or "
                          "smaller batches",
                          (long long)recipe->batch_size, (long long)part_seeds);
    return PLIM_OK;
}

plim_recipe_t plim__load_recipe(const plim_dataset_info_t *info, const plim_recipe_t *recipe)
{
    plim_recipe_t drawn = *recipe;
    if (info->num_graphs > 0) {
        drawn.num_hops = 1;
        drawn.fanout[0] = PLIM_FANOUT_ALL;
        drawn.replace = false;
        drawn.form = PLIM_NATIVE;
    }
    return drawn;
}

plim__blocks_params_t plim__load_blocks(const plim_dataset_info_t *info,
                                        const plim_recipe_t *recipe)
{
    plim__blocks_params_t params = {
        .num_hops = recipe->num_hops,
        .replace = recipe->replace,
        .form = recipe->form,
        .node_bits = recipe->disjoint ? plim__blocks_node_bits(info->num_nodes) : 0,
        .seed = recipe->seed,
        .most_drawn = plim__load_most_drawn(recipe, info->max_degree)};
    memcpy(params.fanout, recipe->fanout, sizeof params.fanout);
    return params;
}

int64_t plim__load_most_drawn(const plim_recipe_t *recipe, int64_t max_degree)
{
    int64_t most = 1;
    for (int i = 0; i < recipe->num_hops; i++) {
        int64_t draws = recipe->fanout[i];
        if (draws < 0 || (draws > max_degree && !recipe->replace))
            draws = max_degree;
        most = plim__max_i64(most, draws);
    }
    return most;
}

int64_t plim__load_largest_split(const plim_dataset_info_t *info)
{
    return plim__max_i64(info->num_split[PLIM_TRAIN],
                         plim__max_i64(info->num_split[PLIM_VALID], info->num_split[PLIM_TEST]));
}

plim_status_t plim__load_stream_params(const plim_stream_params_t *given,
                                       plim_stream_params_t *params_out)
{
    const plim_stream_params_t defaults = PLIM_STREAM_PARAMS_INIT;
    *params_out = defaults;
    return plim__params_take(given, "plim_stream_params_t", params_out, sizeof *params_out);
}

/* Entries of a batch: seeds, or pairs. */
static int64_t stream_batch(const plim_recipe_t *recipe, const plim_stream_params_t *params)
{
    return params->batch_size > 0 ? params->batch_size : recipe->batch_size;
}

/* Pairs of a share, which is a batch of links by itself: all shares but an epoch's last are alike.
 */
static int64_t share_pairs(const plim_recipe_t *recipe, const plim_stream_params_t *params)
{
    return stream_batch(recipe, params) / params->num_shares;
}

plim_status_t plim__load_stream_links(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                      const plim_stream_params_t *params, plim_links_t *links_out)
{
    *links_out = (plim_links_t){0};
    if (params->links == NULL)
        return PLIM_OK;
    if (params->num_nodes > 0)
        return plim__fail(PLIM_ERR_USAGE, "a stream of links has no list of nodes");
    if (params->num_shares < 1 || stream_batch(recipe, params) % params->num_shares != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "batches of %lld links cannot be cut into %d equal shares",
                          (long long)stream_batch(recipe, params), params->num_shares);
    return plim__links_take(params->links, info, recipe, share_pairs(recipe, params), links_out);
}

int64_t plim__load_stream_seeds(const plim_recipe_t *recipe, const plim_stream_params_t *params,
                                int64_t split_seeds)
{
    if (params->links != NULL)
        return plim__links_seeds(params->links, share_pairs(recipe, params));
    return params->num_nodes > 0 ? params->num_nodes : split_seeds;
}

plim_recipe_t plim__load_stream_recipe(const plim_recipe_t *recipe,
                                       const plim_stream_params_t *params)
{
    plim_recipe_t own = *recipe;
    if (params->has_seed)
        own.seed = params->seed;
    own.batch_size = stream_batch(recipe, params);
    if (params->links != NULL)
        own.batch_size = plim__mul_saturating_i64(
            plim__links_places(params->links, share_pairs(recipe, params)), params->num_shares);
    if (params->num_hops != PLIM_HOPS_RECIPE) {
        own.num_hops = params->num_hops;
        memcpy(own.fanout, params->fanout, sizeof own.fanout);
    }
    return own;
}

int64_t plim__load_share_size(const plim_stream_params_t *params, int64_t batch_size)
{
    if (params->num_shares <= 1)
        return batch_size;
    const int64_t each = (batch_size - 1) / params->num_shares + 1;
    if (params->links != NULL) /* a slot has one of them */
        return each;
    return plim__min_i64(plim__mul_saturating_i64(each, params->share_count), batch_size);
}

bool plim__load_stream_reorders(const plim_recipe_t *recipe, const plim_stream_params_t *params)
{
    return params->shuffle && (params->split != PLIM_TRAIN ||
                               plim__load_stream_recipe(recipe, params).seed != recipe->seed);
}

const plim_recipe_t *plim__load_envelope(const plim__load_plan_t *plan)
{
    return plan->envelope.batch_size > 0 ? &plan->envelope : &plan->recipe;
}

int64_t plim__load_most_seeds(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    return plan->most_seeds > 0 ? plan->most_seeds : plim__load_largest_split(info);
}

int64_t plim__load_part_seeds(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                              int64_t wanted)
{
    const int64_t seeds = plim__min_i64(recipe->batch_size, plim__load_largest_split(info));
    return wanted > 0 ? plim__min_i64(seeds, wanted) : seeds;
}

size_t plim__load_most_cached(const plim__load_plan_t *plan, size_t row_bytes)
{
    const size_t windows = PLIM__LOAD_WINDOWS * (size_t)plan->window_rows * row_bytes;
    return plan->row_cache_bytes + (plan->shared ? plan->list_cache_bytes + windows : 0);
}

int64_t plim__cost_pages(size_t bytes)
{
    return bytes < (size_t)INT64_MAX ? (int64_t)plim__round_up(bytes, PLIM__PAGE) : INT64_MAX;
}

/* Bytes of an array on cache lines, saturating. */
static size_t array_bytes(int64_t count, int64_t columns, size_t width)
{
    int64_t items;
    size_t bytes;
    if (!plim__mul_i64(count, columns, &items) || !plim__mul_size((size_t)items, width, &bytes))
        return SIZE_MAX;
    return plim__round_up(bytes, PLIM__LINE);
}

/* Whether the positions of drawn edges are needed. */
static bool has_positions(const plim_recipe_t *recipe)
{
    return recipe->edge_ids || (recipe->columns & PLIM_COLUMNS_OF_EDGES) != 0;
}

static plim__load_slot_sizes_t slot_sizes(const plim_dataset_info_t *info,
                                          const plim__load_plan_t *plan, int64_t seeds,
                                          bool with_rows)
{
    const plim_recipe_t *recipe = &plan->recipe;
    const size_t width = plim__index_bytes(recipe->index_type);
    const size_t id_width = plim__index_bytes(plim__load_node_type(info, recipe));
    plim__load_slot_sizes_t sizes = {
        .nodes = array_bytes(plan->slot_nodes, 1, id_width),
        .edges = array_bytes(plan->slot_edges, recipe->edge_index ? 2 : 1, width),
        .seeds = array_bytes(seeds, 1, sizeof(int64_t)),
    };
    if (with_rows)
        sizes.rows = array_bytes(plan->slot_nodes, info->num_features,
                                 plim__feature_bytes(plim__row_type(info, recipe->row_type)));
    if (plan->links)
        sizes.places = sizes.seeds;
    if (recipe->degrees)
        sizes.degrees = array_bytes(plan->slot_nodes, 1, sizeof(int32_t));
    if (plim__load_sums(info, recipe))
        sizes.weight_sums = array_bytes(plan->slot_nodes, 1, sizeof(float));
    if (info->label_kind == PLIM_LABELS_CLASSES)
        sizes.labels = array_bytes(seeds, 1, sizeof(int64_t));
    if (info->label_kind == PLIM_LABELS_VALUES)
        sizes.labels = array_bytes(seeds, info->num_targets, sizeof(float));
    if (info->num_graphs > 0)
        sizes.graph_indptr = array_bytes(seeds + 1, 1, width);
    if (has_positions(recipe))
        sizes.edge_ids = array_bytes(plan->slot_edges, 1, sizeof(int64_t));
    if (recipe->disjoint)
        sizes.trees = array_bytes(plan->slot_nodes, 1, width);
    if (plim__load_by_time(recipe))
        sizes.seed_times = array_bytes(seeds, 1, sizeof(int64_t));
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const unsigned column = 1u << i;
        if ((recipe->columns & column) == 0)
            continue;
        const plim_dtype_t type = plim__column_type(info, column, recipe->row_type);
        sizes.columns[i] =
            array_bytes(column == PLIM_NODE_TIME ? plan->slot_nodes : plan->slot_edges,
                        plim__column_form(info, column).num_features, plim__feature_bytes(type));
        if (!plim__add_size(sizes.bytes, sizes.columns[i], &sizes.bytes))
            sizes.bytes = SIZE_MAX;
    }
    const size_t all[] = {sizes.nodes,    sizes.edges,   sizes.rows,        sizes.seeds,
                          sizes.labels,   sizes.degrees, sizes.weight_sums, sizes.graph_indptr,
                          sizes.edge_ids, sizes.trees,   sizes.seed_times,  sizes.places,
                          sizes.places,   sizes.places};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!plim__add_size(sizes.bytes, all[i], &sizes.bytes))
            sizes.bytes = SIZE_MAX;
    sizes.bytes = plim__round_up(sizes.bytes, PLIM__PAGE);
    return sizes;
}

static plim__load_window_params_t window_params(const plim_dataset_info_t *info,
                                                const plim__load_plan_t *plan,
                                                const plim__loader_params_t *parts)
{
    const plim_recipe_t drawn = plim__load_recipe(info, plim__load_envelope(plan));
    const plim_recipe_t *recipe = &drawn;
    bool rows_read = parts->with_rows && !plan->rows_in_memory;
    plim__load_window_params_t params = {
        .num_hops = recipe->num_hops,
        .replace = recipe->replace,
        .seed = recipe->seed,
        .num_nodes = info->num_nodes,
        .index_type = plim__id_type(info),
        .most_drawn = parts->most_drawn,
        .draws = plan->window_draws,
        .sparse = plan->window_sparse,
        .rows = rows_read ? plan->window_rows : 0,
        .row_bytes = (size_t)info->num_features * plim__feature_bytes(info->feature_type),
        .row_type = info->feature_type,
        .num_features = info->num_features,
        .builders = parts->builders,
        .workers = plan->workers,
        .with_positions = recipe->draw_by != 0 && has_positions(recipe),
    };
    for (int i = 0; i < recipe->num_hops; i++)
        params.fanout[i] = recipe->fanout[i];
    return params;
}

void plim__loader_params_find(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__load_plan_t *plan, plim__loader_params_t *parts_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_recipe_t drawn = plim__load_recipe(info, plim__load_envelope(plan));
    const plim_recipe_t *recipe = &drawn;
    plim__loader_params_t parts = {0};
    parts.with_rows = !recipe->no_features && info->num_features > 0;
    parts.windowed = !recipe->disjoint && ((recipe->num_hops > 0 && !plan->topology_in_memory) ||
                                           (parts.with_rows && !plan->rows_in_memory));
    parts.builders = parts.windowed ? plim__job_threads(job) : 0;
    parts.num_sources = parts.builders + plan->workers;
    parts.most_drawn = plim__load_most_drawn(recipe, info->max_degree);
    parts.blocks = plim__load_blocks(info, recipe);
    parts.blocks.with_edge_ids = has_positions(recipe);
    parts.blocks.node_capacity = plan->slot_nodes;
    parts.window = window_params(info, plan, &parts);
    parts.ahead = (plim__ahead_params_t){.draws = parts.window,
                                         .row_bytes = parts.window.row_bytes,
                                         .bucket_bytes = plan->bucket_bytes};
    parts.ahead.draws.draws = plan->ahead_draws;
    parts.ahead.draws.rows = plan->ahead_rows;
    parts.ahead.draws.row_bytes = 0;
    parts.lists = (plim__source_params_t){
        .workers = parts.num_sources,
        .depth = plan->topology_in_memory ? CACHED_DEPTH : plan->io_depth,
        .merge_distance = plan->merge_distance,
        .all = plan->topology_in_memory,
        .cache_bytes = plan->list_cache_bytes,
    };
    parts.rows = (plim__source_params_t){
        .workers = parts.num_sources,
        .depth = plan->rows_in_memory ? CACHED_DEPTH : plan->io_depth,
        .merge_distance = plan->merge_distance,
        .all = plan->rows_in_memory,
        .cache_bytes = plan->row_cache_bytes,
    };
    parts.columns = (plim__source_params_t){
        .workers = recipe->draw_by != 0 ? parts.num_sources : plan->workers,
        .depth = plan->io_depth,
        .merge_distance = plan->merge_distance,
    };
    parts.part_seeds = plim__min_i64(recipe->batch_size, plim__load_most_seeds(info, plan));
    if (plan->part_seeds > 0)
        parts.part_seeds = plim__min_i64(parts.part_seeds, plan->part_seeds);
    parts.slot = slot_sizes(info, plan, parts.part_seeds, parts.with_rows);
    *parts_out = parts;
}
