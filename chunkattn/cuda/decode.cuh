/*
 * Decode attention: 8, 16 or 32 rows over a segment of up to 8 chunks. cp.async and mma.sync: sm_80 and later.
 *
 * A block has a warp for each quarter of the chunks (d = 256: two, which share the rows). A warp takes its 16 slots of every
 * chunk, and has a ring of its own for them, so warps meet only at the segment's end; every byte of K and V is read from device
 * memory once. K and V are the wide operands (m16), rows the narrow one (n8), so that few rows waste little:
 *
 *   S^T [16 slots][8 rows]  = K [16 slots][16 d] Q^T [16 d][8 rows]        d / 16 steps
 *   O^T [16 d][8 rows]     += V^T [16 d][16 slots] P^T [16 slots][8 rows]  d / 16 blocks
 *
 * P^T goes from the layout of a result to that of an operand by movmatrix.
 *
 * Shared memory: rings (later the quarters' sums), queries, (M, l) of the quarters, flags of the arrival, the work item. What
 * the loop over chunks rarely needs is read from there again, since its registers are all in use.
 */
#ifndef CHUNKATTN_CUDA_DECODE_CUH
#define CHUNKATTN_CUDA_DECODE_CUH

#include "decode_quarter.cuh"
#include "merge.cuh"
#include "pages.cuh"

/* ---- The ring ---- */

/*
 * What a warp adds to a place to find its lines: the offset, in bytes from a chunk's begin, of the first byte that it requests
 * (K; of two warps the second requests V). For foreign pages it is the KV head, from which find_lines computes the address.
 */
template <class S> DEV u32 request_offset(const decode_warp &w, int head) {
    if (S::PAGES) return (u32)head;
    if (S::IN_E4M3) return (u32)(2 * head + w.half) * e4m3_tile_bytes<S::D> + (u32)w.quarter * S::VALUES;
    return (u32)(2 * head + w.half) * tile_bytes<S::D> + (u32)w.quarter * 2048;
}

/*
 * Request a quarter of a chunk: K then V; of two warps one takes K, one V. Of a part of 64 dimensions it is 2048 bytes, of half
 * a part 1024. Each lane copies 16 bytes of each 512.
 */
template <class S> DEV void request_pieces(const decode_warp &w, u32 to, const unsigned char *part) {
    constexpr int PIECES = S::D / 16; /* of K */
    to += (u32)w.lane * 16;
    part += w.lane * 16;
    const unsigned char *half = part - w.quarter * 1024;
    UNROLL for (int j = 0; j < 2 * PIECES / S::SPLIT; j++) {
        const int k = j % PIECES;
        const unsigned char *from = k / 4 < S::D / 64 ? part : half;
        cp_async16(to + (u32)j * 512, from + j / PIECES * (int)tile_bytes<S::D> + k / 4 * (CA_CUDA_CHUNK * 128) + k % 4 * 512);
    }
}

/* Request a quarter of a chunk in e4m3: 16 lines of K and of V, and the scales of both, 64 bytes each. */
template <class S> DEV void request_e4m3(const decode_warp &w, u32 stage, const unsigned char *lines) {
    constexpr int PIECES = S::D / 32, TILE = (int)e4m3_tile_bytes<S::D>; /* pieces of 512 bytes, of K */
    const int lane = hidden(w.lane);
    const u32 to = stage + (u32)w.half * S::VALUES + (u32)lane * 16;
    UNROLL for (int j = 0; j < 2 * PIECES / S::SPLIT; j++)
        cp_async16(to + (u32)j * 512, lines + lane * 16 + j / PIECES * TILE + j % PIECES * 512);
    const int to_scales = (CA_CUDA_CHUNK - STEP_SLOTS * w.quarter) * S::D + STEP_SLOTS * 4 * w.quarter;
    const int v = lane / 4; /* of one warp; of two, each has its own lines */
    if (lane < 8 / S::SPLIT)
        cp_async16(stage + S::SCALES + (u32)(w.half + v) * (STEP_SLOTS * 4) + (u32)lane % 4 * 16,
                   lines + to_scales + v * TILE + lane % 4 * 16);
}

/* Request a quarter from foreign pages. */
template <class S> DEV void request_pages(const ca_cuda_attend_args &a, const decode_warp &w, u32 to, int head, int place) {
    const int lane = hidden(w.lane);
    UNROLL for (int v = 0; v < 2 / S::SPLIT; v++) copy_page_lines<S::D, STEP_SLOTS, 32>(
        find_lines(a, S::SPLIT > 1 ? w.half == 1 : v == 1, head, place), to + (u32)v * S::VALUES, 0, lane);
}

