/*
 * `cattn-bench write`: the time to write K and V of a step's rows into packed chunks, beside the attention of the same step and
 * the linear layers around it.
 *
 * Steps write and attend layer after layer. All layers together hold more than the CPU's caches, so a layer is no longer cached
 * when the next step comes to it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/methods/method.h"
#include "bench/shared/linear_time.h"
#include "bench/shared/results.h"
#include "bench/shared/statistics.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn_inspect.h"

enum { FILL_ROWS = 256, MAX_STEPS = 256, LLAMA_2_7B_EMBD = 4096, LLAMA_2_7B_FF = 11008 };

typedef struct world {
    int32_t heads, kv_heads, dim, layers, batch;
    int32_t n_embd, n_ff;
    uint32_t weight_type;
    int64_t prefix;
    cattn_type type;
    const char *level;
    cattn_cache *cache;
    cattn_seq *seqs;
    cattn_entry *entries;
    float *rows, *q, *out; /* K and V, both the same: [rows][kv_heads][dim]; [rows][heads][dim] */
} world;

static bool ok(cattn_status status, const cattn_error *error) {
    if (status != CATTN_OK) fprintf(stderr, "cattn-bench write: %s\n", error->message);
    return status == CATTN_OK;
}

static cattn_view view_of(const float *data, int32_t heads, int32_t dim) {
    return (cattn_view){.data = (void *)data, .type = CATTN_F32, .row_stride = (int64_t)heads * dim, .head_stride = dim};
}

static bool write_layer(world *w, int32_t layer) {
    cattn_error error;
    const cattn_view kv = view_of(w->rows, w->kv_heads, w->dim);
    return ok(cattn_step_write(w->cache, layer, &kv, &kv, &error), &error);
}

static bool attend_layer(world *w, int32_t layer) {
    cattn_error error;
    const cattn_view q = view_of(w->q, w->heads, w->dim), out = view_of(w->out, w->heads, w->dim);
    return ok(cattn_step_attend(w->cache, layer, &q, &out, NULL, &error), &error);
}

/* Run a step of the first n entries; the times of all layers are added to *write_us and *attend_us unless they are NULL. */
static bool step(world *w, int32_t n, double *write_us, double *attend_us) {
    cattn_error error;
    if (!ok(cattn_step_begin(w->cache, w->entries, n, FILL_ROWS, &error), &error)) return false;
    for (int32_t layer = 0; layer < w->layers; layer++) {
        const double start = clock_seconds();
        if (!write_layer(w, layer)) return false;
        const double middle = clock_seconds();
        if (attend_us && !attend_layer(w, layer)) return false;
        if (write_us) *write_us += (middle - start) * 1e6 / w->layers;
        if (attend_us) *attend_us += (clock_seconds() - middle) * 1e6 / w->layers;
    }
    return ok(cattn_step_end(w->cache, &error), &error);
}

/* Join sequences that have the first `shared` tokens in common, and compute all but the last token of each. */
static bool fill(world *w, int64_t shared) {
    int32_t *tokens = malloc((size_t)(w->prefix + 1) * sizeof *tokens);
    bool fine = tokens;
    for (int32_t i = 0; fine && i < w->batch; i++) {
        cattn_error error;
        for (int64_t p = 0; p <= w->prefix; p++) tokens[p] = (int32_t)(p < shared ? p : (int64_t)(i + 1) << 20 | p);
        fine = ok(cattn_seq_join(w->cache, tokens, w->prefix + 1, NULL, &w->seqs[i], NULL, &error), &error);
        for (int64_t left = 1; fine && left > 0;) {
            cattn_seq_info info = {.struct_size = sizeof info};
            fine = ok(cattn_seq_get_info(w->cache, w->seqs[i], &info, &error), &error);
            left = w->prefix - info.n_ready;
            w->entries[0] = (cattn_entry){.seq = w->seqs[i], .max_rows = left < FILL_ROWS ? left : FILL_ROWS};
            if (fine && left > 0) fine = step(w, 1, NULL, NULL);
        }
    }
    free(tokens);
    return fine;
}

