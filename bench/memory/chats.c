/*
 * Throughput of 64 chats: where memory holds a quarter of their K/V, and where none of them has a max_tokens.
 *
 * They are answered greedily, so their completions are the same in every run and end where the model ends them. A first run
 * finds the lengths. The reference of the first figure has memory for all, that of the second the same memory and true lengths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "memory.h"

enum { MAX_CHATS = 64, WORST_CASES = 8 };

typedef struct chats {
    memory_bench *b;
    int n;
    int32_t n_ctx;
    cl_token_list prompts[MAX_CHATS];
    int64_t lengths[MAX_CHATS]; /* of the completions */
    uint64_t hashes[MAX_CHATS]; /* of their tokens */
    int64_t n_generated;        /* the sum of lengths */
    /* Of the current row: */
    int64_t n_tokens[2];      /* memory of each way */
    bool has_lengths[2];      /* its requests have max_tokens */
    cl_engine_stats stats[2]; /* of its last round */
} chats;

static bool make_prompts(chats *c) {
    static const char *const topics[] = {"the sea",   "bread",  "chess",  "the moon", "bicycles", "tea",   "rain", "glass",
                                         "elephants", "trains", "music",  "salt",     "paper",    "bees",  "rice", "fire",
                                         "mountains", "clocks", "horses", "iron",     "cotton",   "ships", "snow", "sleep"};
    static const char *const forms[] = {"Describe %s in one short sentence.", "Tell me three things about %s.",
                                        "Explain to a child, in a few sentences, what is special about %s."};
    for (int i = 0; i < c->n; i++) {
        char text[256];
        cl_error error;
        snprintf(text, sizeof text, forms[i % 3], topics[(i * 7 + i / 24) % 24]);
        const cl_chat_message message = {"user", text, strlen(text)};
        if (cl_model_format_chat(c->b->model, NULL, &message, 1, &c->prompts[i], &error) != CL_OK) {
            fprintf(stderr, "cattn-bench memory: %s\n", error.message);
            return false;
        }
    }
    return true;
}

/* Answer all chats with memory for n_tokens. */
static bool answer(chats *c, int64_t n_tokens, bool has_lengths, driver_request *requests, double *seconds,
                   cl_engine_stats *stats) {
    cl_engine_config config = memory_config(c->b, c->n, n_tokens);
    driver d;
    config.n_ctx = c->n_ctx;
    for (int i = 0; i < c->n; i++)
        requests[i] = (driver_request){
            .prompt = c->prompts[i].ids, .n_prompt = (int64_t)c->prompts[i].n, .max_tokens = has_lengths ? c->lengths[i] : -1};
    bool ok = driver_open(&d, c->b->model, &config);
    const double start = clock_seconds();
    ok = ok && driver_run(&d, requests, (size_t)c->n);
    *seconds = clock_seconds() - start;
    if (ok) *stats = driver_stats(&d);
    driver_close(&d);
    return ok;
}

/* A run with memory for all finds how long the completions are. */
static bool find_lengths(chats *c) {
    driver_request requests[MAX_CHATS];
    double seconds;
    if (!answer(c, (int64_t)c->n * c->n_ctx, false, requests, &seconds, &c->stats[REFERENCE])) return false;
    for (int i = 0; i < c->n; i++) {
        c->lengths[i] = requests[i].n_tokens;
        c->hashes[i] = requests[i].hash;
        c->n_generated += requests[i].n_tokens;
    }
    return true;
}

/* Tokens a second. Wrong tokens end the measurement. */
static bool rate(void *ctx, paired_way way, double *value) {
    chats *c = ctx;
    driver_request requests[MAX_CHATS];
    double seconds;
    if (!answer(c, c->n_tokens[way], c->has_lengths[way], requests, &seconds, &c->stats[way])) return false;
    for (int i = 0; i < c->n; i++)
        if (requests[i].hash != c->hashes[i]) {
            fprintf(stderr, "cattn-bench memory: chat %d got other tokens than with memory for all\n", i);
            return false;
        }
    *value = (double)c->n_generated / seconds;
    return true;
}

/* Tokens of the chunks that all chats need together. */
static int64_t tokens_of_all(const chats *c) {
    int64_t n = 0;
    for (int i = 0; i < c->n; i++) n += ((int64_t)c->prompts[i].n + c->lengths[i] + 63) / 64 * 64;
    return n;
}

static bool compare(chats *c, const memory_row *row) {
    if (!memory_measure(c->b, 0.02, rate, c)) return false;
    memory_add(c->b, row, &c->b->pairs);
    return true;
}

static bool compare_memory(chats *c) {
    char work[96];
    const int64_t all = tokens_of_all(c), quarter = all / 4 > c->n_ctx ? all / 4 : c->n_ctx; /* holds each request alone */
    snprintf(work, sizeof work, "%d chats that need %d tokens of chunks", c->n, (int)all);
    const memory_row row = {.figure = "throughput, memory for a quarter / for all",
                            .work = work,
                            .unit = "tokens/s",
                            .scale = 1,
                            .bar = 0.7,
                            .at_least = true,
                            .stats = &c->stats[MEASURED]};
    c->n_tokens[MEASURED] = quarter;
    c->n_tokens[REFERENCE] = (int64_t)c->n * c->n_ctx;
    c->has_lengths[MEASURED] = c->has_lengths[REFERENCE] = false;
    return compare(c, &row);
}

static bool compare_lengths(chats *c) {
    char work[96];
    snprintf(work, sizeof work, "%d chats, memory for %d worst cases of %d tokens", c->n, WORST_CASES, c->n_ctx);
    const memory_row row = {.figure = "throughput, max_tokens left out / true lengths",
                            .work = work,
                            .unit = "tokens/s",
                            .scale = 1,
                            .bar = 0.9,
                            .at_least = true,
                            .stats = &c->stats[MEASURED]};
    c->n_tokens[MEASURED] = c->n_tokens[REFERENCE] = (int64_t)WORST_CASES * c->n_ctx;
    c->has_lengths[MEASURED] = false;
    c->has_lengths[REFERENCE] = true;
    return compare(c, &row);
}

bool memory_chats(memory_bench *b) {
    chats c = {.b = b, .n = b->bench->quick ? 8 : MAX_CHATS, .n_ctx = b->bench->quick ? 128 : 1024};
    const bool ok = make_prompts(&c) && find_lengths(&c) && compare_memory(&c) && compare_lengths(&c);
    for (int i = 0; i < c.n; i++) cl_token_list_free(&c.prompts[i]);
    return ok;
}
