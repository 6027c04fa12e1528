/* The verdict: one cause, told from its consequences, and what to change. */
#ifndef DOCTOR_VERDICT_H
#define DOCTOR_VERDICT_H

#include "doctor/facts.h"

typedef enum doctor_outcome {
    DOCTOR_OUTCOME_UNKNOWN,
    DOCTOR_OUTCOME_DIED,
    DOCTOR_OUTCOME_SURVIVED, /* a part was killed, or an error caught, and the work went on */
    DOCTOR_OUTCOME_FINISHED
} doctor_outcome_t;

typedef enum doctor_confidence {
    DOCTOR_POSSIBLE,
    DOCTOR_LIKELY,
    DOCTOR_PROVEN
} doctor_confidence_t;

/* What the next request for memory rests on. */
typedef enum doctor_basis {
    DOCTOR_BASIS_GUESS,
    DOCTOR_BASIS_MEASURED,
    DOCTOR_BASIS_ESTIMATE,
    DOCTOR_BASIS_NAMED /* by the message itself */
} doctor_basis_t;

#define DOCTOR_LISTED 8
#define DOCTOR_SENTENCE 512

/* One change, and what it saves; -1: not estimated. */
typedef struct doctor_change {
    char text[DOCTOR_SENTENCE];
    int64_t saves, peak;
} doctor_change_t;

struct doctor_verdict {
    doctor_cause_t cause;
    doctor_outcome_t outcome;
    doctor_confidence_t confidence;
    const doctor_fact_t *root; /* NULL: a timeline or Slurm's state alone says so */
    int num_evidence, num_consequences, num_unknown, num_changes;
    const doctor_fact_t *evidence[DOCTOR_LISTED];
    const doctor_fact_t *consequence[DOCTOR_LISTED];
    char summary[DOCTOR_SENTENCE];
    char unknown[DOCTOR_LISTED][DOCTOR_SENTENCE];
    doctor_change_t change[DOCTOR_LISTED];
    doctor_shape_t shape;
    int64_t limit;        /* of the machine's memory, that the job had; -1 */
    int64_t code, signal; /* -1 */
    int64_t next_mem;     /* -1 */
    doctor_basis_t next_mem_basis;
    char command[DOCTOR_SENTENCE]; /* "": the recipe does not show */
};

/* Names in JSON: "died", "likely", "estimate". */
const char *doctor_outcome_name(doctor_outcome_t outcome);
const char *doctor_confidence_name(doctor_confidence_t confidence);
const char *doctor_basis_name(doctor_basis_t basis);

/* The next request as --mem takes it, "12G"; not to be called without one. */
const char *doctor_next_mem_text(const doctor_verdict_t *verdict, char text_out[24]);

/* verdict.c: cause, outcome, evidence. */
void doctor_verdict_find(const doctor_t *doctor, doctor_verdict_t *verdict_out);

/* summary.c: the sentence, and what is not known. */
void doctor_verdict_summarise(const doctor_t *doctor, doctor_verdict_t *verdict);

/* advice.c: changes, the next request, the command. If plim_dataset_from_shape fails, the advice
 * has no estimates; that is not an error. */
void doctor_verdict_advise(const doctor_t *doctor, doctor_verdict_t *verdict);

/* Whether all that is known is an exit code that SIGKILL leaves behind and a program may choose
 * too: 137, a launcher's 247, and 9:0 of sacct before 25.11. */
bool doctor_verdict_is_kill_code(const doctor_t *doctor, const doctor_verdict_t *verdict);

void doctor_verdict_unknown(doctor_verdict_t *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Bytes that PyTorch held reserved and unused, by the message; -1: unknown. Before it raises,
 * torch releases all that is not split, so what is left is fragmented. */
int64_t doctor_cuda_idle(const doctor_fact_t *fact);

/* Whether the GPU's memory was free, but fragmented: what was free and what torch held unused would
 * have been enough together. */
bool doctor_cuda_fragmented(const doctor_fact_t *fact);

#endif
