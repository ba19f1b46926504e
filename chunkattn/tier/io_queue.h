/*
 * The requests of a tier: reads and writes that are queued, and reads that have ended. Each chunk has one at most.
 *
 * Memory grows when a request is added, by the thread that adds it; so an index of a request stays valid, an address does not.
 * The tier's mutex guards a queue.
 */
#ifndef CHUNKATTN_TIER_IO_QUEUE_H
#define CHUNKATTN_TIER_IO_QUEUE_H

#include "index.h"

typedef enum ca_request_state {
    CA_REQUEST_QUEUED,  /* in the list of reads or writes */
    CA_REQUEST_READING, /* from the file; the chunk is not touched */
    CA_REQUEST_COPYING, /* the chunk is guarded */
    CA_REQUEST_DONE,    /* a read that has ended, in the list `done` */
} ca_request_state;

typedef struct ca_request {
    ca_tier_entry entry; /* of the record */
    uint64_t ticket;     /* of a read */
    int32_t chunk;       /* -1: released while its record was being read */
    ca_request_state state;
    bool is_read, ok; /* ok: of a read that has ended */
} ca_request;

typedef struct ca_tier_queue {
    ca_alloc *alloc;
    int32_t chunk_tokens;
    ca_request *requests; /* [n_requests] */
    ca_link *links;       /* [n_requests] */
    int32_t *tokens;      /* [n_requests][chunk_tokens] */
    size_t requests_capacity, links_capacity, tokens_capacity, n_requests;
    int32_t *of_chunk; /* [n_chunks]: the chunk's request, -1: none */
    size_t n_chunks;
    ca_list free, reads, writes, done; /* the first comes first */
} ca_tier_queue;

void ca_tier_queue_init(ca_tier_queue *queue, int32_t chunk_tokens, ca_alloc *alloc);
void ca_tier_queue_destroy(ca_tier_queue *queue);

/* The request of a chunk, -1: none. */
int32_t ca_tier_queue_find(const ca_tier_queue *queue, int32_t chunk);

/* Add a request in state QUEUED for a chunk that has none. tokens: [chunk_tokens], copied. Returns 0, or -1 without memory. */
int ca_tier_queue_add(ca_tier_queue *queue, const ca_request *request, const int32_t *tokens);

/* Take the request out of the list that its state says, if any, and free it; its chunk has none then. */
void ca_tier_queue_remove(ca_tier_queue *queue, int32_t request);

/* The request of a chunk that is released while its record is being read: the request has no chunk any more. */
void ca_tier_queue_detach(ca_tier_queue *queue, int32_t request);

/* Move a queued request on to READING or COPYING, or one of these to DONE. */
void ca_tier_queue_advance(ca_tier_queue *queue, int32_t request, ca_request_state state);

#endif
