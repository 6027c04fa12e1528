/*
 * A trial: opens a training as plim_train does, without a run, makes steps and an evaluation's
 * batches for some seconds, and predicts from them how long the run takes. The user's cache keeps
 * the result for the same dataset, settings, plan, machine and disk.
 *
 * Where lists or rows are on disk, batches come in windows: a window's batches follow each other
 * quickly, then the next window must be ready. So times are taken between two windows, not from an
 * arbitrary part of one. The first window is a part of the start: later epochs find theirs built.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/params.h"
#include "io/cache_file.h"
#include "io/seal.h"
#include "mem/kernel_text.h"
#include "plan/plan_settings.h"
#include "train/loop.h"
#include "train/run_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>

#define VERSION 1 /* of the cached files and of how their content is measured */
#define NAME_TEXT 64
#define KEY_TEXT 8192
#define EVALUATION_PART 4 /* an evaluation is tried for 1/4 of the seconds of steps */
#define LONGEST_TIMES 5   /* a trial takes up to 5 times its seconds to see a second window */
#define STARVED_SHARE 0.1 /* windows set the pace if a larger share of the time is waiting */

/* What the cache keeps. Seconds; 0 for a split that is not evaluated. */
typedef struct trial_record {
    int64_t time; /* since 1970 */
    double start, epoch;
    double split[3]; /* of an evaluation of each split */
    double back;     /* until training has its first batch after an evaluation */
} trial_record_t;

typedef struct point {
    double seconds, starved; /* since the stream was started, and of these without a batch */
    int64_t units;           /* steps or seeds so far */
} point_t;

/* The progress of a stream. */
typedef struct pace {
    plim_loader_t *loader;
    int64_t began;
    double starved_before;
    int64_t windows;     /* served so far */
    int64_t unit_steps;  /* units in a step */
    double window_units; /* units in the first window; 0: batches come without windows */
    point_t first, last;
    point_t served; /* when the last window was served */
} pace_t;

static pace_t begin_pace(plim_loader_t *loader, int64_t unit_steps)
{
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    (void)plim_loader_stats(loader, &stats);
    return (pace_t){.loader = loader,
                    .began = plim__clock_ns(),
                    .starved_before = stats.starved_seconds,
                    .unit_steps = unit_steps};
}

/* Records that `units` more are done. */
static void note(pace_t *pace, int64_t units)
{
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    (void)plim_loader_stats(pace->loader, &stats);
    const point_t now = {plim__clock_seconds_since(pace->began),
                         stats.starved_seconds - pace->starved_before, pace->last.units + units};
    if (pace->last.units == 0) {
        pace->first = pace->served = now;
        pace->window_units = (double)(stats.window_steps * pace->unit_steps);
    } else if (stats.windows > pace->windows) {
        pace->served = now;
    }
    pace->windows = stats.windows;
    pace->last = now;
}

static bool has_second_window(const pace_t *pace)
{
    return pace->served.units > pace->first.units;
}

static bool is_enough(const pace_t *pace, double seconds)
{
    const double tried = pace->last.seconds - pace->first.seconds;
    if (pace->last.units == pace->first.units || tried < seconds)
        return false;
    return pace->window_units == 0 || has_second_window(pace) || tried >= LONGEST_TIMES * seconds;
}

static double unit_seconds(const point_t *from, const point_t *to)
{
    return (to->seconds - from->seconds) / (double)plim__max_i64(to->units - from->units, 1);
}

/* Seconds of a unit without waiting for batches. */
static double busy_seconds(const pace_t *pace)
{
    const double waited = pace->last.starved - pace->first.starved;
    const int64_t units = plim__max_i64(pace->last.units - pace->first.units, 1);
    return fmax(unit_seconds(&pace->first, &pace->last) - waited / (double)units, 0);
}

/* Seconds of a unit as windows follow each other. */
static double steady_seconds(const pace_t *pace)
{
    const double all = unit_seconds(&pace->first, &pace->last);
    if (has_second_window(pace))
        return busy_seconds(pace) < (1 - STARVED_SHARE) * all
                   ? unit_seconds(&pace->first, &pace->served)
                   : all;
    return pace->window_units > 0 ? fmax(all, pace->first.starved / pace->window_units) : all;
}

/* Seconds of a pass over `units` units: the first window, the pace of the others, and the
 * computation of the last. */
