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
 * P^T goes from the layout of a result to that of an operand by movmatrix. A lane has the same rows in S^T, O^T, M and l:
 * 2 (lane % 4) and the next of each 8; its slots are lane / 4 and lane / 4 + 8.
 *
 * Shared memory: rings (later the quarters' sums), queries, (M, l) of the quarters, flags of the arrival, the job. What the loop
 * over chunks rarely needs is read from there again, since its registers are all in use.
 */
#ifndef LIB_CUDA_DECODE_CUH
#define LIB_CUDA_DECODE_CUH

#include "merge.cuh"
#include "softmax.cuh"
#include "tile.cuh"

template <element E_, int D_> struct decode_shape {
    static constexpr element E = E_;
    static constexpr int D = D_;
    static constexpr int SPLIT = D == 256 ? 2 : 1; /* warps of a quarter */
    static constexpr int THREADS = CA_CUDA_QUARTERS * SPLIT * 32;
    static constexpr int STAGES = D == 256 ? 2 : D == 128 ? 3 : 4;
    static constexpr int MAX_ROWS = 32;
    static constexpr u32 STAGE = 2 * STEP_SLOTS * D * 2; /* bytes: K and V of a quarter */
    static constexpr u32 RINGS = CA_CUDA_QUARTERS * STAGES * STAGE;
    static constexpr u32 QUERIES = RINGS;
    static constexpr u32 ML = QUERIES + MAX_ROWS * D * 2;
    static constexpr u32 FLAGS = ML + CA_CUDA_QUARTERS * MAX_ROWS * 8;
    static constexpr u32 JOB = FLAGS + MAX_ROWS * 4;
    static constexpr u32 SHARED = JOB + KEPT_JOB;
    static_assert(CA_CUDA_QUARTERS * MAX_ROWS * D * 4 <= RINGS, "the sums lie where the rings were");
};

/* Which warp this is, and its place in shared memory. */
struct decode_warp {
    int lane, quarter, half; /* half: which of a quarter's warps */
    u32 base, ring;
};
/*
 * Once a job. The shuffle leaves the index as it is, but the compiler does not know: otherwise it would keep some forty values
 * that depend on it over all jobs, and spill them.
 */
template <class S> DEV decode_warp this_warp() {
    const int thread = shfl_xor(thread_index(), 0), w = thread / 32, quarter = w % CA_CUDA_QUARTERS;
    const u32 base = shared_base();
    return {thread % 32, quarter, S::SPLIT > 1 ? w / CA_CUDA_QUARTERS : 0, base, base + (u32)(quarter * S::STAGES) * S::STAGE};
}

/* ---- The ring ---- */

/*
 * Request a quarter of a chunk: pieces of 512 bytes, K then V; of two warps one takes K, one V. offset: from
 * the chunk's begin to this lane's first 16 bytes.
 */
template <class S> DEV u32 request_offset(const decode_warp &w, int head) {
    return (u32)(2 * head + w.half) * tile_bytes<S::D> + (u32)(w.quarter * 2048 + w.lane * 16);
}
template <class S> DEV void request(const ca_cuda_attend_args &a, const decode_warp &w, int stage, int chunk, u32 offset) {
    constexpr int PIECES = S::D / 16; /* of K; a part of 64 dimensions has 4, half a part 2 */
    const u32 to = w.ring + (u32)stage * S::STAGE + (u32)w.half * (S::STAGE / 2) + (u32)w.lane * 16;
    const unsigned char *part = (const unsigned char *)a.kv + chunk * a.chunk_bytes + offset, *half = part - w.quarter * 1024;
    UNROLL for (int j = 0; j < 2 * PIECES / S::SPLIT; j++) {
        const int k = j % PIECES;
        const unsigned char *from = k / 4 < S::D / 64 ? part : half;
        cp_async16(to + (u32)j * 512, from + j / PIECES * (int)tile_bytes<S::D> + k / 4 * (CA_CUDA_CHUNK * 128) + k % 4 * 512);
    }
}

/* What all warps of the quarter requested is here, and the stage before is free. */
template <class S> DEV void sync_quarter(const decode_warp &w) {
    if (S::SPLIT == 1) sync_warp();
    else sync_named(1 + w.quarter, S::SPLIT * 32);
}

/* ---- One quarter of one chunk ---- */

template <class S, int NT> struct decode_state {
    float o[S::D / 16][NT][4], m[NT][2], l[NT][2];
};

/*
 * What a warp needs to know of its rows where a chunk is not seen whole or scores have options: lane i knows it of row i, and
 * the others ask it. Rare, so it is read anew each time and takes no registers otherwise.
 */
struct decode_row {
    bool used;
    int position, query_head;
};
template <class S, int NT> DEV decode_row row_of_lane(const ca_cuda_attend_args &a, const decode_warp &w) {
    const ca_cuda_job job = kept_job(w.base + S::JOB);
    const int row = w.half * NT * 8 + w.lane;
    if (w.lane >= NT * 8 || row >= job.n_tokens * a.group) return {false, 0, 0};
    const row_place p = place_of(a, job.head, row);
    return {true, ld_global(a.position + job.row + p.token), p.query_head};
}
/* Position of the quarter's first slot in the list's chunk i. */
template <class S> DEV int first_position(const decode_warp &w, int i) {
    const ca_cuda_job job = kept_job(w.base + S::JOB);
    const int chunk = job.segment * CA_CUDA_SEGMENT_CHUNKS + (int)(job.order >> 4 * i & 15);
    return chunk * CA_CUDA_CHUNK + w.quarter * STEP_SLOTS;
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
        UNROLL for (int i = 0; i < S::D / 32; i++)
            UNROLL for (int t = 0; t < NT; t++) read_queries<S, NT>(q.kept[i][t], q, i, t);
    return q;
}

template <class S, int NT> DEV void scores(float (&s)[NT][4], const decode_queries<S, NT> &q, const decode_warp &w, u32 k) {
    const tile_line line = line_of_tile<S::D, STEP_SLOTS>(k, (u32)w.lane % 16, (u32)w.lane / 16);
    UNROLL for (int i = 0; i < S::D / 32; i++) {
        u32 f[2][4];
        UNROLL for (int j = 0; j < 2; j++) ldmatrix(f[j], unit_at<S::D, STEP_SLOTS>(line, 4 * (u32)i + 2 * (u32)j));
        UNROLL for (int t = 0; t < NT; t++) {
            u32 rows[4];
            if constexpr (keep_queries<S, NT>) memcpy(rows, q.kept[i][t], sizeof rows);
            else read_queries<S, NT>(rows, q, i, t);
            const u32 first[2] = {rows[0], rows[1]}, second[2] = {rows[2], rows[3]};
            mma<S::E>(s[t], f[0], first);
            mma<S::E>(s[t], f[1], second);
        }
    }
}

template <class S, int NT>
DEV void adjust_scores(const ca_cuda_attend_args &a, float (&s)[NT][4], const decode_warp &w, int i) {
    const decode_row row = row_of_lane<S, NT>(a, w);
    const int start = first_position<S>(w, i);
    const float slope = row.used && a.slopes ? ld_global(a.slopes + row.query_head) : 0;
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
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

template <class S, int NT>
DEV decode_seen find_seen(const ca_cuda_attend_args &a, const decode_warp &w, int i) {
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
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            const u32 row = shfl(seen.row, lane_of_row(lane, t, h)) >> lane / 4;
            if (!(row & 1)) s[t][h] = -INFINITY;
            if (!(row >> 8 & 1)) s[t][2 + h] = -INFINITY;
        }
}

/* Most steps raise no row's M: one vote finds that. */
template <class S, int NT> DEV void raise(decode_state<S, NT> &st, const float (&s)[NT][4], float scale) {
    bool over = false;
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) over |= mul_rn(max_f32(s[t][h], s[t][2 + h]), scale) > st.m[t][h];
    if (!any_sync(over)) return;
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            float x = max_f32(s[t][h], s[t][2 + h]);
            UNROLL for (int i = 4; i <= 16; i *= 2) x = max_f32(x, shfl_xor(x, i));
            x = mul_rn(x, scale);
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

template <class S, int NT> DEV void weights(decode_state<S, NT> &st, u32 (&p)[NT][2], const float (&s)[NT][4], float scale) {
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int up = 0; up < 2; up++) {
            const u32 both = pack<S::E>(weight<S::E>(s[t][2 * up], scale, st.m[t][0]), weight<S::E>(s[t][2 * up + 1], scale, st.m[t][1]));
            st.l[t][0] = add_rn(st.l[t][0], low_half<S::E>(both));
            st.l[t][1] = add_rn(st.l[t][1], high_half<S::E>(both));
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
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL_BY(1) for (int row = 0; row < 8; row++) {
            const u32 slots = shfl(seen, t * 8 + row);
            UNROLL for (int b = 0; b < S::D / 16; b++) {
                float sum[4] = {st.o[b][t][0], st.o[b][t][1], st.o[b][t][2], st.o[b][t][3]};
                u32 f[4];
                ldmatrix_trans(f, unit_at<S::D, STEP_SLOTS>(line, 2 * (u32)b));
                select_slots(f, slots, w.lane);
                mma<S::E>(sum, f, p[t]);
                UNROLL for (int i = 0; i < 4; i++)
                    if (row == w.lane % 4 * 2 + i % 2) st.o[b][t][i] = sum[i];
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

template <class S, int NT>
DEV void attend_quarter(const ca_cuda_attend_args &a, decode_state<S, NT> &st, const decode_queries<S, NT> &q,
                        const decode_warp &w, u32 k, int i, bool partial) {
    const u32 v = k + S::STAGE / 2;
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
    raise<S, NT>(st, s, scale);
    weights<S, NT>(st, p, s, scale);
    if (partial) add_seen_values<S, NT>(st, p, seen, w, v);
    else add_values<S, NT>(st, p, w, v);
}

/* ---- The ends of a segment ---- */

/* Where a quarter of a row's carried state lies. */
template <class S> DEV float *carried(const ca_cuda_attend_args &a, const ca_cuda_job &job, int carry, int row, int quarter) {
    return a.carry + (state_row(a, carry, place_of(a, job.head, row)) * CA_CUDA_QUARTERS + (size_t)quarter) * (S::D + CA_CUDA_CARRY);
}

template <class S, int NT>
DEV void load_carried(const ca_cuda_attend_args &a, const ca_cuda_job &job, decode_state<S, NT> &st, const decode_warp &w, int first) {
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int row = first + t * 8 + w.lane % 4 * 2 + h, g = w.lane / 4;
            if (row >= job.n_tokens * a.group) continue;
            const float *from = carried<S>(a, job, job.carry_in, row, w.quarter);
            UNROLL for (int b = 0; b < S::D / 16; b++)
                UNROLL for (int up = 0; up < 2; up++) st.o[b][t][2 * up + h] = ld_global(from + b * 16 + up * 8 + g);
            st.m[t][h] = ld_global(from + S::D);
            st.l[t][h] = ld_global(from + S::D + 8 + g);
        }
}

template <class S, int NT>
DEV void store_carried(const ca_cuda_attend_args &a, const ca_cuda_job &job, const decode_state<S, NT> &st, const decode_warp &w, int first) {
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int row = first + t * 8 + w.lane % 4 * 2 + h, g = w.lane / 4;
            if (row >= job.n_tokens * a.group) continue;
            float *to = carried<S>(a, job, job.carry_out, row, w.quarter);
            UNROLL for (int b = 0; b < S::D / 16; b++)
                UNROLL for (int up = 0; up < 2; up++) st_global(to + b * 16 + up * 8 + g, st.o[b][t][2 * up + h]);
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
    u32 at[4]; /* of the four 8 dimensions in 32 */
    UNROLL for (int i = 0; i < 4; i++) at[i] = w.base + sum_at<S>(w.quarter, row, 8 * i + w.lane / 4);
    UNROLL for (int t = 0; t < NT; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            UNROLL for (int i = 4; i <= 16; i *= 2) st.l[t][h] = add_rn(st.l[t][h], shfl_xor(st.l[t][h], i));
            UNROLL for (int b = 0; b < S::D / 16; b++)
                UNROLL for (int up = 0; up < 2; up++)
                    st_shared(at[b % 2 * 2 + up] + (u32)((t * 8 + h) * S::D + b / 2 * 32) * 4, st.o[b][t][2 * up + h]);
            if (w.lane / 4 == 0)
                st_shared(w.base + S::ML + (u32)(w.quarter * S::MAX_ROWS + row + t * 8 + h) * 8, f2{{st.m[t][h], st.l[t][h]}});
        }
}

/* Fold the quarters of a row, first to last. */
template <class S> DEV sum4 fold_quarters(u32 base, int row, int unit) {
    sum4 sum = {};
    UNROLL for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) {
        const f2 ml = ld_shared<f2>(base + S::ML + (u32)(quarter * S::MAX_ROWS + row) * 8);
        const sum4 next = {ld_shared<f4>(base + sum_at<S>(quarter, row, 4 * unit)), ml.v[0], ml.v[1]};
        if (quarter == 0) sum = next;
        else fold(sum, next);
    }
    return sum;
}

/* ---- A job ---- */

/* NT: tiles of 8 rows a warp. */
template <class S, int NT> DEV void attend_segment(const ca_cuda_attend_args &a, int j, const decode_warp &w) {
    const ca_cuda_job job = load_job(a.jobs + j);
    const int id = ld_global(a.jobs[j].chunk + w.lane % CA_CUDA_SEGMENT_CHUNKS), n_chunks = job.n_chunks, partial = job.partial;
    const int first = w.half * NT * 8;
    const u32 offset = request_offset<S>(w, job.head);
    UNROLL for (int i = 0; i < S::STAGES - 1; i++) {
        const int next = shfl(id, i);
        if (i < n_chunks) request<S>(a, w, i, next, offset);
        cp_async_commit();
    }
    keep_job(a, j, w.base + S::JOB);
    stage_queries<S::E, S::D, S::MAX_ROWS, S::THREADS>(a, job, w.base + S::QUERIES);
    sync_block();
    const decode_queries<S, NT> q = find_queries<S, NT>(w, first);
    decode_state<S, NT> st = {};
    UNROLL for (int t = 0; t < NT; t++) st.m[t][0] = st.m[t][1] = lowest_m;
    if (job.carry_in >= 0) load_carried<S, NT>(a, job, st, w, first);

    UNROLL_BY(1) for (int i = 0, stage = 0; i < n_chunks; i++) {
        cp_async_wait<S::STAGES - 2>();
        sync_quarter<S>(w);
        const int ahead = i + S::STAGES - 1, next = shfl(id, ahead);
        if (ahead < n_chunks) request<S>(a, w, stage == 0 ? S::STAGES - 1 : stage - 1, next, offset);
        cp_async_commit();
        attend_quarter<S, NT>(a, st, q, w, w.ring + (u32)stage * S::STAGE, i, partial >> i & 1);
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
    cp_async_wait<0>();

    const ca_cuda_job end = kept_job(w.base + S::JOB);
    if (end.carry_out >= 0) {
        store_carried<S, NT>(a, end, st, w, first);
        return;
    }
    sync_block();
    leave_sums<S, NT>(st, w, first);
}

template <class S> DEV void finish_segment(const ca_cuda_attend_args &a, u32 base) {
    const ca_cuda_job job = kept_job(base + S::JOB);
    if (job.carry_out >= 0) return;
    sync_block();
    for (int i = thread_index(); i < job.n_tokens * a.group * (S::D / 4); i += S::THREADS)
        settle<S::E, S::D>(a, job, i / (S::D / 4), i % (S::D / 4), fold_quarters<S>(base, i / (S::D / 4), i % (S::D / 4)));
    if (!(job.flags & (CA_CUDA_JOB_OUTPUT | CA_CUDA_JOB_KEEP))) arrive<S::E, S::D, S::THREADS>(a, job, base + S::FLAGS);
}

/* All jobs of this block. */
template <element E, int D> DEV void decode(const ca_cuda_attend_args &a) {
    using S = decode_shape<E, D>;
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        const decode_warp w = this_warp<S>();
        const int n_rows = load_job(a.jobs + j).n_tokens * a.group;
        if (n_rows <= 8 * S::SPLIT) attend_segment<S, 1>(a, j, w);
        else if (n_rows <= 16 * S::SPLIT) attend_segment<S, 2>(a, j, w);
        else if constexpr (32 * S::SPLIT <= S::MAX_ROWS) attend_segment<S, 4>(a, j, w);
        finish_segment<S>(a, w.base);
        j = kept_index(w.base + S::JOB) + 1;
        sync_block(); /* before the next job's copies overwrite the sums */
    }
}

#endif
