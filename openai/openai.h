/*
 * OpenAI's JSON to engine requests, and the engine's events to OpenAI's JSON: chat completions and completions. Used by the
 * HTTP server and by `batch`; knows nothing of either.
 *
 *   body --openai_request_parse--> openai_request --openai_engine_request--> cl_engine_submit, once a prompt
 *   engine_event --openai_result_add--> openai_result --openai_result_json, openai_chunk_json--> answer
 */
#ifndef OPENAI_OPENAI_H
#define OPENAI_OPENAI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "llama/model.h"

typedef enum openai_endpoint { OPENAI_CHAT, OPENAI_COMPLETION } openai_endpoint;

/* ---- Errors (openai_error.c) ---- */

/* OpenAI's error object and the HTTP status it goes with. */
typedef struct openai_error {
    int status;       /* 400, 404, ... */
    const char *type; /* "invalid_request_error", "server_error", ...; static */
    const char *code; /* e.g. "context_length_exceeded"; static; NULL: null */
    char param[64];   /* the field at fault, e.g. "messages[0].role"; empty: null */
    char message[512];
} openai_error;

/* Fill *error with an invalid_request_error of status 400 and return false. param NULL: no field. */
bool openai_fail(openai_error *error, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* An engine's or model's error as OpenAI's: what the client asked wrongly is 400, everything else 500. Returns false. */
bool openai_fail_from(openai_error *error, const char *param, const cl_error *cause);

/* {"error": {"message", "type", "param", "code"}}; a new reference, NULL without memory. */
json_t *openai_error_json(const openai_error *error);

/* ---- Requests (openai_request.c, openai_prompt.c, openai_params.c) ---- */

/* What a request is given where its body says nothing. */
typedef struct openai_defaults {
    cl_sampler_params sampling;    /* sampling.seed only where has_seed, else each request draws its own */
    bool has_seed;                 /* false */
    int64_t max_tokens_chat;       /* < 0: up to the context, OpenAI's default */
    int64_t max_tokens_completion; /* 16, OpenAI's default */
    bool ignore_eos;               /* false */
    bool logprobs;                 /* false */
    int32_t n_top;                 /* 0 */
} openai_defaults;

void openai_defaults_init(openai_defaults *defaults);

/* Borrowed by everything made from it. */
typedef struct openai_context {
    const cl_model *model;
    const char *model_name; /* as answers tell it */
    cl_chat_format chat;    /* the model's or another the user has chosen */
    int32_t n_ctx;          /* text that cannot fit so many tokens is refused before it is tokenized; 0: no limit */
    openai_defaults defaults;
} openai_context;

enum {
    OPENAI_MAX_PROMPTS = 1024,
    OPENAI_MAX_N = 128,
    OPENAI_MAX_STOP = 16, /* OpenAI's own limit is 4 */
    OPENAI_MAX_STOP_BYTES = 1024,
    OPENAI_MAX_STOP_TOKENS = 256,
    OPENAI_MAX_TOP_LOGPROBS = 20,
};

typedef struct openai_prompt {
    cl_token_list tokens;
    char *text; /* what `echo` repeats, UTF-8; NULL without echo */
    size_t text_size;
} openai_prompt;

typedef struct openai_request {
    openai_endpoint endpoint;
    openai_prompt *prompts; /* [n_prompts]; one for chat */
    size_t n_prompts;
    cl_engine_request params; /* everything but prompt, on_event and ctx; pointers lead into this struct */
    bool stream;
    bool include_usage;    /* stream_options.include_usage */
    bool continuous_usage; /* .continuous_usage_stats, too: each chunk tells its choice's so far */
    bool echo;             /* completions */
    bool return_token_ids; /* "return_token_ids": each choice carries `token_ids` and `prompt_token_ids` */
    char *stop[OPENAI_MAX_STOP];
    int32_t stop_tokens[OPENAI_MAX_STOP_TOKENS];
} openai_request;

/*
 * Read and check a request's body. Unknown fields are ignored, as OpenAI's servers do; known ones that are not offered here
 * and would change the result are refused. False with *error filled and *request empty when something is wrong. *request is
 * to stay where it is (it points into itself), until openai_request_free.
 */
bool openai_request_parse(const openai_context *context, openai_endpoint endpoint, const json_t *body, openai_request *request,
                          openai_error *error);
void openai_request_free(openai_request *request);

/* What to submit for prompt i; borrows from *request. */
cl_engine_request openai_engine_request(const openai_request *request, size_t i,
                                        void (*on_event)(void *, const cl_engine_event *), void *ctx);

/* ---- Results (openai_result.c) ---- */

/* Logprobs of a run of tokens. */
typedef struct openai_logprobs {
    cl_sampler_logprob *chosen; /* [n] */
    cl_sampler_logprob *top;    /* [n][request's n_top] */
    int32_t *n_top;             /* [n]: how many of a row's are filled */
    size_t n, capacity;
} openai_logprobs;

typedef struct openai_choice {
    char *text; /* terminated; what echo repeats is not in it. NULL while empty */
    size_t text_size, text_capacity;
    cl_token_list tokens;     /* completion */
    openai_logprobs logprobs; /* of these tokens, where asked for */
    bool begun;               /* streams: a chunk of it has been written */
    int64_t text_offset;      /* streams: characters of the tokens written so far, for completions' logprobs */
    cl_engine_finish finish;
} openai_choice;

typedef struct openai_usage {
    int64_t prompt_tokens, cached_tokens, completion_tokens;
} openai_usage;

/* Everything the engine has said so far about a request's prompts. Choice c of prompt p is choices[p * n + c]. */
typedef struct openai_result {
    const openai_context *context;
    const openai_request *request;
    char id[40];     /* "chatcmpl-..." or "cmpl-..." */
    int64_t created; /* seconds since 1970 */
    openai_choice *choices;
    size_t n_choices;
    openai_logprobs
        *prompt_logprobs; /* [n_prompts], with echo and logprobs: entry i is position i + 1, as the first has none */
    openai_usage *usage;  /* [n_prompts] */
    size_t n_done;        /* prompts whose last event came */
    bool failed;          /* the engine reported an error: */
    openai_error error;
} openai_result;

/* False without memory. context and request are borrowed until openai_result_free. */
bool openai_result_init(openai_result *result, const openai_context *context, const openai_request *request);
void openai_result_free(openai_result *result);

/* Take in an event of prompt i. Not from two threads at once. Without memory the result becomes failed. */
void openai_result_add(openai_result *result, size_t i, const cl_engine_event *event);

/* Every prompt has had its last event. */
bool openai_result_done(const openai_result *result);

/* Summed over all prompts. */
openai_usage openai_result_usage(const openai_result *result);

/* "stop", "length", ...; NULL while running. */
const char *openai_finish_name(cl_engine_finish finish);

/* ---- Answers (openai_write.c, openai_logprobs.c, openai_text.c); new references, NULL without memory ---- */

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *openai_text_json(const char *bytes, size_t size);

/* {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}} */
json_t *openai_usage_json(const openai_usage *usage);

/*
 * Logprobs of a choice's tokens from the first-th on in the shape of the request's endpoint. With `echo` (completions) those of
 * the prompt come before them. *text_offset counts on the characters; JSON null where none were asked for.
 */
json_t *openai_logprobs_json(const openai_result *result, size_t choice, size_t first, bool echo, int64_t *text_offset);

/* The whole answer of a request that is not streamed. */
json_t *openai_result_json(const openai_result *result);

/*
 * Streams: what an event that was just added to the result shows; JSON null where that is nothing. A choice's first chunk
 * also has the role (chat) or the echoed prompt (completions).
 */
json_t *openai_chunk_json(openai_result *result, size_t i, const cl_engine_event *event);
/* The chunk that ends a stream with include_usage. */
json_t *openai_chunk_usage_json(const openai_result *result);

#endif
