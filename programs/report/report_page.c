/* The page from top to bottom. */
#include "report/report_page.h"

#include "report/chart.h"
#include "report/report.h"

#include <math.h>
#include <plimsoll/version.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char report_heading[] = "<!DOCTYPE html>\n<!-- plimsoll report -->\n";

typedef struct runs {
    int num_records;
    report_run_record_t *const *record;
} runs_t;

static const char *const letters[REPORT_RUNS] = {"A", "B", "C", "D", "E", "F", "G", "H"};

static bool is_there(plim__json_t value)
{
    return value.begin < value.end;
}

static plim__json_t get(const char *text, const char *key)
{
    return plim__json_get(report_run_record_json(text), key);
}

static plim__json_t get_in(const char *text, const char *object, const char *key)
{
    return plim__json_get(get(text, object), key);
}

/* The last part of a path. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static void put_name(report_page_t *page, const runs_t *runs, int index)
{
    if (runs->num_records > 1)
        report_page_format(page, "<span class=\"tag s%d\">%s</span>", index + 1, letters[index]);
    report_page_text(page, short_name(runs->record[index]->name));
}

static doctor_outcome_t outcome_of(const report_run_record_t *record)
{
    const double wanted = plim__json_real(get_in(record->about, "settings", "epochs"), -1);
    if (record->verdict != NULL && record->verdict->outcome != DOCTOR_OUTCOME_UNKNOWN)
        return record->verdict->outcome;
    return record->training && wanted > 0 && record->epochs >= wanted ? DOCTOR_OUTCOME_FINISHED
                                                                      : DOCTOR_OUTCOME_UNKNOWN;
}

/* Of a training, the doctor knows only whether something killed it. */
static bool has_findings(const report_run_record_t *record)
{
    return record->verdict != NULL && !(record->training && record->verdict->cause == DOCTOR_NONE);
}

static void put_state(report_page_t *page, const report_run_record_t *record)
{
    static const char *const words[] = {[DOCTOR_OUTCOME_DIED] = "Died",
                                        [DOCTOR_OUTCOME_SURVIVED] = "Survived",
                                        [DOCTOR_OUTCOME_FINISHED] = "Finished"};
    const doctor_outcome_t outcome = outcome_of(record);
    const double epochs = plim__json_real(get_in(record->about, "settings", "epochs"), -1);
    report_page_format(page, "<p class=\"state %s\">", doctor_outcome_name(outcome));
    report_page_put(page, outcome != DOCTOR_OUTCOME_UNKNOWN ? words[outcome]
                          : record->training                ? "Not finished"
                                                            : "End not known");
    if (record->training && epochs > 0)
        report_page_format(page, ": %.0f of %.0f epochs", record->epochs, epochs);
    report_page_put(page, "</p>");
    if (has_findings(record)) {
        report_page_put(page, "<p>");
        report_page_text(page, record->verdict->summary);
        report_page_put(page, "</p>");
    }
}

static void begin_tile(report_page_t *page, const char *title)
{
    report_page_format(page, "<div><dt>%s</dt><dd>", title);
}

static void end_tile(report_page_t *page)
{
    report_page_put(page, "</dd></div>");
}

/* The line that the highest use was compared with; -1: none. *host_out: it is the host's memory. */
static double line_at_peak(const report_run_record_t *record, bool *host_out)
{
    const report_track_t *track = &record->memory;
    double line = -1, most = -1;
    *host_out = false;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        if (column.weight > 0 && column.high > most) {
            most = column.high;
            line = column.others[0];
            *host_out = !record->training && column.others[1 + REPORT_PART_HOST] > 0;
        }
    }
    return line;
}

/* The GPU with the highest use. */
static void put_gpu_tile(report_page_t *page, const report_run_record_t *record)
{
    int most = 0;
    for (int i = 1; i < REPORT_RECORD_GPUS; i++)
        if (report_track_highest(&record->gpu[i], -1) >
            report_track_highest(&record->gpu[most], -1))
            most = i;
    if (record->gpu[most].columns == 0)
        return;
    begin_tile(page, "Peak GPU memory");
    report_page_bytes(page, report_track_highest(&record->gpu[most], 0));
    if (record->gpu_bytes[most] > 0) {
        report_page_put(page, "<small>of ");
        report_page_bytes(page, record->gpu_bytes[most]);
        report_page_put(page, "</small>");
    }
    end_tile(page);
}

