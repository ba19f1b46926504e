/*
 * Traces: requests in the order in which they arrive, as tokens, for `cattn-bench retention`.
 *
 *   workloads   the four bundled workloads, one request of each in turn; words stand for tokens
 *   cyclic      16 prompts again and again in the same order
 *   zipf        400 prefixes, the i-th used in proportion to 1 / i, each time followed by tokens of the request's own
 *   chats       32 chats at a time, each of up to 8 turns; a random one continues, so it comes back after others
 *   agents      four agents at a time behind one trunk; each step continues from some earlier step of the same agent
 *   washed      16 system prompts in a fifth of the requests; all other requests are prompts that never come back
 *   swept       a chat of 4 to 8 turns, then 24 documents that are read once, then two more turns; then another chat
 *   tenants     8 chats at a time of one tenant, which have one request of 13; all others are another tenant's, as in zipf
 *   batch       the same chats, beside a batch of lower priority: instructions with another document each time
 *
 * All but the first follow from a seed.
 */
#ifndef BENCH_SHARED_TRACE_H
#define BENCH_SHARED_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trace_request {
    size_t first;                   /* index of its first token in trace.tokens */
    int64_t n_prompt, n_completion; /* tokens; those of the completion follow those of the prompt */
    uint32_t account;
} trace_request;

/* Begins as {0}; owns its arrays. */
typedef struct trace {
    int32_t *tokens;
    size_t n_tokens, tokens_capacity;
    trace_request *requests;
    size_t n, capacity;
    int64_t working_set; /* tokens that have been used and will be used again behind the same prefix; mean over requests */
    int64_t longest;     /* tokens of the longest request */
    float weights[2];    /* of accounts 0 and 1, which has the chats; both 0: all requests have account 0 */
} trace;

enum { TRACE_KINDS = 9 };
extern const char *const trace_names[TRACE_KINDS];

/*
 * Make a trace of about n_requests requests; the bundled workloads are read from the folder workloads. False with a message on
 * stderr if a file cannot be read. Without memory it aborts.
 */
bool trace_make(trace *t, int kind, int64_t n_requests, uint64_t seed, const char *workloads);
void trace_free(trace *t);

#endif
