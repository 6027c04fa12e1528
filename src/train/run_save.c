/* Checkpoints of a run: reserve disk space, write, read back. */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file exists in the run `run`, in its open directory or at its path (AT_FDCWD). Errors
 * other than its absence appear when it is opened. */
static plim_status_t find_file(int directory, const char *run, const char *name,
                               char path_out[PLIM__RUN_PATH], bool *found_out)
{
    struct stat about;
    PLIM_TRY(plim__run_path(run, name, path_out));
    *found_out = fstatat(directory, directory == AT_FDCWD ? path_out : name, &about, 0) == 0 ||
                 errno != ENOENT;
    return PLIM_OK;
}

/* Number of drafts to keep between two saves. */
static int wanted_drafts(bool found)
{
    return found ? 1 : 2;
}

/* Drafts of one of the two files that every save replaces. */
static plim__run_drafts_t *drafts_of(plim__run_t *run, bool best)
{
    return best ? &run->best : &run->last;
}

/* Computes the maximum bytes of the file, its path, and whether it exists. */
static plim_status_t look_at(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             bool best, char path_out[PLIM__RUN_PATH], bool *found_out,
                             int64_t *bytes_out)
{
    PLIM_TRY(find_file(run->directory, run->path, best ? PLIM__RUN_BEST : PLIM__RUN_LAST, path_out,
                       found_out));
    return plim__checkpoint_most(&run->checkpoint, path_out, parameters, count, !best, bytes_out);
}

static plim_status_t reserve(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             bool best)
{
    plim__run_drafts_t *drafts = drafts_of(run, best);
    char path[PLIM__RUN_PATH];
    int64_t bytes;
    bool found;
    PLIM_TRY(look_at(run, parameters, count, best, path, &found, &bytes));
    while (drafts->count < wanted_drafts(found)) {
        if (drafts->count > 0 && drafts->draft[0].partial[0] != '\0')
            break; /* a named draft: there can be only one */
        plim__draft_t *draft = &drafts->draft[drafts->count];
        const plim_status_t status = plim__draft_open(run->directory, path, true, bytes, draft);
        if (status != PLIM_OK) {
            plim__draft_close(draft);
            return status;
        }
        drafts->count++;
    }
    return PLIM_OK;
}

/* Whether saving can open enough files (ulimit -n). */
static plim_status_t check_descriptors(const plim__run_t *run)
{
    int fds[4], count = 0, error = 0;
    while (count < 4 && error == 0) {
        fds[count] = fcntl(run->metrics.file.fd, F_DUPFD_CLOEXEC, 0);
        if (fds[count] < 0)
            error = errno;
        else
            count++;
    }
    while (count > 0)
        (void)close(fds[--count]);
    return error == 0 ? PLIM_OK
                      : plim__fail_errno(error, "%s: checkpoints could not be saved", run->path);
}

/* Compares the free space with the sum of all missing drafts: without fallocate each of them alone
 * would seem to fit. */
static plim_status_t check_space(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                 bool best)
{
    char path[PLIM__RUN_PATH];
    int64_t sum = 0, bytes;
    bool found;
    for (int file = 0; file <= (best ? 1 : 0); file++) {
        PLIM_TRY(look_at(run, parameters, count, file == 1, path, &found, &bytes));
        for (int i = drafts_of(run, file == 1)->count; i < wanted_drafts(found); i++)
            sum = plim__add_saturating_i64(sum, bytes);
    }
    return plim__file_check_space(run->path, sum, run->path, "its checkpoints need",
                                  "free some, or choose a directory on another disk");
}

plim_status_t plim__run_reserve(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                bool best)
{
    PLIM_TRY(check_space(run, parameters, count, best));
    PLIM_TRY(reserve(run, parameters, count, false));
    if (best)
        PLIM_TRY(reserve(run, parameters, count, true));
    return check_descriptors(run);
}

void plim__run_release(plim__run_t *run)
{
    while (run->last.count > 0)
        plim__draft_close(&run->last.draft[--run->last.count]);
    while (run->best.count > 0)
        plim__draft_close(&run->best.draft[--run->best.count]);
}

/* Finds a draft to write into: a reserved one, else a new one, for which disk space may be
 * missing. */
static plim_status_t find_draft(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                bool best, plim__draft_t **draft_out)
{
    plim__run_drafts_t *drafts = drafts_of(run, best);
    if (drafts->count == 0) {
        const plim_status_t status = reserve(run, parameters, count, best);
        if (status != PLIM_OK && drafts->count == 0)
            return status == PLIM_ERR_SPACE ? PLIM_ERR_DISK : status;
    }
    *draft_out = &drafts->draft[drafts->count - 1];
    return PLIM_OK;
}

