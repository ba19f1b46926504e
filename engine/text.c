/* Holds text back until it may be shown: see text.h. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

#include "llama/common/str.h"

/* Make room for `need` bytes in all. False if memory is lacking. */
static bool reserve(cl_text_bytes *b, size_t need) {
    if (need <= b->capacity) return true;
    const size_t capacity = need * 2 + 64;
    char *data = realloc(b->data, capacity);
    if (!data) return false;
    b->data = data;
    b->capacity = capacity;
    return true;
}

void cl_text_free(cl_text *t) {
    free(t->held.data);
    free(t->out.data);
    memset(t, 0, sizeof *t);
}

char *cl_text_room(cl_text *t, size_t n) {
    const size_t size = t->held.size + n;
    if (!reserve(&t->held, size + 1)) return NULL; /* + 1: not NULL if n is 0 */
    /* A byte that is not UTF-8 comes out as three. */
    return reserve(&t->out, 3 * size) ? t->held.data + t->held.size : NULL;
}

/* Move the first n held bytes to `out`, in whole characters; with `all`, at the end of the text, an unfinished one too. */
static void release(cl_text *t, size_t n, bool all) {
    t->out.size = 0;
    const char *s = t->held.data;
    size_t at = 0;
    while (at < n) {
        bool valid;
        size_t size = cl_utf8_part(s + at, n - at, &valid);
        if (size == 0 && !all) break;
        if (size == 0) size = n - at;
        memcpy(t->out.data + t->out.size, valid ? s + at : "\xef\xbf\xbd", valid ? size : 3);
        t->out.size += valid ? size : 3;
        at += size;
    }
    t->held.size -= at;
    if (at > 0) memmove(t->held.data, t->held.data + at, t->held.size);
}

/*
 * The start of the stop string that is complete first, as if the bytes came one by one; n if none is. If several end at the
 * same byte it is the longest one.
 */
static size_t find_stop(const cl_text *t, const char *s, size_t n) {
    size_t start = n, end = n + 1;
    for (int i = 0; i < t->n_stop; i++) {
        const size_t size = strlen(t->stop[i]);
        const char *found = memmem(s, n, t->stop[i], size);
        const size_t at = found ? (size_t)(found - s) : n;
        if (!found || at + size > end || (at + size == end && at > start)) continue;
        start = at;
        end = at + size;
    }
    return start;
}

/* The length of the longest end of s that is the beginning of a stop string. */
static size_t stop_begun(const cl_text *t, const char *s, size_t n) {
    size_t longest = 0;
    for (int i = 0; i < t->n_stop; i++) {
        size_t k = strlen(t->stop[i]) - 1;
        for (k = k < n ? k : n; k > longest; k--)
            if (memcmp(s + n - k, t->stop[i], k) == 0) longest = k;
    }
    return longest;
}

bool cl_text_added(cl_text *t, size_t n) {
    t->held.size += n;
    const size_t stop_at = find_stop(t, t->held.data, t->held.size);
    const bool stopped = stop_at < t->held.size;
    const size_t keep = stopped ? 0 : stop_begun(t, t->held.data, t->held.size);
    release(t, stopped ? stop_at : t->held.size - keep, stopped);
    if (stopped) t->held.size = 0;
    return stopped;
}

bool cl_text_completes(const cl_text *t, size_t n) {
    const size_t size = t->held.size + n;
    return find_stop(t, t->held.data, size) < size;
}

void cl_text_finish(cl_text *t) { release(t, t->held.size, true); }
