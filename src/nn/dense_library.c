/* What oneDNN takes for itself, on the ledgers of those who use it. */
#include "nn/dense.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "mem/libraries.h"
#include "nn/onednn.h"

#include <pthread.h>

/* A ledger that holds the library's memory, and how often it was asked to. */
typedef struct holder {
    plim_ledger_t *ledger; /* NULL: nobody's */
    int account;
    int depth;
    size_t bytes;
} holder_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static holder_t holders[16]; /* under the lock */

static holder_t *find_holder(const plim_ledger_t *ledger)
{
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++)
        if (holders[i].ledger == ledger)
            return &holders[i];
    return NULL;
}

static void release(holder_t *holder)
{
    plim__ledger_release(holder->ledger, holder->account, holder->bytes);
    plim__ledger_add_spare(holder->ledger, -PLIM__ONEDNN_SPARE_BYTES);
    *holder = (holder_t){0};
}

/* Under the lock. */
static plim_status_t hold(plim_ledger_t *ledger)
{
    int account;
    holder_t *holder = find_holder(ledger);
    if (holder != NULL) {
        holder->depth++;
        return PLIM_OK;
    }
    holder = find_holder(NULL);
    if (holder == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "too many runs use oneDNN at once in this process");
    const size_t bytes = plim__onednn_library_bytes();
    plim__ledger_add_spare(ledger, PLIM__ONEDNN_SPARE_BYTES);
    plim_status_t status = plim__ledger_reserve(ledger, "oneDNN", bytes, &account);
    if (status != PLIM_OK) {
        plim__ledger_add_spare(ledger, -PLIM__ONEDNN_SPARE_BYTES);
        return status;
    }
    *holder = (holder_t){ledger, account, 1, bytes};
    status = plim__onednn_load();
    if (status != PLIM_OK)
        release(holder);
    return status;
}

plim_status_t plim__dense_library_begin(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&lock);
    plim_status_t status = hold(ledger);
    pthread_mutex_unlock(&lock);
    return status;
}

void plim__dense_library_end(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&lock);
    holder_t *holder = find_holder(ledger);
    if (holder != NULL && --holder->depth == 0)
        release(holder);
    pthread_mutex_unlock(&lock);
}

size_t plim__dense_library_bytes(void)
{
    return plim__onednn_library_bytes();
}

void plim__dense_library_rest(void)
{
    plim__onednn_rest();
}

int64_t plim__dense_library_spare(void)
{
    return PLIM__ONEDNN_SPARE_BYTES;
}

size_t plim__dense_library_reading(void)
{
    const int64_t ahead = plim__min_i64(plim__libraries_ahead(), PLIM__ONEDNN_READING_MOST);
    return (size_t)plim__min_i64(PLIM__ONEDNN_PLACES * ahead, PLIM__ONEDNN_READING_MOST);
}

const char *plim__dense_library_version(void)
{
    return plim__onednn_version();
}
