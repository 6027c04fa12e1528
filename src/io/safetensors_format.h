/* What writing and reading safetensors share. Theirs alone. */
#ifndef PLIM_IO_SAFETENSORS_FORMAT_H
#define PLIM_IO_SAFETENSORS_FORMAT_H

#include "io/safetensors.h"
#include "io/seal.h"

#include <stdbool.h>

#define PLIM__TENSORS_ACCOUNT "checkpoint"
#define PLIM__TENSORS_METADATA "__metadata__"
#define PLIM__TENSORS_FRONT 8 /* bytes of the header's length */

/*
 * How a header of ours begins: the first note is the XXH3 of the file's front, from the header's
 * length up to the data, in which its own digits count as zeros. No other writer puts the blank, so
 * a file that another program has saved again is not taken for damaged. The second note holds the
 * XXH3 of every tensor, in the order of the file.
 */
#define PLIM__TENSORS_SEAL "{\"" PLIM__TENSORS_METADATA "\": {\"checksum\":\""
#define PLIM__TENSORS_SEAL_AT (PLIM__TENSORS_FRONT + sizeof PLIM__TENSORS_SEAL - 1)
#define PLIM__TENSORS_DIGITS PLIM__SEAL_DIGITS
#define PLIM__TENSORS_CHECKSUMS "checksums"

/* The format allows headers of 100 MB; this many tensors take a thousandth of it. */
#define PLIM__TENSORS_HEADER ((size_t)128 << 10)
/* What jansson may take for such a header. */
#define PLIM__TENSORS_JSON ((size_t)2 << 20)
/* … for one of few tensors: its notes, and each tensor. */
#define PLIM__TENSORS_JSON_NOTES ((size_t)64 << 10)
#define PLIM__TENSORS_JSON_EACH ((size_t)5 << 9)
/* Through which data are written. */
#define PLIM__TENSORS_BUFFER ((size_t)64 << 10)

/* A type as the header names it, and what one value takes; NULL and 0 for those that are none. */
const char *plim__tensor_type_name(plim_dtype_t type);
int64_t plim__tensor_type_size(plim_dtype_t type);

/* Bytes of a tensor's data; false when type or shape are impossible. */
bool plim__tensor_bytes(const plim__tensor_t *tensor, int64_t *bytes_out);

/* plim__seal_digits of a file's front: `size` bytes, whose seal's digits are zeros afterwards. */
void plim__tensor_front_digits(char *front, size_t size, char digits_out[PLIM__TENSORS_DIGITS + 1]);

size_t plim__safetensors_write_estimate(void);
size_t plim__safetensors_open_estimate(void); /* jansson's share not counted */

#endif