static double pass_seconds(const pace_t *pace, double units)
{
    if (pace->last.units == (int64_t)units)
        return pace->last.seconds;
    const double rest = fmax(units - (double)pace->first.units, 0);
    const double windowed = fmin(pace->window_units, rest);
    return pace->first.seconds + (rest - windowed) * steady_seconds(pace) +
           windowed * busy_seconds(pace);
}

/* Trains from the position on until the pace is known. */
static plim_status_t try_steps(plim__loop_t *loop, double seconds, pace_t *pace)
{
    plim__position_t *position = &loop->trainer->position;
    while (!is_enough(pace, seconds)) {
        if (position->step == loop->steps) {
            if (position->epoch == 0)
                plim__loader_retarget(loop->loader); /* as after a run's first epoch */
            position->epoch++;
            position->step = 0;
        }
        plim_status_t status = plim_stream_start(loop->stream, position->epoch, position->step);
        PLIM_TRY(status);
        while (position->step + loop->group_steps < loop->steps && !is_enough(pace, seconds)) {
            PLIM_TRY(plim__loop_step(loop, &status));
            PLIM_TRY(status);
            note(pace, 1);
        }
    }
    plim_trainer_discard(loop->trainer); /* an incomplete group */
    loop->group_steps = 0;
    return PLIM_OK;
}

typedef struct trying {
    plim__session_t *session;
    double seconds;
    pace_t pace;
} trying_t;

static plim_status_t try_rows(void *context, int64_t rows, const plim__model_output_t *output,
                              const void *labels)
{
    trying_t *trying = context;
    PLIM_TRY(plim__session_score(trying->session, rows, output, labels));
    note(&trying->pace, rows);
    trying->session->ends_pass = is_enough(&trying->pace, trying->seconds);
    return PLIM_OK;
}

/* Evaluates a part of the largest split that is evaluated between epochs, and takes the others in
 * proportion; then a step of training, whose windows the evaluation may have replaced. */
static plim_status_t try_evaluation(plim__loop_t *loop, double seconds, trial_record_t *record)
{
    plim__session_t *session = &loop->trainer->session;
    const int64_t *seeds = session->info->num_split;
    const plim_recipe_t recipe = plim__plan_settings_recipe(session->info, loop->training);
    const unsigned splits = plim__plan_settings_splits(loop->training);
    int largest = -1;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if ((splits >> split & 1) != 0 && session->labelled[split] > 0 &&
            (largest < 0 || seeds[split] > seeds[largest]))
            largest = split;
    const plim_split_t tried = largest < 0 ? PLIM_TRAIN : (plim_split_t)largest;
    const plim_stream_params_t stream =
        plim__plan_settings_evaluation(session->info, loop->training, tried);
    trying_t trying = {
        session, seconds,
        begin_pace(loop->loader, plim__load_stream_recipe(&recipe, &stream).batch_size)};
    plim__score_reset(session->score);
    PLIM_TRY(plim__session_pass(session, loop->loader, tried, 1, try_rows, &trying));
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (session->labelled[split] > 0)
            record->split[split] = pass_seconds(&trying.pace, (double)seeds[split]);
    pace_t back = begin_pace(loop->loader, 1);
    PLIM_TRY(try_steps(loop, 0, &back));
    record->back = back.first.starved;
    return PLIM_OK;
}

static plim_status_t run_trial(plim__loop_t *loop, double seconds, trial_record_t *record)
{
    const int64_t began = plim__clock_ns();
    bool found;
    PLIM_TRY(plim__loop_open(loop, loop->plan, false, &found));
    const double opened = plim__clock_seconds_since(began);
    pace_t pace = begin_pace(loop->loader, 1);
    PLIM_TRY(try_steps(loop, seconds, &pace));
    record->start = opened + pace.first.seconds;
    record->epoch = (double)loop->steps * steady_seconds(&pace);
    record->time = (int64_t)time(NULL);
    return loop->training->eval_every > 0 ? try_evaluation(loop, seconds / EVALUATION_PART, record)
                                          : PLIM_OK;
}

/* Describes the disk of the dataset: its file system's type and id, and the mounted source, such as
 * "server:/export", since NFS has no id. /proc/self/mountinfo has "ID PARENT MAJOR:MINOR ROOT
 * POINT OPTIONS … - TYPE SOURCE OPTIONS". */
