/* `plimsoll inspect`: shows a dataset, and with --verify checks all of it. */
#include "command/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: plimsoll inspect DIR [--verify] [options]\n\n"
    "Shows the dataset directory DIR: counts, the distribution of in-degrees, labels,\n"
    "splits, statistics of the features (over a sample of rows), files, how it was made, and its\n"
    "fingerprint, which is the same for equal data however it was made. Nothing is written.\n";

typedef struct inspect {
    cli_common_t common;
    bool verify;
} inspect_t;

/* The data to show, collected once for text and JSON. */
typedef struct inspect_view {
    const char *path;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    plim_dataset_report_t report;
} inspect_view_t;

static const char *const split_names[] = {"train", "valid", "test"};

static const char *type_name(plim_dtype_t type)
{
    return type == PLIM_I32   ? "int32"
           : type == PLIM_U32 ? "uint32"
           : type == PLIM_I64 ? "int64"
           : type == PLIM_F16 ? "float16"
           : type == PLIM_F32 ? "float32"
                              : "none";
}

static const char *label_kind_name(plim_label_kind_t kind)
{
    return kind == PLIM_LABELS_CLASSES ? "classes" : kind == PLIM_LABELS_VALUES ? "values" : "none";
}

static json_t *stats_json(const plim_value_stats_t *stats)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "num_values", (json_int_t)stats->count,
                     "num_nan", (json_int_t)stats->num_nan, "num_infinite",
                     (json_int_t)stats->num_infinite, "min", stats->min, "max", stats->max, "mean",
                     stats->mean, "deviation", stats->deviation);
}

static json_t *degrees_json(const plim_dataset_report_t *report)
{
    json_t *buckets = json_array();
    int used = PLIM_DEGREE_BUCKETS;
    while (used > 1 && report->degrees_log2[used - 1] == 0)
        used--;
    for (int i = 0; i < used; i++)
        (void)json_array_append_new(buckets, json_integer(report->degrees_log2[i]));
    return json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "mean", report->degree_mean,
                     "min", (json_int_t)report->degree_min, "median",
                     (json_int_t)report->degree_median, "p90", (json_int_t)report->degree_p90,
                     "p99", (json_int_t)report->degree_p99, "p999", (json_int_t)report->degree_p999,
                     "max", (json_int_t)report->degree_max, "num_zero",
                     (json_int_t)report->degree_zero, "log2", buckets);
}

static json_t *classes_json(const plim_dataset_report_t *report)
{
    json_t *top = json_array();
    for (int i = 0; i < report->num_top; i++)
        (void)json_array_append_new(top, json_pack("{s:I, s:I}", "class",
                                                   (json_int_t)report->top_class[i], "count",
                                                   (json_int_t)report->top_count[i]));
    return top;
}

static json_t *type_names_json(const plim_dataset_report_t *report)
{
    json_t *names = json_array();
    for (int i = 0; i < report->num_type_names; i++)
        (void)json_array_append_new(names, cli_json_text(report->type_names[i]));
    return names;
}

static json_t *files_json(const plim_dataset_t *dataset)
{
    json_t *files = json_array();
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
    for (int i = 0; plim_dataset_file(dataset, i, &file); i++) {
        json_t *shape = json_array();
        for (int j = 0; j < file.num_dims; j++)
            (void)json_array_append_new(shape, json_integer(file.shape[j]));
        (void)json_array_append_new(files, json_pack("{s:s, s:s, s:o, s:I}", "name", file.name,
                                                     "dtype", file.type, "shape", shape, "bytes",
                                                     (json_int_t)file.bytes));
    }
    return files;
}

