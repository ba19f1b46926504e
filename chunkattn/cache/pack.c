/*
 * Packing: retained leaves that fill chunks only in part share them.
 *
 * A leaf's piece is what it has of a chunk that it does not fill and shares with no other node: in its first chunk, from its
 * first slot on, or in its last chunk, up to its last slot. Pieces of leaves that no sequence covers need not be at the slots
 * of their positions, since no step reads them. When a chunk is needed and none is free, such a piece moves into slots that
 * another piece's chunk has free, and its own chunk becomes free. If no chunk has room for it and
 * enough other leaves are there to move in, its own chunk becomes a packing chunk, in which its slots stay where they are:
 *
 *   c = 8   leaf a [.. a2 a3 a4 a5 ..]   leaf b [b0 b1 .. .. ..]   leaf c [.. .. c2 c3 ..]
 *       =>  [b0 b1 a2 a3 a4 a5 c2 c3], a packing chunk with the pieces of a, b and c; two chunks are free
 *
 * Slots before a leaf's first one, which hold copies of its ancestors' tokens (tree.h), are not part of the piece: they are
 * copied again when the leaf is unpacked, since its parent has them.
 *
 * A match unpacks: a piece that is alone in its chunk and at its own slots gets the chunk back, and another piece moves to a
 * new chunk. Evicting a piece frees its slots for later pieces. Hence every packing chunk is retained, and becomes free when
 * all leaves that no sequence covers are evicted: reservations may count on it as on any other retained chunk (budget.c).
 *
 * Slots are allotted in units, of which a chunk has at most 32, so that one word says which of them are in use. Packing chunks
 * are in lists by the length of their longest run of free units; a piece takes the shortest run that holds it.
 *
 * Nothing is packed before memory is short. Moving a piece costs a copy of its tokens, in the next step, where eviction would
 * cost their recomputation. A call evicts instead when MOST_PENDING commands wait for a step, so that what a step has to copy
 * is bounded and no copy has to be carried out early.
 */
#include "tree_internal.h"

/* ---- Units ---- */

/* A unit has an even number of slots, a power of two. */
static int log2_unit(const ca_tree *tree) {
    const int log2_units = __builtin_ctz(CA_PACK_UNITS);
    return tree->layout->log2_c > log2_units ? tree->layout->log2_c - log2_units : 1;
}

static uint32_t all_units(const ca_tree *tree) { return UINT32_MAX >> (CA_PACK_UNITS - (tree->layout->c >> log2_unit(tree))); }

/* n (> 0) units from the first one on. */
static uint32_t units(int first, int n) { return UINT32_MAX >> (CA_PACK_UNITS - n) << first; }

static int longest_run(uint32_t free) {
    int n = 0;
    for (; free; free &= free >> 1) n++;
    return n;
}

/* The first unit of the lowest run of n free units, of which there must be one. */
static int lowest_run(uint32_t free, int n) {
    for (int i = 1; i < n; i++) free &= free >> 1;
    assert(free);
    return __builtin_ctz(free);
}

/* ---- The lists of packing chunks ---- */

static ca_chunk_id *list_of(ca_tree *tree, const ca_chunk *chunk, int *length) {
    *length = longest_run(all_units(tree) & ~chunk->packed);
    return &tree->packing.chunks[*length];
}

static void link_chunk(ca_tree *tree, ca_chunk_id id) {
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    int length;
    ca_chunk_id *first = list_of(tree, chunk, &length);
    chunk->prev = -1;
    chunk->next = *first;
    if (*first >= 0) ca_chunk_at(tree->pool, *first)->prev = id;
    *first = id;
    tree->packing.lengths |= UINT64_C(1) << length;
}

static void unlink_chunk(ca_tree *tree, ca_chunk_id id) {
    const ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    int length;
    ca_chunk_id *first = list_of(tree, chunk, &length);
    if (chunk->next >= 0) ca_chunk_at(tree->pool, chunk->next)->prev = chunk->prev;
    if (chunk->prev >= 0) {
        ca_chunk_at(tree->pool, chunk->prev)->next = chunk->next;
        return;
    }
    *first = chunk->next;
    if (*first < 0) tree->packing.lengths &= ~(UINT64_C(1) << length);
}

/* Change the units that are in use in a packing chunk; in one with none, `packed` is 0, and it is a packing chunk no more. */
static void set_packed(ca_tree *tree, ca_chunk_id id, uint32_t packed) {
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    if (chunk->packed) unlink_chunk(tree, id);
    chunk->packed = packed;
    if (packed) link_chunk(tree, id);
}

/* A packing chunk with a run of n free units, as short as possible; -1 if there is none. */
static ca_chunk_id find_room(const ca_tree *tree, int n) {
    const uint64_t lengths = tree->packing.lengths >> n << n;
    return lengths ? tree->packing.chunks[__builtin_ctzll(lengths)] : -1;
}

/* ---- Pieces ---- */

enum { FIRST, LAST, N_PIECES }; /* indices of ca_node.packed */

