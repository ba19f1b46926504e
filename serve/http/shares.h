/*
 * Counts what tenants hold of something that is bounded for all of them together: bytes of requests, or transfers of files.
 *
 * A tenant may hold at most as much as it leaves free. So one tenant alone holds half of the limit, two hold a third each, and
 * one that comes later always finds something.
 *
 * Threads: any.
 */
#ifndef SERVE_HTTP_SHARES_H
#define SERVE_HTTP_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a tenant holds. */
typedef struct shares_entry {
    uint32_t domain; /* of the tenant */
    size_t amount;   /* 0: the entry may become another tenant's */
} shares_entry;

typedef struct http_shares {
    pthread_mutex_t lock; /* guards the fields below, but for the constant limit */
    size_t limit;
    size_t amount;         /* of all tenants */
    shares_entry *entries; /* [n_entries] owned */
    size_t n_entries;
} http_shares;

void shares_init(http_shares *s, size_t limit);
void shares_destroy(http_shares *s);

/* Let a tenant hold more. False: it would hold more than its share, or memory is lacking; nothing has changed. */
bool shares_take(http_shares *s, uint32_t domain, size_t amount);

/* Let it hold less. amount: at most what it holds. */
void shares_give_back(http_shares *s, uint32_t domain, size_t amount);

/* The most that a tenant may hold: what it may while nobody else holds any. */
size_t shares_most(const http_shares *s);

/* What all tenants hold. */
size_t shares_amount(http_shares *s);

#endif