static void put_tiles(report_page_t *page, const report_run_record_t *record)
{
    static const char *const scores[] = {"Train score", "Validation score", "Test score"};
    bool host;
    const double line = line_at_peak(record, &host),
                 peak = report_track_highest(&record->memory, -1);
    const double speed = report_track_mean(&record->speed, -1);
    report_page_put(page, "<dl class=\"tiles\">");
    for (int i = 1; i < 3; i++)
        if (isfinite(record->best[i])) {
            begin_tile(page, scores[i]);
            report_page_format(page, "%.4f<small>at epoch %.0f</small>", record->best[i],
                               record->best_epoch);
            end_tile(page);
        }
    if (isfinite(record->final_loss)) {
        begin_tile(page, "Loss");
        report_page_number(page, record->final_loss);
        report_page_format(page, "<small>after epoch %.0f</small>", record->epochs);
        end_tile(page);
    }
    if (peak >= 0) {
        begin_tile(page, "Peak memory");
        report_page_bytes(page, peak);
        if (host) {
            report_page_put(page, "<small>no limit of its own</small>");
        } else if (line > 0) {
            report_page_put(page, "<small>of ");
            report_page_bytes(page, line);
            report_page_format(page, " (%.0f %%)</small>", 100 * peak / line);
        }
        end_tile(page);
    }
    put_gpu_tile(page, record);
    if (record->seconds > 0) {
        begin_tile(page, "Time");
        report_page_seconds(page, record->seconds);
        if (record->restarts > 0)
            report_page_format(page, "<small>restarted %lld×</small>", (long long)record->restarts);
        end_tile(page);
    }
    if (speed >= 0) {
        begin_tile(page, record->training ? "Speed" : "Processors in use");
        report_page_number(page, speed);
        report_page_put(page, record->training ? "<small>steps a second</small>"
                                               : "<small>on average</small>");
        end_tile(page);
    }
    report_page_put(page, "</dl>");
}

static void put_cards(report_page_t *page, const runs_t *runs)
{
    report_page_put(page, "<div class=\"grid2\">");
    for (int i = 0; i < runs->num_records; i++) {
        report_page_put(page, "<section class=\"card\"><h3>");
        put_name(page, runs, i);
        report_page_put(page, "</h3>");
        put_state(page, runs->record[i]);
        put_tiles(page, runs->record[i]);
        report_page_put(page, "</section>");
    }
    report_page_put(page, "</div>");
}

static void put_curves(report_page_t *page, const runs_t *runs)
{
    report_chart_t loss = {"Loss", "by epoch", REPORT_UNIT_EPOCHS, REPORT_UNIT_NUMBER, false,
                           0,      {{0}}};
    report_chart_t score = loss;
    score.title = "Score";
    if (runs->num_records == 1) {
        const report_track_t *curve = runs->record[0]->curve;
        report_chart_add(&loss, &curve[REPORT_LOSS], "train", 0);
        report_chart_add(&loss, &curve[REPORT_VALID_LOSS], "valid", 1);
        report_chart_add(&score, &curve[REPORT_SCORE_TRAIN], "train", 0);
        report_chart_add(&score, &curve[REPORT_SCORE_VALID], "valid", 1);
        report_chart_add(&score, &curve[REPORT_SCORE_TEST], "test", 2);
    } else {
        score.subtitle = "of validation, by epoch";
        loss.subtitle = "of training, by epoch";
        for (int i = 0; i < runs->num_records; i++) {
            report_chart_add(&loss, &runs->record[i]->curve[REPORT_LOSS], letters[i], i);
            report_chart_add(&score, &runs->record[i]->curve[REPORT_SCORE_VALID], letters[i], i);
        }
    }
    if (loss.num_series + score.num_series == 0)
        return;
    report_page_put(page, "<h2>Training</h2><div class=\"grid2\">");
    report_chart_lines(page, &loss);
    report_chart_lines(page, &score);
    report_page_put(page, "</div>");
}