static json_t *view_json(const inspect_view_t *view)
{
    const plim_dataset_info_t *info = view->info;
    const plim_dataset_report_t *report = &view->report;
    json_t *object = json_pack(
        "{s:o, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path",
        cli_json_text(view->path), "verified", (int)report->whole, "fingerprint", info->fingerprint,
        "format", info->format, "num_nodes", (json_int_t)info->num_nodes, "num_edges",
        (json_int_t)info->num_edges, "num_features", (json_int_t)info->num_features, "num_graphs",
        (json_int_t)info->num_graphs, "num_labels", (json_int_t)info->num_labels, "num_classes",
        (json_int_t)info->num_classes, "num_targets", (json_int_t)info->num_targets,
        "num_unlabelled", (json_int_t)report->num_unlabelled, "bytes", (json_int_t)info->bytes);
    json_t *rest = json_pack(
        "{s:I, s:I, s:I, s:s, s:s, s:s, s:f, s:o, s:o, s:{s:o, s:o, s:o}, s:s, s:b, s:b, s:I}",
        "num_train", (json_int_t)info->num_split[0], "num_valid", (json_int_t)info->num_split[1],
        "num_test", (json_int_t)info->num_split[2], "index_type", type_name(info->index_type),
        "feature_type", type_name(info->feature_type), "label_kind",
        label_kind_name(info->label_kind), "feature_error", info->feature_error, "in_degree",
        degrees_json(report), "files", files_json(view->dataset), "provenance", "source",
        cli_json_text(view->info->source), "options", cli_json_text(view->info->options), "version",
        cli_json_text(view->info->version), "file_system", report->file_system, "network",
        (int)report->network, "memory", (int)report->memory, "bytes_read",
        (json_int_t)report->bytes_read);
    (void)json_object_update(object, rest);
    json_decref(rest);
    (void)json_object_set_new(object, "multi_label", json_boolean(info->multi_label));
    if (info->num_features > 0)
        (void)json_object_set_new(object, "features", stats_json(&report->features));
    if (info->label_kind == PLIM_LABELS_VALUES)
        (void)json_object_set_new(object, "targets", stats_json(&report->targets));
    if (info->label_kind == PLIM_LABELS_CLASSES)
        (void)json_object_set_new(object, "top_classes", classes_json(report));
    if (info->num_edge_types > 0)
        (void)json_object_set_new(object, "num_edge_types", json_integer(info->num_edge_types));
    if (report->num_type_names > 0)
        (void)json_object_set_new(object, "edge_type_names", type_names_json(report));
    if (report->whole) {
        (void)json_object_set_new(object, "num_self_loops", json_integer(report->num_self_loops));
        (void)json_object_set_new(object, "num_duplicates", json_integer(report->num_duplicates));
    }
    return object;
}

/* 1,615,685,872. */
typedef struct number {
    char text[32];
} number_t;

static number_t grouped(int64_t value)
{
    char digits[24];
    number_t number;
    char *to = number.text;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);
    for (int i = 0; i < length; i++) {
        *to++ = digits[i];
        if ((length - i - 1) % 3 == 0 && i + 1 < length && digits[i] != '-')
            *to++ = ',';
    }
    *to = '\0';
    return number;
}

static void print_stats(const plim_value_stats_t *stats, bool whole, int64_t all)
{
    (void)printf("             min %.4g, max %.4g, mean %.4g, deviation %.4g", stats->min,
                 stats->max, stats->mean, stats->deviation);
    if (stats->num_nan > 0 || !whole)
        (void)printf(", %s NaN", grouped(stats->num_nan).text);
    if (stats->num_infinite > 0)
        (void)printf(", %s infinite", grouped(stats->num_infinite).text);
    if (stats->count < all)
        (void)printf("\n             (over %s of %s values; --verify takes all)",
                     grouped(stats->count).text, grouped(all).text);
    (void)printf("\n");
}

/* The type of labels.npy. */
static const char *label_type(const plim_dataset_t *dataset)
{
    static const char *const names[][2] = {
        {"|i1", "int8"}, {"|u1", "uint8"}, {"<i2", "int16"}, {"<i4", "int32"}, {"<i8", "int64"}};
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
    for (int i = 0; plim_dataset_file(dataset, i, &file); i++)
        for (int j = 0; j < 5; j++)
            if (strcmp(file.name, "labels.npy") == 0 && strcmp(file.type, names[j][0]) == 0)
                return names[j][1];
    return "float32";
}