static bool decode(world *w, int64_t steps, double *write_us, double *attend_us) {
    const int32_t token = 5;
    for (int64_t i = -2; i < steps; i++) {
        double one[2] = {0, 0};
        for (int32_t s = 0; s < w->batch; s++) w->entries[s] = (cattn_entry){.seq = w->seqs[s], .max_rows = 1};
        if (!step(w, w->batch, &one[0], &one[1])) return false;
        for (int32_t s = 0; s < w->batch; s++) {
            cattn_error error;
            if (!ok(cattn_seq_append(w->cache, w->seqs[s], &token, 1, &error), &error)) return false;
        }
        if (i >= 0) write_us[i] = one[0], attend_us[i] = one[1];
    }
    return true;
}

/* Consecutive rows of one sequence, as in prefill; the sequence leaves after each step. */
static bool prefill(world *w, int64_t steps, double *write_us) {
    int32_t tokens[FILL_ROWS + 1];
    for (int32_t i = 0; i <= FILL_ROWS; i++) tokens[i] = 0x3fffffff - i;
    for (int64_t i = -2; i < steps; i++) {
        double one = 0;
        cattn_seq seq;
        cattn_error error;
        tokens[0] = (int32_t)i + 1000;
        if (!ok(cattn_seq_join(w->cache, tokens, FILL_ROWS + 1, NULL, &seq, NULL, &error), &error)) return false;
        w->entries[0] = (cattn_entry){.seq = seq, .max_rows = FILL_ROWS};
        if (!step(w, 1, &one, NULL) || !ok(cattn_seq_leave(w->cache, &seq, &error), &error)) return false;
        if (i >= 0) write_us[i] = one;
    }
    return true;
}

static bool create(world *w, int64_t shared, const bench_common *common) {
    const size_t rows = (size_t)(w->batch > FILL_ROWS ? w->batch : FILL_ROWS), kv_row = (size_t)w->kv_heads * (size_t)w->dim;
    const size_t token_bytes = 2 * kv_row * (w->type == CATTN_F32 ? 4 : 2), row = (size_t)w->heads * (size_t)w->dim;
    const double tokens = (double)shared + w->batch * (double)(w->prefix - shared + 256) + 4 * FILL_ROWS;
    cattn_config c;
    cattn_error error;
    w->layers = 1 + (int32_t)((double)(2 * ca_cpu_cache_bytes()) / (tokens * (double)token_bytes));
    if (common->quick) w->layers = 1;
    cattn_config_init(&c);
    c.n_layers = w->layers;
    c.n_heads = w->heads;
    c.n_kv_heads = w->kv_heads;
    c.head_dim = w->dim;
    c.kv_type = w->type;
    c.level = w->level;
    c.retention = CATTN_RETAIN_NONE;
    c.budget_bytes = (uint64_t)(tokens * (double)token_bytes * w->layers * 1.1) + ((uint64_t)1 << 28);
    c.n_threads = ca_pool_size(common->pool);
    c.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = common->pool};
    w->seqs = calloc((size_t)w->batch, sizeof *w->seqs);
    w->entries = calloc((size_t)w->batch, sizeof *w->entries);
    w->rows = malloc(rows * kv_row * sizeof(float));
    w->q = malloc(rows * row * sizeof(float));
    w->out = malloc(rows * row * sizeof(float));
    if (!w->seqs || !w->entries || !w->rows || !w->q || !w->out) return false;
    for (size_t i = 0; i < rows; i++) memcpy(w->rows + i * kv_row, method_kv_row(0, (int32_t)i, 0, 0), kv_row * sizeof(float));
    for (size_t i = 0; i < rows * row; i++) w->q[i] = w->rows[i % (rows * kv_row)];
    return ok(cattn_cache_create(&c, &w->cache, &error), &error);
}

