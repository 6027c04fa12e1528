#include "ingest/class_names.h"

#include "base/fail.h"
#include "store/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void carve(plim__class_names_t *names, plim__arena_t *arena)
{
    const size_t most = PLIM__CLASS_NAMES_MAX;
    names->sorted = plim__arena_carve(arena, most, sizeof *names->sorted, 1);
    names->classes = plim__arena_carve(arena, most, sizeof *names->classes, 1);
    names->begins = plim__arena_carve(arena, most + 1, sizeof *names->begins, 1);
    names->text = plim__arena_carve(arena, 1, PLIM__CLASS_NAMES_BYTES, 1);
}

static plim_status_t create(plim__class_names_t *names)
{
    plim__arena_t counting = plim__arena_counting();
    carve(names, &counting);
    PLIM_TRY(plim__arena_create(names->ledger, "class names", counting.used, &names->arena));
    carve(names, &names->arena);
    return PLIM_OK;
}

/* The word of a number. */
static plim__text_field_t word_at(const plim__class_names_t *names, int32_t number)
{
    const int32_t begin = names->begins[number];
    return (plim__text_field_t){names->text + begin, (size_t)(names->begins[number + 1] - begin)};
}

static int compare(plim__text_field_t a, plim__text_field_t b)
{
    const int order = memcmp(a.begin, b.begin, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* The place of the word among the sorted ones, or where it belongs. */
static bool find(const plim__class_names_t *names, plim__text_field_t word, int64_t *place_out)
{
    int64_t low = 0, high = names->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = compare(word, word_at(names, names->sorted[middle]));
        if (order == 0) {
            *place_out = middle;
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    *place_out = low;
    return false;
}

static plim_status_t add(plim__class_names_t *names, plim__text_field_t word, int64_t place)
{
    const int32_t number = (int32_t)names->count;
    const size_t begin = names->count > 0 ? (size_t)names->begins[number] : 0;
    if (word.size > PLIM__ID_TEXT_MAX || names->count == PLIM__CLASS_NAMES_MAX ||
        word.size > PLIM__CLASS_NAMES_BYTES - begin)
        return plim__fail(PLIM_ERR_DATA,
                          "'%.*s' is one word too many, or too long, for a class: at most %d words "
                          "of %d bytes, 1 MiB in all, are supported; number the classes 0, 1, 2 …",
                          (int)(word.size < 32 ? word.size : 32), word.begin, PLIM__CLASS_NAMES_MAX,
                          PLIM__ID_TEXT_MAX);
    memcpy(names->text + begin, word.begin, word.size);
    names->begins[number + 1] = (int32_t)(begin + word.size);
    memmove(names->sorted + place + 1, names->sorted + place,
            (size_t)(names->count - place) * sizeof *names->sorted);
    names->sorted[place] = number;
    names->count++;
    return PLIM_OK;
}

plim_status_t plim__class_names_take(void *context, plim__text_field_t field, bool number,
                                     double *value)
{
    plim__class_names_t *names = context;
    int64_t place;
    if (number && (isnan(*value) || *value == -1))
        return PLIM_OK;
    names->numbers = names->numbers || (number && names->count == 0);
    if (names->numbers && number)
        return PLIM_OK;
    if (names->numbers)
        return plim__fail(PLIM_ERR_DATA,
                          "the label '%.*s' is a word, but labels before it are numbers; write all "
                          "classes as 0, 1, 2 …, or all as words",
                          (int)(field.size < 32 ? field.size : 32), field.begin);
    if (names->arena.base == NULL)
        PLIM_TRY(create(names));
    if (!find(names, field, &place))
        PLIM_TRY(add(names, field, place));
    *value = (double)names->sorted[place];
    return PLIM_OK;
}

plim_status_t plim__class_names_finish(plim__class_names_t *names, const char *from)
{
    int64_t place;
    const plim__text_field_t heading = {names->heading, strlen(names->heading)};
    if (names->count > 0 && find(names, heading, &place))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its first line was taken as a heading, but '%s' is also a class; "
                          "add a heading, such as label",
                          from, names->heading);
    for (int64_t i = 0; i < names->count; i++)
        names->classes[names->sorted[i]] = (int32_t)i;
    return PLIM_OK;
}

plim_status_t plim__class_names_write(const plim__class_names_t *names,
                                      plim__dataset_writer_t *writer, size_t buffer)
{
    int64_t end = 0;
    const int64_t bytes[1] = {names->begins[names->count]}, shape[1] = {names->count + 1};
    plim__column_t *texts, *offsets;
    PLIM_TRY(plim__column_open(writer, PLIM__CLASS_TEXT, PLIM__NPY_U8, 1, bytes, bytes[0], buffer,
                               &texts));
    PLIM_TRY(plim__column_open(writer, PLIM__CLASS_OFFSETS, PLIM__NPY_I64, 1, shape, 8 * shape[0],
                               buffer, &offsets));
    PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
    for (int64_t i = 0; i < names->count; i++) {
        const plim__text_field_t word = word_at(names, names->sorted[i]);
        PLIM_TRY(plim__column_write(texts, word.begin, word.size));
        end += (int64_t)word.size;
        PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
    }
    PLIM_TRY(plim__column_close(texts));
    return plim__column_close(offsets);
}

void plim__class_names_destroy(plim__class_names_t *names)
{
    plim__arena_destroy(&names->arena);
}
