/*
 * Events that wait for cl_engine_poll: copies of what the engine reports about requests without on_event.
 *
 * The engine's thread adds events, one thread at a time takes them. An event's copy lives until the next call that takes some.
 * A request keeps memory for the last event of each choice (cl_event_reserve), so that these are never lost: if there is no
 * memory for a copy, what the request reports until then is left out, and its choices end with CL_ERR_NOMEM.
 */
#ifndef CHUNKLLAMA_ENGINE_EVENT_QUEUE_H
#define CHUNKLLAMA_ENGINE_EVENT_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "chunkllama.h"

typedef struct cl_queued_event cl_queued_event;

typedef struct cl_event_list {
    cl_queued_event *first, *last;
} cl_event_list;

typedef struct cl_event_queue {
    pthread_mutex_t mutex; /* guards what follows */
    cl_event_list waiting;
    cl_event_list taken; /* by the last call of cl_event_queue_take */
    int fd;              /* readable while events wait; -1: nobody has wanted it yet */
    atomic_bool lost;    /* there was no memory for an event, so its request is to be cancelled */
} cl_event_queue;

void cl_event_queue_init(cl_event_queue *queue);
/* Frees the events too, and closes the descriptor. */
void cl_event_queue_free(cl_event_queue *queue);

/* Memory for n last events. NULL if memory is lacking. */
cl_queued_event *cl_event_reserve(int32_t n);
void cl_event_reserve_free(cl_queued_event **reserve);

/* Add a copy of an event. False if memory is lacking. */
bool cl_event_queue_add(cl_event_queue *queue, const cl_engine_event *event);

/* Add the last event of a choice that has failed for lack of memory, with memory from *reserve. */
void cl_event_queue_add_failure(cl_event_queue *queue, const cl_engine_event *event, cl_queued_event **reserve);

/* Free the events that were taken last, and take at most `most` others, oldest first. Returns their number. */
size_t cl_event_queue_take(cl_event_queue *queue, const cl_engine_event **events, size_t most);

/* The descriptor, which is the queue's; -1 if the system has none left. */
int cl_event_queue_fd(cl_event_queue *queue);

#endif
