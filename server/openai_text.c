/* Bytes as JSON strings. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "server/openai.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

json_t *openai_text_json(const char *bytes, size_t size) {
    if (size == 0) return json_string("");
    json_t *json = json_stringn(bytes, size);
    if (json) return json;
    /* Not UTF-8, which is rare: at worst each byte becomes a replacement character. */
    char *text = malloc(size * (sizeof replacement - 1)), *end = text;
    if (!text) return NULL;
    for (size_t i = 0; i < size;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)bytes + i, (utf8proc_ssize_t)(size - i), &c);
        const char *from = n > 0 ? bytes + i : replacement;
        const size_t length = n > 0 ? (size_t)n : sizeof replacement - 1;
        memcpy(end, from, length);
        end += length;
        i += n > 0 ? (size_t)n : 1;
    }
    json = json_stringn_nocheck(text, (size_t)(end - text));
    free(text);
    return json;
}
