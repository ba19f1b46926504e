/* Fails a test of chunkllama.h unless a call returned the status, and its error the words, that the test expects. */
#ifndef TESTS_CHUNKLLAMA_MODEL_STATUS_H
#define TESTS_CHUNKLLAMA_MODEL_STATUS_H

#include "tests/support/testing.h"

#include <string.h>

#include "chunkllama.h"

static inline void expect_status(cl_status status, const cl_error *error, cl_status expected, const char *words) {
    if (status != expected || error->code != expected || !strstr(error->message, words))
        fail_msg("%s, \"%s\"; expected %s and \"%s\"", cl_status_name(status), error->message, cl_status_name(expected), words);
}

#endif
