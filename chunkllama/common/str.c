/* Searches byte strings, makes them printable, and repairs UTF-8. */
#define _GNU_SOURCE /* memmem */
#include "str.h"

#include <stdlib.h>
#include <string.h>

/* ---- Strings ---- */

bool cl_str_contains(cl_str s, const char *part) { return memmem(s.data, s.size, part, strlen(part)) != NULL; }

bool cl_str_is_one_of(cl_str s, const char *words) {
    for (const char *word = words + strspn(words, " "); *word; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        if (n == s.size && memcmp(word, s.data, n) == 0) return true;
        word += n;
    }
    return false;
}

void cl_str_disarm(char *text, size_t size) {
    unsigned char *c = (unsigned char *)text;
    for (size_t i = 0; i < size; i++) {
        if (i + 1 < size && c[i] == 0xc2 && c[i + 1] >= 0x80 && c[i + 1] < 0xa0) c[i] = c[i + 1] = '?'; /* U+0080 to U+009F */
        if (c[i] < 0x20 || c[i] == 0x7f) c[i] = '?';
    }
}

/* The letter that stands for a white space behind a backslash; 0: none. */
static char letter_of(char c) { return c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : 0; }

/* Write a text [size] to buf [room], as far as it fits. Returns the bytes that were read; *n: those that were written. */
static size_t escape(cl_str s, char *buf, size_t room, size_t *n) {
    size_t i = 0;
    for (*n = 0; i < s.size; i++) {
        const char letter = letter_of(s.data[i]);
        if (*n + (letter ? 2 : 1) > room) break;
        if (letter) buf[(*n)++] = '\\';
        buf[(*n)++] = letter ? letter : s.data[i];
    }
    return i;
}

const char *cl_str_show(cl_str s, char *buf, size_t size) {
    size_t n;
    const bool cut = escape(s, buf, size - 1, &n) < s.size;
    if (cut) {
        size_t end = escape(s, buf, size - 4, &n); /* the rest is for "..." and the terminator */
        for (; end > 0 && n > 0 && ((unsigned char)s.data[end] & 0xc0) == 0x80; end--) n--; /* no part of a UTF-8 character */
    }
    cl_str_disarm(buf, n);
    memcpy(buf + n, cut ? "..." : "", cut ? 4 : 1);
    return buf;
}

/* ---- UTF-8 ---- */

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

size_t cl_utf8_valid(const char *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        const size_t n = cl_utf8_char(text + at, size - at);
        if (n == 0) break;
        at += n;
    }
    return at;
}

char *cl_utf8_mended(const char *text, size_t size, size_t *mended_size) {
    char *mended = malloc(size * (sizeof replacement - 1) + 1), *end = mended; /* at worst each byte is replaced */
    if (!mended) return NULL;
    for (size_t at = 0; at < size;) {
        bool valid;
        size_t n = cl_utf8_part(text + at, size - at, &valid);
        if (n == 0) n = size - at;
        const size_t n_put = valid ? n : sizeof replacement - 1;
        memcpy(end, valid ? text + at : replacement, n_put);
        end += n_put;
        at += n;
    }
    *end = 0;
    if (mended_size) *mended_size = (size_t)(end - mended);
    return mended;
}
