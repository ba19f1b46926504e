/* Parses the text of a template and its statements. */
#include "syntax.h"

static cj_body parse_body(cj_parser *p, cj_node *parent, const char *const *ends);

static const char *const no_ends[] = {NULL};

/* The end of a tag. */
static void expect_close(cj_parser *p) {
    if (p->token.kind != CJ_T_CLOSE) cj_unexpected(p, "'%}'");
    cj_advance(p);
}

/* Whether the current statement is one of the names that end a body. */
static bool at_end(const cj_parser *p, const char *const *ends) {
    for (; *ends; ends++)
        if (p->token.kind == CJ_T_OPEN && p->next.kind == CJ_T_NAME && cl_str_is(p->next.text, *ends)) return true;
    return false;
}

/* The body of a statement from the end of its tag to {% end %}, both of which are passed. */
static cj_body parse_block(cj_parser *p, cj_node *parent, const char *end) {
    const char *const ends[] = {end, NULL};
    expect_close(p);
    const cj_body body = parse_body(p, parent, ends);
    cj_advance(p);
    cj_advance(p);
    return body;
}

/* The body of a statement that has a scope of its own. As in Jinja, unknown filters in it are errors at once again. */
static cj_body parse_scope(cj_parser *p, cj_node *parent, const char *end) {
    const int32_t n_if = p->n_if;
    p->n_if = 0;
    const cj_body body = parse_block(p, parent, end);
    p->n_if = n_if;
    return body;
}

/* The body up to an inner tag such as {% else %} or the end, whose name is passed and returned. */
static cl_str parse_branch(cj_parser *p, cj_node *parent, cj_body *body, const char *const *ends) {
    expect_close(p);
    *body = parse_body(p, parent, ends);
    cj_advance(p);
    const cl_str name = p->token.text;
    cj_advance(p);
    return name;
}

static cj_node *parse_if(cj_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    cj_node *node = cj_parser_node(p, CJ_IF), *last;
    cj_node *chain[256];
    size_t n = 0;
    chain[n++] = last = node;
    p->n_if++;
    for (;;) {
        last->a = cj_parse_tuple(p, false, NULL);
        cj_above(p, last, last->a);
        const cl_str end = parse_branch(p, last, &last->body, ends);
        if (!cl_str_is(end, "elif")) {
            if (cl_str_is(end, "else")) last->other = parse_block(p, last, "endif");
            break;
        }
        if (n == sizeof chain / sizeof *chain) cj_fail(p->r, CL_ERR_LIMIT, "an if has more than 255 elif");
        last = chain[n++] = cj_parser_node(p, CJ_IF);
        last->is_elif = true;
    }
    p->n_if--;
    while (--n > 0) { /* each elif is the else of the one before it */
        const cj_node **only = cj_alloc(p->r, 1, sizeof(cj_node *));
        *only = chain[n];
        chain[n - 1]->other = (cj_body){only, 1};
        cj_above(p, chain[n - 1], chain[n]);
    }
    return node;
}

static cj_node *parse_for(cj_parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    cj_node *node = cj_parser_node(p, CJ_FOR);
    node->target = cj_parse_target(p, false);
    if (!cj_skip_name(p, "in")) cj_unexpected(p, "'in'");
    node->a = cj_parse_tuple(p, false, "recursive");
    if (cj_skip_name(p, "if")) node->b = cj_parse_expression(p);
    if (cj_at_name(p, "recursive")) cj_fail(p->r, CL_ERR_UNSUPPORTED, "recursive loops are not supported");
    cj_above(p, node, node->target);
    cj_above(p, node, node->a);
    cj_above(p, node, node->b);
    const int32_t n_if = p->n_if;
    p->n_if = 0;
    p->n_for++;
    const cl_str end = parse_branch(p, node, &node->body, ends);
    p->n_for--;
    if (cl_str_is(end, "else")) node->other = parse_block(p, node, "endfor");
    p->n_if = n_if;
    return node;
}

static cj_node *parse_set(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_SET);
    node->target = cj_parse_target(p, true);
    if (cj_skip_op(p, "=")) {
        node->a = cj_parse_tuple(p, true, NULL);
    } else {
        node->kind = CJ_SET_BLOCK;
        if (cj_skip_op(p, "|")) node->a = cj_parse_filters(p);
        node->body = parse_scope(p, node, "endset");
    }
    cj_above(p, node, node->target);
    cj_above(p, node, node->a);
    return node;
}

/* The parameters of a macro or a call block, from the parenthesis on. */
static void parse_parameters(cj_parser *p, cj_node *node) {
    size_t capacity = 0, default_capacity = 0, n_defaults = 0;
    bool has_default = false;
    cj_expect_op(p, "(");
    while (!cj_at_op(p, ")")) {
        if (node->n_parameters > 0) cj_expect_op(p, ",");
        const cl_str name = cj_expect_name(p);
        cj_node *value = cj_skip_op(p, "=") ? cj_parse_expression(p) : NULL;
        if (has_default && !value) cj_fail(p->r, CL_ERR_FORMAT, "a parameter without a default follows one with a default");
        has_default = value != NULL;
        CJ_PUSH(p->r, node->parameters, node->n_parameters, capacity, name);
        CJ_PUSH(p->r, node->defaults, n_defaults, default_capacity, value);
        cj_above(p, node, value);
    }
    cj_advance(p);
}

