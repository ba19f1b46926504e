/*
 * The TTFT of a tenant while another floods the engine with 1,000 requests, over that on an idle engine.
 *
 * A round sends some requests of the first tenant one after the other, with the flood and without it. The flood is submitted
 * before them, and is cancelled after them; they begin when it has filled all places.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/loadgen/quantiles.h"
#include "memory.h"

enum { FLOOD = 1000, SENT = 5, PLACES = 32, DECODED = 64 };

typedef struct flood {
    memory_bench *b;
    driver d;
    int64_t n_requests;              /* of the flood */
    int64_t n_prompt, n_flood;       /* tokens of a prompt of the tenant, and of the flood */
    int32_t *prompt, *flood_prompts; /* [n_prompt], [n_requests][n_flood] */
    uint64_t random;
    driver_request *requests; /* [n_requests] */
} flood;

enum { TENANT = 1, FLOODER = 2 };

/* The flood comes in, and fills all places. */
static bool begin_flood(flood *f) {
    for (int64_t i = 0; i < f->n_requests; i++) {
        memory_fill(f->b, f->flood_prompts + i * f->n_flood, f->n_flood);
        f->requests[i] = (driver_request){.prompt = f->flood_prompts + i * f->n_flood,
                                          .n_prompt = f->n_flood,
                                          .max_tokens = DECODED,
                                          .domain = FLOODER,
                                          .ignore_eos = true};
    }
    return driver_submit(&f->d, f->requests, (size_t)f->n_requests) && driver_wait_unstarted(&f->d, f->n_requests - PLACES);
}

/* Wait for up to a quarter of a second, so that requests arrive at any time of a step. */
static void pause_at_random(flood *f) {
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    const struct timespec t = {.tv_nsec = (long)(f->random >> 36)}; /* below 2^28 ns */
    nanosleep(&t, NULL);
}

/* The median TTFT of requests of the tenant. */
static bool ttft(void *ctx, paired_way way, double *seconds) {
    flood *f = ctx;
    double times[SENT];
    if (way == MEASURED && !begin_flood(f)) return false;
    for (int i = 0; i < SENT; i++) {
        driver_request r = {.prompt = f->prompt, .n_prompt = f->n_prompt, .max_tokens = 1, .domain = TENANT};
        memory_fill(f->b, f->prompt, f->n_prompt);
        pause_at_random(f);
        if (!driver_submit(&f->d, &r, 1) || !driver_wait_for(&f->d, &r)) return false;
        times[i] = r.first - r.submitted;
    }
    *seconds = load_median(times, SENT);
    if (way == MEASURED) driver_cancel(&f->d, f->requests, (size_t)f->n_requests);
    return driver_wait(&f->d);
}

bool memory_flood(memory_bench *b) {
    const bool quick = b->bench->quick;
    flood f = {.b = b, .n_requests = quick ? 40 : FLOOD, .n_prompt = quick ? 32 : 512, .n_flood = quick ? 16 : 256};
    cl_engine_config config = memory_config(b, PLACES, 2 * PLACES * (f.n_prompt + 128));
    f.prompt = memory_alloc((size_t)f.n_prompt, sizeof *f.prompt);
    f.flood_prompts = memory_alloc((size_t)(f.n_requests * f.n_flood), sizeof *f.flood_prompts);
    f.requests = memory_alloc((size_t)f.n_requests, sizeof *f.requests);
    bool ok = f.prompt && f.flood_prompts && f.requests && driver_open(&f.d, b->model, &config);
    ok = ok && memory_measure(b, 0.1, ttft, &f);
    char work[96];
    snprintf(work, sizeof work, "%d-token prompts beside %d requests of %d tokens, %d decoded", (int)f.n_prompt,
             (int)f.n_requests, (int)f.n_flood, DECODED);
    const memory_row row = {
        .figure = "median TTFT of a tenant, another floods / idle", .work = work, .unit = "ms", .scale = 1e3, .bar = 3};
    if (ok) memory_add(b, &row, &b->pairs);
    if (f.d.engine) driver_close(&f.d);
    free(f.prompt);
    free(f.flood_prompts);
    free(f.requests);
    return ok;
}
