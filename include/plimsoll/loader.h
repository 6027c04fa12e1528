/*
 * Batches: seeds, the blocks of their drawn neighbourhoods, the rows of all nodes in them, and the
 * seeds' labels, from a dataset of any size under the job's line.
 *
 *     loader ─┬─ stream over the training split ─► batch, batch, …
 *             ├─ stream over the validation split
 *             └─ stream over any list of nodes
 *
 * The streams of a loader share its caches, windows and slots. One of them is served at a time: the
 * first plim_stream_next of another one interrupts it, and it continues later at the same position,
 * with the same batches. The batches of a stream depend only on (dataset, recipe, its params,
 * epoch, step): memory, caches, windows, threads, I/O engine and other streams change its speed,
 * never its content.
 *
 * A loader and its streams belong to one thread at a time; batches to any.
 */
#ifndef PLIMSOLL_LOADER_H
#define PLIMSOLL_LOADER_H

#include <plimsoll/dataset.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_HOPS_MAX 8

typedef enum plim_split {
    PLIM_TRAIN = 0,
    PLIM_VALID,
    PLIM_TEST,
    PLIM_ALL_NODES /* of the graph, whether in a split or not; for plim_predict only */
} plim_split_t;

typedef enum plim_form {
    PLIM_NATIVE = 0, /* every node drawn so far draws at each hop; a batch may come in parts */
    PLIM_PYG         /* a node draws once, at the hop after it was drawn; never in parts */
} plim_form_t;

#define PLIM_FANOUT_ALL (-1) /* a node draws all of its neighbours */

/* How batches are drawn. The same recipe gives the same batches. */
typedef struct plim_recipe {
    size_t size;        /* of this struct, as PLIM_RECIPE_INIT sets it */
    int64_t batch_size; /* seeds, or graphs in a dataset of many graphs */
    int num_hops; /* 0: seeds and their rows, no blocks. In a dataset of many graphs always 0: the
                     edges of the graphs are the one block */
    int64_t fanout[PLIM_HOPS_MAX]; /* neighbours a node, up to 4096, or PLIM_FANOUT_ALL */
    bool replace;                  /* draw with replacement */
    plim_form_t form;
    uint64_t seed;
    bool no_features;      /* topology only: no rows in the batches */
    bool degrees;          /* batches carry the nodes' degrees in the whole graph */
    bool skip_loops;       /* blocks and degrees leave out edges of a node to itself; not with
                              edge_index or edge_ids */
    plim_dtype_t row_type; /* rows as PLIM_F16 or PLIM_F32; integers come as PLIM_I64 */
    /* Ids, indptr and indices as PLIM_I32 or PLIM_I64; ids in the dataset are PLIM_I64 where it has
     * 2^31 nodes or more. */
    plim_dtype_t index_type;
    /* Arrays as PyTorch Geometric's models take them; in native form only with at most one hop, or
     * in a dataset of many graphs. */
    bool edge_index;  /* the edges of all hops as one array: sources, targets */
    bool edge_ids;    /* the position of each edge in the dataset's indices.npy */
    unsigned columns; /* a set of plim_column_t: columns that batches carry; of those that the
                         dataset has. In any form, with any number of hops */
    /* 0: neighbours are drawn uniformly. PLIM_EDGE_WEIGHT: in proportion to the weights of their
     * edges, without replacement one after the other, each in proportion to the weights that are
     * left; an edge of weight 0 only where no other is left. A weight that is negative or not
     * finite is PLIM_ERR_DATA. PLIM_EDGE_TIME, PLIM_NODE_TIME: from the edges that are not later
     * than the time of their tree's seed, or from those whose neighbour is not; disjoint only. Not
     * in a dataset of many graphs. */
    unsigned draw_by;
    /* Each seed has a tree of its own: a node that several trees meet is a node in each, and
     * batches carry `trees`. Draws depend on (seed, epoch, the seed's place in the epoch, node), so
     * they are not shared: lists and rows on disk are read for each batch, without windows. Not in
     * a dataset of many graphs; in training, `temporal` decides it. */
    bool disjoint;
    bool latest;    /* where times decide: the latest of these edges, as many as the fan-out, in the
                       order of their times; with `replace`, draws from them */
    bool own_times; /* by PLIM_EDGE_TIME: a seed's latest time is its own, of PLIM_NODE_TIME, unless
                       its stream gives one */
} plim_recipe_t;

