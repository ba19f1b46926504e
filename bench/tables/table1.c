/*
 * `cattn-bench table1`: what the parts of one layer compute and move by formula, in decode and in prefill, beside the times of
 * this library's attention, over K/V that is not shared, and of ChunkLlama's linear layers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/shared/formulas.h"
#include "bench/shared/linear_time.h"
#include "bench/shared/prefill_time.h"
#include "bench/shared/results.h"
#include "chunkllama/model/model.h"

enum { N_CONTEXTS = 3, N_LENGTHS = 4, MAX_CASES = 64, QUICK_DIVISOR = 64 };

/* A step: decode has one row after n_context tokens, prefill n_rows after none. */
typedef struct step_case {
    bool prefill;
    int64_t batch, n_context, n_rows;
} step_case;

typedef struct table {
    layer_shape shape;
    const bench_common *common;
    compare_options attention; /* of decode */
    uint32_t weight_type;
    const cl_kernels *kernel;
    int64_t max_batch, max_gflop, max_mib;
    bool measure;
    results *results;
    step_case cases[MAX_CASES];
    int n_cases;
} table;

static const results_column columns[] = {
    {"part", "part", -14},    {"phase", "phase", -7}, {"batch", "batch", 0},         {"tokens", "tokens", 0},
    {"gflop", "GFLOP", 3},    {"mbytes", "MB", 2},    {"intensity", "FLOP/byte", 2}, {"step_us", "us", 1},
    {"gflops", "GFLOP/s", 1}, {"gbs", "GB/s", 1},
};

static const results_plot intensity_plot = {.kind = "points",
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
    if (t->common->quick) tokens /= QUICK_DIVISOR;
    t->cases[t->n_cases++] = prefill ? (step_case){true, batch, 0, tokens} : (step_case){false, batch, tokens, 1};
}

static void make_cases(table *t) {
    static const int64_t contexts[N_CONTEXTS] = {2048, 4096, 8192}, lengths[N_LENGTHS] = {1024, 2048, 4096, 8192};
    for (int64_t batch = 1; batch <= t->max_batch; batch *= 2)
        for (int i = 0; i < N_CONTEXTS; i++) add_case(t, false, batch, contexts[i]);
    for (int i = 0; i < N_LENGTHS; i++) add_case(t, true, 1, lengths[i]);
    for (int64_t batch = 2; batch <= t->max_batch; batch *= 2) add_case(t, true, batch, lengths[0]);
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
    return t->measure && cost_of(t, part, c).flops <= 1e9 * (double)t->max_gflop;
}

/* us: microseconds, negative if not measured. */
static void add_row(table *t, layer_part part, const step_case *c, double us) {
    const layer_cost cost = cost_of(t, part, c);
    const bool tokens = part == LAYER_ATTENTION || c->prefill;
    results_add(t->results, json_pack("{ss ss sI so sf sf sf so so so}", "part", layer_part_name(part), "phase",
                                      c->prefill ? "prefill" : "decode", "batch", (json_int_t)c->batch, "tokens",
                                      tokens ? json_integer(c->prefill ? c->n_rows : c->n_context) : json_null(), "gflop",
                                      cost.flops * 1e-9, "mbytes", cost.bytes * 1e-6, "intensity", layer_cost_intensity(cost),
                                      "step_us", results_number(us), "gflops", results_number(cost.flops / us * 1e-3), "gbs",
                                      results_number(cost.bytes / us * 1e-3)));
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
        timer =
            linear_timer_create(&t->shape, part, t->weight_type, t->kernel, max_rows, t->attention.cold_bytes, t->common->pool);
        if (!timer) return false;
    }
    for (int i = 0; i < t->n_cases; i++) {
        const step_case *c = &t->cases[i];
        if (is_repeated(t, part, i)) continue;
        const bool measured = timer && is_affordable(t, part, c);
        add_row(t, part, c, measured ? linear_timer_us(timer, linear_rows(c), (int)t->attention.steps) : -1);
    }
    linear_timer_destroy(&timer);
    return true;
}

/* ---- Attention ---- */

