/*
 * The shape "molecules": many small graphs of atoms and bonds, both with integer categories, and a
 * value of each graph that bonds decide more than atoms. A chain with branches and some rings; each
 * bond is two edges.
 */
#ifndef PLIM_GENERATE_GENERATE_MOLECULES_H
#define PLIM_GENERATE_GENERATE_MOLECULES_H

#include "store/dataset_writer.h"

#include <plimsoll/ingest.h>

#define PLIM__MOLECULES_NAME "molecules"

/* Of all files together, at most; PLIM_ERR_USAGE for options that the shape does not have. */
plim_status_t plim__molecules_bytes(const plim_generate_options_t *options, int64_t *bytes_out);

/* Writes all columns, and the facts of the dataset but its provenance. */
plim_status_t plim__molecules_write(const plim_job_t *job, const plim_generate_options_t *options,
                                    plim__dataset_writer_t *writer,
                                    plim__dataset_facts_t *facts_out);

#endif
