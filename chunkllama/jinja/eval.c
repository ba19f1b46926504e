/* Evaluates expressions by walking the tree. */
#include "eval.h"

#include "print.h"

/* ---- Names ---- */

static cj_value lookup(cj_context *c, cl_str name, cj_scope *scope) {
    const cj_text text = cj_own(name);
    for (; scope; scope = scope->parent) {
        const cj_value *v = cj_dict_get_name(c->r, &scope->variables, text);
        if (v) return *v;
    }
    const cj_value *v = cj_dict_get_name(c->r, c->own, text);
    if (!v) v = cj_dict_get_name(c->r, c->variables, text);
    if (v) return *v;
    const cj_builtin *function = cj_find_builtin(cj_functions, name);
    if (!function) return cj_undefined(text);
    const cj_value none = {.kind = CJ_ABSENT};
    return cj_bound(c->r, function, &none);
}

/* ---- Calls ---- */

/* The arguments of a call after `first` (NULL: none), and an argument `caller` if there is one. */
static cj_args eval_arguments(cj_context *c, const cj_arguments *arguments, cj_scope *scope, const cj_value *first,
                              const cj_value *caller) {
    cj_run *r = c->r;
    cj_value *at = NULL, *named = NULL;
    cj_text *names = NULL;
    size_t n = 0, capacity = 0, n_named = 0, named_capacity = 0, n_names = 0, names_capacity = 0;
    if (first) CJ_PUSH(r, at, n, capacity, *first);
    for (size_t i = 0; i < arguments->n; i++) {
        const cj_value v = cj_eval(c, arguments->at[i], scope);
        if (!arguments->names[i].data) {
            CJ_PUSH(r, at, n, capacity, v);
            continue;
        }
        CJ_PUSH(r, named, n_named, named_capacity, v);
        CJ_PUSH(r, names, n_names, names_capacity, cj_own(arguments->names[i]));
    }
    if (arguments->list) {
        const cj_value v = cj_eval(c, arguments->list, scope);
        if (v.kind == CJ_UNDEFINED) cj_fail_undefined(r, &v);
        const cj_list *list = cj_elements(r, &v);
        cj_step_elements(r, list->n);
        for (size_t i = 0; i < list->n; i++) CJ_PUSH(r, at, n, capacity, list->at[i]);
    }
    if (caller) {
        CJ_PUSH(r, named, n_named, named_capacity, *caller);
        CJ_PUSH(r, names, n_names, names_capacity, cj_own(cl_str_of("caller")));
    }
    for (size_t i = 0; i < n_names; i++) {
        if (i > 0) cj_step_elements(r, i);
        for (size_t j = 0; j < i; j++)
            if (cj_text_equal(r, names[i], names[j])) cj_fail(r, CL_ERR_ARG, "an argument is passed twice by its name");
    }
    return (cj_args){.at = at, .n = n, .names = names, .named = named, .n_named = n_named};
}

/* Fail because the callee is undefined. */
_Noreturn static void fail_call(cj_context *c, const cj_node *callee, cj_scope *scope, const cj_value *undefined) {
    char shown[64];
    if (callee->kind != CJ_NAME && callee->kind != CJ_ATTRIBUTE) cj_fail_undefined(c->r, undefined);
    cl_str_show(callee->name, shown, sizeof shown);
    if (callee->kind == CJ_NAME)
        cj_fail(c->r, CL_ERR_UNSUPPORTED, "the function '%s' does not exist, or is not supported", shown);
    const cj_value object = cj_eval(c, callee->a, scope);
    cj_fail(c->r, CL_ERR_UNSUPPORTED, "the method '%s' of '%s' is not supported", shown, cj_type(&object));
}

cj_value cj_eval_call(cj_context *c, const cj_node *node, cj_scope *scope, const cj_value *caller) {
    cj_run *r = c->r;
    const cj_value callee = cj_eval(c, node->a, scope);
    const bool method = callee.kind == CJ_FUNCTION && callee.function->self.kind != CJ_ABSENT;
    const cj_args args = eval_arguments(c, &node->arguments, scope, method ? &callee.function->self : NULL, caller);
    r->line = node->line;
    switch (callee.kind) {
    case CJ_FUNCTION: return cj_run_builtin(r, callee.function->builtin, "function", &args);
    case CJ_MACRO: return cj_call_macro(r, callee.macro, &args);
    case CJ_LOOP: cj_fail(r, CL_ERR_UNSUPPORTED, "recursive loops are not supported");
    case CJ_UNDEFINED: fail_call(c, node->a, scope, &callee);
    default: cj_fail(r, CL_ERR_ARG, "'%s' object is not callable", cj_type(&callee));
    }
}

static cj_value eval_builtin(cj_context *c, const cj_node *node, cj_scope *scope) {
    const char *what = node->kind == CJ_FILTER ? "filter" : "test";
    const cj_value v = node->a ? cj_eval(c, node->a, scope) : c->piped;
    const cj_args args = eval_arguments(c, &node->arguments, scope, &v, NULL);
    c->r->line = node->line;
    if (!node->builtin) cj_fail_unsupported(c->r, what, node->name);
    return cj_run_builtin(c->r, node->builtin, what, &args);
}