/* What a leaf has of a chunk, at the slots of its positions. */
typedef struct piece {
    size_t chunk; /* index of the chunk in the leaf */
    int32_t begin, end;
} piece;

static piece piece_of(const ca_tree *tree, const ca_node *node, int i) {
    const size_t chunk = i == FIRST ? 0 : node->n_chunks - 1;
    const int64_t at = (ca_chunk_of(tree, node->start) + (int64_t)chunk) << tree->layout->log2_c;
    return (piece){chunk, (int32_t)ca_max(node->start - at, 0), (int32_t)ca_min(ca_node_end(node) - at, tree->layout->c)};
}

static int first_unit(const ca_tree *tree, const piece *p) { return p->begin >> log2_unit(tree); }

static int n_units(const ca_tree *tree, const piece *p) {
    const int log2 = log2_unit(tree);
    return ((p->end + (1 << log2) - 1) >> log2) - (p->begin >> log2);
}

/* By how many slots the piece is shifted if its first unit is `unit`. */
static int32_t shift_to(const ca_tree *tree, const piece *p, int unit) {
    return (unit - first_unit(tree, p)) * (1 << log2_unit(tree));
}

/* The number of pieces that a node can have: its only chunk is its first one. */
static int n_pieces(const ca_node *node) { return node->n_chunks > 1 ? N_PIECES : LAST; }

/* Whether moving piece i would free a chunk. */
static bool can_pack(const ca_tree *tree, const ca_node *leaf, int i) {
    const piece p = piece_of(tree, leaf, i);
    return !leaf->packed[i] && p.end - p.begin < tree->layout->c && ca_chunk_at(tree->pool, leaf->chunks[p.chunk])->refs == 1;
}

bool ca_pack_has_last(const ca_node *node) { return node->packed[n_pieces(node) - 1] != 0; }

/* ---- The list of leaves to pack ---- */

void ca_pack_init(ca_tree *tree) {
    for (int i = 0; i <= CA_PACK_UNITS; i++) tree->packing.chunks[i] = -1;
}

void ca_pack_list(ca_tree *tree, ca_node *leaf) {
    assert(!leaf->to_pack);
    if (!tree->config.packs) return;
    bool can = false;
    for (int i = 0; i < n_pieces(leaf); i++) can |= can_pack(tree, leaf, i);
    if (!can) return;
    ca_packing *p = &tree->packing;
    leaf->to_pack = true;
    p->n_leaves++;
    leaf->pack_prev = p->last;
    leaf->pack_next = NULL;
    *(p->last ? &p->last->pack_next : &p->first) = leaf;
    p->last = leaf;
}

void ca_pack_forget(ca_tree *tree, ca_node *leaf) {
    if (!leaf->to_pack) return;
    ca_packing *p = &tree->packing;
    leaf->to_pack = false;
    p->n_leaves--;
    *(leaf->pack_prev ? &leaf->pack_prev->pack_next : &p->first) = leaf->pack_next;
    *(leaf->pack_next ? &leaf->pack_next->pack_prev : &p->last) = leaf->pack_prev;
}

/* ---- Packing ---- */

/* Let chunk `id` take the place of one of node's chunks. No sequence covers node. */
static void replace_chunk(ca_tree *tree, ca_node *node, size_t i, ca_chunk_id id) {
    assert(node->n_seqs == 0);
    ca_chunk_unref(tree, node->chunks[i]);
    node->chunks[i] = id;
    ca_chunk_ref(tree, id);
}

/* Move piece i of a leaf to a packing chunk, which has room for it, and free its own chunk. */
static void move_to(ca_tree *tree, ca_node *leaf, int i, ca_chunk_id id) {
    const piece p = piece_of(tree, leaf, i);
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    const int n = n_units(tree, &p), unit = lowest_run(all_units(tree) & ~chunk->packed, n);
    const int32_t shift = shift_to(tree, &p, unit);
    ca_kv_record_move(&tree->commands, tree->pool, id, leaf->chunks[p.chunk], p.begin, p.end, shift);
    chunk->n_copied = 0; /* these slots may be overwritten now, and belong to one of the pieces */
    leaf->packed[i] = units(unit, n);
    set_packed(tree, id, chunk->packed | leaf->packed[i]);
    replace_chunk(tree, leaf, p.chunk, id);
}

/* Let the chunk of piece i of a leaf be a packing chunk. */
static void open_chunk(ca_tree *tree, ca_node *leaf, int i) {
    const piece p = piece_of(tree, leaf, i);
    ca_chunk_leave_tier(tree, leaf->chunks[p.chunk]);
    leaf->packed[i] = units(first_unit(tree, &p), n_units(tree, &p));
    set_packed(tree, leaf->chunks[p.chunk], leaf->packed[i]);
}

