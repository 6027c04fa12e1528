#include "report/chart.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The drawing's own coordinates; CSS gives it HEIGHT pixels, and any width. */
#define WIDTH 1000.0
#define HEIGHT 200.0
#define LABEL_HEIGHT 16.0 /* of a text next to the drawing */

typedef struct axis {
    double low, high, step;
} axis_t;

/* A path; points in a row of equal height become one line. */
typedef struct path {
    report_page_t *page;
    int points;
    double x, y;     /* the last point, which is not written yet if `held` */
    bool held, flat; /* flat: its height is that of the point before it */
} path_t;

static double tenths(double value)
{
    return round(value * 10) / 10;
}

static void path_write(path_t *path)
{
    if (path->held)
        report_page_format(path->page, "%s%.10g %.10g", path->points == 1 ? "M" : "L", path->x,
                           path->y);
    path->held = false;
}

static void path_to(path_t *path, double x, double y)
{
    x = tenths(x);
    y = tenths(fmin(fmax(y, -HEIGHT), 2 * HEIGHT));
    if (path->points >= 2 && path->held && y == path->y && path->flat) {
        path->x = x; /* prolongs the flat segment */
        return;
    }
    const bool flat = path->points > 0 && y == path->y;
    path_write(path);
    path->flat = flat;
    path->x = x;
    path->y = y;
    path->held = true;
    path->points++;
}

/* 1, 2 or 5 times a power of ten (bytes: of two), at least `step`. */
static double nice_step(double step, report_unit_t unit)
{
    static const double seconds[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                     600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400};
    if (unit == REPORT_UNIT_SECONDS && step > 0.5) {
        for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
            if (seconds[i] >= step)
                return seconds[i];
        return ceil(step / 86400) * 86400;
    }
    if (unit == REPORT_UNIT_BYTES) {
        double two = 1;
        while (two < step && two < 0x1p60)
            two *= 2;
        return two;
    }
    if (unit == REPORT_UNIT_EPOCHS && step < 1)
        return 1;
    const double ten = pow(10, floor(log10(step)));
    return step <= ten ? ten : step <= 2 * ten ? 2 * ten : step <= 5 * ten ? 5 * ten : 10 * ten;
}

static axis_t axis_for(double low, double high, report_unit_t unit, int ticks)
{
    if (!(high > low)) {
        const double margin = low != 0 ? fabs(low) / 10 : 1;
        high = low + margin;
        low -= low != 0 ? margin : 0;
    }
    return (axis_t){low, high, nice_step((high - low) / ticks, unit)};
}

static double share_of(const axis_t *axis, double value)
{
    return (value - axis->low) / (axis->high - axis->low);
}

/* The text at a tick, which `step` divides. */
static void put_tick(report_page_t *page, double value, double step, report_unit_t unit)
{
    const int digits = (int)fmin(fmax(-floor(log10(step) + 1e-9), 0), 6);
    const int64_t whole = (int64_t)fmin(value + 0.5, 9e18);
    switch (unit) {
    case REPORT_UNIT_BYTES:
        report_page_bytes(page, value);
        break;
    case REPORT_UNIT_SHARE:
        report_page_format(page, "%.0f %%", value * 100);
        break;
    case REPORT_UNIT_SECONDS:
        if (step < 1)
            report_page_format(page, "%.*f s", digits, value);
        else if (step < 3600)
            report_page_format(page, "%lld:%02lld", (long long)(whole / 60),
                               (long long)(whole % 60));
        else
            report_page_format(page, "%lld h", (long long)(whole / 3600));
        break;
    case REPORT_UNIT_EPOCHS:
        report_page_format(page, "%.0f", value + 1);
        break;
    case REPORT_UNIT_NUMBER:
        if (fabs(value) >= 1e6)
            report_page_format(page, "%.1e", value);
        else
            report_page_format(page, "%.*f", digits, value);
    }
}

/* Multiples of the step within an axis; at most 12, whatever the axis. Epochs have theirs at whole
 * multiples as people count, which are one less here. */
static double first_tick(const axis_t *axis, report_unit_t unit)
{
    const double shift = unit == REPORT_UNIT_EPOCHS && axis->step > 1 ? 1 : 0;
    return ceil((axis->low + shift) / axis->step - 1e-9) * axis->step - shift + 0.0; /* not -0 */
}

