#include "source/row_form.h"

#include "base/fail.h"

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

plim_status_t plim__row_form_open(const plim_dataset_t *dataset, plim__file_t *file_out,
                                  plim__row_form_t *form_out)
{
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "features.npy");
    if (entry == NULL || plim_dataset_info(dataset)->num_features == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s has no features; import it with a features file",
                          plim__dataset_path(dataset));
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, file_out));
    *form_out = plim__row_form_of(dataset);
    return PLIM_OK;
}
