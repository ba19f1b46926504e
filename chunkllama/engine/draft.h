/*
 * Drafts: guesses at the next tokens of choices, for a step to verify, and the drafters that make them.
 *
 * A drafter may guess anything: a wrong guess costs a row, and never changes the output.
 */
#ifndef CHUNKLLAMA_ENGINE_DRAFT_H
#define CHUNKLLAMA_ENGINE_DRAFT_H

#include "request.h"

typedef struct cl_draft {
    cl_choice *choice;
    int32_t n_max; /* tokens that are wanted at most */
    float worth;   /* the savings of drafts until the choice ends, in steps; only where token_cost is not 0 */
    int32_t n;     /* tokens that were drafted */
    int32_t tokens[CL_DRAFT_MAX];
    uint8_t ranks[CL_DRAFT_MAX]; /* of each token's source, 1 to CL_CHANCE_RANKS - 1; see chance.h */
} cl_draft;

/* A source of drafts. One thread at a time. */
typedef struct cl_drafter cl_drafter;
struct cl_drafter {
    /*
     * Fill in n, tokens and ranks of drafts [n_drafts]. Each is of another choice, which has drawn at least one token.
     */
    void (*propose)(cl_drafter *d, cl_draft *drafts, int32_t n_drafts);
    /* A choice leaves the cache, with the tokens that it has now: it has ended, or returns later. */
    void (*leave)(cl_drafter *d, cl_choice *c);
    /* Forget the tokens of choices that have left. Not while a step is open. */
    void (*drop_left)(cl_drafter *d);
    /*
     * Keep to this part, from 0 to 1, of the memory that was configured for K/V. Not while a step is open. NULL: the drafter
     * has none.
     */
    void (*set_budget)(cl_drafter *d, double part);
    void (*free)(cl_drafter *d);
    /*
     * The cost of drafting, relative to a step of the engine's model without rows: one token for each of n choices costs
     * token_cost * (1 + row_cost * n), with row_cost from cl_engine_config. If it is not 0, tokens that are not probable enough
     * are not requested, so their rank must be known beforehand: it is CL_CHANCE_RANKS - 1.
     */
    float token_cost;
};

/*
 * Prompt lookup: the tokens that followed the longest run of tokens equal to the end of the choice, in its own prompt and
 * completion or in those of earlier requests of its domain. NULL if memory is lacking.
 */
cl_drafter *cl_draft_lookup_create(void);

/*
 * A second model, m, of the vocabulary of `target`, the engine's model. m and pool are borrowed until the drafter is freed. The
 * drafter has a K/V cache of its own, for as many tokens as the engine's. CL_ERR_ARG: the vocabularies differ; CL_ERR_LIMIT;
 * CL_ERR_NOMEM. *d is NULL then.
 */
cl_status cl_draft_model_create(const cl_model *m, const cl_model *target, ca_pool *pool, const cl_engine_config *config,
                                cl_drafter **d, cl_error *error);

#endif
