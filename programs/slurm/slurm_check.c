/* Compares the requests, variables and options of a batch script with each other, with the loaders
 * of the Python file that it runs, and with the partitions of the cluster. */
#include "slurm/slurm_check.h"
#include "base/check.h"
#include "doctor/estimate.h"
#include "slurm/python_file.h"
#include "slurm/slurm_script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define FILE_BYTES ((size_t)4 << 20) /* of a file that is read */

typedef struct script_check {
    const cli_common_t *common;
    const char *path;
    char python_path[PLIM_PATH_MAX];
    read_batch_t batch;
    read_python_t python;
    bool has_python;
    int64_t memory;  /* bytes that a node gives the job; -1: not asked for; 0: all */
    int64_t minutes; /* -1: not asked for, or not read */
    int64_t cpus;    /* of the job on a node; 0: not known */
    json_t *findings, *not_read;
} script_check_t;

static void add(script_check_t *check, const char *kind, const char *source, int line,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(script_check_t *check, const char *kind, const char *source, int line,
                const char *format, ...)
{
    va_list arguments;
    char text[1024];
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)json_array_append_new(check->findings, json_pack("{s:s, s:o, s:i, s:o}", "kind", kind,
                                                           "source", cli_json_text(source), "line",
                                                           line, "text", cli_json_text(text)));
}

static void add_unread(script_check_t *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_unread(script_check_t *check, const char *format, ...)
{
    va_list arguments;
    char text[1024];
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)json_array_append_new(check->not_read, cli_json_text(text));
}

/* The whole file, which the caller frees; NULL: errno says why. Files above FILE_BYTES are cut. */
static char *read_file(const char *path, size_t *size_out)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(FILE_BYTES) : NULL;
    if (text != NULL) {
        *size_out = fread(text, 1, FILE_BYTES, file);
        if (ferror(file) != 0) {
            free(text);
            text = NULL;
        }
    }
    if (file != NULL)
        (void)fclose(file);
    return text;
}

static const read_setting_t *request(const script_check_t *check, const char *name)
{
    return read_find(check->batch.requests, check->batch.num_requests, name);
}

static int64_t count_of(const read_setting_t *setting, int64_t otherwise)
{
    char *end;
    if (setting == NULL || !setting->literal)
        return otherwise;
    const long long value = strtoll(setting->value, &end, 10);
    return end != setting->value && *end == '\0' && value >= 0 && value <= 1 << 20 ? value
                                                                                   : otherwise;
}

static void check_requests(script_check_t *check)
{
    const read_setting_t *memory = request(check, "mem"), *each = request(check, "mem-per-cpu"),
                         *time = request(check, "time");
    const read_setting_t *cpus = request(check, "cpus-per-task");
    check->cpus = count_of(cpus, cpus == NULL ? 1 : 0);
    if (request(check, "exclusive") != NULL || request(check, "cpus-per-gpu") != NULL ||
        request(check, "ntasks-per-node") != NULL || count_of(request(check, "ntasks"), 1) != 1)
        check->cpus = 0;
    check->memory = check->minutes = -1;
    if (memory != NULL)
        check->memory = read_slurm_bytes(memory->value);
    if (memory != NULL && check->memory < 0)
        add_unread(check, "--mem=%s", memory->value);
    if (memory == NULL && each != NULL && read_slurm_bytes(each->value) >= 0 && check->cpus > 0 &&
        read_slurm_bytes(each->value) <= INT64_MAX / check->cpus)
        check->memory = read_slurm_bytes(each->value) * check->cpus;
    if (memory == NULL && each == NULL && request(check, "mem-per-gpu") == NULL)
        add(check, "no_mem", check->path, 0,
            "no --mem: the job gets the partition's default, often a few GB a CPU; ask for the "
            "peak (plimsoll plan --for pyg estimates it)");
    if (time == NULL)
        add(check, "no_time", check->path, 0,
            "no --time: the job gets the partition's default or its limit, waits longer, and "
            "cannot be backfilled");
    else if (!slurm_minutes(time->value, &check->minutes))
        add_unread(check, "--time=%s", time->value);
    if (check->batch.late_line > 0)
        add(check, "late_request", check->path, check->batch.late_line,
            "Slurm ignores #SBATCH lines after the first command; move this one up");
    for (int i = 0; i < check->batch.num_requests; i++) {
        const read_setting_t *one = &check->batch.requests[i];
        const read_setting_t *last = request(check, one->name);
        if (last != one && strcmp(last->value, one->value) != 0)
            add(check, "overridden", check->path, one->line,
                "--%s=%s has no effect: line %d says --%s=%s", one->name, one->value, last->line,
                last->name, last->value);
    }
}

