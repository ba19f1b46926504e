/* Arithmetic of integers, comparison and slices, as Python has them; integers have 64 bits. */
#include "eval.h"

_Noreturn static void fail_operands(cj_run *r, const char *op, const cj_value *a, const cj_value *b) {
    if (a->kind == CJ_UNDEFINED) cj_fail_undefined(r, a);
    if (b->kind == CJ_UNDEFINED) cj_fail_undefined(r, b);
    cj_fail(r, CL_ERR_ARG, "'%s' cannot be applied to '%s' and '%s'", op, cj_type(a), cj_type(b));
}

static cj_value checked(cj_run *r, bool overflow, int64_t result) {
    if (overflow) cj_fail_long(r);
    return cj_int(result);
}

/* ---- Arithmetic ---- */

static cj_value modulo(cj_run *r, int64_t a, int64_t b) {
    if (b == 0) cj_fail(r, CL_ERR_ARG, "division by zero");
    if (b == -1) return cj_int(0);
    const int64_t rest = a % b;
    return cj_int(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest); /* Python rounds down, C to zero */
}

static cj_value of_ints(cj_run *r, cj_op op, int64_t a, int64_t b) {
    int64_t result;
    bool overflow;
    switch (op) {
    case CJ_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case CJ_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case CJ_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    default: return modulo(r, a, b);
    }
    return checked(r, overflow, result);
}

static cj_value repeat(cj_run *r, cj_text t, int64_t n) {
    cj_builder b = {.r = r};
    cj_put_times(&b, t, n > 0 ? (size_t)n : 0);
    return cj_string(cj_built(&b));
}

static cj_value join_lists(cj_run *r, const cj_value *a, const cj_value *b) {
    cj_list *list = cj_list_new(r, a->list->n + b->list->n);
    cj_step_elements(r, a->list->n + b->list->n);
    for (size_t i = 0; i < a->list->n; i++) cj_list_add(r, list, a->list->at[i]);
    for (size_t i = 0; i < b->list->n; i++) cj_list_add(r, list, b->list->at[i]);
    return cj_sequence(a->kind, list);
}

static cj_text join_texts(cj_run *r, cj_text a, cj_text b) {
    const bool markup = a.markup || b.markup;
    cj_text joined = markup ? cj_join2(r, cj_escape(r, a), cj_escape(r, b)) : cj_join2(r, a, b);
    joined.markup = markup;
    return joined;
}

cj_value cj_binary(cj_run *r, cj_op op, const cj_value *a, const cj_value *b) {
    static const char *const names[] = {"+", "-", "*", "%"};
    int64_t i, j;
    if (a->kind == CJ_LONG_NUMBER || b->kind == CJ_LONG_NUMBER) cj_fail_long(r);
    if (cj_is_int(a, &i) && cj_is_int(b, &j)) return of_ints(r, op, i, j);
    if (cj_is_number(a) && cj_is_number(b)) cj_fail(r, CL_ERR_UNSUPPORTED, "'%s' of floats is not supported", names[op]);
    if (op == CJ_ADD && a->kind == b->kind) {
        if (a->kind == CJ_STRING) return cj_string(join_texts(r, a->text, b->text));
        if (a->kind == CJ_LIST || a->kind == CJ_TUPLE) return join_lists(r, a, b);
    }
    if (op == CJ_MUL && a->kind == CJ_STRING && cj_is_int(b, &j)) return repeat(r, a->text, j);
    if (op == CJ_MUL && b->kind == CJ_STRING && cj_is_int(a, &i)) return repeat(r, b->text, i);
    if (op == CJ_MUL && (a->kind == CJ_LIST || b->kind == CJ_LIST || a->kind == CJ_TUPLE || b->kind == CJ_TUPLE))
        cj_fail(r, CL_ERR_UNSUPPORTED, "'*' of lists is not supported");
    if (op == CJ_MOD && a->kind == CJ_STRING) cj_fail(r, CL_ERR_UNSUPPORTED, "'%%' of strings is not supported");
    fail_operands(r, names[op], a, b);
}

