/*
 * What happens behind a segment: sums fold, and a row is normalised and written by the job that completes it.
 *
 * A sum is (O, M, l): O and l are in units of 2^M. Folding b onto a scales both to the larger M, by powers of 2. Threads work
 * on four dimensions of a row at a time, and each holds M and l of its row, too.
 */
#ifndef LIB_CUDA_MERGE_CUH
#define LIB_CUDA_MERGE_CUH

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

/* Normalise a row's sum over everything that it sees. The sink logit joins as a slot with V = 0. */
template <element E> DEV void finish(const ca_cuda_attend_args &a, int plan_row, const row_place &p, int unit, sum4 s) {
    const float sink = a.sinks ? ld_global(a.sinks + p.query_head) : -INFINITY;
    const int row = ld_global(a.source + plan_row);
    float m = s.l == 0 ? -INFINITY : add_rn(s.m, -weight_exponent<E>), by = 1;
    if (sink > -INFINITY) {
        const float least = m;
        m = max_f32(m, sink);
        by = ex2(add_rn(least, -m));
        s.l = fma_rn(s.l, by, ex2(add_rn(sink, -m)));
    }
    by = s.l == 0 ? 0 : mul_rn(by, rcp_rn(s.l));
    UNROLL for (int i = 0; i < 4; i++) s.o.v[i] = add_rn(mul_rn(s.o.v[i], by), 0); /* no -0 */
    store_output(a.out, row, p.query_head, unit, s.o);
    if (unit == 0 && a.lse)
        st_global(a.lse + (size_t)row * (size_t)(a.n_kv_heads * a.group) + p.query_head,
                  s.l == 0 ? -INFINITY : add_rn(m, lg2(s.l)));
}

/* ---- The last arriver ---- */

enum { UNDER_WAY = 8 }; /* states whose loads do not wait for each other */

/* Merge all states of a row in the order of its list. */
template <int D> DEV sum4 merge_states(const ca_cuda_attend_args &a, int plan_row, const row_place &p, int unit) {
    const int begin = ld_global(a.merge_begin + plan_row), end = ld_global(a.merge_begin + plan_row + 1);
    const row_place at_state = {0, p.query_head};
    sum4 sum = load_state<D>(a, state_row(a, ld_global(a.merge + begin), at_state), unit);
    for (int i = begin + 1; i < end; i += UNDER_WAY) {
        sum4 next[UNDER_WAY];
        UNROLL for (int j = 0; j < UNDER_WAY; j++) if (i + j < end) next[j] =
            load_state<D>(a, state_row(a, ld_global(a.merge + i + j), at_state), unit);
        UNROLL for (int j = 0; j < UNDER_WAY; j++) if (i + j < end) fold(sum, next[j]);
    }
    return sum;
}

/*
 * Count the arrival of a job's tokens, and merge and write those rows that are complete. All threads that work on them, whose
 * states are stored. flags: 4 bytes of shared memory for each token. Leaves the counters of complete rows zero.
 */
template <class S> DEV void arrive(const ca_cuda_attend_args &a, const ca_cuda_job &job, u32 flags) {
    sync_own<S>();
    const int t = own_thread<S>();
    if (t < job.n_tokens) {
        const int row = job.row + t;
        const u32 n = (u32)(ld_global(a.merge_begin + row + 1) - ld_global(a.merge_begin + row));
        u32 *counter = a.arrivals + (size_t)row * (size_t)a.n_kv_heads + job.head;
        const bool last = atomic_add_acq_rel(counter, 1) + 1 == n;
        if (last) st_global(counter, 0u);
        st_shared(flags + (u32)t * 4, (u32)last);
    }
    sync_own<S>();
    for (int i = t; i < job.n_tokens * a.group * (S::D / 4); i += S::THREADS) {
        const int unit = i % (S::D / 4);
        const row_place p = place_of(a, job.head, i / (S::D / 4));
        if (ld_shared<u32>(flags + (u32)p.token * 4) == 0) continue;
        finish<S::E>(a, job.row + p.token, p, unit, merge_states<S::D>(a, job.row + p.token, p, unit));
    }
}

/* One row's sum over a segment, as the job's flags say: onto what the previous job kept, then out or to its state. */
template <element E, int D>
DEV void settle(const ca_cuda_attend_args &a, const ca_cuda_job &job, int row, int unit, const sum4 &s) {
    const row_place p = place_of(a, job.head, row);
    sum4 sum = s;
    if (job.fold >= 0) {
        sum = load_state<D>(a, state_row(a, job.fold, p), unit);
        fold(sum, s);
    }
    if (job.flags & CA_CUDA_JOB_OUTPUT)
        finish<E>(a, job.row + p.token, p, unit, sum);
    else
        store_state<D>(a, state_row(a, job.state, p), unit, sum);
}

#endif
