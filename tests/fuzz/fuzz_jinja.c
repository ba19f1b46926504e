/*
 * A chat template and its variables: the text of the template up to the first zero byte, and then JSON. What is compiled is
 * rendered twice, which must give the same. Text is UTF-8, its own parts ascend, and no letter that only the variables have
 * is in them: their strings become Greek.
 */
#include <jansson.h>
#include <string.h>

#include "chunkllama/jinja/jinja.h"
#include "fuzz.h"

static const char LAMBDA[] = "\xce\xbb";

/* Replace the strings in a value by Greek letters. */
static void make_greek(json_t *json) {
    const char *key;
    void *next;
    json_t *value;
    size_t i;
    if (json_is_string(json)) {
        json_string_set(json, "\xce\xbb \xce\x9b<");
    } else if (json_is_array(json)) {
        json_array_foreach(json, i, value) make_greek(value);
    } else {
        json_object_foreach_safe(json, next, key, value) make_greek(value);
    }
}

static cl_status render(const cl_jinja *t, const json_t *variables, const json_t *own, cl_prompt *out) {
    cl_error error = {.message = ""};
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.max_bytes = 1 << 16;
    options.max_memory = 4 << 20;
    options.max_steps = 100000;
    const cl_status status = cl_jinja_render(t, variables, own, &options, out, &error);
    FUZZ_CHECK(status == CL_OK || (error.code == status && strncmp(error.message, "line ", 5) == 0), "%s", error.message);
    FUZZ_CHECK(status == CL_OK || (out->size == 0 && out->n_own == 0), "text after an error");
    return status;
}

static void check_text(const cl_prompt *p, bool greek) {
    FUZZ_CHECK(p->size <= 1 << 16 && cl_utf8_valid(p->text, p->size) == p->size, "%zu bytes", p->size);
    size_t end = 0;
    for (size_t i = 0; i < p->n_own; i++) {
        FUZZ_CHECK(p->own[i].start >= end && p->own[i].start < p->own[i].end && p->own[i].end <= p->size, "part %zu", i);
        end = p->own[i].end;
        const cl_str part = {p->text + p->own[i].start, end - p->own[i].start};
        FUZZ_CHECK(!greek || !cl_str_contains(part, LAMBDA), "a variable's letter is own");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = zero ? (size_t)(zero - data) : size;
    cl_error error = {.message = ""};
    cl_jinja *t;
    const cl_status compiled = cl_jinja_compile((const char *)data, n, &t, &error);
    if (compiled != CL_OK) {
        FUZZ_CHECK(!t && error.code == compiled && strncmp(error.message, "line ", 5) == 0, "%s", error.message);
        return 0;
    }
    json_error_t wrong;
    json_t *variables = zero ? json_loadb((const char *)zero + 1, size - n - 1, JSON_ALLOW_NUL, &wrong) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_object();
    }
    json_t *own = json_pack("{s:s,s:s}", "bos_token", "<s>", "eos_token", "</s>");
    cl_prompt first = {0}, second = {0}, greek = {0};
    const cl_status status = render(t, variables, own, &first);
    check_text(&first, false);
    FUZZ_CHECK(render(t, variables, own, &second) == status, "another status");
    FUZZ_CHECK(first.size == second.size && (first.size == 0 || memcmp(first.text, second.text, first.size) == 0),
               "another text");
    make_greek(variables);
    render(t, variables, own, &greek);
    check_text(&greek, !cl_str_contains((cl_str){(const char *)data, n}, "\xce") && !memchr(data, '\\', n));
    cl_prompt_free(&first);
    cl_prompt_free(&second);
    cl_prompt_free(&greek);
    json_decref(variables);
    json_decref(own);
    cl_jinja_free(&t);
    return 0;
}
