/*
 * Classes in labels.npy. A file may hold them in any of PyTorch's integer types (int8, uint8,
 * int16, int32, int64); importing and generating take the smallest signed type that holds all
 * classes and -1, "unlabelled". Batches and scores have them as int64.
 */
#ifndef PLIM_STORE_LABELS_H
#define PLIM_STORE_LABELS_H

#include "store/manifest.h"

/* The smallest signed type for -1 … num_classes - 1. */
plim__dtype_t plim__label_type(int64_t num_classes);

/* Whether a labels.npy of this type holds classes. */
bool plim__label_type_valid(plim__dtype_t type);

/* `count` classes of `type` as int64. */
void plim__labels_widen(plim__dtype_t type, const void *from, int64_t count, int64_t *to);

/* The reverse. Every class fits in the type. */
void plim__labels_narrow(plim__dtype_t type, const int64_t *from, int64_t count, void *to);

#endif
