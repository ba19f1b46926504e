/*
 * Level amx: bf16 K and V through AMX tiles; q and the softmax weights are rounded to bf16, sums are f32.
 *
 * A is 16 rows x 32 factors (of q, or weights), B is 16 lines of pairs x 16 columns, as K and V are stored: nothing is unpacked
 * and nothing is copied. Four tiles of sums: two row tiles by two columns of tiles, so that each A and each B is loaded for two
 * products; a single row tile, whose time goes by its B tiles however few its rows are, takes four columns.
 *
 * The arithmetic is the tiles': of 32 dimensions or slots the even and the odd products are summed apart, each with fused
 * roundings and ascending, then the two sums are added, and to what was there. So a row's bits depend on where its blocks of 32
 * begin, which is the same in any tile, and on nothing else. Where a dimension is no multiple of 32, and in chunks of 16 slots,
 * blocks are of 16.
 *
 * B takes whole lines, where weights of 0 must not meet what is not a number: of the last block that a row sees of V, a copy is
 * taken with zeros behind. Rows of a tile that see different slots share the copy, unless what one of them does not see is not
 * finite: then each takes its own.
 */
#include "lib/attn/x86/bf16_rows.h"

#include <stdbool.h>

#include "base/tiles.h"
#include "chunkattn.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 16, COLUMN_BYTES = 64 /* of a line of B, or a row of sums */ };

/* Slots of a block of weights; chunks are that large at least, or the block is the chunk. */
static inline int32_t block_of(int32_t n) { return n % 32 == 0 ? 32 : 16; }

/* Slots that a product over the first n > 0 slots of V runs over. */
static inline int32_t whole_blocks(int32_t c, int32_t n) { return (n + block_of(c) - 1) / block_of(c) * block_of(c); }

/* Weights that the product reads of slots that the row does not see. Those of its last group of 16 are 0 already. */
static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) {
    const int32_t last = whole_blocks(c, end);
    for (int32_t slot = (n + 15) / 16 * 16; slot < last; slot += 16)
        _mm256_storeu_si256((__m256i *)scores + slot / 16, _mm256_setzero_si256());
}

#include "lib/attn/x86/weigh.h"

/* ---- Products ---- */

/* One row tile, or two, by all columns: out = or += A times B. */
typedef struct product {
    const char *a;    /* factors of the first row */
    const char *b;    /* the first line */
    const char *next; /* to prefetch as many bytes as the lines have; NULL: nothing */
    char *out;
    ptrdiff_t a_stride, b_stride, out_stride; /* bytes to the next row, line, row */
    int32_t n_rows;                           /* 1..32 */
    int32_t n_columns;                        /* of tiles */
    int32_t n_blocks, block;                  /* of 32 or 16 factors */
    bool accumulate;
} product;

static void use_shapes(int32_t n_rows, int32_t block) {
    ca_tile_shapes shapes = {0};
    const int first = n_rows < TILE_ROWS ? n_rows : TILE_ROWS, second = n_rows > TILE_ROWS ? n_rows - TILE_ROWS : first;
    for (int i = 0; i < 4; i++) ca_tiles_shape(&shapes, i, i < 2 ? first : second, COLUMN_BYTES);
    ca_tiles_shape(&shapes, 4, first, 2 * block);
    ca_tiles_shape(&shapes, 5, second, 2 * block);
    for (int i = 6; i < 8; i++) ca_tiles_shape(&shapes, i, block / 2, COLUMN_BYTES);
    ca_tiles_use(&shapes);
}

#define TILE_INLINE static inline __attribute__((always_inline))

/*
 * As many cache lines as a block of so many columns has, in the order of memory, so that the processor's own prefetching runs
 * ahead of these. Into the second-level cache: what 32 rows need of the first one is more than it holds with the next chunk in
 * it.
 */
TILE_INLINE const char *prefetch(const char *next, int32_t block, int columns) {
    for (int32_t i = 0; i < block / 2 * columns; i++) _mm_prefetch(next + i * 64, _MM_HINT_T1);
    return next + block / 2 * columns * 64;
}

/* Where that begins for a column: behind what those before it have asked for. */
TILE_INLINE const char *next_of(const product *p, int column) {
    return p->next ? p->next + (ptrdiff_t)column * p->n_blocks * (p->block / 2) * 64 : NULL;
}

