#include "source/working_set.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/commit.h"
#include "io/own.h"
#include "io/range_reader.h"
#include "source/cache.h"
#include "source/row_form.h"
#include "store/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "plimset1"
#define ACCOUNT "working set"
#define SECTIONS_MAX 16
#define BUFFER ((size_t)256 << 10) /* bytes written at once of a class */
#define ATTEMPTS 100               /* to take a lock that others remove meanwhile */

/* Later sections are for lists, for columns of edges, and for their positions in the dataset. */
enum { ROWS, CHECKS, NODES, CLASSES, NUM_SECTIONS };

typedef struct section {
    int64_t offset;
    int64_t bytes;
    uint64_t hash; /* 0 for rows: their pages have checksums */
} section_t;

typedef struct header {
    char magic[8];
    char fingerprint[24]; /* of the dataset */
    uint64_t key;         /* of the recipe */
    int64_t num_nodes;
    int64_t num_rows;
    int64_t row_bytes;
    int64_t complete;
    section_t sections[SECTIONS_MAX];
    uint64_t hash; /* of all fields before it */
} header_t;

_Static_assert(sizeof(header_t) <= PLIM__PAGE, "a header is a page");

static int64_t stride_of(const plim_dataset_t *dataset)
{
    return (int64_t)plim__round_up(plim__row_form_of(dataset).bytes, sizeof(uint64_t));
}

/* Classes begin on multiples of so many places, so that they begin on pages. */
static int64_t unit_of(int64_t stride)
{
    int64_t unit = (int64_t)PLIM__PAGE;
    for (; unit > 1 && stride % 2 == 0; stride /= 2)
        unit /= 2;
    return unit;
}

/* Upper bound of the pages of so many rows. */
static int64_t most_pages(int64_t stride, int64_t num_rows)
{
    const int64_t places =
        plim__add_saturating_i64(num_rows, PLIM__ORDER_CLASSES * unit_of(stride));
    return plim__mul_saturating_i64(places, stride) / (int64_t)PLIM__PAGE + 1;
}

static size_t checks_bytes(int64_t num_pages)
{
    return plim__round_up(((size_t)num_pages + 1) * sizeof(uint32_t), PLIM__PAGE);
}

static plim__working_set_t carve(plim__arena_t *arena, const plim_dataset_t *dataset,
                                 int64_t num_rows)
{
    plim__working_set_t set = {.row_bytes = (int64_t)plim__row_form_of(dataset).bytes,
                               .stride = stride_of(dataset),
                               .file.fd = -1};
    set.order = plim__node_order_carve(arena, plim_dataset_info(dataset)->num_nodes, num_rows);
    set.checks = plim__arena_carve(arena, 1, checks_bytes(most_pages(stride_of(dataset), num_rows)),
                                   PLIM__PAGE);
    return set;
}

size_t plim__working_set_estimate(const plim_dataset_t *dataset, int64_t num_rows)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, dataset, num_rows);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__working_set_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

int64_t plim__working_set_bytes(const plim_dataset_t *dataset, int64_t num_rows)
{
    const int64_t pages = most_pages(stride_of(dataset), num_rows);
    const size_t tables = checks_bytes(pages) +
                          plim__node_set_bytes(plim_dataset_info(dataset)->num_nodes) +
                          plim__node_order_bytes(num_rows) + 3 * PLIM__PAGE;
    return plim__add_saturating_i64(plim__mul_saturating_i64(pages + 1, (int64_t)PLIM__PAGE),
                                    (int64_t)tables);
}

static plim_status_t make_path(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                               const char *end, char path_out[PATH_MAX])
{
    const int length = snprintf(path_out, PATH_MAX, "%s/working-set-%s-%016llx-%ld.plim%s", scratch,
                                plim_dataset_info(dataset)->fingerprint, (unsigned long long)key,
                                (long)geteuid(), end);
    if (length < 0 || length >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.100s…: the path is too long", scratch);
    return PLIM_OK;
}

plim_status_t plim__working_set_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const char *scratch, uint64_t key, int64_t num_rows,
                                       plim__working_set_t **set_out)
{
    char path[PATH_MAX];
    plim__arena_t arena;
    PLIM_TRY(make_path(dataset, scratch, key, "", path));
    PLIM_TRY(plim__arena_create(job->ledger, ACCOUNT, plim__working_set_estimate(dataset, num_rows),
                                &arena));
    const plim__working_set_t carved = carve(&arena, dataset, num_rows);
    plim__working_set_t *set = plim__arena_carve(&arena, 1, sizeof *set, 1);
    memcpy(set, &carved, sizeof *set);
    set->arena = arena;
    set->job = *job;
    set->key = key;
    memcpy(set->fingerprint, plim_dataset_info(dataset)->fingerprint,
           sizeof plim_dataset_info(dataset)->fingerprint);
    memcpy(set->path, path, sizeof path);
    *set_out = set;
    return PLIM_OK;
}

