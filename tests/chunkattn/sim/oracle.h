/*
 * What a request must report, computed from its tokens alone: without scheduler, cache and batch. An oracle follows the events
 * of one request, one by one.
 */
#ifndef TESTS_CHUNKATTN_SIM_ORACLE_H
#define TESTS_CHUNKATTN_SIM_ORACLE_H

#include "stub_model.h"

typedef struct oracle oracle;

/* Allocate what all oracles share, once. */
void oracle_prepare(void);

/* Follow a request, whose max_tokens is the number that applies; what it points to is borrowed until oracle_free. */
oracle *oracle_create(const cl_engine_request *request);
void oracle_free(oracle *o);

/*
 * Check the next event. NULL: it is as it must be; otherwise what is wrong. Cancellation and errors may come at any time; the
 * caller knows whether there is a reason for them.
 */
const char *oracle_check(oracle *o, const cl_engine_event *event);

/* Whether the last event was reported. */
bool oracle_is_done(const oracle *o);

/* Tokens of prompt and completion of a choice so far: [*n], valid until the next event. */
const int32_t *oracle_tokens(const oracle *o, int32_t choice, int64_t *n);

/* The tokens of completions that were reported. */
int64_t oracle_n_completion(const oracle *o);

#endif
