/*
 * The reference level: attention in double, one row and one slot after the other. The specification of the other levels.
 *
 * It follows the paper: attend is partial_attn of one chunk joined to what the row has so far, merge is attn_reduce; O, m and
 * n of the paper are the state's o, max and sum. Unlike the paper it works in base 2.
 */
#include "kernels.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkattn/cache/layout.h"
#include "head_sizes.h"

enum { MAX_CHUNK = 256 };

/* A row's state: max and sum, then o [d_v]. */
typedef struct state {
    double max, sum;
    double pad[6];
    double o[];
} state;

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t query_bytes(int32_t d_k) { return round_up((size_t)d_k * sizeof(double)); }
static size_t state_bytes(int32_t d_v) { return round_up(sizeof(state) + (size_t)d_v * sizeof(double)); }
static size_t scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) {
    (void)d_k, (void)d_v, (void)c;
    return 64;
}

static state *state_at(void *states, int32_t row, int32_t d_v) {
    return (state *)((char *)states + (size_t)row * state_bytes(d_v));
}

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    for (int32_t r = 0; r < n_rows; r++) {
        double *to = (double *)((char *)packed + (size_t)r * query_bytes(d_k));
        for (int32_t i = 0; i < d_k; i++) to[i] = (double)q[r * row_stride + i] * scale_log2;
    }
}

static void init(void *states, int32_t n_rows, int32_t d_v) {
    memset(states, 0, (size_t)n_rows * state_bytes(d_v));
    for (int32_t r = 0; r < n_rows; r++) state_at(states, r, d_v)->max = -INFINITY;
}

/* Element of a tile of f32, f16 or bf16: `line` of `width` elements, `at` in it; layout.h draws them. */
static double element(const void *tile, cattn_type type, int32_t line, int32_t width, int32_t at) {
    if (type == CATTN_F32) return ((const float *)tile)[line * width + at];
    const uint16_t *half = tile;
    if (type == CATTN_F16) return ca_f32_from_f16(half[line * width + at]);
    return ca_f32_from_bf16(half[(line / 2 * width + at) * 2 + line % 2]);
}

static double scale_of(const void *tile, int32_t d, int32_t c, int32_t slot) {
    return ((const float *)((const char *)tile + ca_layout_scales(d, c)))[slot];
}

/* Dimension i of the token in a slot. In an open group line and slot of a word are exchanged within its block. */
static double key(const ca_tile *t, cattn_type type, int32_t slot, int32_t i) {
    const int32_t per = (int32_t)ca_type_neighbours(type), word = i / per,
                  together = t->d_k / per / CA_SLOT_GROUP * CA_SLOT_GROUP;
    const bool open = type != CATTN_F16 && (t->open & ca_slot_group_bit(slot)) && word < together;
    const int32_t turned = open ? slot % CA_SLOT_GROUP - word % CA_SLOT_GROUP : 0;
    const int32_t line = word + turned, at = slot - turned;
    if (type != CATTN_I8) return element(t->k, type, line * per + i % per, t->c, at);
    const int n = ((const uint8_t *)t->k)[(line * t->c + at) * 4 + i % 4] - 128;
    return n * scale_of(t->k, t->d_k, t->c, slot);
}
static double value(const ca_tile *t, cattn_type type, int32_t slot, int32_t i) {
    if (type != CATTN_I8) return element(t->v, type, slot, t->d_v, i);
    const int8_t n = ((const int8_t *)t->v)[(slot / 4 * t->d_v + i) * 4 + slot % 4];
    return (double)n * scale_of(t->v, t->d_v, t->c, slot);
}

/* Whether a row sees a slot among its first n_seen, and its score there after the options. */
static bool sees(const ca_tile_options *o, int32_t row, int32_t slot) {
    return !o || !o->n_hidden || slot >= o->n_hidden[row] || slot < o->n_sink_slots;
}
static double adjust(const ca_tile_options *o, int32_t row, int32_t slot, double s) {
    if (o && o->softcap > 0) s = o->softcap * tanh(s / o->softcap);
    return o && o->slopes ? s + o->slopes[row] * ((double)o->distances[row] + slot) : s;
}

