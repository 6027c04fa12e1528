/* Prints the dataset that import or generate has written. */
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>

static json_t *describe(const char *target, const plim_dataset_info_t *info)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "target",
                     cli_json_text(target), "num_nodes", (json_int_t)info->num_nodes, "num_edges",
                     (json_int_t)info->num_edges, "num_features", (json_int_t)info->num_features,
                     "num_graphs", (json_int_t)info->num_graphs, "num_labels",
                     (json_int_t)info->num_labels, "num_classes", (json_int_t)info->num_classes,
                     "num_train", (json_int_t)info->num_split[0], "num_valid",
                     (json_int_t)info->num_split[1], "num_test", (json_int_t)info->num_split[2],
                     "bytes", (json_int_t)info->bytes, "feature_error", info->feature_error,
                     "fingerprint", info->fingerprint);
}

static void say(const char *target, const plim_dataset_info_t *info)
{
    char bytes[24];
    cli_print_text(stdout, target);
    (void)printf(": %" PRId64 " nodes, %" PRId64 " edges", info->num_nodes, info->num_edges);
    if (info->num_graphs > 0)
        (void)printf(", %" PRId64 " graphs", info->num_graphs);
    if (info->num_features > 0)
        (void)printf(", %" PRId64 " features (%s)", info->num_features,
                     info->feature_type == PLIM_F16 ? "f16" : "f32");
    if (info->label_kind == PLIM_LABELS_CLASSES)
        (void)printf(", %" PRId64 " classes", info->num_classes);
    if (info->label_kind == PLIM_LABELS_VALUES)
        (void)printf(", %" PRId64 " targets", info->num_targets);
    (void)printf("; train %" PRId64 ", valid %" PRId64 ", test %" PRId64 "; %s\n",
                 info->num_split[0], info->num_split[1], info->num_split[2],
                 plim_size_text(info->bytes, bytes));
}

plim_status_t cli_say_made(const cli_common_t *common, plim_job_t *job, const char *target)
{
    plim_dataset_t *dataset;
    json_t *object = NULL;
    plim_status_t status = plim_dataset_open(job, target, &dataset);
    if (status != PLIM_OK)
        return status;
    if (common->json)
        object = describe(target, plim_dataset_info(dataset));
    else if (!common->quiet)
        say(target, plim_dataset_info(dataset));
    plim_dataset_release(dataset);
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}
