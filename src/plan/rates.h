/*
 * Rates of a machine: the seconds that units of work take. Plans expect times by them. They are
 * measured once for a kind of machine (processor and threads; file system of the data), kept in the
 * user's cache, and can be brought from another machine as a file. Nothing but expected times
 * depends on them.
 */
#ifndef PLIM_PLAN_RATES_H
#define PLIM_PLAN_RATES_H

#include "base/job.h"
#include "store/dataset.h"

#include <plimsoll/plan.h>

/* Work, and the arguments x, y of its cost. Costs are core-seconds, if not said otherwise, while
 * all threads work at once. */
typedef enum plim__rate {
    PLIM__RATE_F32_FORWARD, /* a row of a product: x columns in, y out; … */
    PLIM__RATE_F32_INPUT,   /* … of its input's gradient; … */
    PLIM__RATE_F32_WEIGHT,  /* … of its weight's */
    PLIM__RATE_BF16_FORWARD,
    PLIM__RATE_BF16_INPUT,
    PLIM__RATE_BF16_WEIGHT,
    PLIM__RATE_SUM,      /* an edge or destination: x columns, y = log2 of the sources' bytes */
    PLIM__RATE_SUM_BACK, /* an edge or source likewise */
    PLIM__RATE_REVERSE,  /* an edge; one thread */
    PLIM__RATE_ATTEND,   /* an edge, destination or source, for a head of x channels */
    PLIM__RATE_ATTEND_BACK /* the same */,
    PLIM__RATE_EPILOGUE, /* a value, with bias and activation: forward, backward, … */
    PLIM__RATE_DROPOUT,  /* … with dropout … */
    PLIM__RATE_NORM,     /* … and with a norm */
    PLIM__RATE_LOSS,     /* an output value */
    PLIM__RATE_UPDATE,   /* a weight: the optimiser, … */
    PLIM__RATE_PACK,     /* … and packing it for products, adding up its gradient */
    PLIM__RATE_MEMORY,   /* a byte that no cache holds: what it costs beyond the rates of work */
    PLIM__RATE_SHARE,    /* sharing work among the threads: elapsed seconds */
    PLIM__RATE_DRAW,     /* an edge drawn and renumbered: x = log2 of the bytes of lists */
    PLIM__RATE_COPY,     /* a row of x bytes, from a random place */
    PLIM__RATE_READ,     /* an I/O of x bytes among many: elapsed seconds */
    PLIM__RATE_READ_CORE /* the same: core-seconds */
} plim__rate_t;

#define PLIM__NUM_RATES 23
#define PLIM__RATE_POINTS 4

typedef struct plim__rates {
    double cost[PLIM__NUM_RATES][PLIM__RATE_POINTS];
    bool computing_known; /* measured, not defaults: those of computing … */
    bool disk_known;      /* … and of the disk */
    bool from_file;       /* brought by plim_plan_params_t.rates, … */
    int threads;          /* … from a machine of so many threads; else 0 */
} plim__rates_t;

/* How many points it has. */
int plim__rate_points(plim__rate_t rate);

/* The arguments of a point: of x for bit 1, of y for bit 0. */
double plim__rate_x(plim__rate_t rate, int point);
double plim__rate_y(plim__rate_t rate, int point);

/* The cost at x and y, by the line through the points; below the first point it is that of the
 * first. Without arguments: plim__rates_t.cost. */
double plim__rate_at(const plim__rates_t *rates, plim__rate_t rate, double x, double y);

/* Defaults: what plim_rates_measure found on two cores of a Xeon at 2.5 GHz with AVX-512. */
plim__rates_t plim__rates_default(void);

/*
 * The rates for a plan: of the file params->rates, else of the cache, else defaults. PLIM_ERR_USAGE
 * when the file cannot be read or is no file of rates.
 */
plim_status_t plim__rates_find(const plim_job_t *job, const plim_dataset_t *dataset,
                               const char *file, plim__rates_t *rates_out);

/* Keeps rates in the cache: of computing and of the disk, as far as they are known. */
void plim__rates_keep(const plim_job_t *job, const plim_dataset_t *dataset,
                      const plim__rates_t *rates);

/* Writes them to `file`, all of it or nothing, and replaces an existing file. PLIM_ERR_IO,
 * PLIM_ERR_DISK. */
plim_status_t plim__rates_write(const plim_job_t *job, const plim__rates_t *rates,
                                const char *file);

/* Measures the rates of computing; and, if the dataset has a file that is large enough, of its
 * disk. PLIM_ERR_BUDGET and PLIM_ERR_NOMEM without memory for it; PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_UNSUPPORTED, PLIM_ERR_STOPPED. */
plim_status_t plim__rates_measure_computing(const plim_job_t *job, plim__rates_t *rates);
plim_status_t plim__rates_measure_disk(const plim_job_t *job, const plim_dataset_t *dataset,
                                       plim__rates_t *rates);

#endif