/* Update a row's state by the first n > 0 slots of a chunk. */
static void attend_row(const ca_tile *t, cattn_type type, const double *q, int32_t row, state *st, int32_t n) {
    double p[MAX_CHUNK], max = st->max;
    for (int32_t slot = 0; slot < n; slot++) {
        double s = 0;
        for (int32_t i = 0; i < t->d_k; i++) s += q[i] * key(t, type, slot, i);
        p[slot] = s = adjust(t->options, row, slot, s);
        if (s > max && sees(t->options, row, slot)) max = s;
    }

    const double scale = st->max == max ? 1 : exp2(st->max - max);
    st->max = max;
    st->sum *= scale;
    for (int32_t i = 0; i < t->d_v; i++) st->o[i] *= scale;

    for (int32_t slot = 0; slot < n; slot++) {
        if (!sees(t->options, row, slot)) continue;
        p[slot] = exp2(p[slot] - max);
        st->sum += p[slot];
        for (int32_t i = 0; i < t->d_v; i++) st->o[i] += p[slot] * value(t, type, slot, i);
    }
}

static void attend(const ca_tile *t, cattn_type type) {
    for (int32_t r = 0; r < t->n_rows; r++) {
        const double *q = (const double *)((const char *)t->q + (size_t)r * query_bytes(t->d_k));
        const int32_t n = t->n_seen ? t->n_seen[r] : t->c;
        if (n > 0) attend_row(t, type, q, r, state_at(t->state, r, t->d_v), n);
    }
}
static void attend_f32(const ca_tile *t) { attend(t, CATTN_F32); }
static void attend_f16(const ca_tile *t) { attend(t, CATTN_F16); }
static void attend_bf16(const ca_tile *t) { attend(t, CATTN_BF16); }
static void attend_i8(const ca_tile *t) { attend(t, CATTN_I8); }

static void merge(const void *const *states, int32_t n_states, int32_t d_v, float sink, float *out, float *lse) {
    const state *const *st = (const state *const *)states;
    double max = sink, sum = 0;
    for (int32_t k = 0; k < n_states; k++)
        if (st[k]->max > max) max = st[k]->max;
    for (int32_t k = 0; k < n_states; k++)
        if (st[k]->sum != 0) sum += st[k]->sum * exp2(st[k]->max - max);
    if (sink > -INFINITY) sum += exp2(sink - max);
    for (int32_t i = 0; i < d_v; i++) {
        double o = 0;
        for (int32_t k = 0; k < n_states; k++)
            if (st[k]->sum != 0) o += st[k]->o[i] * exp2(st[k]->max - max);
        out[i] = (float)(sum == 0 ? 0 : o / sum) + 0.0f;
    }
    if (lse) *lse = (float)(max + log2(sum));
}

static void widen(cattn_type type, const void *from, int32_t n, float *to) {
    const uint16_t *halves = from;
    for (int32_t i = 0; i < n; i++) to[i] = type == CATTN_BF16 ? ca_f32_from_bf16(halves[i]) : ca_f32_from_f16(halves[i]);
}

/* The f32 row at an element of rows: themselves, or widened to `room`. */
static const float *row_at(const ca_write *w, const void *rows, ptrdiff_t element, int32_t d, float *room) {
    if (w->type == CATTN_F32) return (const float *)rows + element;
    widen(w->type, (const uint16_t *)rows + element, d, room);
    return room;
}

static void write_tokens(const ca_write *w, cattn_type type) {
    ca_layout l;
    ca_layout_init(&l, type, w->d_k, w->d_v, w->c);
    for (int32_t i = 0; i < w->n; i++) {
        float room[2][CA_MAX_HEAD_SIZE];
        ca_layout_write(&l, w->k_tile, w->v_tile, w->open, w->slot + i, row_at(w, w->k, i * w->k_stride, w->d_k, room[0]),
                        row_at(w, w->v, i * w->v_stride, w->d_v, room[1]));
    }
}
static void write_f32(const ca_write *w) { write_tokens(w, CATTN_F32); }
static void write_f16(const ca_write *w) { write_tokens(w, CATTN_F16); }
static void write_bf16(const ca_write *w) { write_tokens(w, CATTN_BF16); }
static void write_i8(const ca_write *w) { write_tokens(w, CATTN_I8); }

static void narrow(cattn_type type, const float *from, int32_t n, void *to) {
    uint16_t *halves = to;
    for (int32_t i = 0; i < n; i++) halves[i] = type == CATTN_BF16 ? ca_bf16_from_f32(from[i]) : ca_f16_from_f32(from[i]);
}

#define TABLE(type, attend_type, write_type)                                                                                   \
    {                                                                                                                          \
        "ref", type, 96, 1, 0, query_bytes, state_bytes, scratch_bytes, pack_query, init, attend_type, merge, write_type,      \
            widen, narrow, NULL                                                                                                \
    }
const ca_kernel ca_kernels_ref[CA_N_TYPES] = {
    TABLE(CATTN_F32, attend_f32, write_f32),
    TABLE(CATTN_F16, attend_f16, write_f16),
    TABLE(CATTN_BF16, attend_bf16, write_bf16),
    TABLE(CATTN_I8, attend_i8, write_i8),
};
