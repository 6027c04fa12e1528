#include "train/timeline.h"

#include "base/clock.h"
#include "load/loader.h"

#include <inttypes.h>
#include <stdio.h>

/* Minimum interval between lines. */
#define LINE_SECONDS 1.0

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
                           .dense_flops = model.dense_flops};
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
    char line[1024];
    const int64_t line_bytes = plim__ledger_line(ledger);
    const plim__spent_t all = spent_until_now(timeline, trainer, loader);
    const plim__spent_t *last = &timeline->spent;
    const double training = seconds - (all.evaluation - last->evaluation);
    const double dense = all.dense - last->dense;
    const plim__governor_t *governor = plim__loader_governor(loader);
    (void)plim_meter_read(timeline->meter, &sample);
    (void)snprintf(line, sizeof line,
                   "{\"epoch\":%" PRId64 ",\"step\":%" PRId64 ",\"updates\":%" PRId64
                   ",\"time_s\":%.3f,\"seconds\":%.3f,\"steps_per_s\":%.2f,\"waiting_s\":%.4f,"
                   "\"sparse_s\":%.4f"
                   ",\"dense_s\":%.4f,\"finish_s\":%.4f,\"loss_s\":%.4f,\"update_s\":%.4f"
                   ",\"evaluation_s\":%.4f,\"saving_s\":%.4f,\"dense_gflop_per_s\":%.1f"
                   ",\"rss_bytes\":%" PRId64 ",\"anonymous_bytes\":%" PRId64
                   ",\"group_bytes\":%" PRId64 ",\"group_cache_bytes\":%" PRId64
                   ",\"line_bytes\":%" PRId64 ",\"reserved_bytes\":%" PRId64
                   ",\"cache_bytes\":%" PRId64 ",\"cache_planned_bytes\":%" PRId64 "}",
                   position->epoch + 1, position->step, position->updates, unix_seconds(), seconds,
                   training > 0 ? (double)(timeline->steps - timeline->steps_then) / training : 0.0,
                   all.waiting - last->waiting, all.sparse - last->sparse, dense,
                   all.finish - last->finish, all.loss - last->loss, all.update - last->update,
                   all.evaluation - last->evaluation, all.saving - last->saving,
                   dense > 0 ? (all.dense_flops - last->dense_flops) / dense * 1e-9 : 0.0,
                   sample.rss_bytes, sample.anonymous_bytes, sample.group_bytes,
                   sample.group_cache_bytes, line_bytes == PLIM_LINE_NONE ? -1 : line_bytes,
                   plim__ledger_reserved(ledger), governor->target, governor->cache);
    timeline->at = now;
    timeline->steps_then = timeline->steps;
    timeline->spent = all;
    return plim__run_timeline(run, line);
}
