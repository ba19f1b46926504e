/* Keeps the waiting requests in the order of their rank: see queue.h. */
#include "queue.h"

#include <assert.h>
#include <stdlib.h>

void cl_queue_free(cl_queue *q) {
    assert(q->n == 0);
    free((void *)q->requests);
    *q = (cl_queue){0};
}

static bool reserve(cl_queue *q, size_t n) {
    if (n <= q->capacity) return true;
    const size_t capacity = 2 * n + 62;
    cl_request **requests = realloc((void *)q->requests, capacity * sizeof *requests);
    if (!requests) return false;
    q->requests = requests;
    q->capacity = capacity;
    return true;
}

static void place(cl_queue *q, cl_request *r, size_t i) {
    q->requests[i] = r;
    r->queue_index = i;
}

/* Place a request at the free index i, or above or below where the order asks for it. */
static void settle(cl_queue *q, cl_request *r, size_t i) {
    for (; i > 0 && cl_request_is_before(r, q->requests[(i - 1) / 2]); i = (i - 1) / 2) place(q, q->requests[(i - 1) / 2], i);
    for (size_t child; (child = 2 * i + 1) < q->n; i = child) {
        if (child + 1 < q->n && cl_request_is_before(q->requests[child + 1], q->requests[child])) child++;
        if (cl_request_is_before(r, q->requests[child])) break;
        place(q, q->requests[child], i);
    }
    place(q, r, i);
}

bool cl_queue_add(cl_queue *q, cl_request *r) {
    if (!reserve(q, q->n_live + 1)) return false;
    q->n_live++;
    cl_queue_put(q, r);
    return true;
}

void cl_queue_forget(cl_queue *q) { q->n_live--; }

void cl_queue_put(cl_queue *q, cl_request *r) {
    assert(q->n < q->n_live);
    q->n++;
    settle(q, r, q->n - 1);
}

void cl_queue_remove(cl_queue *q, cl_request *r) {
    assert(q->requests[r->queue_index] == r);
    cl_request *last = q->requests[--q->n];
    if (last != r) settle(q, last, r->queue_index);
}
