/*
 * Prefill attention of a stage of the ring by wgmma: one quarter of up to four chunks, by a warp group with 64 rows
 * (prefill_wgmma.cuh).
 *
 *   S [64 rows][64 slots] = Q [64 rows][16 d] K^T [16 d][64 slots]       d / 16 steps
 *   O [64 rows][d]       += P [64 rows][16 slots] V [16 slots][d]        a step for each chunk
 *
 * A stage's tiles are the operands as they lie. A result of wgmma lies in a warp's registers as those of mma do, so M, weights
 * and sums are computed by the functions of prefill_slots.cuh, in the same order: chunk by chunk.
 *
 * The four steps of O can follow each other at once only if M rises at none of the chunks but the first. Otherwise each step is
 * awaited, and the sums are scaled where the next chunk raises M.
 *
 * wgmma multiplies V of all slots, so a slot that some row does not see must be finite: its weight of zero hides it then. A
 * stage in which that does not hold goes through mma, as in prefill.cuh. It is rare: what is hidden was mostly written by later
 * tokens.
 */
#ifndef CHUNKATTN_CUDA_PREFILL_WGMMA_STAGE_CUH
#define CHUNKATTN_CUDA_PREFILL_WGMMA_STAGE_CUH

#include "prefill_slots.cuh"

/* Whether b holds in one of the warp group's threads, by its barrier. */
template <class S> DEV bool group_or(bool b) { return sync_named_or(1 + thread_index() / S::THREADS, S::THREADS, b); }

/* ---- Operands ---- */

/* N of the accumulators, from `first` on: 8 columns each. */
template <int N> using columns = float[N][4];
template <int N, int ALL> DEV columns<N> &columns_from(float (&all)[ALL][4], int first) {
    return *reinterpret_cast<columns<N> *>(&all[first]);
}
template <int ALL> DEV columns<2> &scores_of(float (&s)[ALL][4], int c) { return columns_from<2>(s, 2 * c); }

/* 16 dimensions of all lines of a tile: of Q or of K, K-major. */
template <int D, int LINES> DEV u64 dimensions_of(u32 tile, int step) {
    const u32 at = tile + (u32)(step / 4 * (LINES * 128) + step % 4 * 32);
    return step < D / 64 * 4 ? wgmma_descriptor<128>(at, 0, 1024) : wgmma_descriptor<64>(at, 0, 512);
}

/* ---- S ---- */

