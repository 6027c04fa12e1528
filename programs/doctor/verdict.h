/* The verdict: one cause, told from its consequences, and what to change. */
#ifndef PLIM_DOCTOR_VERDICT_H
#define PLIM_DOCTOR_VERDICT_H

#include "doctor/facts.h"

typedef enum plim__outcome {
    PLIM__OUTCOME_UNKNOWN,
    PLIM__OUTCOME_DIED,
    PLIM__OUTCOME_SURVIVED, /* a part was killed, or an error caught, and the work went on */
    PLIM__OUTCOME_FINISHED
} plim__outcome_t;

typedef enum plim__confidence { PLIM__POSSIBLE, PLIM__LIKELY, PLIM__PROVEN } plim__confidence_t;

#define PLIM__LISTED 8
#define PLIM__SENTENCE 512

/* One change, and what it saves; -1: not reckoned. */
typedef struct plim__change {
    char text[PLIM__SENTENCE];
    int64_t saves, peak;
} plim__change_t;

typedef struct plim__verdict {
    plim__cause_t cause;
    plim__outcome_t outcome;
    plim__confidence_t confidence;
    const plim__fact_t *root; /* NULL: a timeline or Slurm's state alone says so */
    int num_evidence, num_consequences, num_unknown, num_changes;
    const plim__fact_t *evidence[PLIM__LISTED];
    const plim__fact_t *consequence[PLIM__LISTED];
    char summary[PLIM__SENTENCE];
    char unknown[PLIM__LISTED][PLIM__SENTENCE];
    plim__change_t change[PLIM__LISTED];
    plim__shape_t shape;
    int64_t limit;        /* of the machine's memory, that the job had; -1 */
    int64_t code, signal; /* -1 */
    int64_t next_mem;     /* -1 */
    const char *next_mem_basis;
    char command[PLIM__SENTENCE]; /* "": the recipe does not show */
} plim__verdict_t;

/* verdict.c: cause, outcome, evidence. */
void plim__verdict_find(const plim_doctor_t *doctor, plim__verdict_t *verdict_out);

/* summary.c: the sentence, and what is not known. */
void plim__verdict_summarise(const plim_doctor_t *doctor, plim__verdict_t *verdict);

/* advice.c: changes, the next request, the command. Errors of plim_dataset_from_shape are none:
 * then nothing is reckoned. */
void plim__verdict_advise(const plim_doctor_t *doctor, plim__verdict_t *verdict);

void plim__verdict_unknown(plim__verdict_t *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Bytes that PyTorch held reserved and unused, by the message; -1: not told. Before it raises,
 * torch releases all that is not split, so what is left lies in pieces. */
int64_t plim__cuda_idle(const plim__fact_t *fact);

/* Bytes that torch could still have taken: free, and within a memory fraction; -1: not told. */
int64_t plim__cuda_free(const plim__fact_t *fact);

/* Whether the GPU's memory was there, but in pieces: what was free and what torch held unused would
 * have been enough together. */
bool plim__cuda_fragmented(const plim__fact_t *fact);

#endif
