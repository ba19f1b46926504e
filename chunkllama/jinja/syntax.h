/* The syntax tree of a template, the lexer and the parser that make it. A tree is immutable once it is parsed. */
#ifndef CHUNKLLAMA_JINJA_SYNTAX_H
#define CHUNKLLAMA_JINJA_SYNTAX_H

#include "run.h"
#include "value.h"

/* ---- Tokens ---- */

typedef enum cj_token_kind {
    CJ_T_END,       /* of the template */
    CJ_T_DATA,      /* text outside of tags, white space control applied */
    CJ_T_OPEN,      /* of a statement: the token after {% */
    CJ_T_CLOSE,     /* %} */
    CJ_T_PRINT,     /* {{ */
    CJ_T_PRINT_END, /* }} */
    CJ_T_NAME,
    CJ_T_STRING,
    CJ_T_NUMBER,
    CJ_T_OPERATOR
} cj_token_kind;

typedef struct cj_token {
    cj_token_kind kind;
    int32_t line;
    char op[3];     /* CJ_T_OPERATOR: "+", "**", ... */
    cl_str text;    /* as it is written; CJ_T_DATA: the text that is printed */
    cj_value value; /* CJ_T_STRING and CJ_T_NUMBER */
} cj_token;

typedef enum cj_lexer_state { CJ_IN_DATA, CJ_IN_STATEMENT, CJ_IN_PRINT } cj_lexer_state;

typedef struct cj_lexer {
    cj_run *r;
    const char *text; /* [size] valid UTF-8, line breaks are '\n' */
    size_t size, at;
    int32_t line;
    cj_lexer_state state;
    char brackets[256]; /* [n_brackets] the closing ones that are expected */
    size_t n_brackets;
    bool new_line; /* the text from `at` on begins a line, as far as white space before tags is concerned */
} cj_lexer;

/* The lexer of a template. Fails if the text is not UTF-8. */
cj_lexer cj_lexer_of(cj_run *r, const char *text, size_t size);
cj_token cj_next_token(cj_lexer *lexer);

/* ---- The tree ---- */

typedef enum cj_node_kind {
    /* expressions */
    CJ_CONST,     /* value */
    CJ_NAME,      /* name */
    CJ_LIST_OF,   /* items */
    CJ_TUPLE_OF,  /* items */
    CJ_DICT_OF,   /* items: key, value, key, value ... */
    CJ_ATTRIBUTE, /* a.name */
    CJ_ITEM,      /* a[b] */
    CJ_SLICE,     /* a[items[0]:items[1]:items[2]], of which each may be NULL */
    CJ_CALL,      /* a(arguments) */
    CJ_FILTER,    /* a | name(arguments); a is NULL in a filter block */
    CJ_TEST,      /* a is name */
    CJ_NOT,       /* not a */
    CJ_AND,       /* a and b */
    CJ_OR,        /* a or b */
    CJ_IF_ELSE,   /* a if b else c; c may be NULL */
    CJ_NEGATIVE,  /* -a */
    CJ_POSITIVE,  /* +a */
    CJ_BINARY,    /* a op b */
    CJ_COMPARE,   /* items[0] ops[0] items[1] ops[1] items[2] ... */
    CJ_CONCAT,    /* items joined as strings */
    /* statements */
    CJ_OUTPUT,       /* {{ a }}, or text if a is a CJ_CONST */
    CJ_IF,           /* {% if a %} body {% else %} other */
    CJ_FOR,          /* {% for target in a if b %} body {% else %} other */
    CJ_SET,          /* {% set target = a %} */
    CJ_SET_BLOCK,    /* {% set target %} body {% endset %}; a: filters, or NULL */
    CJ_MACRO_BLOCK,  /* {% macro name(parameters) %} body */
    CJ_CALL_BLOCK,   /* {% call(parameters) a %} body; name is "caller" */
    CJ_FILTER_BLOCK, /* {% filter a %} body */
    CJ_SCOPE,        /* {% generation %} body */
    CJ_BREAK,
    CJ_CONTINUE,
    /* targets of assignments; CJ_NAME and CJ_TUPLE_OF are the others */
    CJ_NAMESPACE_ATTRIBUTE /* name.value */
} cj_node_kind;

