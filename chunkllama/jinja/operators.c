/* Arithmetic, comparison and slices, as Python has them; integers have 64 bits. */
#include "eval.h"

#include <math.h>

_Noreturn static void fail_operands(cj_run *r, const char *op, const cj_value *a, const cj_value *b) {
    if (a->kind == CJ_UNDEFINED) cj_fail_undefined(r, a);
    if (b->kind == CJ_UNDEFINED) cj_fail_undefined(r, b);
    cj_fail(r, CL_ERR_ARG, "'%s' cannot be applied to '%s' and '%s'", op, cj_type(a), cj_type(b));
}

static cj_value checked(cj_run *r, bool overflow, int64_t result) {
    if (overflow) cj_fail(r, CL_ERR_LIMIT, "an integer is beyond 64 bits");
    return cj_int(result);
}

/* ---- Arithmetic ---- */

static cj_value divide_ints(cj_run *r, cj_op op, int64_t a, int64_t b) {
    if (b == 0) cj_fail(r, CL_ERR_ARG, "division by zero");
    if (op == CJ_DIV) return cj_float((double)((long double)a / (long double)b));
    if (b == -1) return op == CJ_MOD ? cj_int(0) : checked(r, a == INT64_MIN, a == INT64_MIN ? 0 : -a);
    const int64_t rest = a % b, wrong = rest != 0 && (rest < 0) != (b < 0); /* Python rounds down, C to zero */
    return cj_int(op == CJ_MOD ? rest + (wrong ? b : 0) : a / b - wrong);
}

static cj_value power_of_ints(cj_run *r, int64_t a, int64_t b) {
    if (b < 0) {
        if (a == 0) cj_fail(r, CL_ERR_ARG, "0 cannot be raised to a negative power");
        return cj_float(pow((double)a, (double)b));
    }
    if (a == 0 || a == 1) return cj_int(b == 0 ? 1 : a);
    if (a == -1) return cj_int(b % 2 ? -1 : 1);
    int64_t result = 1;
    while (b-- > 0) /* ends after 63 steps at most */
        if (__builtin_mul_overflow(result, a, &result)) return checked(r, true, 0);
    return cj_int(result);
}

static cj_value of_ints(cj_run *r, cj_op op, int64_t a, int64_t b) {
    int64_t result;
    bool overflow;
    switch (op) {
    case CJ_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case CJ_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case CJ_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case CJ_POW: return power_of_ints(r, a, b);
    default: return divide_ints(r, op, a, b);
    }
    return checked(r, overflow, result);
}

static double modulo(double a, double b) {
    const double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static cj_value power_of_floats(cj_run *r, double a, double b) {
    if (a == 0 && b < 0) cj_fail(r, CL_ERR_ARG, "0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) cj_fail(r, CL_ERR_ARG, "complex numbers are not supported");
    const double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b)) cj_fail(r, CL_ERR_ARG, "a number is too large");
    return cj_float(result);
}

static cj_value of_floats(cj_run *r, cj_op op, double a, double b) {
    if ((op == CJ_DIV || op == CJ_FLOOR_DIV || op == CJ_MOD) && b == 0) cj_fail(r, CL_ERR_ARG, "division by zero");
    switch (op) {
    case CJ_ADD: return cj_float(a + b);
    case CJ_SUB: return cj_float(a - b);
    case CJ_MUL: return cj_float(a * b);
    case CJ_DIV: return cj_float(a / b);
    case CJ_MOD: return cj_float(modulo(a, b));
    case CJ_FLOOR_DIV: { /* as Python: from the exact rest, so that a == b * quotient + rest */
        const double quotient = (a - modulo(a, b)) / b, down = floor(quotient);
        return cj_float(quotient == 0 ? copysign(0, a / b) : quotient - down > 0.5 ? down + 1 : down);
    }
    default: return power_of_floats(r, a, b);
    }
}

static cj_value repeat(cj_run *r, const cj_value *a, int64_t n) {
    if (n < 0) n = 0;
    if (a->kind == CJ_STRING) {
        cj_builder b = {.r = r};
        cj_put_times(&b, a->text, (size_t)n);
        return cj_string(cj_built(&b));
    }
    size_t size;
    if (__builtin_mul_overflow(a->list->n, (size_t)n, &size)) size = SIZE_MAX / 2 / sizeof(cj_value); /* is refused below */
    cj_step_elements(r, size);
    cj_list *list = cj_list_new(r, size);
    for (size_t i = 0; i < size; i++) cj_list_add(r, list, a->list->at[i % a->list->n]);
    return cj_sequence(a->kind, list);
}

