/*
 * Prefill attention of 16 slots of one chunk, by one warp with 16 rows: what is between a stage of the ring and the sums
 * (prefill.cuh).
 *
 * A lane has rows lane / 4 and lane / 4 + 8 of its warp's; its slots are 2 (lane % 4) and the next of each 8.
 */
#ifndef CHUNKATTN_CUDA_PREFILL_SLOTS_CUH
#define CHUNKATTN_CUDA_PREFILL_SLOTS_CUH

#include "e4m3.cuh"
#include "softmax.cuh"
#include "tile.cuh"

template <element E_, int D_, kv_source SOURCE> struct prefill_shape {
    static constexpr bool WGMMA = SOURCE == WGMMA_TILES, PAGES = SOURCE == FOREIGN_PAGES, IN_E4M3 = SOURCE == E4M3_TILES;
    static_assert(!IN_E4M3 || E_ == F16, "e4m3 becomes f16");
    static constexpr element E = E_;
    static constexpr int D = D_;
    static constexpr int ROWS = 64, THREADS = 128;
    static constexpr int UNITS = D == 256 ? 1 : 4; /* of rows that a thread folds at once (merge.cuh); more would spill */
    static constexpr int GROUPS = WGMMA && D <= 128 ? 2 : 1; /* of THREADS, which take ROWS each */
    static constexpr int COMPUTING = GROUPS * THREADS, BLOCK_THREADS = COMPUTING + (WGMMA ? 128 : 0);
    static constexpr int CHUNKS = D == 256 && !WGMMA ? 2 : 4; /* of a stage */
    static constexpr int STAGES = GROUPS == 2 ? 4 : 2;
    static constexpr int LINES = CHUNKS * STEP_SLOTS;
    static constexpr u32 TILE = LINES * D * (IN_E4M3 ? 1 : 2); /* bytes of a stage's K; V follows */
    static constexpr u32 SCALES = 2 * TILE;                    /* if there are any: of each chunk those of K, then of V */
    static constexpr u32 STAGE = SCALES + (IN_E4M3 ? 2 * LINES * 4 : 0);
    /* From here on each group has its own, but for the mbarriers, which are those of wgmma. */
    static constexpr u32 QUERIES = STAGES * STAGE;
    static constexpr u32 SUMS = QUERIES + ROWS * D * 2;
    static constexpr u32 M = SUMS + ROWS * D * 4, L = M + ROWS * 4;
    static constexpr u32 FLAGS = L + ROWS * 4;
    static constexpr u32 WORK = FLAGS + ROWS * 4;
    static constexpr u32 OWN = (WORK + KEPT_WORK - QUERIES + 127) / 128 * 128;
    static constexpr u32 BARS = WORK + KEPT_WORK + (GROUPS - 1) * OWN; /* an mbarrier for each stage: it is here */
    static constexpr u32 FREE = BARS + STAGES * 8;                     /* and another one: it may be overwritten */
    static constexpr u32 SHARED = WGMMA ? FREE + STAGES * 8 : BARS;
};

/* Found anew where a loop begins and ends. base: what the offsets of the group's own memory are from. */
struct prefill_warp {
    int lane, row; /* row: the first of this warp's 16 */
    u32 base;
};
template <class S> DEV prefill_warp this_rows() {
    const int thread = hidden(thread_index());
    if constexpr (S::GROUPS == 1) return {thread % 32, thread / 32 * 16, shared_base()};
    return {thread % 32, thread % S::THREADS / 32 * 16, shared_base() + (u32)(thread / S::THREADS) * S::OWN};
}

/* A row's sums in one quarter. l: of slot classes 2 (lane % 4) and the next. */
template <class S> struct prefill_state { float o[S::D / 8][4], m[2], l[2][2]; };

/* A warp's queries as the left operand, a fragment for 16 dimensions. d = 256 leaves no registers to keep them. */
template <class S> constexpr bool keep_fragments = S::D <= 128;
template <class S> struct prefill_queries { u32 f[keep_fragments<S> ? S::D / 16 : 1][4]; };
template <class S> DEV void load_fragment(u32 (&f)[4], const prefill_warp &w, int step) {
    const tile_line line = line_of_tile<S::D, S::ROWS>(w.base + S::QUERIES, (u32)(w.row + w.lane % 16), (u32)w.lane / 16);
    ldmatrix(f, unit_at<S::D, S::ROWS>(line, 2 * (u32)step));
}
template <class S> DEV void load_queries(prefill_queries<S> &q, const prefill_warp &w) {
    if constexpr (keep_fragments<S>) UNROLL for (int step = 0; step < S::D / 16; step++) load_fragment<S>(q.f[step], w, step);
}

