/*
 * GQA groups of 1 to 128 query heads: each head's output has the bits that it has alone, in a cache with one query head for
 * each KV head, at every level and with every K/V type. Sequences share a prefix; prompts are prefilled in pieces, then
 * decoded.
 *
 * usage: exact_groups_test [STRIDE [FIRST]], which takes every STRIDEth combination from the FIRSTth on, by default each
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn.h"
#include "tests/support/rng.h"

enum { KV_HEADS = 2, MAX_GROUP = 128, DIM = 64, N_SEQS = 4, PROMPT = 70, COMMON = 40, DECODED = 2, MAX_ROWS = N_SEQS * PROMPT };
enum { MAX_HEADS = KV_HEADS * MAX_GROUP };

static const int32_t groups[] = {1, 2, 7, 16, 17, 32, 71, 96, 97, 128};

static void check(cattn_status status, const char *what, const cattn_error *error) {
    if (status == CATTN_OK) return;
    printf("%s: %s\n", what, error->message);
    exit(1);
}

/* A cache of `group` query heads for each KV head, over the sequences. */
typedef struct world {
    cattn_cache *cache;
    cattn_seq seqs[N_SEQS];
} world;

static world create(const char *level, cattn_type kv_type, int32_t group) {
    world w;
    cattn_config c;
    cattn_error error;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = KV_HEADS * group;
    c.n_kv_heads = KV_HEADS;
    c.head_dim = DIM;
    c.chunk_size = 16;
    c.kv_type = kv_type;
    c.n_threads = 2;
    c.budget_bytes = (uint64_t)64 << 20;
    c.level = level;
    check(cattn_cache_create(&c, &w.cache, &error), "create", &error);
    for (int s = 0; s < N_SEQS; s++) {
        int32_t tokens[PROMPT];
        for (int i = 0; i < PROMPT; i++) tokens[i] = i < COMMON ? i : 1000 * (s + 1) + i;
        check(cattn_seq_join(w.cache, tokens, PROMPT - s, NULL, &w.seqs[s], NULL, &error), "join", &error);
    }
    return w;
}

static int64_t begin(world *w, int64_t most) {
    cattn_entry entries[N_SEQS];
    cattn_error error;
    int64_t n_rows = 0;
    for (int s = 0; s < N_SEQS; s++) entries[s] = (cattn_entry){.seq = w->seqs[s], .max_rows = most};
    check(cattn_step_begin(w->cache, entries, N_SEQS, 0, &error), "begin", &error);
    for (int s = 0; s < N_SEQS; s++) n_rows += entries[s].n_rows;
    return n_rows;
}

static void fill(float *x, size_t n, rng *r) {
    for (size_t i = 0; i < n; i++) x[i] = rng_float(r) * 3;
}

/* One step in both caches; `alone` attends once for each head of a group. Returns the rows, or -1 if the bits differ. */
static int64_t step(world *together, world *alone, int32_t group, int64_t most, rng *r) {
    static float k[MAX_ROWS * KV_HEADS * DIM], v[MAX_ROWS * KV_HEADS * DIM], q[MAX_ROWS * MAX_HEADS * DIM];
    static float out[2][MAX_ROWS * MAX_HEADS * DIM];
    cattn_error error;
    const int64_t n_rows = begin(together, most), row = (int64_t)KV_HEADS * group * DIM;
    if (begin(alone, most) != n_rows) return -1;
    fill(k, (size_t)n_rows * KV_HEADS * DIM, r);
    fill(v, (size_t)n_rows * KV_HEADS * DIM, r);
    fill(q, (size_t)(n_rows * row), r);
    const cattn_view k_view = {k, CATTN_F32, KV_HEADS * DIM, DIM}, v_view = {v, CATTN_F32, KV_HEADS * DIM, DIM};
    const cattn_view q_view = {q, CATTN_F32, row, DIM}, out_view = {out[0], CATTN_F32, row, DIM};
    check(cattn_step_write(together->cache, 0, &k_view, &v_view, &error), "write", &error);
    check(cattn_step_write(alone->cache, 0, &k_view, &v_view, &error), "write", &error);
    check(cattn_step_attend(together->cache, 0, &q_view, &out_view, NULL, &error), "attend", &error);
    for (int32_t g = 0; g < group; g++) {
        const cattn_view q_head = {q + g * DIM, CATTN_F32, row, (int64_t)group * DIM};
        const cattn_view out_head = {out[1] + g * DIM, CATTN_F32, row, (int64_t)group * DIM};
        check(cattn_step_attend(alone->cache, 0, &q_head, &out_head, NULL, &error), "attend", &error);
    }
    check(cattn_step_end(together->cache, &error), "end", &error);
    check(cattn_step_end(alone->cache, &error), "end", &error);
    return memcmp(out[0], out[1], (size_t)(n_rows * row) * sizeof(float)) == 0 ? n_rows : -1;
}

static bool try_group(const char *level, cattn_type kv_type, int32_t group) {
    world together = create(level, kv_type, group), alone = create(level, kv_type, 1);
    rng r = {(uint64_t)group};
    int64_t n_rows = 1;
    while (n_rows > 0) n_rows = step(&together, &alone, group, 1 + rng_below(&r, 40), &r);
    for (int32_t i = 0; n_rows == 0 && i < DECODED; i++) {
        for (int s = 0; s < N_SEQS; s++) {
            const int32_t token = 10 * s + i;
            cattn_seq_append(together.cache, together.seqs[s], &token, 1, NULL);
            cattn_seq_append(alone.cache, alone.seqs[s], &token, 1, NULL);
        }
        n_rows = step(&together, &alone, group, 1, &r) == N_SEQS ? 0 : -1;
    }
    cattn_cache_destroy(&together.cache);
    cattn_cache_destroy(&alone.cache);
    if (n_rows < 0)
        printf("FAILED: %s, K/V type %d, %d query heads for a KV head: the bits differ\n", level, (int)kv_type, group);
    return n_rows == 0;
}

int main(int argc, char **argv) {
    const int stride = argc > 1 ? atoi(argv[1]) : 1, first = argc > 2 ? atoi(argv[2]) : 0;
    int failures = 0, n = 0, at = 0;
    for (int level = 0; cattn_level_name(level); level++)
        for (int type = CATTN_F32; type <= CATTN_I8; type++)
            for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
                if (at++ % stride != first % stride) continue;
                failures += !try_group(cattn_level_name(level), (cattn_type)type, groups[i]);
                n++;
            }
    printf("%d combinations of level, K/V type and group, %d failures\n", n, failures);
    return failures != 0;
}
