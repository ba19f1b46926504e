/* Checks texts of grammars against limits: see grammar_limits.h. */
#include "grammar_limits.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"

static cl_status check_pattern(size_t size, cl_error *error) {
    if (size <= CL_LIMIT_PATTERN) return CL_OK;
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has a regular expression of %zu bytes; it may have %d: simplify it",
                         size, CL_LIMIT_PATTERN);
}

/* ---- JSON schemas ---- */

/* The largest counts so far. */
typedef struct counts {
    size_t n_members;                /* of the largest object */
    size_t pattern, n_pattern_bytes; /* bytes of the longest pattern, and of all */
} counts;

static void count_pattern(counts *c, size_t size) {
    if (size > c->pattern) c->pattern = size;
    c->n_pattern_bytes += size;
}

/* Nesting is bounded by jansson's parser. */
static void count(json_t *value, counts *c) {
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_object(value) && json_object_size(value) > c->n_members) c->n_members = json_object_size(value);
    json_object_foreach(value, key, member) {
        if (strcmp(key, "pattern") == 0) count_pattern(c, json_string_length(member));
        if (strcmp(key, "patternProperties") == 0)
            for (void *at = json_object_iter(member); at; at = json_object_iter_next(member, at))
                count_pattern(c, strlen(json_object_iter_key(at)));
        count(member, c);
    }
    json_array_foreach(value, i, member) count(member, c);
}

static cl_status check_schema(const char *text, size_t size, cl_error *error) {
    json_error_t problem;
    counts c = {0};
    json_t *schema = json_loadb(text, size, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &problem);
    if (!schema && json_error_code(&problem) == json_error_out_of_memory)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a JSON schema");
    if (!schema)
        return cl_refuse(error, "grammar", "is not a schema in JSON: %s in line %d, column %d", problem.text, problem.line,
                         problem.column);
    count(schema, &c);
    json_decref(schema);
    if (c.n_members > CL_LIMIT_MEMBERS)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has an object of %zu members; it may have %d: simplify it",
                             c.n_members, CL_LIMIT_MEMBERS);
    if (c.n_pattern_bytes > CL_LIMIT_PATTERNS)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has patterns of %zu bytes; they may have %d: simplify them",
                             c.n_pattern_bytes, CL_LIMIT_PATTERNS);
    return check_pattern(c.pattern, error);
}

/* ---- Lark grammars ---- */

typedef struct terminal {
    cl_str name;
    size_t first_use, n_uses; /* in lark.uses: terminals in its definition */
    size_t size;              /* bytes of its definition, and once it is `known`, with the terminals in it */
    bool known, open;         /* open: its size is being found, so it stands in itself */
} terminal;

typedef struct lark {
    terminal *terminals; /* [n] owned; sorted by name once all are there */
    cl_str *uses;        /* [n_uses] owned */
    size_t n, n_uses;
    size_t longest; /* bytes of the longest regular expression in a rule */
} lark;

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The end of a literal that begins at *at and ends with the character `end`, which a backslash before it makes an ordinary one.
 */
static const char *skip(const char *at, const char *limit, char end) {
    for (at++; at < limit && *at != end && *at != '\n'; at++)
        if (*at == '\\') at++;
    return at < limit ? at + 1 : limit;
}

/* Read a definition up to the end of its line. t: NULL in a rule. */
static const char *read_line(lark *l, terminal *t, const char *at, const char *limit) {
    while (at < limit && *at != '\n') {
        const char *start = at;
        if (at + 1 < limit && at[0] == '/' && at[1] == '/')
            while (at < limit && *at != '\n') at++;
        else if (*at == '/' || *at == '"')
            at = skip(at, limit, *at);
        else if (is_name(*at))
            while (at < limit && is_name(*at)) at++;
        else
            at++;
        const size_t n = (size_t)(at - start);
        if (*start == '/' && n > l->longest) l->longest = n;
        if (!t) continue;
        t->size += n;
        if (!isupper((unsigned char)*start)) continue;
        l->uses[l->n_uses++] = (cl_str){start, n};
        t->n_uses++;
    }
    return at < limit ? at + 1 : limit;
}

/* A definition begins a line with its name; other lines go on with it. */
static void read_lark(lark *l, const char *text, size_t size) {
    const char *limit = text + size;
    terminal *t = NULL;
    for (const char *at = text; at < limit;) {
        while (at < limit && (*at == ' ' || *at == '\t')) at++;
        if (at < limit && isupper((unsigned char)*at)) {
            const char *start = at;
            while (at < limit && is_name(*at)) at++;
            t = &l->terminals[l->n++];
            *t = (terminal){.name = {start, (size_t)(at - start)}, .first_use = l->n_uses};
        } else if (at < limit && (islower((unsigned char)*at) || strchr("?!_%", *at))) {
            t = NULL;
        }
        at = read_line(l, t, at, limit);
    }
}

static int compare_names(const void *left, const void *right) {
    const cl_str *a = &((const terminal *)left)->name, *b = &((const terminal *)right)->name;
    const int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* The bytes of a terminal with those that stand in it, up to the first number beyond the limit. */
static size_t full_size(lark *l, terminal *t) {
    if (t->known || t->open) return t->size;
    t->open = true;
    for (size_t i = 0; i < t->n_uses && t->size <= CL_LIMIT_PATTERN; i++) {
        const terminal wanted = {.name = l->uses[t->first_use + i]};
        terminal *found = bsearch(&wanted, l->terminals, l->n, sizeof *l->terminals, compare_names);
        if (found) t->size += full_size(l, found);
    }
    t->open = false;
    t->known = true;
    return t->size;
}

static cl_status check_lark(const char *text, size_t size, cl_error *error) {
    if (size > CL_LIMIT_LARK_BYTES)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has %zu bytes; in Lark it may have %d: simplify it", size,
                             CL_LIMIT_LARK_BYTES);
    lark l = {.terminals = calloc(size + 1, sizeof *l.terminals), .uses = calloc(size + 1, sizeof *l.uses)};
    cl_status status = l.terminals && l.uses ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar");
    if (status == CL_OK) {
        read_lark(&l, text, size);
        qsort(l.terminals, l.n, sizeof *l.terminals, compare_names);
        for (size_t i = 0; i < l.n; i++) {
            const size_t n = full_size(&l, &l.terminals[i]);
            if (n > l.longest) l.longest = n;
        }
        status = check_pattern(l.longest, error);
    }
    free(l.terminals);
    free(l.uses);
    return status;
}

cl_status cl_grammar_check(cl_grammar_kind kind, const char *text, size_t size, cl_error *error) {
    if (cl_utf8_valid(text, size) < size || memchr(text, 0, size))
        return cl_refuse(error, "grammar", "is not UTF-8, or contains a zero character");
    if (kind == CL_GRAMMAR_JSON_SCHEMA) return check_schema(text, size, error);
    return kind == CL_GRAMMAR_LARK ? check_lark(text, size, error) : check_pattern(size, error);
}
