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

plim__row_form_t plim__column_form(const plim_dataset_info_t *info, unsigned column)
{
    if (column == PLIM_EDGE_FEATURES)
        return plim__row_form_make(info->edge_feature_type, info->num_edge_features);
    return plim__row_form_make(column == PLIM_EDGE_WEIGHT ? PLIM_F32
                               : column == PLIM_EDGE_TYPE ? PLIM_I32
                                                          : PLIM_I64,
                               1);
}

int64_t plim__column_rows(const plim_dataset_info_t *info, unsigned column)
{
    return column == PLIM_NODE_TIME ? info->num_nodes : info->num_edges;
}

plim_dtype_t plim__column_type(const plim_dataset_info_t *info, unsigned column,
                               plim_dtype_t row_type)
{
    const plim_dtype_t stored = plim__column_form(info, column).type;
    if (stored == PLIM_I32 || stored == PLIM_I64)
        return PLIM_I64;
    return column == PLIM_EDGE_FEATURES && row_type == PLIM_F16 ? PLIM_F16 : PLIM_F32;
}
