/* The filters of lists and dicts. */
#include "builtins.h"
#include "eval.h"
#include "print.h"

static cj_value list_of(cj_list *list) { return cj_sequence(CJ_LIST, list); }

static const cj_list *elements(cj_run *r, const cj_args *a) {
    const cj_list *list = cj_elements(r, &a->at[0]);
    cj_step_elements(r, list->n);
    return list;
}

static cj_value length(cj_run *r, const cj_args *a) { return cj_int((int64_t)cj_length(r, &a->at[0])); }

static cj_value default_(cj_run *r, const cj_args *a) {
    (void)r;
    const bool missing = a->at[0].kind == CJ_UNDEFINED || (cj_arg_bool(a, 2, false) && !cj_truth(&a->at[0]));
    if (!missing) return a->at[0];
    return cj_has(a, 1) ? a->at[1] : cj_string((cj_text){.data = "", .own = true});
}

static cj_value first(cj_run *r, const cj_args *a) {
    const cj_list *list = elements(r, a);
    if (list->n == 0) return cj_undefined(cj_own(cl_str_of("the first of no elements")));
    return list->at[0];
}

/* Python can go backwards through these. */
static bool is_reversible(const cj_value *v) {
    return v->kind == CJ_UNDEFINED || v->kind == CJ_STRING || (v->kind >= CJ_LIST && v->kind <= CJ_VIEW) || v->kind == CJ_DICT;
}

static cj_value last(cj_run *r, const cj_args *a) {
    if (!is_reversible(&a->at[0])) cj_fail(r, CL_ERR_ARG, "'%s' object is not reversible", cj_type(&a->at[0]));
    const cj_list *list = elements(r, a);
    if (list->n == 0) return cj_undefined(cj_own(cl_str_of("the last of no elements")));
    return list->at[list->n - 1];
}

static cj_value list(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_list *to = cj_list_new(r, from->n);
    for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, from->at[i]);
    return list_of(to);
}

static cj_value items(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    if (v->kind != CJ_DICT && v->kind != CJ_UNDEFINED) cj_fail(r, CL_ERR_ARG, "'%s' has no items", cj_type(v));
    const size_t n = v->kind == CJ_DICT ? v->dict->n : 0;
    cj_list *pairs = cj_list_new(r, n);
    for (size_t i = 0; i < n; i++) cj_list_add(r, pairs, cj_pair(r, v->dict->at[i].key, v->dict->at[i].value));
    return cj_iterator(pairs, "generator");
}

static cj_value reverse(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    const cj_list *from = elements(r, a);
    if (v->kind == CJ_STRING) {
        cj_builder b = {.r = r};
        for (size_t i = from->n; i-- > 0;) cj_put(&b, from->at[i].text);
        return cj_string(cj_built(&b));
    }
    cj_list *to = cj_list_new(r, from->n);
    for (size_t i = from->n; i-- > 0;) cj_list_add(r, to, from->at[i]);
    return is_reversible(v) ? cj_iterator(to, "reversed") : list_of(to);
}

static cj_value join(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    const cj_text separator = cj_has(a, 1) ? cj_arg_str(r, a, 1) : cj_foreign_of("");
    cj_builder b = {.r = r};
    for (size_t i = 0; i < from->n; i++) {
        const cj_value v = cj_path(r, &from->at[i], &a->at[2]);
        if (i > 0) cj_put(&b, separator);
        cj_put_str(&b, &v);
    }
    return cj_string(cj_built(&b));
}

static cj_value attr(cj_run *r, const cj_args *a) {
    const cj_text name = cj_arg_text(r, a, 1);
    if (a->at[0].kind == CJ_DICT && !cj_find_builtin(cj_dict_methods, (cl_str){name.data, name.size}))
        return cj_undefined(name);
    return cj_attribute(r, &a->at[0], (cl_str){name.data, name.size});
}

/* ---- Filters and tests by their names ---- */

/* A filter or test, whose name is the i-th argument, with the arguments after it. */
typedef struct call {
    const cj_builtin *builtin;
    const char *what;
    cj_args args; /* the first is set for each element */
    cj_value *at;
} call;

