/* The life of a generation, from its request to its end. generation.h describes threads, ownership and the lock order. */
#include "generation_state.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "chunkattn/base/clock.h"
#include "chunkllama/common/deadline.h"
#include "chunkllama/engine/params_copy.h"
#include "serve/protocol/json.h"

/* Bytes of a body from which on freed memory is returned to the system, which means a walk over the whole heap. */
enum { LARGE_BODY = 1 << 20 };

/* ---- The server's own errors ---- */

/* Nobody knows when another server takes over. */
const openai_error *generation_stopped_error(openai_error *error) {
    openai_fail(error, NULL, "the server is shutting down; send the request again later");
    return openai_unavailable(error, 5);
}

const openai_error *generation_memory_error(openai_error *error) {
    openai_fail(error, NULL, "out of memory; send the request again later");
    return openai_unavailable(error, 0);
}

const openai_error *generation_share_error(const http_server *s, openai_error *error) {
    openai_fail(error, NULL,
                "requests that arrive or wait take all that this client may have of the %zu bytes of --request-memory; send "
                "the request again later",
                s->config.request_memory);
    openai_unavailable(error, 1);
    error->code = "request_memory";
    return error;
}

/* ---- States ---- */

bool generation_may_become(generation_state from, generation_state to) {
    if (from == GENERATION_PREPARING) return to != GENERATION_PREPARING;
    return from == GENERATION_RUNNING && to > GENERATION_REFUSED;
}

void generation_become(http_generation *g, generation_state to) {
    if (generation_may_become(g->state, to)) g->state = to;
}

/* Whether the answer depends on later events. With g->lock held. */
static bool is_open(const http_generation *g) { return g->state <= GENERATION_RUNNING && !atomic_load(&g->srv->stopping); }

void generation_wake_if_due(http_generation *g) {
    if (!g->awaited || (is_open(g) && !g->awaited(g))) return;
    g->awaited = NULL;
    MHD_resume_connection(g->connection);
}

/* ---- Ownership ---- */

static void release(const generation_kind *kind, void *own) { (kind->release ? kind->release : free)(own); }

static void generation_free(http_generation *g) {
    if (g->result.request) openai_result_free(&g->result);
    openai_request_free(&g->request);
    generation_free_events(g->events);
    pthread_mutex_destroy(&g->lock);
    free(g->submitted);
    free(g->token_at);
    free(g->n_tokens);
    free(g->first_at);
    free(g->body);
    if (g->own) release(g->kind, g->own);
    writer_free(&g->answer);
    writer_free(&g->out);
    free(g);
}

static void add_owners(http_generation *g, size_t n) {
    pthread_mutex_lock(&g->srv->lock);
    g->n_owners += n;
    pthread_mutex_unlock(&g->srv->lock);
}

void generation_drop_owners(http_generation *g, size_t n) {
    http_server *s = g->srv;
    pthread_mutex_lock(&s->lock);
    g->n_owners -= n;
    const bool is_last = g->n_owners == 0;
    if (is_last) {
        if (g->next) g->next->previous = g->previous;
        *(g->previous ? &g->previous->next : &s->generations) = g->next;
        shares_give_back(&s->memory, g->task.domain, g->counted);
        atomic_fetch_add_explicit(&s->n_freed, g->counted, memory_order_relaxed);
        pthread_cond_broadcast(&s->freed);
    }
    pthread_mutex_unlock(&s->lock); /* from here on the server may be freed, but not g */
    if (is_last) generation_free(g);
}

