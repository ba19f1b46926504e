/* The fields of a generation, and the functions that its source files share. generation.h describes threads and locks. */
#ifndef SERVE_HTTP_GENERATION_STATE_H
#define SERVE_HTTP_GENERATION_STATE_H

#include "generation.h"

/*
 * How far a generation is. It is prepared once, and is then RUNNING or REFUSED. While it is PREPARING or RUNNING, the first of
 * FAILED, STOPPED and ABANDONED ends it. It stays REFUSED, or in the state that ended it.
 */
typedef enum generation_state {
    GENERATION_PREPARING, /* the preparer has the request, or will have it */
    GENERATION_RUNNING,   /* its prompts were submitted, or it has none and is answered */
    GENERATION_REFUSED,   /* `error` says why */
    GENERATION_FAILED,    /* memory was lacking for an event, so the answer cannot be whole */
    GENERATION_STOPPED,   /* the answer is, or ends with, the error that the server stops */
    GENERATION_ABANDONED, /* no client waits for the answer any more */
} generation_state;

/* A copy of an engine event. Its pointers point into the same allocation. */
typedef struct generation_event {
    struct generation_event *next;
    size_t prompt; /* index of the request's prompt */
    double at;     /* when it came, by clock_seconds() */
    cl_engine_event event;
} generation_event;

/* What the engine has reported of all prompts, for the log. Times are those of clock_seconds(); 0: not yet. */
typedef struct generation_usage {
    int64_t n_prompt, n_cached; /* tokens of prompts of which something was reported */
    int64_t n_tokens;           /* generated */
    int32_t n_sharing;          /* the most of a prompt: see cl_engine_event */
    double first_at, last_at;   /* of the tokens */
    cl_engine_finish finish;    /* of the choice that ended last; CL_ENGINE_RUNNING: none has */
} generation_usage;

struct http_generation {
    /* Constant after creation. The pointers are borrowed. */
    preparer_task task; /* its domain is that of the requests */
    http_server *srv;
    struct MHD_Connection *connection;
    int fd; /* the connection's socket */
    const generation_kind *kind;
    const openai_dialect *dialect;
    double arrived_at;                          /* clock_seconds() */
    char request_id[OPENAI_MAX_REQUEST_ID + 1]; /* the exchange's */
    bool is_named;                              /* it is the client's, and precedes the body's request_id */

    /* Used by the preparer's thread while it prepares the request, and by the connection's thread afterwards. */
    char *body; /* [body_size], freed once it is parsed */
    size_t body_size;
    openai_request request;
    openai_result result;
    openai_error error;   /* why the request was refused */
    openai_writer answer; /* without prompts: the whole answer */
    double prepared_s;    /* for which it has been prepared so far, beside waiting for its turns */
    quota_state quota;    /* of the tenant, with this request */
    void *own;            /* the kind's own data, if any; freed with kind->release */
    size_t counted;       /* bytes of the body, then of the request, that are counted in srv->memory */

    /* Allocated by the preparer's thread before the first prompt is submitted. */
    openai_submitted *submitted; /* [request.n_prompts] */
    double submitted_at;         /* clock_seconds() when they were passed to the engine */

    /* Allocated likewise, then used by the engine's thread only. */
    double *token_at;  /* [request.n_prompts * n] clock_seconds() of each choice's last token; 0: none yet */
    int64_t *n_tokens; /* [request.n_prompts * n] that each choice has generated */
    double *first_at;  /* [request.n_prompts] that of the first token of any of the prompt's choices */
    bool pin_listed;   /* the list of pins has, or had, the prompt's pin */

    /* Guarded by srv->lock. */
    size_t n_owners; /* references, as generation.h describes them */
    http_generation *previous, *next;

    /* Guarded by `lock`. */
    pthread_mutex_t lock;
    generation_event *events, **events_end;   /* events that the connection has not processed yet, oldest first */
    size_t n_submitted;                       /* prompts that were submitted, or looks at the cache; 0 until all were */
    size_t n_ended;                           /* prompts whose last event came, and looks that ended */
    bool (*awaited)(const http_generation *); /* the condition that the suspended connection waits for; NULL: not suspended */
    generation_usage usage;
    generation_state state; /* generation_become changes it */

    /* A stream. Of the connection's thread. */
    openai_writer out;  /* the latest events */
    const char *unsent; /* [n_unsent] their bytes that the client has not received yet, in `out` or constant */
    size_t n_unsent;
    bool out_ended; /* nothing will be added */
};

/* ---- generation.c ---- */

/* Whether a generation may go from one state to another. */
bool generation_may_become(generation_state from, generation_state to);

/* With g->lock held: go to another state, unless g must keep the one that it has. */
void generation_become(http_generation *g, generation_state to);

/* Drop n references, n >= 0, and free g with the last one. Acquires srv->lock. */
void generation_drop_owners(http_generation *g, size_t n);

/* With g->lock held: resume the connection if the event that it waits for has come, or never will. */
void generation_wake_if_due(http_generation *g);

/* Allocate g->own, zeroed; NULL with g->error filled: memory is lacking. For `prepare`. */
void *generation_allocate_own(http_generation *g, size_t size);

/* ---- generation_answer.c ---- */

/* The engine's callback for each event of a prompt; submitted is its openai_submitted, whose owner is the generation. */
void generation_on_event(void *submitted, const cl_engine_event *event);

void generation_free_events(generation_event *list);

#endif
