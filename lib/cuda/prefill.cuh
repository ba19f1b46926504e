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
 * A lane has rows lane / 4 and lane / 4 + 8 of its warp's; its slots are 2 (lane % 4) and the next of each 8.
 *
 * Shared memory: two stages, queries, sums, (M, l) of the sums, flags of the arrival, the job.
 */
#ifndef LIB_CUDA_PREFILL_CUH
#define LIB_CUDA_PREFILL_CUH

#include "merge.cuh"
#include "softmax.cuh"
#include "tile.cuh"

template <element E_, int D_> struct prefill_shape {
    static constexpr element E = E_;
    static constexpr int D = D_;
    static constexpr int ROWS = 64, THREADS = 128;
    static constexpr int CHUNKS = D == 256 ? 2 : 4; /* of a stage */
    static constexpr int LINES = CHUNKS * STEP_SLOTS;
    static constexpr u32 TILE = LINES * D * 2; /* bytes of a stage's K; V follows */
    static constexpr u32 QUERIES = 2 * 2 * TILE;
    static constexpr u32 SUMS = QUERIES + ROWS * D * 2;
    static constexpr u32 ML = SUMS + ROWS * D * 4;
    static constexpr u32 FLAGS = ML + ROWS * 8;
    static constexpr u32 JOB = FLAGS + ROWS * 4;
    static constexpr u32 SHARED = JOB + KEPT_JOB;
};

/*
 * Found anew where a loop begins and ends: the shuffle leaves the index as it is, but hides it from the compiler, which would
 * otherwise keep addresses over all loops, and spill them.
 */
struct prefill_warp {
    int lane, row; /* row: the first of this warp's 16 */
    u32 base;
};
DEV prefill_warp this_rows() {
    const int thread = shfl_xor(thread_index(), 0);
    return {thread % 32, thread / 32 * 16, shared_base()};
}

/* A row's sums in one quarter. l: of slot classes 2 (lane % 4) and the next. */
template <class S> struct prefill_state {
    float o[S::D / 8][4], m[2], l[2][2];
};

/* ---- The ring ---- */

/* Request a quarter of n chunks, the first of which is the list's chunk `first`. id: lane i holds that of chunk i. */
template <class S> DEV void request_lines(const ca_cuda_attend_args &a, u32 to, int head, int quarter, int id, int first, int n) {
    const u32 t = (u32)thread_index() * 16;
    UNROLL for (int c = 0; c < S::CHUNKS; c++) {
        const int chunk = shfl(id, first + c);
        if (c >= n) continue;
        const unsigned char *tile = (const unsigned char *)a.kv + chunk * a.chunk_bytes + head * 2 * (int64_t)tile_bytes<S::D> + t;
        UNROLL for (u32 v = 0; v < 2; v++) {
            UNROLL for (u32 part = 0; part < S::D / 64; part++)
                cp_async16(to + v * S::TILE + part * (S::LINES * 128) + (u32)c * 2048 + t,
                           tile + v * tile_bytes<S::D> + part * (CA_CUDA_CHUNK * 128) + quarter * 2048);
            if (S::D % 64 && t < 1024)
                cp_async16(to + v * S::TILE + S::D / 64 * (S::LINES * 128) + (u32)c * 1024 + t,
                           tile + v * tile_bytes<S::D> + S::D / 64 * (CA_CUDA_CHUNK * 128) + quarter * 1024);
        }
    }
}

/* ---- 16 slots of one chunk ---- */

/* A warp's queries as the left operand, a fragment for 16 dimensions. d = 256 leaves no registers to keep them. */
template <class S> constexpr bool keep_fragments = S::D <= 128;
template <class S> struct prefill_queries {
    u32 f[keep_fragments<S> ? S::D / 16 : 1][4];
};
template <class S> DEV void load_fragment(u32 (&f)[4], const prefill_warp &w, int step) {
    const tile_line line = line_of_tile<S::D, S::ROWS>(w.base + S::QUERIES, (u32)(w.row + w.lane % 16), (u32)w.lane / 16);
    ldmatrix(f, unit_at<S::D, S::ROWS>(line, 2 * (u32)step));
}
template <class S> DEV void load_queries(prefill_queries<S> &q, const prefill_warp &w) {
    if constexpr (keep_fragments<S>)
        UNROLL for (int step = 0; step < S::D / 16; step++) load_fragment<S>(q.f[step], w, step);
}

