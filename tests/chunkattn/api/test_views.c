/*
 * Views of f32, f16 and bf16 in any mixture: a step gives the same bits as if the caller had converted its tensors to and from
 * f32, at every level and with every K/V type. This includes NaN, infinities and denormals, odd strides, memory that is only
 * aligned to two bytes, and gaps between rows, which stay untouched.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "chunkattn/base/half.h"
#include "tests/support/rng.h"

enum { HEADS = 22, KV_HEADS = 2, DIM = 80, DIM_V = 64, PROMPT = 39, COMMON = 20, DECODED = 3, MAX_ROWS = 2 * PROMPT };
enum { N_TYPES = CATTN_BF16 + 1, N_MIXTURES = N_TYPES * N_TYPES * N_TYPES * N_TYPES, PATTERN = 0x5a };

/* What is tested now, for messages. */
static const char *level_now;
static int mixture_now;

/* A tensor of the caller, and the same numbers as f32. */
typedef struct tensor {
    cattn_view view, plain;
    int32_t n_heads, dim;
    size_t bytes; /* of each */
} tensor;

static size_t element_bytes(cattn_type type) { return type == CATTN_F32 ? 4 : 2; }

/* Heads or rows are the outer dimension, with a few elements between neighbours. */
static tensor tensor_new(cattn_type type, int32_t n_heads, int32_t dim, rng *r) {
    const int64_t gap = rng_below(r, 3) * 5, inner = dim + gap;
    const bool rows_outer = rng_chance(r, 2);
    const int64_t outer = (rows_outer ? n_heads : MAX_ROWS) * inner + rng_below(r, 4);
    tensor t = {.n_heads = n_heads, .dim = dim};
    t.view = (cattn_view){.type = type, .row_stride = rows_outer ? outer : inner, .head_stride = rows_outer ? inner : outer};
    t.plain = t.view;
    t.plain.type = CATTN_F32;
    t.bytes = (size_t)((rows_outer ? MAX_ROWS : n_heads) * outer + 1) * sizeof(float);
    char *data = malloc(t.bytes);
    t.view.data = data + element_bytes(type); /* aligned to its elements only */
    t.plain.data = malloc(t.bytes);
    assert_true(data && t.plain.data);
    memset(data, PATTERN, t.bytes);
    return t;
}

static char *start_of(const tensor *t) { return (char *)t->view.data - element_bytes(t->view.type); }

static void tensor_free(tensor *t) {
    free(start_of(t));
    free(t->plain.data);
}

static void *element(const cattn_view *view, int64_t row, int32_t head, int32_t i) {
    const int64_t at = row * view->row_stride + head * view->head_stride + i;
    return (char *)view->data + at * (int64_t)element_bytes(view->type);
}

static void store(const tensor *t, int64_t row, int32_t head, int32_t i, float x) {
    void *to = element(&t->view, row, head, i);
    const uint16_t half = t->view.type == CATTN_BF16 ? ca_bf16_from_f32(x) : ca_f16_from_f32(x);
    if (t->view.type == CATTN_F32)
        memcpy(to, &x, sizeof x);
    else
        memcpy(to, &half, sizeof half);
}

/* Numbers of a step: arbitrary bits in one of `odd` elements (0: in none), otherwise of moderate size. */
static void fill(const tensor *t, int64_t n_rows, int odd, rng *r) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int32_t head = 0; head < t->n_heads; head++)
            for (int32_t i = 0; i < t->dim; i++) {
                const bool any = odd && rng_chance(r, odd);
                const uint16_t bits = (uint16_t)rng_u32(r);
                float x = any ? ca_f32_from_bits(rng_u32(r)) : rng_float(r) * (rng_chance(r, 8) ? 0x1p-20f : 2);
                store(t, row, head, i, x);
                if (t->view.type == CATTN_F32) memcpy(element(&t->plain, row, head, i), &x, sizeof x);
                if (t->view.type == CATTN_F32) continue;
                uint16_t half = bits; /* may be a signalling NaN, which no conversion gives */
                if (!any) memcpy(&half, element(&t->view, row, head, i), sizeof half);
                memcpy(element(&t->view, row, head, i), &half, sizeof half);
                x = t->view.type == CATTN_BF16 ? ca_f32_from_bf16(half) : ca_f32_from_f16(half);
                memcpy(element(&t->plain, row, head, i), &x, sizeof x);
            }
}

/* Compare `out` with the f32 call's output, converted as a caller would. */
static void check_out(const tensor *out, int64_t n_rows) {
    char *got = malloc(out->bytes);
    assert_non_null(got);
    memcpy(got, start_of(out), out->bytes);
    memset(start_of(out), PATTERN, out->bytes);
    for (int64_t row = 0; row < n_rows; row++)
        for (int32_t head = 0; head < out->n_heads; head++)
            for (int32_t i = 0; i < out->dim; i++) {
                float x;
                memcpy(&x, element(&out->plain, row, head, i), sizeof x);
                store(out, row, head, i, x);
            }
    if (memcmp(got, start_of(out), out->bytes) != 0) fail_msg("level %s, mixture %d: out differs", level_now, mixture_now);
    free(got);
}

