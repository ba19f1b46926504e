/* The filters of lists and dicts. */
#include "builtins.h"
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
    const bool missing = a->at[0].kind == CJ_UNDEFINED || (cj_truth(&a->at[2]) && !cj_truth(&a->at[0]));
    if (!missing) return a->at[0];
    return cj_has(a, 1) ? a->at[1] : cj_string((cj_text){.data = "", .own = true});
}

static cj_value first(cj_run *r, const cj_args *a) {
    const cj_list *list = elements(r, a);
    if (list->n == 0) return cj_undefined(cj_own(cl_str_of("the first of no elements")));
    return list->at[0];
}

static cj_value last(cj_run *r, const cj_args *a) {
    if (a->at[0].kind == CJ_ITERATOR) cj_fail(r, CL_ERR_ARG, "'%s' object is not reversible", cj_type(&a->at[0]));
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
    cj_step_elements(r, n);
    for (size_t i = 0; i < n; i++) cj_list_add(r, pairs, cj_pair(r, v->dict->at[i].key, v->dict->at[i].value));
    return cj_iterator(pairs, "generator");
}

static cj_value join(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    const cj_text separator = cj_has(a, 1) ? cj_arg_str(r, a, 1) : cj_foreign_of("");
    cj_builder b = {.r = r};
    for (size_t i = 0; i < from->n; i++) {
        if (i > 0) cj_put(&b, separator);
        cj_put_str(&b, &from->at[i]);
    }
    return cj_string(cj_built(&b));
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
    const cj_text name = cj_arg_text(r, a, i);
    const cl_str text = {name.data, name.size};
    call c = {.what = filter ? "filter" : "test"};
    c.builtin = filter ? cj_find_filter(text) : cj_find_test(text);
    if (!c.builtin) cj_fail_unsupported(r, c.what, text);
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

/* The name of an attribute. Fails if it is one that Jinja takes apart, such as a.b. */
static const cj_value *plain_name(cj_run *r, const cj_value *name) {
    const size_t n = name->kind == CJ_STRING ? name->text.size : 0;
    cj_step_text(r, n);
    for (size_t i = 0; i < n; i++) {
        const char c = name->text.data[i];
        if (c == '.' || c == ',' || (i == 0 && c >= '0' && c <= '9'))
            cj_fail(r, CL_ERR_UNSUPPORTED, "attributes such as 'a.b', 'a,b' and '0' are not supported by filters");
    }
    return name;
}

/* The attribute of an element, or the element itself if name is none or absent. */
static cj_value attribute_of(cj_run *r, const cj_value *element, const cj_value *name) {
    const bool is_itself = name->kind == CJ_ABSENT || name->kind == CJ_NONE;
    return is_itself ? *element : cj_item(r, element, name);
}

static cj_value map(cj_run *r, const cj_args *a) {
    if (a->n == 0) cj_fail(r, CL_ERR_ARG, "filter 'map' needs a value");
    const cj_list *from = elements_if_true(r, a);
    cj_list *to = cj_list_new(r, from->n);
    if (from->n == 0) return cj_iterator(to, "generator");
    if (a->n == 1) {
        if (a->n_named != 1 || !cj_text_is(a->names[0], "attribute"))
            cj_fail(r, CL_ERR_UNSUPPORTED, "filter 'map' supports only the name of a filter, or an attribute");
        const cj_value *name = plain_name(r, &a->named[0]);
        for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, attribute_of(r, &from->at[i], name));
        return cj_iterator(to, "generator");
    }
    call c = named_call(r, a, 1, true);
    for (size_t i = 0; i < from->n; i++) cj_list_add(r, to, run_call(r, &c, &from->at[i]));
    return cj_iterator(to, "generator");
}

/* The elements for which a test holds, or does not. by_attribute: the second argument says of which attribute. */
static cj_value select_elements(cj_run *r, const cj_args *a, bool wanted, bool by_attribute) {
    if (a->n < 1u + by_attribute) cj_fail(r, CL_ERR_ARG, "an argument is missing: the value or its attribute");
    const cj_list *from = elements_if_true(r, a);
    cj_list *to = cj_list_new(r, 0);
    const cj_value none = {.kind = CJ_ABSENT};
    const size_t test = 1 + by_attribute;
    if (from->n == 0) return cj_iterator(to, "generator");
    const cj_value *path = by_attribute ? plain_name(r, &a->at[1]) : &none;
    call c = {0};
    if (a->n > test) c = named_call(r, a, test, false);
    for (size_t i = 0; i < from->n; i++) {
        cj_value v = attribute_of(r, &from->at[i], path);
        if (c.builtin) v = run_call(r, &c, &v);
        if (cj_truth(&v) == wanted) cj_list_add(r, to, from->at[i]);
    }
    return cj_iterator(to, "generator");
}

