/* Writes parts, and the keywords whose subschemas are parts, in the order in which a schema has them. */
#include <string.h>

#include "schema_pass.h"

/*
 * A part that is being written. If nothing in branches adds to what the place says, the part itself closes the object.
 * Otherwise each branch does, for the properties that the place has with it.
 */
typedef struct part {
    schema_pass *p;
    const json_t *schema;
    json_t *out;
    bool closes;
    schema_facts base;   /* what the place says, without branches of this part */
    schema_facts *inner; /* for parts that add to it */
    size_t n_adding;
} part;

void schema_and(schema_pass *p, json_t *out, json_t *piece) {
    if (!json_object_get(out, "allOf")) schema_set(p, out, "allOf", schema_new(p, json_array()));
    schema_add(p, json_object_get(out, "allOf"), piece);
}

/* ---- What adds to the place ---- */

/* The facts of a keyword's branches. */
static void collect_branches(const part *w, const char *key, const json_t *value, schema_facts *facts) {
    static const char *const sets[] = {"anyOf", "oneOf", "dependentSchemas", "dependencies"};
    const json_t *others[] = {json_object_get(w->schema, "then"), json_object_get(w->schema, "else")};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(key, sets[i]) == 0) schema_collect_all(w->p, value, true, facts);
    for (size_t i = 0; i < 2 && strcmp(key, "if") == 0; i++)
        if (others[i]) schema_collect(w->p, others[i], true, facts);
    if (strcmp(key, "$ref") == 0) schema_collect(w->p, schema_resolve(w->p, value), true, facts);
}

static bool adds(const part *w, const schema_facts *facts) { return w->closes && !schema_adds_nothing(facts, &w->base); }

static bool part_adds(const part *w, const json_t *inner) {
    schema_facts facts = {0};
    if (w->closes) schema_collect(w->p, inner, true, &facts);
    return adds(w, &facts);
}

static bool branches_add(const part *w, const char *key, const json_t *value) {
    schema_facts facts = {0};
    if (w->closes) collect_branches(w, key, value, &facts);
    return adds(w, &facts);
}

/* Keywords and elements of allOf that add to the place; several conditions of dependentSchemas count as several. */
static size_t count_adding(const part *w) {
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)w->schema, key, value) {
        if (!schema_goes_on(w->p)) break;
        n += branches_add(w, key, value) ? 1 + (json_object_size(value) > 1 && strcmp(key, "if") != 0) : 0;
        for (size_t i = 0; strcmp(key, "allOf") == 0 && i < json_array_size(value) && schema_goes_on(w->p); i++)
            n += part_adds(w, json_array_get(value, i));
    }
    return n;
}

/* ---- Keywords ---- */

static json_t *write_inner(const part *w, const json_t *inner, bool adding) {
    const bool closes = w->closes && (adding || schema_says_nothing(w->inner));
    return schema_write_part(w->p, inner, closes ? w->inner : NULL);
}

static bool is_list(part *w, const char *key, const json_t *value) {
    if (json_is_array(value)) return true;
    schema_refuse(w->p, key, "must be an array of schemas");
    return false;
}

static void write_all_of(part *w, const char *key, const json_t *value) {
    if (!is_list(w, key, value)) return;
    for (size_t i = 0; i < json_array_size(value) && schema_goes_on(w->p); i++) {
        const json_t *inner = json_array_get(value, i);
        schema_and(w->p, w->out, write_inner(w, inner, part_adds(w, inner)));
    }
}

/* One of some schemas must hold. */
static void write_choice(part *w, const json_t *branches, bool adding) {
    json_t *any = schema_new(w->p, json_array());
    for (size_t i = 0; i < json_array_size(branches) && schema_goes_on(w->p); i++)
        schema_add(w->p, any, write_inner(w, json_array_get(branches, i), adding));
    if (json_object_get(w->out, "anyOf"))
        schema_and(w->p, w->out, SCHEMA_PACK(w->p, "{so}", "anyOf", any));
    else
        schema_set(w->p, w->out, "anyOf", any);
}

