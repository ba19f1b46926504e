/*
 * Beam search: the n choices of a request become the n completions of the highest score that the search finds, the best first.
 *
 * The score of a completion is the sum of its tokens' logprobs / length ^ length_penalty, where the length is that of prompt
 * and completion without an end token, as vLLM defines it. Logprobs are those of the model's own distribution.
 *
 * While the search runs, choice i of the request is a beam: a sequence of the cache, which is listed in steps like any other.
 * All beams have the same length. When a step computes the logits after a beam's last token, its likeliest next tokens are kept
 * (cl_beams_expand). When that is done for all beams, perhaps in several steps, they advance together (cl_beams_select):
 *
 *   - Each beam is continued by its 2 n likeliest tokens, or by more where fewer than n of all these continuations would go on.
 *   - A continuation by an end token or a stop token is a completion that was found; the n best are kept.
 *   - The n others with the highest sums are the beams from now on. The first continuation of a beam goes on in its sequence,
 *     further ones in forks of it, which take the place of the beams that end here. So the tree holds the tokens that beams
 *     have in common once.
 *
 *   beams   0 "a b c"    1 "a b d"    2 "a x y"
 *   best    "a b c e", "a b c f", "a x y z"
 *   =>      0 "a b c e"  1 "a b c f" (a fork of 0)  2 "a x y z"
 *
 * Order: by the sum of logprobs, then by the rank of the beam that is continued, then by the likelihood of its token, then by
 * the token's id. Among completions of equal scores the one that was found earlier is better. So the result does not depend on
 * which choice a beam is, nor on the steps in which beams were computed.
 *
 * End: with max_tokens, where the beams compete with the completions that were found; or earlier, if n were found and no beam
 * can reach the score of the worst of them, or simply if n were found, with early_stopping. vLLM's server always continues to
 * max_tokens; without early_stopping the result is the same.
 *
 * Memory: a request is refused unless an empty cache could hold n sequences that share the prompt only. All beams join together
 * or none does, and if one is preempted, all are (admission.h). So no beam waits in the cache for one that waits outside it,
 * and no two searches wait for each other. Every join is followed by at least one advance, since the tokens of the next beams
 * are chosen before their sequences are forked: if chunks for a fork are lacking, all beams leave, and join again with these
 * tokens. If they were alone, they join in an empty cache, without what earlier forks have left, where n sequences fit.
 *
 * Nothing is reported before the end, but the logprobs of the prompt. Then each choice reports its tokens like one that drew
 * them. Used by the engine's thread only, but for cl_beams_expand.
 */
#ifndef CHUNKLLAMA_ENGINE_BEAM_H
#define CHUNKLLAMA_ENGINE_BEAM_H

#include "chunkllama/model/sampler.h"
#include "request.h"

/* The state of a search. */
typedef struct cl_beams cl_beams;

/*
 * For a request with checked fields, in which n_end_tokens tokens of the vocabulary end a choice, not counting its stop_tokens.
 * Thousands may wait, so this allocates neither tokens nor candidates. NULL if memory is lacking.
 */
cl_beams *cl_beams_create(const cl_engine_request *params, int32_t n_end_tokens);
/*
 * Allocate them, for the same parameters, before the search begins; afterwards only text needs memory. Does nothing if they
 * exist. False if memory is lacking.
 */
bool cl_beams_start(cl_beams *b, const cl_engine_request *params);
void cl_beams_free(cl_beams **b);

/*
 * Keep the likeliest next tokens of a choice that is a beam. logits: [n_vocab] after its last token. May be called for several
 * choices at once.
 */
void cl_beams_expand(cl_sampler *s, const cl_choice *c, const float *logits);

/* Whether a choice is a beam whose next tokens are known already, while those of others are not. */
bool cl_beams_awaits(const cl_choice *c);

typedef enum cl_beams_answer {
    CL_BEAMS_AWAIT,   /* a beam lacks its next tokens */
    CL_BEAMS_ADVANCE, /* the choices have their next tokens; their sequences must follow (cl_beams_source) */
    CL_BEAMS_END,     /* the search has ended; cl_beams_report is due */
    CL_BEAMS_FAIL,    /* fewer than n tokens have a probability, for instance because logits are not numbers */
} cl_beams_answer;

/* Advance the beams of a request if the next tokens of all are known. The answer is pending until cl_beams_settle. */
cl_beams_answer cl_beams_select(cl_request *r, const cl_tokenizer *tok);
cl_beams_answer cl_beams_pending(const cl_request *r);
void cl_beams_settle(cl_request *r);

/* The choice whose sequence, without the last token of c, choice c continues: itself, or another one that continues too. */
cl_choice *cl_beams_source(const cl_choice *c);

/* The choice that is the beam of rank k, 0 to n - 1. */
cl_choice *cl_beams_ranked(const cl_request *r, int32_t k);

/* The beams leave the cache, to compute their last tokens again: what cl_beams_expand kept is forgotten. */
void cl_beams_forget(cl_request *r);

/* The number of tokens of all completions, after the end. */
int64_t cl_beams_n_tokens(const cl_request *r);

/* Report completion i by choice i, which ends, or fails for lack of memory. */
void cl_beams_report(cl_request *r, int32_t i, const cl_tokenizer *tok);

#endif
