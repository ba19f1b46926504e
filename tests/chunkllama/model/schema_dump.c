/* Writes the JSON schema on stdin as the pass over schemas does, with what is weaker in a second line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/schema/schema.h"

/* Options: open, lenient. */
int main(int argc, char **argv) {
    cl_schema_options options = {0};
    for (int i = 1; i < argc; i++) {
        options.open |= strcmp(argv[i], "open") == 0;
        options.lenient |= strcmp(argv[i], "lenient") == 0;
    }
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "";
    cl_error error;
    char text[1 << 18];
    json_t *out = NULL;
    json_error_t wrong;
    json_t *schema = cl_json_load(text, fread(text, 1, sizeof text, stdin), JSON_DECODE_ANY | JSON_ALLOW_NUL, &wrong);
    if (!schema) return 2;
    if (cl_schema_rewrite(schema, &options, &out, weaker, &error) == CL_OK) {
        char *written = cl_json_dumps(out, JSON_COMPACT);
        printf("%s\n%s\n", written, weaker);
        free(written);
    } else {
        fprintf(stderr, "%s\n", error.message);
    }
    const int failed = !out;
    json_decref(out);
    json_decref(schema);
    return failed;
}