static void describe_disk(const char *path, char *text_out, size_t size)
{
    plim__kernel_lines_t lines;
    char number[48];
    const char *line;
    struct statfs about = {0};
    struct stat place = {0};
    uint64_t id = 0;
    (void)statfs(path, &about);
    (void)stat(path, &place);
    memcpy(&id, &about.f_fsid, sizeof id < sizeof about.f_fsid ? sizeof id : sizeof about.f_fsid);
    int used =
        snprintf(text_out, size, "%lx %llx", (unsigned long)about.f_type, (unsigned long long)id);
    (void)snprintf(number, sizeof number, " %u:%u ", major(place.st_dev), minor(place.st_dev));
    if (!plim__kernel_lines_open(&lines, "", "/proc/self/mountinfo"))
        return;
    while ((line = plim__kernel_lines_next(&lines)) != NULL) {
        const char *type = strstr(line, number) != NULL ? strstr(line, " - ") : NULL;
        const char *source = type != NULL ? strchr(type + strlen(" - "), ' ') : NULL;
        if (source == NULL)
            continue;
        (void)snprintf(text_out + used, size - (size_t)used, "%.*s", (int)strcspn(source + 1, " "),
                       source);
        break;
    }
    plim__kernel_lines_close(&lines);
}

/* The settings that decide how long steps and evaluations take. */
static plim_training_t timed_settings(const plim_training_t *training)
{
    static const plim_optimiser_t usual = PLIM_OPTIMISER_INIT;
    plim_training_t timed = *training;
    timed.optimiser = usual;
    timed.optimiser.kind = training->optimiser.kind;
    timed.optimiser.clip_norm = training->optimiser.clip_norm > 0;
    timed.recipe.seed = 0;
    timed.epochs = timed.patience = timed.memory_steps = timed.checkpoint_steps = 0;
    timed.checkpoint_seconds = 0;
    timed.eval_every = training->eval_every > 0;
    timed.eval_train = false;
    timed.eval_splits = PLIM_SPLITS_AUTO;
    timed.init = timed.start = NULL;
    return timed;
}

/* The line, rounded down by up to a sixteenth: on a machine without limits it is the available
 * memory, which is never the same twice. 0 with everything in memory: the line then has no effect.
 */
static int64_t timed_line(const plim__load_plan_t *plan)
{
    int shift = 0;
    while (plan->line >> shift >= 32)
        shift++;
    return plan->window_steps > 0 ? plan->line >> shift << shift : 0;
}

static plim_status_t name_file(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_t *plan,
                               char name_out[NAME_TEXT])
{
    const plim__load_plan_t *load = &plan->numbers.load;
    const plim__machine_t machine = plim__machine_here(job);
    const plim_training_t timed = timed_settings(training);
    char key[KEY_TEXT], disk[1024], digits[PLIM__SEAL_DIGITS + 1];
    PLIM_TRY(plim__run_json_settings(job, &timed, key, sizeof key));
    describe_disk(plim__dataset_path(dataset), disk, sizeof disk);
    const size_t used = strlen(key);
    (void)snprintf(key + used, sizeof key - used, "\n%s %lld %lld %d %d %d %d %s %s %d %s %s %d %s",
                   load->fingerprint, (long long)timed_line(load), (long long)load->part_seeds,
                   plan->numbers.recompute, load->topology_in_memory, load->rows_in_memory,
                   load->working.rows > 0, machine.cpu, machine.vectors, machine.threads,
                   machine.version, machine.library, (int)job->io_engine, disk);
    plim__seal_digits(key, strlen(key), digits);
    (void)snprintf(name_out, NAME_TEXT, "trial-%d-%s", VERSION, digits);
    return PLIM_OK;
}

static void keep(const char *name, const trial_record_t *record)
{
    char text[PLIM__CACHE_TEXT];
    (void)snprintf(text, sizeof text, "%lld %.6g %.6g %.6g %.6g %.6g %.6g\n",
                   (long long)record->time, record->start, record->epoch, record->split[0],
                   record->split[1], record->split[2], record->back);
    plim__cache_write(name, text);
}

