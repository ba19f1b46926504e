/*
 * The constraint of a choice: what the grammar of its request says about its next token.
 *
 * As long as the grammar forces tokens, the next token is the first of these. Otherwise it is drawn as without a grammar. If
 * the grammar does not allow that token, others are drawn from the same distribution in its place, and after a few of them one
 * is drawn from the mask of the allowed tokens. So each allowed token has the probability that it has among the allowed ones,
 * and while the model writes what the grammar asks for, no mask is computed.
 *
 * Which tokens are forced is found where none are left, and then holds for the whole run of them. So the next token is a
 * function of the tokens before it, the seed and the logits, and does not depend on what is batched, drafted or preempted.
 *
 * A draw whose answer is late (grammar.h) stays open, and the choice sits out the steps until the answer is there, with the
 * logits that the draw needs. So nobody waits for another one's grammar, and only the time depends on it.
 *
 * A token that is forced needs no logits. Forced tokens are drafted (speculation.h) in rows of their own, all at once, and are
 * always accepted. The matcher is given a token when it is drawn, so it never has one that the choice has not.
 */
#ifndef CHUNKLLAMA_ENGINE_CONSTRAINT_H
#define CHUNKLLAMA_ENGINE_CONSTRAINT_H

#include "chunkllama/model/sampler.h"
#include "grammar.h"
#include "request.h"

enum { CL_NO_TOKEN = -1, CL_LATE = -2 }; /* in place of a token */

typedef struct cl_constraint {
    cl_matcher *matcher;            /* owned; NULL before the first draw, and after the end */
    int32_t first_forced, n_forced; /* those of `forced` that come next */
    int32_t forced[CL_FORCED_MAX];
    bool failed;   /* the matcher, which says why; or, if it is NULL, memory was lacking */
    bool begun;    /* it is known which tokens are forced at the beginning */
    bool open;     /* a draw was late, and is to be made again */
    bool no_end;   /* the open draw may not end the reasoning */
    bool added;    /* the matcher has `drawn` */
    int32_t drawn; /* the token of the open draw, of which only the state after it is not known; CL_NO_TOKEN: not yet */
    float *kept;   /* [n_vocab] of the open draw while the choice sits out; owned; otherwise NULL */
    bool foreseen; /* the matcher was asked about `candidate`, the first token that the next draw tries */
    int32_t candidate;
} cl_constraint;

/* The memory that draws share: the end tokens of the vocabulary, and scratch memory for each worker. */
typedef struct cl_constraint_scratch {
    int32_t n_vocab;
    int32_t *end_tokens; /* [n_end_tokens] owned */
    int32_t n_end_tokens;
    float *logits;   /* [n_workers][n_vocab] owned */
    uint32_t *masks; /* [n_workers][words] owned */
} cl_constraint_scratch;

/* False if memory is lacking; cl_constraint_scratch_free is due then too. */
bool cl_constraint_scratch_init(cl_constraint_scratch *sc, const cl_tokenizer *tok, int32_t n_vocab, int32_t n_workers);
void cl_constraint_scratch_free(cl_constraint_scratch *sc);

/* Before the first draw. */
void cl_constraint_init(cl_constraint *con);

/* Whether the question that the next draw of a choice begins with is better asked with those of other choices. */
bool cl_constraint_foresees(const cl_choice *c);

/*
 * Draw the token that this question is about, with the arguments of cl_constraint_draw, for which it then holds. False: there
 * is no question about it.
 */
bool cl_constraint_foresee(const cl_constraint_scratch *sc, cl_sampler *s, cl_choice *c, const float *logits, int64_t position,
                           double until);

/*
 * Draw the next token of a choice, at `position`, for worker `worker`. logits [n_vocab] may be NULL if the token is forced.
 * ending [n_ending]: the tokens that end its reasoning, of which the first one comes instead of a draw if the grammar allows
 * them all. Answers are awaited until a time, by clock_seconds(). *completes: nothing can follow the token. CL_NO_TOKEN: the
 * constraint has failed. CL_LATE: the draw is to be made again, with the same logits.
 */
int32_t cl_constraint_draw(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, cl_choice *c, const float *logits,
                           const int32_t *ending, int32_t n_ending, int64_t position, double until, bool *completes);

/* Let a choice whose draw is late sit out, with the logits of the draw, or fail, if memory is lacking. */
void cl_constraint_sit_out(const cl_constraint_scratch *sc, cl_choice *c, const float *logits);
static inline bool cl_constraint_sits_out(const cl_choice *c) { return c->constraint && c->constraint->kept; }

/* Whether a choice sits out whose answer is there. */
bool cl_constraint_may_go_on(const cl_choice *c);

/* A choice computes its last token again, or draws now: it does not sit out any more. */
void cl_constraint_go_on(cl_choice *c);

/* The number of tokens that are known to come next; 0 for choices without a grammar. */
int32_t cl_constraint_n_forced(const cl_choice *c);

/*
 * Draft up to n_max forced tokens: append them to c->tokens and, where that is possible, to the choice's sequence. Returns
 * their number, which c->n_drafted is then.
 */
int32_t cl_constraint_draft(cl_choice *c, cattn_cache *cache, int32_t n_max);

/*
 * How many of the tokens [n], which were drafted for a choice, its grammar allows. n for choices without a grammar, or with one
 * that may be late: their draws tell.
 */
int32_t cl_constraint_count_valid(cl_choice *c, const int32_t *tokens, int32_t n);

/* Why a constraint has failed. */
void cl_constraint_explain(const cl_choice *c, cl_error *error);

/* The choice has ended: free the memory that only its draws need. */
void cl_constraint_end(cl_choice *c);

#endif
