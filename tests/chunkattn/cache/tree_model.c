/*
 * What the tree must hold: the tokens and the K/V of every sequence, and what a join must match. See tree_model.h.
 *
 * Contents: a step that claims a token writes a fingerprint of its position and of all tokens up to it to its K and V slots.
 * Every ready token of every sequence must keep its fingerprint, and so must the slots that a branch has copied.
 *
 * K/V commands: a simple executor carries them out, element by element, when a step begins or the tree requires it. In between,
 * a slot's contents are found by following the pending commands backwards from the last.
 */
#include "tests/support/testing.h"

#include "tree_model.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = MAX_SEQS * MAX_TOKENS, MAX_CHUNKS = 8192 };

/* ---- Allocations that fail ---- */

static void *world_alloc(void *ctx, size_t size, size_t align) {
    world *w = ctx;
    if (w->fault_in >= 0 && w->fault_in-- == 0) return NULL;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void world_free(void *ctx, void *p, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(p);
}

/* ---- Random choices ---- */

int64_t world_below(world *w, int64_t n) { return rng_range(&w->rng, 0, n - 1); }

/* At most n - 1, mostly small. */
int64_t world_skewed_below(world *w, int64_t n) { return world_below(w, world_below(w, n) + 1); }

int32_t world_token(world *w) { return (int32_t)(world_below(w, 4) ? world_below(w, 2) : world_below(w, 50)); }

/* ---- Contents ---- */

static uint64_t extend_path(uint64_t path, int64_t position, int32_t token) {
    uint64_t h = (path ^ (uint64_t)token ^ (uint64_t)position << 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 31;
}

void model_set_tokens(model_seq *s, int64_t from, const int32_t *tokens, int64_t n) {
    assert_true(from + n <= MAX_TOKENS);
    for (int64_t i = 0; i < n; i++) {
        s->tokens[from + i] = tokens[i];
        s->path[from + i] = extend_path(from + i > 0 ? s->path[from + i - 1] : s->domain, from + i, tokens[i]);
    }
    s->n = from + n;
}

/* 64 bits as four floats that hold 16 bits each. */
static void fingerprint(uint64_t path, float k[2], float v[2]) {
    for (int i = 0; i < 2; i++) k[i] = (float)(path >> 16 * i & 0xffff);
    for (int i = 0; i < 2; i++) v[i] = (float)(path >> (32 + 16 * i) & 0xffff);
}

void world_write_slot(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    float k[2], v[2];
    fingerprint(path, k, v);
    const ca_layout *l = &w->layout.shapes->tiles;
    char *k_tile = small_tile(w->pool, &w->layout, chunk, 0);
    ca_layout_write(l, k_tile, k_tile + l->k_bytes, 0, slot, k, v);
}

static bool slot_holds(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    float k[2], v[2];
    fingerprint(path, k, v);
    const ca_layout *l = &w->layout.shapes->tiles;
    const char *data = small_tile(w->pool, &w->layout, chunk, 0);
    const float *k_tile = (const float *)data, *v_tile = (const float *)(data + l->k_bytes);
    for (int i = 0; i < 2; i++) {
        if (k_tile[ca_layout_k_index(l, 0, slot, i)] != k[i]) return false;
        if (v_tile[ca_layout_v_index(l, slot, i)] != v[i]) return false;
    }
    return true;
}

/* ---- K/V commands ---- */

static void copy_slot(world *w, ca_chunk_id to, ca_chunk_id from, int slot) {
    const ca_layout *l = &w->layout.shapes->tiles;
    char *dst = small_tile(w->pool, &w->layout, to, 0);
    const char *src = small_tile(w->pool, &w->layout, from, 0);
    for (int i = 0; i < 2; i++) {
        ((float *)dst)[ca_layout_k_index(l, 0, slot, i)] = ((const float *)src)[ca_layout_k_index(l, 0, slot, i)];
        ((float *)(dst + l->k_bytes))[ca_layout_v_index(l, slot, i)] =
            ((const float *)(src + l->k_bytes))[ca_layout_v_index(l, slot, i)];
    }
}

void world_execute(world *w, const ca_kv_command *commands, size_t n) {
    w->n_copies += n;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(commands[i].kind, CA_KV_COPY);
        for (int slot = commands[i].begin; slot < commands[i].end; slot++) copy_slot(w, commands[i].to, commands[i].from, slot);
    }
}

/* The tree's executor. */
static void execute_early(void *ctx, const ca_kv_command *commands, size_t n) {
    world *w = ctx;
    w->n_early_copies += n;
    world_execute(w, commands, n);
}

/* Whether a slot will hold the fingerprint when all pending commands have been carried out. */
static bool will_hold(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    const ca_kv_pending *pending = ca_tree_pending(w->tree);
    for (size_t i = pending->n; i-- > 0;) {
        const ca_kv_command *command = &pending->at[i];
        if (command->to == chunk && slot >= command->begin && slot < command->end) chunk = command->from;
    }
    return slot_holds(w, chunk, slot, path);
}

/* ---- Checks against the model ---- */

ca_seq *world_find(world *w, const model_seq *s) {
    ca_seq *seq = ca_tree_find(w->tree, s->id);
    assert_non_null(seq);
    return seq;
}

static void check_seq(world *w, model_seq *s) {
    const ca_seq *seq = world_find(w, s);
    const int c = w->layout.c;
    assert_int_equal(seq->n_tokens, s->n);
    assert_int_equal(seq->domain, s->domain);
    for (const ca_node *node = seq->leaf; node->parent; node = node->parent)
        assert_memory_equal(node->tokens, s->tokens + node->start, (size_t)node->n_tokens * sizeof *node->tokens);
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    assert_true(n_ready >= s->n_ready && n_ready <= s->n); /* ready tokens stay ready */
    s->n_ready = n_ready;
    for (int64_t p = 0; p < n_ready; p++)
        if (!will_hold(w, ca_path_chunk(w->tree, seq->leaf, p), (int)(p % c), s->path[p]))
            fail_msg("sequence %d: position %d of %d does not hold its token", (int)(s - w->seqs), (int)p, (int)s->n);
    for (const ca_node *node = seq->leaf; node->parent; node = node->parent) {
        if (ca_node_shares_first_chunk(node)) continue;
        for (int slot = 0; slot < ca_chunk_at(w->pool, node->chunks[0])->n_copied; slot++)
            if (!will_hold(w, node->chunks[0], slot, s->path[node->start / c * c + slot]))
                fail_msg("sequence %d: slot %d before position %d is not copied", (int)(s - w->seqs), slot, (int)node->start);
    }
}

/* What no sequence covers holds its tokens, too. path [MAX_TOKENS]: of the node's ancestors. */
static void check_retained(world *w, const ca_node *node, uint64_t *path) {
    const int c = w->layout.c;
    for (int64_t p = node->start; p < ca_node_end(node); p++) {
        path[p] = extend_path(p > 0 ? path[p - 1] : node->domain, p, node->tokens[p - node->start]);
        if (node->n_seqs > 0) continue;
        const size_t i = (size_t)(p / c - node->start / c);
        if (!will_hold(w, node->chunks[i], (int)(p % c), path[p]))
            fail_msg("node %d: position %d does not hold its token", (int)node->id, (int)p);
    }
    for (size_t i = 0; i < node->n_children; i++) check_retained(w, node->children[i], path);
}

/* If a root's version has not changed, nothing has changed on which plans depend. */
static void check_versions(world *w) {
    static known_root now[MAX_ROOTS];
    const ca_node *root = ca_tree_root(w->tree);
    assert_true(root->n_children <= MAX_ROOTS);
    for (size_t i = 0; i < root->n_children; i++) {
        const ca_node *node = root->children[i];
        now[i] = (known_root){node->id, node->version, hash_for_plan(node)};
        for (size_t j = 0; j < w->n_roots; j++)
            if (w->roots[j].version == node->version) assert_true(w->roots[j].hash == now[i].hash);
    }
    w->n_roots = root->n_children;
    memcpy(w->roots, now, w->n_roots * sizeof *now);
}

void world_check(world *w) {
    check_versions(w);
    check_tree(w->tree, w->pool, &w->layout);
    if (!w->faulty) check_canonical(w->tree);
    for (int i = 0; i < w->n_seqs; i++) check_seq(w, &w->seqs[i]);
    static uint64_t path[MAX_TOKENS];
    check_retained(w, ca_tree_root(w->tree), path);
}

/* ---- The matching rule ---- */

int64_t model_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n & ~(int64_t)1;
}

