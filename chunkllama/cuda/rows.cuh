/*
 * The operations on rows between two products, with the bits of the CPU's (row_ops.h): sums are in 16 lanes, of which lane i
 * has the elements i mod 16, and are folded in halves. nvcc compiles this without contraction and with denormals as zeros.
 */
#ifndef CHUNKLLAMA_CUDA_ROWS_CUH
#define CHUNKLLAMA_CUDA_ROWS_CUH

#include "chunkattn/cuda/primitives.h"
#include "chunkllama/linear/scalar_ops.h"
#include "chunkllama/tensor/linear_format.h"
#include "kernels.h"

enum { ROW_THREADS = 256, ROW_SHARED = 16 };

/* The sum of f(i) for i below n, by a warp, all lanes; lanes from 16 on do the same as those before. */
template <class F> DEV float sum_lanes(int n, F f) {
    const int lane = thread_index() % 16;
    float sum = 0;
    for (int i = lane; i < n; i += 16) sum = add_rn(sum, f(i));
    for (int half = 8; half; half /= 2) sum = add_rn(sum, shfl_xor(sum, half));
    return sum;
}

/* What a norm subtracts from the elements of x [n], and multiplies the difference with. */
struct norm_of_row {
    float mean, scale;
};

/* By a warp. */
DEV norm_of_row find_norm(const float *x, int n, float eps, bool layer_norm) {
    float mean = 0;
    if (layer_norm) mean = sum_lanes(n, [&](int i) { return ld_global(x + i); }) / (float)n;
    const float squares = sum_lanes(n, [&](int i) {
        const float v = layer_norm ? add_rn(ld_global(x + i), -mean) : ld_global(x + i);
        return mul_rn(v, v);
    });
    return {mean, 1.0f / sqrtf(add_rn(squares / (float)n, eps))};
}

/* The same for all threads of the block. */
DEV norm_of_row find_row_norm(const float *x, int n, float eps, bool layer_norm) {
    sync_block(); /* x is written, and the last norm has been read */
    if (thread_index() < 32) {
        const norm_of_row found = find_norm(x, n, eps, layer_norm);
        if (thread_index() == 0) {
            st_shared(shared_base(), found.mean);
            st_shared(shared_base() + 4, found.scale);
        }
    }
    sync_block();
    return {ld_shared<float>(shared_base()), ld_shared<float>(shared_base() + 4)};
}

DEV float normed(norm_of_row r, bool layer_norm, float x, float weight) {
    return mul_rn(mul_rn(layer_norm ? add_rn(x, -r.mean) : x, r.scale), weight);
}

/*
 * Quantise a block of 32 inputs of row `row`, of which each lane of a warp has one, into its record (linear_kernels.h). n:
 * inputs of the row.
 */
DEV void put_block(uint8_t *records, int n, int row, int block, float x) {
    const int lane = thread_index() % 32;
    uint8_t *record = records + ((size_t)(row / CL_LINEAR_ROW_GROUP) * (size_t)(n / CL_LINEAR_BLOCK) + (size_t)block) *
                                    (CL_LINEAR_ROW_BYTES * CL_LINEAR_ROW_GROUP);
    float max = fabsf(x) > 0 ? fabsf(x) : 0;
    for (int mask = 16; mask; mask /= 2) {
        const float other = shfl_xor(max, mask);
        max = other > max ? other : max;
    }
    const float scale = as_float((as_bits(max / 127.0f) + 3u) & ~3u), inverse = scale > 0 ? 1.0f / scale : 0;
    const int q = (int)rintf(mul_rn(x, inverse));
    u32 word = ((u32)q & 0xffu) << 8 * (lane % 4);
    word |= shfl_xor(word, 1);
    word |= shfl_xor(word, 2);
    int sum = q;
    for (int mask = 1; mask < 16; mask *= 2) sum += shfl_xor(sum, mask);
    const int half = shfl(sum, 0);
    sum += shfl_xor(sum, 16);
    const auto put = [&](int array, auto v) {
        st_global(reinterpret_cast<decltype(v) *>(record + array * 4 * CL_LINEAR_ROW_GROUP) + row % CL_LINEAR_ROW_GROUP, v);
    };
    if (lane % 4 == 0) put(lane / 4, word);
    if (lane != 0) return;
    put(8, scale);
    put(9, mul_rn(-12582912.0f, scale));
    put(10, mul_rn(scale, (float)sum));
    put(11, CL_LINEAR_MAGIC - 128 * sum);
    put(12, CL_LINEAR_MAGIC - 128 * half);
}