static void destroy(world *w) {
    cattn_cache_destroy(&w->cache);
    free(w->seqs), free(w->entries), free(w->rows), free(w->q), free(w->out);
}

/* The linear parts of a layer for one row of each sequence, without attention's output layer, which the paper's Table 1 omits.
 */
static bool time_linear(const world *w, int64_t steps, const bench_common *common, double *us) {
    static const layer_part parts[] = {LAYER_QKV, LAYER_MLP};
    const layer_shape shape = {w->n_embd, w->n_ff, 0, w->heads, w->kv_heads, w->dim};
    for (int i = 0; i < 2; i++) {
        linear_timer *timer = linear_timer_create(&shape, parts[i], w->weight_type, cl_kernels_find(w->level), w->batch,
                                                  common->quick ? 0 : 2 * ca_cpu_cache_bytes(), common->pool);
        if (!timer) return false;
        *us += linear_timer_us(timer, w->batch, (int)steps);
        linear_timer_destroy(&timer);
    }
    return true;
}

/* The times of a layer; 0: not measured. */
typedef struct layer_times {
    double write_us, attend_us, linear_us;
} layer_times;

static double percent(const layer_times *t, double others_us) {
    return others_us > 0 ? 100 * t->write_us / (t->write_us + others_us) : 0;
}

static void add_row(results *r, const world *w, const char *what, int32_t n_rows, const layer_times *t) {
    const double mb = 2e-6 * n_rows * w->kv_heads * w->dim * sizeof(float);
    results_add(r, json_pack("{ss ss ss si si si si si sf so so so so sf}", "rows", what, "kv_type", compare_type_name(w->type),
                             "level", cattn_cache_level(w->cache), "n_rows", n_rows, "heads", w->heads, "kv_heads", w->kv_heads,
                             "head_dim", w->dim, "layers", w->layers, "write_us", t->write_us, "attend_us",
                             results_number(t->attend_us), "percent", results_number(percent(t, t->attend_us)), "linear_us",
                             results_number(t->linear_us), "layer_percent",
                             results_number(t->linear_us > 0 ? percent(t, t->attend_us + t->linear_us) : 0), "input_gbs",
                             mb / t->write_us * 1e3));
}

static bool measure(results *r, world w, int64_t shared, int64_t steps, double linear_us, const bench_common *common) {
    double write_us[MAX_STEPS], attend_us[MAX_STEPS];
    char what[64];
    bool fine = create(&w, shared, common) && fill(&w, shared) && decode(&w, steps, write_us, attend_us);
    if (fine) {
        snprintf(what, sizeof what, "decode, %" PRId64 " tokens, %" PRId64 " shared", w.prefix, shared);
        add_row(r, &w, what, w.batch,
                &(layer_times){statistics_median(write_us, (int)steps), statistics_median(attend_us, (int)steps), linear_us});
    }
    if (fine && shared > 0) {
        fine = prefill(&w, steps, write_us);
        if (fine) add_row(r, &w, "prefill", FILL_ROWS, &(layer_times){.write_us = statistics_median(write_us, (int)steps)});
    }
    destroy(&w);
    return fine;
}

static const results_column columns[] = {{"rows", "rows", -32},
                                         {"n_rows", "n", 0},
                                         {"kv_type", "K/V", -5},
                                         {"level", "level", -12},
                                         {"write_us", "write us", 1},
                                         {"attend_us", "attend us", 1},
                                         {"percent", "write %", 2},
                                         {"linear_us", "linear us", 1},
                                         {"layer_percent", "of layer %", 2},
                                         {"input_gbs", "input GB/s", 2}};

static const results_plot bars = {
    .kind = "bars", .x = "rows", .y = "percent", .series = "kv_type", .y_label = "writing, % of writing and attention"};