/* The body of a macro or a call block. */
static void parse_macro_body(cj_parser *p, cj_node *node, const char *end) {
    cj_node *outer = p->macro;
    const int32_t n_for = p->n_for;
    p->macro = node;
    p->n_for = 0;
    node->body = parse_scope(p, node, end);
    p->macro = outer;
    p->n_for = n_for;
    if (!outer) return;
    outer->uses_caller |= node->uses_caller;
}

static cj_node *parse_macro(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_MACRO_BLOCK);
    node->name = cj_expect_name(p);
    parse_parameters(p, node);
    parse_macro_body(p, node, "endmacro");
    return node;
}

static cj_node *parse_call_block(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_CALL_BLOCK);
    node->name = cl_str_of("caller");
    if (cj_at_op(p, "(")) parse_parameters(p, node);
    node->a = cj_parse_expression(p);
    if (node->a->kind != CJ_CALL) cj_fail(p->r, CL_ERR_FORMAT, "a call block needs a call");
    cj_above(p, node, node->a);
    parse_macro_body(p, node, "endcall");
    return node;
}

static cj_node *parse_filter_block(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_FILTER_BLOCK);
    node->a = cj_parse_filters(p);
    cj_above(p, node, node->a);
    node->body = parse_scope(p, node, "endfilter");
    return node;
}

static cj_node *parse_generation(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_SCOPE);
    const int32_t n_for = p->n_for;
    p->n_for = 0;
    node->body = parse_scope(p, node, "endgeneration");
    p->n_for = n_for;
    return node;
}

static cj_node *parse_jump(cj_parser *p, cj_node_kind kind) {
    cj_node *node = cj_parser_node(p, kind);
    if (p->n_for == 0) cj_fail(p->r, CL_ERR_FORMAT, "'%s' is not in a loop", kind == CJ_BREAK ? "break" : "continue");
    return node;
}

/* A statement after its '{%'. */
static cj_node *parse_statement(cj_parser *p) {
    static const struct {
        const char *name;
        cj_node *(*parse)(cj_parser *p);
    } statements[] = {{"if", parse_if},
                      {"for", parse_for},
                      {"set", parse_set},
                      {"macro", parse_macro},
                      {"call", parse_call_block},
                      {"filter", parse_filter_block},
                      {"generation", parse_generation}};
    static const char *const missing[] = {"include", "import",     "from",  "extends", "block", "with",
                                          "raw",     "autoescape", "print", "do",      "trans", "debug"};
    char shown[64];
    const int32_t line = p->token.line;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!cj_skip_name(p, statements[i].name)) continue;
        cj_node *node = statements[i].parse(p);
        node->line = line;
        return node;
    }
    if (cj_skip_name(p, "break")) return parse_jump(p, CJ_BREAK);
    if (cj_skip_name(p, "continue")) return parse_jump(p, CJ_CONTINUE);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (cj_at_name(p, missing[i])) cj_fail(p->r, CL_ERR_UNSUPPORTED, "the tag '%s' is not supported", missing[i]);
    if (p->token.kind != CJ_T_NAME) cj_unexpected(p, "the name of a tag");
    cj_fail(p->r, CL_ERR_FORMAT, "unknown tag '%s'", cl_str_show(p->token.text, shown, sizeof shown));
}

static cj_node *parse_piece(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_OUTPUT);
    if (p->token.kind == CJ_T_DATA) {
        node->a = cj_parser_node(p, CJ_CONST);
        node->a->value = cj_string(cj_own(p->token.text));
        cj_advance(p);
        return node;
    }
    const bool prints = p->token.kind == CJ_T_PRINT;
    cj_advance(p);
    if (!prints) {
        node = parse_statement(p);
        expect_close(p);
        return node;
    }
    node->a = cj_parse_tuple(p, true, NULL);
    cj_above(p, node, node->a);
    if (p->token.kind != CJ_T_PRINT_END) cj_unexpected(p, "'}}'");
    cj_advance(p);
    return node;
}

static cj_body parse_body(cj_parser *p, cj_node *parent, const char *const *ends) {
    cj_body body = {0};
    const cj_node **at = NULL;
    size_t capacity = 0;
    cj_enter(p->r);
    while (!at_end(p, ends)) {
        if (p->token.kind == CJ_T_END) {
            if (!*ends) break;
            if (parent) p->r->line = parent->line;
            const char *end = ends[0];
            for (const char *const *e = ends; *e; e++) end = *e;
            cj_fail(p->r, CL_ERR_FORMAT, "the tag has no '%s'", end);
        }
        const cj_node *node = parse_piece(p);
        CJ_PUSH(p->r, at, body.n, capacity, node);
        if (parent) cj_above(p, parent, node);
    }
    cj_leave(p->r);
    body.at = at;
    return body;
}

cj_program cj_parse(cj_run *r, const char *text, size_t size) {
    cj_parser p = {.r = r, .lexer = cj_lexer_of(r, text, size)};
    p.next = cj_next_token(&p.lexer);
    cj_advance(&p);
    const cj_body body = parse_body(&p, NULL, no_ends);
    return (cj_program){body, cj_cleared_names(r, &body)};
}
