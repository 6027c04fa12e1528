/* A file of tensors written in one call. */
#ifndef PLIM_TEST_SAFETENSORS_H
#define PLIM_TEST_SAFETENSORS_H

#include "io/safetensors.h"

#include <fcntl.h>

static inline plim_status_t test_safetensors_write(const plim_job_t *job, const char *path,
                                                   const plim__note_t *notes, int num_notes,
                                                   const plim__tensor_t *tensors, int num_tensors)
{
    plim__draft_t draft;
    plim_status_t status = plim__draft_open(AT_FDCWD, path, true,
                                            plim__safetensors_most(tensors, num_tensors), &draft);
    if (status == PLIM_OK)
        status = plim__safetensors_write_draft(job, &draft, notes, num_notes, tensors, num_tensors,
                                               true);
    plim__draft_close(&draft);
    return status;
}

#endif
