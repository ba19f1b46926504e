/*
 * Products of matrices and rows; but for BF16 weights with the bits of the CPU's kernels (linear_kernels.h).
 *
 * Panels of quantised weights are operand A of mma as they lie in memory, and records of activations are operand B: a warp has
 * a panel, 16 outputs, and GROUPS row groups of 8 rows. The sum of a scale group is an exact integer. What follows it is the
 * contract's chain of multiply-adds over the blocks of inputs, so the bits of an output depend on its row and its weights
 * alone: neither on the number of rows, nor on GROUPS.
 *
 * Codes are multiplied as they are, without their zero: sums begin with minus the zero times the sum of the activations, which
 * their records have.
 */
#ifndef CHUNKLLAMA_CUDA_LINEAR_CUH
#define CHUNKLLAMA_CUDA_LINEAR_CUH

#include "chunkattn/cuda/primitives.h"
#include "chunkllama/tensor/linear_format.h"
#include "kernels.h"

/* A layout, as a type: Q4_K::format is its row of the table. */
#define LINEAR_TYPE(name, ...)                                                                                                 \
    struct name {                                                                                                              \
        static constexpr cl_linear_format format = {__VA_ARGS__};                                                              \
    };
namespace layouts {
LINEAR_QUANT_LAYOUTS(LINEAR_TYPE)
} // namespace layouts
#undef LINEAR_TYPE

/* Two outputs, or two rows. */
struct alignas(8) two_floats {
    float v[2];
};
struct alignas(8) two_ints {
    int v[2];
};

/* Sizes in a panel of a layout. */
template <class L> struct panel_of {
    static constexpr cl_linear_format f = L::format;
    static constexpr int SCALE_GROUPS = CL_LINEAR_BLOCK / f.scale_group;
    static constexpr u32 RECORD = (u32)cl_linear_record_bytes(f), SUPER = (u32)cl_linear_super_bytes(f);
    static constexpr u32 D_AT = (u32)cl_linear_d_at(f, 0), M_AT = (u32)cl_linear_m_at(f, 0),
                         SCALES = (u32)cl_linear_scale_bytes(f);
};

DEV u32 word_at(const unsigned char *p, u32 at) { return ld_global(reinterpret_cast<const u32 *>(p + at)); }

DEV float f16_of(u32 two, int o) { return o & 1 ? high_half<F16>(two) : low_half<F16>(two); }

/* ---- Panels on their way ---- */

/*
 * A warp has few others beside it, since nothing divides a panel along its inputs: 16 outputs of 4096 inputs are some hundred
 * records, one behind the other. So each warp keeps AHEAD pieces of its panel on their way into a ring of its own. A record
 * lies in at most three pieces. When the last of them has come, the slot that is filled next is that of the fourth before it.
 */
enum { PIECE = 512, PIECES = 32, AHEAD = 28, RING = PIECE * PIECES };

struct panel_stream {
    const unsigned char *panel;
    u32 n_bytes, ring, begun, arrived;
};

DEV void begin_piece(panel_stream &s) {
    const u32 at = s.begun + 16 * (u32)(thread_index() % 32);
    if (at < s.n_bytes) cp_async16(s.ring + at % RING, s.panel + at);
    cp_async_commit();
    s.begun += PIECE;
}

DEV panel_stream open_stream(const unsigned char *panel, size_t bytes) {
    panel_stream s = {panel, (u32)bytes, shared_base() + (u32)(thread_index() / 32) * RING, 0, 0};
    for (int i = 0; i < AHEAD; i++) begin_piece(s);
    return s;
}

/* Wait until the bytes before `end` are there; what was read before may be overwritten. */
DEV void await(panel_stream &s, u32 end) {
    while (s.arrived < end) {
        cp_async_wait<AHEAD - 1>();
        sync_warp();
        s.arrived += PIECE;
        begin_piece(s);
    }
}

