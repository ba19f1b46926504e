/*
 * What happens behind a segment: sums fold, and a row is normalised and written by the work item that completes it.
 *
 * A sum is (O, M, l): O and l are in units of 2^M. Folding b onto a scales both to the larger M, by powers of 2. Threads work
 * on four dimensions of a row at a time, and each holds M and l of its row, too.
 */
#ifndef CHUNKATTN_CUDA_MERGE_CUH
#define CHUNKATTN_CUDA_MERGE_CUH

#include "softmax.cuh"
#include "tile.cuh"

struct sum4 {
    f4 o;
    float m, l;
};

DEV void fold(sum4 &a, const sum4 &b) {
    const float m = max_f32(a.m, b.m), by_a = ex2(add_rn(a.m, -m)), by_b = ex2(add_rn(b.m, -m));
    a.m = m;
    a.l = fma_rn(b.l, by_b, mul_rn(a.l, by_a));
    UNROLL for (int i = 0; i < 4; i++) a.o.v[i] = fma_rn(b.o.v[i], by_b, mul_rn(a.o.v[i], by_a));
}

/* ---- Stored states ---- */

/* Index of (token, query head) among those of the states from `state` on. */
DEV size_t state_row(const ca_cuda_attend_args &a, int state, const row_place &p) {
    return (size_t)(state + p.token) * (size_t)(a.n_kv_heads * a.group) + (size_t)p.query_head;
}

/* Where a quarter of a row's carried state lies. */
template <int D> DEV float *carried(const ca_cuda_attend_args &a, const ca_work_item &work, int carry, int row, int quarter) {
    return a.carry +
           (state_row(a, carry, place_of(a, work.head, row)) * CA_CUDA_QUARTERS + (size_t)quarter) * (D + CA_CUDA_CARRY);
}

template <int D> DEV sum4 load_state(const ca_cuda_attend_args &a, size_t at, int unit) {
    const f2 ml = ld_global((const f2 *)a.ml + at);
    return {ld_global((const f4 *)(a.o + at * D) + unit), ml.v[0], ml.v[1]};
}

template <int D> DEV void store_state(const ca_cuda_attend_args &a, size_t at, int unit, const sum4 &s) {
    st_global((f4 *)(a.o + at * D) + unit, s.o);
    if (unit == 0) st_global((f2 *)a.ml + at, f2{{s.m, s.l}});
}

/* ---- Outputs ---- */

DEV void store_output(const ca_cuda_view &out, int row, int head, int unit, const f4 &x) {
    void *line = (void *)line_of(out, row, head);
    if (out.type == CATTN_F32)
        st_global((f4 *)line + unit, x);
    else if (out.type == CATTN_BF16)
        st_global((u2 *)line + unit, u2{{pack<BF16>(x.v[0], x.v[1]), pack<BF16>(x.v[2], x.v[3])}});
    else
        st_global((u2 *)line + unit, u2{{pack<F16>(x.v[0], x.v[1]), pack<F16>(x.v[2], x.v[3])}});
}

/* Normalise a row's sum over everything that it sees, and write it to row `to`. The sink logit joins as a slot with V = 0. */
template <element E> DEV void finish(const ca_cuda_attend_args &a, int to, const row_place &p, int unit, sum4 s) {
    const float sink = a.sinks ? ld_global(a.sinks + p.query_head) : -INFINITY;
    float m = s.l == 0 ? -INFINITY : add_rn(s.m, -weight_exponent<E>), by = 1;
    if (sink > -INFINITY) {
        const float least = m;
        m = max_f32(m, sink);
        by = ex2(add_rn(least, -m));
        s.l = fma_rn(s.l, by, ex2(add_rn(sink, -m)));
    }
    by = s.l == 0 ? 0 : mul_rn(by, rcp_rn(s.l));
    UNROLL for (int i = 0; i < 4; i++) s.o.v[i] = add_rn(mul_rn(s.o.v[i], by), 0); /* no -0 */
    store_output(a.out, to, p.query_head, unit, s.o);
    if (unit == 0 && a.lse)
        st_global(a.lse + (size_t)to * (size_t)(a.n_kv_heads * a.group) + p.query_head,
                  s.l == 0 ? -INFINITY : add_rn(m, lg2(s.l)));
}

