/*
 * The ITL of chats that run, while prompts of 16k tokens come in and without them.
 *
 * A window is 16 chats from their first tokens to their ends. In every second window a long prompt comes in, which is cancelled
 * at the window's end; what has been computed of it stays in the cache, so that it goes on in the next such window. So the
 * windows of a pair follow each other directly, and all depths of the prompt are measured.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/loadgen/quantiles.h"
#include "memory.h"

enum { CHATS = 16 };

/* The target ITL, over the median without long prompts and without a target. */
static const double target_ratio = 1.25;

typedef struct itl_bench {
    memory_bench *b;
    driver d;
    int64_t n_prompt, n_completion, n_long; /* tokens of a chat's prompt and completion, and of a long prompt */
    int32_t *prompts, *long_prompt;         /* [CHATS][n_prompt], [n_long] */
    double *itl;                            /* [CHATS][n_completion - 1] of the last window */
    driver_request long_request;
    int64_t depths[PAIRED_MAX_ROUNDS]; /* tokens of the long prompt that the cache held when the round began */
} itl_bench;

/* A quantile of the last window's ITL, which this sorts. */
static double quantile(itl_bench *t, double p) {
    const size_t n = CHATS * (size_t)(t->n_completion - 1);
    load_sort(t->itl, n);
    return load_quantile(t->itl, n, p);
}

/* The long prompt comes in: the one of the last window, or another one if that was computed. */
static bool submit_long(itl_bench *t) {
    if (t->long_request.n_tokens > 0) memory_fill(t->b, t->long_prompt, t->n_long);
    t->long_request = (driver_request){.prompt = t->long_prompt, .n_prompt = t->n_long, .max_tokens = 1};
    return driver_submit(&t->d, &t->long_request, 1);
}

static bool run_window(itl_bench *t, bool with_long) {
    driver_request chats[CHATS];
    for (int i = 0; i < CHATS; i++)
        chats[i] = (driver_request){.prompt = t->prompts + i * t->n_prompt,
                                    .n_prompt = t->n_prompt,
                                    .max_tokens = t->n_completion,
                                    .ignore_eos = true,
                                    .itl = t->itl + i * (t->n_completion - 1)};
    if (!driver_submit(&t->d, chats, CHATS) || !driver_wait_unstarted(&t->d, 0)) return false;
    if (with_long && !submit_long(t)) return false;
    if (!driver_wait_left(&t->d, with_long ? 1 : 0)) return false;
    if (with_long) driver_cancel(&t->d, &t->long_request, 1);
    return driver_wait(&t->d);
}

static bool window_p99(void *ctx, paired_way way, double *seconds) {
    itl_bench *t = ctx;
    if (!run_window(t, way == MEASURED)) return false;
    if (way == MEASURED) t->depths[t->b->pairs.n] = t->long_request.n_cached;
    *seconds = quantile(t, 0.99);
    return true;
}

/* The rounds that began at a depth of at least n_tokens. */
static void keep_deep(itl_bench *t, int64_t n_tokens, paired *deep) {
    const paired *all = &t->b->pairs;
    deep->n = 0;
    for (int i = 0; i < all->n; i++) {
        if (t->depths[i] < n_tokens) continue;
        for (int way = 0; way < 2; way++) deep->seconds[way][deep->n] = all->seconds[way][i];
        deep->n++;
    }
}

/* bar: the largest ratio that is good; 0: any. */
static void add_rows(itl_bench *t, double target_s, double bar) {
    static paired deep;
    char work[96], target[32] = "no target ITL";
    if (target_s > 0) snprintf(target, sizeof target, "target ITL %.1f ms", target_s * 1e3);
    if (target_s < 0) snprintf(target, sizeof target, "the default target ITL");
    snprintf(work, sizeof work, "%d chats, %d-token prompts, %s", CHATS, (int)t->n_long, target);
    memory_row row = {.figure = "p99 ITL, with long prompts / without", .work = work, .unit = "ms", .scale = 1e3, .bar = bar};
    memory_add(t->b, &row, &t->b->pairs);
    keep_deep(t, t->n_long * 3 / 4, &deep);
    if (target_s == 0 || deep.n == 0) return;
    snprintf(work, sizeof work, "the same, from token %d of the prompts on", (int)(t->n_long * 3 / 4));
    memory_add(t->b, &row, &deep);
}

static bool open_engine(itl_bench *t, double target_s) {
    const int64_t n_chats = CHATS * (t->n_prompt + t->n_completion + 128);
    cl_engine_config config = memory_config(t->b, CHATS + 1, 2 * t->n_long + n_chats);
    config.n_ctx = (int32_t)t->n_long + 64;
    config.target_itl_s = target_s;
    t->long_request.n_tokens = 1; /* begin with a new prompt */
    return driver_open(&t->d, t->b->model, &config) && run_window(t, false);
}

/* Without a target for a fifth of the time, which also finds the target. */
static bool measure_without_target(itl_bench *t, double *target_s) {
    memory_bench *b = t->b;
    const int64_t seconds = b->seconds;
    bool ok = open_engine(t, 0) && run_window(t, false);
    *target_s = target_ratio * quantile(t, 0.5);
    b->seconds = seconds / 5 + 1;
    ok = ok && memory_measure(b, 0.05, window_p99, t);
    if (ok) add_rows(t, 0, 0);
    b->seconds = seconds;
    driver_close(&t->d);
    return ok;
}

static bool measure_with_target(itl_bench *t, double target_s, double bar) {
    bool ok = open_engine(t, target_s) && memory_measure(t->b, 0, window_p99, t); /* all depths: until the time is over */
    if (ok) add_rows(t, target_s, bar);
    driver_close(&t->d);
    return ok;
}

bool memory_itl(memory_bench *b) {
    static itl_bench t;
    const bool quick = b->bench->quick;
    double target_s;
    t = (itl_bench){.b = b, .n_prompt = quick ? 32 : 512, .n_completion = quick ? 8 : 128, .n_long = quick ? 256 : 16384};
    t.prompts = memory_alloc((size_t)(CHATS * t.n_prompt), sizeof *t.prompts);
    t.long_prompt = memory_alloc((size_t)t.n_long, sizeof *t.long_prompt);
    t.itl = memory_alloc((size_t)(CHATS * (t.n_completion - 1)), sizeof *t.itl);
    bool ok = t.prompts && t.long_prompt && t.itl;
    for (int i = 0; ok && i < CHATS; i++) memory_fill(b, t.prompts + i * t.n_prompt, t.n_prompt);
    ok =
        ok && measure_without_target(&t, &target_s) && measure_with_target(&t, target_s, 1.5) && measure_with_target(&t, -1, 4);
    free(t.prompts);
    free(t.long_prompt);
    free(t.itl);
    return ok;
}
