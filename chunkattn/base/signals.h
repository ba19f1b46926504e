/*
 * Threads of libraries and servers: they handle no signals, since signals are for the program's own threads, and have names, by
 * which `top -H` and debuggers show them.
 */
#ifndef CHUNKATTN_BASE_SIGNALS_H
#define CHUNKATTN_BASE_SIGNALS_H

#include <signal.h>
#include <sys/prctl.h>

/* Block all signals of the calling thread, as threads that it starts inherit it. *before: for signals_restore. */
static inline void signals_block_all(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

/* Let the calling thread have its signals again. */
static inline void signals_restore(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

/* Name the calling thread; of the name, the first 15 bytes count. */
static inline void thread_set_name(const char *name) { prctl(PR_SET_NAME, name); }

#endif
