/*
 * Decode attention of one quarter of one chunk, by one warp: what is between a stage of the ring and the sums (decode.cuh).
 *
 * A lane has the same rows in S^T, O^T, M and l: 2 (lane % 4) and the next of each 8; its slots are lane / 4 and lane / 4 + 8.
 */
#ifndef CHUNKATTN_CUDA_DECODE_QUARTER_CUH
#define CHUNKATTN_CUDA_DECODE_QUARTER_CUH

#include "e4m3.cuh"
#include "softmax.cuh"
#include "tile.cuh"

template <element E_, int D_, kv_source SOURCE> struct decode_shape {
    static constexpr bool PAGES = SOURCE == FOREIGN_PAGES, IN_E4M3 = SOURCE == E4M3_TILES;
    static_assert(!IN_E4M3 || E_ == F16, "e4m3 becomes f16");
    static constexpr element E = E_;
    static constexpr int D = D_;
    static constexpr int SPLIT = D == 256 ? 2 : 1; /* warps of a quarter */
    static constexpr int THREADS = CA_CUDA_QUARTERS * SPLIT * 32, BLOCK_THREADS = THREADS;
    static constexpr int STAGES = IN_E4M3 ? 4 : D == 256 ? 2 : D == 128 ? 3 : 4;
    static constexpr int MAX_ROWS = 32;
    static constexpr int UNITS = D == 256 ? 2 : 4; /* of rows that a thread folds at once (merge.cuh); more would spill */
    /* Bytes of a stage: K and V of a quarter, and their scales if there are any. */
    static constexpr u32 VALUES = STEP_SLOTS * D * (IN_E4M3 ? 1 : 2);
    static constexpr u32 SCALES = 2 * VALUES;
    static constexpr u32 STAGE = SCALES + (IN_E4M3 ? 2 * STEP_SLOTS * 4 : 0);
    static constexpr u32 RINGS = CA_CUDA_QUARTERS * STAGES * STAGE;
    static constexpr u32 QUERIES = RINGS;
    static constexpr u32 ML = QUERIES + MAX_ROWS * D * 2;
    static constexpr u32 FLAGS = ML + CA_CUDA_QUARTERS * MAX_ROWS * 8;
    static constexpr u32 WORK = FLAGS + MAX_ROWS * 4;
    static constexpr u32 SHARED = WORK + KEPT_WORK;
    static_assert(CA_CUDA_QUARTERS * MAX_ROWS * D * 4 <= RINGS, "the sums lie where the rings were");
};

/* Which warp this is, and its place in shared memory. */
struct decode_warp {
    int lane, quarter, half; /* half: which of a quarter's warps */
    u32 base, ring;
};
/* Found once a work item; some forty values depend on the index. */
template <class S> DEV decode_warp this_warp() {
    const int thread = hidden(thread_index()), w = thread / 32, quarter = w % CA_CUDA_QUARTERS;
    const u32 base = shared_base();
    return {thread % 32, quarter, S::SPLIT > 1 ? w / CA_CUDA_QUARTERS : 0, base, base + (u32)(quarter * S::STAGES) * S::STAGE};
}

template <class S, int NT> struct decode_state { float o[S::D / 16][NT][4], m[NT][2], l[NT][2]; };

/*
 * What a warp needs to know of its rows where a chunk is not seen whole or scores have options: lane i knows it of row i, and
 * the others ask it. Rare, so it is read anew each time and takes no registers otherwise.
 */
struct decode_row {
    bool used;
    int position, query_head;
};
template <class S, int NT> DEV decode_row row_of_lane(const ca_cuda_attend_args &a, const decode_warp &w) {
    const ca_work_item work = kept_work(w.base + S::WORK);
    const int row = w.half * NT * 8 + w.lane;
    if (w.lane >= NT * 8 || row >= work.n_tokens * a.group) return {false, 0, 0};
    const row_place p = place_of(a, work.head, row);
    return {true, ld_global(a.position + work.row + p.token), p.query_head};
}
/* Position of the quarter's first slot in the list's chunk i. */
template <class S> DEV int first_position(const decode_warp &w, int i) {
    return start_of_quarter(kept_work(w.base + S::WORK), i, w.quarter);
}
/* The lane that knows of this lane's row h of tile t. */
DEV int lane_of_row(int lane, int t, int h) { return t * 8 + lane % 4 * 2 + h; }

/*
 * Queries as operands: fragments of two steps at a time. Up to 32 registers of them are kept; more would leave too few for the
 * sums, so they are read from shared memory for each chunk.
 */
