/* The pass over a schema from its root: see schema.h. */
#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "schema_pass.h"

/* ---- Outcomes ---- */

bool schema_work(schema_pass *p, size_t n) {
    p->work = n < CL_SCHEMA_MAX_WORK && p->work <= CL_SCHEMA_MAX_WORK ? p->work + n : CL_SCHEMA_MAX_WORK + 1;
    if (p->status == CL_OK && p->work > CL_SCHEMA_MAX_WORK)
        p->status =
            cl_fail(p->error, CL_ERR_LIMIT,
                    "the JSON schema takes more than %d steps once its references and branches are followed: simplify it",
                    CL_SCHEMA_MAX_WORK);
    return schema_goes_on(p);
}

size_t schema_value_work(const json_t *value) {
    const char *key;
    json_t *member;
    size_t i, work = schema_text_work(json_string_length(value));
    json_object_foreach((json_t *)value, key, member) work += schema_text_work(strlen(key)) + schema_value_work(member);
    json_array_foreach(value, i, member) work += schema_value_work(member);
    return work;
}

bool schema_enter(schema_pass *p, const json_t *schema) {
    p->depth++;
    if (p->status == CL_OK && p->depth > CL_SCHEMA_MAX_DEPTH)
        p->status = cl_fail(p->error, CL_ERR_LIMIT,
                            "the JSON schema has more than %d subschemas one in the other at %s, or one that refers to itself: "
                            "simplify it",
                            CL_SCHEMA_MAX_DEPTH, p->path);
    return schema_work(p, 1 + json_object_size(schema));
}

void schema_refuse(schema_pass *p, const char *keyword, const char *is) {
    if (schema_goes_on(p)) p->status = cl_fail(p->error, CL_ERR_ARG, "the JSON schema's '%s' at %s %s", keyword, p->path, is);
}

/* Whether a list with commas has a keyword. */
static bool is_listed(const char *list, const char *keyword) {
    const size_t size = strlen(keyword);
    for (const char *at = list; (at = strstr(at, keyword)); at += size)
        if ((at == list || at[-1] == ' ') && (!at[size] || at[size] == ',')) return true;
    return false;
}

void schema_weaken(schema_pass *p, const char *keyword) {
    const size_t used = strlen(p->weaker);
    if (!is_listed(p->weaker, keyword))
        snprintf(p->weaker + used, CL_SCHEMA_WEAKER_BYTES - used, used ? ", %s" : "%s", keyword);
}

void schema_leave_out(schema_pass *p, const char *keyword, const char *is) {
    p->options.lenient ? schema_weaken(p, keyword) : schema_refuse(p, keyword, is);
}

void schema_lacks(schema_pass *p, const char *keyword) {
    schema_leave_out(p, keyword, "cannot be enforced by a grammar; leave it out, or check the answer");
}

/* ---- Values ---- */

json_t *schema_new(schema_pass *p, json_t *value) {
    schema_work(p, 1);
    p->no_memory |= !value;
    return value;
}

void schema_set(schema_pass *p, json_t *object, const char *key, json_t *value) {
    p->no_memory |= json_object_set_new_nocheck(object, key, value) != 0;
}

void schema_add(schema_pass *p, json_t *array, json_t *value) { p->no_memory |= json_array_append_new(array, value) != 0; }

json_t *schema_keep(schema_pass *p, json_t *value) {
    schema_add(p, p->scratch, value);
    return p->no_memory ? NULL : value;
}

/* ---- Places ---- */

/* The only part of a schema that says nothing else; NULL: it says more. */
static const json_t *only_part(schema_pass *p, const json_t *schema) {
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    if (schema_n_keywords(p, schema) != 1) return NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        if (json_array_size(list) == 1) return json_array_get(list, 0);
    }
    return NULL;
}

/* Whether a place is being written that has this schema. */
static bool is_being_written(const schema_pass *p, const json_t *schema) {
    const schema_place *place = p->place;
    while (place && place->schema != schema) place = place->around;
    return place && cl_json_is_object(schema);
}

