/* Prints a training: its plan, events and result, as text or JSON. */
#include "command/verb_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *train_split_name(int split)
{
    static const char *const names[] = {"train", "valid", "test"};
    return names[split];
}

const char *train_seconds_text(double seconds, char text_out[24])
{
    const long long whole = (long long)(seconds + 0.5);
    if (seconds < 0.1)
        (void)snprintf(text_out, 24, "%.2g s", seconds);
    else if (seconds < 10)
        (void)snprintf(text_out, 24, "%.1f s", seconds);
    else if (seconds < 120)
        (void)snprintf(text_out, 24, "%lld s", whole);
    else if (seconds < 7200)
        (void)snprintf(text_out, 24, "%lld min", (whole + 30) / 60);
    else
        (void)snprintf(text_out, 24, "%.1f h", seconds / 3600);
    return text_out;
}

json_t *train_json_score(double score)
{
    return isfinite(score) ? json_real(score) : json_null();
}

const char *train_phase_text(plim_phase_t phase)
{
    static const char *const texts[PLIM_PHASES] = {"while starting", "while training",
                                                   "while evaluating", "while writing a checkpoint",
                                                   "while predicting"};
    return texts[phase];
}

/* "on disk, 1.2 GiB of it cached". */
static void place_text(plim_place_t place, int64_t kept, const char *of, char *text_out,
                       size_t size)
{
    char bytes[24];
    if (place == PLIM_PLACE_MEMORY)
        (void)snprintf(text_out, size, "in memory");
    else if (kept == 0)
        (void)snprintf(text_out, size, "on disk");
    else
        (void)snprintf(text_out, size, "on disk, %s of %s cached", plim_size_text(kept, bytes), of);
}

static int64_t train_updates(int64_t steps, const plim_training_t *training)
{
    return (steps + training->accumulation - 1) / training->accumulation;
}

/* Seeds of a batch, or of its largest share. */
static int64_t share_seeds(const plim_training_t *training)
{
    return (training->recipe.batch_size - 1) / training->shares + 1;
}

int64_t train_part_seeds(const cli_plan_t *plan, const plim_training_t *training)
{
    const int64_t seeds = plan->info.part_seeds;
    return seeds < share_seeds(training) ? seeds : 0;
}

void train_plan_texts(const cli_plan_t *plan, const plim_training_t *training,
                      train_plan_texts_t *texts_out)
{
    const plim_plan_info_t *info = &plan->info;
    const int64_t part_seeds = train_part_seeds(plan, training);
    const int64_t steps = info->epoch_steps;
    char nodes[24], edges[24], bytes[24];
    train_plan_texts_t texts = {.graph = ""};
    place_text(info->topology, info->list_cache_bytes, "it", texts.graph, sizeof texts.graph);
    place_text(info->rows, info->row_cache_bytes, "them", texts.features, sizeof texts.features);
    if (part_seeds > 0)
        (void)snprintf(texts.parts, sizeof texts.parts,
                       "%" PRId64 " of %" PRId64 " seeds at a time", part_seeds,
                       share_seeds(training));
    if (info->recompute)
        (void)snprintf(texts.recompute, sizeof texts.recompute, "activations are recomputed");
    if (info->batch_nodes > 0)
        (void)snprintf(texts.batch, sizeof texts.batch, "about %s nodes, %s edges, %s",
                       cli_count_text((double)info->batch_nodes, nodes),
                       cli_count_text((double)info->batch_edges, edges),
                       plim_size_text(info->batch_bytes, bytes));
    int used = 0;
    const int64_t updates = train_updates(steps, training);
    if (steps > 0)
        used = snprintf(texts.epoch, sizeof texts.epoch, "%" PRId64 " step%s", steps,
                        steps == 1 ? "" : "s");
    if (updates < steps)
        used += snprintf(texts.epoch + used, sizeof texts.epoch - (size_t)used,
                         " in %" PRId64 " update%s", updates, updates == 1 ? "" : "s");
    if (info->epoch_reads > 0)
        (void)snprintf(texts.epoch + used, sizeof texts.epoch - (size_t)used,
                       ", about %s reads of %s in all",
                       cli_count_text((double)info->epoch_reads, nodes),
                       plim_size_text(info->epoch_read_bytes, bytes));
    else if (steps > 0 && info->window_steps > 0)
        (void)snprintf(texts.epoch + used, sizeof texts.epoch - (size_t)used,
                       "; the caches hold nearly everything");
    *texts_out = texts;
}

