/* A request of a batch: its way through the engine. */
#include <stdlib.h>

#include "chunkattn/base/clock.h"
#include "worker_state.h"

slot *slot_create(run *r, int64_t number, const char *text, size_t size) {
    slot *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->w = r->w;
    s->size = size;
    /* The line may not choose its tenant, nor come before the requests of interactive clients. */
    const bool ok = batch_line_parse(&s->line, (size_t)number, text, size, &r->w->context, NULL);
    s->line.request.params.domain = r->domain;
    s->line.request.params.priority = CL_ENGINE_MAX_PRIORITY;
    s->state = ok ? SLOT_READY : SLOT_DONE;
    if (ok && !(s->prompts = calloc(s->line.request.n_prompts, sizeof *s->prompts))) {
        slot_free(s);
        return NULL;
    }
    if (!ok && s->line.error.status == 503) { /* memory is lacking, which is no fault of the line */
        slot_free(s);
        return NULL;
    }
    return s;
}

void slot_free(slot *s) {
    if (!s) return;
    batch_line_free(&s->line);
    free(s->prompts);
    free(s);
}

static int32_t n_choices(const slot *s) { return (int32_t)s->line.request.n_prompts * s->line.request.params.n; }

/* The last events of n prompts have come, or never will. */
static void close_prompts(slot *s, size_t n) {
    worker *w = s->w;
    pthread_mutex_lock(&w->lock);
    s->n_open -= n;
    w->woken = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* On the engine's thread, the only one that uses the result until the last event has come. */
static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *prompt = ctx;
    slot *s = prompt->owner;
    openai_result_add(&s->line.result, prompt->prompt, event, clock_seconds());
    if (event->last) close_prompts(s, 1);
}

/* Whether the engine did not take a request for lack of room or memory, so that it is submitted again later. */
static bool is_for_later(const openai_error *error) { return error->status == 429 || error->status == 503; }

bool slot_submit(slot *s) {
    openai_request *request = &s->line.request;
    if (!s->line.has_result) s->line.has_result = openai_result_init(&s->line.result, &s->w->context, request);
    if (!s->line.has_result) return false;
    s->n_open = request->n_prompts;
    s->state = SLOT_RUNNING;
    s->w->n_choices += n_choices(s);
    s->n_submitted = openai_submit(request, s->w->engine, s, on_event, s->prompts, &s->line.error);
    if (s->n_submitted == request->n_prompts) return true;
    if (is_for_later(&s->line.error)) s->state = SLOT_REFUSED;
    s->line.failed = s->state != SLOT_REFUSED;
    if (s->state == SLOT_REFUSED) slot_cancel(s);
    close_prompts(s, request->n_prompts - s->n_submitted);
    return s->state != SLOT_REFUSED;
}

void slot_cancel(slot *s) {
    if (s->state != SLOT_RUNNING && s->state != SLOT_REFUSED) return;
    s->cut = true;
    for (size_t i = 0; i < s->n_submitted; i++) cl_engine_cancel(s->w->engine, s->prompts[i].id);
}

/* Whether a choice ended because it was cancelled, so that the result is not the request's. */
static bool was_cut(const slot *s) {
    for (size_t i = 0; i < s->line.result.n_choices; i++)
        if (s->line.result.choices[i].finish == CL_ENGINE_CANCELLED) return true;
    return false;
}

/* Forget the events of a request that was refused in part. */
static void begin_again(slot *s) {
    openai_result_free(&s->line.result);
    s->line.has_result = false;
    s->cut = false;
    s->state = SLOT_READY;
}

void slot_update(slot *s) {
    if (s->state != SLOT_RUNNING && s->state != SLOT_REFUSED) return;
    pthread_mutex_lock(&s->w->lock);
    const bool open = s->n_open > 0;
    pthread_mutex_unlock(&s->w->lock);
    if (open) return;
    s->w->n_choices -= n_choices(s);
    if (s->state == SLOT_REFUSED) {
        begin_again(s);
        return;
    }
    s->cut = s->cut && was_cut(s);
    s->state = SLOT_DONE;
}
