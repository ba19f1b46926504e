/*
 * Level amx for bf16 K and V, through AMX tiles (amx_int8.c has int8). q and the softmax weights are rounded to bf16; sums are
 * f32.
 *
 * A is 16 rows x 32 factors (of q, or weights). B is 16 lines of pairs x 16 columns, as K and V are stored: nothing is unpacked
 * and nothing is copied.
 *
 * The tiles define the arithmetic. Of 32 dimensions or slots, the even and the odd products are summed separately, each with
 * fused roundings and ascending; then the two sums are added to each other, and to the previous sum. So a row's bits depend on
 * where its blocks of 32 begin, which is the same in any tile, and on nothing else. Head sizes that are no multiple of 32, and
 * chunks of 16 slots, have blocks of 16.
 *
 * B has whole lines, and weights of 0 must not meet NaN or infinities. So the last block of V that a row sees has only the
 * lines that are needed, and if only half of the last line is seen, the lines are copied, with zeros for the other half. Rows
 * of a tile that see different slots share these lines, unless a slot that one of them does not see is not finite; then each
 * row has its own.
 */
#include "bf16_rows.h"

#include <stdbool.h>

#include "amx_tiles.h"
#include "chunkattn.h"
#include "int8_level.h"
#include "open_group.h"

enum { PASS_ROWS = 2 * TILE_ROWS };

/* The size of a block of n dimensions, or of the n slots of a chunk. */
static inline int32_t block_of(int32_t n) { return n % 32 == 0 ? 32 : 16; }

/* The slots that a product over the first n > 0 slots of V reads. */
static inline int32_t whole_blocks(int32_t c, int32_t n) { return (n + block_of(c) - 1) / block_of(c) * block_of(c); }

/* Clear the weights that the product reads of slots that the row does not see. Its last 16 slots are clear already. */
static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) {
    const int32_t last = whole_blocks(c, end);
    for (int32_t slot = (n + 15) / 16 * 16; slot < last; slot += 16)
        _mm256_storeu_si256((__m256i *)scores + slot / 16, _mm256_setzero_si256());
}

#include "weigh.h"

/* Complete *p for n_rows <= PASS_ROWS consecutive rows, and compute it. */
static void multiply_rows(product *p, int32_t n_rows) {
    p->n_rows = n_rows < TILE_ROWS ? n_rows : TILE_ROWS;
    p->n_rows_below = n_rows - p->n_rows;
    p->a_below = p->a + TILE_ROWS * p->a_stride;
    p->out_below = p->out + TILE_ROWS * p->out_stride;
    use_shapes(p);
    multiply(p, DOT_BF16);
}

static size_t scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) {
    return sizeof(float) * (PASS_ROWS * (size_t)scores_stride(c) + TILE_ROWS * (size_t)d_v) + (size_t)(d_k / 2) * OPEN_LINE;
}

/* Scores of the slots that some row sees, in whole tiles. */
static void multiply_keys(const ca_tile *t, int32_t most_seen) {
    const int32_t block = block_of(t->d_k), closed = closed_slots(t), open = most_seen - closed;
    product p = {.a = t->q,
                 .b = t->k,
                 .next = t->next_k,
                 .out = t->scratch,
                 .a_stride = (ptrdiff_t)query_bytes(t->d_k),
                 .b_stride = 4 * (ptrdiff_t)t->c,
                 .out_stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float),
                 .a_block = 2 * block,
                 .n_columns = n_parts(open > 0 ? closed : most_seen, TILE_COLUMNS),
                 .n_blocks = t->d_k / block,
                 .n_lines = block / 2};
    if (p.n_columns > 0) multiply_rows(&p, t->n_rows);
    if (open <= 0) return;
    p.next = next_of(&p, p.n_columns);
    char *lines = (char *)((float *)t->scratch + PASS_ROWS * scores_stride(t->c) + TILE_ROWS * t->d_v);
    copy_closed(t, CATTN_BF16, closed, open, lines);
    p.b = lines;
    p.b_stride = OPEN_LINE;
    p.out += p.n_columns * COLUMN_BYTES;
    p.n_columns = 1;
    multiply_rows(&p, t->n_rows);
}

/* The n lines of V from `from` on, the last one with zeros for its second slot, into the scratch. */
static const char *cut_lines(const ca_tile *t, const char *from, int32_t n) {
    const size_t line = 4 * (size_t)t->d_v, whole = (size_t)(n - 1) * line;
    char *copy = (char *)((float *)t->scratch + PASS_ROWS * scores_stride(t->c));
    memcpy(copy, from, whole);
    for (size_t i = whole; i < whole + line; i += 64)
        _mm512_store_si512(copy + i, _mm512_and_si512(_mm512_loadu_si512(from + i), _mm512_set1_epi32(0xffff)));
    __asm__ volatile("" ::: "memory"); /* gcc 12 does not know that a tile load reads it */
    return copy;
}

