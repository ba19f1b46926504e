/* Writes a grammar whose lexemes are chosen as Lark. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama.h"
#include "gbnf.h"

/* What a definition in Lark is of. Lark tells lexemes from rules by their letters. */
typedef struct definition {
    bool is_lexeme;
    int32_t rule; /* its body is the node; -1: the node is a part of a rule */
    int32_t node;
} definition;

typedef struct writer {
    const gbnf_grammar *g;
    char *text; /* [size] */
    size_t size, capacity;
    definition *definitions; /* [n_definitions] those that were named; the first n_written are in the text */
    int32_t n_definitions, definitions_capacity, n_written;
    bool *is_named; /* [2 n_nodes] as a rule and as a lexeme */
    cl_status status;
} writer;

/* ---- Text ---- */

static void put(writer *w, const char *text, size_t n) {
    if (w->status != CL_OK) return;
    if (w->size + n >= CL_ENGINE_MAX_GRAMMAR) {
        w->status = CL_ERR_LIMIT;
        return;
    }
    if (w->size + n + 1 > w->capacity) {
        const size_t capacity = 2 * (w->size + n) + 256;
        char *grown = realloc(w->text, capacity);
        if (!grown) {
            w->status = CL_ERR_NOMEM;
            return;
        }
        w->text = grown;
        w->capacity = capacity;
    }
    memcpy(w->text + w->size, text, n);
    w->size += n;
    w->text[w->size] = '\0';
}

static void print(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(writer *w, const char *format, ...) {
    char text[64];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(w, text, (size_t)n);
}

/* ---- Names ---- */

/* The name of a definition; the number keeps those apart that have equal letters in Lark. */
static void put_name(writer *w, const definition *d) {
    const gbnf_rule *r = d->rule >= 0 ? &w->g->rules[d->rule] : NULL;
    if (d->rule == w->g->root && !d->is_lexeme) {
        put(w, "start", 5);
        return;
    }
    print(w, d->is_lexeme ? "T%d" : "r%d", d->node);
    for (size_t i = 0; r && i < r->name_size && i < 40; i++) {
        const char c = r->name[i];
        const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        const char flipped = upper || lower ? (char)(c ^ 0x20) : c == '-' ? '_' : c;
        const char same = c == '-' ? '_' : c;
        if (i == 0) put(w, "_", 1);
        put(w, (d->is_lexeme ? lower : upper) ? &flipped : &same, 1);
    }
}

/* Write the name of a node's definition, which will be written, too. */
static void refer(writer *w, int32_t node, bool is_lexeme) {
    const gbnf_node *n = &w->g->nodes[node];
    const int32_t rule = n->kind == GBNF_RULE ? n->start : -1, body = gbnf_definition(w->g, node);
    const definition d = {is_lexeme, rule, body};
    put_name(w, &d);
    bool *named = &w->is_named[2 * body + is_lexeme];
    if (*named || w->status != CL_OK) return;
    *named = true;
    if (w->n_definitions == w->definitions_capacity) {
        const int32_t capacity = 2 * w->n_definitions + 64;
        definition *grown = realloc(w->definitions, (size_t)capacity * sizeof *grown);
        if (!grown) {
            w->status = CL_ERR_NOMEM;
            return;
        }
        w->definitions = grown;
        w->definitions_capacity = capacity;
    }
    w->definitions[w->n_definitions++] = d;
}

/* ---- Expressions ---- */

/* A character in a regular expression: only those need no escape that mean themselves everywhere. */
static void put_character(writer *w, uint32_t c) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '_';
    if (plain)
        print(w, "%c", (int)c);
    else
        print(w, "\\x{%X}", (unsigned)c);
}

/* A class without the slashes around it. */
static void put_class(writer *w, const gbnf_node *n) {
    const gbnf_range *r = w->g->ranges + n->start;
    const bool single = n->n == 1 && r->first == r->last;
    if (!single) put(w, "[", 1);
    for (int32_t i = 0; i < n->n; i++) {
        put_character(w, r[i].first);
        if (r[i].last > r[i].first + 1) put(w, "-", 1);
        if (r[i].last > r[i].first) put_character(w, r[i].last);
    }
    if (!single) put(w, "]", 1);
}

static void put_node(writer *w, int32_t i, bool in_lexeme);

