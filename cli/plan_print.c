/* The plan as a table that fits a terminal of 80 columns, and as JSON. */
#include "verb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((double)(1 << 20))

static const char *fanout_text(const plim_recipe_t *recipe, char *text_out, size_t size)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (int i = 0; i < recipe->num_hops && used < size; i++)
        used += (size_t)snprintf(text_out + used, size - used, "%s%" PRId64, i > 0 ? "," : "",
                                 recipe->fanout[i]);
    return text_out;
}

static void print_heading(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const plim_training_t *training = &train->training;
    const plim_dataset_info_t *info = &found->info;
    char nodes[24], edges[24], fanout[128];
    cli_print_text(stdout, train->dataset);
    (void)printf("%s: %s nodes, %s edges",
                 plan->shape.shape != NULL ? " (a shape; no dataset is read)" : "",
                 cli_count_text((double)info->num_nodes, nodes),
                 cli_count_text((double)info->num_edges, edges));
    if (info->num_graphs > 0)
        (void)printf(", %s graphs", cli_count_text((double)info->num_graphs, nodes));
    (void)printf(", %" PRId64 " features (%s)\n", info->num_features,
                 info->feature_type == PLIM_F16 ? "f16" : "f32");
    (void)printf("%s, %d layer%s, hidden %" PRId64, train_model_name(training->model.kind),
                 training->model.num_layers, training->model.num_layers == 1 ? "" : "s",
                 training->model.hidden);
    if (training->recipe.num_hops > 0)
        (void)printf(", fan-out %s", fanout_text(&training->recipe, fanout, sizeof fanout));
    (void)printf(", batch %" PRId64 ", %s\n\n", training->recipe.batch_size,
                 plim_words(PLIM_WORDS_PRECISION)[training->model.precision]);
}

static void print_bytes(int64_t bytes)
{
    if (bytes == 0)
        (void)printf(" %10s", "-");
    else if ((double)bytes < 0.05 * MIB)
        (void)printf(" %10s", "<0.1");
    else
        (void)printf(" %10.1f", (double)bytes / MIB);
}

static void print_row(const char *name, const json_t *object)
{
    (void)printf("%-24.24s", name);
    for (int phase = 0; phase < TRAIN_PHASES; phase++)
        print_bytes(train_phase_bytes(object, phase));
    (void)printf("\n");
}

static void print_table(const json_t *plan)
{
    const json_t *account;
    size_t i;
    (void)printf("%-24s", "MiB");
    for (int phase = 0; phase < TRAIN_PHASES; phase++)
        (void)printf(" %10s", train_phase_name(phase));
    (void)printf("\n");
    json_array_foreach(json_object_get(plan, "accounts"), i, account)
        print_row(json_string_value(json_object_get(account, "name")), account);
    for (int dash = 0; dash < 24 + 11 * TRAIN_PHASES; dash++)
        (void)putchar('-');
    (void)putchar('\n');
    print_row("total", plan);
    (void)printf("%-24s", "");
    for (int phase = 0; phase < TRAIN_PHASES; phase++) {
        const bool peak = cli_json_is(plan, "peak_phase", train_phase_name(phase));
        (void)printf(" %10s", peak ? "^ peak" : "");
        if (peak)
            break;
    }
    (void)printf("\n\n");
}

static void print_item(const char *name, const char *text)
{
    if (text[0] != '\0')
        (void)printf("%-10s %s\n", name, text);
}

static const char *peak_text(const json_t *plan)
{
    int phase = 0;
    while (phase + 1 < TRAIN_PHASES && !cli_json_is(plan, "peak_phase", train_phase_name(phase)))
        phase++;
    return train_phase_text(phase);
}

