/*
 * The doctor: how a job ended and why, from the texts that it left behind.
 *
 * It reads logs of any program, Slurm's answers, kernel logs and the timelines of `plimsoll watch`,
 * tells the cause from its consequences, and names what to change. Texts are hostile: memory is
 * bounded for any input, and what it answers holds no control characters.
 */
#ifndef PLIMSOLL_DOCTOR_H
#define PLIMSOLL_DOCTOR_H

#include <plimsoll/job.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plim_doctor plim_doctor_t;

/* Begins an examination. Retains the job. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. Memory: about 1 MiB in
 * the account "doctor". Any thread. */
PLIM_API plim_status_t plim_doctor_create(const plim_job_t *job, plim_doctor_t **doctor_out);

/* NULL is harmless; a forked child frees nothing. */
PLIM_API void plim_doctor_destroy(plim_doctor_t *doctor);

/*
 * Reads one text to its end from an open file (a pipe will do), which stays open. `name` is how
 * the evidence calls it; it is copied, and cut to 255 bytes. All texts of one examination are about
 * one job. One thread at a time. PLIM_ERR_IO; PLIM_ERR_STOPPED; PLIM_ERR_USAGE in a forked child.
 */
PLIM_API plim_status_t plim_doctor_read(plim_doctor_t *doctor, const char *name, int file);

#define PLIM_DOCTOR_JSON_MAX 65536 /* bytes of the longest answer, its NUL included */

/*
 * The verdict on everything read so far, as one JSON object in `json` (size bytes;
 * PLIM_DOCTOR_JSON_MAX is always enough):
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
 *                  where they are reckoned
 *   next_mem_bytes, next_mem, next_mem_basis   the next request for memory, and what it rests on:
 *                  "estimate", "measured" or "guess"
 *   command        the same training with plimsoll, if the recipe shows
 *   unknown        array of sentences: what the texts do not tell
 *
 * PLIM_ERR_USAGE for a buffer that is too small; PLIM_ERR_NOMEM.
 */
PLIM_API plim_status_t plim_doctor_verdict(plim_doctor_t *doctor, char *json, size_t size);

#ifdef __cplusplus
}
#endif
#endif
