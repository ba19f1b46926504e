/* Calls whose arguments have tags, as <function=NAME> <parameter=KEY> text </parameter> ... </function>; or JSON inside of
 * them. */
#include <stdlib.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "reply_call.h"

static const cl_reply_tags *tags_of(const reply_call *c) { return c->options->format->tags; }

/* ---- Schemas: strings are written without quotes, and all else as JSON ---- */

/* The kinds of values that a schema allows. */
enum { MAY_BE_STRING = 1, MAY_BE_NULL = 2, MAY_BE_OTHER = 4 };

static unsigned kind_of_type(const json_t *type) {
    const char *name = json_string_value(type);
    if (!name) return 0;
    return strcmp(name, "string") == 0 ? MAY_BE_STRING : strcmp(name, "null") == 0 ? MAY_BE_NULL : MAY_BE_OTHER;
}

static unsigned kind_of_value(const json_t *value) {
    return json_is_string(value) ? MAY_BE_STRING : json_is_null(value) ? MAY_BE_NULL : MAY_BE_OTHER;
}

/* The schema that one refers to, such as "#/$defs/Color"; NULL: there is none. */
static const json_t *referred(const reply_call *c, const json_t *schema) {
    const char *at = json_string_value(json_object_get(schema, "$ref"));
    const json_t *found = at && *at == '#' ? json_object_get(c->function, "parameters") : NULL;
    for (at = found ? at + 1 : ""; found && *at == '/';) {
        const size_t size = strcspn(++at, "/");
        found = json_object_getn(found, at, size);
        at += size;
    }
    return found;
}

/* How much is looked at for one question, since schemas may refer to each other: schemas; values, with bytes of references. */
enum { MAX_SCHEMAS = 256, MAX_VALUES = 1 << 16 };

/* What is asked of a schema. */
typedef struct question {
    const reply_call *call;
    const json_t *value;    /* that is looked for */
    size_t schemas, values; /* that were looked at */
} question;
typedef unsigned ask_fn(question *q, const json_t *schema);

/* Count n values. Returns how many of them may be looked at. */
static size_t take(question *q, size_t n) {
    const size_t left = MAX_VALUES - q->values, taken = n < left ? n : left;
    q->values += taken;
    return taken;
}

/* Ask a schema's parts, which are alternatives or hold together, and join the answers. */
static unsigned of_parts(question *q, const json_t *schema, ask_fn *ask) {
    static const char *const names[] = {"anyOf", "oneOf", "allOf"};
    unsigned answer = 0;
    const json_t *reference = json_object_get(schema, "$ref");
    const size_t size = json_string_length(reference);
    if (++q->schemas >= MAX_SCHEMAS) return 0;
    if (reference && take(q, size) == size) answer |= ask(q, referred(q->call, schema));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const json_t *parts = json_object_get(schema, names[k]);
        for (size_t i = 0; i < json_array_size(parts) && q->schemas < MAX_SCHEMAS; i++)
            answer |= ask(q, json_array_get(parts, i));
    }
    return answer;
}

/* The kinds that a schema names; 0: it says nothing about them. */
static unsigned named_kinds(question *q, const json_t *schema) {
    static const char *const others[] = {"properties", "items",   "prefixItems", "additionalProperties",
                                         "minimum",    "maximum", "multipleOf"};
    const json_t *type = json_object_get(schema, "type"), *constant = json_object_get(schema, "const"),
                 *constants = json_object_get(schema, "enum");
    unsigned kinds = constant ? kind_of_value(constant) : 0;
    const size_t n_constants = constant ? 0 : take(q, json_array_size(constants));
    for (size_t i = 0; i < n_constants; i++) kinds |= kind_of_value(json_array_get(constants, i));
    const size_t n_types = kinds ? 0 : take(q, json_array_size(type));
    if (!kinds) kinds = kind_of_type(type);
    for (size_t i = 0; i < n_types; i++) kinds |= kind_of_type(json_array_get(type, i));
    if (kinds == 0) kinds = of_parts(q, schema, named_kinds);
    for (size_t i = 0; kinds == 0 && i < sizeof others / sizeof *others; i++)
        if (json_object_get(schema, others[i])) return MAY_BE_OTHER;
    return kinds | (kinds && json_is_true(json_object_get(schema, "nullable")) ? MAY_BE_NULL : 0);
}

/* A parameter without a schema is a string; one whose schema cannot be found may be any JSON. */
static unsigned kinds_of(const reply_call *c) {
    const unsigned kinds = named_kinds(&(question){.call = c}, c->schema);
    return kinds ? kinds : json_object_get(c->schema, "$ref") ? MAY_BE_OTHER : MAY_BE_STRING;
}

