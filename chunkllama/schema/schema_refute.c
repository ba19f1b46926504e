/*
 * Schemas of what is not a value of a schema, for `not`, for what is not `if`, and for the other branches of oneOf. All
 * keywords of a schema must hold, so what breaks one of them is none of its values. Keywords whose contrary cannot be expressed
 * are left out.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"
#include "chunkllama/text/prompt.h"
#include "schema_pass.h"

/* ---- Contraries of keywords: each adds schemas to `all` ---- */

typedef struct refutation {
    schema_pass *p;
    const json_t *schema;
    const char *key; /* of the keyword, */
    json_t *value;   /* and its value */
    json_t *all;
} refutation;

size_t schema_n_alternatives(schema_pass *p, const json_t *schema) {
    const json_t *any = json_object_get(schema, "anyOf"), *all = json_object_get(schema, "allOf");
    json_t *part;
    size_t i, n = any ? 0 : 1;
    if (!schema_work(p, 1)) return SCHEMA_MAX_ALTERNATIVES + 1;
    json_array_foreach(any, i, part) n = n <= SCHEMA_MAX_ALTERNATIVES ? n + schema_n_alternatives(p, part) : n;
    json_array_foreach(all, i, part) n = n <= SCHEMA_MAX_ALTERNATIVES ? n * schema_n_alternatives(p, part) : n;
    return n <= SCHEMA_MAX_ALTERNATIVES ? n : SCHEMA_MAX_ALTERNATIVES + 1;
}

/* Add a schema; a new reference, which gets its mark. */
static void add(const refutation *r, json_t *schema) {
    schema_set(r->p, schema, SCHEMA_MADE, json_true());
    schema_add(r->p, r->all, schema);
}

/* A new reference to the schema of a value that is not one of `schema`; NULL: it cannot be expressed. */
static json_t *contrary(const refutation *r, const json_t *schema) {
    const json_t *negation = schema_negate(r->p, schema);
    return negation ? schema_share(negation) : NULL;
}

/* The same for a place within the value. */
static json_t *contrary_within(const refutation *r, const json_t *schema) {
    r->p->n_within++;
    json_t *other = contrary(r, schema);
    r->p->n_within--;
    return other;
}

/* The elements of a keyword's value, or the value itself as the only one. */
static json_t *list_of(const refutation *r, bool is_list) {
    schema_work(r->p, schema_value_work(r->value));
    return is_list ? schema_share(r->value) : SCHEMA_PACK(r->p, "[O]", r->value);
}

static bool names_type(const json_t *list, const char *type) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(strcmp(name, "integer") == 0 ? "number" : name, type) == 0) return true;
    }
    return false;
}

static void type(const refutation *r) {
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    json_t *others = schema_new(r->p, json_array()), *list = list_of(r, json_is_array(r->value));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!names_type(list, names[i])) schema_add(r->p, others, json_string(names[i]));
    if (json_array_size(others) > 0) add(r, SCHEMA_PACK(r->p, "{sO}", "type", others));
    json_decref(others);
    json_decref(list);
}

enum { MAX_OTHERS = 100, MAX_OTHERS_BYTES = 1000 };

/* Whether it can be written that a value is none of these: that a string is none of them as a pattern, a number as ranges. */
static bool has_others(const json_t *values) {
    size_t n_bytes = 0;
    if (json_array_size(values) > MAX_OTHERS) return false;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *text = json_array_get(values, i);
        if (!schema_is_exact(text) || fabs(json_number_value(text)) > SCHEMA_EXACT) return false;
        if (json_array_size(text) > 0 || json_object_size(text) > 0) return false;
        if (json_is_string(text) && strlen(json_string_value(text)) != json_string_length(text)) return false;
        n_bytes += json_string_length(text);
    }
    return n_bytes <= MAX_OTHERS_BYTES;
}

static void values(const refutation *r) {
    json_t *list = list_of(r, json_is_array(r->value) && strcmp(r->key, "enum") == 0);
    if (has_others(list)) add(r, SCHEMA_PACK(r->p, "{sO}", SCHEMA_NOT_VALUES, list));
    json_decref(list);
}

/* Count the work of writing a name twice. False: the pass has failed. */
static bool count_name(const refutation *r, const char *name) { return schema_work(r->p, 2 * schema_text_work(strlen(name))); }

static void required(const refutation *r) {
    if (!schema_work(r->p, json_array_size(r->value))) return;
    for (size_t i = 0; i < json_array_size(r->value); i++) {
        const char *name = json_string_value(json_array_get(r->value, i));
        if (name && count_name(r, name)) add(r, SCHEMA_PACK(r->p, "{sss{sb}}", "type", "object", "properties", name, 0));
    }
}