static cj_value reject(cj_run *r, const cj_args *a) { return select_elements(r, a, false, false); }
static cj_value selectattr(cj_run *r, const cj_args *a) { return select_elements(r, a, true, true); }
static cj_value rejectattr(cj_run *r, const cj_args *a) { return select_elements(r, a, false, true); }

/* ---- Order ---- */

/* The key by which an element is ordered: itself, but in lower case. */
static cj_value key_of(cj_run *r, cj_value v) {
    return v.kind == CJ_STRING ? cj_string(cj_change_case(r, v.text, CJ_LOWER)) : v;
}

enum { STEPS_OF_COMPARISON = 8 }; /* many, since its operands are anywhere in memory */

/* Equal keys need no order between them. */
static bool is_less(cj_run *r, const cj_value *a, const cj_value *b) {
    cj_steps(r, STEPS_OF_COMPARISON);
    return !cj_equal(r, a, b) && cj_compare(r, a, b) < 0;
}

/*
 * The elements in the order of their keys; equal ones keep theirs. It merges ever longer runs. The C library's sort may hold
 * memory when a comparison fails and leaves it.
 */
static cj_value sorted(cj_run *r, const cj_list *from, const cj_value *keys) {
    const size_t n = from->n;
    size_t *order = cj_alloc(r, n, sizeof *order), *other = cj_alloc(r, n, sizeof *other);
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            const size_t middle = begin + width < n ? begin + width : n, end = middle + width < n ? middle + width : n;
            size_t left = begin, right = middle;
            for (size_t i = begin; i < end; i++) {
                const bool takes_left = left < middle && (right == end || !is_less(r, &keys[order[right]], &keys[order[left]]));
                other[i] = order[takes_left ? left++ : right++];
            }
        }
        size_t *merged = other;
        other = order;
        order = merged;
    }
    cj_list *to = cj_list_new(r, n);
    for (size_t i = 0; i < n; i++) cj_list_add(r, to, from->at[order[i]]);
    return list_of(to);
}

static cj_value sort(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_value *keys = cj_alloc(r, from->n, sizeof *keys);
    if (cj_has(a, 1) || cj_has(a, 2)) cj_fail(r, CL_ERR_UNSUPPORTED, "filter 'sort' supports only the argument 'attribute'");
    const cj_value *name = from->n > 0 ? plain_name(r, &a->at[3]) : NULL;
    for (size_t i = 0; i < from->n; i++) keys[i] = key_of(r, attribute_of(r, &from->at[i], name));
    return sorted(r, from, keys);
}

static cj_value dictsort(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (v->kind != CJ_DICT) cj_fail(r, CL_ERR_ARG, "filter 'dictsort' needs a mapping, not '%s'", cj_type(v));
    const cj_value pairs = items(r, a);
    cj_value *keys = cj_alloc(r, pairs.list->n, sizeof *keys);
    for (size_t i = 0; i < pairs.list->n; i++) keys[i] = key_of(r, v->dict->at[i].key);
    return sorted(r, pairs.list, keys);
}

static cj_value min(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    if (from->n == 0) return cj_undefined(cj_own(cl_str_of("the least of no elements")));
    size_t least = 0;
    for (size_t i = 1; i < from->n; i++) {
        const cj_value key = key_of(r, from->at[i]), least_key = key_of(r, from->at[least]);
        if (cj_compare(r, &key, &least_key) < 0) least = i;
    }
    return from->at[least];
}

static cj_value unique(cj_run *r, const cj_args *a) {
    const cj_list *from = elements(r, a);
    cj_list *to = cj_list_new(r, 0);
    cj_dict *seen = cj_dict_new(r);
    for (size_t i = 0; i < from->n; i++) {
        const size_t n = seen->n;
        cj_dict_set(r, seen, key_of(r, from->at[i]), cj_none());
        if (seen->n > n) cj_list_add(r, to, from->at[i]);
    }
    return cj_iterator(to, "generator");
}

const cj_builtin cj_filters_of_lists[] = {
    {"length", length, "-", 1},          {"default", default_, "value default_value boolean", 1},
    {"first", first, "seq", 1},          {"last", last, "seq", 1},
    {"list", list, "value", 1},          {"items", items, "value", 1},
    {"join", join, "value d", 1},        {"map", map, NULL, 0},
    {"reject", reject, NULL, 0},         {"selectattr", selectattr, NULL, 0},
    {"rejectattr", rejectattr, NULL, 0}, {"sort", sort, "value - - attribute", 1},
    {"dictsort", dictsort, "value", 1},  {"min", min, "value", 1},
    {"unique", unique, "value", 1},      {0},
};
