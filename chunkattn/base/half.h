/*
 * f16 and bf16 conversion, scalar, exact, round to nearest even; NaN stays NaN. The result is the same in any floating-point
 * mode that rounds to nearest, also where denormals are zero (fp.h).
 */
#ifndef CHUNKATTN_BASE_HALF_H
#define CHUNKATTN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ca_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float ca_f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float ca_f32_from_bf16(uint16_t h) { return ca_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t ca_bf16_from_f32(float x) {
    uint32_t u = ca_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40); /* rounding could turn NaN into infinity */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float ca_f32_from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) return ca_f32_from_bits(sign | 0x7f800000u | (mag & 0x3ff) << 13);
    if (mag < 0x400) return ca_f32_from_bits(sign | ca_f32_bits((float)mag * 0x1p-24f)); /* subnormal, or zero */
    return ca_f32_from_bits(sign | ((mag << 13) + (112u << 23)));                        /* 112: 127 - 15, the biases */
}

static inline uint16_t ca_f16_from_f32(float x) {
    const uint32_t u = ca_f32_bits(x), sign = u >> 16 & 0x8000, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000u) /* subnormal: adding 0.5 puts the rounded bits at the bottom */
        return (uint16_t)(sign | (ca_f32_bits(ca_f32_from_bits(mag) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (mag + 0xfffu + (mag >> 13 & 1) - 0x38000000u) >> 13);
}

#endif