/* In a lexeme, classes that follow each other are one regular expression. */
static void put_sequence(writer *w, const gbnf_node *n, bool in_lexeme) {
    const gbnf_node *nodes = w->g->nodes;
    if (n->child < 0) put(w, "\"\"", 2);
    for (int32_t i = n->child; i >= 0; i = nodes[i].next) {
        if (i != n->child) put(w, " ", 1);
        if (!in_lexeme || nodes[i].kind != GBNF_CLASS) {
            put_node(w, i, in_lexeme);
            continue;
        }
        put(w, "/", 1);
        put_class(w, &nodes[i]);
        for (; nodes[i].next >= 0 && nodes[nodes[i].next].kind == GBNF_CLASS; i = nodes[i].next)
            put_class(w, &nodes[nodes[i].next]);
        put(w, "/", 1);
    }
}

static void put_times(writer *w, const gbnf_node *n) {
    if (n->min == 0)
        put(w, "?", 1);
    else if (n->min == 1 && n->max < 0)
        put(w, "+", 1);
    else if (n->max < 0)
        print(w, "{%d,}", n->min);
    else
        print(w, "{%d,%d}", n->min, n->max);
}

static void put_inside(writer *w, const gbnf_node *n, bool in_lexeme) {
    switch (n->kind) {
    case GBNF_SEQUENCE: put_sequence(w, n, in_lexeme); break;
    case GBNF_CHOICE:
        for (int32_t i = n->child; i >= 0; i = w->g->nodes[i].next) {
            if (i != n->child) put(w, " | ", 3);
            put_node(w, i, in_lexeme);
        }
        break;
    case GBNF_REPEAT:
        put(w, "(", 1);
        put_node(w, n->child, in_lexeme);
        put(w, ")", 1);
        put_times(w, n);
        break;
    default: put(w, w->g->tokens + n->start, (size_t)n->n); break;
    }
}

/* A node where it stands; in_lexeme: its definition is a lexeme, and so is all that it has. */
static void put_node(writer *w, int32_t i, bool in_lexeme) {
    const gbnf_node *n = &w->g->nodes[i];
    const bool is_group = n->kind == GBNF_SEQUENCE || n->kind == GBNF_CHOICE;
    if (n->kind == GBNF_CLASS) {
        put(w, "/", 1);
        put_class(w, n);
        put(w, "/", 1);
    } else if (n->kind == GBNF_RULE) {
        refer(w, i, in_lexeme || gbnf_is_lexeme(w->g, i));
    } else if (!in_lexeme && gbnf_is_lexeme(w->g, i)) {
        refer(w, i, true);
    } else {
        if (is_group) put(w, "(", 1);
        put_inside(w, n, in_lexeme);
        if (is_group) put(w, ")", 1);
    }
}

/* ---- Definitions ---- */

static void put_definition(writer *w, definition d) {
    put_name(w, &d);
    put(w, ": ", 2);
    put_node(w, d.node, d.is_lexeme);
    put(w, "\n", 1);
}

static void put_grammar(writer *w) {
    const gbnf_grammar *g = w->g;
    w->is_named[2 * g->rules[g->root].body] = true;
    put_definition(w, (definition){false, g->root, g->rules[g->root].body});
    while (w->n_written < w->n_definitions && w->status == CL_OK) put_definition(w, w->definitions[w->n_written++]);
}

char *gbnf_to_lark(const char *text, size_t size, size_t *lark_size, cl_error *error) {
    gbnf_grammar g = {0};
    writer w = {.g = &g};
    cl_status status = gbnf_parse(&g, text, size, error);
    if (status == CL_OK) status = gbnf_choose_lexemes(&g, error);
    if (status == CL_OK) {
        w.is_named = calloc(2 * (size_t)g.n_nodes, sizeof *w.is_named);
        if (w.is_named)
            put_grammar(&w);
        else
            w.status = CL_ERR_NOMEM;
        status = w.status;
        if (status == CL_ERR_NOMEM) cl_fail(error, status, "out of memory for the grammar");
        if (status == CL_ERR_LIMIT)
            cl_fail(error, status, "the grammar has more than %d bytes in Lark's notation; shorten it", CL_ENGINE_MAX_GRAMMAR);
    }
    gbnf_free(&g);
    free(w.definitions);
    free(w.is_named);
    if (status != CL_OK) free(w.text);
    *lark_size = w.size;
    return status == CL_OK ? w.text : NULL;
}
