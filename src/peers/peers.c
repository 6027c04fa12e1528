#include "peers/peers.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/printable.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* A wait tests the transport this long before its first nap, and longer for many bytes, which only
 * move during tests; it then yields the processor between tests. Ranks that share a processor yield
 * from the start: with naps, a sum of four ranks on two processors was nine times as slow. */
#define BUSY_NS 50000
#define BUSY_NS_PER_BYTE 2
#define BUSY_BYTES_MOST ((size_t)1 << 30)

/* Naps grow with the time waited, so that a late rank is noticed within a sixteenth of it. */
#define NAP_NS_LEAST 20000
#define NAP_NS_MOST 1000000
#define NAP_DIVISOR 16

/* A rank's message in plim__peers_agree. */
typedef struct agreement {
    plim__peer_head_t head;
    int64_t numbers[PLIM__AGREE_MAX];
    char text[832]; /* the error's message, not terminated */
} agreement_t;

_Static_assert(sizeof(agreement_t) == 1024, "no byte of a record is padding");

struct plim__peers {
    plim__arena_t arena;
    plim_job_t job;
    const plim_transport_t *transport;
    int rank, num_ranks;
    uint64_t sequence;
    int crowd; /* ranks of this node that share a processor */
    /* Scratch of one operation (num_ranks): */
    agreement_t *records;
    plim__peer_head_t *sent, *heads;
    size_t *sizes, *offsets;
};

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__peers_t *peers = object;
    const size_t ranks = (size_t)peers->num_ranks;
    peers->records = plim__arena_carve(arena, ranks, sizeof *peers->records, PLIM__LINE);
    peers->sent = plim__arena_carve(arena, ranks, sizeof *peers->sent, PLIM__LINE);
    peers->heads = plim__arena_carve(arena, ranks, sizeof *peers->heads, PLIM__LINE);
    peers->sizes = plim__arena_carve(arena, ranks, sizeof *peers->sizes, PLIM__LINE);
    peers->offsets = plim__arena_carve(arena, ranks, sizeof *peers->offsets, PLIM__LINE);
}

int plim__peers_rank(const plim__peers_t *peers)
{
    return peers != NULL ? peers->rank : 0;
}

int plim__peers_num_ranks(const plim__peers_t *peers)
{
    return peers != NULL ? peers->num_ranks : 1;
}

/* PLIM_ERR_TIMEOUT of a wait of `waited_ns`. */
static plim_status_t fail_late(const plim__peers_t *peers, plim__stage_t stage, int absent,
                               int64_t waited_ns)
{
    char who[48] = "another rank";
    if (absent >= 0)
        (void)snprintf(who, sizeof who, "rank %d", absent);
    return plim__fail(PLIM_ERR_TIMEOUT,
                      "%s: rank %d waited %.0f s for %s (message %llu); look for its last lines "
                      "in the job's output, and whether its node is up, swaps or lacks memory",
                      plim__stage_name(stage), peers->rank, (double)waited_ns * 1e-9, who,
                      (unsigned long long)peers->sequence);
}

