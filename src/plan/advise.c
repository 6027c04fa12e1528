/*
 * Advice: changes of settings with which a training fits; a refused plan names them.
 *
 * Each kind of change is tried from the smallest on, and the first that fits with a margin is the
 * advice. Where no kind is enough by itself, all are made smaller together, and then those that are
 * not needed are undone. A try reads nothing, and asks whether it fits, not for a plan.
 */
#include "base/check.h"
#include "base/params.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "plan/statistics.h"
#include "plan/train_plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MOST 40 /* of a change: by quarters and halves, so 2^-20 of what it was */
#define ALL_FANOUT 32 /* what "all neighbours" begins to shrink from */
#define GUESS_PART 32 /* of a line: how far what is guessed of a change may be off */

typedef enum kind { PRECISION, FANOUT, BATCH, HIDDEN, NUM_KINDS } kind_t;

typedef struct advising {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_training_t *training; /* as the caller gave it */
    plim_plan_params_t params;
    int64_t line;
    plim__probe_t probe; /* of its recipe; empty: not known */
    bool whole;          /* look for whole batches; else for anything that fits */
} advising_t;

/* What the seeds of a probe would come to with other fan-outs: by what dataset.json says of both.
 */
static plim__probe_t probe_for(const advising_t *advising, const plim_training_t *training)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(advising->dataset);
    const plim_recipe_t before = plim__plan_settings_recipe(&manifest->info, advising->training);
    const plim_recipe_t now = plim__plan_settings_recipe(&manifest->info, training);
    plim__probe_t probe = advising->probe;
    for (int i = 0; i < probe.count; i++) {
        plim__probe_size_t *size = &probe.sizes[i];
        const plim__load_size_t was = plim__load_size_expected(manifest, &before, size->seeds);
        const plim__load_size_t is = plim__load_size_expected(manifest, &now, size->seeds);
        size->nodes = plim__max_i64(
            (int64_t)((double)size->nodes * ((double)is.nodes / (double)was.nodes)), size->seeds);
        size->edges = (int64_t)((double)size->edges * ((double)is.edges / (double)was.edges)) + 1;
    }
    return probe;
}

/* Whether these settings fit under the line. */
static bool fits(const advising_t *advising, const plim_training_t *training, int64_t line,
                 bool whole)
{
    const plim__probe_t probe = probe_for(advising, training);
    return plim__train_fits(advising->job, advising->dataset, training, &advising->params,
                            probe.count > 0 ? &probe : NULL, line, whole);
}

/* Whether a change is enough, with a margin: the size of its batches is estimated. */
static bool helps(const advising_t *advising, const plim_training_t *changed)
{
    const int64_t line = advising->line;
    return fits(advising, changed, line - line / GUESS_PART, advising->whole);
}

static int64_t minimum_line(const advising_t *advising, const plim_training_t *training)
{
    const plim__probe_t probe = probe_for(advising, training);
    return plim__train_minimum(advising->job, advising->dataset, training, &advising->params,
                               probe.count > 0 ? &probe : NULL, advising->whole);
}

/* `value` after `steps` steps: 3/4, 1/2, 3/8, 1/4, … of it, in multiples of `unit`. */
static int64_t shrink(int64_t value, int steps, int64_t unit)
{
    const int64_t half = value >> (steps / 2);
    const int64_t left = steps % 2 == 0 ? half : half * 3 / 4;
    return plim__max_i64(left / unit * unit, unit);
}

/* Outer hops first, which have the most nodes, each down to a quarter; then all of them to one. */
static bool shrink_fanout(plim_recipe_t *recipe, int steps)
{
    bool changed = false;
    for (int round = 0; round < 2; round++)
        for (int hop = recipe->num_hops - 1; hop >= 0 && steps > 0; hop--) {
            const int64_t from = recipe->fanout[hop] < 0 ? ALL_FANOUT : recipe->fanout[hop];
            if (from <= 1)
                continue;
            const int most = round == 0 ? 4 : STEPS_MOST;
            const int taken = steps < most ? steps : most;
            recipe->fanout[hop] = shrink(from, taken, 1);
            changed = changed || recipe->fanout[hop] != from || from == ALL_FANOUT;
            steps -= taken;
        }
    return changed;
}

/* Makes one kind of change by `steps` steps; false when there is nothing left to make smaller. */
static bool change(plim_training_t *training, kind_t kind, int steps)
{
    const plim_training_t before = *training;
    plim_model_t *model = &training->model;
    const int64_t heads =
        model->kind == PLIM_GAT || model->kind == PLIM_GATV2 ? plim__max_i64(model->heads, 1) : 1;
    switch (kind) {
    case PRECISION:
        model->precision = PLIM_PRECISION_BF16;
        return before.model.precision != model->precision;
    case FANOUT:
        return shrink_fanout(&training->recipe, steps);
    case BATCH:
        training->recipe.batch_size = shrink(before.recipe.batch_size, steps, 1);
        training->microbatch = plim__min_i64(before.microbatch, training->recipe.batch_size);
        return training->recipe.batch_size < before.recipe.batch_size;
    case HIDDEN:
        model->hidden = shrink(before.model.hidden, steps, heads);
        return model->hidden < before.model.hidden;
    case NUM_KINDS:
        break;
    }
    return false;
}

