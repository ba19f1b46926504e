/* Mends JSON texts before jansson parses them, and after it has written them. */
#define _GNU_SOURCE /* memmem */
#include "json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_doc.h"

/* U+10FFFF, which Unicode reserves for the inside of programs: a client's is replaced. */
#define MARK "\xf4\x8f\xbf\xbf"
enum { MARK_SIZE = sizeof MARK - 1 };

#define NUMBER "+-.0123456789Ee" /* the characters of numbers */

/* ---- Before parsing ---- */

typedef struct mender {
    const char *end;    /* of the text */
    const char *copied; /* the text before it is in `out` */
    char *out;          /* [size] NULL: nothing was replaced yet */
    size_t size;
    bool no_memory;
} mender;

static void put(mender *m, const char *bytes, size_t size) {
    memcpy(m->out + m->size, bytes, size);
    m->size += size;
}

/* Replace [from, to) by a text in three parts. */
static void replace(mender *m, const char *from, const char *to, const char *before, const char *text, const char *after) {
    enum { LONGEST = 3 }; /* times: the shortest such number, 1e999, becomes 16 bytes, and a separator follows: 17 for 6 */
    if (!m->out && !m->no_memory) m->out = malloc(LONGEST * (size_t)(m->end - m->copied) + 1);
    m->no_memory |= !m->out;
    if (m->no_memory) return;
    put(m, m->copied, (size_t)(from - m->copied));
    put(m, before, strlen(before));
    put(m, text, text == from ? (size_t)(to - from) : strlen(text));
    put(m, after, strlen(after));
    m->copied = to;
}

/* The code unit of the escape \uXXXX at `at`; -1: there is none. */
static int32_t code_unit(const char *at, const char *end) {
    int32_t unit = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = at[i] ? strchr(digits, at[i] >= 'A' && at[i] <= 'F' ? at[i] + 'a' - 'A' : at[i]) : NULL;
        if (!digit) return -1;
        unit = unit * 16 + (int32_t)(digit - digits);
    }
    return unit;
}

/* Pass an escape, and replace it if it is a lone surrogate, or U+10FFFF. Returns its end. */
static const char *mend_escape(mender *m, const char *at) {
    enum { HIGH = 0xd800, LOW = 0xdc00, AFTER = 0xe000 };
    const int32_t unit = code_unit(at, m->end);
    if (unit < HIGH || unit >= AFTER) return m->end - at < 2 ? m->end : at + 2; /* the digits of \uXXXX end nothing */
    const int32_t next = unit < LOW ? code_unit(at + 6, m->end) : -1;
    const bool is_pair = next >= LOW && next < AFTER;
    const char *end = at + (is_pair ? 12 : 6);
    if (!is_pair || (unit == LOW - 1 && next == AFTER - 1)) replace(m, at, end, "", "\\ufffd", "");
    return end;
}

/* Pass a string from behind its quote. Returns its end. */
static const char *mend_string(mender *m, const char *at) {
    while (at < m->end && *at != '"') {
        if (*at == '\\') {
            at = mend_escape(m, at);
        } else if (*at == MARK[0] && m->end - at >= MARK_SIZE && memcmp(at, MARK, MARK_SIZE) == 0) {
            replace(m, at, at + MARK_SIZE, "", "\xef\xbf\xbd", "");
            at += MARK_SIZE;
        } else {
            at++;
        }
    }
    return at < m->end ? at + 1 : m->end;
}