static void nap(int64_t waited_ns)
{
    const int64_t ns =
        plim__min_i64(plim__max_i64(waited_ns / NAP_DIVISOR, NAP_NS_LEAST), NAP_NS_MOST);
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static plim_status_t fail_transport(const plim__peers_t *peers, plim__stage_t stage,
                                    plim_status_t status)
{
    return plim__fail(status < PLIM_OK ? status : PLIM_ERR_IO,
                      "%s: rank %d lost the others (message %llu): %s", plim__stage_name(stage),
                      peers->rank, (unsigned long long)peers->sequence,
                      peers->transport->message(peers->transport->state));
}

/* Waits for the operation that was started with `status`; busy_ns: how long without a nap. */
static plim_status_t wait_done(plim__peers_t *peers, plim__stage_t stage, plim_status_t status,
                               int64_t busy_ns)
{
    const plim_transport_t *transport = peers->transport;
    const int64_t timeout_ns =
        (int64_t)(1e9 * (transport->timeout_seconds > 0 ? transport->timeout_seconds
                                                        : PLIM_PEERS_TIMEOUT_SECONDS));
    const int64_t began = plim__clock_ns();
    int absent = -1;
    bool done = false;
    while (status == PLIM_OK) {
        status = transport->test(transport->state, &done);
        if (status != PLIM_OK || done)
            break;
        const int64_t now = plim__clock_ns(), waited = now - began;
        if (waited < busy_ns * peers->crowd) {
            if (waited > BUSY_NS || peers->crowd > 1)
                (void)sched_yield();
            continue;
        }
        plim__job_deliver(&peers->job);
        if (waited > timeout_ns / 2)
            absent = transport->absent(transport->state);
        if (waited > timeout_ns) {
            peers->job.core->ranks_failed = true;
            return fail_late(peers, stage, absent, waited);
        }
        nap(waited);
    }
    if (status != PLIM_OK) {
        peers->job.core->ranks_failed = true;
        return fail_transport(peers, stage, status);
    }
    peers->sequence++;
    return PLIM_OK;
}

/* PLIM_ERR_USAGE after an operation that did not end. */
static plim_status_t check_whole(const plim__job_core_t *core)
{
    return core->ranks_failed
               ? plim__fail(PLIM_ERR_USAGE, "the ranks are no longer in step after an error")
               : PLIM_OK;
}

plim__peer_head_t plim__peers_head(const plim__peers_t *peers, plim__stage_t stage)
{
    return plim__peer_head(stage, peers->rank, peers->num_ranks, peers->sequence);
}

plim_status_t plim__peers_read_head(plim__peers_t *peers, plim__stage_t stage, int rank,
                                    const void *bytes, size_t available, uint64_t size_most,
                                    bool exact, plim__peer_head_t *head_out)
{
    const plim__peer_head_t expected =
        plim__peer_head(stage, rank, peers->num_ranks, peers->sequence - 1);
    const plim_status_t status =
        plim__peer_head_read(bytes, available, &expected, size_most, exact, head_out);
    peers->job.core->ranks_failed |= status != PLIM_OK;
    return status;
}

/* The sum of sizes; saturates. */
static size_t sum_sizes(const size_t *sizes, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum = plim__add_saturating_size(sum, sizes[i]);
    return sum;
}

static int64_t busy_ns(size_t bytes)
{
    return BUSY_NS +
           (int64_t)(bytes < BUSY_BYTES_MOST ? bytes : BUSY_BYTES_MOST) * BUSY_NS_PER_BYTE;
}

plim_status_t plim__peers_exchange(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                   const size_t *send_sizes, const size_t *send_offsets,
                                   void *receive, const size_t *receive_sizes,
                                   const size_t *receive_offsets)
{
    const plim_transport_t *transport = peers->transport;
    PLIM_TRY(check_whole(peers->job.core));
    const plim_status_t status = transport->start_all_to_all(
        transport->state, send, send_sizes, send_offsets, receive, receive_sizes, receive_offsets);
    return wait_done(
        peers, stage, status,
        busy_ns(plim__add_saturating_size(sum_sizes(send_sizes, peers->num_ranks),
                                          sum_sizes(receive_sizes, peers->num_ranks))));
}

plim_status_t plim__peers_gather(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                 void *receive, const size_t *sizes, const size_t *offsets)
{
    const plim_transport_t *transport = peers->transport;
    PLIM_TRY(check_whole(peers->job.core));
    const plim_status_t status =
        transport->start_all_gather(transport->state, send, receive, sizes, offsets);
    return wait_done(peers, stage, status, busy_ns(sum_sizes(sizes, peers->num_ranks)));
}

/* Sets the scratch sizes and offsets to one block of `size` bytes for each rank. */
static void equal_blocks(plim__peers_t *peers, size_t size)
{
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        peers->sizes[rank] = size;
        peers->offsets[rank] = (size_t)rank * size;
    }
}

/* Gathers the heads of all ranks: each announces sizes[r] bytes, or `size` where sizes is NULL. */
static plim_status_t gather_heads(plim__peers_t *peers, plim__stage_t stage, const size_t *sizes,
                                  size_t size)
{
    plim__peer_head_t *own = &peers->heads[peers->rank];
    *own = plim__peers_head(peers, stage);
    own->size = sizes != NULL ? sizes[peers->rank] : size;
    equal_blocks(peers, sizeof *own);
    PLIM_TRY(plim__peers_gather(peers, stage, own, peers->heads, peers->sizes, peers->offsets));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        plim__peer_head_t head;
        PLIM_TRY(plim__peers_read_head(peers, stage, rank, &peers->heads[rank], sizeof head,
                                       sizes != NULL ? sizes[rank] : size, true, &head));
    }
    return PLIM_OK;
}