void plim__working_set_destroy(plim__working_set_t *set)
{
    if (set == NULL)
        return;
    plim__file_close(&set->file);
    plim__arena_t arena = set->arena;
    plim__arena_destroy(&arena);
}

void plim__working_set_seal(plim__working_set_t *set)
{
    plim__node_order_seal(&set->order, unit_of(set->stride));
}

/* What a section is read to, and written from. */
static void *part_of(const plim__working_set_t *set, int section)
{
    return section == CHECKS  ? (void *)set->checks
           : section == NODES ? (void *)set->order.nodes.lines
                              : (void *)set->order.lines;
}

/* The header of a sealed set, whose sections have these hashes. */
static header_t make_header(const plim__working_set_t *set, const uint64_t hashes[NUM_SECTIONS])
{
    header_t header;
    const int64_t num_rows = set->order.nodes.count;
    const int64_t rows = set->order.first[PLIM__ORDER_CLASSES] * set->stride;
    const int64_t bytes[NUM_SECTIONS] = {
        rows, (int64_t)checks_bytes(rows / (int64_t)PLIM__PAGE),
        (int64_t)plim__round_up(plim__node_set_bytes(set->order.nodes.universe), PLIM__PAGE),
        (int64_t)plim__node_order_bytes(num_rows)};
    int64_t offset = (int64_t)PLIM__PAGE;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, MAGIC, sizeof header.magic);
    memcpy(header.fingerprint, set->fingerprint, sizeof header.fingerprint);
    header.key = set->key;
    header.num_nodes = set->order.nodes.universe;
    header.num_rows = num_rows;
    header.row_bytes = set->row_bytes;
    header.complete = set->complete;
    for (int i = 0; i < NUM_SECTIONS; i++) {
        header.sections[i] = (section_t){offset, bytes[i], hashes[i]};
        offset += bytes[i];
    }
    header.hash = XXH3_64bits(&header, offsetof(header_t, hash));
    return header;
}

static int64_t end_of(const section_t *section)
{
    return section->offset + section->bytes;
}

/* Opens a file that only this user can have written. The message tells why it is not. */
static plim_status_t open_own(const char *scratch, const char *path, plim__file_t *file_out)
{
    struct stat about;
    const int directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return plim__fail_errno(errno, "cannot open the directory %s", scratch);
    plim_status_t status = plim__file_open_in(directory, path, PLIM__FILE_READ, true, file_out);
    if (status == PLIM_OK &&
        (fstat(file_out->fd, &about) != 0 || plim__own_distrust(directory, &about) != NULL)) {
        plim__file_close(file_out);
        status = plim__fail(PLIM_ERR_DATA, "%s can be written by others", path);
    }
    (void)close(directory);
    return status;
}

/* Reads the header. NULL if the file is of this dataset and recipe, and what it says of its size
 * can be true. */
static const char *read_header(const plim_dataset_t *dataset, uint64_t key,
                               const plim__file_t *file, header_t *header_out)
{
    _Alignas(4096) char page[PLIM__PAGE];
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (file->size < (int64_t)PLIM__PAGE)
        return "is not of the size it must have";
    if (plim__file_read_at(file, 0, page, sizeof page) != PLIM_OK)
        return "cannot be read";
    memcpy(header_out, page, sizeof *header_out);
    if (memcmp(header_out->magic, MAGIC, sizeof header_out->magic) != 0 ||
        header_out->hash != XXH3_64bits(header_out, offsetof(header_t, hash)))
        return "is damaged at its start";
    header_out->fingerprint[sizeof header_out->fingerprint - 1] = '\0';
    if (strcmp(header_out->fingerprint, info->fingerprint) != 0 || header_out->key != key ||
        header_out->num_nodes != info->num_nodes ||
        header_out->row_bytes != (int64_t)plim__row_form_of(dataset).bytes)
        return "holds other rows";
    if (header_out->num_rows < 0 || header_out->num_rows > info->num_nodes)
        return "is damaged at its start";
    return NULL;
}

