/*
 * The ways to compute one decode step that are compared, behind one interface, and the K/V that all of them store.
 *
 *   naive         softmax over each sequence's own K/V in f32
 *   flash         the library's kernels over each sequence's own K/V, method_flash.c
 *   paged         the library's cache in which nothing is shared
 *   paged_shared  the same in which shared tokens are stored once, and read by each sequence for itself
 *   chunk         the same in which they are read once, too
 *   chunk_int8    chunk with int8 K/V, whatever the others have
 *   pages16       an engine's own pages of 16 tokens in vLLM's layout, of which shared ones are read once
 *   pages64       the same with pages of 64, [head][token] within a page
 *
 * A decode step has one row for each sequence: its last token, which sees itself and all tokens before it. A prefill computes
 * all tokens of all sequences in one step.
 */
#ifndef BENCH_METHODS_METHOD_H
#define BENCH_METHODS_METHOD_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"
#include "chunkattn/base/threads.h"

enum { METHOD_MAX_ROW = 32768 }; /* largest heads * head_dim */

typedef enum method_id {
    METHOD_NAIVE,
    METHOD_FLASH,
    METHOD_PAGED,
    METHOD_PAGED_SHARED,
    METHOD_CHUNK,
    METHOD_CHUNK_INT8,
    METHOD_PAGES16,
    METHOD_PAGES64,
    N_METHODS
} method_id;

/* One of layers that differ. */
typedef struct layer_form {
    int32_t heads, kv_heads, head_dim, window;
    int32_t source; /* the index of the layer whose K/V it reads: its own, or an earlier one with K/V of its own */
} layer_form;

typedef struct shape {
    int32_t heads, kv_heads, head_dim, chunk;
    int32_t batch;          /* sequences */
    int64_t prefix, shared; /* tokens of each before its last one, and the first of them, which all have in common */
    bool prefill;           /* not for naive and flash */
    cattn_type kv_type;
    const char *level;                    /* NULL: the CPU's best */
    int32_t window, sink_tokens, softcap; /* as in cattn_config; 0: off. Not for naive and flash */
    size_t cold_bytes; /* a method has enough layers that reading all of them reads at least this many bytes */
    /*
     * [n_forms] the layers where they differ, in place of heads, kv_heads, head_dim and window; a method has them several
     * times, one after the other. 0: all layers are alike. Not for naive and flash.
     */
    const layer_form *forms;
    int32_t n_forms;
} shape;

typedef struct method method;
struct method {
    const char *name;
    const char *level; /* of the kernels */
    int32_t n_layers;
    void (*attend)(method *m, int32_t layer, const float *q, float *out); /* q, out: [rows][heads][head_dim] */
    void (*destroy)(method *m);
};

/* As above; and all names, with commas between them. */
const char *method_name(method_id id);
#define METHOD_NAMES "naive, flash, paged, paged_shared, chunk, chunk_int8, pages16, pages64"

/* The type that a method's K/V are stored in; whether shared tokens are stored once; whether two methods have the same bits. */
cattn_type method_kv_type(method_id id, const shape *s);
bool method_shares(method_id id);
bool method_bits_agree(method_id a, method_id b, const shape *s);

/* Create a method with its K/V written; NULL with a message on stderr. shape and pool are borrowed until destroy. */
method *method_create(method_id id, const shape *s, ca_pool *pool);

/* The number of layers that a step passes over; of any layer of a method, its shape and the layer whose K/V it reads. */
static inline int32_t method_step_layers(const shape *s) { return s->n_forms ? s->n_forms : 1; }
shape method_layer_shape(const shape *s, int32_t layer);
int32_t method_kv_source(const shape *s, int32_t layer);

/* Rows of a step. */
int64_t method_rows(const shape *s);

/* Positions below `end` that the last token of a sequence sees; all of its tokens with prefix + 1. */
int64_t method_seen(const shape *s, int64_t end);

/* Bytes of K and V: of a token in one layer, of the layers of a step as the method stores them, and of the whole method before
 * it is created; for prefill with the rows of the step. */
size_t method_token_bytes(method_id id, const shape *s);
double method_layer_bytes(method_id id, const shape *s);
double method_bytes(method_id id, const shape *s);
int32_t method_n_layers(method_id id, const shape *s);

/* K (v = 0) or V (v = 1) of a sequence's token: [kv_heads][head_dim], the same for all sequences that share it. */
const float *method_kv_row(const shape *s, int32_t layer, int32_t seq, int64_t position, int v);

/*
 * Random queries of a step, the same for all methods: [rows][heads][head_dim] of the layer for which that is most, for the
 * caller to free. NULL without memory.
 */
float *method_queries(const shape *s);

static inline size_t method_row_size(const shape *s) { return (size_t)s->kv_heads * (size_t)s->head_dim; }

/* Each in a file of its own. */
method *method_create_naive(const shape *s, ca_pool *pool);
method *method_create_flash(const shape *s, ca_pool *pool);
method *method_create_cached(method_id id, const shape *s, ca_pool *pool);
method *method_create_pages(method_id id, const shape *s, ca_pool *pool);

#endif
