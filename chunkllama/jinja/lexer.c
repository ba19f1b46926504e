/*
 * Cuts a template into tokens. White space control happens here: '-' inside a tag drops all white space on that side, a line
 * break directly after a statement or comment is dropped (trim_blocks), and so is the white space before one that begins its
 * line (lstrip_blocks); '+' keeps both.
 */
#define _GNU_SOURCE /* memmem */
#include "syntax.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn static void fail(cj_lexer *l, const char *what) {
    l->r->line = l->line;
    cj_fail(l->r, CL_ERR_FORMAT, "%s", what);
}

/* Fail because of a part of Jinja that is not supported. */
_Noreturn static void refuse(cj_lexer *l, const char *what) {
    l->r->line = l->line;
    cj_fail(l->r, CL_ERR_UNSUPPORTED, "%s", what);
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
        t = cj_strip(l->r, t, NULL, CJ_RIGHT);
    else if (sign != '+' && lstrips) {
        size_t line = t.size;
        while (line > 0 && t.data[line - 1] != '\n') line--;
        const cj_text begin = cj_part(t, line, t.size);
        if ((line > 0 || l->new_line) && cj_strip(l->r, begin, NULL, CJ_LEFT).size == 0) t.size = line;
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

static bool is_name_char(char c) { return c == '_' || isalnum((unsigned char)c); }

static void read_number(cj_lexer *l, cj_token *token) {
    const size_t begin = l->at;
    const bool of_index = begin > 0 && l->text[begin - 1] == '.'; /* a.0.1 is (a.0).1 */
    char digits[24] = "";
    size_t end = begin;
    while (isdigit((unsigned char)l->text[end])) end++;
    if (is_name_char(l->text[end]) || (!of_index && l->text[end] == '.' && isdigit((unsigned char)l->text[end + 1])))
        refuse(l, "numbers that are not written in decimal digits alone are not supported");
    if (end - begin < sizeof digits) memcpy(digits, l->text + begin, end - begin);
    errno = 0;
    token->value = cj_int(strtoll(digits, NULL, 10));
    if (end - begin >= sizeof digits || errno == ERANGE) fail(l, "a number is beyond 64 bits");
    token->kind = CJ_T_NUMBER;
    token->text = (cl_str){l->text + begin, end - begin};
    move(l, end);
}

/* The string between quotes, with its escapes resolved as Python does. */
static cj_text unescaped(cj_lexer *l, const char *at, const char *end) {
    static const char names[] = "a\ab\bf\fn\nr\rt\tv\v\\\\''\"\"";
    if (!memchr(at, '\\', (size_t)(end - at))) return cj_own((cl_str){at, (size_t)(end - at)});
    char *out = cj_alloc(l->r, (size_t)(end - at), 1);
    size_t n = 0;
    while (at < end) {
        if (*at != '\\') {
            out[n++] = *at++;
            continue;
        }
        const char *name = names;
        at++; /* the string's end is not escaped */
        while (*name && *name != *at) name += 2;
        if (!*name) refuse(l, "escapes of strings other than \\a \\b \\f \\n \\r \\t \\v \\\\ \\' \\\" are not supported");
        out[n++] = name[1];
        at++;
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
    else if (is_name_char(c)) {
        size_t end = l->at;
        while (is_name_char(l->text[end])) end++;
        token.kind = CJ_T_NAME;
        token.text = (cl_str){l->text + l->at, end - l->at};
        move(l, end);
    } else
        read_operator(l, &token);
    return token;
}
