/*
 * How the x86 levels attend a tile's rows over one chunk: scores of all rows, weights of all rows, then weights times V.
 *
 * Both products have the same form: factors (q, or weights) of a few rows times a panel (of K, or V) that is a few vectors
 * wide, summed over the panel's lines in registers. Panels are the outer loop and row tiles the inner, so a panel stays in L1
 * while all rows pass over it. Meanwhile the next chunk is prefetched, spread over all tiles. All at once, the prefetches would
 * fill the queues to memory and delay the tile's own loads (measured: a sixth of the time at 32 rows). They go to L2, since a
 * core can have only 12 to 24 lines on their way into L1, too few for the latency of memory. If unpacking is expensive, the
 * first row tile keeps the unpacked panel in scratch for the others.
 *
 * Few rows (STREAM_ROWS) over chunks that are adjacent in memory do not prefetch: the processor's own prefetcher is faster
 * there, as it runs further ahead than a core's outstanding lines, as long as one contiguous range is read. That is why panels
 * of V are wide for such rows: two panels of half the width would read the first half of all lines, then the second.
 *
 * Rows are divided evenly among as few tiles as hold them, the smaller ones first, since the first one may unpack as well, and
 * columns among as few panels. Neither changes the bits of a row: a lane of the product is one chain of operations, lines
 * ascending, whatever is computed beside it.
 *
 * Lines of K are dimensions, all of which count. Lines of V are slots, which may hold anything if a row does not see them. So a
 * row tile multiplies the leading slots that all its rows see, and each row then finishes its own slots alone. Integers are
 * always finite: there row tiles multiply all slots that any row of the call sees, with weights of 0 for those unseen.
 *
 * Before it is included, a level must have included row.h, and defined TILE_ROWS (at most, in a tile), STREAM_ROWS (0: never),
 * KEPT_VECS (of a panel that is unpacked, at most), WEIGHT_BYTES (of one slot), INTEGERS (whether it multiplies in integers),
 * seal_weights (weigh.h) and
 *     size_t query_bytes(int32_t d_k)
 *     tile_shape shape_of(int32_t n_rows, int32_t vecs)   rows and vectors of tiles of n_rows rows over `vecs` vectors, at most
 *     bool converts(cattn_type type)                      whether a line as stored is no operand yet
 *     bool unpacks(cattn_type type, int32_t tiles)        whether the first of `tiles` row tiles unpacks a panel for the others
 *     product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs)
 */
#ifndef CHUNKATTN_ATTN_X86_ATTEND_H
#define CHUNKATTN_ATTN_X86_ATTEND_H

#if !defined(CHUNKATTN_ATTN_X86_ROW_H)
#error "include row.h before attend.h"
#endif

#include "chunkattn/cache/layout.h"
#include "int8_scales.h"
#include "open_group.h"
#include "product.h"
#include "weigh.h"

/* Bytes from a line's start to its n-th word; the line that slot or dimension n is in, which a pair or a quad shares. */
static inline ptrdiff_t element_bytes(cattn_type type, int32_t n) { return (ptrdiff_t)n * (type == CATTN_F16 ? 2 : 4); }
static inline ptrdiff_t line_of(cattn_type type, int32_t n) { return n / (int32_t)ca_type_neighbours(type); }

static size_t scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) {
    (void)d_v;
    const int32_t lines = d_k > c ? d_k : c;
    return sizeof(float) * (MAX_ROWS * (size_t)scores_stride(c) + (size_t)lines * KEPT_VECS * V_LANES) +
           (size_t)d_k * OPEN_LINE;
}

/* The size of the next of `parts` parts among which what is left is divided evenly. */
static inline int32_t share_of(int32_t left, int32_t parts) { return (left + parts - 1) / parts; }

/*
 * Of n rows divided among row tiles from the tile-th on, how many tiles are of one size and can be taken by one call. The tile
 * that unpacks a panel for the others is alone.
 */
static inline int32_t equal_tiles(cattn_type type, int32_t n, int32_t tile, int32_t tiles) {
    const int32_t left = tiles - tile;
    return tile == 0 && unpacks(type, tiles) ? 1 : left - n % left;
}

