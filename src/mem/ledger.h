/* The ledger's inside, for src/mem alone. */
#ifndef PLIM_MEM_LEDGER_H
#define PLIM_MEM_LEDGER_H

#include <plimsoll/ledger.h>
#include <pthread.h>

#define PLIM__ACCOUNTS_MAX 48

struct plim_ledger {
    pthread_mutex_t lock; /* guards everything below but the line */
    int64_t line;
    int64_t reserved;
    int64_t peak;
    int num_accounts;
    plim_account_info_t accounts[PLIM__ACCOUNTS_MAX];
};

#endif
