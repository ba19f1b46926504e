/* Threads that handle no signals: those of libraries and servers, since signals are for the program's own threads. */
#ifndef CHUNKATTN_BASE_SIGNALS_H
#define CHUNKATTN_BASE_SIGNALS_H

#include <signal.h>

/* Block all signals of the calling thread, as threads that it starts inherit it. *before: for signals_restore. */
static inline void signals_block_all(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

/* Let the calling thread have its signals again. */
static inline void signals_restore(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

#endif