static void put_grid(report_page_t *page, const axis_t *y, report_unit_t unit)
{
    int count = 0;
    report_page_put(page, "<path class=\"grid\" d=\"");
    for (double at = first_tick(y, unit); at <= y->high * (1 + 1e-9) && count < 12;
         at += y->step, count++)
        report_page_format(page, "M0 %.1fH%.0f", HEIGHT * (1 - share_of(y, at)), WIDTH);
    report_page_put(page, "\"/>");
}

static void put_axes(report_page_t *page, const axis_t *x, report_unit_t x_unit, const axis_t *y,
                     report_unit_t y_unit)
{
    int count = 0;
    for (double at = first_tick(y, y_unit); at <= y->high * (1 + 1e-9) && count < 12;
         at += y->step, count++) {
        report_page_format(page, "<span class=\"y\" style=\"top:%.1f%%\">",
                           100 * (1 - share_of(y, at)));
        put_tick(page, at, y->step, y_unit);
        report_page_put(page, "</span>");
    }
    count = 0;
    for (double at = first_tick(x, x_unit); at <= x->high * (1 + 1e-9) && count < 12;
         at += x->step, count++) {
        if (at < x->low)
            continue;
        report_page_format(page, "<span class=\"x\" style=\"left:%.1f%%\">", 100 * share_of(x, at));
        put_tick(page, at, x->step, x_unit);
        report_page_put(page, "</span>");
    }
}

/* Moves texts at heights `top`, in pixels, apart so that none covers another. */
static void spread(int count, double *top)
{
    int order[REPORT_SERIES];
    for (int i = 0; i < count; i++) {
        int k = i;
        for (; k > 0 && top[order[k - 1]] > top[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 1; i < count; i++)
        top[order[i]] = fmax(top[order[i]], top[order[i - 1]] + LABEL_HEIGHT);
    const double over = count > 0 ? top[order[count - 1]] - HEIGHT : 0;
    if (over > 0)
        top[order[count - 1]] -= over;
    for (int i = count - 2; i >= 0; i--)
        top[order[i]] = fmin(top[order[i]], top[order[i + 1]] - LABEL_HEIGHT);
}

static void put_value(report_page_t *page, double value, report_unit_t unit)
{
    if (unit == REPORT_UNIT_BYTES)
        report_page_bytes(page, value);
    else if (unit == REPORT_UNIT_SHARE)
        report_page_format(page, "%.1f %%", value * 100);
    else
        report_page_number(page, value);
}

static void begin_figure(report_page_t *page, const char *title, const char *subtitle)
{
    report_page_format(page,
                       "<figure class=\"chart\"><figcaption><b>%s</b> <span>%s</span></figcaption>"
                       "<div class=\"plot\"><svg viewBox=\"0 0 %.0f %.0f\" "
                       "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\">",
                       title, subtitle, WIDTH, HEIGHT, title);
}

void report_chart_add(report_chart_t *chart, const report_track_t *track, const char *label,
                      int colour)
{
    if (track->columns > 0 && chart->num_series < REPORT_SERIES)
        chart->series[chart->num_series++] = (report_series_t){track, label, colour};
}

/* Where a column's point is drawn. A column of one epoch, or with one sample, is that. */
static double column_at(const report_track_t *track, int column, report_unit_t unit)
{
    const double begin = column * track->width;
    if (unit == REPORT_UNIT_EPOCHS)
        return fmin(begin + (track->width - 1) / 2, track->end);
    return fmin(begin + track->width / 2, track->end);
}

static void put_series(report_page_t *page, const report_series_t *series, const axis_t *x,
                       const axis_t *y, report_unit_t unit)
{
    const report_track_t *track = series->track;
    path_t line = {.page = page}, band = {.page = page};
    bool spans = false;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        spans = spans || (column.weight > 0 && column.high > column.low);
    }
    if (spans) {
        report_page_format(page, "<path class=\"band s%d\" d=\"", series->colour + 1);
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < track->columns; k++) {
                const int i = pass == 0 ? k : track->columns - 1 - k;
                const report_column_t column = report_track_column(track, i);
                if (column.weight > 0)
                    path_to(&band, WIDTH * share_of(x, column_at(track, i, unit)),
                            HEIGHT * (1 - share_of(y, pass == 0 ? column.high : column.low)));
            }
        path_write(&band);
        report_page_put(page, "Z\"/>");
    }
    report_page_format(page, "<path class=\"line s%d\" d=\"", series->colour + 1);
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        if (column.weight > 0)
            path_to(&line, WIDTH * share_of(x, column_at(track, i, unit)),
                    HEIGHT * (1 - share_of(y, column.sum / column.weight)));
    }
    path_write(&line);
    report_page_put(page, line.points == 1 ? "h0\"/>" : "\"/>");
}