/* Reads the tables and checks them. NULL, or why the file is not used. */
static const char *read_tables(plim__working_set_t *set, const plim__file_t *file,
                               const header_t *header)
{
    const plim__node_set_t *nodes = &set->order.nodes;
    const int64_t pages = header->sections[ROWS].bytes / (int64_t)PLIM__PAGE;
    uint64_t hashes[NUM_SECTIONS] = {0};
    int64_t last[2];
    if (pages < 0 || pages > most_pages(set->stride, header->num_rows))
        return "is damaged at its start";
    const size_t bytes[NUM_SECTIONS] = {
        [NODES] = plim__round_up(plim__node_set_bytes(nodes->universe), PLIM__PAGE),
        [CLASSES] = plim__node_order_bytes(header->num_rows),
        [CHECKS] = checks_bytes(pages)};
    for (int i = CHECKS; i < NUM_SECTIONS; i++) {
        const section_t *section = &header->sections[i];
        if (section->bytes != (int64_t)bytes[i] || section->offset < 0 ||
            section->offset % (int64_t)PLIM__PAGE != 0 || section->offset > file->size ||
            section->bytes > file->size - section->offset)
            return "is not of the size it must have";
        if (plim__file_read_at(file, section->offset, part_of(set, i), bytes[i]) != PLIM_OK)
            return "cannot be read";
        hashes[i] = XXH3_64bits(part_of(set, i), bytes[i]);
        if (hashes[i] != section->hash)
            return "is damaged at its end";
    }
    plim__node_set_seal(&set->order.nodes);
    const int64_t listed = plim__node_set_list(nodes, nodes->universe - 1, 2, last);
    if (nodes->count != header->num_rows || (listed > 0 && last[listed - 1] >= nodes->universe))
        return "is damaged at its end";
    set->complete = header->complete != 0;
    plim__working_set_seal(set);
    const header_t expected = make_header(set, hashes);
    if (memcmp(&expected, header, sizeof expected) != 0 ||
        file->size != end_of(&expected.sections[NUM_SECTIONS - 1]))
        return "is not of the size it must have";
    return NULL;
}

static void use_file(plim__working_set_t *set, const plim__file_t *file)
{
    set->file = *file;
    set->file.path = set->path;
    set->file.align = (uint32_t)PLIM__PAGE;
    set->file.page_checks = set->checks;
    atomic_store(&set->readable, true);
}

plim_status_t plim__working_set_open(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const char *scratch, uint64_t key, int64_t most_rows,
                                     plim__working_set_t **set_out)
{
    char path[PATH_MAX];
    plim__working_set_t *set = NULL;
    plim__file_t file;
    header_t header;
    *set_out = NULL;
    PLIM_TRY(make_path(dataset, scratch, key, "", path));
    if (access(path, F_OK) != 0)
        return PLIM_OK;
    if (open_own(scratch, path, &file) != PLIM_OK) {
        plim__log(job, PLIM_LOG_WARNING, "%s; packing the rows again", plim_last_error());
        return PLIM_OK;
    }
    plim_status_t status = PLIM_OK;
    const char *reason = read_header(dataset, key, &file, &header);
    if (reason == NULL && header.num_rows > most_rows)
        reason = "holds more rows than this plan has memory for";
    if (reason == NULL)
        status = plim__working_set_create(job, dataset, scratch, key, header.num_rows, &set);
    if (reason == NULL && status == PLIM_OK)
        reason = read_tables(set, &file, &header);
    if (reason == NULL && status == PLIM_OK) {
        use_file(set, &file);
        *set_out = set;
        return PLIM_OK;
    }
    if (status == PLIM_OK)
        plim__log(job, PLIM_LOG_WARNING, "%s %s; packing the rows again", path, reason);
    plim__file_close(&file);
    plim__working_set_destroy(set);
    return status;
}

/* Whether the file is this user's, and still has a name. */
static bool is_lock(const char *scratch, int fd)
{
    struct stat about;
    const int directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is = directory >= 0 && fstat(fd, &about) == 0 && about.st_nlink > 0 &&
                    plim__own_foreign(directory, &about) == NULL;
    if (directory >= 0)
        (void)close(directory);
    return is;
}

/* Whether another process has removed the lock since it was opened. */
static bool is_removed(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && about.st_nlink == 0;
}

bool plim__working_set_claim(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                             int *lock_out)
{
    char path[PATH_MAX];
    *lock_out = -1;
    if (make_path(dataset, scratch, key, ".lock", path) != PLIM_OK)
        return true;
    for (int i = 0; i < ATTEMPTS; i++) {
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd < 0)
            return true;
        const bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        const bool lock = is_lock(scratch, fd);
        if (lock && !held) {
            *lock_out = fd;
            return true;
        }
        const bool removed = is_removed(fd);
        (void)close(fd);
        if (!removed)
            return !lock;
    }
    return false;
}

