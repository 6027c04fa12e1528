/*
 * Copies a dataset to a local disk: file by file through the writer, whose checksums are compared
 * with dataset.json, and committed as a whole. Scratch disks are shared: each user has a copy, only
 * the owner can write it, and a copy that others could have written is refused.
 *
 * Of several ranks, rank 0 alone reads the dataset and sends each chunk to all; the first rank of
 * each node that has no copy yet writes one. An error of one rank ends all at the same chunk.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/commit.h"
#include "io/reader.h"
#include "mem/arena.h"
#include "peers/peers.h"
#include "store/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER ((size_t)2 << 20)
#define NAP_NS 200000000 /* between looks at a copy that another job makes */
#define OTHERS ((mode_t)(S_IWGRP | S_IWOTH))

typedef struct staging {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    plim__peers_t *peers;
    bool reads;    /* this rank reads the dataset: rank 0 */
    bool has_copy; /* this node has a copy that was verified */
    bool writes;   /* this rank writes its node's copy: the first rank of a node */
    plim__staging_t directory;
    plim__arena_t arena;
    char *chunk; /* BUFFER bytes */
    char from[PATH_MAX];
    char to[PATH_MAX];
    int64_t copied;
} staging_t;

static plim_status_t agree(const staging_t *staging, plim_status_t status)
{
    return plim__peers_agree(staging->peers, PLIM__STAGE_STAGING, status, 0, NULL, NULL, NULL);
}

static plim_status_t read_chunk(const staging_t *staging, plim__reader_t *reader, size_t size)
{
    for (size_t at = 0, got; at < size; at += got) {
        PLIM_TRY(reader->read(reader, staging->chunk + at, size - at, &got));
        if (got == 0)
            return plim__fail(PLIM_ERR_DATA, "%s became shorter while it was copied",
                              staging->from);
    }
    return PLIM_OK;
}

/* `entry` is NULL for a file without checksums. */
static plim_status_t compare(const staging_t *staging, const plim__manifest_file_t *entry,
                             int64_t size, const uint64_t *checksums, int64_t num_checksums)
{
    if (entry == NULL)
        return PLIM_OK;
    if (size != entry->bytes || num_checksums != entry->num_checksums)
        return plim__fail(PLIM_ERR_DATA, "%s has %lld bytes, but dataset.json says %lld",
                          staging->from, (long long)size, (long long)entry->bytes);
    for (int64_t i = 0; i < num_checksums; i++)
        if (checksums[i] != entry->checksums[i])
            return plim__fail(
                PLIM_ERR_DATA,
                "%s is damaged between byte %lld and %lld: the checksum does not match "
                "dataset.json; copy or make the dataset again",
                staging->from, (long long)(i * PLIM__CHECKSUM_BYTES),
                (long long)((i + 1) * PLIM__CHECKSUM_BYTES));
    return PLIM_OK;
}

/* Removes write permission for others from a new file of the copy, for any umask. */
static plim_status_t keep_others_out(const staging_t *staging, const char *name)
{
    const int directory = staging->directory.directory;
    struct stat about;
    if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return plim__fail_errno(errno, "cannot stat %s", staging->to);
    if ((about.st_mode & OTHERS) != 0 &&
        fchmodat(directory, name, about.st_mode & ~(OTHERS | S_IFMT), 0) != 0)
        return plim__fail_errno(errno, "%s: cannot remove write permission for others",
                                staging->to);
    return PLIM_OK;
}

/* Finishes the file of this rank's copy and compares its checksums. */
static plim_status_t finish_file(const staging_t *staging, plim__writer_t *writer,
                                 const plim__manifest_file_t *entry)
{
    int64_t size, num_checksums;
    const uint64_t *checksums;
    PLIM_TRY(plim__writer_finish(writer, &size, &checksums, &num_checksums));
    return compare(staging, entry, size, checksums, num_checksums);
}

