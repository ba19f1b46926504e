/* Python's two ways to fill values into a string: "%s" % value and "{}".format(value). */
#include "builtins.h"
#include "print.h"

#include <stdio.h>

/* ---- "%" ---- */

/* A conversion such as %-5.2f. */
typedef struct conversion {
    bool left, zero, plus, space, alternate;
    int width, precision; /* -1: not given */
    char type;
    cj_text key; /* %(key)s; no data: none */
} conversion;

_Noreturn static void fail_incomplete(cj_run *r) { cj_fail(r, CL_ERR_ARG, "a conversion with '%%' is incomplete or unknown"); }

static char char_at(cj_run *r, cj_text t, size_t at) {
    if (at >= t.size) fail_incomplete(r);
    return t.data[at];
}

static int read_size(cj_run *r, cj_text t, size_t *at) {
    int n = 0;
    while (char_at(r, t, *at) >= '0' && t.data[*at] <= '9') {
        n = n * 10 + t.data[(*at)++] - '0';
        if (n > 100) cj_fail(r, CL_ERR_LIMIT, "a width or precision with '%%' is above 100");
    }
    return n;
}

/* Read a conversion from the character after its '%' on; *at moves behind it. */
static conversion read_conversion(cj_run *r, cj_text t, size_t *at) {
    conversion c = {.width = -1, .precision = -1};
    if (char_at(r, t, *at) == '(') {
        const size_t end = cj_find(t, cj_foreign_of(")"), *at);
        if (end == SIZE_MAX) fail_incomplete(r);
        c.key = cj_part(t, *at + 1, end);
        *at = end + 1;
    }
    for (;; ++*at) {
        const char flag = char_at(r, t, *at);
        c.left |= flag == '-';
        c.zero |= flag == '0';
        c.plus |= flag == '+';
        c.space |= flag == ' ';
        c.alternate |= flag == '#';
        if (!flag || !strchr("-0+ #", flag)) break;
    }
    if (t.data[*at] >= '1' && t.data[*at] <= '9') c.width = read_size(r, t, at);
    if (char_at(r, t, *at) == '.') {
        ++*at;
        c.precision = read_size(r, t, at);
    }
    c.type = char_at(r, t, (*at)++);
    return c;
}

static void put_padded(cj_builder *b, const conversion *c, cj_text t) {
    const int n = (int)cj_n_chars(t), missing = c->width > n ? c->width - n : 0;
    if (!c->left) cj_put_times(b, cj_foreign_of(" "), (size_t)missing);
    cj_put(b, t);
    if (c->left) cj_put_times(b, cj_foreign_of(" "), (size_t)missing);
}

/* Let the C library print a number; its conversions are Python's. */
static void put_number(cj_builder *b, const conversion *c, const cj_value *v) {
    char pattern[32], text[512];
    int64_t i = 0;
    if (!cj_is_number(v)) cj_fail(b->r, CL_ERR_ARG, "'%%%c' needs a number, not '%s'", c->type, cj_type(v));
    const bool real = strchr("eEfFgG", c->type) != NULL;
    if (!real && !cj_is_int(v, &i)) {
        if (strchr("xXo", c->type) || !(v->real > -0x1p63 && v->real < 0x1p63))
            cj_fail(b->r, CL_ERR_ARG, "'%%%c' needs an integer", c->type);
        i = (int64_t)v->real;
    }
    const bool negative = strchr("xXo", c->type) && i < 0;
    if (negative) cj_fail(b->r, CL_ERR_UNSUPPORTED, "'%%%c' of a negative number is not supported", c->type);
    if (c->alternate) cj_fail(b->r, CL_ERR_UNSUPPORTED, "'#' with '%%' is not supported");
    snprintf(pattern, sizeof pattern, "%%%s%s%s%s*.*%s%c", c->left ? "-" : "", c->zero ? "0" : "", c->plus ? "+" : "",
             c->space ? " " : "", real ? "" : "ll", c->type == 'u' ? 'd' : c->type);
    const int width = c->width < 0 ? 0 : c->width;
    /* A negative precision counts as none. */
    const int n = real ? snprintf(text, sizeof text, pattern, width, c->precision, cj_to_double(v))
                       : snprintf(text, sizeof text, pattern, width, c->precision, (long long)i);
    if (n < 0 || (size_t)n >= sizeof text) cj_fail(b->r, CL_ERR_LIMIT, "a formatted number is longer than 500 characters");
    cj_put_foreign(b, text);
}

