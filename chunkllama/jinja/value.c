/* Collections, comparison and iteration, as Python has them. */
#include "value.h"

#include <assert.h>

/* ---- Making values ---- */

cj_list *cj_list_new(cj_run *r, size_t capacity) {
    cj_list *list = CJ_NEW(r, cj_list);
    if (capacity > 0) list->at = cj_alloc(r, capacity, sizeof *list->at);
    list->capacity = capacity;
    return list;
}

void cj_list_add(cj_run *r, cj_list *list, cj_value v) { CJ_PUSH(r, list->at, list->n, list->capacity, v); }

cj_value cj_pair(cj_run *r, cj_value a, cj_value b) {
    cj_list *pair = cj_list_new(r, 2);
    cj_list_add(r, pair, a);
    cj_list_add(r, pair, b);
    return cj_sequence(CJ_TUPLE, pair);
}

cj_value cj_iterator(cj_list *list, const char *name) {
    list->name = name;
    return cj_sequence(CJ_ITERATOR, list);
}

cj_dict *cj_dict_new(cj_run *r) { return CJ_NEW(r, cj_dict); }

void cj_check_hashable(cj_run *r, const cj_value *v) {
    if (v->kind == CJ_LIST || v->kind == CJ_DICT) cj_fail(r, CL_ERR_ARG, "unhashable type: '%s'", cj_type(v));
    if (v->kind == CJ_TUPLE) cj_fail(r, CL_ERR_UNSUPPORTED, "a tuple as the key of a dict is not supported");
}

const cj_value *cj_dict_get(cj_run *r, const cj_dict *dict, const cj_value *key) {
    if (key->kind == CJ_STRING) return cj_dict_get_name(r, dict, key->text);
    cj_step_elements(r, dict->n);
    for (size_t i = 0; i < dict->n; i++)
        if (cj_equal(r, &dict->at[i].key, key)) return &dict->at[i].value;
    return NULL;
}

const cj_value *cj_dict_get_name(cj_run *r, const cj_dict *dict, cj_text name) {
    cj_step_elements(r, dict->n);
    for (size_t i = 0; i < dict->n; i++)
        if (dict->at[i].key.kind == CJ_STRING && cj_text_equal(r, dict->at[i].key.text, name)) return &dict->at[i].value;
    return NULL;
}

void cj_dict_set(cj_run *r, cj_dict *dict, cj_value key, cj_value value) {
    cj_check_hashable(r, &key);
    cj_value *old = (cj_value *)cj_dict_get(r, dict, &key);
    if (old)
        *old = value;
    else
        CJ_PUSH(r, dict->at, dict->n, dict->capacity, ((cj_entry){key, value}));
}

/* ---- Reading values ---- */

const char *cj_type(const cj_value *v) {
    switch (v->kind) {
    case CJ_UNDEFINED: return "Undefined";
    case CJ_NONE: return "NoneType";
    case CJ_BOOL: return "bool";
    case CJ_INT: return "int";
    case CJ_FLOAT: return "float";
    case CJ_LONG_NUMBER: return cj_is_long_int(v) ? "int" : "float";
    case CJ_STRING: return "str";
    case CJ_LIST: return "list";
    case CJ_TUPLE: return "tuple";
    case CJ_RANGE: return "range";
    case CJ_VIEW:
    case CJ_ITERATOR: return v->list->name;
    case CJ_DICT: return "dict";
    case CJ_NAMESPACE: return "Namespace";
    case CJ_LOOP: return "LoopContext";
    case CJ_MACRO: return "Macro";
    case CJ_FUNCTION: return "function";
    case CJ_ABSENT: break;
    }
    return "nothing";
}

void cj_fail_undefined(cj_run *r, const cj_value *v) {
    char shown[128];
    const char *what = cl_str_show((cl_str){v->text.data, v->text.size}, shown, sizeof shown);
    cj_fail(r, CL_ERR_ARG, strchr(what, ' ') ? "%s is undefined" : "'%s' is undefined", what);
}

void cj_fail_long(cj_run *r) { cj_fail(r, CL_ERR_LIMIT, "a number is beyond 64 bits"); }

bool cj_has_length(const cj_value *v) {
    return v->kind == CJ_UNDEFINED || v->kind == CJ_STRING || (v->kind >= CJ_LIST && v->kind <= CJ_VIEW) ||
           v->kind == CJ_DICT || v->kind == CJ_LOOP;
}

size_t cj_length(cj_run *r, const cj_value *v) {
    switch (v->kind) {
    case CJ_UNDEFINED: return 0;
    case CJ_STRING: cj_step_bytes(r, v->text.size); return cj_n_chars(v->text);
    case CJ_LIST:
    case CJ_TUPLE:
    case CJ_RANGE:
    case CJ_VIEW: return v->list->n;
    case CJ_DICT: return v->dict->n;
    case CJ_LOOP: return v->loop->items->n;
    default: cj_fail(r, CL_ERR_ARG, "object of type '%s' has no len()", cj_type(v));
    }
}

bool cj_truth(const cj_value *v) {
    switch (v->kind) {
    case CJ_ABSENT:
    case CJ_UNDEFINED:
    case CJ_NONE: return false;
    case CJ_BOOL: return v->boolean;
    case CJ_INT: return v->integer != 0;
    case CJ_FLOAT: return v->real != 0;
    case CJ_STRING: return v->text.size > 0;
    case CJ_LIST:
    case CJ_TUPLE:
    case CJ_RANGE:
    case CJ_VIEW: return v->list->n > 0;
    case CJ_DICT: return v->dict->n > 0;
    default: return true;
    }
}

