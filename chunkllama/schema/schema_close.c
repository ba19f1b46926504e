/* Which properties the object of a place may have: see schema_pass.h. */
#include <math.h>
#include <string.h>

#include "schema_pass.h"

static json_t *names_of(schema_pass *p, json_t **names) {
    if (!*names) *names = schema_keep(p, json_object());
    return *names;
}

/* A name that is declared stays declared. */
static void add_name(schema_pass *p, schema_facts *facts, const char *name, bool declared) {
    json_t *names = names_of(p, &facts->names);
    schema_work(p, schema_text_work(strlen(name)));
    if (!json_is_true(json_object_get(names, name))) schema_set(p, names, name, json_boolean(declared));
}

static void add_required(schema_pass *p, const json_t *required, schema_facts *facts) {
    if (!schema_work(p, json_array_size(required))) return;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name) add_name(p, facts, name, false);
    }
}

/* dependentRequired, and dependencies, which may be schemas, too. */
static void add_dependent(schema_pass *p, const json_t *dependent, schema_facts *facts) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)dependent, name, value) {
        add_name(p, facts, name, false);
        add_required(p, value, facts);
    }
}

/* Names that a condition speaks about: objects for which it holds may have them. */
static void add_condition(schema_pass *p, const json_t *condition, schema_facts *facts) {
    schema_facts inner = {0};
    const char *name;
    json_t *declared;
    if (condition) schema_collect(p, condition, true, &inner);
    json_object_foreach(inner.names, name, declared) add_name(p, facts, name, false);
}

static void add_patterns(schema_pass *p, const json_t *patterns, schema_facts *facts) {
    const char *pattern;
    json_t *value;
    json_object_foreach((json_t *)patterns, pattern, value) {
        schema_work(p, schema_text_work(strlen(pattern)));
        schema_set(p, names_of(p, &facts->patterns), pattern, json_true());
    }
}

static void add_own(schema_pass *p, const json_t *part, schema_facts *facts) {
    const char *name;
    json_t *value;
    const json_t *properties = json_object_get(part, "properties");
    json_object_foreach((json_t *)properties, name, value) add_name(p, facts, name, true);
    add_patterns(p, json_object_get(part, "patternProperties"), facts);
    add_condition(p, json_object_get(part, "if"), facts);
    add_condition(p, json_object_get(part, "not"), facts);
    add_required(p, json_object_get(part, "required"), facts);
    add_dependent(p, json_object_get(part, "dependentRequired"), facts);
    add_dependent(p, json_object_get(part, "dependencies"), facts);
    add_dependent(p, json_object_get(part, "dependentSchemas"), facts);
    const json_t *unevaluated = json_object_get(part, "unevaluatedProperties");
    facts->has_properties |= cl_json_is_object(properties);
    facts->least = fmax(facts->least, json_number_value(json_object_get(part, "minProperties")));
    facts->says |= json_object_get(part, "additionalProperties") || (unevaluated && !json_is_false(unevaluated));
    facts->has_property_names |= json_object_get(part, "propertyNames") != NULL;
    facts->typed |= json_object_get(part, "type") || json_object_get(part, "enum") || json_object_get(part, "const");
}

void schema_collect_all(schema_pass *p, const json_t *parts, bool branches, schema_facts *facts) {
    const char *key;
    json_t *part;
    size_t i;
    if (!schema_work(p, json_object_size(parts))) return;
    json_array_foreach(parts, i, part) if (schema_goes_on(p)) schema_collect(p, part, branches, facts);
    json_object_foreach((json_t *)parts, key, part) {
        if (cl_json_is_object(part) && schema_goes_on(p)) schema_collect(p, part, branches, facts);
    }
}

void schema_collect(schema_pass *p, const json_t *part, bool branches, schema_facts *facts) {
    static const char *const lists[] = {"anyOf", "oneOf", "dependentSchemas", "dependencies"};
    const json_t *reference = json_object_get(part, "$ref"), *inner;
    if (schema_enter(p, part) && cl_json_is_object(part) && !json_object_get(part, SCHEMA_MADE)) {
        add_own(p, part, facts);
        schema_collect_all(p, json_object_get(part, "allOf"), branches, facts);
        if (reference) schema_collect(p, schema_resolve(p, reference), branches, facts);
        for (size_t i = 0; branches && i < sizeof lists / sizeof *lists; i++)
            schema_collect_all(p, json_object_get(part, lists[i]), branches, facts);
        if (branches && (inner = json_object_get(part, "then"))) schema_collect(p, inner, branches, facts);
        if (branches && (inner = json_object_get(part, "else"))) schema_collect(p, inner, branches, facts);
    }
    schema_leave(p);
}

void schema_add_facts(schema_pass *p, const schema_facts *more, schema_facts *facts) {
    const char *name;
    json_t *declared;
    json_object_foreach(more->names, name, declared) add_name(p, facts, name, json_is_true(declared));
    add_patterns(p, more->patterns, facts);
    facts->has_properties |= more->has_properties;
    facts->least = fmax(facts->least, more->least);
    facts->says |= more->says;
    facts->has_property_names |= more->has_property_names;
    facts->closed |= more->closed;
    facts->typed |= more->typed;
}

static bool has_all(const json_t *names, const json_t *wanted) {
    const char *name;
    json_t *declared;
    json_object_foreach((json_t *)wanted, name, declared) {
        const json_t *other = json_object_get(names, name);
        if (!other || (json_is_true(declared) && !json_is_true(other))) return false;
    }
    return true;
}

bool schema_adds_nothing(const schema_facts *facts, const schema_facts *others) {
    return has_all(others->names, facts->names) && has_all(others->patterns, facts->patterns) &&
           (others->says || !facts->says) && (others->has_property_names || !facts->has_property_names) &&
           (others->has_properties || !facts->has_properties);
}

bool schema_is_closed(const schema_pass *p, const schema_facts *facts) {
    const bool may_close = facts->has_properties && !facts->has_property_names && !p->options.open &&
                           facts->least <= (double)json_object_size(facts->names);
    return !facts->says && (facts->closed || may_close);
}

static void allow_names(schema_pass *p, const schema_facts *facts, json_t *properties) {
    const char *name;
    json_t *declared;
    json_object_foreach(facts->names, name, declared) {
        schema_work(p, schema_text_work(strlen(name)));
        if (!json_object_get(properties, name) && (json_is_true(declared) || !facts->closed))
            schema_set(p, properties, name, json_true());
    }
}

/* The member of a part that is written; new if it has none. */
static json_t *member_of(schema_pass *p, json_t *out, const char *key) {
    if (!json_object_get(out, key)) schema_set(p, out, key, schema_new(p, json_object()));
    return json_object_get(out, key);
}

void schema_close(schema_pass *p, const schema_facts *facts, json_t *out) {
    const char *name;
    json_t *value;
    allow_names(p, facts, member_of(p, out, "properties"));
    json_object_foreach(facts->patterns, name, value) {
        json_t *pattern = schema_write_pattern(p, name);
        json_t *patterns = pattern ? member_of(p, out, "patternProperties") : NULL;
        if (pattern && !json_object_get(patterns, json_string_value(pattern)))
            schema_set(p, patterns, json_string_value(pattern), json_true());
        json_decref(pattern);
    }
    schema_set(p, out, "additionalProperties", json_false());
}
