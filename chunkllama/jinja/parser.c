/* Moves through the tokens of a template, and makes the nodes of its tree. */
#include "syntax.h"

void cj_advance(cj_parser *p) {
    p->token = p->next;
    if (p->token.kind != CJ_T_END) p->next = cj_next_token(&p->lexer);
    p->r->line = p->token.line;
}

bool cj_at_op(const cj_parser *p, const char *op) { return p->token.kind == CJ_T_OPERATOR && strcmp(p->token.op, op) == 0; }

bool cj_at_name(const cj_parser *p, const char *name) { return p->token.kind == CJ_T_NAME && cl_str_is(p->token.text, name); }

bool cj_skip_op(cj_parser *p, const char *op) {
    if (!cj_at_op(p, op)) return false;
    cj_advance(p);
    return true;
}

bool cj_skip_name(cj_parser *p, const char *name) {
    if (!cj_at_name(p, name)) return false;
    cj_advance(p);
    return true;
}

void cj_unexpected(cj_parser *p, const char *expected) {
    char shown[48];
    const cj_token *t = &p->token;
    cl_str text = t->text;
    if (t->kind == CJ_T_END) text = cl_str_of("the end of the template");
    if (t->kind == CJ_T_CLOSE) text = cl_str_of("%}");
    if (t->kind == CJ_T_PRINT_END) text = cl_str_of("}}");
    cj_fail(p->r, CL_ERR_FORMAT, "expected %s, found %s", expected, cl_str_show(text, shown, sizeof shown));
}

void cj_expect_op(cj_parser *p, const char *op) {
    char expected[8] = {'\'', op[0], op[1] ? op[1] : '\'', op[1] ? '\'' : 0};
    if (!cj_skip_op(p, op)) cj_unexpected(p, expected);
}

cl_str cj_expect_name(cj_parser *p) {
    if (p->token.kind != CJ_T_NAME) cj_unexpected(p, "a name");
    const cl_str name = p->token.text;
    cj_advance(p);
    return name;
}

cj_node *cj_parser_node(cj_parser *p, cj_node_kind kind) {
    cj_node *node = CJ_NEW(p->r, cj_node);
    node->kind = kind;
    node->line = p->token.line;
    return node;
}

void cj_above(cj_parser *p, cj_node *node, const cj_node *child) {
    if (!child || child->height < node->height) return;
    if (child->height >= p->r->max_depth)
        cj_fail(p->r, CL_ERR_LIMIT, "the template is nested deeper than the allowed %d levels", (int)p->r->max_depth);
    node->height = (int16_t)(child->height + 1);
}
