/*
 * Iteration-based batching: one thread of the engine's own runs steps that mix decode rows with prefill segments under a token
 * budget; requests join and leave between any two steps. chunkllama.h has the public functions, and their
 * guarantees; this header has those that only this project's programs use.
 */
#ifndef CHUNKLLAMA_ENGINE_ENGINE_H
#define CHUNKLLAMA_ENGINE_ENGINE_H

#include "chunkattn/base/threads.h"
#include "chunkllama.h"
#include "chunkllama/common/error.h"
#include "chunkllama/model/model.h"

/*
 * cl_engine_create with a pool of the caller's, which is borrowed until cl_engine_destroy; until then only the engine may use
 * it. n_threads and pin_threads of the config are ignored.
 */
cl_status cl_engine_create_on_pool(const cl_model *model, ca_pool *pool, const cl_engine_config *config, cl_engine **engine,
                                   cl_error *error);

/*
 * The options with which a request like r, of which only domain and salt count, would join the cache now. On the engine's
 * thread.
 */
cattn_join_options cl_engine_join_options(const cl_engine *engine, const cl_engine_request *r);

/* What exports and imports need of an engine: an identity of its K/V, and that tokens stay. */
typedef struct cl_engine_transfers {
    bool has_fingerprint, retains;
} cl_engine_transfers;

cl_engine_transfers cl_engine_can_transfer(const cl_engine *engine);

/*
 * The beginning of each message about a request that exceeds the context. Clients recognise the error by these words, which are
 * OpenAI's, and not by a code. Takes the context as a long long.
 */
#define CL_CONTEXT_LENGTH_MESSAGE "This model's maximum context length is %lld tokens"

/*
 * What follows these words: which option sets that maximum, if the K/V budget holds less than the context that the model or the
 * configuration has; otherwise nothing. A constant.
 */
const char *cl_engine_context_reason(const cl_engine *engine);

/* Bytes of the forward pass's workspace on a device; 0: it runs on the CPU. */
uint64_t cl_engine_device_bytes(const cl_engine *engine);

#endif
