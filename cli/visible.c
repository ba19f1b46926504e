/* Escapes what a terminal would obey: control characters, also those of two bytes (C1), and bytes that are no characters. */
#include "visible.h"

#include "chunkllama/common/str.h"

/* Whether a character [n] may reach a terminal. */
static bool is_harmless(const char *c, size_t n) {
    const unsigned char first = (unsigned char)c[0];
    if (n == 1) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t';
    return !(n == 2 && first == 0xc2 && (unsigned char)c[1] < 0xa0);
}

size_t visible_write(const char *text, size_t size, bool last, FILE *out) {
    size_t at = 0;
    while (at < size) {
        bool valid;
        size_t n = cl_utf8_part(text + at, size - at, &valid);
        if (n == 0 && !last) break;
        if (n == 0) n = size - at;
        if (valid && is_harmless(text + at, n))
            fwrite(text + at, 1, n, out);
        else if (valid && n == 2)
            fprintf(out, "\\x%02x", (unsigned char)text[at + 1]); /* U+0080 to U+009F end in the byte of their number */
        else
            for (size_t i = 0; i < n; i++) fprintf(out, "\\x%02x", (unsigned char)text[at + i]);
        at += n;
    }
    return at;
}