/* Scores for chunk c of a stage: s[h] for the slots 8 h and on. */
template <class S> DEV void slot_scores(float (&s)[2][4], const prefill_queries<S> &q, const prefill_warp &w, u32 k, int c) {
    const tile_line line = line_of_tile<S::D, S::LINES>(k, (u32)(c * STEP_SLOTS + w.lane % 8 + w.lane / 16 * 8), (u32)w.lane / 8 & 1);
    UNROLL for (int step = 0; step < S::D / 16; step++) {
        u32 f[4], rows[4];
        ldmatrix(f, unit_at<S::D, S::LINES>(line, 2 * (u32)step));
        if constexpr (keep_fragments<S>) memcpy(rows, q.f[step], sizeof rows);
        else load_fragment<S>(rows, w, step);
        const u32 low[2] = {f[0], f[1]}, high[2] = {f[2], f[3]};
        mma<S::E>(s[0], rows, low);
        mma<S::E>(s[1], rows, high);
    }
}

/* What a lane knows of its two rows. */
struct prefill_rows {
    bool used[2];
    int position[2];
    float slope[2];
};
template <class S> DEV prefill_rows find_rows(const ca_cuda_attend_args &a, const prefill_warp &w) {
    const ca_cuda_job job = kept_job(w.base + S::JOB);
    prefill_rows rows = {};
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = w.row + w.lane / 4 + 8 * h;
        rows.used[h] = row < job.n_tokens * a.group;
        if (!rows.used[h]) continue;
        const row_place p = place_of(a, job.head, row);
        rows.position[h] = ld_global(a.position + job.row + p.token);
        rows.slope[h] = a.slopes ? ld_global(a.slopes + p.query_head) : 0;
    }
    return rows;
}

/* Slots that a lane's rows see, that any of the warp's rows sees, and that all of them see. */
struct prefill_seen {
    u32 row[2], any, all;
};
DEV prefill_seen find_seen(const ca_cuda_attend_args &a, const prefill_rows &rows, int start) {
    prefill_seen seen = {{0, 0}, 0, ~0u};
    UNROLL for (int h = 0; h < 2; h++) {
        if (!rows.used[h]) continue;
        seen.row[h] = seen_slots(a, rows.position[h], start);
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
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < 4; i++) {
            const int slot = start + 8 * h + lane % 4 * 2 + i % 2;
            s[h][i] = adjust(a, s[h][i], rows.slope[i / 2], slot - rows.position[i / 2]);
        }
}

DEV void hide_slots(float (&s)[2][4], const prefill_seen &seen, int lane) {
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < 4; i++)
            if (!(seen.row[i / 2] >> (8 * h + lane % 4 * 2 + i % 2) & 1)) s[h][i] = -INFINITY;
}

DEV float most_of_row(const float (&s)[2][4], int r) {
    return max_f32(max_f32(s[0][2 * r], s[0][2 * r + 1]), max_f32(s[1][2 * r], s[1][2 * r + 1]));
}

template <class S> DEV void raise_rows(prefill_state<S> &st, const float (&s)[2][4], float scale) {
    bool over = false;
    UNROLL for (int r = 0; r < 2; r++) over |= mul_rn(most_of_row(s, r), scale) > st.m[r];
    if (!any_sync(over)) return;
    UNROLL for (int r = 0; r < 2; r++) {
        float x = most_of_row(s, r);
        UNROLL for (int i = 1; i <= 2; i *= 2) x = max_f32(x, shfl_xor(x, i));
        x = mul_rn(x, scale);
        const float m = x > st.m[r] ? m_above<S::E>(x) : st.m[r];
        const float by = ex2(add_rn(st.m[r], -m));
        st.m[r] = m;
        UNROLL for (int i = 0; i < 2; i++) st.l[r][i] = mul_rn(st.l[r][i], by);
        UNROLL for (int b = 0; b < S::D / 8; b++)
            UNROLL for (int i = 0; i < 2; i++) st.o[b][2 * r + i] = mul_rn(st.o[b][2 * r + i], by);
    }
}

