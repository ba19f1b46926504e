/*
 * A request of a file on its way through an engine. The server's batches and `chunkllama batch` compute their lines with it.
 *
 * Errands belong to one thread, which makes, submits and frees them. The engine's thread adds the events to their results, and
 * wakes the errands' thread when all events of one have come.
 */
#ifndef SERVE_BATCHES_ERRAND_H
#define SERVE_BATCHES_ERRAND_H

#include <pthread.h>

#include "serve/protocol/batch_line.h"

/* What the errands of a thread have in common. */
typedef struct batch_gate {
    cl_engine *engine;             /* borrowed */
    const openai_context *context; /* borrowed */
    bool waits;                    /* a request refused for lack of capacity may be submitted again; otherwise it fails */
    int32_t n_choices;             /* in the engine: of all errands that are RUNNING or REFUSED */
    pthread_mutex_t lock;          /* guards the fields below, and the errands' n_open */
    pthread_cond_t changed;
    bool woken;
} batch_gate;

void gate_init(batch_gate *g);
void gate_destroy(batch_gate *g);

/* Let gate_wait return: now, or at once when it is called. From any thread. */
void gate_wake(batch_gate *g);

/* Wait until gate_wake, or the end of a request, or for `seconds`; < 0: without a limit. */
void gate_wait(batch_gate *g, double seconds);

/* How far an errand is. */
typedef enum errand_state {
    ERRAND_READY,   /* to be submitted, or the rest of its prompts */
    ERRAND_RUNNING, /* submitted; done once n_open is 0 */
    ERRAND_DONE,    /* its line has an answer or an error, unless it was cut */
} errand_state;

typedef struct batch_errand {
    struct batch_errand *next; /* in the owner's list */
    size_t index;              /* the owner's */
    batch_gate *gate;          /* borrowed */
    batch_line line;
    errand_state state;
    openai_submitted *prompts; /* [line.request.n_prompts] */
    size_t n_submitted;        /* of these */
    size_t n_open;             /* prompts whose last event has not come */
    bool cut;                  /* it was cancelled before it had ended */
    size_t size;               /* bytes of its line */
} batch_errand;

/* An errand of a line [size], which is DONE if the line is wrong. tenants: as of batch_line_parse. NULL: memory is lacking. */
batch_errand *errand_create(batch_gate *g, int64_t number, const char *text, size_t size, openai_tenants *tenants);

/* The errand must not be in the engine, unless that is destroyed. */
void errand_free(batch_errand *e);

/* The choices of all of its prompts. */
int32_t errand_choices(const batch_errand *e);

/*
 * Submit the prompts of a READY errand that are not in the engine yet. False: the engine lacks capacity for all of them, or
 * memory is lacking, and the gate waits for that; the errand is still READY.
 */
bool errand_submit(batch_errand *e);

/* Bring the state up to date. */
void errand_update(batch_errand *e);

/* Give up the errand's request: cancel its prompts in the engine. */
void errand_cancel(batch_errand *e);

#endif
