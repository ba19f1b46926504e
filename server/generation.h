/*
 * A generation: one completion request, from its body to the last byte of its answer.
 *
 * Threads
 *
 * The acceptor's thread (acceptor.h) passes connections to the daemon. Five kinds of threads work on generations:
 *
 * - The connection's thread is one of the config.n_threads threads of libmicrohttpd's daemon; a connection always stays on the
 *   same one. It receives the body (http.c), creates the generation (generation.c), and writes the answer
 *   (generation_answer.c). While there is nothing to write it suspends the connection, so it never blocks.
 * - The preparer's thread (preparer.h) parses the bodies and submits their prompts to the engine, one request after another, in
 *   the order of arrival, tenants in turn (generation_prepare.c).
 * - The engine's thread copies each event into the generation's queue and resumes the connection if it waits for it
 *   (generation_events.c).
 * - The watch's thread (watch.h) notices clients that hang up, and abandons their generations (generation.c).
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
 *   1. server.lock or the watch's lock (no thread holds both),
 *   2. generation.lock,
 *   3. the locks inside libmicrohttpd's functions that suspend and resume connections.
 *
 * The locks inside the engine, the preparer, the acceptor, the metrics and the list of pins come last: while those hold them,
 * they call nothing of the server. The engine calls on_event without holding a lock.
 */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include "http.h"

typedef struct generation generation;

/*
 * Create x's generation from its body, which is taken over, and queue it for the preparer. The answer follows later, on the
 * same connection, in x's dialect. On the connection's thread.
 */
enum MHD_Result generation_begin(exchange *x);

/* The same for a request that pins the prompt of its body (openai_pin_parse), of the tenant that the body names. */
enum MHD_Result generation_begin_pin(exchange *x);

/* Begin the answer if it is available, else wait on. Called when x's connection was resumed, on its thread. */
enum MHD_Result generation_resumed(exchange *x);

/* Drop the connection's reference; cancels what the engine still computes for it. On the connection's thread. */
void generation_close(generation *g);

/* Parse the body and submit its prompts. The callback of preparer_create. */
void generation_prepare(preparer_task *task);

/* Abandon a generation because its client hung up. The callback of watch_create; g is a generation. */
void generation_hung_up(void *g);

/* End all generations with an error, and refuse new ones, because the server stops. */
void generation_stop_all(server *s);

/* Wait until all generations are freed, for at most `seconds`; < 0: without a limit. */
void generation_wait_all(server *s, double seconds);

/* Fill *error with the error that memory is lacking, and return it. */
const openai_error *generation_memory_error(openai_error *error);

#endif
