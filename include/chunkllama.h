/*
 * libchunkllama: a language model and an engine that generates text for many requests at once.
 *
 * A model is loaded from a GGUF file, or from a folder of safetensors as Hugging Face publishes them. An engine runs it for all
 * requests that are submitted, in steps that mix decoding with prefill; requests join and leave between any two steps. Their
 * K/V live in a libchunkattn cache: prompts that begin alike share the storage of what they have in common, which is computed
 * once and read once in each step.
 *
 * Exact: the tokens and logprobs of a request depend on nothing but the model and the request; not on the other requests, the
 * engine's limits, its sharing mode or its threads (same machine, same build, same kernel level).
 *
 * Threads: an engine has a thread of its own, on which it reports events, and a pool of workers. Each group of functions has a
 * line "Threads": any (at any time, also while other calls on the same object run) or owner (calls on one object must not
 * overlap). No other call on a model or an engine may run or follow when it is freed. The threads block all signals, and are
 * named cl-engine, cl-grammar, cl-watchdog and cattn-worker.
 *
 * fork(2): a child has a copy of each engine, and none of its threads. It may destroy the copy, which reports no events and
 * frees the memory of the K/V cache if no step ran at the fork; all other calls on it are refused with CL_ERR_UNSUPPORTED, or
 * ignored where they return nothing. Models work as before, and the child may create engines of its own. But no child may use a
 * model that was forked while another thread created an engine of the model with a grammar_library: it has no weights.
 *
 * Platforms and the environment variable CATTN_LEVEL are those of chunkattn.h. The library neither prints nor exits.
 *
 * docs/chunkllama.md is a guide.
 */
#ifndef CHUNKLLAMA_H
#define CHUNKLLAMA_H

#include <chunkattn_inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CL_VERSION_MAJOR 0
#define CL_VERSION_MINOR 1
#define CL_VERSION_PATCH 0

/* A program that parses this header for a binding may define it to nothing. */
#ifndef CL_API
#define CL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status, errors ------------------------------------------------------------------------------------- */

/* Threads: any. */

/* Version of the running library as "major.minor.patch"; static storage. Compare with CL_VERSION_* of this header. */
CL_API const char *cl_version(void);

/* Zero is success, everything else negative. */
typedef enum cl_status {
    CL_OK = 0,
    CL_ERR_ARG = -1,         /* an argument is out of range, missing or contradictory */
    CL_ERR_FILE = -2,        /* a file cannot be opened, read or written */
    CL_ERR_FORMAT = -3,      /* a file or a text is malformed */
    CL_ERR_UNSUPPORTED = -4, /* valid, but this version, build or CPU does not offer it */
    CL_ERR_NOMEM = -5,       /* the operating system provided no memory or no thread */
    CL_ERR_LIMIT = -6,       /* larger than the context, the K/V budget or another configured limit */
    CL_ERR_TIMEOUT = -7,     /* not done within the time that was set for it */
    CL_ERR_BUSY = -8,        /* too much is waiting already; it may succeed later */
} cl_status;

/* A constant name such as "CL_ERR_LIMIT"; "unknown status" for other values. */
CL_API const char *cl_status_name(cl_status status);

/*
 * The description of a failure. Every function that takes a cl_error accepts NULL; on success it is left untouched. A failed
 * call leaves everything as it was unless its comment says otherwise.
 */
typedef struct cl_error {
    cl_status code;
    char message[512]; /* names the argument, the limit and the fix; printable, always terminated */
    /*
     * The member at fault of the struct that was passed, such as "stop[3]" or "sampling.top_p"; "": none is named. The message
     * begins with it and a blank. So a program whose users know the member by another name writes that name and
     * message + strlen(field).
     */
    char field[48];
} cl_error;

/*
 * Structs that begin with `size_t struct_size` may get further fields, at their end. The caller says which fields it knows by
 * setting struct_size to the sizeof that it was compiled with, which the init functions do. So both directions work:
 *   - An older program runs with a newer library: fields that it does not know have their defaults, and are not written.
 *   - A newer program runs with an older library as long as it leaves the further fields zero. One that is set is refused with
 *     CL_ERR_UNSUPPORTED; where the library fills the struct, they become zero.
 * A struct_size that is too small to be true is CL_ERR_ARG. All other structs keep their fields as they are.
 */

/* ---- Tokens ------------------------------------------------------------------------------------------------------- */

/* Threads: owner. */

/*
 * A growing list of token ids, to which functions append. Zero-initialise it, free it with cl_token_list_free. n may be lowered
 * to shorten the list.
 */
typedef struct cl_token_list {
    int32_t *ids; /* [n], owned by the list */
    size_t n;
    size_t capacity;
} cl_token_list;

/* Free the ids and zero the list, which may be used again. NULL is ignored. */
CL_API void cl_token_list_free(cl_token_list *list);

/* ---- Model --------------------------------------------------------------------------------------------------------- */

/* Threads: any. */

/* A loaded model: weights, tokenizer and chat format. Immutable, so any number of engines and threads may use it at once. */
typedef struct cl_model cl_model;

/* Fill with cl_model_options_init. */
typedef struct cl_model_options {
    size_t struct_size; /* set by cl_model_options_init */
    int32_t n_threads;  /* workers that repack the weights while loading; 0 (default): one for each CPU of this process */
    /*
     * 1: read the files once more and hash them, which an engine with kv_tier_dir requires; 0 (default): do not. The hash says
     * to which model the K/V in a file belong.
     */
    int32_t fingerprint;
    /*
     * The highest kernel level of the linear layers, one of cattn_level_name(); NULL (default): the CPU's best. The environment
     * variable CATTN_LEVEL lowers it further.
     */
    const char *level;
    /*
     * Where engines run the model: "cpu" or NULL (default); "cuda", the first CUDA device, or "cuda:N". The weights are then in
     * the device's memory, and so are K and V of the engine, of whose memory kv_budget_bytes is. EXPERIMENTAL: tested in an
     * emulation of the device.
     */
    const char *device;
} cl_model_options;

CL_API void cl_model_options_init(cl_model_options *options);

