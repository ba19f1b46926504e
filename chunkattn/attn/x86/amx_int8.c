/*
 * Level amx for int8 K and V, through AMX tiles, with the bits of avx512_vnni: sums of integers are exact in any order, and the
 * f32 operations on them are the same.
 *
 * Scores: A is 16 rows x 64 dimensions of q, signed, B is 16 lines of quads of K, unsigned, x 16 slots. Values: A is 16 rows x
 * 64 slots of weights' high bytes, then of their low bytes, B is 16 lines of quads of V x 16 dimensions. High and low bytes are
 * the two row tiles of one product, so each B is loaded once for both. The tiles' sums go through the scratch.
 *
 * Slots that a row does not see have weight 0, and integers are always finite, so all rows multiply the same slots.
 *
 * Up to 6 rows are a register tile of avx512_vnni, which is faster: AMX tiles of few rows take as long as tiles of 16, and
 * their sums go through memory. Rows are processed in passes of one row tile, whose scores, sums and states stay in L1.
 */
#include "vec512.h"

#include "amx_tiles.h"
#include "int8_level.h"
#include "int8_quads.h"
#include "int8_scales.h"
#include "open_group.h"

enum { FEW_ROWS = 6, PASS_ROWS = TILE_ROWS, BLOCK_SLOTS = 4 * TILE_LINES, BLOCK_GROUPS = BLOCK_SLOTS / V_LANES };

/*
 * A row's weights stand where its scores were: those of each 64 slots, or of a smaller chunk, as all high bytes, then all low
 * ones.
 */
static inline int32_t low_bytes(int32_t c) { return c < BLOCK_SLOTS ? c : BLOCK_SLOTS; }

/* Slots of a block when the product runs over the first n > 0 slots of V, in whole groups. */
static inline int32_t block_of(int32_t n) { return n < BLOCK_SLOTS ? (n + V_LANES - 1) / V_LANES * V_LANES : BLOCK_SLOTS; }

static inline __m512i seal_group(const float *weights, vec up, bool seen) {
    return seen ? weights_to_quads(weights, up) : _mm512_setzero_si512();
}

/*
 * Convert a block of weights, of which the row sees `groups` vectors of 16, to bytes. Those beyond a small chunk are
 * overwritten.
 */
static inline __attribute__((always_inline)) void seal_block(float *weights, vec up, int groups, int32_t low) {
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29); /* high, then low */
    __m512i quads[BLOCK_GROUPS];
#pragma GCC unroll 4
    for (int g = 0; g < BLOCK_GROUPS; g++) quads[g] = seal_group(weights + g * V_LANES, up, g < groups);
    const __m512i a = _mm512_permutex2var_epi32(quads[0], first, quads[1]);
    const __m512i b = _mm512_permutex2var_epi32(quads[2], first, quads[3]);
    _mm512_storeu_si512(weights, _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1));
    _mm512_storeu_si512((char *)weights + low, _mm512_shuffle_i64x2(a, b, 0xee));
}

/* A row's first n slots, and zeros up to a whole block behind `end`. */
static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) {
    const int groups = (n + V_LANES - 1) / V_LANES;
    unit u = {v_set1(0), scale_of_nothing()};
    if (groups == BLOCK_GROUPS && end <= BLOCK_SLOTS) { /* whole chunks of the usual size, straight on */
        u = unit_of(scores, BLOCK_GROUPS);
        seal_block(scores, u.up, BLOCK_GROUPS, BLOCK_SLOTS);
    } else {
        if (groups > 0) u = unit_of(scores, groups);
        for (int g = 0; g * V_LANES < end; g += BLOCK_GROUPS) seal_block(scores + g * V_LANES, u.up, groups - g, low_bytes(c));
    }
    end_weights(scores, c, u.down);
}

#include "weigh.h"

/*
 * Scores [PASS_ROWS][scores_stride], then sums of SUM_COLUMNS tiles [2][high, low][PASS_ROWS][SUM_STRIDE]: of those that tiles
 * are at, and of those before, which go to the states meanwhile.
 */
enum { SUM_COLUMNS = 2, SUM_STRIDE = SUM_COLUMNS * TILE_COLUMNS, SUMS = PASS_ROWS * SUM_STRIDE };
static inline int32_t *sums_of(const ca_tile *t, int32_t tile) {
    return (int32_t *)t->scratch + PASS_ROWS * scores_stride(t->c) + tile / SUM_COLUMNS % 2 * 2 * SUMS;
}

