/*
 * The starter: a process that is forked once, loads the grammar engine, and then forks a process for each grammar, which shares
 * what was loaded. It has one thread and does nothing else, so a fork takes about a millisecond, whatever the engine's process
 * does or may do; and what a grammar does to its process reaches no other one.
 *
 * The starter ends with the engine or the engine's process, whatever other processes that one has forked, and the processes of
 * grammars end with the starter.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_STARTER_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_STARTER_H

#include "grammar_serve.h"

typedef struct cl_starter cl_starter; /* any number of threads */

/*
 * Fork the starter, which loads a library by open(path, tok, n_vocab). limits: of the processes that it forks. The errors are
 * those of `open`, and CL_ERR_NOMEM.
 */
cl_status cl_starter_create(cl_grammar_open_fn *open, const char *path, const cl_tokenizer *tok, int32_t n_vocab,
                            const cl_process_limits *limits, cl_starter **starter, cl_error *error);
/* Ends it, and all processes that it has forked. NULL and pointers to NULL are ignored. */
void cl_starter_free(cl_starter **starter);

enum { CL_STARTER_MAX = 192 }; /* processes at a time */

typedef struct cl_started {
    int32_t index; /* of the process, for cl_starter_end */
    int fd;        /* the socket to it, which does not block; owned */
} cl_started;

/* Fork a process that runs cl_grammar_serve. CL_ERR_NOMEM: it cannot be forked, or the starter has ended. */
cl_status cl_starter_fork(cl_starter *starter, cl_started *started, cl_error *error);

/* Fill *error: the starter has ended. Returns its code. */
cl_status cl_starter_fail(cl_error *error);

/* Kill a process, unless it has ended, and close its socket. Returns how it ended, as waitpid does; -1: unknown. */
int cl_starter_end(cl_starter *starter, cl_started *started);

#endif
