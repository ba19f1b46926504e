/*
 * `cattn-bench ablation`: how fast each choice of the design is, compared with the alternatives.
 *
 * The variants of a study are timed in rounds, and the ratio is to the study's first one, which is what the library does.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/methods/planned.h"
#include "bench/shared/statistics.h"
#include "chunkattn/base/clock.h"

enum { BATCH = 32, HEADS = 32, PROMPT = 2048, SHARED = 1536 };

static const results_column columns[] = {
    {"study", "study", -14},         {"tree", "tree", -22},     {"method", "variant", -18},
    {"level", "level", -12},         {"step_us", "us", 1},      {"gflops", "GFLOP/s", 1},
    {"peak_fraction", "of peak", 2}, {"kv_gbs", "K/V GB/s", 1}, {"read_fraction", "of read", 2},
    {"over_first", "/ first", 2},
};

static const results_plot bars = {.kind = "bars",
                                  .x = "label",
                                  .y = "over_first",
                                  .panel = "study",
                                  .series = "choice",
                                  .y_label = "times as fast as what the library does"};

static const results_spec spec = {
    .name = "ablation",
    .title =
        "One choice varied at a time, one decode step of one layer: 32 sequences, 32 heads of 128, chunks of 64 if not said "
        "otherwise",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note =
        "/ first: how many times faster than the study's first variant on that tree, which is what the library does.\n"
        "phases: two (chunk), sequence-first only (paged_shared), every chunk a task, merged at the end (chunk_only) or at\n"
        "once under a spin lock (chunk_only_locked). plan: us to open a step of 256 sequences, nothing computed.\n",
    .plot = &bars,
};

typedef struct bench {
    const bench_common *common;
    const compare_options *options;
    results *results;
} bench;

/* The trees of the study of the phases. */
static const struct {
    const char *name;
    int64_t prompt, shared;
} trees[] = {{"4096 of 4096 shared", 4096, 4096}, {"1024 of 2048 shared", 2048, 1024}, {"0 of 1024 shared", 1024, 0}};
enum { N_TREES = sizeof trees / sizeof *trees };

static token_tree tree_of(const bench *b, int64_t prompt, int64_t shared) {
    return token_tree_of_prefix(BATCH, compare_length(b->common, prompt), compare_length(b->common, shared));
}

static contestant chunk_on(const bench *b, const char *name, const token_tree *tree, int32_t kv_heads) {
    contestant c = {name, METHOD_CHUNK, compare_paper_shape(b->common, HEADS, HEADS, tree), b->common->pool};
    if (b->common->quick) c.shape.heads = HEADS; /* divisible by all GQA groups */
    c.shape.kv_heads = kv_heads;
    c.shape.kv_type = b->options->kv_type;
    c.shape.level = b->options->level;
    c.shape.cold_bytes = b->options->cold_bytes;
    return c;
}

/* A study compares its first variant with the others. */
static const char *choice_of(int i) { return i == 0 ? "what the library does" : "another choice"; }

static bool run_study(const bench *b, const char *study, const char *tree, const contestant *contestants, int n) {
    static comparison c;
    if (!compare_contest(contestants, n, (int)b->options->steps, b->common->quick, NULL, 1, &c)) return false;
    for (int i = 0; i < n; i++) {
        char label[96];
        snprintf(label, sizeof label, "%s%s%s", c.of[i].name, strcmp(study, "phases") == 0 ? ", " : "",
                 strcmp(study, "phases") == 0 ? tree : "");
        json_t *row = compare_row(&c, i);
        json_object_set_new(row, "study", json_string(study));
        json_object_set_new(row, "tree", json_string(tree));
        json_object_set_new(row, "label", json_string(label));
        json_object_set_new(row, "choice", json_string(choice_of(i)));
        json_object_set_new(row, "over_first", json_real(i == 0 ? 1 : compare_speedup(&c, i, 0)));
        results_add(b->results, row);
    }
    return true;
}

static bool run_phases(const bench *b) {
    static const method_id ids[] = {METHOD_CHUNK, METHOD_PAGED_SHARED, METHOD_CHUNK_ONLY, METHOD_CHUNK_ONLY_LOCKED};
    enum { N = sizeof ids / sizeof *ids };
    bool ok = true;
    for (int t = 0; ok && t < N_TREES; t++) {
        token_tree tree = tree_of(b, trees[t].prompt, trees[t].shared);
        contestant all[N];
        for (int i = 0; i < N; i++) {
            all[i] = chunk_on(b, method_name(ids[i]), &tree, HEADS);
            all[i].id = ids[i];
        }
        ok = run_study(b, "phases", trees[t].name, all, N);
        token_tree_free(&tree);
    }
    return ok;
}

