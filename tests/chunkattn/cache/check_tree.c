/* Recomputes the tree's invariants from its nodes, draws it and hashes it: see check_tree.h. */
#include "tests/support/testing.h"

#include "check_tree.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/cache/tree_internal.h"

#define CHECK(condition, node)                                                                                                 \
    do {                                                                                                                       \
        if (!(condition)) fail_msg("node %" PRIu64 ": not %s", (node) ? (node)->id : 0, #condition);                           \
    } while (0)

/* ---- Invariants ---- */

enum { MAX_CHUNKS = 8192 }; /* more than any test's budget holds */

typedef struct totals {
    uint64_t n_nodes, n_seqs, n_restores, tokens, referenced, unshared, reserved, n_evictable;
    int32_t *refs, *live, *fill, *attended; /* [MAX_CHUNKS] by chunk id */
    uint64_t tokens_retained;
    int64_t with_extras; /* tokens that have extra hashes */
} totals;

static int32_t second_token(const ca_node *node) { return node->n_tokens > 1 ? node->tokens[1] : -1; }

static bool is_before(const ca_node *a, const ca_node *b) {
    if (a->domain != b->domain) return a->domain < b->domain;
    if (a->tokens[0] != b->tokens[0]) return a->tokens[0] < b->tokens[0];
    if (second_token(a) != second_token(b)) return second_token(a) < second_token(b);
    return a->id < b->id;
}

static void check_chunks(ca_tree *tree, const ca_node *node, totals *sum) {
    const int c = tree->layout->c;
    const int64_t first = node->start / c, end = node->start + node->n_tokens;
    CHECK((int64_t)node->n_chunks == (end + c - 1) / c - first, node);
    for (size_t i = 0; i < node->n_chunks; i++) {
        const ca_chunk_id id = node->chunks[i];
        CHECK(id >= 0 && id < MAX_CHUNKS, node);
        sum->refs[id]++;
        sum->live[id] += node->n_seqs > 0;
        const int64_t chunk_start = (first + (int64_t)i) * c;
        const int32_t from = (int32_t)(node->start > chunk_start ? node->start - chunk_start : 0);
        const int32_t to = (int32_t)(end < chunk_start + c ? end - chunk_start : c);
        /* The slots of a chunk are used in ascending order, along one path. */
        const bool continues = i == 0 && node->parent->n_chunks > 0 && id == node->parent->chunks[node->parent->n_chunks - 1];
        if (continues)
            CHECK(sum->fill[id] == from && from > 0, node);
        else
            CHECK(sum->fill[id] == 0, node);
        CHECK(ca_chunk_at(tree->pool, id)->n_copied <= from, node);
        sum->fill[id] = to;
    }
}

static void check_node(ca_tree *tree, const ca_node *node, totals *sum) {
    const ca_node *parent = node->parent;
    sum->n_nodes++;
    sum->tokens += (uint64_t)node->n_tokens;
    if (node->n_seqs == 0) sum->tokens_retained += (uint64_t)node->n_tokens;
    CHECK(node->n_tokens > 0 && node->start % 2 == 0, node);
    CHECK(node->start == parent->start + parent->n_tokens, node);
    CHECK(node->n_children == 0 || node->n_tokens % 2 == 0, node);
    CHECK(!parent->parent || parent->domain == node->domain, node);
    CHECK(0 <= node->n_ready && node->n_ready <= node->n_claimed && node->n_claimed <= node->n_tokens, node);
    CHECK(node->n_ready == 0 || parent->n_ready == parent->n_tokens, node);
    CHECK(node->n_claimed == 0 || parent->n_claimed == parent->n_tokens, node);
    CHECK(0 <= node->n_coming && node->n_ready + node->n_coming <= node->n_tokens, node);
    CHECK(node->n_coming == 0 || node->n_claimed == node->n_ready, node);
    CHECK(node->n_coming == 0 || node->n_ready > 0 || parent->n_ready + parent->n_coming == parent->n_tokens, node);
    CHECK(node->n_seqs > 0 || (node->n_ready == node->n_tokens && node->n_tokens % 2 == 0), node);
    CHECK(!parent->parent || parent->last_use >= node->last_use, node);
    CHECK(node->id <= tree->n_node_ids, node);
    for (int64_t i = 0; i < node->n_tokens; i++) sum->with_extras += node->tokens[i] < 0;
    check_chunks(tree, node, sum);

    int64_t n_seqs = 0;
    for (const ca_seq *seq = node->ending; seq; seq = seq->next) {
        CHECK(seq->leaf == node && seq->n_tokens == node->start + node->n_tokens && seq->domain == node->domain, node);
        n_seqs++;
        if (seq->is_restore) {
            CHECK(!ca_tree_find(tree, seq->id) && seq->n_tokens % tree->layout->c == 0 && seq->n_reserved == 0, node);
            sum->n_restores++;
            continue;
        }
        CHECK(ca_tree_find(tree, seq->id) == seq, node);
        const ca_node *root = node;
        while (root->parent->parent) root = root->parent;
        CHECK(seq->root == root && seq->step_entry == -1, node);
        sum->n_seqs++;
        sum->referenced += (uint64_t)seq->n_tokens;
        sum->unshared += (uint64_t)((seq->n_tokens + tree->layout->c - 1) / tree->layout->c);
        sum->reserved += (uint64_t)seq->n_reserved;
        for (int64_t begin = 0; begin < seq->n_tokens; begin += tree->layout->c) {
            const int64_t last = begin + tree->layout->c < seq->n_tokens ? begin + tree->layout->c - 1 : seq->n_tokens - 1;
            sum->attended[ca_path_chunk(tree, node, last)]++;
        }
    }
    for (size_t i = 0; i < node->n_children; i++) {
        CHECK(node->children[i]->parent == node, node);
        CHECK(i == 0 || is_before(node->children[i - 1], node->children[i]), node);
        n_seqs += node->children[i]->n_seqs;
    }
    CHECK(n_seqs == node->n_seqs, node);

    const bool evictable = node->n_seqs == 0 && node->n_children == 0;
    CHECK(evictable == node->is_evictable, node);
    if (evictable) {
        sum->n_evictable++;
        CHECK(node->use_class < CA_USE_CLASSES, node);
        CHECK(node->account == ca_chunk_at(tree->pool, node->chunks[node->n_chunks - 1])->account, node);
    }
}

/* What each sequence may still need, which depends on whether it owns the rest of its last chunk. */
static void check_reservations(ca_tree *tree, const ca_node *node, totals *sum) {
    const int c = tree->layout->c;
    for (const ca_seq *seq = node->ending; seq; seq = seq->next) {
        const bool alone = node->ending == seq && !seq->next;
        const bool owns = alone && sum->fill[node->chunks[node->n_chunks - 1]] == (seq->n_tokens - 1) % c + 1;
        const int64_t owned = owns ? (seq->n_tokens + c - 1) / c : seq->n_tokens / c;
        const int64_t need = seq->reserve_to > seq->n_tokens ? (seq->reserve_to + c - 1) / c - owned : 0;
        CHECK(seq->n_reserved == need, node);
    }
}

static void visit(ca_tree *tree, void (*fn)(ca_tree *, const ca_node *, totals *), totals *sum) {
    int32_t depth = 0;
    for (const ca_node *node = tree->root; (node = ca_tree_next(node, &depth));) fn(tree, node, sum);
}

/* Visit the leaves of one account and class in their order, and return their number. */
static uint64_t check_treap(const ca_node *root, size_t account, int use_class) {
    if (!root) return 0;
    const ca_node *node = root, *previous = NULL;
    uint64_t n = 0;
    assert_null(root->evict.up);
    while (node->evict.side[0]) node = node->evict.side[0];
    while (node) {
        CHECK(node->is_evictable && node->account == account && node->use_class == use_class, node);
        for (int side = 0; side < 2; side++) CHECK(!node->evict.side[side] || node->evict.side[side]->evict.up == node, node);
        CHECK(!previous || previous->last_use < node->last_use ||
                  (previous->last_use == node->last_use && previous->id < node->id),
              node);
        n++;
        previous = node;
        if (node->evict.side[1]) {
            for (node = node->evict.side[1]; node->evict.side[0];) node = node->evict.side[0];
        } else {
            while (node->evict.up && node->evict.up->evict.side[1] == node) node = node->evict.up;
            node = node->evict.up;
        }
    }
    return n;
}

/*
 * Every token on the way belongs to one restore, which covers it with the sequence that waits for it. Its chunks come after
 * each other, and the restores above it come before it in the list. The tokens end with a chunk, or two tokens before its end.
 */
static void check_restores(ca_tree *tree, const totals *sum) {
    const int64_t c = tree->layout->c;
    int64_t n_coming = 0, n_due = 0;
    int32_t depth = 0;
    assert_int_equal(tree->restores.n, sum->n_restores);
    for (const ca_node *node = ca_tree_next(tree->root, &depth); node; node = ca_tree_next(node, &depth))
        n_coming += node->n_coming;
    for (size_t i = 0; i < tree->restores.n; i++) {
        const ca_restore *r = &tree->restores.at[i];
        assert_true(r->seq->is_restore && r->n_done < r->n_chunks && r->n_chunks <= r->capacity);
        const int64_t first = r->begin / c, begin = r->n_done == 0 ? r->begin : (first + r->n_done) * c;
        const int64_t end = ca_min((first + r->n_chunks) * c, r->end);
        assert_true(r->end == r->seq->n_tokens || r->end == r->seq->n_tokens - 2);
        n_due += end - begin;
        assert_true(end <= r->seq->n_tokens && ca_path_n_coming(r->seq->leaf) >= end && ca_path_n_ready(r->seq->leaf) <= begin);
        for (int64_t p = begin; p < end; p++)
            assert_true(ca_chunk_at(tree->pool, ca_path_chunk(tree, r->seq->leaf, p))->fill == c);
    }
    assert_int_equal(n_coming, n_due);
}

void check_tree(ca_tree *tree, ca_chunk_pool *pool, const ca_chunk_layout *layout) {
    assert_ptr_equal(layout, tree->layout);
    const ca_tree_counts *counts = ca_tree_get_counts(tree);
    totals sum = {.refs = calloc(4 * MAX_CHUNKS, sizeof *sum.refs)};
    assert_non_null(sum.refs);
    sum.live = sum.refs + MAX_CHUNKS;
    sum.fill = sum.live + MAX_CHUNKS;
    sum.attended = sum.fill + MAX_CHUNKS;
    assert_null(tree->held);
    visit(tree, check_node, &sum);
    visit(tree, check_reservations, &sum);

    uint64_t n_live = 0, n_retained = 0, n_attended = 0, of_account[CATTN_MAX_ACCOUNTS] = {0};
    const size_t slab_chunks = ca_chunk_pool_slab_chunks(pool);
    size_t n_live_slabs = 0, last_live_slab = SIZE_MAX;
    for (size_t id = 0; id < MAX_CHUNKS; id++) {
        if (sum.refs[id] == 0) continue;
        const ca_chunk *chunk = ca_chunk_at(pool, (ca_chunk_id)id);
        assert_int_equal(chunk->refs, sum.refs[id]);
        assert_int_equal(chunk->live, sum.live[id]);
        assert_int_equal(chunk->fill, sum.fill[id]);
        if (sum.live[id] == 0) {
            n_retained++;
            of_account[chunk->account]++;
            continue;
        }
        n_live++;
        n_attended += sum.attended[id] > 0;
        n_live_slabs += id / slab_chunks != last_live_slab;
        last_live_slab = id / slab_chunks;
    }
    assert_int_equal(counts->chunks_live, n_live);
    assert_int_equal(counts->chunks_retained, n_retained);
    assert_int_equal(n_live - ca_tree_count_superseded(tree), n_attended);
    assert_true(n_attended <= sum.unshared);
    assert_int_equal(counts->chunks_reserved, sum.reserved);
    assert_int_equal(counts->chunks_unshared, sum.unshared);
    assert_int_equal(counts->tokens_stored, sum.tokens);
    assert_int_equal(counts->tokens_retained, sum.tokens_retained);
    assert_int_equal(counts->tokens_referenced, sum.referenced);
    assert_int_equal(counts->n_nodes, sum.n_nodes);
    assert_int_equal(counts->n_seqs, sum.n_seqs);
    assert_int_equal(tree->root->n_seqs, sum.n_seqs + sum.n_restores);
    check_restores(tree, &sum);
    for (size_t i = 0; i < tree->extras.size; i++) sum.with_extras -= tree->extras.at[i].id != 0 ? tree->extras.at[i].refs : 0;
    assert_int_equal(sum.with_extras, 0);
    uint64_t n_evictable = 0;
    for (size_t a = 0; a < CATTN_MAX_ACCOUNTS; a++) {
        const ca_account none = {0}, *account = a < tree->accounts.n ? &tree->accounts.at[a] : &none;
        assert_int_equal(account->n_retained, of_account[a]);
        for (int i = 0; i < CA_USE_CLASSES; i++) n_evictable += check_treap(account->evictable[i], a, i);
    }
    assert_int_equal(n_evictable, sum.n_evictable);

    /* Memory backs all reservations, and every chunk is either used or free. */
    const size_t n_free = ca_chunk_pool_n_committed_free(pool);
    assert_true(n_free + n_retained >= sum.reserved);
    const size_t n_slabs = (n_free + n_live + n_retained) / slab_chunks;
    assert_int_equal(n_free + n_live + n_retained, n_slabs * slab_chunks);
    assert_int_equal(ca_chunk_pool_n_idle_slabs(pool), n_slabs - n_live_slabs);
    free(sum.refs);
}

static void check_shape(ca_tree *tree, const ca_node *node, totals *sum) {
    (void)sum;
    if (node->n_children != 1 || node->ending) return;
    const ca_node *child = node->children[0];
    CHECK(child->start % tree->layout->c != 0 && child->chunks[0] != node->chunks[node->n_chunks - 1], node);
}

void check_canonical(ca_tree *tree) { visit(tree, check_shape, NULL); }

/* ---- Drawing ---- */

typedef struct pen {
    char *text;
    size_t size, length;
} pen;

static void put(pen *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(p->text + p->length, p->size - p->length, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < p->size - p->length);
    p->length += (size_t)n;
}

static bool covers(const ca_node *node, const ca_seq *seq) {
    const ca_node *at = seq->leaf;
    while (at && at != node) at = at->parent;
    return at != NULL;
}

void draw_tree(ca_tree *tree, const ca_chunk_layout *layout, const cattn_seq *seqs, int n_seqs, char *text, size_t size) {
    pen p = {text, size, 0};
    ca_chunk_id names[64];
    size_t n_names = 0;
    text[0] = 0;
    int32_t depth = -1;
    for (const ca_node *node = tree->root; (node = ca_tree_next(node, &depth));) {
        const int64_t end = node->start + node->n_tokens;
        put(&p, "%*s%d..%d ", 2 * depth, "", (int)node->start, (int)end - 1);
        for (int64_t i = 0; i < node->n_tokens; i++) put(&p, "%c", '0' + node->tokens[i]);
        put(&p, " |");
        for (size_t i = 0; i < node->n_chunks; i++) {
            size_t name = 0;
            while (name < n_names && names[name] != node->chunks[i]) name++;
            if (name == n_names) names[n_names++] = node->chunks[i];
            const int64_t chunk_start = (node->start / layout->c + (int64_t)i) * layout->c;
            const int64_t from = node->start > chunk_start ? node->start : chunk_start;
            const int64_t to = end < chunk_start + layout->c ? end : chunk_start + layout->c;
            put(&p, " %c%d-%d", (int)('A' + name), (int)(from - chunk_start), (int)(to - 1 - chunk_start));
        }
        put(&p, " |");
        for (int i = 0; i < n_seqs; i++) {
            const ca_seq *seq = ca_tree_find(tree, seqs[i]);
            if (seq && covers(node, seq)) put(&p, " %d", i + 1);
        }
        for (int i = 0; i < n_seqs; i++) {
            const ca_seq *seq = ca_tree_find(tree, seqs[i]);
            if (seq && seq->leaf == node) put(&p, " =%d", i + 1);
        }
        put(&p, "\n");
    }
}

/* ---- Hash ---- */

typedef struct hash_state {
    uint64_t h;
    ca_chunk_pool *pool;
} hash_state;

static void mix(uint64_t *h, uint64_t x) {
    *h = (*h ^ x) * 0x9e3779b97f4a7c15u;
    *h ^= *h >> 29;
}

static void hash_node(hash_state *s, const ca_node *node) {
    const uint64_t fields[] = {node->id,
                               node->parent->id,
                               node->domain,
                               (uint64_t)node->start,
                               (uint64_t)node->n_tokens,
                               (uint64_t)node->n_ready,
                               (uint64_t)node->n_claimed,
                               (uint64_t)node->n_coming,
                               (uint64_t)node->n_seqs,
                               node->last_use,
                               node->version,
                               node->is_evictable,
                               node->n_children};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) mix(&s->h, fields[i]);
    for (int64_t i = 0; i < node->n_tokens; i++) mix(&s->h, (uint64_t)node->tokens[i]);
    for (size_t i = 0; i < node->n_chunks; i++) {
        const ca_chunk *chunk = ca_chunk_at(s->pool, node->chunks[i]);
        mix(&s->h, (uint64_t)node->chunks[i]);
        mix(&s->h, (uint64_t)chunk->refs);
        mix(&s->h, (uint64_t)chunk->live);
        mix(&s->h, (uint64_t)chunk->fill);
        mix(&s->h, chunk->account);
    }
    for (const ca_seq *seq = node->ending; seq; seq = seq->next) {
        mix(&s->h, seq->id);
        mix(&s->h, (uint64_t)seq->n_tokens);
        mix(&s->h, (uint64_t)seq->reserve_to);
        mix(&s->h, (uint64_t)seq->n_reserved);
        mix(&s->h, (uint64_t)seq->n_found);
    }
}

uint64_t hash_tree(ca_tree *tree, ca_chunk_pool *pool) {
    hash_state s = {.pool = pool};
    const ca_tree_counts *counts = ca_tree_get_counts(tree);
    for (size_t i = 0; i < sizeof *counts / sizeof(uint64_t); i++) mix(&s.h, ((const uint64_t *)counts)[i]);
    int32_t depth = 0;
    for (const ca_node *node = tree->root; (node = ca_tree_next(node, &depth));) hash_node(&s, node);
    return s.h;
}

static void mix_for_plan(uint64_t *h, const ca_node *node) {
    mix(h, node->id);
    mix(h, (uint64_t)node->start);
    mix(h, (uint64_t)node->n_seqs);
    mix(h, node->n_children);
    for (size_t i = 0; i < node->n_chunks && node->n_seqs > 0; i++) mix(h, (uint64_t)node->chunks[i]);
    for (const ca_seq *seq = node->ending; seq; seq = seq->next) mix(h, seq->id);
}

uint64_t hash_for_plan(const ca_node *root) {
    uint64_t h = 1;
    int32_t depth = 0;
    for (const ca_node *node = root; node && (node == root || depth > 0); node = ca_tree_next(node, &depth))
        mix_for_plan(&h, node);
    return h;
}