const char *train_recipe_text(const plim_training_t *training, char text_out[256])
{
    const plim_recipe_t *recipe = &training->recipe;
    const plim_model_t *model = &training->model;
    int used = snprintf(text_out, 256, "%s, %d layer%s, hidden %" PRId64,
                        plim_words(PLIM_WORDS_MODEL)[model->kind], model->num_layers,
                        model->num_layers == 1 ? "" : "s", model->hidden);
    for (int i = 0; i < recipe->num_hops && used < 256; i++)
        used += snprintf(text_out + used, 256 - (size_t)used, "%s%" PRId64,
                         i == 0 ? ", fan-out " : ",", recipe->fanout[i]);
    if (used < 256)
        used +=
            snprintf(text_out + used, 256 - (size_t)used, ", batch %" PRId64, recipe->batch_size);
    if (used < 256 && training->temporal != PLIM_TEMPORAL_NONE)
        used += snprintf(text_out + used, 256 - (size_t)used, ", %s by time",
                         plim_words(PLIM_WORDS_TEMPORAL)[training->temporal]);
    if (used < 256 && training->shares > 1)
        used += snprintf(text_out + used, 256 - (size_t)used, " in %" PRId64 " shares",
                         training->shares);
    if (used < 256)
        (void)snprintf(text_out + used, 256 - (size_t)used, ", %s",
                       plim_words(PLIM_WORDS_PRECISION)[model->precision]);
    return text_out;
}

void train_print_recipe(const train_t *train, const plim_dataset_info_t *info)
{
    char recipe[256], nodes[24], edges[24];
    cli_remark("training: %s; %" PRId64 " epoch%s of %s: %s nodes, %s edges",
               train_recipe_text(&train->training, recipe), train->training.epochs,
               train->training.epochs == 1 ? "" : "s", train->dataset,
               cli_count_text((double)info->num_nodes, nodes),
               cli_count_text((double)info->num_edges, edges));
    const plim_training_t *training = &train->training;
    const plim_model_kind_t kind = training->model.kind;
    const unsigned unread =
        info->columns &
        ~((kind == PLIM_GINE || training->edge_features ? PLIM_EDGE_FEATURES : 0U) |
          (training->edge_weight ? PLIM_EDGE_WEIGHT : 0U) |
          (kind == PLIM_RGCN || training->decoder == PLIM_DECODER_DISTMULT ? PLIM_EDGE_TYPE : 0U));
    if ((unread & (PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE)) != 0)
        cli_warn("the model does not read what the edges carry:%s%s%s",
                 (unread & PLIM_EDGE_FEATURES) != 0 ? " edge_features" : "",
                 (unread & PLIM_EDGE_WEIGHT) != 0 ? " edge_weight" : "",
                 (unread & PLIM_EDGE_TYPE) != 0 ? " edge_type" : "");
    if ((info->columns & PLIM_NODE_TIME) != 0 && training->temporal == PLIM_TEMPORAL_NONE &&
        training->task == PLIM_TASK_LABELS && training->recipe.num_hops > 0)
        cli_remark("the dataset has times, but neighbours that are later than their seed are drawn "
                   "too; --temporal uniform (or last) leaves them out");
}

/* A row of the table at the end: "" or a phase, and "" or an account. */
#define WHERE_ROWS 24
typedef struct where {
    int phases, accounts;
    char phase[WHERE_ROWS][48], account[WHERE_ROWS][48];
} where_t;

static void add_phase(where_t *where, const char *name, double seconds, double all)
{
    char text[24];
    if (where->phases < WHERE_ROWS)
        (void)snprintf(where->phase[where->phases++], sizeof where->phase[0],
                       "%-23.23s %7s %3.0f %%", name, train_seconds_text(seconds, text),
                       100 * seconds / all);
}

static void add_account(where_t *where, const plim_account_info_t *info)
{
    char reserved[24], used[24];
    if (where->accounts < WHERE_ROWS && info->peak >= 1 << 20)
        (void)snprintf(where->account[where->accounts++], sizeof where->account[0],
                       "%-21.21s %8s %8s", info->name, plim_size_text(info->peak, reserved),
                       info->touched > 0 ? plim_size_text(info->touched, used) : "-");
}

void train_print_where(const plim_job_t *job)
{
    plim_account_info_t info = PLIM_ACCOUNT_INFO_INIT;
    plim_job_info_t about = PLIM_JOB_INFO_INIT;
    int64_t reserve = 0;
    char reserved[24], kept[48] = "reserve, kept free";
    where_t where = {.phases = 0};
    const double all = cli_job_seconds();
    double rest = all, seconds;
    const char *name;
    for (int i = 0; cli_phase(i, &name, &seconds); i++)
        if (seconds >= 0.01 * all) {
            add_phase(&where, name, seconds, all);
            rest -= seconds;
        }
    add_phase(&where, "other", rest > 0 ? rest : 0, all);
    for (int i = 0; plim_job_account(job, i, &info); i++)
        if (strcmp(info.name, "reserve") == 0)
            reserve = info.reserved;
        else
            add_account(&where, &info);
    cli_remark("%-37s  %-21s %8s %8s", "where time went", "where memory went", "reserved", "used");
    for (int i = 0; i < where.phases || i < where.accounts; i++)
        cli_remark("%-37s  %s", where.phase[i], where.account[i]);
    /* Each account is at its own peak, and the phases have theirs at different times. */
    if (plim_job_info(job, &about) != PLIM_OK)
        return;
    cli_remark("%-37s  %-21s %8s", "", "together, at most",
               plim_size_text(about.peak - reserve, reserved));
    if (about.line != PLIM_LINE_NONE)
        (void)snprintf(kept, sizeof kept, "reserve, kept free (%.0f %% of the line)",
                       100 * (double)reserve / (double)about.line);
    cli_remark("%60s %8s", kept, plim_size_text(reserve, reserved));
}