static const char base_tree[] = "1536 of 2048 shared";

static bool run_chunk_sizes(const bench *b, const token_tree *tree) {
    static const char *const names[] = {"64 tokens", "16 tokens", "32 tokens", "128 tokens", "256 tokens"};
    static const int32_t sizes[] = {64, 16, 32, 128, 256};
    enum { N = sizeof sizes / sizeof *sizes };
    contestant all[N];
    for (int i = 0; i < N; i++) {
        all[i] = chunk_on(b, names[i], tree, HEADS);
        all[i].shape.chunk = sizes[i];
    }
    return run_study(b, "chunk size", base_tree, all, N);
}

static bool run_groups(const bench *b, const token_tree *tree) {
    contestant all[] = {chunk_on(b, "group of 1", tree, HEADS), chunk_on(b, "group of 4", tree, HEADS / 4),
                        chunk_on(b, "group of 8", tree, HEADS / 8)};
    return run_study(b, "groups", base_tree, all, sizeof all / sizeof *all);
}

static bool run_types(const bench *b, const token_tree *tree) {
    static const cattn_type types[] = {CATTN_BF16, CATTN_F32, CATTN_F16, CATTN_I8};
    enum { N = sizeof types / sizeof *types };
    contestant all[N];
    for (int i = 0; i < N; i++) {
        all[i] = chunk_on(b, compare_type_name(types[i]), tree, HEADS);
        all[i].shape.kv_type = types[i];
    }
    return run_study(b, "K/V type", base_tree, all, N);
}

static bool run_threads(const bench *b, const token_tree *tree) {
    ca_pool *one = ca_pool_create(1);
    if (!one) return false;
    contestant all[] = {chunk_on(b, "all threads", tree, HEADS), chunk_on(b, "1 thread", tree, HEADS)};
    all[1].pool = one;
    const bool ok = run_study(b, "threads", base_tree, all, sizeof all / sizeof *all);
    ca_pool_destroy(&one);
    return ok;
}

/* The time to open a step whose sequences are those of the last one, with the plan kept or built anew. */
static bool time_plan(planned *p, bool anew, double *us) {
    if (anew) planned_forget(p);
    const double start = clock_seconds();
    const bool ok = planned_begin(p);
    *us = (clock_seconds() - start) * 1e6;
    return ok && cattn_step_abort(p->cache, NULL) == CATTN_OK;
}

static bool run_plan(const bench *b) {
    static double us[2][COMPARE_MAX_STEPS], ratios[COMPARE_MAX_STEPS];
    static const char *const variants[] = {"lazy update", "built each step"};
    token_tree tree =
        token_tree_of_prefix(b->common->quick ? 8 : 256, compare_length(b->common, PROMPT), compare_length(b->common, SHARED));
    const shape s = {.heads = 1, .kv_heads = 1, .head_dim = 64, .chunk = 64, .tree = &tree, .kv_type = CATTN_BF16};
    planned p;
    const int n = (int)b->options->steps;
    double first;
    bool ok = planned_create(&p, METHOD_CHUNK, &s, b->common->pool) && time_plan(&p, false, &first);
    for (int i = 0; ok && i < n; i++) {
        for (int k = 0; ok && k < 2; k++) ok = time_plan(&p, k == 1, &us[k][i]);
        ratios[i] = us[0][i] / us[1][i];
    }
    planned_free(&p);
    for (int k = 0; ok && k < 2; k++)
        results_add(b->results,
                    json_pack("{ss ss ss ss ss sf sf si si}", "study", "plan", "tree", base_tree, "method", variants[k],
                              "label", variants[k], "choice", choice_of(k), "step_us", statistics_median(us[k], n),
                              "over_first", k == 0 ? 1 : statistics_median(ratios, n), "batch", tree.n_seqs, "steps", n));
    token_tree_free(&tree);
    return ok;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    bench b = {common, options, r};
    token_tree tree = tree_of(&b, PROMPT, SHARED);
    const bool ok = run_phases(&b) && run_plan(&b) && run_chunk_sizes(&b, &tree) && run_threads(&b, &tree) &&
                    run_groups(&b, &tree) && run_types(&b, &tree);
    token_tree_free(&tree);
    return ok;
}

int bench_ablation(int argc, char **argv) {
    return compare_command(argc, argv, "chunk", "one choice of the design varied at a time", &spec, measure);
}
