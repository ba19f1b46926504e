/*
 * `cattn-bench moved`: elements that attention moves in a decode step, counted by the plan, against the paper's formula.
 *
 * Nothing is computed, so K and V need not be filled in.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "compare.h"
#include "formulas.h"
#include "moved_count.h"
#include "results.h"

enum { HEADS = 32, WORKSPACE_BYTES = 1 << 28 };

static const int32_t batches[] = {1, 2, 8, 32, 64};
static const int64_t contexts[] = {1024, 4096};
static const int shared_percent[] = {0, 25, 50, 75, 100};
#define N_OF(array) ((int)(sizeof(array) / sizeof *(array)))

static const results_column columns[] = {
    {"batch", "b", 0},
    {"context", "n", 0},
    {"shared_fraction", "r", 2},
    {"formula_chunk", "Eq. 3, M", 3},
    {"chunk", "chunk, M", 3},
    {"chunk_kv", "of it K/V, M", 3},
    {"chunk_states", "states, M", 3},
    {"over_formula", "/ Eq. 3", 3},
    {"paged", "paged, M", 3},
    {"paged_shared", "paged_shared, M", 3},
    {"formula_naive", "naive, M", 3},
    {"paged_over_chunk", "paged / chunk", 2},
};

static const plot lines = {.kind = PLOT_LINES,
                           .x = "batch",
                           .y = "paged_over_chunk",
                           .series = "shared_fraction",
                           .panel = "context",
                           .x_label = "sequences",
                           .y_label = "paged / chunk, elements moved",
                           .log_x = true};

static const results_spec spec = {
    .name = "moved",
    .title = "Elements moved by attention in one decode step of one layer, in millions: 32 heads of 128, chunks of 64",
    .columns = columns,
    .n_columns = N_OF(columns),
    .note =
        "Eq. 3: b h d [2 n r (1/b + 1/c) + 2 + 2 n (1 - r)]; naive: b h d (2 + 2 n). chunk, paged, paged_shared: counted in\n"
        "the plan that the kernels follow: K/V each time a task reads them, queries, outputs, and partial states, of which a\n"
        "row has one for 1024 positions where Eq. 3 has one for each shared chunk. A chunk in which sharing ends is read by "
        "each.\n",
    .plot = &lines,
};

static cattn_status create_cache(method_id id, const shape *s, const bench_common *common, cattn_cache **cache,
                                 cattn_error *error) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = s->heads;
    c.n_kv_heads = s->kv_heads;
    c.head_dim = s->head_dim;
    c.chunk_size = s->chunk;
    c.kv_type = s->kv_type;
    c.sharing = method_sharing(id);
    c.budget_bytes = (uint64_t)method_bytes(id, s) + WORKSPACE_BYTES; /* address space: nothing is written to it */
    c.n_threads = ca_pool_size(common->pool);
    c.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = common->pool};
    return cattn_cache_create(&c, cache, error);
}

/* Join a sequence and pass all of its tokens but the last off as computed. */
static cattn_status add_sequence(cattn_cache *cache, const token_tree *tree, int32_t i, int32_t *tokens, cattn_entry *entry,
                                 cattn_error *error) {
    const int64_t prefix = token_tree_prefix(tree, i);
    token_tree_tokens(tree, i, tokens);
    cattn_status status = cattn_seq_join(cache, tokens, prefix + 1, NULL, &entry->seq, NULL, error);
    cattn_seq_info info = {.struct_size = sizeof info};
    if (status == CATTN_OK) status = cattn_seq_get_info(cache, entry->seq, &info, error);
    entry->max_rows = prefix - info.n_ready;
    if (status == CATTN_OK && entry->max_rows > 0) {
        status = cattn_step_begin(cache, entry, 1, 0, error);
        if (status == CATTN_OK) status = cattn_step_end(cache, error);
    }
    entry->max_rows = 1;
    return status;
}

/* Elements by the plan of one step of all sequences. False with a message on stderr. */
static bool count(method_id id, const shape *s, const bench_common *common, moved_count *n) {
    const int32_t n_seqs = s->tree->n_seqs;
    cattn_cache *cache = NULL;
    cattn_error error = {.message = "no memory"};
    cattn_entry *entries = calloc((size_t)n_seqs, sizeof *entries);
    int32_t *tokens = malloc(((size_t)token_tree_longest(s->tree) + 1) * sizeof *tokens);
    cattn_status status = entries && tokens ? create_cache(id, s, common, &cache, &error) : CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < n_seqs && status == CATTN_OK; i++)
        status = add_sequence(cache, s->tree, i, tokens, &entries[i], &error);
    if (status == CATTN_OK) status = cattn_step_begin(cache, entries, n_seqs, 0, &error);
    if (status == CATTN_OK)
        *n = moved_count_plan(cache);
    else
        fprintf(stderr, "cattn-bench moved: %s\n", error.message);
    cattn_cache_destroy(&cache);
    free(entries);
    free(tokens);
    return status == CATTN_OK;
}

static double millions(const moved_count *n) { return 1e-6 * (double)(n->kv + n->rows + n->states); }

/* n of the formula counts the row's own token, which nobody shares. */
static bool run_point(results *r, const bench_common *common, int32_t batch, int64_t context, int percent) {
    const int64_t n = compare_length(common, context), shared = (n - 1) * percent / 100 / 2 * 2;
    token_tree tree = token_tree_of_prefix(batch, n - 1, shared);
    shape s = compare_paper_shape(common, HEADS, HEADS, &tree);
    s.kv_type = CATTN_BF16;
    moved_count chunk, paged, paged_shared;
    const bool ok = count(METHOD_CHUNK, &s, common, &chunk) && count(METHOD_PAGED, &s, common, &paged) &&
                    count(METHOD_PAGED_SHARED, &s, common, &paged_shared);
    if (ok) {
        const double ratio = (double)shared / (double)n;
        const double formula = 1e-6 * formula_moved_chunk(batch, s.heads, s.head_dim, s.chunk, (double)n, ratio);
        const double naive = 1e-6 * formula_moved_naive(batch, s.heads, s.head_dim, (double)n);
        results_add(r, json_pack("{si sI sf sI sf sf sf sf sf sf sf sf sf}", "batch", batch, "context", (json_int_t)n,
                                 "shared_fraction", percent / 100.0, "shared", (json_int_t)shared, "formula_chunk", formula,
                                 "chunk", millions(&chunk), "chunk_kv", 1e-6 * (double)chunk.kv, "chunk_states",
                                 1e-6 * (double)chunk.states, "over_formula", millions(&chunk) / formula, "paged",
                                 millions(&paged), "paged_shared", millions(&paged_shared), "formula_naive", naive,
                                 "paged_over_chunk", millions(&paged) / millions(&chunk)));
    }
    token_tree_free(&tree);
    return ok;
}

int bench_moved(int argc, char **argv) {
    bench_common common;
    option_list list = {0};
    bench_common_options(&common, &list);
    const options_result read =
        options_read(argc, argv, &list, "elements moved in a decode step, counted by the plan, against the paper's formula");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!bench_common_start(&common, argv[0])) return 1;
    results *r = results_open(&spec, &common);
    bool ok = r;
    for (int n = 0; n < N_OF(contexts); n++)
        for (int p = 0; p < N_OF(shared_percent); p++)
            for (int b = 0; ok && b < N_OF(batches); b++)
                ok = run_point(r, &common, batches[b], contexts[n], shared_percent[p]);
    if (r) ok = results_close(r) && ok;
    bench_common_stop(&common);
    return ok ? 0 : 1;
}
