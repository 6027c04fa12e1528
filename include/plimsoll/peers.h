/*
 * A transport connects the ranks of one job: several processes, on one node or on many, that train
 * together. The library sends through the functions of the table below and knows no network
 * itself. The MPI plugin fills the table (plimsoll-openmpi.so, plimsoll-mpich.so; its source,
 * mpi_plugin.c, needs this header and mpi.h alone); so may any other program.
 *
 *     plim_transport_t transport = PLIM_TRANSPORT_INIT;   // filled by a plugin, or by the host
 *     plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
 *     params.transport = &transport;
 *
 * Every rank then makes the same calls of the library in the same order.
 */
#ifndef PLIMSOLL_PEERS_H
#define PLIMSOLL_PEERS_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks of a job: at most this many. */
#define PLIM_RANKS_MAX 4096

/*
 * The start_ functions begin an operation that all ranks take part in, and return without waiting
 * for the others. At most one operation is under way; its buffers and arrays stay valid and
 * untouched until `test` reports it done. Ranks begin operations in the same order, with matching
 * sizes. Arrays of sizes and offsets are in bytes, one element for each rank; sums of sizes may
 * exceed 2^31. Calls come from any thread, one at a time.
 *
 * Errors are a negative plim_status_t, explained by `message`; after one, only `absent`, `message`,
 * `abort` and `close` are called.
 */
typedef struct plim_transport {
    size_t size;
    void *state; /* handed to each function */
    int rank, num_ranks;
    int local_rank, local_ranks; /* among the ranks of this node */

    /* Sends send_sizes[r] bytes at send + send_offsets[r] to each rank r, and receives
     * receive_sizes[r] bytes at receive + receive_offsets[r] from it. */
    plim_status_t (*start_all_to_all)(void *state, const void *send, const size_t *send_sizes,
                                      const size_t *send_offsets, void *receive,
                                      const size_t *receive_sizes, const size_t *receive_offsets);

    /* Sends sizes[rank] bytes to all ranks; receives sizes[r] bytes at receive + offsets[r] from
     * each rank r, this one included: `send` may be its place in `receive`. */
    plim_status_t (*start_all_gather)(void *state, const void *send, void *receive,
                                      const size_t *sizes, const size_t *offsets);

    /* Copies `size` bytes at `buffer` of rank `root` to the others' buffers. */
    plim_status_t (*start_broadcast)(void *state, void *buffer, size_t size, int root);

    /* Advances the operation; whether it is done. Does not block. */
    plim_status_t (*test)(void *state, bool *done_out);

    /* Called repeatedly once an operation has taken long: the lowest rank that has not begun it, or
     * does not go on with it; -1 when that is not (yet) known. Does not block. */
    int (*absent)(void *state);

    /* The reason for the last error; never NULL. */
    const char *(*message)(void *state);

    /* Ends all ranks at once with this exit code; need not return. The library does not call it. */
    void (*abort)(void *state, int exit_code);

    /* Leaves the job together with the other ranks: PLIM_ERR_TIMEOUT when not all of them do so
     * within `seconds`, which leaves `abort`. The library does not call it. */
    plim_status_t (*close)(void *state, double seconds);

    double timeout_seconds; /* of a wait for other ranks; 0: PLIM_PEERS_TIMEOUT_SECONDS */
    int64_t bytes; /* of memory that the transport holds in this process, for plans; 0: unknown */
} plim_transport_t;

/* One rank, which needs no functions. */
#define PLIM_TRANSPORT_INIT                                                                        \
    {                                                                                              \
        sizeof(plim_transport_t), NULL, 0, 1, 0, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL,      \
            NULL, 0, 0                                                                             \
    }

/* Long enough for a peer that reads its data from a slow file system. */
#define PLIM_PEERS_TIMEOUT_SECONDS 600

/*
 * A plugin is a shared object with this function, by this name: it joins the job that a launcher
 * (mpirun, srun) started and fills *transport_out, whose size the caller has set. On failure it
 * writes the reason to message_out.
 */
typedef plim_status_t (*plim_plugin_open_fn)(plim_transport_t *transport_out, char *message_out,
                                             size_t message_size);
#define PLIM_PLUGIN_OPEN "plim_plugin_open"

/* Describes the plugin without joining anything: the MPI that it was compiled with. */
typedef const char *(*plim_plugin_describe_fn)(void);
#define PLIM_PLUGIN_DESCRIBE "plim_plugin_describe"

#ifdef __cplusplus
}
#endif
#endif
