/*
 * The contract between the plan's executor and a kernel level: one table of functions for each level and K/V type.
 *
 * The unit of arithmetic is one row over one absolute chunk. A row is one query head of one token. It passes over the chunks of
 * a segment (a fixed number of positions, layout.h) in ascending order. Each chunk takes the same operations in the same order,
 * whichever tile the row is in:
 *
 * - s[slot] = q . k[slot] for the slots that the row sees, d ascending. s is in base 2, since scale * log2(e) is a factor of q.
 *   Then, if set, s = softcap * tanh(s / softcap), and s += slope * (distance + slot).
 * - M = a whole number that is at least every floor(s) so far. It is raised at most once for each chunk, in steps of 32, and O
 *   and l are multiplied by the power of 2 that corresponds.
 * - p[slot] = 2^(floor(s) - M) * poly(s - floor(s)), 0 for slots not seen.
 * - l[slot mod 16] += p[slot] and O += p[slot] * v[slot], slots ascending.
 *
 * So a row's state (O, M, l) after a chunk is a function of the row's query and of the tokens that it sees, bit for bit. States
 * start from zero at each segment, and segments merge in ascending order. "ref" does the same in double, in the form of the
 * paper's partial_attn and attn_reduce. It is the specification against which the other levels are tested.
 *
 * A row sees the first n_seen slots, but not those in [n_sink_slots, n_hidden), which lie before its window. Slots from n_seen
 * on may hold anything, also infinities and NaN: they must not reach O, l or M. Hidden ones do not count in M and l, but a
 * level may multiply their V by a weight of zero, so what is not finite there may show: they belong to the row's own context.
 * Signed zeros may differ inside O between tiles; merge adds +0 at the end, which makes them one.
 *
 * Kernels know neither tree, plan, threads nor allocation. The caller has set MXCSR: denormal operands and results
 * are zero.
 */
#ifndef CHUNKATTN_ATTN_KERNELS_H
#define CHUNKATTN_ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"
#include "chunkattn/base/levels.h"

enum { CA_N_TYPES = CATTN_I8 + 1 }; /* K/V types on a CPU, cattn_type */

/* How the scores of a tile's rows are changed, and which slots lie before the rows' windows. Zero or NULL: off. */
typedef struct ca_tile_options {
    float softcap;          /* base 2 */
    const float *slopes;    /* [n_rows] base 2 */
    const float *distances; /* [n_rows] if there are slopes: the position of slot 0 minus the row's */
    /* [n_rows] slots before a row's window, at most n_seen. The row sees some slot unless n_seen is 0. */
    const int32_t *n_hidden;
    int32_t n_sink_slots; /* hidden slots below this one are seen nevertheless */
} ca_tile_options;

/* Rows that pass over one chunk of one KV head together. All pointers are borrowed for the call. */
typedef struct ca_tile {
    int32_t d_k, d_v, c;
    int32_t n_rows;        /* >= 1, at most the kernel's max_rows */
    const void *q;         /* packed queries, query_bytes(d_k) apart */
    void *state;           /* states, state_bytes(d_v) apart; updated */
    const int32_t *n_seen; /* [n_rows] leading slots that a row sees, 0..c; 0 keeps its state. NULL: every row sees all c */
    const void *k, *v;     /* tiles of the chunk, layout.h */
    uint32_t open;         /* the K tile's open slot groups; rows see slots of at most one, and it is the last that they see */
    const void *next_k, *next_v;    /* the tiles that this thread reads next, to be prefetched; NULL: none */
    void *scratch;                  /* [scratch_bytes], 64-byte aligned; overwritten */
    const ca_tile_options *options; /* NULL: none */
} ca_tile;

/* Tokens of one KV head to be written into the tiles of a chunk. All pointers are borrowed for the call. */
typedef struct ca_write {
    int32_t d_k, d_v, c;
    int32_t slot, n;              /* to slots [slot, slot + n), n >= 1 */
    uint32_t open;                /* the K tile's open slot groups, layout.h */
    cattn_type type;              /* of k and v: CATTN_F32, or the kernel's own f16 or bf16 */
    const void *k, *v;            /* [n][d_k], [n][d_v], with these strides */
    ptrdiff_t k_stride, v_stride; /* elements from one token to the next */
    void *k_tile, *v_tile;
    /* The tiles that this thread writes next, of which the lines of next_slot are prefetched; NULL: none. */
    const void *next_k, *next_v;
    int32_t next_slot;
    uint32_t next_open; /* as `open`, of next_k */
} ca_write;

typedef struct ca_kernel {
    const char *level;
    cattn_type kv_type;
    int32_t max_rows; /* of a tile; of more rows ca_kernel_attend makes several tiles */

    /* For the division of work among threads. `kcheck --costs` measures chunk_cost. */
    int32_t tile_rows; /* of a full register tile; fewer rows waste part of its arithmetic */
    float chunk_cost;  /* cost of a chunk besides the arithmetic of its rows, in units of one row's arithmetic */

    /* Sizes in bytes, multiples of 64. */
    size_t (*query_bytes)(int32_t d_k);
    size_t (*state_bytes)(int32_t d_v);
    size_t (*scratch_bytes)(int32_t d_k, int32_t d_v, int32_t c);

    /* Multiply q [n_rows][d_k], rows row_stride floats apart, by scale_log2, and pack the rows, query_bytes apart. */
    void (*pack_query)(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed);

    /* Initialise n_rows states, which have seen nothing. */
    void (*init)(void *state, int32_t n_rows, int32_t d_v);

    /* Update the states of a tile's rows by one chunk. */
    void (*attend)(const ca_tile *tile);

    /*
     * Merge the n_states >= 1 states of one row in their order, normalise, and add +0: out [d_v], and *lse = log2(sum of 2^s)
     * unless lse is NULL. 2^sink is added to that sum, as if the row saw one more slot with V = 0; -infinity adds nothing. A
     * row that has seen nothing gives zeros and, without a sink, an lse of -infinity. The states are not changed.
     */
    void (*merge)(const void *const *states, int32_t n_states, int32_t d_v, float sink, float *out, float *lse);

    /*
     * Write tokens into their slots: f32 rounded to the type with the bits of ca_layout_write on every level, the type's own
     * numbers as they are. No other thread may write to the tiles at the same time, since slots share words.
     */
    void (*write)(const ca_write *w);

    /*
     * n elements (a multiple of 16) of a caller's tensor of `type`, which is CATTN_F16 or CATTN_BF16: exactly to f32, and from
     * f32 rounded to nearest even. The bits of chunkattn/base/half.h on every level, also of NaN, infinities and denormals. The
     * halves are aligned to 2 bytes.
     */
    void (*widen)(cattn_type type, const void *from, int32_t n, float *to);
    void (*narrow)(cattn_type type, const float *from, int32_t n, void *to);

    /* A thread calls it after a task's last attend; NULL: nothing to do. */
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

/* kernel->attend for any number of rows: more than max_rows are divided into tiles of about the same size. */
void ca_kernel_attend(const ca_kernel *kernel, const ca_tile *tile);

/* The tables of each level, by cattn_type. A level that leaves a K/V type to the level below has zeros there. */
#define CA_LEVEL(name, features) extern const ca_kernel ca_kernels_##name[CA_N_TYPES];
#include "chunkattn/base/levels.def"
#undef CA_LEVEL

/* A level's own kernel for a K/V type; NULL: it has none. */
const ca_kernel *ca_kernel_of_level(int level, cattn_type kv_type);

/* The kernel for a K/V type of the highest level that is at most `level` and has one. */
const ca_kernel *ca_kernel_find(int level, cattn_type kv_type);

#endif