static const factors_end *end_of_query(const ca_tile *t, int32_t row) {
    return (const factors_end *)((const char *)t->q + (size_t)(row + 1) * query_bytes(t->d_k) - END_BYTES);
}
static const factors_end *end_of_weights(const ca_tile *t, int32_t row) {
    return (const factors_end *)((const float *)t->scratch + row * scores_stride(t->c) + t->c);
}

/* As few blocks as divide the dimensions evenly. */
static inline int32_t blocks_of(int32_t d) {
    const int32_t lines = d / 4;
    int32_t n = n_parts(lines, TILE_LINES);
    while (lines % n > 0) n++;
    return n;
}

/*
 * Prefetch n lines of the next chunk's K or V: for each row and, of V, for each sum of columns. They are spread evenly between
 * the vector instructions. In the products, where they would come all at once, 32 rows from memory took up to a fifth longer.
 */
static inline void prefetch_lines(const char *next, int32_t line, int32_t n) {
    for (int32_t i = 0; next && i < n; i++) _mm_prefetch(next + (line + i) * 64, _MM_HINT_T1);
}

/* Convert sums of integers to scores, for `groups` vectors of 16 slots. */
static inline void finish_scores(const ca_tile *t, int groups, int32_t lines) {
    const float *scales = int8_scales(t->k, t->d_k, t->c);
    for (int32_t row = 0; row < t->n_rows; row++) {
        const factors_end *end = end_of_query(t, row);
        prefetch_lines(t->next_k, row * lines, lines);
        const __m512i start = _mm512_set1_epi32(end->start);
        const vec scale = v_set1(end->scale);
        float *scores = (float *)t->scratch + row * scores_stride(t->c);
        for (int i = 0; i < groups * V_LANES; i += V_LANES) {
            const vec sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_loadu_si512(scores + i), start));
            v_store(scores + i, v_mul(v_mul(sum, scale), v_load(scales + i)));
        }
    }
}

/* Scores of the slots that some row sees, in whole groups. */
static void multiply_keys(const ca_tile *t, int32_t most_seen, int32_t lines) {
    const int32_t n_blocks = blocks_of(t->d_k), n_lines = t->d_k / 4 / n_blocks;
    const int32_t closed = closed_slots(t), open = most_seen - closed;
    product p = {.a = t->q,
                 .b = t->k,
                 .out = t->scratch,
                 .a_stride = (ptrdiff_t)query_bytes(t->d_k),
                 .b_stride = 4 * (ptrdiff_t)t->c,
                 .out_stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float),
                 .a_block = 4 * n_lines,
                 .n_rows = t->n_rows,
                 .n_columns = n_parts(open > 0 ? closed : most_seen, TILE_COLUMNS),
                 .n_blocks = n_blocks,
                 .n_lines = n_lines};
    use_shapes(&p);
    multiply(&p, DOT_SIGNED_BY_UNSIGNED);
    if (open > 0) {
        char *group = (char *)(sums_of(t, 0) + 4 * SUMS);
        copy_closed(t, CATTN_I8, closed, open, group);
        p.b = group;
        p.b_stride = OPEN_LINE;
        p.out += p.n_columns * COLUMN_BYTES;
        p.n_columns = 1;
        multiply(&p, DOT_SIGNED_BY_UNSIGNED);
    }
    finish_scores(t, n_parts(most_seen, TILE_COLUMNS), lines);
}

/* Sums of so many tiles of V to the rows' states. */
static inline void add_sums(const ca_tile *t, int32_t tile, int32_t n_tiles, int32_t lines) {
    const int32_t *high = sums_of(t, tile), *low = high + SUMS;
    for (int32_t row = 0; row < t->n_rows; row++, high += SUM_STRIDE, low += SUM_STRIDE) {
        const vec scale = v_set1(end_of_weights(t, row)->scale);
        prefetch_lines(t->next_v, (tile / SUM_COLUMNS * t->n_rows + row) * lines, lines);
        float *out = state_at(t, row) + tile * TILE_COLUMNS;
        for (int32_t i = 0; i < n_tiles * TILE_COLUMNS; i += V_LANES) {
            const __m512i shifted = _mm512_slli_epi32(_mm512_loadu_si512(high + i), 8);
            const vec sum = _mm512_cvtepi32_ps(_mm512_add_epi32(shifted, _mm512_loadu_si512(low + i)));
            v_store(out + i, v_fma(sum, scale, v_load(out + i)));
        }
    }
}

