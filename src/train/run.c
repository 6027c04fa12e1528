/*
 * A run's directory: create, lock, open again.
 *
 * The lock is flock() on a file that stays in the directory, so it ends with the process that holds
 * it, and network file systems see it on every node.
 */
#include "train/run.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "io/commit.h"
#include "io/own.h"
#include "plan/plan_settings.h"
#include "plan/run_settings.h"
#include "store/dataset.h"
#include "store/manifest.h"

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

#define LOCK_FILE ".lock"
#define LOCK_TEXT 128 /* maximum bytes of its text */
#define METRICS "metrics.jsonl"
#define TIMELINE "timeline.jsonl"

_Static_assert(PATH_MAX <= PLIM_PATH_MAX, "what realpath gives fits");

/* The files of a run. The first three are replaced whole, the next two grow. */
static const char *const file_names[] = {PLIM__RUN_JSON, PLIM__RUN_LAST, PLIM__RUN_BEST,
                                         METRICS,        TIMELINE,       LOCK_FILE};
enum { NUM_REPLACED = 3, NUM_WRITTEN = 5, NUM_FILES = 6 };

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

static bool exists(int directory, const char *path)
{
    struct stat about;
    return fstatat(directory, path, &about, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Builds the error with the text that the holder of the lock wrote: its host and process. */
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

/* Whether the content is that of our lock file. It is empty until the owner writes it. */
static bool has_our_words(int fd, int64_t size)
{
    static const char words[] = "process ";
    char text[sizeof words - 1];
    return size == 0 || (size < LOCK_TEXT && pread(fd, text, sizeof text, 0) == sizeof text &&
                         memcmp(text, words, sizeof text) == 0);
}

/* Opens or creates the lock file. In a new run (`fresh`) an existing one must be a run's. */
static plim_status_t open_lock(int directory, const char *path, bool fresh, bool *made_out,
                               int *fd_out)
{
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat about;
    int fd = openat(directory, LOCK_FILE, flags | O_CREAT | O_EXCL, 0666);
    *made_out = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = openat(directory, LOCK_FILE, flags);
    if (fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO)
        return plim__fail_errno(errno, "cannot open %s", path);
    if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_nlink > 1 ||
        plim__own_foreign(directory, &about) != NULL ||
        (fresh && !has_our_words(fd, about.st_size))) {
        if (fd >= 0)
            (void)close(fd);
        return plim__fail(fresh ? PLIM_ERR_USAGE : PLIM_ERR_DATA,
                          "%s is there already and is not the lock of a run; %s", path,
                          fresh ? "choose another directory" : "remove it");
    }
    *fd_out = fd;
    return PLIM_OK;
}

static plim_status_t lock(plim__run_t *run, bool fresh)
{
    char path[PLIM__RUN_PATH], host[64] = "", text[LOCK_TEXT], reason[128];
    int fd = -1;
    PLIM_TRY(plim__run_path(run->path, LOCK_FILE, path));
    PLIM_TRY(open_lock(run->directory, path, fresh, &run->made_lock, &fd));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        plim_status_t status = PLIM_OK;
        if (error == EWOULDBLOCK)
            status = refuse_busy(fd, run->path);
        else
            plim__log(run->job, PLIM_LOG_WARNING,
                      "%s: its file system has no locks (%s), so nothing keeps a second job out",
                      run->path, strerror_r(error, reason, sizeof reason));
        (void)close(fd);
        return status;
    }
    (void)gethostname(host, sizeof host - 1);
    int length = snprintf(text, sizeof text, "process %ld on %.63s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
        (void)ftruncate(fd, 0); /* the text only informs; flock decides */
    run->lock_fd = fd;
    return PLIM_OK;
}

/* Whether `name` is a temporary file of `file`: .FILE.partial, optionally with a dash and a process
 * id. */
static bool is_partial_of(const char *name, const char *file)
{
    const size_t length = strlen(file);
    if (name[0] != '.' || strncmp(name + 1, file, length) != 0)
        return false;
    name += 1 + length;
    if (strncmp(name, ".partial", strlen(".partial")) != 0)
        return false;
    name += strlen(".partial");
    return name[0] == '\0' ||
           (name[0] == '-' && name[1] != '\0' && name[1 + strspn(name + 1, "0123456789")] == '\0');
}

bool plim__run_has_file(const char *name)
{
    bool found = false;
    for (int i = 0; i < NUM_FILES && !found; i++)
        found = strcmp(name, file_names[i]) == 0 || is_partial_of(name, file_names[i]);
    return found;
}

/* Removes temporary files of a process that was killed while it named a new file. */
static void remove_leftovers(int directory)
{
    const struct dirent *entry;
    struct stat about;
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((entry = readdir(list)) != NULL)
        for (int i = 0; i < NUM_REPLACED; i++)
            if (is_partial_of(entry->d_name, file_names[i]) &&
                fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(about.st_mode))
                (void)unlinkat(fd, entry->d_name, 0);
    (void)closedir(list);
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__run_t *run = object;
    plim__checkpoint_carve(&run->checkpoint, arena);
}

void plim__run_close(plim__run_t *run)
{
    if (run == NULL)
        return;
    plim__run_release(run);
    plim__file_close(&run->timeline.file);
    plim__file_close(&run->metrics.file);
    if (run->lock_fd >= 0) {
        (void)flock(run->lock_fd, LOCK_UN); /* a forked child may still have the file open */
        (void)close(run->lock_fd);
    }
    if (run->directory != AT_FDCWD)
        (void)close(run->directory);
    plim__arena_t arena = run->arena;
    plim__arena_destroy(&arena);
}

static plim_status_t make_run(const plim_job_t *job, const char *path,
                              const plim_dataset_info_t *dataset, const plim_training_t *training,
                              plim__run_t **run_out)
{
    plim__run_t *run, draft = {.job = job,
                               .directory = AT_FDCWD,
                               .lock_fd = -1,
                               .metrics.file.fd = -1,
                               .timeline.file.fd = -1};
    char probe[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(path, "", probe)); /* checks its length */
    memcpy(draft.path, path, strlen(path) + 1);
    PLIM_TRY(plim__object_create(job->ledger, PLIM__RUN_ACCOUNT, lay_out, &draft, sizeof draft,
                                 &draft.arena, &run));
    const plim_status_t status =
        plim__checkpoint_describe(&run->checkpoint, job, dataset, training);
    if (status != PLIM_OK) {
        plim__run_close(run);
        return status;
    }
    *run_out = run;
    return PLIM_OK;
}

/* For create and open, after run.json was written or compared. */
static plim_status_t open_lines(plim__run_t *run, bool fresh)
{
    PLIM_TRY(plim__run_path(run->path, METRICS, run->metrics.path));
    PLIM_TRY(plim__run_path(run->path, TIMELINE, run->timeline.path));
    PLIM_TRY(plim__run_lines_open(&run->metrics, run->directory, fresh));
    return plim__run_lines_open(&run->timeline, run->directory, fresh);
}

/* A new run's directory may hold other files, but none with a name that the run writes. */
static plim_status_t refuse_existing(const plim__run_t *run)
{
    const char *path = run->path;
    if (exists(run->directory, PLIM__MANIFEST_NAME))
        return plim__fail(PLIM_ERR_USAGE, "%s is a dataset; choose another directory for the run",
                          path);
    for (int i = 0; i < NUM_WRITTEN; i++) {
        const bool found = exists(run->directory, file_names[i]);
        if (found && i == 0)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s holds a run already (%s); resume it, or choose another directory",
                              path, file_names[i]);
        if (found)
            return plim__fail(
                PLIM_ERR_USAGE,
                "%s has a %s already, but no %s, so it cannot be resumed; choose another directory",
                path, file_names[i], PLIM__RUN_JSON);
    }
    return PLIM_OK;
}

