/*
 * Writing K and V, from f32 or from the tile's own type: each level stores the bits of ca_layout_write in the row's slots, and
 * changes nothing else. Conversions
 * between f32 and f16 or bf16: each level gives the bits of chunkattn/base/half.h, and writes nothing else.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "chunkattn/base/half.h"
#include "kcheck.h"

enum { CASES = 3000 };

/* In one of four cases any float, including NaN and denormals; otherwise a number like those of K and V. */
static float make_number(int32_t kind, rng *r) {
    const uint32_t bits = rng_u32(r);
    if (kind == 0) return ca_f32_from_bits(bits);
    if (kind == 1)
        return ca_f32_from_bits((bits & 0x807fffff) | (100 + bits % 8) << 23 | (bits >> 3 & 0xf000)); /* f16 borders */
    if (kind == 2) return rng_float(r) * 0x1p-125f;
    return rng_float(r) * 4;
}

static float *make_rows(int32_t n, int32_t d, ptrdiff_t stride, rng *r) {
    float *x = guard_new((size_t)n * (size_t)stride * sizeof *x);
    for (int32_t i = 0; i < n; i++) {
        const int32_t kind = rng_below(r, 8);
        for (int32_t k = 0; k < stride; k++) x[i * stride + k] = k < d ? make_number(kind, r) : NAN;
        if (kind == 7 && rng_one_in(r, 4)) x[i * stride + rng_below(r, d)] = rng_one_in(r, 2) ? NAN : -INFINITY;
    }
    return x;
}

/* The rows as the type's halves, which the caller frees; the floats become what these are. */
static void *to_halves(cattn_type type, float *x, size_t n) {
    uint16_t *halves = guard_new(n * sizeof *halves);
    for (size_t i = 0; i < n; i++) {
        halves[i] = type == CATTN_BF16 ? ca_bf16_from_f32(x[i]) : ca_f16_from_f32(x[i]);
        x[i] = type == CATTN_BF16 ? ca_f32_from_bf16(halves[i]) : ca_f32_from_f16(halves[i]);
    }
    return halves;
}

static char *make_tile(size_t bytes, rng *r) {
    char *tile = guard_new(bytes);
    for (size_t i = 0; i < bytes; i++) tile[i] = (char)rng_u32(r);
    return tile;
}

static char *copy_tile(const char *tile, size_t bytes) { return memcpy(guard_new(bytes), tile, bytes); }

static bool check_case(const ca_kernel *kernel, rng *r) {
    const ca_layout l = layout_of(kernel->kv_type, ca_head_sizes[rng_below(r, CA_N_HEAD_SIZES)],
                                  ca_head_sizes[rng_below(r, CA_N_HEAD_SIZES)], 16 << rng_below(r, 5));
    const int32_t slot = rng_below(r, l.c), most = rng_one_in(r, 2) ? 1 : l.c - slot, n = 1 + rng_below(r, most);
    const ptrdiff_t k_stride = l.d_k + rng_below(r, 3) * 7, v_stride = l.d_v + rng_below(r, 3) * 7;
    float *k = make_rows(n, l.d_k, k_stride, r), *v = make_rows(n, l.d_v, v_stride, r);
    const bool stored = (l.type == CATTN_F16 || l.type == CATTN_BF16) && rng_one_in(r, 2);
    void *from_k = stored ? to_halves(l.type, k, (size_t)n * (size_t)k_stride) : k;
    void *from_v = stored ? to_halves(l.type, v, (size_t)n * (size_t)v_stride) : v;
    char *want_k = make_tile(l.k_bytes, r), *want_v = make_tile(l.v_bytes, r);
    char *got_k = copy_tile(want_k, l.k_bytes), *got_v = copy_tile(want_v, l.v_bytes);
    ca_write w = {.d_k = l.d_k,
                  .d_v = l.d_v,
                  .c = l.c,
                  .slot = slot,
                  .n = n,
                  .open = rng_u32(r),
                  .type = stored ? l.type : CATTN_F32,
                  .k = from_k,
                  .v = from_v,
                  .k_stride = k_stride,
                  .v_stride = v_stride,
                  .k_tile = got_k,
                  .v_tile = got_v};
    if (rng_one_in(r, 2)) w.next_k = want_k, w.next_v = want_v, w.next_slot = rng_below(r, l.c), w.next_open = rng_u32(r);

    const unsigned mode = ca_fp_enter();
    for (int32_t i = 0; i < n; i++) ca_layout_write(&l, want_k, want_v, w.open, slot + i, k + i * k_stride, v + i * v_stride);
    kernel->write(&w);
    ca_fp_leave(mode);
    const bool same = memcmp(want_k, got_k, l.k_bytes) == 0 && memcmp(want_v, got_v, l.v_bytes) == 0;
    const bool inside = guard_check(got_k) && guard_check(got_v) && guard_check(from_k) && guard_check(from_v);
    if (!same || !inside)
        printf("FAILED %s %s: write of %s, %s; d_k %d d_v %d chunk %d slots %d..%d strides %td %td\n", kernel->level,
               type_names[l.type], type_names[w.type], same ? "out of bounds" : "other bits", l.d_k, l.d_v, l.c, slot, slot + n,
               k_stride, v_stride);
    if (stored) guard_free(from_k), guard_free(from_v);
    guard_free(k), guard_free(v), guard_free(want_k), guard_free(want_v), guard_free(got_k), guard_free(got_v);
    return same && inside;
}