static call named_call(cj_run *r, const cj_args *a, size_t i, bool filter) {
    char shown[64];
    const cj_text name = cj_arg_text(r, a, i);
    const cl_str text = {name.data, name.size};
    call c = {.what = filter ? "filter" : "test"};
    c.builtin = filter ? cj_find_filter(text) : cj_find_test(text);
    if (!c.builtin) cj_fail(r, CL_ERR_ARG, "unknown %s '%s'", c.what, cl_str_show(text, shown, sizeof shown));
    c.args = *a;
    c.args.n = a->n - i;
    c.args.at = c.at = cj_alloc(r, c.args.n, sizeof *c.at);
    for (size_t k = 1; k < c.args.n; k++) c.at[k] = a->at[i + k];
    return c;
}

static cj_value run_call(cj_run *r, call *c, const cj_value *v) {
    cj_enter(r);
    c->at[0] = *v;
    const cj_value result = cj_run_builtin(r, c->builtin, c->what, &c->args);
    cj_leave(r);
    return result;
}

/* These filters accept any value that counts as false, such as none. */
static const cj_list *elements_if_true(cj_run *r, const cj_args *a) {
    static const cj_list none;
    return cj_truth(&a->at[0]) ? elements(r, a) : &none;
}

/* Each element with a default for attributes that are undefined. */
static cj_value mapped_attribute(cj_run *r, const cj_value *element, const cj_value *path, const cj_value *otherwise) {
    const cj_value v = cj_path(r, element, path);
    return v.kind == CJ_UNDEFINED && otherwise && otherwise->kind != CJ_NONE ? *otherwise : v;
}

static cj_value map(cj_run *r, const cj_args *a) {
    if (a->n == 0) cj_fail(r, CL_ERR_ARG, "filter 'map' needs a value");
    const cj_list *from = elements_if_true(r, a);
    cj_list *to = cj_list_new(r, from->n);
    const cj_value *path = NULL, *otherwise = NULL;
    for (size_t i = 0; i < a->n_named; i++) {
        if (cj_text_is(a->names[i], "attribute")) path = &a->named[i];
        if (cj_text_is(a->names[i], "default")) otherwise = &a->named[i];
    }
    if (from->n == 0) return cj_iterator(to, "generator");
    if (a->n == 1 && path) {
        if (a->n_named > 1u + (otherwise != NULL)) cj_fail(r, CL_ERR_ARG, "filter 'map' takes attribute and default");
        for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, mapped_attribute(r, &from->at[i], path, otherwise));
        return cj_iterator(to, "generator");
    }
    if (a->n == 1) cj_fail(r, CL_ERR_ARG, "filter 'map' needs the name of a filter, or an attribute");
    call c = named_call(r, a, 1, true);
    for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, run_call(r, &c, &from->at[i]));
    return cj_iterator(to, "generator");
}

/* The elements for which a test holds, or does not. by_attribute: the second argument says of which attribute. */
static cj_value select_elements(cj_run *r, const cj_args *a, bool wanted, bool by_attribute) {
    if (a->n < 1u + by_attribute) cj_fail(r, CL_ERR_ARG, "an argument is missing: the value or its attribute");
    const cj_list *from = elements_if_true(r, a);
    cj_list *to = cj_list_new(r, 0);
    const cj_value none = {.kind = CJ_ABSENT}, *path = by_attribute ? &a->at[1] : &none;
    const size_t test = 1 + by_attribute;
    if (from->n == 0) return cj_iterator(to, "generator");
    call c = {0};
    if (a->n > test) c = named_call(r, a, test, false);
    for (size_t i = 0; i < from->n; i++) {
        cj_value v = cj_path(r, &from->at[i], path);
        if (c.builtin) v = run_call(r, &c, &v);
        if (cj_truth(&v) == wanted) cj_list_add(r, to, from->at[i]);
    }
    return cj_iterator(to, "generator");
}

static cj_value select_(cj_run *r, const cj_args *a) { return select_elements(r, a, true, false); }
static cj_value reject(cj_run *r, const cj_args *a) { return select_elements(r, a, false, false); }
static cj_value selectattr(cj_run *r, const cj_args *a) { return select_elements(r, a, true, true); }
static cj_value rejectattr(cj_run *r, const cj_args *a) { return select_elements(r, a, false, true); }

