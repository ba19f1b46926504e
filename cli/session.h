/* What the commands share: the worker pool, the model and the engine, as the options say. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "chunkattn/base/memory.h"
#include "chunkllama/engine/engine.h"
#include "chunkllama/model/model.h"
#include "options.h"
#include "serve/protocol/openai.h"
#include "text_buffer.h"

/*
 * Zero-initialise; free with session_close, also after a failure. The fields are owned, and NULL until they are made, unless
 * they say otherwise.
 */
typedef struct cli_session {
    ca_pool *pool;
    cl_model *model, *draft_model; /* no draft model without --draft-model */
    cl_engine *engine;
    openai_names names;              /* of the model, for clients */
    cli_text template;               /* the file of --chat-template */
    cl_chat *chat;                   /* of --chat-template or --chat-format */
    json_t *chat_kwargs;             /* --chat-template-kwargs, an object */
    const cl_engine_weight *weights; /* [n_weights] of the engine; borrowed until session_start */
    int32_t n_weights;
    const char *grammar_library; /* of the engine; borrowed until session_start; NULL: none */
    uint64_t free_memory;        /* bytes that were free before the model was loaded; 0: session_load finds out */
    bool has_log;                /* standard error is a log, so progress is shown only on a terminal */
} cli_session;

/* The users that doctor and the server's first line speak of: tokens of the prompt that they share, and of each of them. */
enum { SHARED_TOKENS = 2048, OWN_TOKENS = 512 };

/* How many users fit at once into a cache of n_chunks chunks of `chunk` tokens. */
int64_t session_n_users(int64_t n_chunks, int64_t shared, int64_t own, int64_t chunk);

/*
 * Start the threads and load --model, and --draft-model and --chat-template if they are set. Errors: CL_ERR_ARG names the
 * option; others are those of cl_model_load.
 */
cl_status session_load(cli_session *s, const cli_options *opt, cl_error *error);

/* The error of a command that needs --model. Returns CL_ERR_ARG. */
cl_status session_no_model(cl_error *error);

/* The number of threads that --threads asks for. */
int32_t session_n_threads(const cli_options *opt);

/* Whether the options set memory aside for pins. */
bool session_can_pin(const cli_options *opt);

/* Let requests have grammars: with the file of --grammar-library, or with the library if it is installed. */
void session_use_grammars(cli_session *s, const cli_options *opt);

/* The bytes of --kv-budget. By default: three quarters of free_memory less `weights`, at least 64 MiB; 2 GiB if it is not
 * known. */
uint64_t session_kv_budget(const cli_options *opt, uint64_t free_memory, uint64_t weights);

/* The bytes of the weights of the loaded models. */
uint64_t session_weights(const cli_session *s);

/* The memory that is there now. Where the address space has a limit, `free` leaves out what threads will take of it. */
ca_memory session_memory(const cli_options *opt);

/* Fill *config from the options, for max_seqs sequences at once. */
cl_status session_engine_config(const cli_session *s, const cli_options *opt, int64_t max_seqs, cl_engine_config *config,
                                cl_error *error);

/* Start an engine on the loaded model, for max_seqs sequences at once. */
cl_status session_start(cli_session *s, const cli_options *opt, int64_t max_seqs, cl_error *error);

/* End the engine, whose requests are cancelled, and free everything. */
void session_close(cli_session *s);

/*
 * Read the file of --chat-template, if it is set: session_load does, too, unless this was called before. Errors name the
 * option.
 */
cl_status session_read_template(cli_session *s, const cli_options *opt, cl_error *error);

/*
 * How chats are written: as --chat-template or --chat-format says, otherwise as the model's file does. Valid until
 * session_close; NULL if there is none of them.
 */
const cl_chat *session_chat(const cli_session *s);

/* The same; an error if there is none. */
cl_status session_require_chat(const cli_session *s, const cl_chat **chat, cl_error *error);

/* How to draw tokens where a request does not say it. */
typedef struct cli_sampling {
    cl_sampler_params params;
    int32_t penalty_window; /* as in cl_engine_request */
    const char *source;     /* of what the options leave out: "model", "llama.cpp" or "openai" */
} cli_sampling;

/*
 * That of the options, else of the model, else of llama.cpp (local: for a person) or OpenAI's API. Without --seed the seed
 * differs from call to call.
 */
cli_sampling session_sampling(const cli_session *s, const cli_options *opt, bool local);

/*
 * The level of the attention kernels that --level names, a static string; NULL without --level: the CPU's best. Linear layers
 * use --level as it is.
 */
cl_status session_attention_level(const cli_options *opt, const char **level, cl_error *error);

/* Print "chunkllama COMMAND: message" on stderr and return 1, the exit status. */
int session_fail(cli_command_id cmd, const cl_error *error);

#endif