static bool repeats(const cj_value *a, const cj_value *b, int64_t *n) {
    return (a->kind == CJ_STRING || a->kind == CJ_LIST || a->kind == CJ_TUPLE) && cj_is_int(b, n);
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
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    int64_t i, j;
    if (cj_is_int(a, &i) && cj_is_int(b, &j)) return of_ints(r, op, i, j);
    if (cj_is_number(a) && cj_is_number(b)) return of_floats(r, op, cj_to_double(a), cj_to_double(b));
    if (op == CJ_ADD && a->kind == b->kind) {
        if (a->kind == CJ_STRING) return cj_string(join_texts(r, a->text, b->text));
        if (a->kind == CJ_LIST || a->kind == CJ_TUPLE) return join_lists(r, a, b);
    }
    if (op == CJ_MUL && repeats(a, b, &j)) return repeat(r, a, j);
    if (op == CJ_MUL && repeats(b, a, &i)) return repeat(r, b, i);
    if (op == CJ_MOD && a->kind == CJ_STRING) cj_fail(r, CL_ERR_UNSUPPORTED, "'%%' of strings is not supported");
    fail_operands(r, names[op], a, b);
}

cj_value cj_negative(cj_run *r, const cj_value *a) {
    int64_t i;
    if (cj_is_int(a, &i)) return checked(r, i == INT64_MIN, i == INT64_MIN ? 0 : -i);
    if (a->kind == CJ_FLOAT) return cj_float(-a->real);
    if (a->kind == CJ_UNDEFINED) cj_fail_undefined(r, a);
    cj_fail(r, CL_ERR_ARG, "'-' cannot be applied to '%s'", cj_type(a));
}

/* ---- Comparison ---- */

bool cj_compares(cj_run *r, cj_op op, const cj_value *a, const cj_value *b) {
    if (op == CJ_EQ) return cj_equal(r, a, b);
    if (op == CJ_NE) return !cj_equal(r, a, b);
    if (op == CJ_IN) return cj_contains(r, b, a);
    if (op == CJ_NOT_IN) return !cj_contains(r, b, a);
    bool unordered;
    const int order = cj_compare(r, a, b, &unordered);
    if (unordered) return false;
    return op == CJ_LT ? order < 0 : op == CJ_LE ? order <= 0 : op == CJ_GT ? order > 0 : order >= 0;
}

/* ---- Slices ---- */

/* A bound, counted from the end if it is negative, and moved into [low, high]. */
static int64_t bound(cj_run *r, const cj_value *v, int64_t otherwise, int64_t n, int64_t low, int64_t high) {
    int64_t i;
    if (v->kind == CJ_NONE) return otherwise;
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (!cj_is_int(v, &i)) cj_fail(r, CL_ERR_ARG, "the bounds of a slice must be integers or none, not '%s'", cj_type(v));
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

/* The characters of a string at `first`, `first + step` and so on. */
static cj_value slice_text(cj_run *r, cj_text t, int64_t first, int64_t count, int64_t step) {
    if (count == 0) return cj_string(cj_part(t, 0, 0));
    if (step == 1) {
        const size_t begin = cj_offset(t, (size_t)first);
        const cj_text rest = cj_part(t, begin, t.size);
        return cj_string(cj_part(rest, 0, cj_offset(rest, (size_t)count)));
    }
    const cj_value whole = cj_string(t);
    const cj_list *chars = cj_elements(r, &whole);
    cj_builder b = {.r = r};
    for (int64_t i = 0; i < count; i++) cj_put(&b, chars->at[first + i * step].text);
    return cj_string(cj_built(&b));
}

cj_value cj_slice(cj_run *r, const cj_value *object, const cj_value bounds[3]) {
    if (object->kind == CJ_UNDEFINED) cj_fail_undefined(r, object);
    if (object->kind != CJ_STRING && object->kind != CJ_LIST && object->kind != CJ_TUPLE && object->kind != CJ_RANGE)
        cj_fail(r, CL_ERR_ARG, "a value of type '%s' cannot be sliced", cj_type(object));
    const int64_t n = (int64_t)cj_length(r, object);
    const int64_t step = bound(r, &bounds[2], 1, 0, INT64_MIN + 1, INT64_MAX);
    if (step == 0) cj_fail(r, CL_ERR_ARG, "the step of a slice must not be 0");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const int64_t first = bound(r, &bounds[0], step > 0 ? 0 : n - 1, n, low, high);
    const int64_t end = bound(r, &bounds[1], step > 0 ? n : -1, n, low, high);
    int64_t count = 0;
    if (step > 0 && first < end) count = (end - first - 1) / step + 1;
    if (step < 0 && first > end) count = (first - end - 1) / -step + 1;
    cj_step_elements(r, (size_t)count);
    if (object->kind == CJ_STRING) return slice_text(r, object->text, first, count, step);
    cj_list *list = cj_list_new(r, (size_t)count);
    for (int64_t i = 0; i < count; i++) cj_list_add(r, list, object->list->at[first + i * step]);
    if (object->kind == CJ_RANGE) {
        const cj_list *range = object->list;
        list->start = range->start + first * range->stride;
        list->stop = range->start + end * range->stride;
        list->stride = range->stride * step;
    }
    return cj_sequence(object->kind, list);
}
