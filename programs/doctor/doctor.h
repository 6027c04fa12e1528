/*
 * The doctor: how a job ended and why, from the texts that it left behind.
 *
 * It reads logs of any program, Slurm's answers, kernel logs and the timelines of `plimsoll watch`,
 * tells the cause from its consequences, and names what to change. Texts are hostile: memory is
 * bounded for any input, and what it answers holds no control characters.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <jansson.h>
#include <plimsoll/job.h>

typedef struct doctor doctor_t;
typedef struct doctor_verdict doctor_verdict_t; /* doctor/verdict.h */

/* Begins an examination. The job, which must outlive it, is of the estimates. PLIM_ERR_NOMEM.
 * Memory: about 1 MiB. Failures as in base/fail.h. */
plim_status_t doctor_create(const plim_job_t *job, doctor_t **doctor_out);

/* NULL is harmless. */
void doctor_destroy(doctor_t *doctor);

/*
 * Reads one text to its end from an open file (a pipe will do), which stays open. `name` is how
 * the evidence calls it; it is copied, and cut to 255 bytes. All texts of one examination are about
 * one job. PLIM_ERR_IO; PLIM_ERR_STOPPED.
 */
plim_status_t doctor_read(doctor_t *doctor, const char *name, int file);

/* The same of a file, which is a Python script if its name ends with .py. PLIM_ERR_IO also where it
 * cannot be opened: errno says why. */
plim_status_t doctor_read_path(doctor_t *doctor, const char *path);

/* The same of a Python script of any name. */
plim_status_t doctor_read_script(doctor_t *doctor, const char *path);

/* Reads the texts about a job in a directory: logs and timelines, known by their names. Texts that
 * cannot be read are left out. PLIM_ERR_STOPPED. */
plim_status_t doctor_read_directory(doctor_t *doctor, const char *directory);

/* The verdict on everything read so far. The doctor's own: valid until it reads on or ends. */
const doctor_verdict_t *doctor_verdict(doctor_t *doctor);

/*
 * The last verdict as JSON; NULL without memory:
 *
 *   outcome        "died", "survived" (a part was killed, or an error caught; the work went on),
 *                  "finished", or "unknown"
 *   cause          such as "oom_cgroup", "cuda_oom", "time_limit", "killed", "none": the table in
 *                  plimsoll-doctor(1)
 *   confidence     "proven", "likely" or "possible"
 *   summary        the verdict in a sentence
 *   signal, exit_code, job_id   where known
 *   figures        {limit_bytes, tried_bytes, free_bytes …}: those of the evidence
 *   evidence, consequences   arrays of {source, line, text}: what the cause follows from, and
 *                  messages that only report its effects
 *   growth         only from a timeline: {pattern, phase, peak_bytes …}
 *   recipe         the settings of the training that the texts show
 *   advice         array of {change, saves_bytes, peak_bytes}, largest gain first; the bytes only
 *                  where they are estimated
 *   next_mem_bytes, next_mem, next_mem_basis   the next request for memory, and what it rests on:
 *                  "estimate", "measured", "named" (by the message) or "guess"
 *   command        the same training with plimsoll, if the recipe shows
 *   unknown        array of sentences: what the texts do not tell
 */
json_t *doctor_verdict_json(const doctor_t *doctor);

#endif