/* Bytes of a panel from `at` on, in a ring. */
struct bytes {
    u32 ring, at;
};
DEV bytes operator+(bytes b, u32 n) { return {b.ring, b.at + n}; }
DEV u32 word_at(bytes b, u32 at) { return ld_shared<u32>(b.ring + (b.at + at) % RING); }

DEV float f16_at(bytes b, int o) { return f16_of(word_at(b, (u32)(o & ~1) * 2), o); }

DEV u32 byte_at(bytes b, int o) { return word_at(b, (u32)(o & ~3)) >> 8 * (o & 3) & 0xffu; }

/* ---- Codes and scales ---- */

/* The bytes of `table` that the low four bits of each byte of a word name. */
DEV u32 look_up(const u32 (&table)[4], u32 codes) {
    const u32 places = codes & 0x07070707u;
    const u32 select = (places | places >> 4) & 0x00ff00ffu, packed = (select | select >> 8) & 0xffffu;
    const u32 low = byte_permute(table[0], table[1], packed), high = byte_permute(table[2], table[3], packed);
    const u32 upper = (codes >> 3 & 0x01010101u) * 0xffu;
    return (low & ~upper) | (high & upper);
}

/* The codes of inputs 4 t .. 4 t + 3 (w[0], w[1]) and 16 + 4 t .. (w[2], w[3]) of outputs g and g + 8. */
template <class L> DEV void load_codes(bytes record, int g, int t, const u32 (&table)[4], u32 (&w)[4]) {
    constexpr int bits = L::format.bits;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const u32 o = (u32)(4 * (g + 8 * i)), step = (u32)(64 * t);
        bytes plane = record;
        u32 first = 0, second = 0;
        if constexpr (bits == 8) {
            first = word_at(plane, step + o);
            second = word_at(plane, step + 256 + o);
        }
        if constexpr (bits != 8 && (bits & 4)) {
            const u32 both = word_at(plane, step + o);
            first = both & 0x0f0f0f0fu;
            second = both >> 4 & 0x0f0f0f0fu;
            plane = plane + 256;
        }
        if constexpr ((bits & 2) != 0) {
            first |= (word_at(plane, o) >> 2 * t & 0x03030303u) << (bits & 4);
            second |= (word_at(plane, 64 + o) >> 2 * t & 0x03030303u) << (bits & 4);
            plane = plane + 128;
        }
        if constexpr ((bits & 1) != 0) {
            const u32 all = word_at(plane, o);
            first |= (all >> t & 0x01010101u) << (bits & 6);
            second |= (all >> (t + 4) & 0x01010101u) << (bits & 6);
        }
        w[i] = L::format.table ? look_up(table, first) : first;
        w[2 + i] = L::format.table ? look_up(table, second) : second;
    }
}

/* The scale of output o among the 16 there; super: the f16 scales of which these are factors, in layouts that have them. */
template <class L> DEV float scale_at(bytes b, float super, int o) {
    if constexpr (L::format.powers) {
        const u32 e = byte_at(b, o);
        return e < 2 ? 0 : as_float((e - 1) << 23);
    }
    if constexpr (L::format.super != 0) return mul_rn(super, (float)(int)(signed char)byte_at(b, o));
    return f16_at(b, o);
}

/* What the rows 2 t and 2 t + 1 of a row group have beside their int8. */
struct row_scales {
    two_floats scale, weighted;
    two_ints sum, half; /* of the int8, and of the first 16 */
};

DEV row_scales load_row_scales(const unsigned char *record, int t) {
    const unsigned char *arrays = record + CL_LINEAR_BLOCK * CL_LINEAR_ROW_GROUP + 8 * t;
    const auto floats = [&](int i) { return ld_global(reinterpret_cast<const two_floats *>(arrays + 32 * i)); };
    const auto ints = [&](int i) {
        two_ints v = ld_global(reinterpret_cast<const two_ints *>(arrays + 32 * i));
        UNROLL
        for (int j = 0; j < 2; j++) v.v[j] = (CL_LINEAR_MAGIC - v.v[j]) / 128;
        return v;
    };
    return {floats(0), floats(2), ints(3), ints(4)};
}

