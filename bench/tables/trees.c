/*
 * `cattn-bench trees`: ChunkAttention against the better of the two paged methods on trees of many forms.
 *
 * Sharing must not cost anything: a ratio below 0.97 is flagged.
 */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"

enum { MAX_LEVELS = 4, MAX_GROUPS = 2, SHORT_FACTOR = 7 };
static const double least_ratio = 0.97;

/* The runs below each run of the previous level, all of one length; sequences end with the runs of the last level. */
typedef struct level {
    int32_t width;
    int64_t n_tokens;
} level;

typedef struct form {
    const char *name;
    level groups[MAX_GROUPS][MAX_LEVELS]; /* separate trees; a width of 0 ends the levels */
    bool every_run;                       /* a sequence ends with every run, not only with the last level's */
} form;

static const form forms[] = {
    {"2 roots", {{{2, 2048}, {16, 128}}}, false},
    {"4 roots", {{{4, 2048}, {8, 128}}}, false},
    {"8 roots", {{{8, 2048}, {4, 128}}}, false},
    {"2 levels", {{{1, 2048}, {32, 256}}}, false},
    {"3 levels", {{{1, 1024}, {4, 1024}, {8, 256}}}, false},
    {"uneven lengths", {{{1, 16384}, {4, 64}}, {{1, 256}, {4, 64}}}, false},
    {"uneven widths", {{{1, 2048}, {28, 64}}, {{4, 2048}, {1, 64}}}, false},
    {"16384, then 256", {{{1, 16384}, {8, 256}}}, false},
    {"few-shot", {{{1, 4000}, {50, 64}}}, false},
    {"speculative", {{{1, 2048}, {3, 1}, {4, 1}, {4, 1}}}, true}, /* 64 sequences: 1 + 3 + 12 + 48 */
    {"nothing shared", {{{32, 2048}}}, false},
};

static const struct { int32_t heads, kv_heads; } head_counts[] = {{32, 32}, {16, 8}, {32, 8}, {64, 8}};

static const int64_t short_lengths[] = {16, 32, 64, 128, 256};
static const int32_t short_batches[] = {2, 4, 8};
enum { SHORT_OWN = 64 }; /* tokens of each sequence after the shared ones */

#define N_OF(array) ((int)(sizeof(array) / sizeof *(array)))

static const results_column columns[] = {
    {"tree", "tree", -16},
    {"head_counts", "heads", -6},
    {"batch", "batch", 0},
    {"tokens", "tokens", 0},
    {"distinct", "distinct", 0},
    {"paged_us", "paged us", 1},
    {"paged_shared_us", "paged_shared us", 1},
    {"chunk_us", "chunk us", 1},
    {"peak_fraction", "of peak", 2},
    {"read_fraction", "of read", 2},
    {"times_faster", "chunk / better", 3},
    {"flag", "", -12},
};

static const results_plot bars = {.kind = "dots",
                                  .x = "tree",
                                  .y = "times_faster",
                                  .series = "head_counts",
                                  .y_label = "times as fast as the better paged method, by query heads / KV heads",
                                  .mark = 1};

static const results_spec spec = {
    .name = "trees",
    .title = "One decode step of one layer over trees of several forms: heads of 128, chunks of 64",
    .columns = columns,
    .n_columns = N_OF(columns),
    .note = "chunk / better: how many times faster chunk is than the better of paged and paged_shared; fractions are chunk's.\n"
            "tokens: those of all sequences; distinct: shared ones counted once.\n",
    .plot = &bars,
};

/* Add the levels below a parent. */
static void add_level(token_tree *tree, const level *l, int32_t parent, bool every_run) {
    for (int32_t i = 0; i < l->width; i++) {
        const int32_t run = token_tree_add_run(tree, parent, l->n_tokens);
        const bool last = l[1].width == 0;
        if (last || every_run) token_tree_add_seq(tree, run);
        if (!last) add_level(tree, l + 1, run, every_run);
    }
}

