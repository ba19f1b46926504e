/*
 * Random cases for one kernel: compared with the reference within a tolerance, and with itself bit by bit.
 *
 * A case (case.h) is first computed in one call, then divided into other calls and orders, with everything that a row does not
 * see replaced by NaN and infinities. The bits must not change. Some levels have the same bits as others.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/base/fp.h"
#include "chunkattn/base/half.h"

/* Results of rows: out [n_rows][d_v], lse [n_rows]. */
typedef struct result {
    float *out, *lse;
} result;

/* ---- Running a kernel ------------------------------------------------------------------------------------------------ */

/* How the rows of a case are divided into calls. */
typedef struct cut {
    const char *name;
    int32_t max_tile; /* calls of 1 to max_tile rows, in random order; 0: one call, in order */
    int32_t max_rows; /* compute this many rows, chosen at random */
    bool owned_only;  /* poison all slots that no row of the call sees */
} cut;

/* Open the slot group of the last slot that some row sees, or not, and any groups behind it. Returns the open groups. */
static uint32_t open_groups(const ca_layout *l, const tiles *x, int32_t most_seen, rng *r) {
    uint32_t open = 0;
    for (int32_t group = most_seen > 0 ? (most_seen - 1) / CA_SLOT_GROUP : 0; group < l->c / CA_SLOT_GROUP; group++) {
        if (l->open_words == 0 || rng_one_in(r, 2)) continue;
        ca_kv_transpose(l, x->k, group);
        open |= ca_slot_group_bit(group * CA_SLOT_GROUP);
    }
    return open;
}

/* Compute rows order[0..n) over one chunk, with states of their own. False if the kernel wrote next to K or V. */
static bool run_tile(const test_case *t, const ca_kernel *kernel, const cut *how, int32_t chunk, const int32_t *order,
                     int32_t n, const void *q, void *states, void *scratch, rng *r) {
    const ca_layout *l = &t->layout;
    int32_t n_seen[MAX_ROWS], n_hidden[MAX_ROWS], most = 0, least = l->c;
    float slopes[MAX_ROWS], distances[MAX_ROWS];
    bool hides = rng_one_in(r, 4); /* zeros mean the same as NULL */
    for (int32_t i = 0; i < n; i++) {
        n_hidden[i] = t->n_hidden[chunk][order[i]];
        slopes[i] = t->slopes[order[i]];
        distances[i] = t->distances[chunk][order[i]];
        hides = hides || n_hidden[i] > 0;
        n_seen[i] = t->n_seen[chunk][order[i]];
        most = n_seen[i] > most ? n_seen[i] : most;
        least = n_seen[i] < least ? n_seen[i] : least;
    }
    const int32_t end = how->owned_only ? most : l->c;
    tiles x = tiles_new(l), next = tiles_new(l);
    copy_slots(l, &x, &t->poison, 0, l->c);
    copy_slots(l, &x, &t->packed[chunk], 0, end);
    const uint32_t open = open_groups(l, &x, most, r);
    const ca_tile_options options = {.softcap = t->softcap,
                                     .slopes = t->alibi ? slopes : NULL,
                                     .distances = t->alibi ? distances : NULL,
                                     .n_hidden = hides ? n_hidden : NULL,
                                     .n_sink_slots = t->n_sink_slots[chunk]};
    const bool none = !t->alibi && !t->window && t->softcap == 0;
    const ca_tile tile = {.d_k = l->d_k,
                          .d_v = l->d_v,
                          .c = l->c,
                          .n_rows = n,
                          .q = q,
                          .state = states,
                          .n_seen = least == l->c && rng_one_in(r, 2) ? NULL : n_seen,
                          .k = x.k,
                          .v = x.v,
                          .open = open,
                          .next_k = rng_one_in(r, 2) ? next.k : NULL,
                          .next_v = rng_one_in(r, 2) ? next.v : NULL,
                          .scratch = scratch,
                          .options = none && rng_one_in(r, 2) ? NULL : &options};
    ca_kernel_attend(kernel, &tile);
    const bool intact = guard_check(x.k) && guard_check(x.v);
    tiles_free(&x), tiles_free(&next);
    return intact;
}