void plim__run_discard(plim__run_t *run)
{
    const struct {
        const char *name;
        bool made;
    } files[] = {{PLIM__RUN_JSON, run->made_json},
                 {PLIM__RUN_LAST, run->made_json}, /* the first weights */
                 {METRICS, run->metrics.made},
                 {TIMELINE, run->timeline.made},
                 {LOCK_FILE, run->made_lock}};
    plim__run_release(run);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i].made)
            (void)unlinkat(run->directory, files[i].name, 0);
    if (run->made_directory)
        (void)rmdir(run->path);
}

/*
 * Writes all files of a new run. run.json comes first: a directory with it is a run, and a resume
 * adds missing files; without it, the other files would block the next attempt.
 */
static plim_status_t write_files(plim__run_t *run, const plim__run_json_t *about)
{
    char path[PLIM__RUN_PATH], parent[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(run->path, PLIM__RUN_JSON, path));
    PLIM_TRY(plim__run_json_write(run->job, run->directory, path, about, true));
    run->made_json = true;
    PLIM_TRY(open_lines(run, true));
    if (fsync(run->directory) != 0)
        return plim__fail_errno(errno, "cannot sync %s", run->path);
    PLIM_TRY(plim__run_path(run->path, "..", parent));
    return plim__sync_directory(parent);
}