/* A variable that no command uses, and an option of the same name; an option given twice. */
static void check_options(script_check_t *check)
{
    const read_batch_t *batch = &check->batch;
    for (int i = 0; i < batch->num_variables; i++) {
        const read_setting_t *variable = &batch->variables[i];
        const read_setting_t *option =
            read_find(batch->options, batch->num_options, variable->name);
        if (option == NULL || variable->used || !option->literal || !variable->literal ||
            strcmp(option->value, variable->value) == 0)
            continue;
        add(check, "overridden", check->path, variable->line,
            "%s=%s has no effect: the command in line %d says --%s %s", variable->name,
            variable->value, option->line, option->name, option->value);
    }
    for (int i = 0; i < batch->num_options; i++) {
        const read_setting_t *one = &batch->options[i];
        const read_setting_t *last = read_find(batch->options, batch->num_options, one->name);
        const read_setting_t *argument =
            read_find(check->python.arguments, check->python.num_arguments, one->name);
        if (last != one && strcmp(last->value, one->value) != 0 &&
            (argument == NULL || !argument->repeats))
            add(check, "overridden", check->path, one->line,
                "--%s %s has no effect: the same command says --%s %s later", one->name, one->value,
                last->name, last->value);
    }
}

/* The value of a keyword: itself, or that of the option behind args.NAME. NULL: not read. */
static const char *resolve(const script_check_t *check, const read_setting_t *keyword)
{
    if (keyword == NULL || keyword->literal)
        return keyword != NULL ? keyword->value : NULL;
    const char *point = strchr(keyword->value, '.');
    const size_t owner = point != NULL ? (size_t)(point - keyword->value) : 0;
    if ((owner != 4 || memcmp(keyword->value, "args", 4) != 0) &&
        (owner != 3 || memcmp(keyword->value, "opt", 3) != 0))
        return NULL;
    const read_setting_t *found =
        read_find(check->batch.options, check->batch.num_options, point + 1);
    if (found != NULL && found->literal && found->value[0] == '\0')
        return "True"; /* a flag */
    if (found == NULL)
        found = read_find(check->python.arguments, check->python.num_arguments, point + 1);
    return found != NULL && found->literal ? found->value : NULL;
}

static const char *loader_value(const script_check_t *check, const read_loader_t *loader,
                                const char *name)
{
    return resolve(check, read_find(loader->keywords, loader->num_keywords, name));
}

static int64_t loader_count(const script_check_t *check, const read_loader_t *loader,
                            const char *name, int64_t otherwise)
{
    read_setting_t setting = {.literal = true};
    const char *value = loader_value(check, loader, name);
    if (value == NULL)
        return otherwise;
    (void)snprintf(setting.value, sizeof setting.value, "%s", value);
    return count_of(&setting, otherwise);
}