/* Delivers rows as PLIM_F32; the stored type (info's feature_type) saves the conversion. For a
 * dataset of many graphs set num_hops to 0. */
#define PLIM_RECIPE_INIT                                                                           \
    {                                                                                              \
        sizeof(plim_recipe_t), 1024, 2, {10, 10, 0, 0, 0, 0, 0, 0}, false, PLIM_NATIVE, 0, false,  \
            false, false, PLIM_F32, PLIM_I32, false, false, 0, 0, false, false, false              \
    }

/* One hop of a batch: destination first_dst + i draws from indices[indptr[i]] … [indptr[i+1]-1]. */
typedef struct plim_block {
    int64_t num_dst;
    int64_t first_dst; /* 0 in native form */
    int64_t num_src;   /* nodes of the batch so far: sources are below it */
    int64_t num_edges;
    const void *indptr;  /* (num_dst + 1) of the recipe's index type */
    const void *indices; /* (num_edges) places in the batch's nodes */
} plim_block_t;

/*
 * An array of a batch, described so that a DLPack tensor can be filled from it alone. It is C
 * contiguous and lives as long as the batch.
 */
typedef struct plim_array {
    const char *name; /* "nodes", "rows", "labels", "pair_ids", "pair_index", "pair_types",
                         "degrees", "graph_indptr", "edge_index", "edge_ids", "edge_features",
                         "edge_weight", "edge_type", "edge_time", "edge_id", "node_time", "trees",
                         "seed_times", "indptr", "indices" */
    int hop;          /* of indptr and indices: the block; otherwise -1 */
    const void *data; /* on a boundary of 64 bytes, except for indptr and indices */
    plim_dtype_t type;
    int ndim;         /* 1 or 2 */
    int64_t shape[2]; /* shape[1] is 1 where ndim is 1 */
} plim_array_t;

/*
 * A batch, or a part of one; the library writes it, callers read it. Its memory is a slot of the
 * loader, which belongs to the caller until it has released the batch as often as it retained it
 * (delivery counts as once). A batch may outlive its loader. A batch that is larger than a slot, or
 * than the plan's part_seeds, comes in parts, one after the other. Each part must be released
 * before the next is asked for; batches whose last_part is true may be held, up to the number of
 * slots less one. How much fits a slot depends on the memory, so a caller that holds batches must
 * always check last_part. PyG's form never comes in parts: where the line is too low for the
 * largest batch possible, plim_stream_start counts the batches to come.
 *
 * blocks[0] is the hop around the seeds; a model runs the blocks from the last to the first. The
 * first num_seeds nodes are the seeds. In a dataset of many graphs seeds are graphs, and
 * graph_indptr gives the nodes of each. A node that occurs twice in a list is two seeds and two
 * nodes; edges refer to the first.
 */