template <class S, int NT> constexpr bool keep_queries = S::D / 16 * NT <= 16;
template <class S, int NT> struct decode_queries {
    tile_line line;
    u32 kept[keep_queries<S, NT> ? S::D / 32 : 1][NT][4];
};
template <class S, int NT> DEV void read_queries(u32 (&f)[4], const decode_queries<S, NT> &q, int two_steps, int t) {
    ldmatrix(f, unit_at<S::D, S::MAX_ROWS>(q.line, 4 * (u32)two_steps) +
                    (u32)t * 8 * (4 * two_steps < S::D / 64 * 8 ? 128 : 64)); /* rows 8 t apart are exchanged alike */
}
template <class S, int NT> DEV decode_queries<S, NT> find_queries(const decode_warp &w, int first) {
    decode_queries<S, NT> q;
    q.line = line_of_tile<S::D, S::MAX_ROWS>(w.base + S::QUERIES, (u32)(first + w.lane % 8), (u32)w.lane / 8);
    if constexpr (keep_queries<S, NT>)
        UNROLL for (int i = 0; i < S::D / 32; i++) UNROLL for (int t = 0; t < NT; t++)
            read_queries<S, NT>(q.kept[i][t], q, i, t);
    return q;
}

/* K as the left operand, of 32 dimensions: a fragment for each 16. */
template <class S> DEV void load_keys(u32 (&f)[2][4], const decode_warp &w, u32 k, int i) {
    if constexpr (S::IN_E4M3) {
        u32 r[4];
        ldmatrix(r, e4m3_unit_at<S::D>(e4m3_line_at<S::D>(k, (u32)w.lane % 16, (u32)w.lane / 16), (u32)i));
        UNROLL for (int j = 0; j < 4; j++) {
            f[j / 2][j % 2] = low_dims(r[j]);
            f[j / 2][2 + j % 2] = high_dims(r[j]);
        }
    } else {
        const tile_line line = line_of_tile<S::D, STEP_SLOTS>(k, (u32)w.lane % 16, (u32)w.lane / 16);
        UNROLL for (int j = 0; j < 2; j++) ldmatrix(f[j], unit_at<S::D, STEP_SLOTS>(line, 4 * (u32)i + 2 * (u32)j));
    }
}

/* The scale of the lane's slot (up: of the second one), of K (v = 0) or V (v = 1). */
template <class S> DEV float load_scale(const decode_warp &w, u32 k, int v, int up) {
    return e4m3_scale(ld_shared<float>(k + S::SCALES + (u32)(v * STEP_SLOTS + w.lane / 4 + 8 * up) * 4));
}

template <class S, int NT> DEV void scores(float (&s)[NT][4], const decode_queries<S, NT> &q, const decode_warp &w, u32 k) {
    UNROLL for (int i = 0; i < S::D / 32; i++) {
        u32 f[2][4];
        load_keys<S>(f, w, k, i);
        UNROLL for (int t = 0; t < NT; t++) {
            u32 rows[4];
            if constexpr (keep_queries<S, NT>)
                memcpy(rows, q.kept[i][t], sizeof rows);
            else
                read_queries<S, NT>(rows, q, i, t);
            const u32 first[2] = {rows[0], rows[1]}, second[2] = {rows[2], rows[3]};
            mma<S::E>(s[t], f[0], first);
            mma<S::E>(s[t], f[1], second);
        }
    }
    if constexpr (S::IN_E4M3) {
        UNROLL for (int up = 0; up < 2; up++) {
            const float by = load_scale<S>(w, k, 0, up);
            UNROLL for (int t = 0; t < NT; t++) UNROLL for (int i = 2 * up; i < 2 * up + 2; i++) s[t][i] = mul_rn(s[t][i], by);
        }
    }
}

/* The scales of V for the lane's slots, and the bounds of their logarithms; unused where V has none. */
struct value_scales {
    float by[2], top[2];
};
template <class S> DEV value_scales find_scales(const decode_warp &w, u32 k) {
    value_scales scales = {};
    if constexpr (S::IN_E4M3) {
        UNROLL for (int up = 0; up < 2; up++) {
            scales.by[up] = load_scale<S>(w, k, 1, up);
            scales.top[up] = top_of_scale(scales.by[up]);
        }
    }
    return scales;
}

template <class S, int NT>
DEV void adjust_scores(const ca_cuda_attend_args &a, float (&s)[NT][4], const decode_warp &w, int i) {
    const decode_row row = row_of_lane<S, NT>(a, w);
    const int start = first_position<S>(w, i);
    const float slope = row.used && a.slopes ? ld_global(a.slopes + row.query_head) : 0;
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        const int from = lane_of_row(w.lane, t, h), distance = start + w.lane / 4 - shfl(row.position, from);
        const float own = shfl(slope, from);
        s[t][h] = adjust(a, s[t][h], own, distance);
        s[t][2 + h] = adjust(a, s[t][2 + h], own, distance + 8);
    }
}