bool cj_is_int(const cj_value *v, int64_t *i) {
    if (v->kind != CJ_INT && v->kind != CJ_BOOL) return false;
    *i = v->kind == CJ_INT ? v->integer : v->boolean;
    return true;
}

bool cj_is_long_int(const cj_value *v) {
    return v->kind == CJ_LONG_NUMBER && strspn(v->text.data, "-0123456789") >= v->text.size;
}

/* Whether v is a number that can be compared. */
static bool has_value(const cj_value *v) { return v->kind == CJ_INT || v->kind == CJ_BOOL || v->kind == CJ_FLOAT; }

bool cj_is_number(const cj_value *v) { return has_value(v) || v->kind == CJ_LONG_NUMBER; }

/* Wide enough for every int64_t and every double, so that both compare as numbers. */
static long double to_wide(const cj_value *v) {
    int64_t i;
    return cj_is_int(v, &i) ? (long double)i : (long double)v->real;
}
_Static_assert(__LDBL_MANT_DIG__ >= 64, "a long double holds every int64_t");

static bool equal_lists(cj_run *r, const cj_list *a, const cj_list *b) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!cj_equal(r, &a->at[i], &b->at[i])) return false;
    return true;
}

static bool equal_dicts(cj_run *r, const cj_dict *a, const cj_dict *b) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const cj_value *other = cj_dict_get(r, b, &a->at[i].key);
        if (!other || !cj_equal(r, &a->at[i].value, other)) return false;
    }
    return true;
}

bool cj_equal(cj_run *r, const cj_value *a, const cj_value *b) {
    cj_step(r);
    if (has_value(a) && has_value(b)) return to_wide(a) == to_wide(b);
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CJ_UNDEFINED:
    case CJ_NONE: return true;
    case CJ_LONG_NUMBER:
    case CJ_STRING: return cj_text_equal(r, a->text, b->text);
    case CJ_LIST:
    case CJ_TUPLE:
    case CJ_RANGE:
    case CJ_DICT: {
        cj_enter(r);
        const bool equal = a->kind == CJ_DICT ? equal_dicts(r, a->dict, b->dict) : equal_lists(r, a->list, b->list);
        cj_leave(r);
        return equal;
    }
    case CJ_FUNCTION: return a->function == b->function;
    default: return a->list == b->list; /* the same object */
    }
}

/* The order of the first elements that differ, or else that of the lengths. */
static int compare_lists(cj_run *r, const cj_list *a, const cj_list *b) {
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!cj_equal(r, &a->at[i], &b->at[i])) return cj_compare(r, &a->at[i], &b->at[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int cj_compare(cj_run *r, const cj_value *a, const cj_value *b) {
    cj_step(r);
    if (cj_is_number(a) && cj_is_number(b)) {
        if (!has_value(a) || !has_value(b)) cj_fail_long(r);
        const long double x = to_wide(a), y = to_wide(b);
        return (x > y) - (x < y);
    }
    if (a->kind == CJ_UNDEFINED) cj_fail_undefined(r, a);
    if (b->kind == CJ_UNDEFINED) cj_fail_undefined(r, b);
    if (a->kind == CJ_STRING && b->kind == CJ_STRING) return cj_text_compare(r, a->text, b->text);
    if (a->kind == b->kind && (a->kind == CJ_LIST || a->kind == CJ_TUPLE)) {
        cj_enter(r);
        const int order = compare_lists(r, a->list, b->list);
        cj_leave(r);
        return order;
    }
    cj_fail(r, CL_ERR_ARG, "'%s' and '%s' have no order", cj_type(a), cj_type(b));
}

bool cj_contains(cj_run *r, const cj_value *container, const cj_value *v) {
    if (container->kind == CJ_STRING) {
        if (v->kind != CJ_STRING) cj_fail(r, CL_ERR_ARG, "'in <string>' requires a string on its left, not '%s'", cj_type(v));
        return cj_find(r, container->text, v->text, 0) != SIZE_MAX;
    }
    if (container->kind == CJ_DICT) {
        cj_check_hashable(r, v);
        return cj_dict_get(r, container->dict, v) != NULL;
    }
    if (!cj_is_iterable(container)) cj_fail(r, CL_ERR_ARG, "argument of type '%s' is not iterable", cj_type(container));
    const cj_list *list = cj_elements(r, container);
    for (size_t i = 0; i < list->n; i++)
        if (cj_equal(r, &list->at[i], v)) return true;
    return false;
}

bool cj_is_iterable(const cj_value *v) {
    return v->kind == CJ_UNDEFINED || v->kind == CJ_STRING || (v->kind >= CJ_LIST && v->kind <= CJ_DICT);
}

const cj_list *cj_elements(cj_run *r, const cj_value *v) {
    static const cj_list none;
    cj_list *list;
    switch (v->kind) {
    case CJ_UNDEFINED: return &none;
    case CJ_LIST:
    case CJ_TUPLE:
    case CJ_RANGE:
    case CJ_VIEW: return v->list;
    case CJ_ITERATOR:
        if (v->list->used) return &none;
        v->list->used = true;
        return v->list;
    case CJ_DICT:
        list = cj_list_new(r, v->dict->n);
        cj_step_elements(r, v->dict->n);
        for (size_t i = 0; i < v->dict->n; i++) cj_list_add(r, list, v->dict->at[i].key);
        return list;
    case CJ_STRING:
        cj_step_text(r, v->text.size);
        list = cj_list_new(r, cj_n_chars(v->text));
        for (size_t at = 0, end; at < v->text.size; at = end) {
            end = at + cj_char_size(v->text.data[at]);
            cj_list_add(r, list, cj_string(cj_part(v->text, at, end)));
        }
        return list;
    default: cj_fail(r, CL_ERR_ARG, "'%s' object is not iterable", cj_type(v));
    }
}
