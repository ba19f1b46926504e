/* Bytes as JSON strings. */
#include <stdlib.h>

#include "llama/common/str.h"
#include "openai.h"

json_t *openai_text_json(const char *bytes, size_t size) {
    if (size == 0) return json_string("");
    json_t *json = json_stringn(bytes, size);
    if (json) return json;
    /* Not UTF-8, which is rare. */
    size_t mended_size;
    char *mended = cl_utf8_mended(bytes, size, &mended_size);
    if (!mended) return NULL;
    json = json_stringn_nocheck(mended, mended_size);
    free(mended);
    return json;
}