/* Weights as the left operand. */
template <class S> DEV void row_weights(prefill_state<S> &st, u32 (&p)[4], const float (&s)[2][4], float scale) {
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int r = 0; r < 2; r++) {
            const u32 both = pack<S::E>(weight<S::E>(s[h][2 * r], scale, st.m[r]), weight<S::E>(s[h][2 * r + 1], scale, st.m[r]));
            st.l[r][0] = add_rn(st.l[r][0], low_half<S::E>(both));
            st.l[r][1] = add_rn(st.l[r][1], high_half<S::E>(both));
            p[2 * h + r] = both;
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
DEV void add_values_of_row(prefill_state<S> &st, const u32 (&p)[4], const tile_line &line, int lane, u32 slots, int begin, int r, int row) {
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

/* Each row by itself, as add_row_by_row of decode.cuh. Few dimensions at a time: more would take registers that there are not. */
template <class S> DEV void add_values_by_row(prefill_state<S> &st, const u32 (&p)[4], const u32 (&seen)[2], const tile_line &line, int lane) {
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int b = 0; b < S::D / 16; b += 2)
            UNROLL_BY(1) for (int row = 0; row < 8; row++)
                add_values_of_row<S>(st, p, line, lane, shfl(seen[r], row * 4), b, r, row);
}

template <class S> DEV void add_row_values(prefill_state<S> &st, const u32 (&p)[4], const prefill_seen &seen, bool partial, u32 v, int c, int lane) {
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
DEV void attend_slots(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_queries<S> &q, const prefill_warp &w, u32 k,
                      int quarter, int first, int c, bool partial) {
    const bool options = has_options(a);
    float s[2][4] = {}, scale = a.scale_log2;
    prefill_seen seen = {};
    if (partial || options) {
        const ca_cuda_job job = kept_job(w.base + S::JOB);
        const int chunk = job.segment * CA_CUDA_SEGMENT_CHUNKS + (int)(job.order >> 4 * (first + c) & 15);
        const int start = chunk * CA_CUDA_CHUNK + quarter * STEP_SLOTS;
        const prefill_rows rows = find_rows<S>(a, w);
        if (partial) seen = find_seen(a, rows, start);
        if (partial && seen.any == 0) return; /* above the diagonal for all rows of this warp */
        slot_scores<S>(s, q, w, k, c);
        if (options) adjust_slots(a, s, rows, start, w.lane);
        if (options) scale = 1;
        if (partial) hide_slots(s, seen, w.lane);
    } else {
        slot_scores<S>(s, q, w, k, c);
    }
    u32 p[4];
    raise_rows<S>(st, s, scale);
    row_weights<S>(st, p, s, scale);
    add_row_values<S>(st, p, seen, partial, k + S::TILE, c, w.lane);
}

/* ---- The ends of a quarter ---- */

/* Where the sum of (row, dimension i) waits. The exchange spreads the rows of a warp over the banks. */
template <class S> DEV u32 row_sum_at(int row, int i) { return S::SUMS + (u32)(row * S::D + (i ^ row % 4 * 8)) * 4; }

/* Fold a quarter's sums onto those before it. A row is one warp's, so there is no barrier. */
template <class S> DEV void fold_quarter(prefill_state<S> &st, const prefill_warp &w, int quarter) {
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r;
        const u32 ml = w.base + S::ML + (u32)row * 8, at = w.base + row_sum_at<S>(row, w.lane % 4 * 2);
        float l = add_rn(st.l[r][0], st.l[r][1]), m = st.m[r];
        UNROLL for (int i = 1; i <= 2; i *= 2) l = add_rn(l, shfl_xor(l, i));
        float by_before = 0, by_now = 1;
        if (quarter > 0) {
            const f2 before = ld_shared<f2>(ml);
            m = max_f32(before.v[0], m);
            by_before = ex2(add_rn(before.v[0], -m));
            by_now = ex2(add_rn(st.m[r], -m));
            l = fma_rn(l, by_now, mul_rn(before.v[1], by_before));
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
        if (w.lane % 4 == 0) st_shared(ml, f2{{m, l}});
        sync_warp();
    }
}

template <class S> DEV float *carried_row(const ca_cuda_attend_args &a, const ca_cuda_job &job, int carry, int row, int quarter) {
    return a.carry + (state_row(a, carry, place_of(a, job.head, row)) * CA_CUDA_QUARTERS + (size_t)quarter) * (S::D + CA_CUDA_CARRY);
}

/* A quarter's sums as the segment's earlier job left them, or none yet. */
template <class S> DEV void begin_quarter(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_warp &w, int quarter) {
    const ca_cuda_job job = kept_job(w.base + S::JOB);
    st = {};
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r, i = w.lane % 4 * 2;
        st.m[r] = lowest_m;
        if (job.carry_in < 0 || row >= job.n_tokens * a.group) continue;
        const float *from = carried_row<S>(a, job, job.carry_in, row, quarter);
        UNROLL for (int b = 0; b < S::D / 8; b++) {
            const f2 o = ld_global((const f2 *)(from + b * 8 + i));
            st.o[b][2 * r] = o.v[0], st.o[b][2 * r + 1] = o.v[1];
        }
        const f2 l = ld_global((const f2 *)(from + S::D + 8 + i));
        st.m[r] = ld_global(from + S::D);
        st.l[r][0] = l.v[0], st.l[r][1] = l.v[1];
    }
}

template <class S> DEV void carry_quarter(const ca_cuda_attend_args &a, const ca_cuda_job &job, const prefill_state<S> &st, const prefill_warp &w, int quarter) {
    UNROLL for (int r = 0; r < 2; r++) {
        const int row = w.row + w.lane / 4 + 8 * r, i = w.lane % 4 * 2;
        if (row >= job.n_tokens * a.group) continue;
        float *to = carried_row<S>(a, job, job.carry_out, row, quarter);
        UNROLL for (int b = 0; b < S::D / 8; b++) st_global((f2 *)(to + b * 8 + i), f2{{st.o[b][2 * r], st.o[b][2 * r + 1]}});
        st_global((f2 *)(to + S::D + 8 + i), f2{{st.l[r][0], st.l[r][1]}});
        if (i == 0) st_global(to + S::D, st.m[r]);
    }
}

template <class S> DEV void end_quarter(const ca_cuda_attend_args &a, prefill_state<S> &st, const prefill_warp &w, int quarter) {
    const ca_cuda_job job = kept_job(w.base + S::JOB);
    if (job.carry_out >= 0) carry_quarter<S>(a, job, st, w, quarter);
    else fold_quarter<S>(st, w, quarter);
}

/* ---- A job ---- */

template <class S> DEV void attend_rows(const ca_cuda_attend_args &a, int j) {
    const u32 base = shared_base();
    const ca_cuda_job job = load_job(a.jobs + j);
    const int id = ld_global(a.jobs[j].chunk + thread_index() % CA_CUDA_SEGMENT_CHUNKS), n = job.n_chunks, head = job.head, partial = job.partial;
    if (n > 0) request_lines<S>(a, base, head, 0, id, 0, n);
    cp_async_commit();
    keep_job(a, j, base + S::JOB);
    stage_queries<S::E, S::D, S::ROWS, S::THREADS>(a, job, base + S::QUERIES);
    sync_block();
    prefill_queries<S> q;
    load_queries<S>(q, this_rows());
    u32 stage = base;
    UNROLL_BY(1) for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) {
        const prefill_warp w = this_rows();
        prefill_state<S> st;
        begin_quarter<S>(a, st, w, quarter);
        UNROLL_BY(1) for (int first = 0; first < n; first += S::CHUNKS) {
            cp_async_wait<0>();
            sync_block(); /* the stage is here for all warps, and all have left the other one */
            const bool last = first + S::CHUNKS >= n;
            const int next = last ? 0 : first + S::CHUNKS, next_quarter = quarter + last;
            const u32 other = stage == base ? base + 2 * S::TILE : base;
            if (next_quarter < CA_CUDA_QUARTERS) request_lines<S>(a, other, head, next_quarter, id, next, n - next);
            cp_async_commit();
            const int here = last ? n - first : S::CHUNKS;
            UNROLL_BY(1) for (int c = 0; c < here; c++)
                attend_slots<S>(a, st, q, w, stage, quarter, first, c, partial >> (first + c) & 1);
            stage = other;
        }
        end_quarter<S>(a, st, this_rows(), quarter);
    }
    cp_async_wait<0>();
}

template <class S> DEV void finish_rows(const ca_cuda_attend_args &a, u32 base) {
    const ca_cuda_job job = kept_job(base + S::JOB);
    sync_block();
    if (job.carry_out >= 0) return;
    for (int i = thread_index(); i < job.n_tokens * a.group * (S::D / 4); i += S::THREADS) {
        const int row = i / (S::D / 4), unit = i % (S::D / 4);
        const f2 ml = ld_shared<f2>(base + S::ML + (u32)row * 8);
        settle<S::E, S::D>(a, job, row, unit, {ld_shared<f4>(base + row_sum_at<S>(row, 4 * unit)), ml.v[0], ml.v[1]});
    }
    if (!(job.flags & (CA_CUDA_JOB_OUTPUT | CA_CUDA_JOB_KEEP))) arrive<S::E, S::D, S::THREADS>(a, job, base + S::FLAGS);
}

/* All jobs of this block. */
template <element E, int D> DEV void prefill(const ca_cuda_attend_args &a) {
    using S = prefill_shape<E, D>;
    const u32 base = shared_base();
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        attend_rows<S>(a, j);
        finish_rows<S>(a, base);
        j = kept_index(base + S::JOB) + 1;
        sync_block();
    }
}

#endif
