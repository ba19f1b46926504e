/* POST /cache/pin: the engine computes and pins the prompt of the body, and the list of pins gets it with the answer. */
#include <stdlib.h>

#include "cache.h"
#include "generation_state.h"

/* generation.own. `kept` is guarded by the generation's lock, and does not change once the generation is abandoned. */
typedef struct pin_request {
    server_pin pin; /* what the list will have */
    bool kept;      /* the list has it */
} pin_request;

static bool prepare_pin(generation *g, const json_t *body) {
    uint32_t domain;
    if (!g->srv->config.can_pin)
        return openai_fail(&g->error, NULL, "this server has no memory for pins; start it with --pin-budget");
    pin_request *own = g->own = calloc(1, sizeof *own);
    if (!own) {
        generation_memory_error(&g->error);
        return false;
    }
    if (!cache_find_tenant(g->srv, body, own->pin.tenant, &domain, &g->error) ||
        !openai_pin_parse(&g->srv->context, body, &g->request, &g->error))
        return false;
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