typedef enum cj_op { CJ_ADD, CJ_SUB, CJ_MUL, CJ_MOD, CJ_EQ, CJ_NE, CJ_LT, CJ_LE, CJ_GT, CJ_GE, CJ_IN, CJ_NOT_IN } cj_op;

typedef struct cj_node cj_node;
typedef struct cj_builtin cj_builtin;

/* Statements of a block, in order. */
typedef struct cj_body {
    const cj_node *const *at; /* [n] */
    size_t n;
} cj_body;

typedef struct cj_names {
    cl_str *at; /* [n] */
    size_t n, capacity;
} cj_names;

/* The arguments of a call. Those with names come last. */
typedef struct cj_arguments {
    cj_node **at;  /* [n] */
    cl_str *names; /* [n] no data: by position */
    size_t n;
    cj_node *list; /* *list, or NULL */
} cj_arguments;

struct cj_node {
    cj_node_kind kind;
    int32_t line;
    int16_t height; /* of the tree below, which bounds the stack's use */
    cj_op op;
    cl_str name;
    cj_value value;
    const cj_builtin *builtin; /* CJ_FILTER and CJ_TEST; NULL: unknown, which is an error once it is reached */
    cj_node *a, *b, *c, *target;
    cj_node **items; /* [n] */
    cj_op *ops;
    size_t n;
    cj_arguments arguments;
    cj_body body, other;
    bool is_elif;
    cj_names cleared, cleared_other; /* undefined where the scope of the body begins, and that of the other; see scopes.c */
    /* CJ_MACRO_BLOCK and CJ_CALL_BLOCK: the parameters; values are defaults or NULL */
    cl_str *parameters; /* [n_parameters] */
    cj_node **defaults;
    size_t n_parameters;
    bool uses_caller; /* the body names this variable, so it takes such an argument */
};

/* A whole template. */
typedef struct cj_program {
    cj_body body;
    cj_names cleared;
} cj_program;

cj_program cj_parse(cj_run *r, const char *text, size_t size);

/* The names that are undefined where a template begins; those of its inner scopes are set in its nodes. */
cj_names cj_cleared_names(cj_run *r, const cj_body *body);

/* ---- Between the parser's files ---- */

typedef struct cj_parser {
    cj_run *r;
    cj_lexer lexer;
    cj_token token, next; /* the current one, and the one after it */
    int32_t n_if;         /* conditions around: unknown filters in them are errors only once they are reached */
    int32_t n_for;        /* loops around */
    cj_node *macro;       /* the innermost macro around, or NULL */
} cj_parser;

cj_node *cj_parser_node(cj_parser *p, cj_node_kind kind);
void cj_advance(cj_parser *p);
bool cj_at_op(const cj_parser *p, const char *op);
bool cj_at_name(const cj_parser *p, const char *name);
bool cj_skip_op(cj_parser *p, const char *op);
bool cj_skip_name(cj_parser *p, const char *name);
void cj_expect_op(cj_parser *p, const char *op);
cl_str cj_expect_name(cj_parser *p);
/* Fail because the current token is not what is expected, such as "a name". */
_Noreturn void cj_unexpected(cj_parser *p, const char *expected);
/* Set the height of a node above a child (NULL is ignored), and fail if it is too large. */
void cj_above(cj_parser *p, cj_node *node, const cj_node *child);

cj_node *cj_parse_expression(cj_parser *p);
/* An expression, or a tuple without parentheses. ends: the tuple ends before this name, or NULL. */
cj_node *cj_parse_tuple(cj_parser *p, bool with_condition, const char *ends);
/* Filters without their value: upper | trim. */
cj_node *cj_parse_filters(cj_parser *p);
/* The target of an assignment: a name, a tuple, or name.attribute if allowed. */
cj_node *cj_parse_target(cj_parser *p, bool with_namespace);
cj_node *cj_parse_primary(cj_parser *p);

#endif
