/*
 * Drafts: guesses at the next tokens of choices, for a step to verify, and where they come from.
 *
 * A drafter may guess as it likes: a wrong guess costs a row, never a different output.
 */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include "request.h"

typedef struct draft {
    choice *choice;
    int32_t n_max; /* at most so many */
    float worth;   /* what drafts may save the choice until its end, in units of a step; where token_cost is not 0 */
    int32_t n;
    int32_t tokens[DRAFT_MAX];
    uint8_t ranks[DRAFT_MAX]; /* of each token's evidence, 1 to CHANCE_RANKS - 1: what chances are learnt by */
} draft;

typedef struct drafter drafter;
struct drafter {
    /* Fill in n, tokens and ranks of n_drafts drafts, whose choices differ and have been drawn a token at least. */
    void (*propose)(drafter *d, draft *drafts, int32_t n_drafts);
    /* A choice leaves, with the tokens it has now. */
    void (*leave)(drafter *d, choice *c);
    void (*free)(drafter *d);
    /*
     * In units of what a step costs however few its rows: drafting a token of each of n choices costs token_cost (1 + row_cost
     * n), row_cost being engine_config's. Where it is not 0, tokens that are not likely enough are not asked for, so their rank
     * must be known before: CHANCE_RANKS - 1.
     */
    float token_cost;
};

/*
 * Prompt lookup: what followed the longest run of tokens that ends like the choice, be it in its own prompt and output or in
 * what other requests of its domain were told before. NULL without memory.
 */
drafter *draft_lookup_create(void);

/*
 * A second model of the same vocabulary. m and pool are borrowed; its K/V cache, beside that of the target, holds as many
 * tokens. CL_ERR_ARG where the vocabularies differ.
 */
cl_status draft_model_create(const model *m, const model *target, ca_pool *pool, const engine_config *config, drafter **d,
                             cl_error *error);

#endif
