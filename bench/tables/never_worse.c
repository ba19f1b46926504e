/*
 * `cattn-bench never_worse`: what sharing costs where nothing is shared, as the time of the sharing mode `shared` over that of
 * `private`.
 *
 * Kernel level: attention of a decode step over one layer. Model level: decode steps and prefill of a whole model, with
 * joining, planning and writing. bench/e2e/never_worse.py adds the served level. statistics.h describes how ratios are
 * measured.
 */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/loadgen/load_requests.h"
#include "bench/methods/method.h"
#include "bench/shared/statistics.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"
#include "chunkllama/engine/runner.h"

#define SHARED  PAIRED_A
#define PRIVATE PAIRED_B
static const double precision = 0.01, least_round_seconds = 2e-3;

static const bench_column columns[] = {{"level", "level", -8},
                                       {"work", "work", -47},
                                       {"shared_ms", "shared ms", 3},
                                       {"private_ms", "private ms", 3},
                                       {"ratio", "shared / private", 4},
                                       {"low", "95 % from", 4},
                                       {"high", "to", 4},
                                       {"rounds", "rounds", 0},
                                       {"flag", "", -24},
                                       {0}};

static const bench_plot dots = {.kind = "dots",
                                .x = "label",
                                .y = "ratio",
                                .series = "level",
                                .low = "low",
                                .high = "high",
                                .y_label = "time with sharing on / off, nothing in common, with 95 % intervals",
                                .mark = 1};

static int64_t seconds = 15;
static const char *model_path;
static const char *level;
static const option_row options[] = {
    {"level", OPTION_TEXT, &level, 0, 0, "highest kernel level of the kernel rows; without it, the best of this CPU", 0},
    {"model", OPTION_TEXT, &model_path, 0, 0, "GGUF file for the model level; without it, the kernel level alone", 0},
    {"seconds", OPTION_INT, &seconds, 1, 3600, "most seconds for the rounds of a row", 0},
    {0}};

static bench *the;
static paired pairs; /* of the current row */

static bool report(const char *message) { return bench_fail(the, "%s", message); }

/* What a row says besides its figures. */
static const char *flag_of(const paired_ratio *r) {
    if (r->n < PAIRED_LEAST_ROUNDS) return "too few rounds";
    if (r->low > 1 + precision) return "worse";
    return r->high - r->ratio > precision || r->ratio - r->low > precision ? "interval too wide" : "";
}

static void add_row(const char *level, const char *work, int n_steps) {
    const paired_ratio r = paired_evaluate(&pairs);
    char label[128];
    snprintf(label, sizeof label, "%s: %s", level, work);
    bench_add(the, json_pack("{ss ss ss sf sf sf sf sf si ss}", "level", level, "work", work, "label", label, "shared_ms",
                             r.seconds[SHARED] * 1e3 / n_steps, "private_ms", r.seconds[PRIVATE] * 1e3 / n_steps, "ratio",
                             r.ratio, "low", r.low, "high", r.high, "rounds", r.n, "flag", flag_of(&r)));
}

static paired_goal goal_of(void) {
    if (the->quick) return (paired_goal){.precision = 1, .cap = 0.1, .min_rounds = 2};
    return (paired_goal){.precision = precision, .cap = (double)seconds, .min_rounds = 30};
}

/* ---- Kernel level ---- */

/* The methods of a row are created several times, since where their memory lies has an influence. */
enum { N_CREATIONS = 4 };

static const struct { int32_t heads, kv_heads, head_dim; } head_shapes[] = {{32, 32, 128}, {9, 3, 64}};
static const int32_t batches[] = {1, 8, 32};
static const int64_t contexts[] = {16, 1024, 4096};
#define N_OF(array) ((int)(sizeof(array) / sizeof *(array)))

/* Both methods, and the number of steps of each in a round. */
typedef struct kernel_pair {
    method_id other; /* which the method chunk is compared with */
    method *methods[2];
    int32_t next_layer[2];
    int n_steps;
    float *q, *out;
} kernel_pair;

static bool attend_steps(void *ctx, paired_way way, double *seconds) {
    kernel_pair *k = ctx;
    method *m = k->methods[way];
    const double start = clock_seconds();
    for (int i = 0; i < k->n_steps; i++) {
        m->attend(m, k->next_layer[way], k->q, k->out);
        k->next_layer[way] = (k->next_layer[way] + 1) % m->n_layers;
    }
    *seconds = clock_seconds() - start;
    return true;
}

