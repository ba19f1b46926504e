/*
 * 16 requests at once behind a long prefix that is not in the cache: the time until all have their first token, over the time
 * of the prefix alone and then of the requests behind it; and the tokens computed, over those of the prefix and of the
 * branches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "memory.h"

enum { BRANCHES = 16 };

typedef struct branches {
    memory_bench *b;
    driver d;
    int64_t n_trunk, n_own; /* tokens of the prefix, and of each request behind it */
    int32_t *prompts;       /* [BRANCHES][n_trunk + n_own] */
    paired computed;        /* tokens, in the rounds of the time */
} branches;

/* Prompts that begin with the same new prefix. */
static void make_prompts(branches *s, driver_request *requests) {
    const int64_t n = s->n_trunk + s->n_own;
    for (int i = 0; i < BRANCHES; i++) {
        int32_t *prompt = s->prompts + i * n;
        memory_fill(s->b, prompt + (i ? s->n_trunk : 0), i ? s->n_own : n);
        if (i) memcpy(prompt, s->prompts, (size_t)s->n_trunk * sizeof *prompt);
        requests[i] = (driver_request){.prompt = prompt, .n_prompt = n, .max_tokens = 1};
    }
}

static bool compute(void *ctx, paired_way way, double *seconds) {
    branches *s = ctx;
    driver_request requests[BRANCHES], trunk = {.prompt = s->prompts, .n_prompt = s->n_trunk, .max_tokens = 0};
    make_prompts(s, requests);
    const int64_t before = driver_stats(&s->d).prefill_tokens_computed;
    const double start = clock_seconds();
    if (way == REFERENCE && !driver_run(&s->d, &trunk, 1)) return false;
    if (!driver_run(&s->d, requests, BRANCHES)) return false;
    *seconds = clock_seconds() - start;
    if (way == MEASURED)
        s->computed.seconds[way][s->b->pairs.n] = (double)(driver_stats(&s->d).prefill_tokens_computed - before);
    return true;
}

static void add_rows(branches *s) {
    char work[96];
    snprintf(work, sizeof work, "%d requests at once behind %d tokens, %d own tokens", BRANCHES, (int)s->n_trunk,
             (int)s->n_own);
    memory_row row = {
        .figure = "time to all first tokens, cold / prefix first", .work = work, .unit = "ms", .scale = 1e3, .bar = 1.15};
    memory_add(s->b, &row, &s->b->pairs);
    row.figure = "tokens computed / prefix and branches";
    row.unit = "tokens";
    row.scale = row.bar = 1;
    s->computed.n = s->b->pairs.n;
    for (int i = 0; i < s->computed.n; i++) s->computed.seconds[REFERENCE][i] = (double)(s->n_trunk + BRANCHES * s->n_own);
    memory_add(s->b, &row, &s->computed);
}

bool memory_branches(memory_bench *b) {
    static branches s;
    const bool quick = b->bench->quick;
    s = (branches){.b = b, .n_trunk = quick ? 128 : 7400, .n_own = quick ? 8 : 64};
    cl_engine_config config = memory_config(b, BRANCHES, 3 * (s.n_trunk + BRANCHES * (s.n_own + 128)));
    s.prompts = memory_alloc((size_t)(BRANCHES * (s.n_trunk + s.n_own)), sizeof *s.prompts);
    bool ok = s.prompts && driver_open(&s.d, b->model, &config) && memory_measure(b, 0.02, compute, &s);
    if (ok) add_rows(&s);
    if (s.d.engine) driver_close(&s.d);
    free(s.prompts);
    return ok;
}
