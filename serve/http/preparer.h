/*
 * Runs tasks one after another on a thread of its own: tenants in turn, and the tasks of a tenant first come first served. It
 * does the work that may take seconds, so that the threads that serve connections never do.
 */
#ifndef SERVE_HTTP_PREPARER_H
#define SERVE_HTTP_PREPARER_H

#include <stdint.h>

typedef struct http_preparer http_preparer;

/* The first member of a struct that is to be prepared. */
typedef struct preparer_task {
    uint32_t domain; /* of its tenant */

    /* Used by the preparer. */
    uint64_t turn;
    struct preparer_task *next;
} preparer_task;

/*
 * prepare is called with each task on the preparer's thread, which does not touch the task afterwards. NULL if memory or
 * threads are lacking.
 */
http_preparer *preparer_create(void (*prepare)(preparer_task *task));

/* Wait until all tasks are prepared, then free p. NULL and pointers to NULL are ignored. */
void preparer_destroy(http_preparer **p);

/* Queue a task, from any thread. It must stay where it is until it is prepared. */
void preparer_add(http_preparer *p, preparer_task *task);

#endif
