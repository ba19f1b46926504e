/* What a subcommand works with: the worker pool, the model, and an engine or a cache of its own. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "engine/engine.h"
#include "llama/model.h"
#include "options.h"

/* Zero-initialise; free with session_close, also after a failure. */
typedef struct session {
    ca_pool *pool;
    cl_model *model, *draft_model; /* the second is NULL without --draft-model */
    cl_engine *engine;
} session;

/* Start the threads and load --model. */
cl_status session_load(session *s, const options *opt, cl_error *error);

/* What the options say of an engine, or of a cache alone, for max_seqs sequences at once. */
cl_status session_engine_config(const session *s, const options *opt, int64_t max_seqs, cl_engine_config *config,
                                cl_error *error);

/* Start an engine on the loaded model; max_seqs sequences at once. */
cl_status session_start(session *s, const options *opt, int64_t max_seqs, cl_error *error);

void session_close(session *s);

/* The chat format asked for or the model's own. An error where there is none. */
cl_status session_chat_format(const session *s, const options *opt, cl_chat_format *format, cl_error *error);

cl_sampler_params session_sampling(const options *opt);

/* The kernel level of attention that --level names; NULL (the best) without --level. Linear layers take --level as it is. */
cl_status session_attention_level(const options *opt, const char **level, cl_error *error);

/* Print "chunkllama COMMAND: message" on stderr and return 1, the exit status. */
int session_fail(command_id cmd, const cl_error *error);

#endif
