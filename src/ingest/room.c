#include "ingest/room.h"

#include "base/fail.h"
#include "base/job.h"
#include "io/file.h"
#include "mem/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

plim_status_t plim__room_parent(const char *path, char parent_out[PATH_MAX])
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

plim_status_t plim__room_refuse_memory(const plim_job_t *job, const char *source, const char *what,
                                       int64_t bytes)
{
    char line[PLIM__SIZE_TEXT];
    /* Whole MiB, and one to spare: the process itself differs by some pages from run to run. */
    int64_t least = (plim_ledger_reserved(job->ledger) + bytes) / MIB + 2;
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s: %s needs at least %" PRId64
                      " MiB in all, and the memory line is %s; give --memory %" PRId64 "M or more",
                      source, what, least, plim__size_text(plim_ledger_line(job->ledger), line),
                      least);
}

static plim_status_t refuse(const char *what, const char *path, int64_t needed, int64_t available)
{
    char need[PLIM__SIZE_TEXT];
    char have[PLIM__SIZE_TEXT];
    return plim__fail(PLIM_ERR_SPACE,
                      "%s in %s need %s of disk, %s are free; free some, or choose another disk "
                      "for the target or, with --tmp DIR, for temporary files",
                      what, path, plim__size_text(needed, need), plim__size_text(available, have));
}

static void warn_of_memory(const plim_job_t *job, const char *path)
{
    plim__file_system_t system;
    if (plim__file_system(path, &system) == PLIM_OK && system.memory)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s is on %s: what is written there counts as memory of this job", path,
                  system.name);
}

plim_status_t plim__room_check(const plim_job_t *job, const plim__room_t *room)
{
    char texts[4][PLIM__SIZE_TEXT];
    const char *least = room->exact ? "" : "at least ";
    int64_t parent_free;
    int64_t tmp_free;
    struct stat parent_status;
    struct stat tmp_status;
    if (stat(room->parent, &parent_status) != 0)
        return plim__fail_errno(errno, "%s", room->parent);
    if (stat(room->tmp, &tmp_status) != 0)
        return plim__fail_errno(errno, "%s", room->tmp);
    PLIM_TRY(plim__file_space(room->parent, &parent_free));
    PLIM_TRY(plim__file_space(room->tmp, &tmp_free));
    plim__log(job, PLIM_LOG_INFO,
              "disk: %s%s for the dataset in %s (%s free), %s%s for temporary files in %s (%s "
              "free)",
              least, plim__size_text(room->dataset, texts[0]), room->parent,
              plim__size_text(parent_free, texts[1]), least,
              plim__size_text(room->temporary, texts[2]), room->tmp,
              plim__size_text(tmp_free, texts[3]));
    warn_of_memory(job, room->parent);
    if (strcmp(room->parent, room->tmp) != 0)
        warn_of_memory(job, room->tmp);
    if (parent_status.st_dev == tmp_status.st_dev)
        return room->together > parent_free ? refuse("the dataset and its temporary files",
                                                     room->parent, room->together, parent_free)
                                            : PLIM_OK;
    if (room->dataset > parent_free)
        return refuse("the dataset's files", room->parent, room->dataset, parent_free);
    return room->temporary > tmp_free
               ? refuse("temporary files", room->tmp, room->temporary, tmp_free)
               : PLIM_OK;
}