static void write_any_of(part *w, const char *key, const json_t *value) {
    if (is_list(w, key, value)) write_choice(w, value, branches_add(w, key, value));
}

/* What the place says; where another part closes it, the branches of this one do not. */
static const schema_facts *facts_of(const part *w) {
    static const schema_facts open = {.says = true};
    return w->closes ? &w->base : &open;
}

static void write_one_of(part *w, const char *key, const json_t *value) {
    if (is_list(w, key, value)) write_choice(w, schema_separate(w->p, value, facts_of(w)), branches_add(w, key, value));
}

/* Beside other parts a reference is written out: closing needs that, and llguidance where it leads back to this place. */
static void write_reference(part *w, const char *key, const json_t *value) {
    const json_t *target = schema_resolve(w->p, value);
    if (target) schema_and(w->p, w->out, write_inner(w, target, branches_add(w, key, value)));
}

static void write_not(part *w, const char *key, const json_t *value) {
    const json_t *negation = schema_exclude(w->p, w->schema, value, &(schema_facts){.says = true});
    if (negation)
        schema_and(w->p, w->out, write_inner(w, negation, false));
    else
        schema_lacks(w->p, key);
}

/* A member of a schema; without it, what allows any value. */
static const json_t *member_or_true(const json_t *schema, const char *key) {
    const json_t *member = json_object_get(schema, key);
    return member ? member : json_true();
}

/*
 * `if` and `then` hold, or not `if` and `else`. Where not `if` cannot be expressed, `then` and `else` hold instead, which is
 * stricter.
 */
static void write_if(part *w, const char *key, const json_t *value) {
    const json_t *then = member_or_true(w->schema, "then"), *otherwise = member_or_true(w->schema, "else");
    if (json_is_true(then) && json_is_true(otherwise)) return;
    const json_t *negation = schema_negate(w->p, value);
    json_t *branches = schema_keep(w->p, SCHEMA_PACK(w->p, "[{s[O,O]}]", "allOf", negation ? negation : then, otherwise));
    if (negation || !json_is_true(otherwise))
        schema_add(w->p, branches, SCHEMA_PACK(w->p, "{s[{sbs[O]},O]}", "allOf", SCHEMA_MADE, 1, "allOf", value, then));
    write_choice(w, branches, branches_add(w, key, value));
}

static void skip(part *w, const char *key, const json_t *value) { (void)w, (void)key, (void)value; }

/* A property is not there, or it is there with the others that it needs, or with a schema that must hold. */
static void write_dependent(part *w, const char *key, const json_t *value) {
    const char *name;
    json_t *needed;
    const bool adding = branches_add(w, key, value);
    json_object_foreach((json_t *)value, name, needed) {
        if (!schema_work(w->p, 2 * schema_text_work(strlen(name)))) break;
        json_t *branches = schema_keep(w->p, SCHEMA_PACK(w->p, "[{sbs{sb}}]", SCHEMA_MADE, 1, "properties", name, 0));
        schema_add(w->p, branches,
                   json_is_array(needed)
                       ? SCHEMA_PACK(w->p, "{sbsO}", SCHEMA_MADE, 1, "required", needed)
                       : SCHEMA_PACK(w->p, "{s[{sbs[s]}O]}", "allOf", SCHEMA_MADE, 1, "required", name, needed));
        json_t *out = w->out;
        w->out = schema_new(w->p, json_object());
        write_choice(w, branches, adding && cl_json_is_object(needed));
        schema_and(w->p, out, w->out);
        w->out = out;
    }
}

static const struct {
    const char *key;
    void (*write)(part *w, const char *key, const json_t *value);
} part_keywords[] = {
    {"allOf", write_all_of},
    {"anyOf", write_any_of},
    {"oneOf", write_one_of},
    {"$ref", write_reference},
    {"not", write_not},
    {"if", write_if},
    {"then", skip},
    {"else", skip},
    {"dependentRequired", write_dependent},
    {"dependentSchemas", write_dependent},
    {"dependencies", write_dependent},
};
enum { N_PART_KEYWORDS = sizeof part_keywords / sizeof *part_keywords };