/* Slots that the lane's row (decode_row) sees, that any of the warp's rows sees, and that all of them see. */
struct decode_seen {
    u32 row, any, all;
};

template <class S, int NT> DEV decode_seen find_seen(const ca_cuda_attend_args &a, const decode_warp &w, int i) {
    const decode_row row = row_of_lane<S, NT>(a, w);
    decode_seen seen = {row.used ? seen_slots(a, row.position, first_position<S>(w, i)) : 0, 0, ~0u};
    seen.any = seen.row;
    if (row.used) seen.all = seen.row;
    UNROLL for (int i = 1; i <= 16; i *= 2) {
        seen.any |= shfl_xor(seen.any, i);
        seen.all &= shfl_xor(seen.all, i);
    }
    return seen;
}

template <int NT> DEV void hide(float (&s)[NT][4], const decode_seen &seen, int lane) {
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        const u32 row = shfl(seen.row, lane_of_row(lane, t, h)) >> lane / 4;
        if (!(row & 1)) s[t][h] = -INFINITY;
        if (!(row >> 8 & 1)) s[t][2 + h] = -INFINITY;
    }
}

/* What M of a tile's row h must not be below, by this lane's slots. */
template <class S> DEV float least_m(const float (&s)[4], int h, float scale, const value_scales &scales) {
    if constexpr (S::IN_E4M3)
        return max_f32(fma_rn(s[h], scale, scales.top[0]), fma_rn(s[2 + h], scale, scales.top[1]));
    else
        return mul_rn(max_f32(s[h], s[2 + h]), scale);
}

/* Most steps raise no row's M: one vote finds that. */
template <class S, int NT>
DEV void raise(decode_state<S, NT> &st, const float (&s)[NT][4], float scale, const value_scales &scales) {
    bool over = false;
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) over |=
        least_m<S>(s[t], h, scale, scales) > st.m[t][h];
    if (!any_sync(over)) return;
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int h = 0; h < 2; h++) {
        float x = least_m<S>(s[t], h, scale, scales);
        UNROLL for (int i = 4; i <= 16; i *= 2) x = max_f32(x, shfl_xor(x, i));
        const float m = x > st.m[t][h] ? m_above<S::E>(x) : st.m[t][h];
        const float by = ex2(add_rn(st.m[t][h], -m));
        st.m[t][h] = m;
        st.l[t][h] = mul_rn(st.l[t][h], by);
        UNROLL for (int b = 0; b < S::D / 16; b++) {
            st.o[b][t][h] = mul_rn(st.o[b][t][h], by);
            st.o[b][t][2 + h] = mul_rn(st.o[b][t][2 + h], by);
        }
    }
}

template <class S, int NT>
DEV void weights(decode_state<S, NT> &st, u32 (&p)[NT][2], const float (&s)[NT][4], float scale, const value_scales &scales) {
    UNROLL for (int t = 0; t < NT; t++) UNROLL for (int up = 0; up < 2; up++) {
        const float x[2] = {s[t][2 * up], s[t][2 * up + 1]};
        float first, second;
        const u32 both =
            pack_weights<S::E, S::IN_E4M3>(x, scale, st.m[t][0], st.m[t][1], scales.by[up], scales.by[up], first, second);
        st.l[t][0] = add_rn(st.l[t][0], first);
        st.l[t][1] = add_rn(st.l[t][1], second);
        p[t][up] = movmatrix(both);
    }
}

template <class S> DEV tile_line values_line(const decode_warp &w, u32 v) {
    return line_of_tile<S::D, STEP_SLOTS>(v, (u32)w.lane % 8 + (u32)w.lane / 16 * 8, (u32)w.lane / 8 & 1);
}

template <class S, int NT> DEV void add_values(decode_state<S, NT> &st, const u32 (&p)[NT][2], const decode_warp &w, u32 v) {
    const tile_line line = values_line<S>(w, v);
    UNROLL for (int b = 0; b < S::D / 16; b++) {
        u32 f[4];
        ldmatrix_trans(f, unit_at<S::D, STEP_SLOTS>(line, 2 * (u32)b));
        UNROLL for (int t = 0; t < NT; t++) mma<S::E>(st.o[b][t], f, p[t]);
    }
}

/* A fragment of V^T without the slots whose bits are not set. */
DEV void select_slots(u32 (&f)[4], u32 slots, int lane) {
    const u32 low = low_slots(slots, lane), high = high_slots(slots, lane);
    f[0] &= low, f[1] &= low, f[2] &= high, f[3] &= high;
}