/* Add the products of 16 dimensions. f: K's fragment of 8 slots, and that of the next 8. */
template <class S>
DEV void add_scores(float (&s)[2][4], const prefill_queries<S> &q, const prefill_warp &w, const u32 (&f)[4], int step) {
    u32 rows[4];
    if constexpr (keep_fragments<S>)
        memcpy(rows, q.f[step], sizeof rows);
    else
        load_fragment<S>(rows, w, step);
    const u32 low[2] = {f[0], f[1]}, high[2] = {f[2], f[3]};
    mma<S::E>(s[0], rows, low);
    mma<S::E>(s[1], rows, high);
}

/* Of the lane's slot 8 h + 2 (lane % 4) + i the scale of K (v = 0) or V (v = 1), in chunk c of a stage. */
template <class S> DEV float load_scale(u32 k, int lane, int c, int v, int h, int i) {
    return e4m3_scale(ld_shared<float>(k + S::SCALES + (u32)((2 * c + v) * STEP_SLOTS + 8 * h + lane % 4 * 2 + i) * 4));
}

/* K in e4m3: two fragments a load. */
template <class S>
DEV void slot_scores_of_e4m3(float (&s)[2][4], const prefill_queries<S> &q, const prefill_warp &w, u32 k, int c) {
    const u32 line = e4m3_line_at<S::D>(k, (u32)(c * STEP_SLOTS + w.lane % 16), (u32)w.lane / 16);
    UNROLL for (int i = 0; i < S::D / 32; i++) {
        u32 r[4];
        ldmatrix(r, e4m3_unit_at<S::D>(line, (u32)i));
        UNROLL for (int j = 0; j < 2; j++) {
            const u32 f[4] = {low_dims(r[2 * j]), high_dims(r[2 * j]), low_dims(r[2 * j + 1]), high_dims(r[2 * j + 1])};
            add_scores<S>(s, q, w, f, 2 * i + j);
        }
    }
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int i = 0; i < 2; i++) {
        const float by = load_scale<S>(k, w.lane, c, 0, h, i);
        UNROLL for (int r = 0; r < 2; r++) s[h][2 * r + i] = mul_rn(s[h][2 * r + i], by);
    }
}

/* Scores for chunk c of a stage: s[h] for the slots 8 h and on. */
template <class S> DEV void slot_scores(float (&s)[2][4], const prefill_queries<S> &q, const prefill_warp &w, u32 k, int c) {
    if constexpr (S::IN_E4M3) {
        slot_scores_of_e4m3<S>(s, q, w, k, c);
    } else {
        const tile_line line =
            line_of_tile<S::D, S::LINES>(k, (u32)(c * STEP_SLOTS + w.lane % 8 + w.lane / 16 * 8), (u32)w.lane / 8 & 1);
        UNROLL for (int step = 0; step < S::D / 16; step++) {
            u32 f[4];
            ldmatrix(f, unit_at<S::D, S::LINES>(line, 2 * (u32)step));
            add_scores<S>(s, q, w, f, step);
        }
    }
}

/* The scales of V for the lane's slots, as s has them, and the bounds of their logarithms; unused where V has none. */
struct slot_scales {
    float by[2][2], top[2][2];
};
template <class S> DEV slot_scales find_slot_scales(u32 k, int lane, int c) {
    slot_scales scales = {};
    if constexpr (S::IN_E4M3) {
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int i = 0; i < 2; i++) {
            scales.by[h][i] = load_scale<S>(k, lane, c, 1, h, i);
            scales.top[h][i] = top_of_scale(scales.by[h][i]);
        }
    }
    return scales;
}

/* What a lane knows of its two rows. */
struct prefill_rows {
    bool used[2];
    int position[2];
    float slope[2];
};
template <class S> DEV prefill_rows find_rows(const ca_cuda_attend_args &a, const prefill_warp &w) {
    const ca_work_item work = kept_work(w.base + S::WORK);
    prefill_rows rows = {};
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = w.row + w.lane / 4 + 8 * h;
        rows.used[h] = row < work.n_tokens * a.group;
        if (!rows.used[h]) continue;
        const row_place p = place_of(a, work.head, row);
        rows.position[h] = ld_global(a.position + work.row + p.token);
        rows.slope[h] = a.slopes ? ld_global(a.slopes + p.query_head) : 0;
    }
    return rows;
}

/* Slots that a lane's rows see. */
DEV void find_slots_of_rows(const ca_cuda_attend_args &a, const prefill_rows &rows, int start, u32 (&seen)[2]) {
    UNROLL for (int h = 0; h < 2; h++) seen[h] = rows.used[h] ? seen_slots(a, rows.position[h], start) : 0;
}

