/*
 * Measures throughput where K/V memory is short: engine_pressure MODEL [ROUNDS].
 *
 * 64 chats are answered greedily, so their completions are the same in every run and end where the model ends them. Each round
 * runs them with memory for all and max_tokens set to the lengths that they turn out to have, with memory for 8 worst cases
 * with and without these lengths, and with a quarter of the memory that all need together.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "chunkllama.h"

enum { N = 64, N_CTX = 1024 };

typedef struct chat {
    cl_token_list prompt;
    int64_t n_tokens; /* of its completion */
    uint64_t hash;    /* of its tokens */
} chat;

static chat chats[N];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_left;

static void die(const char *what, const cl_error *error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

static void on_event(void *ctx, const cl_engine_event *event) {
    chat *c = ctx;
    if (event->token >= 0) {
        c->n_tokens++;
        c->hash = (c->hash ^ (uint64_t)event->token) * 0x100000001b3u;
    }
    if (!event->last) return;
    pthread_mutex_lock(&mutex);
    n_left--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static void make_prompts(const cl_model *m) {
    static const char *const topics[] = {"the sea",   "bread",  "chess",  "the moon", "bicycles", "tea",   "rain", "glass",
                                         "elephants", "trains", "music",  "salt",     "paper",    "bees",  "rice", "fire",
                                         "mountains", "clocks", "horses", "iron",     "cotton",   "ships", "snow", "sleep"};
    static const char *const forms[] = {"Describe %s in one short sentence.", "Tell me three things about %s.",
                                        "Explain to a child, in a few sentences, what is special about %s."};
    for (int i = 0; i < N; i++) {
        char text[256];
        snprintf(text, sizeof text, forms[i % 3], topics[(i * 7 + i / 24) % 24]);
        const cl_chat_message message = {"user", text, strlen(text)};
        cl_error error;
        if (cl_model_format_chat(m, NULL, &message, 1, &chats[i].prompt, &error) != CL_OK) die("prompt", &error);
    }
}

/* Answer all chats and return the seconds. limits [N]: max_tokens; NULL: as many as the context holds. */
static double run(const cl_model *m, uint64_t budget, const int64_t *limits, cl_engine_stats *stats) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.kv_budget_bytes = budget;
    config.max_seqs = N;
    config.n_ctx = N_CTX;
    config.n_threads = 2;
    cl_engine *e;
    cl_error error;
    if (cl_engine_create(m, &config, &e, &error) != CL_OK) die("engine", &error);
    const double start = clock_seconds();
    n_left = N;
    for (int i = 0; i < N; i++) {
        chats[i].n_tokens = 0;
        chats[i].hash = 0;
        cl_engine_request r;
        cl_engine_request_init(&r);
        r.prompt = chats[i].prompt.ids;
        r.n_prompt = (int64_t)chats[i].prompt.n;
        r.sampling.temperature = 0;
        r.max_tokens = limits ? limits[i] : -1;
        r.on_event = on_event;
        r.ctx = &chats[i];
        if (cl_engine_submit(e, &r, NULL, &error) != CL_OK) die("request", &error);
    }
    pthread_mutex_lock(&mutex);
    while (n_left > 0) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    const double seconds = clock_seconds() - start;
    stats->struct_size = sizeof *stats;
    cl_engine_get_stats(e, stats);
    cl_engine_destroy(&e);
    return seconds;
}

/* Bytes of K/V of a token. */
static uint64_t token_bytes(const cl_model *m) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.n_threads = 1;
    cl_engine *e;
    cl_error error;
    if (cl_engine_create(m, &config, &e, &error) != CL_OK) die("engine", &error);
    cattn_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_kv_stats(e, &stats);
    cl_engine_destroy(&e);
    return stats.chunk_bytes / 64;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    cl_model *m;
    cl_error error;
    if (cl_model_load(argv[1], NULL, &m, &error) != CL_OK) die(argv[1], &error);
    make_prompts(m);
    const uint64_t token = token_bytes(m);
    int64_t limits[N], total = 0, generated = 0;
    uint64_t hashes[N];
    cl_engine_stats stats;
    run(m, UINT64_C(4) << 30, NULL, &stats);
    for (int i = 0; i < N; i++) {
        limits[i] = chats[i].n_tokens;
        hashes[i] = chats[i].hash;
        generated += limits[i];
        total += (int64_t)(chats[i].prompt.n + 63 + (size_t)limits[i]) / 64 * 64;
    }
    printf("%lld tokens generated, %lld tokens of chunks\n", (long long)generated, (long long)total);
    const uint64_t worst = (uint64_t)N_CTX * token * 8 / 7, quarter = (uint64_t)total * token / 4 * 8 / 7;
    const struct {
        const char *name;
        uint64_t budget;
        const int64_t *limits;
    } ways[] = {{"memory for all, lengths given", UINT64_C(4) << 30, limits},
                {"8 worst cases, lengths given", 8 * worst, limits},
                {"8 worst cases, no max_tokens", 8 * worst, NULL},
                {"a quarter, no max_tokens", quarter, NULL}};
    for (int round = 0; round < (argc > 2 ? atoi(argv[2]) : 1); round++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const double seconds = run(m, ways[w].budget, ways[w].limits, &stats);
            for (int i = 0; i < N; i++)
                if (chats[i].hash != hashes[i]) return fprintf(stderr, "chat %d has other tokens\n", i), 1;
            printf("%-30s %7.1f tokens/s, %lld preemptions, %lld tokens again, %lld steps\n", ways[w].name,
                   (double)generated / seconds, (long long)stats.preemptions, (long long)stats.recomputed_tokens,
                   (long long)stats.steps);
            fflush(stdout);
        }
    for (int i = 0; i < N; i++) cl_token_list_free(&chats[i].prompt);
    cl_model_free(&m);
    return 0;
}