/* ---- Units of a thread ---- */

/*
 * Some of a work item's units, of which each is four dimensions of a row: i, i + S::THREADS, ... A thread works on all of them
 * at once, so that their loads are under way together. Behind the last unit of the work item it repeats that one, without
 * writing it.
 */
template <class S_, int N_> struct row_units {
    using S = S_;
    static constexpr int N = N_;
    int row[N], unit[N];
    bool used[N];
};
template <class U> DEV U units_from(int i, int n) {
    U u;
    UNROLL for (int k = 0; k < U::N; k++) {
        const int at = i + k * U::S::THREADS, in = at < n ? at : n - 1;
        u.row[k] = in / (U::S::D / 4);
        u.unit[k] = in % (U::S::D / 4);
        u.used[k] = at < n;
    }
    return u;
}

/* Call f with all units of the work item's rows, up to S::UNITS (1, 2 or 4) at a time. */
template <class S, class F> DEV void over_units(const ca_cuda_attend_args &a, const ca_work_item &work, F f) {
    const int t = own_thread<S>(), n = work.n_tokens * a.group * (S::D / 4);
    int i = t;
    if (n > S::THREADS) {
        if constexpr (S::UNITS == 4)
            UNROLL_BY(1) for (; i - t + 3 * S::THREADS < n; i += 4 * S::THREADS) f(units_from<row_units<S, 4>>(i, n));
        if constexpr (S::UNITS >= 2) UNROLL_BY(1) for (; i < n; i += 2 * S::THREADS) f(units_from<row_units<S, 2>>(i, n));
    }
    UNROLL_BY(1) for (; i < n; i += S::THREADS) f(units_from<row_units<S, 1>>(i, n));
}

/* Where the rows of the units go in the caller's tensors. */
template <class U> DEV void find_outputs(const ca_cuda_attend_args &a, const ca_work_item &work, const U &u, int (&to)[U::N]) {
    UNROLL for (int k = 0; k < U::N; k++) to[k] = ld_global(a.source + work.row + place_of(a, work.head, u.row[k]).token);
}

/* The units' sums over a segment, as the work item's flags say: onto what the previous work item kept, then out or to their
 * states. */
template <class U> DEV void settle(const ca_cuda_attend_args &a, const ca_work_item &work, const U &u, const sum4 (&s)[U::N]) {
    using S = typename U::S;
    sum4 sum[U::N];
    UNROLL for (int k = 0; k < U::N; k++) sum[k] = s[k];
    if (work.fold >= 0) {
        UNROLL for (int k = 0; k < U::N; k++) sum[k] =
            load_state<S::D>(a, state_row(a, work.fold, place_of(a, work.head, u.row[k])), u.unit[k]);
        UNROLL for (int k = 0; k < U::N; k++) fold(sum[k], s[k]);
    }
    if (work.flags & CA_WORK_ITEM_OUTPUT) {
        int to[U::N];
        find_outputs(a, work, u, to);
        UNROLL for (int k = 0; k < U::N; k++) if (u.used[k])
            finish<S::E>(a, to[k], place_of(a, work.head, u.row[k]), u.unit[k], sum[k]);
    } else {
        UNROLL for (int k = 0; k < U::N; k++) if (u.used[k])
            store_state<S::D>(a, state_row(a, work.state, place_of(a, work.head, u.row[k])), u.unit[k], sum[k]);
    }
}

/* ---- The last arriver ---- */

enum { STATES_AT_ONCE = 4 }; /* of each unit: loads that do not wait for each other */

/* Rows that are merged. */
template <int N> struct merge_rows {
    int query_head[N];
    int list[N], n[N]; /* a row's states: the first one's place in a.merge, and their number */
    int own[N];        /* the state that this work item has stored */
    bool complete[N];
};

