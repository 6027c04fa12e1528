#include "store/labels.h"

plim__dtype_t plim__label_type(int64_t num_classes)
{
    return num_classes <= (int64_t)1 << 7    ? PLIM__NPY_I8
           : num_classes <= (int64_t)1 << 15 ? PLIM__NPY_I16
           : num_classes <= (int64_t)1 << 31 ? PLIM__NPY_I32
                                             : PLIM__NPY_I64;
}

bool plim__label_type_valid(plim__dtype_t type)
{
    return type == PLIM__NPY_I8 || type == PLIM__NPY_U8 || type == PLIM__NPY_I16 ||
           type == PLIM__NPY_I32 || type == PLIM__NPY_I64;
}

#define TYPES(one)                                                                                 \
    switch (type) {                                                                                \
    case PLIM__NPY_I8:                                                                             \
        one(int8_t) break;                                                                         \
    case PLIM__NPY_U8:                                                                             \
        one(uint8_t) break;                                                                        \
    case PLIM__NPY_I16:                                                                            \
        one(int16_t) break;                                                                        \
    case PLIM__NPY_I32:                                                                            \
        one(int32_t) break;                                                                        \
    default:                                                                                       \
        one(int64_t) break;                                                                        \
    }

#define WIDEN(kind)                                                                                \
    for (int64_t i = 0; i < count; i++)                                                            \
        to[i] = ((const kind *)from)[i];

#define NARROW(kind)                                                                               \
    for (int64_t i = 0; i < count; i++)                                                            \
        ((kind *)to)[i] = (kind)from[i];

void plim__labels_widen(plim__dtype_t type, const void *from, int64_t count, int64_t *to)
{
    TYPES(WIDEN)
}

void plim__labels_narrow(plim__dtype_t type, const int64_t *from, int64_t count, void *to)
{
    TYPES(NARROW)
}
