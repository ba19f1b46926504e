/* Writes keywords about one kind of values, as llguidance knows them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "regex.h"
#include "schema_pass.h"

/* What a keyword is written from and to. */
typedef struct keyword {
    schema_pass *p;
    const json_t *schema, *value;
    const char *key;
    json_t *out;
} keyword;

static void put(const keyword *k, json_t *value) { schema_set(k->p, k->out, k->key, value); }

static void copy(const keyword *k) {
    schema_work(k->p, schema_value_work(k->value));
    put(k, schema_share(k->value));
}

/* A number that may be written with a fraction of 0. */
static void count(const keyword *k) {
    const double x = json_real_value(k->value);
    const bool whole = json_is_real(k->value) && x == floor(x) && x >= 0 && x < INT32_MAX;
    whole ? put(k, json_integer((json_int_t)x)) : copy(k);
}

/* ---- Places ---- */

/* Write the place that a step leads to. */
static json_t *write_place(schema_pass *p, const char *step, const json_t *schema) {
    char *end = p->path + strlen(p->path);
    const size_t size = strlen(step), room = sizeof p->path - (size_t)(end - p->path);
    schema_work(p, schema_text_work(size));
    if (size + 2 < room) stpcpy(stpcpy(end, "/"), step);
    json_t *place = schema_write_place(p, schema);
    *end = 0;
    return place;
}

static void place(const keyword *k) { put(k, write_place(k->p, k->key, k->value)); }

static void properties(const keyword *k) {
    json_t *written = schema_new(k->p, json_object()), *schema;
    const char *name;
    if (!cl_json_is_object(k->value)) schema_refuse(k->p, k->key, "must be an object");
    json_object_foreach((json_t *)k->value, name, schema) {
        if (schema_goes_on(k->p)) schema_set(k->p, written, name, write_place(k->p, name, schema));
    }
    put(k, written);
}

static void pattern_properties(const keyword *k) {
    json_t *written = schema_new(k->p, json_object()), *schema;
    const char *name;
    if (!cl_json_is_object(k->value)) schema_refuse(k->p, k->key, "must be an object");
    json_object_foreach((json_t *)k->value, name, schema) {
        json_t *pattern = schema_goes_on(k->p) ? schema_write_pattern(k->p, name) : NULL;
        if (pattern && json_object_get(written, json_string_value(pattern)))
            schema_leave_out(k->p, k->key, "has two patterns for the same names; join them");
        else if (pattern)
            schema_set(k->p, written, json_string_value(pattern), write_place(k->p, name, schema));
        json_decref(pattern);
    }
    put(k, written);
}

/* ---- Numbers ---- */

/* The largest number below 2^63, within which llguidance keeps bounds. */
#define MOST 9223372036854774784.0

/* Also of a number beyond 64 bits. */
static bool read_number(const json_t *value, double *x) {
    cl_str digits;
    const bool beyond = cl_json_is_number(value, &digits);
    if (beyond || json_is_number(value)) *x = beyond ? strtod(digits.data, NULL) : json_number_value(value);
    return beyond || json_is_number(value);
}

/*
 * Of an exclusive bound that is whole llguidance allows the bound itself if the other bound is less than 1 away. So such a
 * bound is written as a number that is a little further: by some units of its last place, since llguidance rounds what it
 * reads.
 */
json_t *schema_write_exclusive(schema_pass *p, const json_t *value, bool lower) {
    const double x = json_number_value(value), step = x == 0 ? 1e-20 : fabs(x) * 1e-15;
    const bool is_misread = x == floor(x) && step < 0.5 && (lower ? x >= 0 : x <= 0);
    return is_misread ? schema_new(p, json_real(lower ? x + step : x - step)) : schema_share(value);
}

