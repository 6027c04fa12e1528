#include "ingest/disk_space.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/file.h"
#include "mem/ledger.h"
#include "mem/size_text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

plim_status_t plim__disk_space_parent(const char *path, char parent_out[PATH_MAX])
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.200s…: the path is too long", path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    memcpy(parent_out, length == 0 ? "." : path, length == 0 ? 1 : length);
    parent_out[length == 0 ? 1 : length] = '\0';
    return PLIM_OK;
}

static plim_status_t refuse(const char *what, const char *path, int64_t needed, int64_t available)
{
    char need[PLIM__SIZE_TEXT];
    char have[PLIM__SIZE_TEXT];
    (void)plim__fail(PLIM_ERR_SPACE,
                     "%s in %s need %s of disk space, but %s are free; free some, or choose "
                     "another disk for the target, or for temporary files (`tmp`)",
                     what, path, plim__size_text(needed, need), plim__size_text(available, have));
    (void)plim__fail_file(PLIM_ERR_SPACE, path);
    return plim__fail_figures(PLIM_ERR_SPACE, "disk", needed, available);
}

/* Files in tmpfs or ramfs are memory of this job and must fit under the line. */
static plim_status_t check_memory(const plim_job_t *job, const plim__disk_space_t *space,
                                  const char *path, int64_t bytes)
{
    plim__file_system_t system;
    char need[PLIM__SIZE_TEXT];
    char have[PLIM__SIZE_TEXT];
    const int64_t available = plim__max_i64(plim__ledger_available(job->ledger), 0);
    if (plim__file_system(path, &system) != PLIM_OK || !system.memory)
        return PLIM_OK;
    plim__log(job, PLIM_LOG_WARNING, "%s is on %s: files there count as memory of this job", path,
              system.name);
    if (space->guessed || bytes <= available)
        return PLIM_OK;
    (void)plim__fail(
        PLIM_ERR_BUDGET,
        "%s is on %s, where files are memory: they need %s, but %s are left under the "
        "memory line; choose a disk for the target and for temporary files (`tmp`), or raise "
        "`memory`",
        path, system.name, plim__size_text(bytes, need), plim__size_text(available, have));
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", bytes, available);
}

static void log_space(const plim_job_t *job, const plim__disk_space_t *space, int64_t parent_free,
                      int64_t tmp_free)
{
    char texts[4][PLIM__SIZE_TEXT];
    const char *bound = space->guessed ? "about " : space->exact ? "" : "at least ";
    plim__log(job, PLIM_LOG_INFO,
              "disk%s%s: %s%s for the dataset in %s (%s free), %s%s for temporary files in %s (%s "
              "free)",
              space->what != NULL ? ", " : "", space->what != NULL ? space->what : "", bound,
              plim__size_text(space->dataset, texts[0]), space->parent,
              plim__size_text(parent_free, texts[1]), bound,
              plim__size_text(space->temporary, texts[2]), space->tmp,
              plim__size_text(tmp_free, texts[3]));
}

static plim_status_t compare(const plim__disk_space_t *space, bool shared, int64_t parent_free,
                             int64_t tmp_free)
{
    if (shared)
        return space->together > parent_free ? refuse("the dataset and its temporary files",
                                                      space->parent, space->together, parent_free)
                                             : PLIM_OK;
    if (space->dataset > parent_free)
        return refuse("the dataset's files", space->parent, space->dataset, parent_free);
    return space->temporary > tmp_free
               ? refuse("temporary files", space->tmp, space->temporary, tmp_free)
               : PLIM_OK;
}

plim_status_t plim__disk_space_check(const plim_job_t *job, const plim__disk_space_t *space)
{
    int64_t parent_free;
    int64_t tmp_free;
    struct stat parent_status;
    struct stat tmp_status;
    if (stat(space->parent, &parent_status) != 0)
        return plim__fail_errno(errno, "%s", space->parent);
    if (stat(space->tmp, &tmp_status) != 0)
        return plim__fail_errno(errno, "%s", space->tmp);
    PLIM_TRY(plim__file_space(space->parent, &parent_free));
    PLIM_TRY(plim__file_space(space->tmp, &tmp_free));
    log_space(job, space, parent_free, tmp_free);
    if (!space->guessed)
        PLIM_TRY(plim__file_size_allowed(space->parent, space->largest));
    bool shared = parent_status.st_dev == tmp_status.st_dev;
    plim_status_t status = compare(space, shared, parent_free, tmp_free);
    if (status == PLIM_OK)
        status = check_memory(job, space, space->parent, shared ? space->together : space->dataset);
    if (status == PLIM_OK && !shared)
        status = check_memory(job, space, space->tmp, space->temporary);
    if (status == PLIM_OK || !space->guessed)
        return status;
    plim__log(job, PLIM_LOG_WARNING, "probably %s", plim_last_error());
    return PLIM_OK;
}
