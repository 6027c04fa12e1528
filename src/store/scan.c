#include "store/scan.h"

#include "base/check.h"
#include "base/fail.h"
#include "store/dataset.h"
#include "store/labels.h"

#include <stdarg.h>
#include <stdio.h>

#define WINDOW ((int64_t)8 * 4096) /* offsets in a window: 256 KiB */

int plim__degree_cell(int64_t degree)
{
    if (degree < PLIM__DEGREES_EXACT)
        return (int)degree;
    int exponent = 63 - __builtin_clzll((unsigned long long)degree);
    int step = (int)(degree >> (exponent - 10)) - PLIM__DEGREES_STEPS;
    return PLIM__DEGREES_EXACT + (exponent - 11) * PLIM__DEGREES_STEPS + step;
}

int64_t plim__degree_of_cell(int cell)
{
    if (cell < PLIM__DEGREES_EXACT)
        return cell;
    int exponent = 11 + (cell - PLIM__DEGREES_EXACT) / PLIM__DEGREES_STEPS;
    int64_t step = PLIM__DEGREES_STEPS + (cell - PLIM__DEGREES_EXACT) % PLIM__DEGREES_STEPS;
    return step << (exponent - 10);
}

void plim__scan_carve(plim__scan_t *scan, plim__arena_t *arena)
{
    scan->tally.degrees = plim__arena_carve(arena, PLIM__DEGREES_CELLS, sizeof(int64_t), 1);
    scan->tally.classes = plim__arena_carve(arena, PLIM__CLASSES_MAX, sizeof(int64_t), 1);
    scan->tally.degree_min = INT64_MAX;
    scan->window.offsets = plim__arena_carve(arena, (size_t)WINDOW, sizeof(int64_t), PLIM__PAGE);
    scan->window.capacity = WINDOW;
}

void plim__tally_add(plim__tally_t *to, const plim__tally_t *from)
{
    for (int i = 0; i < PLIM__DEGREES_CELLS; i++)
        to->degrees[i] += from->degrees[i];
    for (int i = 0; i < PLIM__CLASSES_MAX; i++)
        to->classes[i] += from->classes[i];
    to->unlabelled += from->unlabelled;
    to->degree_min = plim__min_i64(to->degree_min, from->degree_min);
    to->degree_max = plim__max_i64(to->degree_max, from->degree_max);
    to->self_loops += from->self_loops;
    to->duplicates += from->duplicates;
}

