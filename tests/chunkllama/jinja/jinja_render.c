/*
 * jinja_render < requests.jsonl > answers.jsonl: each line an object {"template", "variables", "own", "now"} in, an object
 * {"text", "own": [[start, end], ...]} or {"error"} out; the ends are in bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/jinja/jinja.h"

static json_t *answer(const json_t *request) {
    const json_t *text = json_object_get(request, "template");
    cl_jinja *t;
    cl_error error;
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.now = json_integer_value(json_object_get(request, "now"));
    if (cl_jinja_compile(json_string_value(text), json_string_length(text), &t, &error) != CL_OK)
        return json_pack("{s:s}", "error", error.message);
    cl_prompt out = {0};
    const cl_status status =
        cl_jinja_render(t, json_object_get(request, "variables"), json_object_get(request, "own"), &options, &out, &error);
    cl_jinja_free(&t);
    if (status != CL_OK) return json_pack("{s:s}", "error", error.message);
    json_t *own = json_array();
    for (size_t i = 0; i < out.n_own; i++)
        json_array_append_new(own, json_pack("[I,I]", (json_int_t)out.own[i].start, (json_int_t)out.own[i].end));
    json_t *result = json_object();
    json_object_set_new(result, "text", json_stringn(out.size > 0 ? out.text : "", out.size));
    json_object_set_new(result, "own", own);
    cl_prompt_free(&out);
    return result;
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, stdin)) > 0) {
        json_error_t wrong;
        json_t *request = cl_json_load(line, (size_t)size, JSON_ALLOW_NUL, &wrong);
        if (!request) {
            fprintf(stderr, "jinja_render: %s\n", wrong.text);
            return 1;
        }
        json_t *result = answer(request);
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(result);
        json_decref(request);
    }
    free(line);
    return 0;
}