static bool find(const char *name, trial_record_t *record_out)
{
    char text[PLIM__CACHE_TEXT], *at = text;
    trial_record_t record;
    double *const numbers[] = {&record.start,    &record.epoch,    &record.split[0],
                               &record.split[1], &record.split[2], &record.back};
    if (!plim__cache_read(name, text))
        return false;
    record.time = strtoll(at, &at, 10);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *from = at;
        *numbers[i] = strtod(from, &at);
        if (at == from || !(*numbers[i] >= 0) || *numbers[i] > 1e12)
            return false;
    }
    if (record.time <= 0 || record.epoch <= 0)
        return false;
    *record_out = record;
    return true;
}

/* Computes the seconds of the run. It ends with scores of the splits that have none of the best
 * weights; without best weights, of all splits. */
static void give(const trial_record_t *record, const plim_training_t *training, int64_t steps,
                 plim_trial_t *trial_out)
{
    const unsigned splits = plim__plan_settings_splits(training);
    const int64_t rounds = training->eval_every > 0 ? training->epochs / training->eval_every : 0;
    const bool best =
        rounds > 0 && (splits >> PLIM_VALID & 1) != 0 && record->split[PLIM_VALID] > 0;
    double between = 0, last = 0;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        const bool often = (splits >> split & 1) != 0;
        between += often ? record->split[split] : 0;
        last += best && often ? 0 : record->split[split];
    }
    plim_trial_t trial = PLIM_TRIAL_INIT;
    trial.time = record->time;
    trial.steps_per_s = (double)steps / record->epoch;
    trial.start_s = record->start;
    trial.epoch_s = record->epoch;
    trial.evaluation_s = training->eval_every > 0 ? between + record->back : 0;
    trial.run_s = record->start + (double)training->epochs * record->epoch +
                  (double)rounds * trial.evaluation_s + (training->eval_every > 0 ? last : 0);
    plim__output_give(trial_out, &trial, sizeof trial);
}

static plim_status_t check(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, const plim_plan_t *plan)
{
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    return plim__trainer_check_plan(job, plim_dataset_info(dataset), training, plan);
}

PLIM_API plim_status_t plim_train_try(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_training_t *training, const plim_plan_t *plan,
                                      double seconds, plim_trial_t *trial_out)
{
    plim_training_t known = PLIM_TRAINING_INIT;
    char name[NAME_TEXT];
    trial_record_t record = {0};
    PLIM_ENTER(job);
    PLIM_TRY(plim__output_check(trial_out, "plim_trial_t"));
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    PLIM_TRY(check(job, dataset, &known, plan));
    if (job->core->transport.num_ranks > 1)
        return plim__fail(PLIM_ERR_USAGE, "a trial runs in one process, but the job has %d ranks",
                          job->core->transport.num_ranks);
    if (known.eval_exact)
        return plim__fail(
            PLIM_ERR_USAGE,
            "an exact evaluation cannot be tried in part: try the training without `eval_exact`");
    PLIM_TRY(name_file(job, dataset, &known, plan, name));
    const plim_training_t timed = known;
    known.checkpoint_steps = known.memory_steps = 0;
    known.checkpoint_seconds = 0;
    plim__loop_t loop = {.job = job,
                         .dataset = dataset,
                         .training = &known,
                         .path = plim__dataset_path(dataset),
                         .saved_step = -1,
                         .plan = &plan->numbers};
    const plim_status_t status = run_trial(&loop, seconds, &record);
    const int64_t steps = loop.steps;
    plim__loop_close(&loop);
    if (status != PLIM_OK)
        return status;
    keep(name, &record);
    give(&record, &timed, steps, trial_out);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_train_tried(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const plim_training_t *training, const plim_plan_t *plan,
                                        plim_trial_t *trial_out, bool *found_out)
{
    plim_training_t known = PLIM_TRAINING_INIT;
    char name[NAME_TEXT];
    trial_record_t record;
    PLIM_ENTER(job);
    PLIM_TRY(plim__output_check(trial_out, "plim_trial_t"));
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    PLIM_TRY(check(job, dataset, &known, plan));
    PLIM_TRY(name_file(job, dataset, &known, plan, name));
    *found_out = !known.eval_exact && job->core->transport.num_ranks == 1 && find(name, &record);
    if (*found_out)
        give(&record, &known, plan->numbers.expect.epoch_steps, trial_out);
    return PLIM_OK;
}
