/*
 * Quantised weights with AMX: 16 outputs (a panel) times 16 rows (a tile of activations) at once, one scale group after the
 * other.
 *
 * - A: the weights, unpacked once for all rows of a task, [16 outputs][inputs of a scale group] signed bytes, in lines of
 *   32 bytes
 * - B: the activations as they are stored, [steps of a scale group][16 rows][4 inputs]
 * - C: the integer sums, [16 outputs][16 rows]
 *
 * Rows run across the lanes of a vector. Values of a row are loaded once in each block for all outputs, values of an output are
 * broadcast by the instruction that multiplies with them, and in a tile of fewer rows some lanes are not stored. C goes through
 * memory into vectors, each of which is scaled and added to one of 16 sums.
 *
 * While AMX runs, a CPU has only one of its two 512-bit multipliers (Intel, family 6, model 167). So the two or three
 * multiply-adds of each vector and scale group are the limit, and integers are converted to floats by an integer addition
 * (linear_kernels.h: CL_LINEAR_MAGIC). Tiles, vectors and the memory between them work at the same time: the integer sums of a
 * block are stored one block, and begun two blocks, before they are scaled, also across the ends of tiles. Activations are
 * loaded past the first-level cache, which keeps the unpacked panel for the next rows.
 */
#include "chunkattn/base/tiles.h"
#include "linear_avx512.h"

#define UNROLL_16 _Pragma("GCC unroll 16")

enum {
    AMX_ROWS = CL_AMX_ROWS,
    AMX_LAST_ROWS = 9,                     /* with fewer rows in the last tile, VNNI is faster */
    AMX_SUMS = CL_LINEAR_LANES * AMX_ROWS, /* integers of an operand C */
};

/* Tile registers of scale groups 0 and 1 of a block. */
#define C_0 0
#define C_1 1
#define A_0 2
#define A_1 3
#define B_0 4
#define B_1 5

INLINE ca_tile_shapes int8_shapes(int group) {
    ca_tile_shapes s = {0};
    for (int g = 0; g < 2; g++) {
        ca_tiles_shape(&s, C_0 + g, CL_LINEAR_LANES, 4 * AMX_ROWS);
        ca_tiles_shape(&s, A_0 + g, CL_LINEAR_LANES, group);
        ca_tiles_shape(&s, B_0 + g, group / 4, 4 * AMX_ROWS);
    }
    return s;
}

/* The output of line i of A and C: transposing dwords leaves a panel's outputs in this order, a pair in each vector. */
INLINE int output_of(int i) { return i / 4 + 8 * (i / 2 % 2) + 4 * (i % 2); }