/* The warps of a block quantise a row of n inputs, of which f(i) is the i-th. */
template <class F> DEV void put_row(uint8_t *records, int n, int row, F f) {
    for (int block = thread_index() / 32; records && block < n / CL_LINEAR_BLOCK; block += ROW_THREADS / 32)
        put_block(records, n, row, block, f(block * CL_LINEAR_BLOCK + thread_index() % 32));
}

/* A block of threads for each row, those behind the last one of its row group included. */
DEV void norm(const cl_cuda_norm_args &a) {
    const int row = block_index(), n = a.n;
    if (row >= a.n_rows) {
        put_row(a.records, n, row, [](int) { return 0.0f; });
        return;
    }
    float *x = a.x + (size_t)row * (size_t)n, *delta = a.delta ? a.delta + (size_t)row * (size_t)n : nullptr,
          *out = a.out + (size_t)row * (size_t)n;
    for (int i = thread_index(); a.delta_bias && i < n; i += ROW_THREADS)
        st_global(delta + i, add_rn(ld_global(delta + i), ld_global(a.delta_bias + i)));
    norm_of_row of_delta = {0, 1};
    if (a.delta_norm) of_delta = find_row_norm(delta, n, a.eps, a.layer_norm);
    for (int i = thread_index(); delta && i < n; i += ROW_THREADS) {
        float d = ld_global(delta + i);
        if (a.delta_norm) d = normed(of_delta, a.layer_norm, d, ld_global(a.delta_norm + i));
        if (a.delta_norm_bias) d = add_rn(d, ld_global(a.delta_norm_bias + i));
        if (a.residual_scale != 1) d = mul_rn(d, a.residual_scale);
        float sum = add_rn(ld_global(x + i), d);
        if (a.layer_scale && ld_global(a.layer_scale) != 1) sum = mul_rn(sum, ld_global(a.layer_scale));
        st_global(x + i, sum);
    }
    norm_of_row of_x = {0, 1};
    if (a.norm)
        of_x = find_row_norm(x, n, a.eps, a.layer_norm);
    else
        sync_block();
    for (int i = thread_index(); i < n; i += ROW_THREADS) {
        float v = ld_global(x + i);
        if (a.norm) v = normed(of_x, a.layer_norm, v, ld_global(a.norm + i));
        if (a.norm_bias) v = add_rn(v, ld_global(a.norm_bias + i));
        st_global(out + i, v);
    }
    sync_block();
    put_row(a.records, n, row, [&](int i) { return ld_global(out + i); });
}

DEV void quantize(const cl_cuda_quantize_args &a) {
    const int row = block_index();
    put_row(a.records, a.n, row, [&](int i) { return row < a.n_rows ? ld_global(a.x + (size_t)row * (size_t)a.n + i) : 0.0f; });
}

