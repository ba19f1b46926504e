/*
 * What retention costs where nothing is found in the cache and memory suffices: the time of requests that have nothing in
 * common, with the retention policy `learned` over that with `none`. Both engines have used their memory once before, so that
 * retained prefixes are evicted in each round and no first write to a page is timed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "chunkattn/base/clock.h"
#include "memory.h"

enum { REQUESTS = 16 };

typedef struct overhead {
    memory_bench *b;
    driver drivers[2];
    int64_t n_prompt, n_completion;
    int32_t *prompts; /* [REQUESTS][n_prompt] */
} overhead;

static bool answer(void *ctx, paired_way way, double *seconds) {
    overhead *o = ctx;
    driver_request requests[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        memory_fill(o->b, o->prompts + i * o->n_prompt, o->n_prompt);
        requests[i] = (driver_request){
            .prompt = o->prompts + i * o->n_prompt, .n_prompt = o->n_prompt, .max_tokens = o->n_completion, .ignore_eos = true};
    }
    const double start = clock_seconds();
    const bool ok = driver_run(&o->drivers[way], requests, REQUESTS);
    *seconds = clock_seconds() - start;
    return ok;
}

/* Memory for four rounds, of which one runs. */
static bool open_engines(overhead *o) {
    const cattn_retention retention[] = {[MEASURED] = CATTN_RETAIN_LEARNED, [REFERENCE] = CATTN_RETAIN_NONE};
    enum { ROUNDS = 4 };
    cl_engine_config config = memory_config(o->b, REQUESTS, ROUNDS * REQUESTS * (o->n_prompt + o->n_completion + 64));
    bool ok = true;
    for (int way = 0; ok && way < 2; way++) {
        double seconds;
        config.retention = retention[way];
        ok = driver_open(&o->drivers[way], o->b->model, &config);
        for (int i = 0; ok && i < (o->b->bench->quick ? 1 : 2 * ROUNDS); i++) ok = answer(o, (paired_way)way, &seconds);
    }
    return ok;
}

bool memory_overhead(memory_bench *b) {
    const bool quick = b->bench->quick;
    overhead o = {.b = b, .n_prompt = quick ? 16 : 128, .n_completion = quick ? 4 : 32};
    o.prompts = memory_alloc((size_t)(REQUESTS * o.n_prompt), sizeof *o.prompts);
    const bool ok = o.prompts && open_engines(&o) && memory_measure(b, 0.005, answer, &o);
    char work[96];
    snprintf(work, sizeof work, "%d requests at once, %d tokens, %d decoded", REQUESTS, (int)o.n_prompt, (int)o.n_completion);
    const memory_row row = {
        .figure = "time without hits, retention learned / none", .work = work, .unit = "ms", .scale = 1e3, .bar = 1.01};
    if (ok) memory_add(b, &row, &b->pairs);
    for (int way = 0; way < 2; way++)
        if (o.drivers[way].engine) driver_close(&o.drivers[way]);
    free(o.prompts);
    return ok;
}
