/* Any bytes as the files of a run: the page is UTF-8 without control characters, and as long as it
 * was counted to be. */
#include "base/printable.h"
#include "fuzz.h"
#include "report/report_page.h"

#include <stdlib.h>
#include <string.h>

static void feed(report_run_record_t *record, const char *text, size_t size,
                 void (*take)(report_run_record_t *record, plim__json_t line))
{
    const char *end = text + size, *newline;
    for (; (newline = memchr(text, '\n', (size_t)(end - text))) != NULL; text = newline + 1)
        take(record, (plim__json_t){text, newline});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    report_run_record_t *record;
    FUZZ_ASSERT(report_run_record_begin("run", &record) == PLIM_OK);
    /* Half of it is the timeline; the rest are metrics, run.json and the log of the verdict. */
    const char *text = (const char *)data, *rest = text + size / 2;
    const size_t length = size - size / 2 < 4096 ? size - size / 2 : 4096;
    feed(record, text, size / 2, report_run_record_timeline);
    feed(record, rest, size - size / 2, report_run_record_metrics);
    memcpy(record->about, rest, length);
    FUZZ_ASSERT(doctor_create(fuzz_job(), &record->doctor) == PLIM_OK);
    doctor_source(record->doctor, "log", false);
    doctor_log_bytes(record->doctor, rest, length);
    doctor_log_end(record->doctor);
    record->verdict = doctor_verdict(record->doctor);
    report_page_t page = {NULL, 0, 0};
    report_page(&page, 1, &record);
    const size_t counted = page.used;
    page = (report_page_t){malloc(counted + 1), counted + 1, 0};
    FUZZ_ASSERT(page.text != NULL);
    report_page(&page, 1, &record);
    FUZZ_ASSERT(page.used == counted);
    for (size_t i = 0; i < counted;) {
        const size_t bytes = page.text[i] == '\n' ? 1 : plim__printable(page.text + i, counted - i);
        FUZZ_ASSERT(bytes > 0);
        i += bytes;
    }
    free(page.text);
    report_run_record_destroy(record);
    return 0;
}
