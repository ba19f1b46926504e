/* Writes values as Python prints them, and as json.dumps does. Text that is written between strings counts as the caller's. */
#include "print.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* ---- Numbers ---- */

/* The shortest digits that give the same number again; with an exponent below 1e-4 and from 1e16 on. */
static void put_float(cj_builder *b, double f) {
    char buf[32];
    int digits = fabs(f) < DBL_MIN ? 1 : 15; /* a number of 15 digits stays as it is, but for zeros at its end */
    for (;; digits++) {
        cj_steps(b->r, CJ_SLOW);
        snprintf(buf, 32, "%.*e", digits - 1, f);
        if (digits == 17 || strtod(buf, NULL) == f) break;
    }
    for (const char *end = strchr(buf, 'e'); digits > 1 && end[-1] == '0'; end--) digits--;
    snprintf(buf, 32, "%.*e", digits - 1, f);
    const int exponent = atoi(strchr(buf, 'e') + 1);
    /* In this range without an exponent, of which Python, too, writes at least two digits. */
    if (exponent >= -4 && exponent < 16) snprintf(buf, 32, "%.*f", exponent < digits - 1 ? digits - 1 - exponent : 1, f);
    cj_put_foreign(b, buf);
}

static void put_int(cj_builder *b, int64_t i) {
    char buf[32];
    snprintf(buf, sizeof buf, "%" PRId64, i);
    cj_put_foreign(b, buf);
}

/* ---- As Python ---- */

/* Whether Python's repr writes a character as it is. */
static bool is_printable(int32_t c) {
    if (c < 0x7f) return c >= 0x20;
    const utf8proc_category_t category = utf8proc_category(c);
    return category != UTF8PROC_CATEGORY_CC && category != UTF8PROC_CATEGORY_CF && category != UTF8PROC_CATEGORY_CS &&
           category != UTF8PROC_CATEGORY_CO && category != UTF8PROC_CATEGORY_CN && category != UTF8PROC_CATEGORY_ZS &&
           category != UTF8PROC_CATEGORY_ZL && category != UTF8PROC_CATEGORY_ZP;
}

static void put_quoted(cj_builder *b, cj_text t) {
    const bool single = t.size > 0 && memchr(t.data, '\'', t.size), twice = t.size > 0 && memchr(t.data, '"', t.size);
    const char quote = single && !twice ? '"' : '\'';
    cj_put_char(b, quote);
    for (size_t at = 0, end; at < t.size; at = end) {
        end = at + cj_char_size(t.data[at]);
        const int32_t c = cj_char(t, at);
        char escape[12];
        if (c == quote || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (is_printable(c)) {
            cj_put(b, cj_part(t, at, end));
            continue;
        } else
            snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        cj_put_foreign(b, escape);
    }
    cj_put_char(b, quote);
}

static void put_elements(cj_builder *b, const cj_list *list, const char *open, const char *close) {
    cj_put_foreign(b, open);
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) cj_put_foreign(b, ", ");
        cj_put_repr(b, &list->at[i]);
    }
    cj_put_foreign(b, close);
}

static void put_dict(cj_builder *b, const cj_dict *dict) {
    cj_put_foreign(b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i > 0) cj_put_foreign(b, ", ");
        cj_put_repr(b, &dict->at[i].key);
        cj_put_foreign(b, ": ");
        cj_put_repr(b, &dict->at[i].value);
    }
    cj_put_foreign(b, "}");
}

void cj_put_repr(cj_builder *b, const cj_value *v) {
    cj_enter(b->r);
    cj_step(b->r);
    switch (v->kind) {
    case CJ_UNDEFINED: cj_put_foreign(b, "Undefined"); break;
    case CJ_NONE: cj_put_foreign(b, "None"); break;
    case CJ_BOOL: cj_put_foreign(b, v->boolean ? "True" : "False"); break;
    case CJ_INT: put_int(b, v->integer); break;
    case CJ_FLOAT: put_float(b, v->real); break;
    case CJ_LONG_NUMBER: cj_put(b, v->text); break;
    case CJ_STRING: put_quoted(b, v->text); break;
    case CJ_LIST: put_elements(b, v->list, "[", "]"); break;
    case CJ_TUPLE: put_elements(b, v->list, "(", v->list->n == 1 ? ",)" : ")"); break;
    case CJ_DICT: put_dict(b, v->dict); break;
    default: cj_fail(b->r, CL_ERR_UNSUPPORTED, "printing a value of type '%s' is not supported", cj_type(v));
    }
    cj_leave(b->r);
}

