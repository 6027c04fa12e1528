#include "support/trace.h"

#include "support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool test_trace(const char *calls, const char *program, const char *argument, const char *log)
{
    char filter[256];
    int how;
    (void)snprintf(filter, sizeof filter, "trace=%s", calls);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* LeakSanitizer cannot work under a tracer. */
        (void)setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        (void)execlp("strace", "strace", "-f", "-y", "-s", "4096", "-o", log, "-e", filter, program,
                     argument, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

int test_trace_line(const char *log, int from, const char *call, const char *argument)
{
    char line[65536];
    int number = 0, found = -1;
    FILE *file = fopen(log, "r");
    assert_non_null(file);
    for (; found < 0 && fgets(line, sizeof line, file) != NULL; number++) {
        if (number >= from && strstr(line, call) != NULL && strstr(line, argument) != NULL)
            found = number;
    }
    (void)fclose(file);
    return found;
}
