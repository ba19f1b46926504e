/* An engine without a model: its thread sends each running request a token of the request's own prompt at every step. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chunkattn/base/clock.h"
#include "chunkllama/common/deadline.h"
#include "fake.h"

typedef struct fake_request {
    struct fake_request *next;
    uint64_t id;
    cl_engine_request params;
    int32_t *prompt;
    int64_t n_sent; /* tokens sent to each choice */
    int64_t n_completion;
    int32_t wait;                    /* steps of prefill that remain; < 0: not admitted */
    double deadline, queue_deadline; /* clock_seconds(); INFINITY: none */
    bool cancelled;
} fake_request;

typedef struct fake_inspection {
    struct fake_inspection *next;
    void (*fn)(void *ctx, const cattn_cache *cache);
    void *ctx;
} fake_inspection;

struct cl_engine {
    fake_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    fake_request *requests; /* oldest first */
    fake_request *pinned;   /* those that ended with a pin */
    uint64_t last_id;
    cl_engine_stats stats;
    bool stop;
    cattn_cache *cache; /* empty */
    fake_inspection *inspections;
};

static void send(fake_request *r, cl_engine_event event) {
    event.request = r->id;
    event.n_prompt = r->params.n_prompt;
    event.n_cached = r->params.n_prompt / 2;
    event.n_completion = r->n_completion;
    event.n_pinned = r->params.pin ? r->params.n_prompt / 2 * 2 : r->params.pin_tokens;
    r->params.on_event(r->params.ctx, &event);
}

/* The last event of each choice. */
static void finish(fake_request *r, cl_engine_finish how, const cl_error *error) {
    const float embedding[FAKE_EMBD] = {(float)r->params.n_prompt, (float)r->prompt[r->params.n_prompt - 1],
                                        (float)r->params.pooling};
    for (int32_t c = 0; c < r->params.n; c++)
        send(r,
             (cl_engine_event){.choice = c,
                               .kind = CL_EVENT_END,
                               .end = {how, 0, error, embedding, r->params.pooling && how == CL_ENGINE_LENGTH ? FAKE_EMBD : 0},
                               .last = c + 1 == r->params.n});
}

static void send_prompt(fake_request *r) {
    for (int64_t i = r->params.prompt_logprobs_from; r->params.prompt_logprobs && i < r->params.n_prompt; i++) {
        const cl_sampler_logprob top[1] = {{i ? r->prompt[i] : -1, -0.5f}};
        send(r,
             (cl_engine_event){.kind = CL_EVENT_PROMPT, .token = {r->prompt[i], 0, i, top[0], top, i && r->params.n_top > 0}});
    }
}

static void send_token(fake_request *r) {
    const int32_t token = r->prompt[r->n_sent % r->params.n_prompt];
    const char text = token < 128 ? (char)token : '?';
    const cl_sampler_logprob top[1] = {{token, -0.25f}};
    r->n_sent++;
    for (int32_t c = 0; c < r->params.n; c++) {
        r->n_completion++;
        send(r, (cl_engine_event){.choice = c,
                                  .kind = CL_EVENT_TOKEN,
                                  .token = {token, 0, r->params.n_prompt + r->n_sent - 1, top[0], top, r->params.n_top > 0},
                                  .text = &text,
                                  .text_size = 1});
    }
}

static bool must_fail(const fake_request *r) {
    for (int64_t i = 0; i < r->params.n_prompt; i++)
        if (r->prompt[i] == '!') return true;
    return false;
}

static bool is_late(const fake_request *r) { return clock_seconds() > r->deadline; }
static bool waits_too_long(const fake_request *r) { return r->wait < 0 && clock_seconds() > r->queue_deadline; }

/* Run one step of a request; true: it is done. */
static bool advance(fake_request *r) {
    static const cl_error failure = {.code = CL_ERR_NOMEM, .message = "the fake engine fails on request"};
    static const cl_error late = {.code = CL_ERR_TIMEOUT, .message = "the request is late"};
    static const cl_error unadmitted = {.code = CL_ERR_BUSY, .message = "the request was not admitted"};
    if (r->cancelled) return finish(r, CL_ENGINE_CANCELLED, NULL), true;
    if (is_late(r)) return finish(r, CL_ENGINE_ERROR, &late), true;
    if (waits_too_long(r)) return finish(r, CL_ENGINE_ERROR, &unadmitted), true;
    if (r->wait > 0) {
        if (--r->wait > 0) return false;
        send_prompt(r);
    }
    if (must_fail(r)) return finish(r, CL_ENGINE_ERROR, &failure), true;
    if (r->n_sent < r->params.max_tokens) send_token(r);
    if (r->n_sent == r->params.max_tokens) return finish(r, CL_ENGINE_LENGTH, NULL), true;
    return false;
}

