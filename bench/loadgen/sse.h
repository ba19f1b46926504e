/* Parses server-sent events from bytes that arrive in pieces cut anywhere. */
#ifndef BENCH_LOADGEN_SSE_H
#define BENCH_LOADGEN_SSE_H

#include "buffer.h"

/* Receives an event's data [size], a string, its lines joined by line feeds. Returns false to stop the parser. */
typedef bool (*load_sse_handler)(void *ctx, const char *data, size_t size);

/* Zero-initialise; free with load_sse_free. */
typedef struct load_sse {
    load_buffer line, data; /* the unfinished line, and the data of the unfinished event */
    bool has_data;          /* the unfinished event has a data line, perhaps an empty one */
    bool after_cr;          /* the last line ended with a carriage return, so a line feed that follows belongs to it */
    bool too_large;         /* a line or an event's data exceeded LOAD_BUFFER_MAX bytes */
} load_sse;

/*
 * Parse `size` more bytes, and call the handler for each event that they complete. Returns false if the handler returned
 * false, memory is lacking, or a limit was exceeded (s->too_large); *s may then only be freed.
 */
bool load_sse_feed(load_sse *s, const char *bytes, size_t size, load_sse_handler handler, void *ctx);

/* Whether the bytes so far end inside an event: the stream was cut off. */
bool load_sse_unfinished(const load_sse *s);

void load_sse_free(load_sse *s);

#endif
