/*
 * `cattn-bench table1`: what the parts of one layer compute and move by formula, in decode and in prefill, beside the times of
 * this library's attention, over K/V that is not shared, and of ChunkLlama's linear layers.
 */
#include <inttypes.h>

#include "bench/methods/compare.h"
#include "bench/shared/formulas.h"
#include "bench/shared/linear_time.h"

enum { N_CONTEXTS = 3, N_LENGTHS = 4, MAX_CASES = 64, QUICK_DIVISOR = 64, STEPS = 5 };

static int64_t n_embd = 4096, n_ff = 11008, n_vocab = 32000, heads = 32, kv_heads, head_dim = 128;
static int64_t max_batch = 128, max_gflop = 300, max_mib = 2200;
static const char *weights = "bf16";
static bool no_measure;
static const option_row options[] = {
    {"embd", OPTION_INT, &n_embd, 32, 65536, "D, size of a row between layers", 0},
    {"ff", OPTION_INT, &n_ff, 32, 262144, "F, inner size of the MLP", 0},
    {"vocab", OPTION_INT, &n_vocab, 1, 1 << 20, "outputs of the output layer", 0},
    {"heads", OPTION_INT, &heads, 1, 1024, "query heads", 0},
    {"kv-heads", OPTION_INT, &kv_heads, 0, 1024, "KV heads; 0: as many as query heads", 0},
    {"head-dim", OPTION_INT, &head_dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
    {"max-batch", OPTION_INT, &max_batch, 1, 4096, "batches are 1, 2, 4 and so on up to this", 0},
    {"no-measure", OPTION_FLAG, &no_measure, 0, 0, "formulas only", 0},
    {"max-gflop", OPTION_INT, &max_gflop, 1, 1 << 20, "do not measure steps that compute more", 0},
    {"max-mib", OPTION_INT, &max_mib, 1, 1 << 20, "do not measure attention that needs more memory", 0},
    {"weights", OPTION_TEXT, &weights, 0, 0, "of linear layers: a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k",
     0},
    {0}};

/* A step: decode has one row after n_context tokens, prefill n_rows after none. */
typedef struct step_case {
    bool prefill;
    int64_t batch, n_context, n_rows;
} step_case;

typedef struct table {
    bench *b;
    layer_shape shape;
    uint32_t weight_type;
    const cl_kernels *kernel;
    step_case cases[MAX_CASES];
    int n_cases;
} table;

static table the;

static const bench_column columns[] = {
    {"part", "part", -14},
    {"phase", "phase", -7},
    {"batch", "batch", 0},
    {"tokens", "tokens", 0},
    {"gflop", "GFLOP", 3},
    {"mbytes", "MB", 2},
    {"intensity", "FLOP/byte", 2},
    {"step_us", "us", 1},
    {"gflops", "GFLOP/s", 1},
    {"gbs", "GB/s", 1},
    {0},
};

static const bench_plot intensity_plot = {.kind = "points",
                                          .x = "intensity",
                                          .y = "gflops",
                                          .series = "part",
                                          .x_label = "FLOP/byte",
                                          .y_label = "GFLOP/s",
                                          .accent = "attention",
                                          .log_x = true,
                                          .log_y = true};

/* ---- Cases ---- */

static void add_case(table *t, bool prefill, int64_t batch, int64_t tokens) {
    if (t->b->quick) tokens /= QUICK_DIVISOR;
    t->cases[t->n_cases++] = prefill ? (step_case){true, batch, 0, tokens} : (step_case){false, batch, tokens, 1};
}

static void make_cases(table *t) {
    static const int64_t contexts[N_CONTEXTS] = {2048, 4096, 8192}, lengths[N_LENGTHS] = {1024, 2048, 4096, 8192};
    for (int64_t batch = 1; batch <= max_batch; batch *= 2)
        for (int i = 0; i < N_CONTEXTS; i++) add_case(t, false, batch, contexts[i]);
    for (int i = 0; i < N_LENGTHS; i++) add_case(t, true, 1, lengths[i]);
    for (int64_t batch = 2; batch <= max_batch; batch *= 2) add_case(t, true, batch, lengths[0]);
}

/* Whether a case is a repetition: linear parts do not depend on the context, and the output layer costs the same in prefill as
 * in decode. */
static bool is_repeated(const table *t, layer_part part, int i) {
    const step_case *c = &t->cases[i];
    if (c->prefill) return part == LAYER_OUTPUT;
    return part != LAYER_ATTENTION && i > 0 && t->cases[i - 1].batch == c->batch;
}

static layer_cost cost_of(const table *t, layer_part part, const step_case *c) {
    return layer_cost_of(&t->shape, part, c->batch, c->n_context, c->n_rows);
}

static bool is_affordable(const table *t, layer_part part, const step_case *c) {
    return !no_measure && cost_of(t, part, c).flops <= 1e9 * (double)max_gflop;
}

/* us: microseconds, negative if not measured. */
static void add_row(table *t, layer_part part, const step_case *c, double us) {
    const layer_cost cost = cost_of(t, part, c);
    const bool tokens = part == LAYER_ATTENTION || c->prefill;
    bench_add(t->b,
              json_pack("{ss ss sI so sf sf sf so so so}", "part", layer_part_name(part), "phase",
                        c->prefill ? "prefill" : "decode", "batch", (json_int_t)c->batch, "tokens",
                        tokens ? json_integer(c->prefill ? c->n_rows : c->n_context) : json_null(), "gflop", cost.flops * 1e-9,
                        "mbytes", cost.bytes * 1e-6, "intensity", layer_cost_intensity(cost), "step_us", bench_number(us),
                        "gflops", bench_number(cost.flops / us * 1e-3), "gbs", bench_number(cost.bytes / us * 1e-3)));
}

/* ---- Linear parts ---- */

static int32_t linear_rows(const step_case *c) { return (int32_t)(c->batch * c->n_rows); }

static bool add_linear(table *t, layer_part part) {
    int32_t max_rows = 0;
    for (int i = 0; i < t->n_cases; i++) {
        const int32_t rows = linear_rows(&t->cases[i]);
        if (!is_repeated(t, part, i) && is_affordable(t, part, &t->cases[i]) && rows > max_rows) max_rows = rows;
    }
    linear_timer *timer = NULL;
    if (max_rows) {
        timer = linear_timer_create(&t->shape, part, t->weight_type, t->kernel, max_rows, compare_given.cold_bytes, t->b->pool);
        if (!timer) return false;
    }
    for (int i = 0; i < t->n_cases; i++) {
        const step_case *c = &t->cases[i];
        if (is_repeated(t, part, i)) continue;
        const bool measured = timer && is_affordable(t, part, c);
        add_row(t, part, c, measured ? linear_timer_us(timer, linear_rows(c), compare_given.n_steps) : -1);
    }
    linear_timer_destroy(&timer);
    return true;
}

/* ---- Attention ---- */

/* Time a step; *us stays negative if it needs more than --max-mib. */
static bool time_attention(const table *t, const step_case *c, double *us) {
    static comparison comparison;
    shape s = {.heads = t->shape.heads,
               .kv_heads = t->shape.kv_heads,
               .head_dim = t->shape.head_dim,
               .chunk = 64,
               .batch = (int32_t)c->batch,
               .prefix = c->n_context + c->n_rows - 1,
               .prefill = c->prefill,
               .kv_type = compare_given.kv_type,
               .cold_bytes = c->prefill ? 0 : compare_given.cold_bytes};
    if (method_bytes(METHOD_CHUNK, &s) > (double)max_mib * 0x1p20) return true;
    if (!compare_run_chunk(t->b, &s, &comparison)) return false;
    *us = compare_us(&comparison, 0);
    return true;
}

static bool add_attention(table *t) {
    for (int i = 0; i < t->n_cases; i++) {
        const step_case *c = &t->cases[i];
        double us = -1;
        if (is_affordable(t, LAYER_ATTENTION, c) && !time_attention(t, c, &us)) return false;
        add_row(t, LAYER_ATTENTION, c, us);
    }
    return true;
}

/* ---- The command ---- */

static bool prepare(bench *b) {
    if (!compare_prepare(b)) return false;
    if (compare_given.steps == 0) compare_given.n_steps = STEPS;
    if (kv_heads == 0) kv_heads = heads;
    if (heads % kv_heads) return bench_fail(b, "--heads must be a multiple of --kv-heads");
    if (heads * head_dim > METHOD_MAX_ROW) return bench_fail(b, "--heads times --head-dim must be at most %d", METHOD_MAX_ROW);
    the = (table){.b = b, .kernel = cl_kernels_find(compare_given.level)};
    if (!linear_time_type(weights, &the.weight_type))
        return bench_fail(b, "--weights must be a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k");
    if (!the.kernel) return bench_fail(b, "--level is no kernel level of this CPU");
    the.shape =
        (layer_shape){(int32_t)n_embd, (int32_t)n_ff, (int32_t)n_vocab, (int32_t)heads, (int32_t)kv_heads, (int32_t)head_dim};
    if (b->quick) {
        the.shape = (layer_shape){256, 512, 1000, 4, 4, 64};
        max_batch = max_batch < 4 ? max_batch : 4;
    }
    const layer_shape *s = &the.shape;
    snprintf(
        b->title, sizeof b->title,
        "One layer of the given shape: D = %d, F = %d, %d heads, %d KV heads, head size %d, vocabulary %d. Measured with %s "
        "K/V, %s attention kernels, %s weights, %s linear kernels; medians of %d",
        s->n_embd, s->n_ff, s->heads, s->kv_heads, s->head_dim, s->n_vocab, compare_given.kv_type_text,
        compare_given.level ? compare_given.level : "the best", weights, cl_kernels_level(the.kernel), compare_given.n_steps);
    return true;
}

static bool measure(bench *b) {
    (void)b;
    make_cases(&the);
    return add_linear(&the, LAYER_QKV) && add_attention(&the) && add_linear(&the, LAYER_MLP) && add_linear(&the, LAYER_OUTPUT);
}

const bench_command command_table1 = {
    .name = "table1",
    .about = "what one layer computes and moves, by formula and measured",
    .options = {options, compare_step_options},
    .prepare = prepare,
    .columns = columns,
    .note = "GFLOP, MB and FLOP/byte by formula, with elements of 16 bits; GB/s: the formula's bytes in the time measured.\n"
            "The output layer takes one row a sequence, in prefill as in decode.\n"
            "tokens: context in decode, length in prefill. A missing time was not measured, see --max-gflop and --max-mib.\n",
    .plot = &intensity_plot,
    .measure = measure,
    .in_paper = true,
};
