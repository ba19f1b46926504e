/* Making the random cases of kcheck: queries, K and V, what each row sees, and the options. */
#include "case.h"

#include <math.h>
#include <string.h>

#include "chunkattn/base/half.h"

static float round_to(cattn_type type, float x) {
    if (type == CATTN_F16) return ca_f32_from_f16(ca_f16_from_f32(x));
    if (type == CATTN_BF16) return ca_f32_from_bf16(ca_bf16_from_f32(x));
    return x;
}

static float make_value(enum values kind, cattn_type type, rng *r) {
    const float x = rng_float(r);
    switch (kind) {
    case VALUES_TINY: return x * (type == CATTN_F16 ? 0x1p-20f : 0x1p-115f);
    case VALUES_SPARSE: return rng_one_in(r, 3) ? x : rng_one_in(r, 2) ? 0.0f * x : x * 0x1p-130f;
    case VALUES_MIXED: return ldexpf(x, rng_below(r, 25) - 12);
    case VALUES_EVEN: return rng_one_in(r, 2) ? 127.0f / 128 : x < 0 ? -0.5f : 0.25f; /* int8's scale is a power of two */
    default: return x;
    }
}

/* The size of a slot's scores, relative to that of a random q times a random k of unit size. */
static float make_score_size(enum scores kind, int32_t chunk, rng *r) {
    switch (kind) {
    case SCORES_1E4: return 1e4f;
    case SCORES_2_300: return rng_one_in(r, 3) ? 300 : 3;
    case SCORES_ZERO: return 0; /* all weights are 1, up to rounding */
    case SCORES_RISING: return 10.0f * (float)(1 + chunk * chunk) * (rng_float(r) + 1);
    default: return 3;
    }
}

static int32_t make_n_seen(int32_t c, int32_t chunk_kind, rng *r) {
    switch (chunk_kind) {
    case 0: return c;
    case 1: return rng_below(r, c + 1);
    case 2: return rng_below(r, 3); /* 0, 1 or 2 */
    default: return rng_one_in(r, 4) ? 0 : c - rng_below(r, 3);
    }
}

/*
 * Each option is on in a third of the cases. Windows begin at every offset; often only one slot, or only the sink slots, remain
 * visible. Caps are far below or far above the scores. Slopes make the weights of distant chunks underflow, or dominate.
 */
static void make_options(test_case *t, rng *r) {
    const int32_t c = t->layout.c, end = t->n_chunks * c + rng_below(r, 1000);
    t->window = rng_one_in(r, 3);
    t->alibi = rng_one_in(r, 3);
    t->sink = rng_one_in(r, 3);
    t->softcap = rng_one_in(r, 3) ? ldexpf(1, rng_below(r, 24) - 8) * (2 + rng_float(r)) : 0;
    const int32_t steep = rng_below(r, 4);
    for (int32_t row = 0; row < t->n_rows; row++) {
        t->slopes[row] = t->alibi ? rng_float(r) * (steep == 0 ? 1000 : 1) : 0;
        t->sinks[row] = !t->sink || rng_one_in(r, 5) ? -INFINITY : rng_float(r) * (rng_one_in(r, 3) ? 3e4f : 8);
    }
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++) {
        t->n_sink_slots[chunk] = t->window && rng_one_in(r, 3) ? rng_below(r, c + 1) : 0;
        const int32_t edge = rng_below(r, 4);
        for (int32_t row = 0; row < t->n_rows; row++) {
            const int32_t n_seen = t->n_seen[chunk][row], last = t->n_sink_slots[chunk] > 0 ? n_seen : n_seen - 1;
            t->n_hidden[chunk][row] = !t->window || n_seen == 0 ? 0 : edge == 0 ? last : rng_below(r, last + 1);
            t->distances[chunk][row] = (float)(chunk * c - end - row);
        }
    }
}

tiles tiles_new(const ca_layout *l) { return (tiles){guard_new(l->k_bytes), guard_new(l->v_bytes)}; }
void tiles_free(tiles *x) { guard_free(x->k), guard_free(x->v); }

/* One of the two scales of a slot of int8. */
static float *k_scale(const ca_layout *l, const tiles *x, int32_t slot) {
    return (float *)(x->k + ca_layout_scales(l->d_k, l->c)) + slot;
}
static float *v_scale(const ca_layout *l, const tiles *x, int32_t slot) {
    return (float *)(x->v + ca_layout_scales(l->d_v, l->c)) + slot;
}

static void put(void *tile, cattn_type type, size_t index, float x) {
    if (type == CATTN_F32) ((float *)tile)[index] = x;
    if (type == CATTN_F16) ((uint16_t *)tile)[index] = ca_f16_from_f32(x);
    if (type == CATTN_BF16) ((uint16_t *)tile)[index] = ca_bf16_from_f32(x);
    if (type == CATTN_I8) ((uint8_t *)tile)[index] = (uint8_t)(index % 251 ^ 128);
}

/* Fill a chunk with NaN and infinities. With int8 the bytes are arbitrary, and the scales are NaN and infinities. */
static void make_poison(test_case *t) {
    static const float poison[3] = {NAN, INFINITY, -INFINITY};
    const ca_layout *l = &t->layout;
    t->poison = tiles_new(l);
    for (int32_t slot = 0; slot < l->c; slot++) {
        for (int32_t i = 0; i < l->d_k; i++)
            put(t->poison.k, l->type, ca_layout_k_index(l, 0, slot, i), poison[(slot + i) % 3]);
        for (int32_t i = 0; i < l->d_v; i++) put(t->poison.v, l->type, ca_layout_v_index(l, slot, i), poison[(slot + i) % 3]);
        if (l->type != CATTN_I8) continue;
        *k_scale(l, &t->poison, slot) = poison[slot % 3];
        *v_scale(l, &t->poison, slot) = poison[(slot + 1) % 3];
    }
}

