/*
 * Prefill attention: up to 64 rows over a segment of up to 8 chunks. cp.async and mma.sync: sm_80 and later.
 *
 * A block has four warps with 16 rows each; all read the same K and V. Queries are the wide operand (m16), so weights stay in
 * registers from one product to the next:
 *
 *   S [16 rows][8 slots] = Q [16 rows][16 d] K^T [16 d][8 slots]          d / 16 steps
 *   O [16 rows][8 d]    += P [16 rows][16 slots] V [16 slots][8 d]        d / 8 blocks
 *
 * Bits are those of decode.cuh: the segment is taken quarter by quarter, each quarter chunk by chunk, so every sum has the same
 * terms in the same order. A stage of the ring holds one quarter of several chunks, 16 lines each, as one tile. A quarter's
 * finished sums fold onto those of the quarters before, which wait in shared memory.
 *
 * Shared memory: two stages, queries, sums, their M, their l, flags of the arrival, the work item.
 */
#ifndef CHUNKATTN_CUDA_PREFILL_CUH
#define CHUNKATTN_CUDA_PREFILL_CUH

#include "merge.cuh"
#include "pages.cuh"
#include "prefill_slots.cuh"

/* ---- The ring ---- */

/*
 * Where the ring is: the stage of the next request, and in the bit above it the parity of its mbarrier's phase, where it has
 * one (prefill_wgmma.cuh). Requests go around the stages, over the ends of work items, too.
 */
template <class S> DEV int next_request(int ring) { return (ring + 1) & (2 * S::STAGES - 1); }
template <class S> DEV u32 stage_of(u32 base, int ring) { return base + (u32)(ring & (S::STAGES - 1)) * S::STAGE; }

/* Copy a chunk's quarter of K and V to its place in a stage. Each thread copies 16 bytes of each part of 64 dimensions. */
template <class S> DEV void copy_lines(u32 to, const unsigned char *tile, int c, int quarter) {
    const u32 t = (u32)thread_index() * 16;
    UNROLL for (u32 v = 0; v < 2; v++) {
        UNROLL for (u32 part = 0; part < S::D / 64; part++)
            cp_async16(to + v * S::TILE + part * (S::LINES * 128) + (u32)c * 2048 + t,
                       tile + v * tile_bytes<S::D> + part * (CA_CUDA_CHUNK * 128) + quarter * 2048 + t);
        if (S::D % 64 && t < 1024)
            cp_async16(to + v * S::TILE + S::D / 64 * (S::LINES * 128) + (u32)c * 1024 + t,
                       tile + v * tile_bytes<S::D> + S::D / 64 * (CA_CUDA_CHUNK * 128) + quarter * 1024 + t);
    }
}

/* Copy a chunk's quarter in e4m3 to its place in a stage: the lines, then the scales of both. */
template <class S> DEV void copy_e4m3_lines(u32 to, const unsigned char *tile, int c, int quarter) {
    const int t = thread_index();
    UNROLL for (int v = 0; v < 2; v++) UNROLL for (int first = 0; first < S::D; first += S::THREADS) {
        if (first + t >= S::D) continue; /* 16 lines are D units */
        cp_async16(to + (u32)v * S::TILE + (u32)(c * S::D + first + t) * 16,
                   tile + v * (int)e4m3_tile_bytes<S::D> + (quarter * S::D + first + t) * 16);
    }
    if (t < 8)
        cp_async16(to + S::SCALES + (u32)(c * 8 + t) * 16,
                   tile + t / 4 * (int)e4m3_tile_bytes<S::D> + CA_CUDA_CHUNK * S::D + (quarter * 4 + t % 4) * 16);
}

/* Copy a quarter from foreign pages to its place in a stage. */
template <class S> DEV void copy_pages(const ca_cuda_attend_args &a, u32 to, int c, int head, int place) {
    UNROLL for (int v = 0; v < 2; v++) copy_page_lines<S::D, S::LINES, S::THREADS>(
        find_lines(a, v == 1, head, place), to + (u32)v * S::TILE, c * STEP_SLOTS, thread_index());
}