/* Settings that all loaders of a script should share. Batch sizes and fan-outs may well differ. */
static void check_loaders(script_check_t *check)
{
    static const char *const names[] = {"num_workers", "persistent_workers", "pin_memory",
                                        "prefetch_factor"};
    const read_python_t *python = &check->python;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const read_loader_t *first = NULL;
        for (int k = 0; k < python->num_loaders; k++) {
            const read_loader_t *loader = &python->loaders[k];
            const char *value = loader_value(check, loader, names[i]);
            if (value == NULL)
                continue;
            if (first == NULL)
                first = loader;
            const char *other = loader_value(check, first, names[i]);
            if (strcmp(value, other) == 0)
                continue;
            add(check, "loaders_differ", check->python_path, loader->line,
                "%s has %s=%s, that of line %d has %s=%s", loader->name, names[i], value,
                first->line, names[i], other);
            break;
        }
    }
    for (int k = 0; k < python->num_loaders; k++) {
        const read_loader_t *loader = &python->loaders[k];
        const int64_t workers = loader_count(check, loader, "num_workers", 0);
        const char *persistent = loader_value(check, loader, "persistent_workers");
        if (check->cpus > 0 && workers > check->cpus)
            add(check, "workers_exceed_cpus", check->python_path, loader->line,
                "%s starts %" PRId64 " workers, but the job has %" PRId64
                " CPU%s: ask for --cpus-per-task=%" PRId64,
                loader->name, workers, check->cpus, check->cpus == 1 ? "" : "s", workers + 1);
        if (workers == 0 && persistent != NULL && strcmp(persistent, "True") == 0 &&
            read_find(loader->keywords, loader->num_keywords, "num_workers") == NULL &&
            !loader->unpacked)
            add(check, "idle_setting", check->python_path, loader->line,
                "%s has persistent_workers=True without num_workers, which PyTorch refuses",
                loader->name);
    }
}

/* The name of the dataset: an option, its default, or the only "ogbn-…" of the file. */
static const char *dataset_name(const script_check_t *check)
{
    const read_setting_t *found =
        read_find(check->batch.options, check->batch.num_options, "dataset");
    if (found == NULL)
        found = read_find(check->python.arguments, check->python.num_arguments, "dataset");
    return found != NULL && found->literal ? found->value : check->python.dataset;
}

/* The estimated peak of the script in PyTorch Geometric; -1: the graph is not known. */
static int64_t estimate(script_check_t *check, const read_loader_t *loader)
{
    doctor_recipe_t recipe = doctor_recipe_none();
    doctor_estimate_t now;
    char hint[192];
    const char *shape = cli_shape_named(dataset_name(check), hint);
    const char *fanout = loader_value(check, loader, "num_neighbors");
    const char *persistent = loader_value(check, loader, "persistent_workers");
    plim_job_t *job;
    int64_t peak = -1;
    if (shape == NULL || strcmp(shape, "free") == 0 || fanout == NULL ||
        strcmp(loader->name, "NeighborLoader") != 0 ||
        !doctor_recipe_fanout(&recipe, fanout, fanout + strlen(fanout)))
        return -1;
    if (recipe.deep) {
        add_unread(check, "%s:%d: num_neighbors=%s: more than %d hops are not estimated",
                   check->python_path, loader->line, fanout, PLIM_HOPS_MAX);
        return -1;
    }
    if (cli_job_start_silent(check->common, true, &job) != PLIM_OK)
        return -1;
    (void)snprintf(recipe.shape, sizeof recipe.shape, "%s", shape);
    recipe.batch_size = loader_count(check, loader, "batch_size", -1);
    recipe.workers = plim__min_i64(loader_count(check, loader, "num_workers", 0), 1024);
    recipe.persistent = persistent != NULL && strcmp(persistent, "True") == 0;
    recipe.loaders = (int)plim__min_i64(check->python.num_loaders, 3);
    if (doctor_estimate_open(job, &recipe, 0, &now)) {
        peak = now.plan.peak;
        doctor_estimate_close(&now);
    }
    cli_job_end(job);
    return peak;
}