bool reply_may_be_string(const json_t *function, const json_t *schema) {
    return kinds_of(&(reply_call){.function = function, .schema = schema}) & MAY_BE_STRING;
}

/* Whether a value is one of those that the schema lists. */
static unsigned is_listed(question *q, const json_t *schema) {
    const json_t *constant = json_object_get(schema, "const"), *constants = json_object_get(schema, "enum");
    if (constant && json_equal(constant, q->value)) return true;
    const size_t n = take(q, json_array_size(constants));
    for (size_t i = 0; i < n; i++)
        if (json_equal(json_array_get(constants, i), q->value)) return true;
    return of_parts(q, schema, is_listed);
}

/* ---- Reading ---- */

static reply_verdict read_parameter(reply_call *c, char byte);

/* A byte of the name or of what ends it. Where white space does, a tag must follow before the call begins. */
static reply_verdict read_function_name(reply_call *c, char byte) {
    const char *named = tags_of(c)->named;
    const bool ends = byte == '<' || reply_is_space(byte);
    if (c->n_matched > 0 && byte != named[c->n_matched]) return REPLY_BROKEN;
    if (*named ? byte != named[c->n_matched] : !ends) return *named && ends ? REPLY_BROKEN : reply_call_add_to_name(c, byte);
    if (*named && named[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    if (reply_call_end_name(c, CALL_PARAMETER) == REPLY_BROKEN) return REPLY_BROKEN;
    c->begun = *named;
    reply_text_add(&c->arguments, "{", 1);
    return *named ? REPLY_MORE : read_parameter(c, byte);
}

/* The arguments are JSON instead of parameters. Their brace has been written. */
static reply_verdict begin_json(reply_call *c) {
    c->has_arguments = true;
    reply_json_read(&c->json, '{');
    return reply_call_go(c, CALL_ARGUMENTS);
}

static reply_verdict read_json(reply_call *c, char byte) {
    const reply_verdict v = reply_call_add_json(c, &byte, 1);
    return v == REPLY_WHOLE ? reply_call_go(c, CALL_PARAMETER) : v;
}

/* Between parameters; n_matched: bytes of the tag before a key or at the end, which differ in the second byte, that were read.
 */
static reply_verdict read_parameter(reply_call *c, char byte) {
    const char *key = tags_of(c)->key, *end = tags_of(c)->end;
    if (c->n_matched == 0 && reply_is_space(byte)) return REPLY_MORE;
    if (c->n_matched == 0 && byte == '{' && c->n_parameters == 0 && !c->has_arguments) return begin_json(c);
    const char *word = c->n_matched > 1 ? c->word : byte == end[1] || c->has_arguments ? end : key;
    if (byte != word[c->n_matched]) return REPLY_BROKEN;
    c->word = word;
    if (word[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    c->begun = true;
    if (word == end) {
        if (!c->has_arguments) reply_text_add(&c->arguments, "}", 1);
        return REPLY_WHOLE;
    }
    c->key.size = 0;
    return reply_call_go(c, CALL_PARAMETER_KEY);
}

/* A byte of a key or of what is between it and the value, where white space may stand between tags. */
static reply_verdict read_parameter_key(reply_call *c, char byte) {
    const char *value = tags_of(c)->value;
    if (value[c->n_matched] == '\n') {
        if (reply_is_space(byte)) return REPLY_MORE;
        c->n_matched++;
    }
    if (c->n_matched > 0 && byte != value[c->n_matched]) return REPLY_BROKEN;
    if (byte != value[c->n_matched]) {
        if ((unsigned char)byte < 0x20 || c->key.size == CL_REPLY_MAX_NAME) return REPLY_BROKEN;
        reply_text_add(&c->key, &byte, 1);
        return REPLY_MORE;
    }
    if (value[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    const json_t *properties = json_object_get(json_object_get(c->function, "parameters"), "properties");
    c->schema = c->key.size > 0 ? json_object_getn(properties, c->key.data, c->key.size) : NULL;
    if (c->n_parameters++ > 0) reply_text_add(&c->arguments, ", ", 2);
    reply_text_add(&c->arguments, "\"", 1);
    for (size_t i = 0; i < c->key.size; i++) reply_text_add_escaped(&c->arguments, c->key.data[i]);
    reply_text_add(&c->arguments, "\": ", 3);
    c->kinds = kinds_of(c);
    c->is_string = c->kinds == MAY_BE_STRING;
    if (c->is_string) reply_text_add(&c->arguments, "\"", 1);
    c->value_begun = c->newline = false;
    c->value.size = 0;
    return reply_call_go(c, CALL_PARAMETER_VALUE);
}

/* Add a byte to a parameter's value, without the newline that it begins or ends with where that does not count. */
static void add_to_value(reply_call *c, char byte) {
    if (!c->is_string) {
        reply_text_add(&c->value, &byte, 1);
        return;
    }
    const bool is_line_end = byte == '\n' && tags_of(c)->lines;
    if (c->newline) reply_text_add_escaped(&c->arguments, '\n');
    c->newline = is_line_end && c->value_begun;
    if (!is_line_end) reply_text_add_escaped(&c->arguments, byte);
    c->value_begun = true;
}

/* A text as the one element of an array; NULL: it is no JSON. */
static json_t *parse_element(reply_call *c, cl_str text) {
    reply_text array = {0};
    size_t size = 0;
    bool no_memory;
    json_error_t wrong;
    reply_text_add(&array, "[", 1);
    reply_text_add(&array, text.data, text.size);
    reply_text_add(&array, "]", 1);
    char *mended = cl_json_mended(array.data, array.size, &size, &no_memory);
    no_memory |= array.no_memory;
    const cl_str json = mended ? (cl_str){mended, size} : (cl_str){array.data, array.size};
    json_t *parsed = no_memory ? NULL : cl_json_parse(json.data, json.size, JSON_ALLOW_NUL, &wrong, &no_memory);
    c->value.no_memory |= no_memory;
    free(mended);
    free(array.data);
    if (json_array_size(parsed) == 1) return parsed;
    json_decref(parsed);
    return NULL;
}

/* Whether a value that is JSON is no string, though it may be one: null, or one of those that the schema lists. */
static bool is_no_string(const reply_call *c, const json_t *value) {
    if (!(c->kinds & MAY_BE_STRING)) return true;
    return json_is_null(value) ? c->kinds & MAY_BE_NULL : is_listed(&(question){.call = c, .value = value}, c->schema);
}

static void add_string(reply_call *c, cl_str text) {
    reply_text_add(&c->arguments, "\"", 1);
    for (size_t i = 0; i < text.size; i++) reply_text_add_escaped(&c->arguments, text.data[i]);
    reply_text_add(&c->arguments, "\"", 1);
}

static cl_str without_spaces(cl_str text) {
    while (text.size > 0 && reply_is_space(text.data[text.size - 1])) text.size--;
    for (; text.size > 0 && reply_is_space(*text.data); text.size--) text.data++;
    return text;
}

static cl_str without_newlines(cl_str text) {
    if (text.size > 0 && *text.data == '\n') text = (cl_str){text.data + 1, text.size - 1};
    if (text.size > 0 && text.data[text.size - 1] == '\n') text.size--;
    return text;
}

/* Add a value that may be something else than a string; text that is no JSON is one. */
static void end_json_value(reply_call *c) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const bool may_be_string = c->kinds & MAY_BE_STRING;
    const cl_str text = {c->value.data ? c->value.data : "", c->value.size};
    cl_str value = without_spaces(text);
    for (size_t i = 0; i < sizeof python / sizeof *python && !may_be_string; i++)
        if (cl_str_is(value, python[i][0])) value = cl_str_of(python[i][1]);
    json_t *json = parse_element(c, value);
    if (json && is_no_string(c, json_array_get(json, 0)))
        reply_text_add(&c->arguments, value.data, value.size);
    else
        add_string(c, !may_be_string ? value : tags_of(c)->lines ? without_newlines(text) : text);
    json_decref(json);
}

static reply_verdict read_parameter_value(reply_call *c, char byte) {
    const char *end = tags_of(c)->value_end;
    if (byte == end[c->n_matched]) {
        if (end[++c->n_matched]) return REPLY_MORE;
        c->is_string ? reply_text_add(&c->arguments, "\"", 1) : end_json_value(c);
        c->n_matched = 0;
        return reply_call_go(c, CALL_PARAMETER);
    }
    /* The first byte of the tag occurs in it once, so nothing but the byte itself may begin it again. */
    const size_t n_matched = c->n_matched;
    c->n_matched = 0;
    for (size_t i = 0; i < n_matched; i++) add_to_value(c, end[i]);
    if (byte == *end)
        c->n_matched = 1;
    else
        add_to_value(c, byte);
    return REPLY_MORE;
}

reply_verdict reply_tags_read(reply_call *c, char byte) {
    switch (c->state) {
    case CALL_NAME: return read_function_name(c, byte);
    case CALL_PARAMETER: return read_parameter(c, byte);
    case CALL_PARAMETER_KEY: return read_parameter_key(c, byte);
    case CALL_ARGUMENTS: return read_json(c, byte);
    default: return read_parameter_value(c, byte);
    }
}
