/*
 * The contract between the plan's executor and a kernel level: one table of functions a level and K/V type.
 *
 * The unit of arithmetic is a row and an absolute chunk. A row is one query head of one token. It goes through the chunks of
 * a segment (a fixed number of positions, layout.h) in ascending order and treats each with the same operations in the same
 * order, whatever tile it is in:
 *
 * - s[slot] = q . k[slot] for the slots it sees, d ascending; base 2, since scale * log2(e) is folded into q. Then, where set,
 *   s = softcap * tanh(s / softcap), and s += slope * (distance + slot).
 * - M = a whole number not below any floor(s) so far, raised at most once a chunk and in steps of 32; O and l go along by a
 *   power of 2.
 * - p[slot] = 2^(floor(s) - M) * poly(s - floor(s)), 0 for slots not seen.
 * - l[slot mod 16] += p[slot] and O += p[slot] * v[slot], slots ascending.
 *
 * So a row's state (O, M, l) after a chunk is a function of the row's query and of the tokens it sees, bit for bit. States
 * start from zero at each segment and segments merge in ascending order. "ref" does the same in double, laid out like the
 * paper's partial_attn and attn_reduce: it is the specification that the others are tested against.
 *
 * A row sees the first n_seen slots, but not those in [n_kept, n_hidden), which lie before its window. Slots from n_seen on may
 * hold anything, also infinities and NaN: they must not reach O, l or M. Hidden ones do not count in M and l, but a level may
 * multiply their V by a weight of zero, so what is not finite there may show: they belong to the row's own context. Signed
 * zeros may differ inside O between tiles; merge adds +0 at the end, which makes them one.
 *
 * Kernels know neither tree, plan, threads nor allocation. The caller has set MXCSR (flush to zero, denormals are zero).
 */
#ifndef LIB_ATTN_KERNELS_H
#define LIB_ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/levels.h"
#include "chunkattn.h"

enum { CA_N_TYPES = CATTN_I8 + 1 }; /* K/V types, cattn_type */

/* What a tile's rows do to their scores and which slots lie before their windows; zeros: nothing. */
typedef struct ca_tile_options {
    float softcap;           /* base 2 */
    const float *slopes;     /* [n_rows] base 2 */
    const float *distances;  /* [n_rows] with slopes: the position of slot 0, less the row's */
    const int32_t *n_hidden; /* [n_rows] slots before a row's window, at most n_seen; unless that is 0 some slot is seen */
    int32_t n_kept;          /* of those the first so many are seen all the same */
} ca_tile_options;

/* Rows that pass over one chunk of one K/V head together. */
typedef struct ca_tile {
    int32_t d_k, d_v, c;
    int32_t n_rows;        /* >= 1, at most the kernel's max_rows */
    const void *q;         /* packed queries, query_bytes(d_k) apart */
    void *state;           /* states, state_bytes(d_v) apart; updated */
    const int32_t *n_seen; /* [n_rows] leading slots that a row sees, 0..c; 0 leaves its state as it is. NULL: all see c */
    const void *k, *v;     /* tiles of the chunk, layout.h */
    uint32_t open;         /* the K tile's open groups: rows see slots of one at most, behind those of closed ones */
    const void *next_k, *next_v;    /* tiles that this thread reads next, to prefetch; NULL: none */
    void *scratch;                  /* scratch_bytes, 64-byte aligned, contents lost */
    const ca_tile_options *options; /* NULL: none */
} ca_tile;

/* Tokens of one K/V head on their way into a tile. */
typedef struct ca_write {
    int32_t d_k, d_v, c;
    int32_t slot, n;              /* to slots [slot, slot + n), n >= 1 */
    uint32_t open;                /* the K tile's open groups, layout.h */
    const float *k, *v;           /* of the first token: [d_k], [d_v] */
    ptrdiff_t k_stride, v_stride; /* floats to the next token's */
    void *k_tile, *v_tile;
    const void *next_k, *next_v; /* tiles that this thread writes next, to ask for the lines of next_slot; NULL: none */
    int32_t next_slot;
    uint32_t next_open;
} ca_write;

