/*
 * The tree against a model, an array of token lists, through random calls. All invariants are checked after each call.
 *
 * Contents: a step that claims a token writes a fingerprint of its position and of all tokens up to it to its K and V slots.
 * Every ready token of every sequence must keep its fingerprint, and so must the slots that a branch has copied.
 *
 * K/V commands: a simple executor carries them out, element by element, when a step begins or the tree requires it. In between,
 * a slot's contents are found by following the pending commands backwards from the last.
 *
 * In some runs each call is first tried with its first allocation failing, then with its second, and so on until it succeeds.
 */
#include "../support/testing.h"

#include "../support/rng.h"
#include "check_tree.h"
#include "lib/cache/tree_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEQS = 40, MAX_TOKENS = 1200, N_TEMPLATES = 8 };

typedef struct model_seq {
    cattn_seq id;
    uint32_t domain;
    int64_t n, n_ready, reserve_to;
    int32_t tokens[MAX_TOKENS];
    uint64_t path[MAX_TOKENS]; /* path[i]: fingerprint of tokens[0..i] */
} model_seq;

enum { MAX_ROOTS = 1024 };

typedef struct known_root {
    uint64_t id, version, hash;
} known_root;

typedef struct world {
    rng rng;
    ca_tree_config config;
    ca_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
    model_seq *seqs; /* [MAX_SEQS], the first n_seqs */
    int n_seqs;
    int32_t templates[N_TEMPLATES][MAX_TOKENS];
    uint8_t *written;            /* [chunk][slot] how often it was written in the open step */
    known_root roots[MAX_ROOTS]; /* [n_roots] after the last call */
    size_t n_roots;
    ca_kv_commands before, after; /* of the open step */
    uint64_t n_refused, n_shortened, n_faults, n_copies, n_shifted, n_early_copies;
    bool faulty;
    void *workspace; /* other memory of the budget */
    size_t workspace_bytes;
    int fault_in, n_before_fault; /* allocations until one fails (-1: none does), now and at the call's beginning */
    size_t unchecked;             /* bytes by which the last call may have raised the excess over the budget */
} world;

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

static void begin_call(world *w) { w->fault_in = w->n_before_fault = w->faulty ? 0 : -1; }

/* Whether the call failed by a fault; then the fault moves one allocation on, and the call is to be tried again. */
static bool was_fault(world *w, cattn_status status, uint64_t hash_before) {
    if (status != CATTN_ERR_NOMEM) {
        w->fault_in = -1;
        return false;
    }
    assert_true(w->faulty);
    assert_true(hash_tree(w->tree, w->pool) == hash_before);
    w->n_faults++;
    w->fault_in = ++w->n_before_fault;
    return true;
}

/* ---- Random choices ---- */

static int64_t below(world *w, int64_t n) { return rng_range(&w->rng, 0, n - 1); }

/* At most n - 1, mostly small. */
static int64_t skewed_below(world *w, int64_t n) { return below(w, below(w, n) + 1); }

static int32_t random_token(world *w) { return (int32_t)(below(w, 4) ? below(w, 2) : below(w, 50)); }

/* ---- Contents ---- */

static uint64_t extend_path(uint64_t path, int64_t position, int32_t token) {
    uint64_t h = (path ^ (uint64_t)token ^ (uint64_t)position << 32) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 31;
}