/* A tile in progress and its scratch: scores, scores_stride apart; room for one unpacked panel; an open slot group, closed. */
typedef struct work {
    const ca_tile *tile;
    float *scores, *kept;
    char *group;
    const char *ahead; /* what to prefetch next; NULL: nothing */
    int32_t most_seen; /* leading slots that at least one row sees */
} work;

/* Part of a K or V tile that row tiles pass over. */
typedef struct panel {
    const char *lines;
    ptrdiff_t stride; /* bytes a line */
    int32_t vecs;     /* vectors a line */
    int32_t n_kept;   /* lines or elements of it that are unpacked in the scratch */
} panel;

/*
 * Complete *p, which lacks panel, prefetch and n, and compute it over the first n elements of a panel. It is the tile-th of the
 * row tiles that pass over the panel; -1: an additional one, which does not prefetch.
 */
static inline void run(work *w, product *p, panel *x, cattn_type type, int32_t rows, int32_t n, int32_t tile, int32_t tiles) {
    const ptrdiff_t line = element_bytes(type, x->vecs * V_LANES);
    ptrdiff_t n_lines = line_of(type, n);
    enum product_use use = USE_FIRST;
    p->panel = x->lines;
    p->panel_stride = x->stride;
    p->kept = w->kept;
    p->n = n;
    if (tile == 0 && unpacks(type, tiles)) {
        use = USE_KEEP;
        x->n_kept = n;
    } else if (n <= x->n_kept) {
        use = USE_AGAIN;
        n_lines = n;
        p->panel = (const char *)w->kept;
        p->panel_stride = x->vecs * (ptrdiff_t)sizeof(vec);
    } else if (!converts(type) && (tiles >= x->vecs || !w->ahead)) {
        use = USE_AGAIN;
    }

    /* The tiles together prefetch as many bytes as the panel has. */
    p->next = w->ahead ? w->ahead : x->lines;
    p->next_step = p->next_tile = 0;
    if (w->ahead && tile >= 0 && n_lines > 0) {
        p->next_step = share_of(line * line_of(type, n), (int32_t)n_lines * tiles);
        p->next_tile = p->next_step * n_lines;
        w->ahead += p->next_tile * p->n_tiles;
    }
    find_product(type, use, rows, x->vecs)(p);
}

/* Scores of n slots from `slot` on, in whole groups, where lines of K begin with that slot and are `stride` bytes apart. */
static void score_slots(work *w, cattn_type type, const char *lines, ptrdiff_t stride, int32_t slot, int32_t n) {
    const ca_tile *t = w->tile;
    int32_t vecs = n_parts(n, GROUP) * (GROUP / V_LANES);
    const tile_shape most = shape_of(t->n_rows, vecs);
    const int32_t tiles = n_parts(t->n_rows, most.rows);
    for (int32_t panels = n_parts(vecs, most.vecs); panels > 0; panels--) {
        panel x = {.stride = stride, .vecs = share_of(vecs, panels), .lines = lines};
        for (int32_t row = 0, rows, equal, tile = 0; tile < tiles; tile += equal, row += equal * rows) {
            rows = (t->n_rows - row) / (tiles - tile);
            equal = equal_tiles(type, t->n_rows - row, tile, tiles);
            product p = {.factors = (const char *)t->q + (size_t)row * query_bytes(t->d_k),
                         .factor_stride = (ptrdiff_t)query_bytes(t->d_k),
                         .out = w->scores + row * scores_stride(t->c) + slot,
                         .out_stride = scores_stride(t->c),
                         .lane_scales = type == CATTN_I8 ? int8_scales(t->k, t->d_k, t->c) + slot : NULL,
                         .n_tiles = equal};
            run(w, &p, &x, type, rows, t->d_k, tile, tiles);
        }
        lines += element_bytes(type, x.vecs * V_LANES);
        slot += x.vecs * V_LANES;
        vecs -= x.vecs;
    }
}

/* Scores of the slots that some row sees. */
static void multiply_keys(work *w, cattn_type type) {
    const ca_tile *t = w->tile;
    const int32_t closed = closed_slots(t), open = w->most_seen - closed;
    score_slots(w, type, t->k, element_bytes(type, t->c), 0, open > 0 ? closed : w->most_seen);
    if (open <= 0) return;
    copy_closed(t, type, closed, open, w->group);
    score_slots(w, type, w->group, OPEN_LINE, closed, open);
}

