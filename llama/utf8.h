/* Where characters end in text that may not be UTF-8, and making it so. */
#ifndef LLAMA_UTF8_H
#define LLAMA_UTF8_H

#include <stddef.h>

/* Bytes of the character at the start of text (size >= 1), or 0 where the bytes there are no UTF-8 (RFC 3629). */
static inline size_t utf8_char(const char *text, size_t size) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    const size_t n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > size) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates and numbers above U+10FFFF show in the second byte. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

/* Bytes before the first that is no UTF-8; size where there is none. */
size_t utf8_valid(const char *text, size_t size);

/*
 * A terminated copy in which each byte that is no UTF-8 is U+FFFD. *mended_size, unless NULL: its bytes before the terminator.
 * The caller frees it; NULL without memory.
 */
char *utf8_mended(const char *text, size_t size, size_t *mended_size);

#endif