static void set_tokens(model_seq *s, int64_t from, const int32_t *tokens, int64_t n) {
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

static void write_slot(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    float k[2], v[2];
    fingerprint(path, k, v);
    char *k_tile = ca_chunk_tile(w->pool, chunk, 0);
    ca_layout_write(&w->layout, k_tile, k_tile + w->layout.k_bytes, 0, slot, k, v);
}

static bool slot_holds(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    float k[2], v[2];
    fingerprint(path, k, v);
    const char *data = ca_chunk_tile(w->pool, chunk, 0);
    const float *k_tile = (const float *)data, *v_tile = (const float *)(data + w->layout.k_bytes);
    for (int i = 0; i < 2; i++) {
        if (k_tile[ca_layout_k_index(&w->layout, 0, slot, i)] != k[i]) return false;
        if (v_tile[ca_layout_v_index(&w->layout, slot, i)] != v[i]) return false;
    }
    return true;
}

/* ---- K/V commands ---- */

static void copy_slot(world *w, ca_chunk_id to, ca_chunk_id from, int slot, int shift) {
    char *dst = ca_chunk_tile(w->pool, to, 0);
    const char *src = ca_chunk_tile(w->pool, from, 0);
    for (int i = 0; i < 2; i++) {
        const ca_layout *l = &w->layout;
        ((float *)dst)[ca_layout_k_index(l, 0, slot + shift, i)] = ((const float *)src)[ca_layout_k_index(l, 0, slot, i)];
        ((float *)(dst + l->k_bytes))[ca_layout_v_index(l, slot + shift, i)] =
            ((const float *)(src + l->k_bytes))[ca_layout_v_index(l, slot, i)];
    }
}

static void execute(world *w, const ca_kv_command *commands, size_t n) {
    w->n_copies += n;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(commands[i].kind, CA_KV_COPY);
        w->n_shifted += commands[i].shift != 0;
        for (int slot = commands[i].begin; slot < commands[i].end; slot++)
            copy_slot(w, commands[i].to, commands[i].from, slot, commands[i].shift);
    }
}

/* The tree's executor. */
static void execute_early(void *ctx, const ca_kv_command *commands, size_t n) {
    world *w = ctx;
    w->n_early_copies += n;
    execute(w, commands, n);
}

/* Whether a slot will hold the fingerprint when all pending commands have been carried out. */
static bool will_hold(world *w, ca_chunk_id chunk, int slot, uint64_t path) {
    const ca_kv_pending *pending = ca_tree_pending(w->tree);
    for (size_t i = pending->n; i-- > 0;) {
        const ca_kv_command *command = &pending->at[i];
        const int from = slot - command->shift;
        if (command->to != chunk || from < command->begin || from >= command->end) continue;
        chunk = command->from;
        slot = from;
    }
    return slot_holds(w, chunk, slot, path);
}

static void record_branch_copies(world *w, const ca_seq *seq, int64_t first, int64_t last) {
    w->after.n += (size_t)ca_path_branch_copies(w->tree, seq->leaf, first, last, NULL);
    assert_true(w->after.n <= w->after.capacity);
    ca_path_branch_copies(w->tree, seq->leaf, first, last, w->after.at + w->after.n);
}

/* ---- The matching rule, on lists of tokens ---- */

/* Length of the longest common prefix of a [n_a] and b [n_b], rounded down to even. */
static int64_t naive_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n & ~(int64_t)1;
}

/*
 * Tokens to compute for prompts that join in this order, if none is removed: all tokens of a prompt but its longest match with
 * an earlier one, which ends at an even position before the last token.
 */
static int64_t naive_computed(const int32_t *const *prompts, const int64_t *lengths, int n_prompts) {
    int64_t sum = 0;
    for (int i = 0; i < n_prompts; i++) {
        int64_t longest = 0;
        for (int j = 0; j < i; j++) {
            const int64_t n = naive_common(prompts[j], lengths[j], prompts[i], lengths[i] - 1);
            if (n > longest) longest = n;
        }
        sum += lengths[i] - longest;
    }
    return sum;
}

/* ---- Checks against the model ---- */

static ca_seq *find(world *w, const model_seq *s) {
    ca_seq *seq = ca_tree_find(w->tree, s->id);
    assert_non_null(seq);
    return seq;
}

