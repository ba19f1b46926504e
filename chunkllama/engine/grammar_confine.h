/*
 * What the processes of grammars give up: after these calls such a process reads and writes its socket, computes and allocates,
 * and nothing else. None of it can be undone. Where the system has no seccomp, calls of the system stay allowed.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_CONFINE_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_CONFINE_H

#include <stddef.h>

/* Leave the signals of terminals and service managers to the process that was forked, and close all files but `fd` and 0 to 2.
 */
void cl_confine_inherited(int fd);

/*
 * The starter, once everything is loaded: it can only fork, by clone with these flags, and signal those that it has forked.
 * Files 0 to 2 lead nowhere from now on, except standard error in a build with sanitizers.
 */
void cl_confine_starter(int clone_flags);

/* A process of a grammar: its data may grow by `bytes`. It can open no file, make no process, thread or socket. */
void cl_confine_grammar(size_t bytes);

/* From now on the process may use this much CPU time, until the next call; then SIGPROF ends it. */
void cl_confine_time(double seconds);

#endif
