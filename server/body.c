/* Parses JSON with jansson, and tells invalid text from memory that is lacking. */
#include "body.h"

#include <stdlib.h>

/* Whether an allocation of jansson failed on this thread. Jansson reports some of these failures as invalid text. */
static _Thread_local bool allocation_failed;

static void *allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) allocation_failed = true;
    return memory;
}

void body_init(void) { json_set_alloc_funcs(allocate, free); }

static json_t *no_memory(openai_error *error) {
    openai_fail_from(error, NULL, &(cl_error){CL_ERR_NOMEM, "out of memory for the body; send the request again later"});
    return NULL;
}

/*
 * Whether memory for the body's strings is available. Jansson 2.14 does not notice if it cannot enlarge its buffer for a
 * string, and then reads beyond it; so it must not come to that.
 */
static bool has_memory(size_t size) {
    void *probe = malloc(4 * size + 1024); /* the buffer, twice as long as the string, its half, and the string */
    free(probe);
    return probe;
}

json_t *body_parse(const char *text, size_t size, openai_error *error) {
    json_error_t at;
    if (!has_memory(size)) return no_memory(error);
    allocation_failed = false;
    json_t *body = json_loadb(text, size, JSON_ALLOW_NUL, &at);
    if (allocation_failed) {
        json_decref(body);
        return no_memory(error);
    }
    if (!body)
        openai_fail(error, NULL, "the body is not valid JSON: %s at line %d, column %d (byte %d)", at.text, at.line, at.column,
                    at.position);
    return body;
}