/*
 * Load a model. path: a GGUF file (version 2 or 3), or a folder with config.json, tokenizer.json and *.safetensors. Files are
 * read during the call only; afterwards they may be changed, truncated or removed. path and options are borrowed for the call;
 * options may be NULL.
 *
 * Errors: CL_ERR_FILE, also if a file is changed during the call; CL_ERR_FORMAT and CL_ERR_UNSUPPORTED name the key, tensor or
 * field of the file; CL_ERR_ARG, also for an unknown level or device; CL_ERR_UNSUPPORTED also for a level that this CPU lacks,
 * and for what a device cannot run, which is named before the weights are read;
 * CL_ERR_NOMEM. *model is NULL then.
 */
CL_API cl_status cl_model_load(const char *path, const cl_model_options *options, cl_model **model, cl_error *error);

/* Free the model and set *model to NULL. No engine may use it any more. NULL and pointers to NULL are ignored. */
CL_API void cl_model_free(cl_model **model);

/* Token ids are 0 to n_vocab - 1. 0 for NULL. */
CL_API int32_t cl_model_n_vocab(const cl_model *model);

/* Tokens of the context that the model was trained for; 0: its file does not say, or model is NULL. */
CL_API int32_t cl_model_n_ctx(const cl_model *model);

/* The token that begins a sequence, and the one that ends it; -1: the model has none, or model is NULL. */
CL_API int32_t cl_model_bos(const cl_model *model);
CL_API int32_t cl_model_eos(const cl_model *model);

/* Whether generation stops at this token: an end of sequence, turn or message. False for other ids, and for NULL. */
CL_API bool cl_model_is_end(const cl_model *model, int32_t token);

/* Flags of cl_model_tokenize, to be or-ed. */
enum {
    /*
     * The text begins a prompt: first come the tokens that the model wants there, such as BOS, and the space that some
     * tokenizers put before a text.
     */
    CL_TOKENIZE_BEGIN = 1,
    /* The names of special tokens in the text, such as "<|im_end|>", stand for these tokens. Not for text of others. */
    CL_TOKENIZE_SPECIAL = 2,
    /* An embedding is made of the text: last come the tokens that the model wants there, such as EOS. */
    CL_TOKENIZE_END = 4,
};

/*
 * Append the tokens of a text to *tokens. text: [size] bytes, UTF-8, not terminated, borrowed for the call only; NULL if size
 * is 0. Bytes that are not UTF-8 are encoded as bytes where the vocabulary has tokens for them.
 *
 * Errors: CL_ERR_ARG also for unknown flags; CL_ERR_NOMEM. *tokens keeps what it held, and nothing more.
 */
CL_API cl_status cl_model_tokenize(const cl_model *model, const char *text, size_t size, unsigned flags, cl_token_list *tokens,
                                   cl_error *error);

/*
 * The text of tokens: [n_tokens] ids to bytes, of which at most `capacity` are written to text; it is not terminated. *size is
 * the number of bytes of the whole text, also if capacity is smaller, so a first call with capacity 0 (text may be NULL)
 * measures it. special: include the names of special tokens, which otherwise have no text. A space that CL_TOKENIZE_BEGIN put
 * before a text is a part of it. A token may be a part of a UTF-8 character, so a text that is put together from pieces is
 * UTF-8 only as a whole.
 *
 * Errors: CL_ERR_ARG names a token id that is out of range.
 */
CL_API cl_status cl_model_detokenize(const cl_model *model, const int32_t *tokens, size_t n_tokens, bool special, char *text,
                                     size_t capacity, size_t *size, cl_error *error);

/* A message of a conversation. All pointers are borrowed for the call that they are passed to. */
typedef struct cl_chat_message {
    const char *role;    /* "system", "user" or "assistant", or another one that the model's template knows */
    const char *content; /* [content_size] UTF-8, not terminated */
    size_t content_size;
} cl_chat_message;

/*
 * How the model's chats are written: "template", by the Jinja template in its file; static storage. NULL: the file has no chat
 * template, or one that cannot be used.
 */
CL_API const char *cl_model_chat_format(const cl_model *model);

/*
 * Append the tokens of the prompt that a conversation makes, up to where the assistant's answer begins, to *tokens, which
 * usually is empty. messages: [n_messages >= 1]. format: NULL or "template" for the template in the model's file, or the name
 * of a built-in one: "chatml", "llama2", "llama3", "zephyr", "mistral" or "gemma". Special tokens come from the template only,
 * never from the text of a message. A template may write the current date (local time).
 *
 * Errors: CL_ERR_ARG with the template's message where it refuses the conversation, or an unknown format; the built-in ones
 * name the message whose role is unknown or out of turn (llama2, mistral and gemma take user and assistant alternately;
 * messages of the system may stand anywhere, and are merged with others). CL_ERR_UNSUPPORTED where format is NULL and the model
 * has no template that can be used; CL_ERR_NOMEM. *tokens keeps what it held, and nothing more.
 */
CL_API cl_status cl_model_format_chat(const cl_model *model, const char *format, const cl_chat_message *messages,
                                      size_t n_messages, cl_token_list *tokens, cl_error *error);

/* ---- Sampling ------------------------------------------------------------------------------------------------------ */

/* Threads: any. */

/*
 * How a token is drawn from the logits, in this order: penalties, temperature, min_p, top_k, top_p. A draw is a function of the
 * seed, the choice, the token's position and the logits. The init function fills in the defaults, with which tokens are drawn
 * from the model's own distribution.
 */
typedef struct cl_sampler_params {
    float temperature;        /* >= 0; 0: always the likeliest token (greedy); default 1 */
    int32_t top_k;            /* >= 0; draw from this many likeliest tokens; 0 (default): from all */
    float top_p;              /* 0 to 1; from the fewest likeliest tokens with this probability together; 1 (default): all */
    float min_p;              /* 0 to 1; from tokens with this probability relative to the likeliest; 0 (default): all */
    float repetition_penalty; /* > 0; divides positive logits of tokens in prompt or completion, multiplies others; default 1 */
    float presence_penalty;   /* subtracted once from the logits of tokens in the completion; default 0 */
    float frequency_penalty;  /* subtracted for each occurrence in the completion; default 0 */
    uint64_t seed;            /* default 0 */
} cl_sampler_params;