/* "4", or "8, 4" of loaders that differ. */
static void workers_text(const script_check_t *check, char *text_out, size_t size)
{
    const read_python_t *python = &check->python;
    bool differ = false;
    size_t used = 0;
    for (int i = 1; i < python->num_loaders; i++)
        differ = differ || loader_count(check, &python->loaders[i], "num_workers", 0) !=
                               loader_count(check, &python->loaders[0], "num_workers", 0);
    for (int i = 0; i < (differ ? python->num_loaders : 1) && used < size; i++)
        used += (size_t)snprintf(text_out + used, size - used, "%s%" PRId64, i > 0 ? ", " : "",
                                 loader_count(check, &python->loaders[i], "num_workers", 0));
}

static void check_memory(script_check_t *check)
{
    char asked[24], needed[24], each[READ_LOADERS * 24];
    int64_t workers = 0, peak = -1;
    const read_loader_t *first = check->python.num_loaders > 0 ? &check->python.loaders[0] : NULL;
    for (int i = 0; i < check->python.num_loaders; i++) {
        const int64_t more = loader_count(check, &check->python.loaders[i], "num_workers", 0);
        workers = more > workers ? more : workers;
    }
    if (check->memory <= 0 || first == NULL || !check->python.torch)
        return;
    const int64_t minimum = PYG_PYTHON_BYTES + workers * PYG_WORKER_BYTES;
    (void)plim_size_text(check->memory, asked);
    if (minimum > check->memory) {
        add(check, "workers_exceed_mem", check->path, 0,
            "--mem is %s, but Python with torch and %" PRId64 " workers takes %s before any data",
            asked, workers, plim_size_text(minimum, needed));
        return;
    }
    peak = estimate(check, first);
    workers_text(check, each, sizeof each);
    if (peak > check->memory)
        add(check, "peak_exceeds_mem", check->path, 0,
            "--mem is %s, but %s with %d loader%s of %s workers is estimated at %s in PyTorch "
            "Geometric",
            asked, dataset_name(check), check->python.num_loaders,
            check->python.num_loaders == 1 ? "" : "s", each, plim_size_text(peak, needed));
}

/* --signal=[B:]USR1[@seconds] to somebody who does not expect it. */
static void check_signal(script_check_t *check)
{
    const read_setting_t *signal = request(check, "signal");
    const read_batch_t *batch = &check->batch;
    if (signal == NULL ||
        (strstr(signal->value, "USR1") == NULL &&
         strncmp(signal->value + (strncmp(signal->value, "B:", 2) == 0 ? 2 : 0), "10", 2) != 0))
        return;
    const bool shell = strncmp(signal->value, "B:", 2) == 0;
    if (shell && !batch->traps_usr1)
        add(check, "signal_ignored", check->path, signal->line,
            "--signal=%s goes to this script, which has no trap for it: the shell dies of it",
            signal->value);
    else if (shell && batch->python_line > 0 && !batch->python_background)
        add(check, "signal_late", check->path, batch->python_line,
            "bash runs the trap for USR1 only after this command has ended; run it with & and wait "
            "for it");
    if (!shell && batch->python_line > 0 && !batch->python_srun)
        add(check, "signal_ignored", check->path, signal->line,
            "--signal=%s goes to steps only, and this script starts python without srun: no "
            "process gets it; write --signal=B:USR1@120 with a trap, or use srun",
            signal->value);
    else if (check->has_python && !shell && !check->python.handles_usr1)
        add(check, "signal_ignored", check->python_path, 0,
            "SIGUSR1 ends a Python process that has no handler for it (exit code 138): nothing is "
            "saved; use signal.signal(signal.SIGUSR1, ...)");
}

/* Whether a limit of sinfo ("30:00", "infinite") is below `minutes`. */
static bool below_minutes(const char *limit, int64_t minutes)
{
    int64_t most;
    return slurm_minutes(limit, &most) && minutes > most;
}

