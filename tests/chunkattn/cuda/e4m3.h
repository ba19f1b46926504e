/* The rule of e4m3 (chunkattn.h, CATTN_E4M3), written down a second time for tests, in C and C++. */
#ifndef TESTS_CHUNKATTN_CUDA_E4M3_H
#define TESTS_CHUNKATTN_CUDA_E4M3_H

#include <math.h>
#include <stdint.h>

/* The value of 8 bits: a sign, 4 bits of exponent, 3 of mantissa. */
static inline double e4m3_value(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

/* The bits of the value nearest to y, ties to even, at most 448. */
static inline uint8_t nearest_e4m3(double y) {
    const int exponent = y == 0 || ilogb(y) < -6 ? -6 : ilogb(y);
    const int code = (exponent + 7) * 8 + (int)nearbyint(ldexp(fabs(y), 3 - exponent)) - 8;
    return (uint8_t)((code < 0x7e ? code : 0x7e) | (signbit(y) ? 0x80 : 0));
}

/* The scale of a token's K or V of one head, x [d]: NaN if an element is not finite; 0: all elements are stored as 0. */
static inline float e4m3_scale(const float *x, int d) {
    float most = 0;
    for (int i = 0; i < d; i++) {
        if (!isfinite(x[i])) return NAN;
        most = fmaxf(most, fabsf(x[i]));
    }
    return most / 448 < 0x1p-126f ? 0 : most / 448;
}

#endif
