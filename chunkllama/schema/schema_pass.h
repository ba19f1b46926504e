/*
 * What the files of the pass over a schema share.
 *
 * A *place* is where one value stands: the root, a property, an item. The schema of a place consists of *parts*, which all
 * speak about the same value: the schema itself, the elements of allOf, anyOf and oneOf, what $ref names. Parts are written as
 * parts (write_part), other subschemas as places of their own (write_place).
 */
#ifndef CHUNKLLAMA_SCHEMA_SCHEMA_PASS_H
#define CHUNKLLAMA_SCHEMA_SCHEMA_PASS_H

#include "chunkllama/common/json_text.h"
#include "schema.h"

/* A place that is being written. */
typedef struct schema_place {
    const json_t *schema;
    const struct schema_place *around; /* the place in which it is; NULL: none */
} schema_place;

typedef struct schema_pass {
    const json_t *root;
    cl_schema_options options;
    json_t *scratch;        /* [] values that are needed up to the end of the pass */
    const json_t **targets; /* [n_targets] the schemas that references name, in the order of the entries of $defs; owned */
    size_t n_targets, capacity;
    size_t work, n_compared; /* n_compared: the number of schemas that were refuted, and of pairs that were compared */
    int n_negations;         /* schemas that are being negated, one in the other, */
    int n_within;            /* and how many of these are of properties and items */
    int depth;
    const schema_place *place; /* the innermost one that is being written */
    char path[160];            /* of the place, for messages, without the steps that do not fit */
    bool no_memory;
    cl_status status; /* once it has failed, the rest of the pass does nothing */
    cl_error *error;
    char *weaker;
} schema_pass;

/* ---- Outcomes (schema.c) ---- */

/* Whether the pass has not failed. Loops whose length a client chooses end with it. */
static inline bool schema_goes_on(const schema_pass *p) { return p->status == CL_OK && !p->no_memory; }

/* Count work, before it is done if that is possible. False: the pass has failed. */
bool schema_work(schema_pass *p, size_t n);

/* The work for a text, and for a value with all that is in it. */
static inline size_t schema_text_work(size_t size) { return 1 + size / 32; }
size_t schema_value_work(const json_t *value);

/* Count a subschema with its members, all of which are looked at, and go one deeper. False: the pass has failed. */
bool schema_enter(schema_pass *p, const json_t *schema);
static inline void schema_leave(schema_pass *p) { p->depth--; }

/* The pass fails: the keyword, at this place, `is` ... */
void schema_refuse(schema_pass *p, const char *keyword, const char *is);

/* A keyword cannot be expressed, since it `is` ...: it is refused, or left out if the pass is lenient. */
void schema_leave_out(schema_pass *p, const char *keyword, const char *is);
void schema_lacks(schema_pass *p, const char *keyword); /* the same, since it cannot be enforced */

/* A keyword is not followed to the letter, as in llama.cpp and xgrammar. */
void schema_weaken(schema_pass *p, const char *keyword);

/* ---- Values; memory that is lacking is noted in the pass, and NULL may be passed on (schema.c) ---- */

/* Keep a new reference up to the end of the pass. Returns it, borrowed. */
json_t *schema_keep(schema_pass *p, json_t *value);

/* Put a new reference into an object, or at the end of an array. Without memory it is freed, so it must not be used after. */
void schema_set(schema_pass *p, json_t *object, const char *key, json_t *value);
void schema_add(schema_pass *p, json_t *array, json_t *value);

/* A value as a new reference of another owner. */
static inline json_t *schema_share(const json_t *value) { return json_incref((json_t *)value); }

json_t *schema_new(schema_pass *p, json_t *value); /* counts it, or notes that it is NULL */
#define SCHEMA_PACK(p, ...) schema_new((p), json_pack(__VA_ARGS__))

/* ---- Schemas that are none (schema_repair.c) ---- */

/* A copy, kept by the pass, of any JSON as a schema: what JSON Schema does not have, or cannot be followed, is left out. */
const json_t *schema_repair(schema_pass *p, const json_t *schema);

/* ---- References (schema_refs.c) ---- */

/* The schema that a reference names, or, if the pass is lenient, one of any value. NULL: the pass has failed. */
const json_t *schema_resolve(schema_pass *p, const json_t *reference);

/* The schema behind references that stand alone. */
const json_t *schema_behind(schema_pass *p, const json_t *schema);

/* ---- Keywords (schema_keywords.c) ---- */

/* A key of schemas that say what a value is not: the values of an array. */
#define SCHEMA_NOT_VALUES "\001not values"

/* Integers up to here, 2^53, are numbers of double precision. */
#define SCHEMA_EXACT 9007199254740992.0

/* How many keywords a schema has. */
size_t schema_n_keywords(schema_pass *p, const json_t *schema);

/* Whether it is a reference and nothing else. */
static inline bool schema_is_reference(schema_pass *p, const json_t *schema) {
    return json_object_get(schema, "$ref") && schema_n_keywords(p, schema) == 1;
}

/* Whether a schema has keywords whose subschemas are parts. */
bool schema_has_parts(const json_t *schema);

/* ---- Closing (schema_close.c) ---- */