static void find(plim__scan_t *scan, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void find(plim__scan_t *scan, const char *format, ...)
{
    va_list arguments;
    if (scan->finding[0] != '\0')
        return;
    va_start(arguments, format);
    (void)vsnprintf(scan->finding, sizeof scan->finding, format, arguments);
    va_end(arguments);
}

static void tally_degree(plim__tally_t *tally, int64_t degree)
{
    tally->degrees[plim__degree_cell(degree)]++;
    tally->degree_min = plim__min_i64(tally->degree_min, degree);
    tally->degree_max = plim__max_i64(tally->degree_max, degree);
}

/* Checks two consecutive offsets; `position` is the index of the second one. */
static void take_step(plim__scan_t *scan, int64_t from, int64_t to, int64_t position)
{
    if (to < from || to > scan->rule->bound || from < 0)
        find(scan, "offset %lld is %lld after %lld; offsets must ascend from 0 to %lld",
             (long long)position, (long long)to, (long long)from, (long long)scan->rule->bound);
    else if (scan->rule->degrees)
        tally_degree(&scan->tally, to - from);
}

static void scan_offsets(plim__scan_t *scan, const int64_t *offsets, size_t count)
{
    int64_t last = scan->last;
    size_t i = 0;
    if (scan->empty) {
        scan->first = offsets[0];
        last = offsets[0];
        i = 1;
    }
    for (; i < count; i++) {
        take_step(scan, last, offsets[i], scan->position + (int64_t)i);
        last = offsets[i];
    }
    scan->last = last;
}

static void scan_classes(plim__scan_t *scan, const int64_t *labels, size_t count,
                         long long position)
{
    int64_t bound = scan->rule->bound;
    bool counted = bound <= PLIM__CLASSES_MAX;
    for (size_t i = 0; i < count; i++, position++) {
        int64_t label = labels[i];
        if (label == -1)
            scan->tally.unlabelled++;
        else if (label < 0 || label >= bound)
            find(scan, "label %lld is %lld, but there are %lld classes", position, (long long)label,
                 (long long)bound);
        else if (counted)
            scan->tally.classes[label]++;
    }
}

static void scan_labels(plim__scan_t *scan, const char *labels, size_t count)
{
    const size_t size = plim__dtype_size(scan->rule->type);
    int64_t classes[512];
    for (size_t done = 0; done < count;) {
        const size_t chunk = count - done < 512 ? count - done : 512;
        plim__labels_widen(scan->rule->type, labels + done * size, (int64_t)chunk, classes);
        scan_classes(scan, classes, chunk, scan->position + (long long)done);
        done += chunk;
    }
}

static void scan_rows(plim__scan_t *scan, const void *rows, size_t count)
{
    const bool narrow = scan->rule->type == PLIM__NPY_I32;
    uint64_t bound = (uint64_t)scan->rule->bound;
    long long position = scan->position;
    for (size_t i = 0; i < count; i++, position++) {
        const int64_t row = narrow ? ((const int32_t *)rows)[i] : ((const int64_t *)rows)[i];
        if ((uint64_t)row >= bound)
            find(scan, "entry %lld is %lld; it must be below %lld", position, (long long)row,
                 (long long)bound);
    }
}

/* Moves the window to the page of offset `number`. */
static plim_status_t window_move(plim__window_t *window, const plim__scan_rule_t *rule,
                                 int64_t number, int64_t wanted)
{
    const int64_t page = (int64_t)(PLIM__PAGE / sizeof(int64_t));
    int64_t first = number / page * page;
    int64_t count = plim__min_i64(rule->offsets_count - first, wanted);
    size_t bytes = plim__round_up((size_t)count * sizeof(int64_t), rule->offsets->align);
    window->count = 0;
    PLIM_TRY(plim__file_read_at(rule->offsets, PLIM__NPY_HEADER + first * (int64_t)sizeof(int64_t),
                                window->offsets, bytes));
    window->first = first;
    window->count = count;
    return PLIM_OK;
}

static plim_status_t offset_at(plim__scan_t *scan, int64_t number, int64_t *offset_out)
{
    plim__window_t *window = &scan->window;
    if (number < window->first || number >= window->first + window->count)
        PLIM_TRY(window_move(window, scan->rule, number, window->capacity));
    *offset_out = window->offsets[number - window->first];
    return PLIM_OK;
}

/*
 * Finds the list of element `position`: the last offset not above it, by bisection over the file.
 * With damaged offsets the result is arbitrary; their own scan reports them.
 */
static plim_status_t seek_list(plim__scan_t *scan, int64_t position)
{
    const int64_t page = (int64_t)(PLIM__PAGE / sizeof(int64_t));
    int64_t low = 0;
    int64_t high = scan->rule->offsets_count - 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (middle < scan->window.first || middle >= scan->window.first + scan->window.count)
            PLIM_TRY(window_move(&scan->window, scan->rule, middle, page));
        if (scan->window.offsets[middle - scan->window.first] <= position)
            low = middle;
        else
            high = middle;
    }
    scan->last_node = low;
    return offset_at(scan, low + 1, &scan->list_end);
}

/* Moves on to the list of element `position`. */
static plim_status_t next_list(plim__scan_t *scan, int64_t position)
{
    int64_t last_node = scan->rule->offsets_count - 2;
    do {
        if (scan->last_node == last_node) {
            find(scan, "entry %lld belongs to no list; indptr.npy ends with %lld",
                 (long long)position, (long long)scan->list_end);
            scan->list_end = INT64_MAX;
            return PLIM_OK;
        }
        scan->last_node++;
        PLIM_TRY(offset_at(scan, scan->last_node + 1, &scan->list_end));
    } while (scan->list_end <= position);
    return PLIM_OK;
}

/* Reports the first error of an entry, if any. */
static void find_index(plim__scan_t *scan, int64_t position, int64_t value, int64_t before)
{
    if (value < 0 || value >= scan->rule->bound)
        find(scan, "entry %lld is %lld, but there are %lld nodes", (long long)position,
             (long long)value, (long long)scan->rule->bound);
    else if (value < before)
        find(scan, "entry %lld is %lld after %lld in the list of node %lld; lists must ascend",
             (long long)position, (long long)value, (long long)before, (long long)scan->last_node);
}

/*
 * Scans entries of one list; a function for each type. `before` is the entry before them, -1 at the
 * start of a list. As an unsigned number a negative entry is out of range.
 */
#define SCAN_LIST(name, type)                                                                      \
    static void name(plim__scan_t *scan, const type *entries, size_t count, int64_t position,      \
                     int64_t before)                                                               \
    {                                                                                              \
        const int64_t node = scan->last_node;                                                      \
        const uint64_t bound = (uint64_t)scan->rule->bound;                                        \
        int64_t loops = 0, duplicates = 0;                                                         \
        bool wrong = false;                                                                        \
        int64_t last = before;                                                                     \
        for (size_t i = 0; i < count; i++) {                                                       \
            int64_t value = entries[i];                                                            \
            wrong |= ((uint64_t)value >= bound) | (value < last);                                  \
            loops += value == node;                                                                \
            duplicates += value == last;                                                           \
            last = value;                                                                          \
        }                                                                                          \
        scan->tally.self_loops += loops;                                                           \
        scan->tally.duplicates += duplicates;                                                      \
        scan->last = last;                                                                         \
        for (size_t i = 0; wrong && i < count; i++)                                                \
            find_index(scan, position + (int64_t)i, entries[i], i > 0 ? entries[i - 1] : before);  \
    }