/* Store one token in a chunk, and keep its values as stored. */
static void put_token(const test_case *t, int32_t chunk, int32_t slot, const float *k, const float *v) {
    const ca_layout *l = &t->layout;
    const tiles *x = &t->packed[chunk];
    double *k_stored = t->k[chunk] + slot * l->d_k, *v_stored = t->v[chunk] + slot * l->d_v;
    if (l->type == CATTN_I8) ca_layout_write(l, x->k, x->v, 0, slot, k, v);
    for (int32_t i = 0; i < l->d_k; i++) {
        const size_t at = ca_layout_k_index(l, 0, slot, i);
        k_stored[i] = l->type == CATTN_I8 ? (((uint8_t *)x->k)[at] - 128) * (double)*k_scale(l, x, slot) : k[i];
        if (l->type != CATTN_I8) put(x->k, l->type, at, k[i]);
    }
    for (int32_t i = 0; i < l->d_v; i++) {
        const size_t at = ca_layout_v_index(l, slot, i);
        v_stored[i] = l->type == CATTN_I8 ? ((int8_t *)x->v)[at] * (double)*v_scale(l, x, slot) : v[i];
        if (l->type != CATTN_I8) put(x->v, l->type, at, v[i]);
    }
}

/* Copy slots [begin, end), begin even, from one physical chunk to another. */
void copy_slots(const ca_layout *l, const tiles *to, const tiles *from, int32_t begin, int32_t end) {
    const size_t size = ca_type_size(l->type);
    const int32_t neighbours = (int32_t)ca_type_neighbours(l->type);
    for (int32_t i = 0; i < l->d_k; i += neighbours) {
        const size_t at = ca_layout_k_index(l, 0, begin, i) * size;
        memcpy(to->k + at, from->k + at, (size_t)(end - begin) * (size_t)neighbours * size);
    }
    for (int32_t slot = begin; slot < end && l->type == CATTN_I8; slot++) {
        *k_scale(l, to, slot) = *k_scale(l, from, slot);
        *v_scale(l, to, slot) = *v_scale(l, from, slot);
    }
    for (int32_t slot = begin; slot < end; slot++)
        for (int32_t i = 0; i < l->d_v; i++) {
            const size_t at = ca_layout_v_index(l, slot, i) * size;
            memcpy(to->v + at, from->v + at, size);
        }
}

/* A number in [-1, 1): any number, or one that does not change when q is rounded to bf16 or, within its row, to int8. */
static float make_q(const test_case *t, int32_t i, rng *r) {
    const float x = rng_float(r);
    if (!t->exact_q) return x;
    if (t->layout.type != CATTN_I8) return round_to(CATTN_BF16, x);
    return i == 0 ? 127.0f / 128 : (float)(int32_t)(x * 127) / 128;
}

void make_case(test_case *t, rng *r) {
    const int32_t d_k = t->layout.d_k, d_v = t->layout.d_v, c = t->layout.c;
    const cattn_type type = t->layout.type;
    t->scale = t->exact_q ? 1 : 0.7f;
    t->q = guard_new((size_t)t->n_rows * (size_t)d_k * sizeof(float));
    for (int32_t i = 0; i < t->n_rows * d_k; i++) {
        t->q[i] = make_q(t, i % d_k, r);
        if (t->scores == SCORES_NONFINITE && rng_one_in(r, 40 * d_k)) t->q[i] = rng_one_in(r, 2) ? NAN : INFINITY;
    }
    make_poison(t);
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++) {
        t->packed[chunk] = tiles_new(&t->layout);
        t->k[chunk] = guard_new((size_t)c * (size_t)d_k * sizeof(double));
        t->v[chunk] = guard_new((size_t)c * (size_t)d_v * sizeof(double));
        for (int32_t slot = 0; slot < c; slot++) {
            /* the sum of d products of two numbers uniform in [-1, 1) has a deviation of sqrt(d) / 3 */
            const float size = make_score_size(t->scores, chunk, r) * 3 / sqrtf((float)d_k);
            float k[MAX_DIM], v[MAX_DIM];
            for (int32_t i = 0; i < d_k; i++) k[i] = round_to(type, size * rng_float(r));
            for (int32_t i = 0; i < d_v; i++) v[i] = round_to(type, make_value(t->values, type, r));
            if (t->scores == SCORES_NONFINITE && rng_one_in(r, 3 * c)) {
                const int32_t where = rng_below(r, 3); /* in K, in V, in both */
                if (where != 1) k[rng_below(r, d_k)] = rng_one_in(r, 2) ? NAN : -INFINITY;
                if (where != 0) v[rng_below(r, d_v)] = rng_one_in(r, 2) ? NAN : INFINITY;
            }
            put_token(t, chunk, slot, k, v);
        }
        const int32_t kind = rng_below(r, 5), causal_from = rng_below(r, c);
        for (int32_t row = 0; row < t->n_rows; row++) {
            const int32_t causal = causal_from + row < c ? causal_from + row : c;
            t->n_seen[chunk][row] = kind == 4 ? causal : make_n_seen(c, kind, r);
        }
    }
    make_options(t, r);
}

void free_case(test_case *t) {
    guard_free(t->q);
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++) {
        guard_free(t->k[chunk]), guard_free(t->v[chunk]);
        tiles_free(&t->packed[chunk]);
    }
    tiles_free(&t->poison);
}
