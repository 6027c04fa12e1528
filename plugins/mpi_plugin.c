/*
 * The MPI plugin: a transport (plimsoll/peers.h) over MPI. The only file that includes mpi.h, and
 * the only one that an MPI is needed for:
 *
 *     mpicc -shared -fPIC -O2 -I DIR -o plimsoll-mpi.so mpi_plugin.c     (DIR has plimsoll/peers.h)
 *
 * All-to-all and all-gather are point-to-point messages to and from every rank, all posted at once.
 * MPI's non-blocking collectives could not say which rank has not begun. Messages are cut into
 * chunks whose size fits an int; the next chunk is posted when the one before has arrived. A rank
 * whose operation takes long tells all others that it waits, so that they know who does not. There
 * is one state, since a process is in one MPI job; it allocates nothing.
 */
#include <mpi.h>
#include <plimsoll/peers.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHUNK ((size_t)1 << 30)
#define DATA_TAG 0
#define WAITING_TAG 1

/* The bytes that are still to be posted to and from one rank. */
typedef struct peer {
    const char *send;
    size_t send_left;
    char *receive;
    size_t receive_left;
    int receiving; /* bytes of the receive that is posted; 0: none */
} peer_t;

static struct plugin {
    MPI_Comm comm;
    int rank, num_ranks;
    int initialised; /* by us: to be finalised by us */
    int active;      /* requests posted and not done */
    peer_t peers[PLIM_RANKS_MAX];
    MPI_Request
        requests[2 * PLIM_RANKS_MAX]; /* the send to rank r at 2 r, the receive at 2 r + 1 */
    MPI_Status statuses[2 * PLIM_RANKS_MAX];
    int indices[2 * PLIM_RANKS_MAX];
    /* Of a broadcast: */
    char *broadcast;
    size_t broadcast_left;
    int root;
    /* Operations are counted from 1: */
    uint64_t operation;                  /* begun last */
    uint64_t told;                       /* the last one in which this rank said that it waits */
    uint64_t waiting[PLIM_RANKS_MAX];    /* the last one in which each rank said that it waits */
    MPI_Request telling[PLIM_RANKS_MAX]; /* this rank's message about that to each rank */
    char message[MPI_MAX_ERROR_STRING + 64];
} plugin;

static plim_status_t fail_mpi(int error)
{
    int length = 0;
    if (MPI_Error_string(error, plugin.message, &length) != MPI_SUCCESS)
        (void)snprintf(plugin.message, sizeof plugin.message, "MPI error %d", error);
    return PLIM_ERR_IO;
}

static MPI_Request *send_request(int rank)
{
    return &plugin.requests[2 * (size_t)rank];
}

static MPI_Request *receive_request(int rank)
{
    return &plugin.requests[2 * (size_t)rank + 1];
}

static size_t chunk_of(size_t left)
{
    return left < CHUNK ? left : CHUNK;
}

/* Posts the next chunk to a rank, if there is one. */
static int post_send(int rank)
{
    peer_t *peer = &plugin.peers[rank];
    const size_t size = chunk_of(peer->send_left);
    if (size == 0)
        return MPI_SUCCESS;
    const char *bytes = peer->send;
    peer->send += size;
    peer->send_left -= size;
    plugin.active++;
    return MPI_Isend(bytes, (int)size, MPI_BYTE, rank, DATA_TAG, plugin.comm, send_request(rank));
}

static int post_receive(int rank)
{
    peer_t *peer = &plugin.peers[rank];
    const size_t size = chunk_of(peer->receive_left);
    peer->receiving = (int)size;
    if (size == 0)
        return MPI_SUCCESS;
    char *bytes = peer->receive;
    peer->receive += size;
    peer->receive_left -= size;
    plugin.active++;
    return MPI_Irecv(bytes, (int)size, MPI_BYTE, rank, DATA_TAG, plugin.comm,
                     receive_request(rank));
}

/* Posts all of `peers`, receives first, and copies this rank's own bytes. Each rank begins with the
 * one after itself, so that they do not all begin with the same. */
static plim_status_t post_all(void)
{
    int error = MPI_SUCCESS;
    plugin.operation++;
    for (int i = 1; error == MPI_SUCCESS && i < plugin.num_ranks; i++)
        error = post_receive((plugin.rank + plugin.num_ranks - i) % plugin.num_ranks);
    for (int i = 1; error == MPI_SUCCESS && i < plugin.num_ranks; i++)
        error = post_send((plugin.rank + i) % plugin.num_ranks);
    const peer_t *self = &plugin.peers[plugin.rank];
    if (self->receive != self->send && self->send_left > 0)
        memcpy(self->receive, self->send, self->send_left);
    return error == MPI_SUCCESS ? PLIM_OK : fail_mpi(error);
}

