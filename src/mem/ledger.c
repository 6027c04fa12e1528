/* Named accounts under one line. The ledger's `reserved` is the sum of the accounts', always. */
#include "mem/ledger.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "mem/kernel_text.h"
#include "mem/size_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((int64_t)1 << 20)

static _Thread_local int64_t thread_bytes; /* reserved less released by this thread */

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

/* Enters memory that is in use already, even above the line: the next reservation is then refused,
 * with the minimum line. */
static void enter_first(plim_ledger_t *ledger, const char *name, int64_t bytes)
{
    if (bytes <= 0)
        return;
    plim_account_info_t *account = &ledger->accounts[find_account(ledger, name)];
    account->reserved = account->peak = bytes;
    ledger->reserved += bytes;
    ledger->peak = ledger->reserved;
}

plim_status_t plim__ledger_create(int64_t line_bytes, int threads, bool plan_only,
                                  plim_ledger_t **ledger_out)
{
    plim_ledger_t *ledger = plim__map_own(sizeof *ledger);
    if (ledger == MAP_FAILED)
        return plim__fail(PLIM_ERR_NOMEM, "no memory for the ledger itself");
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->line = plan_only ? PLIM_LINE_NONE : line_bytes;
    ledger->threads = threads > 0 ? threads : 1;
    enter_first(ledger, "process", plim__kernel_own_bytes("", "VmRSS"));
    enter_first(ledger, "reserve", plim__ledger_reserve_bytes(ledger));
    enter_first(ledger, "other processes", plim__footprint_neighbours("", line_bytes));
    *ledger_out = ledger;
    return PLIM_OK;
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

int64_t plim__ledger_reserve_bytes(const plim_ledger_t *ledger)
{
    return plim__footprint_reserve(ledger->line, ledger->threads);
}

int64_t plim__ledger_reserved(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    int64_t reserved = ledger->reserved;
    pthread_mutex_unlock(&ledger->lock);
    return reserved;
}

int64_t plim__ledger_thread_bytes(void)
{
    return thread_bytes;
}

int64_t plim__ledger_peak(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    int64_t peak = ledger->peak;
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

/* The smallest line, in MiB, under which `bytes` more fit. */
static int64_t minimum_with(plim_ledger_t *ledger, size_t bytes)
{
    const int64_t more = bytes < (size_t)INT64_MAX / 2 ? (int64_t)bytes : INT64_MAX / 2;
    const int64_t fixed = plim__add_saturating_i64(
        plim__ledger_reserved(ledger) - plim__ledger_reserve_bytes(ledger), more);
    /* Whole MiB, and one above: the process differs by some pages from run to run. */
    return plim__min_i64(plim__footprint_minimum(fixed, ledger->threads) / MIB + 2,
                         INT64_MAX / MIB);
}

static plim_status_t refuse(plim_ledger_t *ledger, const char *name, size_t bytes)
{
    char more[PLIM__SIZE_TEXT], taken[PLIM__SIZE_TEXT], line[PLIM__SIZE_TEXT];
    (void)plim__fail(
        PLIM_ERR_BUDGET,
        "the memory line of %s is too low: %s needs %s, and %s are in use already; raise `memory` "
        "to %lldM or more",
        plim__size_text(ledger->line, line), name,
        plim__size_text(bytes < (size_t)INT64_MAX ? (int64_t)bytes : INT64_MAX - 1, more),
        plim__size_text(plim__ledger_reserved(ledger), taken),
        (long long)minimum_with(ledger, bytes));
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", minimum_with(ledger, bytes) * MIB,
                              ledger->line);
}

plim_status_t plim__ledger_reserve(plim_ledger_t *ledger, const char *name, size_t size,
                                   int *account_out)
{
    pthread_mutex_lock(&ledger->lock);
    if (size > (size_t)INT64_MAX || (int64_t)size > ledger->line - ledger->reserved) {
        pthread_mutex_unlock(&ledger->lock);
        return refuse(ledger, name, size);
    }
    int number = find_account(ledger, name);
    plim_account_info_t *account = &ledger->accounts[number];
    account->reserved += (int64_t)size;
    if (account->reserved > account->peak)
        account->peak = account->reserved;
    ledger->reserved += (int64_t)size;
    thread_bytes += (int64_t)size;
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
    thread_bytes -= (int64_t)size;
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

plim_status_t plim__ledger_refuse(plim_ledger_t *ledger, const char *source, const char *what,
                                  size_t bytes)
{
    char line[PLIM__SIZE_TEXT];
    const int64_t minimum = minimum_with(ledger, bytes);
    (void)plim__fail(PLIM_ERR_BUDGET,
                     "%s: %s needs at least %lld MiB in all, but the memory line is %s; raise "
                     "`memory` to %lldM or more",
                     source, what, (long long)minimum,
                     plim__size_text(plim__ledger_line(ledger), line), (long long)minimum);
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", minimum * MIB, plim__ledger_line(ledger));
}