/* A bound beyond 2^53, which may have been rounded when it was read, becomes a stricter one. */
static void bound(const keyword *k) {
    const bool lower = strstr(k->key, "inimum");
    const char *exclusive = lower ? "exclusiveMinimum" : "exclusiveMaximum";
    const char *key = json_is_true(json_object_get(k->schema, exclusive)) ? exclusive : k->key;
    double x = 0;
    if (strcmp(k->key, exclusive) == 0 && json_is_boolean(k->value)) return; /* of draft 4; it is read with its bound */
    schema_work(k->p, schema_value_work(k->value));
    if (!read_number(k->value, &x)) schema_refuse(k->p, k->key, "must be a number");
    json_t *written = strcmp(key, exclusive) == 0 ? schema_write_exclusive(k->p, k->value, lower) : schema_share(k->value);
    if (fabs(x) > SCHEMA_EXACT) {
        json_decref(written);
        x = nextafter(x, lower ? INFINITY : -INFINITY);
        if (lower ? x > MOST : x < -MOST) {
            schema_leave_out(k->p, k->key, "is beyond 2^63, which a grammar cannot follow");
            return;
        }
        written = json_real(fmax(-MOST, fmin(MOST, x)));
        if (lower && !json_object_get(k->out, "maximum")) schema_set(k->p, k->out, "maximum", json_real(MOST));
        if (!lower && !json_object_get(k->out, "minimum")) schema_set(k->p, k->out, "minimum", json_real(-MOST));
    }
    schema_set(k->p, k->out, key, written);
}

bool schema_is_exact(const json_t *value) {
    const char *key;
    json_t *member;
    size_t i;
    bool exact = true;
    cl_str digits;
    if (json_is_integer(value)) {
        const double x = json_number_value(value);
        return fabs(x) < MOST && (json_int_t)x == json_integer_value(value);
    }
    if (cl_json_is_number(value, &digits)) return false;
    if (json_is_real(value)) return fabs(json_real_value(value)) < MOST;
    json_object_foreach((json_t *)value, key, member) exact &= schema_is_exact(member);
    json_array_foreach(value, i, member) exact &= schema_is_exact(member);
    return exact;
}

static void constant(const keyword *k) {
    schema_work(k->p, schema_value_work(k->value));
    if (schema_is_exact(k->value))
        put(k, schema_share(k->value));
    else
        schema_leave_out(k->p, k->key, "has a number that a grammar cannot hold exactly; write it as a string");
}

/* ---- Strings ---- */

static void pattern(const keyword *k) { schema_write_patterns(k->p, k->schema, k->value, k->out); }

/* JSON Schema's formats that llguidance follows; others are annotations. */
bool schema_is_format(const char *name) {
    static const char *const known[] = {"date-time", "date", "time", "duration", "email",
                                        "hostname",  "ipv4", "ipv6", "uuid",     "uri"};
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) return true;
    return false;
}

static void format(const keyword *k) {
    if (schema_is_format(json_string_value(k->value))) copy(k);
}

/* ---- Arrays ---- */

static void prefix_items(const keyword *k) {
    json_t *written = schema_new(k->p, json_array());
    for (size_t i = 0; i < json_array_size(k->value) && schema_goes_on(k->p); i++)
        schema_add(k->p, written, write_place(k->p, k->key, json_array_get(k->value, i)));
    if (!json_is_array(k->value)) schema_refuse(k->p, k->key, "must be an array");
    schema_set(k->p, k->out, "prefixItems", written);
}

/* Before draft 2020, `items` may be an array, and what follows are `additionalItems`. */
static void items(const keyword *k) { json_is_array(k->value) ? prefix_items(k) : place(k); }

static void additional_items(const keyword *k) {
    if (json_is_array(json_object_get(k->schema, "items")))
        schema_set(k->p, k->out, "items", write_place(k->p, k->key, k->value));
}

enum { MAX_CONTAINED = 64 };

/* A number of items, or MAX_CONTAINED + 1 if it is greater. */
static int read_count(const json_t *schema, const char *key, int otherwise) {
    const json_t *value = json_object_get(schema, key);
    return value ? (int)fmax(0, fmin(json_number_value(value), MAX_CONTAINED + 1)) : otherwise;
}

/*
 * An array whose first `start` items are followed by `least` of those that it must contain. If it may contain at most `most`,
 * these follow there, too, and `others` is the schema of all other items; NULL: it may contain any number.
 */
static json_t *write_containing(const keyword *k, const json_t *others, int least, int most, int start) {
    json_t *written = SCHEMA_PACK(k->p, "{s[]si}", "prefixItems", "minItems", start + least);
    json_t *items = json_object_get(written, "prefixItems");
    for (int i = 0; i < start; i++) schema_add(k->p, items, others ? schema_write_part(k->p, others, NULL) : json_true());
    for (int i = 0; i < least || i < most; i++)
        schema_add(k->p, items, i < least ? write_place(k->p, k->key, k->value) : json_true());
    if (others) schema_set(k->p, written, "items", schema_write_part(k->p, others, NULL));
    if (others && least > most) schema_set(k->p, written, "maxItems", json_integer(start + most));
    return written;
}

