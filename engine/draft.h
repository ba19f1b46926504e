/*
 * Drafts: guesses at the next tokens of choices, for a step to verify, and where they come from.
 *
 * A drafter may guess as it likes: a wrong guess costs a row, never a different output.
 */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include "request.h"

typedef struct cl_draft {
    cl_choice *choice;
    int32_t n_max; /* at most so many */
    float worth;   /* what drafts may save the choice until its end, in units of a step; where token_cost is not 0 */
    int32_t n;
    int32_t tokens[CL_DRAFT_MAX];
    uint8_t ranks[CL_DRAFT_MAX]; /* of each token's evidence, 1 to CL_CHANCE_RANKS - 1: what chances are learnt by */
} cl_draft;

typedef struct cl_drafter cl_drafter;
struct cl_drafter {
    /* Fill in n, tokens and ranks of n_drafts drafts, whose choices differ and have been drawn a token at least. */
    void (*propose)(cl_drafter *d, cl_draft *drafts, int32_t n_drafts);
    /* A choice leaves, with the tokens it has now. */
    void (*leave)(cl_drafter *d, cl_choice *c);
    void (*free)(cl_drafter *d);
    /*
     * In units of what a step costs however few its rows: drafting a token of each of n choices costs token_cost (1 + row_cost
     * n), row_cost being engine_config's. Where it is not 0, tokens that are not likely enough are not asked for, so their rank
     * must be known before: CL_CHANCE_RANKS - 1.
     */
    float token_cost;
};

/*
 * Prompt lookup: what followed the longest run of tokens that ends like the choice, be it in its own prompt and output or in
 * what other requests of its domain were told before. NULL without memory.
 */
cl_drafter *cl_draft_lookup_create(void);

/*
 * A second model of the same vocabulary. m and pool are borrowed; its K/V cache, beside that of the target, holds as many
 * tokens. CL_ERR_ARG where the vocabularies differ.
 */
cl_status cl_draft_model_create(const cl_model *m, const cl_model *target, ca_pool *pool, const cl_engine_config *config,
                                cl_drafter **d, cl_error *error);

#endif
