/*
 * The endpoints below /cache: what the cache holds, its nodes, why a prompt does not match further, and dropping what it
 * retains. Handlers of routes.c; pins are in pins.h.
 */
#ifndef SERVE_HTTP_CACHE_H
#define SERVE_HTTP_CACHE_H

#include "http.h"

#define CACHE_PIN_PATH "/cache/pin/"

/* GET /cache, and with a parameter of the tree a part of that (cache_nodes.c). */
enum MHD_Result cache_handle_get(exchange *x);
enum MHD_Result cache_handle_nodes(exchange *x);

/* POST /cache/explain (cache_explain.c). */
extern const struct generation_kind cache_explain;

/* DELETE /cache/pin/ID, and POST /cache/reset. */
enum MHD_Result cache_handle_unpin(exchange *x);
enum MHD_Result cache_handle_reset(exchange *x);

/* ---- Shared by these ---- */

/* Write the members that GET /cache answers into the object that is open. */
void cache_write_state(openai_writer *w, server *s, const cattn_stats *kv);

/* Write the text of tokens [n], with the names of special ones, as the value of `key`. */
void cache_write_text(openai_writer *w, const char *key, const server *s, const int32_t *tokens, int64_t n);

/*
 * The name of a domain's tenant; NULL: the domain is of one request alone, of those with a cache_salt, or of a tenant whose
 * name the server does not know, since the file tier has it from another time.
 */
const char *cache_tenant(server *s, uint32_t domain);

/*
 * Set the domain, and the name [OPENAI_MAX_TENANT + 1], of the tenant that a body names, which must have a key; by default that
 * is "default". False: *error says what is wrong.
 */
bool cache_find_tenant(server *s, const json_t *body, char *name, uint32_t *domain, openai_error *error);

#endif
