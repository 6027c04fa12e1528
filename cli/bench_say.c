#include "verb_bench.h"

#include <inttypes.h>
#include <stdio.h>

const char *bench_what_name(bench_what_t what)
{
    static const char *const names[] = {"sample", "gather", "load"};
    return names[what];
}

/* "3.1 ms", "2.50 s". */
static const char *seconds_text(double seconds, char text_out[24])
{
    if (seconds < 1)
        (void)snprintf(text_out, 24, "%.1f ms", seconds * 1000);
    else
        (void)snprintf(text_out, 24, "%.2f s", seconds);
    return text_out;
}

static double per_second(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

static bool in_memory(const json_t *plan, const char *name)
{
    return cli_json_is(plan, name, "memory");
}

void bench_say_plan(const bench_t *bench, const json_t *plan)
{
    const int64_t line = cli_json_int(plan, "line_bytes"), slots = cli_json_int(plan, "slots");
    const int64_t steps = cli_json_int(plan, "window_steps"),
                  workers = cli_json_int(plan, "workers");
    const json_t *account;
    size_t i;
    char text[24], least[24];
    if (bench->common.json)
        return;
    json_array_foreach(json_object_get(plan, "accounts"), i, account)(void)
        printf("  %-18s %12s\n", json_string_value(json_object_get(account, "name")),
               plim_size_text(cli_json_int(account, "bytes"), text));
    (void)printf("  %-18s %12s  planned, at most\n", "total",
                 plim_size_text(cli_json_int(plan, "total_bytes"), text));
    if (line > 0)
        (void)printf("  %-18s %12s  %s would do\n", "line", plim_size_text(line, text),
                     plim_size_text(cli_json_int(plan, "least_bytes"), least));
    if (bench->what != BENCH_GATHER)
        (void)printf("topology %s, ", in_memory(plan, "topology") ? "in memory" : "on disk");
    if (bench->has_rows)
        (void)printf("rows %s, ", in_memory(plan, "features") ? "in memory" : "on disk");
    if (steps > 0)
        (void)printf("windows of up to %" PRId64 " steps, ", steps);
    if (slots > 0)
        (void)printf("%" PRId64 " slots of %s nodes, ", slots,
                     cli_count_text((double)cli_json_int(plan, "slot_nodes"), text));
    (void)printf("%" PRId64 " worker%s\n", workers, workers == 1 ? "" : "s");
    cli_flush();
}

static double percent(int64_t part, int64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

void bench_say_epoch(const bench_t *bench, const json_t *plan, const bench_epoch_t *epoch)
{
    const plim_load_stats_t *stats = &epoch->stats;
    char edges[24], rows[24], transfers[24], bytes[24], took[24], waited[24];
    if (bench->common.json)
        return;
    (void)printf("epoch %" PRId64 ": %" PRId64 " batches in %s, %.1f batches/s, %s edges/s",
                 epoch->epoch, stats->batches, seconds_text(epoch->seconds, took),
                 per_second((double)stats->batches, epoch->seconds),
                 cli_count_text(per_second((double)stats->edges, epoch->seconds), edges));
    if (bench->has_rows)
        (void)printf(", %s rows/s",
                     cli_count_text(per_second((double)stats->nodes, epoch->seconds), rows));
    if (stats->parts > stats->batches)
        (void)printf(", %" PRId64 " parts", stats->parts);
    if (stats->windows > 0) {
        if (stats->lists_hot > 0 && !in_memory(plan, "topology"))
            (void)printf("; lists %.1f %% hot", percent(stats->lists_hot, stats->lists));
        if (stats->rows_hot > 0 && !in_memory(plan, "features"))
            (void)printf("; rows %.1f %% hot", percent(stats->rows_hot, stats->rows));
        (void)printf(
            "; %s I/Os, %s read, waited %s",
            cli_count_text((double)(stats->list_transfers + stats->row_transfers), transfers),
            plim_size_text(stats->list_bytes + stats->row_bytes, bytes),
            seconds_text(stats->wait_seconds, waited));
    }
    if (epoch->hashed)
        (void)printf("; hash %016" PRIx64, epoch->hash);
    (void)printf("\n");
    cli_flush();
}

void bench_say_gather(const bench_t *bench, const plim_bench_result_t *gather)
{
    char rows[24], rate[24], bytes[24], transfers[24], read[24], took[24], waited[24];
    if (bench->common.json)
        return;
    (void)printf(
        "gathered %s rows in %s, %s rows/s, %s/s", cli_count_text((double)gather->count, rows),
        seconds_text(gather->seconds, took),
        cli_count_text(per_second((double)gather->count, gather->seconds), rate),
        plim_size_text((int64_t)per_second((double)gather->bytes, gather->seconds), bytes));
    if (gather->transfers > 0)
        (void)printf(
            "; %s I/Os/s, %s read, waited %s",
            cli_count_text(per_second((double)gather->transfers, gather->seconds), transfers),
            plim_size_text(gather->bytes_read, read), seconds_text(gather->wait_seconds, waited));
    (void)printf("\n");
    cli_flush();
}

void bench_say_bare(const bench_t *bench, const bench_bare_t *bare)
{
    const plim_bench_result_t *result = &bare->result;
    char rate[24], bytes[24];
    if (bench->common.json || bare->kind == NULL)
        return;
    if (result->transfers > 0)
        (void)printf("the bare engine on %s: %s I/Os/s, %s/s\n", bare->file,
                     cli_count_text(per_second((double)result->transfers, result->seconds), rate),
                     plim_size_text(
                         (int64_t)per_second((double)result->bytes_read, result->seconds), bytes));
    else
        (void)printf(
            "bare memory, as many copies: %s/s, %s copies/s\n",
            plim_size_text((int64_t)per_second((double)result->bytes, result->seconds), bytes),
            cli_count_text(per_second((double)result->count, result->seconds), rate));
    cli_flush();
}

static void add_count(json_t *object, const char *name, int64_t value)
{
    (void)json_object_set_new(object, name, json_integer(value));
}

static void add_real(json_t *object, const char *name, double value)
{
    (void)json_object_set_new(object, name, json_real(value));
}

json_t *bench_json_epoch(const bench_epoch_t *epoch)
{
    const plim_load_stats_t *stats = &epoch->stats;
    json_t *object = json_object();
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"epoch", epoch->epoch},
        {"batches", stats->batches},
        {"parts", stats->parts},
        {"edges", stats->edges},
        {"nodes", stats->nodes},
        {"lists", stats->lists},
        {"lists_hot", stats->lists_hot},
        {"list_transfers", stats->list_transfers},
        {"list_bytes", stats->list_bytes},
        {"rows", stats->rows},
        {"rows_hot", stats->rows_hot},
        {"rows_lost", stats->rows_lost},
        {"row_transfers", stats->row_transfers},
        {"row_bytes", stats->row_bytes},
        {"windows", stats->windows},
        {"window_steps", stats->window_steps},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        add_count(object, counts[i].name, counts[i].value);
    add_real(object, "seconds", epoch->seconds);
    add_real(object, "batches_per_second", per_second((double)stats->batches, epoch->seconds));
    add_real(object, "edges_per_second", per_second((double)stats->edges, epoch->seconds));
    add_real(object, "rows_per_second", per_second((double)stats->nodes, epoch->seconds));
    add_real(object, "wait_seconds", stats->wait_seconds);
    add_real(object, "starved_seconds", stats->starved_seconds);
    if (epoch->hashed) {
        char text[17];
        (void)snprintf(text, sizeof text, "%016" PRIx64, epoch->hash);
        (void)json_object_set_new(object, "hash", json_string(text));
    }
    return object;
}

static void add_result(json_t *object, const plim_bench_result_t *result)
{
    add_real(object, "seconds", result->seconds);
    add_count(object, "bytes", result->bytes);
    add_real(object, "bytes_per_second", per_second((double)result->bytes, result->seconds));
    add_count(object, "transfers", result->transfers);
    add_real(object, "transfers_per_second",
             per_second((double)result->transfers, result->seconds));
    add_count(object, "bytes_read", result->bytes_read);
}

json_t *bench_json_gather(const plim_bench_result_t *gather)
{
    json_t *object = json_object();
    add_count(object, "rows", gather->count);
    add_real(object, "rows_per_second", per_second((double)gather->count, gather->seconds));
    add_result(object, gather);
    add_real(object, "wait_seconds", gather->wait_seconds);
    return object;
}

json_t *bench_json_bare(const bench_bare_t *bare)
{
    json_t *object = json_object();
    (void)json_object_set_new(object, "kind", json_string(bare->kind));
    (void)json_object_set_new(object, "file", json_string(bare->file));
    add_count(object, "count", bare->result.count);
    add_result(object, &bare->result);
    return object;
}
