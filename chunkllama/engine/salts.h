/*
 * Salts: which domain of the K/V caches the requests of a domain with a salt get.
 *
 * Two requests get the same one only if their domains are equal and their salts are equal byte for byte, so no choice of a salt
 * finds what was computed for another. A salt keeps its domain while a request uses it, and for as long afterwards as it is
 * among the CL_SALTS_KEPT that were used last: what the caches retain for it is found until then. A salt that was forgotten
 * gets a new domain.
 *
 * Domains are used once. Before they begin again from the first one, after n_domains salts, the owner must remove from the
 * caches what no running request uses.
 */
#ifndef CHUNKLLAMA_ENGINE_SALTS_H
#define CHUNKLLAMA_ENGINE_SALTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CL_SALTS_KEPT = 16384 }; /* salts that no request uses; at most 18 MB with the longest salts */

typedef struct cl_salt cl_salt;

/* A list of salts, the one that was added first at its head. */
typedef struct cl_salt_list {
    cl_salt *first, *last;
    int32_t n;
} cl_salt_list;

typedef struct cl_salts {
    void *by_name; /* a tree of tsearch; owns the salts */
    cl_salt_list used, unused;
    uint32_t first_domain, n_domains, n_given; /* domains are first_domain + 0 to n_domains - 1; the next one */
    void (*clear)(void *ctx);                  /* remove all K/V that no running request uses */
    void *ctx;
} cl_salts;

struct cl_salt {
    cl_salt *before, *after; /* in its list */
    int32_t n_users;
    uint32_t kv_domain;
    uint32_t domain;
    size_t size;
    const char *bytes; /* [size], in the same allocation */
};

/* n_domains must exceed the number of requests that use salts at once. clear is called from cl_salts_acquire. */
void cl_salts_init(cl_salts *s, uint32_t first_domain, uint32_t n_domains, void (*clear)(void *ctx), void *ctx);
void cl_salts_free(cl_salts *s);

/*
 * The salt of these bytes [size] in a domain, for one more user. It stays where it is until as many cl_salts_release. NULL if
 * memory is lacking.
 */
cl_salt *cl_salts_acquire(cl_salts *s, uint32_t domain, const char *bytes, size_t size);
void cl_salts_release(cl_salts *s, cl_salt *salt);

/* The salt of these bytes [size] in a domain, without a use of it; NULL: it has none, or was forgotten. */
const cl_salt *cl_salts_find(const cl_salts *s, uint32_t domain, const char *bytes, size_t size);

#endif
