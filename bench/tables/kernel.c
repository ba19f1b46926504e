/* `cattn-bench kernel`: the latency of one decode step over one layer, by several methods side by side. */
#include <inttypes.h>
#include <stdio.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/shared/formulas.h"
#include "bench/shared/results.h"

static const results_column columns[] = {
    COMPARE_COLUMNS,
    {"times_faster_than.naive", "/ naive", 2},
    {"times_faster_than.flash", "/ flash", 2},
    {"times_faster_than.paged", "/ paged", 2},
    {"times_faster_than.paged_shared", "/ paged_shared", 2},
    {"times_faster_than.chunk", "/ chunk", 2},
};

static const results_plot bars = {
    .kind = "bars", .x = "method", .y = "step_us", .series = "method", .y_label = "µs for a step", .accent = "chunk"};

static int fail(const char *text) {
    fprintf(stderr, "cattn-bench kernel: %s\n", text);
    return 2;
}

/* The number of positions below `end` that the row at position `prefix` sees. */
static int64_t n_seen(const shape *s, int64_t prefix, int64_t end) {
    const int64_t begin = s->window > 0 && prefix + 1 > s->window ? prefix + 1 - s->window : 0;
    const int64_t kept = s->sink_tokens < begin ? s->sink_tokens : begin;
    return (kept < end ? kept : end) + (end > begin ? end - begin : 0);
}

/* Under a window, steps compute and read less than the cache holds. */
static void count_seen(comparison *c, const shape *s, int64_t prefix, int64_t shared) {
    const int64_t all = n_seen(s, prefix, prefix + 1), common = n_seen(s, prefix, shared), batch = s->tree->n_seqs;
    for (int i = 0; i < c->n; i++) {
        const int64_t tokens = method_shares(c->of[i].id) ? common + batch * (all - common) : batch * all;
        c->flops[i] = formula_flops(s->heads, s->head_dim, (double)(batch * all));
        c->kv_bytes[i] = (double)tokens * (double)method_token_bytes(c->of[i].id, s);
    }
}

static bool knows_options(const compare_options *o) {
    for (int i = 0; i < o->n_methods; i++)
        if (o->methods[i] == METHOD_NAIVE || o->methods[i] == METHOD_FLASH) return false;
    return true;
}

static bool run(const bench_common *common, const compare_options *options, const shape *s, int64_t prefix, int64_t shared) {
    char title[320], window[96] = "";
    if (s->window > 0)
        snprintf(window, sizeof window, ", of which a row sees the last %d and the first %d", s->window, s->sink_tokens);
    snprintf(title, sizeof title,
             "%d heads, %d KV heads, head size %d, %s K/V, chunks of %d; %d sequences of %" PRId64 " + 1 tokens, %" PRId64
             " shared%s; medians of %" PRId64,
             s->heads, s->kv_heads, s->head_dim, options->kv_type_text, s->chunk, s->tree->n_seqs, prefix, shared, window,
             options->steps);
    const results_spec spec = {
        .name = "kernel",
        .title = title,
        .columns = columns,
        .n_columns = sizeof columns / sizeof *columns,
        .note = "/ method: how many times faster than it. K/V GB/s: distinct K/V bytes that a step reads, each counted once.\n",
        .plot = &bars,
    };
    static comparison c;
    results *r = compare_run(options, common, s, NULL, 1, &c) ? results_open(&spec, common) : NULL;
    if (!r) return false;
    if (s->window > 0) count_seen(&c, s, prefix, shared);
    for (int i = 0; i < c.n; i++) {
        json_t *row = compare_row(&c, i);
        json_object_set_new(row, "prefix", json_integer(prefix));
        json_object_set_new(row, "shared", json_integer(shared));
        json_object_set_new(row, "window", json_integer(s->window));
        json_object_set_new(row, "sink_tokens", json_integer(s->sink_tokens));
        json_object_set_new(row, "softcap", json_integer(s->softcap));
        results_add(r, row);
    }
    return results_close(r);
}

int bench_kernel(int argc, char **argv) {
    int64_t heads = 32, kv_heads = 0, head_dim = 128, chunk = 64, batch = 32, prefix = 4096, shared = -1;
    int64_t window = 0, sink_tokens = 0, softcap = 0;
    const option_row rows[] = {
        {"heads", OPTION_INT, &heads, 1, 1024, "query heads", 0},
        {"kv-heads", OPTION_INT, &kv_heads, 0, 1024, "KV heads; 0: as many as query heads", 0},
        {"head-dim", OPTION_INT, &head_dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
        {"chunk", OPTION_INT, &chunk, 16, 256, "tokens of a chunk: 16, 32, 64, 128 or 256", 0},
        {"batch", OPTION_INT, &batch, 1, 1024, "sequences", 0},
        {"prefix", OPTION_INT, &prefix, 1, 1000000, "tokens in the cache before the step's own", 0},
        {"shared", OPTION_INT, &shared, -1, 1000000, "leading tokens of the prefix that all sequences have in common; -1: all",
         0},
        {"window", OPTION_INT, &window, 0, 1000000, "positions that a row sees; 0: all", 0},
        {"sink-tokens", OPTION_INT, &sink_tokens, 0, 1000000, "first positions that stay visible under a window", 0},
        {"softcap", OPTION_INT, &softcap, 0, 1000000, "cap of the scores; 0: none", 0},
    };
    bench_common common;
    compare_options options;
    option_list list = {0};
    options_add(&list, rows, sizeof rows / sizeof *rows);
    compare_options_add(&options, "naive,flash,paged,paged_shared,chunk", &list);
    bench_common_options(&common, &list);
    const options_result read = options_read(argc, argv, &list, "latency of one decode step over one layer, method by method");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!compare_check(&options, argv[0], common.quick)) return 2;
    if (kv_heads == 0) kv_heads = heads;
    if (shared < 0) shared = prefix;
    if (heads % kv_heads) return fail("--heads must be a multiple of --kv-heads");
    if (kv_heads * head_dim > METHOD_MAX_ROW) return fail("--kv-heads times --head-dim must be at most 32768");
    if (shared > prefix) return fail("--shared must be at most --prefix");
    if ((window || softcap) && !knows_options(&options))
        return fail("naive and flash know neither --window nor --softcap; choose --methods paged,paged_shared,chunk");
    if (common.quick) {
        prefix = prefix < 100 ? prefix : 100;
        shared = shared < prefix ? shared : prefix;
    }

    token_tree tree = token_tree_of_prefix((int32_t)batch, prefix, shared);
    const shape s = {.heads = (int32_t)heads,
                     .kv_heads = (int32_t)kv_heads,
                     .head_dim = (int32_t)head_dim,
                     .chunk = (int32_t)chunk,
                     .window = (int32_t)window,
                     .sink_tokens = (int32_t)sink_tokens,
                     .softcap = (int32_t)softcap,
                     .tree = &tree};
    const bool ok = bench_common_start(&common, argv[0]) && run(&common, &options, &s, prefix, shared);
    bench_common_stop(&common);
    token_tree_free(&tree);
    return ok ? 0 : 1;
}
