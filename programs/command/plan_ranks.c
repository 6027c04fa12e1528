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

void plan_ranks(const plan_t *plan, const train_t *train, plan_found_t *found)
{
    const int64_t shares = train->training.shares;
    const int64_t rank_shares = (shares - 1) / plan->ranks + 1;
    const double gradient = (double)cli_json_int(found->plan, "gradient_bytes");
    const double ranks = (double)plan->ranks;
    (void)json_object_set_new(
        found->plan, "ranks",
        json_pack("{s:I, s:I, s:I, s:f, s:i, s:I, s:b}", "count", (json_int_t)plan->ranks, "shares",
                  (json_int_t)shares, "rank_shares", (json_int_t)rank_shares, "exchange_bytes",
                  2 * gradient * (ranks - 1) / ranks, "collectives", COLLECTIVES, "mpi_bytes",
                  (json_int_t)plan_mpi_bytes(plan), "mpi_measured", (int)(cli_ranks() != NULL)));
}

void plan_ranks_print(const json_t *plan)
{
    const json_t *ranks = json_object_get(plan, "ranks");
    char bytes[24];
    if (ranks == NULL)
        return;
    (void)printf("%-10s %lld, each with this line and these threads; MPI's memory: %s (%s)\n",
                 "ranks", (long long)cli_json_int(ranks, "count"),
                 plim_size_text(cli_json_int(ranks, "mpi_bytes"), bytes),
                 json_is_true(json_object_get(ranks, "mpi_measured")) ? "measured" : "assumed");
    (void)printf(
        "%-10s %s a step in %d collectives; a rank computes at most %lld of %lld shares of a "
        "batch\n",
        "exchange",
        plim_size_text((int64_t)json_number_value(json_object_get(ranks, "exchange_bytes")), bytes),
        COLLECTIVES, (long long)cli_json_int(ranks, "rank_shares"),
        (long long)cli_json_int(ranks, "shares"));
}
