/* What the fuzz targets share: fuzz_X.c feeds any bytes to a parser, which must survive them. */
#ifndef PLIM_FUZZ_H
#define PLIM_FUZZ_H

#include <plimsoll/job.h>
#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry, defined by each target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A silent job without a line, made once. */
const plim_job_t *fuzz_job(void);

/* Ends the program when the condition does not hold, which the fuzzer reports as a finding. */
#define FUZZ_ASSERT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            __builtin_trap();                                                                      \
    } while (0)

/* After every input: nothing may be left reserved. */
void fuzz_check_ledger(void);

#endif