cj_value cj_negative(cj_run *r, const cj_value *a) {
    int64_t i;
    if (cj_is_int(a, &i)) return checked(r, i == INT64_MIN, i == INT64_MIN ? 0 : -i);
    if (a->kind == CJ_LONG_NUMBER) cj_fail_long(r);
    if (a->kind == CJ_FLOAT) cj_fail(r, CL_ERR_UNSUPPORTED, "'-' of floats is not supported");
    if (a->kind == CJ_UNDEFINED) cj_fail_undefined(r, a);
    cj_fail(r, CL_ERR_ARG, "'-' cannot be applied to '%s'", cj_type(a));
}

/* ---- Comparison ---- */

bool cj_compares(cj_run *r, cj_op op, const cj_value *a, const cj_value *b) {
    if (op == CJ_EQ) return cj_equal(r, a, b);
    if (op == CJ_NE) return !cj_equal(r, a, b);
    if (op == CJ_IN) return cj_contains(r, b, a);
    if (op == CJ_NOT_IN) return !cj_contains(r, b, a);
    const int order = cj_compare(r, a, b);
    return op == CJ_LT ? order < 0 : op == CJ_LE ? order <= 0 : op == CJ_GT ? order > 0 : order >= 0;
}

/* ---- Slices ---- */

/* A bound, counted from the end if it is negative, and moved into [low, high]. */
static int64_t bound(cj_run *r, const cj_value *v, int64_t otherwise, int64_t n, int64_t low, int64_t high) {
    int64_t i;
    if (v->kind == CJ_NONE) return otherwise;
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (v->kind == CJ_LONG_NUMBER) cj_fail_long(r);
    if (!cj_is_int(v, &i)) cj_fail(r, CL_ERR_ARG, "the bounds of a slice must be integers or none, not '%s'", cj_type(v));
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static cj_value slice_text(cj_run *r, cj_text t, int64_t first, int64_t count) {
    const cj_text rest = cj_part(t, cj_offset(r, t, (size_t)first), t.size);
    return cj_string(cj_part(rest, 0, cj_offset(r, rest, (size_t)count)));
}

cj_value cj_slice(cj_run *r, const cj_value *object, const cj_value bounds[3]) {
    if (object->kind == CJ_UNDEFINED) cj_fail_undefined(r, object);
    if (object->kind == CJ_RANGE) cj_fail(r, CL_ERR_UNSUPPORTED, "slices of range are not supported");
    if (object->kind != CJ_STRING && object->kind != CJ_LIST && object->kind != CJ_TUPLE)
        cj_fail(r, CL_ERR_ARG, "a value of type '%s' cannot be sliced", cj_type(object));
    const int64_t n = (int64_t)cj_length(r, object);
    const int64_t step = bound(r, &bounds[2], 1, 0, INT64_MIN + 1, INT64_MAX);
    if (step == 0) cj_fail(r, CL_ERR_ARG, "the step of a slice must not be 0");
    if (step != 1 && object->kind == CJ_STRING) cj_fail(r, CL_ERR_UNSUPPORTED, "the step of a string's slice is not supported");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const int64_t first = bound(r, &bounds[0], step > 0 ? 0 : n - 1, n, low, high);
    const int64_t end = bound(r, &bounds[1], step > 0 ? n : -1, n, low, high);
    int64_t count = 0;
    if (step > 0 && first < end) count = (end - first - 1) / step + 1;
    if (step < 0 && first > end) count = (first - end - 1) / -step + 1;
    cj_step_elements(r, (size_t)count);
    if (object->kind == CJ_STRING) return slice_text(r, object->text, first, count);
    cj_list *list = cj_list_new(r, (size_t)count);
    for (int64_t i = 0; i < count; i++) cj_list_add(r, list, object->list->at[first + i * step]);
    return cj_sequence(object->kind, list);
}