/* What the parts of a place, or some of them, say about the properties of an object. */
typedef struct schema_facts {
    json_t *names;       /* {} of each name: true if it is declared, false if it is only required or in a condition; kept by the
                            pass; NULL: there are none */
    json_t *patterns;    /* {} the same of patternProperties */
    bool has_properties; /* the schema has `properties` */
    double least;        /* how many properties it must have */
    bool says;           /* it has additionalProperties */
    bool closed;         /* `unevaluatedProperties` of a part around these is false */
    bool has_property_names; /* it has propertyNames: an object may have those names, unless it is closed */
    bool typed;              /* it says of which type the value is */
} schema_facts;

/* A key that marks schemas which the pass has made: their properties are no reason to close an object. */
#define SCHEMA_MADE "\001made"

/* Add a part's facts; branches: with those of anyOf, oneOf, then, else and dependentSchemas. */
void schema_collect(schema_pass *p, const json_t *part, bool branches, schema_facts *facts);
/* The same of all parts in an array or object, in which others than objects are no parts. */
void schema_collect_all(schema_pass *p, const json_t *parts, bool branches, schema_facts *facts);
void schema_add_facts(schema_pass *p, const schema_facts *more, schema_facts *facts);

/* Whether facts say nothing about properties. */
static inline bool schema_says_nothing(const schema_facts *f) {
    return !f->names && !f->patterns && !f->has_properties && !f->has_property_names && !f->says && !f->closed;
}

/* Whether they say nothing that others do not. */
bool schema_adds_nothing(const schema_facts *facts, const schema_facts *others);

/* Whether the object of a place with these facts is closed to other properties. It is not if it must have more of them. */
bool schema_is_closed(const schema_pass *p, const schema_facts *facts);

/* Allow no other properties than these in `out`, a part that is written. If the client has closed the object, those that are
 * only required or in a condition are not allowed either. */
void schema_close(schema_pass *p, const schema_facts *facts, json_t *out);

/* ---- Writing (schema.c, schema_parts.c, schema_keywords.c) ---- */

json_t *schema_write_place(schema_pass *p, const json_t *schema);

/*
 * Write a part of a place. rest: what the other parts say; the part closes the object then. NULL: another part closes it, or
 * none does.
 */
json_t *schema_write_part(schema_pass *p, const json_t *schema, const schema_facts *rest);

/* A reference to an entry of $defs that is the place of a target. */
json_t *schema_write_reference(schema_pass *p, const json_t *target);

/* Write a keyword of a schema, which is not one of parts, into `out`. */
void schema_write_keyword(schema_pass *p, const json_t *schema, const char *key, const json_t *value, json_t *out);

/* Add a part that is written to `out`, which must hold, too. */
void schema_and(schema_pass *p, json_t *out, json_t *part);

/* An exclusive bound, a new reference: a number that llguidance does not read as an inclusive one. */
json_t *schema_write_exclusive(schema_pass *p, const json_t *value, bool lower);

/* Whether all numbers in a value can be written as those that its client wrote. */
bool schema_is_exact(const json_t *value);

/* A format that llguidance follows. */
bool schema_is_format(const char *name);

/* ---- Patterns (schema_pattern.c) ---- */

/* A regular expression of a client. */
json_t *schema_write_regex(schema_pass *p, const char *regex);

/* The same of a pattern; NULL: it cannot be expressed, and is left out, or the pass has failed. */
json_t *schema_write_pattern(schema_pass *p, const char *pattern);

/* Write the keyword `pattern` into `out`. */
void schema_write_patterns(schema_pass *p, const json_t *schema, const json_t *value, json_t *out);

/* ---- What is not so (schema_refute.c) ---- */

/* Count a comparison. False: there were too many, which happens where schemas refer to themselves; nothing is known then. */
bool schema_compare(schema_pass *p);

/*
 * An array of schemas, kept by the pass, whose values are none of `schema`; further values may be none of it. An empty array
 * means that every value is one of `schema`, if *exact, or else that those which are none cannot be expressed.
 */
const json_t *schema_refute(schema_pass *p, const json_t *schema, bool *exact);

/* The same as one schema, kept by the pass; NULL: it cannot be expressed. */
const json_t *schema_negate(schema_pass *p, const json_t *schema);

enum { SCHEMA_MAX_ALTERNATIVES = 64 }; /* of one place, for not, if and a branch of oneOf */

/* How many alternatives a schema has, which llguidance tries all; one more than these, if there are more. */
size_t schema_n_alternatives(schema_pass *p, const json_t *schema);

/* Write the schema of all values but those in an array. NULL: it cannot be expressed. */
json_t *schema_write_others(schema_pass *p, const json_t *values);

/* ---- oneOf (schema_one_of.c) ---- */

/* Whether values are equal, as 1 and 1.0 are. */
bool schema_are_equal(const json_t *x, const json_t *y);

/*
 * The schema of what is not one of `values`, for values of `schema`; kept by the pass. NULL: it cannot be expressed.
 * base: what the place says about the properties of objects of both; if it says that others may be there, they are not closed.
 */
const json_t *schema_exclude(schema_pass *p, const json_t *schema, const json_t *values, const schema_facts *base);

/* The branches of oneOf as an array of those of anyOf that means the same, or is stricter; kept by the pass. */
const json_t *schema_separate(schema_pass *p, const json_t *branches, const schema_facts *base);

#endif
