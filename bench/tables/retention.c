/*
 * `cattn-bench retention`: the prefill time that retained prefixes save, by retention policy, trace and cache size.
 *
 * The traces of bench/shared/trace.h are replayed through a cache without arithmetic: a prompt joins, its tokens become ready
 * at once, its completion is appended, and it leaves after the next one has joined. K and V are never written, so that a chunk
 * may be as large as a model's without costing memory or time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/methods/library_internals.h"
#include "bench/shared/trace.h"
#include "chunkattn/base/clock.h"

enum { CHUNK = 64 };

/* Sizes of the cache, as parts of a trace's working set. */
static const double sizes[] = {0.25, 0.5, 0.9, 2};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct policy {
    const char *name;
    cattn_retention retention;
    bool accounts; /* those of the trace, where it has some; otherwise all requests have one */
} policy;

static const policy policies[] = {{"lru", CATTN_RETAIN_LRU, false},
                                  {"learned", CATTN_RETAIN_LEARNED, false},
                                  {"lru, accounts", CATTN_RETAIN_LRU, true},
                                  {"learned, accounts", CATTN_RETAIN_LEARNED, true}};
enum { N_POLICIES = sizeof policies / sizeof *policies, N_PLAIN = 2 };

static int64_t requests, seed = 1, linear_ns = 353000, attention_ps = 173000;
static const char *workloads = "bench/workloads";
static const option_row options[] = {
    {"requests", OPTION_INT, &requests, 0, 1000000, "requests of a trace; 0: 4000, and all of the workloads", 0},
    {"seed", OPTION_INT, &seed, 0, INT32_MAX, "of the traces that are made", 0},
    {"linear-ns", OPTION_INT, &linear_ns, 1, 1000000000, "prefill time of a token at position 0, in ns", 0},
    {"attention-ps", OPTION_INT, &attention_ps, 0, 1000000000, "what each position before a token adds to that, in ps", 0},
    {"workloads", OPTION_TEXT, &workloads, 0, 0, "folder of the bundled workloads", 0},
    {0}};

static void check(cattn_status status, const cattn_error *error) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "cattn-bench retention: %s\n", error->message);
    exit(1);
}

/* ---- Cost model ---- */

/* Milliseconds to prefill the first n tokens of a prompt: the token at position p takes linear + p * attention. */
static double prefill_ms(int64_t n) {
    const double tokens = (double)n;
    return ((double)linear_ns * tokens + 1e-3 * (double)attention_ps * tokens * (tokens - 1) / 2) * 1e-6;
}

/* ---- Replay ---- */

/* Memory for n_tokens tokens in chunks, and for metadata, which is small beside them. */
static cattn_cache *open_cache(int64_t n_tokens, cattn_retention retention) {
    cattn_config c;
    cattn_cache *cache;
    cattn_error error;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = 4;
    c.head_dim = 128;
    c.kv_type = CATTN_F32;
    c.chunk_size = CHUNK;
    c.retention = retention;
    c.n_threads = 1;
    c.budget_bytes = (uint64_t)n_tokens * 2 * (uint64_t)(c.n_layers * c.n_kv_heads * c.head_dim) * sizeof(float);
    check(cattn_cache_create(&c, &cache, &error), &error);
    return cache;
}

/* Make all tokens of a sequence but the last ready, as if they had been computed. */
static void compute(const cattn_cache *cache, cattn_seq id) {
    const ca_seq *seq = ca_tree_find(cache->tree, id);
    ca_path_claim(seq->leaf, seq->n_tokens - ca_path_n_claimed(seq->leaf));
    ca_path_commit(seq->leaf);
}

typedef struct replay {
    int64_t n_prompt, n_found; /* tokens of prompts, and those of them that were ready */
    double total_ms, saved_ms;
    double chats_ms, saved_chats_ms; /* the same of account 1 */
} replay;

static void count(replay *sum, const trace_request *r, int64_t n_found) {
    const double total = prefill_ms(r->n_prompt), saved = prefill_ms(n_found);
    sum->n_prompt += r->n_prompt;
    sum->n_found += n_found;
    sum->total_ms += total;
    sum->saved_ms += saved;
    sum->chats_ms += r->account == 1 ? total : 0;
    sum->saved_chats_ms += r->account == 1 ? saved : 0;
}

static replay play(const trace *t, int64_t n_tokens, const policy *p) {
    replay sum = {0};
    cattn_cache *cache = open_cache(n_tokens, p->retention);
    cattn_seq running = 0;
    for (size_t i = 0; i < t->n; i++) {
        const trace_request *r = &t->requests[i];
        const int32_t *tokens = t->tokens + r->first;
        cattn_join_options options;
        cattn_join_result found;
        cattn_error error;
        cattn_seq seq;
        cattn_join_options_init(&options);
        options.reserve_tokens = r->n_completion;
        options.account = p->accounts ? r->account : 0;
        options.account_weight = t->weights[options.account];
        check(cattn_seq_join(cache, tokens, r->n_prompt, &options, &seq, &found, &error), &error);
        compute(cache, seq);
        check(cattn_seq_append(cache, seq, tokens + r->n_prompt, r->n_completion, &error), &error);
        compute(cache, seq);
        if (running) check(cattn_seq_leave(cache, &running, &error), &error);
        running = seq;
        count(&sum, r, found.n_ready);
    }
    cattn_cache_destroy(&cache);
    return sum;
}