/* A cache that gets views of any type, and one that gets f32 views. */
typedef struct pair {
    cattn_cache *any, *plain;
    cattn_seq seqs[2][2]; /* [cache][sequence] */
    cattn_type types[4];  /* of k, v, q and out */
} pair;

static int64_t begin(cattn_cache *cache, const cattn_seq seqs[2], int64_t most) {
    cattn_entry entries[2] = {{.seq = seqs[0], .max_rows = most}, {.seq = seqs[1], .max_rows = most}};
    assert_int_equal(cattn_step_begin(cache, entries, 2, 0, NULL), CATTN_OK);
    return entries[0].n_rows + entries[1].n_rows;
}

static int64_t step(const pair *p, int64_t most, int odd, rng *r) {
    static float lse[2][MAX_ROWS * HEADS];
    const int64_t n_rows = begin(p->any, p->seqs[0], most);
    assert_int_equal(begin(p->plain, p->seqs[1], most), n_rows);
    tensor k = tensor_new(p->types[0], KV_HEADS, DIM, r), v = tensor_new(p->types[1], KV_HEADS, DIM_V, r);
    tensor q = tensor_new(p->types[2], HEADS, DIM, r), out = tensor_new(p->types[3], HEADS, DIM_V, r);
    fill(&k, n_rows, odd, r);
    fill(&v, n_rows, odd, r);
    fill(&q, n_rows, odd, r);
    assert_int_equal(cattn_step_write(p->any, 0, &k.view, &v.view, NULL), CATTN_OK);
    assert_int_equal(cattn_step_write(p->plain, 0, &k.plain, &v.plain, NULL), CATTN_OK);
    assert_int_equal(cattn_step_attend(p->any, 0, &q.view, &out.view, lse[0], NULL), CATTN_OK);
    assert_int_equal(cattn_step_attend(p->plain, 0, &q.plain, &out.plain, lse[1], NULL), CATTN_OK);
    assert_memory_equal(lse[0], lse[1], (size_t)n_rows * HEADS * sizeof(float));
    check_out(&out, n_rows);
    assert_int_equal(cattn_step_end(p->any, NULL), CATTN_OK);
    assert_int_equal(cattn_step_end(p->plain, NULL), CATTN_OK);
    tensor_free(&k), tensor_free(&v), tensor_free(&q), tensor_free(&out);
    return n_rows;
}

static void append(cattn_cache *cache, const cattn_seq seqs[2], int32_t token) {
    for (int s = 0; s < 2; s++) {
        const int32_t next = token + s;
        assert_int_equal(cattn_seq_append(cache, seqs[s], &next, 1, NULL), CATTN_OK);
    }
}

/* Prompts in pieces, single rows, and at last a step with arbitrary bits, whose K/V no later step reads. */
static void run(const char *level, int mixture) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = HEADS;
    c.n_kv_heads = KV_HEADS;
    c.head_dim = DIM;
    c.head_dim_v = DIM_V;
    c.chunk_size = 16;
    c.kv_type = (cattn_type)(mixture % (CATTN_I8 + 1));
    c.budget_bytes = (uint64_t)16 << 20;
    c.n_threads = 2;
    c.level = level;
    pair p = {.any = create(&c), .plain = create(&c)};
    for (int i = 0, rest = mixture; i < 4; i++, rest /= N_TYPES) p.types[i] = (cattn_type)(rest % N_TYPES);
    for (int s = 0; s < 2; s++) {
        int32_t tokens[PROMPT];
        for (int i = 0; i < PROMPT; i++) tokens[i] = i < COMMON ? i : 100 * (s + 1) + i;
        assert_int_equal(cattn_seq_join(p.any, tokens, PROMPT, NULL, &p.seqs[0][s], NULL, NULL), CATTN_OK);
        assert_int_equal(cattn_seq_join(p.plain, tokens, PROMPT, NULL, &p.seqs[1][s], NULL, NULL), CATTN_OK);
    }
    rng r = {(uint64_t)mixture};
    while (step(&p, 17, 0, &r) > 0) {
    }
    for (int i = 0; i <= DECODED; i++) {
        append(p.any, p.seqs[0], 1000 + 10 * i);
        append(p.plain, p.seqs[1], 1000 + 10 * i);
        assert_int_equal(step(&p, 1, i == DECODED ? 200 : 0, &r), 2);
    }
    cattn_cache_destroy(&p.any);
    cattn_cache_destroy(&p.plain);
}

static void views_have_the_bits_of_conversions(void **state) {
    (void)state;
    for (int level = 0; cattn_level_name(level); level++)
        for (int mixture = 0; mixture < N_MIXTURES; mixture++) {
            level_now = cattn_level_name(level);
            mixture_now = mixture;
            run(level_now, mixture);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(views_have_the_bits_of_conversions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
