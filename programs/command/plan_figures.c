/* The figures of a plan, as verbs print them and as JSON. */
#include "command/cli.h"

plim_status_t cli_plan_read(const plim_plan_t *plan, cli_plan_t *plan_out)
{
    const plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
    const plim_plan_account_t account = PLIM_PLAN_ACCOUNT_INIT;
    plan_out->info = info;
    plan_out->num_accounts = 0;
    for (int i = 0; i < CLI_PLAN_ACCOUNTS; i++)
        plan_out->accounts[i] = account;
    while (plan_out->num_accounts < CLI_PLAN_ACCOUNTS &&
           plim_plan_account(plan, plan_out->num_accounts,
                             &plan_out->accounts[plan_out->num_accounts]))
        plan_out->num_accounts++;
    return plim_plan_info(plan, &plan_out->info);
}

int64_t cli_minimum_line(const cli_plan_t *plan)
{
    const int64_t mib = (int64_t)1 << 20;
    return (plan->info.minimum + mib - 1) / mib * mib;
}

const char *cli_minimum_text(const cli_plan_t *plan, char text_out[24])
{
    (void)snprintf(text_out, 24, "%lld MiB", (long long)(cli_minimum_line(plan) >> 20));
    return text_out;
}

const char *cli_phase_name(plim_phase_t phase)
{
    static const char *const names[PLIM_PHASES] = {"start", "train", "evaluate", "checkpoint",
                                                   "predict"};
    return names[phase];
}

static void set_count(json_t *object, const char *name, int64_t count)
{
    (void)json_object_set_new(object, name, json_integer(count));
}

static void set_phases(json_t *object, const int64_t phase_bytes[PLIM_PHASES])
{
    json_t *phases = json_object();
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        set_count(phases, cli_phase_name((plim_phase_t)phase), phase_bytes[phase]);
    (void)json_object_set_new(object, "phases", phases);
}

static json_t *json_accounts(const cli_plan_t *plan)
{
    json_t *list = json_array();
    for (int i = 0; i < plan->num_accounts; i++) {
        const plim_plan_account_t *account = &plan->accounts[i];
        json_t *object =
            json_pack("{s:s, s:I}", "name", account->name, "bytes", (json_int_t)account->bytes);
        if (plan->info.trains)
            set_phases(object, account->phase_bytes);
        (void)json_array_append_new(list, object);
    }
    return list;
}

static json_t *json_place(plim_place_t place)
{
    return json_string(place == PLIM_PLACE_MEMORY ? "memory" : "disk");
}

static void set_choices(json_t *object, const plim_plan_info_t *info)
{
    set_count(object, "part_seeds", info->part_seeds);
    set_count(object, "part_nodes", info->part_nodes);
    set_count(object, "part_edges", info->part_edges);
    (void)json_object_set_new(object, "guessed", json_boolean(info->guessed));
    (void)json_object_set_new(object, "counted", json_boolean(info->counted));
    (void)json_object_set_new(object, "topology", json_place(info->topology));
    (void)json_object_set_new(object, "features", json_place(info->rows));
    set_count(object, "workers", info->workers);
    set_count(object, "list_cache_bytes", info->list_cache_bytes);
    set_count(object, "row_cache_bytes", info->row_cache_bytes);
    set_count(object, "window_steps", info->window_steps);
    set_count(object, "window_draws", info->window_draws);
    set_count(object, "window_rows", info->window_rows);
    set_count(object, "ahead_draws", info->ahead_draws);
    set_count(object, "slots", info->slots);
    set_count(object, "slot_nodes", info->slot_nodes);
    set_count(object, "slot_edges", info->slot_edges);
    set_count(object, "io_depth", info->io_depth);
    set_count(object, "io_merge_bytes", info->io_merge_bytes);
    set_count(object, "scratch_bytes", info->scratch_bytes);
}

static json_t *json_expectation(const plim_plan_info_t *info)
{
    json_t *object = json_object();
    set_count(object, "batch_nodes", info->batch_nodes);
    set_count(object, "batch_edges", info->batch_edges);
    set_count(object, "batch_bytes", info->batch_bytes);
    set_count(object, "epoch_steps", info->epoch_steps);
    set_count(object, "epoch_reads", info->epoch_reads);
    set_count(object, "epoch_read_bytes", info->epoch_read_bytes);
    set_count(object, "disk_bytes", info->disk_bytes);
    if (info->trains) {
        set_count(object, "run_read_bytes", info->run_read_bytes);
        set_count(object, "predict_disk_bytes", info->predict_disk_bytes);
    }
    return object;
}

json_t *cli_plan_json(const cli_plan_t *plan)
{
    const plim_plan_info_t *info = &plan->info;
    json_t *object = json_object();
    (void)json_object_set_new(object, "accounts", json_accounts(plan));
    if (info->trains) {
        set_phases(object, info->phase_bytes);
        (void)json_object_set_new(object, "peak_phase",
                                  json_string(cli_phase_name(info->peak_phase)));
        (void)json_object_set_new(object, "recompute", json_boolean(info->recompute));
        set_count(object, "gradient_bytes", info->gradient_bytes);
    }
    set_count(object, "total_bytes", info->peak);
    if (info->line != PLIM_LINE_NONE)
        set_count(object, "line_bytes", info->line);
    set_count(object, "minimum_bytes", info->minimum);
    set_choices(object, info);
    (void)json_object_set_new(object, "expect", json_expectation(info));
    return object;
}
