/* Executes statements: output, branches, loops, assignments, macros. */
#include "eval.h"
#include "print.h"

/* ---- Scopes ---- */

static void set(cj_context *c, cj_scope *scope, cl_str name, cj_value v) {
    cj_dict_set(c->r, &scope->variables, cj_string(cj_own(name)), v);
}

/* Make a scope as it is at its beginning. */
static void clear(cj_context *c, cj_scope *scope, const cj_names *cleared) {
    scope->variables.n = 0;
    for (size_t i = 0; i < cleared->n; i++) set(c, scope, cleared->at[i], cj_undefined(cj_own(cleared->at[i])));
}

static cj_scope *new_scope(cj_context *c, cj_scope *parent, const cj_names *cleared) {
    cj_scope *scope = CJ_NEW(c->r, cj_scope);
    scope->parent = parent;
    clear(c, scope, cleared);
    return scope;
}

/* Assign to a name, to the attribute of a namespace, or the elements of v to those of a tuple. */
static void assign(cj_context *c, const cj_node *target, cj_scope *scope, const cj_value *v) {
    cj_run *r = c->r;
    char shown[64];
    if (target->kind == CJ_NAME) {
        set(c, scope, target->name, *v);
    } else if (target->kind == CJ_NAMESPACE_ATTRIBUTE) {
        const cj_node name = {.kind = CJ_NAME, .line = target->line, .name = target->name};
        const cj_value object = cj_eval(c, &name, scope);
        if (object.kind != CJ_NAMESPACE)
            cj_fail(r, CL_ERR_ARG, "'%s' is no namespace, so its attributes cannot be set",
                    cl_str_show(target->name, shown, sizeof shown));
        cj_dict_set(r, object.dict, target->value, *v);
    } else {
        if (!cj_is_iterable(v)) cj_fail(r, CL_ERR_ARG, "a value of type '%s' cannot be unpacked", cj_type(v));
        const cj_list *list = cj_elements(r, v);
        if (list->n != target->n) cj_fail(r, CL_ERR_ARG, "%zu values cannot be unpacked to %zu names", list->n, target->n);
        for (size_t i = 0; i < target->n; i++) assign(c, target->items[i], scope, &list->at[i]);
    }
}

static cj_value make_macro(cj_context *c, const cj_node *node, cj_scope *scope) {
    for (cj_scope *s = scope; s; s = s->parent) s->captured = true;
    cj_macro *macro = CJ_NEW(c->r, cj_macro);
    *macro = (cj_macro){c, node, scope};
    return (cj_value){.kind = CJ_MACRO, .macro = macro};
}

/* ---- Loops ---- */

/* The elements for which the condition of a loop holds. */
static const cj_list *filtered(cj_context *c, const cj_node *node, cj_scope *scope, const cj_list *list) {
    if (!node->b) return list;
    cj_list *kept = cj_list_new(c->r, 0);
    cj_scope *inner = new_scope(c, scope, &(cj_names){0});
    for (size_t i = 0; i < list->n; i++) {
        assign(c, node->target, inner, &list->at[i]);
        const cj_value condition = cj_eval(c, node->b, inner);
        if (cj_truth(&condition)) cj_list_add(c->r, kept, list->at[i]);
    }
    return kept;
}

static cj_flow execute_for(cj_context *c, const cj_node *node, cj_scope *scope, cj_builder *out) {
    const cj_value iterated = cj_eval(c, node->a, scope);
    c->r->line = node->line;
    const cj_list *list = filtered(c, node, scope, cj_elements(c->r, &iterated));
    if (list->n == 0) return cj_execute(c, &node->other, new_scope(c, scope, &node->cleared_other), out);
    cj_loop *loop = CJ_NEW(c->r, cj_loop);
    loop->items = list;
    cj_scope *inner = new_scope(c, scope, &node->cleared);
    for (; loop->index < list->n; loop->index++) {
        if (inner->captured) inner = new_scope(c, scope, &node->cleared);
        clear(c, inner, &node->cleared);
        set(c, inner, cl_str_of("loop"), (cj_value){.kind = CJ_LOOP, .loop = loop});
        assign(c, node->target, inner, &list->at[loop->index]);
        if (cj_execute(c, &node->body, inner, out) == CJ_BREAKS) break;
    }
    return CJ_GOES_ON;
}

/* ---- Macros ---- */

/* Whether an argument with the name was passed; *v is its value. used: [n_named] is marked. */
static bool take_named(cj_run *r, const cj_args *args, cl_str name, bool *used, cj_value *v) {
    cj_step_elements(r, args->n_named);
    for (size_t i = 0; i < args->n_named; i++) {
        if (!cj_text_equal(r, args->names[i], cj_own(name))) continue;
        used[i] = true;
        *v = args->named[i];
        return true;
    }
    return false;
}

static void set_parameters(cj_context *c, const cj_node *node, cj_scope *scope, const cj_args *args, bool *used) {
    for (size_t i = 0; i < node->n_parameters; i++) {
        cj_value v = cj_undefined(cj_own(node->parameters[i]));
        if (i < args->n)
            v = args->at[i];
        else if (!take_named(c->r, args, node->parameters[i], used, &v) && node->defaults[i])
            v = cj_eval(c, node->defaults[i], scope);
        set(c, scope, node->parameters[i], v);
    }
}

