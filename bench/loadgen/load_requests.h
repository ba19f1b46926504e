/* The requests of a load: their bodies, synthetic or from a file, and their arrival times. */
#ifndef BENCH_LOADGEN_LOAD_REQUESTS_H
#define BENCH_LOADGEN_LOAD_REQUESTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

typedef struct load_request {
    char *body; /* JSON text, owned */
    bool chat;  /* for /v1/chat/completions; otherwise for /v1/completions */
} load_request;

/* Zero-initialise; free with load_requests_free. The functions that make requests append to it, also before a failure. */
typedef struct load_requests {
    load_request *items; /* [n] */
    size_t n;
} load_requests;

/* The fields that every body gets. Borrowed for the call. */
typedef struct load_fields {
    const char *model;
    int64_t completion_tokens; /* the length of every completion, also after an end token; 0: the request's own fields decide */
    const json_t *extra;       /* an object whose fields override all others; NULL: none */
} load_fields;

/* The shape of synthetic prompts. */
typedef struct load_shape {
    int64_t n;             /* requests */
    int64_t prompt_tokens; /* n_p, including the shared ones */
    int64_t shared_tokens; /* n_s */
    int64_t n_prefixes;    /* request i has prefix i mod n_prefixes */
    int64_t vocab;         /* token ids are from LOAD_FIRST_TOKEN to vocab - 1 */
    bool text;             /* prompts are words, one token each in most vocabularies, instead of token ids */
    uint64_t seed;         /* different seeds give different prompts */
} load_shape;

enum { LOAD_FIRST_TOKEN = 256 }; /* in most vocabularies the ids below are special tokens and bytes */

/*
 * Append shape->n random prompts. Two prompts with the same prefix differ in the first token after it, if the vocabulary is
 * large enough. Returns false if memory is lacking.
 */
bool load_requests_synthetic(const load_shape *shape, const load_fields *fields, load_requests *requests);

/* Append the shared prefixes of the shape alone, one request for each. Returns false if memory is lacking. */
bool load_requests_prefixes(const load_shape *shape, const load_fields *fields, load_requests *requests);

/*
 * Append the first n requests (0: all) of a JSONL file in the forms that `batch` reads: {"messages" or "prompt", ...}, or such
 * an object as the "body" of OpenAI's batch form. A file with fewer than n requests is repeated. *requests must be empty.
 *
 * Errors: CL_ERR_FILE: the file cannot be read; CL_ERR_FORMAT: it holds no requests, or a line is wrong; CL_ERR_NOMEM.
 */
cl_status load_requests_read(const char *path, int64_t n, const load_fields *fields, load_requests *requests, cl_error *error);

void load_requests_free(load_requests *requests);

/* Fill tokens [n] with random ids below n_vocab, of which the first is seed modulo n_vocab. */
void load_random_tokens(int32_t *tokens, int64_t n, int32_t n_vocab, uint64_t seed);

/* The same for n sequences of `length` tokens, of which the first n_shared are those of sequence 0. */
void load_random_sequences(int32_t *tokens, int32_t n, int64_t length, int64_t n_shared, int32_t n_vocab);

/*
 * Draw the arrival times of a Poisson process with `rate` requests per second (INFINITY: all at once).
 *
 * at: [n] seconds, ascending from 0; the gaps are exponential with mean 1 / rate.
 */
void load_arrivals(double *at, size_t n, double rate, uint64_t seed);

#endif
