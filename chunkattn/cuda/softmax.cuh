/*
 * Scores, weights and visibility of 16 slots: what decode and prefill compute alike, element by element.
 *
 * A row goes through a quarter of each chunk, 16 slots at a time, with M and l of its own:
 *
 *   x    = s scale (base 2), or what soft-cap and ALiBi make of it; -infinity for slots that the row does not see
 *   M    = a multiple of 32 (f16: 8), not below any x so far; raised at most once in 16 slots, O and l go along
 *   p    = 2^(x - M), rounded to K/V's type (f16: 2^(x - M + 14), since its weights end at 2^-24)
 *   l[i] += p[slot i], then p[slot i + 8], of the rounded weights: i = 0 .. 7
 *
 * l of a quarter is ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)).
 *
 * With e4m3 (e4m3.cuh) the type is f16, M is not below x + t, where 2^t bounds 2^8 times the scale of the slot's V, the weights
 * are multiplied by 2^8 times that scale before they are rounded, and l sums them before both.
 */
#ifndef CHUNKATTN_CUDA_SOFTMAX_CUH
#define CHUNKATTN_CUDA_SOFTMAX_CUH

#include "primitives.h"
#include "work_item.h"

enum { STEP_SLOTS = CA_CUDA_CHUNK / CA_CUDA_QUARTERS };
static_assert(STEP_SLOTS == 1 << CA_CUDA_LOG2_QUARTER, "work_item.h: slots of a quarter");

/* M of a row that has seen nothing: below every score, and a difference of two is not NaN. */
constexpr float lowest_m = -3.402823466e+38f;

template <element E> constexpr float m_step = E == BF16 ? 32.0f : 8.0f;
template <element E> constexpr float weight_exponent = E == BF16 ? 0.0f : 14.0f;

/* The multiple of M's step that is not below x. */
template <element E> DEV float m_above(float x) { return mul_rn(ceil_f32(mul_rn(x, 1 / m_step<E>)), m_step<E>); }

template <element E> DEV float weight(float x, float scale, float m) {
    return ex2(fma_rn(x, scale, add_rn(weight_exponent<E>, -m)));
}

/* ---- Visibility ---- */

DEV u32 low_bits(int n) { return n <= 0 ? 0 : n >= STEP_SLOTS ? (1u << STEP_SLOTS) - 1 : (1u << n) - 1; }

/* Which of the 16 slots from position `start` on a row sees: bit i is slot i. */
DEV u32 seen_slots(const ca_cuda_attend_args &a, int position, int start) {
    const u32 seen = low_bits(position + 1 - start);
    if (a.window == 0) return seen;
    return seen & (~low_bits(position + 1 - a.window - start) | low_bits(a.n_sink_tokens - start));
}

/* Two bits as a mask of two 16-bit elements. */
DEV u32 element_mask(u32 bits) { return (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0); }

/* The same for the slots 2 t, 2 t + 1 (low) and 2 t + 8, 2 t + 9 (high) of 16: those of a fragment of V, t = lane % 4. */
DEV u32 low_slots(u32 slots, int lane) { return element_mask(slots >> lane % 4 * 2); }
DEV u32 high_slots(u32 slots, int lane) { return element_mask(slots >> (lane % 4 * 2 + 8)); }

/* Whether one of two elements is infinite or NaN. */
template <element E> DEV bool not_finite(u32 two) {
    constexpr u32 exponent = E == BF16 ? 0x7f80 : 0x7c00;
    return (two & exponent) == exponent || (two >> 16 & exponent) == exponent;
}

/* ---- Soft-cap and ALiBi ---- */

DEV bool has_options(const ca_cuda_attend_args &a) { return a.softcap > 0 || a.slopes; }

/* c tanh(x / c), tanh y = 1 - 2 / (e^(2 y) + 1). */
DEV float cap(float x, float c) {
    const float e = ex2(mul_rn(mul_rn(x, rcp_rn(c)), 2 * 1.442695041f));
    return mul_rn(c, fma_rn(-2, rcp_rn(add_rn(e, 1)), 1));
}

/* A raw score in base 2, with the options. distance: the slot's position less the row's. */
DEV float adjust(const ca_cuda_attend_args &a, float s, float slope, int distance) {
    float x = mul_rn(s, a.scale_log2);
    if (a.softcap > 0) x = cap(x, a.softcap);
    return add_rn(x, mul_rn(slope, (float)distance));
}

/* The position of the first slot of a quarter of the list's chunk i. */
DEV int start_of_quarter(const ca_work_item &work, int i, int quarter) {
    const int chunk = work.segment * CA_CUDA_SEGMENT_CHUNKS + (int)(work.order >> 4 * i & 15);
    return chunk * CA_CUDA_CHUNK + quarter * STEP_SLOTS;
}

#endif
