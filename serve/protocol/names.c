/* The names of the model that clients may send. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* What separates names in a list. */
static const char separators[] = ", \t\r\n";

static bool add(openai_names *names, const char *name, size_t size) {
    char **larger = realloc(names->names, (names->n + 1) * sizeof *larger);
    if (!larger) return false;
    names->names = larger;
    larger[names->n] = strndup(name, size);
    return larger[names->n] && ++names->n;
}

cl_status openai_names_init(openai_names *names, const char *list, const char *path, cl_error *error) {
    bool ok = true;
    *names = (openai_names){0};
    for (const char *at = list ? list + strspn(list, separators) : ""; ok && *at; at += strspn(at, separators)) {
        const size_t size = strcspn(at, separators);
        if (size == 1 && *at == '*')
            names->any = true;
        else
            ok = add(names, at, size);
        at += size;
    }
    if (ok && names->n == 0) {
        char *name = cl_model_file_name(path);
        ok = name && add(names, name, strlen(name));
        free(name);
    }
    if (ok) return CL_OK;
    openai_names_free(names);
    return cl_fail(error, CL_ERR_NOMEM, "no memory for the model's names");
}

void openai_names_free(openai_names *names) {
    for (size_t i = 0; i < names->n; i++) free(names->names[i]);
    free(names->names);
    *names = (openai_names){0};
}

/* The size of a name without its tag, if that is the one that stands for none. */
static size_t size_of(const char *name) {
    const size_t size = strlen(name), n = strlen(OPENAI_LATEST);
    return size > n && strcmp(name + size - n, OPENAI_LATEST) == 0 ? size - n : size;
}

bool openai_names_have(const openai_names *names, const char *name) {
    const size_t size = size_of(name);
    if (!names || names->any) return true;
    for (size_t i = 0; i < names->n; i++)
        if (size_of(names->names[i]) == size && memcmp(names->names[i], name, size) == 0) return true;
    return false;
}

bool openai_fail_model(openai_error *error, const char *name, const openai_names *names) {
    char list[300] = "";
    for (size_t i = 0, used = 0; i < names->n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s'%.200s'", i ? " or " : "", names->names[i]);
    openai_fail(error, "model", "there is no model '%.100s'; the model here is called %s", name, list);
    return openai_set_status(error, 404, "model_not_found");
}

bool openai_check_body(const openai_context *context, const json_t *body, openai_error *error) {
    if (!cl_json_is_object(body)) return openai_fail(error, NULL, "the body must be a JSON object, not %s", field_kind(body));
    const json_t *model = field_get(body, "model");
    const char *name;
    if (!model) return true;
    if (!field_name(model, "model", &name, error)) return false;
    return openai_names_have(context->names, name) || openai_fail_model(error, name, context->names);
}
