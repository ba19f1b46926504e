/*
 * cache_control of Anthropic's API: the prompt up to its last mark stays in the cache for a time after its last use. The
 * request itself pins it while it generates, so that this costs nothing; if pins have no room, it pins nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "chunkattn/base/clock.h"
#include "generation_state.h"

void generation_mark_prepare(generation *g) {
    openai_request *r = &g->request;
    if (r->pin_ttl_s == 0) return;
    const int32_t *tokens = r->prompts[0].tokens.ids;
    if (pins_use(&g->srv->pins, r->params.domain, tokens, r->params.pin_tokens, r->pin_ttl_s, clock_seconds(),
                 &r->params.pin_instead_of))
        r->params.pin_tokens = 0;
}

/* The list's pin for an event, without tokens if memory is lacking for them. */
static server_pin pin_of(const generation *g, const cl_engine_event *event) {
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

void generation_mark_event(generation *g, const cl_engine_event *event) {
    server *s = g->srv;
    if (event->n_pinned == 0 || g->request.pin_ttl_s == 0 || g->pin_listed) return;
    g->pin_listed = true;
    const server_pin pin = pin_of(g, event);
    uint64_t covered;
    while (pin.tokens && (covered = pins_take_covered(&s->pins, &pin))) cl_engine_unpin(s->engine, covered);
    if (pin.tokens && pins_add(&s->pins, &pin)) return;
    free(pin.tokens);
    cl_engine_unpin(s->engine, pin.id);
}

void generation_end_pins(server *s) {
    const double now = clock_seconds();
    uint64_t ended;
    while ((ended = pins_take_ended(&s->pins, now))) cl_engine_unpin(s->engine, ended);
}