void report_chart_lines(report_page_t *page, const report_chart_t *chart)
{
    double low = INFINITY, high = -INFINITY, end = 0, top[REPORT_SERIES] = {0},
           last[REPORT_SERIES] = {0};
    if (chart->num_series == 0)
        return;
    for (int i = 0; i < chart->num_series; i++) {
        const report_track_t *track = chart->series[i].track;
        end = fmax(end, track->end);
        for (int k = 0; k < track->columns; k++) {
            const report_column_t column = report_track_column(track, k);
            if (column.weight <= 0)
                continue;
            low = fmin(low, column.low);
            high = fmax(high, column.high);
            last[i] = column.sum / column.weight;
        }
    }
    const axis_t x = axis_for(0, end, chart->x, 4);
    const bool share = chart->y == REPORT_UNIT_SHARE;
    const axis_t y =
        axis_for(chart->from_zero ? 0 : low, share ? 1 : high, chart->y, share ? 4 : 6);
    begin_figure(page, chart->title, chart->subtitle);
    put_grid(page, &y, chart->y);
    for (int i = 0; i < chart->num_series; i++)
        put_series(page, &chart->series[i], &x, &y, chart->x);
    report_page_put(page, "</svg>");
    put_axes(page, &x, chart->x, &y, chart->y);
    for (int i = 0; i < chart->num_series; i++)
        top[i] = HEIGHT * (1 - share_of(&y, last[i]));
    spread(chart->num_series, top);
    for (int i = 0; i < chart->num_series; i++) {
        report_page_format(page, "<span class=\"e s%d\" style=\"top:%.0fpx\"><i></i>%s ",
                           chart->series[i].colour + 1, top[i], chart->series[i].label);
        put_value(page, last[i], chart->y);
        report_page_put(page, "</span>");
    }
    report_page_put(page, "</div></figure>");
}

/* One layer of the stack. */
typedef struct chart_layer {
    const char *name; /* from a file */
    int colour;       /* REPORT_SERIES: pale */
    double peak;
    double height[REPORT_TRACK_COLUMNS];
} chart_layer_t;

#define LAYERS (REPORT_SERIES + 1)

static void add_account(const report_run_record_t *record, int account, chart_layer_t *layer)
{
    for (int i = 0; i < record->memory.columns; i++)
        layer->height[i] += report_track_column(&record->memory, i).others[1 + account];
}

static double peak_of(const report_run_record_t *record, int account)
{
    double peak = 0;
    for (int i = 0; i < record->memory.columns; i++)
        peak = fmax(peak, report_track_column(&record->memory, i).others[1 + account]);
    return peak;
}

static bool is_reserve(const char *name)
{
    return strcmp(name, "reserve") == 0;
}

report_palette_t report_palette_find(int num_records, report_run_record_t *const *records)
{
    const char *name[REPORT_RUNS * REPORT_RECORD_PARTS];
    double peak[REPORT_RUNS * REPORT_RECORD_PARTS];
    int num_names = 0;
    report_palette_t palette = {0};
    for (int i = 0; i < num_records; i++)
        for (int k = 0; records[i]->training && k < records[i]->num_parts; k++) {
            const char *part = records[i]->part[k];
            int at = 0;
            while (at < num_names && strcmp(name[at], part) != 0)
                at++;
            if (is_reserve(part))
                continue;
            if (at == num_names) {
                name[num_names] = part;
                peak[num_names++] = 0;
            }
            peak[at] = fmax(peak[at], peak_of(records[i], k));
        }
    for (int i = 0; i < num_names; i++) {
        int larger = 0;
        for (int k = 0; k < num_names; k++)
            larger += peak[k] > peak[i] || (peak[k] == peak[i] && k < i);
        if (larger < REPORT_SERIES - 1)
            palette.account[palette.count++] = name[i];
    }
    return palette;
}

/* Fills the layers of a training: the accounts of the palette, the others as one, the reserve on
 * top. */
