/* The page about some runs. */
#ifndef REPORT_REPORT_PAGE_H
#define REPORT_REPORT_PAGE_H

#include "report/page.h"
#include "report/run_record.h"

/* The first bytes of a page, by which it is known again. */
extern const char report_heading[];

void report_page(report_page_t *page, int num_records, report_run_record_t *const *records);

#endif