static void put_gpus(report_page_t *page, const runs_t *runs, int index)
{
    static const char *const labels[REPORT_RECORD_GPUS] = {"#0", "#1", "#2", "#3",
                                                           "#4", "#5", "#6", "#7"};
    report_chart_t chart = {runs->num_records > 1 ? letters[index] : "GPU memory",
                            "in use on each GPU",
                            REPORT_UNIT_SECONDS,
                            REPORT_UNIT_BYTES,
                            true,
                            0,
                            {{0}}};
    for (int i = 0; i < REPORT_RECORD_GPUS; i++)
        report_chart_add(&chart, &runs->record[index]->gpu[i], labels[i], i);
    report_chart_lines(page, &chart);
}

static void put_memory(report_page_t *page, const runs_t *runs)
{
    const report_palette_t palette = report_palette_find(runs->num_records, runs->record);
    report_page_put(page, "<h2>Memory</h2><div class=\"grid2\">");
    for (int i = 0; i < runs->num_records; i++) {
        report_chart_memory(page, runs->record[i], &palette,
                            runs->num_records > 1 ? letters[i] : "Memory");
        if (runs->record[i]->memory.columns == 0)
            report_page_put(page, "<p class=\"card note\">No memory was recorded.</p>");
    }
    for (int i = 0; i < runs->num_records; i++)
        put_gpus(page, runs, i);
    report_page_put(page, "</div>");
}

/* A name, a bar, seconds, percent. */
static void put_stage(report_page_t *page, const char *name, double seconds, double all, int colour)
{
    if (seconds <= 0 || all <= 0)
        return;
    report_page_format(page,
                       "<tr><th scope=\"row\">%s</th><td class=\"bar s%d\"><div "
                       "style=\"width:%.1f%%;background:var(--c)\"></div></td><td class=\"n\">",
                       name, colour, fmin(100 * seconds / all, 100));
    report_page_seconds(page, seconds);
    report_page_format(page, "</td><td class=\"n\">%.0f %%</td></tr>", 100 * seconds / all);
}

static void put_stages(report_page_t *page, const runs_t *runs, int index)
{
    const report_run_record_t *record = runs->record[index];
    const double all = record->seconds;
    double rest = all - record->start - record->saving;
    if (!record->training || all <= 0)
        return;
    report_page_put(page, "<figure class=\"card stages\"><figcaption><b>");
    report_page_put(page, runs->num_records > 1 ? letters[index] : "Time by stage");
    report_page_put(page, "</b> <span>where time went</span></figcaption><div "
                          "class=\"grid2\"><div><table><tbody>");
    put_stage(page, "start", record->start, all, 1);
    put_stage(page, "training", rest - record->evaluation, all, 1);
    put_stage(page, "evaluation", record->evaluation, all, 1);
    put_stage(page, "checkpoints", record->saving, all, 1);
    report_page_put(page,
                    "</tbody></table></div><div><h4>Training and evaluation by kind of work</h4>"
                    "<table><tbody>");
    for (int i = 0; i < REPORT_RECORD_STAGES; i++) {
        put_stage(page, report_stage_names[i], record->stage[i], all, 3);
        rest -= record->stage[i];
    }
    put_stage(page, "other", rest, all, 8);
    report_page_put(page, "</tbody></table></div></div></figure>");
}

static void put_speed(report_page_t *page, const runs_t *runs)
{
    report_chart_t steps = {
        "Throughput", "steps a second", REPORT_UNIT_SECONDS, REPORT_UNIT_NUMBER, true, 0, {{0}}};
    report_chart_t processors = steps, reading = steps, rows = steps;
    processors.title = "Processors";
    processors.subtitle = "in use";
    reading.title = "Disk";
    reading.subtitle = "bytes read a second";
    reading.y = REPORT_UNIT_BYTES;
    rows.title = "Cache hits";
    rows.subtitle = "share of rows and lists found in the caches";
    rows.y = REPORT_UNIT_SHARE;
    const bool alone = runs->num_records == 1;
    for (int i = 0; i < runs->num_records; i++) {
        const report_run_record_t *record = runs->record[i];
        const char *label = alone ? "" : letters[i];
        report_chart_add(record->training ? &steps : &processors, &record->speed, label, i);
        if (report_track_highest(&record->reading, 0) > 0)
            report_chart_add(&reading, &record->reading, label, i);
        report_chart_add(&rows, &record->rows, alone ? "rows" : letters[i], i);
        if (alone)
            report_chart_add(&rows, &record->lists, "lists", 1);
    }
    if (!alone)
        rows.subtitle = "share of rows found in the cache";
    report_page_put(page, "<h2>Speed</h2><div class=\"grid2\">");
    report_chart_lines(page, &steps);
    report_chart_lines(page, &rows);
    report_chart_lines(page, &processors);
    report_chart_lines(page, &reading);
    for (int i = 0; i < runs->num_records; i++)
        put_stages(page, runs, i);
    report_page_put(page, "</div>");
    if (steps.num_series > 0 && rows.num_series == 0)
        report_page_put(page, "<p class=\"note\">Cache hits: none to show. Rows and lists were all "
                              "in memory, or the run did not record hits.</p>");
}