typedef struct plim_batch {
    size_t size; /* of this struct in the library; later versions append fields */
    int64_t epoch;
    int64_t step;         /* the batch's number in its epoch */
    int64_t first_seed;   /* index of this part's first seed in the stream's shares of the batch */
    bool last_part;       /* the batch, or the stream's shares of it, end with this part */
    int64_t batch_seeds;  /* seeds of the whole batch (graphs, in a dataset of many graphs) */
    int64_t batch_labels; /* labels of the whole batch: seeds with a class, or known values; of
                             links pairs and negatives */
    int64_t num_seeds;    /* of this part */
    int64_t num_nodes;
    int num_blocks;
    plim_block_t blocks[PLIM_HOPS_MAX];
    const void *nodes;      /* (num_nodes) ids in the dataset, of node_type */
    const void *rows;       /* (num_nodes, num_features) of the recipe's row type; NULL without */
    const void *labels;     /* (num_seeds) int64, or (num_seeds, num_targets) float, one-dimensional
                               like labels.npy; NULL without */
    const int32_t *degrees; /* (num_nodes) edges into each in the dataset, with skip_loops those
                               from others; NULL without */
    const void *graph_indptr; /* (num_seeds + 1) first nodes of the graphs, index type; or NULL */
    /* Hop by hop, with the targets ascending over the whole batch. The first row is the indices of
     * all blocks. */
    const void *edge_index;  /* (2, edges of all blocks) sources, targets, index type; or NULL */
    const int64_t *edge_ids; /* (edges of all blocks) positions in indices.npy; NULL without */
    int share, num_shares;   /* the share that this is, or is a part of; 0 of 1: the whole batch */
    /* Columns of the edges of all blocks, hop by hop, each in the order of its block's indices: the
     * entries of blocks[i] begin behind those of the blocks before it. NULL unless asked for. */
    const void *edge_features;  /* (edges, num_edge_features): int64, or floats of the row type */
    const float *edge_weight;   /* (edges) */
    const int64_t *edge_type;   /* (edges) in [0, num_edge_types) */
    const int64_t *edge_time;   /* (edges) */
    const int64_t *edge_number; /* (edges) numbers in the source, from edge_id.npy */
    const int64_t *node_time;   /* (num_nodes) */
    const void *trees; /* (num_nodes) which seed's tree each node is in, index type; NULL unless
                          disjoint */
    plim_dtype_t node_type;    /* of nodes */
    const int64_t *seed_times; /* (num_seeds) the latest time in each seed's tree; NULL unless times
                                  decide draws */
    /* Of a stream of links: its seeds are the distinct nodes of the pairs and their negatives,
     * ascending; disjoint, the nodes in the order of pair_index. */
    int64_t num_pairs;         /* 0: seeds are nodes, or an empty share */
    int64_t num_negatives;     /* pairs, or targets */
    const int64_t *pair_ids;   /* (num_pairs) places in the stream's list */
    const int64_t *pair_index; /* NULL: of nodes. Places in the batch's nodes. PLIM_NEGATIVE_PAIRS,
                                  or none: (2, num_pairs + num_negatives) sources, targets, the
                                  negatives last; PLIM_NEGATIVE_TARGETS: sources, targets (num_pairs
                                  each), negative targets (num_negatives), as many of each pair, one
                                  after the other; disjoint, one of each pair by turns */
    const int64_t
        *pair_types; /* (num_pairs) in [0, num_types) of the links; NULL: they have none */
} plim_batch_t;

typedef struct plim_plan plim_plan_t; /* <plimsoll/plan.h> */
typedef struct plim_loader plim_loader_t;
typedef struct plim_stream plim_stream_t;

typedef enum plim_negatives {
    PLIM_NEGATIVES_NONE = 0,
    PLIM_NEGATIVE_PAIRS,  /* both nodes are drawn: PyTorch Geometric's "binary" */
    PLIM_NEGATIVE_TARGETS /* other targets for the sources of the pairs: its "triplet" */
} plim_negatives_t;

typedef enum plim_exclude {
    PLIM_EXCLUDE_NONE = 0,
    PLIM_EXCLUDE_PAIRS,   /* edges from the source of a pair of the batch to its target */
    PLIM_EXCLUDE_REVERSES /* the same, and edges from its target to its source */
} plim_exclude_t;

/*
 * Pairs of nodes, for link prediction. A batch has pairs in place of seeds, negatives that are
 * drawn for it, and the neighbourhoods of their nodes. A negative depends on (seed, epoch, the
 * place of its pair in the epoch) alone.
 */
typedef struct plim_links {
    size_t size;
    const int64_t *sources; /* (num_pairs) any nodes; copied. A plan needs only their number */
    const int64_t *targets; /* (num_pairs) */
    int64_t num_pairs;
    plim_negatives_t negatives;
    double amount; /* negatives of a pair. Of negative pairs also a fraction: a batch has
                      ceil(pairs * amount) */
    /* (num_nodes of the dataset) running sums of the weights by which nodes of negatives are drawn;
     * copied, a plan needs only that they are not NULL. NULL: uniformly */
    const double *source_sums; /* of negative pairs only */
    const double *target_sums;
    /* Edges that are left out of a batch after its draw, wherever they were drawn; none is drawn in
     * their place, and their nodes stay. */
    plim_exclude_t exclude;
    const char *path; /* a .npy file of pairs in place of sources and targets, (2, num_pairs) or
                         (num_pairs, 2) of int32, uint32 or int64; of a square the former. Its pairs
                         are read when they are needed; it must stay as it is. NULL: none */
    /* The pairs are those of one rank of several, each of which has pairs of its own: with the same
     * seed, each draws other negatives. */
    int rank;
    int num_ranks;
    /* No negative is an edge of the graph, or a node with itself: each is looked up in the list of
     * its target. plim_stream_next fails with PLIM_ERR_USAGE for a node with edges to all others;
     * by times of nodes, an edge is taken in place of that. false: negatives may be edges. */
    bool no_edges;
    /* The pairs are the edges of the graph in the order of indices.npy, read when they are needed.
     * Pair i is edge (i * num_ranks + rank) modulo the number of edges; num_pairs is that number /
     * num_ranks, rounded up. No sources, targets or path. */
    bool all_edges;
    /* The pairs have types in [0, num_types): edge_type of all_edges, where it is the dataset's
     * num_edge_types; in a file a third number, (3, num_pairs) or (num_pairs, 3), of a source, a
     * target and a type. Not of sources and targets in memory. 0: they have none. */
    int64_t num_types;
} plim_links_t;

