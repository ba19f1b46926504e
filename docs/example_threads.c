/* Threads of an engine, all of which enter each operator together, as ggml's do, compute a cache's attention. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include <chunkattn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, HEADS = 8, KV_HEADS = 4, DIM = 64, ROWS = 300 };

/* A loop that the library runs on the engine's threads. Thread 0 makes the library's calls; the others help it meanwhile. */
typedef struct team {
    pthread_barrier_t barrier;
    void (*fn)(void *arg, int32_t task, int32_t worker);
    void *arg;
    int32_t n_tasks;
    atomic_int next;
    bool is_over; /* the operator */
} team;

static void work(team *t, int32_t worker) {
    for (int32_t task; (task = atomic_fetch_add(&t->next, 1)) < t->n_tasks;) t->fn(t->arg, task, worker);
}

/* cattn_parallel.run, on thread 0. */
static void run(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    team *t = ctx;
    t->fn = fn, t->arg = arg, t->n_tasks = n_tasks, t->next = 0;
    pthread_barrier_wait(&t->barrier); /* the others see the loop */
    work(t, 0);
    pthread_barrier_wait(&t->barrier); /* and have left it, so that the next one may overwrite it */
}

/* The other threads, until thread 0 ends the operator. */
static void help(team *t, int32_t worker) {
    for (;;) {
        pthread_barrier_wait(&t->barrier);
        if (t->is_over) return;
        work(t, worker);
        pthread_barrier_wait(&t->barrier);
    }
}

static void end_operator(team *t) {
    t->is_over = true;
    pthread_barrier_wait(&t->barrier);
}

static void check(cattn_status status, const cattn_error *error) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error->message);
    exit(1);
}

/* The operator of thread 0: the attention of a prompt. */
static void attend(cattn_cache *cache, float *out) {
    static float k[ROWS * KV_HEADS * DIM], v[ROWS * KV_HEADS * DIM], q[ROWS * HEADS * DIM];
    const cattn_view k_view = {k, CATTN_F32, KV_HEADS * DIM, DIM}, v_view = {v, CATTN_F32, KV_HEADS * DIM, DIM};
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    int32_t tokens[ROWS];
    cattn_error error;
    cattn_entry entry = {.max_rows = ROWS};
    for (int i = 0; i < ROWS; i++) tokens[i] = i;
    for (int i = 0; i < ROWS * KV_HEADS * DIM; i++) k[i] = (float)(i % 97) / 97, v[i] = (float)(i % 89) / 89;
    for (int i = 0; i < ROWS * HEADS * DIM; i++) q[i] = (float)(i % 83) / 83;
    check(cattn_seq_join(cache, tokens, ROWS, NULL, &entry.seq, NULL, &error), &error);
    check(cattn_step_begin(cache, &entry, 1, 0, &error), &error);
    check(cattn_step_write(cache, 0, &k_view, &v_view, &error), &error);
    check(cattn_step_attend(cache, 0, &q_view, &out_view, NULL, &error), &error);
    check(cattn_step_end(cache, &error), &error);
}

static cattn_cache *create(team *t) {
    cattn_cache *cache;
    cattn_config config;
    cattn_error error;
    cattn_config_init(&config);
    config.n_layers = 1;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    config.n_threads = THREADS; /* workers of the hook, or the library's own */
    if (t) config.parallel = (cattn_parallel){run, t};
    check(cattn_cache_create(&config, &cache, &error), &error);
    return cache;
}

static team the_team;
static atomic_int n_started = 1; /* thread 0 */

static void *enter(void *arg) {
    (void)arg;
    help(&the_team, atomic_fetch_add(&n_started, 1));
    return NULL;
}

int main(void) {
    static float ours[ROWS * HEADS * DIM], its_own[ROWS * HEADS * DIM];
    pthread_t threads[THREADS];
    pthread_barrier_init(&the_team.barrier, NULL, THREADS);
    for (int i = 1; i < THREADS; i++) pthread_create(&threads[i], NULL, enter, NULL);
    cattn_cache *cache = create(&the_team), *other = create(NULL);
    attend(cache, ours);
    end_operator(&the_team);
    for (int i = 1; i < THREADS; i++) pthread_join(threads[i], NULL);
    attend(other, its_own);
    printf("the bits are %s\n", memcmp(ours, its_own, sizeof ours) ? "different" : "the same");
    cattn_cache_destroy(&cache);
    cattn_cache_destroy(&other);
    return memcmp(ours, its_own, sizeof ours) != 0;
}
