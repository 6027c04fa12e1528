/*
 * How long exact outputs take, phase by phase, with weights drawn at random.
 *
 *     cmake --build --preset release --target bench_exact
 *     tools/limited 4G -- build/release/bench_exact DIRECTORY gcn 16 2 3900M SCRATCH [all]
 *
 * KIND is mlp, gcn, sage, sage-max, gat or gin; then the hidden columns, the layers, the line and
 * the directory of temporary files. For the nodes of all three splits, or for `all` nodes. Prints
 * a line a phase and a sum over all outputs.
 */
#include "bench_job.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/rng.h"
#include "infer/exact.h"
#include "infer/exact_layer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 128

static double begin;
static char phase[64];

static double now(void)
{
    return (double)plim__clock_ns() * 1e-9;
}

static void show(void *user, const plim_progress_t *progress)
{
    (void)user;
    if (strcmp(phase, progress->phase) == 0)
        return;
    (void)snprintf(phase, sizeof phase, "%s", progress->phase);
    (void)fprintf(stderr, "%8.2f s  %s\n", now() - begin, phase);
}

static void say(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "%8.2f s  %s\n", now() - begin, message);
}

typedef struct total {
    double sum;
    int64_t rows;
} total_t;

static plim_status_t take(void *context, int64_t first, int64_t rows, int64_t width,
                          const float *outputs)
{
    total_t *total = context;
    (void)first;
    for (int64_t i = 0; i < rows * width; i++)
        total->sum += fabs((double)outputs[i]);
    total->rows += rows;
    return PLIM_OK;
}

typedef struct table {
    plim__parameter_t entries[PARAMETERS_MAX];
    int count;
} table_t;

static void add(table_t *table, const char *list, int index, const char *rest, int64_t count,
                double width)
{
    plim__parameter_t *entry = &table->entries[table->count++];
    (void)snprintf(entry->name, sizeof entry->name, "%s.%d.%s", list, index, rest);
    entry->count = count;
    entry->value = calloc((size_t)count, sizeof(float));
    for (int64_t i = 0; i < count; i++)
        entry->value[i] =
            (float)((plim__rng_double((uint64_t)table->count, (uint64_t)i) - 0.5) * width);
}

static void make_table(table_t *table, const plim_model_t *model, int64_t in, int64_t outputs)
{
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i == model->num_layers - 1;
        const int64_t out = last ? outputs : model->hidden;
        const int64_t wide = model->kind == PLIM_GAT && last ? out * model->heads : out;
        const double range = 2 / sqrt((double)in);
        const bool linear = model->kind == PLIM_MLP;
        const char *list = linear ? "lins" : "convs";
        const char *weight = linear                     ? "weight"
                             : model->kind == PLIM_SAGE ? "lin_l.weight"
                             : model->kind == PLIM_GIN  ? "nn.lins.0.weight"
                                                        : "lin.weight";
        const char *bias = model->kind == PLIM_SAGE  ? "lin_l.bias"
                           : model->kind == PLIM_GIN ? "nn.lins.0.bias"
                                                     : "bias";
        add(table, list, i, weight, wide * in, range);
        add(table, list, i, bias, out, 0.1);
        add(table, list, i, "lin_r.weight", out * in, range);
        add(table, list, i, "att_src", wide, 1);
        add(table, list, i, "att_dst", wide, 1);
        add(table, list, i, "nn.lins.1.weight", out * out, 2 / sqrt((double)out));
        add(table, list, i, "nn.lins.1.bias", out, 0.1);
        add(table, list, i, "eps", 1, 0);
        in = out;
    }
}

/* The nodes of all three splits, one after the other. */
static int64_t *read_splits(const plim_dataset_t *dataset, const char *path, int64_t *count_out)
{
    static const char *const names[] = {"train.npy", "valid.npy", "test.npy"};
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t count = info->num_split[0] + info->num_split[1] + info->num_split[2];
    int64_t *nodes = calloc((size_t)count + 1, sizeof *nodes), at = 0;
    for (int i = 0; i < 3; i++) {
        char name[4200];
        (void)snprintf(name, sizeof name, "%s/%s", path, names[i]);
        FILE *file = fopen(name, "rb");
        if (file == NULL)
            continue;
        (void)fseek(file, 4096, SEEK_SET);
        at += (int64_t)fread(nodes + at, sizeof *nodes, (size_t)info->num_split[i], file);
        (void)fclose(file);
    }
    *count_out = at;
    return nodes;
}

static plim_model_kind_t kind_of(const char *name)
{
    static const char *const names[] = {"mlp", "gcn", "sage", "gat", "gin"};
    for (int i = 0; i < 5; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return (plim_model_kind_t)i;
    return PLIM_GCN;
}

int main(int argc, char **argv)
{
    static table_t table;
    plim_job_t job = {.threads = 1};
    plim_model_t model = PLIM_MODEL_INIT;
    plim_dataset_t *dataset;
    total_t total = {0};
    int64_t count = 0;
    if (argc < 7) {
        (void)fprintf(stderr,
                      "use: bench_exact DIRECTORY KIND HIDDEN LAYERS LINE_MIB SCRATCH [all]\n");
        return 2;
    }
    begin = now();
    job.threads = 2;
    job.progress = show;
    job.log = say;
    model.kind = kind_of(argv[2]);
    model.aggregation = strstr(argv[2], "max") != NULL ? PLIM_MAX : PLIM_MEAN;
    model.hidden = atoll(argv[3]);
    model.num_layers = atoi(argv[4]);
    if (bench_job_make(atoll(argv[5]) << 20, &job) != PLIM_OK ||
        plim_dataset_open(&job, argv[1], &dataset) != PLIM_OK) {
        (void)fprintf(stderr, "%s\n", plim_last_error());
        return 1;
    }
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    int64_t *nodes = argc > 7 ? NULL : read_splits(dataset, argv[1], &count);
    make_table(&table, &model, info->num_features, info->num_classes);
    const plim__exact_params_t params = {.model = model,
                                         .num_outputs = info->num_classes,
                                         .parameters = table.entries,
                                         .num_parameters = table.count,
                                         .scratch = argv[6]};
    const plim_status_t status =
        plim__exact_run(&job, dataset, &params, nodes, count, take, &total);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    (void)fprintf(stderr, "%8.2f s  %lld rows, sum of magnitudes %.9g, ledger's peak %.3f GiB\n",
                  now() - begin, (long long)total.rows, total.sum,
                  (double)plim__ledger_peak(job.ledger) / (double)(1 << 30));
    plim_dataset_release(dataset);
    plim_job_release(&job);
    return status == PLIM_OK ? 0 : 1;
}