plim_status_t plim__run_save(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             plim__position_t *position)
{
    plim__draft_t *draft;
    PLIM_TRY(plim__file_sync(&run->metrics.file));
    position->metrics_bytes = run->metrics.file.size;
    position->metrics_crc = run->metrics.crc;
    PLIM_TRY(find_draft(run, parameters, count, false, &draft));
    run->last.count--;
    const plim_status_t status =
        plim__checkpoint_write(&run->checkpoint, draft, parameters, count, position, true);
    plim__draft_close(draft);
    return status;
}

plim_status_t plim__run_rehearse_save(plim__run_t *run, const plim__parameter_t *parameters,
                                      int count, const plim__position_t *position)
{
    plim__draft_t *draft;
    PLIM_TRY(find_draft(run, parameters, count, false, &draft));
    return plim__checkpoint_write(&run->checkpoint, draft, parameters, count, position, false);
}

plim_status_t plim__run_save_best(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                  const plim__position_t *position)
{
    plim__draft_t *draft;
    PLIM_TRY(find_draft(run, parameters, count, true, &draft));
    run->best.count--;
    const plim_status_t status =
        plim__checkpoint_write_best(&run->checkpoint, draft, parameters, count, position);
    plim__draft_close(draft);
    return status;
}

bool plim__run_is_saved(const plim__run_t *run)
{
    char path[PLIM__RUN_PATH];
    bool found;
    return find_file(run->directory, run->path, PLIM__RUN_LAST, path, &found) == PLIM_OK && found;
}

plim_status_t plim__run_position(const plim_job_t *job, int directory, const char *path,
                                 plim__position_t *position_out, bool *found_out)
{
    char last[PLIM__RUN_PATH];
    PLIM_TRY(find_file(directory, path, PLIM__RUN_LAST, last, found_out));
    return *found_out ? plim__checkpoint_position(job, directory, last, position_out) : PLIM_OK;
}

plim_status_t plim__run_load(plim__run_t *run, plim__parameter_t *parameters, int count,
                             plim__position_t *position_out, bool *found_out)
{
    char path[PLIM__RUN_PATH];
    plim__position_t position = PLIM__POSITION_INIT;
    bool found;
    PLIM_TRY(find_file(run->directory, run->path, PLIM__RUN_LAST, path, &found));
    if (found)
        PLIM_TRY(plim__checkpoint_read(&run->checkpoint, run->directory, path, parameters, count,
                                       &position));
    const uint32_t crc = (uint32_t)position.metrics_crc;
    PLIM_TRY(plim__run_lines_cut(&run->metrics, position.metrics_bytes,
                                 position.metrics_crc >= 0 ? &crc : NULL));
    *position_out = position;
    *found_out = found;
    return PLIM_OK;
}

plim_status_t plim__run_load_best(const plim__run_t *run, int64_t epoch,
                                  plim__parameter_t *parameters, int count)
{
    char path[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(run->path, PLIM__RUN_BEST, path));
    return plim__checkpoint_weights(run->job, run->directory, path, epoch, parameters, count);
}

plim_status_t plim__run_weights(const plim_job_t *job, int directory, const char *run,
                                const char *weights, plim__parameter_t *parameters, int count)
{
    char path[PLIM__RUN_PATH];
    bool found = false;
    if (weights == NULL) {
        PLIM_TRY(find_file(directory, run, PLIM__RUN_BEST, path, &found));
        if (!found)
            PLIM_TRY(find_file(directory, run, PLIM__RUN_LAST, path, &found));
        if (!found)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s has no weights yet (neither %s nor %s); train it first, or name "
                              "a file of weights",
                              run, PLIM__RUN_BEST, PLIM__RUN_LAST);
        weights = path;
    }
    if (access(weights, F_OK) != 0 && errno == ENOENT)
        return plim__fail(PLIM_ERR_USAGE, "there is no file %s; name a file of weights", weights);
    PLIM_TRY(plim__checkpoint_weights(job, directory, weights, 0, parameters, count));
    for (int i = 0; i < count; i++)
        for (int64_t j = 0; j < parameters[i].count; j++)
            if (!isfinite(parameters[i].value[j]))
                return plim__fail(PLIM_ERR_DIVERGED,
                                  "%s: %s is not finite at value %lld: training has diverged; "
                                  "take other `%s`, or train with a lower learning rate (`rate`)",
                                  weights, parameters[i].name, (long long)j,
                                  run[0] == '\0' ? "init" : "weights");
    return PLIM_OK;
}
