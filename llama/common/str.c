/* Looking into such bytes, and showing names from files. */
#define _GNU_SOURCE /* memmem */
#include "str.h"

bool cl_str_contains(cl_str s, const char *part) { return memmem(s.data, s.size, part, strlen(part)) != NULL; }

void cl_str_disarm(char *text, size_t size) {
    unsigned char *c = (unsigned char *)text;
    for (size_t i = 0; i < size; i++) {
        if (i + 1 < size && c[i] == 0xc2 && c[i + 1] >= 0x80 && c[i + 1] < 0xa0) c[i] = c[i + 1] = '?'; /* U+0080 to U+009F */
        if (c[i] < 0x20 || c[i] == 0x7f) c[i] = '?';
    }
}

const char *cl_str_show(cl_str s, char *buf, size_t size) {
    const bool cut = s.size >= size;
    size_t n = cut ? size - 4 : s.size;                                    /* "..." and the end */
    while (cut && n > 0 && ((unsigned char)s.data[n] & 0xc0) == 0x80) n--; /* not inside a UTF-8 character */
    if (n) memcpy(buf, s.data, n);
    cl_str_disarm(buf, n);
    memcpy(buf + n, cut ? "..." : "", cut ? 4 : 1);
    return buf;
}
