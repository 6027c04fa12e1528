/*
 * The report: one HTML page about one or several runs, of `plimsoll train` or of any command under
 * `plimsoll watch`. The page holds everything that it shows: no script, no other file, no network.
 *
 * Files of a run are hostile: memory is bounded for any input, and no text of theirs is markup.
 */
#ifndef PLIMSOLL_REPORT_H
#define PLIMSOLL_REPORT_H

#include <plimsoll/job.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plim_report plim_report_t;

#define PLIM_REPORT_RUNS 8 /* most runs in a report */

/* Begins a report. Retains the job. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. Memory: a page of it, and half
 * a MiB for each run, in the account "report". Any thread. */
PLIM_API plim_status_t plim_report_create(const plim_job_t *job, plim_report_t **report_out);

/* NULL is harmless; a forked child frees nothing. */
PLIM_API void plim_report_destroy(plim_report_t *report);

/*
 * Reads the files of a run directory: run.json, metrics.jsonl, timeline.jsonl, as far as they
 * exist. A last line that is cut off, as a killed process leaves it, is ignored. `verdict` (may be
 * NULL) is what plim_doctor_verdict answers about this run. Both are copied. One thread at a time.
 * PLIM_ERR_USAGE for a directory without any of these files, for more than PLIM_REPORT_RUNS, and in
 * a forked child; PLIM_ERR_IO, PLIM_ERR_STOPPED, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM.
 */
PLIM_API plim_status_t plim_report_add(plim_report_t *report, const char *directory,
                                       const char *verdict);

/*
 * Writes the page to `path`, whole or not at all. An existing file is replaced only if it is empty
 * or an earlier report: PLIM_ERR_USAGE otherwise, and for a report without a run. Memory: the page,
 * some 100 KiB a run, in the account "report". PLIM_ERR_IO, PLIM_ERR_DISK, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM.
 */
PLIM_API plim_status_t plim_report_write(plim_report_t *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif
