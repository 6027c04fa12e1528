/*
 * Compares a file's checksums while it is read front to back. dataset.json has one for each
 * PLIM__CHECKSUM_BYTES of the file, its header included. XXH3 is several times faster than disks.
 */
#ifndef PLIM_STORE_FILE_CHECK_H
#define PLIM_STORE_FILE_CHECK_H

#include "store/dataset.h"

typedef struct plim__file_check {
    _Alignas(64) unsigned char state[640]; /* state of XXH3 */
    const plim__manifest_file_t *entry;
    const plim__file_t *file; /* for messages */
    int64_t at;               /* bytes so far */
} plim__file_check_t;

/* Begins: reads the file's header. PLIM_ERR_IO. */
plim_status_t plim__file_check_begin(plim__file_check_t *check, const plim__file_t *file,
                                     const plim__manifest_file_t *entry);

/* Adds the next bytes of the file. PLIM_ERR_DATA, naming the damaged chunk. */
plim_status_t plim__file_check_add(plim__file_check_t *check, const void *data, size_t size);

/* After the last byte. PLIM_ERR_DATA when bytes are missing. */
plim_status_t plim__file_check_end(plim__file_check_t *check);

/* Reports a chunk with the checksum `found`. */
plim_status_t plim__file_check_fail(const plim__file_t *file, const plim__manifest_file_t *entry,
                                    int64_t number, uint64_t found);

/* Reads a whole array without its header and compares its checksums. For small arrays: one thread
 * reads it. PLIM_ERR_IO, PLIM_ERR_DATA. */
plim_status_t plim__dataset_read_whole(const plim_dataset_t *dataset,
                                       const plim__manifest_file_t *entry, void *to);

#endif