typedef struct ca_kernel {
    const char *level;
    cattn_type kv_type;
    int32_t max_rows; /* of a tile; of more rows ca_kernel_attend makes several tiles */

    /* For dealing work to threads; `kcheck --costs` measures the second. */
    int32_t tile_rows; /* of a full register tile: with fewer rows part of the arithmetic is wasted */
    float chunk_cost;  /* what a chunk costs besides its rows' arithmetic, in units of that of one row */

    /* Sizes in bytes, multiples of 64. */
    size_t (*query_bytes)(int32_t d_k);
    size_t (*state_bytes)(int32_t d_v);
    size_t (*scratch_bytes)(int32_t d_k, int32_t d_v, int32_t c);

    /* q [n_rows][d_k] f32, rows row_stride elements apart, times scale_log2 -> n_rows packed queries. */
    void (*pack_query)(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed);

    /* n_rows states that have seen nothing. */
    void (*init)(void *state, int32_t n_rows, int32_t d_v);

    /* Take the rows of a tile over one chunk. */
    void (*attend)(const ca_tile *tile);

    /*
     * Merge n_states >= 1 states of one row in the order given, normalise, add +0: out [d_v], and *lse = log2(sum of 2^s)
     * where lse is not NULL. 2^sink joins that sum, as if the row had seen one slot more with V = 0; -infinity: nothing joins.
     * A row that has seen nothing gives zeros and, without a sink, -infinity. The states are not changed.
     */
    void (*merge)(const void *const *states, int32_t n_states, int32_t d_v, float sink, float *out, float *lse);

    /*
     * Put tokens into their slots, rounded to the type: the bits of ca_layout_write on every level. Nobody else may write to
     * the tiles meanwhile, since slots share words.
     */
    void (*write)(const ca_write *w);

    /*
     * n elements (a multiple of 16) of a caller's tensor of `type`, which is CATTN_F16 or CATTN_BF16: exactly to f32, and from
     * f32 rounded to nearest even. The bits of base/half.h on every level, also of NaN, infinities and denormals. The halves
     * are aligned to 2 bytes.
     */
    void (*widen)(cattn_type type, const void *from, int32_t n, float *to);
    void (*narrow)(cattn_type type, const float *from, int32_t n, void *to);

    /* What a thread does behind a task's last attend; NULL: nothing. */
    void (*leave)(void);
} ca_kernel;

/*
 * Rows [row, row + n) of a tile as a tile of their own. *options holds their options, and must live as long as the value.
 */
static inline ca_tile ca_tile_rows(const ca_kernel *kernel, const ca_tile *tile, int32_t row, int32_t n,
                                   ca_tile_options *options) {
    ca_tile rows = *tile;
    rows.n_rows = n;
    rows.q = (const char *)tile->q + (size_t)row * kernel->query_bytes(tile->d_k);
    rows.state = (char *)tile->state + (size_t)row * kernel->state_bytes(tile->d_v);
    if (tile->n_seen) rows.n_seen = tile->n_seen + row;
    if (!tile->options) return rows;
    *options = *tile->options;
    if (options->slopes) options->slopes += row;
    if (options->distances) options->distances += row;
    if (options->n_hidden) options->n_hidden += row;
    rows.options = options;
    return rows;
}

/* Take any number of rows over one chunk: where max_rows is exceeded, as tiles of about the same size. */
void ca_kernel_attend(const ca_kernel *kernel, const ca_tile *tile);

/* The tables of each level, by cattn_type. A level that leaves a K/V type to the level below has zeros there. */
#define CA_LEVEL(name, features) extern const ca_kernel ca_kernels_##name[CA_N_TYPES];
#include "base/levels.def"
#undef CA_LEVEL

/* A level's own kernel for a K/V type; NULL: it has none. */
const ca_kernel *ca_kernel_of_level(int level, cattn_type kv_type);

/* The kernel for a K/V type of the highest level that is at most `level` and has one. */
const ca_kernel *ca_kernel_find(int level, cattn_type kv_type);

#endif
