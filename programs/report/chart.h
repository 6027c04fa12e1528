/* Charts as inline SVG. The drawing stretches with its column; texts beside it keep their size. */
#ifndef PLIM_REPORT_CHART_H
#define PLIM_REPORT_CHART_H

#include "report/page.h"
#include "report/run_record.h"

typedef enum plim__unit {
    PLIM__UNIT_NUMBER,
    PLIM__UNIT_BYTES,
    PLIM__UNIT_SHARE,   /* 0 to 1, shown in percent */
    PLIM__UNIT_SECONDS, /* from 0 on */
    PLIM__UNIT_EPOCHS   /* positions of tracks are epochs less 1 */
} plim__unit_t;

#define PLIM__SERIES 8

typedef struct plim__series {
    const plim__track_t *track;
    const char *label; /* of this program, not from a file */
    int colour;        /* 0 … PLIM__SERIES - 1 */
} plim__series_t;

typedef struct plim__chart {
    const char *title, *subtitle; /* of this program */
    plim__unit_t x, y;
    bool from_zero; /* the lowest y is 0 */
    int num_series;
    plim__series_t series[PLIM__SERIES];
} plim__chart_t;

/* Adds a series unless its track is empty or the chart is full. */
void plim__chart_add(plim__chart_t *chart, const plim__track_t *track, const char *label,
                     int colour);

/* Draws nothing for a chart without a series. */
void plim__chart_lines(plim__page_t *page, const plim__chart_t *chart);

/* The accounts of trainings that have a colour of their own: the largest of all runs, so that an
 * account has the same colour in each chart of a page. */
typedef struct plim__palette {
    int count;
    const char *account[PLIM__SERIES - 1]; /* borrowed from the records; by colour */
} plim__palette_t;

plim__palette_t plim__palette_find(int num_records, plim__run_record_t *const *records);

/* The memory of a run over time, stacked, against its line, with its phases. `title` and `label`
 * are of this program; the run's own name is not drawn. */
void plim__chart_memory(plim__page_t *page, const plim__run_record_t *record,
                        const plim__palette_t *palette, const char *label);

#endif
