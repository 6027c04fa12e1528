/* The plan as text: a summary, a table that fits a terminal of 80 columns, the lines for a batch
 * script; and as JSON. */
#include "command/verb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB ((double)(1 << 20))

static void print_heading(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const plim_dataset_info_t *info = &found->info;
    char nodes[24], edges[24], recipe[256];
    cli_print_text(stdout, train->dataset);
    (void)printf("%s: %s nodes, %s edges",
                 plan->shape.shape != NULL ? " (a shape; no dataset is read)" : "",
                 cli_count_text((double)info->num_nodes, nodes),
                 cli_count_text((double)info->num_edges, edges));
    if (info->num_graphs > 0)
        (void)printf(", %s graphs", cli_count_text((double)info->num_graphs, nodes));
    (void)printf(", %" PRId64 " features (%s)\n", info->num_features,
                 cli_feature_type(info->feature_type));
    (void)printf("%s\n", train_recipe_text(&train->training, recipe));
    if (train->fanout_repeated)
        (void)printf("fan-out %" PRId64 " for each of %d layers\n",
                     train->training.recipe.fanout[0], train->training.model.num_layers);
    (void)putchar('\n');
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

static void print_row(const char *name, const int64_t phase_bytes[PLIM_PHASES])
{
    (void)printf("%-24.24s", name);
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        print_bytes(phase_bytes[phase]);
    (void)printf("\n");
}

static void print_table(const cli_plan_t *plan)
{
    (void)printf("%-24s", "MiB");
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        (void)printf(" %10s", cli_phase_name((plim_phase_t)phase));
    (void)printf("\n");
    for (int i = 0; i < plan->num_accounts; i++)
        print_row(plan->accounts[i].name, plan->accounts[i].phase_bytes);
    for (int dash = 0; dash < 24 + 11 * PLIM_PHASES; dash++)
        (void)putchar('-');
    (void)putchar('\n');
    print_row("total", plan->info.phase_bytes);
    (void)printf("%-24s%*s\n\n", "", 11 * (int)(plan->info.peak_phase + 1), "^ peak");
}

static void print_item(const char *name, const char *text)
{
    if (text[0] != '\0')
        (void)printf("%-10s %s\n", name, text);
}

static void print_line(const plan_t *plan, const plan_found_t *found)
{
    const cli_plan_t *made = &found->plan;
    char total[24], line[24], minimum[24];
    if (found->line == PLIM_LINE_NONE)
        (void)printf("%-10s none\n", "line");
    else
        (void)printf("%-10s %s, from %s: the training %s\n", "line",
                     plim_size_text(found->line, line), plan->line_source,
                     found->fits ? "fits" : "does not fit");
    (void)plim_size_text(made->info.peak, total);
    if (found->fits)
        (void)printf("%-10s peak %s (%s)\n", "memory", total,
                     train_phase_text(made->info.peak_phase));
    (void)printf("%-10s a line of %s%s\n", "minimum", cli_minimum_text(made, minimum),
                 found->fits ? "" : "; what follows is the plan for it");
}

/* The trial as a JSON object; null where there is none. */
static json_t *trial_json(const plan_found_t *found)
{
    const plim_trial_t *trial = &found->trial;
    const time_t seconds = (time_t)trial->time;
    char date[32] = "";
    struct tm when;
    if (!found->tried)
        return json_null();
    if (gmtime_r(&seconds, &when) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &when);
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "date", date, "steps_per_s",
                     trial->steps_per_s, "start_s", trial->start_s, "epoch_s", trial->epoch_s,
                     "evaluation_s", trial->evaluation_s, "run_s", trial->run_s);
}

