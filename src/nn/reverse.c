#include "nn/aggregate.h"

#include <string.h>

/*
 * A counting sort. The offsets are first the ends of the sources' lists and are counted down while
 * the edges, from the last to the first, take their places; so they end as the beginnings, and each
 * list ascends.
 */
void plim__reverse_make(const plim__edges_t *hop, plim__reverse_t *reverse)
{
    int32_t *indptr = reverse->indptr;
    memset(indptr, 0, ((size_t)hop->num_src + 1) * sizeof indptr[0]);
    for (int64_t e = 0; e < hop->num_edges; e++)
        indptr[hop->indices[e]]++;
    int32_t total = 0;
    for (int64_t u = 0; u <= hop->num_src; u++) {
        total += indptr[u];
        indptr[u] = total;
    }
    for (int64_t v = hop->num_dst - 1; v >= 0; v--) {
        for (int64_t e = (int64_t)hop->indptr[v + 1] - 1; e >= hop->indptr[v]; e--) {
            const int32_t at = --indptr[hop->indices[e]];
            reverse->edges[at] = (int32_t)e;
            reverse->destinations[at] = (int32_t)v;
        }
    }
}
