/*
 * The grammars of calls with tags around each argument. Arguments come in the order of the schema's properties. What a schema
 * allows to be a string is text up to the tag behind it, or one of its enum; anything else is JSON by the property's schema.
 */
#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "reply_grammar_writer.h"

static const char LINE_END[] = "/\\n?/ ";

/* Append tags; a line end between them may be left out. */
static void put_tags(reply_writer *w, const char *tags) {
    const char *line_end = strchr(tags, '\n');
    char first[CL_REPLY_MAX_MARKER];
    if (line_end) {
        snprintf(first, sizeof first, "%.*s", (int)(line_end - tags), tags);
        reply_put_marker(w, first);
        reply_put(w, LINE_END);
    }
    reply_put_marker(w, line_end ? line_end + 1 : tags);
}

static void put_constant(reply_writer *w, const json_t *value) {
    char *text = json_is_string(value) ? NULL : cl_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    w->no_memory |= !text && !json_is_string(value);
    reply_put_literal(w, text ? text : json_is_string(value) ? json_string_value(value) : "");
    free(text);
}

/* One of the values that a schema lists; false: it lists none. */
static bool put_constants(reply_writer *w, const json_t *schema) {
    const json_t *constant = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    const size_t n = constant ? 1 : json_array_size(values);
    for (size_t i = 0; i < n; i++) {
        reply_put(w, i > 0 ? "| " : "(");
        put_constant(w, constant ? constant : json_array_get(values, i));
    }
    reply_put(w, n > 0 ? ") " : "");
    return n > 0;
}

/* The schema of a property, with the definitions to which it may refer; NULL: memory is lacking. */
static json_t *with_definitions(const json_t *schema, const json_t *parameters) {
    static const char *const names[] = {"$defs", "definitions"};
    json_t *whole = cl_json_copy(schema);
    for (size_t i = 0; whole && i < sizeof names / sizeof *names; i++) {
        json_t *definitions = json_object_get(parameters, names[i]);
        if (!definitions || json_object_get(whole, names[i]) || json_object_set_nocheck(whole, names[i], definitions) == 0)
            continue;
        json_decref(whole);
        whole = NULL;
    }
    return whole;
}

/* The rules of the k-th argument's value and the tag behind it. */
static void put_value(reply_writer *w, const json_t *function, const json_t *schema, size_t i, size_t k) {
    const cl_reply_tags *t = w->g->format->tags;
    const json_t *parameters = json_object_get(function, "parameters");
    const char *line_end = t->lines ? LINE_END : "";
    char rule[64];
    const bool is_text = reply_may_be_string(function, schema);
    const bool is_listed =
        is_text && (json_object_get(schema, "const") || json_array_size(json_object_get(schema, "enum")) > 0);
    const bool is_lazy = is_text && !is_listed && !reply_has_special(w, t->value_end);
    snprintf(rule, sizeof rule, is_lazy ? "value_%zu_%zu[lazy]: " : "value_%zu_%zu: ", i, k);
    reply_put(w, rule);
    if (is_text && !is_listed) {
        reply_put(w, "TEXT ");
    } else {
        reply_put(w, line_end);
        snprintf(rule, sizeof rule, "json_%zu_%zu ", i, k);
        if (!put_constants(w, schema)) reply_put(w, rule);
        reply_put(w, line_end);
    }
    is_lazy ? reply_put_literal(w, t->value_end) : reply_put_marker(w, t->value_end);
    reply_put(w, "\n");
    if (is_text) return;
    json_t *whole = with_definitions(schema, parameters);
    snprintf(rule, sizeof rule, "json_%zu_%zu: ", i, k);
    reply_put(w, rule);
    reply_put_schema(w, whole, i);
    json_decref(whole);
}

void reply_put_tagged_call(reply_writer *w, const json_t *function, size_t i) {
    const cl_reply_tags *t = w->g->format->tags;
    const json_t *parameters = json_object_get(function, "parameters"), *properties = json_object_get(parameters, "properties");
    const char *name;
    json_t *schema;
    char rule[64];
    size_t k = 0;
    reply_put_marker(w, t->begin);
    reply_put_literal(w, json_string_value(json_object_get(function, "name")));
    reply_put_marker(w, t->named);
    reply_put(w, LINE_END);
    json_object_foreach((json_t *)properties, name, schema) {
        snprintf(rule, sizeof rule, reply_requires(parameters, name) ? "set_%zu_%zu " : "set_%zu_%zu? ", i, k++);
        reply_put(w, rule);
    }
    reply_put_marker(w, t->end);
    k = 0;
    json_object_foreach((json_t *)properties, name, schema) {
        snprintf(rule, sizeof rule, "\nset_%zu_%zu: ", i, k);
        reply_put(w, rule);
        reply_put_marker(w, t->key);
        reply_put_literal(w, name);
        put_tags(w, t->value);
        snprintf(rule, sizeof rule, "value_%zu_%zu /\\n?/\n", i, k);
        reply_put(w, rule);
        put_value(w, function, schema, i, k++);
    }
}