/*
 * Fold the states [first, first + STATES_AT_ONCE) of each list onto its unit's sum, in order. Behind a list's end its last
 * state is read again, and of rows that are not complete the work item's own: loads without conditions are under way together.
 */
template <class U>
DEV void fold_states(const ca_cuda_attend_args &a, const U &u, const merge_rows<U::N> &rows, int first, sum4 (&sum)[U::N]) {
    int id[STATES_AT_ONCE][U::N];
    UNROLL for (int j = 0; j < STATES_AT_ONCE; j++) UNROLL for (int k = 0; k < U::N; k++) id[j][k] =
        ld_global(a.merge + rows.list[k] + (first + j < rows.n[k] ? first + j : rows.n[k] - 1));
    sum4 next[STATES_AT_ONCE][U::N];
    UNROLL for (int j = 0; j < STATES_AT_ONCE; j++) UNROLL for (int k = 0; k < U::N; k++) next[j][k] =
        load_state<U::S::D>(a, state_row(a, rows.complete[k] ? id[j][k] : rows.own[k], {0, rows.query_head[k]}), u.unit[k]);
    UNROLL for (int j = 0; j < STATES_AT_ONCE; j++) UNROLL for (int k = 0; k < U::N; k++) {
        if (first + j >= rows.n[k]) continue;
        if (first + j == 0)
            sum[k] = next[j][k];
        else
            fold(sum[k], next[j][k]);
    }
}

/* Merge and write those of the units whose rows are complete, by their tokens' flags. */
template <class U> DEV void merge_units(const ca_cuda_attend_args &a, const ca_work_item &work, const U &u, u32 flags) {
    merge_rows<U::N> rows;
    int to[U::N], most = 0;
    UNROLL for (int k = 0; k < U::N; k++) {
        const row_place p = place_of(a, work.head, u.row[k]);
        rows.query_head[k] = p.query_head;
        rows.own[k] = work.state + p.token;
        rows.list[k] = ld_global(a.merge_begin + work.row + p.token);
        rows.n[k] = ld_global(a.merge_begin + work.row + p.token + 1);
        rows.complete[k] = ld_shared<u32>(flags + (u32)p.token * 4) != 0;
    }
    find_outputs(a, work, u, to);
    UNROLL for (int k = 0; k < U::N; k++) {
        rows.n[k] -= rows.list[k];
        if (rows.complete[k] && rows.n[k] > most) most = rows.n[k];
    }
    sum4 sum[U::N] = {};
    UNROLL_BY(1) for (int first = 0; first < most; first += STATES_AT_ONCE) fold_states(a, u, rows, first, sum);
    UNROLL for (int k = 0; k < U::N; k++) if (u.used[k] && rows.complete[k])
        finish<U::S::E>(a, to[k], {0, rows.query_head[k]}, u.unit[k], sum[k]);
}

/*
 * Count the arrival of a work item's tokens, and merge and write those rows that are complete. All threads that work on them,
 * whose states are stored. flags: 4 bytes of shared memory for each token. Leaves the counters of complete rows zero.
 */
template <class S> DEV void arrive(const ca_cuda_attend_args &a, const ca_work_item &work, u32 flags) {
    sync_own<S>();
    const int t = own_thread<S>();
    if (t < work.n_tokens) {
        const int row = work.row + t;
        const u32 n = (u32)(ld_global(a.merge_begin + row + 1) - ld_global(a.merge_begin + row));
        u32 *counter = a.arrivals + (size_t)row * (size_t)a.n_kv_heads + work.head;
        const bool last = atomic_add_acq_rel(counter, 1) + 1 == n;
        if (last) st_global(counter, 0u);
        st_shared(flags + (u32)t * 4, (u32)last);
    }
    sync_own<S>();
    over_units<S>(a, work, [&](const auto &u) { merge_units(a, work, u, flags); });
}

#endif
