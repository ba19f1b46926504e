/*
 * Converts OpenAI's JSON into engine requests, and the engine's events into OpenAI's JSON, for chat completions and
 * completions. The HTTP server and the `batch` command use it; it knows neither HTTP nor files.
 *
 *   body --openai_request_parse--> openai_request --openai_submit--> engine
 *   cl_engine_event --openai_result_add--> openai_result --openai_write_answer, openai_write_chunk--> answer
 *
 * dialect.h has a table of the differences between APIs, which both use.
 *
 * No function here keeps state between calls. Different requests and results may be used on different threads at once.
 */
#ifndef SERVE_PROTOCOL_OPENAI_H
#define SERVE_PROTOCOL_OPENAI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/chat/reply.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/common/str.h"
#include "chunkllama/engine/engine.h"
#include "chunkllama/model/model.h"
#include "chunkllama/schema/schema.h"
#include "writer.h"

/* A name such as "messages[2].content"; cut to the buffer's size, as in openai_error. */
typedef struct field_path {
    char text[64];
} field_path;

typedef enum openai_endpoint { OPENAI_CHAT, OPENAI_COMPLETION, OPENAI_EMBEDDING } openai_endpoint;

/* ---- Errors (error_object.c) ---- */

/* OpenAI's error object, and the HTTP status that is sent with it. */
typedef struct openai_error {
    int status;            /* 400, 404, ... */
    const char *type;      /* "invalid_request_error", "server_error", ...; a static string */
    const char *code;      /* "context_length_exceeded", ...; a static string; NULL becomes JSON null */
    int64_t retry_after_s; /* seconds after which the request may succeed, >= 1; 0: not known */
    char param[64];        /* the field at fault, such as "messages[0].role"; "" becomes JSON null */
    bool says_param;       /* the message goes on behind the param in quotes */
    char message[512];
} openai_error;

