/* The prompts that clients have pinned in the cache with POST /cache/pin. All functions may be called on any thread. */
#ifndef SERVER_PINS_H
#define SERVER_PINS_H

#include <pthread.h>

#include "openai/openai.h"

typedef struct server_pin {
    uint64_t id;                        /* of the engine's request, for cl_engine_unpin */
    char tenant[OPENAI_MAX_TENANT + 1]; /* whose requests share the prompt */
    int64_t n_tokens;
    int64_t created; /* seconds since 1970 */
} server_pin;

typedef struct server_pins {
    pthread_mutex_t lock; /* guards what follows */
    server_pin *pins;     /* [n] in the order of their ids; owned */
    size_t n, capacity;
} server_pins;

void pins_init(server_pins *p);
void pins_destroy(server_pins *p);

/* False if memory is lacking. */
bool pins_add(server_pins *p, const server_pin *pin);

/* Remove a pin from the list. False: there is none of this id. */
bool pins_remove(server_pins *p, uint64_t id);

/* The id of a pin from its name for clients, "pin-" and a number; 0: it is no such name. */
uint64_t pins_id(const char *name);

/* Write a pin as the value of `key` (NULL: no key). */
void pins_write(openai_writer *w, const char *key, const server_pin *pin);

/* Write all pins as an array. */
void pins_write_all(openai_writer *w, const char *key, server_pins *p);

#endif