CL_API void cl_sampler_params_init(cl_sampler_params *params);

/* The parts of a draw whose order may be chosen. */
typedef enum cl_sampler_step {
    CL_SAMPLER_TEMPERATURE,
    CL_SAMPLER_MIN_P,
    CL_SAMPLER_TOP_K,
    CL_SAMPLER_TOP_P,
} cl_sampler_step;

enum { CL_SAMPLER_MAX_STEPS = 4 };

/*
 * How the distribution is cut before a draw. Zero-initialised: in the order of the enumeration, and to one token if need be. A
 * step that is not listed is left out.
 */
typedef struct cl_sampler_cuts {
    int32_t min_keep; /* min_p and top_p leave at least so many of the likeliest tokens; default 0, which is as 1 */
    int32_t n_steps;  /* 0 (default): all, in the order of cl_sampler_step */
    cl_sampler_step steps[CL_SAMPLER_MAX_STEPS]; /* [n_steps] each at most once */
} cl_sampler_cuts;

/*
 * Set those members of *params that the model's authors recommend, by generation_config.json of a folder or the keys
 * general.sampling.* of a GGUF file, and *penalty_window as in cl_engine_request. All others stay as they are. Returns whether
 * there is a recommendation. Threads: any.
 */
CL_API bool cl_model_recommended_sampling(const cl_model *model, cl_sampler_params *params, int32_t *penalty_window);

/* A number that is added to the logit of a token before penalties. */
typedef struct cl_logit_bias {
    int32_t token;
    float bias; /* finite, or -INFINITY: the token is not drawn */
} cl_logit_bias;

/* A token and the natural logarithm of its probability in the model's own distribution, before any sampling parameter. */
typedef struct cl_sampler_logprob {
    int32_t id; /* -1: no token */
    float logprob;
} cl_sampler_logprob;

/* ---- Engine --------------------------------------------------------------------------------------------------------- */

/* Threads: any. */
typedef struct cl_engine cl_engine;

/*
 * The part of the engine that the requests of a domain get, in relation to others, while all have requests, and of the K/V that
 * are retained (cattn_join_options.account).
 */
typedef struct cl_engine_weight {
    uint32_t domain;
    float weight; /* 0.001 to 1000; that of other domains is 1 */
} cl_engine_weight;

/* Fill with cl_engine_config_init, then change the fields that you need. */
typedef struct cl_engine_config {
    size_t struct_size; /* set by cl_engine_config_init */

    /* The K/V cache: as in cattn_config. */
    cattn_sharing sharing;     /* default CATTN_SHARED */
    cattn_retention retention; /* default CATTN_RETAIN_LEARNED */
    cattn_type kv_type;        /* default CATTN_BF16 */
    int32_t chunk_size;        /* tokens of a chunk: 16, 32, 64 (default), 128 or 256 */
    uint64_t kv_budget_bytes;  /* for K/V, the cache's metadata and the workspace of attention; default 1 GiB */

    /* Limits. */
    int32_t n_ctx;           /* tokens of the longest prompt with its completion; 0 (default): cl_model_n_ctx(). The engine's
                              * context (cl_engine_n_ctx) is less where kv_budget_bytes holds less. */
    int32_t max_seqs;        /* sequences that run at once: choices of all running requests; default 32 */
    int32_t max_step_rows;   /* tokens that a step computes at most, over all sequences; max_seqs to 2^20; default 512 */
    int32_t prefill_segment; /* tokens of one prompt that a step computes at most; 0 (default): no limit but max_step_rows */

    /*
     * Speculative decoding: a step verifies several drafted tokens of a sequence where that is worth its cost. It never changes
     * the events.
     */
    bool speculate; /* default false */
    /*
     * The model that drafts, if `speculate` is set; NULL (default): drafts are the tokens that followed the same tokens
     * earlier, in the request or in others of its domain. It must have the vocabulary of the engine's model, and is borrowed
     * until cl_engine_destroy. It gets a K/V cache of its own, beside kv_budget_bytes, for as many tokens.
     */
    const cl_model *draft_model;
    /* The cost of one more row in a step, relative to a step without rows; >= 0; default 0.15. */
    float row_cost;

    /* Threads and kernels. */
    int32_t n_threads; /* workers, of which the engine's thread is one; 0 (default): one for each CPU of this process */
    bool pin_threads;  /* bind each further worker to a CPU of its own; default false */
    const char *level; /* highest kernel level of attention, one of cattn_level_name(); NULL (default): the CPU's best */

    const cl_engine_weight *weights; /* [n_weights] of different domains; copied by cl_engine_create; default none */
    int32_t n_weights;
    /*
     * Requests that may wait beyond those that find a place at once, and tokens of their prompts; 0 (default): no limit. A
     * domain of which no request runs or waits may always queue one.
     */
    int64_t max_queued_requests;
    int64_t max_queued_tokens;
    /*
     * Seconds that a step should take at most while choices decode, which is their time between tokens: rows of prompts are
     * limited for it, but may always take a quarter of the time that decoding takes alone; < 0: each prompt may add twice what
     * decoding takes alone, where those of other domains count as one for a choice that decodes; 0 (default): no target.
     */
    double target_itl_s;
    /*
     * Bytes of kv_budget_bytes for the chunks of pinned prompts, at most half of it. Requests cannot use them for anything
     * else: one that needs more than what is left is refused when it is submitted. 0 (default): no prompt can be pinned.
     */
    uint64_t pin_bytes;
    /*
     * The file tier: K/V stay in a file in this folder when they are evicted and when the process ends, up to kv_tier_bytes,
     * and later requests read them instead of computing them. The model must have been loaded with its fingerprint. The file
     * belongs to this model, build and CPU, and to the options on which K/V depend; one engine at a time uses it. Tenants must
     * have the same domains in all processes that use the folder. NULL (default): none. Copied.
     */
    const char *kv_tier_dir;
    uint64_t kv_tier_bytes; /* required with kv_tier_dir; otherwise 0 (default) */
    /*
     * The shared object of llguidance (1.9), which requests with a grammar need: a path, or a name without "/" that the
     * system's search for libraries finds. It may be the file that its Python package contains, which also needs libpython3;
     * Python is not started. NULL (default): requests with a grammar are refused. Borrowed for the call. A program that is
     * linked statically cannot load it: CL_ERR_UNSUPPORTED.
     */
    const char *grammar_library;
    /*
     * With grammar_library, cl_engine_create forks a process, the starter. It loads the library, and forks a process for each
     * different grammar of a domain, in which that grammar is compiled and followed: a grammar that needs too much time or
     * memory, or brings llguidance down, ends this process and the requests with this grammar, and nothing else. There are up
     * to 128, of which the requests of a domain may use as many as they leave free; beyond that they are refused with
     * CL_ERR_BUSY. The processes have the memory of the calling process as it is then, without the weights; they close its
     * files, ignore the signals of terminals and service managers, can open nothing and connect to nothing, and end with the
     * engine or with the calling process. The starter is a child of that process: a program that waits for any child also gets
     * its end. true: no process is forked, and the library works in the calling process, where only most of what it does is
     * limited. Tokens are the same either way. Default false.
     */
    bool grammars_in_process;
} cl_engine_config;