static void destroy_methods(kernel_pair *k) {
    for (int way = 0; way < 2; way++)
        if (k->methods[way]) k->methods[way]->destroy(k->methods[way]);
}

/* `first` is created first. */
static bool create_methods(kernel_pair *k, const shape *s, ca_pool *pool, int first) {
    for (int i = 0; i < 2; i++) {
        const int way = i ? !first : first;
        k->methods[way] = method_create(way == SHARED ? METHOD_CHUNK : k->other, s, pool);
        k->next_layer[way] = 0;
    }
    return k->methods[SHARED] && k->methods[PRIVATE];
}

/* Choose n_steps so that a round is long compared with the clock's resolution and short disturbances. Warms up both methods. */
static void choose_n_steps(kernel_pair *k) {
    double seconds = 0;
    for (k->n_steps = 1; seconds < least_round_seconds && k->n_steps < 1 << 12; k->n_steps *= 2) {
        double other;
        attend_steps(k, SHARED, &other);
        attend_steps(k, PRIVATE, &seconds);
    }
}

static bool run_kernel(const shape *s, kernel_pair *k, const char *work) {
    pairs.n = 0;
    const int n = the->quick ? 1 : N_CREATIONS;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        *k = (kernel_pair){.other = k->other, .n_steps = k->n_steps, .q = k->q, .out = k->out};
        ok = create_methods(k, s, the->pool, i % 2);
        if (ok && i == 0) choose_n_steps(k);
        const paired_goal goal = goal_of(), part = paired_goal_of_part(&goal, &pairs, i, n);
        ok = ok && paired_measure(&pairs, &part, attend_steps, k);
        destroy_methods(k);
    }
    if (ok) add_row("kernel", work, k->n_steps);
    return ok;
}

/* Twice the last-level cache, or what the largest number of layers reads. */
static size_t cold_bytes_of(const shape *s, bool quick) {
    enum { MAX_LAYERS = 4096 };
    const double cache = 2 * (double)ca_cpu_cache_bytes(), most = (MAX_LAYERS - 1) * method_layer_bytes(METHOD_PAGED, s);
    return quick ? 1 : (size_t)(cache < most ? cache : most);
}

static bool run_kernel_shape(shape s, method_id other, const char *work) {
    s.chunk = 64;
    s.kv_type = CATTN_BF16;
    s.level = level;
    s.cold_bytes = cold_bytes_of(&s, the->quick);
    kernel_pair k = {.other = other, .q = method_queries(&s)};
    k.out = malloc((size_t)(s.batch * s.heads * s.head_dim) * sizeof(float));
    bool ok = (k.q && k.out) || report("no memory for queries");
    ok = ok && run_kernel(&s, &k, work);
    free(k.q);
    free(k.out);
    return ok;
}

static bool run_private(int h, int32_t batch, int64_t context) {
    const shape s = {.heads = head_shapes[h].heads,
                     .kv_heads = head_shapes[h].kv_heads,
                     .head_dim = head_shapes[h].head_dim,
                     .batch = batch,
                     .prefix = context - 1};
    char work[64];
    snprintf(work, sizeof work, "%d x %d tokens, heads %d/%d of %d", batch, (int)context, s.heads, s.kv_heads, s.head_dim);
    return run_kernel_shape(s, METHOD_PAGED, work);
}

/* So little in common that sharing saves next to nothing. */
static bool run_little_shared(int32_t batch, int64_t shared) {
    const shape s = {.heads = 32,
                     .kv_heads = 8,
                     .head_dim = 128,
                     .batch = batch,
                     .shared = the->quick ? shared / 16 : shared,
                     .prefix = the->quick ? 32 : shared + 1023};
    for (int i = 0; i < 2; i++) {
        const method_id other = i ? METHOD_PAGED_SHARED : METHOD_PAGED;
        char work[64];
        snprintf(work, sizeof work, "%d x (%d shared + 1024), 32/8, over %s", batch, (int)shared, method_name(other));
        if (!run_kernel_shape(s, other, work)) return false;
    }
    return true;
}

static bool run_kernels(void) {
    static const int32_t some[] = {2, 8, 32};
    static const int64_t few[] = {16, 64, 256};
    for (int h = 0; h < N_OF(head_shapes); h++)
        for (int b = 0; b < N_OF(batches); b++)
            for (int c = 0; c < N_OF(contexts); c++)
                if (!run_private(h, batches[b], the->quick ? 16 : contexts[c])) return false;
    for (int b = 0; b < N_OF(some); b++)
        for (int c = 0; c < N_OF(few); c++)
            if (!run_little_shared(some[b], few[c])) return false;
    return true;
}

