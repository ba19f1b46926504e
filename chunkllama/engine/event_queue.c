/* Copies of events, and the list of those that wait: see event_queue.h. */
#include "event_queue.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "chunkllama/common/error.h"

struct cl_queued_event {
    cl_queued_event *next;
    cl_engine_event event;
    _Alignas(max_align_t) char bytes[]; /* what the event points to: first its top logprobs, or its error and embedding */
};

/* ---- Lists ---- */

static void append(cl_event_list *list, cl_queued_event *e) {
    e->next = NULL;
    if (list->last)
        list->last->next = e;
    else
        list->first = e;
    list->last = e;
}

static cl_queued_event *remove_first(cl_event_list *list) {
    cl_queued_event *e = list->first;
    list->first = e->next;
    if (!list->first) list->last = NULL;
    return e;
}

static void free_list(cl_event_list *list) {
    while (list->first) free(remove_first(list));
}

void cl_event_queue_init(cl_event_queue *q) {
    *q = (cl_event_queue){.fd = -1};
    pthread_mutex_init(&q->mutex, NULL);
}

void cl_event_queue_free(cl_event_queue *q) {
    free_list(&q->waiting);
    free_list(&q->taken);
    if (q->fd >= 0) close(q->fd);
    pthread_mutex_destroy(&q->mutex);
}

/* ---- Copies ---- */

/* Copy bytes to *at, behind which the next ones come. Returns the copy. */
static void *put(char **at, const void *bytes, size_t size) {
    void *to = *at;
    if (size > 0) memcpy(to, bytes, size);
    *at += size;
    return to;
}

/* A copy with its own text and arrays. NULL if memory is lacking. The alignments of what is in `bytes` do not increase. */
static cl_queued_event *copy(const cl_engine_event *event) {
    const bool ends = event->kind == CL_EVENT_END;
    const size_t top = ends ? 0 : (size_t)event->token.n_top * sizeof *event->token.top,
                 error = ends && event->end.error ? sizeof *event->end.error : 0,
                 embedding = ends ? (size_t)event->end.n_embedding * sizeof *event->end.embedding : 0;
    cl_queued_event *e = malloc(sizeof *e + top + error + embedding + event->text_size);
    if (!e) return NULL;
    char *at = e->bytes;
    e->event = *event;
    if (!ends) e->event.token.top = put(&at, event->token.top, top);
    if (error > 0) e->event.end.error = put(&at, event->end.error, error);
    if (embedding > 0) e->event.end.embedding = put(&at, event->end.embedding, embedding);
    e->event.text = put(&at, event->text, event->text_size);
    return e;
}

cl_queued_event *cl_event_reserve(int32_t n) {
    cl_event_list list = {0};
    for (int32_t i = 0; i < n; i++) {
        cl_queued_event *e = malloc(sizeof *e + sizeof(cl_error));
        if (!e) {
            free_list(&list);
            return NULL;
        }
        append(&list, e);
    }
    return list.first;
}

void cl_event_reserve_free(cl_queued_event **reserve) {
    while (*reserve) {
        cl_queued_event *e = *reserve;
        *reserve = e->next;
        free(e);
    }
}

/* ---- The queue ---- */

static void signal_waiting(const cl_event_queue *q) {
    const uint64_t one = 1;
    if (q->fd < 0 || !q->waiting.first) return;
    const ssize_t n = write(q->fd, &one, sizeof one);
    (void)n; /* the counter is far from its limit */
}

static void add(cl_event_queue *q, cl_queued_event *e) {
    pthread_mutex_lock(&q->mutex);
    const bool was_empty = !q->waiting.first;
    append(&q->waiting, e);
    if (was_empty) signal_waiting(q);
    pthread_mutex_unlock(&q->mutex);
}

bool cl_event_queue_add(cl_event_queue *q, const cl_engine_event *event) {
    cl_queued_event *e = copy(event);
    if (e) add(q, e);
    return e;
}

void cl_event_queue_add_failure(cl_event_queue *q, const cl_engine_event *event, cl_queued_event **reserve) {
    cl_queued_event *e = *reserve;
    cl_error *error = (cl_error *)(void *)e->bytes;
    *reserve = e->next;
    e->event = *event;
    e->event.text = "";
    e->event.text_size = 0;
    e->event.end = (cl_event_end){.finish = CL_ENGINE_ERROR, .stop = -1, .error = error};
    cl_fail(error, CL_ERR_NOMEM, "no memory for the copy of an event, which cl_engine_poll would have reported");
    add(q, e);
}

size_t cl_event_queue_take(cl_event_queue *q, const cl_engine_event **events, size_t most) {
    size_t n = 0;
    uint64_t count;
    pthread_mutex_lock(&q->mutex);
    free_list(&q->taken);
    for (; n < most && q->waiting.first; n++) {
        cl_queued_event *e = remove_first(&q->waiting);
        append(&q->taken, e);
        events[n] = &e->event;
    }
    if (q->fd >= 0 && !q->waiting.first) {
        const ssize_t got = read(q->fd, &count, sizeof count);
        (void)got; /* it need not have been written */
    }
    pthread_mutex_unlock(&q->mutex);
    return n;
}

int cl_event_queue_fd(cl_event_queue *q) {
    pthread_mutex_lock(&q->mutex);
    if (q->fd < 0) {
        q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        signal_waiting(q);
    }
    const int fd = q->fd;
    pthread_mutex_unlock(&q->mutex);
    return fd;
}