static plim_status_t lock_and_write(plim__run_t *run, const plim__run_json_t *about)
{
    PLIM_TRY(plim__own_directory(run->path, &run->directory));
    PLIM_TRY(refuse_existing(run));
    PLIM_TRY(lock(run, true));
    PLIM_TRY(refuse_existing(run)); /* again, now under the lock */
    return write_files(run, about);
}

/* Takes the host's text from the settings; sets *changed if it differs. */
static plim_status_t take_start(const plim_training_t *training, plim__run_json_t *about,
                                bool *changed)
{
    const char *start = training->start;
    if (start == NULL || strcmp(start, about->start) == 0)
        return PLIM_OK;
    *changed = true;
    if (strlen(start) >= sizeof about->start)
        return plim__fail(PLIM_ERR_USAGE,
                          "the text of the start has %zu bytes; it must have fewer "
                          "than %d",
                          strlen(start), PLIM_START_MAX);
    memcpy(about->start, start, strlen(start) + 1);
    return PLIM_OK;
}

/* Takes the absolute paths of the files of links; sets *changed if one differs. */
static plim_status_t take_pairs(const plim_training_t *training, plim__run_json_t *about,
                                bool *changed)
{
    const struct {
        const char *given;
        char *to;
    } files[] = {{training->pairs, about->pairs},
                 {training->valid_pairs, about->valid_pairs},
                 {training->valid_negatives, about->valid_negatives}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[PLIM_PATH_MAX];
        if (files[i].given == NULL)
            continue;
        if (realpath(files[i].given, path) == NULL)
            return plim__fail_errno(errno, "cannot find the links %s", files[i].given);
        *changed = *changed || strcmp(path, files[i].to) != 0;
        memcpy(files[i].to, path, sizeof path);
    }
    return PLIM_OK;
}

static plim_status_t create_files(plim__run_t *run, const char *dataset_path)
{
    plim__run_json_t about = {.machine = run->checkpoint.machine,
                              .training = run->checkpoint.training};
    bool changed = false;
    PLIM_TRY(take_start(&run->checkpoint.training, &about, &changed));
    PLIM_TRY(take_pairs(&run->checkpoint.training, &about, &changed));
    memcpy(about.fingerprint, run->checkpoint.fingerprint, sizeof about.fingerprint);
    const char *init = run->checkpoint.training.init;
    if (realpath(dataset_path, about.dataset) == NULL)
        return plim__fail_errno(errno, "cannot find the dataset %s", dataset_path);
    if (init != NULL && realpath(init, about.init) == NULL)
        return errno == ENOENT
                   ? plim__fail(PLIM_ERR_USAGE, "there is no file %s; name a file of weights", init)
                   : plim__fail_errno(errno, "cannot find the weights %s", init);
    memcpy(run->init, about.init, sizeof run->init);
    run->made_directory = mkdir(run->path, 0777) == 0;
    if (!run->made_directory && errno != EEXIST)
        return plim__fail_errno(errno, "cannot create the directory %s", run->path);
    const plim_status_t status = lock_and_write(run, &about);
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

/* Whether the run may continue from its position. */
static plim_status_t compare(const plim__run_t *run, const plim_training_t *before,
                             const char *path)
{
    const plim_training_t *now = &run->checkpoint.training;
    plim__position_t position = PLIM__POSITION_INIT;
    bool found;
    PLIM_TRY(plim__run_position(run->job, run->directory, run->path, &position, &found));
    PLIM_TRY(plim__run_settings_compare(before, now, run->checkpoint.loops,
                                        plim__position_begun(&position), path));
    if (now->epochs > before->epochs && plim__position_ends(&position, now))
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: patience ended the run at epoch %lld, after %lld evaluations without "
            "a better one, so more epochs alone change nothing; raise `patience`, or set it to 0 "
            "to never end early",
            run->path, (long long)position.epoch, (long long)position.waited);
    return PLIM_OK;
}

