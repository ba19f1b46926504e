/*
 * K and V in e4m3, with a scale for each token and KV head: where they lie in a tile, and how kernels read them.
 *
 * A tile has one line of d bytes for each slot, and behind the lines the slots' scales, f32 [64]: a value is element x scale. A
 * line consists of units of 16 bytes, each of 16 dimensions, and a unit of eight pairs of 16 bits: pair i has the unit's
 * dimensions i and i + 8. Their bits (s: sign, e: exponent, m: mantissa) are arranged so that one mask makes an f16 of i + 8:
 *
 *   bit    15        14     13 12 11 10   9 8 7        6 5 4 3   2 1 0
 *        | s i + 8 | s i  | e of i + 8  | m of i + 8 | e of i  | m of i |
 *
 * ldmatrix, which takes a pair for an element, then gives a lane two pairs: their dimensions i are the two elements of one
 * register of mma, their dimensions i + 8 those of another. That holds for K (plain) and for V (transposed), as either operand.
 *
 * The units of a line are exchanged among themselves, so that one unit of 8 consecutive lines is in 8 different groups of
 * banks:
 *
 *   unit u of line s is stored at   u ^ (s / 2 % 4)   for d = 64
 *                                   u ^ (s / 4 % 2)   for d = 96
 *                                   u ^ (s % 8)       for d = 128 and 256
 *
 * Any 16 lines that begin at a multiple of 16 are contiguous, and so are their scales.
 *
 * Elements become f16 by shifts and masks: exact, the same on every device, and without the conversion that only sm_89 and
 * later have. The exponent is moved and its bias left as it is, so the f16 is 2^-8 of the value; kernels multiply the scales by
 * 2^8.
 */
#ifndef CHUNKATTN_CUDA_E4M3_CUH
#define CHUNKATTN_CUDA_E4M3_CUH

#include "softmax.cuh"
#include "tile.cuh"

/* ---- Tiles ---- */

/* Bytes of a tile of D dimensions: one chunk of one KV head, K or V, its lines and its scales. */
template <int D> constexpr u32 e4m3_tile_bytes = CA_CUDA_CHUNK *(D + (int)sizeof(float));

/* Offset of a unit of a line. */
template <int D> DEV u32 e4m3_unit_offset(u32 line, u32 unit) {
    const u32 exchange = D == 64 ? line / 2 % 4 : D == 96 ? line / 4 % 2 : line % 8;
    return line * D + ((unit ^ exchange) << 4);
}

/*
 * The same for many units of one line. `lines` is where line 0 lies, a multiple of 128. e4m3_line_at returns the place of
 * unit lane_unit, 0 or 1; e4m3_unit_at computes from it the place of unit 2 pair + lane_unit.
 */
template <int D> DEV u32 e4m3_line_at(u32 lines, u32 line, u32 lane_unit) {
    return lines + e4m3_unit_offset<D>(line, lane_unit);
}
template <int D> DEV u32 e4m3_unit_at(u32 line, u32 pair) {
    return D == 96 ? line + pair * 32 : (line ^ pair % 4 * 32) + pair / 4 * 128;
}

/* ---- Values ---- */

/* The dimensions i (low) and i + 8 (high) of two pairs as f16, 2^-8 of their values. The code of NaN, which is never stored,
 * would be read as 480. */
DEV u32 low_dims(u32 pairs) { return (pairs << 1 & 0x80008000u) | (pairs << 7 & 0x3f803f80u); }
DEV u32 high_dims(u32 pairs) { return pairs & 0xbf80bf80u; }

/* A scale in shared memory, for the values above. */
DEV float e4m3_scale(float scale) { return mul_rn(scale, 256); }

/*
 * V's scale multiplies the weights, so M takes it into account: M is not below x + top, where 2^top bounds the scale. So no
 * scaled weight exceeds 1, whatever the scales of different tokens are. The exponent of f32 is such a bound. It is at least
 * -64, so that l does not overflow where V is close to 0. It is also -64 for scales that are not finite.
 */
DEV float top_of_scale(float by) {
    const int top = (int)(as_bits(by) >> 23 & 0xff) - 126;
    return (float)(top < -64 || top > 128 ? -64 : top);
}

/* A weight times V's scale. A hidden slot's scale may be anything, NaN included. */
DEV float scaled_weight(float x, float w, float by) { return x == -INFINITY ? 0 : mul_rn(w, by); }

/*
 * Pack the weights of two scores, for M of m0 and m1, as an operand of the product with V. by: V's scales, in e4m3. l sums what
 * `first` and `second` get: the rounded weights, in e4m3 those before scaling and rounding.
 */
template <element E, bool IN_E4M3>
DEV u32 pack_weights(const float (&x)[2], float scale, float m0, float m1, float by0, float by1, float &first, float &second) {
    first = weight<E>(x[0], scale, m0), second = weight<E>(x[1], scale, m1);
    if constexpr (IN_E4M3) return pack<E>(scaled_weight(x[0], first, by0), scaled_weight(x[1], second, by1));
    const u32 both = pack<E>(first, second);
    first = low_half<E>(both), second = high_half<E>(both);
    return both;
}

/* ---- Rounding ---- */

/*
 * The scale of a line, from the bits of its largest |x|: |x| / 448, correctly rounded; 0 where that is below the smallest
 * normal number, NaN where some x is infinite or NaN.
 */
DEV float scale_of_line(u32 most) {
    if (most >= 0x7f800000u) return as_float(0x7fc00000u);
    constexpr float inverse = 1 / 448.0f;
    const float x = as_float(most), near = mul_rn(x, inverse), scale = fma_rn(fma_rn(near, -448, x), inverse, near);
    return scale < 1.17549435e-38f ? 0 : scale;
}

/*
 * Exponent and mantissa of the e4m3 nearest to y, ties to even; beyond 448 it is 448. The bits of an f32 without its last 20
 * are those of an e4m3 with another bias. Below 2^-6 the last place is 2^-9, as that of |y| + 2^14.
 */
DEV u32 round_to_e4m3(float y) {
    const u32 size = as_bits(y) & 0x7fffffffu;
    const u32 normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
    const u32 small = as_bits(add_rn(as_float(size), 16384)) - as_bits(16384.0f);
    const u32 code = size < as_bits(0.015625f) ? small : normal;
    return code < 0x7e ? code : 0x7e;
}

DEV u32 make_pair(float low, float high) {
    const u32 signs = (as_bits(high) >> 16 & 0x8000) | (as_bits(low) >> 17 & 0x4000);
    return signs | round_to_e4m3(high) << 7 | round_to_e4m3(low);
}

/* The 16 values of a unit as its pairs. */
DEV u4 round_unit(const float (&x)[16], float scale) {
    const float inverse = scale > 0 ? rcp_rn(scale) : 0; /* 0 if the scale is 0 or NaN; the elements are 0 then */
    float y[16];
    UNROLL for (int i = 0; i < 16; i++) y[i] = inverse > 0 ? mul_rn(x[i], inverse) : 0;
    u4 unit;
    UNROLL for (int i = 0; i < 4; i++) unit.v[i] = make_pair(y[2 * i], y[2 * i + 8]) | make_pair(y[2 * i + 1], y[2 * i + 9])
                                                                                           << 16;
    return unit;
}

#endif