SCAN_LIST(scan_list_i32, int32_t)
SCAN_LIST(scan_list_u32, uint32_t)
SCAN_LIST(scan_list_i64, int64_t)

static plim_status_t scan_indices(plim__scan_t *scan, const void *data, size_t count)
{
    const bool wide = scan->rule->type == PLIM__NPY_I64;
    int64_t position = scan->position;
    int64_t end = position + (int64_t)count;
    if (scan->empty) {
        scan->first = plim__index_at(data, wide, 0);
        scan->first_node = scan->last_node;
    }
    bool inside = !scan->empty; /* the list began in an earlier block: scan->last counts */
    while (position < end) {
        if (position >= scan->list_end) {
            PLIM_TRY(next_list(scan, position));
            inside = false;
            if (scan->empty && position == scan->position)
                scan->first_node = scan->last_node;
        }
        int64_t stop = plim__min_i64(end, scan->list_end);
        size_t length = (size_t)(stop - position);
        size_t at = (size_t)(position - scan->position);
        int64_t before = inside ? scan->last : -1;
        if (wide)
            scan_list_i64(scan, (const int64_t *)data + at, length, position, before);
        else if (scan->rule->type == PLIM__NPY_U32)
            scan_list_u32(scan, (const uint32_t *)data + at, length, position, before);
        else
            scan_list_i32(scan, (const int32_t *)data + at, length, position, before);
        position = stop;
        inside = true;
    }
    return PLIM_OK;
}

plim_status_t plim__scan_start(plim__scan_t *scan, const plim__scan_rule_t *rule, int64_t position)
{
    scan->rule = rule;
    scan->start = scan->position = position;
    scan->first = scan->last = 0;
    scan->first_node = scan->last_node = 0;
    scan->empty = true;
    scan->finding[0] = '\0';
    scan->window.count = 0;
    plim__values_start(&scan->values);
    if (rule->kind == PLIM__SCAN_INDICES && position < rule->count)
        return seek_list(scan, position);
    return PLIM_OK;
}

plim_status_t plim__scan_block(plim__scan_t *scan, const void *data, size_t count)
{
    if (count == 0)
        return PLIM_OK;
    switch (scan->rule->kind) {
    case PLIM__SCAN_BYTES:
        break;
    case PLIM__SCAN_OFFSETS:
        scan_offsets(scan, data, count);
        break;
    case PLIM__SCAN_INDICES:
        PLIM_TRY(scan_indices(scan, data, count));
        break;
    case PLIM__SCAN_CLASSES:
        scan_labels(scan, data, count);
        break;
    case PLIM__SCAN_ROWS:
        scan_rows(scan, data, count);
        break;
    case PLIM__SCAN_VALUES:
        plim__values_add(&scan->values, scan->rule->type, data, count);
        break;
    }
    scan->position += (int64_t)count;
    scan->empty = false;
    return PLIM_OK;
}

void plim__scan_join(plim__scan_t *scan, plim__joint_t *joint)
{
    plim__values_sum(&joint->values, &scan->values);
    if (scan->empty)
        return;
    if (scan->rule->kind == PLIM__SCAN_OFFSETS) {
        if (joint->begun)
            take_step(scan, joint->last, scan->first, scan->start);
        else if (scan->first != 0)
            find(scan, "offset 0 is %lld; offsets must ascend from 0", (long long)scan->first);
    }
    if (scan->rule->kind == PLIM__SCAN_INDICES && joint->begun &&
        joint->last_node == scan->first_node) {
        scan->tally.duplicates += joint->last == scan->first;
        if (scan->first < joint->last)
            find(scan, "the list of node %lld has %lld after %lld; lists must ascend",
                 (long long)scan->first_node, (long long)scan->first, (long long)joint->last);
    }
    joint->begun = true;
    joint->last = scan->last;
    joint->last_node = scan->last_node;
}

void plim__scan_end(plim__scan_t *scan, const plim__joint_t *joint)
{
    if (scan->rule->kind == PLIM__SCAN_OFFSETS && joint->last != scan->rule->bound)
        find(scan, "the last offset is %lld, not %lld", (long long)joint->last,
             (long long)scan->rule->bound);
}
