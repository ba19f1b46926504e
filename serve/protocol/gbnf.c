/* Reads GBNF into rules and nodes. */
#include "gbnf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"

enum { LAST_CHARACTER = 0x10ffff, FIRST_SURROGATE = 0xd800, LAST_SURROGATE = 0xdfff };

typedef struct parser {
    gbnf_grammar *g;
    const char *at, *end;
    int32_t line, depth;
    cl_error *error;
} parser;

/* ---- Errors and memory ---- */

static bool fail(parser *p, const char *what) {
    cl_fail(p->error, CL_ERR_ARG, "line %d: %s", p->line, what);
    return false;
}

bool gbnf_reserve(void *array, int32_t n, int32_t *capacity, size_t size, cl_error *error) {
    if (n <= *capacity) return true;
    const int32_t wanted = 2 * n + 64;
    void **a = array, *grown = realloc(*a, (size_t)wanted * size);
    if (!grown) {
        cl_fail(error, CL_ERR_NOMEM, "out of memory for the grammar");
        return false;
    }
    *a = grown;
    *capacity = wanted;
    return true;
}

/* A new node; -1: there are too many. */
static int32_t add_node(parser *p, gbnf_kind kind, int32_t child) {
    gbnf_grammar *g = p->g;
    if (g->n_nodes == GBNF_MAX_NODES) {
        cl_fail(p->error, CL_ERR_LIMIT, "line %d: the grammar has more than %d parts; shorten it", p->line, GBNF_MAX_NODES);
        return -1;
    }
    if (!gbnf_reserve(&g->nodes, g->n_nodes + 1, &g->nodes_capacity, sizeof *g->nodes, p->error)) return -1;
    g->nodes[g->n_nodes] = (gbnf_node){.kind = kind, .child = child, .next = -1};
    return g->n_nodes++;
}

void gbnf_free(gbnf_grammar *g) {
    free(g->nodes);
    free(g->ranges);
    free(g->rules);
    free(g->tokens);
    *g = (gbnf_grammar){0};
}

/* ---- Characters ---- */

