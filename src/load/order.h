/* Batches of the training split in the dataset's order, for predictions. */
#ifndef PLIM_LOAD_ORDER_H
#define PLIM_LOAD_ORDER_H

#include <plimsoll/loader.h>

/* For a loader that was not started yet. */
void plim__loader_keep_order(plim_loader_t *loader);

#endif
