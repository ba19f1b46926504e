/* Finds the functions that templates can call, matches arguments with parameters, and looks up attributes. */
#include "builtins.h"

#include "print.h"

/* ---- Finding ---- */

const cj_builtin *cj_find_builtin(const cj_builtin *table, cl_str name) {
    for (; table->name; table++)
        if (cl_str_is(name, table->name)) return table;
    return NULL;
}

const cj_builtin *cj_find_filter(cl_str name) {
    const cj_builtin *found = cj_find_builtin(cj_filters_of_text, name);
    return found ? found : cj_find_builtin(cj_filters_of_lists, name);
}

const cj_builtin *cj_find_test(cl_str name) { return cj_find_builtin(cj_tests, name); }

void cj_fail_unsupported(cj_run *r, const char *what, cl_str name) {
    char shown[64];
    cj_fail(r, CL_ERR_UNSUPPORTED, "the %s '%s' is not supported", what, cl_str_show(name, shown, sizeof shown));
}

cj_value cj_bound(cj_run *r, const cj_builtin *method, const cj_value *self) {
    cj_function *function = CJ_NEW(r, cj_function);
    *function = (cj_function){method, *self};
    return (cj_value){.kind = CJ_FUNCTION, .function = function};
}

/* ---- Calling ---- */

enum { MAX_PARAMETERS = 8 };

/* The parameters' names; returns their number. */
static size_t split_parameters(const char *parameters, cl_str names[MAX_PARAMETERS]) {
    size_t n = 0;
    while (*parameters) {
        const size_t size = strcspn(parameters, " ");
        names[n++] = (cl_str){parameters, size};
        parameters += size;
        while (*parameters == ' ') parameters++;
    }
    return n;
}

cj_value cj_run_builtin(cj_run *r, const cj_builtin *builtin, const char *what, const cj_args *args) {
    cj_step(r);
    if (!builtin->parameters) return builtin->run(r, args);
    cl_str names[MAX_PARAMETERS];
    cj_value at[MAX_PARAMETERS] = {0};
    char shown[64];
    const size_t n = split_parameters(builtin->parameters, names);
    if (args->n > n)
        cj_fail(r, CL_ERR_UNSUPPORTED, "%s '%s' supports at most %zu arguments, and got %zu", what, builtin->name, n, args->n);
    if (args->n > 0) memcpy(at, args->at, args->n * sizeof *at);
    for (size_t i = 0; i < args->n_named; i++) {
        const cl_str name = {args->names[i].data, args->names[i].size};
        size_t place = 0;
        while (place < n && !(names[place].size == name.size && memcmp(names[place].data, name.data, name.size) == 0)) place++;
        cl_str_show(name, shown, sizeof shown);
        if (place == n) cj_fail(r, CL_ERR_UNSUPPORTED, "%s '%s' does not support an argument '%s'", what, builtin->name, shown);
        if (at[place].kind != CJ_ABSENT)
            cj_fail(r, CL_ERR_ARG, "%s '%s' takes no second argument '%s'", what, builtin->name, shown);
        at[place] = args->named[i];
    }
    for (size_t i = 0; i < (size_t)builtin->n_required; i++)
        if (at[i].kind == CJ_ABSENT)
            cj_fail(r, CL_ERR_UNSUPPORTED, "%s '%s' does not support so few arguments", what, builtin->name);
    const cj_args bound = {.at = at, .n = n};
    return builtin->run(r, &bound);
}

cj_text cj_arg_text(cj_run *r, const cj_args *a, size_t i) {
    if (a->at[i].kind == CJ_UNDEFINED) cj_fail_undefined(r, &a->at[i]);
    if (a->at[i].kind != CJ_STRING) cj_fail(r, CL_ERR_ARG, "expected a string, got '%s'", cj_type(&a->at[i]));
    return a->at[i].text;
}

cj_text cj_arg_str(cj_run *r, const cj_args *a, size_t i) { return cj_str_of(r, &a->at[i]); }