static void properties(const refutation *r) {
    const char *name;
    json_t *schema;
    json_object_foreach((json_t *)r->value, name, schema) {
        json_t *other = schema_goes_on(r->p) ? contrary_within(r, schema) : NULL;
        if (other && !json_is_false(other) && count_name(r, name))
            add(r, SCHEMA_PACK(r->p, "{sss[s]s{sO}}", "type", "object", "required", name, "properties", name, other));
        json_decref(other);
    }
}

/* An array has an item that is none of `items`. */
static void items(const refutation *r) {
    json_t *other = json_is_array(r->value) || json_object_get(r->schema, "prefixItems") ? NULL : contrary_within(r, r->value);
    if (other && !json_is_false(other)) add(r, SCHEMA_PACK(r->p, "{sssO}", "type", "array", "contains", other));
    json_decref(other);
}

static void contains(const refutation *r) {
    const bool counted = json_object_get(r->schema, "minContains") || json_object_get(r->schema, "maxContains");
    json_t *other = counted ? NULL : contrary_within(r, r->value);
    if (other) add(r, SCHEMA_PACK(r->p, "{sssO}", "type", "array", "items", other));
    json_decref(other);
}

/* Add the schemas of what is not one of `schema`. */
static void add_all(const refutation *r, const json_t *schema) {
    bool exact;
    const json_t *all = schema_refute(r->p, schema, &exact);
    for (size_t i = 0; i < json_array_size(all); i++) schema_add(r->p, r->all, schema_share(json_array_get(all, i)));
}

static void all_of(const refutation *r) {
    for (size_t i = 0; i < json_array_size(r->value) && schema_goes_on(r->p); i++) add_all(r, json_array_get(r->value, i));
}

/* It is a value of no branch. For oneOf it could also be one of two branches, which is not written. */
static void any_of(const refutation *r) {
    json_t *others = schema_new(r->p, json_array());
    bool all = true;
    for (size_t i = 0; i < json_array_size(r->value) && all; i++) {
        json_t *other = contrary(r, json_array_get(r->value, i));
        all = other;
        if (other) schema_add(r->p, others, other);
    }
    json_t *none = SCHEMA_PACK(r->p, "{so}", "allOf", others);
    if (all && schema_n_alternatives(r->p, none) <= SCHEMA_MAX_ALTERNATIVES) add(r, schema_share(none));
    json_decref(none);
}

static void not_so(const refutation *r) { add(r, SCHEMA_PACK(r->p, "{s[O]}", "allOf", r->value)); }

/* Whether a value has a reference in it. */
static bool refers(schema_pass *p, const json_t *value) {
    const char *key;
    json_t *member;
    size_t i;
    bool found = !schema_work(p, 1) || json_object_get(value, "$ref");
    json_object_foreach((json_t *)value, key, member) found = found || refers(p, member);
    json_array_foreach(value, i, member) found = found || refers(p, member);
    return found;
}

/* Within the value only if the schema has no further references: llguidance cannot follow circles beside other keywords. */
static void reference(const refutation *r) {
    const json_t *target = schema_resolve(r->p, r->value);
    if (target && !(r->p->n_within > 0 && refers(r->p, target))) add_all(r, target);
}

/* Bounds and counts: the contrary bound of the same type. */
static void bound(const refutation *r) {
    static const struct {
        const char *key, *type, *other;
        int step; /* to the nearest count that is beyond */
    } bounds[] = {
        {"minimum", "number", "exclusiveMaximum", 0},
        {"maximum", "number", "exclusiveMinimum", 0},
        {"exclusiveMinimum", "number", "maximum", 0},
        {"exclusiveMaximum", "number", "minimum", 0},
        {"minLength", "string", "maxLength", -1},
        {"maxLength", "string", "minLength", 1},
        {"minItems", "array", "maxItems", -1},
        {"maxItems", "array", "minItems", 1},
        {"minProperties", "object", "maxProperties", -1},
        {"maxProperties", "object", "minProperties", 1},
    };
    size_t i = 0;
    while (strcmp(bounds[i].key, r->key) != 0) i++;
    const double count = json_number_value(r->value) + bounds[i].step;
    if (!json_is_number(r->value) || fabs(count) > SCHEMA_EXACT || (bounds[i].step && (count < 0 || count > INT32_MAX))) return;
    json_t *other = bounds[i].step ? schema_new(r->p, json_integer((json_int_t)count)) : schema_share(r->value);
    add(r, SCHEMA_PACK(r->p, "{ssso}", "type", bounds[i].type, bounds[i].other, other));
}