json_t *schema_write_place(schema_pass *p, const json_t *schema) {
    const json_t *only;
    for (int i = 0; i < CL_SCHEMA_MAX_DEPTH && (only = only_part(p, schema)); i++) schema = only;
    if (is_being_written(p, schema)) return schema_write_reference(p, schema);
    if (schema_is_reference(p, schema)) {
        const json_t *target = schema_resolve(p, json_object_get(schema, "$ref"));
        return target ? schema_write_reference(p, target) : NULL;
    }
    const schema_place place = {schema, p->place};
    p->place = &place;
    json_t *written = schema_write_part(p, schema, &(schema_facts){0});
    p->place = place.around;
    return written;
}

json_t *schema_write_reference(schema_pass *p, const json_t *target) {
    char name[48];
    size_t i = 0;
    while (i < p->n_targets && p->targets[i] != target) i++;
    schema_work(p, i / 64);
    if (i == p->capacity) {
        const size_t capacity = 2 * p->capacity + 16;
        const json_t **grown = realloc(p->targets, capacity * sizeof(json_t *));
        p->no_memory |= !grown;
        if (!grown) return NULL;
        p->targets = grown;
        p->capacity = capacity;
    }
    if (i == p->n_targets) p->targets[p->n_targets++] = target;
    snprintf(name, sizeof name, "#/$defs/%zu", i);
    return SCHEMA_PACK(p, "{ss}", "$ref", name);
}

/* Those that are referred to, and then those that they refer to. */
static json_t *write_definitions(schema_pass *p) {
    json_t *definitions = schema_new(p, json_object());
    for (size_t i = 0; i < p->n_targets && schema_goes_on(p); i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        snprintf(p->path, sizeof p->path, "a definition");
        json_t *place = schema_write_place(p, p->targets[i]);
        if (place) schema_set(p, definitions, name, place);
    }
    return definitions;
}

/* ---- The root ---- */

/* How JSON is written: as the schema itself says in llguidance's words, and with bounded white space. */
static json_t *write_options(schema_pass *p) {
    static const char *const patterns[] = {"whitespace_pattern", "item_separator", "key_separator"};
    json_t *given = json_object_get(p->root, "x-guidance"),
           *options = schema_new(p, given ? cl_json_copy(given) : json_object());
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const char *text = json_string_value(json_object_get(options, patterns[i]));
        if (text) schema_set(p, options, patterns[i], schema_write_regex(p, text));
    }
    if (!json_object_get(options, "whitespace_pattern") && !json_object_get(options, "whitespace_flexible"))
        schema_set(p, options, "whitespace_pattern", json_string(CL_SCHEMA_SPACE));
    if (p->options.lenient) schema_set(p, options, "lenient", json_true());
    return options;
}

static json_t *write_root(schema_pass *p) {
    json_t *place = schema_write_place(p, p->root), *root = place;
    if (json_is_true(place) || json_is_false(place)) {
        root = schema_new(p, json_is_true(place) ? json_object() : json_pack("{s[]}", "enum"));
        json_decref(place);
    }
    json_t *definitions = write_definitions(p);
    if (json_object_size(definitions) > 0) schema_set(p, root, "$defs", schema_share(definitions));
    json_decref(definitions);
    if (cl_json_is_object(json_object_get(p->root, "x-guidance")) || !json_object_get(p->root, "x-guidance"))
        schema_set(p, root, "x-guidance", write_options(p));
    else
        schema_refuse(p, "x-guidance", "must be an object");
    return root;
}

cl_status cl_schema_rewrite(const json_t *schema, const cl_schema_options *options, json_t **out, char *weaker,
                            cl_error *error) {
    schema_pass p = {.root = schema, .options = *options, .path = "#", .error = error, .weaker = weaker};
    if (options->work) p.work = *options->work;
    p.scratch = schema_new(&p, json_array());
    if (options->lenient) p.root = schema_repair(&p, schema);
    json_t *root = write_root(&p);
    json_decref(p.scratch);
    free(p.targets);
    if (options->work) *options->work = p.work;
    if (p.no_memory && p.status == CL_OK) p.status = cl_fail(error, CL_ERR_NOMEM, "no memory for a JSON schema");
    if (p.status != CL_OK) json_decref(root);
    *out = p.status == CL_OK ? root : NULL;
    return p.status;
}