/* How many items a schema says that an array must contain. */
static int least_contained(const json_t *schema) {
    return json_object_get(schema, "contains") ? read_count(schema, "minContains", 1) : 0;
}

/*
 * How many items the parts of the place before this one must contain: first what references in its allOf name, which are places
 * of their own and know of no other part; then the place itself, and the elements of its allOf. If this part is none of these,
 * all of them count.
 */
static int contained_before(const keyword *k) {
    const json_t *place = k->p->place->schema, *parts = json_object_get(place, "allOf"), *part = place;
    const size_t n_parts = json_array_size(parts);
    int n = 0;
    for (size_t i = 0; i < n_parts && n <= MAX_CONTAINED && schema_work(k->p, 1); i++)
        if (schema_is_reference(k->p, json_array_get(parts, i)))
            n += least_contained(schema_behind(k->p, json_array_get(parts, i)));
    for (size_t i = 0; part != k->schema && n <= MAX_CONTAINED && schema_work(k->p, 1); i++) {
        n += least_contained(part);
        if (i == n_parts) break;
        part = json_array_get(parts, i);
    }
    return n;
}

/*
 * The items that an array must contain follow each other. They begin with its first item, or at or behind an item of a tuple;
 * or they follow the items that other parts of the place must contain.
 */
static void contains(const keyword *k) {
    const json_t *limit = json_object_get(k->schema, "maxContains"), *tuple = json_object_get(k->schema, "prefixItems");
    const json_t *of_place = json_object_get(k->p->place->schema, "prefixItems");
    const json_t *others = limit ? schema_negate(k->p, k->value) : NULL;
    const int least = least_contained(k->schema), most = read_count(k->schema, "maxContains", 0), before = contained_before(k);
    const size_t n = json_array_size(tuple ? tuple : of_place ? of_place : json_object_get(k->schema, "items"));
    if (least > MAX_CONTAINED || most > MAX_CONTAINED || n > MAX_CONTAINED || (limit && !others)) {
        schema_lacks(k->p, k->key);
        return;
    }
    json_t *any = schema_new(k->p, json_array());
    for (int start = 0; start <= (int)n && schema_goes_on(k->p); start++)
        schema_add(k->p, any, write_containing(k, others, least, most, start));
    if (before > 0 && before <= MAX_CONTAINED) schema_add(k->p, any, write_containing(k, others, least, most, before + (int)n));
    schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{so}", "anyOf", any));
}

enum { MAX_UNIQUE = 4 }; /* values of which all arrangements are listed */

/* Add the arrays that begin with `begin` and go on with other values. */
static void add_arrangements(schema_pass *p, const json_t *values, const json_t *begin, json_t *all) {
    schema_add(p, all, schema_share(begin));
    for (size_t i = 0; i < json_array_size(values) && schema_work(p, schema_value_work(begin)); i++) {
        json_t *value = json_array_get(values, i), *longer = schema_new(p, cl_json_copy(begin));
        bool used = false;
        for (size_t j = 0; j < json_array_size(begin); j++) used |= schema_are_equal(value, json_array_get(begin, j));
        schema_add(p, longer, schema_share(value));
        if (!used) add_arrangements(p, values, longer, all);
        json_decref(longer);
    }
}

/* Add the values of a type; false: it has others. */
static bool add_type_values(schema_pass *p, const json_t *type, json_t *all) {
    const char *name = json_string_value(type);
    const bool is_boolean = name && strcmp(name, "boolean") == 0, is_null = name && strcmp(name, "null") == 0;
    for (int b = 0; b < 2 && is_boolean; b++) schema_add(p, all, json_boolean(b));
    if (is_null) schema_add(p, all, json_null());
    return is_boolean || is_null;
}

static bool add_values(schema_pass *p, const json_t *schema, json_t *all);

/* Add the values of each element of an array, by a function for one of them. */
static bool add_each(schema_pass *p, const json_t *list, bool (*add_one)(schema_pass *, const json_t *, json_t *),
                     json_t *all) {
    bool added = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list) && added; i++)
        added = json_array_size(all) <= MAX_UNIQUE && add_one(p, json_array_get(list, i), all);
    return added;
}

static bool add_value(schema_pass *p, const json_t *value, json_t *all) {
    schema_add(p, all, schema_share(value));
    return schema_work(p, schema_value_work(value));
}