/* Compute rows order[0..n) in one call for each chunk. False if anything but the outputs was written. */
static bool run_rows(const test_case *t, const ca_kernel *kernel, const cut *how, const int32_t *order, int32_t n, result *to,
                     rng *r) {
    const int32_t d_k = t->layout.d_k, d_v = t->layout.d_v, n_segments = (t->n_chunks - 1) / t->chunks_per_segment + 1;
    const size_t query = kernel->query_bytes(d_k), state = kernel->state_bytes(d_v);
    char *q = guard_new(query * (size_t)n), *states = guard_new(state * (size_t)n * (size_t)n_segments);
    char *scratch = guard_new(kernel->scratch_bytes(d_k, d_v, t->layout.c));
    float *out = guard_new((size_t)d_v * sizeof(float)), *lse = guard_new(sizeof(float));

    for (int32_t i = 0; i < n; i++) kernel->pack_query(t->q + order[i] * d_k, d_k, 1, d_k, t->scale, q + (size_t)i * query);
    kernel->init(states, n * n_segments, d_v);
    bool intact = true;
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++) {
        char *segment = states + state * (size_t)(chunk / t->chunks_per_segment * n);
        char *before = malloc(state * (size_t)n);
        memcpy(before, segment, state * (size_t)n);
        intact &= run_tile(t, kernel, how, chunk, order, n, q, segment, scratch, r);
        for (int32_t i = 0; i < n; i++) /* a row that sees nothing keeps its state */
            if (t->n_seen[chunk][order[i]] == 0 && memcmp(before + state * (size_t)i, segment + state * (size_t)i, state) != 0)
                intact = false;
        free(before);
    }
    for (int32_t i = 0; i < n; i++) {
        const void *of_row[MAX_CHUNKS];
        for (int32_t s = 0; s < n_segments; s++) of_row[s] = states + state * (size_t)(s * n + i);
        kernel->merge(of_row, n_segments, d_v, t->sinks[order[i]], out, lse);
        memcpy(to->out + order[i] * d_v, out, (size_t)d_v * sizeof(float));
        to->lse[order[i]] = *lse;
    }
    intact = intact && guard_check(q) && guard_check(states) && guard_check(scratch) && guard_check(out) && guard_check(lse);
    guard_free(q), guard_free(states), guard_free(scratch), guard_free(out), guard_free(lse);
    return intact;
}

static bool run_case(const test_case *t, const ca_kernel *kernel, const cut *how, result *to, rng *r) {
    int32_t order[MAX_ROWS];
    for (int32_t i = 0; i < t->n_rows; i++) order[i] = i;
    if (!how->max_tile) return run_rows(t, kernel, how, order, t->n_rows, to, r);

    for (int32_t i = t->n_rows - 1; i > 0; i--) {
        const int32_t j = rng_below(r, i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    const int32_t n_rows = t->n_rows < how->max_rows ? t->n_rows : how->max_rows;
    bool intact = true;
    for (int32_t i = 0, n; i < n_rows; i += n) {
        n = 1 + rng_below(r, how->max_tile);
        if (n > n_rows - i) n = n_rows - i;
        intact &= run_rows(t, kernel, how, order + i, n, to, r);
    }
    return intact;
}

/* ---- The reference and its tolerance --------------------------------------------------------------------------------- */

/* A textbook softmax for one row, with which the reference level itself is compared. */
static void naive_row(const test_case *t, int32_t row, float *out, float *lse) {
    const ca_layout *l = &t->layout;
    static double s[MAX_CHUNKS][MAX_C];
    double max = t->sinks[row], sum = 0, o[MAX_DIM] = {0};
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++)
        for (int32_t slot = 0; slot < t->n_seen[chunk][row]; slot++) {
            double dot = 0;
            for (int32_t i = 0; i < l->d_k; i++) dot += t->q[row * l->d_k + i] * t->k[chunk][slot * l->d_k + i];
            dot *= t->scale;
            if (t->softcap > 0) dot = t->softcap * tanh(dot / t->softcap);
            if (t->alibi) dot += t->slopes[row] * ((double)t->distances[chunk][row] + slot);
            s[chunk][slot] = dot;
            if (slot < t->n_hidden[chunk][row] && slot >= t->n_sink_slots[chunk]) s[chunk][slot] = -INFINITY;
            max = fmax(max, s[chunk][slot]);
        }
    if (t->sinks[row] > -INFINITY) sum = exp2(t->sinks[row] - max);
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++)
        for (int32_t slot = 0; slot < t->n_seen[chunk][row]; slot++) {
            if (s[chunk][slot] == -INFINITY) continue;
            const double p = exp2(s[chunk][slot] - max);
            sum += p;
            for (int32_t i = 0; i < l->d_v; i++) o[i] += p * t->v[chunk][slot * l->d_v + i];
        }
    for (int32_t i = 0; i < l->d_v; i++) out[i] = sum > 0 ? (float)(o[i] / sum) : 0;
    *lse = (float)(max + log2(sum));
}

