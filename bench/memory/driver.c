/* Drives an engine through its public interface: see driver.h. */
#include "driver.h"

#include <stdio.h>

#include "chunkattn/base/clock.h"

/* ---- Events ---- */

/* A request has its first token, or has ended without one. */
static void note_start(driver *d) {
    pthread_mutex_lock(&d->mutex);
    d->n_unstarted--;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static void note_end(driver_request *r, const cl_event_end *end) {
    driver *d = r->owner;
    pthread_mutex_lock(&d->mutex);
    d->n_left--;
    r->ended = true;
    if (end->error && d->error.code == CL_OK) d->error = *end->error;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static void note_token(driver_request *r, int32_t token) {
    const double now = clock_seconds();
    if (r->n_tokens == 0)
        r->first = now;
    else if (r->itl)
        r->itl[r->n_tokens - 1] = now - r->latest;
    r->latest = now;
    r->n_tokens++;
    r->hash = (r->hash ^ (uint64_t)token) * 0x100000001b3u;
}

static void on_event(void *ctx, const cl_engine_event *event) {
    driver_request *r = ctx;
    r->n_cached = event->n_cached;
    const bool had_none = r->n_tokens == 0;
    if (event->kind == CL_EVENT_TOKEN) note_token(r, event->token.id);
    if (had_none && (event->kind == CL_EVENT_TOKEN || event->last)) note_start(r->owner);
    if (event->last) note_end(r, &event->end);
}

/* ---- Life ---- */

bool driver_open(driver *d, const cl_model *model, const cl_engine_config *config) {
    cl_error error;
    *d = (driver){0};
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    if (cl_engine_create(model, config, &d->engine, &error) == CL_OK) return true;
    fprintf(stderr, "cattn-bench memory: %s\n", error.message);
    return false;
}

void driver_close(driver *d) {
    cl_engine_destroy(&d->engine);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
}

/* ---- Requests ---- */

static bool submit(driver *d, driver_request *r) {
    cl_engine_request request;
    cl_error error;
    cl_engine_request_init(&request);
    request.prompt = r->prompt;
    request.n_prompt = r->n_prompt;
    request.max_tokens = r->max_tokens;
    request.domain = r->domain;
    request.ignore_eos = r->ignore_eos;
    request.sampling.temperature = 0;
    request.on_event = on_event;
    request.ctx = r;
    r->owner = d;
    r->n_tokens = r->n_cached = 0;
    r->hash = 0;
    r->ended = false;
    r->submitted = clock_seconds();
    if (cl_engine_submit(d->engine, &request, &r->id, &error) == CL_OK) return true;
    fprintf(stderr, "cattn-bench memory: %s\n", error.message);
    return false;
}

bool driver_submit(driver *d, driver_request *requests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_lock(&d->mutex);
        d->n_left++;
        d->n_unstarted++;
        pthread_mutex_unlock(&d->mutex);
        if (submit(d, &requests[i])) continue;
        pthread_mutex_lock(&d->mutex);
        d->n_left--;
        d->n_unstarted--;
        pthread_mutex_unlock(&d->mutex);
        return false;
    }
    return true;
}

/* With the mutex locked, when waiting is over: unlock it. False with a message on stderr if a request failed. */
static bool waited(driver *d) {
    const bool ok = d->error.code == CL_OK;
    pthread_mutex_unlock(&d->mutex);
    if (!ok) fprintf(stderr, "cattn-bench memory: %s\n", d->error.message);
    return ok;
}

/* Wait until a count of the driver is at most n. */
static bool wait_until(driver *d, const int64_t *count, int64_t n) {
    pthread_mutex_lock(&d->mutex);
    while (*count > n && d->error.code == CL_OK) pthread_cond_wait(&d->changed, &d->mutex);
    return waited(d);
}

bool driver_wait(driver *d) { return wait_until(d, &d->n_left, 0); }

bool driver_wait_left(driver *d, int64_t n) { return wait_until(d, &d->n_left, n); }

bool driver_wait_unstarted(driver *d, int64_t n) { return wait_until(d, &d->n_unstarted, n); }

bool driver_wait_for(driver *d, const driver_request *r) {
    pthread_mutex_lock(&d->mutex);
    while (!r->ended && d->error.code == CL_OK) pthread_cond_wait(&d->changed, &d->mutex);
    return waited(d);
}

void driver_cancel(driver *d, const driver_request *requests, size_t n) {
    for (size_t i = 0; i < n; i++) cl_engine_cancel(d->engine, requests[i].id);
}

bool driver_run(driver *d, driver_request *requests, size_t n) { return driver_submit(d, requests, n) && driver_wait(d); }

/* ---- Statistics ---- */

cl_engine_stats driver_stats(driver *d) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(d->engine, &stats);
    return stats;
}

uint64_t driver_chunk_bytes(driver *d) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_kv_stats(d->engine, &stats);
    return stats.chunk_bytes;
}
