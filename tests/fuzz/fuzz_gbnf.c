/* A grammar in GBNF: it becomes Lark, which begins with its rule `start`, or is refused with a message. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "serve/protocol/gbnf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t lark_size;
    cl_error error = {.code = CL_OK};
    char *lark = gbnf_to_lark((const char *)data, size, &lark_size, &error);
    if (lark)
        FUZZ_CHECK(strlen(lark) == lark_size && strncmp(lark, "start: ", 7) == 0 && lark[lark_size - 1] == '\n', "Lark");
    else
        FUZZ_CHECK((error.code == CL_ERR_ARG || error.code == CL_ERR_LIMIT) && error.message[0], "error");
    if (lark) FUZZ_CHECK(gbnf_is_likely((const char *)data, size), "not likely");
    free(lark);
    return 0;
}