/* Add the values that a schema lists, or more; false: it does not list them. */
static bool add_values(schema_pass *p, const json_t *schema, json_t *all) {
    const json_t *of = schema_behind(p, schema), *one = json_object_get(of, "const"), *some = json_object_get(of, "enum");
    const json_t *type = json_object_get(of, "type"), *any = json_object_get(of, "anyOf");
    bool added = schema_enter(p, of);
    if (added && one)
        added = add_value(p, one, all);
    else if (added && some)
        added = add_each(p, some, add_value, all);
    else if (added && type)
        added = json_is_array(type) ? add_each(p, type, add_type_values, all) : add_type_values(p, type, all);
    else if (added)
        added = add_each(p, any ? any : json_object_get(of, "oneOf"), add_values, all);
    schema_leave(p);
    return added;
}

static void unique_items(const keyword *k) {
    const json_t *most = json_object_get(k->schema, "maxItems"), *of = json_object_get(k->schema, "items");
    if (!json_is_true(k->value) || (most && json_number_value(most) <= 1)) return;
    json_t *values = schema_keep(k->p, schema_new(k->p, json_array()));
    const bool few = of && add_values(k->p, of, values) && json_array_size(values) <= MAX_UNIQUE;
    if (!few || !schema_is_exact(values) || json_object_get(k->schema, "prefixItems")) {
        schema_weaken(k->p, k->key);
        return;
    }
    json_t *all = schema_new(k->p, json_array()), *none = schema_new(k->p, json_array());
    add_arrangements(k->p, values, none, all);
    json_decref(none);
    json_t *others = SCHEMA_PACK(k->p, "{s[sssss]}", "type", "object", "string", "number", "boolean", "null");
    schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{s[o,{so}]}", "anyOf", others, "enum", all));
}

/* ---- Objects ---- */

static void required(const keyword *k) {
    if (json_is_array(k->value))
        copy(k);
    else if (json_is_boolean(k->value))
        schema_lacks(k->p, k->key); /* of draft 3 */
    else
        schema_refuse(k->p, k->key, "must be an array");
}

/* The names that an object must have, as the members of a new one. */
static json_t *required_names(const keyword *k) {
    json_t *names = schema_new(k->p, json_object());
    const json_t *all = json_object_get(k->schema, "required");
    schema_work(k->p, schema_value_work(all));
    for (size_t i = 0; i < json_array_size(all); i++)
        if (json_is_string(json_array_get(all, i)))
            schema_set(k->p, names, json_string_value(json_array_get(all, i)), json_true());
    return names;
}

/* The names of the other properties that an object may have, a new array. */
static json_t *optional_names(const keyword *k, const json_t *needed) {
    json_t *names = schema_new(k->p, json_array()), *property;
    const char *name;
    json_object_foreach(json_object_get(k->schema, "properties"), name, property) {
        schema_work(k->p, schema_text_work(strlen(name)));
        if (!json_object_get(needed, name) && !json_is_false(property)) schema_add(k->p, names, json_string(name));
    }
    return names;
}

enum { MAX_SELECTIONS = 64 };

/* How many selections of k there are among n, or more than MAX_SELECTIONS. */
static size_t n_selections(size_t n, size_t k) {
    size_t count = 1;
    if (k > n - k) k = n - k; /* as many as of those that are left out */
    for (size_t i = 0; i < k && count <= MAX_SELECTIONS; i++) count = count * (n - i) / (i + 1);
    return count;
}

/* An object that has, or may have, the selected ones of some optional properties. */
static json_t *write_selection(const keyword *k, const json_t *needed, const json_t *optional, const size_t *selected,
                               size_t n) {
    const bool least = strcmp(k->key, "minProperties") == 0;
    json_t *names = schema_new(k->p, least ? json_array() : cl_json_copy(needed));
    schema_work(k->p, schema_value_work(needed) + schema_value_work(optional));
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(optional, selected[i]));
        least ? schema_add(k->p, names, json_string(name)) : schema_set(k->p, names, name, json_true());
    }
    return least ? SCHEMA_PACK(k->p, "{so}", "required", names)
                 : SCHEMA_PACK(k->p, "{sosb}", "properties", names, "additionalProperties", 0);
}

/* Set the next selection of k numbers below n, ascending. False: this was the last. */
static bool select_next(size_t *selected, size_t n, size_t k) {
    size_t i = k;
    while (i > 0 && selected[i - 1] == n - k + i - 1) i--;
    if (i == 0) return false;
    selected[i - 1]++;
    for (; i < k; i++) selected[i] = selected[i - 1] + 1;
    return true;
}

