#include "sample/hazard.h"

#include "base/exact_math.h"

double plim__hazard_of(double chance)
{
    static const double odd[] = {1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                 1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double whole = 0;
    double rest = 1 - chance;
    if (chance > 0.5) {
        int exponent;
        rest = frexp(rest, &exponent);
        whole = -exponent * 0.69314718055994530942;
        chance = 1 - rest;
    }
    /* -ln(rest) = 2 artanh t, |t| ≤ 1/3 */
    double t = chance / (1 + rest);
    double square = t * t;
    double sum = 1.0 / 19;
    for (int i = 0; i < 9; i++)
        sum = sum * square + odd[i];
    return whole + 2 * t * sum;
}

void plim__hazard_chances(float *chances_out)
{
    for (int code = 0; code < PLIM__HAZARD_CODES; code++) {
        double hazard = plim__hazard_decode((uint16_t)code) / PLIM__HAZARD_ONE;
        double chance = 1 - plim__exp(-hazard);
        chances_out[code] = (float)(chance < PLIM__CHANCE_MAX ? chance : PLIM__CHANCE_MAX);
    }
}

double plim__hazard_drawn(int64_t fanout, bool replace, int64_t degree)
{
    if (fanout < 0 || degree == 0)
        return 1;
    if (!replace)
        return degree <= fanout ? 1 : (double)fanout / (double)degree;
    double missed = 1;
    double base = 1 - 1 / (double)degree;
    for (int64_t left = fanout; left > 0; left /= 2, base *= base)
        if (left % 2 != 0)
            missed *= base;
    return 1 - missed;
}
