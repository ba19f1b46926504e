/* Writes a grammar whose lexemes are chosen as Lark. */
#include <stdio.h>
#include <stdlib.h>

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
    FILE *out;
    definition *definitions; /* [n_definitions] of [2 n_nodes] those that were named; the first n_written are in the text */
    int32_t n_definitions, n_written;
    bool *is_named; /* [2 n_nodes] as a rule and as a lexeme */
} writer;

/* ---- Names ---- */

/* The name of a definition; the number keeps those apart that have equal letters in Lark. */
static void put_name(writer *w, const definition *d) {
    const gbnf_rule *r = d->rule >= 0 ? &w->g->rules[d->rule] : NULL;
    if (d->rule == w->g->root && !d->is_lexeme) {
        fputs("start", w->out);
        return;
    }
    fprintf(w->out, d->is_lexeme ? "T%d" : "r%d", d->node);
    for (size_t i = 0; r && i < r->name_size && i < 40; i++) {
        const char c = r->name[i];
        const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        const char flipped = upper || lower ? (char)(c ^ 0x20) : c == '-' ? '_' : c;
        const char same = c == '-' ? '_' : c;
        if (i == 0) fputc('_', w->out);
        fputc((d->is_lexeme ? lower : upper) ? flipped : same, w->out);
    }
}

/* Write the name of a node's definition, which will be written, too. */
static void refer(writer *w, int32_t node, bool is_lexeme) {
    const gbnf_node *n = &w->g->nodes[node];
    const int32_t rule = n->kind == GBNF_RULE ? n->start : -1, body = gbnf_definition(w->g, node);
    const definition d = {is_lexeme, rule, body};
    put_name(w, &d);
    bool *named = &w->is_named[2 * body + is_lexeme];
    if (!*named) w->definitions[w->n_definitions++] = d;
    *named = true;
}

/* ---- Expressions ---- */

/* A character in a regular expression: only those need no escape that mean themselves everywhere. */
static void put_character(writer *w, uint32_t c) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '_';
    if (plain)
        fprintf(w->out, "%c", (int)c);
    else
        fprintf(w->out, "\\x{%X}", (unsigned)c);
}

/* A class without the slashes around it. */
static void put_class(writer *w, const gbnf_node *n) {
    const gbnf_range *r = w->g->ranges + n->start;
    const bool single = n->n == 1 && r->first == r->last;
    if (!single) fputs("[", w->out);
    for (int32_t i = 0; i < n->n; i++) {
        put_character(w, r[i].first);
        if (r[i].last > r[i].first + 1) fputs("-", w->out);
        if (r[i].last > r[i].first) put_character(w, r[i].last);
    }
    if (!single) fputs("]", w->out);
}

static void put_node(writer *w, int32_t i, bool in_lexeme);

/* In a lexeme, classes that follow each other are one regular expression. */
static void put_sequence(writer *w, const gbnf_node *n, bool in_lexeme) {
    const gbnf_node *nodes = w->g->nodes;
    if (n->child < 0) fputs("\"\"", w->out);
    for (int32_t i = n->child; i >= 0; i = nodes[i].next) {
        if (i != n->child) fputs(" ", w->out);
        if (!in_lexeme || nodes[i].kind != GBNF_CLASS) {
            put_node(w, i, in_lexeme);
            continue;
        }
        fputs("/", w->out);
        put_class(w, &nodes[i]);
        for (; nodes[i].next >= 0 && nodes[nodes[i].next].kind == GBNF_CLASS; i = nodes[i].next)
            put_class(w, &nodes[nodes[i].next]);
        fputs("/", w->out);
    }
}

static void put_times(writer *w, const gbnf_node *n) {
    if (n->min == 0)
        fputs("?", w->out);
    else if (n->min == 1 && n->max < 0)
        fputs("+", w->out);
    else if (n->max < 0)
        fprintf(w->out, "{%d,}", n->min);
    else
        fprintf(w->out, "{%d,%d}", n->min, n->max);
}

static void put_inside(writer *w, const gbnf_node *n, bool in_lexeme) {
    switch (n->kind) {
    case GBNF_SEQUENCE: put_sequence(w, n, in_lexeme); break;
    case GBNF_CHOICE:
        for (int32_t i = n->child; i >= 0; i = w->g->nodes[i].next) {
            if (i != n->child) fputs(" | ", w->out);
            put_node(w, i, in_lexeme);
        }
        break;
    case GBNF_REPEAT:
        fputs("(", w->out);
        put_node(w, n->child, in_lexeme);
        fputs(")", w->out);
        put_times(w, n);
        break;
    default: fwrite(w->g->tokens + n->start, 1, (size_t)n->n, w->out); break;
    }
}

/* A node where it stands; in_lexeme: its definition is a lexeme, and so is all that it has. */
static void put_node(writer *w, int32_t i, bool in_lexeme) {
    const gbnf_node *n = &w->g->nodes[i];
    const bool is_group = n->kind == GBNF_SEQUENCE || n->kind == GBNF_CHOICE;
    if (n->kind == GBNF_CLASS) {
        fputs("/", w->out);
        put_class(w, n);
        fputs("/", w->out);
    } else if (n->kind == GBNF_RULE) {
        refer(w, i, in_lexeme || gbnf_is_lexeme(w->g, i));
    } else if (!in_lexeme && gbnf_is_lexeme(w->g, i)) {
        refer(w, i, true);
    } else {
        if (is_group) fputs("(", w->out);
        put_inside(w, n, in_lexeme);
        if (is_group) fputs(")", w->out);
    }
}

/* ---- Definitions ---- */

static void put_definition(writer *w, definition d) {
    put_name(w, &d);
    fputs(": ", w->out);
    put_node(w, d.node, d.is_lexeme);
    fputs("\n", w->out);
}

static void put_grammar(writer *w) {
    const gbnf_grammar *g = w->g;
    w->is_named[2 * g->rules[g->root].body] = true;
    put_definition(w, (definition){false, g->root, g->rules[g->root].body});
    while (w->n_written < w->n_definitions) put_definition(w, w->definitions[w->n_written++]);
}

/* The text [*size] of a grammar whose lexemes are chosen; NULL: memory is lacking. */
static char *write_lark(const gbnf_grammar *g, size_t *size) {
    char *text = NULL;
    writer w = {.g = g, .out = open_memstream(&text, size)};
    w.is_named = calloc(2 * (size_t)g->n_nodes, sizeof *w.is_named);
    w.definitions = calloc(2 * (size_t)g->n_nodes, sizeof *w.definitions);
    bool ok = w.out && w.is_named && w.definitions;
    if (ok) put_grammar(&w);
    if (w.out) ok = fclose(w.out) == 0 && ok;
    free(w.definitions);
    free(w.is_named);
    if (ok) return text;
    free(text);
    return NULL;
}

char *gbnf_to_lark(const char *text, size_t size, size_t *lark_size, cl_error *error) {
    gbnf_grammar g = {0};
    char *lark = NULL;
    if (gbnf_parse(&g, text, size, error) == CL_OK && gbnf_choose_lexemes(&g, error) == CL_OK) {
        lark = write_lark(&g, lark_size);
        if (!lark) cl_fail(error, CL_ERR_NOMEM, "out of memory for the grammar");
    }
    gbnf_free(&g);
    if (!lark || *lark_size < CL_ENGINE_MAX_GRAMMAR) return lark;
    cl_fail(error, CL_ERR_LIMIT, "the grammar has more than %d bytes in Lark's notation; shorten it", CL_ENGINE_MAX_GRAMMAR);
    free(lark);
    return NULL;
}
