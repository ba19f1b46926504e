/* Parses expressions, with the precedence that Jinja gives its operators. */
#include "builtins.h"
#include "syntax.h"

/* ---- Nodes ---- */

/* A node with operands, of which b may be NULL. */
static cj_node *above(cj_parser *p, cj_node_kind kind, cj_node *a, cj_node *b) {
    cj_node *node = cj_parser_node(p, kind);
    node->a = a;
    node->b = b;
    cj_above(p, node, a);
    cj_above(p, node, b);
    return node;
}

static void add_item(cj_parser *p, cj_node *node, size_t *capacity, cj_node *item) {
    CJ_PUSH(p->r, node->items, node->n, *capacity, item);
    cj_above(p, node, item);
}

/* ---- Literals ---- */

static cj_node *parse_collection(cj_parser *p, cj_node_kind kind, const char *close) {
    cj_node *node = cj_parser_node(p, kind);
    size_t capacity = 0;
    cj_advance(p);
    while (!cj_at_op(p, close)) {
        if (node->n > 0) cj_expect_op(p, ",");
        if (cj_at_op(p, close)) break;
        add_item(p, node, &capacity, cj_parse_expression(p));
        if (kind != CJ_DICT_OF) continue;
        cj_expect_op(p, ":");
        add_item(p, node, &capacity, cj_parse_expression(p));
    }
    cj_advance(p);
    return node;
}

static cj_node *parse_string(cj_parser *p) {
    cj_node *node = cj_parser_node(p, CJ_CONST);
    node->value = p->token.value;
    for (cj_advance(p); p->token.kind == CJ_T_STRING; cj_advance(p)) /* neighbours are joined */
        node->value.text = cj_join2(p->r, node->value.text, p->token.value.text);
    return node;
}

static cj_node *parse_name(cj_parser *p) {
    static const struct {
        const char *name;
        cj_value value;
    } constants[] = {{"true", {.kind = CJ_BOOL, .boolean = true}},
                     {"True", {.kind = CJ_BOOL, .boolean = true}},
                     {"false", {.kind = CJ_BOOL, .boolean = false}},
                     {"False", {.kind = CJ_BOOL, .boolean = false}},
                     {"none", {.kind = CJ_NONE}},
                     {"None", {.kind = CJ_NONE}}};
    cj_node *node = cj_parser_node(p, CJ_NAME);
    node->name = p->token.text;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!cl_str_is(node->name, constants[i].name)) continue;
        node->kind = CJ_CONST;
        node->value = constants[i].value;
    }
    if (p->macro && (cl_str_is(node->name, "kwargs") || cl_str_is(node->name, "varargs")))
        cj_fail_unsupported(p->r, "variable", node->name);
    if (p->macro) p->macro->uses_caller |= cl_str_is(node->name, "caller");
    cj_advance(p);
    return node;
}

cj_node *cj_parse_primary(cj_parser *p) {
    cj_node *node;
    switch (p->token.kind) {
    case CJ_T_NAME: return parse_name(p);
    case CJ_T_STRING: return parse_string(p);
    case CJ_T_NUMBER:
        node = cj_parser_node(p, CJ_CONST);
        node->value = p->token.value;
        cj_advance(p);
        return node;
    default: break;
    }
    if (cj_at_op(p, "[")) return parse_collection(p, CJ_LIST_OF, "]");
    if (cj_at_op(p, "{")) return parse_collection(p, CJ_DICT_OF, "}");
    if (!cj_skip_op(p, "(")) cj_unexpected(p, "an expression");
    node = cj_parse_tuple(p, true, ")");
    cj_expect_op(p, ")");
    return node;
}

/* ---- Calls, filters, tests ---- */

static void parse_arguments(cj_parser *p, cj_node *node) {
    cj_arguments *a = &node->arguments;
    size_t capacity = 0, name_capacity = 0, n_names = 0;
    bool named = false;
    cj_expect_op(p, "(");
    for (bool first = true; !cj_at_op(p, ")"); first = false) {
        if (!first) cj_expect_op(p, ",");
        if (cj_at_op(p, ")")) break;
        if (cj_at_op(p, "**")) cj_fail_unsupported(p->r, "operator", p->token.text);
        if (cj_at_op(p, "*")) {
            if (a->list) cj_unexpected(p, "')'");
            cj_advance(p);
            a->list = cj_parse_expression(p);
            cj_above(p, node, a->list);
            continue;
        }
        cl_str name = {0};
        if (p->token.kind == CJ_T_NAME && p->next.kind == CJ_T_OPERATOR && strcmp(p->next.op, "=") == 0) {
            name = p->token.text;
            cj_advance(p);
            cj_advance(p);
            named = true;
        }
        if (!name.data && (named || a->list)) cj_unexpected(p, "an argument with a name");
        cj_node *value = cj_parse_expression(p);
        CJ_PUSH(p->r, a->names, n_names, name_capacity, name);
        CJ_PUSH(p->r, a->at, a->n, capacity, value);
        cj_above(p, node, value);
    }
    cj_advance(p);
}

