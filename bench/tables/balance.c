/*
 * `cattn-bench balance`: how evenly the plan distributes a step among threads.
 *
 * The tasks of a step run one after the other on this thread. The time of each is the least CPU time of several runs. Then
 * threads are simulated, of which the first that is free takes the next task. The figure therefore describes the distribution
 * alone, for any number of threads, whatever else runs on the machine.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/methods/method.h"
#include "bench/shared/results.h"
#include "chunkattn_inspect.h"

enum { FILL_ROWS = 256, MAX_SEQS = 64, MAX_TASKS = 4096, MAX_RUNS = 2, REPEATS = 5, MAX_THREADS = 64 };

/* Sequences that have `shared` tokens in common, and `own` more each. */
typedef struct family {
    int32_t n_seqs;
    int64_t shared, own;
} family;

typedef struct form {
    const char *name;
    family families[4];
} form;

static const form forms[] = {
    {"32 of 2048 private", {{32, 0, 2048}}},
    {"32 over 2048, 256 own", {{32, 2048, 256}}},
    {"1 of 16384, 31 of 256", {{1, 0, 16384}, {31, 0, 256}}},
    {"50 over 4000, 16 own", {{50, 4000, 16}}},
    {"4 roots: 24, 5, 2, 1", {{24, 3000, 100}, {5, 1000, 600}, {2, 6000, 50}, {1, 500, 500}}},
    {"1 of 8192", {{1, 0, 8192}}},
    {"3 of 1000, 2000, 4000", {{1, 0, 1000}, {1, 0, 2000}, {1, 0, 4000}}},
};

/* The times of a step's tasks, for each time that the library runs them on its threads. */
typedef struct tasks {
    double seconds[MAX_RUNS][MAX_TASKS];
    int32_t n[MAX_RUNS];
    int32_t n_runs;
    bool counts; /* false: tasks run untimed */
} tasks;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_tasks(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    tasks *t = ctx;
    const int32_t run = t->n_runs++;
    for (int32_t i = 0; i < n_tasks; i++) {
        const double start = cpu_seconds();
        fn(arg, i, 0);
        const double seconds = cpu_seconds() - start;
        if (t->counts && run < MAX_RUNS && i < MAX_TASKS && (t->n[run] <= i || seconds < t->seconds[run][i])) {
            t->seconds[run][i] = seconds;
            if (t->n[run] <= i) t->n[run] = i + 1;
        }
    }
}

/* The part of the time of n threads that is spent in tasks. */
static double busy(const tasks *t, int32_t n) {
    double sum = 0, last = 0;
    for (int32_t run = 0; run < MAX_RUNS; run++) {
        double free_at[MAX_THREADS] = {0}, end = 0;
        for (int32_t i = 0; i < t->n[run]; i++) {
            int32_t first = 0;
            for (int32_t k = 1; k < n; k++)
                if (free_at[k] < free_at[first]) first = k;
            free_at[first] += t->seconds[run][i];
            sum += t->seconds[run][i];
            end = free_at[first] > end ? free_at[first] : end;
        }
        last += end;
    }
    return last > 0 ? sum / (n * last) : 0;
}

typedef struct world {
    int32_t heads, kv_heads, dim, n_seqs;
    cattn_cache *cache;
    cattn_seq seqs[MAX_SEQS];
    cattn_entry entries[MAX_SEQS];
    float *rows, *out;
    tasks tasks;
    cattn_error error;
} world;

static cattn_view view_of(const float *data, int32_t heads, int32_t dim) {
    return (cattn_view){.data = (void *)data, .type = CATTN_F32, .row_stride = (int64_t)heads * dim, .head_stride = dim};
}

/* One step of n entries, which attends `repeats` times. */
static cattn_status step(world *w, int32_t n, int repeats) {
    const cattn_view kv = view_of(w->rows, w->kv_heads, w->dim), q = view_of(w->rows, w->heads, w->dim),
                     out = view_of(w->out, w->heads, w->dim);
    cattn_status s = cattn_step_begin(w->cache, w->entries, n, FILL_ROWS, &w->error);
    if (s == CATTN_OK) s = cattn_step_write(w->cache, 0, &kv, &kv, &w->error);
    w->tasks.counts = true;
    for (int i = 0; i < repeats && s == CATTN_OK; i++) {
        w->tasks.n_runs = 0;
        s = cattn_step_attend(w->cache, 0, &q, &out, NULL, &w->error);
    }
    w->tasks.counts = false;
    return s == CATTN_OK ? cattn_step_end(w->cache, &w->error) : s;
}

