/* Lists what parameters point to, adds up its bytes, and copies it: see params_copy.h. */
#include "params_copy.h"

#include <stdlib.h>
#include <string.h>

enum { N_ARRAYS = 13 };

/* An array that parameters point to. */
typedef struct array {
    size_t pointer; /* the offset of the pointer in cl_engine_request */
    size_t bytes;   /* 0: there is none */
} array;

static size_t n_bad_tokens(const cl_engine_request *p) {
    size_t n = 0;
    for (int32_t i = 0; i < p->n_bad_words; i++) n += (size_t)p->bad_word_sizes[i];
    return n;
}

/* The arrays; of the stop strings it is that of the pointers to them. */
static void list_arrays(const cl_engine_request *p, array arrays[N_ARRAYS]) {
#define ARRAY(field, n)                                                                                                        \
    { offsetof(cl_engine_request, field), (size_t)(n) * sizeof *p->field }
    const bool limits = p->max_reasoning_tokens >= 0;
    const array all[N_ARRAYS] = {
        ARRAY(prompt, p->n_prompt),
        ARRAY(stop, p->n_stop),
        ARRAY(stop_tokens, p->n_stop_tokens),
        ARRAY(logit_bias, p->n_logit_bias),
        ARRAY(allowed_tokens, p->n_allowed_tokens),
        ARRAY(bad_words, n_bad_tokens(p)),
        ARRAY(bad_word_sizes, p->n_bad_words),
        ARRAY(shown_tokens, p->n_shown_tokens),
        ARRAY(salt, p->salt_size),
        ARRAY(top_tokens, p->top_tokens ? p->n_top : 0),
        ARRAY(reasoning_begin, limits ? strlen(p->reasoning_begin) + 1 : 0),
        ARRAY(reasoning_end, limits ? strlen(p->reasoning_end) + 1 : 0),
        ARRAY(reasoning_end_tokens, limits ? p->n_reasoning_end_tokens : 0),
    };
#undef ARRAY
    memcpy(arrays, all, sizeof all);
}

/* The bytes that an array takes in the block, so that the next one is aligned. */
static size_t aligned(size_t bytes) { return (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1); }

size_t cl_params_bytes(const cl_engine_request *p) {
    array arrays[N_ARRAYS];
    size_t bytes = 0;
    list_arrays(p, arrays);
    for (int i = 0; i < N_ARRAYS; i++) bytes += aligned(arrays[i].bytes);
    for (int32_t i = 0; i < p->n_stop; i++) bytes += strlen(p->stop[i]) + 1;
    return bytes;
}

/* Copy an array to `at`, and let its pointer in p point there. */
static void copy_array(cl_engine_request *p, const array *a, void *at) {
    const void *from;
    void *to = a->bytes > 0 ? at : NULL;
    memcpy(&from, (char *)p + a->pointer, sizeof from);
    if (to) memcpy(to, from, a->bytes);
    memcpy((char *)p + a->pointer, &to, sizeof to);
}

void *cl_params_copy(cl_engine_request *p) {
    array arrays[N_ARRAYS];
    char *block = malloc(cl_params_bytes(p)), *at = block;
    if (!block) return NULL;
    list_arrays(p, arrays);
    for (int i = 0; i < N_ARRAYS; at += aligned(arrays[i++].bytes)) copy_array(p, &arrays[i], at);
    const char **stop = (const char **)p->stop; /* the copy */
    for (int32_t i = 0; i < p->n_stop; i++) {
        stop[i] = strcpy(at, stop[i]);
        at += strlen(at) + 1;
    }
    return block;
}
