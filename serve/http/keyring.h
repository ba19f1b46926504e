/*
 * The API keys in force while a server runs, which may be replaced at any time.
 *
 * A request keeps the tenant that its key had when its head arrived. Names of tenants are kept until the end, since requests,
 * files and batches of a tenant outlive its keys; a tenant's domain is a function of its name alone, so it stays the same.
 *
 * Threads: all functions but keyring_init and keyring_destroy may be called from any thread. They wait for each other only
 * while keys are compared or replaced, and call nothing of the server. Keys are read from their file before they are passed to
 * keyring_replace, so no request waits for the disk.
 */
#ifndef SERVE_HTTP_KEYRING_H
#define SERVE_HTTP_KEYRING_H

#include <pthread.h>

#include "keys.h"

typedef struct http_keyring {
    bool needed; /* clients need a key; constant */

    pthread_rwlock_t lock;    /* guards the fields below */
    const server_keys *first; /* those of keyring_init, borrowed; NULL: they were replaced, or no key is needed */
    server_keys replaced;     /* those in force otherwise */
    openai_tenants tenants;   /* the names of all tenants that have or had a key */
} http_keyring;

/* Begin with these keys, which are borrowed until keyring_destroy; NULL: no key is needed. False: memory is lacking. */
bool keyring_init(http_keyring *k, const server_keys *keys);
void keyring_destroy(http_keyring *k);

/*
 * From now on accept these keys and no others. *keys is taken over, and empty afterwards. Errors, after which nothing has
 * changed: CL_ERR_ARG if a new tenant's name has the hash of a name that was used before, if there is no key, or if no key is
 * needed; CL_ERR_NOMEM.
 */
cl_status keyring_replace(http_keyring *k, server_keys *keys, cl_error *error);

/* Whether the key that was sent [size] is one of them; *domain is its tenant's then. See server_keys_find. */
bool keyring_find(http_keyring *k, const char *sent, size_t size, uint32_t *domain);

/* Whether a key is of another tenant than "default". */
bool keyring_has_tenants(http_keyring *k);

/* As server_keys_find_tenant. */
bool keyring_find_tenant(http_keyring *k, const char *name, uint32_t *domain);

/* The name of a domain's tenant, valid until keyring_destroy; NULL: no tenant with a key has, or had, this domain. */
const char *keyring_tenant(http_keyring *k, uint32_t domain);

#endif