/* Join a sequence and compute all but its last token. */
static cattn_status add_sequence(world *w, int32_t root, const family *f) {
    int32_t *tokens = malloc((size_t)(f->shared + f->own) * sizeof *tokens);
    cattn_seq *seq = &w->seqs[w->n_seqs++];
    cattn_seq_info info = {.struct_size = sizeof info};
    cattn_status s = CATTN_ERR_NOMEM;
    if (!tokens) return s;
    for (int64_t p = 0; p < f->shared + f->own; p++)
        tokens[p] = (int32_t)(p < f->shared ? (int64_t)root << 16 | p : (int64_t)(100 + w->n_seqs) << 16 | p);
    s = cattn_seq_join(w->cache, tokens, f->shared + f->own, NULL, seq, NULL, &w->error);
    free(tokens);
    while (s == CATTN_OK && (s = cattn_seq_get_info(w->cache, *seq, &info, &w->error)) == CATTN_OK) {
        const int64_t left = info.n_tokens - 1 - info.n_ready;
        if (left == 0) break;
        w->entries[0] = (cattn_entry){.seq = *seq, .max_rows = left < FILL_ROWS ? left : FILL_ROWS};
        s = step(w, 1, 0);
    }
    return s;
}

/* The times of the tasks of a decode step that is planned for that number of threads. */
static cattn_status time_form(world *w, const form *f, int32_t threads) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = w->heads;
    c.n_kv_heads = w->kv_heads;
    c.head_dim = w->dim;
    c.budget_bytes = (uint64_t)2 << 30;
    c.n_threads = threads;
    c.parallel = (cattn_parallel){run_tasks, &w->tasks};
    w->tasks = (tasks){0};
    w->n_seqs = 0;
    cattn_status s = cattn_cache_create(&c, &w->cache, &w->error);
    for (int32_t i = 0; i < 4; i++)
        for (int32_t k = 0; k < f->families[i].n_seqs && s == CATTN_OK; k++) s = add_sequence(w, i + 1, &f->families[i]);
    for (int32_t i = 0; i < w->n_seqs; i++) w->entries[i] = (cattn_entry){.seq = w->seqs[i], .max_rows = 1};
    if (s == CATTN_OK) s = step(w, w->n_seqs, REPEATS);
    cattn_cache_destroy(&w->cache);
    return s;
}

static const results_column columns[] = {{"tree", "tree", -24},   {"heads", "heads", 0},     {"kv_heads", "K/V", 0},
                                         {"head_dim", "size", 0}, {"threads", "threads", 0}, {"tasks", "tasks", 0},
                                         {"busy", "busy", 3}};

static const results_plot lines = {.kind = "lines",
                                   .x = "threads",
                                   .y = "busy",
                                   .series = "tree",
                                   .x_label = "threads",
                                   .y_label = "part of the threads' time that is spent in tasks",
                                   .log_x = true};

static const results_spec spec = {
    .name = "balance",
    .title = "Part of the threads' time that is spent in tasks, of a decode step",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note = "Tasks are timed one by one; the threads are simulated, each taking the next task when it is free.\n",
    .plot = &lines,
};

int bench_balance(int argc, char **argv) {
    static world w;
    int64_t heads = 9, kv_heads = 3, dim = 64;
    const option_row rows[] = {
        {"heads", OPTION_INT, &heads, 1, 128, "query heads", 0},
        {"kv-heads", OPTION_INT, &kv_heads, 1, 128, "KV heads", 0},
        {"head-dim", OPTION_INT, &dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
    };
    bench_common common;
    option_list list = {0};
    options_add(&list, rows, sizeof rows / sizeof *rows);
    bench_common_options(&common, &list);
    const options_result read = options_read(argc, argv, &list, "how evenly a step is distributed among threads");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!bench_common_start(&common, argv[0])) return 1;
    w.heads = (int32_t)heads, w.kv_heads = (int32_t)kv_heads, w.dim = (int32_t)dim;
    const size_t row = (size_t)heads * (size_t)dim, n = FILL_ROWS * row;
    w.rows = malloc(n * sizeof(float));
    w.out = malloc(n * sizeof(float));
    results *r = w.rows && w.out ? results_open(&spec, &common) : NULL;
    cattn_status s = r ? CATTN_OK : CATTN_ERR_NOMEM;
    method_rows_init();
    for (size_t i = 0; s == CATTN_OK && i < FILL_ROWS; i++)
        memcpy(w.rows + i * row, method_kv_row(0, (int32_t)i, 0, 0), row * sizeof(float));
    for (size_t f = 0; f < sizeof forms / sizeof *forms && s == CATTN_OK; f++)
        for (int32_t threads = 2; threads <= (common.quick ? 2 : 16) && s == CATTN_OK; threads *= 2) {
            s = time_form(&w, &forms[f], threads);
            if (s == CATTN_OK)
                results_add(r, json_pack("{ss si si si si si sf}", "tree", forms[f].name, "heads", w.heads, "kv_heads",
                                         w.kv_heads, "head_dim", w.dim, "threads", threads, "tasks", w.tasks.n[0], "busy",
                                         busy(&w.tasks, threads)));
        }
    if (s != CATTN_OK) fprintf(stderr, "cattn-bench balance: %s\n", w.error.message);
    bool ok = s == CATTN_OK;
    if (r) ok &= results_close(r);
    free(w.rows);
    free(w.out);
    bench_common_stop(&common);
    return ok ? 0 : 1;
}