CL_API void cl_engine_config_init(cl_engine_config *config);

/*
 * Start an engine. *config is borrowed for the call only; NULL: the defaults. The model is borrowed until cl_engine_destroy.
 *
 * Errors: CL_ERR_ARG names the field, also for an unknown level, a draft model of another vocabulary, and more pinned threads
 * than CPUs; CL_ERR_UNSUPPORTED for a level that this CPU lacks, for kv_tier_dir in a program without a GNU build id, and for a
 * grammar_library that lacks functions or in a program that is linked statically; CL_ERR_FILE if that cannot be loaded;
 * CL_ERR_LIMIT if the K/V budget does not hold the least that a cache or a request needs; CL_ERR_NOMEM. *engine is NULL then.
 */
CL_API cl_status cl_engine_create(const cl_model *model, const cl_engine_config *config, cl_engine **engine, cl_error *error);

/*
 * Cancel all requests, stop the threads, free everything and set *engine to NULL. The last events of the cancelled requests are
 * reported before it returns. No other call on the engine may run or follow. From on_event, or whatever else runs on the
 * engine's thread, it does nothing and leaves *engine as it is. NULL and pointers to NULL are ignored.
 */
CL_API void cl_engine_destroy(cl_engine **engine);

/*
 * Lower the K/V budget before the next step, or raise it again up to the configured one, for instance while the system lacks
 * memory. Memory that exceeds it returns to the system at once, retained tokens first. Running choices that find no chunks
 * leave the cache and continue later; one that is alone still gets what the configured budget allows, so no request fails
 * because of it. The draft model's cache follows in proportion; where it lacks memory, nothing is drafted. Returns at once.
 * Errors: CL_ERR_ARG for NULL and for more than kv_budget_bytes.
 */
CL_API cl_status cl_engine_set_kv_budget(cl_engine *engine, uint64_t budget_bytes, cl_error *error);

/* Tokens of the longest prompt with its completion: those of the configuration, or what kv_budget_bytes holds. 0 for NULL. */
CL_API int64_t cl_engine_n_ctx(const cl_engine *engine);

/* ---- Requests and events -------------------------------------------------------------------------------------------- */

/* Threads: any. */

/* Why a choice has ended. */
typedef enum cl_engine_finish {
    CL_ENGINE_RUNNING = 0,
    CL_ENGINE_STOP,   /* an end token, a stop token, a stop string, or the end of the grammar */
    CL_ENGINE_LENGTH, /* max_tokens, or the end of the context */
    CL_ENGINE_CANCELLED,
    CL_ENGINE_ERROR,
} cl_engine_finish;

/* What an event reports. */
typedef enum cl_event_kind {
    CL_EVENT_PROMPT = 0, /* a token of the prompt, with prompt_logprobs */
    CL_EVENT_TOKEN,      /* a token of a choice */
    CL_EVENT_END,        /* a choice has ended */
} cl_event_kind;

typedef struct cl_event_token {
    int32_t id;                    /* end tokens and stop tokens are reported too, but have no text without include_stop */
    int32_t rank;                  /* of a prompt's token with a logprob: 1 for the likeliest one; otherwise 0 */
    int64_t position;              /* in prompt and completion */
    cl_sampler_logprob chosen;     /* of the token, with logprobs; otherwise, and at position 0, its id is -1 */
    const cl_sampler_logprob *top; /* [n_top] the likeliest tokens, likeliest first, equal ones by id; or those of top_tokens */
    int32_t n_top;                 /* 0 if chosen.id is -1 */
} cl_event_token;

typedef struct cl_event_end {
    cl_engine_finish finish; /* not CL_ENGINE_RUNNING */
    int32_t stop; /* with CL_ENGINE_STOP: the index in the request's `stop` of the string that ended the choice; otherwise -1 */
    const cl_error *error;  /* with CL_ENGINE_ERROR: why; otherwise NULL */
    const float *embedding; /* [n_embedding] with `pooling`, in the last event of a request that has not failed */
    int32_t n_embedding;    /* 0: none */
} cl_event_end;

/*
 * An event that the engine reports about a request. Of each choice: one CL_EVENT_TOKEN for each token, in order, then a
 * CL_EVENT_END, with the text that was still held back. Events of different choices interleave. With prompt_logprobs, one
 * CL_EVENT_PROMPT for each position of the prompt, from prompt_logprobs_from on, comes before all of these, in order, once for
 * the whole request, with choice 0. The event with `last` set is the request's last one.
 *
 * The library fills it. All its pointers but ctx are valid until on_event returns, or until the next cl_engine_poll.
 */
