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

#define MAGIC "plimset3"
#define ACCOUNT "working set"
#define SECTIONS_MAX 16
#define BUFFER ((size_t)256 << 10) /* bytes written at once of a class */
#define ATTEMPTS 100               /* to take a lock that others remove meanwhile */

/* Later sections are for columns of edges, and for their positions in the dataset. */
enum { ROWS, LISTS, CHECKS, NODES, CLASSES, LIST_CLASSES, NUM_SECTIONS };

#define LIST_BLOCK ((int64_t)1 << PLIM__LIST_BLOCK_BITS)

typedef struct section {
    int64_t offset;
    int64_t bytes;
    uint64_t hash; /* 0 for rows and lists: their pages have checksums */
} section_t;

typedef struct header {
    char magic[8];
    char fingerprint[24]; /* of the dataset */
    uint64_t key;         /* of the recipe */
    int64_t num_nodes;
    int64_t num_rows;
    int64_t row_bytes;
    int64_t complete;
    int64_t num_lists;
    section_t sections[SECTIONS_MAX];
    plim__working_needs_t needs;
    uint64_t hash; /* of all fields before it */
} header_t;

_Static_assert(sizeof(header_t) <= PLIM__PAGE, "a header is a page");

static int64_t stride_of(const plim_dataset_t *dataset)
{
    return (int64_t)plim__round_up(plim__row_form_of(dataset).bytes, sizeof(uint64_t));
}

/* Classes begin on multiples of this number of places, so that they begin on pages. */
static int64_t unit_of(int64_t stride)
{
    int64_t unit = (int64_t)PLIM__PAGE;
    for (; unit > 1 && stride % 2 == 0; stride /= 2)
        unit /= 2;
    return unit;
}

static int64_t width_of(const plim_dataset_t *dataset)
{
    return (int64_t)plim__index_bytes(plim_dataset_info(dataset)->index_type);
}

/* Upper bounds of the pages that rows take, and lists. */
static int64_t most_row_pages(const plim_dataset_t *dataset, int64_t num_rows)
{
    const int64_t stride = stride_of(dataset);
    const int64_t places =
        plim__add_saturating_i64(num_rows, PLIM__ORDER_CLASSES * unit_of(stride));
    return plim__mul_saturating_i64(places, stride) / (int64_t)PLIM__PAGE + 1;
}

static int64_t most_list_pages(const plim_dataset_t *dataset, int64_t num_entries)
{
    return plim__mul_saturating_i64(num_entries, width_of(dataset)) / (int64_t)PLIM__PAGE +
           PLIM__ORDER_CLASSES;
}

static int64_t most_pages(const plim_dataset_t *dataset, plim__working_size_t size)
{
    return most_row_pages(dataset, size.rows) + most_list_pages(dataset, size.entries);
}

static size_t checks_bytes(int64_t num_pages)
{
    return plim__round_up(((size_t)num_pages + 1) * sizeof(uint32_t), PLIM__PAGE);
}

static plim__working_set_t carve(plim__arena_t *arena, const plim_dataset_t *dataset,
                                 plim__working_size_t size)
{
    plim__working_set_t set = {.row_bytes = (int64_t)plim__row_form_of(dataset).bytes,
                               .stride = stride_of(dataset),
                               .num_lists = size.lists,
                               .lists_in_file = size.lists,
                               .width = width_of(dataset),
                               .file.fd = -1};
    set.order = plim__node_order_carve(arena, plim_dataset_info(dataset)->num_nodes, size.rows);
    set.checks = plim__arena_carve(arena, 1, checks_bytes(most_pages(dataset, size)), PLIM__PAGE);
    if (size.lists > 0) {
        const size_t blocks = (size_t)(size.lists / LIST_BLOCK + PLIM__ORDER_CLASSES);
        set.lists = plim__node_order_carve_classes(arena, size.rows);
        set.list_blocks = plim__arena_carve(arena, blocks, sizeof(int64_t), 1);
        set.list_starts =
            plim__arena_carve(arena, blocks * (size_t)LIST_BLOCK, sizeof(uint32_t), 1);
    }
    return set;
}

size_t plim__working_set_estimate(const plim_dataset_t *dataset, plim__working_size_t size)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, dataset, size);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__working_set_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

