/* Filling a cattn_error. */
#ifndef LIB_ERROR_H
#define LIB_ERROR_H

#include "chunkattn.h"

/* Fill *error (NULL is ignored) and return code, for `return ca_fail(error, CATTN_ERR_ARG, i, "...", ...)`; entry -1: none. */
cattn_status ca_fail(cattn_error *error, cattn_status code, int32_t entry, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