static void check_seq(world *w, model_seq *s) {
    const ca_seq *seq = find(w, s);
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

/* The first slot in chunk i of a node minus the slot of its position there: not 0 only in packing chunks. */
static int shift_of(const world *w, const ca_node *node, size_t i) {
    const int c = w->layout.c, unit = c > 64 ? c / 32 : 2;
    const uint32_t packed = i == 0 ? node->packed[0] : i == node->n_chunks - 1 ? node->packed[1] : 0;
    if (!packed) return 0;
    const int begin = i == 0 ? (int)(node->start % c) : 0;
    return __builtin_ctz(packed) * unit - begin / unit * unit;
}

/* What no sequence covers holds its tokens, too, in packing chunks at other slots. path [MAX_TOKENS]: of the node's ancestors.
 */
static void check_retained(world *w, const ca_node *node, uint64_t *path) {
    const int c = w->layout.c;
    for (int64_t p = node->start; p < ca_node_end(node); p++) {
        path[p] = extend_path(p > 0 ? path[p - 1] : node->domain, p, node->tokens[p - node->start]);
        if (node->n_seqs > 0) continue;
        const size_t i = (size_t)(p / c - node->start / c);
        if (!will_hold(w, node->chunks[i], (int)(p % c) + shift_of(w, node, i), path[p]))
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

static void check_world(world *w) {
    check_versions(w);
    check_tree(w->tree, w->pool, &w->layout);
    if (!w->faulty) check_canonical(w->tree);
    for (int i = 0; i < w->n_seqs; i++) check_seq(w, &w->seqs[i]);
    static uint64_t path[MAX_TOKENS];
    check_retained(w, ca_tree_root(w->tree), path);
}

/* ---- The budget ---- */

/* Bytes of the whole slabs that chunks fill which are free or retained and not reserved. */
static size_t spare_bytes(const world *w) {
    const ca_tree_counts *counts = ca_tree_get_counts(w->tree);
    const size_t n_unused = ca_chunk_pool_n_committed_free(w->pool) + counts->chunks_retained;
    const size_t n_slabs = (n_unused - counts->chunks_reserved) / ca_chunk_pool_slab_chunks(w->pool);
    return n_slabs * ca_chunk_pool_slab_bytes(w->pool);
}

/*
 * Upper bound of the bytes of a node: its struct; ids of tokens and chunks, in arrays that double or are made with room for
 * more; and its place in its parent's array of children, which doubles, too.
 */
static size_t node_bytes(const world *w, int64_t n_tokens) {
    const int64_t capacity = 2 * n_tokens + ca_leaf_slack(w->tree, INT64_MAX), n_chunks = 2 * (capacity / w->layout.c + 2);
    const size_t place = 2 * (w->tree->counts.n_nodes + 2) * sizeof(ca_node *);
    return sizeof(ca_node) + (size_t)capacity * sizeof(int32_t) + (size_t)n_chunks * sizeof(ca_chunk_id) + place;
}

/*
 * Memory in use stays within the budget: live and reserved chunks, metadata, and other memory. Whole slabs may exceed it, as
 * far as their other chunks are spare, since a slab with a live chunk cannot be returned. Beyond that, only the metadata of
 * calls that must succeed because their chunks are reserved, or that need no chunk, may exceed the budget:
 *
 *   an append within its reservation   one node that grows, or two where its sequence branches off at an odd length
 *   a truncate                         two nodes where it cuts one
 *   a call that is refused             the table of sequences, which was doubled before the refusal
 *
 * These calls set w->unchecked. Their sum is not bounded by a constant: each running sequence can add one or two nodes, with as
 * many ids as it has reserved. No join, fork or append beyond a reservation is accepted before spare chunks make up for the
 * sum.
 */
static void check_budget(world *w, size_t before) {
    const size_t allowed = spare_bytes(w) > before ? spare_bytes(w) : before;
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= allowed + w->unchecked);
}

static size_t table_bytes(const world *w) { return w->tree->slots_capacity * sizeof(ca_seq_slot); }

static int64_t longest_in(const ca_node *node, int32_t *path, const int32_t *tokens, int64_t limit, uint32_t domain) {
    int64_t best = 0;
    for (int64_t i = 0; i < node->n_tokens; i++) path[node->start + i] = node->tokens[i];
    if (node->domain == domain) best = naive_common(path, node->start + node->n_tokens, tokens, limit);
    for (size_t i = 0; i < node->n_children; i++) {
        const int64_t n = longest_in(node->children[i], path, tokens, limit, domain);
        if (n > best) best = n;
    }
    return best;
}

/* What a join must match: the longest common prefix with any path, and so with any running sequence. */
static int64_t expected_match(world *w, const int32_t *tokens, int64_t n, uint32_t domain) {
    static int32_t path[MAX_TOKENS];
    if (w->config.sharing == CATTN_PRIVATE) return 0;
    const int64_t limit = (n - 1) & ~(int64_t)1;
    const int64_t in_tree = limit > 0 ? longest_in(ca_tree_root(w->tree), path, tokens, limit, domain) : 0;
    int64_t running = 0;
    for (int i = 0; i < w->n_seqs; i++) {
        const model_seq *s = &w->seqs[i];
        const int64_t m = s->domain == domain ? naive_common(s->tokens, s->n, tokens, limit) : 0;
        if (m > running) running = m;
    }
    if (w->config.retention == CATTN_RETAIN_NONE)
        assert_int_equal(in_tree, running);
    else
        assert_true(in_tree >= running);
    return in_tree;
}

/* ---- Calls ---- */

static bool refused(world *w, cattn_status status, uint64_t hash_before, const cattn_error *error) {
    if (status == CATTN_OK) return false;
    assert_int_equal(status, CATTN_ERR_BUDGET);
    assert_int_equal(error->code, CATTN_ERR_BUDGET);
    assert_true(hash_tree(w->tree, w->pool) == hash_before);
    w->n_refused++;
    return true;
}

static void do_join(world *w) {
    if (w->n_seqs == MAX_SEQS) return;
    static int32_t tokens[MAX_TOKENS];
    const int32_t *source = w->templates[skewed_below(w, N_TEMPLATES)];
    if (w->n_seqs > 0 && below(w, 2)) source = w->seqs[below(w, w->n_seqs)].tokens;
    int64_t n = 1 + skewed_below(w, below(w, 4) ? 3 * w->layout.c : 500), n_same = below(w, 3) ? below(w, n + 1) : n;
    memcpy(tokens, source, (size_t)n_same * sizeof *tokens);
    for (int64_t i = n_same; i < n; i++) tokens[i] = random_token(w);
    if (below(w, 4) == 0) memcpy(w->templates[below(w, N_TEMPLATES)], tokens, (size_t)n * sizeof *tokens);

    const uint32_t domain = below(w, 5) == 0;
    const int64_t expected = expected_match(w, tokens, n, domain);
    const int64_t reserve = below(w, 2) ? skewed_below(w, 3 * w->layout.c) : 0;
    const uint64_t hash = hash_tree(w->tree, w->pool);
    const size_t table = table_bytes(w);
    cattn_error error;
    cattn_join_result result;
    model_seq *s = &w->seqs[w->n_seqs];
    cattn_status status;
    begin_call(w);
    do status = ca_tree_join(w->tree, tokens, n, domain, reserve, &s->id, &result, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) {
        assert_int_equal(s->id, 0);
        w->unchecked = table_bytes(w) - table;
        return;
    }
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= spare_bytes(w));
    w->n_seqs++;
    s->domain = domain;
    set_tokens(s, 0, tokens, n);
    s->reserve_to = n + reserve;
    s->n_ready = result.n_ready;
    /* A match may be shorter only if it is retained and the budget has no room for all of it. */
    if (w->config.retention == CATTN_RETAIN_NONE)
        assert_int_equal(result.n_matched, expected);
    else
        assert_true(result.n_matched <= expected);
    w->n_shortened += result.n_matched < expected;
    assert_int_equal(result.n_ready, ca_path_n_ready(find(w, s)->leaf));
    assert_true(result.n_ready <= result.n_matched);
}

static void do_append(world *w, model_seq *s) {
    static int32_t tokens[MAX_TOKENS];
    const int64_t n = 1 + (below(w, 3) ? 0 : skewed_below(w, 2 * w->layout.c));
    if (s->n + n > MAX_TOKENS) return;
    for (int64_t i = 0; i < n; i++) tokens[i] = random_token(w);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_append(w->tree, find(w, s), tokens, n, &error);
    while (was_fault(w, status, hash));
    if (s->n + n <= s->reserve_to) {
        assert_int_equal(status, CATTN_OK);
        w->unchecked = node_bytes(w, s->n + n) + node_bytes(w, 1);
    }
    if (refused(w, status, hash, &error)) return;
    set_tokens(s, s->n, tokens, n);
}

static void do_truncate(world *w, model_seq *s) {
    const int64_t n = below(w, 4) ? s->n - skewed_below(w, s->n < 20 ? s->n : 20) : 1 + below(w, s->n);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_truncate(w->tree, find(w, s), n, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) return;
    w->unchecked = node_bytes(w, s->n) + node_bytes(w, 1);
    s->n = n;
    if (s->n_ready > n) s->n_ready = n;
}

static void do_fork(world *w, const model_seq *s) {
    if (w->n_seqs == MAX_SEQS) return;
    const int64_t reserve = below(w, 2) ? skewed_below(w, 3 * w->layout.c) : 0;
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_seq id;
    cattn_status status;
    const size_t table = table_bytes(w);
    begin_call(w);
    do status = ca_tree_fork(w->tree, find(w, s), reserve, &id, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) {
        w->unchecked = table_bytes(w) - table;
        return;
    }
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= spare_bytes(w));
    model_seq *fork = &w->seqs[w->n_seqs++];
    *fork = *s;
    fork->id = id;
    fork->reserve_to = s->n + reserve;
}

