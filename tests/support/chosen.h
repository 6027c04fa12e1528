/* Draws that a column decides, by the words of source/choose.h and nothing else. */
#ifndef PLIM_TESTS_CHOSEN_H
#define PLIM_TESTS_CHOSEN_H

#include "source/choose.h"

/* The positions drawn from a list of these values (float, or int64); returns their number. */
int64_t test_chosen(plim__choice_t choice, const plim__hop_t *hop, int64_t owner,
                    const void *values, int64_t degree, int64_t until, int64_t *positions_out);

#endif