/* The integer products of a scale group, which begin with what is in c. */
template <class L> DEV void multiply_codes(int (&c)[4], const u32 (&w)[4], const u32 (&x)[2], int group) {
    if constexpr (L::format.scale_group == 16) {
        const u32 a[2] = {w[2 * group], w[2 * group + 1]};
        mma_u8s8_k16(c, a, x[group]);
    } else {
        mma_u8s8(c, w, x);
    }
}

/* y of 16 outputs and 8 rows plus the products of a block of inputs. d, m: [scale group][2] of outputs g and g + 8. */
template <class L>
DEV void add_block(float (&y)[4], const u32 (&w)[4], const float (&d)[2][2], const float (&m)[2][2],
                   const unsigned char *record, int g, int t) {
    const u32 x[2] = {word_at(record, (u32)(32 * t + 4 * g)), word_at(record, (u32)(32 * (t + 4) + 4 * g))};
    const row_scales row = load_row_scales(record, t);
    UNROLL
    for (int s = 0; s < panel_of<L>::SCALE_GROUPS; s++) {
        int sum[2], c[4];
        UNROLL
        for (int j = 0; j < 2; j++)
            sum[j] = L::format.scale_group == 32 ? row.sum.v[j] : s ? row.sum.v[j] - row.half.v[j] : row.half.v[j];
        UNROLL
        for (int i = 0; i < 4; i++) c[i] = -L::format.zero * sum[i % 2];
        multiply_codes<L>(c, w, x, s);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const float scale = row.scale.v[i % 2];
            y[i] = fma_rn(mul_rn((float)c[i], scale), d[s][i / 2], y[i]);
            if constexpr (L::format.min) {
                const float weighted = L::format.scale_group == 32 ? row.weighted.v[i % 2] : mul_rn(scale, (float)sum[i % 2]);
                y[i] = fma_rn(weighted, m[s][i / 2], y[i]);
            }
        }
    }
}

/* A panel of one of the products. */
struct panel_place {
    cl_cuda_product of;
    int panel; /* -1: there is none */
};

/* Products are selected by constant numbers, or nvcc would copy the arguments to local memory. */
DEV panel_place find_panel(const cl_cuda_linear_args &a, int panel) {
    panel_place found = {a.of[0], -1};
    UNROLL
    for (int i = 0; i < CL_CUDA_PRODUCTS; i++) {
        const int n = i < a.n_products ? (a.of[i].n_out + CL_LINEAR_LANES - 1) / CL_LINEAR_LANES : 0;
        if (found.panel < 0 && panel < n) found = {a.of[i], panel};
        panel -= n;
    }
    return found;
}

/* The sums of a panel, as mma's c. */
template <int GROUPS>
DEV void store_sums(const cl_cuda_linear_args &a, const cl_cuda_product &to, const float (&y)[GROUPS][4], int first_row,
                    int panel, int g, int t) {
    UNROLL
    for (int n = 0; n < GROUPS; n++) UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = first_row + 8 * n + 2 * t + i % 2, out = panel * CL_LINEAR_LANES + g + i / 2 * 8;
        if (row < a.n_rows && out < to.n_out) st_global(to.y + (size_t)row * (size_t)to.y_stride + out, y[n][i]);
    }
}

enum { ROWS_AHEAD = 8 }; /* blocks of inputs */

/* Begin to fetch the records of block b of the row groups, of which each has four lines; the warps of a block take turns. */
DEV void fetch_rows(const unsigned char *rows, size_t row_group_bytes, int n_groups, int b, int n_blocks) {
    const int lane = thread_index() % 32, group = lane / 4;
    const size_t record = (size_t)b * CL_LINEAR_ROW_BYTES * CL_LINEAR_ROW_GROUP;
    if (b < n_blocks && group < n_groups && b % CL_CUDA_PANELS_A_BLOCK == thread_index() / 32)
        prefetch(rows + (size_t)group * row_group_bytes + record + lane % 4 * 128);
}