static void print_labels(const inspect_view_t *view)
{
    const plim_dataset_info_t *info = view->info;
    const plim_dataset_report_t *report = &view->report;
    const char *rows = info->num_graphs > 0 ? "graphs" : "nodes";
    switch (info->label_kind) {
    case PLIM_LABELS_NONE:
        (void)printf("labels       none\n");
        break;
    case PLIM_LABELS_CLASSES:
        (void)printf("labels       %s classes (%s); %s %s labelled, %s not\n",
                     grouped(info->num_classes).text, label_type(view->dataset),
                     grouped(info->num_labels - report->num_unlabelled).text, rows,
                     grouped(report->num_unlabelled).text);
        for (int i = 0; i < report->num_top; i++)
            (void)printf("%s%lld (%s)%s", i == 0 ? "             most frequent: " : "",
                         (long long)report->top_class[i], grouped(report->top_count[i]).text,
                         i + 1 < report->num_top ? ", " : "\n");
        break;
    case PLIM_LABELS_VALUES:
        (void)printf("labels       %s target%s for each of %s %s%s\n",
                     grouped(info->num_targets).text, info->num_targets == 1 ? "" : "s",
                     grouped(info->num_labels).text, rows,
                     info->multi_label ? ", 0 and 1: multi-label" : "");
        print_stats(&report->targets, report->whole, info->num_labels * info->num_targets);
        break;
    }
    (void)printf("splits       ");
    for (int i = 0; i < 3; i++)
        (void)printf("%s %s%s", split_names[i], grouped(info->num_split[i]).text,
                     i < 2 ? ", " : "\n");
}

static void print_edge_types(const plim_dataset_info_t *info, const plim_dataset_report_t *report)
{
    (void)printf("edge types   %s", grouped(info->num_edge_types).text);
    for (int i = 0; i < report->num_type_names; i++) {
        (void)printf("%s", i == 0 ? ": " : ", ");
        cli_print_text(stdout, report->type_names[i]);
    }
    (void)printf("%s\n", report->num_type_names > 0 && report->num_type_names < info->num_edge_types
                             ? ", …"
                             : "");
}

static void print_graph(const inspect_view_t *view)
{
    const plim_dataset_info_t *info = view->info;
    const plim_dataset_report_t *report = &view->report;
    (void)printf("nodes        %s", grouped(info->num_nodes).text);
    if (info->num_graphs > 0)
        (void)printf(" in %s graphs", grouped(info->num_graphs).text);
    (void)printf("\nedges        %s (%s)", grouped(info->num_edges).text,
                 type_name(info->index_type));
    if (report->whole)
        (void)printf(", %s self-loops, %s duplicates", grouped(report->num_self_loops).text,
                     grouped(report->num_duplicates).text);
    (void)printf("\nin-degree    mean %.4g, min %s, median %s, p90 %s, p99 %s, p99.9 %s, max %s\n"
                 "             %s nodes without in-edges\n",
                 report->degree_mean, grouped(report->degree_min).text,
                 grouped(report->degree_median).text, grouped(report->degree_p90).text,
                 grouped(report->degree_p99).text, grouped(report->degree_p999).text,
                 grouped(report->degree_max).text, grouped(report->degree_zero).text);
    if (info->num_edge_types > 0)
        print_edge_types(info, report);
    if (info->num_features == 0) {
        (void)printf("features     none\n");
        return;
    }
    (void)printf("features     %s x %s", grouped(info->num_features).text,
                 type_name(info->feature_type));
    if (info->feature_error > 0)
        (void)printf(", at most %.2g of a value off the source's", info->feature_error);
    (void)printf("\n");
    print_stats(&report->features, report->whole, info->num_nodes * info->num_features);
}

static void print_view(const inspect_view_t *view)
{
    char text[24];
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
    (void)printf("dataset      ");
    cli_print_text(stdout, view->path);
    (void)printf("\nmade by      ");
    cli_print_text(stdout, view->info->source);
    if (view->info->options[0] != '\0')
        (void)putchar(' ');
    cli_print_text(stdout, view->info->options);
    (void)printf(" (plimsoll ");
    cli_print_text(stdout, view->info->version);
    (void)printf(")\nfingerprint  %s (format %d)\n", view->info->fingerprint, view->info->format);
    print_graph(view);
    print_labels(view);
    (void)printf("files        %s on %s\n", plim_size_text(view->info->bytes, text),
                 view->report.file_system);
    for (int i = 0; plim_dataset_file(view->dataset, i, &file); i++) {
        char shape[96] = "";
        for (int j = 0; j < file.num_dims; j++) {
            size_t used = strlen(shape);
            (void)snprintf(shape + used, sizeof shape - used, "%s%s", j > 0 ? " x " : "",
                           grouped(file.shape[j]).text);
        }
        (void)printf("  %-17s %-4s %-24s %10s\n", file.name, file.type, shape,
                     plim_size_text(file.bytes, text));
    }
    if (view->report.whole)
        (void)printf("verified     every byte and every rule: the dataset is as it was written\n");
}