/* The same, and the slots that any of the warp's rows sees, and that all of them see. */
struct prefill_seen {
    u32 row[2], any, all;
};
DEV prefill_seen find_seen(const ca_cuda_attend_args &a, const prefill_rows &rows, int start) {
    prefill_seen seen = {{0, 0}, 0, ~0u};
    find_slots_of_rows(a, rows, start, seen.row);
    UNROLL for (int h = 0; h < 2; h++) {
        if (!rows.used[h]) continue;
        seen.any |= seen.row[h];
        seen.all &= seen.row[h];
    }
    UNROLL for (int i = 4; i <= 16; i *= 2) {
        seen.any |= shfl_xor(seen.any, i);
        seen.all &= shfl_xor(seen.all, i);
    }
    return seen;
}

DEV void adjust_slots(const ca_cuda_attend_args &a, float (&s)[2][4], const prefill_rows &rows, int start, int lane) {
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int i = 0; i < 4; i++) {
        const int slot = start + 8 * h + lane % 4 * 2 + i % 2;
        s[h][i] = adjust(a, s[h][i], rows.slope[i / 2], slot - rows.position[i / 2]);
    }
}

DEV void hide_slots(float (&s)[2][4], const u32 (&seen)[2], int lane) {
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < 4; i++) if (!(seen[i / 2] >> (8 * h + lane % 4 * 2 + i % 2) & 1)) s[h][i] = -INFINITY;
}

/* What M of row r must not be below, by this lane's slots. */
template <class S> DEV float least_row_m(const float (&s)[2][4], int r, float scale, const slot_scales &scales) {
    float x[2];
    UNROLL for (int h = 0; h < 2; h++) {
        const float first = s[h][2 * r], second = s[h][2 * r + 1];
        if constexpr (S::IN_E4M3)
            x[h] = max_f32(fma_rn(first, scale, scales.top[h][0]), fma_rn(second, scale, scales.top[h][1]));
        else
            x[h] = max_f32(first, second);
    }
    return S::IN_E4M3 ? max_f32(x[0], x[1]) : mul_rn(max_f32(x[0], x[1]), scale);
}

template <class S> DEV void raise_rows(prefill_state<S> &st, const float (&s)[2][4], float scale, const slot_scales &scales) {
    bool over = false;
    UNROLL for (int r = 0; r < 2; r++) over |= least_row_m<S>(s, r, scale, scales) > st.m[r];
    if (!any_sync(over)) return;
    UNROLL for (int r = 0; r < 2; r++) {
        float x = least_row_m<S>(s, r, scale, scales);
        UNROLL for (int i = 1; i <= 2; i *= 2) x = max_f32(x, shfl_xor(x, i));
        const float m = x > st.m[r] ? m_above<S::E>(x) : st.m[r];
        const float by = ex2(add_rn(st.m[r], -m));
        st.m[r] = m;
        UNROLL for (int i = 0; i < 2; i++) st.l[r][i] = mul_rn(st.l[r][i], by);
        UNROLL for (int b = 0; b < S::D / 8; b++) UNROLL for (int i = 0; i < 2; i++) st.o[b][2 * r + i] =
            mul_rn(st.o[b][2 * r + i], by);
    }
}

/* Weights as the left operand. */
template <class S>
DEV void row_weights(prefill_state<S> &st, u32 (&p)[4], const float (&s)[2][4], float scale, const slot_scales &scales) {
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < 2; r++) {
        const float x[2] = {s[h][2 * r], s[h][2 * r + 1]};
        float first, second;
        p[2 * h + r] =
            pack_weights<S::E, S::IN_E4M3>(x, scale, st.m[r], st.m[r], scales.by[h][0], scales.by[h][1], first, second);
        st.l[r][0] = add_rn(st.l[r][0], first);
        st.l[r][1] = add_rn(st.l[r][1], second);
    }
}

/* V's fragments: f[0], f[1] of 8 dimensions, f[2], f[3] of the next 8; without the slots whose bits are not set. */
template <class S> DEV void load_values(u32 (&f)[4], const tile_line &line, int b) {
    ldmatrix_trans(f, unit_at<S::D, S::LINES>(line, 2 * (u32)b));
}
DEV void select_value_slots(u32 (&f)[4], u32 slots, int lane) {
    const u32 low = low_slots(slots, lane), high = high_slots(slots, lane);
    f[0] &= low, f[1] &= high, f[2] &= low, f[3] &= high;
}

template <class S> DEV bool values_not_finite(const tile_line &line, u32 slots, int lane) {
    bool found = false;
    UNROLL for (int b = 0; b < S::D / 16; b++) {
        u32 f[4];
        load_values<S>(f, line, b);
        select_value_slots(f, slots, lane);
        UNROLL for (int i = 0; i < 4; i++) found |= not_finite<S::E>(f[i]);
    }
    return any_sync(found);
}

