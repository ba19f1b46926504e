/*
 * Level avx2: AVX2 with FMA and F16C, f32 arithmetic.
 *
 * Sixteen registers hold twelve sums, a line of the panel and a factor: 6 rows x 2 vectors, 4 x 3 or 3 x 3. Eight sums or fewer
 * would be too few for multipliers that start two instructions in a cycle and take four cycles for each. One or two rows wait
 * for memory, and read it fastest in panels of two vectors. There is no register for a copy of a sum: see add_products.
 */
#include "vec256.h"

/* clang-format off */
#define TILE_SHAPES(X, ...)                                                                                                    \
    X(1, 1, __VA_ARGS__) X(1, 2, __VA_ARGS__) X(1, 3, __VA_ARGS__) X(2, 1, __VA_ARGS__) X(2, 2, __VA_ARGS__)                   \
    X(2, 3, __VA_ARGS__) X(3, 1, __VA_ARGS__) X(3, 2, __VA_ARGS__) X(3, 3, __VA_ARGS__) X(4, 1, __VA_ARGS__)                   \
    X(4, 2, __VA_ARGS__) X(4, 3, __VA_ARGS__) X(5, 1, __VA_ARGS__) X(5, 2, __VA_ARGS__) X(6, 1, __VA_ARGS__)                   \
    X(6, 2, __VA_ARGS__)
/* clang-format on */
enum { TILE_ROWS = 6, MOST_VECS = 3, KEPT_VECS = 2, STREAM_ROWS = 0 };

#include "f32_lines.h"

/*
 * A row's sums += *factor times a line of vecs vectors. By itself gcc has two registers for factors, and copies sums or keeps
 * one in memory.
 */
TILE_INLINE void add_products(vec *sums, int vecs, const float *factor, const vec *x) {
    vec f;
    if (vecs == 1) __asm__("vbroadcastss %2, %1\n\tvfmadd231ps %3, %1, %0" : "+x"(sums[0]), "=&x"(f) : "m"(*factor), "x"(x[0]));
    if (vecs == 2)
        __asm__("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1"
                : "+x"(sums[0]), "+x"(sums[1]), "=&x"(f)
                : "m"(*factor), "x"(x[0]), "x"(x[1]));
    if (vecs == 3)
        __asm__("vbroadcastss %4, %3\n\tvfmadd231ps %5, %3, %0\n\tvfmadd231ps %6, %3, %1\n\tvfmadd231ps %7, %3, %2"
                : "+x"(sums[0]), "+x"(sums[1]), "+x"(sums[2]), "=&x"(f)
                : "m"(*factor), "x"(x[0]), "x"(x[1]), "x"(x[2]));
}

/* The element-th of a line's neighbours times the rows' factors. */
TILE_INLINE void multiply_line(vec acc[TILE_ROWS][MOST_VECS], int rows, int vecs, cattn_type type, const cursor *at,
                               int element) {
    vec x[MOST_VECS];
#pragma GCC unroll 3
    for (int j = 0; j < vecs; j++) {
        x[j] = load_line(at->line, type, j, element);
        if (at->keeps) v_store(at->kept + (element * vecs + j) * V_LANES, x[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) add_products(acc[i], vecs, factor_at(at, i, element), x);
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, cattn_type type, enum product_use use) {
    vec acc[TILE_ROWS][MOST_VECS];
    const ptrdiff_t out_stride = p->out_stride;
    float *out = p->out;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++, out += out_stride) {
        OPAQUE(out);
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++) acc[i][j] = p->accumulate ? v_load(out + j * V_LANES) : v_set1(0);
    }

    const int neighbours = (int)ca_type_neighbours(type), ahead = lines_ahead(vecs, type, use);
    const char *next = p->next;
    cursor at = cursor_of(p, use);
    int32_t n = p->n;
    for (; n >= neighbours; n -= neighbours) {
        prefetch(next, ahead);
#pragma GCC unroll 4
        for (int e = 0; e < neighbours; e++) multiply_line(acc, rows, vecs, type, &at, e);
        next += p->next_step;
        at.line += at.panel_stride;
        next_factors(&at.factors, neighbours * (ptrdiff_t)sizeof(float));
        if (at.keeps) at.kept += neighbours * vecs * V_LANES;
    }
#pragma GCC unroll 4
    for (int e = 0; e < neighbours - 1; e++) {
        if (e >= n) break;
        multiply_line(acc, rows, vecs, type, &at, e);
    }

    out = p->out;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++, out += out_stride) {
        OPAQUE(out);
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++) v_store(out + j * V_LANES, acc[i][j]);
    }
}

#include "row.h"

#include "weigh.h"

static inline tile_shape shape_of(int32_t n_rows, int32_t vecs) {
    (void)vecs;
    const int32_t rows = n_parts(n_rows, n_parts(n_rows, TILE_ROWS)); /* of the largest tile */
    return (tile_shape){TILE_ROWS, rows == 3 || rows == 4 ? 3 : 2};
}

/* Two tiles convert a line for themselves in the time that storing and loading it again would take. */
static inline bool unpacks(cattn_type type, int32_t tiles) { return type != CATTN_F32 && tiles > 2; }

#include "f32_level.h"

const ca_kernel ca_kernels_avx2[CA_N_TYPES] = F32_KERNELS(avx2, 5, 2, 2.5f, 2);
