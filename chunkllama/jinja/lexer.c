/*
 * Cuts a template into tokens. White space control happens here: '-' inside a tag drops all white space on that side, a line
 * break directly after a statement or comment is dropped (trim_blocks), and so is the white space before one that begins its
 * line (lstrip_blocks); '+' keeps both.
 */
#define _GNU_SOURCE /* memmem */
#include "syntax.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn static void fail(cj_lexer *l, const char *what) {
    l->r->line = l->line;
    cj_fail(l->r, CL_ERR_FORMAT, "%s", what);
}

cj_lexer cj_lexer_of(cj_run *r, const char *text, size_t size) {
    if (cl_utf8_valid(text, size) != size) cj_fail(r, CL_ERR_FORMAT, "the template is not UTF-8");
    char *copy = cj_alloc(r, size + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n') continue;
        copy[n++] = text[i];
        if (text[i] == '\r') copy[n - 1] = '\n';
    }
    if (n > 0 && copy[n - 1] == '\n') n--; /* Jinja drops one line break at the end */
    copy[n] = 0;
    return (cj_lexer){.r = r, .text = copy, .size = n, .line = 1, .new_line = true};
}

static cl_str rest(const cj_lexer *l) { return (cl_str){l->text + l->at, l->size - l->at}; }

static bool begins(const cj_lexer *l, size_t at, const char *s) {
    return l->size - at >= strlen(s) && memcmp(l->text + at, s, strlen(s)) == 0;
}

/* Move on to an offset, and count the lines. */
static void move(cj_lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->text[l->at] == '\n';
}

static size_t after_spaces(const cj_lexer *l, size_t at) {
    const cj_text text = {.data = l->text, .size = l->size};
    while (at < l->size && cj_is_space(cj_char(text, at))) at += cj_char_size(l->text[at]);
    return at;
}

/* Pass the end of a tag of two characters, with its '-' or '+' before it, and the white space that this drops. */
static void pass_end(cj_lexer *l, size_t at, bool trims) {
    const char sign = l->text[at];
    size_t end = at + (sign == '-' || (sign == '+' && trims) ? 3 : 2);
    if (sign == '-')
        end = after_spaces(l, end);
    else if (trims && sign != '+' && end < l->size && l->text[end] == '\n')
        end++;
    l->new_line = l->text[end - 1] == '\n'; /* a new line begins here */
    move(l, end);
}

/* The text [at, end) before a tag with its sign: '-', '+' or another character. lstrips: the tag is no {{. */
static cl_str text_before(const cj_lexer *l, size_t end, char sign, bool lstrips) {
    cj_text t = {.data = l->text + l->at, .size = end - l->at};
    if (sign == '-')
        t = cj_strip(t, NULL, CJ_RIGHT);
    else if (sign != '+' && lstrips) {
        size_t line = t.size;
        while (line > 0 && t.data[line - 1] != '\n') line--;
        const cj_text begin = cj_part(t, line, t.size);
        if ((line > 0 || l->new_line) && cj_strip(begin, NULL, CJ_LEFT).size == 0) t.size = line;
    }
    return (cl_str){t.data, t.size};
}

/* The offset of the next tag's first character, or the end. */
static size_t next_tag(const cj_lexer *l) {
    for (size_t at = l->at; at + 1 < l->size; at++) {
        const char *brace = memchr(l->text + at, '{', l->size - at);
        if (!brace) break;
        at = (size_t)(brace - l->text);
        const char c = at + 1 < l->size ? l->text[at + 1] : 0;
        if (c == '%' || c == '{' || c == '#') return at;
    }
    return l->size;
}

static void pass_comment(cj_lexer *l, size_t tag) {
    size_t at = tag + 2;
    if (at < l->size && (l->text[at] == '-' || l->text[at] == '+')) at++;
    const char *end = at < l->size ? memmem(l->text + at, l->size - at, "#}", 2) : NULL;
    if (!end) fail(l, "the comment has no end");
    size_t end_at = (size_t)(end - l->text);
    if (end_at > at && (end[-1] == '-' || end[-1] == '+')) end_at--;
    pass_end(l, end_at, true);
}

