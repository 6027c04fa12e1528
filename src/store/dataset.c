/* Opens a dataset: reads dataset.json and compares each file's header and size with it. */
#include "store/dataset.h"

#include "base/fail.h"
#include "base/params.h"
#include "base/process.h"
#include "io/own.h"
#include "io/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct plim_dataset {
    pid_t process;
    int directory;       /* of a copy, open; AT_FDCWD of a source, which may be anybody's */
    atomic_int count;    /* references */
    plim_job_t job;      /* retained */
    plim__arena_t arena; /* contains this struct and the paths */
    plim__arena_t manifest_arena;
    plim__manifest_t *manifest;
    bool is_shape;                  /* a dataset without files */
    _Atomic int64_t max_self_loops; /* -1: not known */
    pthread_mutex_t note_lock;
    char note_name[PLIM__NOTE_BYTES], note[PLIM__NOTE_BYTES]; /* under note_lock; "": none */
    const char *path, *origin;         /* origin: of the dataset that this one is a copy of */
    char *path_copy, *origin_copy;     /* in the arena */
    char *file_paths[PLIM__FILES_MAX]; /* in the order of the manifest's files */
};

/* Reads the text of dataset.json to the start of a new arena. */
static plim_status_t read_text(const plim_job_t *job, int directory, const char *path,
                               plim__arena_t *arena_out, size_t *size_out)
{
    plim__file_t file;
    plim__arena_t arena;
    struct stat about;
    if (stat(path, &about) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return plim__fail(
            PLIM_ERR_DATA,
            "%s does not exist, so this is not a dataset; give the directory of a dataset", path);
    PLIM_TRY(plim__file_open_in(directory, path, PLIM__FILE_READ, false, &file));
    if (file.size < 1 || file.size > (int64_t)PLIM__MANIFEST_BYTES) {
        plim__file_close(&file);
        return plim__fail(PLIM_ERR_DATA, "%s has %lld bytes, which is not possible for a dataset",
                          path, (long long)file.size);
    }
    plim_status_t status = plim__arena_create(job->ledger, "dataset", (size_t)file.size, &arena);
    if (status == PLIM_OK) {
        status = plim__file_read_at(&file, 0, arena.base, (size_t)file.size);
        if (status != PLIM_OK)
            plim__arena_destroy(&arena);
    }
    if (status == PLIM_OK) {
        *arena_out = arena;
        *size_out = (size_t)file.size;
    }
    plim__file_close(&file);
    return status;
}

static plim_status_t read_manifest(const plim_job_t *job, int directory, const char *path,
                                   plim__arena_t *arena_out, plim__manifest_t **manifest_out)
{
    plim__arena_t text = {0};
    size_t size = 0;
    PLIM_TRY(read_text(job, directory, path, &text, &size));
    plim_status_t status = plim__manifest_check_seal(text.base, size, path);
    if (status == PLIM_OK)
        status = plim__manifest_parse(job, text.base, size, path, arena_out, manifest_out);
    plim__arena_destroy(&text);
    return status;
}

plim_status_t plim__dataset_file_open(const plim_dataset_t *dataset,
                                      const plim__manifest_file_t *entry, bool direct,
                                      plim__file_t *file_out)
{
    plim__file_t file;
    const char *path = dataset->file_paths[entry - dataset->manifest->files];
    if (dataset->is_shape)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s is only a shape without files, so %s cannot be read; generate it first",
            dataset->path, entry->name);
    PLIM_TRY(plim__file_open_in(dataset->directory, path, PLIM__FILE_READ, direct, &file));
    if (file.size != entry->bytes) {
        plim__file_close(&file);
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %lld bytes, but %s says %lld; copy or make the dataset again",
                          path, (long long)file.size, PLIM__MANIFEST_NAME, (long long)entry->bytes);
    }
    *file_out = file;
    return PLIM_OK;
}