static const char *after_digits(const char *at, const char *end) {
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

/* Whether a number [at, end) is written as RFC 8259 says. *is_integer: without a fraction and an exponent. */
static bool is_number(const char *at, const char *end, bool *is_integer) {
    const char *whole = at + (*at == '-'), *next = after_digits(whole, end);
    if (next == whole || (*whole == '0' && next - whole > 1)) return false;
    *is_integer = next == end;
    if (next < end && *next == '.') {
        const char *fraction = next + 1;
        next = after_digits(fraction, end);
        if (next == fraction) return false;
    }
    if (next < end && (*next == 'e' || *next == 'E')) {
        const char *exponent = next + 1 + (next + 1 < end && (next[1] == '-' || next[1] == '+'));
        next = after_digits(exponent, end);
        if (next == exponent) return false;
    }
    return next == end;
}

/* Whether a number [at, end), which is valid and which another character follows, is beyond what jansson holds. */
static bool is_beyond(const char *at, const char *end, bool is_integer) {
    const size_t n_digits = (size_t)(end - at) - (*at == '-');
    if (is_integer && n_digits < 19) return false;
    if (is_integer && n_digits == 19)
        return memcmp(at + (*at == '-'), *at == '-' ? "9223372036854775808" : "9223372036854775807", 19) > 0;
    return is_integer || isinf(strtod(at, NULL));
}

/* Pass a number, and replace it if it is beyond 64 bits. One at the text's end is left, which is no JSON. Returns its end. */
static const char *mend_number(mender *m, const char *at) {
    const char *end = at;
    bool is_integer;
    while (end < m->end && *end && strchr(NUMBER, *end)) end++;
    if (end < m->end && is_number(at, end, &is_integer) && is_beyond(at, end, is_integer))
        replace(m, at, end, "{\"" MARK "\":\"", at, "\"}");
    return end;
}

char *cl_json_mended(const char *text, size_t size, size_t *mended_size, bool *no_memory) {
    mender m = {.end = text + size, .copied = text};
    const char *at = text;
    while (at < m.end && *at && strchr(" \t\r\n", *at)) at++;
    const bool is_alone = at == m.end || !*at || !strchr("[{\"", *at); /* one number is none of these objects */
    while (at < m.end && !is_alone) {
        if (*at == '"')
            at = mend_string(&m, at + 1);
        else if (*at == '-' || (*at >= '0' && *at <= '9'))
            at = mend_number(&m, at);
        else
            at++;
    }
    if (m.out) put(&m, m.copied, (size_t)(m.end - m.copied));
    *mended_size = m.size;
    *no_memory = m.no_memory;
    return m.out;
}

json_t *cl_json_load(const char *text, size_t size, size_t flags, json_error_t *wrong) {
    size_t mended_size;
    bool no_memory;
    char *mended = cl_json_mended(text, size, &mended_size, &no_memory);
    json_t *json = NULL;
    if (!no_memory) json = cl_json_parse(mended ? mended : text, mended ? mended_size : size, flags, wrong, &no_memory);
    free(mended);
    if (no_memory) *wrong = (json_error_t){.line = -1, .column = -1, .text = "memory is lacking"};
    return json;
}

/* ---- Values, and after writing ---- */

bool cl_json_is_number(const json_t *value, cl_str *number) {
    const json_t *text = json_object_size(value) == 1 ? json_object_get(value, MARK) : NULL;
    if (!text) return false;
    *number = (cl_str){json_string_value(text), json_string_length(text)};
    return true;
}

bool cl_json_is_object(const json_t *value) {
    cl_str number;
    return json_is_object(value) && !cl_json_is_number(value, &number);
}

size_t cl_json_restore(char *text, size_t size) {
    static const char open[] = "{\"" MARK "\":";
    enum { OPEN = sizeof open - 1 };
    char *to = text, *from = text, *const end = text + size, *found;
    while ((found = memmem(from, (size_t)(end - from), open, OPEN))) {
        char *number = memchr(found + OPEN, '"', (size_t)(end - found) - OPEN) + 1,
             *quote = memchr(number, '"', (size_t)(end - number));
        memmove(to, from, (size_t)(found - from));
        to += found - from;
        memmove(to, number, (size_t)(quote - number));
        to += quote - number;
        from = quote + 2; /* with the brace */
    }
    memmove(to, from, (size_t)(end - from));
    return size - (size_t)(from - to);
}

/*
 * A real [at, end) that jansson has written, with as few digits as it needs, in `digits`; false: it has no more. A locale's
 * comma is left out of account.
 */
static bool shorten(const char *at, const char *end, char digits[32]) {
    const double x = strtod(at, NULL);
    for (int precision = 15; precision < 17; precision++) {
        const int n = snprintf(digits, 32 - 2, "%.*g", precision, x);
        if (strtod(digits, NULL) != x || strspn(digits, NUMBER) != (size_t)n) continue;
        if (!strpbrk(digits, ".e")) stpcpy(digits + n, ".0");
        return strlen(digits) < (size_t)(end - at);
    }
    return false;
}

static const char *after_string(const char *at) {
    for (at++; *at && *at != '"'; at++) at += *at == '\\';
    return at + (*at != 0);
}

/* Whether a number [size] is a real. */
static bool is_real(const char *at, size_t size) { return memchr(at, '.', size) || memchr(at, 'e', size); }

/* jansson writes 17 digits, of which other readers round the last ones. */
static void shorten_reals(char *text) {
    char *to = text, digits[32];
    for (const char *at = text, *end; *at; at = end) {
        const size_t n_number = strspn(at, NUMBER);
        end = *at == '"' ? after_string(at) : at + (n_number > 0 ? n_number : 1);
        if (n_number > 16 && is_real(at, n_number) && shorten(at, end, digits)) {
            to = stpcpy(to, digits);
        } else {
            memmove(to, at, (size_t)(end - at));
            to += end - at;
        }
    }
    *to = 0;
}

/* Not by json_dumps: where jansson 2.14 cannot enlarge its text for a key, it leaves the key out. */
char *cl_json_dumps(const json_t *value, size_t flags) {
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size > 0 ? malloc(size + 1) : NULL;
    if (!text || json_dumpb(value, text, size, flags) != size) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    shorten_reals(text);
    text[cl_json_restore(text, strlen(text))] = '\0';
    return text;
}
