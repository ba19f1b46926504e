/*
 * Pins, as requests make and end them: POST /cache/pin and DELETE /cache/pin/ID, and cache_control of Anthropic's API. pins.h
 * has their list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "chunkattn/base/clock.h"
#include "generation_state.h"

/* ---- POST /cache/pin: the engine computes and pins the prompt of the body, and the list gets it with the answer ---- */

/* generation.own. `kept` is guarded by the generation's lock, and does not change once the generation is abandoned. */
typedef struct pin_request {
    server_pin pin; /* the later entry of the list */
    bool kept;      /* the list has it */
} pin_request;

static bool prepare_pin(http_generation *g, const json_t *body) {
    if (!g->srv->config.can_pin)
        return openai_fail(&g->error, NULL, "this server has no memory for pins; start it with --pin-budget");
    pin_request *own = generation_allocate_own(g, sizeof *own);
    return own && cache_read_prompt(g, body, own->pin.tenant);
}

/* Add the pin to the list. False: memory is lacking, or no one waits for the answer; the pin ends with the generation. */
static bool keep_pin(http_generation *g, pin_request *own) {
    own->pin.id = g->submitted[0].id;
    own->pin.n_tokens = openai_result_usage(&g->result).prompt_tokens / 2 * 2; /* the last one of an odd number is not pinned */
    own->pin.created = g->result.created;
    pthread_mutex_lock(&g->lock);
    const bool kept = g->state != GENERATION_ABANDONED && pins_add(&g->srv->pins, &own->pin);
    if (kept) own->kept = true; /* an abandoned generation is read without the lock */
    pthread_mutex_unlock(&g->lock);
    return kept;
}

static bool write_pin(http_generation *g, openai_writer *w) {
    pin_request *own = g->own;
    if (!keep_pin(g, own)) return false;
    pins_write(w, NULL, &own->pin);
    return true;
}

/* No client learns of a pin that the list does not have. */
static void undo_pin(http_generation *g) {
    const pin_request *own = g->own;
    for (size_t i = 0; i < g->n_submitted; i++)
        if (!own->kept) cl_engine_unpin(g->srv->engine, g->submitted[i].id);
}

const generation_kind cache_pin = {.prepare = prepare_pin, .write = write_pin, .undo = undo_pin};

/* ---- DELETE /cache/pin/ID ---- */

enum MHD_Result cache_handle_unpin(http_exchange *x) {
    const char *name = x->path + strlen(CACHE_PIN_PATH);
    const uint64_t id = pins_id(name);
    if (!pins_remove(&x->srv->pins, id)) {
        openai_error error;
        openai_fail(&error, NULL, "there is no pin '%.100s'; GET /cache lists the pins", name);
        openai_set_status(&error, MHD_HTTP_NOT_FOUND, "pin_not_found");
        return http_reply_error(x, &error);
    }
    cl_engine_unpin(x->srv->engine, id);
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "id", name);
    writer_string(&w, "object", "cache.pin");
    writer_value(&w, "deleted", json_true());
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

/*
 * ---- cache_control ----
 *
 * The prompt up to its last mark stays in the cache for a time after its last use. The request itself pins it while it
 * generates, so that this costs nothing; if the budget of pins is too small, it pins nothing.
 */

void cache_use_mark(http_generation *g) {
    openai_request *r = &g->request;
    if (r->pin_ttl_s == 0) return;
    const int32_t *tokens = r->prompts[0].tokens.ids;
    if (pins_use(&g->srv->pins, r->params.domain, tokens, r->params.pin_tokens, r->pin_ttl_s, clock_seconds(),
                 &r->params.pin_instead_of))
        r->params.pin_tokens = 0;
}

/* The list's pin for an event, without tokens if memory is lacking for them. */
static server_pin pin_of(const http_generation *g, const cl_engine_event *event) {
    const openai_request *r = &g->request;
    const size_t bytes = (size_t)event->n_pinned * sizeof *r->prompts[0].tokens.ids;
    const char *tenant = cache_tenant(g->srv, r->params.domain);
    server_pin pin = {.id = event->request,
                      .n_tokens = event->n_pinned,
                      .created = (int64_t)time(NULL),
                      .ttl_s = r->pin_ttl_s,
                      .ends_at = clock_seconds() + r->pin_ttl_s,
                      .domain = r->params.domain,
                      .tokens = malloc(bytes)};
    snprintf(pin.tenant, sizeof pin.tenant, "%s", tenant ? tenant : "");
    if (pin.tokens) memcpy(pin.tokens, r->prompts[0].tokens.ids, bytes);
    return pin;
}

void cache_list_mark(http_generation *g, const cl_engine_event *event) {
    http_server *s = g->srv;
    if (event->n_pinned == 0 || g->request.pin_ttl_s == 0 || g->pin_listed) return;
    g->pin_listed = true;
    const server_pin pin = pin_of(g, event);
    uint64_t covered;
    while (pin.tokens && (covered = pins_take_covered(&s->pins, &pin))) cl_engine_unpin(s->engine, covered);
    if (pin.tokens && pins_add(&s->pins, &pin)) return;
    free(pin.tokens);
    cl_engine_unpin(s->engine, pin.id);
}

void cache_end_pins(http_server *s) {
    const double now = clock_seconds();
    uint64_t ended;
    while ((ended = pins_take_ended(&s->pins, now))) cl_engine_unpin(s->engine, ended);
}