/* Up to 32 rows: tiles 0 and 1 are the sums of the first 16 in one column or two, 2 and 3 those of the others. */
TILE_INLINE void multiply_two(const product *p, int column, const int columns) {
    const ptrdiff_t a_stride = p->a_stride, b_stride = p->b_stride, out_stride = p->out_stride;
    const ptrdiff_t a_block = 2 * p->block, b_block = p->block / 2 * b_stride;
    const char *a = p->a, *a_below = a + TILE_ROWS * a_stride, *b = p->b + column * COLUMN_BYTES;
    const char *next = next_of(p, column);
    char *out = p->out + column * COLUMN_BYTES, *out_below = out + TILE_ROWS * out_stride;
    if (p->accumulate) {
        _tile_loadd(0, out, out_stride);
        if (columns > 1) _tile_loadd(1, out + COLUMN_BYTES, out_stride);
        _tile_loadd(2, out_below, out_stride);
        if (columns > 1) _tile_loadd(3, out_below + COLUMN_BYTES, out_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int32_t block = 0; block < p->n_blocks; block++, a += a_block, a_below += a_block, b += b_block) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a_below, a_stride);
        _tile_dpbf16ps(2, 5, 6);
        if (columns > 1) {
            _tile_loadd(7, b + COLUMN_BYTES, b_stride);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        if (next) next = prefetch(next, p->block, columns);
    }
    _tile_stored(0, out, out_stride);
    if (columns > 1) _tile_stored(1, out + COLUMN_BYTES, out_stride);
    _tile_stored(2, out_below, out_stride);
    if (columns > 1) _tile_stored(3, out_below + COLUMN_BYTES, out_stride);
}

/* Up to 16 rows: tiles 0 to 3 are their sums in up to four columns. */
TILE_INLINE void multiply_one(const product *p, int column, const int columns) {
    const ptrdiff_t a_stride = p->a_stride, b_stride = p->b_stride, out_stride = p->out_stride;
    const ptrdiff_t a_block = 2 * p->block, b_block = p->block / 2 * b_stride;
    const char *a = p->a, *b = p->b + column * COLUMN_BYTES, *next = next_of(p, column);
    char *out = p->out + column * COLUMN_BYTES;
    if (p->accumulate) {
        _tile_loadd(0, out, out_stride);
        if (columns > 1) _tile_loadd(1, out + COLUMN_BYTES, out_stride);
        if (columns > 2) _tile_loadd(2, out + 2 * COLUMN_BYTES, out_stride);
        if (columns > 3) _tile_loadd(3, out + 3 * COLUMN_BYTES, out_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int32_t block = 0; block < p->n_blocks; block++, a += a_block, b += b_block) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        _tile_dpbf16ps(0, 4, 6);
        if (columns > 1) {
            _tile_loadd(7, b + COLUMN_BYTES, b_stride);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (columns > 2) {
            _tile_loadd(6, b + 2 * COLUMN_BYTES, b_stride);
            _tile_dpbf16ps(2, 4, 6);
        }
        if (columns > 3) {
            _tile_loadd(7, b + 3 * COLUMN_BYTES, b_stride);
            _tile_dpbf16ps(3, 4, 7);
        }
        if (next) next = prefetch(next, p->block, columns);
    }
    _tile_stored(0, out, out_stride);
    if (columns > 1) _tile_stored(1, out + COLUMN_BYTES, out_stride);
    if (columns > 2) _tile_stored(2, out + 2 * COLUMN_BYTES, out_stride);
    if (columns > 3) _tile_stored(3, out + 3 * COLUMN_BYTES, out_stride);
}

/* All columns by a function that takes up to `most` of them at once; the compiler makes one of each number. */
#define EACH_COLUMNS(multiply, most)                                                                                           \
    for (int column = 0; column < p->n_columns; column += (most)) switch (p->n_columns - column) {                             \
        case 1: multiply(p, column, 1); break;                                                                                 \
        case 2: multiply(p, column, 2); break;                                                                                 \
        case 3: multiply(p, column, (most) < 3 ? (most) : 3); break;                                                           \
        default: multiply(p, column, most); break;                                                                             \
        }

static void multiply(const product *p) {
    use_shapes(p->n_rows, p->block);
    if (p->n_rows > TILE_ROWS) {
        EACH_COLUMNS(multiply_two, 2)
    } else {
        EACH_COLUMNS(multiply_one, 4)
    }
}

/* ---- A chunk ---- */

enum { PASS_ROWS = 2 * TILE_ROWS };

static size_t scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) {
    (void)d_k;
    return sizeof(float) * (PASS_ROWS * (size_t)scores_stride(c) + TILE_ROWS * (size_t)d_v);
}