static plim_status_t start_all_to_all(void *state, const void *send, const size_t *send_sizes,
                                      const size_t *send_offsets, void *receive,
                                      const size_t *receive_sizes, const size_t *receive_offsets)
{
    (void)state;
    for (int rank = 0; rank < plugin.num_ranks; rank++)
        plugin.peers[rank] = (peer_t){.send = (const char *)send + send_offsets[rank],
                                      .send_left = send_sizes[rank],
                                      .receive = (char *)receive + receive_offsets[rank],
                                      .receive_left = receive_sizes[rank]};
    return post_all();
}

static plim_status_t start_all_gather(void *state, const void *send, void *receive,
                                      const size_t *sizes, const size_t *offsets)
{
    (void)state;
    for (int rank = 0; rank < plugin.num_ranks; rank++)
        plugin.peers[rank] = (peer_t){.send = send,
                                      .send_left = sizes[plugin.rank],
                                      .receive = (char *)receive + offsets[rank],
                                      .receive_left = sizes[rank]};
    return post_all();
}

/* Posts the next chunk of a broadcast. */
static plim_status_t post_broadcast(void)
{
    const size_t size = chunk_of(plugin.broadcast_left);
    if (size == 0)
        return PLIM_OK;
    char *bytes = plugin.broadcast;
    plugin.broadcast += size;
    plugin.broadcast_left -= size;
    plugin.active++;
    const int error =
        MPI_Ibcast(bytes, (int)size, MPI_BYTE, plugin.root, plugin.comm, send_request(plugin.rank));
    return error == MPI_SUCCESS ? PLIM_OK : fail_mpi(error);
}

static plim_status_t start_broadcast(void *state, void *buffer, size_t size, int root)
{
    (void)state;
    plugin.broadcast = buffer;
    plugin.broadcast_left = size;
    plugin.root = root;
    plugin.operation++;
    return post_broadcast();
}

/* Handles request `index`, which is done: checks the size that it received, posts the next chunk.
 */
static plim_status_t take(int index, MPI_Status *status, int in_status)
{
    const int rank = index / 2;
    int size = 0, error = in_status ? status->MPI_ERROR : MPI_SUCCESS;
    plugin.active--;
    if (error != MPI_SUCCESS)
        return fail_mpi(error);
    if (rank == plugin.rank)
        return post_broadcast();
    if (index % 2 == 0) {
        error = post_send(rank);
        return error == MPI_SUCCESS ? PLIM_OK : fail_mpi(error);
    }
    error = MPI_Get_count(status, MPI_BYTE, &size);
    if (error == MPI_SUCCESS && size != plugin.peers[rank].receiving) {
        (void)snprintf(plugin.message, sizeof plugin.message,
                       "rank %d sent %d bytes where %d were expected", rank, size,
                       plugin.peers[rank].receiving);
        return PLIM_ERR_DATA;
    }
    if (error == MPI_SUCCESS)
        error = post_receive(rank);
    return error == MPI_SUCCESS ? PLIM_OK : fail_mpi(error);
}

static plim_status_t test(void *state, bool *done_out)
{
    int count = 0;
    (void)state;
    if (plugin.active > 0) {
        const int error = MPI_Testsome(2 * plugin.num_ranks, plugin.requests, &count,
                                       plugin.indices, plugin.statuses);
        if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS)
            return fail_mpi(error);
        for (int i = 0; i < count; i++) { /* MPI_UNDEFINED is negative */
            const plim_status_t status =
                take(plugin.indices[i], &plugin.statuses[i], error == MPI_ERR_IN_STATUS);
            if (status != PLIM_OK)
                return status;
        }
    }
    *done_out = plugin.active == 0;
    return PLIM_OK;
}

