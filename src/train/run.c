/*
 * A run's directory: made, locked, opened again.
 *
 * The lock is flock() on a file that stays in the directory, so it ends with the process that holds
 * it, and network file systems see it on every node.
 */
#include "train/run.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/commit.h"
#include "store/manifest.h"
#include "train/run_internal.h"
#include "train/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_JSON "run.json"
#define LOCK_FILE ".lock"

_Static_assert(PATH_MAX <= PLIM_PATH_MAX, "what realpath gives fits");

plim_status_t plim__run_path(const char *directory, const char *name, char path_out[PLIM__RUN_PATH])
{
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/')
        length--;
    if (length + strlen(name) + 64 > PLIM_PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "'%.200s…' is too long a path for a run", directory);
    (void)snprintf(path_out, PLIM__RUN_PATH, "%.*s/%s", (int)length, directory, name);
    return PLIM_OK;
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* The text that the holder of the lock left there: where and who it is. */
static plim_status_t refuse_busy(int fd, const char *directory)
{
    char holder[128];
    ssize_t size = pread(fd, holder, sizeof holder - 1, 0);
    holder[size > 0 ? size : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return plim__fail(PLIM_ERR_USAGE,
                      "%s: another process is training this run%s%s; wait for it, or begin a run "
                      "in another directory",
                      directory, holder[0] != '\0' ? ": " : "", holder);
}

static plim_status_t lock(const plim_job_t *job, const char *directory, int *fd_out)
{
    char path[PLIM__RUN_PATH], host[64] = "", text[128], reason[128];
    PLIM_TRY(plim__run_path(directory, LOCK_FILE, path));
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        plim_status_t status = PLIM_OK;
        if (error == EWOULDBLOCK)
            status = refuse_busy(fd, directory);
        else
            plim__log(job, PLIM_LOG_WARNING,
                      "%s: its file system has no locks (%s), so nothing keeps a second job out",
                      directory, strerror_r(error, reason, sizeof reason));
        (void)close(fd);
        *fd_out = -1;
        return status;
    }
    (void)gethostname(host, sizeof host - 1);
    int length = snprintf(text, sizeof text, "process %ld on %.63s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
        (void)ftruncate(fd, 0); /* only words for others: the lock is what counts */
    *fd_out = fd;
    return PLIM_OK;
}

/* Removes what a process left that was killed while it gave a new file its name. */
static void remove_leftovers(const char *directory)
{
    static const char *const names[] = {"." PLIM__RUN_LAST ".partial",
                                        "." PLIM__RUN_BEST ".partial", "." RUN_JSON ".partial"};
    char path[PLIM_PATH_MAX + NAME_MAX + 2];
    const struct dirent *entry;
    DIR *list = opendir(directory);
    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strncmp(entry->d_name, names[i], strlen(names[i])) == 0) {
                (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
                (void)unlink(path);
            }
    (void)closedir(list);
}

static size_t arena_size(void)
{
    return plim__arena_piece(1, sizeof(plim__run_t), 1) +
           plim__arena_piece(PLIM__TENSORS_MAX, sizeof(plim__tensor_t), 1);
}

size_t plim__run_estimate(void)
{
    size_t files = plim__safetensors_estimate(PLIM__TENSORS_MAX);
    size_t json = plim__run_json_estimate();
    return plim__round_up(arena_size(), PLIM__PAGE) + (files > json ? files : json);
}

static plim_status_t make_run(const plim_job_t *job, const char *path,
                              const plim_dataset_info_t *dataset, const plim_training_t *training,
                              plim__run_t **run_out)
{
    plim__arena_t arena;
    char probe[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(path, "", probe));
    PLIM_TRY(plim__arena_create(job->ledger, PLIM__RUN_ACCOUNT, arena_size(), &arena));
    plim__run_t *run = plim__arena_carve(&arena, 1, sizeof *run, 1);
    run->tensors = plim__arena_carve(&arena, PLIM__TENSORS_MAX, sizeof *run->tensors, 1);
    run->arena = arena;
    run->job = job;
    run->lock_fd = run->metrics.fd = run->timeline.fd = -1;
    run->machine = plim__machine_here(job);
    run->training = *training;
    memcpy(run->fingerprint, dataset->fingerprint, sizeof run->fingerprint);
    memcpy(run->path, path, strlen(path) + 1);
    plim_status_t status =
        plim__run_json_settings(job, training, run->settings, sizeof run->settings);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    *run_out = run;
    return PLIM_OK;
}

void plim__run_close(plim__run_t *run)
{
    if (run == NULL)
        return;
    plim__run_release(run);
    plim__run_lines_close(&run->timeline);
    plim__run_lines_close(&run->metrics);
    if (run->lock_fd >= 0)
        (void)close(run->lock_fd);
    plim__arena_t arena = run->arena;
    plim__arena_destroy(&arena);
}

/* What create and open have in common, once run.json and `run` agree. */
static plim_status_t open_lines(plim__run_t *run)
{
    PLIM_TRY(plim__run_path(run->path, "metrics.jsonl", run->metrics.path));
    PLIM_TRY(plim__run_path(run->path, "timeline.jsonl", run->timeline.path));
    PLIM_TRY(plim__run_lines_open(&run->metrics));
    return plim__run_lines_open(&run->timeline);
}

static plim_status_t refuse_existing(const char *path)
{
    static const char *const names[] = {RUN_JSON, PLIM__RUN_LAST, PLIM__RUN_BEST};
    char file[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(path, PLIM__MANIFEST_NAME, file));
    if (exists(file))
        return plim__fail(PLIM_ERR_USAGE, "%s is a dataset; choose another directory for the run",
                          path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        PLIM_TRY(plim__run_path(path, names[i], file));
        if (exists(file))
            return plim__fail(PLIM_ERR_USAGE,
                              "%s holds a run already (%s); resume it with --resume %s, or choose "
                              "another directory",
                              path, names[i], path);
    }
    return PLIM_OK;
}

void plim__run_discard(plim__run_t *run)
{
    static const char *const names[] = {RUN_JSON, "metrics.jsonl", "timeline.jsonl", LOCK_FILE};
    char path[PLIM__RUN_PATH];
    plim__run_release(run);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (plim__run_path(run->path, names[i], path) == PLIM_OK)
            (void)unlink(path);
    if (run->made)
        (void)rmdir(run->path);
}

/* All files of a new run, run.json last: only with it there is one. */
static plim_status_t write_files(plim__run_t *run, const plim__run_json_t *about)
{
    char path[PLIM__RUN_PATH], parent[PLIM__RUN_PATH];
    PLIM_TRY(open_lines(run));
    PLIM_TRY(plim__run_lines_cut(&run->metrics, 0));
    PLIM_TRY(plim__run_lines_cut(&run->timeline, 0));
    PLIM_TRY(plim__run_path(run->path, RUN_JSON, path));
    PLIM_TRY(plim__run_json_write(run->job, path, about));
    PLIM_TRY(plim__run_path(run->path, "..", parent));
    return plim__sync_directory(parent);
}

/* The directory, once it is known to be nobody else's. */
static plim_status_t create_files(plim__run_t *run, const char *dataset_path)
{
    plim__run_json_t about = {.machine = run->machine, .training = run->training};
    memcpy(about.fingerprint, run->fingerprint, sizeof about.fingerprint);
    if (realpath(dataset_path, about.dataset) == NULL)
        return plim__fail_errno(errno, "cannot find the dataset %s", dataset_path);
    run->made = mkdir(run->path, 0777) == 0;
    if (!run->made && errno != EEXIST)
        return plim__fail_errno(errno, "cannot create the directory %s", run->path);
    PLIM_TRY(refuse_existing(run->path));
    PLIM_TRY(lock(run->job, run->path, &run->lock_fd));
    PLIM_TRY(refuse_existing(run->path)); /* another job may have made it before we had the lock */
    const plim_status_t status = write_files(run, &about);
    if (status != PLIM_OK)
        plim__run_discard(run);
    return status;
}

plim_status_t plim__run_create(const plim_job_t *job, const char *path, const char *dataset_path,
                               const plim_dataset_info_t *dataset, const plim_training_t *training,
                               plim__run_t **run_out)
{
    plim__run_t *run;
    PLIM_TRY(make_run(job, path, dataset, training, &run));
    plim_status_t status = create_files(run, dataset_path);
    if (status != PLIM_OK) {
        plim__run_close(run);
        return status;
    }
    *run_out = run;
    return PLIM_OK;
}

/* Whether the run may go on from where it stands. */
static plim_status_t compare(const plim__run_t *run, const plim_training_t *before,
                             const char *path)
{
    const plim_training_t *now = &run->training;
    plim__position_t position = PLIM__POSITION_INIT;
    bool found;
    PLIM_TRY(plim__run_position(run->job, run->path, &position, &found));
    PLIM_TRY(
        plim__settings_compare(before, now, plim__position_begun(&position), PLIM_ERR_USAGE, path));
    if (now->epochs > before->epochs && plim__position_ends(&position, now))
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: patience ended the run at epoch %lld, after %lld evaluations without "
            "a better one, so more epochs alone change nothing; give it more "
            "patience, or 0 for no such end",
            run->path, (long long)position.epoch, (long long)position.waited);
    return PLIM_OK;
}

/* run.json under the lock, compared; what may change is written down. */
static plim_status_t open_files(plim__run_t *run)
{
    plim__run_json_t about;
    char path[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(run->path, RUN_JSON, path));
    if (!exists(path))
        return plim__fail(PLIM_ERR_USAGE, "%s holds no run (there is no %s in it); check the path",
                          run->path, RUN_JSON);
    PLIM_TRY(lock(run->job, run->path, &run->lock_fd));
    PLIM_TRY(plim__run_json_read(run->job, path, &about));
    if (strcmp(about.fingerprint, run->fingerprint) != 0)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s was trained on another dataset: its fingerprint is %s, this one's %s; "
            "give the dataset that was at %s",
            run->path, about.fingerprint, run->fingerprint, about.dataset);
    PLIM_TRY(compare(run, &about.training, path));
    plim__machine_compare(run->job, run->path, &about.machine, &run->machine);
    remove_leftovers(run->path);
    PLIM_TRY(open_lines(run));
    PLIM_TRY(plim__run_lines_mend(&run->timeline));
    if (plim__settings_same(&about.training, &run->training))
        return PLIM_OK;
    about.training = run->training;
    return plim__run_json_write(run->job, path, &about);
}

