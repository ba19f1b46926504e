/* Counts what each tenant holds: see shares.h. */
#include "shares.h"

#include <assert.h>
#include <stdlib.h>

void shares_init(http_shares *s, size_t limit) {
    *s = (http_shares){.limit = limit};
    pthread_mutex_init(&s->lock, NULL);
}

void shares_destroy(http_shares *s) {
    free(s->entries);
    pthread_mutex_destroy(&s->lock);
}

/* The entry of a tenant, or one that may become it; NULL: there is neither. The caller holds the lock. */
static shares_entry *find(http_shares *s, uint32_t domain) {
    shares_entry *unused = NULL;
    for (size_t i = 0; i < s->n_entries; i++) {
        if (s->entries[i].domain == domain) return &s->entries[i];
        if (s->entries[i].amount == 0) unused = &s->entries[i];
    }
    return unused;
}

/* The same with a new one if there is none; NULL: memory is lacking. */
static shares_entry *find_or_add(http_shares *s, uint32_t domain) {
    shares_entry *e = find(s, domain);
    if (!e) {
        shares_entry *grown = realloc(s->entries, (s->n_entries + 1) * sizeof *grown);
        if (!grown) return NULL;
        s->entries = grown;
        e = &s->entries[s->n_entries++];
        *e = (shares_entry){0};
    }
    e->domain = domain;
    return e;
}

bool shares_take(http_shares *s, uint32_t domain, size_t amount) {
    if (amount == 0) return true; /* also for a tenant that holds more than the others leave free by now */
    pthread_mutex_lock(&s->lock);
    shares_entry *e = find_or_add(s, domain);
    const size_t left = s->limit - s->amount;
    const bool ok = e && amount <= left && e->amount + amount <= left - amount;
    if (ok) {
        e->amount += amount;
        s->amount += amount;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void shares_give_back(http_shares *s, uint32_t domain, size_t amount) {
    if (amount == 0) return;
    pthread_mutex_lock(&s->lock);
    shares_entry *e = find(s, domain);
    assert(e && e->domain == domain && e->amount >= amount);
    e->amount -= amount;
    s->amount -= amount;
    pthread_mutex_unlock(&s->lock);
}

size_t shares_most(const http_shares *s) { return s->limit / 2; }

size_t shares_amount(http_shares *s) {
    pthread_mutex_lock(&s->lock);
    const size_t amount = s->amount;
    pthread_mutex_unlock(&s->lock);
    return amount;
}
