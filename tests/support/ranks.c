#include "support/ranks.h"

#include "base/rng.h"
#include "support/harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

atomic_llong test_ranks_operations, test_ranks_bytes;

/* The traffic with one other rank in the current operation: a frame is its size, then the bytes. */
typedef struct link {
    int socket;
    uint64_t send_size, receive_size; /* in the frame; received with the frame */
    const char *send;
    char *receive;
    size_t expected;       /* bytes that this rank waits for */
    size_t sent, received; /* frame's size included */
    bool sends, receives;  /* in this operation */
} link_t;

typedef struct rank {
    int rank, num_ranks;
    test_fault_t fault;
    int64_t operation;
    link_t links[TEST_RANKS_MAX];
    char damaged[1 << 16]; /* a message that is damaged on the way */
    char message[128];
} rank_t;

void test_rank_fail(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: %s does not hold: %s\n", file, line, condition,
                  plim_last_error());
    abort();
}

static bool faulty(const rank_t *rank, int kind)
{
    return (int)rank->fault.kind == kind && rank->fault.rank == rank->rank &&
           (rank->operation == rank->fault.at ||
            (kind == TEST_LATE && rank->operation > rank->fault.at));
}

/* Begins an operation: what every link sends and receives is added afterwards. */
static void begin(rank_t *rank)
{
    for (int other = 0; other < rank->num_ranks; other++) {
        const int socket = rank->links[other].socket;
        rank->links[other] = (link_t){.socket = socket};
    }
    if (faulty(rank, TEST_DIES))
        _exit(rank->fault.exit_code);
    if (faulty(rank, TEST_LATE))
        (void)usleep((unsigned)(plim__rng_u64((uint64_t)rank->rank, (uint64_t)rank->operation) %
                                (uint64_t)rank->fault.micros));
    atomic_fetch_add(&test_ranks_operations, 1);
}

static void add_send(rank_t *rank, int other, const void *bytes, size_t size)
{
    link_t *link = &rank->links[other];
    if (faulty(rank, TEST_DAMAGES) && rank->fault.byte < size) {
        rank_assert(size <= sizeof rank->damaged);
        memcpy(rank->damaged, bytes, size);
        rank->damaged[rank->fault.byte] = (char)~rank->damaged[rank->fault.byte];
        bytes = rank->damaged;
    }
    if (faulty(rank, TEST_TRUNCATES) && rank->fault.byte < size)
        size = rank->fault.byte;
    link->sends = true;
    link->send = bytes;
    link->send_size = size;
    atomic_fetch_add(&test_ranks_bytes, (long long)size);
}

static void add_receive(rank_t *rank, int other, void *bytes, size_t size)
{
    link_t *link = &rank->links[other];
    link->receives = true;
    link->receive = bytes;
    link->expected = size;
}

static plim_status_t start_all_to_all(void *state, const void *send, const size_t *send_sizes,
                                      const size_t *send_offsets, void *receive,
                                      const size_t *receive_sizes, const size_t *receive_offsets)
{
    rank_t *rank = state;
    begin(rank);
    for (int other = 0; other < rank->num_ranks; other++) {
        const char *from = (const char *)send + send_offsets[other];
        char *to = (char *)receive + receive_offsets[other];
        if (other == rank->rank) {
            rank_assert(send_sizes[other] == receive_sizes[other]);
            memcpy(to, from, send_sizes[other]);
        } else {
            add_send(rank, other, from, send_sizes[other]);
            add_receive(rank, other, to, receive_sizes[other]);
        }
    }
    return PLIM_OK;
}

static plim_status_t start_all_gather(void *state, const void *send, void *receive,
                                      const size_t *sizes, const size_t *offsets)
{
    rank_t *rank = state;
    begin(rank);
    for (int other = 0; other < rank->num_ranks; other++) {
        char *to = (char *)receive + offsets[other];
        if (other != rank->rank) {
            add_send(rank, other, send, sizes[rank->rank]);
            add_receive(rank, other, to, sizes[other]);
        } else if (to != send) {
            memcpy(to, send, sizes[other]);
        }
    }
    return PLIM_OK;
}

static plim_status_t start_broadcast(void *state, void *buffer, size_t size, int root)
{
    rank_t *rank = state;
    begin(rank);
    for (int other = 0; other < rank->num_ranks; other++) {
        if (rank->rank == root && other != root)
            add_send(rank, other, buffer, size);
        if (rank->rank != root && other == root)
            add_receive(rank, other, buffer, size);
    }
    return PLIM_OK;
}

/* One piece of a frame, of `size` bytes from `bytes`: the frame's size stands in front of them. */
static size_t piece_of(size_t done, void *size, void *bytes, size_t count, char **piece_out)
{
    if (done < sizeof(uint64_t)) {
        *piece_out = (char *)size + done;
        return sizeof(uint64_t) - done;
    }
    *piece_out = (char *)bytes + (done - sizeof(uint64_t));
    return count - (done - sizeof(uint64_t));
}

static plim_status_t fail_link(rank_t *rank, int other, const char *what)
{
    (void)snprintf(rank->message, sizeof rank->message, "rank %d %s", other, what);
    return PLIM_ERR_IO;
}