/* Whether V is infinite or NaN somewhere in `slots`. */
template <class S> DEV bool any_not_finite(const decode_warp &w, u32 v, u32 slots) {
    const tile_line line = values_line<S>(w, v);
    bool found = false;
    UNROLL for (int b = 0; b < S::D / 16; b++) {
        u32 f[4];
        ldmatrix_trans(f, unit_at<S::D, STEP_SLOTS>(line, 2 * (u32)b));
        select_slots(f, slots, w.lane);
        UNROLL for (int i = 0; i < 4; i++) found |= not_finite<S::E>(f[i]);
    }
    return any_sync(found);
}

/* Each row by itself over the slots that it sees: the product's other columns are dropped. */
template <class S, int NT>
DEV void add_row_by_row(decode_state<S, NT> &st, const u32 (&p)[NT][2], u32 seen, const decode_warp &w, u32 v) {
    const tile_line line = values_line<S>(w, v);
    UNROLL for (int t = 0; t < NT; t++) UNROLL_BY(1) for (int row = 0; row < 8; row++) {
        const u32 slots = shfl(seen, t * 8 + row);
        UNROLL for (int b = 0; b < S::D / 16; b++) {
            float sum[4] = {st.o[b][t][0], st.o[b][t][1], st.o[b][t][2], st.o[b][t][3]};
            u32 f[4];
            ldmatrix_trans(f, unit_at<S::D, STEP_SLOTS>(line, 2 * (u32)b));
            select_slots(f, slots, w.lane);
            mma<S::E>(sum, f, p[t]);
            UNROLL for (int i = 0; i < 4; i++) if (row == w.lane % 4 * 2 + i % 2) st.o[b][t][i] = sum[i];
        }
    }
}

/*
 * V of a quarter that some row does not see whole. A weight of 0 hides a slot from a row only where V is finite; where it is
 * not, and another row sees it, rows are taken one by one.
 */
template <class S, int NT>
DEV void add_seen_values(decode_state<S, NT> &st, const u32 (&p)[NT][2], const decode_seen &seen, const decode_warp &w, u32 v) {
    if (seen.any != seen.all && any_not_finite<S>(w, v, seen.any & ~seen.all)) {
        add_row_by_row<S, NT>(st, p, seen.row, w, v);
        return;
    }
    const tile_line line = values_line<S>(w, v);
    UNROLL for (int b = 0; b < S::D / 16; b++) {
        u32 f[4];
        ldmatrix_trans(f, unit_at<S::D, STEP_SLOTS>(line, 2 * (u32)b));
        select_slots(f, seen.any, w.lane);
        UNROLL for (int t = 0; t < NT; t++) mma<S::E>(st.o[b][t], f, p[t]);
    }
}

/* V in e4m3. Hidden slots need no care: their weights are 0, and whatever they hold becomes finite f16. */
template <class S, int NT>
DEV void add_e4m3_values(decode_state<S, NT> &st, const u32 (&p)[NT][2], const decode_warp &w, u32 v) {
    const u32 line = e4m3_line_at<S::D>(v, (u32)w.lane % 16, (u32)w.lane / 16);
    UNROLL for (int i = 0; i < S::D / 32; i++) {
        u32 r[4];
        ldmatrix_trans(r, e4m3_unit_at<S::D>(line, (u32)i));
        UNROLL for (int j = 0; j < 2; j++) {
            const u32 f[4] = {low_dims(r[2 * j]), high_dims(r[2 * j]), low_dims(r[2 * j + 1]), high_dims(r[2 * j + 1])};
            UNROLL for (int t = 0; t < NT; t++) mma<S::E>(st.o[2 * i + j][t], f, p[t]);
        }
    }
}

template <class S, int NT>
DEV void attend_quarter(const ca_cuda_attend_args &a, decode_state<S, NT> &st, const decode_queries<S, NT> &q,
                        const decode_warp &w, u32 k, int i, bool partial) {
    const u32 v = k + S::VALUES;
    float s[NT][4] = {}, scale = a.scale_log2;
    scores<S, NT>(s, q, w, k);
    if (has_options(a)) {
        adjust_scores<S, NT>(a, s, w, i);
        scale = 1;
    }
    decode_seen seen = {};
    if (partial) {
        seen = find_seen<S, NT>(a, w, i);
        hide<NT>(s, seen, w.lane);
    }
    u32 p[NT][2];
    const value_scales scales = find_scales<S>(w, k);
    raise<S, NT>(st, s, scale, scales);
    weights<S, NT>(st, p, s, scale, scales);
    if constexpr (S::IN_E4M3)
        add_e4m3_values<S, NT>(st, p, w, v);
    else if (partial)
        add_seen_values<S, NT>(st, p, seen, w, v);
    else
        add_values<S, NT>(st, p, w, v);
}

#endif