static cj_node *parse_call(cj_parser *p, cj_node *callee) {
    cj_node *node = above(p, CJ_CALL, callee, NULL);
    parse_arguments(p, node);
    return node;
}

static void find_builtin(cj_parser *p, cj_node *node, bool filter) {
    node->builtin = filter ? cj_find_filter(node->name) : cj_find_test(node->name);
    if (!node->builtin && p->n_if == 0) cj_fail_unsupported(p->r, filter ? "filter" : "test", node->name);
}

/* The name of a filter, which may contain dots. */
static cl_str parse_dotted_name(cj_parser *p) {
    cl_str name = cj_expect_name(p);
    while (cj_skip_op(p, ".")) {
        const cl_str part = cj_expect_name(p);
        name.size = (size_t)(part.data + part.size - name.data);
    }
    return name;
}

/* A filter after its '|'. */
static cj_node *parse_filter(cj_parser *p, cj_node *value) {
    cj_node *node = above(p, CJ_FILTER, value, NULL);
    node->name = parse_dotted_name(p);
    if (cj_at_op(p, "(")) parse_arguments(p, node);
    find_builtin(p, node, true);
    return node;
}

cj_node *cj_parse_filters(cj_parser *p) {
    cj_node *node = parse_filter(p, NULL);
    while (cj_skip_op(p, "|")) node = parse_filter(p, node);
    return node;
}

/* A test after its 'is'. */
static cj_node *parse_test(cj_parser *p, cj_node *value) {
    const bool negated = cj_skip_name(p, "not");
    cj_node *node = above(p, CJ_TEST, value, NULL);
    node->name = cj_expect_name(p);
    const bool ends = cj_at_name(p, "else") || cj_at_name(p, "or") || cj_at_name(p, "and");
    const bool has_argument = (p->token.kind == CJ_T_NAME && !ends) || p->token.kind == CJ_T_STRING ||
                              p->token.kind == CJ_T_NUMBER || cj_at_op(p, "(") || cj_at_op(p, "[") || cj_at_op(p, "{");
    if (has_argument) cj_fail(p->r, CL_ERR_UNSUPPORTED, "arguments of tests after 'is' are not supported");
    find_builtin(p, node, false);
    return negated ? above(p, CJ_NOT, node, NULL) : node;
}

/* ---- Subscripts ---- */

static bool ends_index(const cj_parser *p) { return cj_at_op(p, "]") || cj_at_op(p, ","); }

static cj_node *parse_slice(cj_parser *p, cj_node *a, cj_node *first) {
    cj_node *node = above(p, CJ_SLICE, a, NULL);
    size_t capacity = 0;
    add_item(p, node, &capacity, first);
    cj_advance(p);
    add_item(p, node, &capacity, ends_index(p) || cj_at_op(p, ":") ? NULL : cj_parse_expression(p));
    add_item(p, node, &capacity, cj_skip_op(p, ":") && !ends_index(p) ? cj_parse_expression(p) : NULL);
    if (cj_at_op(p, ",")) cj_fail(p->r, CL_ERR_UNSUPPORTED, "slices of several dimensions are not supported");
    return node;
}

/* The contents of brackets after a: an index, a slice, or indices that are one tuple. */
static cj_node *parse_index(cj_parser *p, cj_node *a) {
    if (cj_at_op(p, ":")) return parse_slice(p, a, NULL);
    cj_node *tuple = cj_parser_node(p, CJ_TUPLE_OF);
    size_t capacity = 0;
    while (!cj_at_op(p, "]")) {
        if (tuple->n > 0) cj_expect_op(p, ",");
        cj_node *item = cj_parse_expression(p);
        if (cj_at_op(p, ":") && tuple->n == 0) return parse_slice(p, a, item);
        add_item(p, tuple, &capacity, item);
    }
    return above(p, CJ_ITEM, a, tuple->n == 1 ? tuple->items[0] : tuple);
}

