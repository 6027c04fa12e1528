/* Loader and trainer of a run: opening them at a saved position, and planning them again while it
 * trains. */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "mem/headroom.h"
#include "mem/kernel_text.h"
#include "mem/size_text.h"
#include "plan/plan_settings.h"
#include "train/loop.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* After replanning, a run returns to its first plan once that has fitted for this long. */
#define FITS_NS ((int64_t)5000000000)
#define FITS_CHECK_NS ((int64_t)1000000000)

/* Before replanning, a run waits until free memory falls by less than this in this time. */
#define FALLING_BYTES ((int64_t)1 << 20)
#define FALLING_NS 100000000L

/* A run ends after this many plans in a row without an update. */
#define REPLANS_MAX 8

/* Counts labelled seeds, and refuses splits that cannot be trained on or compared. */
static plim_status_t look_at_labels(plim__loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    const char *path = plim__dataset_path(loop->dataset);
    plim__session_count_labels(session, loop->loader);
    if (session->labelled[PLIM_TRAIN] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: none of the %lld seeds of its training split has a label; import "
                          "labels for them, or another split",
                          path, (long long)session->info->num_split[PLIM_TRAIN]);
    if (loop->training->patience > 0 && session->labelled[PLIM_VALID] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: no seed of its validation split has a label, so `patience` has "
                          "nothing to compare; leave it out",
                          path);
    if (loop->saved_step < 0) /* else a start before has warned */
        plim__session_warn_labels(session, PLIM_SPLITS_ALL);
    return PLIM_OK;
}

/* Sets the number of seeds in a part, and logs a change. */
static void set_part_seeds(plim__loop_t *loop, const plim__load_plan_t *plan, bool resumed)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    plim__position_t *position = &loop->trainer->position;
    const int64_t whole = plim__train_part_seeds(info, loop->training, 0);
    const int64_t part = plim__train_part_seeds(info, loop->training, plan->part_seeds);
    const int64_t before = position->part_seeds;
    position->part_seeds = part < whole ? part : 0;
    position->part_nodes = plan->part_nodes;
    position->part_edges = plan->part_edges;
    loop->guessed = plan->guessed;
    if (resumed && before != position->part_seeds)
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "%s was computed %lld seeds at a time, now it is %lld: the last bits of results "
                  "may differ from those of an uninterrupted run",
                  loop->path, (long long)(before > 0 ? before : whole), (long long)part);
}

static void close_loader(plim__loop_t *loop)
{
    plim_stream_release(loop->stream);
    plim_loader_release(loop->loader);
    loop->stream = NULL;
    loop->loader = NULL;
}

/* Opens the stream of this rank's shares of the training split. */
static plim_status_t open_stream(plim__loop_t *loop)
{
    plim_links_t links;
    plim_stream_params_t params = plim__plan_settings_stream(loop->training, &links);
    const plim__share_range_t range = plim__share_range(
        loop->training->shares, plim__peers_rank(loop->peers), plim__peers_num_ranks(loop->peers));
    params.batch_size = loop->training->recipe.batch_size;
    params.num_shares = (int)loop->training->shares;
    params.share = (int)range.begin;
    params.share_count = range.end - range.begin;
    PLIM_TRY(plim_loader_stream(loop->loader, &params, &loop->stream));
    loop->steps = plim__stream_steps(loop->stream);
    return PLIM_OK;
}

void plim__loop_close(plim__loop_t *loop)
{
    close_loader(loop);
    plim_trainer_release(loop->trainer);
    loop->trainer = NULL;
}

plim_status_t plim__loop_share_weights(plim__loop_t *loop)
{
    const plim__model_arrays_t *arrays = &loop->trainer->arrays;
    PLIM_TRY(plim__session_share_weights(loop->peers, PLIM__STAGE_CHECKPOINT, arrays));
    plim_trainer_changed(loop->trainer);
    return PLIM_OK;
}

