/* Programs under strace, and what the log of their system calls holds. */
#ifndef PLIM_TESTS_TRACE_H
#define PLIM_TESTS_TRACE_H

#include <stdbool.h>

/* Runs program(argument) with the calls ("fsync,rename") written to `log`; true when it ended well,
 * false also without strace. */
bool test_trace(const char *calls, const char *program, const char *argument, const char *log);

/* The number of the first line from `from` on that holds both, or -1. */
int test_trace_line(const char *log, int from, const char *call, const char *argument);

#endif