static const struct {
    const char *key;
    void (*refute)(const refutation *r);
} refutations[] = {
    {"type", type},
    {"const", values},
    {"enum", values},
    {"required", required},
    {"properties", properties},
    {"items", items},
    {"contains", contains},
    {"allOf", all_of},
    {"anyOf", any_of},
    {"oneOf", any_of},
    {"not", not_so},
    {"$ref", reference},
    {"minimum", bound},
    {"maximum", bound},
    {"exclusiveMinimum", bound},
    {"exclusiveMaximum", bound},
    {"minLength", bound},
    {"maxLength", bound},
    {"minItems", bound},
    {"maxItems", bound},
    {"minProperties", bound},
    {"maxProperties", bound},
};

enum { MAX_COMPARED = 50000, MAX_NEGATIONS = 5 };

bool schema_compare(schema_pass *p) { return ++p->n_compared <= MAX_COMPARED; }

static void refute_keywords(refutation *r) {
    const size_t n = sizeof refutations / sizeof *refutations;
    json_object_foreach((json_t *)r->schema, r->key, r->value) {
        size_t i = 0;
        while (i < n && strcmp(r->key, refutations[i].key) != 0) i++;
        if (i < n) refutations[i].refute(r);
    }
}

const json_t *schema_refute(schema_pass *p, const json_t *schema, bool *exact) {
    refutation r = {.p = p, .schema = schema, .all = schema_keep(p, schema_new(p, json_array()))};
    *exact = json_is_true(schema) || (cl_json_is_object(schema) && schema_n_keywords(p, schema) == 0);
    if (json_is_false(schema)) add(&r, schema_new(p, json_object()));
    p->n_negations++;
    if (schema_enter(p, schema) && p->n_negations <= MAX_NEGATIONS && schema_compare(p)) refute_keywords(&r);
    p->n_negations--;
    schema_leave(p);
    return r.all;
}

const json_t *schema_negate(schema_pass *p, const json_t *schema) {
    bool exact;
    const json_t *all = schema_refute(p, schema, &exact);
    if (json_array_size(all) == 0) return exact ? schema_keep(p, json_false()) : NULL;
    return json_array_size(all) == 1 ? json_array_get(all, 0)
                                     : schema_keep(p, SCHEMA_PACK(p, "{sOsb}", "anyOf", all, SCHEMA_MADE, 1));
}

/* ---- All values but some ---- */

static void put(cl_prompt *pattern, const char *text) { cl_prompt_add(pattern, cl_str_of(text)); }

static size_t char_size(const char *text) { return cl_utf8_char(text, strlen(text)); }

/* A character as it stands in a class and outside. */
static void put_char(cl_prompt *pattern, const char *c) {
    if (strchr("\\.+*?()|[]{}^$#&-~/", *c)) put(pattern, "\\");
    cl_prompt_add(pattern, (cl_str){c, char_size(c)});
}

/* The index of the first string behind i whose next character, after `done` bytes, is another one. */
static size_t same_next(const char *const *strings, size_t n, size_t i, size_t done) {
    const size_t first = i, size = char_size(strings[i] + done);
    while (i < n && strncmp(strings[i] + done, strings[first] + done, size) == 0) i++;
    return i;
}

static int compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/*
 * Strings [n >= 1] are sorted, differ, and begin with the same `done` bytes. Write the pattern of what may follow these in a
 * string that is none of them.
 */
static void put_others(cl_prompt *pattern, const char *const *strings, size_t n, size_t done) {
    const size_t ended = !strings[0][done];
    if (n == ended) {
        put(pattern, "(?s:.)+");
        return;
    }
    put(pattern, ended ? "(?:[^" : "(?:|[^"); /* it may end here, too, unless one of the strings does */
    for (size_t i = ended; i < n; i = same_next(strings, n, i, done)) put_char(pattern, strings[i] + done);
    put(pattern, "](?s:.)*");
    for (size_t i = ended, end; i < n; i = end) {
        end = same_next(strings, n, i, done);
        put(pattern, "|");
        put_char(pattern, strings[i] + done);
        put_others(pattern, strings + i, end - i, done + char_size(strings[i] + done));
    }
    put(pattern, ")");
}