int64_t cj_arg_int(cj_run *r, const cj_args *a, size_t i, int64_t otherwise) {
    int64_t value = otherwise;
    if (a->at[i].kind == CJ_ABSENT || cj_is_int(&a->at[i], &value)) return value;
    if (a->at[i].kind == CJ_UNDEFINED) cj_fail_undefined(r, &a->at[i]);
    if (a->at[i].kind == CJ_LONG_NUMBER) cj_fail_long(r);
    cj_fail(r, CL_ERR_ARG, "expected an integer, got '%s'", cj_type(&a->at[i]));
}

/* ---- Attributes ---- */

static cj_value loop_attribute(cj_run *r, const cj_loop *loop, cl_str name) {
    const int64_t n = (int64_t)loop->items->n, i = (int64_t)loop->index;
    if (cl_str_is(name, "index")) return cj_int(i + 1);
    if (cl_str_is(name, "index0")) return cj_int(i);
    if (cl_str_is(name, "first")) return cj_bool(i == 0);
    if (cl_str_is(name, "last")) return cj_bool(i == n - 1);
    const bool previous = cl_str_is(name, "previtem");
    if (!previous && !cl_str_is(name, "nextitem")) cj_fail_unsupported(r, "loop attribute", name);
    const int64_t other = previous ? i - 1 : i + 1;
    return other >= 0 && other < n ? loop->items->at[other] : cj_undefined(cj_own(name));
}

/* The result of Python's getattr; CJ_ABSENT: none. */
static cj_value attribute_of(cj_run *r, const cj_value *object, cl_str name) {
    if (object->kind == CJ_UNDEFINED) cj_fail_undefined(r, object);
    if (object->kind == CJ_LOOP) return loop_attribute(r, object->loop, name);
    if (object->kind == CJ_NAMESPACE) {
        const cj_value *v = cj_dict_get_name(r, object->dict, cj_own(name));
        if (v) return *v;
    }
    const cj_builtin *method = NULL;
    if (object->kind == CJ_STRING) method = cj_find_builtin(cj_str_methods, name);
    if (object->kind == CJ_DICT) method = cj_find_builtin(cj_dict_methods, name);
    return method ? cj_bound(r, method, object) : (cj_value){.kind = CJ_ABSENT};
}

/* The result of Python's object[key]; CJ_ABSENT: none. */
static cj_value item_of(cj_run *r, const cj_value *object, const cj_value *key) {
    int64_t i;
    if (object->kind == CJ_UNDEFINED) cj_fail_undefined(r, object);
    if (object->kind == CJ_DICT) {
        const bool hashable = key->kind != CJ_LIST && key->kind != CJ_DICT;
        const cj_value *v = hashable ? cj_dict_get(r, object->dict, key) : NULL;
        return v ? *v : (cj_value){.kind = CJ_ABSENT};
    }
    const bool indexed = object->kind == CJ_STRING || (object->kind >= CJ_LIST && object->kind <= CJ_RANGE);
    if (!indexed || !cj_is_int(key, &i)) return (cj_value){.kind = CJ_ABSENT};
    const int64_t n = (int64_t)cj_length(r, object);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return (cj_value){.kind = CJ_ABSENT};
    if (object->kind != CJ_STRING) return object->list->at[i];
    const size_t at = cj_offset(r, object->text, (size_t)i);
    return cj_string(cj_part(object->text, at, at + cj_char_size(object->text.data[at])));
}

cj_value cj_attribute(cj_run *r, const cj_value *object, cl_str name) {
    cj_value v = attribute_of(r, object, name);
    if (v.kind != CJ_ABSENT) return v;
    const cj_value key = cj_string(cj_own(name));
    v = item_of(r, object, &key);
    return v.kind != CJ_ABSENT ? v : cj_undefined(key.text);
}

cj_value cj_item(cj_run *r, const cj_value *object, const cj_value *key) {
    cj_value v = item_of(r, object, key);
    if (v.kind != CJ_ABSENT) return v;
    if (key->kind == CJ_STRING) v = attribute_of(r, object, (cl_str){key->text.data, key->text.size});
    return v.kind != CJ_ABSENT ? v : cj_undefined(key->kind == CJ_STRING ? key->text : cj_own(cl_str_of("an element")));
}