static plim_advice_t difference(const plim_training_t *from, const plim_training_t *to)
{
    plim_advice_t advice = PLIM_ADVICE_INIT;
    if (to->recipe.batch_size != from->recipe.batch_size)
        advice.batch_size = to->recipe.batch_size;
    if (memcmp(to->recipe.fanout, from->recipe.fanout, sizeof to->recipe.fanout) != 0) {
        advice.num_hops = to->recipe.num_hops;
        memcpy(advice.fanout, to->recipe.fanout, sizeof advice.fanout);
    }
    if (to->model.hidden != from->model.hidden)
        advice.hidden = to->model.hidden;
    advice.bf16 = to->model.precision != from->model.precision;
    return advice;
}

/* The smallest change of one kind that fits. */
static bool find_one(const advising_t *advising, kind_t kind, plim_training_t *changed_out)
{
    for (int steps = 1; steps <= STEPS_MOST; steps++) {
        plim_training_t changed = *advising->training;
        if (!change(&changed, kind, steps))
            return false;
        if (helps(advising, &changed)) {
            *changed_out = changed;
            return true;
        }
        if (kind == PRECISION)
            return false;
    }
    return false;
}

static void change_all(const advising_t *advising, const bool kinds[NUM_KINDS], int steps,
                       plim_training_t *changed)
{
    *changed = *advising->training;
    for (int kind = 0; kind < NUM_KINDS; kind++)
        if (kinds[kind])
            (void)change(changed, (kind_t)kind, steps);
}

/* Several kinds together: the fewest steps that fit, and only the kinds that are needed. */
static bool find_several(const advising_t *advising, plim_training_t *changed_out)
{
    bool kinds[NUM_KINDS] = {true, true, true, true};
    for (int steps = 1; steps <= STEPS_MOST; steps++) {
        change_all(advising, kinds, steps, changed_out);
        if (!helps(advising, changed_out))
            continue;
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            kinds[kind] = false;
            change_all(advising, kinds, steps, changed_out);
            kinds[kind] = !helps(advising, changed_out);
        }
        change_all(advising, kinds, steps, changed_out);
        return true;
    }
    return false;
}

/* Writes the index-th advice of an array whose elements are as large as the first says. */
static void add_advice(const advising_t *advising, const plim_training_t *changed, int64_t before,
                       plim_advice_t *first, int index)
{
    plim_advice_t advice = difference(advising->training, changed);
    char *place = (char *)first + (size_t)index * first->size;
    advice.total_bytes = minimum_line(advising, changed);
    advice.saved_bytes = before > 0 ? plim__max_i64(before - advice.total_bytes, 0) : 0;
    memcpy(place, &first->size, sizeof first->size);
    plim__output_give(place, &advice, sizeof advice);
}

PLIM_API plim_status_t plim_train_advise(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training,
                                         const plim_plan_params_t *params, int capacity,
                                         plim_advice_t *advice_out, int *count_out)
{
    PLIM_ENTER(job);
    plim_training_t known = PLIM_TRAINING_INIT;
    PLIM_TRY(plim__output_check(advice_out, "plim_advice_t"));
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    training = &known;
    advising_t advising = {
        .job = job, .dataset = dataset, .training = training, .params = PLIM_PLAN_PARAMS_INIT};
    plim_training_t changed;
    int count = 0;
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_plan_params_t", &advising.params,
                                   sizeof advising.params));
    const plim_recipe_t recipe = plim__plan_settings_recipe(plim_dataset_info(dataset), training);
    PLIM_TRY(plim__statistics_probe(job, dataset, &recipe, false, &advising.probe));
    advising.line = plim__load_line(job, &advising.params);
    *count_out = 0;
    if (fits(&advising, training, advising.line, true))
        return PLIM_OK;
    /* What fits in parts is advised changes that keep its batches whole. */
    advising.whole = fits(&advising, training, advising.line, false);
    const int64_t before = minimum_line(&advising, training);
    for (int kind = 0; kind < NUM_KINDS && count < capacity; kind++)
        if (find_one(&advising, (kind_t)kind, &changed))
            add_advice(&advising, &changed, before, advice_out, count++);
    if (count == 0 && capacity > 0 && find_several(&advising, &changed))
        add_advice(&advising, &changed, before, advice_out, count++);
    *count_out = count;
    return PLIM_OK;
}

/* Appends to a text; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void append(char text[PLIM__ADVICE_TEXT],
                                                         const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, PLIM__ADVICE_TEXT - used, format, arguments);
    va_end(arguments);
}

void plim__train_advice(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, const plim_plan_params_t *params,
                        char text_out[PLIM__ADVICE_TEXT])
{
    plim_advice_t found[NUM_KINDS] = {PLIM_ADVICE_INIT};
    int count;
    text_out[0] = '\0';
    if (plim_train_advise(job, dataset, training, params, NUM_KINDS, found, &count) != PLIM_OK)
        return;
    for (const plim_advice_t *advice = found; advice < found + count; advice++) {
        append(text_out, ", or");
        if (advice->batch_size > 0)
            append(text_out, " `batch_size` %lld", (long long)advice->batch_size);
        for (int i = 0; i < advice->num_hops; i++)
            append(text_out, "%s%lld", i == 0 ? " `fanout` " : ",", (long long)advice->fanout[i]);
        if (advice->hidden > 0)
            append(text_out, " `hidden` %lld", (long long)advice->hidden);
        if (advice->bf16)
            append(text_out, " `precision` bf16");
    }
}
