/* `plan --ranks`: what a training takes on several ranks, one on each node. */
#include "command/verb_plan.h"

/* An exchange of gradients is two collectives. Assumed of the network, since a plan has only one
 * machine: 10 Gbit/s, and 30 us for each collective (Open MPI takes 15 to 80 us for 20 KB on one
 * machine, bench/results/exchange.json). */
#define NETWORK_BYTES_PER_S 1.25e9
#define COLLECTIVE_SECONDS 30e-6

/* Twice as many ranks help if the run becomes shorter by a tenth. */
#define HELPS 1.1

static double number(const json_t *plan, const char *name)
{
    return json_number_value(json_object_get(json_object_get(plan, "expect"), name));
}

static double exchange_bytes(double gradient, double ranks)
{
    return 2 * gradient * (ranks - 1) / ranks;
}

static double exchange_seconds(double gradient, double ranks)
{
    return ranks > 1
               ? 2 * COLLECTIVE_SECONDS + exchange_bytes(gradient, ranks) / NETWORK_BYTES_PER_S
               : 0;
}

int64_t plan_mpi_bytes(const plan_t *plan)
{
    if (plan->ranks <= 1)
        return 0;
    return cli_ranks() != NULL ? cli_ranks()->bytes : PLAN_MPI_BYTES;
}

/* The times of a training on so many ranks. */
typedef struct times {
    double computes, exchange; /* seconds of a step */
    double epoch, evaluation, run;
} times_t;

/* Seconds that a rank computes for one of `shares` shares of a batch, under the line of the plan
 * `made` and, for the shares of the training, with its cut; negative where that cannot be planned.
 */
static plim_status_t share_seconds(const plan_t *plan, const train_t *train, const json_t *made,
                                   int64_t shares, double *seconds_out)
{
    const bool limited = json_object_get(made, "line_bytes") != NULL;
    const int64_t line = limited ? cli_json_int(made, "line_bytes") : PLIM_LINE_NONE;
    static plan_t silent;
    train_t share = *train;
    plan_found_t one;
    bool said;
    silent = *plan;
    silent.silent = true;
    share.training.recipe.batch_size = (train->training.recipe.batch_size - 1) / shares + 1;
    share.training.shares = 1;
    if (shares == train->training.shares)
        share.params.part_seeds = cli_json_int(made, "part_seeds");
    const plim_status_t status = plan_find(&silent, &share, line, false, &one, &said);
    const double steps = number(one.plan, "epoch_steps");
    *seconds_out = status == PLIM_OK && !said && one.fits
                       ? number(one.plan, "epoch_seconds") / (steps > 1 ? steps : 1)
                       : -1;
    plan_found_end(&one);
    return status;
}

/* Times by the plan of one rank. A rank computes and evaluates its shares; the other times of a run
 * do not shrink. */
static times_t times_of(const json_t *plan, const plim_training_t *training, int64_t ranks,
                        int64_t shares, double share)
{
    const int64_t most = (shares - 1) / ranks + 1; /* shares of a rank */
    const double epochs = (double)training->epochs;
    const double evaluation = number(plan, "run_evaluation_seconds");
    const double fixed =
        number(plan, "run_seconds") - epochs * number(plan, "epoch_seconds") - evaluation;
    times_t times = {
        .computes = share * (double)most,
        .exchange = exchange_seconds((double)cli_json_int(plan, "gradient_bytes"), (double)ranks),
        .evaluation = evaluation * (double)most / (double)shares};
    times.epoch = number(plan, "epoch_steps") * (times.computes + times.exchange);
    times.run = (fixed > 0 ? fixed : 0) + epochs * times.epoch + times.evaluation;
    return times;
}

bool plan_settle_ranks(plan_t *plan, train_t *train)
{
    plan->shares_given = train->training.shares > 0;
    if (train->training.shares == 0)
        train->training.shares = plan->ranks > 0 ? plan->ranks : 1;
    if (train->training.shares >= plan->ranks)
        return true;
    (void)cli_wrong_use(&train->common,
                        "--ranks %lld: each rank computes at least one share, and --shares is %lld",
                        (long long)plan->ranks, (long long)train->training.shares);
    return false;
}

/* Doubles the ranks as long as that helps, up to one for each seed of a batch and for each share.
 * `share`: seconds of a share; without --shares, S grows with the ranks, and they are found anew.
 * *seconds_out: of the run on one rank. */
