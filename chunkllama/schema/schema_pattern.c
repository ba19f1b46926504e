/*
 * Patterns. llguidance cannot look ahead. Where a pattern begins by looking ahead, in a form that generators of schemas write,
 * that is written as a further pattern which must hold, too: any ^(?=X), and a ^(?!X) whose contrary is a short pattern.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "regex.h"
#include "schema_pass.h"

/* A part of a pattern. */
typedef struct piece {
    const char *text;
    int size;
} piece;

/* The end of the character, escape or class at the beginning; `limit` if there is none. */
static const char *skip_one(const char *at, const char *limit) {
    if (at < limit && *at == '\\') return at + 2 < limit ? at + 2 : limit;
    if (at >= limit || *at != '[') return at < limit ? at + 1 : limit;
    for (at += 1 + (at[1] == '^'); at < limit && *at != ']'; at++) at += *at == '\\';
    return at < limit ? at + 1 : limit;
}

/* The bracket that closes the group at the beginning; NULL: there is none. */
static const char *end_of_group(const char *at, const char *limit) {
    for (int depth = 0; at < limit; at = skip_one(at, limit)) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0) return at;
    }
    return NULL;
}

/* Whether a piece is one character or class that has a contrary, and may be followed by others of the same. */
static bool is_run(piece x, piece *one, int *n) {
    const char *end = skip_one(x.text, x.text + x.size);
    *one = (piece){x.text, (int)(end - x.text)};
    if (x.size == 0 || x.size % one->size != 0 || (one->size == 1 && strchr("\\().*+?|^${}", *x.text))) return false;
    for (*n = 0; *n * one->size < x.size; ++*n)
        if (strncmp(x.text + *n * one->size, x.text, (size_t)one->size) != 0) return false;
    return true;
}

/* The contrary of a character, an escape or a class. */
static void put_contrary(char *to, size_t size, piece one) {
    const bool is_class = one.text[0] == '[', is_contrary = is_class && one.text[1] == '^';
    if (is_contrary)
        snprintf(to, size, "[%.*s", one.size - 2, one.text + 2);
    else
        snprintf(to, size, is_class ? "[^%.*s" : "[^%.*s]", is_class ? one.size - 1 : one.size, one.text + is_class);
}

enum { MAX_AHEAD = 120 };

/* A pattern of strings at whose beginning x is not found; an empty one if that cannot be written. */
static void write_contrary(piece x, char *to, size_t size) {
    char other[MAX_AHEAD + 8];
    piece one;
    int n;
    *to = 0;
    if (x.size > MAX_AHEAD) return;
    const bool anywhere = x.size > 2 && strncmp(x.text, ".*", 2) == 0;
    const int begin = anywhere ? 2 : x.size > 0 && x.text[0] == '^';
    const piece rest = {x.text + begin, x.size - begin};
    const bool whole = !anywhere && rest.size > 2 && strncmp(rest.text + rest.size - 2, "*$", 2) == 0;
    if (!is_run(whole ? (piece){rest.text, rest.size - 2} : rest, &one, &n) || (n > 1 && !anywhere)) return;
    put_contrary(other, sizeof other, one);
    if (whole) /* not all of them */
        snprintf(to, size, "%s", other);
    else if (anywhere) /* fewer than n of them, one after the other */
        snprintf(to, size, "^(?:(?:%.*s){0,%d}%s)*(?:%.*s){0,%d}$", one.size, one.text, n - 1, other, one.size, one.text,
                 n - 1);
    else
        snprintf(to, size, "^(?:%s(?s:.)*)?$", other);
}

/* Add to `all` the patterns that are together this one; false: they cannot be written. */
static bool split(schema_pass *p, const char *pattern, json_t *all) {
    const char *rest = pattern + 1, *limit = pattern + strlen(pattern), *end;
    while (pattern[0] == '^' && (strncmp(rest, "(?=", 3) == 0 || strncmp(rest, "(?!", 3) == 0) &&
           (end = end_of_group(rest, limit))) {
        const piece x = {rest + 3, (int)(end - rest - 3)};
        char contrary[3 * MAX_AHEAD + 64];
        if (rest[2] == '!') write_contrary(x, contrary, sizeof contrary);
        if (rest[2] == '!' && !contrary[0]) return false;
        schema_add(p, all, rest[2] == '!' ? json_string(contrary) : json_sprintf("^(?:%.*s)", x.size, x.text));
        rest = end + 1;
    }
    schema_add(p, all, rest == pattern + 1 ? json_string(pattern) : json_sprintf("^%s", rest));
    for (size_t i = 0; i < json_array_size(all); i++)
        if (cl_regex_looks_around(json_string_value(json_array_get(all, i)))) return false;
    return !p->no_memory;
}

json_t *schema_write_regex(schema_pass *p, const char *regex) {
    size_t n;
    schema_work(p, schema_text_work(strlen(regex)));
    char *text = cl_regex_ascii(regex, strlen(regex), &n);
    json_t *written = schema_new(p, text ? json_string(text) : NULL);
    free(text);
    return written;
}

json_t *schema_write_pattern(schema_pass *p, const char *pattern) {
    schema_work(p, schema_text_work(strlen(pattern)));
    if (!cl_regex_looks_around(pattern)) return schema_write_regex(p, pattern);
    schema_lacks(p, "pattern");
    return NULL;
}

/* Whether the schema has a format that holds instead of a pattern. */
static bool has_format(const json_t *schema) { return schema_is_format(json_string_value(json_object_get(schema, "format"))); }

void schema_write_patterns(schema_pass *p, const json_t *schema, const json_t *value, json_t *out) {
    const char *text = json_string_value(value);
    json_t *all = schema_new(p, json_array());
    schema_work(p, 4 * schema_text_work(json_string_length(value))); /* it is split, copied, and looked through twice */
    if (!text || strlen(text) != json_string_length(value))
        schema_refuse(p, "pattern", "must be a string without zero characters");
    else if (!split(p, text, all))
        has_format(schema) ? schema_weaken(p, "pattern") : schema_lacks(p, "pattern");
    else
        for (size_t i = 0; i < json_array_size(all); i++) {
            json_t *one = schema_write_regex(p, json_string_value(json_array_get(all, i)));
            if (i + 1 == json_array_size(all))
                schema_set(p, out, "pattern", one);
            else
                schema_and(p, out, SCHEMA_PACK(p, "{so*}", "pattern", one));
        }
    json_decref(all);
}