/* Weights times the first most_seen slots of V, to the states. */
static void multiply_values(const ca_tile *t, int32_t most_seen, int32_t lines) {
    const int32_t block = block_of(most_seen), n_tiles = t->d_v / TILE_COLUMNS;
    product p = {.a = t->scratch,
                 .a_below = (const char *)t->scratch + low_bytes(t->c),
                 .b = t->v,
                 .a_stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float),
                 .b_stride = 4 * (ptrdiff_t)t->d_v,
                 .out_stride = SUM_STRIDE * (ptrdiff_t)sizeof(int32_t),
                 .a_block = BLOCK_SLOTS * (ptrdiff_t)sizeof(float),
                 .n_rows = t->n_rows,
                 .n_rows_below = t->n_rows,
                 .n_columns = SUM_COLUMNS,
                 .n_blocks = n_parts(most_seen, block),
                 .n_lines = block / 4};
    use_shapes(&p);
    for (int32_t tile = 0; tile < n_tiles; tile += SUM_COLUMNS) {
        if (n_tiles - tile < SUM_COLUMNS) p.n_columns = n_tiles - tile;
        p.out = (char *)sums_of(t, tile);
        p.out_below = p.out + SUMS * sizeof(int32_t);
        multiply(&p, DOT_UNSIGNED_BY_SIGNED);
        if (tile > 0) add_sums(t, tile - SUM_COLUMNS, SUM_COLUMNS, lines);
        p.b += SUM_COLUMNS * COLUMN_BYTES;
    }
    add_sums(t, (n_tiles - 1) / SUM_COLUMNS * SUM_COLUMNS, p.n_columns, lines);
}

static const ca_kernel *const vnni = &ca_kernels_avx512_vnni[CATTN_I8];

/* Scratch: its scores of 96 rows are more than those of 16 and the sums, also in chunks of 16 slots. */
size_t ca_amx_int8_query_bytes(int32_t d_k) { return vnni->query_bytes(d_k); }
size_t ca_amx_int8_scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) { return vnni->scratch_bytes(d_k, d_v, c); }
void ca_amx_int8_pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    vnni->pack_query(q, row_stride, n_rows, d_k, scale_log2, packed);
}

/* The address `bytes` into a tile that is to be prefetched; NULL if none is. */
static inline const char *part_of(const void *next, int32_t bytes) { return next ? (const char *)next + bytes : NULL; }

void ca_amx_int8_attend(const ca_tile *t) {
    if (t->n_rows <= FEW_ROWS) {
        vnni->attend(t);
        return;
    }
    const int32_t sums = n_parts(t->d_v, SUM_STRIDE);
    const int32_t k_lines = n_parts(t->d_k * t->c / 64, t->n_rows), v_lines = n_parts(t->d_v * t->c / 64, t->n_rows * sums);
    prefetch_scales(t->next_k, t->d_k, t->c);
    prefetch_scales(t->next_v, t->d_v, t->c);
    for (int32_t row = 0; row < t->n_rows; row += PASS_ROWS) {
        ca_tile_options options;
        const int32_t left = t->n_rows - row;
        ca_tile rows = ca_tile_rows(&ca_kernels_amx[CATTN_I8], t, row, left < PASS_ROWS ? left : PASS_ROWS, &options);
        const int32_t most_seen = most_slots(&rows);
        rows.next_k = left > FEW_ROWS ? part_of(t->next_k, row * k_lines * 64) : NULL;
        rows.next_v = left > FEW_ROWS ? part_of(t->next_v, row * sums * v_lines * 64) : NULL;
        if (left <= FEW_ROWS) {
            vnni->attend(&rows);
        } else if (most_seen > 0) {
            multiply_keys(&rows, most_seen, k_lines);
            weigh_rows(&rows, rows.scratch, int8_scales(t->v, t->d_v, t->c), most_seen);
            multiply_values(&rows, most_seen, v_lines);
        }
    }
}