/* Tells all others that this rank waits, once in an operation. */
static void tell_waiting(void)
{
    int taken = 1;
    for (int rank = 0; taken && rank < plugin.num_ranks; rank++)
        if (MPI_Test(&plugin.telling[rank], &taken, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
    if (!taken || plugin.told == plugin.operation)
        return;
    plugin.told = plugin.operation;
    for (int rank = 0; rank < plugin.num_ranks; rank++)
        if (rank != plugin.rank &&
            MPI_Isend(&plugin.told, sizeof plugin.told, MPI_BYTE, rank, WAITING_TAG, plugin.comm,
                      &plugin.telling[rank]) != MPI_SUCCESS)
            return;
}

/* Receives the others' messages that they wait. */
static void hear_waiting(void)
{
    MPI_Status status;
    uint64_t operation;
    int found = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, WAITING_TAG, plugin.comm, &found, &status) == MPI_SUCCESS &&
           found &&
           MPI_Recv(&operation, sizeof operation, MPI_BYTE, status.MPI_SOURCE, WAITING_TAG,
                    plugin.comm, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        plugin.waiting[status.MPI_SOURCE] = operation;
}

/* A rank can be in the operation before, or already in the next: a broadcast ends at different
 * times. */
static bool is_waiting(int rank)
{
    const uint64_t operation = plugin.waiting[rank];
    return rank == plugin.rank || (operation > 0 && operation + 1 >= plugin.operation &&
                                   operation <= plugin.operation + 1);
}

static bool owes_message(int rank)
{
    return rank != plugin.rank &&
           (*receive_request(rank) != MPI_REQUEST_NULL || *send_request(rank) != MPI_REQUEST_NULL);
}

static int absent(void *state)
{
    (void)state;
    tell_waiting();
    hear_waiting();
    for (int rank = 0; rank < plugin.num_ranks; rank++)
        if (!is_waiting(rank) && owes_message(rank))
            return rank;
    for (int rank = 0; rank < plugin.num_ranks; rank++) /* a broadcast has no message of a rank */
        if (!is_waiting(rank))
            return rank;
    for (int rank = 0; rank < plugin.num_ranks; rank++) /* all wait: a message was lost */
        if (owes_message(rank))
            return rank;
    return -1;
}

static const char *message(void *state)
{
    (void)state;
    return plugin.message;
}

static void end_all(void *state, int exit_code)
{
    (void)state;
    (void)MPI_Abort(plugin.comm, exit_code);
}

static plim_status_t leave(void *state, double seconds)
{
    MPI_Request barrier;
    int done = 0;
    (void)state;
    if (plugin.active > 0) /* the others are elsewhere */
        return PLIM_ERR_TIMEOUT;
    int error = MPI_Ibarrier(plugin.comm, &barrier);
    for (double waited = 0; error == MPI_SUCCESS && !done && waited < seconds; waited += 1e-3) {
        error = MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
        if (!done)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (error != MPI_SUCCESS)
        return fail_mpi(error);
    if (!done)
        return PLIM_ERR_TIMEOUT;
    hear_waiting();
    for (int rank = 0; rank < plugin.num_ranks; rank++)
        (void)MPI_Test(&plugin.telling[rank], &done, MPI_STATUS_IGNORE);
    (void)MPI_Comm_free(&plugin.comm);
    if (plugin.initialised)
        (void)MPI_Finalize();
    return PLIM_OK;
}

/* Finds rank and size, here and on the node; MPI_SUCCESS or the first error. */
static int find_ranks(plim_transport_t *transport)
{
    MPI_Comm node;
    int error = MPI_Comm_dup(MPI_COMM_WORLD, &plugin.comm);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(plugin.comm, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_rank(plugin.comm, &plugin.rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(plugin.comm, &plugin.num_ranks);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_split_type(plugin.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Comm_rank(node, &transport->local_rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(node, &transport->local_ranks);
    (void)MPI_Comm_free(&node);
    return error;
}

__attribute__((visibility("default"))) plim_status_t
plim_plugin_open(plim_transport_t *transport_out, char *message_out, size_t message_size);
__attribute__((visibility("default"))) const char *plim_plugin_describe(void);

plim_status_t plim_plugin_open(plim_transport_t *transport_out, char *message_out,
                               size_t message_size)
{
    plim_transport_t transport = {.size = transport_out->size,
                                  .start_all_to_all = start_all_to_all,
                                  .start_all_gather = start_all_gather,
                                  .start_broadcast = start_broadcast,
                                  .test = test,
                                  .absent = absent,
                                  .message = message,
                                  .abort = end_all,
                                  .close = leave};
    int initialised = 0, provided = MPI_THREAD_SINGLE;
    if (transport_out->size < sizeof transport) {
        (void)snprintf(message_out, message_size,
                       "the plugin is newer than plimsoll: compile it from the source that came "
                       "with plimsoll");
        return PLIM_ERR_UNSUPPORTED;
    }
    int error = MPI_Initialized(&initialised);
    if (error == MPI_SUCCESS && !initialised)
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    else if (error == MPI_SUCCESS)
        error = MPI_Query_thread(&provided);
    plugin.initialised = !initialised;
    if (error == MPI_SUCCESS)
        error = find_ranks(&transport);
    if (error != MPI_SUCCESS) {
        (void)fail_mpi(error);
        (void)snprintf(message_out, message_size, "%s", plugin.message);
        return PLIM_ERR_IO;
    }
    if (provided < MPI_THREAD_SERIALIZED || plugin.num_ranks > PLIM_RANKS_MAX) {
        (void)snprintf(message_out, message_size,
                       "MPI has %d ranks and thread level %d; at most %d ranks and at least level "
                       "%d (MPI_THREAD_SERIALIZED) are possible",
                       plugin.num_ranks, provided, PLIM_RANKS_MAX, MPI_THREAD_SERIALIZED);
        return PLIM_ERR_UNSUPPORTED;
    }
    for (int i = 0; i < 2 * plugin.num_ranks; i++)
        plugin.requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < plugin.num_ranks; i++)
        plugin.telling[i] = MPI_REQUEST_NULL;
    transport.rank = plugin.rank;
    transport.num_ranks = plugin.num_ranks;
    *transport_out = transport;
    return PLIM_OK;
}

const char *plim_plugin_describe(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
        return "MPI";
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = strchr(text, '\t'); tab != NULL; tab = strchr(tab, '\t'))
        *tab = ' ';
    return text;
}
