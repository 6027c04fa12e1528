#include "train/machine.h"

#include "base/job.h"
#include "mem/kernel_text.h"
#include "nn/onednn.h"

#include <plimsoll/version.h>
#include <stdio.h>
#include <string.h>

/* What stands behind "key : " in /proc/cpuinfo; NULL when the line is another one. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    const char *colon = strchr(line, ':');
    if (colon == NULL || strncmp(line, key, length) != 0 ||
        line + length + strspn(line + length, " \t") != colon)
        return NULL;
    return colon + 1 + strspn(colon + 1, " \t");
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + length, word))
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* The widest kind that kernels are made for, in the kernel's words. */
static const char *vectors_of(const char *flags)
{
    static const char *const kinds[] = {"amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f",
                                        "avx2",     "avx",         "sse4_1"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (has_word(flags, kinds[i]))
            return kinds[i];
    return "unknown";
}

plim__machine_t plim__machine_here(const plim_job_t *job)
{
    plim__machine_t machine = {.cpu = "unknown", .vectors = "unknown"};
    plim__kernel_lines_t lines;
    machine.threads = plim__job_threads(job);
    (void)snprintf(machine.version, sizeof machine.version, "%s", PLIM_VERSION);
    (void)snprintf(machine.library, sizeof machine.library, "%s", plim__onednn_version());
    if (!plim__kernel_lines_open(&lines, "", "/proc/cpuinfo"))
        return machine;
    const char *line;
    while ((line = plim__kernel_lines_next(&lines)) != NULL && line[0] != '\0') {
        const char *name = value_of(line, "model name");
        const char *flags = value_of(line, "flags");
        if (name != NULL)
            (void)snprintf(machine.cpu, sizeof machine.cpu, "%s", name);
        if (flags != NULL)
            (void)snprintf(machine.vectors, sizeof machine.vectors, "%s", vectors_of(flags));
    }
    plim__kernel_lines_close(&lines);
    return machine;
}

void plim__machine_compare(const plim_job_t *job, const char *what, const plim__machine_t *before,
                           const plim__machine_t *now)
{
    if (strcmp(before->cpu, now->cpu) != 0 || strcmp(before->vectors, now->vectors) != 0)
        plim__log(
            job, PLIM_LOG_WARNING,
            "%s was computed on %s (%s), this is %s (%s): the last bits of results may differ "
            "from those of an uninterrupted run",
            what, before->cpu, before->vectors, now->cpu, now->vectors);
    if (strcmp(before->version, now->version) != 0 || strcmp(before->library, now->library) != 0)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s was computed by plimsoll %s with %s, this is %s with %s: the last bits of "
                  "results may differ from those of an uninterrupted run",
                  what, before->version, before->library, now->version, now->library);
    if (before->threads != now->threads)
        plim__log(job, PLIM_LOG_INFO,
                  "%s was computed with %d threads, now there are %d: results are the same", what,
                  before->threads, now->threads);
}