static void begin_table(report_page_t *page, const runs_t *runs, const char *title,
                        const char *note)
{
    report_page_format(page, "<h2>%s</h2><div class=\"card scroll\">", title);
    if (note[0] != '\0')
        report_page_format(page, "<p class=\"note\">%s</p>", note);
    report_page_put(page, "<table>");
    if (runs->num_records > 1) {
        report_page_put(page, "<thead><tr><td></td>");
        for (int i = 0; i < runs->num_records; i++) {
            report_page_put(page, "<th scope=\"col\">");
            put_name(page, runs, i);
            report_page_put(page, "</th>");
        }
        report_page_put(page, "</tr></thead>");
    }
    report_page_put(page, "<tbody>");
}

static void end_table(report_page_t *page)
{
    report_page_put(page, "</tbody></table></div>");
}

/* A row of a table with a column for each run. */
static void put_row(report_page_t *page, const runs_t *runs, const char *title,
                    void (*put)(report_page_t *page, const report_run_record_t *record,
                                const char *key),
                    const char *key)
{
    report_page_put(page, "<tr><th scope=\"row\">");
    report_page_text(page, title);
    report_page_put(page, "</th>");
    for (int i = 0; i < runs->num_records; i++) {
        report_page_put(page, "<td>");
        put(page, runs->record[i], key);
        report_page_put(page, "</td>");
    }
    report_page_put(page, "</tr>");
}

static void put_plan_bytes(report_page_t *page, const report_run_record_t *record, const char *key)
{
    report_page_bytes(page, plim__json_real(get(record->plan, key), -1));
}

/* A row with a value of each run; one below 0 is unknown. */
static void put_values(report_page_t *page, const runs_t *runs, const char *title,
                       void (*put)(report_page_t *page, double value), const double *value)
{
    report_page_format(page, "<tr><th scope=\"row\">%s</th>", title);
    for (int i = 0; i < runs->num_records; i++) {
        report_page_put(page, "<td>");
        put(page, value[i]);
        report_page_put(page, "</td>");
    }
    report_page_put(page, "</tr>");
}

static void put_plan_account(report_page_t *page, const report_run_record_t *record,
                             const char *key)
{
    report_page_bytes(page, plim__json_real(get_in(record->plan, "accounts", key), -1));
}

/* A text that runs have recorded: plan, about or begin. */
#define TEXT(member) offsetof(report_run_record_t, member)

static const char *text_of(const report_run_record_t *record, size_t text)
{
    return (const char *)record + text;
}

static bool any_has(const runs_t *runs, size_t text)
{
    bool any = false;
    for (int i = 0; i < runs->num_records; i++)
        any = any || text_of(runs->record[i], text)[0] != '\0';
    return any;
}

/* Calls put_member for up to `most` names that the text's object `key` has in any run, with the
 * value in the first that has it. */
static void put_members(report_page_t *page, const runs_t *runs, size_t text, const char *key,
                        int most,
                        void (*put_member)(report_page_t *page, const runs_t *runs,
                                           const char *name, plim__json_t value))
{
    int count = 0;
    for (int i = 0; i < runs->num_records; i++) {
        const plim__json_t object = get(text_of(runs->record[i], text), key);
        const char *at = NULL;
        for (plim__json_t member, value;
             count < most && plim__json_next_member(object, &at, &member, &value);) {
            char name[64];
            bool listed = false;
            plim__json_text(member, name, sizeof name);
            for (int before = 0; before < i; before++)
                listed = listed || is_there(get_in(text_of(runs->record[before], text), key, name));
            if (!listed) {
                put_member(page, runs, name, value);
                count++;
            }
        }
    }
}

