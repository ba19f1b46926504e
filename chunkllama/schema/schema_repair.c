/*
 * Mends schemas of tools that are not strict, which may be no JSON schemas: members that are null count as absent, types by
 * other languages' names get those of JSON, and what cannot be a keyword's value, or what llguidance would refuse, is left out.
 */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "regex.h"
#include "schema_pass.h"

/* Each writes the value of a keyword as a new reference; NULL: it cannot be its value. */
typedef json_t *mend(schema_pass *p, const json_t *value);

static json_t *mend_schema(schema_pass *p, const json_t *schema);

/* ---- Types ---- */

static const char *const types[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
static const char *const synonyms[][2] = {{"none", "null"},  {"bool", "boolean"}, {"float", "number"}, {"int", "integer"},
                                          {"str", "string"}, {"list", "array"},   {"dict", "object"}};
enum { N_TYPES = sizeof types / sizeof *types, MAX_TYPE = 8 };

/* Python's name of a type, or one in capitals, as JSON Schema has it; NULL: it is none. */
static const char *type_of(const json_t *value) {
    const char *name = json_string_value(value);
    char lower[MAX_TYPE + 1] = "";
    for (size_t i = 0; name && i < MAX_TYPE && name[i]; i++) lower[i] = (char)tolower((unsigned char)name[i]);
    for (size_t i = 0; name && i < N_TYPES && strlen(name) <= MAX_TYPE; i++)
        if (strcmp(lower, types[i]) == 0 || strcmp(lower, synonyms[i][0]) == 0)
            return strcmp(lower, types[i]) == 0 ? types[i] : synonyms[i][1];
    return NULL;
}

static json_t *mend_type(schema_pass *p, const json_t *value) {
    const bool is_list = json_is_array(value);
    const size_t n = is_list ? json_array_size(value) : 1;
    json_t *names = schema_new(p, json_array());
    for (size_t i = 0; i < n && schema_work(p, 1); i++) {
        const char *name = type_of(is_list ? json_array_get(value, i) : value);
        if (name) schema_add(p, names, json_string(name));
    }
    json_t *mended = n == 0 || json_array_size(names) < n ? NULL
                     : is_list                            ? schema_share(names)
                                                          : schema_share(json_array_get(names, 0));
    json_decref(names);
    return mended;
}

/* ---- Values that are no schemas ---- */

static json_t *keep_if(bool suits, const json_t *value) { return suits ? schema_share(value) : NULL; }

static json_t *mend_values(schema_pass *p, const json_t *value) {
    (void)p;
    return keep_if(json_array_size(value) > 0, value);
}

static bool is_number(const json_t *value) {
    cl_str digits;
    return json_is_number(value) || cl_json_is_number(value, &digits);
}

static json_t *mend_number(schema_pass *p, const json_t *value) {
    (void)p;
    return keep_if(is_number(value), value);
}

/* A bound, or a flag of draft 4. */
static json_t *mend_exclusive(schema_pass *p, const json_t *value) {
    (void)p;
    return keep_if(is_number(value) || json_is_boolean(value), value);
}

static json_t *mend_count(schema_pass *p, const json_t *value) {
    (void)p;
    const double x = json_number_value(value);
    return keep_if(json_is_number(value) && x >= 0 && x <= INT32_MAX && x == floor(x), value);
}

/* A number whose digits grammars can follow. */
static json_t *mend_multiple(schema_pass *p, const json_t *value) {
    double x = json_number_value(value);
    (void)p;
    while (x != floor(x) && x < CL_SCHEMA_MAX_MULTIPLE) x *= 10;
    return keep_if(x > 0 && x <= CL_SCHEMA_MAX_MULTIPLE, value);
}

static json_t *mend_flag(schema_pass *p, const json_t *value) {
    (void)p;
    return keep_if(json_is_boolean(value), value);
}

static json_t *mend_string(schema_pass *p, const json_t *value) {
    (void)p;
    return keep_if(json_is_string(value), value);
}

static json_t *mend_pattern(schema_pass *p, const json_t *value) {
    schema_work(p, schema_text_work(json_string_length(value)));
    return keep_if(json_is_string(value) && cl_regex_is_valid(json_string_value(value)), value);
}

static json_t *mend_names(schema_pass *p, const json_t *value) {
    bool all = json_is_array(value);
    for (size_t i = 0; i < json_array_size(value) && schema_work(p, 1); i++) all &= json_is_string(json_array_get(value, i));
    return keep_if(all, value);
}

/* ---- Schemas ---- */

static json_t *mend_list(schema_pass *p, const json_t *value) {
    if (!json_is_array(value)) return NULL;
    json_t *mended = schema_new(p, json_array());
    for (size_t i = 0; i < json_array_size(value) && schema_goes_on(p); i++)
        schema_add(p, mended, mend_schema(p, json_array_get(value, i)));
    return mended;
}

static json_t *mend_branches(schema_pass *p, const json_t *value) {
    return json_array_size(value) > 0 ? mend_list(p, value) : NULL;
}

static json_t *mend_items(schema_pass *p, const json_t *value) {
    return json_is_array(value) ? mend_list(p, value) : mend_schema(p, value);
}

/* A schema whose contrary matters, so it must not become weaker. */
static json_t *mend_condition(schema_pass *p, const json_t *value) {
    json_t *mended = mend_schema(p, value);
    if (json_equal(mended, value)) return mended;
    json_decref(mended);
    return NULL;
}

/* The members of an object, or NULL. */
static json_t *mend_members(schema_pass *p, const json_t *value, mend *member_of) {
    const char *name;
    json_t *member;
    if (!cl_json_is_object(value)) return NULL;
    json_t *mended = schema_new(p, json_object());
    json_object_foreach((json_t *)value, name, member) {
        if (!schema_work(p, schema_text_work(strlen(name)))) break;
        json_t *written = member_of(p, member);
        if (written) schema_set(p, mended, name, written);
    }
    return mended;
}

static json_t *mend_map(schema_pass *p, const json_t *value) { return mend_members(p, value, mend_schema); }
static json_t *mend_lists(schema_pass *p, const json_t *value) { return mend_members(p, value, mend_names); }

/* Names, or a schema. */
static json_t *mend_dependency(schema_pass *p, const json_t *value) {
    return json_is_array(value) ? mend_names(p, value) : mend_schema(p, value);
}

static json_t *mend_dependencies(schema_pass *p, const json_t *value) { return mend_members(p, value, mend_dependency); }

/* Those whose names are regular expressions. */
static json_t *mend_patterns(schema_pass *p, const json_t *value) {
    const char *pattern;
    json_t *schema, *mended = mend_map(p, value);
    json_object_foreach((json_t *)value, pattern, schema) {
        if (mended && !cl_regex_is_valid(pattern)) {
            schema_weaken(p, "patternProperties");
            json_object_del(mended, pattern);
        }
    }
    return mended;
}

static const struct {
    const char *key;
    mend *mend;
} keywords[] = {
    {"type", mend_type},
    {"enum", mend_values},
    {"minimum", mend_number},
    {"maximum", mend_number},
    {"exclusiveMinimum", mend_exclusive},
    {"exclusiveMaximum", mend_exclusive},
    {"multipleOf", mend_multiple},
    {"minLength", mend_count},
    {"maxLength", mend_count},
    {"pattern", mend_pattern},
    {"format", mend_string},
    {"prefixItems", mend_list},
    {"items", mend_items},
    {"additionalItems", mend_schema},
    {"minItems", mend_count},
    {"maxItems", mend_count},
    {"contains", mend_schema},
    {"minContains", mend_count},
    {"maxContains", mend_count},
    {"uniqueItems", mend_flag},
    {"properties", mend_map},
    {"patternProperties", mend_patterns},
    {"additionalProperties", mend_schema},
    {"required", mend_names},
    {"minProperties", mend_count},
    {"maxProperties", mend_count},
    {"propertyNames", mend_schema},
    {"unevaluatedProperties", mend_schema},
    {"unevaluatedItems", mend_schema},
    {"allOf", mend_branches},
    {"anyOf", mend_branches},
    {"oneOf", mend_branches},
    {"not", mend_condition},
    {"if", mend_condition},
    {"then", mend_schema},
    {"else", mend_schema},
    {"dependentRequired", mend_lists},
    {"dependentSchemas", mend_map},
    {"dependencies", mend_dependencies},
    {"$ref", mend_string},
    {"$defs", mend_map},
    {"definitions", mend_map},
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

static size_t find(const char *key) {
    size_t i = 0;
    while (i < N_KEYWORDS && strcmp(keywords[i].key, key) != 0) i++;
    return i;
}

static void mend_keyword(schema_pass *p, const char *key, const json_t *value, json_t *out) {
    const size_t i = find(key);
    if (i < N_KEYWORDS && json_is_null(value)) return;
    json_t *mended = i < N_KEYWORDS ? keywords[i].mend(p, value) : schema_share(value);
    mended ? schema_set(p, out, key, mended) : schema_weaken(p, key);
}

/* What is no schema allows any value. */
static json_t *mend_schema(schema_pass *p, const json_t *schema) {
    if (schema && !json_is_boolean(schema) && !json_is_null(schema) && !cl_json_is_object(schema)) schema_weaken(p, "schema");
    const char *key;
    json_t *value, *out = cl_json_is_object(schema) ? schema_new(p, json_object()) : NULL;
    if (schema_enter(p, schema)) {
        json_object_foreach((json_t *)schema, key, value) {
            if (out && schema_goes_on(p)) mend_keyword(p, key, value, out);
        }
    }
    schema_leave(p);
    return out ? out : json_is_false(schema) ? json_false() : json_true();
}

const json_t *schema_repair(schema_pass *p, const json_t *schema) { return schema_keep(p, mend_schema(p, schema)); }