template <class S> DEV void request(const ca_cuda_attend_args &a, const decode_warp &w, int stage, int place, u32 offset) {
    const u32 to = w.ring + (u32)stage * S::STAGE + (u32)w.half * S::VALUES;
    if constexpr (S::PAGES) {
        request_pages<S>(a, w, to, (int)offset, place);
        return;
    }
    const unsigned char *part = (const unsigned char *)a.kv + place * a.chunk_bytes + offset;
    if constexpr (S::IN_E4M3)
        request_e4m3<S>(w, w.ring + (u32)stage * S::STAGE, part);
    else
        request_pieces<S>(w, to, part);
}

/*
 * Where the ring is: the stage of the next chunk, and in bit 4 the parity of the rounds. It goes on from work item to work
 * item. Nothing reads the parity, but without it nvcc 13.0 takes 183 registers instead of 176 for d = 64, which has not been
 * timed.
 */
template <class S> DEV int next_stage(int at) { return (at & 15) + 1 == S::STAGES ? (at & 16) ^ 16 : at + 1; }
/* The stage of the i-th chunk from there on, i < STAGES. */
template <class S> DEV int stage_ahead(int at, int i) {
    const int stage = (at & 15) + i;
    return stage >= S::STAGES ? stage - S::STAGES : stage;
}

/* Wait until what all warps of the quarter requested is here, and the stage before is free. */
template <class S> DEV void await_stage(const decode_warp &w) {
    cp_async_wait<S::STAGES - 2>();
    if (S::SPLIT == 1)
        sync_warp();
    else
        sync_named(1 + w.quarter, S::SPLIT * 32);
}

/* ---- The ends of a segment ---- */

template <class S, int NT>
DEV void load_carried(const ca_cuda_attend_args &a, const ca_work_item &work, decode_state<S, NT> &st, const decode_warp &w,
                      int first) {
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        const int row = first + t * 8 + w.lane % 4 * 2 + h, g = w.lane / 4;
        if (row >= work.n_tokens * a.group) continue;
        const float *from = carried<S::D>(a, work, work.carry_in, row, w.quarter);
        UNROLL for (int b = 0; b < S::D / 16; b++) UNROLL for (int up = 0; up < 2; up++) st.o[b][t][2 * up + h] =
            ld_global(from + b * 16 + up * 8 + g);
        st.m[t][h] = ld_global(from + S::D);
        st.l[t][h] = ld_global(from + S::D + 8 + g);
    }
}

template <class S, int NT>
DEV void store_carried(const ca_cuda_attend_args &a, const ca_work_item &work, const decode_state<S, NT> &st,
                       const decode_warp &w, int first) {
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        const int row = first + t * 8 + w.lane % 4 * 2 + h, g = w.lane / 4;
        if (row >= work.n_tokens * a.group) continue;
        float *to = carried<S::D>(a, work, work.carry_out, row, w.quarter);
        UNROLL for (int b = 0; b < S::D / 16; b++) UNROLL for (int up = 0; up < 2; up++)
            st_global(to + b * 16 + up * 8 + g, st.o[b][t][2 * up + h]);
        if (g == 0) st_global(to + S::D, st.m[t][h]);
        st_global(to + S::D + 8 + g, st.l[t][h]);
    }
}

/* Where a quarter's sum of (row, dimension i) waits for the others'. The exchange spreads a lane's rows over the banks. */
template <class S> DEV u32 sum_at(int quarter, int row, int i) {
    return (u32)((quarter * S::MAX_ROWS + row) * S::D + (i ^ row / 2 % 4 * 8)) * 4;
}

template <class S, int NT> DEV void leave_sums(decode_state<S, NT> &st, const decode_warp &w, int first) {
    const int row = first + w.lane % 4 * 2; /* and the next, of each 8 */
    u32 at[4];                              /* of the four 8 dimensions in 32 */
    UNROLL for (int i = 0; i < 4; i++) at[i] = w.base + sum_at<S>(w.quarter, row, 8 * i + w.lane / 4);
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int i = 4; i <= 16; i *= 2) st.l[t][h] = add_rn(st.l[t][h], shfl_xor(st.l[t][h], i));
        UNROLL for (int b = 0; b < S::D / 16; b++) UNROLL for (int up = 0; up < 2; up++)
            st_shared(at[b % 2 * 2 + up] + (u32)((t * 8 + h) * S::D + b / 2 * 32) * 4, st.o[b][t][2 * up + h]);
        if (w.lane / 4 == 0)
            st_shared(w.base + S::ML + (u32)(w.quarter * S::MAX_ROWS + row + t * 8 + h) * 8, f2{{st.m[t][h], st.l[t][h]}});
    }
}

