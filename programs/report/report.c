/* The public calls. */
#include <plimsoll/report.h>

#include "base/fail.h"
#include "base/process.h"
#include "io/commit.h"
#include "report/report_page.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCOUNT "report"

struct plim_report {
    pid_t process; /* first: 0 in a forked child */
    plim__arena_t arena;
    const plim_job_t *job;
    int num_records;
    plim__run_record_t *record[PLIM_REPORT_RUNS];
};

static void lay_out(plim__arena_t *arena, void *object)
{
    (void)arena;
    (void)object;
}

plim_status_t plim_report_create(const plim_job_t *job, plim_report_t **report_out)
{
    PLIM_ENTER(job);
    plim_report_t draft = {.process = getpid(), .job = job};
    PLIM_TRY(plim__object_create(job->ledger, ACCOUNT, lay_out, &draft, sizeof draft, &draft.arena,
                                 report_out));
    plim_job_retain(job);
    return PLIM_OK;
}

void plim_report_destroy(plim_report_t *report)
{
    if (report == NULL || !plim__process_is(report->process))
        return;
    const plim_job_t *job = report->job;
    for (int i = 0; i < report->num_records; i++)
        plim__run_record_destroy(report->record[i]);
    plim__arena_t arena = report->arena;
    plim__arena_destroy(&arena);
    plim_job_release(job);
}

plim_status_t plim_report_add(plim_report_t *report, const char *directory, const char *verdict)
{
    PLIM_TRY(plim__process_check(report->process));
    PLIM_ENTER(report->job);
    bool found;
    if (report->num_records == PLIM_REPORT_RUNS)
        return plim__fail(PLIM_ERR_USAGE, "a report shows at most %d runs", PLIM_REPORT_RUNS);
    plim__run_record_t **record = &report->record[report->num_records];
    PLIM_TRY(plim__run_record_create(report->job, directory, verdict, &found, record));
    if (!found)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: no run; a run's directory has a timeline.jsonl, which plimsoll train "
            "and plimsoll watch write",
            directory);
    report->num_records++;
    return PLIM_OK;
}

/* Whether a file may be written to: it does not exist, is empty, or is a report. */
static bool may_replace(const char *path)
{
    char first[64];
    const size_t size = strlen(plim__report_heading);
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return access(path, F_OK) != 0;
    const ssize_t got = read(file, first, size);
    const bool ordinary = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    (void)close(file);
    return ordinary &&
           (got == 0 || ((size_t)got == size && memcmp(first, plim__report_heading, size) == 0));
}

plim_status_t plim_report_write(plim_report_t *report, const char *path)
{
    PLIM_TRY(plim__process_check(report->process));
    PLIM_ENTER(report->job);
    plim__page_t page = {NULL, 0, 0};
    plim__arena_t arena;
    if (report->num_records == 0)
        return plim__fail(PLIM_ERR_USAGE, "a report needs a run");
    if (!may_replace(path))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s exists and is no report of plimsoll; give another name with --out",
                          path);
    plim__report_page(&page, report->num_records, report->record);
    const size_t size = page.used;
    PLIM_TRY(plim__arena_create(report->job->ledger, ACCOUNT, size + 1, &arena));
    page = (plim__page_t){plim__arena_carve(&arena, size + 1, 1, 1), size + 1, 0};
    plim__report_page(&page, report->num_records, report->record);
    const plim_status_t status = plim__commit_file(AT_FDCWD, path, page.text, size, false);
    plim__arena_destroy(&arena);
    return status;
}
