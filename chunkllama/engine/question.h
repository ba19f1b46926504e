/* Calls of functions on the engine's cache, between two steps, for which the caller waits. */
#ifndef CHUNKLLAMA_ENGINE_QUESTION_H
#define CHUNKLLAMA_ENGINE_QUESTION_H

#include "chunkllama.h"

/*
 * As cl_engine_inspect, but returns when fn has returned. On the engine's thread no step is open, so fn may also change the
 * cache, as long as it leaves no sequence there.
 */
cl_status cl_engine_ask(cl_engine *engine, void (*fn)(void *ctx, cattn_cache *cache), void *ctx, cl_error *error);

/*
 * Read a caller's request of which only the prompt, the domain and the salt count. CL_ERR_ARG names the field;
 * CL_ERR_UNSUPPORTED for one that is not known.
 */
cl_status cl_read_prompt(const cl_engine_request *from, cl_engine_request *request, cl_error *error);

#endif