void cj_put_str(cj_builder *b, const cj_value *v) {
    if (v->kind == CJ_STRING)
        cj_put(b, v->text);
    else if (v->kind != CJ_UNDEFINED)
        cj_put_repr(b, v);
}

cj_text cj_str_of(cj_run *r, const cj_value *v) {
    if (v->kind == CJ_STRING) return v->text;
    cj_builder b = {.r = r};
    cj_put_str(&b, v);
    return cj_built(&b);
}

/* ---- As JSON ---- */

static void put_json_string(cj_builder *b, cj_text t, bool ascii) {
    static const char names[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    cj_put_char(b, '"');
    cj_step_text(b->r, t.size);
    size_t plain = 0; /* from here on nothing needs an escape */
    for (size_t at = 0, end; at < t.size; at = end) {
        const unsigned char first = (unsigned char)t.data[at];
        end = at + cj_char_size((char)first);
        if (first >= 0x20 && first != '"' && first != '\\' && (first < 0x7f || !ascii)) continue;
        cj_put(b, cj_part(t, plain, at));
        plain = end;
        const int32_t c = cj_char(t, at);
        const char *name = c > 0 && c < 0x80 ? strchr(names, c) : NULL;
        char escape[16];
        if (name)
            snprintf(escape, sizeof escape, "\\%c", name[1]);
        else if (c < 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        else
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800u + (((unsigned)c - 0x10000) >> 10),
                     0xdc00u + (((unsigned)c - 0x10000) & 0x3ff));
        cj_put_foreign(b, escape);
    }
    cj_put(b, cj_part(t, plain, t.size));
    cj_put_char(b, '"');
}

static void put_json(cj_builder *b, const cj_value *v, const cj_json_style *style, int level);

static void put_line(cj_builder *b, const cj_json_style *style, int level) {
    if (!style->indent) return;
    cj_put_char(b, '\n');
    cj_put_times(b, *style->indent, (size_t)level);
}

static void put_json_list(cj_builder *b, const cj_list *list, const cj_json_style *style, int level) {
    cj_put_char(b, '[');
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) cj_put(b, style->item);
        put_line(b, style, level + 1);
        put_json(b, &list->at[i], style, level + 1);
    }
    if (list->n > 0) put_line(b, style, level);
    cj_put_char(b, ']');
}

static void put_json_dict(cj_builder *b, const cj_dict *dict, const cj_json_style *style, int level) {
    cj_put_char(b, '{');
    for (size_t i = 0; i < dict->n; i++) {
        const cj_entry *entry = &dict->at[i];
        if (i > 0) cj_put(b, style->item);
        put_line(b, style, level + 1);
        if (entry->key.kind != CJ_STRING)
            cj_fail(b->r, CL_ERR_UNSUPPORTED, "keys of JSON that are no strings are not supported");
        put_json_string(b, entry->key.text, style->ascii);
        cj_put(b, style->colon);
        put_json(b, &entry->value, style, level + 1);
    }
    if (dict->n > 0) put_line(b, style, level);
    cj_put_char(b, '}');
}

static void put_json(cj_builder *b, const cj_value *v, const cj_json_style *style, int level) {
    cj_enter(b->r);
    cj_step(b->r);
    switch (v->kind) {
    case CJ_NONE: cj_put_foreign(b, "null"); break;
    case CJ_BOOL: cj_put_foreign(b, v->boolean ? "true" : "false"); break;
    case CJ_INT: put_int(b, v->integer); break;
    case CJ_FLOAT: put_float(b, v->real); break;
    case CJ_LONG_NUMBER: cj_put(b, v->text); break;
    case CJ_STRING: put_json_string(b, v->text, style->ascii); break;
    case CJ_LIST:
    case CJ_TUPLE: put_json_list(b, v->list, style, level); break;
    case CJ_DICT: put_json_dict(b, v->dict, style, level); break;
    case CJ_UNDEFINED: cj_fail_undefined(b->r, v);
    default: cj_fail(b->r, CL_ERR_ARG, "a value of type '%s' cannot be written as JSON", cj_type(v));
    }
    cj_leave(b->r);
}

void cj_put_json(cj_builder *b, const cj_value *v, const cj_json_style *style) { put_json(b, v, style, 0); }