/* Takes rank 0's position. Its truth values travel as numbers, and its numbers are checked. */
static plim_status_t share_position(const plim__loop_t *loop, plim__position_t *position,
                                    bool *found)
{
    struct {
        plim__position_t position; /* its truth values are not used */
        int64_t found, scored;
    } sent = {*position, *found, position->scored};
    sent.position.ended = sent.position.scored = false;
    PLIM_TRY(plim__peers_broadcast(loop->peers, PLIM__STAGE_CHECKPOINT, 0, &sent, sizeof sent));
    memset(&sent.position.ended, 0, sizeof sent.position.ended);
    memset(&sent.position.scored, 0, sizeof sent.position.scored);
    if (sent.position.epoch < 0 || sent.position.step < 0 || sent.position.updates < 0 ||
        sent.position.part_seeds < 0 || sent.position.best_epoch < 0)
        return plim__fail(PLIM_ERR_DATA, "rank 0 sent an impossible position in the run");
    *position = sent.position;
    position->scored = sent.scored == 1;
    *found = sent.found == 1;
    return PLIM_OK;
}

plim_status_t plim__loop_load(plim__loop_t *loop, bool *found_out)
{
    const plim__session_t *session = &loop->trainer->session;
    const plim__model_arrays_t *arrays = &loop->trainer->arrays;
    plim__position_t position = PLIM__POSITION_INIT;
    bool found = false;
    plim_status_t status = PLIM_OK;
    if (loop->run != NULL && loop->saved_step >= 0 && !plim__run_is_saved(loop->run))
        status = plim__fail(PLIM_ERR_IO,
                            "%s: its checkpoint %s was removed while it trained, so its position "
                            "is lost; train it again",
                            loop->path, PLIM__RUN_LAST);
    else if (loop->run != NULL)
        status = plim__run_load(loop->run, session->parameters, session->num_parameters, &position,
                                &found);
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_CHECKPOINT, status));
    PLIM_TRY(share_position(loop, &position, &found));
    *found_out = found;
    if (!found)
        return PLIM_OK;
    for (int i = 0; i < 2; i++)
        PLIM_TRY(plim__session_share_array(loop->peers, PLIM__STAGE_CHECKPOINT, arrays->moment[i],
                                           arrays->num_weights));
    PLIM_TRY(plim__loop_share_weights(loop));
    loop->saved_step = position.step;
    loop->saved_epoch = position.epoch;
    position.ended = plim__position_ends(&position, loop->training);
    plim__trainer_restored(loop->trainer, &position);
    return PLIM_OK;
}

/* Creates loader and trainer of this rank. */
static plim_status_t open_own(plim__loop_t *loop, const plim__train_plan_t *plan, bool resume)
{
    plim_training_t training = *loop->training;
    if (loop->run == NULL || loop->saved_step >= 0 || (resume && plim__run_is_saved(loop->run)))
        training.init = NULL; /* the checkpoint, or rank 0, has the weights */
    loop->current = *plan;
    PLIM_TRY(plim__loader_create(loop->job, loop->dataset, &plan->load, &loop->loader));
    plim__loader_yield(loop->loader, true);
    loop->missing = loop->plan->total - plan->total;
    loop->fits_since = 0;
    PLIM_TRY(plim__trainer_create(loop->job, loop->dataset, &training, plan, loop->events,
                                  loop->user, &loop->trainer));
    if (training.task == PLIM_TASK_LABELS)
        PLIM_TRY(look_at_labels(loop));
    PLIM_TRY(open_stream(loop));
    loop->governed = 0;
    loop->rehearsed = loop->retargeted = false;
    return PLIM_OK;
}

plim_status_t plim__loop_open(plim__loop_t *loop, const plim__train_plan_t *plan, bool resume,
                              bool *found_out)
{
    *found_out = false;
    plim__loop_close(loop);
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_START, open_own(loop, plan, resume)));
    PLIM_TRY(plim__trainer_connect(loop->trainer, loop->peers));
    if (resume)
        PLIM_TRY(plim__loop_load(loop, found_out));
    if (!*found_out && loop->peers != NULL)
        PLIM_TRY(plim__loop_share_weights(loop)); /* rank 0 may have read its first weights */
    set_part_seeds(loop, &plan->load, *found_out);
    return PLIM_OK;
}

/* Bytes that this process can still allocate under its limits, beside other processes, and under
 * its line. */
static int64_t headroom_of(const plim__loop_t *loop)
{
    const int64_t line = plim__ledger_line(loop->job->ledger);
    const int64_t by_line =
        line == PLIM_LINE_NONE ? INT64_MAX : line - plim__kernel_own_bytes("", "VmRSS");
    return plim__min_i64(plim__headroom(""), by_line);
}