static void put_conversion(cj_builder *b, const conversion *c, const cj_value *v) {
    cj_builder repr = {.r = b->r};
    char code[4];
    cj_text t;
    int64_t i;
    switch (c->type) {
    case 's':
    case 'r':
        if (c->type == 'r')
            cj_put_repr(&repr, v);
        else
            cj_put_str(&repr, v);
        t = cj_built(&repr);
        if (c->precision >= 0 && (size_t)c->precision < cj_n_chars(t)) t = cj_part(t, 0, cj_offset(t, (size_t)c->precision));
        put_padded(b, c, t);
        return;
    case 'c':
        if (v->kind == CJ_STRING && cj_n_chars(v->text) == 1) {
            put_padded(b, c, v->text);
            return;
        }
        if (!cj_is_int(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
            cj_fail(b->r, CL_ERR_ARG, "'%%c' needs a character or its code");
        put_padded(b, c, cj_foreign((cl_str){code, cj_encode((int32_t)i, code)}));
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': put_number(b, c, v); return;
    default: fail_incomplete(b->r);
    }
}

cj_text cj_percent(cj_run *r, cj_text format, const cj_value *value) {
    cj_builder b = {.r = r};
    const bool tuple = value->kind == CJ_TUPLE;
    const cj_value *values = tuple ? value->list->at : value;
    const size_t n = tuple ? value->list->n : 1;
    size_t used = 0, done = 0;
    for (size_t at; (at = cj_find(format, cj_foreign_of("%"), done)) != SIZE_MAX; done = at) {
        cj_put(&b, cj_part(format, done, at));
        at++;
        const conversion c = read_conversion(r, format, &at);
        if (c.type == '%') {
            cj_put(&b, cj_part(format, at - 1, at));
        } else if (c.key.data) {
            if (value->kind != CJ_DICT) cj_fail(r, CL_ERR_ARG, "'%%(name)' needs a mapping");
            const cj_value *v = cj_dict_get_name(r, value->dict, c.key);
            if (!v) cj_fail(r, CL_ERR_ARG, "'%%(name)' names a key that the mapping lacks");
            put_conversion(&b, &c, v);
            used = n;
        } else {
            if (used == n) cj_fail(r, CL_ERR_ARG, "not enough values for the '%%' of a string");
            put_conversion(&b, &c, &values[used++]);
        }
    }
    cj_put(&b, cj_part(format, done, format.size));
    if (used < n && value->kind != CJ_DICT && value->kind != CJ_LIST &&
        value->kind != CJ_UNDEFINED) /* Python allows mappings */
        cj_fail(r, CL_ERR_ARG, "not all values are used by the '%%' of a string");
    return cj_built(&b);
}

/* ---- str.format ---- */

/* The value that a field such as 0, name, a.b or a[b] names; *automatic counts the fields without a name. */
static cj_value field_value(cj_run *r, cj_text field, const cj_args *args, int64_t *automatic) {
    size_t end = 0;
    while (end < field.size && field.data[end] != '.' && field.data[end] != '[') end++;
    const cj_text name = cj_part(field, 0, end);
    bool digits = true;
    int64_t index = 0;
    for (size_t i = 0; i < name.size; i++) {
        digits &= name.data[i] >= '0' && name.data[i] <= '9' && i < 9;
        index = digits ? index * 10 + name.data[i] - '0' : 0;
    }
    if ((name.size == 0 && *automatic < 0) || (name.size > 0 && digits && *automatic > 0))
        cj_fail(r, CL_ERR_ARG, "str.format takes its fields with numbers or without, not both");
    const cj_value *found = NULL;
    if (digits) {
        if (name.size == 0) index = (*automatic)++;
        if (name.size > 0) *automatic = -1;
        if (index < (int64_t)args->n) found = &args->at[index];
    }
    for (size_t i = 0; i < args->n_named && !digits; i++)
        if (cj_text_equal(args->names[i], name)) found = &args->named[i];
    if (!found) cj_fail(r, CL_ERR_ARG, "str.format has no value for a field");
    cj_value v = *found;
    while (end < field.size) {
        const bool item = field.data[end] == '[';
        size_t next = end + 1;
        while (next < field.size && (item ? field.data[next] != ']' : field.data[next] != '.' && field.data[next] != '['))
            next++;
        if (next == end + 1 || (item && next == field.size)) cj_fail(r, CL_ERR_ARG, "a field of str.format is malformed");
        const cj_value key = cj_string(cj_part(field, end + 1, next));
        v = item ? cj_path(r, &v, &key) : cj_attribute(r, &v, (cl_str){key.text.data, key.text.size});
        end = item ? next + 1 : next;
    }
    return v;
}

cj_text cj_format(cj_run *r, cj_text format, const cj_args *args) {
    cj_builder b = {.r = r};
    int64_t automatic = 0;
    for (size_t at = 0; at < format.size; at++) {
        const char c = format.data[at], next = at + 1 < format.size ? format.data[at + 1] : 0;
        if ((c != '{' && c != '}') || c == next) {
            cj_put(&b, cj_part(format, at, at + 1));
            at += c == next && (c == '{' || c == '}');
            continue;
        }
        const size_t end = c == '{' ? cj_find(format, cj_foreign_of("}"), at) : SIZE_MAX;
        if (end == SIZE_MAX) cj_fail(r, CL_ERR_ARG, "a single '%c' in the format of str.format", c);
        cj_text field = cj_part(format, at + 1, end);
        if (cj_find(field, cj_foreign_of(":"), 0) != SIZE_MAX || cj_find(field, cj_foreign_of("{"), 0) != SIZE_MAX)
            cj_fail(r, CL_ERR_UNSUPPORTED, "format specifications of str.format are not supported; use '%%'");
        const size_t bang = cj_find(field, cj_foreign_of("!"), 0);
        const char conversion = bang == SIZE_MAX ? 's' : bang + 2 == field.size ? field.data[bang + 1] : 0;
        if (conversion != 's' && conversion != 'r') cj_fail(r, CL_ERR_ARG, "a field of str.format has an unknown conversion");
        if (bang != SIZE_MAX) field = cj_part(field, 0, bang);
        const cj_value v = field_value(r, field, args, &automatic);
        if (conversion == 'r')
            cj_put_repr(&b, &v);
        else
            cj_put_str(&b, &v);
        at = end;
    }
    return cj_built(&b);
}
