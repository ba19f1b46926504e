/*
 * The ways to compute one decode step that are compared, behind one interface, and the K/V that all of them store.
 *
 * A step has one row for each sequence: the token after its runs, which sees itself and all tokens before it.
 */
#ifndef BENCH_METHODS_METHOD_H
#define BENCH_METHODS_METHOD_H

#include <stddef.h>
#include <stdint.h>

#include "bench/shared/token_tree.h"
#include "chunkattn.h"
#include "chunkattn/base/threads.h"

enum { METHOD_MAX_ROW = 32768 }; /* largest kv_heads * head_dim */

typedef enum method_id { METHOD_NAIVE, METHOD_FLASH, METHOD_PAGED, METHOD_PAGED_SHARED, METHOD_CHUNK, N_METHODS } method_id;

typedef struct shape {
    int32_t heads, kv_heads, head_dim, chunk;
    const token_tree *tree;
    cattn_type kv_type;
    const char *level;                    /* NULL: the CPU's best */
    int32_t window, sink_tokens, softcap; /* as in cattn_config; 0: off. Not for naive and flash */
    size_t cold_bytes; /* a method has enough layers that reading all of them reads at least this many bytes */
} shape;

typedef struct method method;
struct method {
    const char *name;
    const char *level; /* of the kernels */
    int32_t n_layers;
    void (*attend)(method *m, int32_t layer, const float *q, float *out); /* q, out: [batch][heads][head_dim] */
    /* Cut all sequences to `prefix` tokens before their own token, at least to where their last runs begin. NULL: not
       supported. */
    bool (*shorten)(method *m, int64_t prefix);
    void (*destroy)(method *m);
};

/* "naive", "flash", "paged", "paged_shared", "chunk". */
const char *method_name(method_id id);

/* Whether shared tokens are stored once; whether the results have the bits of the library's. */
bool method_shares(method_id id);
bool method_is_exact(method_id id);

/* The config of the cache of one layer that a cached method needs, with its sharing mode and workers of the pool. */
cattn_config method_config(method_id id, const shape *s, ca_pool *pool);

/* The level that the library chooses for the shape, which also depends on the environment. NULL with a message on stderr. */
const char *method_level(const shape *s);

/* Create a method with its K/V written; NULL with a message on stderr. shape and pool are borrowed until destroy. */
method *method_create(method_id id, const shape *s, ca_pool *pool);

/* Bytes of K and V: of a token in one layer, of one layer as the method stores it, and of the whole method before it is
 * created. */
size_t method_token_bytes(method_id id, const shape *s);
double method_layer_bytes(method_id id, const shape *s);
double method_bytes(method_id id, const shape *s);
int32_t method_n_layers(method_id id, const shape *s);

/* Must be called before any method is created. */
void method_rows_init(void);

/* K (v = 0) or V (v = 1) of a token: [kv_heads][head_dim], the same for all sequences that share the run. */
const float *method_kv_row(int32_t layer, int32_t run, int64_t position, int v);

static inline size_t method_row_size(const shape *s) { return (size_t)s->kv_heads * (size_t)s->head_dim; }

/* Each in a file of its own. */
method *method_create_naive(const shape *s, ca_pool *pool);
method *method_create_flash(const shape *s, ca_pool *pool);
method *method_create_cached(method_id id, const shape *s, ca_pool *pool);

#endif
