/* Keeps the list of pinned prompts: see pins.h. */
#include "pins.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chunkattn/base/clock.h"

static const char PREFIX[] = "pin-";

void pins_init(server_pins *p) {
    *p = (server_pins){0};
    pthread_mutex_init(&p->lock, NULL);
}

void pins_destroy(server_pins *p) {
    pthread_mutex_destroy(&p->lock);
    for (size_t i = 0; i < p->n; i++) free(p->pins[i].tokens);
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

/* With the lock held: remove pin i and return its id; i == p->n: there is none. */
static uint64_t take(server_pins *p, size_t i) {
    if (i == p->n) return 0;
    const uint64_t id = p->pins[i].id;
    free(p->pins[i].tokens);
    memmove(&p->pins[i], &p->pins[i + 1], (--p->n - i) * sizeof *p->pins);
    return id;
}

bool pins_remove(server_pins *p, uint64_t id) {
    pthread_mutex_lock(&p->lock);
    const size_t i = find(p, id);
    const bool found = i < p->n && p->pins[i].id == id;
    if (found) take(p, i);
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* ---- Pins of cache_control ---- */

/* Whether tokens [n] of a domain begin with those of a pin. */
static bool covers(const server_pin *pin, uint32_t domain, const int32_t *tokens, int64_t n) {
    return pin->ttl_s > 0 && pin->domain == domain && pin->n_tokens <= n &&
           memcmp(pin->tokens, tokens, (size_t)pin->n_tokens * sizeof *tokens) == 0;
}

bool pins_use(server_pins *p, uint32_t domain, const int32_t *tokens, int64_t n, int32_t ttl_s, double now, uint64_t *shorter) {
    bool found = false;
    int64_t n_shorter = 0;
    *shorter = 0;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n; i++) {
        server_pin *pin = &p->pins[i];
        if (!covers(pin, domain, tokens, n)) continue;
        if (pin->n_tokens == n) {
            found = true;
            pin->ttl_s = ttl_s;
        }
        if (now + pin->ttl_s > pin->ends_at) pin->ends_at = now + pin->ttl_s;
        if (pin->n_tokens <= n_shorter || pin->ends_at > now + ttl_s) continue;
        n_shorter = pin->n_tokens;
        *shorter = pin->id;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

uint64_t pins_take_covered(server_pins *p, const server_pin *by) {
    pthread_mutex_lock(&p->lock);
    size_t i = 0;
    while (i < p->n && !(covers(&p->pins[i], by->domain, by->tokens, by->n_tokens) && p->pins[i].ends_at <= by->ends_at)) i++;
    const uint64_t id = take(p, i);
    pthread_mutex_unlock(&p->lock);
    return id;
}

uint64_t pins_take_ended(server_pins *p, double now) {
    pthread_mutex_lock(&p->lock);
    size_t i = 0;
    while (i < p->n && !(p->pins[i].ttl_s > 0 && p->pins[i].ends_at <= now)) i++;
    const uint64_t id = take(p, i);
    pthread_mutex_unlock(&p->lock);
    return id;
}

/* ---- What clients see ---- */

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
    if (pin->ttl_s > 0)
        writer_integer(w, "expires_at", (int64_t)time(NULL) + (int64_t)(pin->ends_at - clock_seconds()));
    else
        writer_null(w, "expires_at");
    writer_close(w);
}

void pins_write_all(openai_writer *w, const char *key, server_pins *p) {
    writer_open(w, key, '[');
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n; i++) pins_write(w, NULL, &p->pins[i]);
    pthread_mutex_unlock(&p->lock);
    writer_close(w);
}