/* The names of a training's loss and metric. */
typedef struct task {
    const char *loss, *metric;
} task_t;

static task_t task_of(const train_t *train, const plim_dataset_info_t *info)
{
    plim_loss_t loss;
    plim_metric_t metric;
    plim_training_task(info, &train->training, &loss, &metric);
    if (train->training.task == PLIM_TASK_LINK) /* by the form of a file */
        return (task_t){plim_words(PLIM_WORDS_LOSS)[loss],
                        train->training.valid_pairs == NULL ? "none"
                        : train->training.valid_drawn > 0   ? "mrr"
                                                            : "mrr or roc_auc"};
    return (task_t){plim_words(PLIM_WORDS_LOSS)[loss], plim_words(PLIM_WORDS_METRIC)[metric]};
}

static void print_plan_event(const train_t *train, const plim_dataset_info_t *info,
                             const cli_plan_t *plan, const char *run)
{
    json_t *object = cli_plan_json(plan), *list = json_array();
    const char *idle[TRAIN_IDLE_MAX];
    const task_t task = task_of(train, info);
    const int count = train_idle(train, info, plan, idle);
    for (int i = 0; i < count; i++)
        (void)json_array_append_new(list, json_string(idle[i]));
    (void)json_object_set_new(object, "event", json_string("plan"));
    (void)json_object_set_new(object, "run", cli_json_text(run));
    (void)json_object_set_new(
        object, "epoch_updates",
        json_integer(train_updates(plan->info.epoch_steps, &train->training)));
    (void)json_object_set_new(object, "shares", json_integer(train->training.shares));
    (void)json_object_set_new(object, "without_effect", list);
    (void)json_object_set_new(object, "loss", json_string(task.loss));
    (void)json_object_set_new(object, "metric", json_string(task.metric));
    cli_print_json(object);
}

void train_print_plan(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan,
                      const char *run)
{
    const task_t task = task_of(train, info);
    const int64_t *bytes = plan->info.phase_bytes;
    const bool limited = plan->info.line != PLIM_LINE_NONE;
    char total[24], line[24], minimum[24];
    train_plan_texts_t texts;
    plim_phase_t peak = PLIM_PHASE_START; /* the largest of this process */
    for (int phase = 0; phase < PLIM_PHASE_PREDICT; phase++)
        if (bytes[phase] > bytes[peak])
            peak = (plim_phase_t)phase;
    if (train->common.json)
        print_plan_event(train, info, plan, run);
    train_plan_texts(plan, &train->training, &texts);
    (void)plim_size_text(plan->info.line, line);
    cli_remark("plan: peak %s%s%s (%s); needs a line of at least %s",
               plim_size_text(bytes[peak], total), limited ? " of " : "", limited ? line : "",
               train_phase_text(peak), cli_minimum_text(plan, minimum));
    if (train->fanout_repeated)
        cli_remark("  fan-out %" PRId64 " for each of %d layers", train->training.recipe.fanout[0],
                   train->training.model.num_layers);
    cli_remark("  graph %s; features %s", texts.graph, texts.features);
    if (texts.parts[0] != '\0' || texts.recompute[0] != '\0')
        cli_remark("  %s%s%s", texts.parts,
                   texts.parts[0] != '\0' && texts.recompute[0] != '\0' ? "; " : "",
                   texts.recompute);
    if (texts.batch[0] != '\0')
        cli_remark("  batch: %s", texts.batch);
    if (texts.epoch[0] != '\0')
        cli_remark("  epoch: %s", texts.epoch);
    cli_remark("  loss: %s; metric: %s", task.loss, task.metric);
    if (info->num_split[PLIM_VALID] == 0 && train->training.task != PLIM_TASK_LINK)
        cli_remark("  no validation split: evaluate and predict will use the last weights");
    cli_remark("run: %s", run);
}

static void show_steps(const plim_train_event_t *event)
{
    static const char *const evaluations[] = {"Train eval", "Val eval", "Test eval"};
    const bool training = event->kind == PLIM_EVENT_STEP;
    const plim_progress_t progress = {training ? "Training" : evaluations[event->split], "it",
                                      event->step, event->steps};
    cli_show_steps(&progress, training ? event->loss : (double)NAN);
}