/* Rows [row, row + n) over the first n_slots > 0 of V. */
static void add_values(const ca_tile *t, int32_t row, int32_t n, int32_t n_slots) {
    const ptrdiff_t stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float);
    const int32_t block = block_of(t->c), whole = n_slots / block;
    product p = {.a = (const char *)t->scratch + row * stride,
                 .b = t->v,
                 .next = t->next_v,
                 .out = (char *)state_at(t, row),
                 .a_stride = stride,
                 .b_stride = 4 * (ptrdiff_t)t->d_v,
                 .out_stride = (ptrdiff_t)state_bytes(t->d_v),
                 .a_block = 2 * block,
                 .n_columns = t->d_v / TILE_COLUMNS,
                 .n_blocks = whole,
                 .n_lines = block / 2,
                 .accumulate = true};
    if (whole > 0) multiply_rows(&p, n);
    if (n_slots % block == 0) return;
    p.a += whole * p.a_block;
    p.b += whole * p.n_lines * p.b_stride;
    p.next = NULL;
    p.n_blocks = 1;
    p.n_lines = n_parts(n_slots % block, 2);
    if (n_slots % 2) p.b = cut_lines(t, p.b, p.n_lines);
    multiply_rows(&p, n);
}

/* Whether slots [begin, end) of V are finite: a bf16 whose exponent is all ones is not. */
static bool are_finite(const ca_tile *t, int32_t begin, int32_t end) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    for (int32_t pair = begin / 2; pair < (end + 1) / 2; pair++) {
        const __mmask32 low = 2 * pair >= begin ? 0x55555555 : 0, high = 2 * pair + 1 < end ? 0xaaaaaaaa : 0;
        const char *line = (const char *)t->v + 4 * (size_t)pair * (size_t)t->d_v;
        for (int32_t i = 0; i < t->d_v; i += V_LANES) {
            const __m512i x = _mm512_and_si512(_mm512_loadu_si512(line + 4 * (size_t)i), exponent);
            if (_mm512_cmpeq_epi16_mask(x, exponent) & (low | high)) return false;
        }
    }
    return true;
}

static int32_t least_slots(const ca_tile *t) {
    int32_t least = slots_seen(t, 0);
    for (int32_t row = 1; t->n_seen && row < t->n_rows; row++) least = t->n_seen[row] < least ? t->n_seen[row] : least;
    return least;
}

static void multiply_values(const ca_tile *t, int32_t most_seen) {
    const int32_t least_seen = least_slots(t);
    if (least_seen > 0 && are_finite(t, least_seen, most_seen)) { /* a row that sees nothing must keep -0 in its state */
        add_values(t, 0, t->n_rows, most_seen);
        return;
    }
    for (int32_t row = 0; row < t->n_rows; row++)
        if (t->n_seen[row] > 0) add_values(t, row, 1, t->n_seen[row]);
}

static void attend(const ca_tile *t) {
    for (int32_t row = 0; row < t->n_rows; row += PASS_ROWS) {
        ca_tile_options options;
        const int32_t left = t->n_rows - row;
        ca_tile rows = ca_tile_rows(&ca_kernels_amx[CATTN_BF16], t, row, left < PASS_ROWS ? left : PASS_ROWS, &options);
        if (row > 0) rows.next_k = rows.next_v = NULL; /* the first pass prefetches it */
        const int32_t most_seen = most_slots(&rows);
        if (most_seen == 0) continue;
        multiply_keys(&rows, most_seen);
        weigh_rows(&rows, rows.scratch, NULL, most_seen);
        multiply_values(&rows, most_seen);
    }
}

#include "write.h"

static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }
static void write_i8(const ca_write *w) { write_tokens(CATTN_I8, w); }

const ca_kernel ca_kernels_amx[CA_N_TYPES] = {
    [CATTN_BF16] = {"amx", CATTN_BF16, MAX_ROWS, TILE_ROWS, 24, query_bytes, state_bytes, scratch_bytes, pack_query, init,
                    attend, merge, write_bf16, widen_rows, narrow_rows, ca_tiles_leave},
    [CATTN_I8] = INT8_KERNEL(amx, TILE_ROWS, 8, ca_tiles_leave),
};