/* `status` is this rank's so far; all ranks return at the same chunk. */
static plim_status_t pump(staging_t *staging, plim_status_t status, plim__reader_t *reader,
                          plim__writer_t *writer, const plim__manifest_file_t *entry)
{
    const int64_t total = plim_dataset_info(staging->dataset)->bytes;
    int64_t left = staging->reads && status == PLIM_OK ? reader->size : 0;
    PLIM_TRY(plim__peers_agree(staging->peers, PLIM__STAGE_STAGING, status, 1, &left, NULL, &left));
    for (;;) {
        const size_t size = (size_t)plim__min_i64(left, (int64_t)BUFFER);
        if (status == PLIM_OK && staging->reads && size > 0)
            status = read_chunk(staging, reader, size);
        if (status == PLIM_OK && staging->writes && size == 0)
            status = finish_file(staging, writer, entry);
        if (status == PLIM_OK)
            status = plim__job_check(staging->job);
        PLIM_TRY(agree(staging, status));
        if (size == 0)
            return PLIM_OK;
        PLIM_TRY(
            plim__peers_broadcast(staging->peers, PLIM__STAGE_STAGING, 0, staging->chunk, size));
        if (staging->writes)
            status = plim__writer_write(writer, staging->chunk, size);
        left -= (int64_t)size;
        staging->copied += (int64_t)size;
        plim__progress(staging->job, "copying to scratch", "bytes", staging->copied, total);
    }
}

static plim_status_t copy_file(staging_t *staging, const char *name, int64_t most,
                               const plim__manifest_file_t *entry)
{
    plim__reader_t *reader = NULL;
    plim__writer_t *writer = NULL;
    plim_status_t status =
        plim__file_path(staging->from, plim__dataset_path(staging->dataset), name);
    if (status == PLIM_OK && staging->reads)
        status = plim__reader_file(staging->job, staging->from, BUFFER, &reader);
    if (status == PLIM_OK && staging->writes)
        status = plim__file_path(staging->to, staging->directory.path, name);
    if (status == PLIM_OK && staging->writes)
        status = plim__writer_create(staging->job, staging->directory.directory, staging->to,
                                     BUFFER, most, &writer);
    if (status == PLIM_OK && staging->writes)
        status = keep_others_out(staging, name);
    status = pump(staging, status, reader, writer, entry);
    plim__writer_destroy(writer);
    if (reader != NULL)
        plim__reader_close(reader);
    return status;
}

/*
 * Whether the copy exists. An incomplete one is an error and is not removed: another process may be
 * reading it, or it may be something else.
 */
static plim_status_t find_copy(const plim_job_t *job, const plim_dataset_t *dataset,
                               const char *path, bool *found_out)
{
    plim_dataset_t *copy;
    struct stat about;
    *found_out = lstat(path, &about) == 0;
    if (!*found_out)
        return PLIM_OK;
    plim_status_t status = plim_dataset_open_copy(job, dataset, path, &copy);
    if (status == PLIM_ERR_DATA || status == PLIM_ERR_IO)
        return plim__fail_prefix(
            status,
            "the copy in scratch cannot be used; remove %s, and it is copied again, or choose "
            "another `scratch` directory",
            path);
    PLIM_TRY(status);
    /* Scratch disks are not backed up: verify the whole copy. */
    status = plim_dataset_verify(job, copy);
    if (status == PLIM_ERR_DATA)
        status = plim__fail_prefix(
            status, "the copy in scratch is damaged; remove %s, and it is copied again", path);
    plim_dataset_release(copy);
    return status;
}

/* Files in a memory file system count as memory as long as the ledger lasts. */
static plim_status_t charge_memory(const plim_job_t *job, const char *directory, int64_t bytes,
                                   int *account_out, size_t *charged_out)
{
    plim__file_system_t system;
    *charged_out = 0;
    PLIM_TRY(plim__file_system(directory, &system));
    if (!system.memory)
        return PLIM_OK;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "scratch", (size_t)bytes, account_out));
    *charged_out = (size_t)bytes;
    return PLIM_OK;
}

static plim_status_t check_space(const plim__manifest_t *manifest, const char *directory,
                                 int64_t needed)
{
    char path[PATH_MAX];
    for (int i = 0; i < manifest->num_files; i++) {
        PLIM_TRY(plim__file_path(path, directory, manifest->files[i].name));
        PLIM_TRY(plim__file_size_allowed(path, manifest->files[i].bytes));
    }
    return plim__file_check_space(directory, needed, directory, "a copy of the dataset needs",
                                  "choose another `scratch` directory");
}

static plim_status_t copy_all(staging_t *staging)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(staging->dataset);
    for (int i = 0; i < manifest->num_files; i++)
        PLIM_TRY(copy_file(staging, manifest->files[i].name, manifest->files[i].bytes,
                           &manifest->files[i]));
    return copy_file(staging, PLIM__MANIFEST_NAME, (int64_t)PLIM__MANIFEST_BYTES, NULL);
}

