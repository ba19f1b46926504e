/* Parses the bodies of requests. */
#ifndef SERVER_BODY_H
#define SERVER_BODY_H

#include "openai/openai.h"

/*
 * Make jansson report to body_parse when memory is lacking. It sets jansson's allocation functions, for the whole process, so
 * call it before other threads use jansson; calling it again changes nothing.
 */
void body_init(void);

/* Limits of a body, far above those of real requests: a prompt of a million token ids, a chat of ten thousand messages. */
enum {
    BODY_MAX_VALUES = 2 << 20,       /* values and names of fields */
    BODY_MAX_CONTAINERS = 128 << 10, /* objects and arrays, which take the most memory */
    BODY_MAX_DEPTH = 128,
};

/*
 * A body [size] as JSON, a new reference; NULL with *error filled: status 400 if it is not valid or exceeds a limit, 503 if
 * memory is lacking.
 */
json_t *body_parse(const char *text, size_t size, openai_error *error);

#endif
