/*
 * A request and its choices: its parameters, its tokens so far, and the events that report them.
 *
 * A choice is the unit that the engine schedules. It is in the cache, where it has a sequence, or outside it, where it waits.
 * It may leave the cache and join again later, with all tokens that it has by then. A request ends when all its choices have
 * ended.
 *
 * Choices of one request that are in the cache and have no tokens of their own yet compute the prompt once: the first of them,
 * its leader, does it for all, and all draw their first token from the same logits. In a beam search (beam.h) the choices are
 * the beams until it ends, and nothing is drawn.
 */
#ifndef CHUNKLLAMA_ENGINE_REQUEST_H
#define CHUNKLLAMA_ENGINE_REQUEST_H

#include <stdatomic.h>

#include "chance.h"
#include "chunkllama/model/sampler.h"
#include "completion_text.h"
#include "embedding.h"
#include "engine.h"
#include "event_queue.h"
#include "reasoning.h"
#include "salts.h"

typedef struct cl_request cl_request;
typedef struct cl_tenant cl_tenant;           /* queue.h */
typedef struct cl_beams cl_beams;             /* beam.h */
typedef struct cl_draw cl_draw;               /* draw.h */
typedef struct cl_grammar cl_grammar;         /* grammar.h */
typedef struct cl_constraint cl_constraint;   /* constraint.h */
typedef struct cl_live_domain cl_live_domain; /* live.h */

enum { CL_DRAFT_MAX = 8 }; /* most tokens that are drafted for a choice in a step */

/* The sequence of a choice in the draft model's cache. */
typedef struct cl_draft_seq {
    cattn_seq seq;                 /* 0: none */
    bool declined;                 /* computing the choice's prompt would have cost more than its drafts save */
    int64_t n_tokens;              /* length of the sequence */
    int32_t n_drafted;             /* its last tokens, which were drafted and may differ from those that were drawn */
    int32_t drafted[CL_DRAFT_MAX]; /* [n_drafted] */
} cl_draft_seq;

/* Why a request ends before its choices have. */
typedef enum cl_drop { CL_DROP_NONE = 0, CL_DROP_CANCELLED, CL_DROP_LATE, CL_DROP_NOT_ADMITTED } cl_drop;

typedef struct cl_choice {
    cl_request *owner;
    int32_t index; /* in owner->choices */
    cl_engine_finish finish;
    cattn_seq seq;                     /* 0: not in the cache */
    int32_t *tokens;                   /* [n_prompt + max_tokens] owned; NULL until cl_choice_start */
    int64_t n_tokens;                  /* those of them that are known: prompt and completion */
    int64_t reserved_to;               /* the length, in tokens, up to which its sequence has chunks */
    int64_t n_joined;                  /* n_tokens when it joined last */
    int64_t n_lost;                    /* leading tokens whose K/V existed when it was preempted last */
    bool shares_none;                  /* it joins in a domain of its own, because it found no chunks otherwise */
    bool decoding;                     /* only its last token lacks K/V */
    int32_t n_drafted;                 /* drafted tokens, after the n_tokens in `tokens` and in the sequence; 0 between steps */
    bool drafts_forced;                /* the grammar forces them; otherwise they are guesses of at most CL_DRAFT_MAX tokens */
    uint8_t draft_ranks[CL_DRAFT_MAX]; /* [n_drafted] of guesses */
    cl_chance chance;                  /* of its drafts */
    cl_draft_seq model_seq;
    cl_constraint *constraint; /* in owner->constraints; NULL: no grammar */
    cl_text text;
    cl_reasoning reasoning; /* after n_tokens */
    double first_token_at;  /* cl_now() when its first token was added */
    bool has_line_break;    /* in its text; noted with generation_s alone */
} cl_choice;