/* One of all selections of n_wanted optional properties, or the first one if there are too many. */
static void write_selections(const keyword *k, const json_t *needed, const json_t *optional, size_t n_wanted) {
    const size_t n = json_array_size(optional);
    size_t *selected = calloc(n_wanted + 1, sizeof *selected);
    json_t *any = schema_new(k->p, json_array());
    k->p->no_memory |= !selected;
    for (size_t i = 0; selected && i < n_wanted; i++) selected[i] = i;
    const bool all = n_selections(n, n_wanted) <= MAX_SELECTIONS;
    do {
        if (selected) schema_add(k->p, any, write_selection(k, needed, optional, selected, n_wanted));
    } while (selected && all && schema_work(k->p, 1) && select_next(selected, n, n_wanted));
    free(selected);
    schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{so}", "anyOf", any));
}

/* Whether an object needs more properties than its schema declares, so that it has all of these. */
static bool needs_all(const keyword *k, const json_t *needed, const json_t *optional) {
    const double least = json_number_value(json_object_get(k->schema, "minProperties"));
    return least > (double)(json_object_size(needed) + json_array_size(optional));
}

/*
 * A number of properties. llguidance counts only others than those that are declared and optional, so some of the latter are
 * required, or others are forbidden.
 */
static void property_count(const keyword *k) {
    json_t *needed = required_names(k), *optional = optional_names(k, needed);
    const double rest = json_number_value(k->value) - (double)json_object_size(needed), n = (double)json_array_size(optional);
    const bool least = strcmp(k->key, "minProperties") == 0;
    const bool selects =
        json_is_number(k->value) && rest >= 0 && (n > 0 || (!least && rest == 0)) && (least || !needs_all(k, needed, optional));
    if (selects && (rest > 0 || !least)) write_selections(k, needed, optional, (size_t)(rest < n ? rest : n));
    if (!selects || (least && rest > n)) count(k);
    if (least && rest > n + 1) schema_weaken(k->p, k->key); /* two of the others may have one name */
    json_decref(optional);
    json_decref(needed);
}

/* The names that a schema of names lists, as the members of a new object. */
static json_t *listed_names(const keyword *k, const json_t *names) {
    json_t *listed = schema_new(k->p, json_object());
    const json_t *values = json_object_get(names, "enum"), *one = json_object_get(names, "const");
    schema_work(k->p, schema_value_work(names));
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_is_string(json_array_get(values, i)))
            schema_set(k->p, listed, json_string_value(json_array_get(values, i)), json_true());
    if (json_is_string(one)) schema_set(k->p, listed, json_string_value(one), json_true());
    return listed;
}

/* How many of some keys, up to NULL, an object has. */
static size_t count_keys(const json_t *object, const char *const *keys) {
    size_t n = 0;
    for (; *keys; keys++) n += json_object_get(object, *keys) != NULL;
    return n;
}

enum { MAX_NAME = 1000 }; /* the greatest bound for the characters of a name */

/* The pattern of names that have a pattern or a number of characters, a new reference; NULL: it cannot be expressed. */
static json_t *pattern_of_names(const keyword *k, const json_t *names) {
    const json_t *regex = json_object_get(names, "pattern"), *most = json_object_get(names, "maxLength");
    if (json_is_string(regex)) return schema_write_pattern(k->p, json_string_value(regex));
    const double from = json_number_value(json_object_get(names, "minLength")), to = json_number_value(most);
    if (regex || from < 0 || from > MAX_NAME || to < 0 || to > MAX_NAME) {
        schema_lacks(k->p, k->key);
        return NULL;
    }
    return schema_new(k->p,
                      most ? json_sprintf("^(?s:.{%d,%d})$", (int)from, (int)to) : json_sprintf("^(?s:.{%d,})$", (int)from));
}

static void restrict_names(const keyword *k, const json_t *names) {
    json_t *pattern = pattern_of_names(k, names), *patterns = schema_new(k->p, json_object());
    if (pattern) {
        schema_set(k->p, patterns, json_string_value(pattern), json_true());
        schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{sOsb}", "patternProperties", patterns, "additionalProperties", 0));
    }
    json_decref(patterns);
    json_decref(pattern);
}