/* Scores of drawn neighbourhoods are marked. */
static void print_scores(const double scores[3], bool sampled)
{
    static const char *const names[] = {"Train", "Val", "Test"};
    bool any = false;
    for (int split = 0; split < 3; split++)
        if (!isnan(scores[split])) {
            (void)printf(" | %s: %.4f", names[split], scores[split]);
            any = true;
        }
    if (any && sampled)
        (void)printf(" (sampled)");
}

static void print_epoch(const plim_train_event_t *event)
{
    (void)printf("Epoch %03" PRId64 " | Loss: %.4f", event->epoch, event->loss);
    print_scores(event->score, event->sampled);
    (void)printf(" | Time: %.*fs\n", event->seconds < 10 ? 2 : 0, event->seconds);
}

static json_t *json_epoch(const plim_train_event_t *event)
{
    json_t *object =
        json_pack("{s:s, s:I, s:o, s:I}", "event", "epoch", "epoch", (json_int_t)event->epoch,
                  "loss", train_json_score(event->loss), "labelled", (json_int_t)event->labelled);
    for (int split = 0; split < 3; split++)
        if (!isnan(event->score[split]))
            (void)json_object_set_new(object, train_split_name(split),
                                      train_json_score(event->score[split]));
    if (!isnan(event->score[PLIM_VALID]))
        (void)json_object_set_new(object, "valid_loss",
                                  train_json_score(event->split_loss[PLIM_VALID]));
    (void)json_object_set_new(object, "sampled", json_boolean(event->sampled));
    (void)json_object_set_new(object, "evaluation_seconds", json_real(event->evaluation_seconds));
    (void)json_object_set_new(object, "best", json_boolean(event->best));
    (void)json_object_set_new(object, "seconds", json_real(event->seconds));
    return object;
}

static void print_memory(const plim_train_event_t *event)
{
    const double mib = 1 << 20;
    (void)printf("Step %" PRId64 ": CPU: %.1fMB", event->step, (double)event->resident_bytes / mib);
    if (event->line_bytes != PLIM_LINE_NONE)
        (void)printf(" of %.1fMB", (double)event->line_bytes / mib);
    (void)printf("\n");
}

static json_t *json_memory(const plim_train_event_t *event)
{
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I}", "event", "memory", "epoch", (json_int_t)event->epoch,
                  "step", (json_int_t)event->step, "rss_bytes", (json_int_t)event->resident_bytes);
    if (event->line_bytes != PLIM_LINE_NONE)
        (void)json_object_set_new(object, "line_bytes", json_integer(event->line_bytes));
    return object;
}

void train_print_event(void *user, const plim_train_event_t *event)
{
    const cli_common_t *common = user;
    switch (event->kind) {
    case PLIM_EVENT_STEP:
    case PLIM_EVENT_EVAL:
        show_steps(event);
        return;
    case PLIM_EVENT_EPOCH:
        cli_leave_phase();
        if (common->json)
            cli_print_json(json_epoch(event));
        else
            print_epoch(event);
        break;
    case PLIM_EVENT_MEMORY:
        cli_clear_bar();
        if (common->json)
            cli_print_json(json_memory(event));
        else
            print_memory(event);
        break;
    case PLIM_EVENT_CHECKPOINT:
        cli_pass_time("checkpoints");
        return;
    }
    cli_flush();
}

void train_print_result(const train_t *train, const plim_train_result_t *result, json_t *object)
{
    if (object != NULL) {
        (void)json_object_set_new(object, "epochs", json_integer(result->epochs));
        (void)json_object_set_new(object, "loss", train_json_score(result->loss));
        if (result->best_epoch > 0)
            (void)json_object_set_new(object, "best_epoch", json_integer(result->best_epoch));
        for (int split = 0; split < 3; split++)
            if (!isnan(result->score[split]))
                (void)json_object_set_new(object, train_split_name(split),
                                          train_json_score(result->score[split]));
        (void)json_object_set_new(object, "sampled", json_boolean(result->sampled));
        (void)json_object_set_new(object, "early", json_boolean(result->early));
        return;
    }
    cli_leave_phase();
    if (result->early)
        cli_remark("stopped early: no better score in %" PRId64 " evaluations",
                   train->training.patience);
    bool any = false;
    for (int split = 0; split < 3; split++)
        any = any || !isnan(result->score[split]);
    if (!any)
        return;
    if (result->best_epoch > 0)
        (void)printf("Best epoch %03" PRId64, result->best_epoch);
    else
        (void)printf("Last epoch %03" PRId64, result->epochs);
    print_scores(result->score, result->sampled);
    (void)printf("\n");
    cli_flush();
}
