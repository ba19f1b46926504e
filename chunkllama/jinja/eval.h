/* Evaluates expressions and executes statements. */
#ifndef CHUNKLLAMA_JINJA_EVAL_H
#define CHUNKLLAMA_JINJA_EVAL_H

#include "builtins.h"
#include "syntax.h"

/* Variables that the template has set, in a block and those around it. */
typedef struct cj_scope {
    struct cj_scope *parent;
    cj_dict variables;
    bool captured; /* a macro refers to it, so it cannot be used again */
} cj_scope;

/* The state of rendering a template. */
typedef struct cj_context {
    cj_run *r;
    const cj_dict *own, *variables; /* the caller's names; the first hide the second */
    cj_value piped;                 /* the value that the filters of a block get */
} cj_context;

/* A macro, or the body of a call block, with the scope in which it stands. */
struct cj_macro {
    cj_context *context;
    const cj_node *node;
    cj_scope *scope;
};

cj_value cj_eval(cj_context *c, const cj_node *node, cj_scope *scope);

/* caller: the body of a call block, or NULL. */
cj_value cj_eval_call(cj_context *c, const cj_node *node, cj_scope *scope, const cj_value *caller);

typedef enum cj_flow { CJ_GOES_ON, CJ_BREAKS, CJ_CONTINUES } cj_flow;
void cj_execute_program(cj_context *c, const cj_program *program, cj_builder *out);
cj_flow cj_execute(cj_context *c, const cj_body *body, cj_scope *scope, cj_builder *out);

cj_value cj_call_macro(cj_run *r, const cj_macro *macro, const cj_args *args);

/* ---- Operators ---- */

cj_value cj_binary(cj_run *r, cj_op op, const cj_value *a, const cj_value *b);
cj_value cj_negative(cj_run *r, const cj_value *a);
bool cj_compares(cj_run *r, cj_op op, const cj_value *a, const cj_value *b);
/* object[begin:end:step]; none for those that are left out */
cj_value cj_slice(cj_run *r, const cj_value *object, const cj_value bounds[3]);

#endif