/* Request a quarter of n chunks, the first of which is the list's chunk `first`. */
template <class S>
DEV void request_lines(const ca_cuda_attend_args &a, u32 base, int ring, int head, int quarter, int places, int first, int n) {
    const u32 to = stage_of<S>(base, ring);
    UNROLL for (int c = 0; c < S::CHUNKS; c++) {
        const int place = shfl_place<S>(places, first + c, quarter);
        if (c >= n) continue;
        if constexpr (S::PAGES) {
            copy_pages<S>(a, to, c, head, place);
            continue;
        }
        constexpr int64_t PAIR = 2 * (int64_t)(S::IN_E4M3 ? e4m3_tile_bytes<S::D> : tile_bytes<S::D>);
        const unsigned char *tile = (const unsigned char *)a.kv + place * a.chunk_bytes + head * PAIR;
        if constexpr (S::IN_E4M3)
            copy_e4m3_lines<S>(to, tile, c, quarter);
        else
            copy_lines<S>(to, tile, c, quarter);
    }
    cp_async_commit();
}

/* Wait until the stage is here for all warps, and all have left the other one. */
DEV void await_lines() {
    cp_async_wait<0>();
    sync_block();
}

/* ---- The ends of a quarter ---- */

/* Where the sum of (row, dimension i) waits. The exchange spreads the rows of a warp over the banks. */
template <class S> DEV u32 row_sum_at(int row, int i) { return S::SUMS + (u32)(row * S::D + (i ^ row % 4 * 8)) * 4; }

/* Fold a quarter's sums onto those before it. A row is one warp's, so there is no barrier. */
template <class S> DEV void fold_quarter(prefill_state<S> &st, const prefill_warp &w, int quarter) {
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r;
        const u32 m_at = w.base + S::M + (u32)row * 4, l_at = m_at + S::L - S::M,
                  at = w.base + row_sum_at<S>(row, w.lane % 4 * 2);
        float l = add_rn(st.l[r][0], st.l[r][1]), m = st.m[r];
        UNROLL for (int i = 1; i <= 2; i *= 2) l = add_rn(l, shfl_xor(l, i));
        float by_before = 0, by_now = 1;
        if (quarter > 0) {
            const float before = ld_shared<float>(m_at);
            m = max_f32(before, m);
            by_before = ex2(add_rn(before, -m));
            by_now = ex2(add_rn(st.m[r], -m));
            l = fma_rn(l, by_now, mul_rn(ld_shared<float>(l_at), by_before));
        }
        UNROLL for (int b = 0; b < S::D / 8; b++) {
            const u32 place = at ^ (u32)b % 4 * 32; /* 8 dimensions are 32 bytes */
            f2 sum = {{st.o[b][2 * r], st.o[b][2 * r + 1]}};
            if (quarter > 0) {
                const f2 before = ld_shared<f2>(place + (u32)b / 4 * 128);
                UNROLL for (int i = 0; i < 2; i++) sum.v[i] = fma_rn(sum.v[i], by_now, mul_rn(before.v[i], by_before));
            }
            st_shared(place + (u32)b / 4 * 128, sum);
        }
        sync_warp(); /* a row's four lanes have read M and l */
        if (w.lane % 4 < 2) st_shared(w.lane % 4 == 0 ? m_at : l_at, w.lane % 4 == 0 ? m : l);
        sync_warp();
    }
}

/* A quarter's sums as the segment's earlier work item left them, or none yet. */
template <class S>
DEV void begin_quarter(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_warp &w, int quarter) {
    const ca_work_item work = kept_work(w.base + S::WORK);
    st = {};
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r, i = w.lane % 4 * 2;
        st.m[r] = lowest_m;
        if (work.carry_in < 0 || row >= work.n_tokens * a.group) continue;
        const float *from = carried<S::D>(a, work, work.carry_in, row, quarter);
        UNROLL for (int b = 0; b < S::D / 8; b++) {
            const f2 o = ld_global((const f2 *)(from + b * 8 + i));
            st.o[b][2 * r] = o.v[0], st.o[b][2 * r + 1] = o.v[1];
        }
        const f2 l = ld_global((const f2 *)(from + S::D + 8 + i));
        st.m[r] = ld_global(from + S::D);
        st.l[r][0] = l.v[0], st.l[r][1] = l.v[1];
    }
}