/* The argument `caller`, if the macro's body names it, and no others beyond the parameters. */
static void set_caller(cj_context *c, const cj_node *node, cj_scope *scope, const cj_args *args, bool *used) {
    cj_run *r = c->r;
    char shown[64], name[64];
    cl_str_show(node->name, name, sizeof name);
    const cl_str caller = cl_str_of("caller");
    cj_value v = cj_undefined(cj_own(caller));
    if (node->uses_caller && !cj_dict_get_name(r, &scope->variables, cj_own(caller))) {
        take_named(r, args, caller, used, &v);
        set(c, scope, caller, v);
    }
    if (args->n > node->n_parameters)
        cj_fail(r, CL_ERR_ARG, "macro '%s' takes at most %zu arguments", name, node->n_parameters);
    for (size_t i = 0; i < args->n_named; i++)
        if (!used[i])
            cj_fail(r, CL_ERR_ARG, "macro '%s' takes no argument '%s'", name,
                    cl_str_show((cl_str){args->names[i].data, args->names[i].size}, shown, sizeof shown));
}

cj_value cj_call_macro(cj_run *r, const cj_macro *macro, const cj_args *args) {
    cj_context *c = macro->context;
    const cj_node *node = macro->node;
    bool *used = cj_alloc_zero(r, args->n_named, sizeof *used);
    cj_builder out = {.r = r};
    cj_enter(r);
    cj_scope *scope = new_scope(c, macro->scope, &node->cleared);
    set_parameters(c, node, scope, args, used);
    set_caller(c, node, scope, args, used);
    cj_execute(c, &node->body, scope, &out);
    cj_leave(r);
    return cj_string(cj_built(&out));
}

/* ---- Statements ---- */

/* Apply the filters of a block to a text. */
static cj_value apply_filters(cj_context *c, const cj_node *filters, cj_scope *scope, cj_builder *text) {
    const cj_value outer = c->piped, v = cj_string(cj_built(text));
    if (!filters) return v;
    c->piped = v;
    const cj_value result = cj_eval(c, filters, scope);
    c->piped = outer;
    return result;
}

/* A block whose text is filtered, and then printed or assigned. */
static cj_flow execute_text_block(cj_context *c, const cj_node *node, cj_scope *scope, cj_builder *out) {
    cj_builder text = {.r = c->r};
    cj_scope *inner = new_scope(c, scope, &node->cleared);
    const cj_flow flow = cj_execute(c, &node->body, inner, &text);
    if (flow != CJ_GOES_ON) return flow;
    const cj_value v = apply_filters(c, node->a, scope, &text);
    if (node->kind == CJ_SET_BLOCK)
        assign(c, node->target, scope, &v);
    else
        cj_put_str(out, &v);
    return CJ_GOES_ON;
}

static cj_flow execute_if(cj_context *c, const cj_node *node, cj_scope *scope, cj_builder *out) {
    const cj_value condition = cj_eval(c, node->a, scope);
    return cj_execute(c, cj_truth(&condition) ? &node->body : &node->other, scope, out);
}

static cj_flow execute_node(cj_context *c, const cj_node *node, cj_scope *scope, cj_builder *out) {
    cj_value v;
    switch (node->kind) {
    case CJ_OUTPUT:
        v = cj_eval(c, node->a, scope);
        cj_put_str(out, &v);
        return CJ_GOES_ON;
    case CJ_IF: return execute_if(c, node, scope, out);
    case CJ_FOR: return execute_for(c, node, scope, out);
    case CJ_SET:
        v = cj_eval(c, node->a, scope);
        assign(c, node->target, scope, &v);
        return CJ_GOES_ON;
    case CJ_SET_BLOCK:
    case CJ_FILTER_BLOCK: return execute_text_block(c, node, scope, out);
    case CJ_MACRO_BLOCK: set(c, scope, node->name, make_macro(c, node, scope)); return CJ_GOES_ON;
    case CJ_CALL_BLOCK: {
        const cj_value caller = make_macro(c, node, scope);
        v = cj_eval_call(c, node->a, scope, &caller);
        cj_put_str(out, &v);
        return CJ_GOES_ON;
    }
    case CJ_SCOPE: return cj_execute(c, &node->body, new_scope(c, scope, &node->cleared), out);
    case CJ_BREAK: return CJ_BREAKS;
    default: return CJ_CONTINUES;
    }
}

cj_flow cj_execute(cj_context *c, const cj_body *body, cj_scope *scope, cj_builder *out) {
    cj_flow flow = CJ_GOES_ON;
    cj_enter(c->r);
    for (size_t i = 0; i < body->n && flow == CJ_GOES_ON; i++) {
        cj_step(c->r);
        c->r->line = body->at[i]->line;
        flow = execute_node(c, body->at[i], scope, out);
    }
    cj_leave(c->r);
    return flow;
}

void cj_execute_program(cj_context *c, const cj_program *program, cj_builder *out) {
    cj_execute(c, &program->body, new_scope(c, NULL, &program->cleared), out);
}