/* The limits of the partition, by sinfo; without it they are not known. */
static void check_partition(script_check_t *check)
{
    const read_setting_t *asked = request(check, "partition");
    char line[512], needed[24], there[24];
    bool found = false, any = false, time = false, memory = false, cpus = false;
    int64_t most_memory = 0, most_cpus = 0;
    char limit[64] = "";
    FILE *answer = popen("sinfo -h -o '%P|%l|%m|%c' 2> /dev/null", "re");
    if (answer == NULL)
        return;
    while (fgets(line, sizeof line, answer) != NULL) {
        char *rest = line, *name = strsep(&rest, "|"), *times = strsep(&rest, "|"),
             *megabytes = strsep(&rest, "|"), *count = rest;
        if (count == NULL)
            continue;
        const size_t length = strcspn(name, "*");
        const bool standard = name[length] == '*';
        any = true;
        if (asked != NULL
                ? strlen(asked->value) != length || strncmp(asked->value, name, length) != 0
                : !standard)
            continue;
        const int64_t bytes = strtoll(megabytes, NULL, 10) * MIB, here = strtoll(count, NULL, 10);
        found = true;
        time |= check->minutes > 0 && below_minutes(times, check->minutes);
        (void)snprintf(limit, sizeof limit, "%s", times);
        most_memory = bytes > most_memory ? bytes : most_memory;
        most_cpus = here > most_cpus ? here : most_cpus;
    }
    (void)pclose(answer);
    if (!any) {
        add_unread(check, "the partition's limits: sinfo does not answer here");
        return;
    }
    memory = found && most_memory > 0 && check->memory > most_memory;
    cpus = found && most_cpus > 0 && check->cpus > most_cpus;
    if (asked != NULL && !found && strchr(asked->value, ',') == NULL)
        add(check, "no_partition", check->path, asked->line, "there is no partition %s",
            asked->value);
    if (time)
        add(check, "exceeds_partition", check->path, 0,
            "--time is above the partition's limit of %s: the job would wait for ever", limit);
    if (memory)
        add(check, "exceeds_partition", check->path, 0,
            "--mem is %s, the largest node of the partition has %s",
            plim_size_text(check->memory, needed), plim_size_text(most_memory, there));
    if (cpus)
        add(check, "exceeds_partition", check->path, 0,
            "--cpus-per-task is %" PRId64 ", the largest node of the partition has %" PRId64,
            check->cpus, most_cpus);
}

/* What in the Python file costs memory needlessly. */
static void check_habits(script_check_t *check, const char *text, size_t size)
{
    doctor_script_t script = {0};
    const char *end = text + size;
    int64_t number = 0;
    for (const char *line = text, *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next != NULL ? next : end;
        doctor_script_line(&script, ++number, line, (size_t)(next - line));
    }
    doctor_script_end(&script);
    for (int i = 0; i < script.num_habits; i++)
        add(check, doctor_habit_name(script.habits[i].habit), check->python_path,
            (int)script.habits[i].line, "%s: %s", script.habits[i].code,
            doctor_habit_remedy(script.habits[i].habit));
}

/* Reads the Python file, which stands where the script or this process is. */
static void read_python(script_check_t *check)
{
    const char *name = check->batch.python;
    const char *slash = strrchr(check->path, '/');
    char *text = NULL;
    size_t size = 0;
    if (name[0] == '\0') {
        add_unread(check, "no command with a Python file was found in %s", check->path);
        return;
    }
    (void)snprintf(check->python_path, sizeof check->python_path, "%s", name);
    text = read_file(name, &size);
    if (text == NULL && slash != NULL && name[0] != '/') {
        (void)snprintf(check->python_path, sizeof check->python_path, "%.*s/%s",
                       (int)(slash - check->path), check->path, name);
        text = read_file(check->python_path, &size);
    }
    if (text == NULL) {
        add_unread(check, "%s: %s", name, strerror(errno));
        return;
    }
    read_python_file(text, size, &check->python);
    check->has_python = true;
    check_habits(check, text, size);
    if (size == FILE_BYTES)
        add_unread(check, "%s beyond 4 MiB", check->python_path);
    free(text);
}