/* Convert n numbers at addresses that are aligned to two bytes only: consecutive halves from first_half on, and any floats. */
static bool check_conversions(const ca_kernel *kernel, cattn_type type, uint32_t first_half, int32_t n, rng *r) {
    uint16_t *halves = (uint16_t *)guard_new((size_t)(n + 1) * sizeof *halves) + 1;
    uint16_t *narrowed = (uint16_t *)guard_new((size_t)(n + 1) * sizeof *narrowed) + 1;
    float *floats = guard_new((size_t)n * sizeof *floats), *widened = guard_new((size_t)n * sizeof *widened);
    const uint16_t before = narrowed[-1];
    const int32_t kind = rng_below(r, 4);
    for (int32_t i = 0; i < n; i++) {
        halves[i] = (uint16_t)(first_half + (uint32_t)i);
        floats[i] = make_number(kind, r);
    }
    const unsigned mode = ca_fp_enter();
    kernel->widen(type, halves, n, widened);
    kernel->narrow(type, floats, n, narrowed);
    ca_fp_leave(mode);
    bool same = narrowed[-1] == before;
    for (int32_t i = 0; i < n; i++) {
        const float wide = type == CATTN_BF16 ? ca_f32_from_bf16(halves[i]) : ca_f32_from_f16(halves[i]);
        const uint16_t narrow = type == CATTN_BF16 ? ca_bf16_from_f32(floats[i]) : ca_f16_from_f32(floats[i]);
        if (ca_f32_bits(wide) == ca_f32_bits(widened[i]) && narrow == narrowed[i]) continue;
        if (same)
            printf("%s 0x%04x is 0x%08x, must be 0x%08x; f32 0x%08x is 0x%04x, must be 0x%04x\n", type_names[type], halves[i],
                   ca_f32_bits(widened[i]), ca_f32_bits(wide), ca_f32_bits(floats[i]), narrowed[i], narrow);
        same = false;
    }
    const bool inside = guard_check(narrowed - 1) && guard_check(widened);
    if (!same || !inside) printf("FAILED %s: conversion, %s\n", kernel->level, inside ? "other bits" : "out of bounds");
    guard_free(halves - 1), guard_free(narrowed - 1), guard_free(floats), guard_free(widened);
    return same && inside;
}

static bool check_all_conversions(const ca_kernel *kernel, uint64_t seed) {
    enum { N_HALVES = 1 << 16 };
    rng r = {seed};
    for (int type = CATTN_F16; type <= CATTN_BF16; type++)
        for (int32_t first = 0, n; first < N_HALVES; first += n) {
            n = 16 * (1 + rng_below(&r, 16));
            if (!check_conversions(kernel, (cattn_type)type, (uint32_t)first, n, &r)) return false;
        }
    return true;
}

bool check_write(const ca_kernel *kernel, uint64_t seed) {
    for (int32_t i = 0; i < CASES; i++) {
        rng r = {seed * CASES + (uint64_t)i};
        if (!check_case(kernel, &r)) return false;
    }
    return check_all_conversions(kernel, seed);
}
