/* `plan --ranks`: what a training exchanges on several ranks, and how they divide a batch. */
#include "command/verb_plan.h"

#define COLLECTIVES 2 /* of an exchange of gradients */

int64_t plan_mpi_bytes(const plan_t *plan)
{
    if (plan->ranks <= 1)
        return 0;
    return cli_ranks() != NULL ? cli_ranks()->bytes : PLAN_MPI_BYTES;
}

bool plan_resolve_ranks(plan_t *plan, train_t *train)
{
    if (train->training.shares == 0)
        train->training.shares = plan->ranks > 0 ? plan->ranks : 1;
    if (train->training.shares >= plan->ranks)
        return true;
    (void)cli_wrong_use(&train->common,
                        "--ranks %lld: each rank computes at least one share, and --shares is %lld",
                        (long long)plan->ranks, (long long)train->training.shares);
    return false;
}

static int64_t rank_shares(const plan_t *plan, const train_t *train)
{
    return (train->training.shares - 1) / plan->ranks + 1;
}

/* Bytes that a rank sends and receives in a step. */
static double exchange_bytes(const plan_t *plan, const plan_found_t *found)
{
    const double ranks = (double)plan->ranks;
    return 2 * (double)found->plan.info.gradient_bytes * (ranks - 1) / ranks;
}

json_t *plan_ranks_json(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:i, s:I, s:b}", "count", (json_int_t)plan->ranks,
                     "shares", (json_int_t)train->training.shares, "rank_shares",
                     (json_int_t)rank_shares(plan, train), "exchange_bytes",
                     exchange_bytes(plan, found), "collectives", COLLECTIVES, "mpi_bytes",
                     (json_int_t)plan_mpi_bytes(plan), "mpi_measured", (int)(cli_ranks() != NULL));
}

void plan_ranks_print(const plan_t *plan, const train_t *train, const plan_found_t *found)
{
    char bytes[24];
    if (plan->ranks == 0)
        return;
    (void)printf("%-10s %lld, each with this line and these threads; MPI's memory: %s (%s)\n",
                 "ranks", (long long)plan->ranks, plim_size_text(plan_mpi_bytes(plan), bytes),
                 cli_ranks() != NULL ? "measured" : "assumed");
    (void)printf(
        "%-10s %s a step in %d collectives; a rank computes at most %lld of %lld shares of a "
        "batch\n",
        "exchange", plim_size_text((int64_t)exchange_bytes(plan, found), bytes), COLLECTIVES,
        (long long)rank_shares(plan, train), (long long)train->training.shares);
}
