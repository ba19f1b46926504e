/* Parses the JSON of clients: the bodies of requests, and the lines of a batch. */
#ifndef SERVE_PROTOCOL_JSON_H
#define SERVE_PROTOCOL_JSON_H

#include "openai.h"

/*
 * Make jansson report to openai_json_parse when memory is lacking. This sets jansson's allocation functions, for the whole
 * process, so call it before other threads use jansson; calling it again changes nothing.
 */
void openai_json_init(void);

/* Limits of a text, far above those of real requests: a prompt of a million token ids, a chat of ten thousand messages. */
enum {
    OPENAI_JSON_MAX_VALUES = 2 << 20,       /* values and names of fields */
    OPENAI_JSON_MAX_CONTAINERS = 128 << 10, /* objects and arrays, which take the most memory */
    OPENAI_JSON_MAX_DEPTH = 128,
};

/*
 * text [size] as JSON, a new reference; NULL with *error filled: status 400 if it is not valid or exceeds a limit, 503 if
 * memory is lacking. `what` names the text in messages, such as "body".
 */
json_t *openai_json_parse(const char *what, const char *text, size_t size, openai_error *error);

/* What texts contain that share the limits, such as those within a body. */
typedef struct openai_json_used {
    size_t n_values, n_containers;
} openai_json_used;

/* Whether they contain more than is allowed. */
static inline bool openai_json_exceeds(const openai_json_used *used) {
    return used->n_values > OPENAI_JSON_MAX_VALUES || used->n_containers > OPENAI_JSON_MAX_CONTAINERS;
}

/*
 * The same for the text that a field has as a string. used: begins as {0}, and gets the text's counts; NULL: it shares the
 * limits with none.
 */
json_t *openai_json_parse_field(const char *field, const json_t *string, openai_json_used *used, openai_error *error);

#endif
