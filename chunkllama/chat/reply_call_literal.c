/* The forms with values that are almost JSON: call:NAME{key:QUOTEtextQUOTE} of Gemma, and NAME(key='text') of
 * Python. */
#include "reply_call.h"

/* Report the key of a value, which was read. */
static reply_verdict add_key(reply_call *c) {
    if (c->key.size == 0 || reply_call_add_json(c, "\"", 1) == REPLY_BROKEN) return REPLY_BROKEN;
    for (size_t i = 0; i < c->key.size; i++) reply_text_add_escaped(&c->arguments, c->key.data[i]);
    c->key.size = 0;
    return reply_call_add_json(c, "\":", 2);
}

/* ---- Gemma ---- */

static const char *quote_of(const reply_call *c) { return c->options->format->quote; }

static reply_verdict read_gemma_name(reply_call *c, char byte) {
    if (byte != '{') return reply_is_space(byte) || byte == '<' ? REPLY_BROKEN : reply_call_add_to_name(c, byte);
    return reply_call_end_name(c, CALL_ARGUMENTS) == REPLY_MORE ? reply_call_begin_arguments(c, byte) : REPLY_BROKEN;
}

/* A byte of a string, which ends with the quote. */
static reply_verdict read_gemma_string(reply_call *c, char byte) {
    const char *quote = quote_of(c);
    if (byte == quote[c->n_matched]) {
        if (quote[++c->n_matched]) return REPLY_MORE;
        c->n_matched = 0;
        c->is_string = false;
        return reply_call_add_json(c, "\"", 1);
    }
    for (size_t i = 0; i < c->n_matched; i++) reply_text_add_escaped(&c->arguments, quote[i]);
    c->n_matched = byte == *quote;
    if (!c->n_matched) reply_text_add_escaped(&c->arguments, byte);
    return REPLY_MORE;
}

/* A byte of a key, which ends with a colon. */
static reply_verdict read_gemma_key(reply_call *c, char byte) {
    if (byte == ':') return add_key(c);
    if ((unsigned char)byte < 0x20 || strchr("{}[],<>\"", byte) || c->key.size == CL_REPLY_MAX_NAME) return REPLY_BROKEN;
    reply_text_add(&c->key, &byte, 1);
    return REPLY_MORE;
}

reply_verdict reply_gemma_read(reply_call *c, char byte) {
    if (c->state == CALL_NAME) return read_gemma_name(c, byte);
    if (c->is_string) return read_gemma_string(c, byte);
    const reply_json_state at = c->json.state;
    const bool at_key = at == JSON_AT_KEY || (at == JSON_AT_FIRST_KEY && byte != '}');
    if (c->key.size > 0 || (at_key && !reply_is_space(byte))) return read_gemma_key(c, byte);
    const char *quote = quote_of(c);
    if (c->n_matched > 0 || byte == *quote) {
        if (byte != quote[c->n_matched]) return REPLY_BROKEN;
        if (quote[++c->n_matched]) return REPLY_MORE;
        c->n_matched = 0;
        c->is_string = true;
        return reply_call_add_json(c, "\"", 1);
    }
    return byte == '"' ? REPLY_BROKEN : reply_call_add_json(c, &byte, 1);
}

/* ---- Python ---- */

static bool is_name_byte(char byte) {
    return byte == '_' || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (unsigned char)byte >= 0x80;
}

static reply_verdict read_python_name(reply_call *c, char byte) {
    if (byte != '(') return is_name_byte(byte) || byte == '.' || byte == '-' ? reply_call_add_to_name(c, byte) : REPLY_BROKEN;
    return reply_call_end_name(c, CALL_ARGUMENTS) == REPLY_MORE ? reply_call_begin_arguments(c, '{') : REPLY_BROKEN;
}

/* A byte of a string; the text in it that JSON would not accept is escaped. */
static reply_verdict read_python_string(reply_call *c, char byte) {
    const char escaped[] = {'\\', byte};
    if (c->escaped) {
        c->escaped = false;
        if (byte == '\'') return reply_call_add_json(c, &byte, 1);
        if (byte && strchr("\"\\/bfnrtu", byte)) return reply_call_add_json(c, escaped, 2);
        return reply_call_add_json(c, "\\\\", 2) == REPLY_MORE ? reply_call_add_json(c, &byte, 1) : REPLY_BROKEN;
    }
    if (byte == '\\') {
        c->escaped = true;
        return REPLY_MORE;
    }
    if (byte == c->quote) {
        c->is_string = false;
        return reply_call_add_json(c, "\"", 1);
    }
    return byte == '"' ? reply_call_add_json(c, escaped, 2) : reply_call_add_json(c, &byte, 1);
}

/* A byte of the name of an argument, up to the equals sign. */
static reply_verdict read_python_key(reply_call *c, char byte) {
    if (byte == '=') return add_key(c);
    if (reply_is_space(byte)) return c->key.size == 0 ? REPLY_MORE : REPLY_BROKEN;
    if (!is_name_byte(byte) || c->key.size == CL_REPLY_MAX_NAME) return REPLY_BROKEN;
    reply_text_add(&c->key, &byte, 1);
    return REPLY_MORE;
}

/* A byte of True, False or None, the first of which says which. */
static reply_verdict read_python_word(reply_call *c, char byte) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char first = c->n_matched > 0 ? *c->word : byte;
    const size_t i = first == 'T' ? 0 : first == 'F' ? 1 : 2;
    c->word = words[i][0];
    if (byte != c->word[c->n_matched]) return REPLY_BROKEN;
    if (c->word[++c->n_matched]) return REPLY_MORE;
    c->n_matched = 0;
    return reply_call_add_json(c, words[i][1], strlen(words[i][1]));
}

reply_verdict reply_python_read(reply_call *c, char byte) {
    if (c->state == CALL_NAME) return read_python_name(c, byte);
    if (c->is_string) return read_python_string(c, byte);
    const reply_json_state at = c->json.state;
    const bool outermost = c->json.depth == 1, may_end = at != JSON_AT_KEY && c->key.size == 0;
    if (outermost && byte == ')' && may_end) return reply_call_add_json(c, "}", 1);
    if (outermost && (at == JSON_AT_KEY || at == JSON_AT_FIRST_KEY)) return read_python_key(c, byte);
    if (c->n_matched > 0 || byte == 'T' || byte == 'F' || byte == 'N') return read_python_word(c, byte);
    if (byte == '\'' || byte == '"') {
        c->quote = byte;
        c->is_string = true;
        return reply_call_add_json(c, "\"", 1);
    }
    return outermost && byte == '}' ? REPLY_BROKEN : reply_call_add_json(c, &byte, 1);
}
