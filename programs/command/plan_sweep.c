/* --sweep: plans every combination of settings and prints one row for each. */
#include "command/verb_plan.h"

#include <stdio.h>
#include <string.h>

/* Settings that can be swept; the last ones are of --for pyg. */
static const char *const names[] = {"batch", "fanout",  "hidden",  "layers",       "heads",
                                    "model", "norm",    "memory",  "microbatch",   "precision",
                                    "ranks", "workers", "loaders", "late-loaders", "gpu-memory"};

#define NUM_NAMES (int)(sizeof names / sizeof names[0])
#define FIRST_PYG (NUM_NAMES - 4)

/* One combination and its plan. */
typedef struct row {
    char *const *values; /* one for each key */
    bool sensible;       /* its settings agree with each other */
    const plan_found_t *found;
} row_t;

/* The index of a setting; -1 if there is none of that name. */
static int find_name(const char *word)
{
    for (int i = 0; i < NUM_NAMES; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

/* The hint for a word that is no setting. */
static const char *nearest_name(const char *word, char text_out[96])
{
    cli_nearest_t nearest = {NULL, 0};
    for (int i = 0; i < NUM_NAMES && find_name(word) < 0; i++)
        cli_nearest_try(&nearest, word, names[i]);
    return cli_nearest_text(&nearest, "", text_out);
}

/* "batch=128,256". Fan-outs contain commas, so a colon may separate any values. */
static bool take_key(plan_t *plan, char *word)
{
    const cli_common_t *common = &plan->train.common;
    plan_sweep_t *sweep = &plan->sweep;
    char *equals = strchr(word, '=');
    if (equals != NULL)
        *equals = '\0';
    const int known = find_name(word);
    if (equals == NULL || known < 0 || sweep->num_keys == PLAN_SWEEP_KEYS) {
        char hint[96];
        (void)cli_wrong_use(
            common,
            "--sweep: '%s' is not like batch=128,256 or fanout=3,2:10,5; the keys are "
            "batch, fanout, hidden, layers, heads, model, precision, norm, "
            "microbatch, memory and ranks, with --for pyg also workers, loaders, late-loaders and "
            "gpu-memory, at most %d of them%s",
            word, PLAN_SWEEP_KEYS, nearest_name(word, hint));
        return false;
    }
    const char *between = strcmp(word, "fanout") == 0 ? ":" : ":,";
    char *rest = NULL;
    int count = 0;
    for (char *value = strtok_r(equals + 1, between, &rest); value != NULL;
         value = strtok_r(NULL, between, &rest)) {
        if (count == PLAN_SWEEP_VALUES) {
            (void)cli_wrong_use(common, "--sweep: %s takes at most %d values", word,
                                PLAN_SWEEP_VALUES);
            return false;
        }
        sweep->keys[sweep->num_keys].values[count++] = value;
    }
    if (count == 0) {
        (void)cli_wrong_use(common, "--sweep: %s has no values", word);
        return false;
    }
    plan->pyg_given |= known >= FIRST_PYG;
    sweep->keys[sweep->num_keys].name = word;
    sweep->keys[sweep->num_keys++].num_values = count;
    return true;
}

bool plan_take_sweep(void *context, char *value, char ***next)
{
    if (!take_key(context, value))
        return false;
    while (**next != NULL && (**next)[0] != '-' && strchr(**next, '=') != NULL)
        if (!take_key(context, *(*next)++))
            return false;
    return true;
}

/* The values of combination `index`; the last key changes first. */
static void choose(const plan_sweep_t *sweep, int64_t index, char *values_out[PLAN_SWEEP_KEYS])
{
    for (int key = sweep->num_keys - 1; key >= 0; key--) {
        values_out[key] = sweep->keys[key].values[index % sweep->keys[key].num_values];
        index /= sweep->keys[key].num_values;
    }
}

/* False after an error message. */
static bool apply(plan_t *plan, char *const values[PLAN_SWEEP_KEYS], int64_t *line)
{
    const cli_common_t *common = &plan->train.common;
    bool taken = true;
    for (int key = 0; key < plan->sweep.num_keys && taken; key++) {
        const char *name = plan->sweep.keys[key].name;
        if (strcmp(name, "memory") == 0)
            taken = cli_parse_size(common, "--sweep: memory", values[key], line);
        else if (strcmp(name, "late-loaders") == 0)
            taken = plan_pyg_set_late(common, values[key], &plan->pyg);
        else
            taken = cli_set_option(plan, name, values[key]);
    }
    return taken && plan_resolve_ranks(plan, &plan->train);
}

static int column_width(const plan_sweep_t *sweep, int key)
{
    size_t width = strlen(sweep->keys[key].name);
    for (int i = 0; i < sweep->keys[key].num_values; i++)
        if (strlen(sweep->keys[key].values[i]) > width)
            width = strlen(sweep->keys[key].values[i]);
    return (int)width;
}

static void print_head(const plan_t *plan)
{
    char line[24];
    bool lines = false;
    for (int key = 0; key < plan->sweep.num_keys; key++)
        lines = lines || strcmp(plan->sweep.keys[key].name, "memory") == 0;
    cli_print_text(stdout, plan->train.dataset);
    if (plan->shape.shape != NULL)
        (void)printf(" (a shape; no dataset is read)");
    if (!lines)
        (void)printf("; line %s (%s)", plim_size_text(plan->line, line), plan->line_source);
    (void)printf("\n\n");
    for (int key = 0; key < plan->sweep.num_keys; key++)
        (void)printf("%*s  ", column_width(&plan->sweep, key), plan->sweep.keys[key].name);
    if (plan->for_pyg)
        plan_pyg_print_head();
    else
        (void)printf("%10s %10s  %-4s %10s  %s\n", "total", "minimum", "fits", "reads",
                     "reduced to fit");
}

/* Choices of the planner that save memory and keep the result. */
static void print_reduced(const cli_plan_t *made, const train_t *train)
{
    const int64_t seeds = train_part_seeds(made, &train->training);
    const bool rows = made->info.rows == PLIM_PLACE_DISK;
    const bool lists = made->info.topology == PLIM_PLACE_DISK;
    const bool again = made->info.recompute && !train->training.model.recompute;
    char parts[48] = "";
    if (seeds > 0 && train->training.microbatch == 0)
        (void)snprintf(parts, sizeof parts, "%lld seeds at a time", (long long)seeds);
    const char *const steps[] = {rows && lists ? "features, graph on disk"
                                 : rows        ? "features on disk"
                                 : lists       ? "graph on disk"
                                               : "",
                                 again ? "recompute" : "", parts};
    const char *between = "";
    for (int i = 0; i < 3; i++) {
        if (steps[i][0] == '\0')
            continue;
        (void)printf("%s%s", between, steps[i]);
        between = "; ";
    }
}

static void print_values(const plan_t *plan, char *const values[PLAN_SWEEP_KEYS])
{
    for (int key = 0; key < plan->sweep.num_keys; key++)
        (void)printf("%*s  ", column_width(&plan->sweep, key), values[key]);
}

static void print_row(const plan_t *plan, const row_t *row, const train_t *train)
{
    const cli_plan_t *made = &row->found->plan;
    char total[24], minimum[24], read[24];
    print_values(plan, row->values);
    if (!row->sensible) {
        (void)printf("%10s %10s  %-4s\n", "-", "-", "none");
        return;
    }
    (void)printf("%10s %10s  %-4s ",
                 row->found->fits ? plim_size_text(made->info.peak, total) : "-",
                 cli_minimum_text(made, minimum), row->found->fits ? "yes" : "no");
    (void)printf("%10s  ",
                 row->found->fits ? plim_size_text(made->info.epoch_read_bytes, read) : "-");
    if (row->found->fits)
        print_reduced(made, train);
    (void)printf("\n");
    cli_flush();
}

static json_t *json_choice(const plan_t *plan, char *const values[PLAN_SWEEP_KEYS])
{
    json_t *choice = json_object();
    for (int key = 0; key < plan->sweep.num_keys; key++)
        (void)json_object_set_new(choice, plan->sweep.keys[key].name, cli_json_text(values[key]));
    return choice;
}

static json_t *json_row(const plan_t *plan, const train_t *train, const row_t *row)
{
    json_t *object = row->sensible ? plan_json(plan, train, row->found) : json_object();
    (void)json_object_set_new(object, "choice", json_choice(plan, row->values));
    if (!row->sensible)
        (void)json_object_set_new(object, "error", cli_json_text(cli_last_error()));
    return object;
}

/* The combination in PyTorch Geometric. */
static plim_status_t sweep_pyg(plan_t *plan, char *const values[PLAN_SWEEP_KEYS], json_t *rows,
                               bool *fits_out, bool *wrong_out)
{
    pyg_plan_t estimate;
    const pyg_params_t *params = &plan->pyg.pyg;
    const plim_status_t status = plan_pyg_find(plan, &estimate, wrong_out);
    if (*wrong_out || status != PLIM_OK)
        return status;
    *fits_out = params->line == 0 || pyg_killed(&estimate, params->line) < 0;
    if (rows != NULL) {
        json_t *row = pyg_json(&estimate, params);
        (void)json_object_set_new(row, "choice", json_choice(plan, values));
        (void)json_array_append_new(rows, row);
    } else {
        print_values(plan, values);
        plan_pyg_print_row(&estimate, params);
        cli_flush();
    }
    return PLIM_OK;
}

/* The plan of combination `index`, with its settings. False after an error message. */
static bool take_combination(const plan_t *all, int64_t index, plan_t *one_out,
                             char *values_out[PLAN_SWEEP_KEYS], int64_t *line_out)
{
    *one_out = *all;
    *line_out = all->line;
    choose(&all->sweep, index, values_out);
    return apply(one_out, values_out, line_out);
}

/* Whether every combination can be taken, so that nothing is printed before the first that cannot.
 * False after an error message. */
static bool check_values(const plan_t *plan, int64_t count)
{
    static plan_t one;
    char *values[PLAN_SWEEP_KEYS] = {NULL};
    int64_t line;
    for (int64_t i = 0; i < count; i++)
        if (!take_combination(plan, i, &one, values, &line))
            return false;
    return true;
}

/* Plans one combination and prints it or adds it to `rows`. *wrong_out as in plan_find. */
static plim_status_t sweep_one(const plan_t *all, int64_t index, json_t *rows, bool *fits_out,
                               bool *wrong_out)
{
    static plan_found_t found;
    static plan_t one;
    plan_t *plan = &one;
    char *values[PLAN_SWEEP_KEYS] = {NULL};
    int64_t line;
    *wrong_out = !take_combination(all, index, plan, values, &line);
    if (*wrong_out)
        return PLIM_OK;
    plan->pyg.pyg.line = line == PLIM_LINE_NONE ? 0 : line;
    if (plan->for_pyg)
        return sweep_pyg(plan, values, rows, fits_out, wrong_out);
    plim_status_t status = plan_find(plan, &plan->train, line, false, &found, wrong_out);
    if (*wrong_out || (status != PLIM_OK && status != PLIM_ERR_USAGE))
        return status;
    const row_t row = {values, status == PLIM_OK, &found};
    if (rows != NULL)
        (void)json_array_append_new(rows, json_row(plan, &plan->train, &row));
    else
        print_row(plan, &row, &plan->train);
    if (!row.sensible)
        cli_remark("%s", cli_last_error());
    *fits_out = row.sensible && found.fits;
    return PLIM_OK;
}

int plan_run_sweep(plan_t *plan)
{
    const cli_common_t *common = &plan->train.common;
    plim_status_t status = PLIM_OK;
    bool any = false, fits = false, wrong = false;
    int64_t count = 1;
    for (int key = 0; key < plan->sweep.num_keys; key++)
        count *= plan->sweep.keys[key].num_values;
    if (count > PLAN_SWEEP_ROWS)
        return cli_wrong_use(common, "--sweep: %lld combinations; at most %d are planned",
                             (long long)count, PLAN_SWEEP_ROWS);
    if (!check_values(plan, count))
        return CLI_WRONG_USE;
    json_t *rows = common->json ? json_array() : NULL;
    if (rows == NULL)
        print_head(plan);
    for (int64_t i = 0; i < count && status == PLIM_OK && !wrong; i++) {
        status = sweep_one(plan, i, rows, &fits, &wrong);
        any = any || fits;
    }
    if (wrong || status != PLIM_OK) {
        json_decref(rows);
        return wrong           ? CLI_WRONG_USE
               : plan->for_pyg ? cli_program_failed(common, status)
                               : cli_failed(common, status);
    }
    if (rows != NULL)
        cli_print_json(json_pack("{s:s, s:o, s:I, s:o, s:b, s:o}", "event", "sweep", "dataset",
                                 cli_json_text(plan->train.dataset), "line_bytes",
                                 (json_int_t)plan->line, "line_source",
                                 cli_json_text(plan->line_source), "fits", (int)any, "rows", rows));
    return any || plan->for_pyg ? CLI_DONE : CLI_DOES_NOT_FIT;
}