static plim_status_t find_last(const plan_t *plan, const train_t *train, const plan_found_t *found,
                               double share, double *seconds_out, int64_t *last_out)
{
    const plim_training_t *training = &train->training;
    const int64_t seeds = found->info.num_split[PLIM_TRAIN];
    int64_t most = training->recipe.batch_size;
    double before = 0;
    if (seeds < most)
        most = seeds;
    if (plan->shares_given && training->shares < most)
        most = training->shares;
    *last_out = 1;
    for (int64_t ranks = 1; ranks <= most && ranks <= PLIM_RANKS_MAX; ranks *= 2) {
        const int64_t shares = plan->shares_given ? training->shares : ranks;
        const plim_status_t status =
            plan->shares_given ? PLIM_OK : share_seconds(plan, train, found->plan, shares, &share);
        if (status != PLIM_OK)
            return status;
        const double run = times_of(found->plan, training, ranks, shares, share).run;
        if (share < 0) /* so few do not fit */
            continue;
        if (before > 0 && before < HELPS * run)
            break;
        if (ranks == 1)
            *seconds_out = run;
        *last_out = ranks;
        before = run;
    }
    return PLIM_OK;
}

/* Makes the times of a plan those of all ranks. `share`: seconds of a share. */
static times_t spread(const plim_training_t *training, int64_t ranks, double share, json_t *made)
{
    json_t *expect = json_object_get(made, "expect");
    const times_t times = times_of(made, training, ranks, training->shares, share);
    (void)json_object_set_new(expect, "epoch_seconds", json_real(times.epoch));
    (void)json_object_set_new(expect, "run_evaluation_seconds", json_real(times.evaluation));
    (void)json_object_set_new(expect, "run_seconds", json_real(times.run));
    return times;
}

plim_status_t plan_ranks(const plan_t *plan, const train_t *train, plan_found_t *found)
{
    const int64_t shares = train->training.shares;
    json_t *smallest = found->smallest != found->plan ? found->smallest : NULL;
    double share, slow = -1, alone = 0;
    int64_t last;
    plim_status_t status = share_seconds(plan, train, found->plan, shares, &share);
    if (status == PLIM_OK)
        status = find_last(plan, train, found, share, &alone, &last);
    if (status == PLIM_OK && smallest != NULL)
        status = share_seconds(plan, train, smallest, shares, &slow);
    if (status != PLIM_OK)
        return status;
    if (share < 0) {
        cli_warn("one share of a batch cannot be planned: the times are those of one rank");
        return PLIM_OK;
    }
    const times_t times = spread(&train->training, plan->ranks, share, found->plan);
    if (smallest != NULL && slow >= 0)
        (void)spread(&train->training, plan->ranks, slow, smallest);
    else if (smallest != NULL) {
        json_decref(smallest);
        found->smallest = NULL;
    }
    (void)json_object_set_new(
        found->plan, "ranks",
        json_pack("{s:I, s:I, s:f, s:f, s:i, s:f, s:o, s:I, s:I, s:b}", "count",
                  (json_int_t)plan->ranks, "shares", (json_int_t)shares, "step_seconds",
                  times.computes, "exchange_bytes",
                  exchange_bytes((double)cli_json_int(found->plan, "gradient_bytes"),
                                 (double)plan->ranks),
                  "collectives", 2, "exchange_seconds", times.exchange, "speedup",
                  alone > 0 ? json_real(alone / times.run) : json_null(), "last_that_helps",
                  (json_int_t)last, "mpi_bytes", (json_int_t)plan_mpi_bytes(plan), "mpi_measured",
                  (int)(cli_ranks() != NULL)));
    return PLIM_OK;
}

void plan_ranks_print(const json_t *plan)
{
    const json_t *ranks = json_object_get(plan, "ranks");
    char bytes[24];
    if (ranks == NULL)
        return;
    const double step = json_number_value(json_object_get(ranks, "step_seconds"));
    const double exchange = json_number_value(json_object_get(ranks, "exchange_seconds"));
    const double sent = json_number_value(json_object_get(ranks, "exchange_bytes"));
    const double speedup = json_number_value(json_object_get(ranks, "speedup"));
    const int64_t last = cli_json_int(ranks, "last_that_helps");
    (void)printf("%-10s %lld, each with this line and these threads; MPI's memory: %s (%s)\n",
                 "ranks", (long long)cli_json_int(ranks, "count"),
                 plim_size_text(cli_json_int(ranks, "mpi_bytes"), bytes),
                 json_is_true(json_object_get(ranks, "mpi_measured")) ? "measured" : "assumed");
    (void)printf(
        "%-10s %s a step, about %.3g ms (assumed: 10 Gbit/s, 2 x 30 us); compute %.3g ms\n",
        "exchange", plim_size_text((int64_t)sent, bytes), 1e3 * exchange, 1e3 * step);
    (void)printf("%-10s ", "verdict");
    if (speedup > 0)
        (void)printf("the whole run is %.2f times as fast as on one rank; ", speedup);
    if (last == 1)
        (void)printf("more than one rank hardly helps\n");
    else
        (void)printf("doubling helps up to %lld ranks\n", (long long)last);
}
