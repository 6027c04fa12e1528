/*
 * Upper bounds of numbers from a file or a caller. They are above any real dataset, and small
 * enough that sums and products of a few of them fit 64 bits. oneDNN truncates some sizes to 32
 * bits and would divide by 0 for 2^32: PLIM__WIDTH_MAX prevents that.
 */
#ifndef PLIM_BASE_BOUNDS_H
#define PLIM_BASE_BOUNDS_H

#include <stdint.h>

/* Columns of a model's matrices: features, hidden channels, outputs. */
#define PLIM__WIDTH_MAX ((int64_t)1 << 20)

/* Columns of an array of a dataset: features and targets. */
#define PLIM__COLUMNS_MAX ((int64_t)1 << 24)

/* Classes: detects ids or measurements used as labels. */
#define PLIM__NUM_CLASSES_MAX ((int64_t)1 << 31)

/* Nodes, edges, graphs: an array of eight bytes for each fits a file. */
#define PLIM__ITEMS_MAX ((int64_t)1 << 56)

/* Epochs, steps of one, evaluations, seeds: the range of options. */
#define PLIM__TURNS_MAX INT32_MAX

/* Updates of the weights, seeds of an epoch, bytes of a text file. */
#define PLIM__TOTAL_MAX ((int64_t)1 << 53)

#endif
