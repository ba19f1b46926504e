/* Methods whose sequences have K/V of their own: one piece of memory for each layer, sequence and KV head. */
#ifndef BENCH_METHODS_METHOD_PRIVATE_H
#define BENCH_METHODS_METHOD_PRIVATE_H

#include "method.h"

typedef struct private_method private_method;
struct private_method {
    method base;
    const shape *s;
    ca_pool *pool;
    size_t head_bytes, scratch_bytes; /* of a head's K/V, and of each worker's scratch */
    /* Attend with the rows of a GQA group over the K/V of their head; q, out: [group][head_dim]. */
    void (*attend_head)(const private_method *m, const char *kv, const float *q, float *out, char *scratch);
    /* Write K and V [head_dim] of a token into the K/V of its head. */
    void (*write)(const private_method *m, char *kv, int64_t position, const float *k, const float *v);
    /* Set by private_method_start: */
    char *kv, *scratch;
    int32_t layer; /* of the step that runs */
    const float *q;
    float *out;
};

/* Allocate memory, which starts at cache lines, and write all K/V. NULL with a message on stderr; *m is freed then. */
method *private_method_start(private_method *m, method_id id);

#endif