static size_t part_keyword(const char *key) {
    size_t i = 0;
    while (i < N_PART_KEYWORDS && strcmp(key, part_keywords[i].key) != 0) i++;
    return i;
}

bool schema_has_parts(const json_t *schema) {
    for (size_t i = 0; i < N_PART_KEYWORDS; i++)
        if (json_object_get(schema, part_keywords[i].key)) return true;
    return false;
}

static void write_keywords(part *w) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)w->schema, key, value) {
        const size_t i = part_keyword(key);
        if (!schema_goes_on(w->p)) return;
        if (i < N_PART_KEYWORDS)
            part_keywords[i].write(w, key, value);
        else
            schema_write_keyword(w->p, w->schema, key, value, w->out);
    }
}

/* ---- The part ---- */

/* Whether the part or a branch in it says of which type the value is. */
static bool is_typed(const part *w) {
    schema_facts whole = {0};
    if (!w->base.typed) schema_collect(w->p, w->schema, true, &whole);
    return w->base.typed || whole.typed;
}

/* Close the object. If it was not the client who closed it, and no type is said, the value must be an object. */
static void close_object(part *w) {
    json_t *closing = schema_has_parts(w->schema) ? schema_new(w->p, json_object()) : w->out;
    schema_close(w->p, &w->base, closing);
    if (!w->base.closed && !is_typed(w)) schema_set(w->p, closing, "type", json_string("object"));
    if (closing != w->out) schema_and(w->p, w->out, closing);
}

/* Whether a tuple is closed to items that are not declared. It is not if it must have more. */
static bool is_closed_tuple(const part *w) {
    const json_t *items = json_object_get(w->out, "prefixItems");
    return items && !w->p->options.open && !schema_has_parts(w->schema) && !json_object_get(w->out, "items") &&
           !json_object_get(w->schema, "contains") &&
           json_number_value(json_object_get(w->schema, "minItems")) <= (double)json_array_size(items);
}

static void close_part(part *w) {
    if (w->n_adding > 1 && w->base.closed) schema_lacks(w->p, "unevaluatedProperties");
    if (w->n_adding == 0 && schema_is_closed(w->p, &w->base)) close_object(w);
    if (is_closed_tuple(w)) schema_set(w->p, w->out, "items", json_false());
}

/* unevaluatedProperties: false is about what the part itself says, and holds in branches. */
static void set_base(part *w, const schema_facts *rest) {
    if (json_is_false(json_object_get(w->schema, "unevaluatedProperties")))
        w->base.closed = w->closes = true;
    else if (rest)
        schema_add_facts(w->p, rest, &w->base);
    if (w->closes) schema_collect(w->p, w->schema, false, &w->base);
}

static void write_object(part *w, const schema_facts *rest) {
    schema_facts whole = {0};
    set_base(w, rest);
    w->n_adding = w->closes ? count_adding(w) : 0;
    if (w->n_adding > 1) schema_add_facts(w->p, &w->base, &whole);
    if (w->n_adding > 1) schema_collect(w->p, w->schema, true, &whole);
    w->inner = w->n_adding > 1 ? &whole : &w->base;
    write_keywords(w);
    if (w->closes) close_part(w);
}

json_t *schema_write_part(schema_pass *p, const json_t *schema, const schema_facts *rest) {
    if (rest && schema_says_nothing(rest) && schema_is_reference(p, schema)) return schema_write_place(p, schema);
    part w = {.p = p, .schema = schema, .closes = rest};
    if (schema_enter(p, schema) && json_is_boolean(schema) && (json_is_false(schema) || !rest || !schema_is_closed(p, rest))) {
        w.out = schema_share(schema);
    } else if (p->status == CL_OK) {
        w.out = schema_new(p, json_object());
        if (cl_json_is_object(schema) || json_is_true(schema))
            write_object(&w, rest);
        else
            schema_refuse(p, "schema", "must be an object or a boolean");
    }
    schema_leave(p);
    return w.out;
}
