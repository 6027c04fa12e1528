/*
 * safetensors: eight bytes of header length (little endian), a JSON header (name → dtype, shape,
 * data_offsets; "__metadata__" → text by name), padded with spaces so that data begin on a page,
 * then the tensors one after the other, without holes.
 *
 *     | length N | {"__metadata__": {…},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  |…
 *     0          8                                                                            8 + N
 *
 * What is written here carries two notes of checksums, "checksum" and "checksums", by which reading
 * finds any change of a byte. Other programs pass over them.
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

/* ASCII: any other byte is written as '?'. */
typedef struct plim__note {
    const char *key;
    const char *text;
} plim__note_t;

/* The most that writing or reading a file takes: the header's text, a buffer or a table, and what
 * jansson needs for so many tensors with names of some dozen letters; PLIM__TENSORS_MAX: whatever
 * is in it. In the account "checkpoint". */
size_t plim__safetensors_estimate(int num_tensors);

/*
 * Writes the file whole and durable under its name, or not at all (a plim__draft_t). A kill at any
 * instant leaves the old file or the new one, and so does any error. PLIM_ERR_SPACE before anything
 * is written, PLIM_ERR_IO, PLIM_ERR_DISK; PLIM_ERR_USAGE for names or shapes that a file cannot
 * hold.
 */
plim_status_t plim__safetensors_write(const plim_job_t *job, const char *path,
                                      const plim__note_t *notes, int num_notes,
                                      const plim__tensor_t *tensors, int num_tensors);

/* Bytes of a file of these tensors at most, whatever its notes. */
int64_t plim__safetensors_most(const plim__tensor_t *tensors, int num_tensors);

/* The same into a draft that is open already, for plim__safetensors_most bytes; it is still to be
 * closed. */
plim_status_t plim__safetensors_write_draft(const plim_job_t *job, plim__draft_t *draft,
                                            const plim__note_t *notes, int num_notes,
                                            const plim__tensor_t *tensors, int num_tensors);

typedef struct plim__safetensors plim__safetensors_t;

/*
 * Opens and checks a hostile file: header, offsets, overlaps, holes, sizes. PLIM_ERR_DATA,
 * PLIM_ERR_IO; PLIM_ERR_UNSUPPORTED for a tensor that is none of F16, F32, I32, I64, has more than
 * 4 dimensions or is one too many.
 */
plim_status_t plim__safetensors_open(const plim_job_t *job, const char *path,
                                     plim__safetensors_t **file_out);
void plim__safetensors_close(plim__safetensors_t *file);

/* The text of a note; NULL when there is none. Lives as long as the file. */
const char *plim__safetensors_note(const plim__safetensors_t *file, const char *key);

/* Whether the file carries checksums of ours, by which it and every tensor that is read are
 * checked: one of an older version, of another program, or saved again by one, does not. */
bool plim__safetensors_sealed(const plim__safetensors_t *file);

/* How many tensors there are, and the index-th one's name, type and shape. */
int plim__safetensors_count(const plim__safetensors_t *file);
void plim__safetensors_describe(const plim__safetensors_t *file, int index,
                                plim__tensor_t *tensor_out);

/* Fills tensor->data from the tensor of that name, which must have its type and shape:
 * PLIM_ERR_DATA, naming both; also when its bytes are not those that were saved. */
plim_status_t plim__safetensors_read(plim__safetensors_t *file, const plim__tensor_t *tensor);

#endif