void plim__working_set_release(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                               int lock)
{
    char path[PATH_MAX];
    if (lock < 0 || make_path(dataset, scratch, key, ".lock", path) != PLIM_OK)
        return;
    (void)unlink(path);
    (void)close(lock);
}

/* The rows of one class on their way to the file. */
typedef struct stream {
    char *buffer; /* (BUFFER) */
    size_t used;
    int64_t offset; /* of the buffer in the file */
} stream_t;

typedef struct packer {
    plim__arena_t arena;
    plim__working_set_t *set;
    stream_t streams[PLIM__ORDER_CLASSES];
    plim__cache_walk_t walk;
    int64_t node;     /* the next member, or -1, … */
    int64_t position; /* … and its position */
    bool failed;      /* to write */
} packer_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    packer_t *packer = object;
    for (int i = 0; i < PLIM__ORDER_CLASSES; i++)
        packer->streams[i].buffer = plim__arena_carve(arena, 1, BUFFER, PLIM__PAGE);
}

size_t plim__working_set_making(const plim_job_t *job)
{
    packer_t draft = {.failed = false};
    return plim__object_bytes(lay_out, &draft, sizeof draft) +
           plim__sweep_minimum(job, PLIM__CACHE_CHUNK);
}

/* Writes a stream's whole pages, with zeros behind the last row. */
static plim_status_t flush(packer_t *packer, stream_t *stream)
{
    const plim__working_set_t *set = packer->set;
    const size_t size = plim__round_up(stream->used, PLIM__PAGE);
    if (size == 0)
        return PLIM_OK;
    memset(stream->buffer + stream->used, 0, size - stream->used);
    for (size_t at = 0; at < size; at += PLIM__PAGE) {
        const int64_t number = (stream->offset + (int64_t)at) / (int64_t)PLIM__PAGE;
        set->checks[number] = plim__page_check(stream->buffer + at, number);
    }
    if (plim__file_write_at(&set->file, stream->offset, stream->buffer, size) != PLIM_OK) {
        packer->failed = true;
        return PLIM_ERR_IO;
    }
    stream->offset += (int64_t)size;
    stream->used = 0;
    return PLIM_OK;
}

/* Appends bytes, or zeros. */
static plim_status_t append(packer_t *packer, stream_t *stream, const char *from, int64_t size)
{
    while (size > 0) {
        const int64_t part = plim__min_i64(size, (int64_t)(BUFFER - stream->used));
        if (from != NULL)
            memcpy(stream->buffer + stream->used, from, (size_t)part);
        else
            memset(stream->buffer + stream->used, 0, (size_t)part);
        from = from != NULL ? from + part : NULL;
        stream->used += (size_t)part;
        size -= part;
        if (stream->used == BUFFER)
            PLIM_TRY(flush(packer, stream));
    }
    return PLIM_OK;
}

/* Appends what a chunk of features.npy has of the members' rows. The chunks come in order. */
static plim_status_t pack_chunk(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    packer_t *packer = context;
    const plim__working_set_t *set = packer->set;
    const int64_t bytes = set->row_bytes, first = chunk * PLIM__CACHE_CHUNK;
    const int64_t end = first + (int64_t)size;
    (void)worker;
    while (packer->node >= 0 && packer->node * bytes < end) {
        const int64_t row = packer->node * bytes;
        const int64_t from = plim__max_i64(row, first), to = plim__min_i64(row + bytes, end);
        stream_t *stream = &packer->streams[plim__node_order_class(&set->order, packer->position)];
        PLIM_TRY(append(packer, stream, (const char *)data + (from - first), to - from));
        if (to < row + bytes)
            break; /* the next chunk has the rest */
        PLIM_TRY(append(packer, stream, NULL, set->stride - bytes));
        packer->node = plim__cache_walk_next(&packer->walk);
        packer->position++;
    }
    return PLIM_OK;
}

/* Writes the rest of a class, and zeros to its end. */
static plim_status_t end_class(packer_t *packer, int number)
{
    stream_t *stream = &packer->streams[number];
    const plim__working_set_t *set = packer->set;
    const int64_t end = plim__working_set_offset(set, set->order.first[number + 1]);
    PLIM_TRY(append(packer, stream, NULL, end - stream->offset - (int64_t)stream->used));
    return flush(packer, stream);
}

