/*
 * Sized structs of the public API. A parameter or output struct begins with `size_t size`, which
 * the caller sets to its own sizeof (PLIM_X_INIT does). So a program that was compiled against
 * another version of the headers keeps working: fields are only ever added at the end.
 */
#ifndef PLIM_BASE_PARAMS_H
#define PLIM_BASE_PARAMS_H

#include <plimsoll/status.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Copies a caller's params over *known_out, which holds the defaults (PLIM_X_INIT): fields that the
 * caller does not know keep them. PLIM_ERR_USAGE when params is NULL, its size is 0, or bytes that
 * this library does not know are not zero. `type` is the struct's name, for the message.
 */
plim_status_t plim__params_take(const void *params, const char *type, void *known_out,
                                size_t known_size);

/* Whether an output struct's size is set; called before any work. PLIM_ERR_USAGE. */
plim_status_t plim__output_check(const void *output, const char *type);

/* Copies *known to the caller's output struct, up to its size, which stays. */
void plim__output_give(void *output, const void *known, size_t known_size);

#endif
