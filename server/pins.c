/* Keeps the list of pinned prompts: see pins.h. */
#include "pins.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "pin-";

void pins_init(server_pins *p) {
    *p = (server_pins){0};
    pthread_mutex_init(&p->lock, NULL);
}

void pins_destroy(server_pins *p) {
    pthread_mutex_destroy(&p->lock);
    free(p->pins);
}

/* With the lock held: the index of the first pin whose id is not smaller. */
static size_t find(const server_pins *p, uint64_t id) {
    size_t i = 0;
    while (i < p->n && p->pins[i].id < id) i++;
    return i;
}

/* With the lock held. */
static bool insert(server_pins *p, const server_pin *pin) {
    if (p->n == p->capacity) {
        const size_t capacity = 2 * p->capacity + 8;
        server_pin *larger = realloc(p->pins, capacity * sizeof *larger);
        if (!larger) return false;
        p->pins = larger;
        p->capacity = capacity;
    }
    const size_t i = find(p, pin->id);
    memmove(&p->pins[i + 1], &p->pins[i], (p->n++ - i) * sizeof *pin);
    p->pins[i] = *pin;
    return true;
}

bool pins_add(server_pins *p, const server_pin *pin) {
    pthread_mutex_lock(&p->lock);
    const bool ok = insert(p, pin);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

bool pins_remove(server_pins *p, uint64_t id) {
    pthread_mutex_lock(&p->lock);
    const size_t i = find(p, id);
    const bool found = i < p->n && p->pins[i].id == id;
    if (found) memmove(&p->pins[i], &p->pins[i + 1], (--p->n - i) * sizeof *p->pins);
    pthread_mutex_unlock(&p->lock);
    return found;
}

uint64_t pins_id(const char *name) {
    const size_t size = sizeof PREFIX - 1;
    if (strncmp(name, PREFIX, size) != 0) return 0;
    const char *digits = name + size;
    const size_t n = strspn(digits, "0123456789");
    return n > 0 && n < 20 && !digits[n] ? strtoull(digits, NULL, 10) : 0;
}

void pins_write(openai_writer *w, const char *key, const server_pin *pin) {
    char name[sizeof PREFIX + 20];
    snprintf(name, sizeof name, "%s%" PRIu64, PREFIX, pin->id);
    writer_open(w, key, '{');
    writer_string(w, "id", name);
    writer_string(w, "object", "cache.pin");
    writer_integer(w, "created", pin->created);
    writer_string(w, "tenant", pin->tenant);
    writer_integer(w, "tokens", pin->n_tokens);
    writer_close(w);
}

void pins_write_all(openai_writer *w, const char *key, server_pins *p) {
    writer_open(w, key, '[');
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n; i++) pins_write(w, NULL, &p->pins[i]);
    pthread_mutex_unlock(&p->lock);
    writer_close(w);
}