static bool fits(const table *t, double bytes) { return bytes <= (double)t->max_mib * 0x1p20; }

/* Time a decode step; *us stays negative if its K/V would exceed --max-mib. */
static bool time_decode(const table *t, const step_case *c, double *us) {
    token_tree tree = token_tree_of_prefix((int32_t)c->batch, c->n_context, 0);
    const shape s = {.heads = t->shape.heads,
                     .kv_heads = t->shape.kv_heads,
                     .head_dim = t->shape.head_dim,
                     .chunk = 64,
                     .tree = &tree,
                     .kv_type = t->attention.kv_type,
                     .cold_bytes = t->attention.cold_bytes};
    static comparison comparison;
    bool ok = true;
    if (fits(t, method_bytes(METHOD_CHUNK, &s))) {
        ok = compare_run(&t->attention, t->common, &s, NULL, 1, &comparison);
        if (ok) *us = compare_us(&comparison, 0);
    }
    token_tree_free(&tree);
    return ok;
}

static bool time_prefill(const table *t, const step_case *c, double *us) {
    const prefill_options options = {.kv_type = t->attention.kv_type,
                                     .level = t->attention.level,
                                     .chunk = 64,
                                     .n_steps = (int)t->attention.steps,
                                     .pool = t->common->pool};
    if (!fits(t, prefill_time_bytes(&t->shape, c->batch, c->n_rows))) return true;
    *us = prefill_time_us(&t->shape, c->batch, c->n_rows, &options);
    return *us >= 0;
}

static bool add_attention(table *t) {
    for (int i = 0; i < t->n_cases; i++) {
        const step_case *c = &t->cases[i];
        double us = -1;
        if (is_affordable(t, LAYER_ATTENTION, c) && !(c->prefill ? time_prefill : time_decode)(t, c, &us)) return false;
        add_row(t, LAYER_ATTENTION, c, us);
    }
    return true;
}

/* ---- The command ---- */

static bool run(table *t, const char *weights, const char *model) {
    const layer_shape *s = &t->shape;
    char title[512];
    snprintf(title, sizeof title,
             "One layer of %s: D = %d, F = %d, %d heads, %d KV heads, head size %d, vocabulary %d. Measured with %s K/V, %s "
             "attention kernels, %s weights, %s linear kernels; medians of %" PRId64,
             model, s->n_embd, s->n_ff, s->heads, s->kv_heads, s->head_dim, s->n_vocab, t->attention.kv_type_text,
             t->attention.level ? t->attention.level : "the best", weights, cl_kernels_level(t->kernel), t->attention.steps);
    const results_spec spec = {
        .name = "table1",
        .title = title,
        .columns = columns,
        .n_columns = sizeof columns / sizeof *columns,
        .note =
            "GFLOP, MB and FLOP/byte by formula, with elements of 16 bits; GB/s: the formula's bytes in the time measured.\n"
            "The output layer takes one row a sequence, in prefill as in decode.\n"
            "tokens: context in decode, length in prefill. A missing time was not measured, see --max-gflop and --max-mib."
            "\n",
        .plot = t->measure ? &intensity_plot : NULL,
    };
    make_cases(t);
    t->results = results_open(&spec, t->common);
    if (!t->results) return false;
    const bool ok = add_linear(t, LAYER_QKV) && add_attention(t) && add_linear(t, LAYER_MLP) && add_linear(t, LAYER_OUTPUT);
    return results_close(t->results) && ok;
}

static bool shape_of_model(const char *path, layer_shape *s) {
    ca_pool *pool = ca_pool_create(1);
    cl_model *m = NULL;
    cl_error error = {.message = "no memory"};
    const bool ok = pool && cl_model_load_on_pool(path, NULL, pool, &m, &error) == CL_OK;
    if (ok) {
        const cl_model_params *p = &m->params;
        *s = (layer_shape){p->n_embd, p->n_ff, p->n_vocab, p->n_heads, p->n_kv_heads, p->head_dim};
        cl_model_free(&m);
    } else {
        fprintf(stderr, "cattn-bench table1: %s\n", error.message);
    }
    ca_pool_destroy(&pool);
    return ok;
}

