/* Reads lines into a buffer that grows up to the longest line. */
#include "lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void lines_begin(batch_lines *l, int fd, int64_t place, size_t max) { *l = (batch_lines){.fd = fd, .max = max, .next = place}; }

void lines_free(batch_lines *l) { free(l->text); }

/* Grow the buffer. False: memory is lacking. */
static bool grow(char **text, size_t *capacity, size_t more) {
    char *larger = realloc(*text, *capacity + more);
    if (!larger) return false;
    *text = larger;
    *capacity += more;
    return true;
}

enum { END = -1, FAILED = -2 };

/* The next byte, which stands at l->next. */
static int next_byte(batch_lines *l) {
    if (l->piece_begin == l->piece_end) {
        ssize_t n;
        do n = pread(l->fd, l->piece, sizeof l->piece, l->next);
        while (n < 0 && errno == EINTR);
        if (n <= 0) return n == 0 ? END : FAILED;
        l->piece_begin = 0;
        l->piece_end = (size_t)n;
    }
    l->next++;
    return (unsigned char)l->piece[l->piece_begin++];
}

/* The next line, whether blank or not. */
static lines_status next_line(batch_lines *l) {
    int c;
    bool too_long = false;
    l->size = 0;
    l->place = l->next;
    while ((c = next_byte(l)) >= 0 && c != '\n') {
        too_long |= l->size == l->max;
        if (too_long) continue;
        if (l->size == l->capacity && !grow(&l->text, &l->capacity, l->capacity + 4096)) return LINES_NO_MEMORY;
        l->text[l->size++] = (char)c;
    }
    if (c == FAILED) return LINES_FAILED;
    if (c == END && l->next == l->place) return LINES_END;
    l->number++;
    return too_long ? LINES_TOO_LONG : LINES_OK;
}

static bool is_blank(const batch_lines *l) {
    for (size_t i = 0; i < l->size; i++)
        if (l->text[i] != ' ' && l->text[i] != '\t' && l->text[i] != '\r') return false;
    return true;
}

lines_status lines_next(batch_lines *l) {
    lines_status status;
    do status = next_line(l);
    while (status == LINES_OK && is_blank(l));
    return status;
}

cl_status lines_read(int fd, int64_t place, size_t size, char **text, size_t *capacity, cl_error *error) {
    if (size > *capacity && !grow(text, capacity, size - *capacity))
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a line of %zu bytes", size);
    for (size_t n = 0; n < size;) {
        const ssize_t got = pread(fd, *text + n, size - n, place + (int64_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return cl_fail(error, CL_ERR_FILE, "cannot read the input: %s", got < 0 ? strerror(errno) : "it was cut meanwhile");
        n += (size_t)got;
    }
    return CL_OK;
}