static int account_layers(const report_run_record_t *record, const report_palette_t *palette,
                          chart_layer_t *layers)
{
    int count = 0;
    for (; count < palette->count; count++)
        layers[count] = (chart_layer_t){.name = palette->account[count], .colour = count};
    layers[count++] = (chart_layer_t){.name = "other accounts", .colour = REPORT_SERIES - 1};
    layers[count++] = (chart_layer_t){.name = "reserve", .colour = REPORT_SERIES};
    for (int k = 0; k < record->num_parts; k++) {
        int at = 0;
        while (at < palette->count && strcmp(palette->account[at], record->part[k]) != 0)
            at++;
        add_account(record, k, &layers[is_reserve(record->part[k]) ? count - 1 : at]);
    }
    return count;
}

/* The layers of a watch: the control group's kinds of memory, or the command's and the others'. */
static int watch_layers(const report_run_record_t *record, chart_layer_t *layers)
{
    static const char *const of_group[] = {"anonymous", "shared memory and tmpfs", "kernel"};
    const report_track_t *track = &record->memory;
    int group = 0, all = 0;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        all += column.weight > 0;
        group += column.weight > 0 && column.others[1 + REPORT_PART_GROUP] > 0;
    }
    const bool by_group = 2 * group > all;
    const int first = by_group ? REPORT_PART_ANONYMOUS : REPORT_PART_HELD;
    const int num = by_group ? 3 : 1;
    for (int k = 0; k < num; k++)
        layers[k] = (chart_layer_t){.name = by_group ? of_group[k] : "the command's processes",
                                    .colour = by_group ? k : 4};
    layers[num] = (chart_layer_t){.name = "others under the same limit", .colour = 3};
    layers[num + 1] = (chart_layer_t){.name = "page cache, which the kernel can take back",
                                      .colour = REPORT_SERIES};
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        double sum = 0;
        for (int k = 0; k < num && column.weight > 0; k++) {
            layers[k].height[i] = column.others[1 + first + k];
            sum += layers[k].height[i];
        }
        if (column.weight > 0 && column.others[1 + REPORT_PART_HOST] > 0)
            layers[num].height[i] = column.others[1 + REPORT_PART_OTHERS];
        /* Less than a hundredth is what two counters differ by when they are read in turn. */
        else if (column.weight > 0 && column.high > 1.01 * sum)
            layers[num].height[i] = column.high - sum;
        if (column.weight > 0 && by_group)
            layers[num + 1].height[i] = column.others[1 + REPORT_PART_CACHE];
    }
    return num + 2;
}

/* From the beginning on: the first sample tells of the time before it. */
static void put_layer(report_page_t *page, const report_track_t *track, const chart_layer_t *layer,
                      double *floor_of, const axis_t *x, const axis_t *y)
{
    path_t path = {.page = page};
    double at = 0;
    report_page_format(page, "<path class=\"area s%d\" d=\"", layer->colour + 1);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < track->columns; k++) {
            const int i = pass == 0 ? k : track->columns - 1 - k;
            if (report_track_column(track, i).weight <= 0)
                continue;
            at = HEIGHT * (1 - share_of(y, floor_of[i] + (pass == 0 ? layer->height[i] : 0)));
            if (path.points == 0)
                path_to(&path, 0, at);
            path_to(&path, WIDTH * share_of(x, column_at(track, i, REPORT_UNIT_SECONDS)), at);
        }
    path_to(&path, 0, at);
    path_write(&path);
    report_page_put(page, "Z\"/>");
    for (int i = 0; i < track->columns; i++)
        floor_of[i] += layer->height[i];
}

/* A curve of the value itself, or of the line at that time. */
static void put_curve(report_page_t *page, const report_track_t *track, bool of_line,
                      const axis_t *x, const axis_t *y)
{
    path_t path = {.page = page};
    report_page_format(page, "<path class=\"%s\" d=\"", of_line ? "limit" : "use");
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        if (column.weight <= 0 || (of_line && column.others[0] <= 0))
            continue;
        const double at = HEIGHT * (1 - share_of(y, of_line ? column.others[0] : column.high));
        if (path.points == 0)
            path_to(&path, 0, at);
        path_to(&path, WIDTH * share_of(x, column_at(track, i, REPORT_UNIT_SECONDS)), at);
    }
    path_write(&path);
    report_page_put(page, "\"/>");
}