static plim_status_t check_header(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim__manifest_file_t *entry)
{
    unsigned char header[PLIM__NPY_HEADER];
    plim__file_t file;
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, false, &file));
    plim_status_t status = plim__file_read_at(&file, 0, header, sizeof header);
    plim__file_close(&file);
    if (status != PLIM_OK)
        return status;
    PLIM_TRY(plim__reader_memory(job, file.path, header, sizeof header, &reader));
    reader->size = file.size; /* only the header is in memory */
    status = plim__npy_read(reader, &npy);
    plim__reader_close(reader);
    if (status != PLIM_OK)
        return status;
    bool same = npy.type == entry->type && npy.num_dims == entry->num_dims && !npy.fortran &&
                npy.header_size == PLIM__NPY_HEADER;
    for (int i = 0; same && i < entry->num_dims; i++)
        same = npy.shape[i] == entry->shape[i];
    if (!same)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its header does not match %s; copy or make the dataset again",
                          file.path, PLIM__MANIFEST_NAME);
    return PLIM_OK;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim_dataset_t *dataset = draft;
    const size_t length = strlen(dataset->path);
    dataset->path_copy = plim__arena_carve(arena, length + 1, 1, 1);
    dataset->origin_copy = plim__arena_carve(arena, strlen(dataset->origin) + 1, 1, 1);
    for (int i = 0; i < dataset->manifest->num_files; i++)
        dataset->file_paths[i] =
            plim__arena_carve(arena, length + strlen(dataset->manifest->files[i].name) + 2, 1, 1);
}

/* Creates the dataset with its paths; takes over the manifest. */
static plim_status_t make_dataset(const plim_job_t *job, const char *path, const char *origin,
                                  plim__arena_t manifest_arena, plim__manifest_t *manifest,
                                  plim_dataset_t **dataset_out)
{
    const size_t length = strlen(path);
    plim_dataset_t draft = {.process = getpid(),
                            .directory = AT_FDCWD,
                            .job = *job,
                            .manifest_arena = manifest_arena,
                            .manifest = manifest,
                            .path = path,
                            .origin = origin};
    plim_dataset_t *dataset;
    PLIM_TRY(plim__object_create(job->ledger, "dataset", lay_out, &draft, sizeof draft,
                                 &draft.arena, &dataset));
    dataset->path = memcpy(dataset->path_copy, path, length + 1);
    dataset->origin = memcpy(dataset->origin_copy, origin, strlen(origin) + 1);
    for (int i = 0; i < manifest->num_files; i++)
        (void)snprintf(dataset->file_paths[i], length + strlen(manifest->files[i].name) + 2,
                       "%s/%s", path, manifest->files[i].name);
    atomic_init(&dataset->count, 1);
    (void)pthread_mutex_init(&dataset->note_lock, NULL);
    atomic_init(&dataset->max_self_loops, manifest->info.max_self_loops);
    plim_job_retain(job);
    manifest->info.size = sizeof manifest->info;
    manifest->info.source = manifest->source;
    manifest->info.options = manifest->options;
    manifest->info.version = manifest->version;
    *dataset_out = dataset;
    return PLIM_OK;
}

/* Refuses a copy, or a file of one, that others could have written. */
static plim_status_t check_trust(int directory, const struct stat *about, const char *path)
{
    const char *reason = plim__own_distrust(directory, about);
    if (reason == NULL)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s %s, so it may not be the dataset; make the copy again",
                      path, reason);
}