/* Scores of the slots that some row sees, in whole tiles. */
static void multiply_keys(const ca_tile *t, int32_t most_seen) {
    const product p = {.a = t->q,
                       .b = t->k,
                       .next = t->next_k,
                       .out = t->scratch,
                       .a_stride = (ptrdiff_t)query_bytes(t->d_k),
                       .b_stride = 4 * (ptrdiff_t)t->c,
                       .out_stride = scores_stride(t->c) * (ptrdiff_t)sizeof(float),
                       .n_rows = t->n_rows,
                       .n_columns = n_parts(most_seen, TILE_COLUMNS),
                       .n_blocks = t->d_k / block_of(t->d_k),
                       .block = block_of(t->d_k)};
    multiply(&p);
}

/* Lines of the block of V that slot n is in, with zeros for slots from n on, into the scratch. */
static const char *cut_block(const ca_tile *t, int32_t n) {
    const int32_t lines = block_of(t->c) / 2, first = n / block_of(t->c) * lines, whole = n / 2 - first;
    const size_t line = 4 * (size_t)t->d_v;
    char *copy = (char *)((float *)t->scratch + PASS_ROWS * scores_stride(t->c));
    const char *from = (const char *)t->v + (size_t)first * line;
    memcpy(copy, from, (size_t)whole * line);
    memset(copy + (size_t)whole * line, 0, (size_t)(lines - whole) * line);
    for (size_t i = (size_t)whole * line; n % 2 && i < (size_t)(whole + 1) * line; i += 64)
        _mm512_store_si512(copy + i, _mm512_and_si512(_mm512_loadu_si512(from + i), _mm512_set1_epi32(0xffff)));
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
                 .n_rows = n,
                 .n_columns = t->d_v / TILE_COLUMNS,
                 .n_blocks = whole,
                 .block = block,
                 .accumulate = true};
    if (whole > 0) multiply(&p);
    if (n_slots % block == 0) return;
    p.a += whole * 2 * block;
    p.b = cut_block(t, n_slots);
    p.next = NULL;
    p.n_blocks = 1;
    multiply(&p);
}

/* Whether slots [begin, end) of V are numbers: a bf16 whose exponent is all ones is not. */
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
    if (least_seen > 0 && are_finite(t, least_seen, most_seen)) { /* of no slots, also -0 would become 0 */
        add_values(t, 0, t->n_rows, most_seen);
        return;
    }
    for (int32_t row = 0; row < t->n_rows; row++)
        if (t->n_seen[row] > 0) add_values(t, row, 1, t->n_seen[row]);
}

/* Rows [row, row + n) of a tile as one of their own, whose options are kept in *options. */
static ca_tile rows_of(const ca_tile *t, int32_t row, int32_t n, ca_tile_options *options) {
    ca_tile rows = *t;
    rows.n_rows = n;
    rows.q = (const char *)t->q + (size_t)row * query_bytes(t->d_k);
    rows.state = state_at(t, row);
    if (t->n_seen) rows.n_seen = t->n_seen + row;
    if (row > 0) rows.next_k = rows.next_v = NULL; /* the first ones ask for it */
    if (!t->options) return rows;
    *options = *t->options;
    if (options->slopes) options->slopes += row;
    if (options->distances) options->distances += row;
    if (options->n_hidden) options->n_hidden += row;
    rows.options = options;
    return rows;
}

/* In passes of as many rows as go into tiles at once, whose scores and sums stay in the first-level cache. */
static void attend(const ca_tile *t) {
    for (int32_t row = 0; row < t->n_rows; row += PASS_ROWS) {
        ca_tile_options options;
        const int32_t left = t->n_rows - row;
        const ca_tile rows = rows_of(t, row, left < PASS_ROWS ? left : PASS_ROWS, &options);
        const int32_t most_seen = most_slots(&rows);
        if (most_seen == 0) continue;
        multiply_keys(&rows, most_seen);
        weigh_rows(&rows, rows.scratch, NULL, most_seen);
        multiply_values(&rows, most_seen);
    }
}

#include "lib/attn/x86/write.h"

static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }

const ca_kernel ca_kernels_amx[CA_N_TYPES] = {
    [CATTN_BF16] = {"amx", CATTN_BF16, MAX_ROWS, TILE_ROWS, 24, query_bytes, state_bytes, scratch_bytes, pack_query, init,
                    attend, merge, write_bf16, ca_tiles_leave},
};