bool ca_pack_one(ca_tree *tree) {
    enum { MOST_PENDING = CA_KV_PENDING * 3 / 4, PART_TO_MOVE = 32 };
    ca_node *leaf = tree->packing.first;
    if (!leaf || tree->commands.n >= MOST_PENDING) return false;
    /*
     * If few leaves are left that could move in, it is better to evict a piece, and to move this one to its place: once there
     * is none, a chunk becomes free only when all its pieces happen to be evicted.
     */
    const size_t least = 1 + tree->n_evictable / PART_TO_MOVE;
    bool changed = false, complete = true;
    for (int i = 0; i < n_pieces(leaf); i++) {
        if (!can_pack(tree, leaf, i)) continue;
        const piece p = piece_of(tree, leaf, i);
        const ca_chunk_id id = find_room(tree, n_units(tree, &p));
        const bool opens = id < 0 && tree->packing.n_leaves > least;
        if (id >= 0)
            move_to(tree, leaf, i, id);
        else if (opens)
            open_chunk(tree, leaf, i);
        changed |= id >= 0 || opens;
        complete &= id >= 0 || opens;
    }
    if (complete) ca_pack_forget(tree, leaf);
    return changed || complete;
}

/* ---- Unpacking ---- */

void ca_pack_release(ca_tree *tree, ca_node *node, int i, ca_chunk_id id) {
    if (!node->packed[i]) return;
    set_packed(tree, id, ca_chunk_at(tree->pool, id)->packed & ~node->packed[i]);
    node->packed[i] = 0;
}

/* Whether piece i holds some of node's first n_node_tokens tokens, and is packed. */
static bool must_unpack(const ca_tree *tree, const ca_node *node, int i, int64_t n_node_tokens) {
    if (!node->packed[i]) return false;
    const int64_t chunk = ca_chunk_of(tree, node->start) + (int64_t)piece_of(tree, node, i).chunk;
    return node->start + n_node_tokens > chunk << tree->layout->log2_c;
}

/*
 * Whether a piece can have its chunk back: it is alone there, where it was, and no slot group is open that is full or that the
 * piece does not reach, since steps leave none open.
 */
static bool is_in_place(const ca_tree *tree, const ca_node *node, int i) {
    const piece p = piece_of(tree, node, i);
    const ca_chunk *chunk = ca_chunk_at(tree->pool, node->chunks[p.chunk]);
    const uint32_t may_be_open = p.end % CA_SLOT_GROUP > 0 ? ca_slot_group_bit(p.end) : 0;
    return chunk->refs == 1 && (chunk->open & ~may_be_open) == 0 &&
           node->packed[i] == units(first_unit(tree, &p), n_units(tree, &p));
}

int64_t ca_pack_n_to_take(const ca_tree *tree, const ca_node *node, int64_t n_node_tokens) {
    int64_t n = 0;
    for (int i = 0; i < n_pieces(node); i++) n += must_unpack(tree, node, i, n_node_tokens) && !is_in_place(tree, node, i);
    return n;
}

/* Copy the ancestors' slots of an absolute chunk, of which the first n_copied are there, to the piece's chunk again. */
static void complete_chunk(ca_tree *tree, const ca_node *node, const piece *p) {
    const ca_chunk_id id = node->chunks[p->chunk];
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    chunk->fill = p->end;
    if (chunk->n_copied >= p->begin) return;
    const ca_node *parent = node->parent;
    ca_kv_record_copy(&tree->commands, tree->pool, id, parent->chunks[parent->n_chunks - 1], chunk->n_copied, p->begin);
    chunk->n_copied = p->begin;
}

/* Move a piece to a chunk of its own. */
static void move_out(ca_tree *tree, ca_node *node, int i) {
    const piece p = piece_of(tree, node, i);
    const ca_chunk_id from = node->chunks[p.chunk];
    const int32_t shift = shift_to(tree, &p, __builtin_ctz(node->packed[i]));
    ca_chunk_id to;
    const cattn_status status = ca_chunk_pool_get(tree->pool, &to);
    assert(status == CATTN_OK); /* it has been provided */
    (void)status;
    ca_kv_record_move(&tree->commands, tree->pool, to, from, p.begin + shift, p.end + shift, -shift);
    ca_pack_release(tree, node, i, from);
    replace_chunk(tree, node, p.chunk, to);
    complete_chunk(tree, node, &p);
}

void ca_pack_unpack_in_place(ca_tree *tree, ca_node *node, int64_t n_node_tokens) {
    assert(!node->is_evictable && !node->to_pack);
    for (int i = 0; i < n_pieces(node); i++) {
        if (!must_unpack(tree, node, i, n_node_tokens) || !is_in_place(tree, node, i)) continue;
        const piece p = piece_of(tree, node, i);
        ca_pack_release(tree, node, i, node->chunks[p.chunk]);
        complete_chunk(tree, node, &p);
    }
}

void ca_pack_unpack(ca_tree *tree, ca_node *node, int64_t n_node_tokens) {
    for (int i = 0; i < n_pieces(node); i++)
        if (must_unpack(tree, node, i, n_node_tokens)) move_out(tree, node, i);
}
