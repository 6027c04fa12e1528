/*
 * The report: one HTML page about one or several runs, of `plimsoll train` or of any command under
 * `plimsoll watch`. The page holds everything that it shows: no script, no other file, no network.
 *
 * Files of a run are hostile: memory is bounded for any input, and no text of theirs is markup.
 * Failures as in base/fail.h.
 */
#ifndef REPORT_H
#define REPORT_H

#include "doctor/doctor.h"

#define REPORT_RUNS 8 /* most runs in a report */

typedef struct report {
    int num_records;
    struct report_run_record *record[REPORT_RUNS];
} report_t;

/*
 * Reads the files of a run directory: run.json, metrics.jsonl, timeline.jsonl, as far as they
 * exist, into a report that was {0} in the beginning. A last line that is cut off, as a killed
 * process leaves it, is ignored. The doctor (may be NULL) has read the run's texts; on success the
 * report takes it over with its verdict. Memory: two MiB for each run. PLIM_ERR_USAGE for a
 * directory without any of these files and for more than REPORT_RUNS; PLIM_ERR_IO,
 * PLIM_ERR_STOPPED, PLIM_ERR_NOMEM.
 */
plim_status_t report_add(report_t *report, const char *directory, doctor_t *doctor);

/*
 * Writes the page to `path`, whole or not at all. An existing file is replaced only if it is empty
 * or an earlier report: PLIM_ERR_USAGE otherwise, and for a report without a run. Memory: the page,
 * some 100 KiB a run. PLIM_ERR_IO, PLIM_ERR_DISK, PLIM_ERR_NOMEM.
 */
plim_status_t report_write(const report_t *report, const char *path);

/* Frees the records. */
void report_clear(report_t *report);

#endif
