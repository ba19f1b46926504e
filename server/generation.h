/*
 * A completion under way: from the request's body to the last byte of the answer.
 *
 * The preparer's thread reads the body and submits its prompts. The engine's thread puts events into a queue and wakes the
 * connection; the connection's thread, one of the daemon's, takes them out and writes. With nothing to write the connection is
 * suspended. A client that hangs up, seen by the watch or by the daemon, cancels what the engine still has.
 */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include "http.h"

typedef struct generation generation;

/* Take x's body over, and answer later: its turn to be prepared comes after those that came before. */
enum MHD_Result generation_begin(exchange *x, openai_endpoint endpoint);

/* x's connection was suspended and has been woken. */
enum MHD_Result generation_resumed(exchange *x);

/* The connection is done with it; what the engine still computes for it is cancelled. */
void generation_close(generation *g);

/* Read the body and submit its prompts. For preparer_create. */
void generation_prepare(preparer_task *task);

/* The client hung up. For watch_create. */
void generation_gone(void *g);

/* The server stops: end all generations with an error, wait until they are freed, at most so many seconds; < 0: no limit. */
void generation_stop_all(server *s);
void generation_wait_all(server *s, double seconds);

#endif