#define PLIM_LINKS_INIT                                                                            \
    {                                                                                              \
        sizeof(plim_links_t), NULL, NULL, 0, PLIM_NEGATIVES_NONE, 1, NULL, NULL,                   \
            PLIM_EXCLUDE_NONE, NULL, 0, 1, false, false, 0                                         \
    }

/* Seeds, and how their batches are drawn. */
#define PLIM_HOPS_RECIPE (-1)

typedef struct plim_stream_params {
    size_t size;
    plim_split_t split;   /* split that seeds come from, unless nodes are given */
    const int64_t *nodes; /* (num_nodes) any nodes (graphs, in a dataset of many graphs), in any
                             order, also more than once; copied. A plan needs only their number.
                             NULL, with the number of all: these, ascending */
    int64_t num_nodes;
    bool shuffle;       /* a new order each epoch, by the seed; else as listed */
    int64_t batch_size; /* of links: pairs. 0: the recipe's */
    int num_hops;       /* or PLIM_HOPS_RECIPE: the recipe's, with its fan-outs */
    int64_t fanout[PLIM_HOPS_MAX];
    /* Processes can divide batches: each batch is cut by position into equal shares (the first ones
     * have one more seed if the division has a remainder), and only share_count of them are
     * delivered, one after the other. A part never has seeds of two shares; a share without seeds
     * is delivered with num_seeds 0. */
    int share;      /* the first, from 0 */
    int num_shares; /* 1: whole batches */
    bool has_seed;  /* the stream has its own seed; false: the recipe's */
    bool no_labels; /* batches come without labels, and the seeds can be replaced */
    uint64_t seed;
    int64_t share_count;
    /* (num_nodes) the latest time in the tree of each of `nodes`, where times decide draws; copied.
     * NULL: by PLIM_NODE_TIME, or with own_times, the seeds' own times. A plan needs only whether
     * there are any. Of links (num_pairs), which need them: of both trees of a pair and of its
     * negatives, whose nodes, by PLIM_NODE_TIME, are not later either. */
    const int64_t *times;
    /* Pairs in place of nodes, without labels or parts; NULL: none. Shares divide batch_size: each
     * is a batch by itself, with negatives for its own pairs and their edges left out, and those of
     * an epoch's last batch are full before the next has any. */
    const plim_links_t *links;
} plim_stream_params_t;

/* The training split, shuffled, with the recipe's settings. */
#define PLIM_STREAM_PARAMS_INIT                                                                    \
    {                                                                                              \
        sizeof(plim_stream_params_t), PLIM_TRAIN, NULL, 0, true, 0, PLIM_HOPS_RECIPE,              \
            {0, 0, 0, 0, 0, 0, 0, 0}, 0, 1, false, false, 0, 1, NULL, NULL                         \
    }

/* Maximum number of streams of a loader; plim_trainer_evaluate uses one while it runs. */
#define PLIM_STREAMS_MAX 16

/*
 * Creates a loader as planned: reads offsets, splits and labels, fills the caches. It keeps the
 * dataset and the job alive. Peak memory: the plan's. PLIM_ERR_USAGE for a plan of another dataset;
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_plan_t *plan, plim_loader_t **loader_out);

/* The loader lives until its streams are released too. Batches may be held longer. NULL is
 * harmless. */
PLIM_API void plim_loader_release(plim_loader_t *loader);