typedef struct cl_engine_event {
    size_t struct_size; /* the library's: an older library does not have the fields beyond it */
    uint64_t request;   /* the id from cl_engine_submit; the first event may come before cl_engine_submit returns */
    int32_t choice;     /* 0 to n - 1 */
    cl_event_kind kind;
    union {
        cl_event_token token; /* of CL_EVENT_PROMPT and CL_EVENT_TOKEN */
        cl_event_end end;     /* of CL_EVENT_END */
    };
    bool last; /* the request has ended, and no event of it will follow */
    /*
     * [text_size] bytes, not terminated, never NULL: the text that may be shown now, of this token or earlier ones; none of the
     * prompt. Whole UTF-8 characters, and nothing that may be the beginning of a stop string.
     */
    const char *text;
    size_t text_size;
    int64_t n_prompt; /* tokens of the prompt */
    int64_t n_cached; /* leading tokens of the prompt that others computed, found in the cache when it was admitted; 0 before */
    int64_t n_completion; /* tokens of all choices so far, end tokens and stop tokens included */
    int64_t n_pinned;     /* tokens of the prompt that the request has pinned, with `pin` or `pin_tokens` */
    double queued_s;      /* seconds from cl_engine_submit until the first choice was admitted, or until now if none was */
    /*
     * The largest number of other requests that were in the cache together with this one, may share with it, and have prompts
     * that begin with the same chunk_size tokens, or are the same where they are shorter.
     */
    int32_t n_sharing;
    void *ctx; /* of the request */
} cl_engine_event;

/* What a choice's next token is drawn from. The library fills it, and all of it is valid until on_logits returns. */
typedef struct cl_logits {
    size_t struct_size; /* the library's: an older library does not have the fields beyond it */
    uint64_t request;   /* the id from cl_engine_submit; on_logits may run before cl_engine_submit returns */
    int32_t choice;     /* 0 to n - 1 */
    int32_t n_vocab;
    /*
     * [n_vocab] the model's, which on_logits may change. NaN counts as -INFINITY, which excludes a token. +INFINITY forces one,
     * the first if there are several, unless rules or the grammar exclude it.
     */
    float *logits;
    const int32_t *tokens; /* [n_tokens] prompt and completion so far */
    int64_t n_tokens;      /* which is the position of the token that is drawn */
    int64_t n_prompt;      /* of these tokens, those of the prompt */
} cl_logits;

/* How the final states of a prompt's tokens, which logits would be computed from, become one vector. */
typedef enum cl_engine_pooling {
    CL_ENGINE_POOL_NONE = 0, /* no vector */
    CL_ENGINE_POOL_LAST,     /* the state of the last token */
    /*
     * The mean of the states of all tokens. The whole prompt is computed then, whatever the cache holds, because the cache
     * stores K/V and not states: n_cached is 0.
     */
    CL_ENGINE_POOL_MEAN,
} cl_engine_pooling;

enum { CL_ENGINE_MAX_TOP = 32 };       /* most tokens that can be requested with each logprob */
enum { CL_ENGINE_MAX_CHOICES = 4096 }; /* most choices of a request */
enum { CL_ENGINE_MAX_PRIORITY = 1000000 };
enum { CL_ENGINE_MAX_SALT = 1024 };       /* most bytes of a salt */
enum { CL_ENGINE_MAX_GRAMMAR = 1 << 18 }; /* most bytes of a grammar; of kinds other than JSON schemas less */
enum { CL_ENGINE_MAX_MARK = 63 };         /* most bytes of a mark of reasoning */

/* The languages of grammars, as llguidance defines them. */
typedef enum cl_grammar_kind {
    CL_GRAMMAR_NONE = 0,
    CL_GRAMMAR_JSON_SCHEMA, /* a JSON schema; the completion is a value that it describes */
    CL_GRAMMAR_REGEX,       /* a regular expression, which the whole completion matches */
    CL_GRAMMAR_LARK,        /* a context-free grammar in Lark's notation, from its rule "start" */
} cl_grammar_kind;

