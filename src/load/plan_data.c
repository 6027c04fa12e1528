/* The plan object and its JSON text. */
#include "load/plan_data.h"

#include "base/fail.h"
#include "base/process.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A text that grows in a buffer of PLIM__PLAN_JSON bytes, which is enough; it is never exceeded. */
typedef struct text {
    char *at;
    size_t left;
} text_t;

static void add(text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(text_t *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    const size_t used = length < 0                     ? 0
                        : (size_t)length >= text->left ? text->left - 1
                                                       : (size_t)length;
    text->at += used;
    text->left -= used;
}

static void add_count(text_t *text, const char *name, int64_t value)
{
    add(text, ", \"%s\": %lld", name, (long long)value);
}

static void add_word(text_t *text, const char *name, const char *word)
{
    add(text, ", \"%s\": \"%s\"", name, word);
}

static const char *const phase_names[PLIM__PHASES] = {"start", "train", "evaluate", "checkpoint",
                                                      "predict"};

static void add_phases(text_t *text, const int64_t phase[PLIM__PHASES])
{
    add(text, ", \"phases\": {");
    for (int i = 0; i < PLIM__PHASES; i++)
        add(text, "%s\"%s\": %lld", i > 0 ? ", " : "", phase_names[i], (long long)phase[i]);
    add(text, "}");
}

/* Accounts have phases only in the plan of a training run. */
static void add_accounts(text_t *text, const plim__plan_account_t *accounts, int count, bool phases)
{
    add(text, "\"accounts\": [");
    for (int i = 0; i < count; i++) {
        add(text, "%s{\"name\": \"%s\"", i > 0 ? ", " : "", accounts[i].name);
        add_count(text, "bytes", accounts[i].bytes);
        if (phases)
            add_phases(text, accounts[i].phase);
        add(text, "}");
    }
    add(text, "]");
}

static void add_expectation(text_t *text, const plim__expectation_t *expect, bool trains)
{
    add(text, ", \"expect\": {\"batch_nodes\": %lld", (long long)expect->batch_nodes);
    add_count(text, "batch_edges", expect->batch_edges);
    add_count(text, "batch_bytes", expect->batch_bytes);
    add_count(text, "epoch_steps", expect->epoch_steps);
    add_count(text, "epoch_reads", expect->epoch_reads);
    add_count(text, "epoch_read_bytes", expect->epoch_read_bytes);
    add_count(text, "disk_bytes", expect->disk_bytes);
    if (trains) {
        add_count(text, "run_read_bytes", expect->run_read_bytes);
        add_count(text, "predict_disk_bytes", expect->predict_disk_bytes);
    }
    add(text, "}");
}

static void add_choices(text_t *text, const plim__load_plan_t *load)
{
    add_count(text, "part_seeds", load->part_seeds);
    add_count(text, "part_nodes", load->part_nodes);
    add_count(text, "part_edges", load->part_edges);
    add(text, ", \"guessed\": %s", load->guessed ? "true" : "false");
    add(text, ", \"counted\": %s", load->counted ? "true" : "false");
    add_word(text, "topology", load->topology_in_memory ? "memory" : "disk");
    add_word(text, "features", load->rows_in_memory ? "memory" : "disk");
    add_count(text, "workers", load->workers);
    add_count(text, "list_cache_bytes", (int64_t)load->list_cache_bytes);
    add_count(text, "row_cache_bytes", (int64_t)load->row_cache_bytes);
    add_count(text, "window_steps", load->window_steps);
    add_count(text, "window_draws", load->window_draws);
    add_count(text, "window_rows", load->window_rows);
    add_count(text, "slots", load->num_slots);
    add_count(text, "slot_nodes", load->slot_nodes);
    add_count(text, "slot_edges", load->slot_edges);
    add_count(text, "io_depth", load->io_depth);
    add_count(text, "io_merge_bytes", (int64_t)load->merge_distance);
    add_count(text, "scratch_bytes", load->scratch_bytes);
}

void plim__plan_seal(plim_plan_t *plan, bool trains)
{
    plim__train_plan_t *all = &plan->numbers;
    const plim__load_plan_t *load = &all->load;
    text_t text = {plan->json, PLIM__PLAN_JSON};
    plan->trains = trains;
    add(&text, "{");
    if (trains)
        add_accounts(&text, all->accounts, all->num_accounts, true);
    else
        add_accounts(&text, load->accounts, load->num_accounts, false);
    if (trains) {
        add_phases(&text, all->phase);
        add_word(&text, "peak_phase", phase_names[all->peak_phase]);
        add(&text, ", \"recompute\": %s", all->recompute ? "true" : "false");
        add_count(&text, "gradient_bytes", all->gradient_bytes);
    }
    add_count(&text, "total_bytes", plim_plan_peak(plan));
    if (plim_plan_line(plan) != PLIM_LINE_NONE)
        add_count(&text, "line_bytes", plim_plan_line(plan));
    add_count(&text, "minimum_bytes", plim_plan_minimum(plan));
    add_choices(&text, load);
    add_expectation(&text, trains ? &all->expect : &load->expect, trains);
    add(&text, "}");
}

plim_status_t plim__plan_create(const plim_job_t *job, plim_plan_t **plan_out)
{
    const size_t bytes =
        plim__arena_piece(1, sizeof(plim_plan_t), 1) + plim__arena_piece(PLIM__PLAN_JSON, 1, 1);
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "plan", bytes, &arena));
    plim_plan_t *plan = plim__arena_carve(&arena, 1, sizeof *plan, 1);
    plan->json = plim__arena_carve(&arena, PLIM__PLAN_JSON, 1, 1);
    plan->process = getpid();
    plan->arena = arena;
    plan->job = *job;
    plim_job_retain(job);
    atomic_init(&plan->references, 1);
    *plan_out = plan;
    return PLIM_OK;
}

plim_status_t plim__plan_check_dataset(const plim_plan_t *plan, const plim_dataset_info_t *info)
{
    const char *planned = plan->numbers.load.fingerprint;
    return strcmp(planned, info->fingerprint) == 0
               ? PLIM_OK
               : plim__fail(PLIM_ERR_USAGE,
                            "the plan is for the dataset of fingerprint %s, and this one has %s: "
                            "plan again",
                            planned, info->fingerprint);
}

PLIM_API void plim_plan_retain(plim_plan_t *plan)
{
    if (plim__process_is(plan->process))
        atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
}

PLIM_API void plim_plan_release(plim_plan_t *plan)
{
    if (plan == NULL || !plim__process_is(plan->process) ||
        atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    const plim_job_t job = plan->job;
    plim__arena_t arena = plan->arena;
    plim__arena_destroy(&arena);
    plim_job_release(&job);
}

PLIM_API int64_t plim_plan_line(const plim_plan_t *plan)
{
    return plan->trains ? plan->numbers.line : plan->numbers.load.line;
}

PLIM_API int64_t plim_plan_peak(const plim_plan_t *plan)
{
    return plan->trains ? plan->numbers.total : plan->numbers.load.total;
}

PLIM_API int64_t plim_plan_minimum(const plim_plan_t *plan)
{
    return plan->trains ? plan->numbers.minimum : plan->numbers.load.minimum;
}

PLIM_API int64_t plim_plan_part_seeds(const plim_plan_t *plan)
{
    return plan->numbers.load.part_seeds;
}

PLIM_API const char *plim_plan_json(const plim_plan_t *plan)
{
    return plim__process_is(plan->process) ? plan->json : "{}";
}