/* Moves what the socket takes and has. */
static plim_status_t advance(rank_t *rank, int other)
{
    link_t *link = &rank->links[other];
    char *piece;
    size_t size;
    while (link->sends && link->sent < sizeof(uint64_t) + link->send_size) {
        size = piece_of(link->sent, &link->send_size, (void *)(uintptr_t)link->send,
                        link->send_size, &piece);
        const ssize_t moved = send(link->socket, piece, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved < 0 && errno == EAGAIN)
            break;
        if (moved <= 0)
            return fail_link(rank, other, "is gone");
        link->sent += (size_t)moved;
    }
    while (link->receives && link->received < sizeof(uint64_t) + link->expected) {
        size = piece_of(link->received, &link->receive_size, link->receive, link->expected, &piece);
        const ssize_t moved = recv(link->socket, piece, size, MSG_DONTWAIT);
        if (moved < 0 && errno == EAGAIN)
            break;
        if (moved <= 0)
            return fail_link(rank, other, "is gone");
        link->received += (size_t)moved;
        if (link->received >= sizeof(uint64_t) && link->receive_size != link->expected)
            return fail_link(rank, other, "sent a message of another size");
    }
    return PLIM_OK;
}

static plim_status_t test(void *state, bool *done_out)
{
    rank_t *rank = state;
    bool done = !faulty(rank, TEST_SILENT);
    for (int other = 0; done && other < rank->num_ranks; other++) {
        if (other == rank->rank)
            continue;
        const plim_status_t status = advance(rank, other);
        if (status != PLIM_OK)
            return status;
    }
    for (int other = 0; done && other < rank->num_ranks; other++) {
        const link_t *link = &rank->links[other];
        done = (!link->sends || link->sent == sizeof(uint64_t) + link->send_size) &&
               (!link->receives || link->received == sizeof(uint64_t) + link->expected);
    }
    rank->operation += done;
    *done_out = done;
    return PLIM_OK;
}

static int absent(void *state)
{
    const rank_t *rank = state;
    for (int other = 0; other < rank->num_ranks; other++)
        if (rank->links[other].receives && rank->links[other].received == 0)
            return other;
    for (int other = 0; other < rank->num_ranks; other++)
        if (rank->links[other].sends &&
            rank->links[other].sent < sizeof(uint64_t) + rank->links[other].send_size)
            return other;
    return -1;
}

static const char *message(void *state)
{
    return ((rank_t *)state)->message;
}

typedef struct rank_thread {
    pthread_t handle;
    rank_t *rank;
    double timeout_seconds;
    test_rank_fn body;
    void *context;
} rank_thread_t;

/* Runs one rank; its sockets are closed when it ends, as those of a process. */
static void *run_rank(void *argument)
{
    const rank_thread_t *thread = argument;
    rank_t *rank = thread->rank;
    plim_transport_t transport = {.size = sizeof transport,
                                  .state = rank,
                                  .rank = rank->rank,
                                  .num_ranks = rank->num_ranks,
                                  .local_rank = rank->rank,
                                  .local_ranks = rank->num_ranks,
                                  .start_all_to_all = start_all_to_all,
                                  .start_all_gather = start_all_gather,
                                  .start_broadcast = start_broadcast,
                                  .test = test,
                                  .absent = absent,
                                  .message = message,
                                  .timeout_seconds = thread->timeout_seconds};
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job;
    params.transport = &transport;
    rank_ok(plim_job_create(&params, &job));
    thread->body(job, rank->rank, rank->num_ranks, thread->context);
    plim_job_release(job);
    for (int other = 0; other < rank->num_ranks; other++)
        if (other != rank->rank)
            (void)close(rank->links[other].socket);
    return NULL;
}

/* The ranks with their sockets. */
static rank_t *make_ranks(int num_ranks, const test_fault_t *fault)
{
    rank_t *ranks = calloc((size_t)num_ranks, sizeof *ranks);
    int sockets[2];
    assert_non_null(ranks);
    assert_true(num_ranks <= TEST_RANKS_MAX);
    atomic_store(&test_ranks_operations, 0);
    atomic_store(&test_ranks_bytes, 0);
    for (int i = 0; i < num_ranks; i++) {
        ranks[i].rank = i;
        ranks[i].num_ranks = num_ranks;
        if (fault != NULL)
            ranks[i].fault = *fault;
        for (int j = 0; j < i; j++) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
            ranks[i].links[j].socket = sockets[0];
            ranks[j].links[i].socket = sockets[1];
        }
    }
    return ranks;
}

void test_ranks_threads(int num_ranks, double timeout_seconds, const test_fault_t *fault,
                        test_rank_fn body, void *context)
{
    rank_t *ranks = make_ranks(num_ranks, fault);
    rank_thread_t threads[TEST_RANKS_MAX];
    for (int i = 0; i < num_ranks; i++) {
        threads[i] = (rank_thread_t){.rank = &ranks[i],
                                     .timeout_seconds = timeout_seconds,
                                     .body = body,
                                     .context = context};
        assert_int_equal(pthread_create(&threads[i].handle, NULL, run_rank, &threads[i]), 0);
    }
    for (int i = 0; i < num_ranks; i++)
        (void)pthread_join(threads[i].handle, NULL);
    free(ranks);
}

void test_ranks_processes(int num_ranks, double timeout_seconds, const test_fault_t *fault,
                          test_rank_fn body, void *context, int *codes_out)
{
    rank_t *ranks = make_ranks(num_ranks, fault);
    pid_t children[TEST_RANKS_MAX];
    for (int i = 0; i < num_ranks; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0)
            continue;
        /* A socket that another process still held would not end with its owner. */
        for (int j = 0; j < num_ranks; j++)
            for (int other = 0; j != i && other < num_ranks; other++)
                if (other != j)
                    (void)close(ranks[j].links[other].socket);
        rank_thread_t self = {.rank = &ranks[i],
                              .timeout_seconds = timeout_seconds,
                              .body = body,
                              .context = context};
        (void)run_rank(&self);
        _exit(0);
    }
    for (int i = 0; i < num_ranks; i++) {
        for (int other = 0; other < num_ranks; other++)
            if (other != i)
                (void)close(ranks[i].links[other].socket);
    }
    for (int i = 0; i < num_ranks; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        codes_out[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    free(ranks);
}