/* Gathers the records of all ranks; this rank's lies in its place. */
static plim_status_t gather_records(plim__peers_t *peers, plim__stage_t stage)
{
    agreement_t *records = peers->records;
    equal_blocks(peers, sizeof *records);
    PLIM_TRY(plim__peers_gather(peers, stage, &records[peers->rank], records, peers->sizes,
                                peers->offsets));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        plim__peer_head_t head;
        PLIM_TRY(plim__peers_read_head(peers, stage, rank, &records[rank], sizeof *records,
                                       sizeof *records - sizeof head, true, &head));
    }
    return PLIM_OK;
}

/* This rank's record, empty but for its head and text. */
static agreement_t *begin_record(plim__peers_t *peers, plim__stage_t stage, const char *text)
{
    agreement_t *own = &peers->records[peers->rank];
    memset(own, 0, sizeof *own);
    own->head = plim__peers_head(peers, stage);
    own->head.size = sizeof *own - sizeof own->head;
    memcpy(own->text, text, strnlen(text, sizeof own->text));
    return own;
}

plim_status_t plim__peers_fail_rows(int rank)
{
    return plim__fail(PLIM_ERR_DATA,
                      "rank %d has other rows to send than expected: is the dataset the same on "
                      "all nodes?",
                      rank);
}

plim_status_t plim__peers_agree(plim__peers_t *peers, plim__stage_t stage, plim_status_t status,
                                int count, const int64_t *numbers, int64_t *least_out,
                                int64_t *greatest_out)
{
    if (peers == NULL) {
        for (int i = 0; status == PLIM_OK && i < count; i++) {
            if (least_out != NULL)
                least_out[i] = numbers[i];
            if (greatest_out != NULL)
                greatest_out[i] = numbers[i];
        }
        return status;
    }
    if (peers->job.core->ranks_failed) /* the first error says more than that there was one */
        return status != PLIM_OK ? status : check_whole(peers->job.core);
    agreement_t *own = begin_record(peers, stage, status != PLIM_OK ? plim_last_error() : "");
    own->head.status = status;
    own->head.flags = (uint32_t)count;
    if (count > 0)
        memcpy(own->numbers, numbers, (size_t)count * sizeof *numbers);
    PLIM_TRY(gather_records(peers, stage));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        const agreement_t *record = &peers->records[rank];
        char text[sizeof record->text + 4];
        if (record->head.status == PLIM_OK)
            continue;
        if (record->head.status == PLIM__PLAN_AGAIN)
            return PLIM__PLAN_AGAIN;
        plim__text_printable(record->text, strnlen(record->text, sizeof record->text), text,
                             sizeof text);
        return plim__fail((plim_status_t)record->head.status, "rank %d: %s", rank, text);
    }
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        const agreement_t *record = &peers->records[rank];
        if (record->head.flags != (uint32_t)count)
            return plim__fail(PLIM_ERR_DATA, "%s: rank %d sent %u numbers, this rank %d",
                              plim__stage_name(stage), rank, (unsigned)record->head.flags, count);
        for (int i = 0; i < count; i++) {
            const int64_t number = record->numbers[i];
            if (least_out != NULL)
                least_out[i] = rank > 0 ? plim__min_i64(least_out[i], number) : number;
            if (greatest_out != NULL)
                greatest_out[i] = rank > 0 ? plim__max_i64(greatest_out[i], number) : number;
        }
    }
    return PLIM_OK;
}

plim_status_t plim__peers_broadcast(plim__peers_t *peers, plim__stage_t stage, int root,
                                    void *buffer, size_t size)
{
    if (peers == NULL)
        return PLIM_OK;
    const plim_transport_t *transport = peers->transport;
    PLIM_TRY(check_whole(peers->job.core));
    PLIM_TRY(gather_heads(peers, stage, NULL, size));
    return wait_done(peers, stage, transport->start_broadcast(transport->state, buffer, size, root),
                     busy_ns(size));
}

/* PLIM_ERR_USAGE for the first line that is not the same in both texts. */
static plim_status_t compare_lines(const char *own, const char *first)
{
    for (;;) {
        const size_t length = strcspn(own, "\n"), first_length = strcspn(first, "\n");
        if (length != first_length || memcmp(own, first, length) != 0) {
            char here[256], there[256];
            plim__text_printable(own, length, here, sizeof here);
            plim__text_printable(first, first_length, there, sizeof there);
            return plim__fail(PLIM_ERR_USAGE,
                              "%s, but on rank 0 %s: start all ranks with the same options and "
                              "dataset",
                              here, there);
        }
        if (own[length] == '\0')
            return PLIM_OK;
        own += length + 1;
        first += length + (first[length] == '\n');
    }
}