static void do_reserve(world *w, model_seq *s) {
    const int64_t n = skewed_below(w, 4 * w->layout.c);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_reserve(w->tree, find(w, s), n, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) return;
    s->reserve_to = s->n + n;
}

static void do_leave(world *w, int i) {
    const cattn_seq id = w->seqs[i].id;
    begin_call(w); /* leaving cannot fail */
    ca_tree_leave(w->tree, find(w, &w->seqs[i]));
    w->fault_in = -1;
    assert_null(ca_tree_find(w->tree, id));
    w->seqs[i] = w->seqs[--w->n_seqs];
}

/* A step of random entries, ended or aborted. No token is claimed twice, and no ready token is claimed. */
static void do_step(world *w) {
    static ca_chunk_id chunks[MAX_SEQS * 64];
    static int slots[MAX_SEQS * 64];
    int n_written = 0;
    w->before.n = w->after.n = 0;
    ca_kv_take(ca_tree_pending(w->tree), &w->before);
    execute(w, w->before.at, w->before.n);
    for (int i = 0; i < w->n_seqs; i++) {
        if (below(w, 3) == 0) continue;
        model_seq *s = &w->seqs[i];
        ca_node *leaf = find(w, s)->leaf;
        const int64_t max_rows = 1 + skewed_below(w, 64), first = ca_path_n_claimed(leaf);
        const int64_t n = ca_path_claim(leaf, max_rows);
        assert_true(first >= s->n_ready && n >= 0 && n <= max_rows && first + n <= s->n);
        assert_true(n == max_rows || first + n == s->n);
        assert_int_equal(ca_path_n_claimed(leaf), first + n);
        for (int64_t p = first; p < first + n; p++) {
            const ca_chunk_id chunk = ca_path_chunk(w->tree, leaf, p);
            const int slot = (int)(p % w->layout.c);
            assert_int_equal(w->written[chunk * w->layout.c + slot]++, 0);
            write_slot(w, chunk, slot, s->path[p]);
            chunks[n_written] = chunk;
            slots[n_written++] = slot;
        }
        if (n > 0) record_branch_copies(w, find(w, s), first, first + n - 1);
    }
    const bool ends = below(w, 5) > 0;
    if (ends || w->rng.state % 2) execute(w, w->after.at, w->after.n);
    if (!ends) ca_path_undo_branch_copies(w->tree, &w->after);
    for (int i = 0; i < w->n_seqs; i++) (ends ? ca_path_commit : ca_path_unclaim)(find(w, &w->seqs[i])->leaf);
    for (int i = 0; i < n_written; i++) {
        w->written[chunks[i] * w->layout.c + slots[i]] = 0;
        if (!ends) write_slot(w, chunks[i], slots[i], 0);
    }
    for (int i = 0; i < w->n_seqs; i++) {
        const ca_seq *seq = find(w, &w->seqs[i]);
        assert_int_equal(ca_path_n_claimed(seq->leaf), ca_path_n_ready(seq->leaf));
    }
}

