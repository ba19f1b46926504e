/* POST /cache/pin: the engine computes and pins the prompt of the body, and the list of pins gets it with the answer. */
#include <stdio.h>
#include <stdlib.h>

#include "generation_state.h"
#include "openai/parse.h"

/* generation.own. `kept` is guarded by the generation's lock, and does not change once the generation is abandoned. */
typedef struct pin_request {
    server_pin pin; /* what the list will have */
    bool kept;      /* the list has it */
} pin_request;

/* Set the name and the domain of the tenant that a body names, which must have a key. */
static bool find_tenant(generation *g, const json_t *body, uint32_t *domain) {
    const char *name = OPENAI_DEFAULT_TENANT;
    const json_t *tenant = field_get(body, "tenant");
    pin_request *own = g->own;
    if (tenant && !field_name(tenant, "tenant", &name, &g->error)) return false;
    if (!server_keys_find_tenant(g->srv->config.keys, name, domain))
        return openai_fail(&g->error, "tenant", "there is no tenant '%.64s'; leave it out, or name one of --api-keys", name);
    snprintf(own->pin.tenant, sizeof own->pin.tenant, "%s", name);
    return true;
}

static bool prepare_pin(generation *g, const json_t *body) {
    uint32_t domain;
    if (!g->srv->config.can_pin)
        return openai_fail(&g->error, NULL, "this server has no memory for pins; start it with --pin-budget");
    g->own = calloc(1, sizeof(pin_request));
    if (!g->own) {
        generation_memory_error(&g->error);
        return false;
    }
    if (!find_tenant(g, body, &domain) || !openai_pin_parse(&g->srv->context, body, &g->request, &g->error)) return false;
    g->request.params.domain = domain;
    return true;
}

/* Add the pin to the list. False: memory is lacking, or no one waits for the answer; the pin ends with the generation. */
static bool keep_pin(generation *g, pin_request *own) {
    own->pin.id = g->jobs[0].id;
    own->pin.n_tokens = openai_result_usage(&g->result).prompt_tokens / 2 * 2; /* the last one of an odd number is not pinned */
    own->pin.created = g->result.created;
    pthread_mutex_lock(&g->lock);
    const bool kept = !g->abandoned && pins_add(&g->srv->pins, &own->pin);
    if (kept) own->kept = true; /* an abandoned generation is read without the lock */
    pthread_mutex_unlock(&g->lock);
    return kept;
}

static bool write_pin(generation *g, openai_writer *w) {
    pin_request *own = g->own;
    if (!keep_pin(g, own)) return false;
    pins_write(w, NULL, &own->pin);
    return true;
}

/* No client learns of a pin that the list does not have. */
static void undo_pin(generation *g) {
    const pin_request *own = g->own;
    for (size_t i = 0; i < g->n_jobs; i++)
        if (!own->kept) cl_engine_unpin(g->srv->engine, g->jobs[i].id);
}

const generation_kind generation_pin = {.prepare = prepare_pin, .write = write_pin, .undo = undo_pin};