static const results_spec spec = {
    .name = "write",
    .title = "Writing K and V of one layer of a step, beside its attention; medians",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note =
        "write %: writing as a part of writing and attention together; of layer %: as a part of these, the QKV projection and "
        "the MLP. input GB/s: of the rows' K and V in f32.\n",
    .plot = &bars,
};

int bench_write(int argc, char **argv) {
    int64_t heads = 32, kv_heads = 0, dim = 128, n_embd = 0, n_ff = 0, batch = 32, prefix = 4096, steps = 0;
    const char *type = "bf16", *weights = "bf16", *level = NULL;
    const option_row rows[] = {
        {"heads", OPTION_INT, &heads, 1, 256, "query heads", 0},
        {"kv-heads", OPTION_INT, &kv_heads, 0, 256, "KV heads; 0: as many as query heads", 0},
        {"head-dim", OPTION_INT, &dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
        {"embd", OPTION_INT, &n_embd, 0, 65536, "D, size of a row between layers; 0: heads times head size", 0},
        {"ff", OPTION_INT, &n_ff, 0, 262144, "F, inner size of the MLP; 0: Llama-2-7B's part of D", 0},
        {"batch", OPTION_INT, &batch, 1, 256, "sequences", 0},
        {"prefix", OPTION_INT, &prefix, 1, 100000, "tokens in the cache before the step's own", 0},
        {"kv-type", OPTION_TEXT, &type, 0, 0, "how K and V are stored", 0},
        {"weights", OPTION_TEXT, &weights, 0, 0,
         "of linear layers: a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k", 0},
        {"level", OPTION_TEXT, &level, 0, 0, "highest kernel level; without it, the best of this CPU", 0},
        {"steps", OPTION_INT, &steps, 0, MAX_STEPS, "steps that are timed; 0: 15", 0},
    };
    bench_common common;
    option_list list = {0};
    options_add(&list, rows, sizeof rows / sizeof *rows);
    bench_common_options(&common, &list);
    const options_result read = options_read(argc, argv, &list, "the time to write K and V, as a part of a step");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    world w = {.heads = (int32_t)heads,
               .kv_heads = (int32_t)(kv_heads ? kv_heads : heads),
               .dim = (int32_t)dim,
               .n_embd = (int32_t)(n_embd ? n_embd : heads * dim),
               .batch = (int32_t)batch,
               .prefix = common.quick ? 100 : prefix,
               .level = level};
    w.n_ff = (int32_t)(n_ff ? n_ff : w.n_embd * LLAMA_2_7B_FF / LLAMA_2_7B_EMBD / 32 * 32);
    int t = 0;
    while (compare_type_name(t) && strcmp(compare_type_name(t), type) != 0) t++;
    if (!compare_type_name(t) || heads % w.kv_heads || w.kv_heads * w.dim > METHOD_MAX_ROW) {
        fprintf(stderr, "cattn-bench write: --kv-type must be a K/V type, --heads a multiple of --kv-heads, and --kv-heads "
                        "times --head-dim at most 32768\n");
        return 2;
    }
    if (!linear_time_type(weights, &w.weight_type) || !cl_kernels_find(level)) {
        fprintf(stderr, "cattn-bench write: --weights must be a GGUF type that ChunkLlama reads, such as bf16, q8_0 or q4_k, "
                        "and --level a kernel level of this CPU\n");
        return 2;
    }
    w.type = (cattn_type)t;
    if (steps == 0) steps = common.quick ? 2 : 15;
    if (!bench_common_start(&common, argv[0])) return 1;
    method_rows_init();
    results *r = results_open(&spec, &common);
    double linear_us = 0;
    bool fine = r && time_linear(&w, steps, &common, &linear_us) && measure(r, w, 0, steps, linear_us, &common) &&
                measure(r, w, w.prefix, steps, linear_us, &common);
    if (r) fine &= results_close(r);
    bench_common_stop(&common);
    return fine ? 0 : 1;
}