static void put_account(report_page_t *page, const runs_t *runs, const char *name,
                        plim__json_t value)
{
    char title[80];
    (void)value;
    (void)snprintf(title, sizeof title, "planned: %s", name);
    put_row(page, runs, title, put_plan_account, name);
}

static void put_plan(report_page_t *page, const runs_t *runs)
{
    double reserved[REPORT_RUNS], peak[REPORT_RUNS], epoch[REPORT_RUNS], seconds[REPORT_RUNS];
    if (!any_has(runs, TEXT(plan)))
        return;
    for (int i = 0; i < runs->num_records; i++) {
        const report_run_record_t *record = runs->record[i];
        reserved[i] = record->reserved_peak > 0 ? record->reserved_peak : -1;
        peak[i] = report_track_highest(&record->memory, -1);
        epoch[i] = record->whole_epochs > 0 ? record->whole_seconds / record->whole_epochs : -1;
        seconds[i] = record->seconds > 0 ? record->seconds : -1;
    }
    begin_table(page, runs, "Plan and measured", "");
    put_row(page, runs, "memory, planned peak", put_plan_bytes, "total_bytes");
    put_values(page, runs, "memory, reserved at most", report_page_bytes, reserved);
    put_values(page, runs, "memory, measured peak", report_page_bytes, peak);
    put_row(page, runs, "memory, minimum line", put_plan_bytes, "minimum_bytes");
    put_values(page, runs, "epoch, measured", report_page_seconds, epoch);
    put_values(page, runs, "run, measured", report_page_seconds, seconds);
    put_members(page, runs, TEXT(plan), "accounts", 32, put_account);
    end_table(page);
}

static void put_setting(report_page_t *page, const runs_t *runs, const char *name,
                        plim__json_t value)
{
    bool differs = false;
    for (int i = 0; i < runs->num_records; i++) {
        const plim__json_t other = get_in(runs->record[i]->about, "settings", name);
        differs = differs || other.end - other.begin != value.end - value.begin ||
                  memcmp(other.begin, value.begin, (size_t)(value.end - value.begin)) != 0;
    }
    report_page_put(page,
                    differs ? "<tr class=\"diff\"><th scope=\"row\">" : "<tr><th scope=\"row\">");
    report_page_text(page, name);
    report_page_put(page, "</th>");
    for (int i = 0; i < runs->num_records; i++) {
        report_page_put(page, "<td>");
        report_page_json(page, get_in(runs->record[i]->about, "settings", name));
        report_page_put(page, "</td>");
    }
    report_page_put(page, "</tr>");
}

/* All settings of the runs, as run.json names them; those that differ stand out. */
static void put_recipe(report_page_t *page, const runs_t *runs)
{
    if (!any_has(runs, TEXT(about)))
        return;
    begin_table(page, runs, "Recipe",
                runs->num_records > 1 ? "Settings that differ are bold." : "");
    put_members(page, runs, TEXT(about), "settings", 128, put_setting);
    end_table(page);
}

/* A value of run.json or of a watch's begin: "machine/cpu", "host". */
static void put_about(report_page_t *page, const report_run_record_t *record, const char *key)
{
    char object[32];
    const char *slash = strchr(key, '/');
    if (slash == NULL) {
        report_page_json(page, get(record->begin, key));
        return;
    }
    (void)snprintf(object, sizeof object, "%.*s", (int)(slash - key), key);
    report_page_json(page, get_in(record->about, object, slash + 1));
}

static void put_memory_of_host(report_page_t *page, const report_run_record_t *record,
                               const char *key)
{
    report_page_bytes(page, plim__json_real(get(record->begin, key), -1));
}

static void put_command(report_page_t *page, const report_run_record_t *record, const char *key)
{
    const char *at = NULL;
    bool more = false;
    char word[1024];
    report_page_put(page, "<code>");
    for (plim__json_t one; plim__json_next_element(get(record->begin, key), &at, &one);
         more = true) {
        report_page_put(page, more ? " " : "");
        plim__json_text(one, word, sizeof word);
        report_page_text(page, word);
    }
    report_page_put(page, "</code>");
}