/* The values of one type in an array, as a new one. */
static json_t *of_type(schema_pass *p, const json_t *values, bool (*is)(const json_t *)) {
    json_t *some = schema_new(p, json_array());
    for (size_t i = 0; i < json_array_size(values); i++)
        if (is(json_array_get(values, i))) schema_add(p, some, schema_share(json_array_get(values, i)));
    return some;
}

static bool is_string(const json_t *value) { return json_is_string(value); }
static bool is_number(const json_t *value) { return json_is_number(value); }
static bool is_array(const json_t *value) { return json_is_array(value); }
static bool is_object(const json_t *value) { return cl_json_is_object(value); }
static bool is_null(const json_t *value) { return json_is_null(value); }

static json_t *write_other_strings(schema_pass *p, const json_t *values) {
    json_t *strings = of_type(p, values, is_string);
    const size_t n = json_array_size(strings);
    const char **texts = calloc(n + 1, sizeof(char *));
    cl_prompt pattern = {0};
    p->no_memory |= !texts;
    for (size_t i = 0; texts && i < n; i++) texts[i] = json_string_value(json_array_get(strings, i));
    if (texts && n > 0) {
        qsort(texts, n, sizeof *texts, compare);
        size_t n_different = 1;
        for (size_t i = 1; i < n; i++)
            if (strcmp(texts[i], texts[n_different - 1]) != 0) texts[n_different++] = texts[i];
        put(&pattern, "^");
        put_others(&pattern, texts, n_different, 0);
        put(&pattern, "$");
    }
    p->no_memory |= pattern.no_memory;
    json_t *text = pattern.size > 0 ? json_stringn(pattern.text, pattern.size) : NULL;
    p->no_memory |= pattern.size > 0 && !text;
    json_t *written = SCHEMA_PACK(p, "{ssso*}", "type", "string", "pattern", text);
    cl_prompt_free(&pattern);
    free(texts);
    json_decref(strings);
    return written;
}

/* Add the numbers between one bound and the next. */
static void add_range(schema_pass *p, json_t *all, const json_t *from, const json_t *to) {
    json_t *range = SCHEMA_PACK(p, "{ss}", "type", "number");
    if (from) schema_set(p, range, "exclusiveMinimum", schema_write_exclusive(p, from, true));
    if (to) schema_set(p, range, "exclusiveMaximum", schema_write_exclusive(p, to, false));
    schema_add(p, all, range);
}

/* The next number of an array behind `from`; NULL: there is none. */
static const json_t *next_number(const json_t *numbers, const json_t *from) {
    const json_t *next = NULL;
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        const json_t *x = json_array_get(numbers, i);
        if (from && json_number_value(x) <= json_number_value(from)) continue;
        if (!next || json_number_value(x) < json_number_value(next)) next = x;
    }
    return next;
}

static void add_other_numbers(schema_pass *p, const json_t *values, json_t *all) {
    json_t *numbers = of_type(p, values, is_number);
    const json_t *from = NULL, *to;
    do {
        to = next_number(numbers, from);
        add_range(p, all, from, to);
        from = to;
    } while (to);
    json_decref(numbers);
}

/*
 * Add the values of a type that are not among these: all, if none of these has the type, or else those that are not empty,
 * which the keyword `least` says. NULL: the type has no others.
 */
static void add_type(schema_pass *p, const json_t *values, bool (*is)(const json_t *), const char *name, const char *least,
                     json_t *all) {
    json_t *some = of_type(p, values, is);
    if (json_array_size(some) == 0)
        schema_add(p, all, SCHEMA_PACK(p, "{ss}", "type", name));
    else if (least)
        schema_add(p, all, SCHEMA_PACK(p, "{sssi}", "type", name, least, 1));
    json_decref(some);
}

json_t *schema_write_others(schema_pass *p, const json_t *values) {
    if (!has_others(values)) return NULL;
    json_t *all = schema_new(p, json_array());
    schema_add(p, all, write_other_strings(p, values));
    add_other_numbers(p, values, all);
    for (int b = 0; b < 2; b++) {
        bool there = false;
        for (size_t i = 0; i < json_array_size(values); i++)
            there |= json_is_boolean(json_array_get(values, i)) && json_is_true(json_array_get(values, i)) == b;
        if (!there) schema_add(p, all, SCHEMA_PACK(p, "{sb}", "const", b));
    }
    add_type(p, values, is_null, "null", NULL, all);
    add_type(p, values, is_array, "array", "minItems", all);
    add_type(p, values, is_object, "object", "minProperties", all);
    return SCHEMA_PACK(p, "{so}", "anyOf", all);
}
