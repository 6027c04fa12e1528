/*
 * safetensors files: eight bytes with the length of the header (little endian), a JSON header (name
 * → dtype, shape, data_offsets; "__metadata__" → texts by name), padded with spaces so that the
 * data is page-aligned, then the tensors one after another, without holes.
 *
 *     | length N | {"__metadata__": {…},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  |…
 *     0          8                                                                            8 + N
 *
 * Our files have two notes, "checksum" and "checksums", by which reading detects any changed byte.
 * Other programs ignore them.
 */
#ifndef PLIM_IO_SAFETENSORS_H
#define PLIM_IO_SAFETENSORS_H

#include "io/commit.h"

#include <plimsoll/dataset.h>
#include <stdbool.h>
#include <stddef.h>

#define PLIM__TENSORS_MAX 512
#define PLIM__TENSOR_NAME_MAX 160

typedef struct plim__tensor {
    char name[PLIM__TENSOR_NAME_MAX];
    plim_dtype_t type; /* PLIM_F32 or PLIM_I64 */
    int num_dims;
    int64_t shape[4];
    void *data; /* to write from, or to read into */
} plim__tensor_t;

/* UTF-8: any other byte is written as '?'. */
typedef struct plim__note {
    const char *key;
    const char *text;
} plim__note_t;

/* Most memory for writing or reading a file, in the account "checkpoint": the header, a buffer or a
 * table, and jansson's memory for that many tensors with names of some dozen letters.
 * PLIM__TENSORS_MAX: for any file. */
size_t plim__safetensors_estimate(int num_tensors);

/* Upper bound for the bytes of a file of these tensors, with any notes. */
int64_t plim__safetensors_most(const plim__tensor_t *tensors, int num_tensors);

/* Writes into a draft that is open already, for plim__safetensors_most bytes. With `commit` the
 * draft gets its name; without, it can be written once more. The caller closes it. PLIM_ERR_IO,
 * PLIM_ERR_DISK; PLIM_ERR_USAGE for names or shapes that a file cannot hold. */
plim_status_t plim__safetensors_write_draft(const plim_job_t *job, plim__draft_t *draft,
                                            const plim__note_t *notes, int num_notes,
                                            const plim__tensor_t *tensors, int num_tensors,
                                            bool commit);

typedef struct plim__safetensors plim__safetensors_t;

/*
 * Opens and checks an untrusted file: header, offsets, overlaps, holes, sizes. PLIM_ERR_DATA,
 * PLIM_ERR_IO; PLIM_ERR_UNSUPPORTED for a tensor that is not F16, F32, I32 or I64 or has more than
 * 4 dimensions, and for more than PLIM__TENSORS_MAX tensors. `directory` and `path` as for
 * plim__file_open_in.
 */
plim_status_t plim__safetensors_open(const plim_job_t *job, int directory, const char *path,
                                     plim__safetensors_t **file_out);
void plim__safetensors_close(plim__safetensors_t *file);

/* The text of a note; NULL when there is none. Lives as long as the file. */
const char *plim__safetensors_note(const plim__safetensors_t *file, const char *key);

/* Whether the file has our checksums, by which header and tensors are checked. Files of older
 * versions and of other programs do not. */
bool plim__safetensors_sealed(const plim__safetensors_t *file);

/* The number of tensors; name, type and shape of one. */
int plim__safetensors_count(const plim__safetensors_t *file);
void plim__safetensors_describe(const plim__safetensors_t *file, int index,
                                plim__tensor_t *tensor_out);

/* Reads the tensor of that name into tensor->data. PLIM_ERR_DATA when its type or shape differs, or
 * its checksum does not match. */
plim_status_t plim__safetensors_read(plim__safetensors_t *file, const plim__tensor_t *tensor);

#endif