static void count(cl_engine *e) {
    e->stats.n_running = e->stats.n_waiting = 0;
    for (const fake_request *r = e->requests; r; r = r->next) {
        if (r->wait < 0)
            e->stats.n_waiting++;
        else
            e->stats.n_running++;
    }
    e->stats.retry_after_s = fmax(1, (double)e->stats.n_waiting / 2);
}

static void admit(cl_engine *e) {
    count(e);
    for (fake_request *r = e->requests; r && e->stats.n_running < e->config.max_running; r = r->next) {
        if (r->wait >= 0) continue;
        r->wait = e->config.prefill_steps;
        e->stats.n_running++;
        e->stats.n_waiting--;
    }
}

static atomic_bool steps_are_held;

void fake_hold_steps(bool hold) { atomic_store(&steps_are_held, hold); }

static void take_a_step(int32_t us) {
    do nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
    while (atomic_load(&steps_are_held));
}

static void free_request(fake_request *r) {
    free(r->prompt);
    free(r);
}

/* Call the inspections that wait. The lock is released meanwhile. */
static void inspect(cl_engine *e) {
    while (e->inspections) {
        fake_inspection *i = e->inspections;
        e->inspections = i->next;
        pthread_mutex_unlock(&e->lock);
        i->fn(i->ctx, e->cache);
        free(i);
        pthread_mutex_lock(&e->lock);
    }
}

