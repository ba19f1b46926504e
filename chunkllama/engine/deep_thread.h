/*
 * A thread with a large stack, which runs calls for other threads, one at a time: for code that recurses as deep as its input
 * is nested. The memory that a call has used of the stack is returned to the system.
 */
#ifndef CHUNKLLAMA_ENGINE_DEEP_THREAD_H
#define CHUNKLLAMA_ENGINE_DEEP_THREAD_H

typedef struct cl_deep_thread cl_deep_thread;

/* NULL if memory or threads are lacking. */
cl_deep_thread *cl_deep_thread_create(void);
/* No call may run. NULL and pointers to NULL are ignored. */
void cl_deep_thread_free(cl_deep_thread **t);

/*
 * Call run(arg) on the thread, after the calls of others, and wait until it has returned. If it has not after `limit` seconds,
 * late(arg) is called once on the thread that waits, to make it return soon.
 */
void cl_deep_thread_call(cl_deep_thread *t, void (*run)(void *arg), void *arg, double limit, void (*late)(void *arg));

#endif
