/* Requests in lists, and which chunk has which: see io_queue.h. */
#include "io_queue.h"

#include <assert.h>
#include <string.h>

void ca_tier_queue_init(ca_tier_queue *queue, int32_t chunk_tokens, ca_alloc *alloc) {
    *queue = (ca_tier_queue){.alloc = alloc,
                             .chunk_tokens = chunk_tokens,
                             .free = ca_list_empty,
                             .reads = ca_list_empty,
                             .writes = ca_list_empty,
                             .done = ca_list_empty};
}

void ca_tier_queue_destroy(ca_tier_queue *queue) {
    ca_delete(queue->alloc, queue->of_chunk, queue->n_chunks, sizeof *queue->of_chunk);
    ca_delete(queue->alloc, queue->tokens, queue->tokens_capacity, sizeof *queue->tokens);
    ca_delete(queue->alloc, queue->links, queue->links_capacity, sizeof *queue->links);
    ca_delete(queue->alloc, queue->requests, queue->requests_capacity, sizeof *queue->requests);
    *queue = (ca_tier_queue){0};
}

int32_t ca_tier_queue_find(const ca_tier_queue *queue, int32_t chunk) {
    assert(chunk >= 0);
    return (size_t)chunk < queue->n_chunks ? queue->of_chunk[chunk] : -1;
}

/* Make room for a request. Returns 0, or -1 without memory. */
static int grow_requests(ca_tier_queue *q) {
    const size_t need = q->n_requests + 1;
    if (ca_grow(q->alloc, (void **)&q->requests, &q->requests_capacity, need, sizeof *q->requests) != 0 ||
        ca_grow(q->alloc, (void **)&q->links, &q->links_capacity, need, sizeof *q->links) != 0 ||
        ca_grow(q->alloc, (void **)&q->tokens, &q->tokens_capacity, need * (size_t)q->chunk_tokens, sizeof *q->tokens) != 0)
        return -1;
    ca_list_push_last(&q->free, q->links, (int32_t)q->n_requests++);
    return 0;
}

static int grow_chunks(ca_tier_queue *q, int32_t chunk) {
    const size_t before = q->n_chunks;
    if (ca_grow(q->alloc, (void **)&q->of_chunk, &q->n_chunks, (size_t)chunk + 1, sizeof *q->of_chunk) != 0) return -1;
    for (size_t i = before; i < q->n_chunks; i++) q->of_chunk[i] = -1;
    return 0;
}

static ca_list *list_of(ca_tier_queue *q, const ca_request *request) {
    switch (request->state) {
    case CA_REQUEST_QUEUED: return request->is_read ? &q->reads : &q->writes;
    case CA_REQUEST_DONE: return &q->done;
    default: return NULL;
    }
}

int ca_tier_queue_add(ca_tier_queue *queue, const ca_request *request, const int32_t *tokens) {
    assert(request->state == CA_REQUEST_QUEUED && ca_tier_queue_find(queue, request->chunk) < 0);
    if ((queue->free.n == 0 && grow_requests(queue) != 0) || grow_chunks(queue, request->chunk) != 0) return -1;
    const int32_t i = queue->free.first;
    ca_list_remove(&queue->free, queue->links, i);
    queue->requests[i] = *request;
    const size_t c = (size_t)queue->chunk_tokens;
    memcpy(queue->tokens + (size_t)i * c, tokens, c * sizeof *tokens);
    queue->of_chunk[request->chunk] = i;
    ca_list_push_last(list_of(queue, request), queue->links, i);
    return 0;
}

void ca_tier_queue_detach(ca_tier_queue *queue, int32_t request) {
    ca_request *r = &queue->requests[request];
    if (r->chunk >= 0) queue->of_chunk[r->chunk] = -1;
    r->chunk = -1;
}

void ca_tier_queue_remove(ca_tier_queue *queue, int32_t request) {
    ca_list *list = list_of(queue, &queue->requests[request]);
    if (list) ca_list_remove(list, queue->links, request);
    ca_tier_queue_detach(queue, request);
    ca_list_push_first(&queue->free, queue->links, request);
}

void ca_tier_queue_advance(ca_tier_queue *queue, int32_t request, ca_request_state state) {
    ca_request *r = &queue->requests[request];
    assert(state > r->state);
    ca_list *from = list_of(queue, r);
    if (from) ca_list_remove(from, queue->links, request);
    r->state = state;
    ca_list *to = list_of(queue, r);
    if (to) ca_list_push_last(to, queue->links, request);
}
