/* The columns of a slice: attention's are whole heads, or parts of one. */
#include "infer/exact_internal.h"

#include "base/check.h"

plim__exact_slice_t plim__exact_slice(const plim__exact_t *exact, int64_t index)
{
    const plim__exact_layer_t *layer = exact->layer;
    const plim__exact_choice_t *choice = &exact->choice;
    plim__exact_slice_t slice = {.first = index * choice->columns};
    int64_t end = layer->wide;
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION && choice->columns < layer->channels) {
        const int64_t parts = choice->slices / layer->heads;
        const int64_t head = index / parts;
        slice.first = head * layer->channels + index % parts * choice->columns;
        end = (head + 1) * layer->channels;
    }
    slice.count = plim__min_i64(choice->columns, end - slice.first);
    slice.width = slice.count;
    slice.offset =
        index * (int64_t)plim__round_up(
                    (size_t)(exact->sizes.piece_rows * choice->width) * sizeof(float), PLIM__PAGE);
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION) {
        slice.head = (int)(slice.first / layer->channels);
        slice.heads = (int)((slice.first + slice.count - 1) / layer->channels) - slice.head + 1;
        slice.width += 2 * (int64_t)slice.heads;
    }
    return slice;
}