template <class S>
DEV void carry_quarter(const ca_cuda_attend_args &a, const ca_work_item &work, const prefill_state<S> &st,
                       const prefill_warp &w, int quarter) {
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r, i = w.lane % 4 * 2;
        if (row >= work.n_tokens * a.group) continue;
        float *to = carried<S::D>(a, work, work.carry_out, row, quarter);
        UNROLL for (int b = 0; b < S::D / 8; b++) st_global((f2 *)(to + b * 8 + i), f2{{st.o[b][2 * r], st.o[b][2 * r + 1]}});
        st_global((f2 *)(to + S::D + 8 + i), f2{{st.l[r][0], st.l[r][1]}});
        if (i == 0) st_global(to + S::D, st.m[r]);
    }
}

template <class S>
DEV void end_quarter(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_warp &w, int quarter) {
    const ca_work_item work = kept_work(w.base + S::WORK);
    if (work.carry_out >= 0)
        carry_quarter<S>(a, work, st, w, quarter);
    else
        fold_quarter<S>(st, w, quarter);
}

/* ---- A work item ---- */

template <class S> DEV void attend_rows(const ca_cuda_attend_args &a, int j, int &ring) {
    const u32 base = shared_base();
    const ca_work_item work = load_work(a.items + j);
    const int places = load_places<S>(a, j, thread_index() % 32), n = work.n_chunks, head = work.head, partial = work.partial;
    if (n > 0) request_lines<S>(a, base, ring, head, 0, places, 0, n);
    keep_work(a, j, base + S::WORK);
    stage_queries<S, S::ROWS>(a, work, base + S::QUERIES);
    sync_block();
    prefill_queries<S> q;
    load_queries<S>(q, this_rows<S>());
    UNROLL_BY(1) for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) {
        const prefill_warp w = this_rows<S>();
        prefill_state<S> st;
        begin_quarter<S>(a, st, w, quarter);
        UNROLL_BY(1) for (int first = 0; first < n; first += S::CHUNKS) {
            await_lines();
            const bool last = first + S::CHUNKS >= n;
            const int next = last ? 0 : first + S::CHUNKS, next_quarter = quarter + last;
            const u32 stage = stage_of<S>(base, ring);
            ring = next_request<S>(ring);
            if (next_quarter < CA_CUDA_QUARTERS) request_lines<S>(a, base, ring, head, next_quarter, places, next, n - next);
            const int here = last ? n - first : S::CHUNKS;
            UNROLL_BY(1)
            for (int c = 0; c < here; c++) attend_slots<S>(a, st, q, w, stage, quarter, first, c, partial >> (first + c) & 1);
        }
        end_quarter<S>(a, st, this_rows<S>(), quarter);
    }
}

template <class U> DEV void settle_rows(const ca_cuda_attend_args &a, const ca_work_item &work, u32 base, const U &u) {
    using S = typename U::S;
    sum4 sum[U::N];
    UNROLL for (int k = 0; k < U::N; k++)
        sum[k] = {ld_shared<f4>(base + row_sum_at<S>(u.row[k], 4 * u.unit[k])),
                  ld_shared<float>(base + S::M + (u32)u.row[k] * 4), ld_shared<float>(base + S::L + (u32)u.row[k] * 4)};
    settle(a, work, u, sum);
}
template <class S> DEV void finish_rows(const ca_cuda_attend_args &a, u32 base) {
    const ca_work_item work = kept_work(base + S::WORK);
    sync_own<S>();
    if (work.carry_out >= 0) return;
    over_units<S>(a, work, [&](const auto &u) { settle_rows(a, work, base, u); });
    if (!(work.flags & (CA_WORK_ITEM_OUTPUT | CA_WORK_ITEM_KEEP))) arrive<S>(a, work, base + S::FLAGS);
}

/* All work items of this block. */
template <element E, int D, kv_source SOURCE> DEV void prefill(const ca_cuda_attend_args &a) {
    using S = prefill_shape<E, D, SOURCE>;
    const u32 base = shared_base();
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        attend_rows<S>(a, j, ring);
        finish_rows<S>(a, base);
        j = kept_index(base + S::WORK) + 1;
        sync_block();
    }
}

#endif
