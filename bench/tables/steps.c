/*
 * The paper's measurements of one step of one layer, and prefill: each is a list of points, at which all methods take the same
 * step.
 *
 *   table3    a decode step by prompt length and shared part
 *   fig3      decode throughput while completions diverge behind a shared prompt
 *   fig4      decode throughput by batch size; and, as in the paper's submission, by shared length
 *   prefill   a causal prefill of one sequence, against the arithmetic peak
 */
#include <string.h>

#include "bench/methods/compare.h"

enum { BATCH = 32, HEADS = 32, COMPLETION = 64 };

/* Sequences with the first `shared` tokens in common, and `own` more each. */
typedef struct point {
    int32_t batch;
    int64_t shared, own;
    int32_t kv_heads; /* 0: HEADS */
} point;

/* The keys that a row has besides those of compare_row; NULL: no row is added. */
typedef json_t *describe(const point *p, const comparison *c, int i);

static bool run_point(bench *b, const point *p, bool prefill, describe *own) {
    static comparison c;
    shape s = compare_paper_shape(b, HEADS, p->kv_heads ? p->kv_heads : HEADS);
    s.batch = b->quick && p->batch > 8 ? 8 : p->batch;
    s.shared = compare_length(b, p->shared);
    s.prefix = s.shared + compare_length(b, p->own) - prefill; /* the last token of a prompt, too, is one of the step's */
    s.prefill = prefill;
    if (!(prefill ? compare_run_chunk : compare_run)(b, &s, &c)) return false;
    for (int i = 0; i < c.n; i++) {
        json_t *keys = own(p, &c, i);
        if (!keys) continue;
        json_t *row = compare_row(b, &c, i);
        json_object_update_new(row, keys);
        bench_add(b, row);
    }
    return true;
}

/* Up to a point without sequences. */
static bool run_points(bench *b, const point *points, bool prefill, describe *own) {
    for (const point *p = points; p->batch; p++)
        if (!run_point(b, p, prefill, own)) return false;
    return true;
}

/* ---- Table 3 ---- */

static json_t *describe_table3(const point *p, const comparison *c, int i) {
    (void)c, (void)i;
    char pair[32];
    const int prompt = (int)(p->shared + p->own), shared = (int)p->shared;
    snprintf(pair, sizeof pair, "%d/%d", prompt, shared);
    return json_pack("{si si ss}", "prompt", prompt, "shared", shared, "pair", pair);
}

static bool measure_table3(bench *b) {
    static const point points[] = {
        {BATCH, 0, 1024, 0},
        {BATCH, 512, 512, 0},
        {BATCH, 768, 256, 0},
        {BATCH, 1024, 0, 0},
        {BATCH, 0, 2048, 0},
        {BATCH, 1024, 1024, 0},
        {BATCH, 1536, 512, 0},
        {BATCH, 2048, 0, 0},
        {BATCH, 0, 4096, 0},
        {BATCH, 2048, 2048, 0},
        {BATCH, 3072, 1024, 0},
        {BATCH, 4096, 0, 0},
        {0},
    };
    return run_points(b, points, false, describe_table3);
}

const bench_command command_table3 = {
    .name = "table3",
    .about = "the paper's Table 3: a decode step by prompt length and shared part",
    .options = {compare_step_options, compare_method_options},
    .prepare = compare_prepare,
    .title = "One decode step of one layer: 32 sequences, 32 heads of 128, chunks of 64; n_p prompt tokens, n_s of them shared",
    .columns = (const bench_column[]){{"prompt", "n_p", 0},
                                      {"shared", "n_s", 0},
                                      COMPARE_COLUMNS,
                                      {"times_faster_than.paged", "/ paged", 2},
                                      {"times_faster_than.paged_shared", "/ paged_shared", 2},
                                      {0}},
    .note = "/ method: how many times faster than it.\n",
    .plot = &(const bench_plot){.kind = "dots",
                                .x = "pair",
                                .y = "step_us",
                                .series = "method",
                                .y_label = "µs for a decode step, by prompt tokens / shared ones",
                                .accent = "chunk",
                                .log_y = true},
    .measure = measure_table3,
    .in_paper = true,
};

/* ---- Figure 3 ---- */

/*
 * Throughput is n_c * batch / t, cumulative from the start of decoding, of kernel time. The latency of a step is measured at
 * several n_c in ascending order and interpolated linearly, since each further token is one more token to read.
 */
static json_t *describe_fig3(const point *p, const comparison *c, int i) {
    static double time_us[N_METHODS], last_us[N_METHODS];
    static int64_t last[N_METHODS]; /* completion tokens of the point before */
    if (p->own == 0) time_us[i] = 0;
    if (p->own > 0) time_us[i] += (double)(p->own - last[i]) * (compare_us(c, i) + last_us[i]) / 2;
    last_us[i] = compare_us(c, i);
    last[i] = p->own;
    if (p->own == 0) return NULL;
    return json_pack("{sI sI sf}", "prompt", (json_int_t)p->shared, "completion", (json_int_t)p->own, "tokens_per_s",
                     (double)p->own * c->shape->batch / time_us[i] * 1e6);
}

static bool measure_fig3(bench *b) {
    static const int64_t prompts[] = {1024, 2048, 4096}, completions[] = {0, 64, 128, 256, 512, 1024, 2048};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 7; k++)
            if (!run_point(b, &(point){BATCH, prompts[i], completions[k], 0}, false, describe_fig3)) return false;
    return true;
}

