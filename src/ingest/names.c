#include "ingest/names.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/number.h"
#include "mem/arena.h"
#include "store/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SLOTS_MIN ((int64_t)1 << 17) /* fewer would need too many passes */
#define SLOTS_MAX ((int64_t)1 << 36)
/* Created while there is a table: ids before and after a pass, first positions; one is spare. */
#define SPOOLS 4
#define CHUNK 1024

typedef struct name_slot {
    XXH128_hash_t key;
    int64_t node; /* -1: free */
} name_slot_t;

/* A hash table of keys with linear probing; at most three quarters are filled. */
typedef struct table {
    plim__arena_t arena;
    name_slot_t *slots;
    int64_t num_slots; /* a power of two */
    int64_t filled;
} table_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    table_t *table = object;
    table->slots =
        plim__arena_carve(arena, (size_t)table->num_slots, sizeof(name_slot_t), PLIM__PAGE);
}

/* A table for up to `count` keys, or as many as fit under the line. */
static plim_status_t table_create(const plim__names_t *names, int64_t count, table_t **table_out)
{
    table_t draft = {.num_slots = SLOTS_MIN};
    plim_ledger_t *ledger = names->job->ledger;
    const int64_t spools = SPOOLS * (int64_t)plim__spool_estimate(names->buffer);
    const int64_t room = plim__ledger_available(ledger) - spools - (int64_t)PLIM__PAGE;
    while (draft.num_slots < SLOTS_MAX && draft.num_slots / 4 * 3 < count &&
           2 * draft.num_slots * (int64_t)sizeof(name_slot_t) < room)
        draft.num_slots *= 2;
    if (draft.num_slots * (int64_t)sizeof(name_slot_t) >= room) {
        (void)plim__ledger_refuse(ledger, names->from, "numbering the ids",
                                  (size_t)spools + 2 * PLIM__PAGE +
                                      (size_t)SLOTS_MIN * sizeof(name_slot_t));
        return PLIM_ERR_BUDGET;
    }
    return plim__object_create(ledger, "relabel", lay_out, &draft, sizeof draft, &draft.arena,
                               table_out);
}

static void table_clear(table_t *table)
{
    for (int64_t i = 0; i < table->num_slots; i++)
        table->slots[i].node = -1;
    table->filled = 0;
}

static bool table_full(const table_t *table)
{
    return table->filled >= table->num_slots / 4 * 3;
}

/* The slot of the key, or the free one where it belongs. */
static name_slot_t *table_slot(table_t *table, XXH128_hash_t key)
{
    int64_t at = (int64_t)(key.low64 & (uint64_t)(table->num_slots - 1));
    while (table->slots[at].node >= 0 && !XXH128_isEqual(table->slots[at].key, key))
        at = (at + 1) & (table->num_slots - 1);
    return &table->slots[at];
}

static void table_put(table_t *table, name_slot_t *slot, XXH128_hash_t key, int64_t node)
{
    slot->key = key;
    slot->node = node;
    table->filled++;
}

plim_status_t plim__names_create(plim__names_t *names, const plim_job_t *job, const char *tmp,
                                 size_t buffer, const char *from)
{
    *names = (plim__names_t){.job = job, .tmp = tmp, .buffer = buffer, .integers = true};
    (void)snprintf(names->from, sizeof names->from, "%s", from);
    return plim__spool_create(job, tmp, buffer, &names->texts);
}

void plim__names_destroy(plim__names_t *names)
{
    plim__name_keys_destroy(&names->keys);
    plim__spool_destroy(names->texts);
    names->texts = NULL;
}

plim_status_t plim__name_keys_add(plim__name_keys_t *keys, const plim__names_t *names,
                                  plim__text_field_t name)
{
    const XXH128_hash_t key = XXH3_128bits(name.begin, name.size);
    if (keys->file == NULL)
        PLIM_TRY(plim__spool_create(names->job, names->tmp, names->buffer, &keys->file));
    keys->count++;
    return plim__spool_write(keys->file, &key, sizeof key);
}

