/* cmocka with its headers, and small helpers for all tests. */
#ifndef PLIM_TESTS_HARNESS_H
#define PLIM_TESTS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mem/ledger.h"

/* Tests of memory that a sanitizer's own memory would falsify are skipped under it, with a message.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
void test_skip_sanitized(const char *why);
#define TEST_LINE_NEAR "the line is too near to what the sanitizer takes"

/* A fresh directory under $TMPDIR (or /tmp), removed with all it holds by test_directory_remove. */
void test_directory_make(char path_out[512]);
void test_directory_remove(const char *path);

/* A silent job by value, as the library's own copies: tests may set its fields. _try returns the
 * error, _make fails the test. In _make's ledger the process has at most 8 MiB, so that plans do
 * not depend on the memory that this test has touched before. */
plim_job_t test_job_make(int64_t line_bytes, int threads, plim_io_engine_t engine);
plim_status_t test_job_try(int64_t line_bytes, int threads, plim_io_engine_t engine,
                           plim_job_t *job_out);
void test_job_end(plim_job_t *job);

/* Fails with the library's message when the status is not PLIM_OK. */
#define assert_ok(call) test_assert_ok((call), #call, __FILE__, __LINE__)
void test_assert_ok(plim_status_t status, const char *call, const char *file, int line);

/*
 * Runs body(context) with its 1st, 2nd, 3rd … arena failing, until it returns PLIM_OK without one
 * having failed; every earlier return must be PLIM_ERR_NOMEM and leave nothing reserved beyond what
 * was before.
 */
void test_fail_each_arena(plim_job_t *job, plim_status_t (*body)(plim_job_t *job, void *context),
                          void *context);

#endif