static plim_status_t check_files(const plim_dataset_t *copy)
{
    char path[PATH_MAX];
    struct stat about;
    for (int i = -1; i < copy->manifest->num_files; i++) {
        const char *name = i < 0 ? PLIM__MANIFEST_NAME : copy->manifest->files[i].name;
        PLIM_TRY(plim__file_path(path, copy->path, name));
        if (fstatat(copy->directory, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            return plim__fail_errno(errno, "cannot stat %s", path);
        PLIM_TRY(check_trust(copy->directory, &about, path));
    }
    return PLIM_OK;
}

static plim_status_t open_directory(const char *path, int *directory_out)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return plim__fail(PLIM_ERR_DATA, "%s is not a directory, so it is not a copy; remove it",
                          path);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open the directory %s", path);
    const plim_status_t status = fstat(fd, &about) != 0
                                     ? plim__fail_errno(errno, "cannot stat %s", path)
                                     : check_trust(fd, &about, path);
    if (status != PLIM_OK)
        (void)close(fd);
    else
        *directory_out = fd;
    return status;
}

/* A directory given that is no dataset: a run, or data to import. `manifest`: the path of
 * dataset.json, which these lack. */
static plim_status_t refuse_other(const char *path, const char *manifest)
{
    char run[PATH_MAX];
    struct stat about;
    PLIM_TRY(plim__file_path(run, path, "run.json"));
    if (stat(manifest, &about) == 0 || errno != ENOENT)
        return PLIM_OK;
    if (stat(run, &about) != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s has no dataset.json, so it is not a dataset; import it first", path);
    return plim__fail(PLIM_ERR_USAGE,
                      "%s is the directory of a training run, not a dataset; give the dataset "
                      "directory, which its run.json names",
                      path);
}

/* Takes over `directory`, also after an error. */
static plim_status_t open_in(const plim_job_t *job, int directory, const char *path,
                             const char *origin, plim_dataset_t **dataset_out)
{
    char name[PATH_MAX];
    plim__arena_t arena;
    plim__manifest_t *manifest;
    plim_dataset_t *dataset;
    plim_status_t status = plim__file_path(name, path, PLIM__MANIFEST_NAME);
    if (status == PLIM_OK)
        status = read_manifest(job, directory, name, &arena, &manifest);
    if (status != PLIM_OK)
        goto close_directory;
    status = make_dataset(job, path, origin, arena, manifest, &dataset);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        goto close_directory;
    }
    dataset->directory = directory;
    for (int i = 0; i < manifest->num_files && status == PLIM_OK; i++)
        status = check_header(job, dataset, &manifest->files[i]);
    if (status == PLIM_OK)
        *dataset_out = dataset;
    else
        plim_dataset_release(dataset);
    return status;
close_directory:
    if (directory != AT_FDCWD)
        (void)close(directory);
    return status;
}

static plim_status_t open_dataset(const plim_job_t *job, const char *path, const char *origin,
                                  bool copy, plim_dataset_t **dataset_out)
{
    char name[PATH_MAX];
    int directory = AT_FDCWD;
    struct stat about;
    const bool known = stat(path, &about) == 0;
    if (!known && (errno == ENOENT || errno == ENOTDIR))
        return plim__fail(PLIM_ERR_USAGE,
                          "the directory %s does not exist; give the directory of a dataset", path);
    if (known && S_ISREG(about.st_mode))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s is a file, not the directory of a dataset; import it first", path);
    PLIM_TRY(plim__file_path(name, path, PLIM__MANIFEST_NAME));
    PLIM_TRY(copy ? open_directory(path, &directory) : refuse_other(path, name));
    return open_in(job, directory, path, origin, dataset_out);
}

PLIM_API plim_status_t plim_dataset_open(const plim_job_t *job, const char *path,
                                         plim_dataset_t **dataset_out)
{
    PLIM_ENTER(job);
    return open_dataset(job, path, path, false, dataset_out);
}

PLIM_API plim_status_t plim_dataset_open_copy(const plim_job_t *job, const plim_dataset_t *dataset,
                                              const char *path, plim_dataset_t **copy_out)
{
    plim_dataset_t *copy;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(open_dataset(job, path, dataset->origin, true, &copy));
    plim_status_t status = check_files(copy);
    if (status == PLIM_OK &&
        strcmp(copy->manifest->info.fingerprint, dataset->manifest->info.fingerprint) != 0)
        status = plim__fail(PLIM_ERR_DATA,
                            "%s is not a copy of %s: their fingerprints differ; remove it", path,
                            dataset->path);
    if (status == PLIM_OK)
        *copy_out = copy;
    else
        plim_dataset_release(copy);
    return status;
}

plim_status_t plim__dataset_from_manifest(const plim_job_t *job, const char *name,
                                          const plim__manifest_t *manifest,
                                          plim_dataset_t **dataset_out)
{
    plim__arena_t arena;
    plim_dataset_t *dataset;
    PLIM_TRY(plim__arena_create(job->ledger, "dataset", sizeof *manifest, &arena));
    plim__manifest_t *copy = plim__arena_carve(&arena, 1, sizeof *copy, 1);
    *copy = *manifest;
    plim_status_t status = plim__manifest_from_shape(copy, name);
    if (status == PLIM_OK)
        status = make_dataset(job, name, name, arena, copy, &dataset);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    dataset->is_shape = true;
    *dataset_out = dataset;
    return PLIM_OK;
}

plim_status_t plim__index_fail(const char *path, int64_t entry, int64_t value, int64_t num_nodes)
{
    if (num_nodes <= INT32_MAX && value <= UINT32_MAX) /* as the file has it */
        value = (int32_t)(uint32_t)value;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is %lld, but there are %lld nodes; copy or import the "
                      "dataset again",
                      path, (long long)entry, (long long)value, (long long)num_nodes);
}

