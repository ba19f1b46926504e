/* Copies of the engine's events on their way from its thread to a connection's. The caller locks. */
#ifndef SERVER_EVENT_QUEUE_H
#define SERVER_EVENT_QUEUE_H

#include "engine/engine.h"

typedef struct queued_event {
    struct queued_event *next;
    size_t prompt;         /* index of the request's prompt */
    cl_engine_event event; /* its pointers lead into this copy */
} queued_event;

/* Zero-initialise. */
typedef struct event_queue {
    queued_event *first, **end;
} event_queue;

/* A copy for event_queue_add; NULL without memory. */
queued_event *event_copy(size_t prompt, const cl_engine_event *event);

void event_queue_add(event_queue *queue, queued_event *event);

/* All events, oldest first, for event_list_free; the queue is empty afterwards. */
queued_event *event_queue_take(event_queue *queue);
void event_list_free(queued_event *list);

#endif
