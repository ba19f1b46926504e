/*
 * Runs tasks one after another, first come first served, on a thread of its own: what may take seconds, so that threads that
 * serve connections never do it.
 */
#ifndef SERVER_PREPARER_H
#define SERVER_PREPARER_H

typedef struct preparer preparer;

/* The first member of what is to be prepared. */
typedef struct preparer_task {
    struct preparer_task *next; /* of the preparer */
} preparer_task;

/* prepare gets each task on the preparer's thread, which does not touch it afterwards. NULL without memory or threads. */
preparer *preparer_create(void (*prepare)(preparer_task *task));

/* Once all tasks have been prepared. NULL and pointers to NULL are ignored. */
void preparer_destroy(preparer **p);

/* Any thread. The task is to stay where it is until it has been prepared. */
void preparer_add(preparer *p, preparer_task *task);

#endif
