/*
 * oneOf: a value of a branch must be one of no other. Branches that have no value in common are those of anyOf. Others are made
 * so, by requiring the property that tells them apart, or by excluding the values of the others.
 */
#include <string.h>

#include "schema_pass.h"

/* ---- Values in common ---- */

enum { NULLS = 1, BOOLEANS = 2, NUMBERS = 4, STRINGS = 8, ARRAYS = 16, OBJECTS = 32, ALL_TYPES = 63 };

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", NULLS},     {"boolean", BOOLEANS}, {"number", NUMBERS}, {"integer", NUMBERS},
                 {"string", STRINGS}, {"array", ARRAYS},     {"object", OBJECTS}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) return types[i].type;
    return ALL_TYPES;
}

static unsigned type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_NULL: return NULLS;
    case JSON_TRUE:
    case JSON_FALSE: return BOOLEANS;
    case JSON_INTEGER:
    case JSON_REAL: return NUMBERS;
    case JSON_STRING: return STRINGS;
    case JSON_ARRAY: return ARRAYS;
    default: return OBJECTS;
    }
}

/* The only values of a schema: an array, a new reference; NULL: it does not list them. */
static json_t *values_of(schema_pass *p, const json_t *schema) {
    const json_t *one = json_object_get(schema, "const"), *some = json_object_get(schema, "enum");
    schema_work(p, 1 + json_array_size(some));
    return one ? SCHEMA_PACK(p, "[O]", one) : json_is_array(some) ? schema_share(some) : NULL;
}

static unsigned types_of(schema_pass *p, const json_t *schema, const json_t *values) {
    const json_t *type = json_object_get(schema, "type");
    unsigned named = 0, valued = 0;
    schema_work(p, json_array_size(type));
    for (size_t i = 0; i < json_array_size(type); i++) named |= type_named(json_string_value(json_array_get(type, i)));
    for (size_t i = 0; i < json_array_size(values); i++) valued |= type_of(json_array_get(values, i));
    if (!json_is_array(type)) named = type_named(json_string_value(type));
    return values ? named & valued : named;
}

bool schema_are_equal(const json_t *x, const json_t *y) {
    const char *key;
    json_t *value;
    size_t i;
    bool equal = json_array_size(x) == json_array_size(y) && json_object_size(x) == json_object_size(y);
    if (json_is_number(x) && json_is_number(y)) return json_number_value(x) == json_number_value(y);
    if (json_typeof(x) != json_typeof(y) || !(json_is_array(x) || cl_json_is_object(x))) return json_equal(x, y);
    json_array_foreach(x, i, value) equal = equal && schema_are_equal(value, json_array_get(y, i));
    json_object_foreach((json_t *)x, key, value) {
        const json_t *other = json_object_get(y, key);
        equal = equal && other && schema_are_equal(value, other);
    }
    return equal;
}

static bool have_common(schema_pass *p, const json_t *a, const json_t *b) {
    if (!schema_work(p, schema_value_work(a) * json_array_size(b))) return true;
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t j = 0; j < json_array_size(b); j++)
            if (schema_are_equal(json_array_get(a, i), json_array_get(b, j))) return true;
    return false;
}

/* How deep parts are compared, one in the other. A property counts as several levels, and in it no branches are compared. */
enum { MAX_LEVELS = 12, IN_PROPERTY = 6 };

static bool are_disjoint(schema_pass *p, const json_t *a, const json_t *b, int level);

/* Whether objects of a must have a property that those of b cannot have, or whose values in a are none of those in b. */
static bool differ_in_property(schema_pass *p, const json_t *a, const json_t *b, int level) {
    const json_t *required = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!schema_work(p, schema_text_work(name ? strlen(name) : 0))) return false;
        const json_t *of_a = name ? json_object_get(json_object_get(a, "properties"), name) : NULL;
        const json_t *of_b = name ? json_object_get(json_object_get(b, "properties"), name) : NULL;
        const bool others =
            json_object_get(b, "patternProperties") || !json_is_false(json_object_get(b, "additionalProperties"));
        if (name && (json_is_false(of_b) || (!of_b && !others))) return true;
        if (of_a && of_b && are_disjoint(p, of_a, of_b, level + IN_PROPERTY)) return true;
    }
    return false;
}

/* Whether bounds of a and b for values of a type exclude each other. */
static bool have_gap(const json_t *a, const json_t *b, unsigned type) {
    const char *most_key = type == NUMBERS ? "maximum" : type == STRINGS ? "maxLength" : type == ARRAYS ? "maxItems" : "";
    const char *least_key = type == NUMBERS ? "minimum" : type == STRINGS ? "minLength" : type == ARRAYS ? "minItems" : "";
    const json_t *most = json_object_get(a, most_key), *least = json_object_get(b, least_key);
    return json_is_number(most) && json_is_number(least) && json_number_value(most) < json_number_value(least);
}

