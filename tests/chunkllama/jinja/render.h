/* What the tests of templates have in common: rendering with variables that are written as JSON. */
#ifndef TESTS_CHUNKLLAMA_JINJA_RENDER_H
#define TESTS_CHUNKLLAMA_JINJA_RENDER_H

#include <string.h>

#include "chunkllama/jinja/jinja.h"
#include "tests/support/testing.h"

static inline json_t *parse_json(const char *text) {
    json_error_t wrong;
    json_t *json = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, &wrong);
    if (!json) fail_msg("%s: %s", wrong.text, text);
    return json;
}

/* Compile and render. options: NULL for the defaults. *out must be freed also after an error. */
static inline cl_status render(const char *text, const json_t *variables, const json_t *own, const cl_jinja_options *options,
                               cl_prompt *out, cl_error *error) {
    cl_jinja_options defaults;
    cl_jinja_options_init(&defaults);
    cl_jinja *t;
    cl_status status = cl_jinja_compile(text, strlen(text), &t, error);
    if (status != CL_OK) {
        assert_null(t);
        return status;
    }
    status = cl_jinja_render(t, variables, own, options ? options : &defaults, out, error);
    cl_jinja_free(&t);
    assert_null(t);
    return status;
}

/* Whether the i-th own part of a prompt is the bytes [start, end). */
static inline bool own_part_is(const cl_prompt *p, size_t i, size_t start, size_t end) {
    return p->own && i < p->n_own && p->own[i].start == start && p->own[i].end == end;
}

#endif
