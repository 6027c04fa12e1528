/* plimsoll doctor: why a job died, from what it left behind. */
#include "base/check.h"
#include "base/fail.h"
#include "command/cli.h"
#include "doctor/verdict.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char help[] =
    "usage: plimsoll doctor [RUN | LOG | DIRECTORY | JOBID | -] … [options]\n\n"
    "Tells how a job ended and why, what is cause and what only consequence, and what to change.\n"
    "Reads logs of any program, kernel logs, the output of sacct, scontrol, seff, docker inspect\n"
    "and kubectl describe, and the timelines of runs; several texts about one job together know\n"
    "more. A number that is no file is a Slurm job: sacct and scontrol are asked, and the job's\n"
    "output is read. A job array, or a directory of its outputs, is examined task by task.\n"
    "Without an argument, or with -, it reads standard input.\n";

typedef struct patient {
    cli_common_t common;
    const char *script; /* NULL: none */
    plim_job_t *job;
    doctor_t *doctor;
} patient_t;

/* Starts a program and returns the reading end of its standard output; -1 if it cannot. */
static int start_program(char *const *words, pid_t *child_out)
{
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const int failed = posix_spawnp(child_out, words[0], &actions, NULL, words, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (failed == 0)
        return ends[0];
    (void)close(ends[0]);
    return -1;
}

static void wait_for(pid_t child)
{
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* Reads the standard output of a program; false when it cannot be started. */
static bool read_program(const patient_t *patient, const char *name, char *const *words)
{
    pid_t child;
    const int output = start_program(words, &child);
    if (output < 0)
        return false;
    (void)doctor_read(patient->doctor, name, output);
    (void)close(output);
    wait_for(child);
    return true;
}

/* "123", "123_4", "123.0". */
static bool is_job_id(const char *word)
{
    const size_t length = strlen(word);
    return length > 0 && length < 32 && isdigit((unsigned char)word[0]) &&
           strspn(word, "0123456789_.") == length;
}

static char sacct[] = "sacct", piped[] = "-P", no_heading[] = "-n", fields[] = "-o", jobs[] = "-j",
            scontrol[] = "scontrol", show[] = "show", kind[] = "job";

static bool ask_slurm(const patient_t *patient, char *job)
{
    static char columns[] =
        "JobID,State,ExitCode,DerivedExitCode,ReqMem,MaxRSS,Elapsed,Timelimit,NTasks";
    char *const accounting[] = {sacct, piped, no_heading, fields, columns, jobs, job, NULL};
    char *const controller[] = {scontrol, show, kind, job, NULL};
    char path[64];
    if (!read_program(patient, "sacct", accounting))
        return false;
    (void)read_program(patient, "scontrol", controller);
    (void)snprintf(path, sizeof path, "slurm-%.*s.out", (int)strcspn(job, "."), job);
    (void)doctor_read_path(patient->doctor, path);
    return true;
}

/* Whether a file of a directory is a text about the job, by its name. */
static bool is_text_name(const char *name)
{
    static const char *const endings[] = {".out", ".err", ".log", ".txt", ".o", ".e", ".sbatch"};
    static const char *const names[] = {
        "timeline.jsonl", "stdout", "stderr", "memory.events", "memory.stat",
        "memory.failcnt", "dmesg",  "sacct",  "run.json",      "metrics.jsonl"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    if (name[0] == '.')
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t size = strlen(endings[i]);
        if (length > size && strcmp(name + length - size, endings[i]) == 0)
            return true;
    }
    /* PBS and Grid Engine: train.o1234 */
    const char *point = strrchr(name, '.');
    return point != NULL && (point[1] == 'o' || point[1] == 'e') && point[2] != '\0' &&
           strspn(point + 2, "0123456789") == strlen(point + 2);
}

/* The "123_4" of slurm-123_4.out; its length, 0: none. */
static size_t array_task(const char *name, const char **begin_out)
{
    for (const char *at = name; *at != '\0'; at++) {
        const size_t job = strspn(at, "0123456789");
        const size_t task = at[job] == '_' ? strspn(at + job + 1, "0123456789") : 0;
        if (job > 0 && task > 0) {
            *begin_out = at;
            return job + 1 + task;
        }
        at += job > 0 ? job - 1 : 0;
    }
    return 0;
}

static int name_order(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static int keep_texts(const struct dirent *entry)
{
    return is_text_name(entry->d_name);
}

/* Reads the texts of a directory: all, or those of one task of an array and those of none. */
static plim_status_t read_texts(doctor_t *doctor, const char *directory, struct dirent **entries,
                                int count, const char *task, size_t length)
{
    struct stat about;
    char path[PATH_MAX];
    for (int i = 0; i < count; i++) {
        const char *begin = NULL;
        const size_t own = array_task(entries[i]->d_name, &begin);
        if (task != NULL && own > 0 && (own != length || memcmp(begin, task, length) != 0))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) >= PATH_MAX)
            continue;
        if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
            continue; /* a pipe would wait for its writer */
        const plim_status_t status = doctor_read_path(doctor, path);
        if (status != PLIM_OK && status != PLIM_ERR_IO)
            return status;
    }
    return PLIM_OK;
}

plim_status_t doctor_read_directory(doctor_t *doctor, const char *directory)
{
    struct dirent **entries = NULL;
    const int count = scandir(directory, &entries, keep_texts, name_order);
    const plim_status_t status = read_texts(doctor, directory, entries, count, NULL, 0);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

static void print_title(const char *title, bool first)
{
    (void)printf("%-13s", first ? title : "");
}

static void print_facts(const doctor_t *doctor, const doctor_fact_t *const *list, int count,
                        const char *title)
{
    for (int i = 0; i < count; i++) {
        print_title(title, i == 0);
        cli_print_text(stdout, doctor->source[list[i]->source].name);
        (void)printf(":%" PRId64 ": ", list[i]->line);
        cli_print_text(stdout, list[i]->text);
        (void)printf("\n");
    }
}

static void print_advice(const doctor_verdict_t *verdict)
{
    char saves[24], peak[24];
    for (int i = 0; i < verdict->num_changes; i++) {
        const doctor_change_t *change = &verdict->change[i];
        print_title("change", i == 0);
        (void)printf("%d. ", i + 1);
        if (change->saves >= 0)
            (void)printf("saves %s, peak %s: ", plim_size_text(change->saves, saves),
                         plim_size_text(plim__max_i64(change->peak, 0), peak));
        cli_print_text(stdout, change->text);
        (void)printf("\n");
    }
}

static void print_growth(const doctor_growth_t *growth, const doctor_shape_t *shape)
{
    static const char *const meanings[] = {
        [DOCTOR_PATTERN_NONE] = "no remarkable growth",
        [DOCTOR_PATTERN_START] = "rose from the beginning to the end",
        [DOCTOR_PATTERN_LEAK] = "rose steadily until the end: a leak",
        [DOCTOR_PATTERN_EPOCHS] = "every phase kept more than the one before",
        [DOCTOR_PATTERN_SPIKE] = "flat, then rose at once",
        [DOCTOR_PATTERN_WORKERS] = "several processes, each with memory of its own",
        [DOCTOR_PATTERN_TMPFS] = "files in memory (tmpfs, /dev/shm)",
        [DOCTOR_PATTERN_CACHE] = "page cache filled the group, which is harmless"};
    const int64_t rate = (int64_t)shape->bytes_per_s;
    const bool leak = shape->pattern == DOCTOR_PATTERN_LEAK;
    char peak[24], limit[24], text[24];
    if (growth->samples == 0)
        return;
    print_title("growth", true);
    (void)printf("%s; peak %s", meanings[shape->pattern],
                 plim_size_text(plim__max_i64(growth->peak, 0), peak));
    if (growth->on_host)
        (void)printf(" without a limit of its own (the host has %s, others held %s)",
                     plim_size_text(plim__max_i64(growth->limit, 0), limit),
                     plim_size_text(plim__max_i64(growth->others, 0), text));
    else if (growth->limit > 0)
        (void)printf(" of %s", plim_size_text(growth->limit, limit));
    if (rate > 0 && (leak || (shape->pattern == DOCTOR_PATTERN_START && !growth->steps)))
        (void)printf(", %s a %s", plim_size_text(rate, text), growth->steps ? "step" : "second");
    if (shape->bytes_per_phase > 0)
        (void)printf(", %s a phase", plim_size_text(shape->bytes_per_phase, text));
    if (shape->phase != NULL && shape->phase[0] != '\0') {
        (void)printf(", in phase ");
        cli_print_text(stdout, shape->phase);
    }
    (void)printf("\n");
}

static void print_text(const doctor_t *doctor, const doctor_verdict_t *verdict)
{
    static const char *const bases[] = {[DOCTOR_BASIS_GUESS] = "a guess",
                                        [DOCTOR_BASIS_MEASURED] = "the measured peak and a fifth",
                                        [DOCTOR_BASIS_ESTIMATE] =
                                            "by estimate, as it is written now",
                                        [DOCTOR_BASIS_NAMED] = "what the message names"};
    char next_mem[24];
    print_title("verdict", true);
    cli_print_text(stdout, verdict->summary);
    (void)printf("\n%-13s%s (%s)\n", "cause", doctor_cause_name(verdict->cause),
                 doctor_confidence_name(verdict->confidence));
    print_facts(doctor, verdict->evidence, verdict->num_evidence, "evidence");
    print_facts(doctor, verdict->consequence, verdict->num_consequences, "consequence");
    print_growth(&doctor->growth, &verdict->shape);
    print_advice(verdict);
    if (verdict->next_mem > 0)
        (void)printf("%-13s--mem=%s (%s)\n", "next", doctor_next_mem_text(verdict, next_mem),
                     bases[verdict->next_mem_basis]);
    if (verdict->command[0] != '\0') {
        const char *memory = strstr(verdict->command, " --memory ");
        const bool trains = strncmp(verdict->command, "plimsoll train DIR ", 19) == 0;
        print_title("or", true);
        if (trains)
            (void)printf("plimsoll import DATA DIR%s\n%-13s", memory != NULL ? memory : "", "");
        cli_print_text(stdout, verdict->command);
        (void)printf("\n");
    }
    for (int i = 0; i < verdict->num_unknown; i++) {
        print_title("not known", i == 0);
        cli_print_text(stdout, verdict->unknown[i]);
        (void)printf("\n");
    }
}

/* Prints the verdict; `task` (NULL: none) is the task of an array that it is about. */
static plim_status_t print_verdict(const patient_t *patient, const char *task, size_t length)
{
    if (patient->script != NULL && doctor_read_script(patient->doctor, patient->script) != PLIM_OK)
        return plim__fail_errno(errno, "%s: cannot be read", patient->script);
    const doctor_verdict_t *verdict = doctor_verdict(patient->doctor);
    if (patient->common.json) {
        json_t *object = doctor_verdict_json(patient->doctor);
        if (object == NULL)
            return plim__fail_errno(ENOMEM, "the verdict");
        if (task != NULL)
            (void)json_object_set_new(object, "task", json_stringn(task, length));
        cli_print_json(object);
        return PLIM_OK;
    }
    if (task != NULL)
        (void)printf("%-13s%.*s\n", "task", (int)length, task);
    print_text(patient->doctor, verdict);
    if (task != NULL)
        (void)printf("\n");
    return PLIM_OK;
}

/* Begins the examination of another job. */
static plim_status_t begin_anew(patient_t *patient)
{
    doctor_destroy(patient->doctor);
    patient->doctor = NULL;
    return doctor_create(patient->job, &patient->doctor);
}

/* One examination after the other: the tasks of an array. */
static plim_status_t examine_tasks(patient_t *patient, const char *directory,
                                   struct dirent **entries, int count)
{
    plim_status_t status = PLIM_OK;
    for (int i = 0; i < count && status == PLIM_OK; i++) {
        const char *task = NULL, *before = NULL;
        const size_t length = array_task(entries[i]->d_name, &task);
        bool seen = length == 0;
        for (int k = 0; k < i && !seen; k++)
            seen = array_task(entries[k]->d_name, &before) == length &&
                   memcmp(before, task, length) == 0;
        if (seen)
            continue;
        status = begin_anew(patient);
        if (status == PLIM_OK)
            status = read_texts(patient->doctor, directory, entries, count, task, length);
        if (status == PLIM_OK)
            status = print_verdict(patient, task, length);
    }
    return status;
}

static bool is_array(struct dirent **entries, int count)
{
    const char *first = NULL, *task = NULL;
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        const size_t own = array_task(entries[i]->d_name, &task);
        if (own > 0 && length == 0) {
            first = task;
            length = own;
        } else if (own > 0 && (own != length || memcmp(first, task, length) != 0)) {
            return true;
        }
    }
    return false;
}

/* *printed_out: the verdicts are printed already. */
static plim_status_t read_directory(patient_t *patient, const char *path, bool alone,
                                    bool *printed_out)
{
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, keep_texts, name_order);
    plim_status_t status = PLIM_OK;
    *printed_out = alone && is_array(entries, count > 0 ? count : 0);
    if (*printed_out)
        status = examine_tasks(patient, path, entries, count);
    else
        status = read_texts(patient->doctor, path, entries, count, NULL, 0);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

/* The task of the array `job` that a line of sacct ("123_4") or scontrol ("… ArrayJobId=123
 * ArrayTaskId=4 …") names; -1: none, or several that have not begun. A task's own JobId is not its
 * array's. */
static long task_of(const char *line, const char *job)
{
    static const char field[] = " ArrayTaskId=";
    const size_t length = strlen(job);
    char array[64], *end;
    (void)snprintf(array, sizeof array, " ArrayJobId=%s ", job);
    const char *at = strstr(line, array) != NULL ? strstr(line, field) : NULL;
    if (strncmp(line, job, length) == 0 && line[length] == '_')
        at = line + length + 1;
    else if (at != NULL)
        at += strlen(field);
    if (at == NULL || !isdigit((unsigned char)*at))
        return -1;
    const long task = strtol(at, &end, 10);
    return *end == '\0' || *end == '|' || isspace((unsigned char)*end) ? task : -1;
}

#define TASKS_MOST 4096

typedef struct array_tasks {
    int count;
    long task[TASKS_MOST];
} array_tasks_t;

/* Adds the tasks that a program's output names, in ascending order; false when the program cannot
 * be started or read. */
static bool list_tasks(char *const *words, const char *job, array_tasks_t *tasks)
{
    pid_t child;
    char line[512];
    const int output = start_program(words, &child);
    if (output < 0)
        return false;
    FILE *file = fdopen(output, "r");
    if (file == NULL) {
        (void)close(output);
        wait_for(child);
        return false;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const long task = task_of(line, job);
        int at = tasks->count;
        while (at > 0 && tasks->task[at - 1] > task)
            at--;
        if (task < 0 || tasks->count == TASKS_MOST || (at > 0 && tasks->task[at - 1] == task))
            continue;
        memmove(&tasks->task[at + 1], &tasks->task[at],
                (size_t)(tasks->count - at) * sizeof tasks->task[0]);
        tasks->task[at] = task;
        tasks->count++;
    }
    (void)fclose(file);
    wait_for(child);
    return true;
}

/* Examines each task of the job if it is an array and sacct answers; *printed_out: so it was. */
static plim_status_t examine_array(patient_t *patient, char *job, bool *printed_out)
{
    static char column[] = "JobID", whole[] = "-X";
    static array_tasks_t tasks;
    char *const accounting[] = {sacct, whole, piped, no_heading, fields, column, jobs, job, NULL};
    char *const controller[] = {scontrol, show, kind, job, NULL};
    plim_status_t status = PLIM_OK;
    tasks.count = 0;
    *printed_out = false;
    if (!list_tasks(accounting, job, &tasks))
        return PLIM_OK;
    (void)list_tasks(controller, job, &tasks);
    *printed_out = tasks.count > 0;
    for (int i = 0; i < tasks.count && status == PLIM_OK && *printed_out; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s_%ld", job, tasks.task[i]);
        status = begin_anew(patient);
        *printed_out = status == PLIM_OK && ask_slurm(patient, name);
        if (*printed_out)
            status = print_verdict(patient, name, strlen(name));
    }
    return status;
}

/* Reads one argument. Returns CLI_DONE, or the exit code after a message. */
static int read_word(patient_t *patient, char *word, bool alone, bool *printed_out)
{
    struct stat about;
    plim_status_t status;
    if (strcmp(word, "-") == 0)
        status = doctor_read(patient->doctor, "standard input", STDIN_FILENO);
    else if (stat(word, &about) == 0 && S_ISDIR(about.st_mode))
        status = read_directory(patient, word, alone, printed_out);
    else if (stat(word, &about) != 0 && is_job_id(word)) {
        status = alone && strpbrk(word, "_.") == NULL ? examine_array(patient, word, printed_out)
                                                      : PLIM_OK;
        if (status != PLIM_OK)
            return cli_program_failed(&patient->common, status);
        if (*printed_out || ask_slurm(patient, word))
            return CLI_DONE;
        return cli_wrong_use(&patient->common,
                             "there is no file %s; if it is the number of a Slurm job, ask where "
                             "sacct is in PATH",
                             word);
    } else {
        errno = 0;
        status = doctor_read_path(patient->doctor, word);
        if (status == PLIM_ERR_IO && errno != 0)
            return cli_wrong_use(&patient->common, "%s cannot be read: %s", word, strerror(errno));
    }
    return status == PLIM_OK ? CLI_DONE : cli_program_failed(&patient->common, status);
}

static int examine(patient_t *patient, int count, char **words)
{
    static char standard_input[] = "-";
    char *none[] = {standard_input};
    bool printed = false;
    if (count == 0) {
        count = 1;
        words = none;
    }
    for (int i = 0; i < count; i++) {
        const int code = read_word(patient, words[i], count == 1, &printed);
        if (code != CLI_DONE)
            return code;
    }
    if (printed)
        return CLI_DONE;
    const plim_status_t status = print_verdict(patient, NULL, 0);
    return status == PLIM_OK ? CLI_DONE : cli_program_failed(&patient->common, status);
}

static int run(int argc, char **argv)
{
    patient_t patient = {.common = {.verb = &cli_verb_doctor}};
    cli_common_t *common = &patient.common;
    int exit_code;
    if (!cli_read_options(argc, argv, &patient, &exit_code))
        return exit_code;
    if (patient.script != NULL && access(patient.script, R_OK) != 0)
        return cli_wrong_use(common, "--script %s cannot be read: %s", patient.script,
                             strerror(errno));
    if (optind == argc && isatty(STDIN_FILENO))
        return cli_wrong_use(common, "give a log, a directory, a Slurm job's number, or - and a "
                                     "text on standard input");
    plim_status_t status = cli_pass_failure(cli_job_start_silent(common, false, &patient.job));
    if (status == PLIM_OK)
        status = doctor_create(patient.job, &patient.doctor);
    exit_code = status == PLIM_OK ? examine(&patient, argc - optind, argv + optind)
                                  : cli_program_failed(common, status);
    doctor_destroy(patient.doctor);
    if (patient.job != NULL)
        cli_job_end(patient.job);
    return exit_code;
}

static const cli_option_t options[] = {
    {"script", "FILE", "the job's Python script: its settings, and lines that keep memory",
     "A log's name that ends with .py is taken as one too.", CLI_AT(patient_t, script),
     .kind = CLI_TEXT},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = options}, CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_doctor = {
    .name = "doctor",
    .summary = "tell why a job died, and what to change",
    .help = help,
    .groups = groups,
    .operand = ":file",
    .run = run,
};
