#include "load/recipe.h"

#include "base/fail.h"
#include "sample/draw.h"

static plim_status_t check_hops(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const char *path = plim__dataset_path(dataset);
    const bool graphs = plim_dataset_info(dataset)->num_graphs > 0;
    if (graphs && recipe->num_hops != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a dataset of many graphs gives whole graphs: no hops, no fan-outs",
                          path);
    if (graphs && recipe->form != PLIM_NATIVE)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a dataset of many graphs gives whole graphs, in native form", path);
    if (recipe->form != PLIM_NATIVE && recipe->form != PLIM_PYG)
        return plim__fail(PLIM_ERR_USAGE, "there is no form %d; batches come in native or in PyG's",
                          (int)recipe->form);
    if (recipe->num_hops < 0 || recipe->num_hops > PLIM_HOPS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%d hops; up to %d can be drawn", recipe->num_hops,
                          PLIM_HOPS_MAX);
    for (int i = 0; i < recipe->num_hops; i++)
        if (recipe->fanout[i] < -1 || recipe->fanout[i] > PLIM__FANOUT_MAX)
            return plim__fail(PLIM_ERR_USAGE,
                              "a fan-out of %lld at hop %d; it is -1 (all neighbours) or from 0 to "
                              "%d",
                              (long long)recipe->fanout[i], i + 1, PLIM__FANOUT_MAX);
    return PLIM_OK;
}

plim_status_t plim__load_recipe_check(const plim_dataset_t *dataset, const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (recipe->batch_size < 1 || recipe->batch_size > INT32_MAX)
        return plim__fail(PLIM_ERR_USAGE, "a batch of %lld; it has from 1 to 2^31 - 1 seeds",
                          (long long)recipe->batch_size);
    PLIM_TRY(check_hops(dataset, recipe));
    if (recipe->row_type != PLIM_F16 && recipe->row_type != PLIM_F32)
        return plim__fail(PLIM_ERR_USAGE, "rows are delivered as f16 or f32");
    if (recipe->index_type != PLIM_I32 && recipe->index_type != PLIM_I64)
        return plim__fail(PLIM_ERR_USAGE, "ids are delivered as 32 or 64 bits");
    if (recipe->index_type == PLIM_I32 && info->num_nodes > INT32_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%s: %lld nodes do not have ids of 32 bits; ask for 64",
                          plim__dataset_path(dataset), (long long)info->num_nodes);
    if (recipe->degrees && info->max_degree > INT32_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: its longest list has %lld entries, and degrees are delivered as 32 "
                          "bits",
                          plim__dataset_path(dataset), (long long)info->max_degree);
    return PLIM_OK;
}

plim_status_t plim__load_cut_check(const plim_recipe_t *recipe, int64_t part_seeds)
{
    if (part_seeds < 0)
        return plim__fail(PLIM_ERR_USAGE, "parts of %lld seeds; they have 1 or more, 0: whole",
                          (long long)part_seeds);
    if (recipe->form == PLIM_PYG && part_seeds > 0 && part_seeds < recipe->batch_size)
        return plim__fail(PLIM_ERR_USAGE,
                          "batches of %lld seeds in PyG's form cannot come in parts of %lld: what "
                          "a node draws there depends on the whole batch; take the native form, "
                          "or smaller batches",
                          (long long)recipe->batch_size, (long long)part_seeds);
    return PLIM_OK;
}