plim_status_t plim__run_open(const plim_job_t *job, const char *path,
                             const plim_dataset_info_t *dataset, const plim_training_t *training,
                             plim__run_t **run_out)
{
    plim__run_t *run;
    PLIM_TRY(make_run(job, path, dataset, training, &run));
    plim_status_t status = open_files(run);
    if (status != PLIM_OK) {
        plim__run_close(run);
        return status;
    }
    *run_out = run;
    return PLIM_OK;
}

plim_status_t plim__run_metrics(plim__run_t *run, const char *line)
{
    return plim__run_lines_append(&run->metrics, line);
}

plim_status_t plim__run_timeline(plim__run_t *run, const char *line)
{
    if (run->timeline_lost)
        return PLIM_OK;
    const plim_status_t status = plim__run_lines_append(&run->timeline, line);
    run->timeline_lost = status == PLIM_ERR_DISK;
    if (!run->timeline_lost)
        return status;
    plim__log(run->job, PLIM_LOG_WARNING, "%s; the run goes on without a timeline",
              plim_last_error());
    return PLIM_OK;
}

PLIM_API plim_status_t plim_run_read(const plim_job_t *job, const char *run,
                                     plim_run_info_t *info_out)
{
    plim__run_json_t about;
    plim__position_t position = PLIM__POSITION_INIT;
    char path[PLIM__RUN_PATH];
    bool found = false;
    PLIM_TRY(plim__run_path(run, RUN_JSON, path));
    PLIM_TRY(plim__run_json_read(job, path, &about));
    PLIM_TRY(plim__run_position(job, run, &position, &found));
    info_out->training = about.training;
    memcpy(info_out->dataset, about.dataset, sizeof about.dataset);
    memcpy(info_out->fingerprint, about.fingerprint, sizeof about.fingerprint);
    info_out->epochs_done = found ? position.epoch : -1;
    info_out->step = found ? position.step : -1;
    info_out->part_seeds = position.part_seeds;
    info_out->part_nodes = position.part_nodes;
    info_out->part_edges = position.part_edges;
    return PLIM_OK;
}
