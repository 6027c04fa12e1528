/* Shared by safetensors.c and safetensors_write.c only. */
#ifndef PLIM_IO_SAFETENSORS_FORMAT_H
#define PLIM_IO_SAFETENSORS_FORMAT_H

#include "io/safetensors.h"
#include "io/seal.h"

#include <stdbool.h>

#define PLIM__TENSORS_ACCOUNT "checkpoint"
#define PLIM__TENSORS_METADATA "__metadata__"
#define PLIM__TENSORS_FRONT 8 /* bytes of the header's length */

/*
 * The beginning of our headers. The first note is the XXH3 of the front of the file, from the
 * length of the header up to the data, computed with zeros for its own digits. No other writer puts
 * the blank there, so a file that another program saved again is not reported as damaged. The
 * second note is the XXH3 of every tensor, in the order of the file.
 */
#define PLIM__TENSORS_SEAL "{\"" PLIM__TENSORS_METADATA "\": {\"checksum\":\""
#define PLIM__TENSORS_SEAL_AT (PLIM__TENSORS_FRONT + sizeof PLIM__TENSORS_SEAL - 1)
#define PLIM__TENSORS_DIGITS PLIM__SEAL_DIGITS
#define PLIM__TENSORS_CHECKSUMS "checksums"

/* The format allows headers of 100 MB; PLIM__TENSORS_MAX tensors need a thousandth of that. */
#define PLIM__TENSORS_HEADER ((size_t)128 << 10)
/* Most memory of jansson for such a header, */
#define PLIM__TENSORS_JSON ((size_t)2 << 20)
/* and for a header of few tensors: for the notes, and for each tensor. */
#define PLIM__TENSORS_JSON_NOTES ((size_t)64 << 10)
#define PLIM__TENSORS_JSON_EACH ((size_t)5 << 9)
/* The buffer through which data is written. */
#define PLIM__TENSORS_BUFFER ((size_t)64 << 10)

/* The name of a type in the header, and the bytes of a value; NULL and 0 for an unknown type. */
const char *plim__tensor_type_name(plim_dtype_t type);
int64_t plim__tensor_type_size(plim_dtype_t type);

/* Bytes of a tensor's data. False when type or shape are impossible. */
bool plim__tensor_bytes(const plim__tensor_t *tensor, int64_t *bytes_out);

/* plim__seal_digits of a file's front of `size` bytes. Sets the digits of its seal to zeros. */
void plim__tensor_front_digits(char *front, size_t size, char digits_out[PLIM__TENSORS_DIGITS + 1]);

size_t plim__safetensors_write_estimate(void);

#endif
