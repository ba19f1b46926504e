/* The state of a generation, and what its source files call in each other. generation.h describes threads and locks. */
#ifndef SERVE_HTTP_GENERATION_STATE_H
#define SERVE_HTTP_GENERATION_STATE_H

#include "generation.h"

/* A copy of an engine event. Its pointers point into the same allocation. */
typedef struct queued_event {
    struct queued_event *next;
    size_t prompt; /* index of the request's prompt */
    double at;     /* when it came, by clock_seconds() */
    cl_engine_event event;
} queued_event;

/* What the engine has reported of all prompts, for the log. Times are those of clock_seconds(); 0: not yet. */
typedef struct generation_usage {
    int64_t n_prompt, n_cached; /* tokens of prompts of which something was reported */
    int64_t n_tokens;           /* generated */
    int32_t n_sharing;          /* the most of a prompt: see cl_engine_event */
    double first_at, last_at;   /* of the tokens */
    cl_engine_finish finish;    /* of the choice that ended last; CL_ENGINE_RUNNING: none has */
} generation_usage;

struct generation {
    /* Constant after creation. The pointers are borrowed. */
    preparer_task task; /* its domain is that of the requests */
    server *srv;
    struct MHD_Connection *connection;
    int fd; /* the connection's socket */
    const generation_kind *kind;
    const openai_dialect *dialect;
    double arrived_at;                          /* clock_seconds() */
    char request_id[OPENAI_MAX_REQUEST_ID + 1]; /* the header X-Request-Id, which precedes the body's request_id; "": none */

    /* Used by the preparer's thread until `prepared`, and by the connection's thread afterwards. */
    char *body; /* [body_size], freed once it is parsed */
    size_t body_size;
    openai_request request;
    openai_result result;
    openai_error error;   /* why the request was refused */
    openai_writer answer; /* without prompts: the whole answer */
    quota_state quota;    /* of the tenant, with this request */
    void *own;            /* what the kind needs beside this, if anything; freed with kind->release */

    /* Allocated by the preparer's thread before the first prompt is submitted. */
    openai_job *jobs;    /* [request.n_prompts] */
    double submitted_at; /* clock_seconds() when they were passed to the engine */

    /* Allocated likewise, then used by the engine's thread only. */
    double *token_at;  /* [request.n_prompts * n] clock_seconds() of each choice's last token; 0: none yet */
    int64_t *n_tokens; /* [request.n_prompts * n] that each choice has generated */
    double *first_at;  /* [request.n_prompts] that of the first token of any of the prompt's choices */
    bool pin_listed;   /* the list of pins has, or had, what the prompt has pinned */

    /* Guarded by srv->lock. */
    size_t n_owners; /* references, as generation.h describes them */
    generation *previous, *next;

    /* Guarded by `lock`. */
    pthread_mutex_t lock;
    queued_event *events, **events_end;  /* events that the connection has not processed yet, oldest first */
    size_t n_jobs;                       /* prompts that were submitted, or looks at the cache; final once `prepared` */
    size_t n_ended;                      /* prompts whose last event came, and looks that ended */
    bool (*awaited)(const generation *); /* the condition that the suspended connection waits for; NULL: not suspended */
    generation_usage usage;
    bool prepared; /* the prompts were submitted, or the request was refused */
    bool refused;
    bool abandoned;    /* no client waits for the answer any more */
    bool lost_event;   /* memory was lacking for an event, so the answer cannot be whole */
    bool stopped;      /* the server stops */
    bool told_of_stop; /* the answer is, or ends with, the error that says so */

    /* A stream. Of the connection's thread. */
    openai_writer out;  /* the latest events */
    const char *unsent; /* [n_unsent] their bytes that the client has not received yet, in `out` or constant */
    size_t n_unsent;
    bool out_ended; /* nothing will be added */
};

/* ---- generation.c ---- */

void generation_add_owners(generation *g, size_t n);

/* Drop n references, n >= 0, and free g with the last one. Acquires srv->lock. */
void generation_drop_owners(generation *g, size_t n);

/* With g->lock held: resume the connection if the condition that it waits for is met, or never will be. */
void generation_wake_if_due(generation *g);

/* Cancel all prompts that were submitted; those that have ended are unknown to the engine and ignored. */
void generation_cancel_jobs(generation *g);

/* ---- generation_mark.c ---- */

/* The request has been read: it pins nothing if what it marks is pinned already. On the preparer's thread. */
void generation_mark_prepare(generation *g);

/* Add what a prompt has pinned to the list, in place of what that makes useless. On the engine's thread. */
void generation_mark_event(generation *g, const cl_engine_event *event);

/* ---- generation_events.c ---- */

/* The engine's callback for each event of a submitted prompt; job is an openai_job, its owner the generation. */
void generation_on_event(void *job, const cl_engine_event *event);

/* Take all events out of the queue, oldest first; free them with generation_free_events. Acquires g->lock. */
queued_event *generation_take_events(generation *g);
void generation_free_events(queued_event *list);

#endif