template <class L, int GROUPS> DEV void multiply(const cl_cuda_linear_args &a) {
    using P = panel_of<L>;
    const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
    const int n_blocks = a.n_in / CL_LINEAR_BLOCK, n_row_blocks = (a.n_rows + 8 * GROUPS - 1) / (8 * GROUPS);
    const int quad = block_index() / n_row_blocks, first_row = block_index() % n_row_blocks * 8 * GROUPS;
    const panel_place at = find_panel(a, quad * CL_CUDA_PANELS_A_BLOCK + thread_index() / 32);
    if (at.panel < 0) return;
    const size_t row_group_bytes = (size_t)n_blocks * CL_LINEAR_ROW_BYTES * CL_LINEAR_ROW_GROUP;
    const size_t panel_bytes = (size_t)n_blocks * P::RECORD + (size_t)n_blocks / CL_LINEAR_SUPER * P::SUPER;
    const unsigned char *rows = a.records + (size_t)(first_row / 8) * row_group_bytes;
    const int left = (a.n_rows - first_row + 7) / 8, n_groups = left < GROUPS ? left : GROUPS;
    panel_stream stream = open_stream(at.of.panels + (size_t)at.panel * panel_bytes, panel_bytes);
    bytes panel = {stream.ring, 0};
    for (int b = 0; b < ROWS_AHEAD; b++) fetch_rows(rows, row_group_bytes, n_groups, b, n_blocks);
    u32 table[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        table[i] = 0;
        UNROLL
        for (int j = 0; j < 4; j++) table[i] |= (u32)a.table[4 * i + j] << 8 * j;
    }

    float y[GROUPS][4] = {}, super_d[2] = {}, super_m[2] = {};
    UNROLL_BY(1)
    for (int b = 0; b < n_blocks; b++) {
        const bool begins = L::format.super != 0 && b % CL_LINEAR_SUPER == 0;
        await(stream, panel.at + (begins ? P::SUPER : 0) + P::RECORD);
        fetch_rows(rows, row_group_bytes, n_groups, b + ROWS_AHEAD, n_blocks);
        if (begins) {
            UNROLL
            for (int i = 0; i < 2; i++) {
                super_d[i] = mul_rn(f16_at(panel, g + 8 * i), 1.0f / (float)(L::format.super ? L::format.super : 1));
                if (L::format.min) super_m[i] = f16_at(panel + 2 * CL_LINEAR_LANES, g + 8 * i);
            }
            panel = panel + P::SUPER;
        }
        u32 w[4];
        float d[2][2] = {}, m[2][2] = {};
        load_codes<L>(panel, g, t, table, w);
        UNROLL
        for (int s = 0; s < P::SCALE_GROUPS; s++) {
            UNROLL
            for (int i = 0; i < 2; i++) {
                d[s][i] = scale_at<L>(panel + P::D_AT + s * P::SCALES, super_d[i], g + 8 * i);
                if (L::format.min) m[s][i] = scale_at<L>(panel + P::M_AT + s * P::SCALES, super_m[i], g + 8 * i);
            }
        }
        const unsigned char *records = rows + (size_t)b * CL_LINEAR_ROW_BYTES * CL_LINEAR_ROW_GROUP;
        UNROLL
        for (int n = 0; n < GROUPS; n++)
            if (n < n_groups) add_block<L>(y[n], w, d, m, records + n * row_group_bytes, g, t);
        panel = panel + P::RECORD;
    }
    store_sums<GROUPS>(a, at.of, y, first_row, at.panel, g, t);
}

/* ---- Float weights ---- */

enum { FLOAT_ROWS = 8 };

