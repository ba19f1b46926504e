/* Filling a cattn_error. */
#ifndef CHUNKATTN_BASE_FAIL_H
#define CHUNKATTN_BASE_FAIL_H

#include "chunkattn.h"

void ca_error_set(cattn_error *error, cattn_status code, int32_t entry, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * Fill *error (NULL is ignored); the value is code, for `return ca_fail(error, CATTN_ERR_ARG, i, "...", ...)`. entry -1:
 * none.
 */
#define ca_fail(error, code, entry, ...) (ca_error_set(error, code, entry, __VA_ARGS__), ca_failed(code))

/* Inline, so that compilers and analysers see that what ca_fail gives is never CATTN_OK. */
static inline cattn_status ca_failed(cattn_status code) { return code; }

/* CATTN_ERR_ARG, with the argument's name, for a null pointer. */
static inline cattn_status ca_need(const void *pointer, const char *name, cattn_error *error) {
    return pointer ? CATTN_OK : ca_fail(error, CATTN_ERR_ARG, -1, "%s is NULL", name);
}

#endif
