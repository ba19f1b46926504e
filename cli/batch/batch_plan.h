/*
 * The plan of an offline job: which lines of the input it computes, and in which order.
 *
 * Lines are computed by priority, and among these in the order of their prompts' tokens: depth first over the tree that the
 * prompts form. So each prefix is needed during one stretch of time only, whatever the order of the input. With a shard the
 * lines in that order are cut into N parts of about the same number of tokens, at places where neighbours have little in
 * common.
 *
 * The plan has no texts. The prompts' tokens are in a scratch file, which is mapped while it is made.
 */
#ifndef CLI_BATCH_BATCH_PLAN_H
#define CLI_BATCH_BATCH_PLAN_H

#include "input.h"
#include "serve/protocol/batch_line.h"

typedef struct plan_line {
    int64_t place; /* where it begins in the input, in bytes */
    size_t size;   /* bytes, without the line's end */
    size_t number; /* in the input, from 1 */
    size_t first_prompt;
    int32_t n_prompts; /* 0: the line is invalid */
    int32_t priority;
    int64_t n_tokens; /* of its prompts */
    int64_t cost; /* tokens to compute: those that its first prompt has not in common with the line before, and completions */
    uint64_t id_hash; /* plan_hash_id */
    bool mine;        /* this shard computes it */
} plan_line;

typedef struct plan_prompt {
    int64_t first;   /* index of its first token in the scratch file */
    uint64_t domain; /* prompts share K/V within one: a hash of the tenant and the salt */
    int32_t n_tokens;
    int32_t n_common; /* tokens that a cache that forgets nothing has already when the prompt's turn comes */
    bool shares;      /* it may use K/V of others, and they its own */
} plan_prompt;

/* Which part of the lines to compute: part i of n, from 1. */
typedef struct plan_shard {
    int32_t i, n;
} plan_shard;

typedef struct batch_plan {
    plan_line *lines;     /* [n_lines] those that are not blank; owned */
    plan_prompt *prompts; /* [n_prompts] owned */
    size_t *order;        /* [n_order] the lines that this shard computes, first to last; owned */
    size_t n_lines, n_prompts, n_order;
    size_t lines_capacity, prompts_capacity;
    uint64_t input_hash; /* of all lines with their numbers */
} batch_plan;

/*
 * Read all lines of the input and order them. tenants: as of batch_line_parse. Zero-initialise *plan, and free it also after a
 * failure.
 */
cl_status batch_plan_make(batch_plan *plan, const batch_input *in, const openai_context *context, openai_tenants *tenants,
                          bool sharing, plan_shard shard, cl_error *error);
void batch_plan_free(batch_plan *plan);

/* A hash of the id of a line or an answer, which is JSON; NULL: null. */
uint64_t plan_hash_id(const char *id_text);

/* ---- What orders prompts (plan_order.c) ---- */

/* Fill plan->order, and what depends on it. tokens: of all prompts. */
cl_status plan_order(batch_plan *plan, const int32_t *tokens, bool sharing, plan_shard shard, cl_error *error);

#endif