static bool rounds_to_bf16(const ca_kernel *kernel) {
    return kernel->kv_type == CATTN_BF16 && (strcmp(kernel->level, "avx512_bf16") == 0 || strcmp(kernel->level, "amx") == 0);
}
static bool rounds_to_int8(const ca_kernel *kernel) { return kernel->kv_type == CATTN_I8 && strcmp(kernel->level, "ref") != 0; }

/* The largest permitted errors of a row's out and lse. */
typedef struct tolerance {
    double out, lse;
} tolerance;

/*
 * Let u = 2^-24 be the rounding of f32, and all bounds hold for ten deviations of roundings that fall at random.
 *
 * Scores. d partial sums of a random walk that ends at about |q||k|/sqrt(d), each rounded: the errors' deviation is about
 * 0.4 u |q||k|; 4 u |q||k| is ten of them. Where q is rounded to bf16 first (avx512_bf16 and amx, of bf16, unless q is a bf16
 * number), each term is off by up to 2^-8 of itself: a deviation of 2^-8/sqrt(3) |q||k|/sqrt(d). Where it is rounded to int8
 * (all levels but ref, of int8), each q is off by up to half of max|q|/127: a deviation of max|q|/127/sqrt(12) |k|; such a
 * product of integers is exact, and what multiplies it rounds twice. So a weight is off by a factor within 2^+-e, and out, a
 * mean of v under such weights, by 2 (2^e - 1) max|v|. tanh has a slope of at most 1, and adds 5 u of the cap for itself, 2 u
 * for its argument and its product; ALiBi's sum is rounded once, its distance is exact. Weights. 4 u from exp2's polynomial;
 * rounded to bf16 for the second product, 2^-8. Rounded to 16 bits (with q in int8): weight times V's scale is off by up to
 * half of 2^-15 of the chunk's largest; that times at most 127, over n slots, deviates by 2^-15/sqrt(12) max|v| sqrt(n). Sums
 * over n slots, and over the last few steps: 6 u sqrt(n). Underflow. Denormal v and denormal results become zero: 2^-125. Each
 * step may flush 2^-126 in O while the largest weight is only 2^-32: n 2^-94; of int8, where it is weight times scale that may
 * be flushed, 127 times that. What is 2^94 smaller than the largest weight is lost. Denormal q k is nothing beside the errors
 * above.
 */
static tolerance tolerance_of(const test_case *t, int32_t row, const float *lse) {
    const ca_layout *l = &t->layout;
    double q2 = 0, q_max = 0, k2_max = 0, v_max = 0, n = 0;
    bool finite = true;
    for (int32_t i = 0; i < l->d_k; i++) {
        const double q = fabs((double)t->q[row * l->d_k + i] * t->scale);
        q_max = fmax(q_max, q);
        q2 += q * q;
    }
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++)
        for (int32_t slot = 0; slot < t->n_seen[chunk][row]; slot++) {
            double k2 = 0;
            for (int32_t i = 0; i < l->d_k; i++) k2 += pow(t->k[chunk][slot * l->d_k + i], 2);
            k2_max = fmax(k2_max, k2);
            finite = finite && isfinite(k2);
            for (int32_t i = 0; i < l->d_v; i++) {
                const double v = fabs(t->v[chunk][slot * l->d_v + i]);
                v_max = fmax(v_max, v);
                finite = finite && isfinite(v);
            }
            n++;
        }
    if (!finite || !isfinite(q2)) return (tolerance){INFINITY, INFINITY};
    if (strcmp(t->kernel->level, "ref") == 0)
        return (tolerance){v_max * 0x1p-22 + 0x1p-125, fabs((double)*lse) * 0x1p-23 + 0x1p-30};

    const bool bf16 = rounds_to_bf16(t->kernel), int8 = rounds_to_int8(t->kernel);
    const double u = 0x1p-24, qk = sqrt(q2 * k2_max), sums = 6 * u * sqrt(n + 16);
    double e = 4 * u * qk + 0x1p-100;
    if (bf16 && !t->exact_q) e += 6 * 0x1p-8 * qk / sqrt(l->d_k);
    if (int8 && !t->exact_q) e += 3 * q_max / 127 * sqrt(k2_max);
    if (t->softcap > 0) e += 8 * u * t->softcap;
    if (t->alibi) e += 2 * u * (fabsf(t->slopes[row] * t->distances[0][row]) + qk);
    const double weights = (bf16 ? 0x1p-8 : int8 ? 3 * 0x1p-15 * sqrt(n) : 0) + 4 * u;
    const double flushed = (n + 1) * 0x1p-94 * (l->type == CATTN_I8 ? 127 : 1);
    return (tolerance){v_max * (2 * (exp2(e) - 1) + weights + sums + 0x1p-90) + flushed,
                       e + 4 * u + 2 * sums + fabs((double)*lse) * 2 * u};
}

