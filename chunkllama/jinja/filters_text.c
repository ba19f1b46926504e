/* The filters of strings, and those that make strings and integers. */
#include <errno.h>
#include <stdlib.h>

#include "builtins.h"
#include "print.h"

static cj_value changed_case(cj_run *r, const cj_args *a, cj_case how) {
    return cj_string(cj_change_case(r, cj_arg_str(r, a, 0), how));
}
static cj_value upper(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_UPPER); }
static cj_value lower(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_LOWER); }
static cj_value title(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_WORDS); }
static cj_value capitalize(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_CAPITALIZE); }

static cj_value string(cj_run *r, const cj_args *a) { return cj_string(cj_arg_str(r, a, 0)); }

static cj_value trim(cj_run *r, const cj_args *a) {
    return cj_string(cj_strip(r, cj_arg_str(r, a, 0), NULL, CJ_LEFT | CJ_RIGHT));
}

static cj_value replace(cj_run *r, const cj_args *a) {
    return cj_string(cj_replace(r, cj_arg_str(r, a, 0), cj_arg_str(r, a, 1), cj_arg_str(r, a, 2)));
}

/* n spaces. */
static cj_text spaces(cj_run *r, int64_t n) {
    cj_builder b = {.r = r};
    cj_put_times(&b, cj_foreign_of(" "), n > 0 ? (size_t)n : 0);
    return cj_built(&b);
}

static cj_value indent(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_text(r, a, 0), width = spaces(r, cj_arg_int(r, a, 1, 4));
    const bool first = cj_truth(&a->at[2]);
    cj_builder b = {.r = r};
    cj_step_text(r, t.size);
    for (size_t at = 0, line = 0; line == 0 || at <= t.size; line++) {
        size_t end = at, size = 0;
        while (end < t.size && (size = cj_line_break(t, end)) == 0) end += cj_char_size(t.data[end]);
        if (line > 0) cj_put_char(&b, '\n');
        if (line == 0 ? first : end > at) cj_put(&b, width);
        cj_put(&b, cj_part(t, at, end));
        if (end == t.size) break;
        at = end + size;
    }
    return cj_string(cj_built(&b));
}

static cj_value safe(cj_run *r, const cj_args *a) {
    cj_text t = cj_arg_str(r, a, 0);
    t.markup = true;
    return cj_string(t);
}

/* ---- Integers ---- */

/* Text that is no number becomes 0, as in Jinja. */
static cj_value int_of_text(cj_run *r, cj_text t) {
    char digits[24] = "";
    t = cj_strip(r, t, NULL, CJ_LEFT | CJ_RIGHT);
    size_t n_number = 0, n_digits = 0;
    cj_step_text(r, t.size);
    for (size_t i = 0; i < t.size; i++) {
        n_digits += t.data[i] >= '0' && t.data[i] <= '9';
        n_number += t.data[i] && strchr("0123456789+-._eE", t.data[i]);
    }
    if (n_number < t.size || n_digits == 0) return cj_int(0);
    if (n_digits < t.size - (t.data[0] == '-' || t.data[0] == '+'))
        cj_fail(r, CL_ERR_UNSUPPORTED, "filter 'int' supports no strings but those of digits");
    errno = 0;
    if (t.size < sizeof digits) memcpy(digits, t.data, t.size);
    const long long i = strtoll(digits, NULL, 10);
    if (t.size >= sizeof digits || errno == ERANGE) cj_fail_long(r);
    return cj_int(i);
}

static cj_value int_(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    int64_t i;
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (v->kind == CJ_STRING) return int_of_text(r, v->text);
    if (v->kind == CJ_FLOAT) cj_fail(r, CL_ERR_UNSUPPORTED, "filter 'int' does not support floats");
    if (v->kind == CJ_LONG_NUMBER) cj_fail_long(r);
    return cj_int(cj_is_int(v, &i) ? i : 0);
}

/* ---- JSON ---- */

static cj_value tojson(cj_run *r, const cj_args *a) {
    cj_builder b = {.r = r};
    cj_json_style style = {.ascii = cj_truth(&a->at[1])};
    cj_text indent;
    if (cj_has(a, 2) && a->at[2].kind != CJ_NONE) {
        indent = spaces(r, cj_arg_int(r, a, 2, 0));
        style.indent = &indent;
    }
    style.item = cj_foreign_of(style.indent ? "," : ", ");
    style.colon = cj_foreign_of(": ");
    if (cj_has(a, 3) && a->at[3].kind != CJ_NONE) {
        const cj_list *pair = cj_elements(r, &a->at[3]);
        if (pair->n != 2 || pair->at[0].kind != CJ_STRING || pair->at[1].kind != CJ_STRING)
            cj_fail(r, CL_ERR_ARG, "the separators of filter 'tojson' must be two strings");
        style.item = pair->at[0].text;
        style.colon = pair->at[1].text;
    }
    cj_put_json(&b, &a->at[0], &style);
    return cj_string(cj_built(&b));
}

const cj_builtin cj_filters_of_text[] = {
    {"upper", upper, "s", 1},
    {"lower", lower, "s", 1},
    {"title", title, "s", 1},
    {"capitalize", capitalize, "s", 1},
    {"string", string, "s", 1},
    {"safe", safe, "value", 1},
    {"trim", trim, "value", 1},
    {"replace", replace, "s old new", 3},
    {"indent", indent, "s width first", 1},
    {"int", int_, "value", 1},
    {"tojson", tojson, "x ensure_ascii indent separators", 1},
    {0},
};
