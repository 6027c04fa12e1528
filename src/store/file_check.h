/*
 * A file's checksums compared while it is read from front to back: dataset.json has one for each
 * PLIM__CHECKSUM_BYTES of it, its header included. XXH3 takes a fraction of the time that any disk
 * needs to deliver the bytes.
 */
#ifndef PLIM_STORE_FILE_CHECK_H
#define PLIM_STORE_FILE_CHECK_H

#include "store/dataset.h"

typedef struct plim__file_check {
    _Alignas(64) unsigned char state[640]; /* XXH3's */
    const plim__manifest_file_t *entry;
    const plim__file_t *file; /* for its path */
    int64_t at;               /* bytes seen */
} plim__file_check_t;

/* Begins with the file's header, which is read here. PLIM_ERR_IO. */
plim_status_t plim__file_check_begin(plim__file_check_t *check, const plim__file_t *file,
                                     const plim__manifest_file_t *entry);

/* The next bytes of the file. PLIM_ERR_DATA naming the piece that is damaged. */
plim_status_t plim__file_check_add(plim__file_check_t *check, const void *data, size_t size);

/* After the last byte. PLIM_ERR_DATA, also when not all bytes came. */
plim_status_t plim__file_check_end(plim__file_check_t *check);

/* The error for bytes whose checksum is `found`: those of the number-th checksum. */
plim_status_t plim__file_check_fail(const plim__file_t *file, const plim__manifest_file_t *entry,
                                    int64_t number, uint64_t found);

/* Reads an array whole, all but its header, to `to`, its checksums compared. For small ones: in
 * pieces, by one thread. PLIM_ERR_IO, PLIM_ERR_DATA. */
plim_status_t plim__dataset_read_whole(const plim_dataset_t *dataset,
                                       const plim__manifest_file_t *entry, void *to);

#endif