/* Transpose 8 steps of 16 outputs, v[step] = [16][4], to vectors of two outputs, [2][32]. */
INLINE void transpose_steps(__m512i v[8]) {
    __m512i pair[8];
    UNROLL for (int i = 0; i < 4; i++) {
        pair[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        pair[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    UNROLL for (int i = 0; i < 4; i++) { /* output i of each four: steps 0..3 and 4..7 */
        const int p = i / 2;
        const __m512i low = i % 2 ? _mm512_unpackhi_epi64(pair[p], pair[p + 2]) : _mm512_unpacklo_epi64(pair[p], pair[p + 2]);
        const __m512i high =
            i % 2 ? _mm512_unpackhi_epi64(pair[p + 4], pair[p + 6]) : _mm512_unpacklo_epi64(pair[p + 4], pair[p + 6]);
        v[2 * i] = _mm512_permutex2var_epi64(low, first, high);
        v[2 * i + 1] = _mm512_permutex2var_epi64(low, second, high);
    }
}

/* Unpack a panel to records of unpacked_format, except that the codes become an operand A. */
INLINE void unpack_outputs(record_format w, const cl_linear_task *t, const uint8_t *panel, uint8_t *to) {
    const record_format u = unpacked_format(w.f);
    const __m512i table = load_table(w, t);
    cursor c = {.record = panel};
    for (int32_t b = 0; b < t->n_in / CL_LINEAR_BLOCK; b++, c.record += record_bytes(w), to += record_bytes(u)) {
        enter_block(w, &c, b);
        __m512i codes[8];
        UNROLL for (int step = 0; step < 8; step++) {
            codes[step] = load_codes(w, table, c.record, step);
            if (w.f.zero) codes[step] = _mm512_xor_si512(codes[step], _mm512_set1_epi8(-128));
        }
        transpose_steps(codes);
        UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(to + 64 * i, codes[i]);
        unpack_scales(w, &c, to);
    }
}

/* Multiply a panel, unpacked in the task's scratch, with the first n_rows rows of the task. */
typedef struct amx_panel {
    const cl_linear_task *t;
    int32_t n_rows, n_blocks;
} amx_panel;

INLINE int32_t rows_from(const amx_panel *j, int32_t row) { return j->n_rows - row < AMX_ROWS ? j->n_rows - row : AMX_ROWS; }

INLINE const uint8_t *tile_at(const amx_panel *j, int32_t row) {
    return j->t->row_groups + (size_t)row * (size_t)j->n_blocks * CL_LINEAR_ROW_BYTES;
}

/* A place in the order in which blocks are multiplied: all blocks of a tile, then the next tile; then from the start again. */
typedef struct walk {
    const uint8_t *w, *x;
    size_t line; /* bytes of a line of operand B */
    int32_t n_left, row;
} walk;

INLINE void walk_to(const amx_panel *j, walk *a, int32_t row) {
    *a = (walk){j->t->scratch, tile_at(j, row), 4 * (size_t)rows_from(j, row), j->n_blocks, row};
}

INLINE void walk_on(record_format u, const amx_panel *j, walk *a) {
    a->w += record_bytes(u);
    a->x += CL_LINEAR_ROW_BYTES / 4 * a->line;
    if (--a->n_left == 0) walk_to(j, a, a->row + AMX_ROWS < j->n_rows ? a->row + AMX_ROWS : 0);
}

/* Load the operands of the next block into tile registers. */
INLINE void load_operands(record_format u, const walk *a) {
    _tile_loadd(A_0, a->w, CL_LINEAR_BLOCK);
    _tile_stream_loadd(B_0, a->x, a->line);
    if (u.f.scale_group == CL_LINEAR_BLOCK) return;
    _tile_loadd(A_1, a->w + CL_LINEAR_BLOCK / 2, CL_LINEAR_BLOCK);
    _tile_stream_loadd(B_1, a->x + 4 * a->line, a->line);
}

/* Compute its integer sums, which stay in the registers. */
INLINE void begin_sums(record_format u) {
    _tile_zero(C_0);
    _tile_dpbssd(C_0, A_0, B_0);
    if (u.f.scale_group == CL_LINEAR_BLOCK) return;
    _tile_zero(C_1);
    _tile_dpbssd(C_1, A_1, B_1);
}

INLINE void store_sums(record_format u, int32_t *sums) {
    _tile_stored(C_0, sums, 4 * AMX_ROWS);
    if (u.f.scale_group < CL_LINEAR_BLOCK) _tile_stored(C_1, sums + AMX_SUMS, 4 * AMX_ROWS);
}

/* For each row, scale * (float)sum of the activations of scale group g. arrays: those after the int8 of a record of r rows. */
INLINE __m512 rows_weighted(record_format u, const uint8_t *arrays, size_t r, int g, __m512 scale) {
    if (u.f.scale_group == CL_LINEAR_BLOCK) return _mm512_loadu_ps(arrays + 8 * r);
    const __mmask16 rows = (__mmask16)((1u << r) - 1); /* the last array of a record may be the end of the memory */
    const __m512i magic = _mm512_set1_epi32(CL_LINEAR_MAGIC), half = _mm512_maskz_loadu_epi32(rows, arrays + 16 * r);
    const __m512i times_128 =
        g == 0 ? _mm512_sub_epi32(magic, half) : _mm512_sub_epi32(half, _mm512_loadu_si512(arrays + 12 * r));
    return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_srai_epi32(times_128, 7)));
}

/* acc plus the scaled integer sums of a block. */
INLINE void add_block(record_format u, const uint8_t *w, const uint8_t *x, int32_t n_rows, const int32_t *sums, __m512 *acc) {
    const size_t r = (size_t)n_rows;
    const uint8_t *arrays = x + CL_LINEAR_BLOCK * r;
    const __m512i magic = _mm512_set1_epi32(CL_LINEAR_MAGIC);
    const __m512 scale = _mm512_loadu_ps(arrays), offset = _mm512_loadu_ps(arrays + 4 * r);
    UNROLL for (int g = 0; g < n_scale_groups(u); g++, sums += AMX_SUMS) {
        const float *d = (const float *)(w + d_at(u, g)), *m = (const float *)(w + m_at(u, g));
        const __m512 weighted = u.f.min ? rows_weighted(u, arrays, r, g, scale) : scale;
        UNROLL_16 for (int i = 0; i < CL_LINEAR_LANES; i++) {
            const __m512i bits = _mm512_add_epi32(magic, _mm512_load_si512(sums + AMX_ROWS * i));
            const __m512 scaled = _mm512_fmadd_ps(_mm512_castsi512_ps(bits), scale, offset);
            acc[i] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(d[output_of(i)]), acc[i]);
            if (u.f.min) acc[i] = _mm512_fmadd_ps(weighted, _mm512_set1_ps(m[output_of(i)]), acc[i]);
        }
    }
}