static int64_t longest_in(const ca_node *node, int32_t *path, const int32_t *tokens, int64_t limit, uint32_t domain) {
    int64_t best = 0;
    for (int64_t i = 0; i < node->n_tokens; i++) path[node->start + i] = node->tokens[i];
    if (node->domain == domain) best = model_common(path, node->start + node->n_tokens, tokens, limit);
    for (size_t i = 0; i < node->n_children; i++) {
        const int64_t n = longest_in(node->children[i], path, tokens, limit, domain);
        if (n > best) best = n;
    }
    return best;
}

int64_t world_expected_match(world *w, const int32_t *tokens, int64_t n, uint32_t domain) {
    static int32_t path[MAX_TOKENS];
    if (w->config.sharing == CATTN_PRIVATE) return 0;
    const int64_t limit = (n - 1) & ~(int64_t)1;
    const int64_t in_tree = limit > 0 ? longest_in(ca_tree_root(w->tree), path, tokens, limit, domain) : 0;
    int64_t running = 0;
    for (int i = 0; i < w->n_seqs; i++) {
        const model_seq *s = &w->seqs[i];
        const int64_t m = s->domain == domain ? model_common(s->tokens, s->n, tokens, limit) : 0;
        if (m > running) running = m;
    }
    if (w->config.retention == CATTN_RETAIN_NONE)
        assert_int_equal(in_tree, running);
    else
        assert_true(in_tree >= running);
    return in_tree;
}