struct cl_request {
    uint64_t id;
    cl_engine_request params;       /* its pointers point to `copies` */
    void *copies;                   /* params_copy.h; owned */
    cl_request *next;               /* in the list that holds it */
    cl_live_domain *live;           /* counts it among its domain's requests; borrowed; NULL: no engine holds it */
    cl_sampler_rules rules;         /* borrow from params, but for ends, which it owns */
    cl_salt *salt;                  /* of params.salt, used until the request has ended; borrowed; NULL: none */
    cl_tenant *tenant;              /* whose request it is; borrowed */
    uint32_t account;               /* for which its K/V count while they are retained (queue.h) */
    double submitted, admitted_at;  /* cl_now() then; admitted_at only once `admitted` */
    int32_t n_sharing;              /* as in cl_engine_event */
    double due;                     /* the time, in seconds, that decides its rank */
    double deadline;                /* the time at which it ends; INFINITY: none */
    double queue_deadline;          /* the time at which it ends if it was not admitted; INFINITY: none */
    size_t queue_index;             /* in the queue, while some of its choices wait */
    atomic_bool cancelled;          /* set by any thread */
    atomic_bool unpinned;           /* the same: its pin, if it has one, is to end */
    bool ended;                     /* all that is left is its pin, if it has one */
    cattn_seq pin;                  /* keeps tokens of its prompt in the cache, also after its end; 0: none */
    int64_t n_pinned;               /* these tokens */
    bool pin_tried;                 /* params.pin_tokens were to be pinned; they are unless pin_bytes lacked the bytes */
    cl_choice *choices;             /* [params.n] owned */
    cl_embedding *embedding;        /* of the prompt, with params.pooling; owned; NULL: none */
    cl_beams *beams;                /* of a beam search, whose beams the choices are; owned; NULL: none */
    cl_grammar *grammar;            /* that the choices match; owned; NULL: none */
    cl_constraint *constraints;     /* [params.n] of the choices, with a grammar; owned */
    int32_t n_overtaken;            /* choices of later requests that were admitted before it (overtake.h) */
    int32_t n_unfinished;           /* choices that have not ended */
    int32_t n_in_cache;             /* those of them that are in the cache */
    bool admitted;                  /* one of its choices has been in the cache */
    bool is_counted;                /* in the statistics of prompts */
    bool reported;                  /* an event has said how many of its tokens were cached */
    cl_drop dropped;                /* why it has left the queue and the cache, although its end was not reported yet */
    uint32_t own_domain;            /* in which its choices join, if it computes its whole prompt; 0: none yet */
    int64_t n_scored;               /* with prompt_logprobs: the position of the next token of the prompt to report */
    int64_t n_cached, n_completion; /* as in cl_engine_event */
    int64_t n_computed;             /* tokens of its prompt; those that are computed again do not count */
    cl_event_queue *events;         /* without on_event; borrowed */
    cl_queued_event *reserve;       /* of its events, as event_queue.h says; owned */
    bool lost_event;                /* there was no memory for one; the others are left out, but for the last of each choice */
};

/* The number of choices that wait. */
static inline int32_t cl_request_n_waiting(const cl_request *r) { return r->n_unfinished - r->n_in_cache; }
/* Whether its pin is to end, or not to begin. */
static inline bool cl_request_is_unpinned(const cl_request *r) {
    return atomic_load_explicit(&r->unpinned, memory_order_relaxed);
}

/* The domain of its K/V and drafts, unless it has a domain of its own. */
static inline uint32_t cl_request_kv_domain(const cl_request *r) { return r->salt ? r->salt->kv_domain : r->params.domain; }

/*
 * The tokens of its sequences, the first ones, that it may share with other requests. The others are computed whatever the
 * cache holds: the logits of their rows are needed, those from the one before the first token with a logprob on, or their
 * states.
 */
static inline int64_t cl_request_n_shareable(const cl_request *r) {
    const cl_engine_request *p = &r->params;
    if (p->pooling == CL_ENGINE_POOL_MEAN) return 0;
    if (!p->prompt_logprobs || p->prompt_logprobs_from >= p->n_prompt) return INT64_MAX;
    return p->prompt_logprobs_from > 0 ? p->prompt_logprobs_from - 1 : 0;
}

/* The leading tokens that it may share of those that a search of the cache has matched. */
static inline int64_t cl_request_n_found(const cl_request *r, const cattn_join_result *match) {
    const int64_t most = cl_request_n_shareable(r);
    return match->n_matched < most ? match->n_matched : most;
}