const bench_command command_fig3 = {
    .name = "fig3",
    .about = "the paper's Figure 3: decode throughput while completions diverge",
    .options = {compare_step_options, compare_method_options},
    .prepare = compare_prepare,
    .title =
        "Decode throughput of one layer after n_c completion tokens behind a shared prompt of n_s: 32 sequences, 32 heads of "
        "128, chunks of 64",
    .columns = (const bench_column[]){{"prompt", "n_s", 0},
                                      {"completion", "n_c", 0},
                                      {"tokens_per_s", "tokens/s", 0},
                                      COMPARE_COLUMNS,
                                      {"times_faster_than.paged", "step / paged", 2},
                                      {"times_faster_than.paged_shared", "/ paged_shared", 2},
                                      {0}},
    .note = "tokens/s: n_c * batch / time, from the start of decoding. The other columns are of the step after n_c tokens.\n",
    .plot = &(const bench_plot){.kind = "lines",
                                .x = "completion",
                                .y = "tokens_per_s",
                                .series = "method",
                                .panel = "prompt",
                                .panel_label = "shared tokens: ",
                                .x_label = "completion tokens",
                                .y_label = "tokens/s since decoding began, one layer",
                                .accent = "chunk",
                                .log_x = true,
                                .log_y = true},
    .measure = measure_fig3,
    .in_paper = true,
};

/* ---- Figure 4 ---- */

/* Throughput of the first COMPLETION tokens. Latency grows linearly over them, so the step in their middle has the average. */
static json_t *throughput(const point *p, const comparison *c, int i, const char *varied, const char *panel, int64_t value) {
    return json_pack("{ss si sI ss sI sf}", "varied", varied, "batch", p->batch, "shared", (json_int_t)p->shared, "panel",
                     panel, "value", (json_int_t)value, "tokens_per_s", c->shape->batch / compare_us(c, i) * 1e6);
}

static json_t *describe_batch(const point *p, const comparison *c, int i) {
    return throughput(p, c, i, "batch", "sequences behind 2048 shared tokens", p->batch);
}

static json_t *describe_shared(const point *p, const comparison *c, int i) {
    return throughput(p, c, i, "shared", "shared tokens of 32 sequences", p->shared);
}

static bool measure_fig4(bench *b) {
    static const int32_t batches[] = {1, 2, 4, 8, 16, 32, 48, 64, 96};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        if (!run_point(b, &(point){batches[i], 2048, COMPLETION / 2, 0}, false, describe_batch)) return false;
    for (int64_t shared = 256; shared <= 8192; shared *= 2)
        if (!run_point(b, &(point){BATCH, shared, COMPLETION / 2, 0}, false, describe_shared)) return false;
    return true;
}

const bench_command command_fig4 = {
    .name = "fig4",
    .about = "the paper's Figure 4: decode throughput by batch and by shared length",
    .options = {compare_step_options, compare_method_options},
    .prepare = compare_prepare,
    .title = "Decode throughput of one layer over 64 completion tokens behind a shared prompt, by batch and by shared length "
             "n_s: 32 "
             "heads of 128, chunks of 64",
    .columns = (const bench_column[]){{"varied", "varied", -8},
                                      {"batch", "batch", 0},
                                      {"shared", "n_s", 0},
                                      {"tokens_per_s", "tokens/s", 0},
                                      COMPARE_COLUMNS,
                                      {"times_faster_than.paged", "/ paged", 2},
                                      {"times_faster_than.paged_shared", "/ paged_shared", 2},
                                      {0}},
    .note = "/ method: how many times faster than it.\n",
    .plot = &(const bench_plot){.kind = "lines",
                                .x = "value",
                                .y = "tokens_per_s",
                                .series = "method",
                                .panel = "panel",
                                .y_label = "tokens/s, one layer",
                                .accent = "chunk",
                                .log_x = true,
                                .from_zero = true},
    .measure = measure_fig4,
    .in_paper = true,
};

/* ---- Prefill ---- */

static json_t *describe_prefill(const point *p, const comparison *c, int i) {
    char text[32];
    snprintf(text, sizeof text, "%d/%d", HEADS, p->kv_heads);
    return json_pack("{ss sI sf}", "head_counts", text, "tokens", (json_int_t)c->shape->prefix + 1, "attend_ms",
                     compare_us(c, i) * 1e-3);
}

static bool measure_prefill(bench *b) {
    static const point points[] = {{1, 0, 1024, 32}, {1, 0, 2048, 32}, {1, 0, 4096, 32},
                                   {1, 0, 8192, 32}, {1, 0, 1024, 8},  {1, 0, 2048, 8},
                                   {1, 0, 4096, 8},  {1, 0, 8192, 8},  {0}};
    return run_points(b, points, true, describe_prefill);
}

const bench_command command_prefill = {
    .name = "prefill",
    .about = "a causal prefill of one sequence, against the arithmetic peak",
    .options = {compare_step_options},
    .prepare = compare_prepare,
    .title = "Causal prefill of one sequence in one step of one layer: heads of 128, chunks of 64; the causal half is counted",
    .columns = (const bench_column[]){{"head_counts", "heads", -6},
                                      {"tokens", "tokens", 0},
                                      {"level", "level", -12},
                                      {"attend_ms", "attend ms", 2},
                                      {"gflops", "GFLOP/s", 1},
                                      {"peak_fraction", "of peak", 3},
                                      {0}},
    .plot = &(const bench_plot){.kind = "lines",
                                .x = "tokens",
                                .y = "gflops",
                                .series = "head_counts",
                                .x_label = "tokens",
                                .y_label = "GFLOP/s, the causal half counted",
                                .log_x = true,
                                .from_zero = true},
    .measure = measure_prefill,
    .in_paper = true,
};