static void warn(const inspect_view_t *view)
{
    if (view->report.memory)
        (void)fprintf(
            stderr, "warning: the dataset lies on %s, which is memory and counts against the job\n",
            view->report.file_system);
    if (view->report.network)
        (void)fprintf(stderr,
                      "warning: the dataset lies on %s, over the network; a disk of the node's own "
                      "is faster\n",
                      view->report.file_system);
    if (view->report.features.num_nan + view->report.features.num_infinite > 0)
        (void)fprintf(stderr, "warning: the features are not all finite numbers\n");
    const int64_t labelled = view->info->num_labels - view->report.num_unlabelled;
    if (view->info->label_kind == PLIM_LABELS_CLASSES && view->info->num_classes > labelled)
        (void)fprintf(stderr,
                      "warning: %s classes for %s labelled %s: are the labels ids, or values?\n",
                      grouped(view->info->num_classes).text, grouped(labelled).text,
                      view->info->num_graphs > 0 ? "graphs" : "nodes");
}

static plim_status_t inspect(plim_job_t *job, const cli_common_t *common, const char *path,
                             bool verify)
{
    plim_dataset_t *dataset;
    inspect_view_t view = {.path = path, .report = PLIM_DATASET_REPORT_INIT};
    plim_status_t status = plim_dataset_open(job, path, &dataset);
    if (status != PLIM_OK)
        return status;
    view.dataset = dataset;
    view.info = plim_dataset_info(dataset);
    status = plim_dataset_inspect(job, dataset, verify, &view.report);
    if (status == PLIM_OK) {
        json_t *object = common->json ? view_json(&view) : NULL;
        if (!common->json)
            print_view(&view);
        cli_flush();
        warn(&view);
        cli_job_report(job, object);
        if (common->json)
            cli_print_json(object);
    }
    plim_dataset_release(dataset);
    return status;
}

static json_t *dataset_json(const char *target, const plim_dataset_info_t *info)
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

static void print_dataset(const char *target, const plim_dataset_info_t *info)
{
    char bytes[24];
    cli_print_text(stdout, target);
    (void)printf(": %" PRId64 " nodes, %" PRId64 " edges", info->num_nodes, info->num_edges);
    if (info->num_graphs > 0)
        (void)printf(", %" PRId64 " graphs", info->num_graphs);
    if (info->num_features > 0)
        (void)printf(", %" PRId64 " features (%s)", info->num_features,
                     cli_feature_type(info->feature_type));
    if (info->label_kind == PLIM_LABELS_CLASSES)
        (void)printf(", %" PRId64 " classes", info->num_classes);
    if (info->label_kind == PLIM_LABELS_VALUES)
        (void)printf(", %" PRId64 " targets", info->num_targets);
    (void)printf("; train %" PRId64 ", valid %" PRId64 ", test %" PRId64 "; %s\n",
                 info->num_split[0], info->num_split[1], info->num_split[2],
                 plim_size_text(info->bytes, bytes));
}

plim_status_t cli_print_dataset(const cli_common_t *common, plim_job_t *job, const char *target)
{
    plim_dataset_t *dataset;
    json_t *object = NULL;
    plim_status_t status = plim_dataset_open(job, target, &dataset);
    if (status != PLIM_OK)
        return status;
    if (common->json)
        object = dataset_json(target, plim_dataset_info(dataset));
    else if (!common->quiet)
        print_dataset(target, plim_dataset_info(dataset));
    plim_dataset_release(dataset);
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static int run(int argc, char **argv)
{
    inspect_t request = {.common = {.verb = &cli_verb_inspect}};
    const cli_common_t *common = &request.common;
    int exit_code;
    if (!cli_read_options(argc, argv, &request, &exit_code))
        return exit_code;
    if (optind != argc - 1)
        return cli_wrong_use(common, "give one dataset directory");
    plim_job_t *job;
    plim_status_t status = cli_job_start(common, &job);
    if (status != PLIM_OK)
        return cli_failed(common, status);
    status = inspect(job, common, argv[optind], request.verify);
    exit_code = status == PLIM_OK ? CLI_DONE : cli_failed(common, status);
    cli_job_end(job);
    return exit_code;
}

static const cli_option_t own_options[] = {
    {"verify", NULL,
     "read every byte: compare all checksums, check every offset, id, label and split, take the "
     "statistics over all rows",
     CLI_AT(inspect_t, verify)},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_inspect = {
    .name = "inspect",
    .summary = "show a dataset, or verify all of it",
    .help = help,
    .groups = groups,
    .operand = ":directory",
    .run = run,
};
