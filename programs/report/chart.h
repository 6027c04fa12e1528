/* Charts as inline SVG. The drawing scales with its column; texts next to it keep their size. */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include "report/page.h"
#include "report/run_record.h"

typedef enum report_unit {
    REPORT_UNIT_NUMBER,
    REPORT_UNIT_BYTES,
    REPORT_UNIT_SHARE,   /* 0 to 1, shown in percent */
    REPORT_UNIT_SECONDS, /* from 0 on */
    REPORT_UNIT_EPOCHS   /* positions of tracks are epochs less 1 */
} report_unit_t;

#define REPORT_SERIES 8

typedef struct report_series {
    const report_track_t *track;
    const char *label; /* of this program, not from a file */
    int colour;        /* 0 … REPORT_SERIES - 1 */
} report_series_t;

typedef struct report_chart {
    const char *title, *subtitle; /* of this program */
    report_unit_t x, y;
    bool from_zero; /* the lowest y is 0 */
    int num_series;
    report_series_t series[REPORT_SERIES];
} report_chart_t;

/* Adds a series unless its track is empty or the chart is full. */
void report_chart_add(report_chart_t *chart, const report_track_t *track, const char *label,
                      int colour);

/* Draws nothing for a chart without a series. */
void report_chart_lines(report_page_t *page, const report_chart_t *chart);

/* The accounts of trainings that have a colour of their own: the largest of all runs, so that an
 * account has the same colour in each chart of a page. */
typedef struct report_palette {
    int count;
    const char *account[REPORT_SERIES - 1]; /* borrowed from the records; by colour */
} report_palette_t;

report_palette_t report_palette_find(int num_records, report_run_record_t *const *records);

/* The memory of a run over time, stacked, against its line, with its phases. `title` and `label`
 * are of this program; the run's own name is not drawn. */
void report_chart_memory(report_page_t *page, const report_run_record_t *record,
                         const report_palette_t *palette, const char *label);

#endif