/* Compares the first weights with those of run.json. A file that is gone is not compared. */
static plim_status_t compare_init(const plim__run_t *run, const char *before)
{
    const char *now = run->checkpoint.training.init;
    char path[PLIM_PATH_MAX];
    if (now == NULL || (before[0] != '\0' && realpath(now, path) == NULL) ||
        (before[0] != '\0' && strcmp(path, before) == 0))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s did not begin with the weights %s, but with %s; leave out `init`, or "
                      "begin a new run",
                      run->path, now, before[0] != '\0' ? before : "random ones");
}

/* Finds a run's run.json; PLIM_ERR_USAGE if it does not exist. */
static plim_status_t find_run(const char *directory, char path_out[PLIM__RUN_PATH])
{
    char manifest[PLIM__RUN_PATH];
    PLIM_TRY(plim__run_path(directory, PLIM__MANIFEST_NAME, manifest));
    PLIM_TRY(plim__run_path(directory, PLIM__RUN_JSON, path_out));
    if (exists(AT_FDCWD, path_out))
        return PLIM_OK;
    if (exists(AT_FDCWD, manifest))
        return plim__fail(PLIM_ERR_USAGE, "%s is a dataset, not a run; give the directory of a run",
                          directory);
    return plim__fail(PLIM_ERR_USAGE, "%s holds no run (there is no %s in it); check the path",
                      directory, PLIM__RUN_JSON);
}

/* Refuses links and special files in place of files that a run replaces. */
static plim_status_t refuse_strange(const plim__run_t *run)
{
    struct stat about;
    for (int i = 0; i < NUM_REPLACED; i++) {
        if (fstatat(run->directory, file_names[i], &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISREG(about.st_mode))
            return plim__fail(
                PLIM_ERR_DATA,
                "%s/%s is %s, but a run needs a regular file; put the file itself there", run->path,
                file_names[i], S_ISLNK(about.st_mode) ? "a link" : "a directory or a device");
    }
    return PLIM_OK;
}

/* Reads run.json and compares it with the dataset and the settings. */
static plim_status_t read_and_compare(const plim__run_t *run, const char *path,
                                      plim__run_json_t *about)
{
    PLIM_TRY(plim__run_json_read(run->job, run->directory, path, about));
    if (strcmp(about->fingerprint, run->checkpoint.fingerprint) != 0)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s was trained on another dataset: its fingerprint is %s, this one's %s; "
            "give the dataset that was at %s",
            run->path, about->fingerprint, run->checkpoint.fingerprint, about->dataset);
    PLIM_TRY(compare(run, &about->training, path));
    return compare_init(run, about->init);
}

/* Opens the directory of a run to continue. */
static plim_status_t open_own(plim__run_t *run)
{
    const plim_status_t status = plim__own_directory(run->path, &run->directory);
    if (status != PLIM_ERR_USAGE)
        return status;
    return plim__fail_prefix(status,
                             "only its owner can continue a run; continue a copy of it (cp -r)");
}

