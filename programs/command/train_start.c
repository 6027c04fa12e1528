/* The options of a run's start that change its speed and memory, not its result: run.json keeps
 * them, and a resume takes them again. A name and a value a line. */
#include "command/verb_train.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void train_write_start(const train_t *train, char text_out[PLIM_START_MAX])
{
    const cli_common_t *common = &train->common;
    char scratch[PATH_MAX] = "";
    size_t used = 0;
    if (train->params.scratch != NULL)
        (void)realpath(train->params.scratch, scratch);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"memory", common->memory},
                   {"threads", common->threads},
                   {"io", common->io_engine},
                   {"row-cache", train->params.row_cache}};
    text_out[0] = '\0';
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value != 0)
            used += (size_t)snprintf(text_out + used, PLIM_START_MAX - used, "%s %" PRId64 "\n",
                                     numbers[i].name, numbers[i].value);
    json_t *path = json_string(scratch); /* NULL: not UTF-8 */
    if (scratch[0] != '\0' && path != NULL && strchr(scratch, '\n') == NULL)
        (void)snprintf(text_out + used, PLIM_START_MAX - used, "scratch %s\n", scratch);
    json_decref(path);
}

/* Takes an option of the run's last start, unless it is given now. False: there is no such one. */
static bool take_start_option(train_t *train, const char *name, const char *value, bool *taken_out)
{
    cli_common_t *common = &train->common;
    const int64_t number = strtoll(value, NULL, 10);
    *taken_out = false;
    if (strcmp(name, "memory") == 0) {
        *taken_out = !cli_given(common, "memory") && number > 0;
        common->memory = *taken_out ? number : common->memory;
    } else if (strcmp(name, "threads") == 0) {
        *taken_out = common->threads == 0 && number > 0 && number <= 1024;
        common->threads = *taken_out ? (int)number : common->threads;
    } else if (strcmp(name, "io") == 0) {
        *taken_out = !cli_given(common, "io") && number > 0 && number <= PLIM_IO_THREADS;
        common->io_engine = *taken_out ? (plim_io_engine_t)number : common->io_engine;
    } else if (strcmp(name, "row-cache") == 0) {
        *taken_out = train->params.row_cache == 0 && number >= PLIM_CACHE_NONE;
        train->params.row_cache = *taken_out ? number : train->params.row_cache;
    } else if (strcmp(name, "scratch") == 0 && train->params.scratch == NULL) {
        *taken_out = access(value, W_OK | X_OK) == 0;
        train->params.scratch = *taken_out ? value : NULL;
        if (!*taken_out)
            cli_warn("the run had --scratch %s, which cannot be written to here; it goes on "
                     "without",
                     value);
    } else {
        return strcmp(name, "scratch") == 0;
    }
    return true;
}

/* A value of the start as the option takes it. */
static const char *start_value(const char *name, const char *value, char text_out[24])
{
    const int64_t number = strtoll(value, NULL, 10);
    if (strcmp(name, "memory") == 0 || (strcmp(name, "row-cache") == 0 && number > 0))
        return plim_size_text(number, text_out);
    if (strcmp(name, "io") == 0)
        return cli_engine_names[number];
    return strcmp(name, "row-cache") == 0 ? "none" : value;
}

void train_take_start(train_t *train)
{
    static char text[PLIM_START_MAX]; /* the scratch directory points into it */
    const plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    char shown[24], message[512] = "";
    size_t used = 0;
    plim_job_t *job;
    bool taken;
    if (plim_job_create(&params, &job) != PLIM_OK)
        return;
    const plim_status_t status = plim_run_start(job, train->resume, text);
    plim_job_release(job);
    for (char *line = status == PLIM_OK ? text : text + sizeof text - 1, *end;
         (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        char *value = strchr(line, ' ');
        if (value == NULL)
            continue;
        *value++ = '\0';
        if (take_start_option(train, line, value, &taken) && taken && used < sizeof message)
            used += (size_t)snprintf(message + used, sizeof message - used, " --%s %s", line,
                                     start_value(line, value, shown));
    }
    cli_progress_begin(train->common.quiet);
    if (used > 0)
        cli_remark("as at the run's last start:%s (give another value to change it; --memory max: "
                   "no limit of its own)",
                   message);
}
