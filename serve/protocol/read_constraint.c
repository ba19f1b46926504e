/*
 * Reads the constraint on the text, in the forms of OpenAI (response_format), vLLM (structured_outputs, guided_*), SGLang
 * (regex, ebnf) and llama-server (grammar, json_schema), as one grammar of a kind that the engine knows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/engine/grammar_counts.h"
#include "chunkllama/schema/regex.h"
#include "gbnf.h"
#include "json.h"
#include "parse.h"

enum { MAX_CHOICES = 4096 };

/* What is read of a body so far. */
typedef struct constraint {
    openai_request *request;
    json_t *whitespace; /* llguidance's x-guidance: how JSON is written; owned; NULL: as the model likes */
    const char *whitespace_field;
    openai_error *error;
} constraint;

/* Note that a field brings a grammar. Two of them are an error. */
static bool claim(constraint *c, const char *field) {
    if (c->request->grammar_field)
        return openai_refuse(c->error, field, "and '%s' both say what the text must match; send one of them",
                             c->request->grammar_field);
    c->request->grammar_field = field;
    return true;
}

/* Set the grammar, which is taken over. NULL: memory was lacking for it. */
static bool set(constraint *c, cl_grammar_kind kind, char *text, size_t size) {
    openai_request *r = c->request;
    if (!text) return openai_fail_memory(c->error);
    r->grammar = text;
    r->params.grammar_kind = kind;
    r->params.grammar = text;
    r->params.grammar_size = size;
    return true;
}

/* Refuse text that the engine would refuse as a grammar, before it is parsed, converted or copied. */
static bool check_length(constraint *c, const json_t *value, const char *field) {
    const size_t size = json_string_length(value);
    return size <= CL_ENGINE_MAX_GRAMMAR ||
           openai_refuse(c->error, field, "has %zu bytes; it must have at most %d: simplify it", size, CL_ENGINE_MAX_GRAMMAR);
}

/* A string that is not empty and has no zero characters, which would end it elsewhere. */
static bool read_string(constraint *c, const json_t *value, const char *field, const char **text) {
    if (!check_length(c, value, field) || !field_name(value, field, text, c->error)) return false;
    return **text || openai_refuse(c->error, field, "is empty; leave it out");
}

/* ---- JSON ---- */

static bool set_schema(constraint *c, const json_t *schema, const char *field) {
    const cl_schema_options options = {.open = c->request->open_objects};
    cl_error cause = {.code = CL_ERR_NOMEM};
    if (!cl_json_is_object(schema))
        return openai_refuse(c->error, field, "must be a JSON schema, an object, not %s", field_kind(schema));
    if (field_text_size(schema) > CL_ENGINE_MAX_GRAMMAR)
        return openai_refuse(c->error, field, "is longer than %d bytes; simplify it", CL_ENGINE_MAX_GRAMMAR);
    json_t *given = json_copy((json_t *)schema), *written = NULL;
    const bool ok = given && (!c->whitespace || json_object_set(given, "x-guidance", c->whitespace) == 0) &&
                    cl_schema_rewrite(given, &options, &written, c->request->weaker, &cause) == CL_OK;
    char *text = ok ? cl_json_dumps(written, JSON_COMPACT) : NULL;
    json_decref(written);
    json_decref(given);
    if (!ok && cause.code != CL_ERR_NOMEM) return openai_fail(c->error, field, "%s", cause.message);
    return set(c, CL_GRAMMAR_JSON_SCHEMA, text, text ? strlen(text) : 0);
}

/* A schema, which vLLM's clients may send as a string. */
static bool read_schema(constraint *c, const json_t *value, const char *field) {
    if (!json_is_string(value)) return set_schema(c, value, field);
    json_t *parsed = check_length(c, value, field) ? openai_json_parse_field(field, value, NULL, c->error) : NULL;
    const bool ok = parsed && set_schema(c, parsed, field);
    json_decref(parsed);
    return ok;
}