/* Whether the whole prompt is computed, whatever the cache holds, and shared with nobody. */
static inline bool cl_request_computes_all(const cl_request *r) { return cl_request_n_shareable(r) == 0; }

/* The number of choices that join the cache, or leave it before they end, together: beams do. */
static inline int32_t cl_request_n_together(const cl_request *r) { return r->beams ? r->params.n : 1; }
/* Whether a request is in the queue: a choice waits. While beams advance, some have no sequence and do not wait. */
static inline bool cl_request_is_queued(const cl_request *r) {
    return !r->dropped && (r->beams ? r->n_in_cache == 0 : cl_request_n_waiting(r) > 0);
}
/* The first choice that waits; there must be one. */
cl_choice *cl_request_first_waiting(const cl_request *r);
/* The first choice in the cache that has no tokens of its own, and does not sit out (constraint.h); NULL: none. */
cl_choice *cl_request_leader(const cl_request *r);

/*
 * The time that decides the rank of a request submitted at `submitted`: a unit of priority is worth 10 s of waiting. So by rank
 * a request is preceded, of those that came later, only by those submitted within 10 s times (its priority - theirs) after it.
 */
double cl_request_due(double submitted, int32_t priority);

/* The order in which requests of a tenant are served: by due, then by id; a total order that never changes. */
bool cl_request_is_before(const cl_request *a, const cl_request *b);
/* The rank of choices: the order of their requests, then of their indices. */
bool cl_choice_is_before(const cl_choice *a, const cl_choice *b);

/* A list, first in, first out. */
typedef struct cl_request_list {
    cl_request *first, *last;
    int64_t n;
} cl_request_list;

/* The engine's only clock, in seconds from an arbitrary start. Tests replace it. */
double cl_now(void);

void cl_request_list_add(cl_request_list *list, cl_request *r);
/* Remove and return the first one. */
cl_request *cl_request_list_take(cl_request_list *list);

/* Copy a request whose fields have been checked, without its grammar. NULL if memory is lacking. */
cl_request *cl_request_create(const cl_engine_request *params);
/* With min_tokens: list the tokens that end its choices, given those of the vocabulary that do. False if memory is lacking. */
bool cl_request_list_ends(cl_request *r, const int32_t *end_tokens, int32_t n_end_tokens);
/*
 * Give a new request its compiled grammar, which it owns from then on, also after a failure. False if memory is
 * lacking.
 */
bool cl_request_set_grammar(cl_request *r, cl_grammar *grammar);
/* Let the events of a new request without on_event wait in a queue, which is borrowed. False if memory is lacking. */
bool cl_request_set_events(cl_request *r, cl_event_queue *queue);
void cl_request_free(cl_request *r);

/*
 * Allocate a choice's tokens, and the states or beams of its request, so that afterwards only text needs memory. Does nothing
 * if it has them. False if memory is lacking.
 */
bool cl_choice_start(cl_choice *c);

/* The tokens before `position` that penalties count. */
static inline cl_sampler_history cl_choice_history(const cl_choice *c, int64_t position) {
    const cl_engine_request *params = &c->owner->params;
    return cl_sampler_history_of(c->tokens, params->n_prompt, position, params->penalty_window);
}

/* Whether a token ends a choice of the request. */
bool cl_request_is_end(const cl_request *r, const cl_tokenizer *tok, int32_t token);

/* Add a choice's next token: reports it, and ends the choice if it is the last. */
void cl_choice_add(cl_choice *c, const cl_tokenizer *tok, const cl_draw *d);

/* Whether the time of a choice with generation_s has passed, now that a token was added; called after each one. */
bool cl_choice_is_late(cl_choice *c, double now);

/*
 * Whether a choice would end with the last of its next n tokens, which follow the known ones in `tokens`, for another reason
 * than its length. The tokens before it are known not to end the choice.
 */
bool cl_choice_would_end(cl_choice *c, const cl_tokenizer *tok, int32_t n);

/* Report a token of the prompt. */
void cl_choice_report_prompt(cl_choice *c, const cl_draw *d);

/* End a choice that runs: reports why, and the text that was held back. error: with CL_ENGINE_ERROR; otherwise NULL. */
void cl_choice_end(cl_choice *c, cl_engine_finish finish, const cl_error *error);

#endif
