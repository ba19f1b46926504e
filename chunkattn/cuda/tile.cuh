/*
 * Where the elements of K, V and queries lie in a tile, in device memory and in shared memory.
 *
 * A tile has one line of d 16-bit elements for each slot (or row); e4m3.cuh has the tiles of e4m3. It is stored in parts of 64
 * dimensions, [lines][128 bytes] each; d = 96 ends with half a part, [lines][64 bytes]. A line's 16-byte units are exchanged
 * among themselves:
 *
 *   unit u of line s is stored at   u ^ (s % 8) in a part,   u ^ (s / 2 % 4) in half a part
 *
 *   line 0:  0 1 2 3 4 5 6 7        (128 bytes: the units of 64 dimensions)
 *   line 1:  1 0 3 2 5 4 7 6
 *   line 2:  2 3 0 1 6 7 4 5        so that one unit of 8 consecutive lines is in 8 different groups of banks
 *
 * Hence ldmatrix, plain or transposed, has no bank conflicts, and a tile is an operand of wgmma as it lies: it is the 128-byte
 * swizzle (64-byte for half a part), K-major for K and Q, MN-major for V. Any 16 lines of a tile that begin at a multiple of 16
 * are contiguous in each part, and are a tile of 16 lines themselves.
 */
#ifndef CHUNKATTN_CUDA_TILE_CUH
#define CHUNKATTN_CUDA_TILE_CUH

#include "primitives.h"
#include "work_item.h"

#include "chunkattn.h"

/* Where K and V come from, and how they are copied to shared memory. */
enum kv_source {
    TILES,         /* tiles, by cp.async */
    WGMMA_TILES,   /* tiles, by bulk copies of a producer warp, which the other warps multiply by wgmma (sm_90a) */
    E4M3_TILES,    /* tiles of e4m3 with scales (e4m3.cuh), by cp.async */
    FOREIGN_PAGES, /* foreign pages (pages.cuh), by cp.async; from there on as TILES */
};

/* i itself. The compiler does not know that, so it does not keep what depends on i over a loop, and spill it. */
DEV int hidden(int i) { return shfl_xor(i, 0); }

/*
 * The threads that work on a work item's rows together: all of the block, or one of its groups of S::THREADS, beside others
 * that do the same for other rows or only copy. This thread's index among them, and their barrier.
 */
template <class S> DEV int own_thread() {
    return S::THREADS == S::BLOCK_THREADS ? thread_index() : thread_index() % S::THREADS;
}
template <class S> DEV void sync_own() {
    if constexpr (S::THREADS == S::BLOCK_THREADS)
        sync_block();
    else
        sync_named(1 + thread_index() / S::THREADS, S::THREADS);
}

struct alignas(8) u2 {
    u32 v[2];
};
struct alignas(8) f2 {
    float v[2];
};

/* Bytes of a tile of D dimensions: one chunk of one KV head, K or V. */
template <int D> constexpr u32 tile_bytes = CA_CUDA_CHUNK *D * 2;

/* Offset of a 16-byte unit of a line, in a tile of LINES lines. */
template <int D, int LINES> DEV u32 unit_offset(u32 line, u32 unit) {
    if (unit < D / 64 * 8) return unit / 8 * (LINES * 128) + line * 128 + ((unit % 8 ^ line % 8) << 4);
    return D / 64 * (LINES * 128) + line * 64 + ((unit % 4 ^ line / 2 % 4) << 4);
}

/*
 * The same for many units of one line: the line's place is computed once, a unit then costs one exclusive or. `unit` is a
 * multiple of 4, or of 2 where lane_unit < 2: the unit meant is unit + lane_unit.
 */
struct tile_line {
    u32 part, half; /* of lane_unit in the first part, and in the half part */
};
template <int D, int LINES> DEV tile_line line_of_tile(u32 tile, u32 line, u32 lane_unit) {
    return {tile + line * 128 + ((lane_unit ^ line % 8) << 4),
            tile + D / 64 * (LINES * 128) + line * 64 + ((lane_unit ^ line / 2 % 4) << 4)};
}
template <int D, int LINES> DEV u32 unit_at(const tile_line &line, u32 unit) {
    return unit < D / 64 * 8 ? (line.part ^ unit % 8 << 4) + unit / 8 * (LINES * 128) : line.half ^ unit % 4 << 4;
}