/* Finds this node's copy, or begins one; neither while another job, or a rank of this one with the
 * same directory, is making it. The space is checked only for a copy of our own, and after one that
 * a killed job left was removed. */
static plim_status_t find_or_begin(staging_t *staging, const char *directory, const char *target)
{
    const plim_dataset_info_t *info = plim_dataset_info(staging->dataset);
    PLIM_TRY(find_copy(staging->job, staging->dataset, target, &staging->has_copy));
    if (staging->has_copy)
        return PLIM_OK;
    bool taken = false;
    const plim_status_t status = plim__staging_try(target, &staging->directory, &taken);
    if (status != PLIM_OK)
        return taken ? PLIM_OK : status;
    staging->writes = true;
    staging->directory.permissions &= ~OTHERS;
    return check_space(plim__dataset_manifest(staging->dataset), directory,
                       info->bytes + (int64_t)PLIM__PAGE);
}

/* Sends the dataset to all ranks; those that write one commit their copy. */
static plim_status_t make_copies(staging_t *staging)
{
    plim_status_t status =
        plim__arena_create(staging->job->ledger, "staging", BUFFER, &staging->arena);
    status = agree(staging, status);
    if (status == PLIM_OK) {
        staging->chunk = plim__arena_carve(&staging->arena, BUFFER, 1, 1);
        status = copy_all(staging);
    }
    plim__arena_destroy(&staging->arena);
    PLIM_TRY(status);
    if (staging->writes)
        status = plim__staging_commit(&staging->directory);
    staging->has_copy = staging->has_copy || (staging->writes && status == PLIM_OK);
    staging->writes = staging->writes && status != PLIM_OK;
    return agree(staging, status);
}

/* Copies and waits until every node has its copy. `status` is this rank's so far. */
static plim_status_t stage(staging_t *staging, plim_status_t status, const char *directory,
                           const char *target)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const char *fingerprint = plim_dataset_info(staging->dataset)->fingerprint;
    bool logged = false;
    for (;;) {
        if (status == PLIM_OK && !staging->has_copy)
            status = find_or_begin(staging, directory, target);
        if (status == PLIM_OK)
            status = plim__job_check(staging->job);
        int64_t numbers[3] = {(int64_t)strtoull(fingerprint, NULL, 16), staging->has_copy,
                              staging->writes};
        int64_t least[3], greatest[3];
        PLIM_TRY(plim__peers_agree(staging->peers, PLIM__STAGE_STAGING, status, 3, numbers, least,
                                   greatest));
        if (least[0] != greatest[0])
            return plim__fail(PLIM_ERR_USAGE,
                              "%s is not the same dataset on all nodes; give a path that all share",
                              plim__dataset_path(staging->dataset));
        if (least[1] == 1)
            return PLIM_OK;
        if (greatest[2] == 1) {
            PLIM_TRY(make_copies(staging));
            continue;
        }
        if (!logged)
            plim__log(staging->job, PLIM_LOG_INFO,
                      "another job is copying the dataset to %s: waiting for it", directory);
        logged = true;
        (void)nanosleep(&nap, NULL);
    }
}

PLIM_API plim_status_t plim_dataset_stage(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const char *directory, char path_out[PLIM_PATH_MAX])
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char name[64];
    char target[PLIM_PATH_MAX];
    staging_t staging = {.job = job, .dataset = dataset};
    int account;
    size_t charged = 0;
    (void)snprintf(name, sizeof name, "plimsoll-%s-%ld", info->fingerprint, (long)geteuid());
    PLIM_TRY(plim__file_path(target, directory, name));
    PLIM_TRY(plim__peers_open(job, &staging.peers));
    staging.reads = plim__peers_rank(staging.peers) == 0;
    staging.has_copy = job->core->transport.local_rank > 0; /* the first rank of the node has */
    plim_status_t status = PLIM_OK;
    if (!staging.has_copy)
        status = charge_memory(job, directory, info->bytes, &account, &charged);
    status = stage(&staging, status, directory, target);
    if (status != PLIM_OK && staging.writes)
        plim__staging_abandon(&staging.directory);
    if (status != PLIM_OK && charged > 0)
        plim__ledger_release(job->ledger, account, charged);
    plim__peers_close(staging.peers);
    if (status == PLIM_OK)
        memcpy(path_out, target, sizeof target);
    return status;
}