/* ---- Model level ---- */

enum { DECODED = 32, MAX_STEP_ROWS = 512 }; /* tokens decoded before sequences are cut back to their prompts */

/* n sequences in the cache of each mode, of equal lengths. */
typedef struct model_pair {
    cl_runner runners[2];
    int32_t n, context, n_vocab;
    int32_t *tokens;    /* [n][context + DECODED] */
    cattn_seq *seqs[2]; /* [n] */
    int32_t n_decoded[2];
    uint64_t n_prompts; /* so far, of both modes together */
    int n_steps;        /* decode steps in a round */
} model_pair;

static void choose_last(void *ctx, cl_runner *r) {
    (void)ctx;
    int32_t row = -1;
    for (int32_t e = 0; e < r->n_entries; e++) {
        row += (int32_t)r->entries[e].n_rows;
        if (r->entries[e].n_rows > 0) r->logit_rows[r->n_logits++] = row;
    }
}

/* Steps until no sequence has a token to compute. */
static bool compute(model_pair *m, paired_way way) {
    cl_runner *r = &m->runners[way];
    do {
        cl_error error;
        cl_runner_clear(r);
        for (int32_t i = 0; i < m->n; i++)
            cl_runner_add(r, m->seqs[way][i], r->max_rows, m->tokens + (size_t)i * (size_t)(m->context + DECODED));
        if (cl_runner_step(r, r->max_rows, choose_last, NULL, &error) != CL_OK) return report(error.message);
    } while (r->n_rows > 0);
    return true;
}

/* Random tokens, of which the first differs between any two prompts of the last n_vocab. */
static void draw_tokens(model_pair *m) {
    const int64_t n = m->context + DECODED;
    for (int32_t i = 0; i < m->n; i++) load_random_tokens(m->tokens + i * n, n, m->n_vocab, m->n_prompts++);
}

static bool join_all(model_pair *m, paired_way way) {
    cattn_error error;
    for (int32_t i = 0; i < m->n; i++)
        if (cattn_seq_join(m->runners[way].cache, m->tokens + (size_t)i * (size_t)(m->context + DECODED), m->context, NULL,
                           &m->seqs[way][i], NULL, &error) != CATTN_OK)
            return report(error.message);
    m->n_decoded[way] = 0;
    return true;
}

static bool leave_all(model_pair *m, paired_way way) {
    cattn_error error;
    for (int32_t i = 0; i < m->n; i++)
        if (cattn_seq_leave(m->runners[way].cache, &m->seqs[way][i], &error) != CATTN_OK) return report(error.message);
    return true;
}

/* Prompts join, are computed and leave. */
static bool prefill_round(void *ctx, paired_way way, double *seconds) {
    model_pair *m = ctx;
    draw_tokens(m);
    const double start = clock_seconds();
    const bool ok = join_all(m, way) && compute(m, way) && leave_all(m, way);
    *seconds = clock_seconds() - start;
    return ok;
}

/* Cut the sequences back to their prompts where the round would go beyond DECODED tokens. */
static bool make_room(model_pair *m, paired_way way) {
    cattn_error error;
    if (m->n_decoded[way] + m->n_steps <= DECODED) return true;
    for (int32_t i = 0; i < m->n; i++)
        if (cattn_seq_truncate(m->runners[way].cache, m->seqs[way][i], m->context, &error) != CATTN_OK)
            return report(error.message);
    m->n_decoded[way] = 0;
    return true;
}

static bool decode_round(void *ctx, paired_way way, double *seconds) {
    model_pair *m = ctx;
    cattn_error error;
    if (!make_room(m, way)) return false;
    const double start = clock_seconds();
    for (int step = 0; step < m->n_steps; step++, m->n_decoded[way]++) {
        for (int32_t i = 0; i < m->n; i++) {
            const int32_t *next = m->tokens + (size_t)i * (size_t)(m->context + DECODED) + m->context + m->n_decoded[way];
            if (cattn_seq_append(m->runners[way].cache, m->seqs[way][i], next, 1, &error) != CATTN_OK)
                return report(error.message);
        }
        if (!compute(m, way)) return false;
    }
    *seconds = clock_seconds() - start;
    return true;
}

