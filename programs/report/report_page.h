/* The page about some runs. */
#ifndef PLIM_REPORT_REPORT_PAGE_H
#define PLIM_REPORT_REPORT_PAGE_H

#include "report/page.h"
#include "report/run_record.h"

/* The first bytes of a page, by which it is known again. */
extern const char plim__report_heading[];

void plim__report_page(plim__page_t *page, int num_records, plim__run_record_t *const *records);

#endif
