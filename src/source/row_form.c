#include "source/row_form.h"

plim__row_form_t plim__row_form_make(plim_dtype_t type, int64_t num_features)
{
    return (plim__row_form_t){.type = type,
                              .num_features = num_features,
                              .bytes = (size_t)num_features * plim__feature_bytes(type),
                              .path = plim__half_best()};
}

plim__row_form_t plim__row_form_of(const plim_dataset_t *dataset)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (info->num_features == 0)
        return (plim__row_form_t){.type = PLIM_F16};
    return plim__row_form_make(info->feature_type, info->num_features);
}