/* The engine's thread. It sends events without holding the lock, since their receivers may call the engine. */
static void *run(void *arg) {
    cl_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stop || e->requests || e->inspections) {
        inspect(e);
        if (!e->requests) {
            if (e->stop || e->inspections) continue;
            pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        admit(e);
        pthread_mutex_unlock(&e->lock);
        take_a_step(e->config.step_us);
        pthread_mutex_lock(&e->lock);
        for (fake_request **at = &e->requests; *at;) {
            fake_request *r = *at;
            if (e->stop) r->cancelled = true;
            fake_request now = *r;
            pthread_mutex_unlock(&e->lock);
            const bool done = (now.wait >= 0 || now.cancelled || is_late(&now) || waits_too_long(&now)) && advance(&now);
            pthread_mutex_lock(&e->lock);
            r->wait = now.wait;
            r->n_sent = now.n_sent;
            r->n_completion = now.n_completion;
            if (!done) {
                at = &r->next;
                continue;
            }
            e->stats.requests_finished++;
            e->stats.completion_tokens += r->n_completion;
            *at = r->next;
            if ((r->params.pin && now.n_sent == r->params.max_tokens && !now.cancelled) || r->params.pin_tokens > 0) {
                r->next = e->pinned;
                e->pinned = r;
            } else
                free_request(r);
        }
        count(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

cl_engine *fake_engine_create(const fake_config *config) {
    cl_engine *e = calloc(1, sizeof *e);
    e->config = *config;
    cattn_config cache;
    cattn_config_init(&cache);
    cache.n_layers = cache.n_heads = cache.n_kv_heads = cache.n_threads = 1;
    cache.head_dim = 32;
    cache.budget_bytes = 4 << 20;
    cattn_cache_create(&cache, &e->cache, NULL);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    pthread_create(&e->thread, NULL, run, e);
    return e;
}

void cl_engine_destroy(cl_engine **engine) {
    struct cl_engine *e = *engine;
    fake_hold_steps(false);
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    for (fake_request *r = e->pinned, *next; r; r = next) {
        next = r->next;
        free_request(r);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    cattn_cache_destroy(&e->cache);
    free(e);
    *engine = NULL;
}

cl_status cl_engine_inspect(cl_engine *e, void (*fn)(void *ctx, const cattn_cache *cache), void *ctx, cl_error *error) {
    fake_inspection *i = malloc(sizeof *i);
    if (!i) return cl_fail(error, CL_ERR_NOMEM, "no memory for the inspection");
    *i = (fake_inspection){NULL, fn, ctx};
    pthread_mutex_lock(&e->lock);
    fake_inspection **end = &e->inspections;
    while (*end) end = &(*end)->next;
    *end = i;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return CL_OK;
}

/* For inspections. */
cl_status cl_engine_explain(cl_engine *e, const cl_engine_request *request, cattn_explanation *explanation, cl_error *error) {
    (void)error;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = request->domain;
    cattn_cache_explain(e->cache, request->prompt, request->n_prompt, &options, explanation, NULL);
    return CL_OK;
}

cl_status cl_engine_reset_cache(cl_engine *e, cl_error *error) {
    (void)e, (void)error;
    return CL_OK;
}

static atomic_bool grammars_held;
static atomic_int n_grammars;

void fake_hold_grammars(bool hold) { atomic_store(&grammars_held, hold); }

void fake_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

bool fake_compiles(void) { return atomic_load(&n_grammars) > 0; }

/* As the engine, it compiles a grammar until the deadline. */
static cl_status compile_grammar(cl_error *error) {
    atomic_fetch_add(&n_grammars, 1);
    while (atomic_load(&grammars_held) && !cl_deadline_passed()) fake_pause();
    atomic_fetch_sub(&n_grammars, 1);
    return cl_deadline_check(error);
}

cl_status cl_engine_submit(cl_engine *e, const cl_engine_request *request, uint64_t *id, cl_error *error) {
    if (request->grammar_kind != CL_GRAMMAR_NONE && compile_grammar(error) != CL_OK) return error->code;
    const int64_t room = e->config.n_ctx - request->n_prompt;
    if (room <= 0 || request->max_tokens > room)
        return cl_fail(error, CL_ERR_LIMIT, "%lld prompt tokens and %lld to come, but the context has %lld",
                       (long long)request->n_prompt, (long long)request->max_tokens, (long long)e->config.n_ctx);
    fake_request *r = calloc(1, sizeof *r);
    if (r) r->prompt = malloc((size_t)request->n_prompt * sizeof *r->prompt);
    if (!r || !r->prompt) {
        free(r);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the request");
    }
    r->params = *request;
    if (r->params.max_tokens < 0) r->params.max_tokens = room;
    memcpy(r->prompt, request->prompt, (size_t)request->n_prompt * sizeof *r->prompt);
    r->wait = -1;
    r->deadline = request->timeout_s > 0 ? clock_seconds() + request->timeout_s : INFINITY;
    r->queue_deadline = request->queue_timeout_s > 0 ? clock_seconds() + request->queue_timeout_s : INFINITY;
    pthread_mutex_lock(&e->lock);
    const int64_t n_waiting = e->stats.n_waiting;
    if (e->config.max_waiting > 0 && n_waiting >= e->config.max_waiting) {
        pthread_mutex_unlock(&e->lock);
        free_request(r);
        return cl_fail(error, CL_ERR_BUSY, "%lld requests wait", (long long)n_waiting);
    }
    r->id = *id = ++e->last_id;
    fake_request **end = &e->requests;
    while (*end) end = &(*end)->next;
    *end = r;
    e->stats.prompt_tokens += request->n_prompt;
    e->stats.cached_tokens += request->n_prompt / 2;
    e->stats.preemptions += 1;
    e->stats.recomputed_tokens += 3;
    e->stats.waiting_tokens = 6;
    e->stats.step_rows = 12345678901;
    e->stats.drafts.n_drafts += 1;
    e->stats.drafts.n_tokens += 5;
    e->stats.drafts.n_accepted += 2;
    count(e);
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return CL_OK;
}

void cl_engine_cancel(cl_engine *e, uint64_t id) {
    pthread_mutex_lock(&e->lock);
    for (fake_request *r = e->requests; r; r = r->next) r->cancelled |= r->id == id;
    pthread_mutex_unlock(&e->lock);
}

void cl_engine_unpin(cl_engine *e, uint64_t id) {
    pthread_mutex_lock(&e->lock);
    for (fake_request *r = e->requests; r; r = r->next)
        if (r->id == id) {
            r->params.pin = false;
            r->params.pin_tokens = 0;
        }
    for (fake_request **at = &e->pinned; *at;) {
        fake_request *r = *at;
        if (r->id == id) {
            *at = r->next;
            free_request(r);
        } else
            at = &r->next;
    }
    pthread_mutex_unlock(&e->lock);
}

cl_status cl_engine_get_stats(cl_engine *e, cl_engine_stats *stats) {
    pthread_mutex_lock(&e->lock);
    *stats = e->stats;
    for (const fake_request *r = e->pinned; r; r = r->next) stats->n_pins++;
    pthread_mutex_unlock(&e->lock);
    return CL_OK;
}

cl_status cl_engine_get_kv_stats(cl_engine *e, cattn_stats *stats) {
    cl_engine_stats own;
    cl_engine_get_stats(e, &own);
    *stats = (cattn_stats){.struct_size = sizeof *stats,
                           .chunk_bytes = 1024,
                           .chunks_capacity = 100,
                           .tokens_retained = 31,
                           .tokens_evicted = 32,
                           .slots_padding = 33,
                           .chunks_pinned = 34,
                           .n_seqs = (uint64_t)own.n_pins};
    return CL_OK;
}

int64_t cl_engine_n_ctx(const cl_engine *e) { return e->config.n_ctx; }

const char *cl_engine_context_reason(const cl_engine *e) {
    (void)e;
    return NULL;
}