/* Each policy with a cache of `size` times the working set, but large enough for two requests at a time. */
static void compare(bench *b, const trace *t, const char *name, double size) {
    const int64_t wanted = (int64_t)(size * (double)t->working_set), least = 2 * t->longest + 4 * CHUNK;
    const int64_t n_tokens = wanted > least ? wanted : least;
    double lru_ms = 0;
    for (int i = 0; i < (t->weights[0] > 0 ? N_POLICIES : N_PLAIN); i++) {
        const double start = clock_seconds();
        const replay sum = play(t, n_tokens, &policies[i]);
        const double us = (clock_seconds() - start) * 1e6 / (double)t->n;
        if (i == 0) lru_ms = sum.saved_ms;
        bench_add(b, json_pack("{ss sf sI ss sf sf sf so so sf}", "trace", name, "size", size, "cache_tokens",
                               (json_int_t)n_tokens, "policy", policies[i].name, "hit_percent",
                               100.0 * (double)sum.n_found / (double)sum.n_prompt, "saved_ms", sum.saved_ms, "saved_percent",
                               100 * sum.saved_ms / sum.total_ms, "over_lru",
                               bench_number(lru_ms > 0 ? sum.saved_ms / lru_ms : 0), "chats_percent",
                               sum.chats_ms > 0 ? json_real(100 * sum.saved_chats_ms / sum.chats_ms) : json_null(),
                               "request_us", us));
    }
}

/* ---- Eviction ---- */

/* The time that evicting takes for each of n_trunks * n_leaves leaves of one chunk behind n_trunks trunks of one chunk. */
static void time_eviction(bench *b, const policy *p, int32_t n_trunks, int32_t n_leaves) {
    const int64_t n = (int64_t)n_trunks * n_leaves;
    cattn_cache *cache = open_cache((n + n_trunks) * CHUNK + (n + n_trunks) / 8 * CHUNK, p->retention);
    cattn_error error;
    int32_t tokens[2 * CHUNK + 2];
    for (int64_t i = 0; i < n; i++) {
        cattn_seq seq;
        for (int32_t k = 0; k < 2 * CHUNK + 2; k++) tokens[k] = (int32_t)(k < CHUNK ? i % n_trunks : n_trunks + i / n_trunks);
        check(cattn_seq_join(cache, tokens, 2 * CHUNK + 1, NULL, &seq, NULL, &error), &error);
        compute(cache, seq);
        check(cattn_seq_leave(cache, &seq, &error), &error);
    }
    const double start = clock_seconds();
    check(cattn_cache_drop_retained(cache, &error), &error);
    const double us = (clock_seconds() - start) * 1e6 / (double)(n + n_trunks);
    char text[64];
    snprintf(text, sizeof text, "%" PRId64 " leaves", n);
    bench_add(b, json_pack("{ss ss sf}", "trace", text, "policy", p->name, "evict_us", us));
    cattn_cache_destroy(&cache);
}

static void time_evictions(bench *b) {
    for (int i = 0; i < N_PLAIN; i++) time_eviction(b, &policies[i], b->quick ? 10 : 250, b->quick ? 10 : 400);
}

/* ---- The command ---- */

static bool measure(bench *b) {
    const int64_t n = requests ? requests : b->quick ? 100 : 4000;
    bool ok = true;
    for (int kind = 0; ok && kind < TRACE_KINDS; kind++) {
        trace t;
        ok = trace_make(&t, kind, n, (uint64_t)seed, workloads);
        for (int i = 0; ok && i < N_SIZES; i++) compare(b, &t, trace_names[kind], sizes[i]);
        trace_free(&t);
    }
    if (ok) time_evictions(b);
    return ok;
}

static const bench_column columns[] = {{"trace", "trace", -14},
                                       {"size", "size", 2},
                                       {"cache_tokens", "cache, tokens", 0},
                                       {"policy", "policy", -17},
                                       {"hit_percent", "hits, %", 2},
                                       {"saved_ms", "saved ms", 0},
                                       {"saved_percent", "saved, %", 2},
                                       {"over_lru", "over lru", 3},
                                       {"chats_percent", "chats, %", 2},
                                       {"request_us", "µs/request", 1},
                                       {"evict_us", "µs/eviction", 2},
                                       {0}};

static const bench_plot saved_plot = {.kind = "lines",
                                      .x = "size",
                                      .y = "saved_percent",
                                      .series = "policy",
                                      .panel = "trace",
                                      .x_label = "cache size / working set",
                                      .y_label = "prefill time saved, %",
                                      .accent = "learned",
                                      .log_x = true,
                                      .from_zero = true};

const bench_command command_retention = {
    .name = "retention",
    .about = "prefill that retained prefixes save, by retention policy and cache size",
    .options = {options},
    .title = "Prefill time that retained prefixes save, by trace, cache size and retention policy",
    .columns = columns,
    .note =
        "size: of the cache over the trace's working set, which is the mean number of tokens that have been used and will be "
        "used again; the cache holds at least two of the longest requests. hits: tokens of prompts that were in the cache. "
        "saved: their prefill time, and its part of the prefill time of all prompts, in a model in which the token at position "
        "p takes linear-ns + p * attention-ps / 1000 ns. over lru: nothing where LRU saves nothing. chats: the same part of "
        "the chats' prompts alone, where all others belong to another account; evictions consider accounts in the rows whose "
        "policy names them. µs/request: all calls of a request, without arithmetic. µs/eviction: for each chunk of as many "
        "retained leaves, all of which are evicted.\n",
    .plot = &saved_plot,
    .measure = measure,
};