static void print_trial(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const plim_trial_t *trial = &found->trial;
    const int64_t epochs = train->training.epochs;
    const time_t seconds = (time_t)trial->time;
    char date[32] = "", start[24], epoch[24], evaluation[24], run[24];
    struct tm when;
    if (!found->tried && found->fits && plan->shape.shape == NULL && plan->ranks <= 1)
        (void)printf("%-10s none yet: --try measures it/s, start, epoch and run by some steps\n",
                     "trial");
    if (!found->tried)
        return;
    if (localtime_r(&seconds, &when) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M", &when);
    (void)printf("%-10s measured %s: %.*f it/s, epoch %s", "trial", date,
                 trial->steps_per_s < 10 ? 2 : 0, trial->steps_per_s,
                 train_seconds_text(trial->epoch_s, epoch));
    if (trial->evaluation_s > 0)
        (void)printf(", evaluation %s", train_seconds_text(trial->evaluation_s, evaluation));
    (void)printf(", start %s; run of %" PRId64 " epoch%s %s\n",
                 train_seconds_text(trial->start_s, start), epochs, epochs == 1 ? "" : "s",
                 train_seconds_text(trial->run_s, run));
}

/* Prints the places of data, the computation of batches, and the expectations. */
static void print_rest(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    const plim_plan_info_t *info = &found->plan.info;
    train_plan_texts_t texts;
    char run[24], predict[24], reads[24];
    train_plan_texts(&found->plan, &train->training, &texts);
    print_item("graph", texts.graph);
    print_item("features", texts.features);
    print_item("batch", texts.batch);
    print_item("parts", texts.parts);
    print_item("recompute", texts.recompute);
    print_item("epoch", texts.epoch);
    plan_ranks_print(plan, train, found);
    print_trial(plan, train, found);
    if (info->scratch_bytes > 0)
        (void)printf("%-10s up to %s: rows and lists packed once, then read many at a time\n",
                     "scratch", plim_size_text(info->scratch_bytes, run));
    if (found->packed_bytes > 0)
        (void)printf(
            "%-10s not used; --scratch DIR (local disk, up to %s): about %s reads an epoch\n",
            "scratch", plim_size_text(found->packed_bytes, run),
            cli_count_text((double)found->packed_reads, reads));
    (void)printf("%-10s up to %s for the run; %s to predict all nodes\n", "disk",
                 plim_size_text(info->disk_bytes, run),
                 plim_size_text(info->predict_disk_bytes, predict));
    if (info->guessed && plan->shape.shape == NULL)
        print_item(
            "note",
            found->info.num_graphs > 0
                ? "the size of the largest graph is estimated from the mean; --measure reads it"
                : "batch sizes are estimated from degrees; --measure draws some batches");
    (void)putchar('\n');
}

/* The peak and a margin, but no more than the line, which may be all that nodes have: then
 * *line_out. */
static int64_t ask_mebibytes(const plan_found_t *found, bool *line_out)
{
    const int64_t mib = (int64_t)1 << 20, peak = found->plan.info.peak;
    const int64_t asked = peak + peak / PLAN_MEMORY_SHARE + PLAN_MEMORY_MARGIN;
    const int64_t least = (peak - 1) / mib + 1;
    *line_out = found->fits && found->line < asked;
    if (!*line_out)
        return (asked - 1) / mib + 1;
    return found->line / mib > least ? found->line / mib : least;
}

plan_ask_t plan_ask(const plan_t *plan, const plan_found_t *found)
{
    const double run = PLAN_TIME_MARGIN * found->trial.run_s / 60;
    const int64_t minutes = (int64_t)(run < 1e9 ? run : 1e9) + 1 + PLAN_TIME_MINUTES;
    plan_ask_t ask = {.minutes = found->tried ? minutes : 0,
                      .cpus = plan->limits.threads[plan->limits.threads_line].value};
    ask.mebibytes = ask_mebibytes(found, &ask.line);
    return ask;
}

const char *plan_time_text(int64_t minutes, char text_out[32])
{
    int used = 0;
    if (minutes >= 1440)
        used = snprintf(text_out, 32, "%" PRId64 "-", minutes / 1440);
    (void)snprintf(text_out + used, 32 - (size_t)used, "%02" PRId64 ":%02" PRId64 ":00",
                   minutes / 60 % 24, minutes % 60);
    return text_out;
}

static void print_ask(const plan_t *plan, const plan_found_t *found)
{
    const plan_ask_t ask = plan_ask(plan, found);
    char time[32];
    (void)printf("%s%s:\n#SBATCH --mem=%" PRId64 "M\n",
                 found->fits ? "For the whole run: the peak, 5 % and 32 MiB, within the line"
                             : "With more memory: the minimum, 5 % and 32 MiB",
                 found->tried ? "; twice the time of the trial and four minutes" : "",
                 ask.mebibytes);
    if (found->tried)
        (void)printf("#SBATCH --time=%s\n", plan_time_text(ask.minutes, time));
    (void)printf("#SBATCH --cpus-per-task=%" PRId64 "\n", ask.cpus);
    if (plan->ranks > 1)
        (void)printf("#SBATCH --nodes=%" PRId64 "\n#SBATCH --ntasks-per-node=1\n", plan->ranks);
}

const char *plan_change(const plim_advice_t *advice, char text_out[PLAN_CHANGE])
{
    int used = 0;
    text_out[0] = text_out[1] = '\0';
    if (advice->batch_size > 0)
        used += snprintf(text_out, PLAN_CHANGE, " --batch-size %" PRId64, advice->batch_size);
    for (int i = 0; i < advice->num_hops; i++)
        used += snprintf(text_out + used, PLAN_CHANGE - (size_t)used, "%s%" PRId64,
                         i == 0 ? " --fanout " : ",", advice->fanout[i]);
    if (advice->hidden > 0)
        used += snprintf(text_out + used, PLAN_CHANGE - (size_t)used, " --hidden %" PRId64,
                         advice->hidden);
    if (advice->bf16)
        (void)snprintf(text_out + used, PLAN_CHANGE - (size_t)used, " --precision bf16");
    return text_out + 1; /* behind the blank in front */
}

static void print_advice(const plan_t *plan, const plan_found_t *found)
{
    char total[24], saved[24], change[PLAN_CHANGE];
    const bool raised = found->fits || strcmp(plan->line_source, "--memory") == 0;
    const char *hint = raised ? NULL : cli_limit_hint(plan->line_source);
    if (found->num_advice > 0)
        (void)printf("\n%s with one of these changes (each changes the result):\n",
                     found->fits ? "Whole batches fit" : "The training fits");
    for (int i = 0; i < found->num_advice; i++)
        (void)printf("  %-40s %10s, %s less\n", plan_change(&found->advice[i], change),
                     plim_size_text(found->advice[i].total_bytes, total),
                     plim_size_text(found->advice[i].saved_bytes, saved));
    if (!found->fits && found->num_advice == 0)
        (void)printf("\nNo smaller batch, fan-out or model fits this line.\n");
    if (hint != NULL)
        (void)printf("For more memory: %s.\n", hint);
}

void plan_print(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    print_heading(plan, train, found);
    print_line(plan, found);
    print_rest(plan, train, found);
    print_table(&found->plan);
    print_ask(plan, found);
    print_advice(plan, found);
    cli_flush();
}

json_t *plan_json(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    json_t *object = cli_plan_json(&found->plan), *advice = json_array();
    char change[PLAN_CHANGE];
    const plan_ask_t ask = plan_ask(plan, found);
    const json_int_t memory = ask.mebibytes << 20;
    if (plan->ranks > 0)
        (void)json_object_set_new(object, "ranks", plan_ranks_json(plan, train, found));
    (void)json_object_set_new(object, "event", json_string("plan"));
    for (int i = 0; i < found->num_advice; i++)
        (void)json_array_append_new(
            advice, json_pack("{s:s, s:I, s:I}", "change", plan_change(&found->advice[i], change),
                              "total_bytes", (json_int_t)found->advice[i].total_bytes,
                              "saved_bytes", (json_int_t)found->advice[i].saved_bytes));
    (void)json_object_set_new(object, "dataset", cli_json_text(plan->train.dataset));
    if (plan->shape.shape != NULL)
        (void)json_object_set_new(object, "shape", json_string(plan->shape.shape));
    (void)json_object_set_new(object, "fits", json_boolean(found->fits));
    (void)json_object_set_new(object, "line_bytes", json_integer(found->line));
    if (plan->sweep.num_keys == 0)
        (void)json_object_set_new(object, "line_source", cli_json_text(plan->line_source));
    if (found->packed_bytes > 0)
        (void)json_object_set_new(object, "with_scratch",
                                  json_pack("{s:I, s:I}", "scratch_bytes",
                                            (json_int_t)found->packed_bytes, "epoch_reads",
                                            (json_int_t)found->packed_reads));
    (void)json_object_set_new(object, "trial", trial_json(found));
    (void)json_object_set_new(object, "advice", advice);
    (void)json_object_set_new(object, "ask",
                              json_pack("{s:I, s:o, s:I, s:i}", "memory_bytes", memory, "seconds",
                                        found->tried ? json_integer(ask.minutes * 60) : json_null(),
                                        "cpus", (json_int_t)ask.cpus, "time_margin",
                                        PLAN_TIME_MARGIN));
    return object;
}