static token_tree tree_of(const form *f, const bench_common *common) {
    token_tree tree = {0};
    for (int g = 0; g < MAX_GROUPS; g++) {
        level levels[MAX_LEVELS + 1] = {{0}};
        for (int i = 0; i < MAX_LEVELS; i++) {
            levels[i] = f->groups[g][i];
            if (levels[i].n_tokens > 1) levels[i].n_tokens = compare_length(common, levels[i].n_tokens);
        }
        add_level(&tree, levels, -1, f->every_run);
    }
    return tree;
}

static bool run_tree(results *r, const compare_options *options, const bench_common *common, const char *name,
                     const token_tree *tree, int32_t heads, int32_t kv_heads) {
    static comparison c;
    const shape s = compare_paper_shape(common, heads, kv_heads, tree);
    if (!compare_run(options, common, &s, NULL, 1, &c)) return false;
    const int paged = compare_find(&c, METHOD_PAGED), shared = compare_find(&c, METHOD_PAGED_SHARED);
    const int chunk = compare_find(&c, METHOD_CHUNK);
    const double over_paged = compare_speedup(&c, chunk, paged), over_shared = compare_speedup(&c, chunk, shared);
    const double ratio = over_paged < over_shared ? over_paged : over_shared;
    char head_counts_text[32];
    snprintf(head_counts_text, sizeof head_counts_text, "%d/%d", heads, kv_heads);
    json_t *row = compare_row(&c, chunk);
    json_t *own = json_pack("{ss ss sI sI sf sf sf sf ss}", "tree", name, "head_counts", head_counts_text, "tokens",
                            (json_int_t)token_tree_total(tree), "distinct", (json_int_t)token_tree_distinct(tree), "paged_us",
                            compare_us(&c, paged), "paged_shared_us", compare_us(&c, shared), "chunk_us", compare_us(&c, chunk),
                            "times_faster", ratio, "flag", ratio < least_ratio ? "below 0.97" : "");
    json_object_update(row, own);
    json_decref(own);
    results_add(r, row);
    return true;
}

static bool run_forms(results *r, const compare_options *options, const bench_common *common) {
    bool ok = true;
    for (int h = 0; ok && h < N_OF(head_counts); h++)
        for (int f = 0; ok && f < N_OF(forms); f++) {
            token_tree tree = tree_of(&forms[f], common);
            ok = run_tree(r, options, common, forms[f].name, &tree, head_counts[h].heads, head_counts[h].kv_heads);
            token_tree_free(&tree);
        }
    return ok;
}

/* Short prefixes, where little can be gained. Such steps are short, so more of them are timed. */
static bool run_short(results *r, const compare_options *options, const bench_common *common) {
    compare_options more = *options;
    more.steps *= common->quick ? 1 : SHORT_FACTOR;
    if (more.steps > COMPARE_MAX_STEPS) more.steps = COMPARE_MAX_STEPS;
    bool ok = true;
    for (int h = 0; ok && h < N_OF(head_counts); h += 2)
        for (int b = 0; b < N_OF(short_batches); b++)
            for (int i = 0; ok && i < N_OF(short_lengths); i++) {
                char name[32];
                snprintf(name, sizeof name, "%d x %d", (int)short_batches[b], (int)short_lengths[i]);
                token_tree tree = token_tree_of_prefix(short_batches[b], short_lengths[i] + SHORT_OWN, short_lengths[i]);
                ok = run_tree(r, &more, common, name, &tree, head_counts[h].heads, head_counts[h].kv_heads);
                token_tree_free(&tree);
            }
    return ok;
}

static bool compares(const compare_options *options, method_id id) {
    for (int i = 0; i < options->n_methods; i++)
        if (options->methods[i] == id) return true;
    return false;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    if (!compares(options, METHOD_PAGED) || !compares(options, METHOD_PAGED_SHARED) || !compares(options, METHOD_CHUNK)) {
        fputs("cattn-bench trees: --methods must have paged, paged_shared and chunk\n", stderr);
        return false;
    }
    return run_forms(r, options, common) && run_short(r, options, common);
}

int bench_trees(int argc, char **argv) {
    return compare_command(argc, argv, "paged,paged_shared,chunk",
                           "ChunkAttention against the better paged method on trees of many forms", &spec, measure);
}
