#include "store/unique.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"

#include <string.h>

#define BLOCK ((int64_t)8192)               /* ids read at a time */
#define RANGE_MIN ((int64_t)(64 << 10) * 8) /* ids checked in a pass, at least */

typedef struct unique_check {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__file_t *file;
    const char *name;
    int64_t count;
    int64_t range;  /* ids checked in a pass */
    int64_t *block; /* (BLOCK) */
    uint64_t *seen; /* (range / 64) one bit an id */
} unique_check_t;

static plim_status_t read_block(const unique_check_t *check, int64_t first, int64_t *got_out)
{
    *got_out = plim__min_i64(BLOCK, check->count - first);
    PLIM_TRY(plim__job_check(check->job));
    return plim__file_read_at(check->file, PLIM__NPY_HEADER + first * 8, check->block,
                              (size_t)*got_out * 8);
}

static plim_status_t is_ascending(const unique_check_t *check, bool *ascending_out)
{
    int64_t last = INT64_MIN, got;
    for (int64_t first = 0; first < check->count; first += got) {
        PLIM_TRY(read_block(check, first, &got));
        for (int64_t i = 0; i < got; i++) {
            if (check->block[i] <= last) {
                *ascending_out = false;
                return PLIM_OK;
            }
            last = check->block[i];
        }
    }
    *ascending_out = true;
    return PLIM_OK;
}

/* Reports entry `second` and the earlier entry with the same id. */
static plim_status_t report(const unique_check_t *check, int64_t id, int64_t second)
{
    int64_t got;
    for (int64_t first = 0; first < second; first += got) {
        PLIM_TRY(read_block(check, first, &got));
        for (int64_t i = 0; i < got && first + i < second; i++)
            if (check->block[i] == id)
                return plim__fail(
                    PLIM_ERR_DATA,
                    "%s: entries %lld and %lld are both %lld; a split must have each id "
                    "once. Remove repeated ids (numpy.unique) and import again",
                    check->name, (long long)(first + i), (long long)second, (long long)id);
    }
    return plim__fail(PLIM_ERR_DATA, "%s changed while it was read", check->name);
}

/* Checks the ids in [begin, begin + range). */
static plim_status_t check_range(const unique_check_t *check, int64_t begin, int64_t range)
{
    int64_t got;
    memset(check->seen, 0, (size_t)(range / 8));
    for (int64_t first = 0; first < check->count; first += got) {
        PLIM_TRY(read_block(check, first, &got));
        for (int64_t i = 0; i < got; i++) {
            const int64_t id = check->block[i];
            if (id < begin || id - begin >= range)
                continue;
            uint64_t *word = &check->seen[(id - begin) / 64];
            const uint64_t bit = (uint64_t)1 << ((id - begin) % 64);
            if ((*word & bit) != 0)
                return report(check, id, first + i);
            *word |= bit;
        }
    }
    return PLIM_OK;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    unique_check_t *check = draft;
    check->block = plim__arena_carve(arena, (size_t)BLOCK, sizeof(int64_t), 1);
    check->seen = plim__arena_carve(arena, (size_t)(check->range / 64), sizeof(uint64_t), 1);
}

plim_status_t plim__unique_check(const plim_job_t *job, const plim__file_t *file, const char *name,
                                 int64_t count, int64_t bound)
{
    const int64_t bytes = plim__ledger_available(job->ledger) / 2;
    const int64_t most = bytes > bound / 8 ? bound : plim__max_i64(bytes, 0) * 8;
    const int64_t range = plim__max_i64(most, RANGE_MIN) / 64 * 64 + 64;
    unique_check_t draft = {.job = job, .file = file, .name = name, .count = count, .range = range};
    unique_check_t *check;
    bool ascending = true;
    PLIM_TRY(plim__object_create(job->ledger, "split check", lay_out, &draft, sizeof draft,
                                 &draft.arena, &check));
    plim_status_t status = is_ascending(check, &ascending);
    for (int64_t begin = 0; begin < bound && !ascending && status == PLIM_OK; begin += range)
        status = check_range(check, begin, range);
    plim__arena_destroy(&check->arena);
    return status;
}