static void list_unread(script_check_t *check)
{
    const read_python_t *python = &check->python;
    if (check->batch.more_commands > 0)
        add_unread(check, "%d more command%s with a Python file", check->batch.more_commands,
                   check->batch.more_commands == 1 ? "" : "s");
    for (int i = 0; i < python->num_loaders; i++) {
        const read_loader_t *loader = &python->loaders[i];
        if (loader->unpacked)
            add_unread(check, "%s:%d: **keywords of %s", check->python_path, loader->line,
                       loader->name);
        for (int k = 0; k < loader->num_keywords; k++)
            if (resolve(check, &loader->keywords[k]) == NULL &&
                (strstr(loader->keywords[k].name, "workers") != NULL ||
                 strcmp(loader->keywords[k].name, "batch_size") == 0))
                add_unread(check, "%s:%d: %s=%s", check->python_path, loader->keywords[k].line,
                           loader->keywords[k].name, loader->keywords[k].value);
    }
    if (python->more_loaders > 0)
        add_unread(check, "%d more loaders", python->more_loaders);
}

static json_t *loaders_json(const script_check_t *check)
{
    json_t *array = json_array();
    for (int i = 0; i < check->python.num_loaders; i++) {
        const read_loader_t *loader = &check->python.loaders[i];
        json_t *settings = json_object();
        for (int k = 0; k < loader->num_keywords; k++) {
            const char *value = resolve(check, &loader->keywords[k]);
            if (value != NULL)
                (void)json_object_set_new(settings, loader->keywords[k].name, cli_json_text(value));
        }
        (void)json_array_append_new(array, json_pack("{s:o, s:i, s:o}", "name",
                                                     cli_json_text(loader->name), "line",
                                                     loader->line, "settings", settings));
    }
    return array;
}

static void print_findings(const script_check_t *check)
{
    const json_t *one;
    size_t i;
    json_array_foreach(check->findings, i, one)
    {
        const int64_t line = json_integer_value(json_object_get(one, "line"));
        cli_print_text(stdout, json_string_value(json_object_get(one, "source")));
        if (line > 0)
            (void)printf(":%" PRId64, line);
        (void)printf(": ");
        cli_print_text(stdout, json_string_value(json_object_get(one, "text")));
        (void)printf(" [%s]\n", json_string_value(json_object_get(one, "kind")));
    }
    if (json_array_size(check->findings) == 0) {
        cli_print_text(stdout, check->path);
        (void)printf(check->has_python ? ": no contradiction found\n"
                                       : ": nothing compared: no command runs a Python file that "
                                         "can be read\n");
    }
    json_array_foreach(check->not_read, i, one)
    {
        (void)printf("not read: ");
        cli_print_text(stdout, json_string_value(one));
        (void)printf("\n");
    }
}

int slurm_check(const cli_common_t *common, const char *path)
{
    script_check_t *check = calloc(1, sizeof *check);
    size_t size = 0;
    char *text = check != NULL ? read_file(path, &size) : NULL;
    if (text == NULL) {
        free(check);
        return cli_wrong_use(common, "%s cannot be read: %s", path, strerror(errno));
    }
    check->common = common;
    check->path = path;
    check->findings = json_array();
    check->not_read = json_array();
    read_batch_script(text, size, &check->batch);
    free(text);
    read_python(check);
    check_requests(check);
    check_options(check);
    check_loaders(check);
    check_memory(check);
    check_signal(check);
    check_partition(check);
    list_unread(check);
    const bool found = json_array_size(check->findings) > 0;
    if (common->json) {
        cli_print_json(json_pack(
            "{s:o, s:o, s:O, s:O, s:o}", "script", cli_json_text(path), "python",
            check->has_python ? cli_json_text(check->python_path) : json_null(), "findings",
            check->findings, "not_read", check->not_read, "loaders", loaders_json(check)));
    } else {
        print_findings(check);
        cli_flush();
    }
    json_decref(check->findings);
    json_decref(check->not_read);
    free(check);
    return found ? CLI_FAILED : CLI_DONE;
}
