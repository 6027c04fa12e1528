#include "watch/watch_record.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void watch_record_begin(watch_record_t *record, const char *kind)
{
    record->line[0] = '\n';
    record->json = plim__json_writer(record->line + 1, WATCH_RECORD_LINE - 2);
    plim__json_open(&record->json, NULL, '{');
    plim__json_put_text(&record->json, "kind", kind, SIZE_MAX);
}

void watch_record_number(watch_record_t *record, const char *key, int64_t value)
{
    if (value >= 0 && value != INT64_MAX)
        plim__json_put_integer(&record->json, key, value);
}

void watch_record_real(watch_record_t *record, const char *key, int decimals, double value)
{
    if (value >= 0)
        plim__json_put_real(&record->json, key, decimals, value);
}

bool watch_record_differs(int64_t now, int64_t then)
{
    const int64_t change = llabs(now - then);
    return change > (int64_t)1 << 20 && change > plim__max_i64(then, 0) / 100;
}

bool watch_record_write(watch_record_t *record)
{
    /* A torn line is ended first; nothing else may be lost with it. */
    const char *begin = record->line + (record->torn ? 0 : 1);
    plim__json_close(&record->json, '}');
    char *end = record->line + 1 + record->json.used;
    *end++ = '\n';
    const size_t size = (size_t)(end - begin);
    ssize_t wrote;
    do
        wrote = write(record->file, begin, size);
    while (wrote < 0 && errno == EINTR);
    record->error = wrote < 0 ? errno : (size_t)wrote < size ? ENOSPC : 0;
    if (wrote > 0)
        record->torn = (size_t)wrote < size;
    return record->error == 0;
}
