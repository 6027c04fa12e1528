/*
 * Work that a plan expects, counted as the code does it and costed by the rates. Three things
 * overlap: the disk reads; any thread loads batches; the computing thread, with its team, runs the
 * model. The slowest of disk, computing thread and all cores together decides.
 */
#ifndef PLIM_PLAN_EFFORT_H
#define PLIM_PLAN_EFFORT_H

#include "load/plan_data.h"
#include "plan/rates.h"

/* Work that overlaps. */
typedef struct plim__effort {
    double any;    /* core-seconds of any thread: loading, and the processor's part of I/O */
    double caller; /* seconds of the computing thread … */
    double team;   /* … and its team's core-seconds meanwhile */
    double disk;   /* seconds of the disk */
    double reads, read_bytes;
} plim__effort_t;

/* Everything that the estimates read. */
typedef struct plim__view {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    const plim__manifest_t *manifest;
    const plim__load_plan_t *plan;
    const plim__rates_t *rates;
    plim_recipe_t recipe; /* the plan's, or an evaluation's */
    double threads;
    double row_bytes; /* of a row on disk; 0: batches have none */
    double list_bytes;
} plim__view_t;

/* A batch, or a part of one, hop by hop. */
typedef struct plim__batch_hops {
    int count;
    double nodes[PLIM_HOPS_MAX + 1]; /* destinations of each hop, then all nodes */
    double edges[PLIM_HOPS_MAX];
    double all_edges;
} plim__batch_hops_t;

/* Draws are measured on tables of up to 16 MiB; the growth of their cost is continued up to this
 * log2 of bytes. An assumption: in a larger table nearly every access misses the caches
 * already. */
#define PLIM__LARGEST_TABLE 27.0

static inline int64_t plim__whole(double value)
{
    return value < 9e18 ? (int64_t)value : INT64_MAX;
}

/* Caches hold all of so many bytes (log2) that work goes over in turn, … */
#define PLIM__NEAR_BYTES 22.0
/* … and nothing of so many. */
#define PLIM__FAR_BYTES 26.0

/* What a byte costs beyond the rates of work, when work goes over so many bytes in turn. */
double plim__memory_cost(const plim__view_t *view, double bytes);

plim__view_t plim__view_of(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__rates_t *rates, const plim__load_plan_t *plan);
double plim__effort_seconds(const plim__view_t *view, const plim__effort_t *effort);

/* What `seeds` seeds need: the sizes of the whole, divided among hops as degrees say. */
plim__batch_hops_t plim__batch_hops(const plim__view_t *view, double seeds);

/* Parts of a batch: as planned, or halves until a slot holds one. */
double plim__batch_parts(const plim__view_t *view, double batch);

/* Loads `seeds` seeds in batches of `batch`, `parts` parts each. */
void plim__add_loading(const plim__view_t *view, double seeds, double batch, double parts,
                       plim__effort_t *effort);

/* Many large I/Os. A write is assumed to cost as much as a read. */
void plim__add_moves(const plim__view_t *view, double bytes, plim__effort_t *effort);

/* Reads of a whole range. */
void plim__add_scan(const plim__view_t *view, double bytes, plim__effort_t *effort);

#endif