/* Any object, if the field is true. */
static bool read_json_object(constraint *c, const json_t *value, const char *field) {
    if (!json_is_true(value)) return openai_refuse(c->error, field, "must be true or false, not %s", field_kind(value));
    json_t *schema = json_pack("{ss}", "type", "object");
    const bool ok = schema ? set_schema(c, schema, field) : openai_fail_memory(c->error);
    json_decref(schema);
    return ok;
}

/* ---- Regular expressions and choices ---- */

static bool read_regex(constraint *c, const json_t *value, const char *field) {
    const char *text;
    size_t size;
    if (!read_string(c, value, field, &text)) return false;
    char *regex = cl_regex_ascii(text, strlen(text), &size);
    return set(c, CL_GRAMMAR_REGEX, regex, regex ? size : 0);
}

/* Write the i-th of some texts as an alternative of a Lark grammar, whose strings are those of JSON. */
static bool write_choice(constraint *c, const json_t *text, const char *field, size_t i, FILE *out) {
    if (!json_is_string(text)) return openai_refuse(c->error, field, "must be a string, not %s", field_kind(text));
    if (!check_length(c, text, field)) return false;
    char *literal = cl_json_dumps(text, JSON_ENCODE_ANY);
    if (!literal) return openai_fail_memory(c->error);
    fputs(i == 0 ? "start: " : "\n  | ", out);
    for (const char *at = literal; *at; at++)
        if (*at == 0x7f) /* JSON may have it, Lark may not */
            fputs("\\u007f", out);
        else
            fputc(*at, out);
    free(literal);
    return true;
}

/* One of some texts. */
static bool read_choice(constraint *c, const json_t *value, const char *field) {
    const size_t n = json_array_size(value);
    size_t size = 0;
    if (!json_is_array(value) || n == 0 || n > MAX_CHOICES)
        return openai_refuse(c->error, field, "must be an array of 1 to %d strings", MAX_CHOICES);
    for (size_t i = 0; i < n; i++) size += json_string_length(json_array_get(value, i));
    if (size > CL_ENGINE_MAX_GRAMMAR)
        return openai_refuse(c->error, field, "is longer than %d bytes; send fewer or shorter texts", CL_ENGINE_MAX_GRAMMAR);
    char *lark = NULL;
    FILE *out = open_memstream(&lark, &size);
    bool ok = out ? true : openai_fail_memory(c->error);
    for (size_t i = 0; ok && i < n; i++)
        ok = write_choice(c, json_array_get(value, i), path_of("%s[%zu]", field, i).text, i, out);
    if (out && fclose(out) != 0 && ok) ok = openai_fail_memory(c->error);
    if (ok) return set(c, CL_GRAMMAR_LARK, lark, size);
    free(lark);
    return false;
}

/* ---- Grammars ---- */

static bool set_gbnf(constraint *c, const char *text, const char *field) {
    size_t size;
    cl_error cause;
    char *lark = gbnf_to_lark(text, strlen(text), &size, &cause);
    if (lark) return set(c, CL_GRAMMAR_LARK, lark, size);
    if (cause.code == CL_ERR_NOMEM) return openai_fail_memory(c->error);
    return openai_refuse(c->error, field, "cannot be read as GBNF: %s", cause.message);
}

/* llama-server's notation. */
static bool read_gbnf(constraint *c, const json_t *value, const char *field) {
    const char *text;
    return read_string(c, value, field, &text) && set_gbnf(c, text, field);
}

/* A Lark grammar in which the schema behind each %json becomes what set_schema would make of it. */
typedef struct json_blocks {
    constraint *c;
    const char *from; /* what is not written yet */
    FILE *out;
    cl_error cause;
    bool failed;
} json_blocks;