/* Fill *error with an invalid_request_error of status 400 about the field `param` (NULL: no field). Returns false. */
bool openai_fail(openai_error *error, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * The same with a message that begins with the param in quotes, and goes on with the format. Only openai_error_text puts them
 * together, so that the param may become the name by which the client knows the field.
 */
bool openai_refuse(openai_error *error, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Give a filled error this status and code (NULL: none). Returns false. */
bool openai_set_status(openai_error *error, int status, const char *code);

/*
 * Turn a filled error into one of the server, with status 503. retry_after_s: seconds after which the request may succeed; 0:
 * not known. Returns the error.
 */
const openai_error *openai_unavailable(openai_error *error, int64_t retry_after_s);

/*
 * Fill *error from an error of the engine or the model: status 400 if the request is at fault, 429 if too many wait, 503 if
 * memory is lacking, 504 if the request did not end in time, otherwise 500. Returns false.
 */
bool openai_fail_from(openai_error *error, const char *param, const cl_error *cause);

/* Fill *error: memory is lacking for the request. Returns false. */
bool openai_fail_memory(openai_error *error);

/* The whole message, in the caller's text. */
enum { OPENAI_ERROR_TEXT = 600 };
const char *openai_error_text(const openai_error *error, char text[OPENAI_ERROR_TEXT]);

/* Write the member "error": {"message", "type", "param", "code"} into the object that is open. */
void openai_write_error(openai_writer *w, const openai_error *error);

/* Write an object that has only that member, as the value of `key` (NULL: no key). */
void openai_write_error_body(openai_writer *w, const char *key, const openai_error *error);

/* The member "error" as text, in place of an answer for which memory is lacking, and its message. Its HTTP status is 500. */
#define OPENAI_NO_MEMORY "memory is lacking for the answer; request less at once, or send the request again later"
#define OPENAI_NO_MEMORY_ERROR                                                                                                 \
    "\"error\": {\"message\": \"" OPENAI_NO_MEMORY "\", \"type\": \"server_error\", \"param\": null, \"code\": null}"

/* ---- Tenants (tenant.c) ---- */

enum { OPENAI_MAX_TENANT = 64 };
#define OPENAI_DEFAULT_TENANT "default"

/* The names of tenants that were used so far. Zero-initialise; one thread at a time. */
typedef struct openai_tenants {
    void *names; /* a tree of tsearch by domain; owned */
} openai_tenants;

void openai_tenants_free(openai_tenants *tenants);

/*
 * The domain of a tenant's requests: 0 for "default", otherwise 1 to 2^31 - 1, a function of the name alone, so that K/V which
 * outlive the process stay the tenant's.
 *
 * Errors: CL_ERR_ARG for a name that is not 1 to 64 printable ASCII characters without blanks, and for one with the domain of
 * another name that was used; CL_ERR_NOMEM.
 */
cl_status openai_tenants_domain(openai_tenants *tenants, const char *name, uint32_t *domain, cl_error *error);

/* The name of a domain's tenant, owned by *tenants; NULL: it was not used. */
const char *openai_tenants_name(const openai_tenants *tenants, uint32_t domain);

/* ---- Names of the model (names.c) ---- */

/* Zero-initialise. */
typedef struct openai_names {
    char **names; /* [n] owned; the first one is the model's name in answers */
    size_t n;
    bool any; /* requests may send any other name, too */
} openai_names;

/*
 * Fill *names from a list of names with commas or blanks between them, in which * stands for any name. If it has no other, or
 * is NULL, the name is that of the model's file, cl_model_file_name(path). Errors: CL_ERR_NOMEM.
 */
cl_status openai_names_init(openai_names *names, const char *list, const char *path, cl_error *error);
void openai_names_free(openai_names *names);

/* The tag that Ollama's clients add to a name, which is the same name without it. */
#define OPENAI_LATEST ":latest"

/* Whether requests may call the model by this name; names: NULL: by any. */
bool openai_names_have(const openai_names *names, const char *name);

/* Fill *error for a model that is not there: status 404. Returns false. */
bool openai_fail_model(openai_error *error, const char *name, const openai_names *names);

/* ---- Requests (read_request.c, read_params.c, read_prompt.c, refused.c) ---- */

/* The values of fields that a request's body leaves out. */
typedef struct openai_defaults {
    cl_sampler_params sampling;    /* sampling.seed counts only with has_seed; otherwise each request draws its own seed */
    int32_t penalty_window;        /* cl_engine_request's, where the penalty is not llama-server's; default -1 */
    bool has_seed;                 /* default false */
    int64_t max_tokens_chat;       /* tokens; < 0 (default, as OpenAI's): up to the context's end */
    int64_t max_tokens_completion; /* tokens; default 16, as OpenAI's */
    bool ignore_eos;               /* default false */
    bool logprobs;                 /* default false */
    int32_t n_top;                 /* how many of the likeliest tokens are reported with each token; default 0 */
    bool open_objects;             /* cl_schema_options.open; default false */
    cl_engine_pooling pooling;     /* of embeddings; default CL_ENGINE_POOL_NONE: as the model's file says, or else the last */
    bool parse_special; /* in prompts of completions and embeddings, names of special tokens are these; default false */
} openai_defaults;

/* Set all fields to their defaults. */
void openai_defaults_init(openai_defaults *defaults);

/* Whether clients may name a request so: 1 to OPENAI_MAX_REQUEST_ID characters that a header may have, printable ASCII. */
bool openai_is_request_id(const char *id);

/* Write 24 random digits and a zero. False: the system has no random bytes. */
enum { OPENAI_RANDOM_ID = 25 };
bool openai_random_id(char id[OPENAI_RANDOM_ID]);

/*
 * The common part of all requests of a server or of a run of `chunkllama batch`. Its pointers are borrowed; requests and
 * results borrow the context until they are freed.
 */
typedef struct openai_context {
    const cl_model *model;
    const char *model_name;    /* the model's name in answers, UTF-8 */
    const openai_names *names; /* that requests may send; NULL: any */
    int64_t started_at;        /* seconds since 1970: the model's date in Ollama's answers */
    const cl_chat *chat;       /* how chats are written: as the model's file or the user says; NULL: chats are refused */
    int32_t n_ctx;             /* tokens; text too long for it is refused before it is tokenized; 0: no limit */
    const char *n_ctx_reason;  /* cl_engine_context_reason; NULL: none */
    double timeout_s;          /* cl_engine_request.timeout_s of all requests; 0: none */
    double queue_timeout_s;    /* the same of cl_engine_request.queue_timeout_s */
    openai_defaults defaults;
    openai_defaults local;     /* of requests by llama-server's names, and of the page */
    const json_t *chat_kwargs; /* an object: variables of the template that requests do not set; NULL: none */
    bool can_pin;              /* requests may pin the prefixes that they mark; otherwise marks have no effect */
    /*
     * Counts about as many bytes as an answer will take that needs no engine, before it is made. False with *error filled: the
     * request is refused. NULL: nobody counts.
     */
    bool (*count_answer)(void *owner, size_t bytes, openai_error *error);
    void *owner; /* its argument */
} openai_context;

enum {
    OPENAI_MAX_PROMPTS = 1024,
    OPENAI_MAX_N = 128,
    OPENAI_MAX_CHOICES = 4096, /* of all prompts of a request */
    OPENAI_MAX_STOP = 16,      /* OpenAI's own limit is 4 */
    OPENAI_MAX_STOP_BYTES = 1024,
    OPENAI_MAX_STOP_TOKENS = 256,
    OPENAI_MAX_TOP_LOGPROBS = 20,
    OPENAI_MAX_LOGIT_BIAS = 65536, /* tokens; OpenAI's own limit is 300 */
    OPENAI_MAX_BAD_WORDS = 1024,
    OPENAI_MAX_BAD_WORD_BYTES = 1024,
    OPENAI_MAX_RULE_BYTES = 65536, /* of the texts of logit_bias and bad_words together, which are tokenized */
    OPENAI_MAX_SAMPLERS = 16,
    OPENAI_PENALTY_WINDOW = 64,  /* tokens that llama-server's penalty counts, unless the request says another number */
    OPENAI_MAX_REQUEST_ID = 128, /* bytes */
    OPENAI_MAX_MARKERS = 32,
    OPENAI_MAX_INPUTS = 2048,      /* of a request for embeddings, as OpenAI's; and documents of one for scores */
    OPENAI_MAX_QUERIES = 16 << 20, /* bytes of a query and its instruction, times the documents that are judged */
    /* Of answers that repeat what they got, since that takes no computing which would bound it: */
    OPENAI_MAX_TEXT = 16 << 20,      /* bytes of text that is made of token ids; as many as a body may have */
    OPENAI_MAX_REPEATED = 128 << 20, /* bytes of prompts in choices, by openai_check_repeated */
    OPENAI_VALUE_BYTES = 64,         /* about the memory of a value in an answer, with its text */
};

/* What a request's rules on tokens point to (rules.c). Owned. */
typedef struct openai_rules {
    size_t n_bytes; /* of texts that were tokenized */
    cl_logit_bias *bias;
    size_t bias_capacity;
    int32_t *allowed;
    cl_token_list bad_words; /* one after the other */
    int32_t *bad_word_sizes;
} openai_rules;

typedef struct openai_prompt {
    cl_token_list tokens;
    char *text; /* [text_size] the text that the answer repeats, as with `echo`, UTF-8; NULL: none */
    size_t text_size;
    bool in_reasoning; /* it ends where reasoning begins */
} openai_prompt;

/* Whether the model may call tools. */
typedef enum openai_tool_choice { OPENAI_TOOLS_NONE, OPENAI_TOOLS_AUTO, OPENAI_TOOLS_REQUIRED } openai_tool_choice;

typedef struct openai_request {
    openai_endpoint endpoint;
    const char *id_prefix;   /* the beginning of its answers' ids, a static string: "chatcmpl-", "cmpl-" */
    const char *call_prefix; /* the same of its calls' ids; NULL: "call_" */
    openai_prompt *prompts;  /* [n_prompts]; a chat has one */
    size_t n_prompts;
    cl_engine_request params; /* all but what belongs to a prompt or an event; its pointers point into this struct */
    int64_t n_ctx;            /* the context, in tokens; 0: not known */
    int32_t n;            /* choices of each prompt in the answer: the best of the params.n (`best_of`) that are generated */
    bool logprobs;        /* the answer has logprobs; params.logprobs is also set to choose the best */
    int32_t n_top;        /* of the params.n_top likeliest tokens, those that logprobs show */
    int32_t n_prompt_top; /* the same of prompt_logprobs; -1: the answer has none */
    bool stream;
    bool include_usage;    /* stream_options.include_usage */
    bool continuous_usage; /* stream_options.continuous_usage_stats: each chunk reports its choice's usage so far */
    bool echo;             /* completions only */
    bool adds_special;     /* completions and embeddings: the tokens that the model wants around a text are added */
    bool parse_special;    /* completions and embeddings: names of special tokens in text stand for these tokens */
    /* Such a name, which a text has and which is text there, cut; "": there is none. */
    char special_name[48];
    bool return_token_ids;  /* each choice carries `token_ids` and `prompt_token_ids` */
    bool return_tokens;     /* llama-server's dialect: each choice carries `tokens` */
    bool tokens_as_ids;     /* logprobs name tokens by their ids, as in "token_id:5" */
    bool timings;           /* the answer, or a choice's last chunk, has `timings` */
    bool timings_per_token; /* each chunk has them */
    int64_t truncate; /* prompts keep this many of their last tokens at most; 0: all; -1: as many as the context can hold */
    char *id;         /* of the answer, behind its prefix; owned; NULL: a random one */
    char *salt;       /* [params.salt_size] owned */
    openai_rules rules;
    int64_t max_reasoning_tokens; /* < 0: no limit; params has it where the model's replies have reasoning */
    cl_token_list reasoning_end;  /* what ends reasoning beyond that */
    /*
     * Chats: the tools, and those of them that may be called: arrays of {"type": "function", "function": {"name", ...}}, owned;
     * NULL: none. The prompt describes all of them, unless none may be called.
     */
    json_t *tools, *callable;
    openai_tool_choice tool_choice;
    field_path odd;           /* the name of the arguments in the history that are no JSON object; "": there are none */
    bool parallel_tool_calls; /* a reply may call several tools */
    bool splits;              /* replies are split, with `reply`, into reasoning, content and calls */
    bool include_reasoning;   /* the answer contains the reasoning that is split off */
    cl_reply_options reply;
    int32_t markers[OPENAI_MAX_MARKERS]; /* [params.n_shown_tokens] special tokens that replies show: they are markers */
    char *grammar;                       /* [params.grammar_size] owned; which field it came from is in grammar_field */
    const char *grammar_field;           /* a static string; NULL: the request has none */
    bool open_objects;                   /* cl_schema_options.open of its JSON schemas */
    char weaker[CL_SCHEMA_WEAKER_BYTES]; /* keywords of these that answers are not held to; empty: none */
    const char *format;                  /* the client's name for response_format, a static string */
    bool base64;                         /* embeddings: write them as base64 of little-endian f32 */
    int32_t dimensions;                  /* embeddings: how many leading components are returned */
    bool raw;          /* embeddings: vectors keep their lengths; scores of a model that judges: the logarithm of its odds */
    size_t n_queries;  /* scores: of the prompts, the first ones are queries, and the others documents */
    int32_t labels[2]; /* scores of a model that judges, whose prompts have query and document: the tokens of "no" and "yes" */
    int32_t top_n;     /* rankings: the most documents in the answer; 0: all */
    bool only_ranks;   /* rankings: the answer is the array of ranks, as in Text Embeddings Inference */
    char *stop[OPENAI_MAX_STOP];
    int32_t stop_tokens[OPENAI_MAX_STOP_TOKENS];
    int32_t pin_ttl_s; /* seconds for which params.pin_tokens are to stay in the cache after their last use; 0: they are 0 */
    json_t *repeated;  /* the fields of the body that answers in its dialect repeat, an object; owned; NULL: nothing */
} openai_request;

/*
 * Read and check a request's body.
 *
 * Unknown fields are ignored, as OpenAI's servers do. Known fields that are not offered here are refused if they would change
 * the result. Returns false with *error filled and *request empty if the body is wrong or memory is lacking. *request points
 * into itself, so it must not move until openai_request_free; body is not needed after the call.
 */
bool openai_request_parse(const openai_context *context, openai_endpoint endpoint, const json_t *body, openai_request *request,
                          openai_error *error);
void openai_request_free(openai_request *request);

/*
 * About the bytes of an answer while it is made, without what choices say: what it repeats of the prompts, their logprobs, and
 * embeddings. All zero: 0.
 */
size_t openai_answer_bytes(const openai_context *context, const openai_request *request);

/*
 * Read a request for embeddings: `input` is a prompt, as that of a completion, or an array of them (embeddings.c).
 * Otherwise as openai_request_parse.
 */
bool openai_embedding_parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/* The same with the name of the field in which the texts are. */
bool openai_embedding_parse_as(const openai_context *context, const json_t *body, const char *texts, openai_request *request,
                               openai_error *error);

/*
 * Read a body as a request that pins its prompt and generates nothing: one of the path in its field `url`; without that a chat
 * if it has `messages`, else a completion. There must be one prompt. Otherwise as openai_request_parse.
 */
bool openai_pin_parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/*
 * The limit on a prompt's completions: params.max_tokens, or -1, "up to the end of the context", if that comes first: clients
 * send their own limits, which know no context.
 */
int64_t openai_max_tokens(const openai_request *request, size_t prompt);

/* One prompt of a request that was submitted: the ctx of its events. */
typedef struct openai_submitted {
    void *owner;   /* the argument of openai_submit */
    size_t prompt; /* index in request->prompts */
    uint64_t id;   /* for cl_engine_cancel; valid once openai_submit has returned */
} openai_submitted;

/*
 * Submit the prompts of a request from `first` on to the engine, in order, until one is refused.
 *
 * submitted: [request->n_prompts], filled here; each must stay where it is until its prompt's last event. on_event runs on the
 * engine's thread with the prompt's openai_submitted as ctx, possibly before this function returns.
 *
 * Returns the index behind the last prompt that was submitted. If it is less than n_prompts, *error says why that prompt was
 * refused, and with status 429 when it may be submitted again; those before it run to their end unless the caller cancels them.
 */
size_t openai_submit(const openai_request *request, size_t first, cl_engine *e, void *owner,
                     void (*on_event)(void *submitted, const cl_engine_event *event), openai_submitted *submitted,
                     openai_error *error);

/* Whole seconds, at least 1, after which the requests that wait now will be admitted. */
int64_t openai_retry_after(cl_engine *e);

/*
 * Fill *error from the engine's error about a request, as openai_fail_from; a field that the client may set has the client's
 * name.
 */
bool openai_fail_from_engine(openai_error *error, const openai_request *request, const cl_error *cause);

/* ---- Results (result.c) ---- */

/* Logprobs of consecutive tokens. */
typedef struct openai_logprobs {
    cl_sampler_logprob *chosen; /* [n] */
    cl_sampler_logprob *top;    /* [n][params.n_top] */
    int32_t *n_top;             /* [n] how many entries of a row of `top` are filled */
    int32_t *ranks;             /* [n] of tokens of the prompt; otherwise 0 */
    size_t n, capacity;
} openai_logprobs;

/* Text that grows. Zero-initialise. */
typedef struct openai_text {
    char *data; /* [size] and a zero; NULL while empty */
    size_t size, capacity;
} openai_text;

/* A tool call in a reply. */
typedef struct openai_call {
    char id[32];
    openai_text name;
    openai_text arguments; /* JSON; of a reply that was cut, or malformed, perhaps not valid */
} openai_call;

/*
 * Consecutive text of one kind within a choice: content, reasoning or a call. The items are in the order in which the model
 * wrote them.
 */
typedef struct openai_item {
    cl_reply_kind kind; /* not CL_REPLY_ARGUMENTS, which belong to CL_REPLY_CALL */
    size_t call;        /* of a call: its index */
    size_t begin, end;  /* otherwise: its bytes of the choice's text or reasoning */
} openai_item;

typedef struct openai_choice {
    openai_text text;      /* the content, without the text that echo repeats */
    openai_text reasoning; /* that was split off */
    openai_call *calls;    /* [n_calls] */
    size_t n_calls, calls_capacity;
    cl_reply *reply;          /* splits the text; NULL: all of it is content */
    bool reasons;             /* the latest token is of reasoning or ends it, also if the answer leaves it out */
    int64_t reasoning_tokens; /* tokens of the completion that came while it was */
    cl_token_list tokens;     /* of the completion */
    openai_logprobs logprobs; /* of these tokens, if they were requested */
    double sum_logprob;       /* of these tokens, if they are known */
    bool begun;               /* streams: a chunk of this choice was written */
    int64_t text_offset;      /* streams: characters in the tokens written so far, for completions' logprobs */
    cl_engine_finish finish;
    int32_t stop;       /* the index in request->stop of the string that ended the choice; -1: none did */
    openai_item *items; /* [n_items] */
    size_t n_items, items_capacity;
} openai_choice;

/* What an event adds to its choice. */
typedef struct openai_delta {
    cl_reply_kind kind;
    size_t call;      /* of a call and its arguments: the index in the choice */
    const char *text; /* [size] valid until the next event of the choice */
    size_t size;
} openai_delta;

/* Numbers of tokens. */
typedef struct openai_usage {
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    int64_t reasoning_tokens; /* of the completion tokens, those of reasoning */
    int64_t pinned_tokens;    /* of the prompt tokens, those that the request has pinned */
} openai_usage;

/* When the events of a request came, by clock_seconds(). */
typedef struct openai_times {
    double begun, first, last; /* the request, and the first and last token of its completions; 0: none yet */
    double latest;             /* the latest event */
} openai_times;

/* How far the items of a stream's choice were written (openai_next_change). */
typedef struct openai_position {
    size_t item;   /* the first one that was not written to its end */
    bool begun;    /* its beginning was written */
    size_t n_sent; /* bytes of its text that were written */
} openai_position;

/*
 * The events of a request so far. Choice c of prompt p is choices[p * params.n + c]. If fewer choices are returned than are
 * generated, those of a prompt are sorted with its last event: by the mean logprob of their tokens, the highest first. Those of
 * a beam search are in order.
 */
typedef struct openai_result {
    const openai_context *context;
    const openai_request *request;
    char id[16 + OPENAI_MAX_REQUEST_ID]; /* request->id_prefix, and request->id or 24 digits */
    int64_t created;                     /* seconds since 1970 */
    uint64_t call_key;                   /* random; the ids of calls are made from it */
    openai_choice *choices;
    size_t n_choices;
    openai_times times;
    /* [n_prompts], filled with prompt_logprobs, or echo and logprobs: the tokens from params.prompt_logprobs_from on, without
     * the very first, which has no logprob. */
    openai_logprobs *prompt_logprobs;
    openai_usage *usage;  /* [n_prompts] */
    float **embeddings;   /* [n_prompts][n_embd of the model] not normalised; NULL in requests without, and before they come */
    openai_delta *deltas; /* [n_deltas] the latest event's additions to its choice, in order, for streams */
    size_t n_deltas, deltas_capacity;
    size_t n_done; /* prompts whose last event was added */
    bool failed;   /* the engine reported an error, or memory was lacking; error says which */
    openai_error error;
    openai_position position; /* streams of dialects that write items: of the only choice */
    int64_t n_events;         /* streams of dialects that number their events: those that were written */
} openai_result;

/* Borrows context and request until openai_result_free. Returns false if memory is lacking. */
bool openai_result_init(openai_result *result, const openai_context *context, const openai_request *request);
void openai_result_free(openai_result *result);

/* Add an event of prompt i, which came at this clock_seconds(). One thread at a time per result. If memory is lacking the
 * result becomes failed. */
void openai_result_add(openai_result *result, size_t i, const cl_engine_event *event, double at);

/* Whether the last events of all prompts were added. */
bool openai_result_done(const openai_result *result);

/* The sum over all prompts. */
openai_usage openai_result_usage(const openai_result *result);

/* ---- Items (items.c) ---- */

/*
 * Add text [size] of a kind, which was just added to the choice, to its items; call: the call's index. False: memory is
 * lacking.
 */
bool openai_items_add(openai_choice *choice, cl_reply_kind kind, size_t call, size_t size);

/* The text of item i, or a call's arguments. Valid until an event is added. */
cl_str openai_item_text(const openai_choice *choice, size_t i);

typedef enum openai_change_kind { OPENAI_ITEM_BEGINS, OPENAI_ITEM_GROWS, OPENAI_ITEM_ENDS } openai_change_kind;

typedef struct openai_change {
    openai_change_kind kind;
    size_t item;
    cl_str text; /* the text added to the item; empty unless it grows */
} openai_change;

/*
 * The next change to the items of the result's only choice that the stream has not written yet; false: there is none. All but
 * the last item have ended, and it has with the choice.
 */
bool openai_next_change(openai_result *result, openai_change *change);

/* "stop", "length", "abort" or "error"; NULL for CL_ENGINE_RUNNING. */
const char *openai_finish_name(cl_engine_finish finish);

/* Why a choice ended: one of these names, or "tool_calls" if it stopped after it had called tools. */
const char *openai_finish_reason(const openai_choice *choice);

/* ---- Answers (write_answer.c, logprobs.c, timings.c); if memory is lacking, the writer fails ---- */

/*
 * {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}} as the value of `key`; and
 * "completion_tokens_details": {"reasoning_tokens"} if there are any.
 */
void openai_write_usage(openai_writer *w, const char *key, const openai_usage *usage);

/*
 * Write the member "logprobs": those of a choice's tokens from index `first` on, in the shape of the request's endpoint; null
 * if none were requested. With echo (completions) the prompt's logprobs come before them. *text_offset is the number of
 * characters before these tokens, and is advanced past them.
 */
void openai_write_logprobs(openai_writer *w, const openai_result *result, size_t choice, size_t first, bool echo,
                           int64_t *text_offset);

/* Write the member "prompt_logprobs" of vLLM's: those of prompt i, null for the first and for others without one. */
void openai_write_prompt_logprobs(openai_writer *w, const openai_result *result, size_t i);

/* The logprob in answers. JSON has no infinity; OpenAI's servers report -9999 for impossible tokens. */
double openai_reported(float logprob);

/* Write an array of the logprobs of tokens from index `first` on, as chats and Ollama have them, as the value of `key`. */
void openai_write_token_logprobs(openai_writer *w, const char *key, const openai_result *result, const openai_logprobs *l,
                                 size_t first);

/* Note that a token came, at this clock_seconds(). */
void openai_times_add(openai_times *times, double at);

/* Write llama-server's member "timings": tokens of the request so far, and the milliseconds that they took. */
void openai_write_timings(openai_writer *w, const openai_result *result);

/* Write the members that all answers and chunks begin with: "id", "object", "created" and "model". */
void openai_write_head(openai_writer *w, const openai_result *result, const char *object);

/* Write the whole answer of a request that is not streamed, as the value of `key` (NULL: no key). */
void openai_write_answer(openai_writer *w, const char *key, const openai_result *result);

/*
 * Write the members "reasoning_content", also as "reasoning", and "tool_calls" of the message of a choice that has them.
 */
void openai_write_split(openai_writer *w, const openai_choice *choice);

/* Write a call's arguments as an object, which is empty if they were cut off, as the value of `key`. */
void openai_write_arguments(openai_writer *w, const char *key, cl_str arguments);

/* Write the vector of prompt i, which has the length 1 unless the request is for raw ones, as the value of `key`. */
void openai_write_embedding(openai_writer *w, const char *key, const openai_result *result, size_t i);

/* By how many chunks a stream reports an event that was just added to the result: one for each delta, if it reports it. */
size_t openai_n_chunks(const openai_result *result, const cl_engine_event *event);
/* Write the answer of a request for embeddings. Each was cut to the requested dimensions before it got the length 1. */
void openai_write_embeddings(openai_writer *w, const char *key, const openai_result *result);

/*
 * Write chunk k of those for an event of prompt i that was just added to the result. A choice's first chunk also carries the
 * role (chat) or the echoed prompt (completions).
 */
void openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event, size_t k);

/* Write the chunk with the usage that ends a stream with include_usage. */
void openai_write_usage_chunk(openai_writer *w, const openai_result *result);

/*
 * ---- Tokens (tokens.c) ----
 *
 * Requests that are answered without the engine. Functions that return bool write the whole answer, or return false with *error
 * filled; then the caller drops the text written so far, if any.
 */

/*
 * Tokenize a body: `prompt` or `messages` in vLLM's form, or `content` in llama-server's.
 */
bool openai_tokenize(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/* Write the text of `tokens`, as both `prompt` and `content`. */
bool openai_detokenize(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/*
 * Read a request and write the engine's input for it, as vLLM does: an object with token ids and sampling parameters, and for
 * completions an array with one for each prompt.
 */
bool openai_render_chat(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);
bool openai_render_completion(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/* The bytes of the text of tokens [n], with the names of special ones. */
size_t openai_text_size(const cl_tokenizer *tok, const int32_t *ids, size_t n);

/* That text: [*size] bytes and a zero, allocated; NULL if memory is lacking. */
char *openai_text_of(const cl_tokenizer *tok, const int32_t *ids, size_t n, size_t *size);

/* Write the members "bos_token", "eos_token" and "chat_template". */
void openai_write_template(openai_writer *w, const openai_context *context);

/* Write the facts that clients need in order to tokenize, under the names of Hugging Face's tokenizer_config.json. */
void openai_write_tokenizer_info(openai_writer *w, const openai_context *context);

#endif
