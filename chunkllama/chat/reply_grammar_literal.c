/*
 * The grammars of calls with values that are almost JSON. Arguments come in the order of the schema's properties, each with a
 * value of its type: a string, a number, true or false, one of an enum. The elements of arrays and objects follow no schema.
 */
#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/common/json_text.h"
#include "reply_grammar_writer.h"

static bool is_gemma(const reply_writer *w) { return w->g->format->syntax == CL_REPLY_GEMMA; }

/* ---- Values ---- */

static void put_string(reply_writer *w, const char *text) {
    if (is_gemma(w)) {
        reply_put_marker(w, w->g->format->quote);
        reply_put_literal(w, text);
        reply_put_marker(w, w->g->format->quote);
        return;
    }
    reply_text quoted = {0};
    reply_text_add(&quoted, "\"", 1);
    for (; *text; text++) reply_text_add_escaped(&quoted, *text);
    reply_text_add(&quoted, "\"", 2); /* with the zero */
    w->no_memory |= quoted.no_memory;
    if (!quoted.no_memory) reply_put_literal(w, quoted.data);
    free(quoted.data);
}

/* A value of an enum; false: it is an array or an object. */
static bool put_constant(reply_writer *w, const json_t *value) {
    const bool gemma = is_gemma(w);
    char number[64];
    cl_str beyond;
    switch (json_typeof(value)) {
    case JSON_STRING: put_string(w, json_string_value(value)); return true;
    case JSON_TRUE: reply_put_literal(w, gemma ? "true" : "True"); return true;
    case JSON_FALSE: reply_put_literal(w, gemma ? "false" : "False"); return true;
    case JSON_NULL: reply_put_literal(w, gemma ? "null" : "None"); return true;
    case JSON_INTEGER: snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: snprintf(number, sizeof number, "%.17g", json_real_value(value)); break;
    default:
        if (!cl_json_is_number(value, &beyond)) return false;
        reply_put_literal(w, beyond.data);
        return true;
    }
    reply_put_literal(w, number);
    return true;
}

/* One of an array's values. */
static void put_constants(reply_writer *w, const json_t *values) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        if (json_is_array(value) || cl_json_is_object(value)) continue;
        reply_put(w, n++ > 0 ? "| " : "(");
        put_constant(w, value);
    }
    reply_put(w, n > 0 ? ") " : "value ");
}

static void put_value(reply_writer *w, const json_t *schema) {
    static const char *const rules[][2] = {{"string", "text "},     {"number", "NUMBER "}, {"integer", "INTEGER "},
                                           {"boolean", "boolean "}, {"array", "array "},   {"object", "object "}};
    const json_t *values = json_object_get(schema, "enum");
    const char *type = json_string_value(json_object_get(schema, "type")), *rule = "value ";
    if (json_array_size(values) > 0) {
        put_constants(w, values);
        return;
    }
    for (size_t i = 0; type && i < sizeof rules / sizeof *rules; i++)
        if (strcmp(type, rules[i][0]) == 0) rule = rules[i][1];
    reply_put(w, rule);
}

/* ---- Arguments ---- */

bool reply_requires(const json_t *schema, const char *property) {
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *other = json_string_value(json_array_get(required, i));
        if (other && strcmp(other, property) == 0) return true;
    }
    return false;
}

/* Whether all properties have names that can be written without quotes. */
static bool have_plain_names(const json_t *properties) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *name;
    json_t *schema;
    json_object_foreach((json_t *)properties, name, schema) {
        const size_t size = strlen(name);
        if (size == 0 || size > CL_REPLY_MAX_MARKER || strspn(name, letters) != size) return false;
    }
    return true;
}

static void put_argument(reply_writer *w, const char *name, const json_t *schema) {
    reply_put_literal(w, name);
    reply_put_literal(w, is_gemma(w) ? ":" : "=");
    put_value(w, schema);
}

/* The rule of the k-th of a tool's lists of arguments: more_i_k begins with a comma unless it is empty, first_i_k does not. */
static void put_list(reply_writer *w, const char *list, size_t i, size_t k) {
    char name[32];
    snprintf(name, sizeof name, "%s_%zu", list, i);
    reply_put_rule(w, name, k);
}

/* The rules of the arguments from the k-th on; those that are not required may be left out. */
static void put_lists(reply_writer *w, size_t i, const json_t *parameters) {
    const char *name;
    json_t *schema;
    size_t k = 0;
    json_object_foreach(json_object_get(parameters, "properties"), name, schema) {
        const bool required = reply_requires(parameters, name);
        put_list(w, "first", i, k);
        reply_put(w, ": ");
        put_argument(w, name, schema);
        put_list(w, "more", i, k + 1);
        if (!required) {
            reply_put(w, "| ");
            put_list(w, "first", i, k + 1);
        }
        reply_put(w, "\n");
        put_list(w, "more", i, k++);
        reply_put(w, required ? ": " : ": (");
        reply_put_literal(w, is_gemma(w) ? "," : ", ");
        put_argument(w, name, schema);
        reply_put(w, required ? "" : ")? ");
        put_list(w, "more", i, k);
        reply_put(w, "\n");
    }
    put_list(w, "first", i, k);
    reply_put(w, ": \"\"\n");
    put_list(w, "more", i, k);
    reply_put(w, ": \"\"\n");
}

void reply_put_literal_call(reply_writer *w, const json_t *function, size_t i) {
    const json_t *parameters = json_object_get(function, "parameters");
    const bool plain = have_plain_names(json_object_get(parameters, "properties"));
    if (is_gemma(w)) reply_put_literal(w, "call:");
    reply_put_literal(w, json_string_value(json_object_get(function, "name")));
    reply_put(w, is_gemma(w) ? "\"{\" " : "\"(\" ");
    if (plain)
        put_list(w, "first", i, 0);
    else
        reply_put(w, is_gemma(w) ? "(pair (\",\" pair)*)? " : "(pair (\", \" pair)*)? ");
    reply_put(w, is_gemma(w) ? "\"}\"" : "\")\"");
    if (!plain) return;
    reply_put(w, "\n");
    put_lists(w, i, parameters);
}

void reply_put_literal_values(reply_writer *w) {
    reply_put(w, "KEY: /[A-Za-z_][A-Za-z0-9_]{0,63}/\n"
                 "INTEGER: /-?(0|[1-9][0-9]{0,18})/\n"
                 "NUMBER: /-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?/\n");
    if (!is_gemma(w)) {
        reply_put(w, "pair: KEY \"=\" value\n"
                     "boolean: \"True\" | \"False\"\n"
                     "value: text | NUMBER | boolean | \"None\" | array | object\n"
                     "array: \"[\" (value (\", \" value)*)? \"]\"\n"
                     "object: \"{\" (text \": \" value (\", \" text \": \" value)*)? \"}\"\n"
                     "text: STRING\n"
                     "STRING: /\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\nt])*\"/\n");
        return;
    }
    reply_put(w, "pair: KEY \":\" value\n"
                 "boolean: \"true\" | \"false\"\n"
                 "value: text | NUMBER | boolean | \"null\" | array | object\n"
                 "array: \"[\" (value (\",\" value)*)? \"]\"\n"
                 "object: \"{\" (pair (\",\" pair)*)? \"}\"\n"
                 "text: ");
    reply_put_marker(w, w->g->format->quote);
    reply_put(w, reply_has_special(w, w->g->format->quote) ? "TEXT " : "quoted\nquoted[lazy]: TEXT ");
    reply_put_marker(w, w->g->format->quote);
    reply_put(w, "\n");
}
