/* The functions that all forms of calls share, and the forms with JSON: that of most models, Mistral's, and those with names
 * before it. */
#include "reply_call.h"

#include <stdlib.h>

void reply_call_init(reply_call *c, const cl_reply_options *options, bool must_know) {
    *c = (reply_call){.options = options, .must_know = must_know};
}

void reply_call_free(reply_call *c) {
    free(c->name.data);
    free(c->arguments.data);
    free(c->key.data);
    free(c->value.data);
    *c = (reply_call){0};
}

bool reply_call_failed(const reply_call *c) {
    return c->name.no_memory || c->arguments.no_memory || c->key.no_memory || c->value.no_memory;
}

reply_verdict reply_call_go(reply_call *c, reply_call_state state) {
    c->state = state;
    return REPLY_MORE;
}

/* Read the rest of `word`, of which the first byte was read. */
static reply_verdict expect(reply_call *c, const char *word) {
    c->word = word;
    c->n_matched = 1;
    return reply_call_go(c, CALL_WORD);
}

static reply_verdict read_word(reply_call *c, char byte) {
    if (byte != c->word[c->n_matched]) return REPLY_BROKEN;
    if (c->word[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    return reply_call_go(c, CALL_NAME);
}

/* ---- Names ---- */

/* The function of the call's name among the tools; NULL: there is none. */
static const json_t *find_function(const reply_call *c) {
    for (size_t i = 0; i < json_array_size(c->options->tools); i++) {
        const json_t *function = json_object_get(json_array_get(c->options->tools, i), "function");
        const json_t *name = json_object_get(function, "name");
        if (json_string_length(name) == c->name.size && c->name.size > 0 &&
            memcmp(json_string_value(name), c->name.data, c->name.size) == 0)
            return function;
    }
    return NULL;
}

reply_verdict reply_call_add_to_name(reply_call *c, char byte) {
    if ((unsigned char)byte < 0x20 || byte == 0x7f || byte == '\\' || c->name.size == CL_REPLY_MAX_NAME) return REPLY_BROKEN;
    reply_text_add(&c->name, &byte, 1);
    return REPLY_MORE;
}

reply_verdict reply_call_end_name(reply_call *c, reply_call_state next) {
    c->named = true;
    c->function = find_function(c);
    if (c->name.size == 0 || (c->must_know && !c->function)) return REPLY_BROKEN;
    return reply_call_go(c, next);
}

/* ---- JSON arguments ---- */

reply_verdict reply_call_add_json(reply_call *c, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const bool in_string = c->json.state == JSON_IN_STRING;
        const reply_verdict v = reply_json_read(&c->json, text[i]);
        if (v == REPLY_BROKEN) return v;
        /* Models write line ends into strings as they are. */
        if (in_string && (unsigned char)text[i] < 0x20)
            reply_text_add_escaped(&c->arguments, text[i]);
        else
            reply_text_add(&c->arguments, &text[i], 1);
        if (v == REPLY_WHOLE) return v;
    }
    return REPLY_MORE;
}

reply_verdict reply_call_begin_arguments(reply_call *c, char byte) {
    if (byte != '{' || c->has_arguments) return REPLY_BROKEN;
    c->has_arguments = true;
    c->begun = c->named;
    c->state = CALL_ARGUMENTS;
    return reply_call_add_json(c, &byte, 1);
}

/* ---- {"name": ..., "arguments": ...} ---- */

static bool key_is(const reply_call *c, const char *name) { return cl_str_is((cl_str){c->key.data, c->key.size}, name); }

static reply_verdict begin_value(reply_call *c, char byte) {
    if (key_is(c, "arguments") || key_is(c, "parameters") || key_is(c, c->options->format->arguments))
        return reply_call_begin_arguments(c, byte);
    if (byte != '"') return REPLY_BROKEN;
    if (key_is(c, "name") || key_is(c, "function") || key_is(c, c->options->format->function))
        return c->named ? REPLY_BROKEN : reply_call_go(c, CALL_NAME);
    const char *id = c->options->format->id;
    return key_is(c, "type") || key_is(c, "id") || (id && key_is(c, id)) ? reply_call_go(c, CALL_SKIP) : REPLY_BROKEN;
}

static reply_verdict read_key(reply_call *c, char byte) {
    if (byte == '"') return reply_call_go(c, CALL_COLON);
    if (c->key.size == CL_REPLY_MAX_MARKER) return REPLY_BROKEN;
    reply_text_add(&c->key, &byte, 1);
    return REPLY_MORE;
}

/* The object is whole. */
static reply_verdict end_object(reply_call *c) {
    if (!c->named) return REPLY_BROKEN;
    if (!c->has_arguments) reply_text_add(&c->arguments, "{}", 2);
    c->begun = true;
    return REPLY_WHOLE;
}

static reply_verdict read_name(reply_call *c, char byte) {
    if (byte != '"') return reply_call_add_to_name(c, byte);
    const reply_verdict v = reply_call_end_name(c, CALL_AFTER_VALUE);
    c->begun = v == REPLY_MORE && c->has_arguments;
    return v;
}

static reply_verdict read_arguments(reply_call *c, char byte) {
    const reply_verdict v = reply_call_add_json(c, &byte, 1);
    return v == REPLY_WHOLE && c->form == CALL_FORM_JSON ? reply_call_go(c, CALL_AFTER_VALUE) : v;
}

/* A string that does not count, without escapes. */
static reply_verdict skip_string(reply_call *c, char byte) {
    if (byte == '\\') return REPLY_BROKEN;
    return reply_call_go(c, byte == '"' ? CALL_AFTER_VALUE : CALL_SKIP);
}

/* ---- Mistral: NAME[ARGS]{...} or NAME[CALL_ID]id[ARGS]{...}; the tags may be left out ---- */

static reply_verdict begin_mistral(reply_call *c, char byte) {
    c->form = CALL_FORM_MISTRAL;
    c->state = CALL_NAME;
    return reply_call_add_to_name(c, byte);
}

static reply_verdict read_mistral_name(reply_call *c, char byte) {
    if (byte != '[' && byte != '{') return byte == '"' || byte == ']' ? REPLY_BROKEN : reply_call_add_to_name(c, byte);
    while (c->name.size > 0 && reply_is_space(c->name.data[c->name.size - 1])) c->name.size--;
    if (reply_call_end_name(c, CALL_TAG) == REPLY_BROKEN) return REPLY_BROKEN;
    return byte == '{' ? reply_call_begin_arguments(c, byte) : REPLY_MORE;
}

static reply_verdict read_tag(reply_call *c, char byte) {
    if (byte != ']') {
        if (c->key.size == CL_REPLY_MAX_MARKER) return REPLY_BROKEN;
        reply_text_add(&c->key, &byte, 1);
        return REPLY_MORE;
    }
    if (key_is(c, "ARGS")) return reply_call_go(c, CALL_VALUE);
    if (!key_is(c, "CALL_ID")) return REPLY_BROKEN;
    return reply_call_go(c, CALL_ID);
}

static reply_verdict read_id(reply_call *c, char byte) {
    c->key.size = 0;
    if (byte == '[') return reply_call_go(c, CALL_TAG);
    return (unsigned char)byte > ' ' && byte != '{' ? REPLY_MORE : REPLY_BROKEN;
}

/* ---- Functionary 3.2: NAME, and the arguments on the next line ---- */

static reply_verdict read_recipient(reply_call *c, char byte) {
    if (c->state == CALL_VALUE) return reply_is_space(byte) ? REPLY_MORE : reply_call_begin_arguments(c, byte);
    if (c->state == CALL_ARGUMENTS) return reply_call_add_json(c, &byte, 1);
    if (byte != '\n') return reply_is_space(byte) || byte == '{' ? REPLY_BROKEN : reply_call_add_to_name(c, byte);
    if (cl_str_is((cl_str){c->name.data, c->name.size}, "all")) return REPLY_WHOLE;
    return reply_call_end_name(c, CALL_VALUE);
}

/* ---- A name, text that ends with a marker, and the arguments ---- */

/* The last marker in a text, or the text, without the white space around it. */
static cl_str last_marker(const char *text) {
    cl_str marker = cl_str_of(text);
    while (marker.size > 0 && reply_is_space(marker.data[marker.size - 1])) marker.size--;
    if (marker.size > 0 && marker.data[marker.size - 1] == '>') {
        const char *begin = marker.data + marker.size;
        while (begin > marker.data && *begin != '<') begin--;
        return (cl_str){begin, (size_t)(marker.data + marker.size - begin)};
    }
    for (; marker.size > 0 && reply_is_space(*marker.data); marker.size--) marker.data++;
    return marker;
}

/* Take the format's prefix, and the number of the call, away from the name. */
static void strip_name(reply_call *c) {
    const cl_reply_format *f = c->options->format;
    reply_text *name = &c->name;
    const size_t n_prefix = strlen(f->prefix);
    if (n_prefix > 0 && name->size > n_prefix && memcmp(name->data, f->prefix, n_prefix) == 0)
        memmove(name->data, name->data + n_prefix, name->size -= n_prefix);
    size_t size = name->size;
    while (size > 0 && name->data[size - 1] >= '0' && name->data[size - 1] <= '9') size--;
    if (f->numbered && size > 1 && size < name->size && name->data[size - 1] == ':') name->size = size - 1;
}

/* A byte between the name, which it may end, and the arguments. */
static reply_verdict read_header(reply_call *c, char byte) {
    const cl_str marker = last_marker(c->options->format->between);
    if (byte == '{' || c->key.size == CL_REPLY_MAX_HEADER) return REPLY_BROKEN;
    reply_text_add(&c->key, &byte, 1);
    const bool ends = c->key.size >= marker.size && byte == marker.data[marker.size - 1] &&
                      memcmp(c->key.data + c->key.size - marker.size, marker.data, marker.size) == 0;
    return ends ? reply_call_go(c, CALL_VALUE) : REPLY_MORE;
}

static reply_verdict read_named(reply_call *c, char byte) {
    switch (c->state) {
    case CALL_NAME:
        if (!reply_is_space(byte) && byte != '<') return byte == '{' ? REPLY_BROKEN : reply_call_add_to_name(c, byte);
        strip_name(c);
        return reply_call_end_name(c, CALL_HEADER) == REPLY_MORE ? read_header(c, byte) : REPLY_BROKEN;
    case CALL_HEADER: return read_header(c, byte);
    case CALL_ARGUMENTS: return reply_call_add_json(c, &byte, 1);
    default: return reply_is_space(byte) ? REPLY_MORE : reply_call_begin_arguments(c, byte);
    }
}

/* ---- All ---- */

static bool may_begin_name(char byte) { return byte == '_' || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

/* Whether arguments have tags, as the template shows it. */
static bool is_tagged(const reply_call *c) { return c->options->format->syntax == CL_REPLY_TAGS || c->options->format->tagged; }

static reply_verdict open_tags(reply_call *c, char byte) {
    const char *begin = c->options->format->tags->begin;
    c->form = CALL_FORM_TAGS;
    if (*begin) return byte == *begin ? expect(c, begin) : REPLY_BROKEN;
    c->state = CALL_NAME;
    return reply_call_read(c, byte);
}

static reply_verdict open_call(reply_call *c, char byte) {
    const cl_reply_syntax syntax = c->options->format->syntax;
    if (reply_is_space(byte) && syntax != CL_REPLY_RECIPIENT) return REPLY_MORE;
    if (syntax == CL_REPLY_GEMMA) {
        c->form = CALL_FORM_GEMMA;
        return byte == 'c' ? expect(c, "call:") : REPLY_BROKEN;
    }
    if (syntax == CL_REPLY_PYTHON) {
        c->form = CALL_FORM_PYTHON;
        c->state = CALL_NAME;
        return may_begin_name(byte) ? reply_call_add_to_name(c, byte) : REPLY_BROKEN;
    }
    if (syntax == CL_REPLY_FUNCTION || syntax == CL_REPLY_RECIPIENT || syntax == CL_REPLY_NAMED) {
        c->form = syntax == CL_REPLY_FUNCTION    ? CALL_FORM_TAGS
                  : syntax == CL_REPLY_RECIPIENT ? CALL_FORM_RECIPIENT
                                                 : CALL_FORM_NAMED;
        c->state = CALL_NAME;
        return reply_call_read(c, byte);
    }
    if (byte == '{') return is_tagged(c) && c->options->constrained ? REPLY_BROKEN : reply_call_go(c, CALL_KEY);
    if (syntax == CL_REPLY_MISTRAL) return begin_mistral(c, byte);
    if (!is_tagged(c) && (syntax != CL_REPLY_JSON || c->options->constrained)) return REPLY_BROKEN;
    return open_tags(c, byte);
}

/* A byte of a call in JSON or in Mistral's form. */
static reply_verdict read_json_call(reply_call *c, char byte) {
    switch (c->state) {
    case CALL_KEY_STRING: return read_key(c, byte);
    case CALL_NAME: return c->form == CALL_FORM_JSON ? read_name(c, byte) : read_mistral_name(c, byte);
    case CALL_SKIP: return skip_string(c, byte);
    case CALL_ARGUMENTS: return read_arguments(c, byte);
    case CALL_TAG: return read_tag(c, byte);
    case CALL_ID: return read_id(c, byte);
    default: break;
    }
    if (reply_is_space(byte)) return REPLY_MORE;
    switch (c->state) {
    case CALL_COLON: return byte == ':' ? reply_call_go(c, CALL_VALUE) : REPLY_BROKEN;
    case CALL_VALUE: return c->form == CALL_FORM_JSON ? begin_value(c, byte) : reply_call_begin_arguments(c, byte);
    case CALL_AFTER_VALUE:
        if (byte == ',') return reply_call_go(c, CALL_KEY);
        return byte == '}' ? end_object(c) : REPLY_BROKEN;
    default: /* a key: an empty object is no call */
        c->key.size = 0;
        return byte == '"' ? reply_call_go(c, CALL_KEY_STRING) : REPLY_BROKEN;
    }
}

reply_verdict reply_call_read(reply_call *c, char byte) {
    if (c->state == CALL_OPEN) return open_call(c, byte);
    if (c->state == CALL_WORD) return read_word(c, byte);
    switch (c->form) {
    case CALL_FORM_NAMED: return read_named(c, byte);
    case CALL_FORM_TAGS: return reply_tags_read(c, byte);
    case CALL_FORM_GEMMA: return reply_gemma_read(c, byte);
    case CALL_FORM_PYTHON: return reply_python_read(c, byte);
    case CALL_FORM_RECIPIENT: return read_recipient(c, byte);
    default: return read_json_call(c, byte);
    }
}
