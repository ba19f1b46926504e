/*
 * Finds the names that are undefined where a scope begins. A name that a scope assigns before it reads it belongs to that scope
 * from its beginning, as a local variable does in Python: until it is assigned, inner scopes such as loops and macros do not
 * see a variable of the caller with the same name. Where only some branches of an if assign it, they do.
 */
#include "syntax.h"

typedef struct frame {
    const struct frame *parent;
    cj_names known;   /* read or assigned here */
    cj_names stored;  /* assigned here */
    cj_names cleared; /* undefined at the beginning */
} frame;

static bool has(cj_run *r, const cj_names *names, cl_str name) {
    cj_steps(r, names->n + 1);
    for (size_t i = 0; i < names->n; i++)
        if (names->at[i].size == name.size && memcmp(names->at[i].data, name.data, name.size) == 0) return true;
    return false;
}

static void add(cj_run *r, cj_names *names, cl_str name) {
    if (!has(r, names, name)) CJ_PUSH(r, names->at, names->n, names->capacity, name);
}

static bool is_known(cj_run *r, const frame *f, cl_str name) {
    for (; f; f = f->parent) {
        if (has(r, &f->known, name)) return true;
    }
    return false;
}

static void load(cj_run *r, frame *f, cl_str name) {
    if (!is_known(r, f, name)) add(r, &f->known, name);
}

static void store(cj_run *r, frame *f, cl_str name) {
    add(r, &f->stored, name);
    if (!is_known(r, f, name)) add(r, &f->cleared, name);
    add(r, &f->known, name);
}

static void declare(cj_run *r, frame *f, cl_str name) {
    add(r, &f->stored, name);
    add(r, &f->known, name);
}

static void load_all(cj_run *r, frame *f, const cj_node *node) {
    if (!node) return;
    if (node->kind == CJ_NAME) load(r, f, node->name);
    load_all(r, f, node->a);
    load_all(r, f, node->b);
    load_all(r, f, node->c);
    for (size_t i = 0; i < node->n; i++) load_all(r, f, node->items[i]);
    for (size_t i = 0; i < node->arguments.n; i++) load_all(r, f, node->arguments.at[i]);
    load_all(r, f, node->arguments.list);
}

/* assign: store or declare. */
static void assign_all(cj_run *r, frame *f, const cj_node *target, void (*assign)(cj_run *r, frame *f, cl_str name)) {
    if (target->kind == CJ_NAME) assign(r, f, target->name);
    if (target->kind == CJ_NAMESPACE_ATTRIBUTE) load(r, f, target->name);
    for (size_t i = 0; i < target->n; i++) assign_all(r, f, target->items[i], assign);
}

static void visit_body(cj_run *r, frame *f, const cj_body *body);

static cj_names copy(cj_run *r, const cj_names *names) {
    cj_names copied = {0};
    cj_steps(r, names->n);
    for (size_t i = 0; i < names->n; i++) CJ_PUSH(r, copied.at, copied.n, copied.capacity, names->at[i]);
    return copied;
}

static void visit_branch(cj_run *r, frame *f, const frame *before, const cj_body *body) {
    *f = (frame){before->parent, copy(r, &before->known), copy(r, &before->stored), copy(r, &before->cleared)};
    visit_body(r, f, body);
}

/* Jinja has three branches: the if, all its elif together, and the else. */
static void visit_if(cj_run *r, frame *f, const cj_node *node) {
    frame branches[3];
    load_all(r, f, node->a);
    visit_branch(r, &branches[0], f, &node->body);
    visit_branch(r, &branches[1], f, &(cj_body){0});
    const cj_node *last = node;
    while (last->other.n == 1 && last->other.at[0]->kind == CJ_IF && last->other.at[0]->is_elif) {
        last = last->other.at[0];
        load_all(r, &branches[1], last->a);
        frame one;
        visit_branch(r, &one, &branches[1], &last->body);
        branches[1] = one;
    }
    visit_branch(r, &branches[2], f, &last->other);
    const cj_names before = copy(r, &f->stored);
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < branches[i].known.n; k++) add(r, &f->known, branches[i].known.at[k]);
        for (size_t k = 0; k < branches[i].stored.n; k++) add(r, &f->stored, branches[i].stored.at[k]);
    }
    for (size_t k = 0; k < branches[0].cleared.n; k++) { /* only what all of them assign stays so */
        const cl_str name = branches[0].cleared.at[k];
        if (!has(r, &before, name) && has(r, &branches[1].cleared, name) && has(r, &branches[2].cleared, name))
            add(r, &f->cleared, name);
    }
}

static void visit(cj_run *r, frame *f, const cj_node *node) {
    switch (node->kind) {
    case CJ_OUTPUT:
    case CJ_FOR:
    case CJ_FILTER_BLOCK:
    case CJ_CALL_BLOCK: load_all(r, f, node->a); break;
    case CJ_IF: visit_if(r, f, node); break;
    case CJ_SET: load_all(r, f, node->a); /* fall through */
    case CJ_SET_BLOCK: assign_all(r, f, node->target, store); break;
    case CJ_MACRO_BLOCK: store(r, f, node->name); break;
    default: break;
    }
}

static void visit_body(cj_run *r, frame *f, const cj_body *body) {
    for (size_t i = 0; i < body->n; i++) visit(r, f, body->at[i]);
}

/* ---- Inner scopes ---- */

static void find_in(cj_run *r, const frame *f, const cj_body *body);

/* Finish a scope whose own names may have been declared. */
static cj_names finish(cj_run *r, frame *f, const cj_body *body) {
    visit_body(r, f, body);
    find_in(r, f, body);
    return f->cleared;
}

static void find_in_node(cj_run *r, const frame *f, cj_node *node) {
    frame inner = {.parent = f}, other = {.parent = f};
    switch (node->kind) {
    case CJ_IF:
        find_in(r, f, &node->body);
        find_in(r, f, &node->other);
        return;
    case CJ_FOR:
        declare(r, &inner, cl_str_of("loop"));
        assign_all(r, &inner, node->target, declare);
        node->cleared = finish(r, &inner, &node->body);
        node->cleared_other = finish(r, &other, &node->other);
        return;
    case CJ_MACRO_BLOCK:
    case CJ_CALL_BLOCK:
        for (size_t i = 0; i < node->n_parameters; i++) declare(r, &inner, node->parameters[i]);
        for (size_t i = 0; i < node->n_parameters; i++) load_all(r, &inner, node->defaults[i]);
        break;
    case CJ_SET_BLOCK:
    case CJ_FILTER_BLOCK:
    case CJ_SCOPE: break;
    default: return;
    }
    node->cleared = finish(r, &inner, &node->body);
}

static void find_in(cj_run *r, const frame *f, const cj_body *body) {
    cj_enter(r);
    for (size_t i = 0; i < body->n; i++) find_in_node(r, f, (cj_node *)body->at[i]);
    cj_leave(r);
}

cj_names cj_cleared_names(cj_run *r, const cj_body *body) {
    frame root = {0};
    return finish(r, &root, body);
}