bool plim__dataset_is_shape(const plim_dataset_t *dataset)
{
    return dataset->is_shape;
}

/* The reference count changes in const datasets too. */
static atomic_int *count_of(const plim_dataset_t *dataset)
{
    return &((plim_dataset_t *)(uintptr_t)dataset)->count;
}

PLIM_API void plim_dataset_retain(const plim_dataset_t *dataset)
{
    if (dataset != NULL && plim__process_is(dataset->process))
        atomic_fetch_add(count_of(dataset), 1);
}

PLIM_API void plim_dataset_release(const plim_dataset_t *dataset)
{
    if (dataset == NULL || !plim__process_is(dataset->process) ||
        atomic_fetch_sub(count_of(dataset), 1) != 1)
        return;
    const plim_job_t job = dataset->job;
    plim__arena_t arena = dataset->arena, manifest_arena = dataset->manifest_arena;
    if (dataset->directory != AT_FDCWD)
        (void)close(dataset->directory);
    (void)pthread_mutex_destroy(&((plim_dataset_t *)(uintptr_t)dataset)->note_lock);
    plim__arena_destroy(&manifest_arena);
    plim__arena_destroy(&arena);
    plim_job_release(&job);
}

plim_status_t plim__dataset_check(const plim_dataset_t *dataset)
{
    return plim__process_check(dataset->process);
}

PLIM_API const plim_dataset_info_t *plim_dataset_info(const plim_dataset_t *dataset)
{
    return plim__process_is(dataset->process) ? &dataset->manifest->info : NULL;
}

PLIM_API bool plim_dataset_file(const plim_dataset_t *dataset, int index,
                                plim_dataset_file_t *file_out)
{
    if (!plim__process_is(dataset->process) ||
        plim__output_check(file_out, "plim_dataset_file_t") != PLIM_OK || index < 0 ||
        index >= dataset->manifest->num_files)
        return false;
    const plim__manifest_file_t *entry = &dataset->manifest->files[index];
    plim_dataset_file_t file = {.name = entry->name,
                                .type = plim__dtype_name(entry->type),
                                .num_dims = entry->num_dims,
                                .bytes = entry->bytes};
    memcpy(file.shape, entry->shape, sizeof file.shape);
    plim__output_give(file_out, &file, sizeof file);
    return true;
}

const plim__manifest_t *plim__dataset_manifest(const plim_dataset_t *dataset)
{
    return dataset->manifest;
}

int64_t plim__dataset_max_self_loops(const plim_dataset_t *dataset)
{
    return atomic_load(&((plim_dataset_t *)(uintptr_t)dataset)->max_self_loops);
}

void plim__dataset_note_self_loops(const plim_dataset_t *dataset, int64_t most)
{
    atomic_store(&((plim_dataset_t *)(uintptr_t)dataset)->max_self_loops, most);
}

void plim__dataset_note(const plim_dataset_t *dataset, const char *name, const char *text)
{
    plim_dataset_t *own = (plim_dataset_t *)(uintptr_t)dataset;
    (void)pthread_mutex_lock(&own->note_lock);
    (void)snprintf(own->note_name, sizeof own->note_name, "%s", name);
    (void)snprintf(own->note, sizeof own->note, "%s", text);
    (void)pthread_mutex_unlock(&own->note_lock);
}

bool plim__dataset_noted(const plim_dataset_t *dataset, const char *name,
                         char text_out[PLIM__NOTE_BYTES])
{
    plim_dataset_t *own = (plim_dataset_t *)(uintptr_t)dataset;
    (void)pthread_mutex_lock(&own->note_lock);
    const bool found = name[0] != '\0' && strcmp(own->note_name, name) == 0;
    memcpy(text_out, own->note, sizeof own->note);
    (void)pthread_mutex_unlock(&own->note_lock);
    return found;
}

plim_dataset_info_t plim__dataset_known(const plim_dataset_t *dataset)
{
    plim_dataset_info_t info = dataset->manifest->info;
    info.max_self_loops = plim__dataset_max_self_loops(dataset);
    return info;
}

const char *plim__dataset_path(const plim_dataset_t *dataset)
{
    return dataset->path;
}

const char *plim__dataset_origin(const plim_dataset_t *dataset)
{
    return dataset->origin;
}