/* Whether an element of allOf or the reference of a is disjoint from b, or each branch of a. */
static bool parts_are_disjoint(schema_pass *p, const json_t *a, const json_t *b, int level) {
    static const char *const branches[] = {"anyOf", "oneOf"};
    const json_t *all = json_object_get(a, "allOf"), *reference = json_object_get(a, "$ref");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (are_disjoint(p, json_array_get(all, i), b, level)) return true;
    for (size_t k = 0; k < 2 && level < IN_PROPERTY; k++) {
        const json_t *list = json_object_get(a, branches[k]);
        size_t n = 0;
        while (n < json_array_size(list) && are_disjoint(p, json_array_get(list, n), b, level)) n++;
        if (n > 0 && n == json_array_size(list)) return true;
    }
    return reference && are_disjoint(p, schema_resolve(p, reference), b, level);
}

/* Whether no value is one of both schemas. False: there may be one. */
static bool are_disjoint(schema_pass *p, const json_t *a, const json_t *b, int level) {
    const bool enters = schema_enter(p, NULL);
    bool disjoint = enters && (json_is_false(a) || json_is_false(b));
    if (enters && cl_json_is_object(a) && cl_json_is_object(b) && level < MAX_LEVELS && schema_compare(p)) {
        json_t *of_a = values_of(p, a), *of_b = values_of(p, b);
        const unsigned types = types_of(p, a, of_a) & types_of(p, b, of_b);
        level++;
        disjoint = !types || (of_a && of_b && !have_common(p, of_a, of_b)) ||
                   (types == OBJECTS && (differ_in_property(p, a, b, level) || differ_in_property(p, b, a, level))) ||
                   have_gap(a, b, types) || have_gap(b, a, types) || parts_are_disjoint(p, a, b, level) ||
                   parts_are_disjoint(p, b, a, level);
        json_decref(of_a);
        json_decref(of_b);
    }
    schema_leave(p);
    return disjoint;
}

static bool branches_are_disjoint(schema_pass *p, const json_t *branches, size_t i, size_t j) {
    return are_disjoint(p, json_array_get(branches, i), json_array_get(branches, j), 0);
}

/* ---- Branches ---- */

static bool all_are_disjoint(schema_pass *p, const json_t *branches) {
    for (size_t i = 0; i < json_array_size(branches); i++)
        for (size_t j = 0; j < i; j++)
            if (!branches_are_disjoint(p, branches, i, j)) return false;
    return true;
}

/* Whether branches have a property of this name whose values differ from branch to branch. */
static bool is_tag(schema_pass *p, const json_t *branches, const char *name) {
    json_t *tags = schema_new(p, json_array());
    bool found = true;
    for (size_t i = 0; i < json_array_size(branches) && found; i++) {
        const json_t *branch = schema_behind(p, json_array_get(branches, i));
        const json_t *tag = json_object_get(json_object_get(branch, "properties"), name);
        found = tag && cl_schema_is_type(branch, "object") && schema_work(p, schema_text_work(strlen(name)));
        schema_add(p, tags, tag ? schema_share(tag) : json_null());
    }
    found = found && all_are_disjoint(p, tags);
    json_decref(tags);
    return found;
}

/* The branches with the property required that tells them apart; NULL: there is none. */
static const json_t *with_tag(schema_pass *p, const json_t *branches) {
    const char *name;
    json_t *property, *all = schema_keep(p, schema_new(p, json_array()));
    const json_t *tag = NULL;
    json_object_foreach(json_object_get(schema_behind(p, json_array_get(branches, 0)), "properties"), name, property) {
        if (!tag && schema_goes_on(p) && is_tag(p, branches, name))
            tag = schema_keep(p, SCHEMA_PACK(p, "{sbs[s]}", SCHEMA_MADE, 1, "required", name));
    }
    for (size_t i = 0; tag && i < json_array_size(branches); i++)
        schema_add(p, all, SCHEMA_PACK(p, "{s[O,O]}", "allOf", json_array_get(branches, i), tag));
    return tag ? all : NULL;
}

/* Add the schemas of objects that have a property which is among `own`, and not among `others`. */
static void add_own_names(schema_pass *p, const schema_facts *own, const schema_facts *others, json_t *all) {
    const char *name;
    json_t *declared;
    json_object_foreach(own->names, name, declared) {
        if (!json_object_get(others->names, name) && schema_work(p, schema_text_work(strlen(name))))
            schema_add(p, all, SCHEMA_PACK(p, "{sbsss[s]}", SCHEMA_MADE, 1, "type", "object", "required", name));
    }
}

/* What a place says with one of its branches. */
static schema_facts facts_with(schema_pass *p, const schema_facts *base, const json_t *branch) {
    schema_facts facts = {0};
    schema_add_facts(p, base, &facts);
    schema_collect(p, branch, true, &facts);
    return facts;
}

