/*
 * The endpoints below /cache: the cache's counts and nodes, why a prompt does not match further, pins, and dropping the K/V
 * that it retains; and the pins of cache_control.
 */
#ifndef SERVE_HTTP_CACHE_H
#define SERVE_HTTP_CACHE_H

#include "generation.h"

#define CACHE_PIN_PATH "/cache/pin/"

/* GET /cache, and with a parameter of the tree a part of that (cache_nodes.c). */
enum MHD_Result cache_handle_get(http_exchange *x);
enum MHD_Result cache_handle_nodes(http_exchange *x);

/* POST /cache/explain (cache_explain.c). */
extern const generation_kind cache_explain;

/* POST /cache/reset. */
enum MHD_Result cache_handle_reset(http_exchange *x);

/* ---- Pins (cache_pins.c) ---- */

/* POST /cache/pin, and DELETE /cache/pin/ID. */
extern const generation_kind cache_pin;
enum MHD_Result cache_handle_unpin(http_exchange *x);

/* A request with cache_control was read: it pins nothing if its marked prefixes are pinned already. On the preparer's thread.
 */
void cache_use_mark(http_generation *g);

/* Add the pins of such a request to the list, in place of those that they make useless. On the engine's thread. */
void cache_list_mark(http_generation *g, const cl_engine_event *event);

/* End the pins of cache_control whose time is over. On any thread, once the server serves. */
void cache_end_pins(http_server *s);

/* ---- Shared by these ---- */

/* Write the members that GET /cache answers into the object that is open. */
void cache_write_state(openai_writer *w, http_server *s, const cattn_stats *kv);

/* Write the text of tokens [n], with the names of special ones, as the value of `key`. */
void cache_write_text(openai_writer *w, const char *key, const http_server *s, const int32_t *tokens, int64_t n);

/*
 * The name of a domain's tenant; NULL: the domain is of one request alone, of those with a cache_salt, or of a tenant whose
 * name the server does not know, since the file tier has it from another time.
 */
const char *cache_tenant(http_server *s, uint32_t domain);

/*
 * Read a body with one prompt for g->request, in the domain of the tenant that the body names, which must have a key; by
 * default that is "default". tenant: [OPENAI_MAX_TENANT + 1], set to its name. False: g->error says why.
 */
bool cache_read_prompt(http_generation *g, const json_t *body, char *tenant);

#endif