/* ---- Checking -------------------------------------------------------------------------------------------------------- */

static bool fail(const test_case *t, const char *what, int32_t row) {
    static const char *const scores[] = {"small", "1e4", "2^300", "rising", "zero", "nonfinite"};
    static const char *const values[] = {"plain", "tiny", "sparse", "mixed", "even"};
    printf("FAILED %s %s: %s, row %d of %d; d_k %d d_v %d chunk %d n_chunks %d a segment %d scores %s values %s exact_q %d, "
           "softcap "
           "%g slope %g sink %g, sees",
           t->kernel->level, type_names[t->layout.type], what, row, t->n_rows, t->layout.d_k, t->layout.d_v, t->layout.c,
           t->n_chunks, t->chunks_per_segment, scores[t->scores], values[t->values], t->exact_q, t->softcap, t->slopes[row],
           t->sinks[row]);
    for (int32_t chunk = 0; chunk < t->n_chunks; chunk++)
        printf(" %d-%d+%d", t->n_hidden[chunk][row], t->n_seen[chunk][row], t->n_sink_slots[chunk]);
    printf("\n");
    return false;
}

static bool near(float a, float b, double tolerance) {
    return a == b || (isnan(a) && isnan(b)) || fabs((double)a - b) <= tolerance;
}

/*
 * Whether a row must give NaN with int8: it sees a token that was not finite, or it sees any token and its q, which the level
 * rounds, is not finite.
 */
static bool must_be_nan(const test_case *t, int32_t row) {
    const ca_layout *l = &t->layout;
    bool q_finite = true;
    for (int32_t i = 0; i < l->d_k && rounds_to_int8(t->kernel); i++) q_finite = q_finite && isfinite(t->q[row * l->d_k + i]);
    for (int32_t chunk = 0; chunk < t->n_chunks && l->type == CATTN_I8; chunk++)
        for (int32_t slot = 0; slot < t->n_seen[chunk][row]; slot++) {
            const bool hidden = slot < t->n_hidden[chunk][row] && slot >= t->n_sink_slots[chunk];
            if (!hidden && (!q_finite || isnan(t->k[chunk][slot * l->d_k]) || isnan(t->v[chunk][slot * l->d_v]))) return true;
        }
    return false;
}

static bool check_reference(const test_case *t, const result *got, result *want, rng *r) {
    static const cut whole = {.name = "whole"};
    const int32_t d_v = t->layout.d_v;
    if (strcmp(t->kernel->level, "ref") == 0)
        for (int32_t row = 0; row < t->n_rows; row++) naive_row(t, row, want->out + row * d_v, &want->lse[row]);
    else if (!run_case(t, ca_kernel_find(CA_LEVEL_ref, t->layout.type), &whole, want, r))
        return fail(t, "ref wrote out of bounds", 0);

    for (int32_t row = 0; row < t->n_rows; row++) {
        const tolerance may = tolerance_of(t, row, &want->lse[row]);
        if (!isfinite(may.out)) { /* it sees NaN or infinity, so it only has to be the same every time */
            for (int32_t i = row * d_v; i < (row + 1) * d_v && must_be_nan(t, row); i++)
                if (!isnan(got->out[i])) return fail(t, "not NaN, though its q or a token that it sees was not finite", row);
            continue;
        }
        if (!near(got->lse[row], want->lse[row], may.lse)) {
            printf("lse %.9g, reference %.9g, tolerance %.3g\n", got->lse[row], want->lse[row], may.lse);
            return fail(t, "lse", row);
        }
        for (int32_t i = row * d_v; i < (row + 1) * d_v; i++)
            if (!near(got->out[i], want->out[i], may.out)) {
                printf("out[%d] %.9g, reference %.9g, tolerance %.3g\n", i - row * d_v, got->out[i], want->out[i], may.out);
                return fail(t, "out", row);
            }
    }
    return true;
}

