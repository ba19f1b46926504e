/* Showing names from files. */
#include "str.h"

const char *str_show(str s, char *buf, size_t size) {
    const bool cut = s.size >= size;
    size_t n = cut ? size - 4 : s.size;                                    /* "..." and the end */
    while (cut && n > 0 && ((unsigned char)s.data[n] & 0xc0) == 0x80) n--; /* not inside a UTF-8 character */
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s.data[i];
        buf[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    memcpy(buf + n, cut ? "..." : "", cut ? 4 : 1);
    return buf;
}