/* ---- Worlds ---- */

void world_create(world *w, uint64_t seed, int c, const ca_tree_config *config, uint64_t budget, bool faulty) {
    *w = (world){.rng = {seed}, .config = *config, .faulty = faulty, .fault_in = -1};
    w->config.executor = (ca_kv_executor){execute_early, w};
    w->alloc = (ca_alloc){.alloc = world_alloc, .free = world_free, .ctx = w};
    small_layout(&w->layout, 1, 2, c);
    assert_int_equal(ca_chunk_pool_create(&w->pool, &w->alloc, w->layout.chunk_bytes, budget), CATTN_OK);
    assert_int_equal(ca_tree_create(&w->tree, &w->config, &w->layout, w->pool, &w->alloc), CATTN_OK);
    w->before = (ca_kv_commands){calloc(CA_KV_PENDING, sizeof(ca_kv_command)), 0, CA_KV_PENDING};
    w->after = (ca_kv_commands){calloc(MAX_COPIES, sizeof(ca_kv_command)), 0, MAX_COPIES};
    w->seqs = calloc(MAX_SEQS, sizeof *w->seqs);
    w->written = calloc(MAX_CHUNKS, (size_t)c);
    assert_true(w->before.at && w->after.at && w->seqs && w->written);
}

void world_destroy(world *w) {
    ca_tree_destroy(&w->tree);
    ca_chunk_pool_trim(w->pool, SIZE_MAX, 0);
    assert_int_equal(ca_chunk_pool_bytes(w->pool), 0);
    ca_chunk_pool_destroy(&w->pool);
    small_layout_free(&w->layout);
    assert_int_equal(w->alloc.bytes, 0);
    free(w->before.at);
    free(w->after.at);
    free(w->seqs);
    free(w->written);
}
