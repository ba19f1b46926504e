/* Text from outside, where JSON needs UTF-8. */
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

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
