/* Reads lines with a buffer that grows up to the longest line. */
#include "lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 64 << 10 }; /* bytes of a read */

void lines_begin(lines *l, int fd, size_t max) { *l = (lines){.fd = fd, .max = max}; }

void lines_free(lines *l) {
    free(l->buffer);
    l->buffer = NULL;
}

void lines_back(lines *l, const char *text) {
    l->begin = (size_t)(text - l->buffer);
    l->number--;
}

/* Read a piece behind the bytes of the buffer. *n: how many came. */
static lines_status read_piece(lines *l, size_t *n) {
    if (l->buffer && l->begin > 0) {
        memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->capacity - l->end < PIECE) {
        char *larger = realloc(l->buffer, 2 * l->capacity + PIECE);
        if (!larger) return LINES_NO_MEMORY;
        l->buffer = larger;
        l->capacity = 2 * l->capacity + PIECE;
    }
    ssize_t got;
    do got = pread(l->fd, l->buffer + l->end, PIECE, l->offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) return LINES_FAILED;
    *n = (size_t)got;
    l->end += *n;
    l->offset += got;
    return LINES_OK;
}

/* The next line, whether blank or not. */
static lines_status next_line(lines *l, const char **text, size_t *size) {
    size_t searched = 0, n = 1;
    bool too_long = false;
    for (;;) {
        const char *from = l->buffer ? l->buffer + l->begin : "";
        const char *newline = l->end > l->begin ? memchr(from + searched, '\n', l->end - l->begin - searched) : NULL;
        searched = l->end - l->begin;
        if (newline || n == 0) {
            *text = from;
            *size = newline ? (size_t)(newline - from) : searched;
            l->begin += *size + (newline != NULL);
            too_long |= *size > l->max;
            if (!newline && *size == 0 && !too_long) return LINES_END;
            l->number++;
            return too_long ? LINES_TOO_LONG : LINES_OK;
        }
        if (searched > l->max) {
            too_long = true;
            l->begin = l->end;
            searched = 0;
        }
        const lines_status status = read_piece(l, &n);
        if (status != LINES_OK) return status;
    }
}

static bool is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

lines_status lines_next(lines *l, const char **text, size_t *size) {
    lines_status status;
    do status = next_line(l, text, size);
    while (status == LINES_OK && is_blank(*text, *size));
    return status;
}
