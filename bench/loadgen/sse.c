/* Parses server-sent events. */
#include "sse.h"

static bool add(load_sse *s, load_buffer *b, const char *bytes, size_t size) {
    s->too_large |= !load_buffer_has_room(b, size);
    return load_buffer_add(b, bytes, size);
}

/* Process a complete line. Only data lines and empty lines matter; other fields (event, id, retry) and comments are ignored. */
static bool end_line(load_sse *s, load_sse_handler handler, void *ctx) {
    const char *line = s->line.size ? s->line.bytes : "";
    size_t size = s->line.size;
    bool ok = true;
    if (size == 0) {
        if (s->has_data) ok = handler(ctx, s->data.size ? s->data.bytes : "", s->data.size);
        load_buffer_clear(&s->data);
        s->has_data = false;
    } else if (size >= 4 && memcmp(line, "data", 4) == 0 && (size == 4 || line[4] == ':')) {
        line += size == 4 ? 4 : 5;
        size -= size == 4 ? 4 : 5;
        if (size && *line == ' ') line++, size--;
        if (s->has_data) ok = add(s, &s->data, "\n", 1);
        if (ok) ok = add(s, &s->data, line, size);
        s->has_data = true;
    }
    load_buffer_clear(&s->line);
    return ok;
}

bool load_sse_feed(load_sse *s, const char *bytes, size_t size, load_sse_handler handler, void *ctx) {
    const char *const end = bytes + size;
    while (bytes < end) {
        if (s->after_cr && *bytes == '\n') bytes++;
        s->after_cr = false;
        const char *stop = bytes;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        if (!add(s, &s->line, bytes, (size_t)(stop - bytes))) return false;
        if (stop == end) return true;
        s->after_cr = *stop == '\r';
        if (!end_line(s, handler, ctx)) return false;
        bytes = stop + 1;
    }
    return true;
}

bool load_sse_unfinished(const load_sse *s) { return s->line.size > 0 || s->has_data; }

void load_sse_free(load_sse *s) {
    load_buffer_free(&s->line);
    load_buffer_free(&s->data);
}
