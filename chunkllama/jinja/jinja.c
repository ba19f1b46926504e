/* Compiles and renders templates: where runs begin, and where failures end. */
#include "jinja.h"

#include <stdlib.h>

#include "chunkllama/common/json_text.h"
#include "eval.h"
#include "print.h"

enum {
    MAX_TEMPLATE = 1 << 20, /* bytes; published templates have up to some 20 KiB */
    MAX_TREE = 256 << 20,   /* bytes of the syntax tree, some 400 for each operand */
    MAX_STEPS = 100000000,  /* of parsing, of a few ns each */
    MAX_NESTING = 200       /* levels of the syntax tree */
};

struct cl_jinja {
    cj_block *blocks; /* hold the tree */
    cj_program program;
};

/* The arguments and results of parsing. */
typedef struct compilation {
    cl_str text;
    cj_program program;
} compilation;

static void parse(cj_run *r, void *context) {
    compilation *c = context;
    c->program = cj_parse(r, c->text.data, c->text.size);
}

cl_status cl_jinja_compile(const char *text, size_t size, cl_jinja **t, cl_error *error) {
    *t = NULL;
    if (size > MAX_TEMPLATE)
        return cl_fail(error, CL_ERR_LIMIT, "the template has %zu bytes, more than the allowed %d", size, (int)MAX_TEMPLATE);
    cl_jinja *template = calloc(1, sizeof *template);
    if (!template) return cl_fail(error, CL_ERR_NOMEM, "no memory for a template");
    cl_error ignored;
    cj_run r = {.max_bytes = MAX_TREE,
                .later = MAX_STEPS,
                .max_steps = MAX_STEPS,
                .max_depth = MAX_NESTING,
                .max_text = MAX_TEMPLATE,
                .line = 1,
                .error = error ? error : &ignored};
    compilation c = {.text = {text, size}};
    const bool parsed = cj_try(&r, parse, &c);
    *template = (cl_jinja){r.blocks, c.program};
    *t = template;
    if (!parsed) cl_jinja_free(t);
    return parsed ? CL_OK : r.status;
}

void cl_jinja_free(cl_jinja **t) {
    if (!*t) return;
    cj_blocks_free((*t)->blocks);
    free(*t);
    *t = NULL;
}

void cl_jinja_options_init(cl_jinja_options *options) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function", NULL};
    *options = (cl_jinja_options){
        .max_bytes = 16 << 20, .max_memory = 256 << 20, .max_steps = 20000000, .max_depth = 400, .roles = roles};
}

/* ---- Variables ---- */

static cj_text text_of(const json_t *string, bool own) {
    return (cj_text){.data = json_string_value(string), .size = json_string_length(string), .own = own};
}

static cj_value from_json(cj_run *r, const json_t *json, bool own);

static cj_dict *dict_from_json(cj_run *r, const json_t *object, bool own) {
    cj_dict *dict = cj_dict_new(r);
    if (!object) return dict;
    dict->capacity = json_object_size(object);
    dict->at = cj_alloc(r, dict->capacity, sizeof *dict->at);
    for (void *i = json_object_iter((json_t *)object); i; i = json_object_iter_next((json_t *)object, i)) {
        const char *key = json_object_iter_key(i);
        const cj_text name = {.data = key, .size = json_object_iter_key_len(i), .own = own};
        dict->at[dict->n++] = (cj_entry){cj_string(name), from_json(r, json_object_iter_value(i), own)};
    }
    return dict;
}

static cj_value from_json(cj_run *r, const json_t *json, bool own) {
    cj_value v = cj_none();
    cl_str number;
    cj_enter(r);
    cj_step(r);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        if (cl_json_is_number(json, &number)) {
            v = (cj_value){.kind = CJ_LONG_NUMBER, .text = {.data = number.data, .size = number.size, .own = own}};
            break;
        }
        v = (cj_value){.kind = CJ_DICT, .dict = dict_from_json(r, json, own)};
        break;
    case JSON_ARRAY: {
        cj_list *list = cj_list_new(r, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++) cj_list_add(r, list, from_json(r, json_array_get(json, i), own));
        v = cj_sequence(CJ_LIST, list);
        break;
    }
    case JSON_STRING: v = cj_string(text_of(json, own)); break;
    case JSON_INTEGER: v = cj_int(json_integer_value(json)); break;
    case JSON_REAL: v = cj_float(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = cj_bool(json_is_true(json)); break;
    case JSON_NULL: break;
    }
    cj_leave(r);
    return v;
}

/* Make the known roles of messages the template's own. */
static void own_roles(cj_run *r, const cj_dict *variables, const char *const *roles) {
    const cj_value *messages = cj_dict_get_name(r, variables, cj_own(cl_str_of("messages")));
    if (!roles || !messages || messages->kind != CJ_LIST) return;
    for (size_t i = 0; i < messages->list->n; i++) {
        const cj_value *message = &messages->list->at[i];
        if (message->kind != CJ_DICT) continue;
        cj_value *role = (cj_value *)cj_dict_get_name(r, message->dict, cj_own(cl_str_of("role")));
        if (!role || role->kind != CJ_STRING) continue;
        for (const char *const *known = roles; *known; known++) role->text.own |= cj_text_is(role->text, *known);
    }
}

/* ---- Rendering ---- */

/* Append a text and its own parts; false without memory, with *out as it was. */
static bool append(cl_prompt *out, cj_text t) {
    const size_t size = out->size, n_own = out->n_own, last_end = n_own > 0 ? out->own[n_own - 1].end : 0;
    for (size_t begin = 0, end; begin < t.size && !out->no_memory; begin = end) {
        const bool own = t.marks ? t.marks[begin] : t.own;
        const char *change = t.marks ? memchr(t.marks + begin, !own, t.size - begin) : NULL;
        end = change ? (size_t)(change - t.marks) : t.size;
        (own ? cl_prompt_add_own : cl_prompt_add)(out, (cl_str){t.data + begin, end - begin});
    }
    if (!out->no_memory) return true;
    out->no_memory = false;
    out->size = size;
    out->n_own = n_own;
    if (n_own > 0) out->own[n_own - 1].end = last_end;
    return false;
}

/* The arguments and results of rendering. */
typedef struct rendering {
    const cl_jinja *t;
    const json_t *variables, *own;
    const char *const *roles;
    cj_text text;
} rendering;

static void render(cj_run *r, void *context) {
    rendering *x = context;
    cj_dict *names = dict_from_json(r, x->variables, false);
    own_roles(r, names, x->roles);
    cj_context c = {.r = r, .own = dict_from_json(r, x->own, true), .variables = names};
    cj_builder out = {.r = r};
    cj_execute_program(&c, &x->t->program, &out);
    x->text = cj_built(&out);
}

cl_status cl_jinja_render(const cl_jinja *t, const json_t *variables, const json_t *own, const cl_jinja_options *options,
                          cl_prompt *out, cl_error *error) {
    cl_error ignored;
    cj_run r = {.max_bytes = options->max_memory,
                .later = options->max_steps,
                .max_steps = options->max_steps,
                .max_depth = options->max_depth,
                .max_text = options->max_bytes,
                .line = 1,
                .now = options->now,
                .error = error ? error : &ignored};
    rendering x = {t, variables, own, options->roles, {0}};
    cl_status status = CL_OK;
    if (!cj_try(&r, render, &x))
        status = r.status;
    else if (!append(out, x.text))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a prompt of %zu bytes", x.text.size);
    if (options->n_steps) *options->n_steps = options->max_steps - r.later - (r.steps > 0 ? r.steps : 0);
    cj_blocks_free(r.blocks);
    return status;
}
