/* Text that grows, and JSON text that is checked byte by byte. */
#include <stdio.h>
#include <stdlib.h>

#include "reply_call.h"

void reply_text_add(reply_text *t, const char *bytes, size_t size) {
    if (t->capacity - t->size < size) {
        const size_t capacity = 2 * t->capacity + size + 64;
        char *grown = realloc(t->data, capacity);
        t->no_memory |= !grown;
        if (!grown) return;
        t->data = grown;
        t->capacity = capacity;
    }
    if (size > 0) memcpy(t->data + t->size, bytes, size);
    t->size += size;
}

void reply_text_add_escaped(reply_text *t, char byte) {
    static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char escaped[8] = {'\\'};
    const char *name = byte ? strchr(names, byte) : NULL;
    if (name)
        escaped[1] = letters[name - names];
    else if ((unsigned char)byte < 0x20)
        snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)byte);
    else
        escaped[0] = byte;
    reply_text_add(t, escaped, strlen(escaped));
}

static bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }
static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

static bool is_hex(char byte) { return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F'); }

/* ---- Nesting ---- */

static bool in_object(const reply_json *j) { return j->in_object[(j->depth - 1) / 8] >> (j->depth - 1) % 8 & 1; }

static reply_verdict open(reply_json *j, bool object) {
    if (j->depth == CL_REPLY_MAX_DEPTH) return REPLY_BROKEN;
    const uint8_t bit = (uint8_t)(1u << j->depth % 8);
    uint8_t *bits = &j->in_object[j->depth++ / 8];
    *bits = object ? *bits | bit : *bits & (uint8_t)~bit;
    j->state = object ? JSON_AT_FIRST_KEY : JSON_AT_FIRST_ITEM;
    return REPLY_MORE;
}

static reply_verdict close(reply_json *j) {
    j->state = JSON_AFTER_VALUE;
    return --j->depth == 0 ? REPLY_WHOLE : REPLY_MORE;
}

static reply_verdict go(reply_json *j, reply_json_state state) {
    j->state = state;
    return REPLY_MORE;
}

/* ---- Numbers ---- */

/* Where in a number, after RFC 8259: the states in which it may end are those from NUMBER_ZERO on. */
enum { NUMBER_MINUS, NUMBER_POINT, NUMBER_E, NUMBER_SIGN, NUMBER_ZERO, NUMBER_DIGITS, NUMBER_FRACTION, NUMBER_EXPONENT };

static reply_verdict begin_number(reply_json *j, char byte) {
    j->number = byte == '-' ? NUMBER_MINUS : byte == '0' ? NUMBER_ZERO : NUMBER_DIGITS;
    return go(j, JSON_IN_NUMBER);
}

/* Whether the number goes on with the byte. */
static bool read_number(reply_json *j, char byte) {
    const uint8_t at = j->number;
    if (is_digit(byte)) {
        static const uint8_t after[] = {
            [NUMBER_MINUS] = NUMBER_DIGITS,     [NUMBER_POINT] = NUMBER_FRACTION, [NUMBER_E] = NUMBER_EXPONENT,
            [NUMBER_SIGN] = NUMBER_EXPONENT,    [NUMBER_DIGITS] = NUMBER_DIGITS,  [NUMBER_FRACTION] = NUMBER_FRACTION,
            [NUMBER_EXPONENT] = NUMBER_EXPONENT};
        if (at == NUMBER_ZERO) return false;
        j->number = at == NUMBER_MINUS && byte == '0' ? NUMBER_ZERO : after[at];
        return true;
    }
    const bool whole = at == NUMBER_ZERO || at == NUMBER_DIGITS;
    if (byte == '.' && whole)
        j->number = NUMBER_POINT;
    else if ((byte == 'e' || byte == 'E') && (whole || at == NUMBER_FRACTION))
        j->number = NUMBER_E;
    else if ((byte == '+' || byte == '-') && at == NUMBER_E)
        j->number = NUMBER_SIGN;
    else
        return false;
    return true;
}

/* ---- Values ---- */

static reply_verdict begin_value(reply_json *j, char byte) {
    switch (byte) {
    case '{': return open(j, true);
    case '[': return j->depth ? open(j, false) : REPLY_BROKEN;
    default: break;
    }
    if (j->depth == 0) return REPLY_BROKEN;
    j->literal = byte == 't' ? "rue" : byte == 'f' ? "alse" : byte == 'n' ? "ull" : NULL;
    if (j->literal) return go(j, JSON_IN_LITERAL);
    if (byte == '"') {
        j->in_key = false;
        return go(j, JSON_IN_STRING);
    }
    return byte == '-' || is_digit(byte) ? begin_number(j, byte) : REPLY_BROKEN;
}

static reply_verdict begin_key(reply_json *j, char byte) {
    if (byte != '"') return REPLY_BROKEN;
    j->in_key = true;
    return go(j, JSON_IN_STRING);
}

static reply_verdict after_value(reply_json *j, char byte) {
    const bool object = in_object(j);
    if (byte == ',') return go(j, object ? JSON_AT_KEY : JSON_AT_VALUE);
    return byte == (object ? '}' : ']') ? close(j) : REPLY_BROKEN;
}

static reply_verdict read_string(reply_json *j, char byte) {
    if (byte == '\\') return go(j, JSON_IN_ESCAPE);
    return go(j, byte != '"' ? JSON_IN_STRING : j->in_key ? JSON_AT_COLON : JSON_AFTER_VALUE);
}

static reply_verdict read_escape(reply_json *j, char byte) {
    if (j->n_hex > 0) {
        if (!is_hex(byte)) return REPLY_BROKEN;
        return go(j, --j->n_hex > 0 ? JSON_IN_ESCAPE : JSON_IN_STRING);
    }
    if (byte == 'u') {
        j->n_hex = 4;
        return REPLY_MORE;
    }
    return byte && strchr("\"\\/bfnrt", byte) ? go(j, JSON_IN_STRING) : REPLY_BROKEN;
}

reply_verdict reply_json_read(reply_json *j, char byte) {
    switch (j->state) {
    case JSON_IN_STRING: return read_string(j, byte);
    case JSON_IN_ESCAPE: return read_escape(j, byte);
    case JSON_IN_LITERAL:
        if (byte != *j->literal) return REPLY_BROKEN;
        return go(j, *++j->literal ? JSON_IN_LITERAL : JSON_AFTER_VALUE);
    case JSON_IN_NUMBER:
        if (read_number(j, byte)) return REPLY_MORE;
        if (j->number < NUMBER_ZERO) return REPLY_BROKEN;
        j->state = JSON_AFTER_VALUE;
        break;
    default: break;
    }
    if (is_space(byte)) return j->depth > 0 ? REPLY_MORE : REPLY_BROKEN;
    switch (j->state) {
    case JSON_AT_FIRST_KEY: return byte == '}' ? close(j) : begin_key(j, byte);
    case JSON_AT_KEY: return begin_key(j, byte);
    case JSON_AT_COLON: return byte == ':' ? go(j, JSON_AT_VALUE) : REPLY_BROKEN;
    case JSON_AT_FIRST_ITEM: return byte == ']' ? close(j) : begin_value(j, byte);
    case JSON_AT_VALUE: return begin_value(j, byte);
    default: return after_value(j, byte);
    }
}
