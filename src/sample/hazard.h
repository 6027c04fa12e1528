/*
 * Probabilities as hazards: the hazard of a probability q is -ln(1 - q). The probability that any
 * of several independent events happens has the sum of their hazards. A hazard is a 32-bit
 * fixed-point number, so that sums do not depend on the order of addition; it is stored as a 16-bit
 * code, exact to one part in 4,096.
 */
#ifndef PLIM_SAMPLE_HAZARD_H
#define PLIM_SAMPLE_HAZARD_H

#include <stdbool.h>
#include <stdint.h>

#define PLIM__HAZARD_ONE ((double)(1 << 28))
#define PLIM__HAZARD_MAX 3721305590u /* 20 ln 2: a probability of 1 - 2^-20, treated as certain */
#define PLIM__CHANCE_MAX (1 - 0x1p-20)
#define PLIM__HAZARD_CODES 44509 /* one more than the code of PLIM__HAZARD_MAX */

/* Codes have the order of hazards. Up to 4,095 the code is the hazard; above that, 2,048 codes
 * represent each doubling: the leading 12 bits and the number of bits below them. */
static inline uint16_t plim__hazard_encode(uint32_t hazard)
{
    if (hazard < 4096)
        return (uint16_t)hazard;
    int shift = 20 - __builtin_clz(hazard);
    return (uint16_t)((uint32_t)shift * 2048 + (hazard >> shift));
}

/* The midpoint of the hazards with this code. */
static inline uint32_t plim__hazard_decode(uint16_t code)
{
    if (code < 4096)
        return code;
    int shift = code / 2048 - 1;
    uint64_t middle = ((uint64_t)(code - shift * 2048) << shift) + ((uint64_t)1 << shift) / 2;
    return middle < PLIM__HAZARD_MAX ? (uint32_t)middle : PLIM__HAZARD_MAX;
}

/* -ln(1 - chance) for 0 ≤ chance ≤ PLIM__CHANCE_MAX, to ten digits, the same on every machine. */
double plim__hazard_of(double chance);

/* Computes chances_out[code] for every code. (PLIM__HAZARD_CODES) */
void plim__hazard_chances(float *chances_out);

/* The probability that a given entry of a list of that length is drawn; fan-out -1: all. */
double plim__hazard_drawn(int64_t fanout, bool replace, int64_t degree);

#endif
