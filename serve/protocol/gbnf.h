/*
 * Converts grammars in GBNF, llama.cpp's notation, to Lark's, as llguidance reads it. xgrammar's EBNF is read as GBNF, which it
 * is but for lookahead.
 *
 *   text --gbnf_parse--> rules and nodes --gbnf_choose_lexemes--> lexemes --gbnf_to_lark--> Lark
 *
 * GBNF describes texts character by character. llguidance splits texts into lexemes first, and a lexeme is as long as it can
 * be. So the conversion chooses lexemes that end where they can end in GBNF, too: see gbnf_lexemes.c.
 */
#ifndef SERVE_PROTOCOL_GBNF_H
#define SERVE_PROTOCOL_GBNF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

enum {
    GBNF_MAX_NODES = 1 << 16, /* characters of literals, and other symbols */
    GBNF_MAX_RULES = 1 << 12,
    GBNF_MAX_DEPTH = 128,    /* of parentheses */
    GBNF_MAX_REPEAT = 65536, /* in braces */
};

/* Whether text [size] has rules of GBNF (name ::= ...), which Lark has not. */
bool gbnf_is_likely(const char *text, size_t size);

/*
 * GBNF [size] as Lark [*lark_size] with a zero behind it, for the caller to free. NULL with *error filled: CL_ERR_ARG names the
 * line; CL_ERR_LIMIT if the grammar or its conversion is too large or takes too long; CL_ERR_NOMEM.
 */
char *gbnf_to_lark(const char *text, size_t size, size_t *lark_size, cl_error *error);

/* ---- Parts of the conversion ---- */

/* Characters from `first` to `last`. */
typedef struct gbnf_range {
    uint32_t first, last;
} gbnf_range;

typedef enum gbnf_kind {
    GBNF_CLASS,    /* one character of some ranges */
    GBNF_SEQUENCE, /* all children, in order */
    GBNF_CHOICE,   /* one of the children */
    GBNF_REPEAT,   /* the child, min to max times; 0 to 1, or 1 at least */
    GBNF_RULE,     /* the text of another rule */
    GBNF_TOKEN,    /* a special token, as Lark writes it */
} gbnf_kind;

/* Nodes come after their children. */
typedef struct gbnf_node {
    gbnf_kind kind;
    int32_t child, next; /* the first child, and the next child of the same node; -1: none */
    int32_t start, n;    /* a class: its ranges; a rule: its index is start; a token: its bytes in the text of tokens */
    int32_t min, max;    /* of a repetition; max is -1: no limit */
    bool is_regular;     /* it contains no recursion and no token */
    bool is_nullable;    /* it describes the empty text, among others */
    bool is_split;       /* its parts are lexemes, and not it */
} gbnf_node;

typedef struct gbnf_rule {
    const char *name; /* [name_size] in the text */
    size_t name_size;
    int32_t line; /* of its definition, from 1; 0: it has none yet */
    int32_t used; /* the first line that uses it */
    int32_t body; /* a node */
} gbnf_rule;

typedef struct gbnf_grammar {
    gbnf_node *nodes;
    gbnf_range *ranges;
    gbnf_rule *rules;
    char *tokens; /* text of special tokens */
    int32_t n_nodes, n_ranges, n_rules, n_token_bytes;
    int32_t nodes_capacity, ranges_capacity, rules_capacity, tokens_capacity;
    int32_t root; /* a rule */
} gbnf_grammar;

/* Zero-initialise *g, and free it after a failure, too. Errors: as gbnf_to_lark. */
cl_status gbnf_parse(gbnf_grammar *g, const char *text, size_t size, cl_error *error);
void gbnf_free(gbnf_grammar *g);

/* Grow *array to a capacity of n elements of `size` bytes, which is owned. False with *error filled: memory is lacking. */
bool gbnf_reserve(void *array, int32_t n, int32_t *capacity, size_t size, cl_error *error);

/* Set is_split of nodes (gbnf_lexemes.c). */
cl_status gbnf_choose_lexemes(gbnf_grammar *g, cl_error *error);

/* The node that defines the lexeme which node i would be: the body of a rule for its uses. */
static inline int32_t gbnf_definition(const gbnf_grammar *g, int32_t i) {
    return g->nodes[i].kind == GBNF_RULE ? g->rules[g->nodes[i].start].body : i;
}

/* Whether a node is one lexeme where it stands. A lexeme is never empty. */
static inline bool gbnf_is_lexeme(const gbnf_grammar *g, int32_t i) {
    const gbnf_node *n = &g->nodes[i];
    return n->is_regular && !n->is_nullable && !g->nodes[gbnf_definition(g, i)].is_split;
}

#endif