/* Add g to the server's list with the connection as its owner. False: the server stops. */
static bool enlist(http_generation *g) {
    http_server *s = g->srv;
    pthread_mutex_lock(&s->lock);
    const bool ok = !atomic_load(&s->stopping);
    if (ok) {
        g->next = s->generations;
        if (g->next) g->next->previous = g;
        s->generations = g;
        g->n_owners = 1;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- The beginning, on the connection's thread ---- */

/* A new generation, which takes over x's body; NULL if memory is lacking. */
static http_generation *generation_create(http_exchange *x, const generation_kind *kind) {
    http_generation *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->srv = x->srv;
    g->kind = kind;
    g->dialect = x->dialect;
    g->connection = x->connection;
    g->fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    g->task.domain = x->domain;
    g->arrived_at = clock_seconds();
    memcpy(g->request_id, x->request_id, sizeof g->request_id);
    g->is_named = x->is_named;
    g->body = x->body;
    g->body_size = x->body_size;
    g->counted = x->counted;
    x->body = NULL;
    x->body_size = x->body_capacity = x->counted = 0;
    return g;
}

/* Queue a new generation; NULL: memory was lacking for it. */
static enum MHD_Result begin(http_exchange *x, http_generation *g) {
    openai_error error;
    if (!g) return http_reply_error(x, generation_memory_error(&error));
    if (!enlist(g)) {
        shares_give_back(&x->srv->memory, g->task.domain, g->counted);
        generation_free(g);
        return http_reply_error(x, generation_stopped_error(&error));
    }
    x->gen = g;
    acceptor_watch(x->srv->arrivals, g->fd, g);
    add_owners(g, 1);
    if (!g->kind->prepare)
        generation_prepare(&g->task);
    else
        preparer_add(g->kind->on_disk && x->srv->disk ? x->srv->disk : x->srv->requests, &g->task);
    return generation_resumed(x);
}

enum MHD_Result generation_begin(http_exchange *x, const generation_kind *kind) { return begin(x, generation_create(x, kind)); }

enum MHD_Result generation_begin_with(http_exchange *x, const generation_kind *kind, void *own) {
    http_generation *g = own ? generation_create(x, kind) : NULL;
    if (g)
        g->own = own;
    else if (own)
        release(kind, own);
    return begin(x, g);
}

/* ---- Preparing, on the preparer's thread or that for files ---- */

void *generation_allocate_own(http_generation *g, size_t size) {
    g->own = calloc(1, size);
    if (!g->own) generation_memory_error(&g->error);
    return g->own;
}

/* Let the header's name replace the body's; without either the request has the name that its answer's head has. */
static bool name_request(http_generation *g) {
    if (!g->request_id[0] || (g->request.id && !g->is_named)) return true;
    free(g->request.id);
    g->request.id = strdup(g->request_id);
    if (!g->request.id) generation_memory_error(&g->error);
    return g->request.id;
}

/*
 * Read the body as the request's kind does. The body and its JSON are freed at once, and if they were large, so is the
 * allocator's memory: the JSON of "[]" takes forty times its bytes.
 */
static bool read_request(http_generation *g) {
    if (!g->kind->prepare) return true;
    if (g->kind->no_body) return g->kind->prepare(g, NULL);
    json_t *body = openai_json_parse("body", g->body ? g->body : "", g->body_size, &g->error);
    free(g->body);
    g->body = NULL;
    const bool ok = body && g->kind->prepare(g, body);
    json_decref(body);
    if (g->body_size > LARGE_BODY) malloc_trim(0);
    return ok && name_request(g);
}

/* Allocate the arrays for the events of the prompts. */
static bool allocate_result(http_generation *g) {
    const size_t n = g->request.n_prompts, n_choices = n * (size_t)g->request.params.n;
    if (!g->kind->write) return true; /* there are no events */
    g->submitted = calloc(n, sizeof *g->submitted);
    g->first_at = calloc(n, sizeof *g->first_at);
    g->token_at = calloc(n_choices, sizeof *g->token_at);
    g->n_tokens = calloc(n_choices, sizeof *g->n_tokens);
    const bool ok = g->submitted && g->first_at && g->token_at && g->n_tokens;
    if (ok && openai_result_init(&g->result, &g->srv->context, &g->request)) return true;
    generation_memory_error(&g->error);
    return false;
}

/* About the bytes that the engine takes for the prompts, beside their tokens: what the parameters list, and the choices. */
static size_t bytes_of_prompts(const openai_request *r) {
    enum { CHOICE_BYTES = 1024 };
    return r->n_prompts > 0 ? r->n_prompts * ((size_t)r->params.n * CHOICE_BYTES + cl_params_bytes(&r->params)) : 0;
}

/*
 * About the bytes that a request takes until it has ended: its texts, its JSON if it keeps some, its tokens and parameters,
 * which the engine copies for each prompt, a record of each choice there, and an answer with what it says of the prompts.
 * What choices say does not count: the engine computes each of their tokens, which bounds how fast they grow.
 */
static size_t bytes_of(const http_generation *g) {
    enum { JSON_FACTOR = 8 };
    const openai_request *r = &g->request;
    size_t n = g->body_size * (r->tools || r->repeated ? JSON_FACTOR : 1) + g->answer.size +
               openai_answer_bytes(&g->srv->context, r) + bytes_of_prompts(r);
    for (size_t i = 0; i < r->n_prompts; i++) {
        const openai_prompt *p = &r->prompts[i];
        n += (p->tokens.capacity + p->tokens.n) * sizeof *p->tokens.ids + p->text_size;
    }
    return n;
}

/* Refuse a request that no client may ever send; sent again later, it would need as much. */
static bool refuse_need(http_generation *g, size_t bytes) {
    openai_fail(&g->error, NULL,
                "the request takes about %zu bytes with its answer, and a client may have %zu, with half of --request-memory: "
                "send fewer or shorter prompts, ask for less of each, or start the server with more",
                bytes, shares_most(&g->srv->memory) + REQUEST_BYTES);
    return openai_set_status(&g->error, MHD_HTTP_BAD_REQUEST, "request_memory");
}

/* Let a request count with this many bytes. False: its tenant has no share left for it, or never has one that large. */
static bool count_bytes(http_generation *g, size_t bytes) {
    http_shares *memory = &g->srv->memory;
    const size_t counted = bytes > REQUEST_BYTES ? bytes - REQUEST_BYTES : 0;
    if (counted > shares_most(memory)) return refuse_need(g, bytes);
    if (counted > g->counted && !shares_take(memory, g->task.domain, counted - g->counted)) {
        generation_share_error(g->srv, &g->error);
        return false;
    }
    if (counted < g->counted) shares_give_back(memory, g->task.domain, g->counted - counted);
    g->counted = counted;
    return true;
}

/* Count the request in place of its body. */
static bool count_request(http_generation *g) { return count_bytes(g, bytes_of(g)); }

static int64_t count_tokens(const openai_request *r) {
    int64_t n = 0;
    for (size_t i = 0; i < r->n_prompts; i++) n += (int64_t)r->prompts[i].tokens.n;
    return n;
}

/* Whether the tenant's quota admits the request, if it has one. Requests that need no engine, and pins, do not count. */
static bool is_within_quota(http_generation *g) {
    if (g->kind != &generation_computed) return true;
    g->quota = quota_take(&g->srv->quotas, g->task.domain, count_tokens(&g->request), clock_seconds());
    if (!g->quota.exceeded) return true;
    const bool requests = strcmp(g->quota.exceeded, "requests") == 0;
    const quota_left *left = requests ? &g->quota.requests : &g->quota.tokens;
    openai_fail(&g->error, NULL, "the request exceeds the rest of the tenant's %lld %s per minute; send it again in %.0f s",
                (long long)left->limit, g->quota.exceeded, ceil(g->quota.retry_s));
    g->error.status = MHD_HTTP_TOO_MANY_REQUESTS;
    g->error.type = g->quota.exceeded;
    g->error.code = "rate_limit_exceeded";
    g->error.retry_after_s = (int64_t)ceil(g->quota.retry_s);
    return false;
}

/* What the server did not begin does not count. */
static void give_quota_back(http_generation *g) {
    if (g->kind != &generation_computed) return;
    quota_give_back(&g->srv->quotas, g->task.domain, count_tokens(&g->request), clock_seconds());
    g->quota = (quota_state){0};
}

/* Whether there is still a client and a server for the answer. */
static bool is_wanted(http_generation *g) {
    pthread_mutex_lock(&g->lock);
    const bool wanted = is_open(g);
    pthread_mutex_unlock(&g->lock);
    if (!wanted) generation_stopped_error(&g->error); /* which no client reads, if there is none */
    return wanted;
}

/* Whether the request has time left for what comes next. */
static bool is_in_time(http_generation *g) {
    cl_error cause;
    return cl_deadline_check(&cause) == CL_OK || openai_fail_from(&g->error, NULL, &cause);
}

/* On the engine's thread. */
static void look(void *ctx, const cattn_cache *cache) {
    http_generation *g = ctx;
    g->kind->look(g, cache);
    pthread_mutex_lock(&g->lock);
    g->n_ended++;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    generation_drop_owners(g, 1);
}

/* Pass the prompts or the lookup to the engine. Returns how many of them the engine has accepted. */
static size_t submit(http_generation *g) {
    cl_error cause;
    g->submitted_at = clock_seconds();
    if (!g->kind->look) return openai_submit(&g->request, 0, g->srv->engine, g, generation_on_event, g->submitted, &g->error);
    if (cl_engine_inspect(g->srv->engine, look, g, &cause) == CL_OK) return 1;
    openai_fail_from(&g->error, NULL, &cause);
    return 0;
}

static void cancel_submitted(http_generation *g) {
    for (size_t i = 0; g->submitted && i < g->n_submitted; i++) cl_engine_cancel(g->srv->engine, g->submitted[i].id);
    if (g->kind->undo) g->kind->undo(g);
}

/* The request was prepared: n_submitted of it were passed to the engine, or it is refused. Returns whether it runs from now on.
 */
static bool end_preparing(http_generation *g, size_t n_submitted, bool refused) {
    pthread_mutex_lock(&g->lock);
    g->n_submitted = n_submitted;
    generation_become(g, refused ? GENERATION_REFUSED : GENERATION_RUNNING);
    const bool runs = g->state == GENERATION_RUNNING;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    return runs;
}

/* Pass what was prepared to the engine, or the refusal to the client. */
static void pass_on(http_generation *g, bool ok) {
    const size_t n = !ok ? 0 : g->kind->look ? 1 : g->request.n_prompts;
    add_owners(g, n); /* before the first event, which may be the last one */
    const size_t n_submitted = ok ? submit(g) : 0;
    const bool refused = !ok || n_submitted < n;
    if (refused && atomic_load(&g->srv->stopping)) generation_stopped_error(&g->error); /* which ended its deadline, perhaps */
    if (n_submitted < n) give_quota_back(g);
    if (!end_preparing(g, n_submitted, refused)) cancel_submitted(g);
    generation_drop_owners(g, 1 + n - n_submitted);
}

/* Let a deadline hold for the rest of the time in which g must be prepared; the server's stop ends it, too. */
static void begin_deadline(const http_generation *g, cl_deadline *deadline) {
    const double limit_s = g->srv->config.prepare_timeout_s;
    *deadline = (cl_deadline){.limit_s = limit_s, .at = clock_seconds() + limit_s - g->prepared_s, .stop = &g->srv->stopping};
    cl_deadline_set(deadline);
}

static bool is_ready(http_generation *g) {
    return is_wanted(g) && read_request(g) && is_in_time(g) && count_request(g) && allocate_result(g) && is_wanted(g) &&
           is_within_quota(g);
}

/* Read a request. If it has a grammar, another thread passes it on, so that the requests behind it need not wait for that. */
static void prepare(http_generation *g) {
    const double begin = clock_seconds();
    cache_end_pins(g->srv); /* before the request needs their memory */
    const bool ok = is_ready(g);
    g->prepared_s = clock_seconds() - begin;
    if (ok && g->request.params.grammar_kind != CL_GRAMMAR_NONE)
        preparer_add(g->srv->grammars, &g->task);
    else
        pass_on(g, ok);
}

void generation_prepare(preparer_task *task) {
    cl_deadline deadline;
    begin_deadline((http_generation *)task, &deadline);
    prepare((http_generation *)task);
    cl_deadline_set(NULL);
}

void generation_compile(preparer_task *task) {
    http_generation *g = (http_generation *)task;
    cl_deadline deadline;
    begin_deadline(g, &deadline);
    const bool ok = is_wanted(g);
    if (!ok) give_quota_back(g);
    pass_on(g, ok);
    cl_deadline_set(NULL);
}

/* ---- The end ---- */

/* While the request is being prepared there is nothing to cancel; the preparer does that then. */
void generation_abandon(void *abandoned) {
    http_generation *g = abandoned;
    pthread_mutex_lock(&g->lock);
    generation_become(g, GENERATION_ABANDONED);
    generation_wake_if_due(g);
    const bool submitted = g->n_submitted > 0;
    pthread_mutex_unlock(&g->lock);
    if (submitted) cancel_submitted(g);
}

void generation_close(http_generation *g) {
    acceptor_watch(g->srv->arrivals, g->fd, NULL);
    generation_abandon(g);
    generation_drop_owners(g, 1);
}

void generation_stop_all(http_server *s) {
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stopping, true);
    for (http_generation *g = s->generations; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        generation_wake_if_due(g);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

void generation_wait_all(http_server *s, double seconds) {
    const struct timespec until = clock_deadline(seconds < 0 ? 0 : seconds);
    pthread_mutex_lock(&s->lock);
    int timed_out = 0;
    while (s->generations && timed_out != ETIMEDOUT)
        timed_out = seconds < 0 ? pthread_cond_wait(&s->freed, &s->lock) : pthread_cond_timedwait(&s->freed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
}

/*
 * Large requests hold their memory in many small pieces, which the allocator keeps. It is returned one tick after they have
 * ended, since the engine frees its part a little later; and not while others hold as much, which may use it.
 */
void generation_return_memory(http_server *s) {
    enum { MUCH_FREED = 8 << 20 };
    if (s->trims) malloc_trim(0);
    const size_t freed = atomic_load_explicit(&s->n_freed, memory_order_relaxed);
    s->trims = freed >= MUCH_FREED && shares_amount(&s->memory) < freed;
    if (s->trims) atomic_fetch_sub_explicit(&s->n_freed, freed, memory_order_relaxed);
}

/* ---- Kinds: for each route, the functions of serve/protocol/ that read its body and write its answer ---- */

static bool prepare_dialect(http_generation *g, const json_t *body) {
    const bool ok = g->dialect->parse(&g->srv->context, body, &g->request, &g->error);
    g->request.params.domain = g->task.domain;
    if (ok) cache_use_mark(g);
    return ok;
}

static bool write_dialect(http_generation *g, openai_writer *w) {
    g->dialect->write_answer(w, NULL, &g->result);
    return true;
}

const generation_kind generation_computed = {.prepare = prepare_dialect, .write = write_dialect};

/* Count an answer beside the body from which it is made. The error is g's. */
static bool count_answer(void *owner, size_t bytes, openai_error *error) {
    http_generation *g = owner;
    (void)error;
    return count_bytes(g, g->body_size + bytes);
}

static bool prepare_answer(http_generation *g, const json_t *body) {
    openai_context context = g->srv->context;
    context.count_answer = count_answer;
    context.owner = g;
    return g->kind->answer(&context, body, &g->answer, &g->error);
}

const generation_kind generation_tokenize = {.prepare = prepare_answer, .answer = openai_tokenize};
const generation_kind generation_detokenize = {.prepare = prepare_answer, .answer = openai_detokenize};
const generation_kind generation_render_chat = {.prepare = prepare_answer, .answer = openai_render_chat};
const generation_kind generation_render_completion = {.prepare = prepare_answer, .answer = openai_render_completion};
const generation_kind generation_count_tokens = {.prepare = prepare_answer, .answer = anthropic_count_tokens};
const generation_kind generation_apply_template = {.prepare = prepare_answer, .answer = llama_server_apply_template};
const generation_kind generation_show = {.prepare = prepare_answer, .answer = ollama_show};