/* As norm; h is written before it is quantised, or together with it. */
DEV void activate(const cl_cuda_activate_args &a) {
    const int row = block_index(), n = a.n;
    const auto value = [&](int i) {
        const size_t at = (size_t)row * (size_t)n + (size_t)i;
        float up = ld_global(a.up + at), gate = a.gate ? ld_global(a.gate + at) : 0;
        if (a.up_bias) up = add_rn(up, ld_global(a.up_bias + i));
        if (a.gate && a.gate_bias) gate = add_rn(gate, ld_global(a.gate_bias + i));
        switch (a.ffn) {
        case CL_CUDA_SWIGLU: return cl_ops_swiglu_of(gate, up);
        case CL_CUDA_SWIGLU_CLAMPED: return cl_ops_swiglu_clamped_of(gate, up);
        case CL_CUDA_GEGLU: return mul_rn(cl_ops_gelu_of(gate), up);
        default: return cl_ops_gelu_of(up);
        }
    };
    if (row >= a.n_rows) {
        put_row(a.records, n, row, [](int) { return 0.0f; });
    } else if (a.records) {
        put_row(a.records, n, row, value);
    } else {
        for (int i = thread_index(); i < n; i += ROW_THREADS) st_global(a.h + (size_t)row * (size_t)n + i, value(i));
    }
}

/* A warp has one head of a row. x is written by one lane and read by another, so lanes meet between the steps. */
DEV void norm_head(float *x, const float *weight, const cl_cuda_finish_args &a) {
    const norm_of_row r = find_norm(x, a.head_dim, a.eps, a.layer_norm);
    sync_warp();
    for (int i = thread_index() % 32; i < a.head_dim; i += 32)
        st_global(x + i, normed(r, a.layer_norm, ld_global(x + i), ld_global(weight + i)));
    sync_warp();
}

DEV void rotate_head(float *x, const float *cos_sin, const cl_cuda_finish_args &a) {
    const int half = a.n_rot / 2;
    for (int i = thread_index() % 32; i < half; i += 32) {
        float *first = x + (a.halves ? i : 2 * i), *second = x + (a.halves ? half + i : 2 * i + 1);
        const float u = ld_global(first), v = ld_global(second), c = ld_global(cos_sin + 2 * i),
                    s = ld_global(cos_sin + 2 * i + 1);
        st_global(first, fma_rn(u, c, -mul_rn(v, s)));
        st_global(second, fma_rn(u, s, mul_rn(v, c)));
    }
    sync_warp();
}

DEV void finish_heads(const cl_cuda_finish_args &a) {
    const int n_heads = a.of[0].n_heads + a.of[1].n_heads + a.of[2].n_heads;
    const int at = (block_index() * ROW_THREADS + thread_index()) / 32, row = at / n_heads;
    if (row >= a.n_rows) return;
    int head = at % n_heads, which = 0;
    cl_cuda_heads h = a.of[0];
    UNROLL
    for (int i = 1; i < 3; i++) /* by constant numbers, as in find_panel */
        if (head >= h.n_heads && which == i - 1) {
            head -= h.n_heads;
            which = i;
            h = a.of[i];
        }
    float *x = h.rows + ((size_t)row * (size_t)h.n_heads + (size_t)head) * (size_t)a.head_dim;
    const float *weight = h.norm ? h.norm + (a.own_norm && which < 2 ? head * a.head_dim : 0) : nullptr;
    for (int i = thread_index() % 32; h.bias && i < a.head_dim; i += 32)
        st_global(x + i, add_rn(ld_global(x + i), ld_global(h.bias + head * a.head_dim + i)));
    sync_warp();
    if (weight && !a.norm_is_behind) norm_head(x, weight, a);
    if (h.cos_sin) rotate_head(x, h.cos_sin + (size_t)ld_global(a.positions + row) * (size_t)a.n_rot, a);
    if (weight && a.norm_is_behind) norm_head(x, weight, a);
    for (int i = thread_index() % 32; h.scale && i < a.head_dim; i += 32)
        st_global(x + i, mul_rn(ld_global(x + i), ld_global(h.scale + row)));
}

DEV void gather(const cl_cuda_gather_args &a) {
    const float *from = a.from + (size_t)ld_global(a.rows + block_index()) * (size_t)a.n;
    for (int i = thread_index(); i < a.n; i += ROW_THREADS)
        st_global(a.to + (size_t)block_index() * (size_t)a.n + i, ld_global(from + i));
}

#endif