/* Fill with cl_engine_request_init, set prompt, n_prompt, and on_event unless you poll, and change other fields as needed. */
typedef struct cl_engine_request {
    size_t struct_size;    /* set by cl_engine_request_init */
    const int32_t *prompt; /* [n_prompt], required */
    int64_t n_prompt;      /* >= 1 */
    /* Tokens of each choice; 0: only compute the prompt; < 0 (default): as many as the context and the K/V budget hold. */
    int64_t max_tokens;
    int32_t n;                  /* choices: completions of the prompt, each with its own draws; 1 (default) to 4096 */
    cl_sampler_params sampling; /* default: cl_sampler_params_init */
    /*
     * Stop strings, terminated, not empty. A choice ends before the first one that its text contains; the default is none.
     */
    const char *const *stop;    /* [n_stop] */
    const int32_t *stop_tokens; /* [n_stop_tokens] further tokens that end a choice; default none */
    int32_t n_stop;
    int32_t n_stop_tokens;
    bool ignore_eos; /* the model's end tokens do not end a choice; default false */
    bool logprobs;   /* report the logprob of each token, and n_top others; default false */
    /*
     * Report them for the tokens of the prompt too, each given those before it; default false. The prompt is computed then,
     * whatever the cache holds, because the cache stores K/V and not logits: all of it, or what prompt_logprobs_from says.
     */
    bool prompt_logprobs;
    int32_t n_top;   /* 0 (default) to CL_ENGINE_MAX_TOP */
    uint32_t domain; /* only requests of one domain share K/V; default 0; less than 2^31 */
    /*
     * Called for each event. It runs on the engine's thread and holds up all requests, so it must not block. It may call
     * everything but cl_engine_destroy. NULL (default): the events wait for cl_engine_poll.
     */
    void (*on_event)(void *ctx, const cl_engine_event *event);
    void *ctx; /* passed to on_event and on_logits, and in events; default NULL */
    /*
     * -1000000 to 1000000; of one domain's requests those of smaller priority come first. A unit is worth 10 seconds of
     * waiting, so that nobody waits for ever; default 0. What requests with a priority above 0 leave in the cache is evicted
     * sooner than what others of the domain leave: it counts an eighth.
     */
    int32_t priority;
    /* Seconds from cl_engine_submit after which the request ends with CL_ERR_TIMEOUT, if it has not yet; 0 (default): none. */
    double timeout_s;
    /*
     * Pin the prompt: it stays in the cache after the request has ended, until cl_engine_unpin. Needs pin_bytes, a prompt of at
     * least 2 tokens, max_tokens 0 and no prompt_logprobs. The last token of an odd number is not pinned. The request ends with
     * CL_ERR_LIMIT if the pins would exceed pin_bytes, in which chunks of two pins count twice. Default false.
     */
    bool pin;
    /*
     * Beam search: the n choices are the completions of the highest score that are found by continuing the n best beginnings
     * token by token, best first; default false. The score is the sum of the logprobs, in the model's own distribution, divided
     * by (tokens of prompt and completion, without an end token) ^ length_penalty, as in vLLM. The other sampling parameters do
     * not count. All choices are reported at the end, however they are computed. There must be no stop string, no penalty and
     * no rule on which tokens may be drawn, and the limits on sequences and the K/V budget must hold all n at once.
     */
    bool beam_search;
    /*
     * End the search once n completions are found; default false: continue until no other can be better than these. Both end
     * with max_tokens.
     */
    bool early_stopping;
    float length_penalty; /* -10 to 10; default 1 */

    /*
     * Which tokens may be drawn, as in vLLM and in its order: these rules come before penalties and temperature. Logprobs are
     * of the model's own distribution all the same. Where bad words and min_tokens leave no token, they do not apply to that
     * draw. Where biases exclude every token, the choice ends with CL_ERR_ARG, unless allowed_tokens or a grammar name some.
     */
    const cl_logit_bias *logit_bias; /* [n_logit_bias] those of one token are added; default none */
    int32_t n_logit_bias;
    int32_t n_allowed_tokens;
    const int32_t *allowed_tokens; /* [n_allowed_tokens] no others are drawn; 0 (default): all are allowed */
    /*
     * Sequences of tokens, one after the other, and their lengths, >= 1: a completion contains none of them, because the last
     * token of one is not drawn where the completion ends with those before it. Default none.
     */
    const int32_t *bad_words;
    const int32_t *bad_word_sizes; /* [n_bad_words] */
    int32_t n_bad_words;
    int32_t n_shown_tokens;
    /* Tokens of each choice before which none that ends it is drawn, and no stop string counts; 0 (default). */
    int64_t min_tokens;

    /* The text that is reported. */
    const int32_t *shown_tokens; /* [n_shown_tokens] special tokens that have text; default none */
    bool show_special;           /* all special tokens have text; default false */
    bool include_stop;           /* the stop string, or the text of the stop token, ends a choice's text; default false */

    /*
     * Bytes, 1 to CL_ENGINE_MAX_SALT, that separate requests of one domain from each other: only those with equal salts share
     * K/V and drafts. Their K/V are not kept in the file tier. Default none, which is a salt, too: such requests share with
     * each other.
     */
    const char *salt;
    size_t salt_size; /* 0: none */

    /*
     * A grammar that the text of each choice must match: a token that the grammar forbids is not drawn, and where only one text
     * is possible, its tokens follow without a draw. They are reported like others. End tokens are drawn only where the grammar
     * may end; a choice also ends, with CL_ENGINE_STOP, when nothing can follow. With ignore_eos no end token is drawn as long
     * as anything else may follow. max_tokens, stop strings and stop_tokens may end a choice before the grammar does. Logprobs
     * stay those of the model's own distribution. Needs grammar_library, and no beam_search.
     */
    cl_grammar_kind grammar_kind; /* default CL_GRAMMAR_NONE */
    const char *grammar;          /* [grammar_size] UTF-8, not terminated; default NULL */
    size_t grammar_size;          /* 1 to CL_ENGINE_MAX_GRAMMAR; default 0 */

    /*
     * Report an embedding of the prompt, as it is pooled and not normalised, with the last event. Needs max_tokens 0, one
     * choice, and neither pin, prompt_logprobs nor beam_search. Default CL_ENGINE_POOL_NONE.
     */
    cl_engine_pooling pooling;

    /*
     * Pin this many of the prompt's first tokens as soon as the prompt is computed, if pin_bytes holds them. Otherwise,
     * and where the prompt is not shared (prompt_logprobs, the mean of states), nothing is pinned, and the request continues
     * all the same; n_pinned of its events says so. The pin stays until cl_engine_unpin, but at least until the request has
     * ended. 2 to n_prompt; the last one of an odd number is not pinned. Not with `pin`. 0 (default): none.
     *
     * pin_instead_of: the id of a request that has ended, and whose pin ends if this one begins, so that it needs bytes only
     * for its further tokens. This holds if the other one's pinned tokens are the first of these, of the same domain and salt;
     * otherwise, and for unknown ids, it is ignored. 0 (default): none.
     */
    int64_t pin_tokens;
    uint64_t pin_instead_of;

    /*
     * Seconds from cl_engine_submit that the request may wait: if none of its choices has been admitted by then, it ends with
     * CL_ERR_BUSY. One that was admitted and left the cache again does not count as waiting. 0 (default): no limit.
     */
    double queue_timeout_s;

    /*
     * The id of an earlier request of the domain that this one is a part of: both were submitted for the same client at once,
     * and take turns with other requests as one. 0 (default): none.
     */
    uint64_t part_of;

    /* How the distribution is cut; all zero by default. */
    cl_sampler_cuts cuts;
    /*
     * How many tokens the three penalties count: the last ones of prompt and completion together, as in llama.cpp; 0: none.
     * < 0 (default): the repetition penalty counts all tokens of both, the other two those of the completion.
     */
    int32_t penalty_window;
    /*
     * A choice ends with CL_ENGINE_LENGTH before the first character of a line, other than the first line, that has fewer
     * blanks and tabs before it; 0 (default): none does.
     */
    int32_t min_indent;
    /*
     * Seconds from a choice's first token after which it ends with CL_ENGINE_LENGTH, as soon as its text has a line break; 0
     * (default): no limit. What is drawn does not depend on it.
     */
    double generation_s;

    /*
     * A budget for reasoning, which is the text between two marks. Once a choice has this number of tokens of reasoning, the
     * tokens that end it follow without a draw, unless a grammar forbids them there; they are reported like others. They wait
     * until a character, or an end mark that has begun, is complete, but for CL_ENGINE_MAX_MARK tokens at most. Not with
     * beam_search. < 0 (default): no limit.
     */
    int64_t max_reasoning_tokens;
    const char *reasoning_begin, *reasoning_end; /* the marks, terminated, of 1 to CL_ENGINE_MAX_MARK bytes */
    const int32_t *reasoning_end_tokens;         /* [n_reasoning_end_tokens] whose text ends with the second mark */
    int32_t n_reasoning_end_tokens;              /* at least 1 */
    bool in_reasoning;                           /* the completion begins within reasoning; default false */

    /*
     * Called before each token of a choice is drawn, to read or change the logits; default NULL. What follows is as without it:
     * rules, penalties, sampling, and the grammar, which may forbid the token all the same. Logprobs stay those of the model's
     * own distribution. It is called once for each token that is drawn, in the order of a choice's tokens, and not for tokens
     * that a grammar forces. If on_logits excludes every token, the choice ends with CL_ERR_ARG. Not with beam_search.
     *
     * It runs on the engine's workers, for several choices at once, also of one request; calls for one choice never overlap.
     * All requests wait while it runs. It must not call the engine, and what it does should depend on its arguments alone, or
     * speculative decoding and preemption may change the answer.
     */
    void (*on_logits)(void *ctx, const cl_logits *logits);

    /*
     * With prompt_logprobs: the position of the first token that is reported; default 0. The tokens before position
     * prompt_logprobs_from - 1 are found in the cache and stay there as those of any request; only the others, whose logits are
     * needed or lie behind such a token, are computed for this request alone. What is reported has the same bits.
     */
    int64_t prompt_logprobs_from;
    /*
     * With n_top: the tokens that are reported in `top`, in this order, in place of the likeliest. Not with beam_search. NULL
     * (default): the likeliest.
     */
    const int32_t *top_tokens; /* [n_top] */
} cl_engine_request;