/* ---- Order ---- */

/* What an element is ordered by: itself or an attribute, in lower case unless case matters. */
static cj_value key_of(cj_run *r, const cj_value *element, const cj_value *path, bool case_sensitive) {
    const cj_value v = cj_path(r, element, path);
    return v.kind == CJ_STRING && !case_sensitive ? cj_string(cj_change_case(r, v.text, CJ_LOWER)) : v;
}

typedef struct by_keys {
    cj_run *r;
    const cj_value *keys;
    int sign; /* -1: descending */
} by_keys;

static int compare_keys(void *context, size_t a, size_t b) {
    const by_keys *by = context;
    bool unordered;
    return by->sign * cj_compare(by->r, &by->keys[a], &by->keys[b], &unordered);
}

static cj_value sorted(cj_run *r, const cj_list *from, const cj_value *keys, bool descending) {
    by_keys by = {r, keys, descending ? -1 : 1};
    const size_t *order = cj_sort(r, from->n, compare_keys, &by);
    cj_list *to = cj_list_new(r, from->n);
    for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, from->at[order[i]]);
    return list_of(to);
}

/* The keys of the attributes "a,b", or that of the element, as a list: in lists, equal keys need no order between them. */
static cj_value keys_of(cj_run *r, const cj_value *element, const cj_value *path, bool case_sensitive) {
    cj_list *keys = cj_list_new(r, 1);
    if (path->kind != CJ_STRING) {
        cj_list_add(r, keys, key_of(r, element, path, case_sensitive));
        return list_of(keys);
    }
    for (size_t at = 0;;) {
        const size_t comma = cj_find(path->text, cj_foreign_of(","), at), end = comma == SIZE_MAX ? path->text.size : comma;
        const cj_value part = cj_string(cj_part(path->text, at, end));
        cj_list_add(r, keys, key_of(r, element, &part, case_sensitive));
        if (comma == SIZE_MAX) return list_of(keys);
        at = comma + 1;
    }
}

static cj_value sort(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_value *keys = cj_alloc(r, from->n, sizeof *keys);
    for (size_t i = 0; i < from->n; i++) keys[i] = keys_of(r, &from->at[i], &a->at[3], cj_arg_bool(a, 2, false));
    return sorted(r, from, keys, cj_arg_bool(a, 1, false));
}

static cj_value dictsort(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    const cj_text by = cj_has(a, 2) ? cj_arg_text(r, a, 2) : cj_foreign_of("key");
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (v->kind != CJ_DICT) cj_fail(r, CL_ERR_ARG, "filter 'dictsort' needs a mapping, not '%s'", cj_type(v));
    if (!cj_text_is(by, "key") && !cj_text_is(by, "value"))
        cj_fail(r, CL_ERR_ARG, "filter 'dictsort' sorts by \"key\" or \"value\"");
    const cj_args pairs_of = {.at = v, .n = 1};
    const cj_value pairs = items(r, &pairs_of);
    const cj_value place = cj_int(cj_text_is(by, "value"));
    cj_value *keys = cj_alloc(r, pairs.list->n, sizeof *keys);
    for (size_t i = 0; i < pairs.list->n; i++) keys[i] = key_of(r, &pairs.list->at[i], &place, cj_arg_bool(a, 1, false));
    return sorted(r, pairs.list, keys, cj_arg_bool(a, 3, false));
}

static cj_value extreme(cj_run *r, const cj_args *a, int sign) {
    const cj_list *from = elements(r, a);
    if (from->n == 0) return cj_undefined(cj_own(cl_str_of("the least or greatest of no elements")));
    size_t best = 0;
    cj_value best_key = key_of(r, &from->at[0], &a->at[2], cj_arg_bool(a, 1, false));
    for (size_t i = 1; i < from->n; i++) {
        bool unordered;
        const cj_value key = key_of(r, &from->at[i], &a->at[2], cj_arg_bool(a, 1, false));
        if (sign * cj_compare(r, &key, &best_key, &unordered) <= 0) continue;
        best = i;
        best_key = key;
    }
    return from->at[best];
}

