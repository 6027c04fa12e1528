/* Exact evaluation's plan, made where the sets of nodes are known. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/footprint.h"
#include "mem/size_text.h"

#include <stdio.h>

_Static_assert(sizeof(plim__exact_t) <= PLIM__EXACT_OWN_BYTES, "as the plan counts it");
_Static_assert(sizeof(plim__exact_worker_t) <= PLIM__EXACT_WORKER_BYTES, "as the plan counts it");

size_t plim__exact_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__exact_params_t *params)
{
    return plim__exact_cost_minimum(job, dataset, &params->model, params->num_outputs,
                                    params->embeddings);
}

/* `available` is what is left for the layers. Page tables are reserved for a full line. */
static void log_plan(const plim__exact_t *exact, int64_t available, const plim__exact_fit_t *fit)
{
    const int64_t line = plim_ledger_line(exact->job->ledger);
    const int64_t full = line - available + fit->held;
    const int64_t total = full - plim__footprint_growth(line) + plim__footprint_growth(full);
    if (total > line)
        plim__footprint_log_code(exact->job, total);
    char most[PLIM__SIZE_TEXT], limit[PLIM__SIZE_TEXT], bytes[PLIM__SIZE_TEXT], disk[64] = "";
    if (fit->disk > 0)
        (void)snprintf(disk, sizeof disk, ", and %s on disk between layers",
                       plim__size_text(fit->disk, bytes));
    plim__log(exact->job, PLIM_LOG_INFO, "planned: at most %s of %s%s",
              plim__size_text(plim__min_i64(total, line), most), plim__size_text(line, limit),
              disk);
}

static void log_layer(const plim__exact_t *exact, int index)
{
    const plim__exact_layer_t *layer = &exact->layers[index];
    const plim__exact_set_t *from = &exact->sets[index], *to = &exact->sets[index + 1];
    const plim__exact_choice_t *choice = &exact->plans[index].choice;
    const int64_t passes = choice->slices * choice->blocks;
    if (passes > 0)
        plim__log(exact->job, PLIM_LOG_INFO,
                  "exact layer %d: %lld nodes, %lld edges, in %lld passes: %lld of %lld columns, "
                  "of %lld of %lld nodes' rows, at a time",
                  index + 1, (long long)to->count, (long long)to->edges, (long long)passes,
                  (long long)choice->columns, (long long)layer->wide, (long long)choice->rows,
                  (long long)from->count);
}

plim_status_t plim__exact_plan_layers(plim__exact_t *exact)
{
    const plim__exact_layer_t *last = &exact->layers[exact->num_layers - 1];
    const int64_t giving =
        (int64_t)plim__exact_give_bytes(exact->job, exact->sizes.piece_rows, last->out);
    const int64_t available = plim_ledger_available(exact->job->ledger) - giving;
    const int64_t most = available + plim__ledger_spare(exact->job->ledger);
    const char *scratch = exact->params->scratch;
    plim__file_system_t system;
    plim__exact_fit_t fit;
    int64_t space;
    char need_text[PLIM__SIZE_TEXT], space_text[PLIM__SIZE_TEXT];
    PLIM_TRY(plim__file_system(scratch, &system));
    plim__exact_work_t work = {.info = exact->info,
                               .num_layers = exact->num_layers,
                               .layers = exact->layers,
                               .piece_rows = exact->sizes.piece_rows,
                               .most_rows = exact->params->most_rows,
                               .stored = exact->stored,
                               .scratch_counts = system.memory};
    for (int i = 0; i <= exact->num_layers; i++) {
        work.count[i] = exact->sets[i].count;
        work.edges[i] = exact->sets[i].edges;
    }
    const int64_t planned = exact->params->most_bytes - (int64_t)exact->sizes.bytes;
    bool fits = exact->params->most_bytes > 0 && planned < available &&
                plim__exact_fit(&work, planned, &fit);
    /* What is short of the layers' needs code gives, and no more. */
    for (int64_t room = available; !fits; room = fit.needed) {
        fits = plim__exact_fit(&work, room, &fit);
        if (!fits && (fit.needed > most || fit.needed <= room))
            return plim__ledger_refuse_spare(exact->job->ledger, plim__dataset_path(exact->dataset),
                                             "exact evaluation",
                                             (size_t)plim__add_saturating_i64(fit.needed, giving));
    }
    log_plan(exact, available, &fit);
    for (int i = 0; i < exact->num_layers; i++) {
        exact->plans[i] = fit.plans[i];
        log_layer(exact, i);
    }
    PLIM_TRY(plim__file_space(scratch, &space));
    if (fit.disk > space)
        return plim__fail(PLIM_ERR_SPACE,
                          "%s: layers in between take %s, %s are free; name another directory with "
                          "--scratch",
                          scratch, plim__size_text(fit.disk, need_text),
                          plim__size_text(space, space_text));
    return PLIM_OK;
}