static void rewrite_block(void *ctx, const char *json, size_t size) {
    json_blocks *b = ctx;
    const cl_schema_options options = {.open = b->c->request->open_objects};
    json_error_t problem;
    bool no_memory;
    if (b->failed || json < b->from) return; /* or it stands within the last one */
    json_t *given = cl_json_parse(json, size, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &problem, &no_memory), *written = NULL;
    if (!given && !no_memory) return; /* the grammar's parser says what is wrong */
    b->cause.code = CL_ERR_NOMEM;
    b->failed = !given || (b->c->whitespace && json_object_set(given, "x-guidance", b->c->whitespace) != 0) ||
                cl_schema_rewrite(given, &options, &written, b->c->request->weaker, &b->cause) != CL_OK;
    char *text = b->failed ? NULL : cl_json_dumps(written, JSON_COMPACT);
    b->failed |= !text;
    if (text) fprintf(b->out, "%.*s%s", (int)(json - b->from), b->from, text);
    b->from = json + problem.position;
    free(text);
    json_decref(written);
    json_decref(given);
}

static bool set_lark(constraint *c, const char *text, const char *field) {
    char *lark = NULL;
    size_t size = 0;
    cl_lark_counts counts;
    json_blocks b = {.c = c, .from = text, .out = open_memstream(&lark, &size), .cause = {.code = CL_ERR_NOMEM}};
    bool ok = b.out && cl_count_lark(text, strlen(text), rewrite_block, &b, &counts) && !b.failed;
    if (b.out) fputs(b.from, b.out);
    if (b.out && fclose(b.out) != 0) ok = false;
    if (ok) return set(c, CL_GRAMMAR_LARK, lark, size);
    free(lark);
    if (b.failed && b.cause.code != CL_ERR_NOMEM) return openai_fail(c->error, field, "%s", b.cause.message);
    return openai_fail_memory(c->error);
}

/* vLLM's: Lark, or EBNF if rules are written name ::= ... */
static bool read_grammar(constraint *c, const json_t *value, const char *field) {
    const char *text;
    if (!read_string(c, value, field, &text)) return false;
    if (gbnf_is_likely(text, strlen(text))) return set_gbnf(c, text, field);
    return set_lark(c, text, field);
}

/* ---- Fields ---- */

/* OpenAI's response_format; the schema beside its type is llama-server's. */
static bool parse_response_format(constraint *c, const json_t *body) {
    const json_t *format = field_get_requested(body, "response_format"), *kind = json_object_get(format, "type");
    const char *type = "";
    if (!format) return true;
    if (!cl_json_is_object(format))
        return openai_refuse(c->error, "response_format", "must be an object, not %s", field_kind(format));
    if (kind && !field_name(kind, "response_format.type", &type, c->error)) return false;
    if (strcmp(type, "text") == 0) return true;
    const json_t *own = field_get(format, "schema"), *named = field_get(format, "json_schema");
    if (strcmp(type, "json_object") == 0) {
        if (!claim(c, c->request->format)) return false;
        const bool says_more = own && !(cl_json_is_object(own) && json_object_size(own) == 0); /* {} would allow any value */
        return says_more ? set_schema(c, own, "response_format.schema") : read_json_object(c, json_true(), "response_format");
    }
    if (strcmp(type, "json_schema") != 0)
        return openai_refuse(c->error, "response_format.type",
                             "is \"%.32s\"; it must be \"text\", \"json_object\" or \"json_schema\"", type);
    if (!claim(c, c->request->format)) return false;
    const json_t *schema = named ? field_get(named, "schema") : own;
    if (!schema) return openai_refuse(c->error, "response_format.json_schema.schema", "is missing; send a JSON schema");
    return set_schema(c, schema, named ? "response_format.json_schema.schema" : "response_format.schema");
}