static void put_limits(report_page_t *page, const report_run_record_t *record, const char *key)
{
    const char *at = NULL;
    for (plim__json_t one; plim__json_next_element(get(record->begin, key), &at, &one);) {
        const double bytes = plim__json_real(plim__json_get(one, "bytes"), -1);
        if (bytes < 0)
            continue;
        report_page_put(page, "<div>");
        report_page_bytes(page, bytes);
        report_page_put(page, " <small>");
        report_page_json(page, plim__json_get(one, "source"));
        report_page_put(page, "</small></div>");
    }
}

static void put_directory(report_page_t *page, const report_run_record_t *record, const char *key)
{
    (void)key;
    report_page_text(page, record->name);
}

static void put_ranks(report_page_t *page, const report_run_record_t *record, const char *key)
{
    (void)key;
    report_page_text(page, record->ranks);
}

static void put_machine(report_page_t *page, const runs_t *runs)
{
    begin_table(page, runs, "Run and machine", "");
    put_row(page, runs, "run", put_directory, "");
    if (any_has(runs, TEXT(about))) {
        put_row(page, runs, "dataset", put_about, "dataset/path");
        put_row(page, runs, "fingerprint", put_about, "dataset/fingerprint");
        put_row(page, runs, "processor", put_about, "machine/cpu");
        put_row(page, runs, "vectors", put_about, "machine/vectors");
        put_row(page, runs, "threads", put_about, "machine/threads");
        put_row(page, runs, "ranks of each start", put_ranks, "");
        put_row(page, runs, "plimsoll", put_about, "versions/plimsoll");
        put_row(page, runs, "oneDNN", put_about, "versions/onednn");
    }
    if (any_has(runs, TEXT(begin))) {
        put_row(page, runs, "command", put_command, "command");
        put_row(page, runs, "began", put_about, "time");
        put_row(page, runs, "directory", put_about, "directory");
        put_row(page, runs, "host", put_about, "host");
        put_row(page, runs, "memory of the host", put_memory_of_host, "host_bytes");
        put_row(page, runs, "kernel", put_about, "kernel");
        put_row(page, runs, "limits", put_limits, "limits");
    }
    end_table(page);
}

/* Begins a list under its title with the first element. */
static void begin_item(report_page_t *page, int index, const char *title, const char *element)
{
    if (index == 0)
        report_page_format(page, "<h4>%s</h4><%s>", title, element);
    report_page_put(page, "<li>");
}

static const char plain_list[] = "ul class=\"plain\"";

static void put_facts(report_page_t *page, const doctor_t *doctor, const doctor_fact_t *const *list,
                      int count, const char *title)
{
    for (int i = 0; i < count; i++) {
        begin_item(page, i, title, plain_list);
        report_page_put(page, "<code>");
        report_page_text(page, list[i]->text);
        report_page_put(page, "</code> <small>");
        report_page_text(page, doctor->source[list[i]->source].name);
        report_page_format(page, ":%lld</small></li>", (long long)list[i]->line);
    }
    report_page_put(page, count > 0 ? "</ul>" : "");
}

static void put_changes(report_page_t *page, const doctor_verdict_t *verdict)
{
    for (int i = 0; i < verdict->num_changes; i++) {
        const doctor_change_t *change = &verdict->change[i];
        begin_item(page, i, "What to change", "ol");
        report_page_text(page, change->text);
        if (change->saves >= 0) {
            report_page_put(page, " <small>saves ");
            report_page_bytes(page, (double)change->saves);
            report_page_put(page, ", peak ");
            report_page_bytes(page, (double)change->peak);
            report_page_put(page, "</small>");
        }
        report_page_put(page, "</li>");
    }
    report_page_put(page, verdict->num_changes > 0 ? "</ol>" : "");
}

