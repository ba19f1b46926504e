/*
 * The prompts that clients have pinned in the cache: with POST /cache/pin until they delete the pin, and with cache_control for
 * some time after its last use. All functions may be called on any thread. Times are those of clock_seconds().
 */
#ifndef SERVE_HTTP_PINS_H
#define SERVE_HTTP_PINS_H

#include <pthread.h>

#include "serve/protocol/openai.h"

typedef struct server_pin {
    uint64_t id;                        /* of the engine's request, for cl_engine_unpin */
    char tenant[OPENAI_MAX_TENANT + 1]; /* whose requests share the prompt */
    int64_t n_tokens;
    int64_t created; /* seconds since 1970 */

    /* Of cache_control; otherwise 0 and NULL. */
    int32_t ttl_s; /* seconds from its last use to its end */
    double ends_at;
    uint32_t domain; /* the tenant's */
    int32_t *tokens; /* [n_tokens] owned by the list */
} server_pin;

typedef struct server_pins {
    pthread_mutex_t lock; /* guards the fields below */
    server_pin *pins;     /* [n] in the order of their ids; owned */
    size_t n, capacity;
} server_pins;

void pins_init(server_pins *p);
void pins_destroy(server_pins *p);

/* Add a pin, whose tokens are then the list's. False: memory is lacking. */
bool pins_add(server_pins *p, const server_pin *pin);

/* Remove a pin from the list. False: there is none of this id. */
bool pins_remove(server_pins *p, uint64_t id);

/* ---- Pins of cache_control ---- */

/*
 * A request uses all pins of its domain with which tokens [n] begin. Set when they end: the one with all n tokens ttl_s from
 * now, others their own time from now, and none earlier than before. Returns whether there is one with all n tokens.
 * Otherwise *shorter is the id of the longest pin that a pin of these tokens for ttl_s would make useless; 0: there is none.
 */
bool pins_use(server_pins *p, uint32_t domain, const int32_t *tokens, int64_t n, int32_t ttl_s, double now, uint64_t *shorter);

/*
 * Remove a pin that `by` makes useless: it covers the same tokens of the domain or fewer, and would end no later. Returns its
 * id, which is then to be unpinned; 0: there is none.
 */
uint64_t pins_take_covered(server_pins *p, const server_pin *by);

/* Remove a pin whose end has come. Returns its id, which is then to be unpinned; 0: there is none. */
uint64_t pins_take_ended(server_pins *p, double now);

/* ---- What clients see ---- */

/* The id of a pin from its name for clients, "pin-" and a number; 0: it is no such name. */
uint64_t pins_id(const char *name);

/* Write a pin as the value of `key` (NULL: no key). */
void pins_write(openai_writer *w, const char *key, const server_pin *pin);

/* Write all pins as an array. */
void pins_write_all(openai_writer *w, const char *key, server_pins *p);

#endif