CL_API void cl_engine_request_init(cl_engine_request *request);

/*
 * Queue a request, which is copied with all that it points to. Its choices are admitted as soon as max_seqs and the K/V budget
 * hold the tokens that they have. Next is the domain that got the fewest tokens for its weight, and of its requests
 * the first by priority and time; but at most 16 choices of later requests of the same priority, whose prefix is in the cache,
 * may go before a request, and a request that has, with its parts, half of its domain's places gets no further one while others
 * of the domain wait. Where the budget does not hold what the choices generate, or a domain has more than its part while others
 * wait, the last choices leave the cache and continue later where they were: what they report is the same, but later.
 * *id, unless id is NULL, names the request in cl_engine_cancel, cl_engine_unpin and its events; ids are 1 or more and never
 * used again.
 *
 * A grammar is compiled during the call, which takes milliseconds for most and up to seconds for those that are too complex.
 *
 * Errors: CL_ERR_ARG names the field; CL_ERR_LIMIT for a request of which the context or the K/V budget could not hold one
 * choice alone, or all beams, with both numbers, and for a grammar that is too large or too complex; CL_ERR_BUSY if more waits
 * than max_queued_requests and max_queued_tokens allow; CL_ERR_NOMEM; CL_ERR_UNSUPPORTED for a grammar without
 * grammar_library, and if on_event calls it while cl_engine_destroy runs. No event comes then, and *id is 0.
 */
CL_API cl_status cl_engine_submit(cl_engine *engine, const cl_engine_request *request, uint64_t *id, cl_error *error);

/*
 * End a request: it leaves before the next step, and its choices report CL_ENGINE_CANCELLED. Ids of requests that have ended,
 * and unknown ones, are ignored. Returns at once, before the last event.
 */
CL_API void cl_engine_cancel(cl_engine *engine, uint64_t id);

/*
 * End the pin of a request, before the next step: its prompt is retained like others. A request that has not ended yet will pin
 * nothing with `pin`, and what it has pinned with pin_tokens stays until it ends. Ids of requests without a pin, and unknown
 * ones, are ignored. Returns at once.
 */
CL_API void cl_engine_unpin(cl_engine *engine, uint64_t id);

/* ---- Polling ------------------------------------------------------------------------------------------------------------ */

/* Threads: any, but calls of cl_engine_poll on one engine must not overlap. */

/*
 * Take events of requests without on_event, oldest first, without waiting: for event loops, and for languages in which a
 * callback on a foreign thread is dear. events: [max_events] gets pointers to *n_events events, which are valid until the next
 * cl_engine_poll or cl_engine_destroy. The event with `last` set is its request's last one, as for on_event.
 *
 * The events wait in memory until they are taken: at most one for each token that is generated or, with prompt_logprobs, is of
 * the prompt, and one for each choice. If there is no memory for one, its request ends with CL_ERR_NOMEM. Those that were not
 * taken are lost with cl_engine_destroy.
 *
 * Errors: CL_ERR_ARG for NULL. *n_events is 0 then.
 */
CL_API cl_status cl_engine_poll(cl_engine *engine, const cl_engine_event **events, size_t max_events, size_t *n_events,
                                cl_error *error);

/*
 * A descriptor for poll(2), epoll(7) and the like, which is readable as long as events wait for cl_engine_poll. It is the
 * engine's: it must not be read, and cl_engine_destroy closes it. Each call returns the same one.
 *
 * Errors: CL_ERR_ARG for NULL; CL_ERR_NOMEM if the process may open no more. *fd is -1 then.
 */
CL_API cl_status cl_engine_poll_fd(cl_engine *engine, int *fd, cl_error *error);

/* ---- Sessions ------------------------------------------------------------------------------------------------------------ */

/* Threads: any. */

/*
 * Save the K/V of a conversation, or of any prompt, as bytes, so that it continues later, or in another process, without being
 * computed again: of the request, which is borrowed for the call only, prompt, domain and salt count, and of the prompt the
 * first tokens whose K/V the cache has in memory. For a conversation these are its tokens so far, answers included. *n_tokens
 * (may be NULL): how many were exported; 0: none, and nothing was written.
 *
 * write: as for cattn_seq_export, whose format the bytes have. It runs on the engine's thread and holds up all requests, as
 * on_event does; so does the export, which takes about twice the time of copying the bytes.
 *
 * Waits as long as cl_engine_inspect. Needs a model that was loaded with its fingerprint, and a cache that retains tokens.
 *
 * Errors: CL_ERR_ARG names the field; CL_ERR_FILE if write has stopped the export; CL_ERR_LIMIT if the K/V budget has no chunk
 * left for the call; CL_ERR_UNSUPPORTED without fingerprint or retention; the others as cl_engine_inspect.
 */