int64_t plim__working_set_bytes(const plim_dataset_t *dataset, plim__working_size_t size)
{
    const int64_t pages = most_pages(dataset, size);
    const size_t tables = checks_bytes(pages) +
                          plim__node_set_bytes(plim_dataset_info(dataset)->num_nodes) +
                          2 * plim__node_order_bytes(size.rows) + 3 * PLIM__PAGE;
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
                                       const plim__offsets_t *offsets, const char *scratch,
                                       uint64_t key, plim__working_size_t size,
                                       plim__working_set_t **set_out)
{
    char path[PATH_MAX];
    plim__arena_t arena;
    PLIM_TRY(make_path(dataset, scratch, key, "", path));
    PLIM_TRY(plim__arena_create(job->ledger, ACCOUNT, plim__working_set_estimate(dataset, size),
                                &arena));
    const plim__working_set_t carved = carve(&arena, dataset, size);
    plim__working_set_t *set = plim__arena_carve(&arena, 1, sizeof *set, 1);
    memcpy(set, &carved, sizeof *set);
    set->arena = arena;
    set->job = *job;
    set->key = key;
    set->offsets = offsets;
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

/* Computes where each list begins among those of its class; then where the classes begin. Empty
 * places have the end of their class. */
static bool start_lists(plim__working_set_t *set)
{
    const int64_t page_entries = (int64_t)PLIM__PAGE / set->width;
    int64_t place[PLIM__ORDER_CLASSES], entries[PLIM__ORDER_CLASSES] = {0}, position = 0, first = 0;
    plim__cache_walk_t walk;
    for (int class = 1; class < PLIM__ORDER_CLASSES; class ++)
        place[class] = set->lists.first[class] - set->lists.first[1];
    plim__cache_walk_start(&walk, &set->order.nodes, 0);
    for (int64_t node; (node = plim__cache_walk_next(&walk)) >= 0; position++) {
        const int class = plim__node_order_class(&set->lists, position);
        if (class == 0)
            continue;
        const plim__list_t list = plim__offsets_list(set->offsets, node);
        const int64_t at = place[class]++;
        if (list.degree > PLIM__LIST_PACKED_MOST)
            return false;
        if (at % LIST_BLOCK == 0)
            set->list_blocks[at / LIST_BLOCK] = entries[class];
        set->list_starts[at] = (uint32_t)(entries[class] - set->list_blocks[at / LIST_BLOCK]);
        entries[class] += list.degree;
    }
    for (int class = 1; class < PLIM__ORDER_CLASSES; class ++) {
        const int64_t begin = set->lists.first[class] - set->lists.first[1];
        const int64_t end = set->lists.first[class + 1] - set->lists.first[1];
        for (int64_t at = place[class]; at < end; at++)
            set->list_starts[at] = (uint32_t)(entries[class] - set->list_blocks[at / LIST_BLOCK]);
        for (int64_t block = begin / LIST_BLOCK; block < end / LIST_BLOCK; block++)
            set->list_blocks[block] += first;
        set->class_entries[class] = first;
        first += (entries[class] + page_entries - 1) / page_entries * page_entries;
    }
    set->class_entries[PLIM__ORDER_CLASSES] = first;
    return true;
}

bool plim__working_set_seal(plim__working_set_t *set)
{
    plim__node_order_seal(&set->order, unit_of(set->stride));
    if (set->num_lists == 0)
        return true;
    set->lists.nodes = set->order.nodes;
    plim__node_order_seal(&set->lists, LIST_BLOCK);
    return set->lists.nodes.count - set->lists.counts[0] == set->num_lists && start_lists(set);
}

/* The memory of a section's contents. */
static void *part_of(const plim__working_set_t *set, int section)
{
    return section == CHECKS    ? (void *)set->checks
           : section == NODES   ? (void *)set->order.nodes.lines
           : section == CLASSES ? (void *)set->order.lines
                                : (void *)set->lists.lines;
}

static int64_t list_classes_bytes(int64_t num_rows, int64_t num_lists)
{
    return num_lists > 0 ? (int64_t)plim__node_order_bytes(num_rows) : 0;
}

/* The header of a sealed set, whose sections have these hashes. */
static header_t make_header(const plim__working_set_t *set, const uint64_t hashes[NUM_SECTIONS])
{
    header_t header;
    const int64_t num_rows = set->order.nodes.count;
    const int64_t rows = set->order.first[PLIM__ORDER_CLASSES] * set->stride;
    const int64_t lists = set->class_entries[PLIM__ORDER_CLASSES] * set->width;
    const int64_t bytes[NUM_SECTIONS] = {
        rows,
        lists,
        (int64_t)checks_bytes((rows + lists) / (int64_t)PLIM__PAGE),
        (int64_t)plim__round_up(plim__node_set_bytes(set->order.nodes.universe), PLIM__PAGE),
        (int64_t)plim__node_order_bytes(num_rows),
        list_classes_bytes(num_rows, set->lists_in_file)};
    int64_t offset = (int64_t)PLIM__PAGE;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, MAGIC, sizeof header.magic);
    memcpy(header.fingerprint, set->fingerprint, sizeof header.fingerprint);
    header.key = set->key;
    header.num_nodes = set->order.nodes.universe;
    header.num_rows = num_rows;
    header.row_bytes = set->row_bytes;
    header.complete = (int64_t)set->complete | (int64_t)set->with_lists << 1;
    header.num_lists = set->lists_in_file;
    header.needs = set->needs;
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

/* Reads the header. Returns NULL if it is of this dataset and recipe and its sizes are possible, or
 * why the file is not used. */
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
    if (header_out->num_rows < 0 || header_out->num_rows > info->num_nodes ||
        header_out->num_lists < 0 || header_out->num_lists > header_out->num_rows)
        return "is damaged at its start";
    for (int i = 0; i < NUM_SECTIONS; i++)
        if (header_out->sections[i].bytes < 0 || header_out->sections[i].bytes > file->size)
            return "is damaged at its start";
    return NULL;
}

