/* Writing K and V: each level leaves the bits of ca_layout_write, in its slots and nowhere else. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fp.h"
#include "base/half.h"
#include "kcheck.h"

enum { CASES = 3000 };

/* Any float in one of four, all kinds of NaN and denormals among them; in the others what K and V are like. */
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

static char *make_tile(size_t bytes, rng *r) {
    char *tile = guard_new(bytes);
    for (size_t i = 0; i < bytes; i++) tile[i] = (char)rng_u32(r);
    return tile;
}

static char *copy_tile(const char *tile, size_t bytes) { return memcpy(guard_new(bytes), tile, bytes); }

static bool check_case(const ca_kernel *kernel, rng *r) {
    const ca_layout l =
        layout_of(kernel->kv_type, head_dims[rng_below(r, 5)], head_dims[rng_below(r, 5)], 16 << rng_below(r, 5));
    const int32_t slot = rng_below(r, l.c), most = rng_one_in(r, 2) ? 1 : l.c - slot, n = 1 + rng_below(r, most);
    const ptrdiff_t k_stride = l.d_k + rng_below(r, 3) * 7, v_stride = l.d_v + rng_below(r, 3) * 7;
    float *k = make_rows(n, l.d_k, k_stride, r), *v = make_rows(n, l.d_v, v_stride, r);
    char *want_k = make_tile(l.k_bytes, r), *want_v = make_tile(l.v_bytes, r);
    char *got_k = copy_tile(want_k, l.k_bytes), *got_v = copy_tile(want_v, l.v_bytes);
    ca_write w = {.d_k = l.d_k,
                  .d_v = l.d_v,
                  .c = l.c,
                  .slot = slot,
                  .n = n,
                  .open = rng_u32(r),
                  .k = k,
                  .v = v,
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
    const bool inside = guard_check(got_k) && guard_check(got_v) && guard_check(k) && guard_check(v);
    if (!same || !inside)
        printf("FAILED %s %s: write, %s; d_k %d d_v %d chunk %d slots %d..%d strides %td %td\n", kernel->level,
               type_names[l.type], same ? "out of bounds" : "other bits", l.d_k, l.d_v, l.c, slot, slot + n, k_stride,
               v_stride);
    guard_free(k), guard_free(v), guard_free(want_k), guard_free(want_v), guard_free(got_k), guard_free(got_v);
    return same && inside;
}

bool check_write(const ca_kernel *kernel, uint64_t seed) {
    for (int32_t i = 0; i < CASES; i++) {
        rng r = {seed * CASES + (uint64_t)i};
        if (!check_case(kernel, &r)) return false;
    }
    return true;
}
