/* Byte strings that are borrowed and not terminated, such as a model file's names and texts, and UTF-8 in them. */
#ifndef CHUNKLLAMA_COMMON_STR_H
#define CHUNKLLAMA_COMMON_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* ---- Strings ---- */

typedef struct cl_str {
    const char *data;
    size_t size;
} cl_str;

static inline cl_str cl_str_of(const char *text) { return (cl_str){text, strlen(text)}; }
static inline bool cl_str_is(cl_str s, const char *text) { return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0; }

/* Whether s contains the text `part`; whether it is one of `words`, which spaces separate. */
bool cl_str_contains(cl_str s, const char *part);
bool cl_str_is_one_of(cl_str s, const char *words);

/* Replace control characters, including U+0080 to U+009F, by question marks: a terminal would execute them. */
void cl_str_disarm(char *text, size_t size);

/*
 * A name from a file for a message: line ends and tabs are written as escapes, other control characters are replaced, and it is
 * cut to buf [size >= 8]. Returns buf.
 */
const char *cl_str_show(cl_str s, char *buf, size_t size);

/* ---- UTF-8 ---- */

/*
 * The bytes of the character, or of the maximal part that is not UTF-8, at the start of text [size >= 1] (Unicode, table 3-7).
 * *valid: it is a character. 0: the whole text is an incomplete character.
 */
static inline size_t cl_utf8_part(const char *text, size_t size, bool *valid) {
    const unsigned char *s = (const unsigned char *)text;
    *valid = s[0] < 0x80;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 1;
    const size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte: no overlong forms, no surrogates, nothing past U+10FFFF */
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    for (size_t i = 1; i < n; i++) {
        if (i == size) return 0;
        if (s[i] < low || s[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *valid = true;
    return n;
}

/* The bytes of the character at the start of text [size >= 1]; 0: it does not begin with a complete character. */
static inline size_t cl_utf8_char(const char *text, size_t size) {
    bool valid;
    const size_t n = cl_utf8_part(text, size, &valid);
    return valid ? n : 0;
}

/* The bytes of the byte order mark at the start of text, or 0. */
static inline size_t cl_utf8_mark_size(const char *text, size_t size) {
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* The number of leading bytes that are valid UTF-8. */
size_t cl_utf8_valid(const char *text, size_t size);

/*
 * A terminated copy in which each maximal part that is not UTF-8 is replaced by U+FFFD. *mended_size, unless NULL: its bytes
 * without the terminator. The caller frees it; NULL if memory is lacking.
 */
char *cl_utf8_mended(const char *text, size_t size, size_t *mended_size);

#endif