static plim_status_t pack_rows(packer_t *packer, const plim_dataset_t *dataset)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *entry = &manifest->files[manifest->tables[0]];
    plim__working_set_t *set = packer->set;
    plim__file_t features;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &features));
    plim__cache_walk_start(&packer->walk, &set->order.nodes, 0);
    packer->node = plim__cache_walk_next(&packer->walk);
    for (int i = 0; i < PLIM__ORDER_CLASSES; i++)
        packer->streams[i].offset = plim__working_set_offset(set, set->order.first[i]);
    const plim__sweep_t sweep = {.file = &features,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = entry->bytes,
                                 .chunk = PLIM__CACHE_CHUNK,
                                 .phase = "packing rows",
                                 .context = packer,
                                 .merge = pack_chunk};
    plim_status_t status = plim__sweep_run(&set->job, &sweep);
    for (int i = 0; i < PLIM__ORDER_CLASSES && status == PLIM_OK; i++)
        status = end_class(packer, i);
    plim__file_close(&features);
    return status;
}

/* Writes tables and header, and names the file. If naming fails, this run still uses it. */
static plim_status_t write_tables(plim__working_set_t *set)
{
    _Alignas(4096) char page[PLIM__PAGE] = {0};
    uint64_t hashes[NUM_SECTIONS] = {0};
    header_t header = make_header(set, hashes);
    for (int i = CHECKS; i < NUM_SECTIONS; i++) {
        const section_t *section = &header.sections[i];
        hashes[i] = XXH3_64bits(part_of(set, i), (size_t)section->bytes);
        PLIM_TRY(plim__file_write_at(&set->file, section->offset, part_of(set, i),
                                     (size_t)section->bytes));
    }
    header = make_header(set, hashes);
    memcpy(page, &header, sizeof header);
    PLIM_TRY(plim__file_write_at(&set->file, 0, page, sizeof page));
    set->file.size = end_of(&header.sections[NUM_SECTIONS - 1]);
    use_file(set, &set->file);
    if (plim__commit_nameless(&set->file, AT_FDCWD, set->path) != PLIM_OK)
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; the next start packs the rows again",
                  plim_last_error());
    return PLIM_OK;
}

/* Opens a nameless file; false, and a message in the log, if rows cannot be packed there. */
static bool open_temporary(plim__working_set_t *set, const char *scratch, int64_t bytes)
{
    plim__file_system_t system;
    int64_t space;
    if (plim__file_system(scratch, &system) != PLIM_OK ||
        plim__file_space(scratch, &space) != PLIM_OK) {
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; rows are not packed", plim_last_error());
    } else if (system.memory) {
        plim__log(&set->job, PLIM_LOG_WARNING,
                  "%s is in memory; rows are not packed there, choose a disk", scratch);
    } else if (space < bytes) {
        plim__log(&set->job, PLIM_LOG_WARNING,
                  "%s has %lld bytes free, packed rows need %lld; they are not packed", scratch,
                  (long long)space, (long long)bytes);
    } else if (plim__file_open(scratch, PLIM__FILE_TEMPORARY, true, &set->file) != PLIM_OK) {
        set->file.fd = -1;
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; rows are not packed", plim_last_error());
    }
    return set->file.fd >= 0;
}

plim_status_t plim__working_set_save(plim__working_set_t *set, const plim_dataset_t *dataset,
                                     const char *scratch)
{
    packer_t draft = {.set = set}, *packer;
    const int64_t bytes = plim__working_set_bytes(dataset, set->order.nodes.count);
    if (!open_temporary(set, scratch, bytes))
        return PLIM_OK;
    PLIM_TRY(plim__object_create(set->job.ledger, ACCOUNT, lay_out, &draft, sizeof draft,
                                 &draft.arena, &packer));
    plim_status_t status = pack_rows(packer, dataset);
    const bool failed = packer->failed;
    plim__arena_t arena = packer->arena;
    plim__arena_destroy(&arena);
    const bool packed = status == PLIM_OK;
    if (packed)
        status = write_tables(set);
    if (status != PLIM_OK && (failed || packed)) {
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; going on without packed rows",
                  plim_last_error());
        status = PLIM_OK;
    }
    if (!atomic_load(&set->readable))
        plim__file_close(&set->file);
    return status;
}

void plim__working_set_lost(plim__working_set_t *set)
{
    if (atomic_exchange(&set->readable, false))
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; going on without packed rows",
                  plim_last_error());
}