/*
 * Adds a stream: copies its seeds and reads their labels. The seeds take at most 32 bytes each, and
 * their labels. Streams should be given to the plan (plim_plan_params_t). For a stream that is
 * larger than planned the loader is planned again under the same line and remade, with larger slots
 * (and fewer of them where memory is scarce) and smaller caches, which are filled again. The other
 * streams then continue where they were, with the same batches. A trainer that was planned with the
 * loader must be created before; it refuses batches larger than its plan's. A batch that the caller
 * holds keeps the old slots in memory.
 *
 * PLIM_ERR_USAGE for settings that the dataset cannot serve, a node out of range, or more than
 * PLIM_STREAMS_MAX streams. PLIM_ERR_BUDGET, with the minimum line, when the streams together do
 * not fit. PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED. After an error the loader
 * is as before; if that fails too, all further calls report the error.
 */
PLIM_API plim_status_t plim_loader_stream(plim_loader_t *loader, const plim_stream_params_t *params,
                                          plim_stream_t **stream_out);

/* A stream keeps its loader alive. NULL is harmless. */
PLIM_API void plim_stream_release(plim_stream_t *stream);

/* The seeds of a stream, and its position. */
typedef struct plim_stream_info {
    size_t size;   /* of this struct */
    int64_t seeds; /* in the stream's shares of each batch */
    int64_t steps; /* of an epoch */
    int64_t epoch;
    int64_t step; /* the next one; `steps` after the last. A batch that has parts to come is the
                     next one */
} plim_stream_info_t;

#define PLIM_STREAM_INFO_INIT                                                                      \
    {                                                                                              \
        sizeof(plim_stream_info_t), 0, 0, 0, 0                                                     \
    }

/* PLIM_ERR_USAGE for an output without a size, or in a forked child. */
PLIM_API plim_status_t plim_stream_info(const plim_stream_t *stream, plim_stream_info_t *info_out);

/*
 * Moves to a step of an epoch, or to the end of the epoch (step = its steps). Batches not
 * yet released stay valid; an error of the stream is cleared.
 *
 * In PyG's form, where slots are smaller than the largest batch possible (the plan's "counted"),
 * the call first draws the batches from that step on without their rows, to count their nodes and
 * edges; that takes as long as sampling them, and interrupts the stream being served. If one is
 * larger than a slot, the loader is planned again under the same line and remade, with larger slots
 * (and fewer of them where memory is scarce, but two of them stay two) and smaller caches. A batch
 * that the caller holds keeps the old slots in memory.
 *
 * PLIM_ERR_USAGE when there is no such epoch or step, or when batches must be counted and the
 * caller holds every slot. When batches are counted also PLIM_ERR_BUDGET, with the size of the
 * largest and the minimum line, when they do not fit, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_STOPPED. After an error the stream continues as before.
 */
PLIM_API plim_status_t plim_stream_start(plim_stream_t *stream, int64_t epoch, int64_t step);

/*
 * Returns the next batch, or part of one; NULL after the last of the epoch. `timeout` is in
 * seconds: negative waits without limit, and the calling thread builds batches too; 0 returns a
 * batch only if it is ready; else waits at most that long. PLIM_ERR_TIMEOUT when it was not ready
 * in time: call again. With a timeout the calling thread builds only where the job has a single
 * thread, and the later parts of a batch that comes in parts; the call then takes as long as
 * building. It may also take longer than the timeout where it interrupts another stream or other
 * processes have taken memory, since it waits for the batches being built then; and by some tens of
 * milliseconds, up to four times a second, where it fills a cache again.
 *
 * PLIM_ERR_USAGE when the stream was not started, or when the caller holds every slot or the
 * previous part: release it and call again. PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_BUDGET (a batch
 * that cannot be cut does not fit a slot), PLIM_ERR_STOPPED: then the stream must be started again.
 */
PLIM_API plim_status_t plim_stream_next(plim_stream_t *stream, double timeout,
                                        plim_batch_t **batch_out);

/* Any thread. A batch keeps all slots of its loader in memory. NULL is harmless to release. */
PLIM_API void plim_batch_retain(plim_batch_t *batch);
PLIM_API void plim_batch_release(plim_batch_t *batch);

/* The index-th array of a batch; NULL after the last. The order is nodes, rows, labels, pair_ids,
 * pair_index, pair_types, degrees, graph_indptr, edge_index, edge_ids, columns, trees, seed_times,
 * as far as the batch has them, then indptr and indices of each block. Any thread. */
