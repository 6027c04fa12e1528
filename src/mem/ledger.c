/* Named accounts under one line. The sum of `reserved` over the accounts is the ledger's, always.
 * Code is reserved in full, but where memory is short other things take its place. */
#include "mem/ledger.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "mem/footprint.h"
#include "mem/libraries.h"
#include "mem/size_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((int64_t)1 << 20)

/* Under less than this a process that lacks some of its code does not get on: under 7.8 MiB a run
 * of a second took a minute. */
#define RUNS_BYTES (10 * MIB)

static plim_status_t create(int64_t line_bytes, int64_t neighbours, plim_ledger_t **ledger_out)
{
    plim_ledger_t *ledger = plim__map_own(sizeof *ledger);
    if (ledger == MAP_FAILED)
        return plim__fail(PLIM_ERR_NOMEM, "no memory for the ledger itself");
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->line = line_bytes;
    ledger->neighbours = neighbours;
    ledger->spare = plim__libraries_spare();
    int account;
    plim_status_t status = plim__ledger_reserve(
        ledger, "process", (size_t)plim__footprint_process(line_bytes), &account);
    if (status == PLIM_OK && ledger->neighbours > 0)
        status =
            plim__ledger_reserve(ledger, "other processes", (size_t)ledger->neighbours, &account);
    if (status != PLIM_OK) {
        plim__ledger_destroy(ledger);
        return status;
    }
    *ledger_out = ledger;
    return PLIM_OK;
}

plim_status_t plim__ledger_create(int64_t line_bytes, plim_ledger_t **ledger_out)
{
    return create(line_bytes, plim__footprint_neighbours("", line_bytes), ledger_out);
}

plim_status_t plim__ledger_create_endless(int64_t line_bytes, plim_ledger_t **ledger_out)
{
    return create(PLIM_LINE_NONE, plim__footprint_neighbours("", line_bytes), ledger_out);
}

void plim__ledger_destroy(plim_ledger_t *ledger)
{
    if (ledger == NULL)
        return;
    pthread_mutex_destroy(&ledger->lock);
    (void)munmap(ledger, sizeof *ledger);
}

int64_t plim__ledger_line(const plim_ledger_t *ledger)
{
    return ledger->line;
}

int64_t plim__ledger_neighbours(const plim_ledger_t *ledger)
{
    return ledger->neighbours;
}

int64_t plim__ledger_spare(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    int64_t spare = ledger->spare;
    pthread_mutex_unlock(&ledger->lock);
    return spare;
}

int64_t plim__ledger_lowest(int64_t least, int64_t spare)
{
    return plim__max_i64(least - spare, plim__min_i64(least, RUNS_BYTES));
}

void plim__ledger_add_spare(plim_ledger_t *ledger, int64_t bytes)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->spare += bytes;
    pthread_mutex_unlock(&ledger->lock);
}

int64_t plim__ledger_reserved(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    int64_t reserved = ledger->reserved;
    pthread_mutex_unlock(&ledger->lock);
    return reserved;
}

int64_t plim__ledger_peak(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    int64_t peak = plim__min_i64(ledger->peak, ledger->line); /* above it, code gave way */
    pthread_mutex_unlock(&ledger->lock);
    return peak;
}

int64_t plim__ledger_available(plim_ledger_t *ledger)
{
    return ledger->line - plim__ledger_reserved(ledger);
}

