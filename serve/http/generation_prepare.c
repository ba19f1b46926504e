/*
 * The preparer's thread, or that for files: parses a request's body, and submits its prompts, asks the cache, or writes the
 * answer.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "generation_state.h"
#include "serve/protocol/json.h"

/* Bytes of a body from which on freed memory is returned to the system, which means a walk over the whole heap. */
enum { LARGE_BODY = 1 << 20 };

/* Let the header's name replace the body's. */
static bool name_request(generation *g) {
    if (!g->request_id[0]) return true;
    free(g->request.id);
    g->request.id = strdup(g->request_id);
    if (!g->request.id) generation_memory_error(&g->error);
    return g->request.id;
}

/*
 * Read the body as the request's kind does. The body and its JSON are freed at once, and if they were large, so is the
 * allocator's memory: the JSON of "[]" takes forty times its bytes.
 */
static bool read_request(generation *g) {
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

/* Allocate what the events of the prompts need. */
static bool allocate_jobs(generation *g) {
    const size_t n = g->request.n_prompts, n_choices = n * (size_t)g->request.params.n;
    if (!g->kind->write) return true; /* there are no events */
    g->jobs = calloc(n, sizeof *g->jobs);
    g->first_at = calloc(n, sizeof *g->first_at);
    g->token_at = calloc(n_choices, sizeof *g->token_at);
    g->n_tokens = calloc(n_choices, sizeof *g->n_tokens);
    const bool ok = g->jobs && g->first_at && g->token_at && g->n_tokens;
    if (ok && openai_result_init(&g->result, &g->srv->context, &g->request)) return true;
    generation_memory_error(&g->error);
    return false;
}

static int64_t count_tokens(const openai_request *r) {
    int64_t n = 0;
    for (size_t i = 0; i < r->n_prompts; i++) n += (int64_t)r->prompts[i].tokens.n;
    return n;
}

/* Whether the tenant's quota admits the request, if it has one. What needs no engine, and what is pinned, does not count. */
static bool is_within_quota(generation *g) {
    if (g->kind != &generation_computed) return true;
    g->quota = quota_take(&g->srv->quotas, g->task.domain, count_tokens(&g->request), clock_seconds());
    if (!g->quota.exceeded) return true;
    const bool requests = strcmp(g->quota.exceeded, "requests") == 0;
    const quota_left *left = requests ? &g->quota.requests : &g->quota.tokens;
    openai_fail(&g->error, NULL, "the request exceeds what is left of the tenant's %lld %s per minute; send it again in %.0f s",
                (long long)left->limit, g->quota.exceeded, ceil(g->quota.retry_s));
    g->error.status = MHD_HTTP_TOO_MANY_REQUESTS;
    g->error.type = g->quota.exceeded;
    g->error.code = "rate_limit_exceeded";
    g->error.retry_after_s = (int64_t)ceil(g->quota.retry_s);
    return false;
}

static bool is_wanted(generation *g) {
    pthread_mutex_lock(&g->lock);
    const bool wanted = !g->abandoned && !g->stopped;
    pthread_mutex_unlock(&g->lock);
    return wanted;
}

/* On the engine's thread. */
static void look(void *ctx, const cattn_cache *cache) {
    generation *g = ctx;
    g->kind->look(g, cache);
    pthread_mutex_lock(&g->lock);
    g->n_ended++;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    generation_drop_owners(g, 1);
}

/* Pass to the engine what is to be computed, or looked up. Returns how much of it the engine has taken. */
static size_t submit(generation *g) {
    cl_error cause;
    g->submitted_at = clock_seconds();
    if (!g->kind->look) return openai_submit(&g->request, g->srv->engine, g, generation_on_event, g->jobs, &g->error);
    if (cl_engine_inspect(g->srv->engine, look, g, &cause) == CL_OK) return 1;
    openai_fail_from(&g->error, NULL, &cause);
    return 0;
}

void generation_prepare(preparer_task *task) {
    generation *g = (generation *)task;
    generation_end_pins(g->srv); /* before the request needs their memory */
    const bool ok = is_wanted(g) && read_request(g) && allocate_jobs(g) && is_wanted(g) && is_within_quota(g);
    const size_t n = !ok ? 0 : g->kind->look ? 1 : g->request.n_prompts;
    generation_add_owners(g, n); /* before the first event, which may be the last one */
    const size_t n_jobs = ok ? submit(g) : 0;
    if (ok && n_jobs < n && g->kind == &generation_computed) {
        quota_give_back(&g->srv->quotas, g->task.domain, count_tokens(&g->request), clock_seconds());
        g->quota = (quota_state){0};
    }
    pthread_mutex_lock(&g->lock);
    g->n_jobs = n_jobs;
    g->prepared = true;
    g->refused = !ok || n_jobs < n; /* an unwanted request counts as refused, too; no one reads its error */
    const bool cancel = g->refused || g->abandoned || g->lost_event;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (cancel) generation_cancel_jobs(g);
    generation_drop_owners(g, 1 + n - n_jobs);
}