static bool open_runners(model_pair *m, const cl_model *model, ca_pool *pool, uint64_t budget) {
    static const cattn_sharing modes[] = {[SHARED] = CATTN_SHARED, [PRIVATE] = CATTN_PRIVATE};
    cl_error error;
    for (int way = 0; way < 2; way++) {
        cl_engine_config config;
        cl_engine_config_init(&config);
        config.sharing = modes[way];
        config.retention = CATTN_RETAIN_NONE;
        if (cl_runner_init(&m->runners[way], model, pool, &config, budget, m->n, MAX_STEP_ROWS, m->n, &error) != CL_OK)
            return report(error.message);
        m->seqs[way] = calloc((size_t)m->n, sizeof *m->seqs[way]);
    }
    m->tokens = calloc((size_t)m->n * (size_t)(m->context + DECODED), sizeof *m->tokens);
    return (m->seqs[SHARED] && m->seqs[PRIVATE] && m->tokens) || report("no memory for tokens");
}

static void close_runners(model_pair *m) {
    for (int way = 0; way < 2; way++) {
        cl_runner_free(&m->runners[way]);
        free(m->seqs[way]);
    }
    free(m->tokens);
}

static bool run_decode(model_pair *m) {
    const paired_goal goal = goal_of();
    char work[64];
    snprintf(work, sizeof work, "decode, %d x %d tokens", m->n, m->context);
    draw_tokens(m);
    for (int way = 0; way < 2; way++)
        if (!join_all(m, way) || !compute(m, way)) return false;
    if (!paired_measure(&pairs, &goal, decode_round, m)) return false;
    add_row("model", work, m->n_steps);
    return leave_all(m, SHARED) && leave_all(m, PRIVATE);
}

static bool run_prefill(model_pair *m) {
    const paired_goal goal = goal_of();
    char work[64];
    double seconds;
    snprintf(work, sizeof work, "prefill, %d x %d tokens", m->n, m->context);
    if (!prefill_round(m, SHARED, &seconds) || !prefill_round(m, PRIVATE, &seconds)) return false; /* touches the memory */
    if (!paired_measure(&pairs, &goal, prefill_round, m)) return false;
    add_row("model", work, 1);
    return true;
}

/* K/V of the sequences in whole chunks, and workspace. */
static uint64_t budget_of(const cl_model_params *p, int32_t n, int32_t context) {
    const uint64_t token = cl_params_kv_bytes(p, 2, 0);
    return (uint64_t)n * (uint64_t)(context + DECODED + 128) * token * 5 / 4 + (UINT64_C(256) << 20);
}

static bool run_model_case(const cl_model *model, bool prefill, int32_t n, int32_t context) {
    model_pair m = {.n = n, .context = context, .n_vocab = model->params.n_vocab, .n_steps = n == 1 ? 4 : 1};
    pairs.n = 0;
    bool ok = open_runners(&m, model, the->pool, budget_of(&model->params, n, context));
    ok = ok && (prefill ? run_prefill(&m) : run_decode(&m));
    close_runners(&m);
    return ok;
}

static bool run_model(void) {
    static const struct {
        bool prefill;
        int32_t n, context;
    } cases[] = {{false, 1, 16},    {false, 1, 1024}, {false, 8, 1024}, {false, 32, 16},
                 {false, 32, 1024}, {true, 1, 1024},  {true, 32, 64}};
    cl_model *model;
    cl_error error;
    if (cl_model_load_on_pool(model_path, NULL, the->pool, &model, &error) != CL_OK) return report(error.message);
    bool ok = true;
    for (int i = 0; ok && i < N_OF(cases); i++)
        ok = run_model_case(model, cases[i].prefill, cases[i].n, the->quick ? 16 : cases[i].context);
    cl_model_free(&model);
    return ok;
}

static bool measure(bench *b) {
    the = b;
    return run_kernels() && (!model_path || run_model());
}

const bench_command command_never_worse = {
    .name = "never_worse",
    .about = "what sharing costs where nothing is shared, with confidence intervals",
    .options = {options},
    .title = "Time with sharing on over time with sharing off, for sequences that have nothing in common, or next to nothing",
    .columns = columns,
    .note =
        "Each round times both modes in random order, one directly after the other; ratio: the median of the rounds' ratios; "
        "95 %: the interval of the sign test. Rounds are added until both ends of the interval are within 0.01 of the ratio, "
        "or the time for the row is over. Flags: worse, the interval lies above 1.01; interval too wide, an end is more than "
        "0.01 from the ratio; too few rounds, fewer than six. kernel: attention of one layer, over that of pages, or of pages "
        "whose sequences are grouped where they share; model: a step through "
        "all layers, with joining or appending, planning and writing.\n",
    .plot = &dots,
    .measure = measure,
};
