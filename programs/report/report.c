/* Records of runs, and the file of the page. */
#include "report/report.h"

#include "base/fail.h"
#include "io/commit.h"
#include "report/report_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void report_clear(report_t *report)
{
    for (int i = 0; i < report->num_records; i++)
        report_run_record_destroy(report->record[i]);
    report->num_records = 0;
}

plim_status_t report_add(report_t *report, const char *directory, doctor_t *doctor)
{
    bool found;
    if (report->num_records == REPORT_RUNS)
        return plim__fail(PLIM_ERR_USAGE, "a report shows at most %d runs", REPORT_RUNS);
    report_run_record_t **record = &report->record[report->num_records];
    PLIM_TRY(report_run_record_create(directory, &found, record));
    if (!found)
        return plim__fail(
            PLIM_ERR_USAGE,
            access(directory, F_OK) != 0
                ? "%s does not exist; give the directory of a run"
                : "%s holds no run: there is no timeline.jsonl in it, which plimsoll train and "
                  "plimsoll watch write",
            directory);
    (*record)->doctor = doctor;
    (*record)->verdict = doctor != NULL ? doctor_verdict(doctor) : NULL;
    report->num_records++;
    return PLIM_OK;
}

/* Whether a file may be written to: it does not exist, is empty, or is a report. */
static bool may_replace(const char *path)
{
    char first[64];
    const size_t size = strlen(report_heading);
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return access(path, F_OK) != 0;
    const ssize_t got = read(file, first, size);
    const bool ordinary = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    (void)close(file);
    return ordinary &&
           (got == 0 || ((size_t)got == size && memcmp(first, report_heading, size) == 0));
}

plim_status_t report_write(const report_t *report, const char *path)
{
    report_page_t page = {NULL, 0, 0};
    if (report->num_records == 0)
        return plim__fail(PLIM_ERR_USAGE, "a report needs a run");
    if (!may_replace(path))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s exists and is no report of plimsoll; give another name with --out",
                          path);
    report_page(&page, report->num_records, report->record);
    const size_t size = page.used;
    page = (report_page_t){malloc(size + 1), size + 1, 0};
    if (page.text == NULL)
        return plim__fail_errno(ENOMEM, "a page of %zu bytes", size);
    report_page(&page, report->num_records, report->record);
    const plim_status_t status = plim__commit_file(AT_FDCWD, path, page.text, size, false);
    free(page.text);
    return status;
}
