/* The requests of a load, as the bodies that are sent: synthetic ones, or a file's. */
#ifndef LOADGEN_REQUESTS_H
#define LOADGEN_REQUESTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"

typedef struct load_request {
    char *body; /* JSON, terminated */
    bool chat;  /* for /v1/chat/completions, else /v1/completions */
} load_request;

typedef struct load_requests {
    load_request *items; /* [n] */
    size_t n;
} load_requests;

/* What every body gets. */
typedef struct load_fields {
    const char *model;
    int64_t completion_tokens; /* exactly so many, also after an end token; 0: the request's own fields decide */
    const json_t *extra;       /* an object whose fields win over all others; NULL: none */
} load_fields;

typedef struct load_shape {
    int64_t n;
    int64_t prompt_tokens; /* n_p, those shared among them */
    int64_t shared_tokens; /* n_s */
    int64_t n_prefixes;    /* request i has prefix i mod n_prefixes */
    int64_t vocab;         /* token ids are from LOAD_FIRST_TOKEN to vocab - 1 */
    bool text;             /* words, each a token in most vocabularies, instead of token ids */
    uint64_t seed;         /* other seeds have other prompts */
} load_shape;

enum { LOAD_FIRST_TOKEN = 256 }; /* below it vocabularies keep their special tokens and bytes */

/*
 * Random prompts. Behind the shared tokens no two of the same prefix go on alike, as far as there are tokens enough. False
 * only without memory. *requests is empty before, and freed with requests_free, also after a failure.
 */
bool requests_synthetic(const load_shape *shape, const load_fields *fields, load_requests *requests);

/* The prompts of the shape's prefixes alone, one each. */
bool requests_prefixes(const load_shape *shape, const load_fields *fields, load_requests *requests);

/*
 * The first n (0: all) requests of a JSONL file in the forms that `batch` reads: {"messages" or "prompt", ...}, or such an
 * object as the "body" of OpenAI's batch form. With n above the file's own number it is gone through again.
 */
cl_status requests_read(const char *path, int64_t n, const load_fields *fields, load_requests *requests, cl_error *error);

void requests_free(load_requests *requests);

#endif
