/* Any bytes as a batch script and as a Python file: every text that is kept is ended, every count
 * within its bounds. */
#include "fuzz.h"
#include "slurm/python_file.h"

#include <string.h>

static void check_settings(const read_setting_t *settings, int count, int most)
{
    FUZZ_ASSERT(count >= 0 && count <= most);
    for (int i = 0; i < count; i++) {
        FUZZ_ASSERT(memchr(settings[i].name, 0, sizeof settings[i].name) != NULL);
        FUZZ_ASSERT(memchr(settings[i].value, 0, sizeof settings[i].value) != NULL);
        FUZZ_ASSERT(settings[i].line > 0 && read_find(settings, count, settings[i].name) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static read_batch_t batch;
    static read_python_t python;
    read_batch_script((const char *)data, size, &batch);
    check_settings(batch.requests, batch.num_requests, READ_SETTINGS);
    check_settings(batch.variables, batch.num_variables, READ_SETTINGS);
    check_settings(batch.options, batch.num_options, READ_SETTINGS);
    FUZZ_ASSERT(memchr(batch.python, 0, sizeof batch.python) != NULL);
    read_python_file((const char *)data, size, &python);
    check_settings(python.arguments, python.num_arguments, READ_SETTINGS);
    FUZZ_ASSERT(python.num_loaders >= 0 && python.num_loaders <= READ_LOADERS);
    for (int i = 0; i < python.num_loaders; i++)
        check_settings(python.loaders[i].keywords, python.loaders[i].num_keywords, READ_KEYWORDS);
    return 0;
}