CL_API cl_status cl_engine_export(cl_engine *engine, const cl_engine_request *request,
                                  int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, int64_t *n_tokens,
                                  cl_error *error);

/*
 * Bring the K/V of an export into the cache, where requests of this domain, without a salt, find them as tokens that are
 * retained from an earlier request; they may be evicted like these. bytes: [n_bytes] a whole export, of an engine with the same
 * model, program, CPU level and K/V options; borrowed for the call. *n_tokens (may be NULL): how many tokens it has. All
 * requests wait while the bytes are verified and copied.
 *
 * The checksums find damage, not forgery: who can change an export can make later requests of the domain attend over any K/V.
 *
 * Errors: CL_ERR_FORMAT for bytes that are damaged, cut off, or of another kind of engine; CL_ERR_ARG; CL_ERR_LIMIT if the K/V
 * budget has no room; CL_ERR_UNSUPPORTED as above; the others as cl_engine_inspect. Nothing is changed then.
 */
CL_API cl_status cl_engine_import(cl_engine *engine, const void *bytes, size_t n_bytes, uint32_t domain, int64_t *n_tokens,
                                  cl_error *error);

/* ---- Statistics ------------------------------------------------------------------------------------------------------- */

/* Threads: any. */

/* Speculative decoding. */
typedef struct cl_engine_drafts {
    int64_t n_drafts;   /* drafts that were verified */
    int64_t n_tokens;   /* their tokens */
    int64_t n_accepted; /* those of them that were accepted */
} cl_engine_drafts;

enum { CL_STEP_SIZES = 14 }; /* classes of steps by their number of tokens */

/* Since the engine was created, unless a field says "now". */
typedef struct cl_engine_stats {
    size_t struct_size;              /* set by the caller to sizeof(cl_engine_stats) */
    int64_t n_waiting;               /* requests of which no choice is in the cache now */
    int64_t n_running;               /* requests of which at least one choice is in the cache now */
    int64_t prompt_tokens;           /* of admitted requests whose prompt is computed, or that have ended before */
    int64_t cached_tokens;           /* those of them that were in the cache */
    int64_t prefill_tokens_computed; /* prompt tokens whose K/V were computed */
    int64_t completion_tokens;       /* of all choices */
    int64_t requests_finished;       /* requests that ended, for whatever reason */
    int64_t steps;
    double prefill_s;   /* seconds spent in steps, for rows of prompts and of recomputed tokens */
    double decode_s;    /* the same for all other rows; a step's time is divided by rows */
    int64_t batch_peak; /* most sequences of a step */
    cl_engine_drafts drafts;
    int64_t preemptions;       /* choices that left the cache before they ended, to continue later */
    int64_t recomputed_tokens; /* tokens whose K/V were computed again for these */
    int64_t waiting_tokens;    /* of the prompts of requests that wait to be admitted now */
    double retry_after_s;      /* seconds until these are admitted, at the rate of the last minute: 1 to 86400 */
    int64_t n_pins;            /* prompts that are pinned now */
    int64_t step_rows;         /* tokens that all steps have computed */
    /* Steps by their tokens: at most 1, 8, 16, 32, ..., 16384, each without those before it, and the larger ones. */
    int64_t steps_by_rows[CL_STEP_SIZES];
} cl_engine_stats;

/*
 * Fill *stats. A token is counted before it is reported, the end of a request shortly after its last event.
 * Errors: CL_ERR_ARG for NULL or a struct_size that is not set.
 */
CL_API cl_status cl_engine_get_stats(cl_engine *engine, cl_engine_stats *stats);

/*
 * Fill *stats with the statistics of the engine's K/V cache after its last step, or of now while it is idle; see cattn_stats in
 * chunkattn_inspect.h. The caller sets struct_size to sizeof(cattn_stats). Errors: CL_ERR_ARG for NULL or a struct_size that is
 * not set.
 */
CL_API cl_status cl_engine_get_kv_stats(cl_engine *engine, cattn_stats *stats);

/* ---- Looking into the cache ------------------------------------------------------------------------------------------- */

/* Threads: any. */

/*
 * Call fn once with the engine's K/V cache, between two steps: at once while the engine is idle, else after the current step.
 * fn runs on the engine's thread and holds up all requests, so it must not block. It may call the functions of
 * chunkattn_inspect.h, such as cattn_cache_walk for a part of the tree, and everything of this header but cl_engine_destroy.
 * The cache is valid until fn returns.
 *
 * Returns at once; fn may be called before it returns, and is called before cl_engine_destroy returns. Calls are made in
 * their order. Calls that wait run for at most about 1 ms between two steps; the rest follow after the next step. On the
 * engine's thread, in on_event for instance, fn is called immediately.
 *
 * Errors: CL_ERR_ARG for NULL; CL_ERR_NOMEM; CL_ERR_UNSUPPORTED while cl_engine_destroy runs. fn is not called then.
 */
CL_API cl_status cl_engine_inspect(cl_engine *engine, void (*fn)(void *ctx, const cattn_cache *cache), void *ctx,
                                   cl_error *error);

/*
 * Say how much of a request's prompt is in the cache, and why not more: cattn_cache_explain. Of the request, which is borrowed
 * for the call only, the prompt, the domain and the salt count. Waits as long as cl_engine_inspect. The caller sets
 * explanation->struct_size. An other_domain of 2^31 or more is that of a salt, or of a request that shares with no other.
 *
 * Errors: CL_ERR_ARG names the field; CL_ERR_UNSUPPORTED also for a field of the request that is not known; the others as
 * cl_engine_inspect.
 */
CL_API cl_status cl_engine_explain(cl_engine *engine, const cl_engine_request *request, cattn_explanation *explanation,
                                   cl_error *error);

/*
 * Before the next step, drop the retained chunks of the cache, and the tokens of earlier requests from which drafts are made:
 * for measurements with an empty cache. Requests that run, and pins, keep what they use; the file tier keeps its file, from
 * which later requests may read. A cl_engine_inspect after this call finds the cache without what was retained. Returns at
 * once. CL_ERR_ARG for NULL.
 */
CL_API cl_status cl_engine_reset_cache(cl_engine *engine, cl_error *error);

#ifdef __cplusplus
}
#endif

#endif
