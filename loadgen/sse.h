/* Server-sent events out of bytes that come in pieces cut anywhere. */
#ifndef LOADGEN_SSE_H
#define LOADGEN_SSE_H

#include "buffer.h"

/* An event's data, its lines joined by line feeds. False: wrong, stop. */
typedef bool (*sse_handler)(void *ctx, const char *data, size_t size);

/* Zero-initialise; free with sse_free. */
typedef struct sse {
    buffer line, data;
    bool has_data;  /* the unfinished event has a data line, perhaps an empty one */
    bool after_cr;  /* a line feed that comes now ends nothing */
    bool too_large; /* a line or an event's data have more than BUFFER_MAX bytes */
} sse;

/* Events that these bytes complete go to the handler. False: it said so, too_large, or no memory. */
bool sse_feed(sse *s, const char *bytes, size_t size, sse_handler handler, void *ctx);

/* Whether bytes are left that belong to no finished event: the stream was cut off. */
bool sse_unfinished(const sse *s);

void sse_free(sse *s);

#endif