/*
 * Slots that a row tile multiplies together: those that all rows see, up to a whole pair. For integers: whole vectors of slots
 * that at least one row sees.
 */
static inline int32_t slots_all_see(const work *w, cattn_type type, int32_t row, int32_t rows) {
    if (INTEGERS) return n_parts(w->most_seen, GROUP) * GROUP;
    const ca_tile *t = w->tile;
    int32_t least = slots_seen(t, row), most = least;
    for (int32_t r = row + 1; r < row + rows && t->n_seen; r++) {
        least = t->n_seen[r] < least ? t->n_seen[r] : least;
        most = t->n_seen[r] > most ? t->n_seen[r] : most;
    }
    const int32_t neighbours = (int32_t)ca_type_neighbours(type);
    return least == most ? least : least / neighbours * neighbours;
}

/* Add the weights of n slots from `slot` on, times a panel of V that begins there, to columns of the rows' states. */
static inline void add_values(work *w, cattn_type type, panel *x, int32_t column, int32_t slot, int32_t n, int32_t row,
                              int32_t rows, int32_t n_tiles, int32_t tile, int32_t tiles) {
    const ca_tile *t = w->tile;
    product p = {.factors = (const char *)(w->scores + row * scores_stride(t->c)) + slot * WEIGHT_BYTES,
                 .factor_stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float),
                 .out = state_at(t, row) + column,
                 .out_stride = (ptrdiff_t)state_floats(t->d_v),
                 .n_tiles = n_tiles,
                 .accumulate = true};
    run(w, &p, x, type, rows, n, tile, tiles);
}

static void multiply_values(work *w, cattn_type type) {
    const ca_tile *t = w->tile;
    int32_t column = 0, vecs = t->d_v / V_LANES;
    const tile_shape most = shape_of(t->n_rows, vecs);
    const int32_t tiles = n_parts(t->n_rows, most.rows);
    for (int32_t panels = n_parts(vecs, most.vecs); panels > 0; panels--) {
        panel x = {.stride = element_bytes(type, t->d_v), .vecs = share_of(vecs, panels)};
        x.lines = (const char *)t->v + element_bytes(type, column);
        for (int32_t row = 0, rows, equal, tile = 0; tile < tiles; tile += equal, row += equal * rows) {
            rows = (t->n_rows - row) / (tiles - tile);
            equal = t->n_seen ? 1 : equal_tiles(type, t->n_rows - row, tile, tiles);
            const int32_t all = slots_all_see(w, type, row, rows);
            if (all > 0) add_values(w, type, &x, column, 0, all, row, rows, equal, tile, tiles);
            for (int32_t r = row; t->n_seen && r < row + rows; r++) {
                const int32_t own = t->n_seen[r] - all;
                panel rest = {.stride = x.stride, .vecs = x.vecs, .lines = x.lines + line_of(type, all) * x.stride};
                if (own > 0) add_values(w, type, &rest, column, all, own, r, 1, 1, -1, tiles);
            }
        }
        column += x.vecs * V_LANES;
        vecs -= x.vecs;
    }
}

/* Whether the next chunk directly follows this one in memory, and few rows read both. */
static inline bool is_stream(const ca_tile *t, cattn_type type) {
    const size_t v_bytes = (size_t)t->c * (size_t)t->d_v * ca_type_size(type);
    return t->n_rows <= STREAM_ROWS && t->next_k == (const char *)t->v + v_bytes;
}

static inline void attend(const ca_tile *t, cattn_type type) {
    float *scores = t->scratch, *kept = scores + MAX_ROWS * scores_stride(t->c);
    char *group = (char *)t->scratch + scratch_bytes(t->d_k, t->d_v, t->c) - (size_t)t->d_k * OPEN_LINE;
    const bool asks = !is_stream(t, type);
    work w = {t, scores, kept, group, asks ? t->next_k : NULL, most_slots(t)};
    const float *v_scales = NULL;
    if (type == CATTN_I8) {
        v_scales = int8_scales(t->v, t->d_v, t->c);
        prefetch_scales(t->next_k, t->d_k, t->c);
        prefetch_scales(t->next_v, t->d_v, t->c);
    }

    multiply_keys(&w, type);
    weigh_rows(t, scores, v_scales, w.most_seen);
    w.ahead = asks ? t->next_v : NULL;
    multiply_values(&w, type);
}

#endif
