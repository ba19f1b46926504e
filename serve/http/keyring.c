/* Keeps the API keys in force behind a lock, and the names of their tenants. */
#include "keyring.h"

#include <string.h>

#include "chunkllama/common/error.h"

/* The keys in force; NULL: none are needed. The caller holds the lock. */
static const server_keys *current(const http_keyring *k) { return k->first || !k->needed ? k->first : &k->replaced; }

/* Add the names of the keys' tenants to those that are kept. */
static cl_status add_tenants(http_keyring *k, const server_keys *keys, cl_error *error) {
    cl_status status = CL_OK;
    for (size_t i = 0; i < keys->n && status == CL_OK; i++) {
        uint32_t domain;
        status = openai_tenants_domain(&k->tenants, server_keys_tenant(keys, i), &domain, error);
    }
    return status;
}

/* Whether a name has the hash of another one that is kept. */
static cl_status check_tenants(const http_keyring *k, const server_keys *keys, cl_error *error) {
    for (size_t i = 0; i < keys->n; i++) {
        const char *name = server_keys_tenant(keys, i), *known = openai_tenants_name(&k->tenants, keys->keys[i].domain);
        if (known && strcmp(known, name) != 0)
            return cl_fail(error, CL_ERR_ARG,
                           "the tenant '%s' has the same hash as '%s', which has had a key while the server ran; choose "
                           "another name",
                           name, known);
    }
    return CL_OK;
}

bool keyring_init(http_keyring *k, const server_keys *keys) {
    *k = (http_keyring){.needed = keys, .first = keys};
    pthread_rwlock_init(&k->lock, NULL);
    cl_error error;
    return !keys || add_tenants(k, keys, &error) == CL_OK;
}

void keyring_destroy(http_keyring *k) {
    server_keys_free(&k->replaced);
    openai_tenants_free(&k->tenants);
    pthread_rwlock_destroy(&k->lock);
}

cl_status keyring_replace(http_keyring *k, server_keys *keys, cl_error *error) {
    if (!k->needed) return cl_fail(error, CL_ERR_ARG, "the server was started without keys; restart it with some");
    if (keys->n == 0) return cl_fail(error, CL_ERR_ARG, "there is no key; add one");
    pthread_rwlock_wrlock(&k->lock);
    cl_status status = check_tenants(k, keys, error);
    if (status == CL_OK) status = add_tenants(k, keys, error);
    server_keys before = {0};
    if (status == CL_OK) {
        before = k->replaced;
        k->replaced = *keys;
        k->first = NULL;
        *keys = (server_keys){0};
    }
    pthread_rwlock_unlock(&k->lock);
    server_keys_free(&before);
    return status;
}

bool keyring_find(http_keyring *k, const char *sent, size_t size, uint32_t *domain) {
    pthread_rwlock_rdlock(&k->lock);
    const server_keys *keys = current(k);
    const server_key *found = keys ? server_keys_find(keys, sent, size) : NULL;
    if (found) *domain = found->domain;
    pthread_rwlock_unlock(&k->lock);
    return found;
}

bool keyring_has_tenants(http_keyring *k) {
    pthread_rwlock_rdlock(&k->lock);
    const server_keys *keys = current(k);
    const bool has = keys && keys->has_tenants;
    pthread_rwlock_unlock(&k->lock);
    return has;
}

bool keyring_find_tenant(http_keyring *k, const char *name, uint32_t *domain) {
    pthread_rwlock_rdlock(&k->lock);
    const bool found = server_keys_find_tenant(current(k), name, domain);
    pthread_rwlock_unlock(&k->lock);
    return found;
}

const char *keyring_tenant(http_keyring *k, uint32_t domain) {
    pthread_rwlock_rdlock(&k->lock);
    const char *name = openai_tenants_name(&k->tenants, domain);
    pthread_rwlock_unlock(&k->lock);
    return name;
}