static bool is_at(const parser *p, const char *text) {
    const size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static bool skip_if(parser *p, char c) {
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Skip blanks, ends of lines and comments. */
static void skip_space(parser *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#')
            while (p->at + 1 < p->end && p->at[1] != '\n') p->at++;
        else if (*p->at == '\n')
            p->line++;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            break;
    }
}

/* Read n hexadecimal digits. */
static bool read_hex(parser *p, int n, uint32_t *c) {
    *c = 0;
    for (; n > 0; n--, p->at++) {
        const char d = p->at < p->end ? *p->at : 'x', lower = (char)(d | 0x20);
        if (!((d >= '0' && d <= '9') || (lower >= 'a' && lower <= 'f')))
            return fail(p, "an escape lacks hexadecimal digits: \\xHH, \\uHHHH and \\UHHHHHHHH are possible");
        *c = *c << 4 | (uint32_t)(d <= '9' ? d - '0' : lower - 'a' + 10);
    }
    return true;
}

static bool read_escape(parser *p, uint32_t *c) {
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    if (p->at == p->end) return fail(p, "the grammar ends after '\\'");
    const char kind = *p->at++;
    const char *letter = strchr(letters, kind);
    if (kind == 'x') return read_hex(p, 2, c);
    if (kind == 'u') return read_hex(p, 4, c);
    if (kind == 'U') return read_hex(p, 8, c);
    if (letter && kind)
        *c = (unsigned char)values[letter - letters];
    else if (kind > ' ' && kind <= '~' && (!is_name_character(kind) || kind == '-' || kind == '_'))
        *c = (unsigned char)kind;
    else
        return fail(p, "an escape is not known; \\n \\r \\t \\f \\v \\xHH \\uHHHH \\UHHHHHHHH and \\ before punctuation are");
    return true;
}

static bool read_utf8(parser *p, uint32_t *c) {
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const size_t n = cl_utf8_char(p->at, (size_t)(p->end - p->at));
    if (n == 0) return fail(p, "the text is not UTF-8");
    *c = (unsigned char)*p->at & first_bits[n];
    for (size_t i = 1; i < n; i++) *c = *c << 6 | ((unsigned char)p->at[i] & 0x3f);
    p->at += n;
    return true;
}

/* Read a character of a literal or a class. */
static bool read_character(parser *p, uint32_t *c) {
    if (p->at == p->end || *p->at == '\n') return fail(p, "a literal or a class is not closed on its line; write \\n for ends");
    if (!(skip_if(p, '\\') ? read_escape(p, c) : read_utf8(p, c))) return false;
    if (*c > LAST_CHARACTER || (*c >= FIRST_SURROGATE && *c <= LAST_SURROGATE))
        return fail(p, "an escape is no character; they go from U+0000 to U+10FFFF without surrogates");
    return true;
}

/* ---- Classes ---- */

static bool add_range(parser *p, uint32_t first, uint32_t last) {
    gbnf_grammar *g = p->g;
    if (!gbnf_reserve(&g->ranges, g->n_ranges + 1, &g->ranges_capacity, sizeof *g->ranges, p->error)) return false;
    g->ranges[g->n_ranges++] = (gbnf_range){first, last};
    return true;
}

static int compare_ranges(const void *a, const void *b) {
    const gbnf_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* A class of the ranges from `start` on. */
static int32_t add_class(parser *p, int32_t start) {
    gbnf_grammar *g = p->g;
    const int32_t node = add_node(p, GBNF_CLASS, -1);
    if (node < 0) return -1;
    g->nodes[node].start = start;
    g->nodes[node].n = g->n_ranges - start;
    return node;
}

static int32_t add_character(parser *p, uint32_t c) {
    const int32_t start = p->g->n_ranges;
    return add_range(p, c, c) ? add_class(p, start) : -1;
}

/* Sort the ranges from `start` on, and join those that overlap. */
static void join_ranges(gbnf_grammar *g, int32_t start) {
    gbnf_range *r = g->ranges;
    int32_t n = start;
    if (g->n_ranges == start) return;
    qsort(r + start, (size_t)(g->n_ranges - start), sizeof *r, compare_ranges);
    for (int32_t i = start; i < g->n_ranges; i++) {
        if (n > start && r[i].first <= r[n - 1].last + 1) {
            if (r[i].last > r[n - 1].last) r[n - 1].last = r[i].last;
        } else
            r[n++] = r[i];
    }
    g->n_ranges = n;
}

/* Replace the ranges from `start` on by their complement. */
static bool negate_ranges(parser *p, int32_t start) {
    gbnf_grammar *g = p->g;
    uint32_t next = 0;
    if (!add_range(p, FIRST_SURROGATE, LAST_SURROGATE)) return false;
    join_ranges(g, start);
    const int32_t end = g->n_ranges;
    for (int32_t i = start; i < end; i++) {
        const gbnf_range r = g->ranges[i];
        if (r.first > next && !add_range(p, next, r.first - 1)) return false;
        next = r.last + 1;
    }
    if (next <= LAST_CHARACTER && !add_range(p, next, LAST_CHARACTER)) return false;
    const int32_t n = g->n_ranges - end;
    memmove(g->ranges + start, g->ranges + end, (size_t)n * sizeof *g->ranges);
    g->n_ranges = start + n;
    return true;
}

static bool is_range_end(const parser *p) { return p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']'; }

/* After its bracket: [a-z], [^...]. */
static int32_t read_class(parser *p) {
    const int32_t start = p->g->n_ranges;
    const bool negated = skip_if(p, '^');
    while (!skip_if(p, ']')) {
        uint32_t first, last;
        if (!read_character(p, &first)) return -1;
        last = first;
        if (is_range_end(p)) {
            p->at++;
            if (!read_character(p, &last)) return -1;
        }
        if (last < first) return fail(p, "a range of characters ends before it begins"), -1;
        if (!add_range(p, first, last)) return -1;
    }
    join_ranges(p->g, start);
    /* Also without a caret: a range must not contain surrogates, which are no characters. */
    if (!negate_ranges(p, start) || (!negated && !negate_ranges(p, start))) return -1;
    if (p->g->n_ranges == start) return fail(p, "a class has no characters"), -1;
    return add_class(p, start);
}

/* ---- Symbols ---- */

static int32_t read_choice(parser *p);

/* After its quote. A literal of one character is its class. */
static int32_t read_literal(parser *p) {
    int32_t first = -1, last = -1, n = 0;
    while (!skip_if(p, '"')) {
        uint32_t c;
        const int32_t node = read_character(p, &c) ? add_character(p, c) : -1;
        if (node < 0) return -1;
        if (last >= 0)
            p->g->nodes[last].next = node;
        else
            first = node;
        last = node;
        n++;
    }
    return n == 1 ? first : add_node(p, GBNF_SEQUENCE, first);
}

/* Find or add a rule. -1: out of memory. */
static int32_t find_rule(parser *p, const char *name, size_t size) {
    gbnf_grammar *g = p->g;
    for (int32_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].name_size == size && memcmp(g->rules[i].name, name, size) == 0) return i;
    if (g->n_rules == GBNF_MAX_RULES) {
        cl_fail(p->error, CL_ERR_LIMIT, "line %d: the grammar has more than %d rules; shorten it", p->line, GBNF_MAX_RULES);
        return -1;
    }
    if (!gbnf_reserve(&g->rules, g->n_rules + 1, &g->rules_capacity, sizeof *g->rules, p->error)) return -1;
    g->rules[g->n_rules] = (gbnf_rule){.name = name, .name_size = size, .used = p->line, .body = -1};
    return g->n_rules++;
}

static size_t name_size(const parser *p) {
    size_t n = 0;
    while (n < (size_t)(p->end - p->at) && is_name_character(p->at[n])) n++;
    return n;
}

static int32_t read_rule_name(parser *p) {
    const size_t n = name_size(p);
    const int32_t rule = find_rule(p, p->at, n), node = rule < 0 ? -1 : add_node(p, GBNF_RULE, -1);
    if (node < 0) return -1;
    p->at += n;
    p->g->nodes[node].start = rule;
    return node;
}

/* <name>, <[id]> and !<[id]>. Lark writes the last one <[^id]>. */
static int32_t read_token(parser *p) {
    gbnf_grammar *g = p->g;
    const bool negated = skip_if(p, '!');
    const char *start = p->at;
    while (p->at < p->end && *p->at != '>' && (unsigned char)*p->at > ' ') p->at++;
    if (!skip_if(p, '>')) return fail(p, "a token is not closed; <name> and <[id]> are possible"), -1;
    const bool by_id = start[0] == '<' && start[1] == '[';
    if (start[0] != '<' || (negated && !by_id)) return fail(p, "'!' needs a token's id behind it, as in !<[5]>"), -1;
    const int32_t size = (int32_t)(p->at - start) + negated;
    if (!gbnf_reserve(&g->tokens, g->n_token_bytes + size, &g->tokens_capacity, 1, p->error)) return -1;
    const int32_t node = add_node(p, GBNF_TOKEN, -1);
    if (node < 0) return -1;
    g->nodes[node].start = g->n_token_bytes;
    g->nodes[node].n = size;
    char *to = g->tokens + g->n_token_bytes;
    const size_t n_head = negated ? 2 : 0; /* "<[" */
    memcpy(to, start, n_head);
    if (negated) to[n_head] = '^';
    memcpy(to + n_head + negated, start + n_head, (size_t)(p->at - start) - n_head);
    g->n_token_bytes += size;
    return node;
}

static int32_t read_group(parser *p) {
    if (is_at(p, "=")) return fail(p, "lookahead, (= ...), is not supported; leave it out"), -1;
    if (++p->depth > GBNF_MAX_DEPTH) {
        cl_fail(p->error, CL_ERR_LIMIT, "line %d: more than %d parentheses within each other", p->line, GBNF_MAX_DEPTH);
        return -1;
    }
    const int32_t node = read_choice(p);
    p->depth--;
    if (node >= 0 && !skip_if(p, ')')) return fail(p, "')' is missing"), -1;
    return node;
}

static int32_t read_symbol(parser *p) {
    const int32_t start = p->g->n_ranges;
    if (skip_if(p, '"')) return read_literal(p);
    if (skip_if(p, '[')) return read_class(p);
    if (skip_if(p, '(')) return read_group(p);
    if (skip_if(p, '.')) return negate_ranges(p, start) ? add_class(p, start) : -1;
    if (*p->at == '<' || *p->at == '!') return read_token(p);
    if (name_size(p) > 0) return read_rule_name(p);
    return fail(p, "a symbol is not known; \"...\", [...], (...), ., <...> and names of rules are possible"), -1;
}

/* ---- Repetition ---- */

static bool read_number(parser *p, int32_t *n) {
    if (p->at == p->end || *p->at < '0' || *p->at > '9') return false;
    for (*n = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9' && *n <= GBNF_MAX_REPEAT; p->at++)
        *n = 10 * *n + (*p->at - '0');
    return true;
}

/* After its brace: {m}, {m,}, {m,n}, {,n}. */
static bool read_counts(parser *p, int32_t *min, int32_t *max) {
    *min = 0;
    skip_space(p);
    const bool has_min = read_number(p, min);
    *max = *min;
    skip_space(p);
    if (skip_if(p, ',')) {
        skip_space(p);
        if (!read_number(p, max)) *max = -1;
    } else if (!has_min)
        return fail(p, "braces need a number; {m}, {m,} and {m,n} are possible");
    skip_space(p);
    if (!skip_if(p, '}')) return fail(p, "'}' is missing");
    if (*min > GBNF_MAX_REPEAT || *max > GBNF_MAX_REPEAT || (*max >= 0 && *max < *min)) {
        cl_fail(p->error, CL_ERR_LIMIT, "line %d: braces must have ascending numbers of at most %d", p->line, GBNF_MAX_REPEAT);
        return false;
    }
    return true;
}

static int32_t add_repeat(parser *p, int32_t child, int32_t min, int32_t max) {
    const int32_t node = add_node(p, GBNF_REPEAT, child);
    if (node < 0) return -1;
    p->g->nodes[node].min = min;
    p->g->nodes[node].max = max;
    return node;
}

/* A node that is repeated. Those that may be left out are at least one, or nothing. */
static int32_t repeat(parser *p, int32_t child, int32_t min, int32_t max) {
    if (max == 0) return add_node(p, GBNF_SEQUENCE, -1);
    if (min == 1 && max == 1) return child;
    if (max != 1) child = add_repeat(p, child, min > 0 ? min : 1, max);
    return child >= 0 && min == 0 ? add_repeat(p, child, 0, 1) : child;
}

static int32_t read_repeated(parser *p) {
    int32_t node = read_symbol(p);
    for (bool more = true; node >= 0 && more;) {
        int32_t min = 0, max = -1;
        skip_space(p);
        if (skip_if(p, '{')) {
            if (!read_counts(p, &min, &max)) return -1;
        } else if (skip_if(p, '+'))
            min = 1;
        else if (skip_if(p, '?'))
            max = 1;
        else
            more = skip_if(p, '*');
        if (more) node = repeat(p, node, min, max);
    }
    return node;
}

/* ---- Rules ---- */

/* Whether a name and ::= come next. */
static bool is_at_rule(const parser *p) {
    parser ahead = *p;
    ahead.at += name_size(p);
    const bool named = ahead.at > p->at;
    skip_space(&ahead);
    return named && is_at(&ahead, "::=");
}

/* An empty sequence is the alternative that describes nothing. */
static int32_t read_sequence(parser *p) {
    int32_t first = -1, last = -1, n = 0;
    for (skip_space(p); p->at < p->end && *p->at != '|' && *p->at != ')' && !is_at_rule(p); skip_space(p), n++) {
        const int32_t node = read_repeated(p);
        if (node < 0) return -1;
        if (last >= 0)
            p->g->nodes[last].next = node;
        else
            first = node;
        last = node;
    }
    return n == 1 ? first : add_node(p, GBNF_SEQUENCE, first);
}

static bool is_empty(const gbnf_grammar *g, int32_t i) { return g->nodes[i].kind == GBNF_SEQUENCE && g->nodes[i].child < 0; }

/* Alternatives. If one of them is empty, the others may be left out. */
static int32_t read_choice(parser *p) {
    gbnf_grammar *g = p->g;
    int32_t first = -1, last = -1, n = 0, empty = -1;
    do {
        const int32_t node = read_sequence(p);
        if (node < 0) return -1;
        if (is_empty(g, node)) {
            empty = node;
            continue;
        }
        if (last >= 0)
            g->nodes[last].next = node;
        else
            first = node;
        last = node;
        n++;
    } while (skip_if(p, '|'));
    if (n == 0) return empty;
    const int32_t choice = n == 1 ? first : add_node(p, GBNF_CHOICE, first);
    return choice >= 0 && empty >= 0 ? repeat(p, choice, 0, 1) : choice;
}

static bool read_rule(parser *p) {
    const size_t size = name_size(p);
    const int32_t line = p->line, rule = size > 0 ? find_rule(p, p->at, size) : -1;
    if (size == 0) return fail(p, "a rule is missing here; it is written: name ::= ...");
    if (rule < 0) return false;
    if (p->g->rules[rule].line > 0) return fail(p, "a rule has a second definition; join them with '|'");
    p->at += size;
    skip_space(p);
    if (!is_at(p, "::=")) return fail(p, "'::=' is missing after the name of a rule");
    p->at += strlen("::=");
    const int32_t body = read_choice(p);
    if (body < 0) return false;
    p->g->rules[rule].line = line;
    p->g->rules[rule].body = body;
    if (p->at < p->end && *p->at == ')') return fail(p, "')' has no '('");
    return true;
}

static bool check_rules(parser *p) {
    gbnf_grammar *g = p->g;
    for (int32_t i = 0; i < g->n_rules; i++) {
        const gbnf_rule *r = &g->rules[i];
        if (r->line > 0) continue;
        cl_fail(p->error, CL_ERR_ARG, "line %d: the rule '%.*s' is not defined", r->used, (int)(r->name_size % 100), r->name);
        return false;
    }
    g->root = 0;
    while (g->root < g->n_rules && !(g->rules[g->root].name_size == 4 && memcmp(g->rules[g->root].name, "root", 4) == 0))
        g->root++;
    if (g->root < g->n_rules) return true;
    cl_fail(p->error, CL_ERR_ARG, "there is no rule 'root', with which texts begin");
    return false;
}

cl_status gbnf_parse(gbnf_grammar *g, const char *text, size_t size, cl_error *error) {
    cl_error cause = {.code = CL_OK};
    parser p = {.g = g, .at = text, .end = text + size, .line = 1, .error = &cause};
    for (skip_space(&p); p.at < p.end; skip_space(&p))
        if (!read_rule(&p)) break;
    if (cause.code == CL_OK) check_rules(&p);
    return cause.code == CL_OK ? CL_OK : cl_fail(error, cause.code, "%s", cause.message);
}

bool gbnf_is_likely(const char *text, size_t size) {
    parser p = {.at = text, .end = text + size};
    for (; p.at < p.end; p.at++) {
        skip_space(&p);
        if (is_at_rule(&p)) return true;
        while (p.at < p.end && *p.at != '\n') p.at++;
    }
    return false;
}