/* Other memory of the budget changes its size. It can have all memory that is neither live nor reserved. */
static void do_workspace(world *w, uint64_t budget) {
    ca_delete(&w->alloc, w->workspace, w->workspace_bytes, 1);
    w->workspace_bytes = (size_t)below(w, (int64_t)budget / 4);
    w->workspace = ca_new(&w->alloc, w->workspace_bytes, 1);
    const uint64_t reserved = ca_tree_get_counts(w->tree)->chunks_reserved;
    size_t excess;
    while ((excess = ca_chunk_pool_excess(w->pool, 0)) > 0 && ca_tree_make_room(w->tree, excess)) continue;
    assert_true(ca_tree_get_counts(w->tree)->chunks_reserved <= reserved); /* fewer if a sequence owns its last chunk again */
    if (excess == 0) return;
    ca_delete(&w->alloc, w->workspace, w->workspace_bytes, 1);
    w->workspace = NULL;
}

/* ---- Runs ---- */

enum { N_BUDGETS = 3 };
static const uint64_t budgets[N_BUDGETS] = {1 << 16, 3 << 16, 1 << 20};

static void run(uint64_t seed, int n_calls, int c, cattn_sharing sharing, cattn_retention retention, uint64_t budget,
                bool faulty) {
    static ca_kv_command before[CA_KV_PENDING], after[MAX_SEQS * MAX_TOKENS];
    world w = {.rng = {seed}, .config = {.sharing = sharing, .retention = retention}, .faulty = faulty, .fault_in = -1};
    w.config.executor = (ca_kv_executor){execute_early, &w};
    w.config.packs = seed % 4 != 0;
    w.before = (ca_kv_commands){before, 0, sizeof before / sizeof *before};
    w.after = (ca_kv_commands){after, 0, sizeof after / sizeof *after};
    w.alloc = (ca_alloc){.alloc = world_alloc, .free = world_free, .ctx = &w};
    printf("seed %d: %d calls, c = %d, sharing %d, retention %d, budget %d%s", (int)seed, n_calls, c, sharing, retention,
           (int)budget, faulty ? ", faults" : "");
    fflush(stdout);
    ca_layout_init(&w.layout, CATTN_F32, 1, 1, 2, 2, c);
    assert_int_equal(ca_chunk_pool_create(&w.pool, &w.alloc, w.layout.n_tiles, w.layout.tile_bytes, budget), CATTN_OK);
    assert_int_equal(ca_tree_create(&w.tree, &w.config, &w.layout, w.pool, &w.alloc), CATTN_OK);
    w.seqs = calloc(MAX_SEQS, sizeof *w.seqs);
    w.written = calloc(8192, (size_t)c);
    for (int i = 0; i < N_TEMPLATES; i++)
        for (int j = 0; j < MAX_TOKENS; j++) w.templates[i][j] = random_token(&w);

    for (int call = 0; call < n_calls; call++) {
        const int64_t kind = below(&w, 100);
        const int i = w.n_seqs > 0 ? (int)below(&w, w.n_seqs) : -1;
        const size_t excess = ca_chunk_pool_excess(w.pool, 0);
        w.unchecked = 0;
        if (kind < 25 || i < 0)
            do_join(&w);
        else if (kind < 50)
            do_append(&w, &w.seqs[i]);
        else if (kind < 65)
            do_step(&w);
        else if (kind < 72)
            do_fork(&w, &w.seqs[i]);
        else if (kind < 80)
            do_truncate(&w, &w.seqs[i]);
        else if (kind < 85)
            do_reserve(&w, &w.seqs[i]);
        else if (kind < 98)
            do_leave(&w, i);
        else
            do_workspace(&w, budget);
        check_world(&w);
        check_budget(&w, excess);
    }
    const ca_tree_counts *counts = ca_tree_get_counts(w.tree);
    printf(": %d refused, %d shortened, %d faults, %d of %d tokens matched, %d evicted, %d copies, %d shifted, %d early\n",
           (int)w.n_refused, (int)w.n_shortened, (int)w.n_faults, (int)counts->tokens_matched, (int)counts->tokens_joined,
           (int)counts->tokens_evicted, (int)w.n_copies, (int)w.n_shifted, (int)w.n_early_copies);
    if (budget == budgets[N_BUDGETS - 1]) assert_int_equal(w.n_shortened, 0); /* the budget is large enough */
    while (w.n_seqs > 0) {
        do_leave(&w, 0);
        check_world(&w);
    }
    assert_int_equal(counts->chunks_live, 0);
    ca_delete(&w.alloc, w.workspace, w.workspace_bytes, 1);
    /*
     * Without running sequences a new one gets all chunks that it needs, whatever is retained. Only metadata may prevent that:
     * it is half of the smallest budget if chunks are smaller than nodes.
     */
    const size_t slab_chunks = ca_chunk_pool_slab_chunks(w.pool), needed = (size_t)(800 / c);
    const bool fits = needed + slab_chunks <= ca_chunk_pool_capacity(w.pool);
    assert_true(fits || budget == budgets[0]);
    if (!faulty && fits) {
        set_tokens(w.seqs, 0, w.templates[0], 800);
        assert_int_equal(ca_tree_join(w.tree, w.seqs->tokens, 800, 0, 0, &w.seqs->id, NULL, NULL), CATTN_OK);
        ca_tree_leave(w.tree, find(&w, w.seqs));
        check_world(&w);
    }
    assert_int_equal(counts->chunks_reserved, 0);
    assert_int_equal(counts->chunks_unshared, 0);
    if (retention == CATTN_RETAIN_NONE || sharing == CATTN_PRIVATE) assert_int_equal(counts->n_nodes, 0);
    ca_tree_destroy(&w.tree);
    ca_chunk_pool_trim(w.pool, SIZE_MAX, 0);
    assert_int_equal(ca_chunk_pool_bytes(w.pool), 0);
    ca_chunk_pool_destroy(&w.pool);
    assert_int_equal(w.alloc.bytes, 0);
    free(w.seqs);
    free(w.written);
}