/* Compares run.json with the settings under the lock and writes the settings that may change. */
static plim_status_t open_files(plim__run_t *run)
{
    plim__run_json_t about;
    char path[PLIM__RUN_PATH];
    PLIM_TRY(find_run(run->path, path));
    PLIM_TRY(open_own(run));
    PLIM_TRY(refuse_strange(run));
    PLIM_TRY(lock(run, false));
    PLIM_TRY(read_and_compare(run, path, &about));
    memcpy(run->init, about.init, sizeof run->init);
    plim__machine_compare(run->job, run->path, &about.machine, &run->checkpoint.machine);
    remove_leftovers(run->directory);
    PLIM_TRY(open_lines(run, false));
    PLIM_TRY(plim__run_lines_drop_partial(&run->timeline));
    bool changed = false;
    PLIM_TRY(take_start(&run->checkpoint.training, &about, &changed));
    PLIM_TRY(take_pairs(&run->checkpoint.training, &about, &changed));
    if (plim__run_settings_same(&about.training, &run->checkpoint.training) && !changed)
        return PLIM_OK;
    about.training = run->checkpoint.training;
    return plim__run_json_write(run->job, run->directory, path, &about, false);
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
    plim__log(run->job, PLIM_LOG_WARNING, "%s; the run continues without a timeline",
              plim_last_error());
    return PLIM_OK;
}

PLIM_API plim_status_t plim_run_read(const plim_job_t *job, const char *run,
                                     plim_run_info_t *info_out)
{
    PLIM_ENTER(job);
    plim__run_json_t about;
    plim__position_t position = PLIM__POSITION_INIT;
    char path[PLIM__RUN_PATH];
    bool found = false;
    PLIM_TRY(plim__output_check(info_out, "plim_run_info_t"));
    PLIM_TRY(find_run(run, path));
    PLIM_TRY(plim__run_json_read(job, AT_FDCWD, path, &about));
    const plim_status_t status = plim__run_position(job, AT_FDCWD, run, &position, &found);
    if (status == PLIM_ERR_DATA) { /* the best weights may still be intact */
        position = (plim__position_t)PLIM__POSITION_INIT;
        found = false;
    } else if (status != PLIM_OK) {
        return status;
    }
    plim_run_info_t info = {.epochs_done = found ? position.epoch : -1,
                            .step = found ? position.step : -1,
                            .part_seeds = position.part_seeds,
                            .part_nodes = position.part_nodes,
                            .part_edges = position.part_edges,
                            .best_epoch = position.best_epoch,
                            .scored = position.scored,
                            .early = position.ended,
                            .sampled = plim__plan_settings_sampled(&about.training),
                            .training = about.training};
    memcpy(info.score, position.best_score, sizeof info.score);
    memcpy(info.dataset, about.dataset, sizeof about.dataset);
    memcpy(info.fingerprint, about.fingerprint, sizeof about.fingerprint);
    memcpy(info.pairs, about.pairs, sizeof about.pairs);
    memcpy(info.valid_pairs, about.valid_pairs, sizeof about.valid_pairs);
    memcpy(info.valid_negatives, about.valid_negatives, sizeof about.valid_negatives);
    plim__output_give(info_out, &info, sizeof info);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_run_start(const plim_job_t *job, const char *run,
                                      char text_out[PLIM_START_MAX])
{
    PLIM_ENTER(job);
    plim__run_json_t about;
    char path[PLIM__RUN_PATH];
    PLIM_TRY(find_run(run, path));
    PLIM_TRY(plim__run_json_read(job, AT_FDCWD, path, &about));
    memcpy(text_out, about.start, sizeof about.start);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_run_compare(const plim_job_t *job, const char *run,
                                        const plim_dataset_t *dataset,
                                        const plim_training_t *training)
{
    PLIM_ENTER(job);
    plim_training_t known = PLIM_TRAINING_INIT;
    plim__run_json_t about;
    plim__run_t *now;
    char path[PLIM__RUN_PATH];
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    PLIM_TRY(find_run(run, path));
    const plim_dataset_info_t info = plim__dataset_known(dataset);
    PLIM_TRY(make_run(job, run, &info, &known, &now));
    plim_status_t status = open_own(now);
    if (status == PLIM_OK)
        status = read_and_compare(now, path, &about);
    plim__run_close(now);
    return status;
}