static cj_value min(cj_run *r, const cj_args *a) { return extreme(r, a, -1); }
static cj_value max(cj_run *r, const cj_args *a) { return extreme(r, a, 1); }

static cj_value unique(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_list *to = cj_list_new(r, 0);
    cj_dict *seen = cj_dict_new(r);
    for (size_t i = 0; i < from->n; i++) {
        const cj_value key = key_of(r, &from->at[i], &a->at[2], cj_arg_bool(a, 1, false));
        const size_t n = seen->n;
        cj_dict_set(r, seen, key, cj_none());
        if (seen->n > n) cj_list_add(r, to, from->at[i]);
    }
    return cj_iterator(to, "generator");
}

static cj_value sum(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_value total = cj_has(a, 2) ? a->at[2] : cj_int(0);
    if (total.kind == CJ_STRING) cj_fail(r, CL_ERR_ARG, "filter 'sum' cannot add strings; use join");
    for (size_t i = 0; i < from->n; i++) {
        const cj_value v = cj_path(r, &from->at[i], &a->at[1]);
        total = cj_binary(r, CJ_ADD, &total, &v);
    }
    return total;
}

/* ---- Cutting ---- */

static cj_value batch(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    const int64_t size = cj_arg_int(r, a, 1, 0);
    cj_list *to = cj_list_new(r, 0), *part = NULL;
    for (size_t i = 0; i < from->n; i++) {
        if (!part || (int64_t)part->n == size) cj_list_add(r, to, list_of(part = cj_list_new(r, 0)));
        cj_list_add(r, part, from->at[i]);
    }
    const bool fills = cj_has(a, 2) && a->at[2].kind != CJ_NONE;
    while (part && fills && (int64_t)part->n < size) {
        cj_step(r);
        cj_list_add(r, part, a->at[2]);
    }
    return cj_iterator(to, "generator");
}

static cj_value slice(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    const int64_t n = cj_arg_int(r, a, 1, 0);
    if (n == 0) cj_fail(r, CL_ERR_ARG, "filter 'slice' cannot make 0 slices");
    const bool fills = cj_has(a, 2) && a->at[2].kind != CJ_NONE;
    const size_t each = n > 0 ? from->n / (size_t)n : 0, extra = n > 0 ? from->n % (size_t)n : 0;
    cj_list *to = cj_list_new(r, 0);
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        cj_step(r);
        cj_list *part = cj_list_new(r, 0);
        const size_t end = at + each + ((size_t)i < extra);
        while (at < end) cj_list_add(r, part, from->at[at++]);
        if (fills && (size_t)i >= extra) cj_list_add(r, part, a->at[2]);
        cj_list_add(r, to, list_of(part));
    }
    return cj_iterator(to, "generator");
}

const cj_builtin cj_filters_of_lists[] = {
    {"length", length, "-", 1},
    {"count", length, "-", 1},
    {"default", default_, "value default_value boolean", 1},
    {"d", default_, "value default_value boolean", 1},
    {"first", first, "seq", 1},
    {"last", last, "seq", 1},
    {"list", list, "value", 1},
    {"items", items, "value", 1},
    {"reverse", reverse, "value", 1},
    {"join", join, "value d attribute", 1},
    {"attr", attr, "obj name", 2},
    {"map", map, NULL, 0},
    {"select", select_, NULL, 0},
    {"reject", reject, NULL, 0},
    {"selectattr", selectattr, NULL, 0},
    {"rejectattr", rejectattr, NULL, 0},
    {"sort", sort, "value reverse case_sensitive attribute", 1},
    {"dictsort", dictsort, "value case_sensitive by reverse", 1},
    {"min", min, "value case_sensitive attribute", 1},
    {"max", max, "value case_sensitive attribute", 1},
    {"unique", unique, "value case_sensitive attribute", 1},
    {"sum", sum, "iterable attribute start", 1},
    {"batch", batch, "value linecount fill_with", 2},
    {"slice", slice, "value slices fill_with", 2},
    {0},
};
