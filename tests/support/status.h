/* Fails a test of chunkattn.h unless a call returned what the test expects. */
#ifndef TESTS_SUPPORT_STATUS_H
#define TESTS_SUPPORT_STATUS_H

#include "testing.h"

#include <string.h>

#include "chunkattn.h"

/* The call must succeed. */
static inline void check(cattn_status got, const cattn_error *error) {
    if (got) fail_msg("%s: %s", cattn_status_name(got), error->message);
}

/* The call must fail with this status, and its message must contain this text. */
static inline void expect(cattn_status got, cattn_status status, const cattn_error *error, const char *text) {
    if (got != status) fail_msg("%s in place of %s: %s", cattn_status_name(got), cattn_status_name(status), error->message);
    assert_int_equal(error->code, status);
    if (!strstr(error->message, text)) fail_msg("\"%s\" does not say \"%s\"", error->message, text);
}

#endif