static cj_node *parse_subscript(cj_parser *p, cj_node *a) {
    cj_node *node;
    if (cj_skip_op(p, ".")) {
        if (p->token.kind == CJ_T_NUMBER && p->token.value.kind == CJ_INT) return above(p, CJ_ITEM, a, cj_parse_primary(p));
        node = above(p, CJ_ATTRIBUTE, a, NULL);
        node->name = cj_expect_name(p);
        return node;
    }
    cj_advance(p);
    node = parse_index(p, a);
    if (!cj_at_op(p, "]")) cj_unexpected(p, "']'");
    cj_advance(p);
    return node;
}

static cj_node *parse_postfix(cj_parser *p, cj_node *node) {
    for (;;) {
        if (cj_at_op(p, ".") || cj_at_op(p, "["))
            node = parse_subscript(p, node);
        else if (cj_at_op(p, "("))
            node = parse_call(p, node);
        else
            return node;
    }
}

/* ---- Operators, from the tightest ---- */

static cj_node *parse_unary(cj_parser *p, bool with_filters) {
    cj_node *node;
    cj_enter(p->r);
    if (cj_at_op(p, "-") || cj_at_op(p, "+")) {
        const cj_node_kind kind = cj_at_op(p, "-") ? CJ_NEGATIVE : CJ_POSITIVE;
        cj_advance(p);
        node = above(p, kind, parse_unary(p, false), NULL);
    } else {
        node = cj_parse_primary(p);
    }
    cj_leave(p->r);
    node = parse_postfix(p, node);
    while (with_filters) {
        if (cj_skip_op(p, "|"))
            node = parse_filter(p, node);
        else if (cj_skip_name(p, "is"))
            node = parse_test(p, node);
        else
            break;
    }
    return node;
}

typedef struct binary {
    const char *text;
    cj_op op;
} binary;

/* The operator of a level at which the parser is, or NULL. levels end with an empty text. */
static const binary *at_binary(const cj_parser *p, const binary *level) {
    while (level->text && !cj_at_op(p, level->text)) level++;
    return level->text ? level : NULL;
}

static cj_node *make_binary(cj_parser *p, cj_op op, cj_node *a, cj_node *b) {
    cj_node *node = above(p, CJ_BINARY, a, b);
    node->op = op;
    return node;
}

static cj_node *parse_product(cj_parser *p) {
    static const binary level[] = {{"*", CJ_MUL}, {"%", CJ_MOD}, {0}};
    cj_node *node = parse_unary(p, true);
    for (const binary *b; (b = at_binary(p, level)) != NULL;) {
        cj_advance(p);
        node = make_binary(p, b->op, node, parse_unary(p, true));
    }
    if (cj_at_op(p, "/") || cj_at_op(p, "//") || cj_at_op(p, "**")) cj_fail_unsupported(p->r, "operator", p->token.text);
    return node;
}

static cj_node *parse_concat(cj_parser *p) {
    cj_node *first = parse_product(p);
    if (!cj_at_op(p, "~")) return first;
    cj_node *node = cj_parser_node(p, CJ_CONCAT);
    size_t capacity = 0;
    add_item(p, node, &capacity, first);
    while (cj_skip_op(p, "~")) add_item(p, node, &capacity, parse_product(p));
    return node;
}

static cj_node *parse_sum(cj_parser *p) {
    static const binary level[] = {{"+", CJ_ADD}, {"-", CJ_SUB}, {0}};
    cj_node *node = parse_concat(p);
    for (const binary *b; (b = at_binary(p, level)) != NULL;) {
        cj_advance(p);
        node = make_binary(p, b->op, node, parse_concat(p));
    }
    return node;
}

/* Whether an operator of comparison follows; passes it. */
static bool skip_comparison(cj_parser *p, cj_op *op) {
    static const binary level[] = {{"==", CJ_EQ}, {"!=", CJ_NE}, {"<", CJ_LT}, {"<=", CJ_LE}, {">", CJ_GT}, {">=", CJ_GE}, {0}};
    const binary *b = at_binary(p, level);
    if (b) {
        *op = b->op;
        cj_advance(p);
        return true;
    }
    *op = CJ_IN;
    if (cj_skip_name(p, "in")) return true;
    if (!cj_at_name(p, "not") || p->next.kind != CJ_T_NAME || !cl_str_is(p->next.text, "in")) return false;
    cj_advance(p);
    cj_advance(p);
    *op = CJ_NOT_IN;
    return true;
}