/* The next piece of text, or the beginning of a tag. */
static cj_token next_in_data(cj_lexer *l) {
    for (;;) {
        cj_token token = {.kind = CJ_T_DATA, .line = l->line};
        if (l->at >= l->size) return (cj_token){.kind = CJ_T_END, .line = l->line};
        const size_t tag = next_tag(l);
        if (tag == l->size) {
            token.text = rest(l);
            move(l, l->size);
            return token;
        }
        const bool prints = l->text[tag + 1] == '{';
        const char sign = tag + 2 < l->size ? l->text[tag + 2] : 0;
        if (tag > l->at) {
            token.text = text_before(l, tag, sign, !prints);
            move(l, tag);
            l->new_line = false; /* the tag does not begin its line for the next call, but it has been looked at */
            if (token.text.size > 0) return token;
        }
        if (l->text[tag + 1] == '#') {
            pass_comment(l, tag);
            continue;
        }
        move(l, tag + (sign == '-' || sign == '+' ? 3 : 2));
        l->state = prints ? CJ_IN_PRINT : CJ_IN_STATEMENT;
        token.kind = prints ? CJ_T_PRINT : CJ_T_OPEN;
        return token;
    }
}

/* ---- Inside tags ---- */

static bool is_name_char(cj_text t, size_t at) {
    const int32_t c = cj_char(t, at);
    return c == '_' || cj_is_alpha(c) || cj_is_digit(c);
}

static bool is_digit_of(char c, int base) {
    if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
    return c >= '0' && c < '0' + (base < 10 ? base : 10);
}

/* The end of digits at an offset, which may be separated by '_', or the offset if there are none. */
static size_t digits_end(const cj_lexer *l, size_t at, int base) {
    size_t end = at;
    while (end < l->size) {
        if (is_digit_of(l->text[end], base))
            end++;
        else if (end > at && l->text[end] == '_' && end + 1 < l->size && is_digit_of(l->text[end + 1], base))
            end += 2;
        else
            break;
    }
    return end;
}