/* Fold the quarters of each unit's row, first to last. */
template <class U> DEV void fold_quarters(u32 base, const U &u, sum4 (&sum)[U::N]) {
    using S = typename U::S;
    sum4 part[CA_CUDA_QUARTERS][U::N];
    UNROLL for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) UNROLL for (int k = 0; k < U::N; k++) {
        const f2 ml = ld_shared<f2>(base + S::ML + (u32)(quarter * S::MAX_ROWS + u.row[k]) * 8);
        part[quarter][k] = {ld_shared<f4>(base + sum_at<S>(quarter, u.row[k], 4 * u.unit[k])), ml.v[0], ml.v[1]};
    }
    UNROLL for (int k = 0; k < U::N; k++) {
        sum[k] = part[0][k];
        UNROLL for (int quarter = 1; quarter < CA_CUDA_QUARTERS; quarter++) fold(sum[k], part[quarter][k]);
    }
}

/* ---- A work item ---- */

/* NT: tiles of 8 rows a warp. */
template <class S, int NT> DEV void attend_segment(const ca_cuda_attend_args &a, int j, const decode_warp &w, int &ring) {
    const ca_work_item work = load_work(a.items + j);
    const int places = load_places<S>(a, j, w.lane);
    const int n_chunks = work.n_chunks, partial = work.partial;
    const int first = w.half * NT * 8;
    const u32 offset = request_offset<S>(w, work.head);
    UNROLL for (int i = 0; i < S::STAGES - 1; i++) {
        const int next = shfl_place<S>(places, i, w.quarter);
        if (i < n_chunks) request<S>(a, w, stage_ahead<S>(ring, i), next, offset);
        cp_async_commit(); /* a group for each stage, also where nothing is requested */
    }
    keep_work(a, j, w.base + S::WORK);
    stage_queries<S, S::MAX_ROWS>(a, work, w.base + S::QUERIES);
    sync_block();
    const decode_queries<S, NT> q = find_queries<S, NT>(w, first);
    decode_state<S, NT> st = {};
    UNROLL for (int t = 0; t < NT; t++) st.m[t][0] = st.m[t][1] = lowest_m;
    if (work.carry_in >= 0) load_carried<S, NT>(a, work, st, w, first);

    UNROLL_BY(1) for (int i = 0; i < n_chunks; i++) {
        await_stage<S>(w);
        const int ahead = i + S::STAGES - 1, free = stage_ahead<S>(ring, S::STAGES - 1);
        const int next = shfl_place<S>(places, ahead, w.quarter);
        if (ahead < n_chunks) request<S>(a, w, free, next, S::PAGES ? kept_head(w.base + S::WORK) : offset);
        cp_async_commit();
        attend_quarter<S, NT>(a, st, q, w, w.ring + (u32)(ring & 15) * S::STAGE, i, partial >> i & 1);
        ring = next_stage<S>(ring);
    }
    cp_async_wait<0>();

    const ca_work_item end = kept_work(w.base + S::WORK);
    if (end.carry_out >= 0) {
        store_carried<S, NT>(a, end, st, w, first);
        return;
    }
    sync_block();
    leave_sums<S, NT>(st, w, first);
}

template <class U> DEV void settle_quarters(const ca_cuda_attend_args &a, const ca_work_item &work, u32 base, const U &u) {
    sum4 sum[U::N];
    fold_quarters(base, u, sum);
    settle(a, work, u, sum);
}
template <class S> DEV void finish_segment(const ca_cuda_attend_args &a, u32 base) {
    const ca_work_item work = kept_work(base + S::WORK);
    if (work.carry_out >= 0) return;
    sync_block();
    over_units<S>(a, work, [&](const auto &u) { settle_quarters(a, work, base, u); });
    if (!(work.flags & (CA_WORK_ITEM_OUTPUT | CA_WORK_ITEM_KEEP))) arrive<S>(a, work, base + S::FLAGS);
}

/* All work items of this block. */
template <element E, int D, kv_source SOURCE> DEV void decode(const ca_cuda_attend_args &a) {
    using S = decode_shape<E, D, SOURCE>;
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        const decode_warp w = this_warp<S>();
        const int n_rows = load_work(a.items + j).n_tokens * a.group;
        if (n_rows <= 8 * S::SPLIT)
            attend_segment<S, 1>(a, j, w, ring);
        else if (n_rows <= 16 * S::SPLIT)
            attend_segment<S, 2>(a, j, w, ring);
        else if constexpr (32 * S::SPLIT <= S::MAX_ROWS)
            attend_segment<S, 4>(a, j, w, ring);
        finish_segment<S>(a, w.base);
        j = kept_index(w.base + S::WORK) + 1;
        sync_block(); /* before the next work item's copies overwrite the sums */
    }
}

#endif