static const int chunk_sizes[] = {4, 16, 32, 64};

static int number_from(const char *variable, int otherwise) {
    const char *value = getenv(variable);
    return value ? atoi(value) : otherwise;
}

static int calls_a_run(void) { return number_from("CATTN_TEST_CALLS", 4000); }

static uint64_t first_seed(void) { return (uint64_t)number_from("CATTN_TEST_SEED", 1); }

/* Runs with budgets[first] to budgets[last], each with every chunk size. Returns the seed after theirs. */
static uint64_t run_budgets(uint64_t seed, int first, int last) {
    const int n_calls = calls_a_run();
    for (int i = 4 * first; i < 4 * (last + 1); i++) {
        const int c = chunk_sizes[i % 4];
        const uint64_t budget = budgets[i / 4];
        run(seed++, n_calls, c, CATTN_SHARED, i % 2 ? CATTN_RETAIN_LRU : CATTN_RETAIN_LEARNED, budget, false);
        run(seed++, n_calls, c, CATTN_SHARED, CATTN_RETAIN_NONE, budget, false);
        if (i % 3 == 0) run(seed++, n_calls, c, CATTN_PRIVATE, CATTN_RETAIN_LRU, budget, false);
    }
    return seed;
}

static void random_calls(void **state) {
    (void)state;
    run_budgets(first_seed(), 0, N_BUDGETS - 1);
}

