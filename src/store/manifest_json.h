/* What reading and writing dataset.json share: its keys. Theirs alone. */
#ifndef PLIM_STORE_MANIFEST_JSON_H
#define PLIM_STORE_MANIFEST_JSON_H

#include "store/manifest.h"

/* A count of the info and its key, in the order they are written. */
typedef struct plim__manifest_count_key {
    const char *key;
    size_t offset; /* in plim_dataset_info_t */
} plim__manifest_count_key_t;

#define PLIM__MANIFEST_COUNTS 11
extern const plim__manifest_count_key_t plim__manifest_counts[PLIM__MANIFEST_COUNTS];

/* Types as dataset.json names them; "none" for what a dataset does not have. */
const char *plim__manifest_type_name(plim_dtype_t type);
const char *plim__manifest_label_name(plim_label_kind_t kind);

#define PLIM__CHECKSUM_DIGITS 16

#endif