/* Names of properties are restricted by declaring them, or by a pattern. */
static void property_names(const keyword *k) {
    static const char *const lists[] = {"enum", "const", NULL}, *const lengths[] = {"minLength", "maxLength", NULL};
    static const char *const regexes[] = {"pattern", NULL}, *const others[] = {"type", "format", NULL};
    const json_t *names = schema_behind(k->p, k->value);
    const size_t n_lists = count_keys(names, lists), n_lengths = count_keys(names, lengths),
                 n_regexes = count_keys(names, regexes);
    const size_t n_known = n_lists + n_lengths + n_regexes + count_keys(names, others);
    const bool any_string = !json_object_get(names, "type") || cl_schema_is_type(names, "string");
    if (json_is_false(names))
        schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{si}", "maxProperties", 0));
    else if (!any_string || n_known < schema_n_keywords(k->p, names) || n_lists + n_regexes + (n_lengths > 0) > 1)
        schema_lacks(k->p, k->key);
    else if (n_lists > 0)
        schema_and(k->p, k->out, SCHEMA_PACK(k->p, "{sosb}", "properties", listed_names(k, names), "additionalProperties", 0));
    else if (n_regexes + n_lengths > 0)
        restrict_names(k, names);
    if (schema_is_format(json_string_value(json_object_get(names, "format")))) schema_weaken(k->p, k->key);
}

static void unevaluated(const keyword *k) {
    const bool items = strcmp(k->key, "unevaluatedItems") == 0;
    if (json_is_true(k->value)) return;
    if (items && json_is_false(k->value) && !schema_has_parts(k->schema) && !json_object_get(k->schema, "contains")) {
        if (!json_object_get(k->schema, "items")) schema_set(k->p, k->out, "items", json_false());
    } else if (items || !json_is_false(k->value)) {
        schema_lacks(k->p, k->key); /* closing does the rest */
    }
}

static void others(const keyword *k) {
    schema_work(k->p, schema_value_work(k->value));
    json_t *written = schema_write_others(k->p, k->value);
    written ? schema_and(k->p, k->out, written) : schema_lacks(k->p, "not");
}

static void lacks(const keyword *k) { schema_lacks(k->p, k->key); }
static void nothing(const keyword *k) { (void)k; }

static const struct {
    const char *key;
    void (*write)(const keyword *k); /* NULL: schema_parts.c writes it */
} keywords[] = {
    {"type", copy},
    {"const", constant},
    {"enum", constant},
    {SCHEMA_NOT_VALUES, others},
    {"minimum", bound},
    {"maximum", bound},
    {"exclusiveMinimum", bound},
    {"exclusiveMaximum", bound},
    {"multipleOf", copy},
    {"minLength", count},
    {"maxLength", count},
    {"pattern", pattern},
    {"format", format},
    {"prefixItems", prefix_items},
    {"items", items},
    {"additionalItems", additional_items},
    {"minItems", count},
    {"maxItems", count},
    {"contains", contains},
    {"minContains", nothing},
    {"maxContains", nothing},
    {"uniqueItems", unique_items},
    {"properties", properties},
    {"patternProperties", pattern_properties},
    {"additionalProperties", place},
    {"required", required},
    {"minProperties", property_count},
    {"maxProperties", property_count},
    {"propertyNames", property_names},
    {"unevaluatedProperties", unevaluated},
    {"unevaluatedItems", unevaluated},
    {"$dynamicRef", lacks},
    {"$recursiveRef", lacks},
    {"allOf", NULL},
    {"anyOf", NULL},
    {"oneOf", NULL},
    {"$ref", NULL},
    {"not", NULL},
    {"if", NULL},
    {"then", NULL},
    {"else", NULL},
    {"dependentRequired", NULL},
    {"dependentSchemas", NULL},
    {"dependencies", NULL},
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

static size_t find(const char *key) {
    size_t i = 0;
    while (i < N_KEYWORDS && strcmp(keywords[i].key, key) != 0) i++;
    return i;
}

size_t schema_n_keywords(schema_pass *p, const json_t *schema) {
    const char *key;
    json_t *value;
    size_t n = 0;
    if (!schema_work(p, json_object_size(schema))) return 0;
    json_object_foreach((json_t *)schema, key, value) n += find(key) < N_KEYWORDS;
    return n;
}

void schema_write_keyword(schema_pass *p, const json_t *schema, const char *key, const json_t *value, json_t *out) {
    const size_t i = find(key);
    if (i < N_KEYWORDS && keywords[i].write) keywords[i].write(&(keyword){p, schema, value, key, out});
}
