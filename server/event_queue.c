/* Copies of the engine's events. */
#include "event_queue.h"

#include <stdlib.h>
#include <string.h>

queued_event *event_copy(size_t prompt, const cl_engine_event *event) {
    const size_t top_bytes = (size_t)event->n_top * sizeof *event->top;
    const size_t error_bytes = event->error ? sizeof *event->error : 0;
    /* One block: the event, then what it points to, by falling alignment. */
    queued_event *copy = malloc(sizeof *copy + top_bytes + error_bytes + event->text_size);
    if (!copy) return NULL;
    char *at = (char *)(copy + 1);
    *copy = (queued_event){.prompt = prompt, .event = *event};
    if (top_bytes) copy->event.top = memcpy(at, event->top, top_bytes);
    at += top_bytes;
    if (error_bytes) copy->event.error = memcpy(at, event->error, error_bytes);
    at += error_bytes;
    if (event->text_size) copy->event.text = memcpy(at, event->text, event->text_size);
    return copy;
}

void event_queue_add(event_queue *queue, queued_event *event) {
    event->next = NULL;
    *(queue->first ? queue->end : &queue->first) = event;
    queue->end = &event->next;
}

queued_event *event_queue_take(event_queue *queue) {
    queued_event *list = queue->first;
    queue->first = NULL;
    return list;
}

void event_list_free(queued_event *list) {
    while (list) {
        queued_event *next = list->next;
        free(list);
        list = next;
    }
}