bool plim__loop_fits_again(plim__loop_t *loop)
{
    const int64_t now = plim__clock_ns();
    if (loop->missing <= 0 || now < loop->next_look)
        return false;
    loop->next_look = now + FITS_CHECK_NS;
    if (headroom_of(loop) < loop->missing + plim__ledger_reserve_bytes(loop->job->ledger))
        loop->fits_since = 0;
    else if (loop->fits_since == 0)
        loop->fits_since = now;
    return loop->fits_since != 0 && now - loop->fits_since > FITS_NS;
}

/* Waits until the headroom stops falling, and returns it. */
static plim_status_t await_headroom(const plim__loop_t *loop, int64_t *bytes_out)
{
    const struct timespec nap = {.tv_nsec = FALLING_NS};
    int64_t before = INT64_MAX, now = headroom_of(loop);
    while (now < before - FALLING_BYTES) {
        (void)nanosleep(&nap, NULL);
        PLIM_TRY(plim__job_check(loop->job));
        before = now;
        now = headroom_of(loop);
    }
    *bytes_out = now;
    return PLIM_OK;
}

/* Plans for the memory that is free now, with the same cut; PLIM_ERR_STOPPED if that is impossible.
 * Loader and trainer are closed. */
static plim_status_t plan_again(const plim__loop_t *loop, const plim__position_t *position,
                                plim__train_plan_t *plan_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    const plim__load_plan_t *first = &loop->plan->load;
    const int64_t part = plim__train_part_seeds(info, loop->training, position->part_seeds);
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    char left[PLIM__SIZE_TEXT];
    int64_t headroom;
    PLIM_TRY(await_headroom(loop, &headroom));
    /* The reserve stays free. */
    wanted.memory = plim__max_i64(
        1, plim__add_saturating_i64(plim__ledger_reserved(loop->job->ledger), headroom) -
               plim__ledger_reserve_bytes(loop->job->ledger));
    wanted.part_seeds = position->part_seeds;
    wanted.part_nodes = position->part_nodes;
    wanted.part_edges = position->part_edges;
    wanted.scratch = first->scratch[0] != '\0' ? first->scratch : NULL;
    wanted.no_advice = true;
    const plim_status_t status =
        plim__train_plan(loop->job, loop->dataset, loop->training, &wanted, plan_out);
    if (status == PLIM_OK && loop->replans < REPLANS_MAX &&
        plim__train_part_seeds(info, loop->training, plan_out->load.part_seeds) == part)
        return PLIM_OK;
    if (status != PLIM_OK && status != PLIM_ERR_BUDGET)
        return status;
    return plim__fail(PLIM_ERR_STOPPED,
                      "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64
                      ": %s of memory are left for this run, too little to go on with the same "
                      "bits, %" PRId64 " seeds at a time; saved in %s",
                      position->epoch + 1, position->step, loop->steps,
                      plim__size_text(wanted.memory, left), part, loop->path);
}

/* Makes the plan by which this rank continues. Saves the run first, and closes loader and
 * trainer. */
static plim_status_t prepare_replan(plim__loop_t *loop, plim__train_plan_t *plan_out)
{
    const bool tight = plim__loader_governor(loop->loader)->tight;
    plim_trainer_discard(loop->trainer);
    loop->group_steps = 0;
    close_loader(loop); /* first: it holds the most memory */
    loop->replans = plim__loop_is_saved(loop) ? loop->replans + 1 : 0;
    if (!plim__loop_is_saved(loop))
        PLIM_TRY(plim__loop_save_and_reserve(loop));
    const plim__position_t position = loop->trainer->position;
    plim__loop_close(loop);
    *plan_out = loop->goes_back ? *loop->plan : loop->current;
    if (tight && !loop->goes_back)
        PLIM_TRY(plan_again(loop, &position, plan_out));
    loop->goes_back = false;
    return PLIM_OK;
}

plim_status_t plim__loop_replan(plim__loop_t *loop)
{
    plim__train_plan_t plan;
    char total[PLIM__SIZE_TEXT];
    bool found;
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_PLAN, prepare_replan(loop, &plan)));
    PLIM_TRY(plim__loop_open(loop, &plan, true, &found));
    const plim__position_t *position = &loop->trainer->position;
    plim__log(loop->job, PLIM_LOG_INFO,
              "new plan with a peak of %s at epoch %" PRId64 ", step %" PRId64
              "; the result stays the same",
              plim__size_text(plan.total, total), position->epoch + 1, position->step);
    if (loop->run == NULL)
        return PLIM_OK;
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    return plim__timeline_plan(&plan, loop->job, loop->began, false, loop->run);
}