/* How JSON is written between its values: vLLM's fields, by llguidance's names. */
static bool parse_whitespace(constraint *c, const json_t *object, const char *name, const char *field) {
    const json_t *pattern = field_get_requested(object, name);
    const char *text;
    if (!pattern) return true;
    if (!read_string(c, pattern, field, &text)) return false;
    json_decref(c->whitespace);
    c->whitespace = json_pack("{ss}", "whitespace_pattern", text);
    c->whitespace_field = field;
    return c->whitespace || openai_fail_memory(c->error);
}

/* Whether objects of JSON schemas have only the properties that are declared: vLLM's field. */
static bool parse_closing(constraint *c, const json_t *object) {
    bool closed = !c->request->open_objects;
    if (!field_bool(object, "disable_additional_properties", &closed, c->error)) return false;
    c->request->open_objects = !closed;
    return true;
}

/* The members of structured_outputs that are not grammars. */
static bool parse_options(constraint *c, const json_t *object) {
    bool compact = false;
    if (field_get_requested(object, "structural_tag"))
        return openai_refuse(c->error, "structured_outputs.structural_tag", "is not supported by this server; leave it out");
    if (!parse_closing(c, object)) return false;
    if (!field_bool(object, "disable_any_whitespace", &compact, c->error)) return false;
    if (!compact) return parse_whitespace(c, object, "whitespace_pattern", "structured_outputs.whitespace_pattern");
    c->whitespace = json_pack("{sb}", "whitespace_flexible", 0);
    c->whitespace_field = "structured_outputs.disable_any_whitespace";
    return c->whitespace || openai_fail_memory(c->error);
}

static bool parse_fields(constraint *c, const json_t *body) {
    const json_t *outputs = field_get_requested(body, "structured_outputs");
    const struct {
        const json_t *object;
        const char *name, *field;
        const json_t *(*get)(const json_t *object, const char *name);
        bool (*read)(constraint *c, const json_t *value, const char *field);
    } fields[] = {
        {outputs, "json", "structured_outputs.json", field_get, read_schema}, /* {} is the schema of any JSON */
        {outputs, "json_object", "structured_outputs.json_object", field_get_requested, read_json_object},
        {outputs, "regex", "structured_outputs.regex", field_get_requested, read_regex},
        {outputs, "choice", "structured_outputs.choice", field_get, read_choice},
        {outputs, "grammar", "structured_outputs.grammar", field_get_requested, read_grammar},
        {body, "guided_json", "guided_json", field_get, read_schema},
        {body, "guided_json_object", "guided_json_object", field_get_requested, read_json_object},
        {body, "guided_regex", "guided_regex", field_get_requested, read_regex},
        {body, "guided_choice", "guided_choice", field_get_requested, read_choice},
        {body, "guided_grammar", "guided_grammar", field_get_requested, read_grammar},
        {body, "json_schema", "json_schema", field_get, read_schema},
        {body, "regex", "regex", field_get_requested, read_regex},
        {body, "ebnf", "ebnf", field_get_requested, read_gbnf},
        {body, "grammar", "grammar", field_get_requested, read_gbnf},
    };
    if (outputs && !cl_json_is_object(outputs))
        return openai_refuse(c->error, "structured_outputs", "must be an object, not %s", field_kind(outputs));
    if (!parse_options(c, outputs) || !parse_whitespace(c, body, "guided_whitespace_pattern", "guided_whitespace_pattern") ||
        !parse_response_format(c, body))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = fields[i].get(fields[i].object, fields[i].name);
        if (value && (!claim(c, fields[i].field) || !fields[i].read(c, value, fields[i].field))) return false;
    }
    if (c->whitespace && c->request->params.grammar_kind != CL_GRAMMAR_JSON_SCHEMA)
        return openai_refuse(c->error, c->whitespace_field, "needs a JSON schema; leave it out");
    return true;
}

bool openai_parse_constraint(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    constraint c = {.request = r, .error = error};
    r->open_objects = context->defaults.open_objects;
    const bool ok = parse_closing(&c, body) && parse_fields(&c, body);
    json_decref(c.whitespace);
    return ok;
}