template <class S>
DEV void stage_scores(float (&s)[S::LINES / 8][4], const prefill_queries<S> &q, const prefill_warp &w, u32 k) {
    wgmma_fence(s);
    UNROLL for (int step = 0; step < S::D / 16; step++) {
        const u64 lines = dimensions_of<S::D, S::LINES>(k, step);
        if constexpr (keep_fragments<S>)
            wgmma<S::E, K_MAJOR>(s, q.f[step], lines, step > 0);
        else
            wgmma<S::E, K_MAJOR>(s, dimensions_of<S::D, S::ROWS>(w.base + S::QUERIES, step), lines, step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>(s);
}

/* With the options, and without the slots that rows do not see. partial: bit c is that of the stage's chunk c. */
template <class S>
DEV void finish_scores(const ca_cuda_attend_args &a, float (&s)[S::LINES / 8][4], const prefill_warp &w, int quarter, int first,
                       int here, int partial) {
    const bool options = has_options(a);
    if (!options && partial == 0) return;
    const ca_work_item work = kept_work(w.base + S::WORK);
    const prefill_rows rows = find_rows<S>(a, w);
    UNROLL for (int c = 0; c < S::CHUNKS; c++) {
        if (c >= here) continue;
        const int start = start_of_quarter(work, first + c, quarter);
        if (options) adjust_slots(a, scores_of(s, c), rows, start, w.lane);
        if (!(partial >> c & 1)) continue;
        u32 seen[2];
        find_slots_of_rows(a, rows, start, seen);
        hide_slots(scores_of(s, c), seen, w.lane);
    }
}

/* ---- O ---- */

/* Begin to add chunk c's values. */
template <class S> DEV void begin_values(prefill_state<S> &st, const u32 (&p)[4], u32 v, int c) {
    constexpr int WHOLE = S::D / 64 * 8; /* columns in parts of 64 dimensions */
    wgmma<S::E, MN_MAJOR>(columns_from<WHOLE>(st.o, 0), p, wgmma_descriptor<128>(v + (u32)c * 2048, S::LINES * 128, 1024),
                          true);
    if constexpr (S::D % 64 != 0)
        wgmma<S::E, MN_MAJOR>(columns_from<S::D / 8 - WHOLE>(st.o, WHOLE), p,
                              wgmma_descriptor<64>(v + S::D / 64 * (S::LINES * 128) + (u32)c * 1024, 0, 512), true);
}
template <class S> DEV void end_values(prefill_state<S> &st) {
    constexpr int WHOLE = S::D / 64 * 8;
    wgmma_commit();
    if constexpr (S::D % 64 == 0)
        wgmma_wait<0>(columns_from<WHOLE>(st.o, 0));
    else
        wgmma_wait<0>(columns_from<WHOLE>(st.o, 0), columns_from<S::D / 8 - WHOLE>(st.o, WHOLE));
}

/* Whether M of one of the lane's rows rises behind the stage's first chunk. */
template <class S> DEV bool rises_later(const prefill_state<S> &st, float (&s)[S::LINES / 8][4], float scale) {
    bool over = false;
    UNROLL for (int c = 1; c < S::CHUNKS; c++) UNROLL for (int r = 0; r < 2; r++) over |=
        least_row_m<S>(scores_of(s, c), r, scale, {}) > st.m[r];
    return over;
}

/* All chunks of a full stage, none of which raises M any more. */
template <class S> DEV void add_together(prefill_state<S> &st, float (&s)[S::LINES / 8][4], float scale, u32 v) {
    u32 p[S::CHUNKS][4];
    UNROLL for (int c = 0; c < S::CHUNKS; c++) row_weights<S>(st, p[c], scores_of(s, c), scale, {});
    wgmma_fence(st.o, p);
    UNROLL for (int c = 0; c < S::CHUNKS; c++) begin_values<S>(st, p[c], v, c);
    end_values<S>(st);
}

/* The stage's `here` chunks, one after the other; the first one has raised M. */
template <class S> DEV void add_one_by_one(prefill_state<S> &st, float (&s)[S::LINES / 8][4], float scale, u32 v, int here) {
    UNROLL for (int c = 0; c < S::CHUNKS; c++) {
        if (c >= here) continue;
        if (c > 0) raise_rows<S>(st, scores_of(s, c), scale, {});
        u32 p[1][4];
        row_weights<S>(st, p[0], scores_of(s, c), scale, {});
        wgmma_fence(st.o, p);
        begin_values<S>(st, p[0], v, c);
        end_values<S>(st);
    }
}

/* ---- What V hides ---- */

template <element E> DEV bool unit_not_finite(const u4 &x) {
    bool found = false;
    UNROLL for (int i = 0; i < 4; i++) found |= not_finite<E>(x.v[i]);
    return found;
}

/* Whether V of one of the chunks has an infinity or a NaN. A thread of the group looks at 16 bytes of each part. */
template <class S> DEV bool not_finite_here(const prefill_warp &w, u32 v, int chunks) {
    const int t = w.row * 2 + w.lane;
    bool found = false;
    UNROLL_BY(1) for (int c = 0; c < S::CHUNKS; c++) {
        if (!(chunks >> c & 1)) continue;
        UNROLL for (u32 part = 0; part < S::D / 64; part++) found |=
            unit_not_finite<S::E>(ld_shared<u4>(v + part * (S::LINES * 128) + (u32)(c * 2048 + t * 16)));
        if (S::D % 64 && t < 64)
            found |= unit_not_finite<S::E>(ld_shared<u4>(v + S::D / 64 * (S::LINES * 128) + (u32)(c * 1024 + t * 16)));
    }
    return group_or<S>(found);
}

/* ---- A stage ---- */

/* The `here` chunks of the list from `first` on, which the stage at k holds. partial: bit c is that of its chunk c. */
template <class S>
DEV void attend_stage(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_queries<S> &q, const prefill_warp &w,
                      u32 k, int quarter, int first, int here, int partial) {
    const u32 v = k + S::TILE;
    if (partial && not_finite_here<S>(w, v, partial)) { /* whole chunks, too, as if they were partial: it is less code */
        UNROLL_BY(1) for (int c = 0; c < here; c++) attend_slots<S>(a, st, q, w, k, quarter, first, c, true);
        return;
    }
    const float scale = has_options(a) ? 1 : a.scale_log2;
    float s[S::LINES / 8][4] = {};
    stage_scores<S>(s, q, w, k);
    finish_scores<S>(a, s, w, quarter, first, here, partial);
    raise_rows<S>(st, scores_of(s, 0), scale, {});
    if (here < S::CHUNKS || group_or<S>(rises_later<S>(st, s, scale)))
        add_one_by_one<S>(st, s, scale, v, here);
    else
        add_together<S>(st, s, scale, v);
}

#endif
