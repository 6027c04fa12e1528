/* The ledger's inside, for src/mem alone. */
#ifndef PLIM_MEM_LEDGER_H
#define PLIM_MEM_LEDGER_H

#include <plimsoll/ledger.h>
#include <pthread.h>
#include <stddef.h>

#define PLIM__ACCOUNTS_MAX 48
#define PLIM__ARENAS_MAX 96

/* An arena that lives: looked at when one of its account ends. */
typedef struct plim__arena_entry {
    const char *base; /* NULL: free */
    size_t size;
    int account;
} plim__arena_entry_t;

struct plim_ledger {
    pthread_mutex_t lock; /* guards everything below but line and neighbours */
    int64_t line;
    int64_t neighbours; /* what others held when it was made */
    int64_t reserved;   /* at most line and spare */
    int64_t spare;      /* code among it, which the kernel may take back */
    int64_t peak;
    int num_accounts;
    plim_account_info_t accounts[PLIM__ACCOUNTS_MAX];
    plim__arena_entry_t arenas[PLIM__ARENAS_MAX]; /* more than so many are not looked at */
};

/*
 * An arena begins, and ends (before it is unmapped): what the account's arenas touched is counted
 * whenever one of them ends.
 */
void plim__ledger_enter(plim_ledger_t *ledger, int account, const char *base, size_t size);
void plim__ledger_leave(plim_ledger_t *ledger, int account, const char *base);

#endif
