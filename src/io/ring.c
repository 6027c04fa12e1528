#include "io/ring.h"

#include "base/check.h"
#include "io/transfer.h"
#include "mem/arena.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* The first feature tells Linux 5.6, which brought READ and WRITE. The second one: completions are
 * never dropped. */
#define FEATURES_NEEDED (IORING_FEAT_RW_CUR_POS | IORING_FEAT_NODROP)

/* Upper bound for a request and its bios in the kernel. */
#define REQUEST_BYTES ((size_t)1024)

/* Retries, 100 microseconds apart, while the kernel lacks memory for requests. */
#define STARVED_MAX 1000

size_t plim__ring_bytes(int depth)
{
    size_t entries = 1;
    while (entries < (size_t)depth)
        entries *= 2;
    size_t submissions = entries * sizeof(struct io_uring_sqe);
    size_t rings = entries * sizeof(uint32_t) + 2 * entries * sizeof(struct io_uring_cqe) + 1024;
    return plim__round_up(submissions, PLIM__PAGE) + plim__round_up(rings, PLIM__PAGE) +
           plim__round_up((size_t)depth * REQUEST_BYTES, PLIM__PAGE);
}

int plim__ring_start(plim__ring_t *ring, int depth)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    memset(ring, 0, sizeof *ring);
    int error = io_uring_queue_init_params((unsigned)depth, &ring->uring, &params);
    if (error < 0)
        return -error;
    (void)io_uring_ring_dontfork(&ring->uring); /* a forked child has no use for it */
    if ((params.features & FEATURES_NEEDED) != FEATURES_NEEDED) {
        io_uring_queue_exit(&ring->uring);
        return ENOSYS;
    }
    return 0;
}

void plim__ring_stop(plim__ring_t *ring)
{
    io_uring_queue_exit(&ring->uring);
}

void plim__ring_put(plim__ring_t *ring, plim__op_t *op)
{
    op->next = NULL;
    if (ring->unsent == NULL)
        ring->unsent = op;
    else
        ring->unsent_last->next = op;
    ring->unsent_last = op;
    if (ring->refused != 0)
        return;
    /* Never NULL: the queue has an entry for every operation. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    char *data = (char *)op->data + op->moved;
    unsigned size = (unsigned)(op->size - op->moved);
    uint64_t offset = (uint64_t)op->offset + op->moved;
    if (op->write)
        io_uring_prep_write(sqe, op->file->fd, data, size, offset);
    else
        io_uring_prep_read(sqe, op->file->fd, data, size, offset);
    io_uring_sqe_set_data(sqe, op);
}

static void pause_shortly(void)
{
    struct timespec pause = {0, 100000};
    (void)nanosleep(&pause, NULL);
}

/* Submits and waits for `wanted` completions; removes what the kernel took from the unsent list. */
static void enter(plim__ring_t *ring, unsigned wanted)
{
    if (ring->refused != 0) {
        pause_shortly();
        return;
    }
    int taken = io_uring_submit_and_wait(&ring->uring, wanted);
    bool starved = taken == -EAGAIN || taken == -EBUSY || taken == -ENOMEM;
    ring->starved = starved ? ring->starved + 1 : 0;
    if (starved && ring->starved < STARVED_MAX)
        pause_shortly();
    else if (taken < 0 && taken != -EINTR)
        ring->refused = -taken;
    for (; taken > 0 && ring->unsent != NULL; taken--)
        ring->unsent = ring->unsent->next;
}

/* Handles every completion; incomplete operations are queued again. */
static plim__op_t *reap(plim__ring_t *ring)
{
    struct io_uring_cqe *cqe;
    plim__op_t *finished = NULL;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&ring->uring, head, cqe)
    {
        plim__op_t *op = io_uring_cqe_get_data(cqe);
        seen++;
        if (cqe->res == -ECANCELED) { /* the kernel got no thread for it: signals, or ulimit -u */
            plim__transfer_run(op);
        } else if (!plim__transfer_take(op, cqe->res)) {
            plim__ring_put(ring, op);
            continue;
        }
        op->next = finished;
        finished = op;
    }
    io_uring_cq_advance(&ring->uring, seen);
    return finished;
}

/* For a kernel that created the ring but refuses to enter it (a seccomp filter installed later):
 * runs the unsent operations here, one by one. */
static plim__op_t *do_unsent(plim__ring_t *ring, plim__op_t *finished)
{
    while (ring->unsent != NULL) {
        plim__op_t *op = ring->unsent;
        ring->unsent = op->next;
        plim__transfer_run(op);
        op->next = finished;
        finished = op;
    }
    return finished;
}

void plim__ring_send(plim__ring_t *ring)
{
    if (ring->unsent != NULL && ring->refused == 0)
        enter(ring, 0);
}

plim__op_t *plim__ring_collect(plim__ring_t *ring)
{
    plim__ring_send(ring);
    plim__op_t *finished = reap(ring);
    while (finished == NULL) {
        if (ring->refused != 0)
            finished = do_unsent(ring, finished);
        if (finished != NULL)
            break;
        enter(ring, 1);
        finished = reap(ring);
    }
    plim__ring_send(ring);
    return finished;
}
