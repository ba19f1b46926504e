/* Holds text back until it may be shown: see completion_text.h. */
#include "completion_text.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"

/* Reserve `need` bytes in all. False if memory is lacking. */
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

char *cl_text_reserve(cl_text *t, size_t n) {
    const size_t size = t->held.size + n;
    if (!reserve(&t->held, size + 1)) return NULL; /* + 1: not NULL if n is 0 */
    /* A byte that is not UTF-8 comes out as three. */
    return reserve(&t->out, 3 * size) ? t->held.data + t->held.size : NULL;
}

/* The blanks of a line once a byte follows: see cl_text. */
static int32_t indent_behind(int32_t indent, char byte) {
    if (byte == '\n') return 0;
    return indent >= 0 && (byte == ' ' || byte == '\t') ? indent + 1 : -1;
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
    for (size_t i = 0; i < at; i++) t->indent = indent_behind(t->indent, s[i]);
    t->held.size -= at;
    t->n_passed -= at < t->n_passed ? at : t->n_passed;
    if (at > 0) memmove(t->held.data, t->held.data + at, t->held.size);
}

/* The bytes [start, end) of a stop string in a text, and which one it is; -1: none. */
typedef struct stop_match {
    size_t start, end;
    int which;
} stop_match;

/*
 * The stop string that is complete first, as if the bytes of s [n] came one by one, but not before n_passed + 1 of them have
 * come. start is n if there is none. If several end at the same byte it is the longest one.
 */
static stop_match find_stop(const cl_text *t, const char *s, size_t n, size_t n_passed) {
    stop_match first = {n, n + 1, -1};
    for (int i = 0; i < t->n_stop; i++) {
        const size_t size = strlen(t->stop[i]), from = n_passed < size ? 0 : n_passed + 1 - size;
        const char *found = from < n ? memmem(s + from, n - from, t->stop[i], size) : NULL;
        const size_t at = found ? (size_t)(found - s) : n;
        if (!found || at + size > first.end || (at + size == first.end && at > first.start)) continue;
        first = (stop_match){at, at + size, i};
    }
    return first;
}

/* The first of the bytes s [n] behind the released text before which a line has too few blanks; n: none. */
static size_t find_outdented(const cl_text *t, const char *s, size_t n) {
    int32_t indent = t->indent;
    for (size_t i = 0; t->min_indent > 0 && i < n; i++) {
        const bool blank = s[i] == ' ' || s[i] == '\t';
        if (indent >= 0 && indent < t->min_indent && !blank) return i;
        indent = indent_behind(indent, s[i]);
    }
    return n;
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

bool cl_text_added(cl_text *t, size_t n, bool stoppable) {
    t->held.size += n;
    if (!stoppable) t->n_passed = t->held.size;
    stop_match stop = find_stop(t, t->held.data, t->held.size, t->n_passed);
    const size_t outdented = find_outdented(t, t->held.data, t->held.size);
    t->outdented = outdented + 1 < stop.end && outdented < t->held.size; /* on the same byte, the stop string counts */
    if (t->outdented) stop = (stop_match){outdented, outdented, -1};
    const bool stopped = stop.start < t->held.size;
    t->n_found = stop.which + 1;
    const size_t keep = stopped ? 0 : stop_begun(t, t->held.data, t->held.size);
    const size_t shown = t->include_stop ? stop.end : stop.start;
    release(t, stopped ? shown : t->held.size - keep, stopped);
    if (stopped) t->held.size = 0;
    return stopped;
}

bool cl_text_completes(const cl_text *t, size_t n, size_t n_passed) {
    const size_t size = t->held.size + n;
    return find_stop(t, t->held.data, size, n_passed > 0 ? t->held.size + n_passed : t->n_passed).start < size ||
           find_outdented(t, t->held.data, size) < size;
}

void cl_text_finish(cl_text *t) { release(t, t->held.size, true); }