void plim__name_keys_destroy(plim__name_keys_t *keys)
{
    plim__spool_destroy(keys->file);
    *keys = (plim__name_keys_t){.file = NULL};
}

/* Whether the name is an integer as it is printed: neither +7 nor 007. */
static bool is_integer(plim__text_field_t name)
{
    char text[24];
    int64_t value;
    if (name.size > 20)
        return false;
    memcpy(text, name.begin, name.size);
    text[name.size] = '\n';
    const char *end = text;
    if (!plim__number_i64(&end, &value) || end != text + name.size)
        return false;
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return strlen(text) == name.size && memcmp(text, name.begin, name.size) == 0;
}

plim_status_t plim__names_add(plim__names_t *names, plim__text_field_t name)
{
    const unsigned char size = (unsigned char)name.size;
    if (name.size > PLIM__ID_TEXT_MAX)
        return plim__fail(PLIM_ERR_DATA, "the name %.32s… has %zu bytes; at most %d are supported",
                          name.begin, name.size, PLIM__ID_TEXT_MAX);
    names->integers = names->integers && is_integer(name);
    names->text_bytes += size;
    PLIM_TRY(plim__name_keys_add(&names->keys, names, name));
    PLIM_TRY(plim__spool_write(names->texts, &size, sizeof size));
    return plim__spool_write(names->texts, name.begin, name.size);
}

/* Fills the table with the names from `first` on, and returns the first that did not fit. Looks the
 * names after those up, too, so that a name that occurs twice is found. */
static plim_status_t load(plim__names_t *names, table_t *table, int64_t first, int64_t *next_out)
{
    XXH128_hash_t key;
    table_clear(table);
    *next_out = names->keys.count;
    PLIM_TRY(plim__spool_rewind(names->keys.file, false));
    for (int64_t node = 0; node < names->keys.count; node++) {
        if (node % 65536 == 0)
            PLIM_TRY(plim__job_check(names->job));
        PLIM_TRY(plim__spool_read(names->keys.file, &key, sizeof key));
        if (node < first)
            continue;
        name_slot_t *slot = table_slot(table, key);
        if (slot->node >= 0)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: rows %" PRId64 " and %" PRId64 " (from 0) have the same id; "
                              "each node must occur once",
                              names->from, slot->node, node);
        if (!table_full(table))
            table_put(table, slot, key, node);
        else
            *next_out = plim__min_i64(*next_out, node);
    }
    return PLIM_OK;
}

plim_status_t plim__names_check(plim__names_t *names)
{
    table_t *table;
    int64_t next = 0;
    if (names->keys.count == 0)
        return plim__fail(PLIM_ERR_DATA, "%s has no rows, so there are no nodes", names->from);
    PLIM_TRY(table_create(names, names->keys.count, &table));
    plim_status_t status = PLIM_OK;
    while (next < names->keys.count && status == PLIM_OK)
        status = load(names, table, next, &next);
    plim__arena_destroy(&table->arena);
    return status;
}

/* A pass over all keys. */
typedef struct names_pass {
    plim__names_t *names;
    const plim__name_keys_t *keys;
    table_t *table;
    plim__id_spool_t *firsts; /* if not NULL, keys that are new become nodes */
    int64_t num_nodes;        /* of these */
    int64_t missing;          /* position of the first key that was not found, or -1 */
} names_pass_t;

/* The node of the key at `at`; -1 when it is not in the table. */
static plim_status_t look_up(names_pass_t *pass, XXH128_hash_t key, int64_t at, int64_t *node_out)
{
    name_slot_t *slot = table_slot(pass->table, key);
    if (slot->node < 0 && pass->firsts != NULL && !table_full(pass->table)) {
        table_put(pass->table, slot, key, pass->num_nodes++);
        PLIM_TRY(plim__id_spool_write(pass->firsts, &at, 1));
    }
    *node_out = slot->node;
    if (slot->node < 0 && pass->missing < 0)
        pass->missing = at;
    return PLIM_OK;
}

