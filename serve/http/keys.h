/*
 * The API keys of a server, and the tenant of each.
 *
 * A file has a key in each line, with the name, the weight and the quotas of its tenant:
 *
 *     # comment
 *     NAME KEY [WEIGHT] [requests_per_minute=N] [tokens_per_minute=N]
 *     KEY
 *
 * A key without a name is one of the tenant "default". A tenant may have several keys; its weight and each of its quotas may be
 * in one of their lines.
 */
#ifndef SERVE_HTTP_KEYS_H
#define SERVE_HTTP_KEYS_H

#include "quota.h"
#include "serve/protocol/openai.h"

enum { SERVER_MAX_KEYS = 1024, SERVER_MAX_KEY = 512 }; /* keys; bytes of a key */

typedef struct server_key {
    char text[SERVER_MAX_KEY]; /* printable ASCII; zeros behind it */
    uint32_t domain;           /* of its tenant's requests */
} server_key;

/* Zero-initialise. */
typedef struct server_keys {
    server_key *keys; /* [n] owned */
    size_t n;
    bool has_tenants;          /* a key is of another tenant than "default" */
    cl_engine_weight *weights; /* [n_weights] for cl_engine_config; owned */
    int32_t n_weights;
    quota_limit *quotas; /* [n_quotas] of different domains; owned */
    size_t n_quotas;
    openai_tenants tenants;
} server_keys;

void server_keys_free(server_keys *keys);

/* Add a key of a tenant. Errors: those of openai_tenants_domain; CL_ERR_ARG for a key that is wrong or known; CL_ERR_NOMEM. */
cl_status server_keys_add(server_keys *keys, const char *tenant, const char *key, cl_error *error);

/*
 * Add the keys of a file. fd: the file if it is open, which is read from its beginning and stays open; -1: it is opened.
 * Errors: CL_ERR_FILE; CL_ERR_FORMAT names the line, never the key; CL_ERR_NOMEM.
 */
cl_status server_keys_read(server_keys *keys, const char *path, int fd, cl_error *error);

/* The key that was sent [size]; NULL: there is none. The time depends on the number of keys, and on `size`, only. */
const server_key *server_keys_find(const server_keys *keys, const char *sent, size_t size);

/* The name of the tenant of key i, owned by *keys. */
const char *server_keys_tenant(const server_keys *keys, size_t i);

/*
 * Find the domain of a tenant of which requests can come: a key is its, or there are no keys (keys may be NULL then) and it is
 * "default". False: there is none of this name.
 */
bool server_keys_find_tenant(const server_keys *keys, const char *name, uint32_t *domain);

/*
 * Write the names of the tenants of which requests can come, in the order of their first keys and separated by commas, to text
 * [size >= 4]. "..." stands for those that do not fit.
 */
void server_keys_list_tenants(const server_keys *keys, char *text, size_t size);

#endif