int plim__ledger_accounts(plim_ledger_t *ledger, int capacity, plim_account_info_t *infos_out)
{
    pthread_mutex_lock(&ledger->lock);
    int count = ledger->num_accounts;
    int copied = count < capacity ? count : capacity;
    memcpy(infos_out, ledger->accounts, (size_t)copied * sizeof *infos_out);
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

/* The account's number; when the table is full, all further names share its last entry. Lock held.
 */
static int find_account(plim_ledger_t *ledger, const char *name)
{
    for (int i = 0; i < ledger->num_accounts; i++)
        if (strncmp(ledger->accounts[i].name, name, sizeof ledger->accounts[i].name - 1) == 0)
            return i;
    if (ledger->num_accounts == PLIM__ACCOUNTS_MAX)
        return PLIM__ACCOUNTS_MAX - 1;
    int number = ledger->num_accounts++;
    (void)snprintf(ledger->accounts[number].name, sizeof ledger->accounts[number].name, "%s", name);
    return number;
}

plim_status_t plim__ledger_reserve(plim_ledger_t *ledger, const char *name, size_t size,
                                   int *account_out)
{
    pthread_mutex_lock(&ledger->lock);
    const int64_t room = plim__add_saturating_i64(ledger->line, ledger->spare) - ledger->reserved;
    if (size > (size_t)INT64_MAX || (int64_t)size > room) {
        int64_t reserved = ledger->reserved;
        pthread_mutex_unlock(&ledger->lock);
        char wish[PLIM__SIZE_TEXT], held[PLIM__SIZE_TEXT], line[PLIM__SIZE_TEXT];
        plim__size_text(size < (size_t)INT64_MAX ? (int64_t)size : INT64_MAX - 1, wish);
        plim__size_text(ledger->line, line);
        if (reserved == 0)
            return plim__fail(PLIM_ERR_BUDGET,
                              "the memory line of %s is too low: the %s alone needs %s; raise "
                              "--memory or ask the scheduler for more",
                              line, name, wish);
        return plim__fail(PLIM_ERR_BUDGET,
                          "the memory line of %s is too low: %s needs %s, and %s are taken "
                          "already; raise --memory or ask the scheduler for more",
                          line, name, wish, plim__size_text(reserved, held));
    }
    int number = find_account(ledger, name);
    plim_account_info_t *account = &ledger->accounts[number];
    account->reserved += (int64_t)size;
    if (account->reserved > account->peak)
        account->peak = account->reserved;
    ledger->reserved += (int64_t)size;
    if (ledger->reserved > ledger->peak)
        ledger->peak = ledger->reserved;
    pthread_mutex_unlock(&ledger->lock);
    *account_out = number;
    return PLIM_OK;
}

void plim__ledger_release(plim_ledger_t *ledger, int account, size_t size)
{
    pthread_mutex_lock(&ledger->lock);
    ledger->accounts[account].reserved -= (int64_t)size;
    ledger->reserved -= (int64_t)size;
    pthread_mutex_unlock(&ledger->lock);
}

void plim__ledger_enter(plim_ledger_t *ledger, int account, const char *base, size_t size)
{
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; i < PLIM__ARENAS_MAX; i++)
        if (ledger->arenas[i].base == NULL) {
            ledger->arenas[i] = (plim__arena_entry_t){base, size, account};
            break;
        }
    pthread_mutex_unlock(&ledger->lock);
}

/* Bytes of an arena that are in memory. */
static int64_t count_resident(const plim__arena_entry_t *arena)
{
    unsigned char pages[2048];
    int64_t count = 0;
    for (size_t at = 0; at < arena->size; at += sizeof pages * PLIM__PAGE) {
        const size_t size = arena->size - at < sizeof pages * PLIM__PAGE
                                ? arena->size - at
                                : sizeof pages * PLIM__PAGE;
        if (!plim__arena_resident(arena->base + at, size, pages))
            return count * (int64_t)PLIM__PAGE;
        for (size_t i = 0; i < size / PLIM__PAGE; i++)
            count += pages[i] & 1;
    }
    return count * (int64_t)PLIM__PAGE;
}

void plim__ledger_leave(plim_ledger_t *ledger, int account, const char *base)
{
    int64_t touched = 0;
    pthread_mutex_lock(&ledger->lock);
    for (int i = 0; i < PLIM__ARENAS_MAX; i++) {
        plim__arena_entry_t *arena = &ledger->arenas[i];
        if (arena->base == NULL || arena->account != account)
            continue;
        touched += count_resident(arena);
        if (arena->base == base)
            arena->base = NULL;
    }
    if (touched > ledger->accounts[account].touched)
        ledger->accounts[account].touched = touched;
    pthread_mutex_unlock(&ledger->lock);
}

/* PLIM_ERR_BUDGET of what needs `bytes` more, of which `spare` are code's. */
static plim_status_t refuse(plim_ledger_t *ledger, const char *source, const char *what,
                            size_t bytes, int64_t spare)
{
    char line[PLIM__SIZE_TEXT];
    const int64_t more = bytes < (size_t)INT64_MAX / 2 ? (int64_t)bytes : INT64_MAX / 2;
    const int64_t fixed = plim__add_saturating_i64(
        plim__ledger_reserved(ledger) - plim__footprint_growth(plim__ledger_line(ledger)), more);
    const int64_t lowest = plim__ledger_lowest(plim__footprint_minimum(fixed), spare);
    /* A quarter to spare: under a larger line buffers are larger, and the process by some pages. */
    const int64_t least = (lowest + MIB / 4 + MIB - 1) / MIB;
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s: at least %lld MiB in all are needed for %s, and the memory line is %s; "
                      "give --memory %lldM or more",
                      source, (long long)least, what,
                      plim__size_text(plim__ledger_line(ledger), line), (long long)least);
}

plim_status_t plim__ledger_refuse(plim_ledger_t *ledger, const char *source, const char *what,
                                  size_t bytes)
{
    return refuse(ledger, source, what, bytes, 0);
}

plim_status_t plim__ledger_refuse_spare(plim_ledger_t *ledger, const char *source, const char *what,
                                        size_t bytes)
{
    return refuse(ledger, source, what, bytes, plim__ledger_spare(ledger));
}
