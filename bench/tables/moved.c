/*
 * `cattn-bench moved`: elements that attention moves in a decode step, counted by the plan, against the paper's formula.
 *
 * Nothing is computed, so K and V are not written.
 */
#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/methods/planned.h"
#include "bench/shared/formulas.h"
#include "bench/shared/results.h"

enum { HEADS = 32 };

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

static const results_plot lines = {.kind = "lines",
                                   .x = "batch",
                                   .y = "paged_over_chunk",
                                   .series = "shared_fraction",
                                   .panel = "context",
                                   .panel_label = "context: ",
                                   .x_label = "sequences",
                                   .y_label = "elements moved by paged / by chunk, by the shared part r",
                                   .accent = "1",
                                   .log_x = true,
                                   .log_y = true};

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

/* Count the elements that the plan of one step of all sequences moves. False with a message on stderr. */
static bool count(method_id id, const shape *s, const bench_common *common, planned_moved *n) {
    planned p;
    const bool ok = planned_create(&p, id, s, common->pool) && planned_begin(&p);
    if (ok) *n = planned_count(&p);
    planned_free(&p);
    return ok;
}

static double millions(const planned_moved *n) { return 1e-6 * (double)(n->kv + n->rows + n->states); }

/* The formula's n includes the row's own token, which is not shared. */
static bool run_point(results *r, const bench_common *common, int32_t batch, int64_t context, int percent) {
    const int64_t n = compare_length(common, context), shared = (n - 1) * percent / 100 / 2 * 2;
    token_tree tree = token_tree_of_prefix(batch, n - 1, shared);
    shape s = compare_paper_shape(common, HEADS, HEADS, &tree);
    s.kv_type = CATTN_BF16;
    planned_moved chunk, paged, paged_shared;
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
