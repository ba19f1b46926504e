/*
 * Level avx512: AVX-512 F, BW, DQ and VL, f32 arithmetic; bf16 K and V without bf16 instructions.
 *
 * 12 rows x 2 vectors: 24 sums, two lines of the panel, a factor and the bf16 mask take 30 of the 32 registers. For each line
 * of two vectors come 12 factors, so that 14 loads feed 24 multiplications; 6 x 4 would need fewer loads (10), but unpack twice
 * the lines a row tile.
 */
#include "vec512.h"

/* clang-format off */
#define EACH_ROWS(X, vecs, ...)                                                                                                \
    X(1, vecs, __VA_ARGS__) X(2, vecs, __VA_ARGS__) X(3, vecs, __VA_ARGS__) X(4, vecs, __VA_ARGS__)                            \
    X(5, vecs, __VA_ARGS__) X(6, vecs, __VA_ARGS__) X(7, vecs, __VA_ARGS__) X(8, vecs, __VA_ARGS__)                            \
    X(9, vecs, __VA_ARGS__) X(10, vecs, __VA_ARGS__) X(11, vecs, __VA_ARGS__) X(12, vecs, __VA_ARGS__)
#define TILE_SHAPES(X, ...) EACH_ROWS(X, 1, __VA_ARGS__) EACH_ROWS(X, 2, __VA_ARGS__)
/* clang-format on */
enum { TILE_ROWS = 12, TILE_VECS = 2, TILE_LINES = 2, KEPT_VECS = TILE_VECS, STREAM_ROWS = 0 };

#include "f32_lines.h"

/* Where the next row's sums go. */
typedef struct destination {
    float *out;
    ptrdiff_t stride;
} destination;

TILE_INLINE void store_row(destination *to, int vecs, const vec *sum) {
#pragma GCC unroll 2
    for (int j = 0; j < vecs; j++) v_store(to->out + j * V_LANES, sum[j]);
    to->out += to->stride;
    OPAQUE(to->out);
}

/*
 * n lines, or as many elements of a line of pairs or quads from `element` on, times the rows' factors. Rows go in turn: so of
 * the last lines, which have a destination, the stores of one row run beside the arithmetic of the next.
 */
TILE_INLINE void multiply_lines(vec acc[TILE_ROWS][TILE_VECS], int rows, int vecs, cattn_type type, const cursor *at,
                                int element, int n, destination *to) {
    vec x[TILE_LINES][TILE_VECS];
#pragma GCC unroll 2
    for (int l = 0; l < n; l++) {
        const int e = element + l;
        const char *line = at->line + (ca_type_neighbours(type) == 1 ? e * at->panel_stride : 0);
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) {
            x[l][j] = load_line(line, type, j, e);
            if (at->keeps) v_store(at->kept + (e * vecs + j) * V_LANES, x[l][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int l = 0; l < n; l++) {
            const vec w = v_set1(*factor_at(at, i, element + l));
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++) acc[i][j] = v_fma(w, x[l][j], acc[i][j]);
        }
        if (to) store_row(to, vecs, acc[i]);
    }
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, cattn_type type, enum product_use use) {
    vec acc[TILE_ROWS][TILE_VECS];
    destination to = {p->out, p->out_stride};
    float *from = to.out;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, from += to.stride) {
        OPAQUE(from);
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) acc[i][j] = p->accumulate ? v_load(from + j * V_LANES) : v_set1(0);
    }

    /* A step takes a line, or TILE_LINES of those that hold one element. */
    const int line_elements = (int)ca_type_neighbours(type);
    const int step = line_elements > TILE_LINES ? line_elements : TILE_LINES, lines = step / line_elements;
    const int ahead = lines * lines_ahead(vecs, type, use);
    const ptrdiff_t next_step = p->next_step * lines;
    const char *next = p->next;
    cursor at = cursor_of(p, use);
    int32_t n = p->n;
    for (; n > step; n -= step) {
        prefetch(next, ahead);
#pragma GCC unroll 4
        for (int e = 0; e < step; e += TILE_LINES) multiply_lines(acc, rows, vecs, type, &at, e, TILE_LINES, NULL);
        next += next_step;
        at.line += lines * at.panel_stride;
        next_factors(&at.factors, step * (ptrdiff_t)sizeof(float));
        if (at.keeps) at.kept += step * vecs * V_LANES;
    }
    prefetch(next, ahead);
    if (__builtin_expect(n == step, 1)) {
#pragma GCC unroll 4
        for (int e = 0; e < step; e += TILE_LINES)
            multiply_lines(acc, rows, vecs, type, &at, e, TILE_LINES, e + TILE_LINES < step ? NULL : &to);
        return;
    }
#pragma GCC unroll 4
    for (int e = 0; e < step - 1; e++) {
        if (e >= n) break;
        multiply_lines(acc, rows, vecs, type, &at, e, 1, NULL);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) store_row(&to, vecs, acc[i]);
}

#include "row.h"

static inline tile_shape shape_of(int32_t n_rows, int32_t vecs) {
    (void)n_rows, (void)vecs;
    return (tile_shape){TILE_ROWS, TILE_VECS};
}

static inline bool unpacks(cattn_type type, int32_t tiles) { return type != CATTN_F32 && tiles > 1; }

#include "f32_level.h"

const ca_kernel ca_kernels_avx512[CA_N_TYPES] = F32_KERNELS(avx512, 12.5f, 3.5f, 4, 2.5f);