/* ---- Collections ---- */

static cj_value eval_list(cj_context *c, const cj_node *node, cj_scope *scope) {
    cj_list *list = cj_list_new(c->r, node->n);
    for (size_t i = 0; i < node->n; i++) cj_list_add(c->r, list, cj_eval(c, node->items[i], scope));
    return cj_sequence(node->kind == CJ_LIST_OF ? CJ_LIST : CJ_TUPLE, list);
}

static cj_value eval_dict(cj_context *c, const cj_node *node, cj_scope *scope) {
    cj_dict *dict = cj_dict_new(c->r);
    for (size_t i = 0; i < node->n; i += 2) {
        const cj_value key = cj_eval(c, node->items[i], scope);
        cj_dict_set(c->r, dict, key, cj_eval(c, node->items[i + 1], scope));
    }
    return (cj_value){.kind = CJ_DICT, .dict = dict};
}

static cj_value eval_slice(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value object = cj_eval(c, node->a, scope);
    cj_value bounds[3];
    for (size_t i = 0; i < 3; i++) bounds[i] = node->items[i] ? cj_eval(c, node->items[i], scope) : cj_none();
    c->r->line = node->line;
    return cj_slice(c->r, &object, bounds);
}

static cj_value eval_item(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value object = cj_eval(c, node->a, scope), key = cj_eval(c, node->b, scope);
    c->r->line = node->line;
    return cj_item(c->r, &object, &key);
}

static cj_value eval_attribute(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value object = cj_eval(c, node->a, scope);
    c->r->line = node->line;
    return cj_attribute(c->r, &object, node->name);
}

/* ---- Operators ---- */

static cj_value eval_comparison(cj_context *c, const cj_node *node, cj_scope *scope) {
    cj_value left = cj_eval(c, node->items[0], scope);
    for (size_t i = 1; i < node->n; i++) {
        const cj_value right = cj_eval(c, node->items[i], scope);
        c->r->line = node->line;
        if (!cj_compares(c->r, node->ops[i - 1], &left, &right)) return cj_bool(false);
        left = right;
    }
    return cj_bool(true);
}

static cj_value eval_concat(cj_context *c, const cj_node *node, cj_scope *scope) {
    cj_builder b = {.r = c->r};
    for (size_t i = 0; i < node->n; i++) {
        const cj_value v = cj_eval(c, node->items[i], scope);
        cj_put_str(&b, &v);
    }
    return cj_string(cj_built(&b));
}

static cj_value eval_choice(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value condition = cj_eval(c, node->b, scope);
    if (cj_truth(&condition)) return cj_eval(c, node->a, scope);
    if (node->c) return cj_eval(c, node->c, scope);
    return cj_undefined(cj_own(cl_str_of("the else of an inline if")));
}

static cj_value eval_logic(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value a = cj_eval(c, node->a, scope);
    return cj_truth(&a) == (node->kind == CJ_OR) ? a : cj_eval(c, node->b, scope);
}

static cj_value eval_binary(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value a = cj_eval(c, node->a, scope), b = cj_eval(c, node->b, scope);
    c->r->line = node->line;
    return cj_binary(c->r, node->op, &a, &b);
}

static cj_value eval_unary(cj_context *c, const cj_node *node, cj_scope *scope) {
    const cj_value a = cj_eval(c, node->a, scope);
    c->r->line = node->line;
    if (node->kind == CJ_NOT) return cj_bool(!cj_truth(&a));
    const cj_value negative = cj_negative(c->r, &a);
    return node->kind == CJ_NEGATIVE ? negative : cj_negative(c->r, &negative);
}

static cj_value eval_node(cj_context *c, const cj_node *node, cj_scope *scope) {
    switch (node->kind) {
    case CJ_CONST: return node->value;
    case CJ_NAME: return lookup(c, node->name, scope);
    case CJ_LIST_OF:
    case CJ_TUPLE_OF: return eval_list(c, node, scope);
    case CJ_DICT_OF: return eval_dict(c, node, scope);
    case CJ_ATTRIBUTE: return eval_attribute(c, node, scope);
    case CJ_ITEM: return eval_item(c, node, scope);
    case CJ_SLICE: return eval_slice(c, node, scope);
    case CJ_CALL: return cj_eval_call(c, node, scope, NULL);
    case CJ_FILTER:
    case CJ_TEST: return eval_builtin(c, node, scope);
    case CJ_AND:
    case CJ_OR: return eval_logic(c, node, scope);
    case CJ_IF_ELSE: return eval_choice(c, node, scope);
    case CJ_BINARY: return eval_binary(c, node, scope);
    case CJ_COMPARE: return eval_comparison(c, node, scope);
    case CJ_CONCAT: return eval_concat(c, node, scope);
    default: return eval_unary(c, node, scope);
    }
}

cj_value cj_eval(cj_context *c, const cj_node *node, cj_scope *scope) {
    cj_enter(c->r);
    cj_step(c->r);
    c->r->line = node->line;
    const cj_value v = eval_node(c, node, scope);
    cj_leave(c->r);
    return v;
}
