/* The keys of dataset.json, for manifest_parse.c and manifest_render.c only. */
#ifndef PLIM_STORE_MANIFEST_JSON_H
#define PLIM_STORE_MANIFEST_JSON_H

#include "store/manifest.h"

/* A count in the info and its key, in the order of the file. */
typedef struct plim__manifest_count_key {
    const char *key;
    size_t offset; /* in plim_dataset_info_t */
} plim__manifest_count_key_t;

#define PLIM__MANIFEST_COUNTS 11
extern const plim__manifest_count_key_t plim__manifest_counts[PLIM__MANIFEST_COUNTS];

/* Names of types in dataset.json; "none" when there are no such data. */
const char *plim__manifest_type_name(plim_dtype_t type);
const char *plim__manifest_label_name(plim_label_kind_t kind);

#define PLIM__CHECKSUM_DIGITS 16

#endif