/* Whether expected needs are possible: at most one for each member and window, and no fewer for a
 * longer window. */
static bool are_needs(const plim__node_order_t *order,
                      const uint64_t needs[PLIM__ORDER_CLASSES][PLIM__WORKING_SHARES])
{
    for (int class = 0; class < PLIM__ORDER_CLASSES; class ++)
        for (int i = 0; i < PLIM__WORKING_SHARES; i++)
            if ((double)needs[class][i] > (double)order->counts[class] * PLIM__WORKING_ONE ||
                (i > 0 && needs[class][i] > needs[class][i - 1]))
                return false;
    return true;
}

/* Reads the tables and checks them; there is memory for the checksums of `most` pages. Returns
 * NULL, or why the file is not used. */
static const char *read_tables(plim__working_set_t *set, const plim__file_t *file,
                               const header_t *header, int64_t most)
{
    const plim__node_set_t *nodes = &set->order.nodes;
    const int64_t pages =
        (header->sections[ROWS].bytes + header->sections[LISTS].bytes) / (int64_t)PLIM__PAGE;
    uint64_t hashes[NUM_SECTIONS] = {0};
    int64_t last[2];
    if (pages > most || header->sections[LISTS].bytes % (int64_t)PLIM__PAGE != 0)
        return "is damaged at its start";
    set->lists_in_file = header->num_lists;
    set->class_entries[PLIM__ORDER_CLASSES] = header->sections[LISTS].bytes / set->width;
    hashes[LIST_CLASSES] = header->sections[LIST_CLASSES].hash;
    const size_t bytes[NUM_SECTIONS] = {
        [CHECKS] = checks_bytes(pages),
        [NODES] = plim__round_up(plim__node_set_bytes(nodes->universe), PLIM__PAGE),
        [CLASSES] = plim__node_order_bytes(header->num_rows),
        [LIST_CLASSES] = (size_t)list_classes_bytes(header->num_rows, header->num_lists)};
    for (int i = CHECKS; i < (set->num_lists > 0 ? NUM_SECTIONS : LIST_CLASSES); i++) {
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
    set->complete = (header->complete & 1) != 0;
    set->with_lists = (header->complete & 2) != 0;
    set->needs = header->needs;
    if (!plim__working_set_seal(set))
        return "is damaged at its end";
    if (!are_needs(&set->order, set->needs.rows) ||
        (set->num_lists > 0 && !are_needs(&set->lists, set->needs.lists)))
        return "is damaged at its start";
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
                                     const plim__offsets_t *offsets, const char *scratch,
                                     uint64_t key, plim__working_size_t most,
                                     plim__working_set_t **set_out)
{
    char path[PATH_MAX];
    plim__working_set_t *set = NULL;
    plim__file_t file;
    header_t header;
    plim__working_size_t size = {0};
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
    if (reason == NULL) {
        size = (plim__working_size_t){header.num_rows, header.num_lists,
                                      header.sections[LISTS].bytes / width_of(dataset)};
        if (size.lists > most.lists)
            size.lists = 0;
        if (most.lists > 0 && (header.complete & 2) == 0)
            reason = "has no lists";
        if (size.rows > most.rows || header.sections[LISTS].bytes / (int64_t)PLIM__PAGE >
                                         most_list_pages(dataset, most.entries))
            reason = "holds more than this plan has memory for";
    }
    if (reason == NULL)
        status = plim__working_set_create(job, dataset, offsets, scratch, key, size, &set);
    if (reason == NULL && status == PLIM_OK)
        reason = read_tables(set, &file, &header, most_pages(dataset, size));
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

/* The rows or lists of one class on their way to the file. */
typedef struct stream {
    char *buffer; /* (BUFFER) */
    size_t used;
    int64_t offset; /* of the buffer in the file */
} stream_t;

typedef struct packer {
    plim__arena_t arena;
    plim__working_set_t *set;
    bool lists; /* they are packed, else rows */
    stream_t streams[PLIM__ORDER_CLASSES];
    plim__cache_walk_t walk;
    int64_t position; /* of the next member */
    int number;       /* its class */
    int64_t start;    /* its bytes in the array, -1: there is no member left; … */
    int64_t bytes;
    int64_t stride; /* … and how many its place has */
    bool failed;    /* to write */
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

/* Goes to the next member that is packed. */
static void next_member(packer_t *packer)
{
    const plim__working_set_t *set = packer->set;
    int64_t node = plim__cache_walk_next(&packer->walk);
    packer->position++;
    for (; packer->lists && node >= 0 && plim__node_order_class(&set->lists, packer->position) == 0;
         packer->position++)
        node = plim__cache_walk_next(&packer->walk);
    packer->start = -1;
    if (node < 0)
        return;
    packer->number =
        plim__node_order_class(packer->lists ? &set->lists : &set->order, packer->position);
    packer->start = node * set->row_bytes;
    packer->bytes = set->row_bytes;
    packer->stride = set->stride;
    if (packer->lists) {
        const plim__list_t list = plim__offsets_list(set->offsets, node);
        packer->start = list.start * set->width;
        packer->bytes = packer->stride = list.degree * set->width;
    }
}

/* Appends what a chunk of the array has of the members. The chunks come in order. */
static plim_status_t pack_chunk(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    packer_t *packer = context;
    const int64_t first = chunk * PLIM__CACHE_CHUNK, end = first + (int64_t)size;
    (void)worker;
    while (packer->start >= 0 && packer->start < end) {
        const int64_t behind = packer->start + packer->bytes;
        const int64_t from = plim__max_i64(packer->start, first), to = plim__min_i64(behind, end);
        stream_t *stream = &packer->streams[packer->number];
        PLIM_TRY(append(packer, stream, (const char *)data + (from - first), to - from));
        if (to < behind)
            break; /* the next chunk has the rest */
        PLIM_TRY(append(packer, stream, NULL, packer->stride - packer->bytes));
        next_member(packer);
    }
    return PLIM_OK;
}

/* Where a class begins in the file. */
static int64_t class_offset(const packer_t *packer, int number)
{
    const plim__working_set_t *set = packer->set;
    return packer->lists ? plim__working_set_entry_offset(set, set->class_entries[number])
                         : plim__working_set_offset(set, set->order.first[number]);
}

/* Writes the rest of a class, and zeros to its end. */
static plim_status_t end_class(packer_t *packer, int number)
{
    stream_t *stream = &packer->streams[number];
    const int64_t end = class_offset(packer, number + 1);
    PLIM_TRY(append(packer, stream, NULL, end - stream->offset - (int64_t)stream->used));
    return flush(packer, stream);
}

/* Packs rows, or lists, from their array. */
static plim_status_t pack(packer_t *packer, const plim_dataset_t *dataset, bool lists)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *entry =
        &manifest->files[lists ? manifest->topologies[0].indices : manifest->tables[0]];
    plim__working_set_t *set = packer->set;
    plim__file_t file;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file));
    packer->lists = lists;
    packer->position = -1;
    plim__cache_walk_start(&packer->walk, &set->order.nodes, 0);
    next_member(packer);
    for (int i = 0; i < PLIM__ORDER_CLASSES; i++)
        packer->streams[i].offset = class_offset(packer, i);
    const plim__sweep_t sweep = {.file = &file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = entry->bytes,
                                 .chunk = PLIM__CACHE_CHUNK,
                                 .phase = lists ? "packing lists" : "packing rows",
                                 .context = packer,
                                 .merge = pack_chunk};
    plim_status_t status = plim__sweep_run(&set->job, &sweep);
    for (int i = 0; i < PLIM__ORDER_CLASSES && status == PLIM_OK; i++)
        status = end_class(packer, i);
    plim__file_close(&file);
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
        if (section->bytes > 0)
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
    plim_status_t status = plim__file_check_disk(scratch, bytes, "packed rows need");
    if (status == PLIM_OK)
        status = plim__file_open(scratch, PLIM__FILE_TEMPORARY, true, &set->file);
    if (status != PLIM_OK)
        plim__log(&set->job, PLIM_LOG_WARNING, "%s; rows are not packed", plim_last_error());
    return status == PLIM_OK;
}

plim_status_t plim__working_set_save(plim__working_set_t *set, const plim_dataset_t *dataset,
                                     const char *scratch)
{
    packer_t draft = {.set = set}, *packer;
    const int64_t entries = set->class_entries[PLIM__ORDER_CLASSES];
    const int64_t bytes = plim__working_set_bytes(
        dataset, (plim__working_size_t){set->order.nodes.count, set->num_lists, entries});
    if (!open_temporary(set, scratch, bytes))
        return PLIM_OK;
    PLIM_TRY(plim__object_create(set->job.ledger, ACCOUNT, lay_out, &draft, sizeof draft,
                                 &draft.arena, &packer));
    plim_status_t status = pack(packer, dataset, false);
    if (status == PLIM_OK && set->num_lists > 0)
        status = pack(packer, dataset, true);
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
