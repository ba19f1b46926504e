/* The form of Qwen3-Coder: <function=NAME> <parameter=KEY> text </parameter> ... </function>. */
#include "chunkllama/common/json_doc.h"
#include "reply_call.h"

static const char VALUE_END[] = "</parameter>";

/* Whether a parameter may be a string, which is then written without quotes. So is one without a schema. */
static bool may_be_string(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type)) return strcmp(json_string_value(type), "string") == 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        if (name && strcmp(name, "string") == 0) return true;
    }
    if (type) return false;
    const json_t *any = json_object_get(schema, "anyOf");
    for (size_t i = 0; i < json_array_size(any); i++)
        if (may_be_string(json_array_get(any, i))) return true;
    return !any && !json_object_get(schema, "$ref") && !json_object_get(schema, "oneOf") && !json_object_get(schema, "allOf");
}

static reply_verdict read_function_name(reply_call *c, char byte) {
    if (byte == '<' || reply_is_space(byte)) return REPLY_BROKEN;
    if (byte != '>') return reply_call_add_to_name(c, byte);
    if (reply_call_end_name(c, CALL_PARAMETER) == REPLY_BROKEN) return REPLY_BROKEN;
    c->begun = true;
    reply_text_add(&c->arguments, "{", 1);
    return REPLY_MORE;
}

/* Between parameters; n_matched: bytes of "<parameter=" or "</function>" that were read. */
static reply_verdict read_parameter(reply_call *c, char byte) {
    static const char parameter[] = "<parameter=", end[] = "</function>";
    if (c->n_matched == 0 && reply_is_space(byte)) return REPLY_MORE;
    const char *word = c->n_matched > 1 ? c->word : byte == '/' ? end : parameter;
    if (byte != word[c->n_matched]) return REPLY_BROKEN;
    c->word = word;
    if (word[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    if (word == end) {
        reply_text_add(&c->arguments, "}", 1);
        return REPLY_WHOLE;
    }
    c->key.size = 0;
    return reply_call_go(c, CALL_PARAMETER_KEY);
}

static reply_verdict read_parameter_key(reply_call *c, char byte) {
    if (byte != '>') {
        if ((unsigned char)byte < 0x20 || c->key.size == CL_REPLY_MAX_NAME) return REPLY_BROKEN;
        reply_text_add(&c->key, &byte, 1);
        return REPLY_MORE;
    }
    const json_t *properties = json_object_get(json_object_get(c->function, "parameters"), "properties");
    const json_t *schema = c->key.size > 0 ? json_object_getn(properties, c->key.data, c->key.size) : NULL;
    if (c->n_parameters++ > 0) reply_text_add(&c->arguments, ", ", 2);
    reply_text_add(&c->arguments, "\"", 1);
    for (size_t i = 0; i < c->key.size; i++) reply_text_add_escaped(&c->arguments, c->key.data[i]);
    reply_text_add(&c->arguments, "\": ", 3);
    c->is_string = may_be_string(schema);
    if (c->is_string) reply_text_add(&c->arguments, "\"", 1);
    c->value_begun = c->newline = false;
    c->value.size = 0;
    return reply_call_go(c, CALL_PARAMETER_VALUE);
}

/* Add a byte to a parameter's value, without the newline that it begins or ends with. */
static void add_to_value(reply_call *c, char byte) {
    if (!c->is_string) {
        reply_text_add(&c->value, &byte, 1);
        return;
    }
    if (c->newline) reply_text_add_escaped(&c->arguments, '\n');
    c->newline = byte == '\n' && c->value_begun;
    if (byte != '\n') reply_text_add_escaped(&c->arguments, byte);
    c->value_begun = true;
}

/* Add a value that may be any JSON; text that is no JSON is a string. */
static void end_json_value(reply_call *c) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    cl_str value = {c->value.data, c->value.size};
    while (value.size > 0 && reply_is_space(value.data[value.size - 1])) value.size--;
    for (; value.size > 0 && reply_is_space(*value.data); value.size--) value.data++;
    for (size_t i = 0; i < sizeof python / sizeof *python; i++)
        if (cl_str_is(value, python[i][0])) value = cl_str_of(python[i][1]);
    json_error_t wrong;
    bool no_memory = false;
    json_t *json =
        cl_json_parse(value.size ? value.data : "", value.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &wrong, &no_memory);
    c->value.no_memory |= no_memory;
    if (json) {
        reply_text_add(&c->arguments, value.data, value.size);
    } else {
        reply_text_add(&c->arguments, "\"", 1);
        for (size_t i = 0; i < value.size; i++) reply_text_add_escaped(&c->arguments, value.data[i]);
        reply_text_add(&c->arguments, "\"", 1);
    }
    json_decref(json);
}

static reply_verdict read_parameter_value(reply_call *c, char byte) {
    if (byte == VALUE_END[c->n_matched]) {
        if (VALUE_END[++c->n_matched]) return REPLY_MORE;
        c->is_string ? reply_text_add(&c->arguments, "\"", 1) : end_json_value(c);
        c->n_matched = 0;
        return reply_call_go(c, CALL_PARAMETER);
    }
    /* Only the first byte of VALUE_END occurs in it once, so nothing but the byte itself may begin it again. */
    const size_t n_matched = c->n_matched;
    c->n_matched = 0;
    for (size_t i = 0; i < n_matched; i++) add_to_value(c, VALUE_END[i]);
    if (byte == VALUE_END[0])
        c->n_matched = 1;
    else
        add_to_value(c, byte);
    return REPLY_MORE;
}

reply_verdict reply_qwen_read(reply_call *c, char byte) {
    switch (c->state) {
    case CALL_NAME: return read_function_name(c, byte);
    case CALL_PARAMETER: return read_parameter(c, byte);
    case CALL_PARAMETER_KEY: return read_parameter_key(c, byte);
    default: return read_parameter_value(c, byte);
    }
}