static void print_line(const plan_t *plan, const plan_found_t *found)
{
    const json_t *made = found->plan;
    char total[24], line[24], minimum[24];
    if (found->line == PLIM_LINE_NONE)
        (void)printf("%-10s none\n", "line");
    else
        (void)printf("%-10s %s, from %s%s\n", "line", plim_size_text(found->line, line),
                     plan->line_source, found->fits ? "" : ": the training does not fit");
    (void)plim_size_text(cli_json_int(made, "total_bytes"), total);
    if (found->fits)
        (void)printf("%-10s peak %s (%s); minimum %s\n", "memory", total, peak_text(made),
                     plim_size_text(cli_json_int(made, "minimum_bytes"), minimum));
    else
        (void)printf("%-10s minimum %s; the table shows the plan for it\n", "memory",
                     plim_size_text(cli_json_int(made, "line_bytes"), line));
}

/* Where the data lies, how batches are computed, what to expect. */
static void print_rest(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const int64_t disk = cli_json_int(json_object_get(found->plan, "expect"), "disk_bytes");
    train_plan_texts_t texts;
    char text[24];
    train_plan_texts(found->plan, &train->training, &texts);
    print_item("graph", texts.graph);
    print_item("features", texts.features);
    print_item("batch", texts.batch);
    print_item("parts", texts.parts);
    print_item("recompute", texts.recompute);
    print_item("epoch", texts.epoch);
    if (json_is_true(json_object_get(found->plan, "guessed")) && plan->shape.shape == NULL)
        print_item(
            "note",
            found->info.num_graphs > 0
                ? "the size of the largest graph is estimated from the mean; --measure reads it"
                : "batch sizes are estimated from degrees; --measure draws some batches");
    if (disk > 0)
        (void)printf("%-10s up to %s for the run and its predictions\n", "disk",
                     plim_size_text(disk, text));
}

static void print_advice(const plan_t *plan, const plan_found_t *found)
{
    char total[24], saved[24];
    const bool raised = found->fits || strcmp(plan->line_source, "--memory") == 0;
    const char *hint = raised ? NULL : cli_limit_hint(plan->line_source);
    if (found->num_advice > 0)
        (void)printf("\n%s with one of these changes (each changes the result):\n",
                     found->fits ? "Whole batches fit" : "The training fits");
    for (int i = 0; i < found->num_advice; i++)
        (void)printf("  %-40s %10s, %s less\n", found->advice[i].change,
                     plim_size_text(found->advice[i].total_bytes, total),
                     plim_size_text(found->advice[i].saved_bytes, saved));
    if (!found->fits && found->num_advice == 0)
        (void)printf("\nNo smaller batch, fan-out or model fits.\n");
    if (hint != NULL)
        (void)printf("For more memory: %s.\n", hint);
}

void plan_print(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    print_heading(plan, train, found);
    print_table(found->plan);
    print_line(plan, found);
    print_rest(plan, train, found);
    print_advice(plan, found);
    cli_flush();
}

json_t *plan_json(const plan_t *plan, const plan_found_t *found)
{
    json_t *object = json_copy(found->plan), *advice = json_array();
    (void)json_object_set_new(object, "event", json_string("plan"));
    for (int i = 0; i < found->num_advice; i++)
        (void)json_array_append_new(
            advice, json_pack("{s:s, s:I, s:I}", "change", found->advice[i].change, "total_bytes",
                              (json_int_t)found->advice[i].total_bytes, "saved_bytes",
                              (json_int_t)found->advice[i].saved_bytes));
    (void)json_object_set_new(object, "dataset", cli_json_text(plan->train.dataset));
    if (plan->shape.shape != NULL)
        (void)json_object_set_new(object, "shape", json_string(plan->shape.shape));
    (void)json_object_set_new(object, "fits", json_boolean(found->fits));
    (void)json_object_set_new(object, "line_bytes", json_integer(found->line));
    if (plan->sweep.num_keys == 0)
        (void)json_object_set_new(object, "line_source", cli_json_text(plan->line_source));
    (void)json_object_set_new(object, "advice", advice);
    return object;
}