/* In the smallest budget metadata needs as much memory as chunks, so nearly every call meets the limit. */
static void random_calls_in_the_smallest_budget(void **state) {
    (void)state;
    for (uint64_t seed = first_seed() + 1000; seed < first_seed() + 1030;) seed = run_budgets(seed, 0, 0);
}

static void every_allocation_fails(void **state) {
    (void)state;
    const int n_calls = calls_a_run() / 4;
    for (int i = 0; i < 4; i++) {
        run(first_seed() + 100 + (uint64_t)i, n_calls, chunk_sizes[i], CATTN_SHARED, CATTN_RETAIN_LEARNED, budgets[i % 3],
            true);
        run(first_seed() + 104 + (uint64_t)i, n_calls, chunk_sizes[i], i % 2 ? CATTN_PRIVATE : CATTN_SHARED, CATTN_RETAIN_NONE,
            budgets[2], true);
    }
}

/* Without eviction, the tokens to compute are those that the matching rule gives for the list of prompts. */
static void computed_tokens_follow_the_rule(void **state) {
    (void)state;
    enum { N = 200, LENGTH = 60 };
    static int32_t tokens[N][LENGTH];
    const int32_t *prompts[N];
    int64_t lengths[N];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = {.rng = {seed}, .alloc = ca_alloc_default()};
        ca_layout_init(&w.layout, CATTN_F32, 1, 1, 2, 2, 16);
        assert_int_equal(ca_chunk_pool_create(&w.pool, &w.alloc, w.layout.n_tiles, w.layout.tile_bytes, 4 << 20), CATTN_OK);
        assert_int_equal(ca_tree_create(&w.tree, &w.config, &w.layout, w.pool, &w.alloc), CATTN_OK);
        int64_t n_computed = 0;
        for (int i = 0; i < N; i++) {
            prompts[i] = tokens[i];
            lengths[i] = 1 + below(&w, LENGTH);
            for (int j = 0; j < LENGTH; j++) tokens[i][j] = below(&w, 8) ? 0 : (int32_t)below(&w, 3);
            cattn_seq id;
            assert_int_equal(ca_tree_join(w.tree, tokens[i], lengths[i], 0, 0, &id, NULL, NULL), CATTN_OK);
            n_computed += ca_path_claim(ca_tree_find(w.tree, id)->leaf, LENGTH);
        }
        assert_int_equal(n_computed, naive_computed(prompts, lengths, N));
        const ca_tree_counts *counts = ca_tree_get_counts(w.tree);
        assert_int_equal(counts->tokens_joined - counts->tokens_matched, n_computed);
        assert_int_equal(counts->tokens_stored, n_computed);
        ca_tree_destroy(&w.tree);
        ca_chunk_pool_destroy(&w.pool);
        assert_int_equal(w.alloc.bytes, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls), cmocka_unit_test(random_calls_in_the_smallest_budget),
                                       cmocka_unit_test(every_allocation_fails),
                                       cmocka_unit_test(computed_tokens_follow_the_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
