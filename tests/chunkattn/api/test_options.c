/*
 * Windows, sink tokens, soft-cap, sink logits and ALiBi through the public interface, compared with attention that is computed
 * by the formulas in double: two sequences with a common prefix, prefilled in pieces and decoded, at every level.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "chunkattn.h"

enum {
    LAYERS = 3,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    TOKENS = 200,
    COMMON = 90,
    PIECE = 37,
    DECODED = 25,
    MAX_ROWS = 2 * PIECE
};

static const int32_t all_windows[LAYERS] = {0, 1, 50};
static const float all_slopes[HEADS] = {0.5f, 0.03f, 0, -0.01f};
static const float all_sinks[LAYERS * HEADS] = {1, -2, -INFINITY, 6, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 30, -5, 0, 2};

/* Element k of a token's q (kind 0), k (1) or v (2) in a layer, in [-1, 1). Sequences differ from position COMMON on. */
static float number(int seq, int64_t pos, int layer, int kind, int k) {
    uint64_t z = (uint64_t)(pos < COMMON ? 0 : seq) + 16 * (uint64_t)pos + 65536 * (uint64_t)(layer * 3 + kind) +
                 0x1000000 * (uint64_t)k + 1;
    for (int i = 0; i < 2; i++) z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

/* The output and lse of one head of the row at `pos`. */
static void expect_head(const cattn_config *c, int seq, int64_t pos, int layer, int head, double out[DIM], double *lse) {
    double s[TOKENS], max = -INFINITY, sum = 0;
    const int window = c->windows ? c->windows[layer] : 0, kv = head / (HEADS / KV_HEADS);
    for (int64_t i = 0; i <= pos; i++) {
        double dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += (double)number(seq, pos, layer, 0, head * DIM + d) * number(seq, i, layer, 1, kv * DIM + d);
        s[i] = dot * 2; /* the scale */
        if (c->softcap > 0) s[i] = c->softcap * tanh(s[i] / c->softcap);
        if (c->alibi_slopes) s[i] += c->alibi_slopes[head] * (double)(i - pos);
        if (window > 0 && i <= pos - window && i >= c->n_sink_tokens) s[i] = -INFINITY;
        max = fmax(max, s[i]);
    }
    for (int d = 0; d < DIM; d++) out[d] = 0;
    if (c->sink_logits) max = fmax(max, c->sink_logits[layer * HEADS + head]);
    if (c->sink_logits) sum = exp(c->sink_logits[layer * HEADS + head] - max);
    for (int64_t i = 0; i <= pos; i++) {
        const double p = exp(s[i] - max);
        sum += p;
        for (int d = 0; d < DIM; d++) out[d] += p * number(seq, i, layer, 2, kv * DIM + d);
    }
    for (int d = 0; d < DIM; d++) out[d] /= sum;
    *lse = (max + log(sum)) / log(2);
}

/* Scores are at most 20, as sums of 64 products in f32. Their error is below 64 2^-24 20 < 1e-4, and so is that of lse and out.
 */
static void compare(const cattn_config *c, int seq, int64_t pos, int layer, const float *out, const float *lse) {
    for (int head = 0; head < HEADS; head++) {
        double want[DIM], want_lse;
        expect_head(c, seq, pos, layer, head, want, &want_lse);
        if (!(fabs(lse[head] - want_lse) < 1e-4))
            fail_msg("seq %d pos %d layer %d head %d: lse %g, not %g", seq, (int)pos, layer, head, lse[head], want_lse);
        for (int d = 0; d < DIM; d++)
            if (!(fabs(out[head * DIM + d] - want[d]) < 1e-4))
                fail_msg("seq %d pos %d layer %d head %d: %g, not %g", seq, (int)pos, layer, head, out[head * DIM + d],
                         want[d]);
    }
}

/* One step over both sequences, of at most max_rows rows each. Returns the number of rows. */
static int64_t step(const cattn_config *c, cattn_cache *cache, const cattn_seq seqs[2], int64_t max_rows) {
    static float rows[3][MAX_ROWS * HEADS * DIM], out[MAX_ROWS * HEADS * DIM], lse[MAX_ROWS * HEADS];
    static const int heads[3] = {HEADS, KV_HEADS, KV_HEADS};
    cattn_entry batch[2] = {{.seq = seqs[0], .max_rows = max_rows}, {.seq = seqs[1], .max_rows = max_rows}};
    cattn_view views[3];
    assert_int_equal(cattn_step_begin(cache, batch, 2, 0, NULL), CATTN_OK);
    for (int kind = 0; kind < 3; kind++) views[kind] = (cattn_view){rows[kind], CATTN_F32, heads[kind] * DIM, DIM};
    const cattn_view out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    for (int layer = 0; layer < LAYERS; layer++) {
        float *to[3] = {rows[0], rows[1], rows[2]};
        for (int e = 0; e < 2; e++)
            for (int64_t i = 0; i < batch[e].n_rows; i++)
                for (int kind = 0; kind < 3; kind++)
                    for (int k = 0; k < heads[kind] * DIM; k++) *to[kind]++ = number(e, batch[e].first_pos + i, layer, kind, k);
        assert_int_equal(cattn_step_write(cache, layer, &views[1], &views[2], NULL), CATTN_OK);
        assert_int_equal(cattn_step_attend(cache, layer, &views[0], &out_view, lse, NULL), CATTN_OK);
        int64_t row = 0;
        for (int e = 0; e < 2; e++)
            for (int64_t i = 0; i < batch[e].n_rows; i++, row++)
                compare(c, e, batch[e].first_pos + i, layer, out + row * HEADS * DIM, lse + row * HEADS);
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    return batch[0].n_rows + batch[1].n_rows;
}

static void run(const cattn_config *c) {
    int32_t tokens[2][TOKENS];
    cattn_cache *cache;
    cattn_seq seqs[2];
    assert_int_equal(cattn_cache_create(c, &cache, NULL), CATTN_OK);
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < TOKENS; i++) tokens[e][i] = i < COMMON ? i : 1000 * (e + 1) + i;
        assert_int_equal(cattn_seq_join(cache, tokens[e], TOKENS - DECODED * (e + 1), NULL, &seqs[e], NULL, NULL), CATTN_OK);
    }
    while (step(c, cache, seqs, PIECE) > 0) {
    }
    for (int i = 0; i < DECODED; i++) {
        for (int e = 0; e < 2; e++) {
            const int32_t *next = &tokens[e][TOKENS - DECODED * (e + 1) + i];
            assert_int_equal(cattn_seq_append(cache, seqs[e], next, 1, NULL), CATTN_OK);
        }
        assert_int_equal(step(c, cache, seqs, 1), 2);
    }
    cattn_cache_destroy(&cache);
}