/* The 16-bit type that is not E. */
template <element E> constexpr element other_element = E == BF16 ? F16 : BF16;
template <element E> constexpr int type_of = E == BF16 ? CATTN_BF16 : CATTN_F16;

/* 8 elements of a caller's line, from unit on, as E; rounded to nearest even where the types differ. */
template <element E> DEV u4 load_unit(const void *line, int type, int unit) {
    u4 r;
    if (type == CATTN_F32) {
        const f4 low = ld_global((const f4 *)line + 2 * unit), high = ld_global((const f4 *)line + 2 * unit + 1);
        UNROLL for (int i = 0; i < 2; i++) {
            r.v[i] = pack<E>(low.v[2 * i], low.v[2 * i + 1]);
            r.v[2 + i] = pack<E>(high.v[2 * i], high.v[2 * i + 1]);
        }
        return r;
    }
    r = ld_global((const u4 *)line + unit);
    if (type == type_of<E>) return r;
    constexpr element O = other_element<E>;
    UNROLL for (int i = 0; i < 4; i++) r.v[i] = pack<E>(low_half<O>(r.v[i]), high_half<O>(r.v[i]));
    return r;
}

DEV const unsigned char *line_of(const ca_cuda_view &view, int row, int head) {
    return (const unsigned char *)view.data + row * view.row_stride + head * view.head_stride;
}

/* A work item's line in registers. */
DEV ca_work_item load_work(const ca_work_item *work) {
    static_assert(sizeof(ca_work_item) == 64, "a work item is one line");
    u4 words[4];
    UNROLL for (int i = 0; i < 4; i++) words[i] = ld_global((const u4 *)work + i);
    ca_work_item loaded;
    memcpy(&loaded, words, sizeof loaded);
    return loaded;
}

/* Its line and its index in shared memory, from the next barrier on. */
enum { KEPT_WORK = sizeof(ca_work_item) + 16 };
DEV void keep_work(const ca_cuda_attend_args &a, int j, u32 at) {
    const int t = thread_index();
    if (t < 4) st_shared(at + (u32)t * 16, ld_global((const u4 *)(a.items + j) + t));
    if (t == 4) st_shared(at + (u32)sizeof(ca_work_item), j);
}
/* Without its chunks. Words of 4 bytes are broadcast to all lanes in one wavefront each. */
DEV ca_work_item kept_work(u32 at) {
    u32 words[sizeof(ca_work_item) / 4] = {};
    UNROLL for (u32 i = 0; i < 8; i++) words[i] = ld_shared<u32>(at + i * 4);
    ca_work_item work;
    memcpy(&work, words, sizeof work);
    return work;
}
DEV int kept_index(u32 at) { return ld_shared<int>(at + (u32)sizeof(ca_work_item)); }

/* A tile's row: the token of the work item that it belongs to, and the query head. */
struct row_place {
    int token, query_head;
};
DEV row_place place_of(const ca_cuda_attend_args &a, int head, int row) {
    const int token = (int)((u32)row * a.group_inverse >> 16);
    return {token, head * a.group + row - token * a.group};
}

/* A work item's queries as a tile of LINES lines in shared memory, zeros behind the last row. */
template <class S, int LINES> DEV void stage_queries(const ca_cuda_attend_args &a, const ca_work_item &work, u32 to) {
    const int n_rows = work.n_tokens * a.group;
    for (int i = own_thread<S>(); i < LINES * (S::D / 8); i += S::THREADS) {
        const int row = i / (S::D / 8), unit = i % (S::D / 8);
        u4 x = {};
        if (row < n_rows) {
            const row_place p = place_of(a, work.head, row);
            x = load_unit<S::E>(line_of(a.q, ld_global(a.source + work.row + p.token), p.query_head), a.q.type, unit);
        }
        st_shared(to + unit_offset<S::D, LINES>((u32)row, (u32)unit), x);
    }
}

#endif
