#include "train/timeline.h"

#include "base/clock.h"
#include "load/loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Minimum interval between lines. */
#define LINE_SECONDS 1.0

#define ACCOUNTS_MAX 2048

static double unix_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

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

/* Appends one account as a JSON member; what does not fit is left out. */
static void add_account(char *text, size_t size, const char *name, int64_t bytes)
{
    const size_t used = strlen(text);
    if (bytes > 0 && size - used > sizeof(((plim_account_info_t *)0)->name) + 32)
        (void)snprintf(text + used, size - used, "%s\"%s\":%" PRId64, used > 0 ? "," : "", name,
                       bytes);
}

plim_status_t plim__timeline_plan(const plim__train_plan_t *plan, int num_ranks, bool resumed,
                                  plim__run_t *run)
{
    char accounts[ACCOUNTS_MAX] = "", line[ACCOUNTS_MAX + 512];
    for (int i = 0; i < plan->num_accounts; i++)
        add_account(accounts, sizeof accounts, plan->accounts[i].name,
                    plan->accounts[i].phase[plan->peak_phase]);
    (void)snprintf(line, sizeof line,
                   "{\"kind\":\"plan\",\"time_s\":%.3f,\"resumed\":%s,\"ranks\":%d"
                   ",\"total_bytes\":%" PRId64 ",\"minimum_bytes\":%" PRId64
                   ",\"line_bytes\":%" PRId64 ",\"accounts\":{%s}}",
                   unix_seconds(), resumed ? "true" : "false", num_ranks, plan->total,
                   plan->minimum, plan->line == PLIM_LINE_NONE ? -1 : plan->line, accounts);
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
    char accounts[ACCOUNTS_MAX] = "", line[ACCOUNTS_MAX + 1536];
    plim_account_info_t infos[PLIM__ACCOUNTS_MAX];
    const int num_accounts = plim__ledger_accounts(ledger, PLIM__ACCOUNTS_MAX, infos);
    const int64_t line_bytes = plim__ledger_line(ledger);
    const plim__spent_t all = spent_until_now(timeline, trainer, loader);
    const plim__spent_t *last = &timeline->spent;
    const double training = seconds - (all.evaluation - last->evaluation);
    const double dense = all.dense - last->dense;
    const plim__governor_t *governor = plim__loader_governor(loader);
    (void)plim_meter_read(timeline->meter, &sample);
    for (int i = 0; i < num_accounts; i++)
        add_account(accounts, sizeof accounts, infos[i].name, infos[i].reserved);
    (void)snprintf(line, sizeof line,
                   "{\"epoch\":%" PRId64 ",\"step\":%" PRId64 ",\"updates\":%" PRId64
                   ",\"time_s\":%.3f,\"seconds\":%.3f,\"steps_per_s\":%.2f,\"waiting_s\":%.4f,"
                   "\"sparse_s\":%.4f"
                   ",\"dense_s\":%.4f,\"finish_s\":%.4f,\"loss_s\":%.4f,\"update_s\":%.4f"
                   ",\"evaluation_s\":%.4f,\"saving_s\":%.4f,\"dense_gflop_per_s\":%.1f"
                   ",\"rss_bytes\":%" PRId64 ",\"anonymous_bytes\":%" PRId64
                   ",\"group_bytes\":%" PRId64 ",\"group_cache_bytes\":%" PRId64
                   ",\"line_bytes\":%" PRId64 ",\"reserved_bytes\":%" PRId64
                   ",\"cache_bytes\":%" PRId64 ",\"cache_planned_bytes\":%" PRId64
                   ",\"lists\":%" PRId64 ",\"lists_cached\":%" PRId64 ",\"rows\":%" PRId64
                   ",\"rows_cached\":%" PRId64 ",\"accounts\":{%s}}",
                   position->epoch + 1, position->step, position->updates, unix_seconds(), seconds,
                   training > 0 ? (double)(timeline->steps - timeline->steps_then) / training : 0.0,
                   all.waiting - last->waiting, all.sparse - last->sparse, dense,
                   all.finish - last->finish, all.loss - last->loss, all.update - last->update,
                   all.evaluation - last->evaluation, all.saving - last->saving,
                   dense > 0 ? (all.dense_flops - last->dense_flops) / dense * 1e-9 : 0.0,
                   sample.rss_bytes, sample.anonymous_bytes, sample.group_bytes,
                   sample.group_cache_bytes, line_bytes == PLIM_LINE_NONE ? -1 : line_bytes,
                   plim__ledger_reserved(ledger), governor->target, governor->cache,
                   all.lists - last->lists, all.lists_cached - last->lists_cached,
                   all.rows - last->rows, all.rows_cached - last->rows_cached, accounts);
    timeline->at = now;
    timeline->steps_then = timeline->steps;
    timeline->spent = all;
    return plim__run_timeline(run, line);
}
