/* A dataset without files: the metadata of the dataset that the generator would make. */
#include "base/fail.h"
#include "base/params.h"
#include "generate/generate_edges.h"
#include "generate/generate_graph.h"
#include "generate/generate_shape.h"
#include "store/dataset.h"
#include "store/labels.h"

#include <stdio.h>

static void add_file(plim__manifest_t *manifest, const char *name, plim__dtype_t type, int64_t rows,
                     int64_t columns)
{
    plim__manifest_file_t *file = &manifest->files[manifest->num_files++];
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    file->type = type;
    file->num_dims = columns > 0 ? 2 : 1;
    file->shape[0] = rows;
    file->shape[1] = columns;
}

/* The files as generate_rows.c and the CSC build write them. */
static void add_files(const plim__shape_t *shape, plim__manifest_t *manifest)
{
    static const char *const splits[] = {"train.npy", "valid.npy", "test.npy"};
    const bool half = shape->feature_type == PLIM_F16;
    add_file(manifest, "indptr.npy", PLIM__NPY_I64, shape->num_nodes + 1, 0);
    add_file(manifest, "indices.npy", plim__index_written(shape->num_nodes), shape->num_edges, 0);
    add_file(manifest, "features.npy", half ? PLIM__NPY_F16 : PLIM__NPY_F32, shape->num_nodes,
             shape->num_features);
    add_file(manifest, "labels.npy", plim__label_type(shape->num_classes), shape->num_nodes, 0);
    for (int i = 0; i < 3; i++)
        if (shape->num_split[i] > 0)
            add_file(manifest, splits[i], PLIM__NPY_I64, shape->num_split[i], 0);
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__edges_file_t file;
        char name[32];
        if (!plim__edges_file(shape, (plim_column_t)(1u << i), &file))
            continue;
        (void)snprintf(name, sizeof name, "%s.npy", plim__column_names[i]);
        add_file(manifest, name, file.type, file.shape[0], file.shape[1]);
    }
    if (shape->times)
        add_file(manifest, "node_time.npy", PLIM__NPY_I64, shape->num_nodes, 0);
}

/* The core and the nodes drawn outside of it. Draws are not uniform, so fewer nodes count. */
static int64_t reach_of(const plim__shape_t *shape, double spread)
{
    const double core = (double)shape->num_core, all = (double)shape->num_nodes;
    return shape->num_core == shape->num_nodes
               ? 0
               : (int64_t)(0.7 * core + (all - core) * spread * spread);
}

PLIM_API plim_status_t plim_dataset_from_shape(const plim_job_t *job,
                                               const plim_generate_options_t *options,
                                               plim_dataset_t **dataset_out)
{
    plim__shape_t shape;
    plim__arena_t arena;
    plim_generate_options_t known = PLIM_GENERATE_OPTIONS_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__params_take(options, "plim_generate_options_t", &known, sizeof known));
    if (known.shape == NULL)
        return plim__fail(PLIM_ERR_USAGE, "no shape given");
    PLIM_TRY(plim__shape_resolve(&known, &shape));
    PLIM_TRY(plim__arena_create(job->ledger, "dataset", sizeof(plim__manifest_t), &arena));
    plim__manifest_t *manifest = plim__arena_carve(&arena, 1, sizeof *manifest, 1);
    manifest->info = (plim_dataset_info_t){.format = PLIM__FORMAT,
                                           .num_nodes = shape.num_nodes,
                                           .num_classes = shape.num_classes,
                                           .num_edge_types = shape.num_edge_types};
    manifest->reach = reach_of(&shape, known.spread);
    manifest->source = shape.name;
    manifest->options = "";
    manifest->version = "";
    add_files(&shape, manifest);
    plim__graph_expect(&shape, manifest->degrees, &manifest->info.max_degree);
    const plim_status_t status =
        plim__dataset_from_manifest(job, shape.name, manifest, dataset_out);
    plim__arena_destroy(&arena);
    return status;
}