static void put_phase_table(report_page_t *page, const report_run_record_t *record)
{
    if (record->training || record->num_phases == 0)
        return;
    report_page_put(page, "<h4>Phases</h4><table><thead><tr><th scope=\"col\">phase</th>"
                          "<th scope=\"col\" class=\"n\">began</th>"
                          "<th scope=\"col\" class=\"n\">peak</th></tr></thead><tbody>");
    for (int i = 0; i < record->num_phases; i++) {
        report_page_put(page, "<tr><td>");
        report_page_text(page, record->phase[i].name);
        report_page_put(page, "</td><td class=\"n\">");
        report_page_seconds(page, record->phase[i].begin);
        report_page_put(page, "</td><td class=\"n\">");
        report_page_bytes(page, record->phase[i].peak);
        report_page_put(page, "</td></tr>");
    }
    report_page_put(page, "</tbody></table>");
    if (record->stride > 1)
        report_page_format(page, "<p class=\"note\">One of %lld of %lld phases.</p>",
                           (long long)record->stride, (long long)record->num_marks);
}

static void put_findings(report_page_t *page, const report_run_record_t *record)
{
    const doctor_verdict_t *verdict = record->verdict;
    char next_mem[24];
    report_page_format(page, "<p><small>cause</small> <code>%s</code> <small>%s</small></p>",
                       doctor_cause_name(verdict->cause),
                       doctor_confidence_name(verdict->confidence));
    put_facts(page, record->doctor, verdict->evidence, verdict->num_evidence, "Evidence");
    put_facts(page, record->doctor, verdict->consequence, verdict->num_consequences,
              "Consequences");
    put_changes(page, verdict);
    if (verdict->next_mem > 0)
        report_page_format(
            page, "<h4>Next request</h4><p><code>--mem=%s</code> <small>%s</small></p>",
            doctor_next_mem_text(verdict, next_mem), doctor_basis_name(verdict->next_mem_basis));
    if (verdict->command[0] != '\0') {
        report_page_put(page, "<h4>The same with plimsoll</h4><p><code>");
        report_page_text(page, verdict->command);
        report_page_put(page, "</code></p>");
    }
    for (int i = 0; i < verdict->num_unknown; i++) {
        begin_item(page, i, "Not known", plain_list);
        report_page_text(page, verdict->unknown[i]);
        report_page_put(page, "</li>");
    }
    report_page_put(page, verdict->num_unknown > 0 ? "</ul>" : "");
}

static void put_verdict(report_page_t *page, const runs_t *runs, int index)
{
    const report_run_record_t *record = runs->record[index];
    report_page_put(page, "<section class=\"card\"><h3>");
    put_name(page, runs, index);
    report_page_put(page, "</h3>");
    put_state(page, record);
    if (has_findings(record))
        put_findings(page, record);
    else
        report_page_put(page, "<p>The texts in its directory hold no cause of death.</p>");
    put_phase_table(page, record);
    report_page_put(page, "</section>");
}

void report_page(report_page_t *page, int num_records, report_run_record_t *const *records)
{
    const runs_t all = {num_records, records}, *runs = &all;
    report_page_put(page, report_heading);
    report_page_put(page, "<html lang=\"en\"><head><meta charset=\"utf-8\">"
                          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                          "<meta name=\"color-scheme\" content=\"light dark\"><title>");
    for (int i = 0; i < runs->num_records; i++) {
        report_page_put(page, i > 0 ? ", " : "");
        report_page_text(page, short_name(runs->record[i]->name));
    }
    report_page_put(page, " – plimsoll report</title><style>");
    report_page_put(page, report_page_style);
    report_page_put(page, "</style></head><body>");
    report_page_put(page, runs->num_records == 1 ? "<main class=\"one\"><h1>" : "<main><h1>");
    if (runs->num_records == 1)
        report_page_text(page, short_name(runs->record[0]->name));
    else
        report_page_format(page, "%d runs", runs->num_records);
    report_page_put(page, "</h1><p class=\"lead\">plimsoll report</p>");
    put_cards(page, runs);
    put_curves(page, runs);
    put_memory(page, runs);
    put_speed(page, runs);
    report_page_put(page, "<h2>Verdict</h2><div class=\"grid2\">");
    for (int i = 0; i < runs->num_records; i++)
        put_verdict(page, runs, i);
    report_page_put(page, "</div>");
    put_plan(page, runs);
    put_recipe(page, runs);
    put_machine(page, runs);
    report_page_put(page, "<footer>plimsoll " PLIM_VERSION "</footer></main></body></html>\n");
}
