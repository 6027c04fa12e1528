/* The ledger of a job: a memory line, and what has been reserved under it, by name. */
#ifndef PLIM_MEM_LEDGER_H
#define PLIM_MEM_LEDGER_H

#include "base/job.h"

#define PLIM__ACCOUNTS_MAX 48
#define PLIM__ARENAS_MAX 96

/* A live arena. When one arena of an account ends, the resident bytes of all of them are counted.
 */
typedef struct plim__arena_entry {
    const char *base; /* NULL: free */
    size_t size;
    int account;
} plim__arena_entry_t;

struct plim_ledger {
    pthread_mutex_t lock; /* guards everything below but line and threads */
    int64_t line;
    int threads;      /* for the reserve */
    int64_t reserved; /* at most the line */
    int64_t peak;
    int num_accounts;
    plim_account_info_t accounts[PLIM__ACCOUNTS_MAX];
    plim__arena_entry_t arenas[PLIM__ARENAS_MAX]; /* further ones are not counted */
};

/*
 * Creates a ledger with a line of line_bytes (PLIM_LINE_NONE for no line) and its first accounts,
 * as plim_job_create says. With plan_only it has no line; line_bytes then only decides how much of
 * the memory of other processes is entered. PLIM_ERR_NOMEM. Memory: its own pages.
 */
plim_status_t plim__ledger_create(int64_t line_bytes, int threads, bool plan_only,
                                  plim_ledger_t **ledger_out);

/* Everything reserved must have been released. NULL is harmless. */
void plim__ledger_destroy(plim_ledger_t *ledger);

/* The line, the bytes reserved now, the most ever reserved, and line minus reserved. Thread-safe.
 */
int64_t plim__ledger_line(const plim_ledger_t *ledger);
int64_t plim__ledger_reserved(plim_ledger_t *ledger);
int64_t plim__ledger_peak(plim_ledger_t *ledger);
int64_t plim__ledger_available(plim_ledger_t *ledger);

/* Bytes that the calling thread has reserved less those that it has released, on any ledger: their
 * difference over a call is what the call has taken, whatever other threads do meanwhile. */
int64_t plim__ledger_thread_bytes(void);

/*
 * Copies the first `capacity` accounts, in the order they were first reserved, to infos_out and
 * returns how many accounts there are. Thread-safe.
 */
int plim__ledger_accounts(plim_ledger_t *ledger, int capacity, plim_account_info_t *infos_out);

/* Maps memory that a forked child does not inherit: it reads zeros there. MAP_FAILED if the system
 * refuses. */
void *plim__map_own(size_t size);

/* Add an arena to the live ones, and remove it before it is unmapped, which counts the resident
 * bytes of its account. */
void plim__ledger_enter(plim_ledger_t *ledger, int account, const char *base, size_t size);
void plim__ledger_leave(plim_ledger_t *ledger, int account, const char *base);

#endif