plim_status_t plim__peers_compare(plim__peers_t *peers, plim__stage_t stage, const char *text)
{
    char first[PLIM__COMPARE_BYTES] = "";
    if (peers == NULL)
        return PLIM_OK;
    if (peers->rank == 0)
        (void)snprintf(first, sizeof first, "%s", text);
    PLIM_TRY(plim__peers_broadcast(peers, stage, 0, first, sizeof first));
    first[sizeof first - 1] = '\0';
    return plim__peers_agree(peers, stage, compare_lines(text, first), 0, NULL, NULL, NULL);
}

plim_status_t plim__peers_all_gather(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                     void *receive, const size_t *sizes)
{
    size_t offset = 0;
    if (peers == NULL) {
        if (send != receive)
            memcpy(receive, send, sizes[0]);
        return PLIM_OK;
    }
    PLIM_TRY(gather_heads(peers, stage, sizes, 0));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        peers->offsets[rank] = offset;
        offset += sizes[rank];
    }
    return plim__peers_gather(peers, stage, send, receive, sizes, peers->offsets);
}

plim_status_t plim__peers_all_to_all(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                     const size_t *send_sizes, const size_t *send_offsets,
                                     void *receive, size_t capacity, size_t *receive_sizes_out,
                                     size_t *receive_offsets_out)
{
    size_t used = 0;
    if (peers == NULL) {
        if (send_sizes[0] > capacity)
            return plim__fail(PLIM_ERR_DATA, "%zu bytes were sent, but only %zu fit", send_sizes[0],
                              capacity);
        memcpy(receive, (const char *)send + send_offsets[0], send_sizes[0]);
        receive_sizes_out[0] = send_sizes[0];
        receive_offsets_out[0] = 0;
        return PLIM_OK;
    }
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        peers->sent[rank] = plim__peers_head(peers, stage);
        peers->sent[rank].size = send_sizes[rank];
    }
    equal_blocks(peers, sizeof *peers->heads);
    PLIM_TRY(plim__peers_exchange(peers, stage, peers->sent, peers->sizes, peers->offsets,
                                  peers->heads, peers->sizes, peers->offsets));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        plim__peer_head_t head;
        used = plim__round_up(used, PLIM__LINE);
        PLIM_TRY(plim__peers_read_head(peers, stage, rank, &peers->heads[rank], sizeof head,
                                       used < capacity ? capacity - used : 0, false, &head));
        receive_offsets_out[rank] = used < capacity ? used : 0; /* of an empty one */
        receive_sizes_out[rank] = head.size;
        used += head.size;
    }
    return plim__peers_exchange(peers, stage, send, send_sizes, send_offsets, receive,
                                receive_sizes_out, receive_offsets_out);
}

/* Whether all ranks run this version of the library. */
static plim_status_t check_versions(plim__peers_t *peers)
{
    const agreement_t *own = begin_record(peers, PLIM__STAGE_START, plim_version());
    PLIM_TRY(gather_records(peers, PLIM__STAGE_START));
    for (int rank = 0; rank < peers->num_ranks; rank++) {
        const agreement_t *record = &peers->records[rank];
        char text[64];
        if (memcmp(record->text, own->text, sizeof own->text) == 0)
            continue;
        plim__text_printable(record->text, strnlen(record->text, sizeof record->text), text,
                             sizeof text);
        return plim__fail(PLIM_ERR_DATA,
                          "rank %d runs Plimsoll %s, rank %d runs %s: install one version on all "
                          "nodes",
                          rank, text, peers->rank, plim_version());
    }
    return PLIM_OK;
}

plim_status_t plim__peers_open(const plim_job_t *job, plim__peers_t **peers_out)
{
    const plim_transport_t *transport = &job->core->transport;
    plim__peers_t *peers, draft = {.job = *job,
                                   .transport = transport,
                                   .rank = transport->rank,
                                   .num_ranks = transport->num_ranks};
    if (transport->num_ranks == 1) {
        *peers_out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(check_whole(job->core));
    PLIM_TRY(plim__object_create(job->ledger, "peers", lay_out, &draft, sizeof draft, &draft.arena,
                                 &peers));
    peers->crowd = (int)((transport->local_ranks - 1) / plim__max_i64(plim__cpu_count(), 1)) + 1;
    const plim_status_t status = check_versions(peers);
    if (status != PLIM_OK) {
        plim__peers_close(peers);
        return status;
    }
    *peers_out = peers;
    return PLIM_OK;
}

void plim__peers_close(plim__peers_t *peers)
{
    if (peers != NULL)
        plim__arena_destroy(&peers->arena);
}
