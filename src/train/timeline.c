#include "train/timeline.h"

#include "base/clock.h"
#include "base/json_write.h"
#include "load/loader.h"

/* Minimum interval between lines. */
#define LINE_SECONDS 1.0

#define LINE_BYTES 4096

static plim__spent_t spent_until_now(const plim__timeline_t *timeline,
                                     const plim_trainer_t *trainer, const plim_loader_t *loader)
{
    plim__model_times_t model;
    plim_load_stats_t load = PLIM_LOAD_STATS_INIT;
    plim__model_times(trainer->session.model, &model);
    plim_loader_stats(loader, &load);
    return (plim__spent_t){.waiting = load.starved_seconds,
                           .sparse = model.sparse,
                           .dense = model.dense,
                           .finish = model.finish,
                           .loss = trainer->loss_seconds,
                           .update = trainer->update_seconds,
                           .evaluation = timeline->evaluation_seconds,
                           .saving = timeline->saving_seconds,
                           .dense_flops = model.dense_flops,
                           .lists = load.lists,
                           .lists_cached = load.lists_cached,
                           .rows = load.rows,
                           .rows_cached = load.rows_cached};
}

static void put_line(plim__json_writer_t *json, int64_t bytes)
{
    plim__json_put_integer(json, "line_bytes", bytes == PLIM_LINE_NONE ? -1 : bytes);
}

static void put_account(plim__json_writer_t *json, const char *name, int64_t bytes)
{
    if (bytes > 0)
        plim__json_put_integer(json, name, bytes);
}

/* The phase in which this process holds the most. Predicting is left to a later process. */
static plim_phase_t own_peak_phase(const plim__train_plan_t *plan)
{
    plim_phase_t peak = PLIM_PHASE_START;
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        if (phase != PLIM_PHASE_PREDICT && plan->phase[phase] > plan->phase[peak])
            peak = (plim_phase_t)phase;
    return peak;
}

plim_status_t plim__timeline_plan(const plim__train_plan_t *plan, const plim_job_t *job,
                                  double began, bool resumed, plim__run_t *run)
{
    const plim_phase_t peak = own_peak_phase(plan);
    char line[LINE_BYTES];
    plim__json_writer_t json = plim__json_writer(line, sizeof line);
    plim__json_open(&json, NULL, '{');
    plim__json_put_text(&json, "kind", "plan", SIZE_MAX);
    plim__json_put_real(&json, "time_s", 3, plim__clock_seconds(CLOCK_REALTIME));
    plim__json_put_real(&json, "began_s", 3, began);
    plim__json_put_bool(&json, "resumed", resumed);
    plim__json_put_integer(&json, "ranks", job->core->transport.num_ranks);
    plim__json_put_integer(&json, "total_bytes", plan->phase[peak]);
    plim__json_put_integer(&json, "minimum_bytes", plan->minimum);
    put_line(&json, plan->line);
    plim__json_open(&json, "accounts", '{');
    for (int i = 0; i < plan->num_accounts; i++)
        put_account(&json, plan->accounts[i].name, plan->accounts[i].phase[peak]);
    plim__json_close(&json, '}');
    plim__json_close(&json, '}');
    return plim__run_timeline(run, line);
}

void plim__timeline_restart(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                            const plim_loader_t *loader)
{
    timeline->at = plim__clock_ns();
    timeline->steps_then = timeline->steps;
    timeline->spent = spent_until_now(timeline, trainer, loader);
}

plim_status_t plim__timeline_write(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                                   const plim_loader_t *loader, plim__run_t *run, bool force)
{
    const plim__position_t *position = &trainer->position;
    plim_ledger_t *ledger = trainer->session.job->ledger;
    const int64_t now = plim__clock_ns();
    const double seconds = (double)(now - timeline->at) * 1e-9;
    if (timeline->meter == NULL || (!force && seconds < LINE_SECONDS))
        return PLIM_OK;
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    char line[LINE_BYTES];
    plim__json_writer_t json = plim__json_writer(line, sizeof line);
    plim_account_info_t infos[PLIM__ACCOUNTS_MAX];
    const int num_accounts = plim__ledger_accounts(ledger, PLIM__ACCOUNTS_MAX, infos);
    const plim__spent_t all = spent_until_now(timeline, trainer, loader);
    const plim__spent_t *last = &timeline->spent;
    const double training = seconds - (all.evaluation - last->evaluation);
    const double dense = all.dense - last->dense;
    const plim__governor_t *governor = plim__loader_governor(loader);
    (void)plim_meter_read(timeline->meter, &sample);
    plim__json_open(&json, NULL, '{');
    plim__json_put_integer(&json, "epoch", position->epoch + 1);
    plim__json_put_integer(&json, "step", position->step);
    plim__json_put_integer(&json, "updates", position->updates);
    plim__json_put_real(&json, "time_s", 3, plim__clock_seconds(CLOCK_REALTIME));
    plim__json_put_real(&json, "seconds", 3, seconds);
    plim__json_put_real(&json, "steps_per_s", 2,
                        training > 0 ? (double)(timeline->steps - timeline->steps_then) / training
                                     : 0);
    plim__json_put_real(&json, "waiting_s", 4, all.waiting - last->waiting);
    plim__json_put_real(&json, "sparse_s", 4, all.sparse - last->sparse);
    plim__json_put_real(&json, "dense_s", 4, dense);
    plim__json_put_real(&json, "finish_s", 4, all.finish - last->finish);
    plim__json_put_real(&json, "loss_s", 4, all.loss - last->loss);
    plim__json_put_real(&json, "update_s", 4, all.update - last->update);
    plim__json_put_real(&json, "evaluation_s", 4, all.evaluation - last->evaluation);
    plim__json_put_real(&json, "saving_s", 4, all.saving - last->saving);
    plim__json_put_real(&json, "dense_gflop_per_s", 1,
                        dense > 0 ? (all.dense_flops - last->dense_flops) / dense * 1e-9 : 0);
    plim__json_put_integer(&json, "rss_bytes", sample.rss_bytes);
    plim__json_put_integer(&json, "anonymous_bytes", sample.anonymous_bytes);
    plim__json_put_integer(&json, "group_bytes", sample.group_bytes);
    plim__json_put_integer(&json, "group_cache_bytes", sample.group_cache_bytes);
    put_line(&json, plim__ledger_line(ledger));
    plim__json_put_integer(&json, "reserved_bytes", plim__ledger_reserved(ledger));
    plim__json_put_integer(&json, "cache_bytes", governor->target);
    plim__json_put_integer(&json, "cache_planned_bytes", governor->cache);
    plim__json_put_integer(&json, "lists", all.lists - last->lists);
    plim__json_put_integer(&json, "lists_cached", all.lists_cached - last->lists_cached);
    plim__json_put_integer(&json, "rows", all.rows - last->rows);
    plim__json_put_integer(&json, "rows_cached", all.rows_cached - last->rows_cached);
    plim__json_open(&json, "accounts", '{');
    for (int i = 0; i < num_accounts; i++)
        put_account(&json, infos[i].name, infos[i].reserved);
    plim__json_close(&json, '}');
    plim__json_close(&json, '}');
    timeline->at = now;
    timeline->steps_then = timeline->steps;
    timeline->spent = all;
    return plim__run_timeline(run, line);
}