PLIM_API const plim_array_t *plim_batch_array(const plim_batch_t *batch, int index);

/* What may still change; see docs/c.md. */
#ifdef PLIM_UNSTABLE

/* The memory of the loader's slots, which contains all of its batches: for a caller that pins it.
 * It moves only when plim_loader_stream or plim_stream_start remakes the loader: ask again after
 * adding or starting a stream. */
PLIM_API void plim_loader_memory(const plim_loader_t *loader, void **base_out, size_t *bytes_out);

/*
 * Gives a stream other seeds, which are copied: at most as many as it was added with. It must be
 * started again. PLIM_ERR_USAGE for a stream that was not added with nodes and no_labels, for more
 * seeds, none, or a node out of range; then the stream is as before.
 */
PLIM_API plim_status_t plim_stream_reseed(plim_stream_t *stream, const int64_t *nodes,
                                          int64_t num_nodes);

/*
 * Writes, for each seed of a batch, its position in the stream's list or split to ids_out
 * (batch->num_seeds): PyTorch Geometric's input_id. PLIM_ERR_USAGE for a batch that is not of this
 * stream, of links, or of an epoch whose order is no longer known: ask when the batch is delivered.
 */
PLIM_API plim_status_t plim_stream_input_ids(const plim_stream_t *stream, const plim_batch_t *batch,
                                             int64_t *ids_out);

/*
 * Adds a batch to a hash of the stream: seeds, neighbourhoods, rows and labels as a model sees
 * them. It is the same whether a native batch comes whole or in parts. Start with 0. A batch of
 * another loader adds nothing.
 */
PLIM_API uint64_t plim_loader_hash(plim_loader_t *loader, const plim_batch_t *batch, uint64_t hash);

/* Anonymous memory that the process of a loader may hold now, for a caller that takes memory
 * between two batches and knows how much. The loader's caches give way to it by themselves. */
typedef struct plim_headroom {
    size_t size;
    int64_t bound;   /* bytes that this process may hold, without those of other processes */
    int64_t held;    /* bytes that it holds without the caches */
    int64_t cached;  /* bytes of the caches in memory */
    int64_t files;   /* bytes of mapped files in memory: code and libraries */
    int64_t reserve; /* bytes that should stay free for libraries, code and the kernel */
    int64_t limit;   /* that the bound follows from, … */
    char source[64]; /* … and its name: a file of the kernel's, "the memory line" … */
} plim_headroom_t;

#define PLIM_HEADROOM_INIT                                                                         \
    {                                                                                              \
        .size = sizeof(plim_headroom_t)                                                            \
    }

/* Reads the kernel's figures; takes some milliseconds in a process of gigabytes. PLIM_ERR_USAGE for
 * an output without a size, or in a forked child. */
PLIM_API plim_status_t plim_loader_headroom(plim_loader_t *loader, plim_headroom_t *headroom_out);

/* Counts since the loader was created; those of windows, lists and rows since it was remade
 * (plim_loader_stream, plim_stream_start). Drawing to count batches adds to windows and lists. */
typedef struct plim_load_stats {
    size_t size;     /* of this struct */
    int64_t batches; /* delivered batches; parts count as one batch */
    int64_t parts;
    int64_t edges;
    int64_t nodes; /* rows gathered */
    int64_t windows;
    int64_t window_steps; /* steps of the last window */
    int64_t lists, lists_cached, list_transfers, list_bytes;
    /* distinct rows of each window, or of a part of a batch that is too large for a window */
    int64_t rows, rows_cached, row_transfers, row_bytes;
    int64_t rows_lost;      /* cached rows that the kernel had reclaimed */
    double wait_seconds;    /* waiting for I/O, summed over threads */
    double starved_seconds; /* waiting of the caller in plim_stream_next */
} plim_load_stats_t;

#define PLIM_LOAD_STATS_INIT                                                                       \
    {                                                                                              \
        .size = sizeof(plim_load_stats_t)                                                          \
    }

/* PLIM_ERR_USAGE for stats without a size. */
PLIM_API plim_status_t plim_loader_stats(const plim_loader_t *loader, plim_load_stats_t *stats_out);

#endif

#ifdef __cplusplus
}
#endif
#endif