static void options_are_as_their_formulas_say(void **state) {
    (void)state;
    enum { WINDOWS = 1, KEPT = 2, SOFTCAP = 4, SINKS = 8, ALIBI = 16, ALL = 31, KEPT_ALL = 32 };
    static const int sets[] = {0, WINDOWS, WINDOWS | KEPT, WINDOWS | KEPT_ALL, SOFTCAP, SINKS, ALIBI, ALL};
    for (int level = 0; cattn_level_name(level); level++)
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            cattn_config c;
            cattn_config_init(&c);
            c.n_layers = LAYERS;
            c.n_heads = HEADS;
            c.n_kv_heads = KV_HEADS;
            c.head_dim = DIM;
            c.chunk_size = 16;
            c.kv_type = CATTN_F32;
            c.scale = 2;
            c.budget_bytes = (uint64_t)64 << 20;
            c.n_threads = 2;
            c.level = cattn_level_name(level);
            c.windows = sets[i] & WINDOWS ? all_windows : NULL;
            c.n_sink_tokens = sets[i] & KEPT_ALL ? INT32_MAX : sets[i] & KEPT ? 21 : 0;
            c.softcap = sets[i] & SOFTCAP ? 7 : 0;
            c.sink_logits = sets[i] & SINKS ? all_sinks : NULL;
            c.alibi_slopes = sets[i] & ALIBI ? all_slopes : NULL;
            run(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(options_are_as_their_formulas_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
