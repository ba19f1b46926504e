/*
 * A generation: one request that takes time, from its body to the last byte of its answer. Most of them generate text.
 *
 * Threads
 *
 * Seven kinds of threads work on generations:
 *
 * - The connection's thread is one of the config.n_threads threads of libmicrohttpd's daemon; a connection always stays on the
 *   same one. It receives the body (http.c), creates the generation (generation.c), and writes the answer
 *   (generation_answer.c). While there is nothing to write it suspends the connection, so it never blocks.
 * - The preparer's thread (preparer.h) parses the bodies and submits their prompts to the engine, one request after another, in
 *   the order of arrival, tenants in turn (generation.c). Requests that need no engine it answers itself, since text may take
 *   long to tokenize. The thread for files does the same for requests that write to the disk, which may wait for it
 *   (batches.h). The thread for grammars submits the prompts that have one, since that may take seconds to compile.
 * - The engine's thread copies each event into the generation's queue and resumes the connection if it waits for it
 *   (generation_answer.c).
 * - The acceptor's thread (acceptor.h) passes connections to the daemon, notices clients that hang up, and abandons their
 *   generations (generation.c).
 * - The program's thread starts and stops the server (server.c).
 *
 * Ownership
 *
 * A generation is referenced by its connection, by the preparer until it has submitted the prompts, and by each submitted
 * prompt until its last event. Whichever of them drops the last reference frees the generation. So a connection may close, and
 * a handler return, while the engine still computes; the engine's work is then cancelled.
 *
 * Locks
 *
 * This is the server's only statement of the lock order. A thread that holds several locks has acquired them in this order:
 *
 *   1. server.lock or the acceptor's lock (no thread holds both),
 *   2. generation.lock,
 *   3. the locks inside libmicrohttpd's functions that suspend and resume connections.
 *
 * The locks inside the engine, the preparers, the store of files, the worker of batches, the metrics, the shares and the list
 * of pins come last: while those hold them, they call nothing of the server. The engine calls on_event without holding a lock.
 */
#ifndef SERVE_HTTP_GENERATION_H
#define SERVE_HTTP_GENERATION_H

#include "http.h"

typedef struct http_generation http_generation;

/* What the requests of a route ask for. The functions are those of one source file each; NULL: there is nothing to do. */
typedef struct generation_kind {
    bool on_disk; /* it waits for the disk, so a thread of its own prepares it instead of the preparer's (batches.h) */
    bool no_body; /* the request's body is not JSON, and `prepare` gets NULL */
    void (*release)(void *own); /* frees g->own, on any thread; NULL: free() */
    /*
     * Read the body: either into g->request, whose prompts the engine then computes, or, without any prompts, write the whole
     * answer into g->answer. False with g->error filled: the request is refused. On the preparer's thread; NULL: the body does
     * not count.
     */
    bool (*prepare)(http_generation *g, const json_t *body);
    /* What `prepare` calls where a function of serve/protocol/ writes the whole answer from the body. */
    bool (*answer)(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);
    /*
     * Write the answer, unless it is a stream, once the engine has computed all prompts. NULL: g->answer has it. False: memory
     * is lacking. On the connection's thread.
     */
    bool (*write)(http_generation *g, openai_writer *w);
    /*
     * Instead of prompts to compute: look at the engine's cache once, on the engine's thread, which waits meanwhile. Then
     * reply, on the connection's thread.
     */
    void (*look)(http_generation *g, const cattn_cache *cache);
    enum MHD_Result (*reply)(http_exchange *x, http_generation *g);
    /* Undo the side effects of the prompts: no client reads the answer. On any thread, more than once. */
    void (*undo)(http_generation *g);
} generation_kind;

/* What the engine computes: text or embeddings, in the dialect of the route. */
extern const generation_kind generation_computed;
/* Those that need no engine. Those of the cache are in cache.h, and those of files and batches in batches.h. */
extern const generation_kind generation_tokenize, generation_detokenize, generation_render_chat, generation_render_completion,
    generation_count_tokens, generation_apply_template, generation_show;

/*
 * Create x's generation from its body, which is taken over, and queue it for the preparer. The answer follows later, on the
 * same connection, in x's dialect. On the connection's thread.
 */
enum MHD_Result generation_begin(http_exchange *x, const generation_kind *kind);

/* The same with g->own, the request's data beside its body, which is taken over; NULL: memory was lacking for it. */
enum MHD_Result generation_begin_with(http_exchange *x, const generation_kind *kind, void *own);

/* Begin the answer if it is available, else wait on. Called when x's connection was resumed, on its thread. */
enum MHD_Result generation_resumed(http_exchange *x);

/* Drop the connection's reference; cancels its prompts that the engine still computes. On the connection's thread. */
void generation_close(http_generation *g);

/*
 * Parse the body and submit its prompts, unless they have a grammar: then the generation is a task of the server's `grammars`,
 * which compiles the grammar and submits the prompts. The callbacks of preparer_create.
 */
void generation_prepare(preparer_task *task);
void generation_compile(preparer_task *task);

/* Stop all work for the answer of a generation whose client has hung up. The callback of the acceptor. */
void generation_abandon(void *generation);

/* End all generations with an error, and refuse new ones, because the server stops. */
void generation_stop_all(http_server *s);

/* Wait until all generations are freed, for at most `seconds`; < 0: without a limit. */
void generation_wait_all(http_server *s, double seconds);

/* Return memory to the system if requests that have ended held much. On the program's thread, every few seconds. */
void generation_return_memory(http_server *s);

/* Fill *error with the error that memory is lacking, or that the server stops, and return it. */
const openai_error *generation_memory_error(openai_error *error);
const openai_error *generation_stopped_error(openai_error *error);

/* The same for the error that a tenant holds its share of config.request_memory. */
const openai_error *generation_share_error(const http_server *s, openai_error *error);

#endif
