/* The methods of strings. */
#include "builtins.h"
#include "print.h"

static cj_text self(const cj_args *a) { return a->at[0].text; }

/* ---- Case and white space ---- */

static cj_value upper(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_UPPER)); }
static cj_value lower(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_LOWER)); }
static cj_value title(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_TITLE)); }
static cj_value capitalize(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_CAPITALIZE)); }

static cj_value stripped(cj_run *r, const cj_args *a, unsigned sides) {
    if (!cj_has(a, 1) || a->at[1].kind == CJ_NONE) return cj_string(cj_strip(r, self(a), NULL, sides));
    const cj_text chars = cj_arg_text(r, a, 1);
    return cj_string(cj_strip(r, self(a), &chars, sides));
}

static cj_value strip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_LEFT | CJ_RIGHT); }
static cj_value lstrip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_LEFT); }
static cj_value rstrip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_RIGHT); }

/* ---- Parts ---- */

static cj_value startswith(cj_run *r, const cj_args *a) {
    const cj_text t = self(a), affix = cj_arg_text(r, a, 1);
    return cj_bool(affix.size <= t.size && cj_text_equal(r, cj_part(t, 0, affix.size), affix));
}

static cj_value endswith(cj_run *r, const cj_args *a) {
    const cj_text t = self(a), affix = cj_arg_text(r, a, 1);
    return cj_bool(affix.size <= t.size && cj_text_equal(r, cj_part(t, t.size - affix.size, t.size), affix));
}

static cj_value replace(cj_run *r, const cj_args *a) {
    return cj_string(cj_replace(r, self(a), cj_arg_text(r, a, 1), cj_arg_text(r, a, 2)));
}

static cj_value split(cj_run *r, const cj_args *a) {
    const cj_text separator = cj_arg_text(r, a, 1);
    int64_t left = cj_arg_int(r, a, 2, -1); /* < 0: no limit */
    cj_list *list = cj_list_new(r, 0);
    cj_text t = self(a);
    if (separator.size == 0) cj_fail(r, CL_ERR_ARG, "the separator is empty");
    for (;; left -= left > 0) {
        const size_t at = left == 0 ? SIZE_MAX : cj_find(r, t, separator, 0);
        cj_list_add(r, list, cj_string(cj_part(t, 0, at == SIZE_MAX ? t.size : at)));
        if (at == SIZE_MAX) return cj_sequence(CJ_LIST, list);
        t = cj_part(t, at + separator.size, t.size);
    }
}

/* Fields are '{}' alone; '{{' and '}}' stand for a brace. */
static cj_value format(cj_run *r, const cj_args *a) {
    const cj_text t = self(a);
    cj_builder b = {.r = r};
    size_t used = 1;
    for (size_t at = 0; at < t.size; at++) {
        const char c = t.data[at], next = at + 1 < t.size ? t.data[at + 1] : 0;
        if ((c != '{' && c != '}') || c == next) {
            cj_put(&b, cj_part(t, at, at + 1));
            at += c == '{' || c == '}';
            continue;
        }
        if (c != '{' || next != '}') cj_fail(r, CL_ERR_UNSUPPORTED, "fields of str.format other than '{}' are not supported");
        if (used >= a->n) cj_fail(r, CL_ERR_ARG, "str.format has no value for a field");
        cj_put_str(&b, &a->at[used++]);
        at++;
    }
    return cj_string(cj_built(&b));
}

const cj_builtin cj_str_methods[] = {
    {"upper", upper, "-", 1},
    {"lower", lower, "-", 1},
    {"title", title, "-", 1},
    {"capitalize", capitalize, "-", 1},
    {"strip", strip, "- -", 1},
    {"lstrip", lstrip, "- -", 1},
    {"rstrip", rstrip, "- -", 1},
    {"startswith", startswith, "- -", 2},
    {"endswith", endswith, "- -", 2},
    {"replace", replace, "- - -", 3},
    {"split", split, "- sep maxsplit", 2},
    {"format", format, NULL, 0},
    {0},
};
