/* plimsoll report: runs as one HTML page. */
#include "command/cli.h"
#include "report/report.h"

#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: plimsoll report RUN … [--out FILE.html]\n\n"
    "Writes one HTML page about runs of plimsoll train, or of any command under plimsoll watch,\n"
    "whether they ended, were killed, or still run: loss and scores, memory by account against\n"
    "the line with its phases, time by stage, cache hits, throughput, plan and measured, recipe,\n"
    "machine, and the doctor's verdict. Several runs, up to 8, stand side by side. The page needs\n"
    "no script, no other file and no network.\n";

typedef struct report_request {
    cli_common_t common;
    const char *out; /* NULL: not given */
} report_request_t;

/* Adds a run with the doctor's verdict on the texts in its directory. */
static plim_status_t add_run(const plim_job_t *job, report_t *report, const char *directory)
{
    doctor_t *doctor;
    plim_status_t status = doctor_create(job, &doctor);
    if (status != PLIM_OK)
        return status;
    status = doctor_read_directory(doctor, directory);
    if (status == PLIM_OK)
        status = report_add(report, directory, doctor);
    if (status != PLIM_OK)
        doctor_destroy(doctor);
    return status;
}

static void print_written(const cli_common_t *common, const char *path, int runs)
{
    struct stat about;
    if (common->json) {
        json_t *object = json_pack("{s:o, s:i}", "report", cli_json_text(path), "runs", runs);
        if (stat(path, &about) == 0)
            (void)json_object_set_new(object, "bytes", json_integer(about.st_size));
        cli_print_json(object);
        return;
    }
    cli_print_text(stdout, path);
    (void)printf(": %d %s\n", runs, runs == 1 ? "run" : "runs");
}

static int write_report(const cli_common_t *common, const plim_job_t *job, const char *out,
                        int count, char **runs)
{
    report_t report = {0};
    plim_status_t status = PLIM_OK;
    for (int i = 0; i < count && status == PLIM_OK; i++)
        status = add_run(job, &report, runs[i]);
    if (status == PLIM_OK)
        status = report_write(&report, out);
    const int code = status == PLIM_OK ? CLI_DONE : cli_program_failed(common, status);
    if (status == PLIM_OK)
        print_written(common, out, count);
    report_clear(&report);
    return code;
}

/* The page of one run lies with it. Returns NULL after an error message. */
static const char *choose_page(const cli_common_t *common, int count, char **runs)
{
    static char path[PLIM_PATH_MAX + 16];
    struct stat about;
    if (count > 1) {
        (void)cli_wrong_use(common, "a page about %d runs needs a name: --out FILE.html", count);
        return NULL;
    }
    if (stat(runs[0], &about) == 0 && access(runs[0], W_OK | X_OK) != 0) {
        (void)cli_wrong_use(common, "%s cannot be written to: name the page with --out FILE.html",
                            runs[0]);
        return NULL;
    }
    (void)snprintf(path, sizeof path, "%.*s/report.html", PLIM_PATH_MAX - 1, runs[0]);
    return path;
}

static int run(int argc, char **argv)
{
    report_request_t request = {.common = {.verb = &cli_verb_report}};
    const cli_common_t *common = &request.common;
    plim_job_t *job = NULL;
    int exit_code;
    if (!cli_read_options(argc, argv, &request, &exit_code))
        return exit_code;
    if (optind == argc)
        return cli_wrong_use(common, "give the directory of a run, as plimsoll train and plimsoll "
                                     "watch make it");
    const char *out = request.out;
    if (out == NULL)
        out = choose_page(common, argc - optind, argv + optind);
    if (out == NULL)
        return CLI_WRONG_USE;
    const plim_status_t status = cli_job_start_silent(common, false, &job);
    exit_code = status == PLIM_OK ? write_report(common, job, out, argc - optind, argv + optind)
                                  : cli_failed(common, status);
    if (job != NULL)
        cli_job_end(job);
    return exit_code;
}

static const cli_option_t own_options[] = {
    {"out", "FILE.html",
     "the page; default for one run: report.html in its directory. A file that is there is "
     "replaced only if it is a report",
     "Or if it is empty. A page about several runs, or about a run whose directory cannot be "
     "written to, needs a name.",
     CLI_AT(report_request_t, out), .kind = CLI_TEXT},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_report = {
    .name = "report",
    .summary = "show runs as one HTML page",
    .help = help,
    .groups = groups,
    .operand = ":directory",
    .run = run,
};
