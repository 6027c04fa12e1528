/*
 * Draws that a column decides: of a list's entries in proportion to their weights, or of those
 * whose time is not past a limit. Like other draws (source/draw.h) they are functions of (seed,
 * epoch, hop, owner), and of the list's column.
 *
 * Let entry i have u = ((bits of number i of the key's stream) / 2^12 + 1/2) / 2^52.
 *
 * By weight w, without replacement: all entries in their order when there are at most as many as
 * the fan-out, or the fan-out is -1; else the entries with the smallest -log(1 - u) / w, the
 * smallest first. That is drawing one after the other, each in proportion to the weights of those
 * that are left. Entries of weight 0 come after all others, any of them as likely.
 * Up to a time: only entries that are not later count, and each has the key u. If they are no more
 * than the fan-out they come in the order of the list.
 * The latest: the entries with the largest times, ascending by time; of equal times the last of
 * the list.
 * With replacement, draw j takes the entry where the sum of weights first exceeds u_j times the
 * sum of all; where all are 0, and for times, each entry weighs 1. With replacement the latest
 * are drawn from: as many as the fan-out.
 */
#ifndef PLIM_SOURCE_CHOOSE_H
#define PLIM_SOURCE_CHOOSE_H

#include "source/draw.h"

typedef enum plim__choice {
    PLIM__CHOOSE_BY_WEIGHT, /* of a column of float */
    PLIM__CHOOSE_UP_TO,     /* of one of int64: not later than a time */
    PLIM__CHOOSE_LATEST     /* … the latest of these */
} plim__choice_t;

typedef struct plim__pick {
    uint64_t key;
    int64_t position;
} plim__pick_t;

/* One draw. A list's values are given once or twice, in chunks from first to last. */
typedef struct plim__choosing {
    plim__choice_t choice;
    const plim__hop_t *hop;
    uint64_t key;
    int64_t until;       /* no later time */
    plim__pick_t *picks; /* (PLIM__FANOUT_MAX) */
    int64_t *positions;  /* (plim__draw_count of the list's length) the result */
    int64_t count;       /* of picks, or of positions with a fan-out of -1 */
    int64_t eligible;
    double total, sum; /* of the weights: of all, and of those before the second pass's next */
    int64_t next;      /* of the second pass's picks */
    bool equal;        /* the second pass weighs all entries by 1 */
} plim__choosing_t;

/* Whether the draw from a list of that length depends on the column. */
bool plim__choose_needs(plim__choice_t choice, const plim__hop_t *hop, int64_t degree);

/* Begins a draw: the first five fields and `positions` are set, the others 0. Takes the values of
 * entries [first, first + count). Returns how many of them are valid: a weight must be finite and
 * not negative. */
int64_t plim__choose(plim__choosing_t *choosing, const void *values, int64_t first, int64_t count);

/* After all values: whether they must be given again, to plim__choose_again. */
bool plim__choose_twice(plim__choosing_t *choosing);
void plim__choose_again(plim__choosing_t *choosing, const void *values, int64_t first,
                        int64_t count);

/* Writes the positions, and returns their number. */
int64_t plim__choose_end(plim__choosing_t *choosing);

#endif