/* Store acc[i], which is output_of(i) with a row in each lane, in n_rows rows of y. */
INLINE void store_rows(const __m512 *acc, float *y, size_t y_stride, int32_t n_rows, __mmask16 outputs) {
    __m512 a[16], b[16];
    UNROLL_16 for (int i = 0; i < 16; i++) a[output_of(i)] = acc[i];
    UNROLL for (int i = 0; i < 8; i++) { /* 2 outputs of rows 0 1 (or 2 3) of each four */
        b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 4; i++) { /* a[4 i + r]: 4 outputs of row r of each four */
        UNROLL for (int h = 0; h < 2; h++) {
            const __m512d low = _mm512_castps_pd(b[4 * i + h]), high = _mm512_castps_pd(b[4 * i + 2 + h]);
            a[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    UNROLL for (int r = 0; r < 4; r++) { /* rows r, 4 + r, 8 + r, 12 + r: a quarter of each in each of 4 vectors */
        const __m512 p = _mm512_shuffle_f32x4(a[r], a[4 + r], 0x44), q = _mm512_shuffle_f32x4(a[8 + r], a[12 + r], 0x44);
        const __m512 s = _mm512_shuffle_f32x4(a[r], a[4 + r], 0xee), t = _mm512_shuffle_f32x4(a[8 + r], a[12 + r], 0xee);
        b[r] = _mm512_shuffle_f32x4(p, q, 0x88);
        b[4 + r] = _mm512_shuffle_f32x4(p, q, 0xdd);
        b[8 + r] = _mm512_shuffle_f32x4(s, t, 0x88);
        b[12 + r] = _mm512_shuffle_f32x4(s, t, 0xdd);
    }
    UNROLL_16 for (int r = 0; r < AMX_ROWS; r++) {
        if (r < n_rows) _mm512_mask_storeu_ps(y + (size_t)r * y_stride, outputs, b[r]);
    }
}

/* y: where the panel's outputs are written; next: what is prefetched meanwhile. */
INLINE void multiply_panel(record_format u, const amx_panel *j, prefetcher next, float *y, __mmask16 outputs) {
    _Alignas(64) int32_t sums[2][2 * AMX_SUMS];
    int32_t *now = sums[0], *then = sums[1];
    walk ahead;
    walk_to(j, &ahead, 0);
    load_operands(u, &ahead);
    begin_sums(u);
    walk_on(u, j, &ahead);
    store_sums(u, now);
    load_operands(u, &ahead);
    begin_sums(u);
    walk_on(u, j, &ahead);
    for (int32_t row = 0; row < j->n_rows; row += AMX_ROWS) {
        const int32_t n_rows = rows_from(j, row);
        const uint8_t *w = j->t->scratch, *x = tile_at(j, row);
        __m512 acc[CL_LINEAR_LANES];
        UNROLL_16 for (int i = 0; i < CL_LINEAR_LANES; i++) acc[i] = _mm512_setzero_ps();
        for (int32_t b = 0; b < j->n_blocks; b++, w += record_bytes(u), x += (size_t)n_rows * CL_LINEAR_ROW_BYTES) {
            prefetch_step(&next, NULL, 0);
            /* Before the store: a load whose address has the same low 12 bits would wait for it. */
            load_operands(u, &ahead);
            store_sums(u, then);
            begin_sums(u);
            walk_on(u, j, &ahead);
            add_block(u, w, x, n_rows, now, acc);
            int32_t *done = now;
            now = then;
            then = done;
        }
        store_rows(acc, y + (size_t)row * j->t->y_stride, j->t->y_stride, n_rows, outputs);
    }
}

typedef void unpack_fn(const cl_linear_task *t, const uint8_t *panel, uint8_t *to);

/* Multiply all panels with the first n_rows rows of the task. */
INLINE void multiply_tiles(record_format u, const cl_linear_task *t, int32_t n_rows, size_t panel_bytes, unpack_fn *unpack) {
    const amx_panel all = {t, n_rows, t->n_in / CL_LINEAR_BLOCK};
    const size_t n_steps = (size_t)((n_rows + AMX_ROWS - 1) / AMX_ROWS) * (size_t)all.n_blocks;
    const ca_tile_shapes shapes = int8_shapes(u.f.scale_group);
    ca_tiles_use(&shapes);
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        unpack(t, panel, t->scratch);
        __asm__ volatile("" ::: "memory"); /* gcc 12 does not know what a tile load reads, and might move it up */
        multiply_panel(u, &all, prefetch_spread(t, panel + panel_bytes, panel_bytes, n_steps),
                       t->y + CL_LINEAR_LANES * (size_t)p, (__mmask16)(p == t->n_panels - 1 ? (1u << t->n_last) - 1 : 0xffff));
    }
}

/* One function for each form of unpacked records. */
#define UNPACKED(name, group_, zero_, min_)                                                                                    \
    static void tiles_##name(const cl_linear_task *t, int32_t n_rows, size_t panel_bytes, unpack_fn *unpack) {                 \
        multiply_tiles(unpacked_format((cl_linear_format){.scale_group = (group_), .zero = (zero_), .min = (min_)}), t,        \
                       n_rows, panel_bytes, unpack);                                                                           \
    }
UNPACKED(min_32, 32, 0, true)
UNPACKED(signed_32, 32, 128, false)
UNPACKED(min_16, 16, 0, true)
UNPACKED(signed_16, 16, 128, false)

/* Few rows, and a last tile of few rows, are multiplied with VNNI, whose tiles have 8 rows. */
INLINE void multiply_quant(cl_linear_layout layout, const cl_linear_task *t, unpack_fn *unpack,
                           void (*vnni)(const cl_linear_task *)) {
    const cl_linear_format f = cl_linear_formats[layout];
    const int32_t in_last = t->n_rows % AMX_ROWS;
    const int32_t few = t->n_rows < CL_AMX_MIN_ROWS ? t->n_rows : in_last < AMX_LAST_ROWS ? in_last : 0;
    const int32_t n_rows = t->n_rows - few;
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    if (n_rows && f.scale_group == CL_LINEAR_BLOCK)
        (f.min ? tiles_min_32 : tiles_signed_32)(t, n_rows, panel_bytes, unpack);
    else if (n_rows)
        (f.min ? tiles_min_16 : tiles_signed_16)(t, n_rows, panel_bytes, unpack);
    if (!few) return;
    cl_linear_task rest = *t;
    rest.n_rows = few;
    rest.row_groups += (size_t)n_rows * (size_t)(t->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
    rest.y += (size_t)n_rows * t->y_stride;
    vnni(&rest);
}

#define MULTIPLY(name, ...)                                                                                                    \
    static void unpack_##name(const cl_linear_task *t, const uint8_t *panel, uint8_t *to) {                                    \
        unpack_outputs(packed_format(CL_LINEAR_##name), t, panel, to);                                                         \
    }                                                                                                                          \
    void cl_linear_##name##_amx(const cl_linear_task *t) {                                                                     \
        multiply_quant(CL_LINEAR_##name, t, unpack_##name, cl_linear_##name##_avx512_vnni);                                    \
    }
LINEAR_QUANT_LAYOUTS(MULTIPLY)