/* Texts of phases that fit side by side, in percent of the width: some on a wide screen only. */
static void put_phases(report_page_t *page, const report_run_record_t *record, const axis_t *x)
{
    const double wide = 13, narrow = 34;
    double last_wide = -100, last_narrow = -100;
    for (int i = 0; i < record->num_phases; i++) {
        const double left = 100 * share_of(x, record->phase[i].begin);
        if (left < last_wide + wide || left > 97)
            continue;
        const bool both = left >= last_narrow + narrow && left <= 80;
        report_page_format(page, "<span class=\"p%s\" style=\"left:%.1f%%\">", both ? "" : " w",
                           left);
        report_page_text(page, record->phase[i].name);
        report_page_put(page, "</span>");
        last_wide = left;
        if (both)
            last_narrow = left;
    }
}

static void put_legend(report_page_t *page, const chart_layer_t *layers, int count)
{
    report_page_put(page, "<ul class=\"legend\">");
    for (int i = count - 1; i >= 0; i--) {
        if (layers[i].peak <= 0)
            continue;
        report_page_format(page, "<li class=\"s%d\"><i></i>", layers[i].colour + 1);
        report_page_text(page, layers[i].name);
        report_page_put(page, " <b>");
        report_page_bytes(page, layers[i].peak);
        report_page_put(page, "</b></li>");
    }
    report_page_put(page, "</ul>");
}

static void put_end(report_page_t *page, const char *class, double top, const char *words,
                    double bytes)
{
    report_page_format(page, "<span class=\"e %s\" style=\"top:%.0fpx\"><i></i>%s ", class, top,
                       words);
    report_page_bytes(page, bytes);
    report_page_put(page, "</span>");
}

/* The layers, from the highest stack down to the drawing. */
static void draw_memory(report_page_t *page, const report_run_record_t *record, const char *label,
                        chart_layer_t *layers, int count)
{
    const report_track_t *track = &record->memory;
    double floor_of[REPORT_TRACK_COLUMNS] = {0}, line = -1, most = 0;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        double sum = 0;
        if (column.weight <= 0)
            continue;
        for (int k = 0; k < count; k++) {
            sum += layers[k].height[i];
            layers[k].peak = fmax(layers[k].peak, layers[k].height[i]);
        }
        most = fmax(most, fmax(sum, column.high));
        line = column.others[0] > 0 ? column.others[0] : line;
    }
    const double peak = report_track_highest(track, 0);
    const bool shown = line > 0 && most >= line / 5;
    const axis_t x = axis_for(0, fmax(track->end, record->seconds), REPORT_UNIT_SECONDS, 4);
    const axis_t y =
        axis_for(0, shown ? fmax(most, line) * 1.04 : most * 1.1, REPORT_UNIT_BYTES, 4);
    begin_figure(page, label, record->training ? "memory by account" : "memory over time");
    for (int k = 0; k < count; k++)
        if (layers[k].peak > 0)
            put_layer(page, track, &layers[k], floor_of, &x, &y);
    put_grid(page, &y, REPORT_UNIT_BYTES);
    for (int i = 0; i < record->num_phases && record->phase[i].begin <= x.high; i++)
        report_page_format(page, "<path class=\"mark\" d=\"M%.1f 0V%.0f\"/>",
                           WIDTH * share_of(&x, record->phase[i].begin), HEIGHT);
    if (shown)
        put_curve(page, track, true, &x, &y);
    put_curve(page, track, false, &x, &y);
    report_page_put(page, "</svg>");
    put_axes(page, &x, REPORT_UNIT_SECONDS, &y, REPORT_UNIT_BYTES);
    put_phases(page, record, &x);
    double top[2] = {HEIGHT * (1 - share_of(&y, peak)),
                     shown ? HEIGHT * (1 - share_of(&y, line)) : -LABEL_HEIGHT};
    spread(2, top);
    put_end(page, "use", top[0], "used", peak);
    if (shown)
        put_end(page, "limit", top[1], "line", line);
    report_page_put(page, "</div>");
    put_legend(page, layers, count);
    if (line > 0 && !shown) {
        report_page_put(page, "<p class=\"note\">The line, ");
        report_page_bytes(page, line);
        report_page_put(page, ", is above this scale.</p>");
    }
    report_page_put(page, "</figure>");
}

void report_chart_memory(report_page_t *page, const report_run_record_t *record,
                         const report_palette_t *palette, const char *label)
{
    chart_layer_t layers[LAYERS] = {{0}};
    if (record->memory.columns == 0)
        return;
    const int count =
        record->training ? account_layers(record, palette, layers) : watch_layers(record, layers);
    draw_memory(page, record, label, layers, count);
}