/* A warp has a panel and 8 rows, and a thread one output of four of them. The chain over the inputs is that of the CPU. */
template <bool HALF> DEV void multiply_floats(const cl_cuda_linear_args &a) {
    const int lane = thread_index() % 32, o = lane % 16, n_row_blocks = (a.n_rows + FLOAT_ROWS - 1) / FLOAT_ROWS;
    const int quad = block_index() / n_row_blocks, first_row = block_index() % n_row_blocks * FLOAT_ROWS + lane / 16;
    const panel_place at = find_panel(a, quad * CL_CUDA_PANELS_A_BLOCK + thread_index() / 32);
    if (at.panel < 0) return;
    const cl_cuda_product &to = at.of;
    const unsigned char *panel = to.panels + (size_t)at.panel * (size_t)a.n_in * CL_LINEAR_LANES * (HALF ? 2 : 4);
    float y[FLOAT_ROWS / 2] = {};
    for (int k = 0; k < a.n_in; k++, panel += CL_LINEAR_LANES * (HALF ? 2 : 4)) {
        const float w = HALF ? f16_of(word_at(panel, (u32)(o & ~1) * 2), o) : as_float(word_at(panel, 4 * (u32)o));
        UNROLL
        for (int i = 0; i < FLOAT_ROWS / 2; i++) {
            const int row = first_row + 2 * i;
            if (row < a.n_rows) y[i] = fma_rn(ld_global(a.x + (size_t)row * (size_t)a.n_in + k), w, y[i]);
        }
    }
    const int out = at.panel * CL_LINEAR_LANES + o;
    UNROLL
    for (int i = 0; i < FLOAT_ROWS / 2; i++) {
        const int row = first_row + 2 * i;
        if (row < a.n_rows && out < to.n_out) st_global(to.y + (size_t)row * (size_t)to.y_stride + out, y[i]);
    }
}

/*
 * BF16 weights by mma, W as its wide operand A and a row as a column of B, rounded to bf16: one chain over steps of 16 inputs,
 * so that no bit depends on the number of rows. The sum within a step is the device's own.
 */
template <int GROUPS> DEV void multiply_bf16(const cl_cuda_linear_args &a) {
    const int lane = thread_index() % 32, g = lane / 4, t = lane % 4;
    const int n_row_blocks = (a.n_rows + 8 * GROUPS - 1) / (8 * GROUPS);
    const int quad = block_index() / n_row_blocks, first_row = block_index() % n_row_blocks * 8 * GROUPS;
    const panel_place at = find_panel(a, quad * CL_CUDA_PANELS_A_BLOCK + thread_index() / 32);
    if (at.panel < 0) return;
    const cl_cuda_product &to = at.of;
    const int n_pairs = (a.n_in + 1) / 2;
    const unsigned char *panel = to.panels + (size_t)at.panel * (size_t)n_pairs * CL_LINEAR_LANES * 4;
    const auto weights = [&](int pair, int o) { return pair < n_pairs ? word_at(panel, (u32)(pair * 16 + o) * 4) : 0u; };
    const auto inputs = [&](int row, int k) {
        const float *x = a.x + (size_t)row * (size_t)a.n_in + k;
        if (row >= a.n_rows || k >= a.n_in) return 0u;
        return pack<BF16>(ld_global(x), k + 1 < a.n_in ? ld_global(x + 1) : 0);
    };
    float y[GROUPS][4] = {};
    UNROLL_BY(1)
    for (int k = 0; k < a.n_in; k += 16) {
        const int pair = k / 2 + t;
        const u32 w[4] = {weights(pair, g), weights(pair, g + 8), weights(pair + 4, g), weights(pair + 4, g + 8)};
        UNROLL
        for (int n = 0; n < GROUPS; n++) {
            const int row = first_row + 8 * n + g;
            const u32 x[2] = {inputs(row, k + 2 * t), inputs(row, k + 8 + 2 * t)};
            mma<BF16>(y[n], w, x);
        }
    }
    store_sums<GROUPS>(a, to, y, first_row, at.panel, g, t);
}

#endif