static cj_node *parse_comparison(cj_parser *p) {
    cj_node *first = parse_sum(p), *node = NULL;
    size_t capacity = 0, op_capacity = 0, n_ops = 0;
    for (cj_op op; skip_comparison(p, &op);) {
        if (!node) {
            node = cj_parser_node(p, CJ_COMPARE);
            add_item(p, node, &capacity, first);
        }
        CJ_PUSH(p->r, node->ops, n_ops, op_capacity, op);
        add_item(p, node, &capacity, parse_sum(p));
    }
    return node ? node : first;
}

static cj_node *parse_not(cj_parser *p) {
    int n = 0;
    while (cj_skip_name(p, "not"))
        if (n++ >= p->r->max_depth)
            cj_fail(p->r, CL_ERR_LIMIT, "nested deeper than the allowed %d levels", (int)p->r->max_depth);
    cj_node *node = parse_comparison(p);
    while (n-- > 0) node = above(p, CJ_NOT, node, NULL);
    return node;
}

static cj_node *parse_and(cj_parser *p) {
    cj_node *node = parse_not(p);
    while (cj_skip_name(p, "and")) node = above(p, CJ_AND, node, parse_not(p));
    return node;
}

static cj_node *parse_or(cj_parser *p) {
    cj_node *node = parse_and(p);
    while (cj_skip_name(p, "or")) node = above(p, CJ_OR, node, parse_and(p));
    return node;
}

cj_node *cj_parse_expression(cj_parser *p) {
    cj_enter(p->r);
    cj_node *node = parse_or(p);
    while (cj_skip_name(p, "if")) {
        p->n_if++;
        cj_node *condition = parse_or(p);
        cj_node *choice = above(p, CJ_IF_ELSE, node, condition);
        if (cj_skip_name(p, "else")) choice->c = cj_parse_expression(p);
        cj_above(p, choice, choice->c);
        p->n_if--;
        node = choice;
    }
    cj_leave(p->r);
    return node;
}

/* ---- Tuples and targets ---- */

static bool ends_tuple(const cj_parser *p, const char *ends) {
    return p->token.kind == CJ_T_CLOSE || p->token.kind == CJ_T_PRINT_END || cj_at_op(p, ")") || (ends && cj_at_name(p, ends));
}

cj_node *cj_parse_tuple(cj_parser *p, bool with_condition, const char *ends) {
    cj_node *node = NULL;
    size_t capacity = 0;
    for (;;) {
        if (ends_tuple(p, ends)) break;
        cj_node *item = with_condition ? cj_parse_expression(p) : parse_or(p);
        if (!node && !cj_at_op(p, ",")) return item;
        if (!node) node = cj_parser_node(p, CJ_TUPLE_OF);
        add_item(p, node, &capacity, item);
        if (!cj_skip_op(p, ",")) break;
    }
    if (!node && (!ends || strcmp(ends, ")") != 0)) cj_unexpected(p, "an expression");
    return node ? node : cj_parser_node(p, CJ_TUPLE_OF);
}

cj_node *cj_parse_target(cj_parser *p, bool with_namespace) {
    cj_node *node = NULL;
    size_t capacity = 0;
    for (;;) {
        cj_node *item = cj_parser_node(p, CJ_NAME);
        if (node && (p->token.kind == CJ_T_CLOSE || cj_at_op(p, ")") || cj_at_name(p, "in"))) break;
        if (cj_at_op(p, "(")) cj_fail(p->r, CL_ERR_UNSUPPORTED, "parentheses around names to assign to are not supported");
        item->name = cj_expect_name(p);
        static const char *const fixed[] = {"true", "false", "none", "True", "False", "None"};
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
            if (cl_str_is(item->name, fixed[i])) cj_fail(p->r, CL_ERR_FORMAT, "cannot assign to '%s'", fixed[i]);
        if (with_namespace && cj_skip_op(p, ".")) {
            item->kind = CJ_NAMESPACE_ATTRIBUTE;
            const cl_str attribute = cj_expect_name(p);
            item->value = cj_string(cj_own(attribute));
        }
        if (!node && !cj_at_op(p, ",")) return item;
        if (!node) node = cj_parser_node(p, CJ_TUPLE_OF);
        add_item(p, node, &capacity, item);
        if (!cj_skip_op(p, ",")) break;
    }
    return node;
}