/* Whether the bits are the same, except that one NaN may be another. */
static bool same(const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (ca_f32_bits(a[i]) != ca_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

/* Compute the case with this kernel and division. All rows must equal those of base. */
static bool check_same(const test_case *t, const ca_kernel *kernel, const cut *how, const result *base, result *other, rng *r) {
    const int32_t d_v = t->layout.d_v;
    memcpy(other->out, base->out, (size_t)t->n_rows * (size_t)d_v * sizeof(float));
    memcpy(other->lse, base->lse, (size_t)t->n_rows * sizeof(float));
    if (!run_case(t, kernel, how, other, r)) return fail(t, "wrote out of bounds", 0);
    for (int32_t row = 0; row < t->n_rows; row++)
        if (!same(base->out + row * d_v, other->out + row * d_v, d_v) || !same(&base->lse[row], &other->lse[row], 1))
            return fail(t, how->name, row);
    return true;
}

/*
 * Whether a case must have the bits of avx2: with int8, which is multiplied in integers, and at avx512, which multiplies in f32
 * as well, unless scores are infinite (the weight of one of -infinity is 0 there, and NaN at avx2).
 */
static bool agrees_with_avx2(const test_case *t) {
    return rounds_to_int8(t->kernel) || (strcmp(t->kernel->level, "avx512") == 0 && t->scores != SCORES_NONFINITE);
}

static bool check_case(test_case *t, rng *r) {
    static const cut whole = {.name = "whole"}, on_avx2 = {.name = "not the bits of avx2"};
    static const cut cuts[] = {
        {.name = "whole, again, unseen poisoned", .owned_only = true},
        {.name = "rows alone, unseen poisoned", .max_tile = 1, .max_rows = 8, .owned_only = true},
        {.name = "random tiles", .max_tile = 24, .max_rows = MAX_ROWS},
        {.name = "random tiles, unseen poisoned", .max_tile = 40, .max_rows = MAX_ROWS, .owned_only = true},
    };
    const size_t n_out = (size_t)t->n_rows * (size_t)t->layout.d_v;
    result base = {guard_new(n_out * sizeof(float)), guard_new((size_t)t->n_rows * sizeof(float))};
    result other = {guard_new(n_out * sizeof(float)), guard_new((size_t)t->n_rows * sizeof(float))};
    make_case(t, r);

    const unsigned mode = ca_fp_enter();
    bool ok = run_case(t, t->kernel, &whole, &base, r) || fail(t, "wrote out of bounds", 0);
    for (size_t i = 0; ok && i < sizeof cuts / sizeof cuts[0]; i++) ok = check_same(t, t->kernel, &cuts[i], &base, &other, r);
    if (ok && agrees_with_avx2(t))
        ok = check_same(t, ca_kernel_find(ca_level_find("avx2"), t->layout.type), &on_avx2, &base, &other, r);
    ca_fp_leave(mode);
    ok = ok && check_reference(t, &base, &other, r);

    free_case(t);
    guard_free(base.out), guard_free(base.lse), guard_free(other.out), guard_free(other.lse);
    return ok;
}

/* Every number of rows, and every pair of head sizes with every chunk size; the rest at random. */
bool check_kernel(const ca_kernel *kernel, uint64_t seed, int32_t every, int32_t only) {
    const bool ref = strcmp(kernel->level, "ref") == 0;
    const int32_t n = CA_N_HEAD_SIZES, n_shapes = n * n * N_CHUNK_SIZES;
    bool ok = true;
    for (int32_t i = 0; i < MAX_ROWS + n_shapes && ok; i++) {
        if (only >= 0 ? i != only : (uint64_t)i % (uint64_t)every != seed % (uint64_t)every) continue;
        rng r = {seed + (uint64_t)i};
        test_case t = {.kernel = kernel};
        const int32_t shape = i < MAX_ROWS ? rng_below(&r, n_shapes) : i - MAX_ROWS;
        t.layout = layout_of(kernel->kv_type, ca_head_sizes[shape % n], ca_head_sizes[shape / n % n], 16 << shape / (n * n));
        t.n_rows = i < MAX_ROWS ? i + 1 : 1 + rng_below(&r, ref ? 4 : 40);
        t.n_chunks = 1 + rng_below(&r, t.layout.c > 64 || (ref && i % 8) ? 3 : MAX_CHUNKS);
        t.chunks_per_segment = 1 + rng_below(&r, 3);
        t.scores = (enum scores)rng_below(&r, N_SCORES);
        t.values = (enum values)rng_below(&r, N_VALUES);
        t.exact_q = rng_one_in(&r, 2);
        ok = check_case(&t, &r);
        if (!ok)
            printf("reproduce: kcheck --seed %llu --level %s --type %s --case %d\n", (unsigned long long)seed, kernel->level,
                   type_names[kernel->kv_type], i);
    }
    return ok;
}
