/* What `plimsoll bench` is asked for, and what it says. */
#ifndef PLIM_CLI_VERB_BENCH_H
#define PLIM_CLI_VERB_BENCH_H

#include "cli.h"

typedef enum bench_what { BENCH_SAMPLE, BENCH_GATHER, BENCH_LOAD } bench_what_t;

typedef struct bench {
    cli_common_t common;
    bench_what_t what;
    const char *path;
    plim_recipe_t recipe;
    plim_plan_params_t params;
    plim_split_t split;
    int64_t first_epoch;
    int64_t first_step;
    int64_t epochs;
    int64_t batches; /* an epoch, at most; 0: all */
    bool fanout_given;
    bool rows_given;
    bool has_rows; /* there are rows, and they are asked for */
    bool hash;
    bool stage;
} bench_t;

/* One epoch's share of the loader's counts. */
typedef struct bench_epoch {
    int64_t epoch;
    double seconds;
    plim_load_stats_t stats;
    bool hashed;
    uint64_t hash;
} bench_epoch_t;

/* The bare machine beside it. */
typedef struct bench_bare {
    const char *kind; /* "memcpy", "reads"; NULL: nothing was measured */
    const char *file; /* that was read, or whose bytes were copied */
    plim_bench_result_t result;
} bench_bare_t;

const char *bench_what_name(bench_what_t what);

/* Each for people on standard output, unless --json. */
void bench_say_plan(const bench_t *bench, const json_t *plan);
void bench_say_epoch(const bench_t *bench, const json_t *plan, const bench_epoch_t *epoch);
void bench_say_gather(const bench_t *bench, const plim_bench_result_t *gather);
void bench_say_bare(const bench_t *bench, const bench_bare_t *bare);

/* The same as JSON; all counts are exact. */
json_t *bench_json_epoch(const bench_epoch_t *epoch);
json_t *bench_json_gather(const plim_bench_result_t *gather);
json_t *bench_json_bare(const bench_bare_t *bare);

#endif