/* Looks up the keys whose node in `before` (NULL: none) is -1; writes all nodes to `after`. */
static plim_status_t run_pass(names_pass_t *pass, plim__id_spool_t *before, plim__id_spool_t *after)
{
    XXH128_hash_t keys[CHUNK];
    int64_t nodes[CHUNK], got;
    const int64_t count = pass->keys->count;
    pass->missing = -1;
    PLIM_TRY(plim__spool_rewind(pass->keys->file, false));
    for (int64_t done = 0; done < count;) {
        const int64_t chunk = plim__min_i64(CHUNK, count - done);
        PLIM_TRY(plim__job_check(pass->names->job));
        PLIM_TRY(plim__spool_read(pass->keys->file, keys, (size_t)chunk * sizeof keys[0]));
        if (before != NULL)
            PLIM_TRY(before->ids.read(&before->ids, nodes, chunk, &got));
        for (int64_t i = 0; i < chunk; i++)
            if (before == NULL || nodes[i] < 0)
                PLIM_TRY(look_up(pass, keys[i], done + i, &nodes[i]));
        PLIM_TRY(plim__id_spool_write(after, nodes, chunk));
        done += chunk;
        plim__progress(pass->names->job, "relabelling", "ids", done, count);
    }
    return PLIM_OK;
}

/* Passes with one part of the table after the other, until all keys are found or no names are
 * left. */
static plim_status_t run_passes(names_pass_t *pass, plim__id_spool_t spools[2])
{
    plim__names_t *names = pass->names;
    int64_t next = 0;
    for (int i = 0;; i++) {
        plim__id_spool_t *before = i == 0 ? NULL : &spools[1], *after = &spools[0];
        if (pass->firsts == NULL)
            PLIM_TRY(load(names, pass->table, next, &next));
        else
            table_clear(pass->table);
        PLIM_TRY(plim__id_spool_create(after, names->job, names->tmp, names->buffer, names->from));
        if (before != NULL)
            PLIM_TRY(plim__id_spool_rewind(before, true));
        PLIM_TRY(run_pass(pass, before, after));
        plim__id_spool_destroy(&spools[1]);
        if (pass->missing < 0 || (pass->firsts == NULL && next == names->keys.count))
            return plim__id_spool_rewind(after, false);
        spools[1] = spools[0];
        spools[0].file = NULL;
    }
}

static plim_status_t find(plim__names_t *names, const plim__name_keys_t *keys,
                          plim__id_spool_t *firsts, plim__id_spool_t *ids_out, int64_t *missing_out)
{
    plim__id_spool_t spools[2] = {{.file = NULL}, {.file = NULL}};
    names_pass_t pass = {.names = names, .keys = keys, .firsts = firsts, .missing = -1};
    PLIM_TRY(table_create(names, firsts != NULL ? keys->count : names->keys.count, &pass.table));
    plim_status_t status = run_passes(&pass, spools);
    plim__arena_destroy(&pass.table->arena);
    plim__id_spool_destroy(&spools[1]);
    if (status != PLIM_OK) {
        plim__id_spool_destroy(&spools[0]);
        return status;
    }
    *ids_out = spools[0];
    *missing_out = pass.missing;
    return PLIM_OK;
}

plim_status_t plim__names_find(plim__names_t *names, const plim__name_keys_t *keys,
                               plim__id_spool_t *ids_out, int64_t *missing_out)
{
    return find(names, keys, NULL, ids_out, missing_out);
}

plim_status_t plim__names_number(plim__names_t *names, const plim__name_keys_t *keys,
                                 plim__id_spool_t *ids_out, plim__id_spool_t *firsts_out)
{
    int64_t missing;
    PLIM_TRY(plim__id_spool_create(firsts_out, names->job, names->tmp, names->buffer, names->from));
    plim_status_t status = find(names, keys, firsts_out, ids_out, &missing);
    if (status == PLIM_OK)
        status = plim__id_spool_rewind(firsts_out, false);
    return status;
}
