/*
 * The ledger: a memory line, and what has been reserved under it, by name.
 *
 *     line ├──────────────────────────────────────────────┤
 *          │ process │ csc build │ writer │ …   available │
 *
 * Every arena of the library reserves its whole size here before it exists, and so does memory that
 * libraries take for us. A reservation past the line, and past what code can give way (some MiB,
 * which the kernel drops and reads again; none in a large process), fails with PLIM_ERR_BUDGET and
 * changes nothing.
 */
#ifndef PLIMSOLL_LEDGER_H
#define PLIMSOLL_LEDGER_H

#include <plimsoll/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plim_ledger plim_ledger_t;

/* One account as it stands: bytes reserved now and at most so far, and how many of them were really
 * in memory at most (known once an arena has ended, 0 for what is no arena). */
typedef struct plim_account_info {
    char name[32];
    int64_t reserved;
    int64_t peak;
    int64_t touched;
} plim_account_info_t;

/* A line that is never reached. */
#define PLIM_LINE_NONE INT64_MAX

/*
 * Opens a ledger with a line of line_bytes (PLIM_LINE_NONE for no line). Its first account,
 * "process", is what this process costs already and will cost: code, libraries, stacks, the
 * kernel's own pages, the page tables of all it may touch (1/512 of the line). Where other
 * processes of the same control group hold so much that the line cannot be reached, that is an
 * account as well, "other processes", as it stands now. Returns PLIM_ERR_BUDGET when these alone
 * are past the line, PLIM_ERR_NOMEM. Peak memory: two pages.
 */
PLIM_API plim_status_t plim_ledger_create(int64_t line_bytes, plim_ledger_t **ledger_out);

/* The same without a line, for plans of what does not fit under one of line_bytes: what others hold
 * below that stands in it nevertheless. */
PLIM_API plim_status_t plim_ledger_create_endless(int64_t line_bytes, plim_ledger_t **ledger_out);

/* Ends a ledger; all that was reserved in it must have been released. NULL is harmless. */
PLIM_API void plim_ledger_destroy(plim_ledger_t *ledger);

/* The line, the bytes reserved now, the most ever reserved but at most the line, and line minus
 * reserved: negative while code gives way. Thread-safe. */
PLIM_API int64_t plim_ledger_line(const plim_ledger_t *ledger);
PLIM_API int64_t plim_ledger_reserved(plim_ledger_t *ledger);
PLIM_API int64_t plim_ledger_peak(plim_ledger_t *ledger);
PLIM_API int64_t plim_ledger_available(plim_ledger_t *ledger);

/*
 * Copies the first `capacity` accounts, in the order they were first reserved, to infos_out and
 * returns how many accounts there are. Thread-safe.
 */
PLIM_API int plim_ledger_accounts(plim_ledger_t *ledger, int capacity,
                                  plim_account_info_t *infos_out);

#ifdef __cplusplus
}
#endif
#endif