/* Whether the client itself says that objects of a schema have no other properties than it names. */
static bool is_closed_by_client(schema_pass *p, const json_t *schema) {
    const json_t *itself = schema_behind(p, schema);
    return json_is_false(json_object_get(itself, "additionalProperties")) ||
           json_is_false(json_object_get(itself, "unevaluatedProperties"));
}

/* Whether objects of a branch that is closed may have what a schema requires. */
static bool may_have_required(schema_pass *p, const json_t *schema, const schema_facts *branch) {
    const json_t *required = json_object_get(schema, "required");
    bool may = true;
    if (!schema_is_closed(p, branch) || branch->patterns) return true;
    for (size_t i = 0; i < json_array_size(required) && schema_work(p, 1); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        may &= name && json_object_get(branch->names, name);
    }
    return may;
}

/*
 * What schema_refute returns for another branch, without the schemas that are disjoint from this one. If the client has closed
 * the other branch, an object that has a property of only this branch is none of the other. If only the pass closes it, JSON
 * Schema allows such a property in both: so that is weaker, and is done only where nothing else tells this branch from the
 * other, and not if the client closes all branches together.
 */
static const json_t *exclusions(schema_pass *p, const json_t *branch, const json_t *other, const schema_facts *base,
                                bool *exact) {
    const schema_facts own = facts_with(p, base, branch), others = facts_with(p, base, other);
    const json_t *all = schema_refute(p, other, exact);
    json_t *some = schema_new(p, json_array()), *schema;
    bool differs = false;
    size_t i;
    json_array_foreach(all, i, schema) {
        if (are_disjoint(p, branch, schema, 0)) continue;
        differs |= may_have_required(p, schema, &own);
        schema_add(p, some, schema_share(schema));
    }
    const size_t n = json_array_size(some);
    const bool by_client = is_closed_by_client(p, other), by_pass = !differs && !base->closed && schema_is_closed(p, &others);
    if ((by_client || by_pass) && !others.patterns) add_own_names(p, &own, &others, some);
    if (!by_client && json_array_size(some) > n) schema_weaken(p, "oneOf");
    return schema_keep(p, some);
}

/* The values of an array that are not in another one, as a schema. */
static const json_t *without(schema_pass *p, const json_t *values, const json_t *others) {
    json_t *some = schema_new(p, json_array()), *value;
    size_t i;
    json_array_foreach(values, i, value) {
        json_t *one = SCHEMA_PACK(p, "[O]", value);
        if (!have_common(p, one, others)) schema_add(p, some, schema_share(value));
        json_decref(one);
    }
    json_t *left = json_array_size(some) > 0 ? SCHEMA_PACK(p, "{sbsO}", SCHEMA_MADE, 1, "enum", some) : json_false();
    json_decref(some);
    return schema_keep(p, left);
}

const json_t *schema_exclude(schema_pass *p, const json_t *schema, const json_t *values, const schema_facts *base) {
    bool exact;
    json_t *of_schema = values_of(p, schema), *of_values = values_of(p, values);
    const json_t *left = of_schema && of_values ? without(p, of_schema, of_values) : NULL;
    json_decref(of_schema);
    json_decref(of_values);
    if (left && (cl_json_is_object(left) || schema_n_keywords(p, values) == 1)) return left;
    const json_t *some = exclusions(p, schema, values, base, &exact);
    if (json_array_size(some) > 0) return schema_keep(p, SCHEMA_PACK(p, "{sbsO}", SCHEMA_MADE, 1, "anyOf", some));
    return exact ? schema_keep(p, json_false()) : NULL;
}

/* The i-th branch without the values of the others; NULL: it cannot be expressed. */
static const json_t *alone(schema_pass *p, const json_t *branches, size_t i, const schema_facts *base) {
    const json_t *branch = json_array_get(branches, i);
    json_t *all = schema_keep(p, SCHEMA_PACK(p, "[O]", branch));
    size_t n = 1;
    for (size_t j = 0; j < json_array_size(branches); j++) {
        if (j == i || branches_are_disjoint(p, branches, i, j)) continue;
        const json_t *others = schema_exclude(p, branch, json_array_get(branches, j), base);
        n *= schema_n_alternatives(p, others);
        if (!others || n > SCHEMA_MAX_ALTERNATIVES) return NULL;
        schema_add(p, all, schema_share(others));
    }
    return json_array_size(all) == 1 ? branch : schema_keep(p, SCHEMA_PACK(p, "{sO}", "allOf", all));
}

const json_t *schema_separate(schema_pass *p, const json_t *branches, const schema_facts *base) {
    const json_t *tagged = all_are_disjoint(p, branches) ? branches : with_tag(p, branches);
    if (tagged) return tagged;
    json_t *all = schema_keep(p, schema_new(p, json_array()));
    for (size_t i = 0; i < json_array_size(branches); i++) {
        const json_t *branch = alone(p, branches, i, base);
        if (!branch) schema_weaken(p, "oneOf");
        if (!branch) return branches;
        schema_add(p, all, schema_share(branch));
    }
    return all;
}
