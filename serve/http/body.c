/*
 * The body of a request while it arrives: it is kept and counted, goes to the disk (upload.h), or is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "batches.h"
#include "upload.h"

enum { DROPPABLE = 8 << 20 }; /* bytes of a body that are read although nobody wants them */

/* The length of the body, as far as the headers announce it. */
static unsigned long long announced_length(const http_exchange *x) {
    const char *length = http_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length ? strtoull(length, NULL, 10) : 0;
}

/* From now on drop the body, and free what has arrived of it. */
static void stop_reading(http_exchange *x, exchange_body why) {
    x->body_use = why;
    shares_give_back(&x->srv->memory, x->domain, x->counted);
    free(x->body);
    x->body = NULL;
    x->body_size = x->body_capacity = x->counted = 0;
}

/* Make the body's capacity at least `size` bytes, which count as they are allocated. */
static void grow_body(http_exchange *x, size_t size) {
    const size_t capacity = 2 * size < x->body_limit ? 2 * size : x->body_limit;
    const size_t counted = capacity > REQUEST_BYTES ? capacity - REQUEST_BYTES : 0;
    if (!shares_take(&x->srv->memory, x->domain, counted - x->counted)) {
        stop_reading(x, BODY_NO_SHARE);
        return;
    }
    x->counted = counted;
    char *grown = realloc(x->body, capacity);
    if (!grown) {
        stop_reading(x, BODY_NO_MEMORY);
        return;
    }
    x->body = grown;
    x->body_capacity = capacity;
}

static void keep_body(http_exchange *x, const char *data, size_t size) {
    if (x->body_size + size > x->body_capacity) grow_body(x, x->body_size + size);
    if (x->body_use != BODY_READ) return;
    memcpy(x->body + x->body_size, data, size);
    x->body_size += size;
}

/*
 * A body that is not read is dropped up to its end: if the server replied and closed the connection before, most clients would
 * report a broken connection instead of the reply; and if it kept such bodies, clients without the key could fill its memory.
 * But one without an end would hold the connection.
 */
bool body_add(http_exchange *x, const char *data, size_t size) {
    if (x->body_use == BODY_READ && size > x->body_limit - x->body_size) stop_reading(x, BODY_TOO_LARGE);
    if (x->body_use != BODY_READ) {
        const bool ends = size > x->droppable;
        x->droppable -= ends ? x->droppable : size;
        if (ends) x->failure = "body_without_end";
        return !ends;
    }
    if (!x->upload) {
        keep_body(x, data, size);
        return true;
    }
    x->body_size += size;
    upload_add(x->upload, data, size);
    return true;
}

/* The most bytes of a body that is kept in memory: a tenant's share holds no more, whenever it is sent. */
static size_t kept_limit(const http_server *s) {
    const size_t share = shares_most(&s->memory) + REQUEST_BYTES;
    return share < s->config.max_body_bytes ? share : s->config.max_body_bytes;
}

void body_begin(http_exchange *x, const http_route *r, bool wanted) {
    const server_config *c = &x->srv->config;
    const bool upload = r && r->upload && x->srv->files;
    x->body_limit = upload ? (size_t)c->max_file_bytes + UPLOAD_FORM_BYTES : kept_limit(x->srv);
    x->droppable = DROPPABLE + (wanted && !upload ? x->body_limit : 0);
    x->body_use = announced_length(x) > x->body_limit ? BODY_TOO_LARGE : wanted ? BODY_READ : BODY_UNWANTED;
    if (upload && x->body_use == BODY_READ) x->body_use = batches_begin_upload(x);
}

bool body_is_answered_unread(http_exchange *x) {
    if (x->body_use == BODY_READ) return false;
    const bool is_long = announced_length(x) > x->droppable;
    x->last |= is_long;
    return is_long || http_header(x, MHD_HTTP_HEADER_EXPECT);
}
