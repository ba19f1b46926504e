/*
 * The ways of doing one decode step that `cattn-bench kernel` compares, behind one interface, and the K/V they share.
 *
 * A step has one row a sequence: the token at position `prefix`, which sees itself and the prefix before it.
 */
#ifndef BENCH_METHOD_H
#define BENCH_METHOD_H

#include <stddef.h>
#include <stdint.h>

#include "base/threads.h"
#include "chunkattn.h"

enum { METHOD_MAX_ROW = 32768 }; /* largest kv_heads * head_dim */

typedef struct shape {
    int32_t heads, kv_heads, head_dim, chunk, batch;
    int64_t prefix, shared; /* tokens before the row's own; of those, the leading ones common to all */
    cattn_type kv_type;
    const char *level; /* NULL: the CPU's best */
    size_t cold_bytes; /* a method has as many layers as reading them all takes at least this many bytes */
} shape;

typedef struct method method;
struct method {
    const char *name;
    const char *level; /* of the kernels */
    int32_t n_layers;
    double kv_bytes; /* distinct K/V bytes of one layer that a step reads */
    void (*attend)(method *m, int32_t layer, const float *q, float *out); /* q, out: [batch][heads][head_dim] */
    void (*destroy)(method *m);
};

/* Create and fill; NULL with a message on stderr. The pool is borrowed until destroy. */
method *method_create_naive(const shape *s, ca_pool *pool);
method *method_create_cached(const char *name, cattn_sharing sharing, const shape *s, ca_pool *pool);

/* Bytes it will take, to ask before. */
double method_bytes_naive(const shape *s);
double method_bytes_cached(cattn_sharing sharing, const shape *s);

/* Before all others. */
void method_rows_init(void);

/* K (v = 0) or V (v = 1) of a token: [kv_heads][head_dim], the same for all sequences within the shared prefix. */
const float *method_kv_row(const shape *s, int32_t layer, int32_t seq, int64_t pos, int v);

#endif
