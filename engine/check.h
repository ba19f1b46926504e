/* Whether a request can run at all: its fields, the context, the K/V budget. */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include "engine.h"

typedef struct cl_engine_limits {
    int32_t n_vocab;
    int64_t n_ctx;
    int32_t max_seqs;
    cattn_sharing sharing;
    int64_t chunk_size, n_chunks; /* tokens a chunk; chunks that the K/V budget holds */
} cl_engine_limits;

/*
 * CL_ERR_ARG or CL_ERR_LIMIT with the number asked for and the limit. *max_tokens: completion tokens of a choice, with "as
 * many as fit" made a number.
 */
cl_status cl_check_request(const cl_engine_limits *limits, const cl_engine_request *asked, int64_t *max_tokens,
                           cl_error *error);

#endif
