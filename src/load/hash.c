/*
 * The hash of a stream of batches, computed as a model computes: from the rows of the outermost
 * nodes inwards, hop by hop, each destination from itself and its drawn sources in their order, at
 * last the seeds in theirs. So it says what a model would see, and does not change when a batch is
 * cut into parts, though the parts' local ids and node lists do.
 */
#include "base/process.h"
#include "base/rng.h"
#include "load/loader.h"
#include "store/dataset.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t fold(uint64_t hash, uint64_t value)
{
    return plim__mix64(hash * 0x9e3779b97f4a7c15u + value + 0xd1b54a32d192ed03u);
}

static int64_t at(plim_dtype_t type, const void *array, int64_t i)
{
    return type == PLIM_I32 ? ((const int32_t *)array)[i] : ((const int64_t *)array)[i];
}

/* Outermost: what each node is by itself. */
static void hash_nodes(const plim_loader_t *loader, const plim_batch_t *batch, uint64_t *hashes)
{
    const plim_recipe_t *recipe = &loader->plan.recipe;
    const size_t size = (size_t)loader->info->num_features * plim__feature_bytes(recipe->row_type);
    for (int64_t i = 0; i < batch->num_nodes; i++) {
        uint64_t row = 0;
        if (batch->rows != NULL)
            row = XXH3_64bits((const char *)batch->rows + (size_t)i * size, size);
        hashes[i] = fold(row, (uint64_t)at(recipe->index_type, batch->nodes, i));
    }
}

/* One hop inwards; a layer must not see its own results, so they lie apart first. */
static void hash_block(plim_dtype_t type, const plim_block_t *block, uint64_t *hashes,
                       uint64_t *results)
{
    for (int64_t i = 0; i < block->num_dst; i++) {
        const int64_t end = at(type, block->indptr, i + 1);
        uint64_t hash = hashes[block->first_dst + i];
        for (int64_t j = at(type, block->indptr, i); j < end; j++)
            hash = fold(hash, hashes[at(type, block->indices, j)]);
        results[i] = fold(hash, 0);
    }
    memcpy(hashes + block->first_dst, results, (size_t)block->num_dst * sizeof *results);
}

PLIM_API uint64_t plim_loader_hash(plim_loader_t *loader, const plim_batch_t *batch, uint64_t hash)
{
    if (!plim__process_is(loader->process)) /* there is nothing in a forked child */
        return hash;
    const plim_dtype_t type = loader->plan.recipe.index_type;
    const size_t label_bytes = plim__seeds_label_bytes(loader->seeds);
    uint64_t *hashes = loader->slots->hashes;
    hash_nodes(loader, batch, hashes);
    for (int hop = batch->num_blocks - 1; hop >= 0; hop--)
        hash_block(type, &batch->blocks[hop], hashes, hashes + loader->plan.slot_nodes);
    for (int64_t i = 0; i < batch->num_seeds; i++) {
        uint64_t seed = fold((uint64_t)batch->epoch, (uint64_t)batch->step);
        seed = fold(seed, (uint64_t)(batch->first_seed + i));
        if (batch->labels != NULL)
            seed = fold(seed, XXH3_64bits((const char *)batch->labels + (size_t)i * label_bytes,
                                          label_bytes));
        int64_t first = i, end = i + 1;
        if (batch->graph_indptr != NULL) {
            first = at(type, batch->graph_indptr, i);
            end = at(type, batch->graph_indptr, i + 1);
        }
        for (int64_t j = first; j < end; j++)
            seed = fold(seed, hashes[j]);
        hash = fold(hash, seed);
    }
    return hash;
}