/* One row r, row by itself over the slots that it sees, in the blocks [begin, begin + 2) of 16 dimensions. */
template <class S>
DEV void add_values_of_row(prefill_state<S> &st, const u32 (&p)[4], const tile_line &line, int lane, u32 slots, int begin,
                           int r, int row) {
    UNROLL for (int b = begin; b < begin + 2; b++) {
        u32 f[4];
        load_values<S>(f, line, b);
        select_value_slots(f, slots, lane);
        UNROLL for (int n = 0; n < 2; n++) {
            float(&o)[4] = st.o[2 * b + n];
            float sum[4] = {o[0], o[1], o[2], o[3]};
            const u32 v[2] = {f[2 * n], f[2 * n + 1]};
            mma<S::E>(sum, p, v);
            if (row == lane / 4) o[2 * r] = sum[2 * r], o[2 * r + 1] = sum[2 * r + 1];
        }
    }
}

/* Each row by itself, as add_row_by_row of decode.cuh. Few dimensions at a time: more would take registers that there are not.
 */
template <class S>
DEV void add_values_by_row(prefill_state<S> &st, const u32 (&p)[4], const u32 (&seen)[2], const tile_line &line, int lane) {
    UNROLL for (int r = 0; r < 2; r++) UNROLL for (int b = 0; b < S::D / 16; b += 2)
        UNROLL_BY(1) for (int row = 0; row < 8; row++)
            add_values_of_row<S>(st, p, line, lane, shfl(seen[r], row * 4), b, r, row);
}

/* V in e4m3. Hidden slots need no care: their weights are 0, and whatever they hold becomes finite f16. */
template <class S> DEV void add_e4m3_values(prefill_state<S> &st, const u32 (&p)[4], u32 v, int c, int lane) {
    const u32 line = e4m3_line_at<S::D>(v, (u32)(c * STEP_SLOTS + lane % 16), (u32)lane / 16);
    UNROLL for (int i = 0; i < S::D / 32; i++) {
        u32 r[4];
        ldmatrix_trans(r, e4m3_unit_at<S::D>(line, (u32)i));
        UNROLL for (int j = 0; j < 2; j++) {
            const u32 low[2] = {low_dims(r[2 * j]), low_dims(r[2 * j + 1])};
            const u32 high[2] = {high_dims(r[2 * j]), high_dims(r[2 * j + 1])};
            mma<S::E>(st.o[4 * i + 2 * j], p, low);
            mma<S::E>(st.o[4 * i + 2 * j + 1], p, high);
        }
    }
}

template <class S>
DEV void add_row_values(prefill_state<S> &st, const u32 (&p)[4], const prefill_seen &seen, bool partial, u32 v, int c,
                        int lane) {
    const tile_line line = line_of_tile<S::D, S::LINES>(v, (u32)(c * STEP_SLOTS + lane % 16), (u32)lane / 16);
    if (partial && seen.any != seen.all && values_not_finite<S>(line, seen.any & ~seen.all, lane)) {
        add_values_by_row<S>(st, p, seen.row, line, lane);
        return;
    }
    UNROLL for (int b = 0; b < S::D / 16; b++) {
        u32 f[4];
        load_values<S>(f, line, b);
        if (partial) select_value_slots(f, seen.any, lane);
        const u32 low[2] = {f[0], f[1]}, high[2] = {f[2], f[3]};
        mma<S::E>(st.o[2 * b], p, low);
        mma<S::E>(st.o[2 * b + 1], p, high);
    }
}

/* A quarter of chunk `first` + c of the list, which the stage at k holds as its chunk c. */
template <class S>
DEV void attend_slots(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_queries<S> &q, const prefill_warp &w,
                      u32 k, int quarter, int first, int c, bool partial) {
    const bool options = has_options(a);
    float s[2][4] = {}, scale = a.scale_log2;
    prefill_seen seen = {};
    if (partial || options) {
        const int start = start_of_quarter(kept_work(w.base + S::WORK), first + c, quarter);
        const prefill_rows rows = find_rows<S>(a, w);
        if (partial) seen = find_seen(a, rows, start);
        if (partial && seen.any == 0) return; /* above the diagonal for all rows of this warp */
        slot_scores<S>(s, q, w, k, c);
        if (options) adjust_slots(a, s, rows, start, w.lane);
        if (options) scale = 1;
        if (partial) hide_slots(s, seen.row, w.lane);
    } else {
        slot_scores<S>(s, q, w, k, c);
    }
    u32 p[4];
    const slot_scales scales = find_slot_scales<S>(k, w.lane, c);
    raise_rows<S>(st, s, scale, scales);
    row_weights<S>(st, p, s, scale, scales);
    if constexpr (S::IN_E4M3)
        add_e4m3_values<S>(st, p, k + S::TILE, c, w.lane);
    else
        add_row_values<S>(st, p, seen, partial, k + S::TILE, c, w.lane);
}

#endif
