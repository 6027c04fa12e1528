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

static void say_heading(const plan_t *plan, const train_t *train, const plan_found_t *found)
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

static void say_bytes(int64_t bytes)
{
    if (bytes == 0)
        (void)printf(" %10s", "-");
    else if ((double)bytes < 0.05 * MIB)
        (void)printf(" %10s", "<0.1");
    else
        (void)printf(" %10.1f", (double)bytes / MIB);
}

static void say_row(const char *name, const json_t *object)
{
    (void)printf("%-24.24s", name);
    for (int phase = 0; phase < TRAIN_PHASES; phase++)
        say_bytes(train_phase_bytes(object, phase));
    (void)printf("\n");
}

static void say_table(const json_t *plan)
{
    const json_t *account;
    size_t i;
    (void)printf("%-24s", "MiB");
    for (int phase = 0; phase < TRAIN_PHASES; phase++)
        (void)printf(" %10s", train_phase_name(phase));
    (void)printf("\n");
    json_array_foreach(json_object_get(plan, "accounts"), i, account)
        say_row(json_string_value(json_object_get(account, "name")), account);
    for (int dash = 0; dash < 24 + 11 * TRAIN_PHASES; dash++)
        (void)putchar('-');
    (void)putchar('\n');
    say_row("total", plan);
    (void)printf("%-24s", "");
    for (int phase = 0; phase < TRAIN_PHASES; phase++) {
        const bool peak = cli_json_is(plan, "peak_phase", train_phase_name(phase));
        (void)printf(" %10s", peak ? "^ peak" : "");
        if (peak)
            break;
    }
    (void)printf("\n\n");
}

static void say(const char *name, const char *text)
{
    if (text[0] != '\0')
        (void)printf("%-10s %s\n", name, text);
}

static void say_line(const plan_t *plan, const plan_found_t *found)
{
    const json_t *made = found->plan;
    char total[24], line[24], minimum[24];
    if (found->line == PLIM_LINE_NONE)
        (void)printf("%-10s none\n", "line");
    else
        (void)printf("%-10s %s, from %s%s\n", "line", plim_size_text(found->line, line),
                     plan->line_source, found->fits ? "" : ": it does not fit");
    (void)plim_size_text(cli_json_int(made, "total_bytes"), total);
    if (found->fits)
        (void)printf("%-10s %s at most (%s); %s would do\n", "memory", total,
                     json_string_value(json_object_get(made, "peak_phase")),
                     plim_size_text(cli_json_int(made, "minimum_bytes"), minimum));
    else
        (void)printf("%-10s %s would do; the table is for that\n", "memory",
                     plim_size_text(cli_json_int(made, "line_bytes"), line));
}

/* Where the data lies, what batches stepped down to, what to expect. */
static void say_rest(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const int64_t disk = cli_json_int(json_object_get(found->plan, "expect"), "disk_bytes");
    train_plan_texts_t texts;
    char text[24];
    train_plan_texts(found->plan, &train->training, &texts);
    say("graph", texts.graph);
    say("features", texts.features);
    say("batch", texts.batch);
    say("parts", texts.parts);
    say("recompute", texts.recompute);
    say("epoch", texts.epoch);
    if (json_is_true(json_object_get(found->plan, "guessed")) && plan->shape.shape == NULL)
        say("note", found->info.num_graphs > 0
                        ? "the largest graph is guessed by the mean, and with it what fits; "
                          "--measure reads it"
                        : "batches are guessed by degrees; train draws some first, and so does "
                          "--measure");
    if (disk > 0)
        (void)printf("%-10s %s at most, for the run and its predictions\n", "disk",
                     plim_size_text(disk, text));
}

static void say_advice(const plan_t *plan, const plan_found_t *found)
{
    char total[24], saved[24];
    const bool raised = found->fits || strcmp(plan->line_source, "--memory") == 0;
    const char *hint = raised ? NULL : cli_limit_hint(plan->line_source);
    if (found->num_advice > 0)
        (void)printf("\n%s, with another result:\n",
                     found->fits ? "Whole batches would fit" : "It would fit");
    for (int i = 0; i < found->num_advice; i++)
        (void)printf("  %-40s %10s, %s less\n", found->advice[i].change,
                     plim_size_text(found->advice[i].total_bytes, total),
                     plim_size_text(found->advice[i].saved_bytes, saved));
    if (!found->fits && found->num_advice == 0)
        (void)printf("\nNo smaller batch, fan-out or model would fit.\n");
    if (hint != NULL)
        (void)printf("For more memory: %s.\n", hint);
}

void plan_say(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    say_heading(plan, train, found);
    say_table(found->plan);
    say_line(plan, found);
    say_rest(plan, train, found);
    say_advice(plan, found);
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