/* The end of a number with a fraction or an exponent at an offset, or the offset. */
static size_t real_end(const cj_lexer *l, size_t at) {
    if (at > 0 && l->text[at - 1] == '.') return at; /* a.0.1 is (a.0).1 */
    const size_t whole = digits_end(l, at, 10);
    size_t end = whole;
    if (end < l->size && l->text[end] == '.' && digits_end(l, end + 1, 10) > end + 1) end = digits_end(l, end + 1, 10);
    if (end < l->size && (l->text[end] == 'e' || l->text[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < l->size && (l->text[exponent] == '+' || l->text[exponent] == '-')) exponent++;
        if (digits_end(l, exponent, 10) > exponent) end = digits_end(l, exponent, 10);
    }
    return end > whole ? end : at;
}

static void read_number(cj_lexer *l, cj_token *token) {
    size_t end = real_end(l, l->at), begin = l->at;
    const bool real = end > begin;
    int base = 10;
    if (!real) {
        const char kind = begin + 1 < l->size && l->text[begin] == '0' ? l->text[begin + 1] | 0x20 : 0;
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        if (base != 10 && digits_end(l, begin + 2, base) > begin + 2)
            begin += 2;
        else
            base = 10;
        end = digits_end(l, begin, base);
        if (base == 10 && l->text[begin] == '0') /* only zeros may follow */
            for (end = begin + 1; end < l->size && l->text[end] == '0';) end++;
    }
    char digits[400];
    size_t n = 0;
    for (size_t i = begin; i < end; i++)
        if (l->text[i] != '_' && n < sizeof digits) digits[n++] = l->text[i];
    if (n == sizeof digits) fail(l, "a number has more than 399 digits");
    digits[n] = 0;
    errno = 0;
    token->value = real ? cj_float(strtod(digits, NULL)) : cj_int(strtoll(digits, NULL, base));
    if (!real && errno == ERANGE) fail(l, "an integer is beyond 64 bits");
    token->kind = CJ_T_NUMBER;
    token->text = (cl_str){l->text + l->at, end - l->at};
    move(l, end);
}

/* The code point of n hexadecimal digits. */
static int32_t read_hex(cj_lexer *l, const char *at, const char *end, int n) {
    int64_t c = 0;
    for (int i = 0; i < n; i++) {
        if (at + i >= end || !is_digit_of(at[i], 16)) fail(l, "an escape of a string lacks hexadecimal digits");
        c = c * 16 + (at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) fail(l, "an escape of a string is no character of Unicode");
    return (int32_t)c;
}

/* The string between quotes, with its escapes resolved as Python does. */
static cj_text unescaped(cj_lexer *l, const char *at, const char *end) {
    static const char names[] = "a\ab\bf\fn\nr\rt\tv\v\\\\''\"\"";
    if (!memchr(at, '\\', (size_t)(end - at))) return cj_own((cl_str){at, (size_t)(end - at)});
    char *out = cj_alloc(l->r, (size_t)(end - at) + 4, 1);
    size_t n = 0;
    while (at < end) {
        if (*at != '\\') {
            out[n++] = *at++;
            continue;
        }
        const char c = *++at; /* the string's end is not escaped */
        const char *name = names;
        while (*name && *name != c) name += 2;
        at++;
        if (*name) {
            out[n++] = name[1];
        } else if (c == '\n') {
            continue;
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            n += cj_encode(read_hex(l, at, end, digits), out + n);
            at += digits;
        } else if (c >= '0' && c <= '7') {
            int code = c - '0';
            for (int i = 0; i < 2 && at < end && *at >= '0' && *at <= '7'; i++) code = code * 8 + *at++ - '0';
            n += cj_encode(code, out + n);
        } else if (c == 'N') {
            fail(l, "names of characters in strings are not supported; write \\u and four digits");
        } else {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    return cj_own((cl_str){out, n});
}

static void read_string(cj_lexer *l, cj_token *token) {
    const char quote = l->text[l->at];
    size_t end = l->at + 1;
    while (end < l->size && l->text[end] != quote) end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->size) fail(l, "a string has no end");
    token->kind = CJ_T_STRING;
    token->value = cj_string(unescaped(l, l->text + l->at + 1, l->text + end));
    token->text = (cl_str){l->text + l->at, end + 1 - l->at};
    move(l, end + 1);
}

static void read_operator(cj_lexer *l, cj_token *token) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    char message[64], shown[8];
    size_t i = 0, n = sizeof operators / sizeof *operators;
    while (i < n && !begins(l, l->at, operators[i])) i++;
    if (i == n) {
        cl_str_show((cl_str){l->text + l->at, cj_char_size(l->text[l->at])}, shown, sizeof shown);
        snprintf(message, sizeof message, "unexpected character '%s'", shown);
        fail(l, message);
    }
    const char c = operators[i][0];
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == sizeof l->brackets) {
            l->r->line = l->line;
            cj_fail(l->r, CL_ERR_LIMIT, "brackets are nested deeper than the allowed %zu levels", sizeof l->brackets);
        }
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_brackets == 0 || l->brackets[--l->n_brackets] != c) {
            snprintf(message, sizeof message, "unexpected '%c'", c);
            fail(l, message);
        }
    }
    token->kind = CJ_T_OPERATOR;
    memcpy(token->op, operators[i], strlen(operators[i]) + 1);
    token->text = (cl_str){l->text + l->at, strlen(operators[i])};
    move(l, l->at + token->text.size);
}

/* Whether the tag ends here; passes its end. */
static bool ends_tag(cj_lexer *l) {
    if (l->n_brackets > 0) return false;
    const bool prints = l->state == CJ_IN_PRINT;
    const size_t at = l->at;
    const bool has_sign = l->text[at] == '-' || (l->text[at] == '+' && !prints);
    if (!begins(l, at + has_sign, prints ? "}}" : "%}")) return false;
    pass_end(l, at, !prints);
    l->state = CJ_IN_DATA;
    return true;
}

cj_token cj_next_token(cj_lexer *l) {
    if (l->state == CJ_IN_DATA) return next_in_data(l);
    const cj_text text = {.data = l->text, .size = l->size};
    move(l, after_spaces(l, l->at));
    cj_token token = {.line = l->line};
    if (l->at >= l->size) fail(l, l->state == CJ_IN_PRINT ? "'{{' has no '}}'" : "'{%' has no '%}'");
    const cj_lexer_state state = l->state;
    const char c = l->text[l->at];
    if (ends_tag(l))
        token.kind = state == CJ_IN_PRINT ? CJ_T_PRINT_END : CJ_T_CLOSE;
    else if (c >= '0' && c <= '9')
        read_number(l, &token);
    else if (c == '\'' || c == '"')
        read_string(l, &token);
    else if (is_name_char(text, l->at)) {
        size_t end = l->at;
        while (end < l->size && is_name_char(text, end)) end += cj_char_size(l->text[end]);
        token.kind = CJ_T_NAME;
        token.text = (cl_str){l->text + l->at, end - l->at};
        move(l, end);
    } else
        read_operator(l, &token);
    return token;
}
