/* Submits requests, and collects their events. */
#include "errand.h"

#include <stdlib.h>

#include "chunkattn/base/clock.h"

/* ---- The gate ---- */

void gate_init(batch_gate *g) {
    pthread_mutex_init(&g->lock, NULL);
    clock_cond_init(&g->changed);
}

void gate_destroy(batch_gate *g) {
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

void gate_wake(batch_gate *g) {
    pthread_mutex_lock(&g->lock);
    g->woken = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void gate_wait(batch_gate *g, double seconds) {
    const struct timespec until = clock_deadline(seconds < 0 ? 0 : seconds);
    int timed_out = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->woken && !timed_out)
        timed_out =
            seconds < 0 ? pthread_cond_wait(&g->changed, &g->lock) : pthread_cond_timedwait(&g->changed, &g->lock, &until);
    g->woken = false;
    pthread_mutex_unlock(&g->lock);
}

/* ---- Errands ---- */

/* Whether a request was refused for lack of capacity, memory or time before the server's stop. */
static bool is_for_later(const openai_error *error) { return error->status == 429 || error->status == 503; }

batch_errand *errand_create(batch_gate *g, int64_t number, const char *text, size_t size, openai_tenants *tenants) {
    batch_errand *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->gate = g;
    e->size = size;
    const bool right = batch_line_parse(&e->line, (size_t)number, text, size, g->context, tenants);
    e->state = right ? ERRAND_READY : ERRAND_DONE;
    if (right) e->prompts = calloc(e->line.request.n_prompts, sizeof *e->prompts);
    const bool lacks = right ? !e->prompts : g->waits && is_for_later(&e->line.error); /* which is no fault of the line */
    if (!lacks) return e;
    errand_free(e);
    return NULL;
}

void errand_free(batch_errand *e) {
    batch_line_free(&e->line);
    free(e->prompts);
    free(e);
}

int32_t errand_choices(const batch_errand *e) { return (int32_t)e->line.request.n_prompts * e->line.request.params.n; }

/* On the engine's thread, the only one that uses the result until the last event has come. */
static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_submitted *prompt = ctx;
    batch_errand *e = prompt->owner;
    batch_gate *g = e->gate;
    openai_result_add(&e->line.result, prompt->prompt, event, clock_seconds());
    if (!event->last) return;
    pthread_mutex_lock(&g->lock);
    e->n_open--;
    g->woken = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* The prompts that are not in the engine will not be. */
static void drop_rest(batch_errand *e) {
    pthread_mutex_lock(&e->gate->lock);
    e->n_open -= e->line.request.n_prompts - e->n_submitted;
    pthread_mutex_unlock(&e->gate->lock);
    e->state = ERRAND_RUNNING;
}

bool errand_submit(batch_errand *e) {
    openai_request *request = &e->line.request;
    batch_gate *g = e->gate;
    const size_t before = e->n_submitted;
    if (!e->line.has_result) e->line.has_result = openai_result_init(&e->line.result, g->context, request);
    if (!e->line.has_result) return false;
    if (before == 0) e->n_open = request->n_prompts; /* no event can come yet */
    e->n_submitted = openai_submit(request, before, g->engine, e, on_event, e->prompts, &e->line.error);
    g->n_choices += (int32_t)(e->n_submitted - before) * request->params.n;
    e->line.failed = e->n_submitted < request->n_prompts && !(g->waits && is_for_later(&e->line.error));
    if (e->n_submitted < request->n_prompts && !e->line.failed) return false;
    drop_rest(e);
    errand_update(e);
    return true;
}

void errand_cancel(batch_errand *e) {
    e->cut |= e->state != ERRAND_DONE;
    if (e->state == ERRAND_READY && e->n_submitted > 0) drop_rest(e);
    if (e->state == ERRAND_READY) e->state = ERRAND_DONE;
    if (e->state == ERRAND_DONE) return;
    for (size_t i = 0; i < e->n_submitted; i++) cl_engine_cancel(e->gate->engine, e->prompts[i].id);
}

/* Whether a prompt was never submitted, or a choice cancelled, so that the result is not the request's. */
static bool was_cut(const batch_errand *e) {
    if (e->n_submitted < e->line.request.n_prompts && !e->line.failed) return true;
    for (size_t i = 0; i < e->line.result.n_choices; i++)
        if (e->line.result.choices[i].finish == CL_ENGINE_CANCELLED) return true;
    return false;
}

void errand_update(batch_errand *e) {
    if (e->state != ERRAND_RUNNING) return;
    pthread_mutex_lock(&e->gate->lock);
    const bool open = e->n_open > 0;
    pthread_mutex_unlock(&e->gate->lock);
    if (open) return;
    e->gate->n_choices -= (int32_t)e->n_submitted * e->line.request.params.n;
    e->cut = e->cut && was_cut(e);
    e->state = ERRAND_DONE;
}