static int fail(const char *text) {
    fprintf(stderr, "cattn-bench table1: %s\n", text);
    return 2;
}

int bench_table1(int argc, char **argv) {
    static table t;
    int64_t n_embd = 4096, n_ff = 11008, n_vocab = 32000, heads = 32, kv_heads = 0, head_dim = 128;
    const char *model = NULL, *weights = "bf16";
    bool no_measure = false;
    bench_common common;
    t = (table){.common = &common, .attention = {.steps = 5, .kv_type_text = "bf16", .methods_text = "chunk"}};
    t.max_batch = 128;
    t.max_gflop = 300;
    t.max_mib = 2200;
    const option_row rows[] = {
        {"embd", OPTION_INT, &n_embd, 32, 65536, "D, size of a row between layers", 0},
        {"ff", OPTION_INT, &n_ff, 32, 262144, "F, inner size of the MLP", 0},
        {"vocab", OPTION_INT, &n_vocab, 1, 1 << 20, "outputs of the output layer", 0},
        {"heads", OPTION_INT, &heads, 1, 1024, "query heads", 0},
        {"kv-heads", OPTION_INT, &kv_heads, 0, 1024, "KV heads; 0: as many as query heads", 0},
        {"head-dim", OPTION_INT, &head_dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
        {"model", OPTION_TEXT, &model, 0, 0, "GGUF file whose shape is used instead", 0},
        {"max-batch", OPTION_INT, &t.max_batch, 1, 4096, "batches are 1, 2, 4 and so on up to this", 0},
        {"no-measure", OPTION_FLAG, &no_measure, 0, 0, "formulas only", 0},
        {"max-gflop", OPTION_INT, &t.max_gflop, 1, 1 << 20, "do not measure steps that compute more", 0},
        {"max-mib", OPTION_INT, &t.max_mib, 1, 1 << 20, "do not measure attention that needs more memory", 0},
        {"steps", OPTION_INT, &t.attention.steps, 1, COMPARE_MAX_STEPS, "steps of each; medians are reported", 0},
        {"kv-type", OPTION_TEXT, &t.attention.kv_type_text, 0, 0, "K/V of attention: f32, f16, bf16 or int8", 0},
        {"weights", OPTION_TEXT, &weights, 0, 0,
         "of linear layers: a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k", 0},
        {"level", OPTION_TEXT, &t.attention.level, 0, 0, "highest kernel level; without it, the best of this CPU", 0},
    };
    option_list list = {0};
    options_add(&list, rows, sizeof rows / sizeof *rows);
    bench_common_options(&common, &list);
    const options_result read =
        options_read(argc, argv, &list, "what one layer computes and moves by formula, and how long that takes");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    t.measure = !no_measure;
    if (kv_heads == 0) kv_heads = heads;
    if (heads % kv_heads) return fail("--heads must be a multiple of --kv-heads");
    if (kv_heads * head_dim > METHOD_MAX_ROW) return fail("--kv-heads times --head-dim must be at most 32768");
    if (!compare_check(&t.attention, argv[0], common.quick)) return 2;
    if (!linear_time_type(weights, &t.weight_type))
        return fail("--weights must be a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k");
    t.kernel = cl_kernels_find(t.attention.level);
    if (!t.kernel) return fail("--level is no kernel level of this CPU");
    t.shape =
        (layer_shape){(int32_t)n_embd, (int32_t)n_ff, (int32_t)n_vocab, (int32_t)heads, (int32_t)kv_heads, (int32_t)head_dim};
    if (model && !shape_of_model(model, &t.shape)) return 1;
    if (common.quick) {
        t.shape = (layer_shape){256, 512, 1000, 4, 4, 64};
        t.max_batch = t.max_batch < 4 ? t.max_batch : 4;
    }

    const bool ok = bench_common_start(&common, argv[0]) && run(&t, weights, model ? model : "the given shape");
    bench_common_stop(&common);
    return ok ? 0 : 1;
}
