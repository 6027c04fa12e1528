#include "nn/aggregate.h"
#include "nn/kernels.h"

void plim__scales_gcn(const plim__edges_t *hop, const int32_t *degrees, int64_t fanout, float *src,
                      float *dst, float *self)
{
    plim__kernels()->scales_gcn(hop->indptr, degrees, fanout > 0 ? fanout : INT32_MAX, hop->num_dst,
                                hop->num_src, src, dst, self);
}

void plim__scales_mean(const plim__edges_t *hop, float *dst)
{
    plim__kernels()->scales_mean(hop->indptr, hop->num_dst, dst);
}
