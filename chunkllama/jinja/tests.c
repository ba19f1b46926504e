/* The tests of `is`. */
#include "eval.h"
#include "print.h"

#define TEST(name, condition)                                                                                                  \
    static cj_value name(cj_run *r, const cj_args *a) {                                                                        \
        (void)r;                                                                                                               \
        const cj_value *v = &a->at[0];                                                                                         \
        return cj_bool(condition);                                                                                             \
    }

TEST(is_defined, v->kind != CJ_UNDEFINED)
TEST(is_undefined, v->kind == CJ_UNDEFINED)
TEST(is_none, v->kind == CJ_NONE)
TEST(is_boolean, v->kind == CJ_BOOL)
TEST(is_true, v->kind == CJ_BOOL && v->boolean)
TEST(is_false, v->kind == CJ_BOOL && !v->boolean)
TEST(is_integer, v->kind == CJ_INT)
TEST(is_float, v->kind == CJ_FLOAT)
TEST(is_number, cj_is_number(v))
TEST(is_string, v->kind == CJ_STRING)
TEST(is_mapping, v->kind == CJ_DICT)
TEST(is_iterable, cj_is_iterable(v) || v->kind == CJ_LOOP)
TEST(is_sequence, cj_has_length(v) && v->kind != CJ_VIEW && v->kind != CJ_LOOP)
TEST(is_callable,
     v->kind == CJ_UNDEFINED || v->kind == CJ_MACRO || v->kind == CJ_FUNCTION || v->kind == CJ_JOINER || v->kind == CJ_LOOP)
TEST(is_lower, cj_is_case(cj_str_of(r, v), CJ_LOWER))
TEST(is_upper, cj_is_case(cj_str_of(r, v), CJ_UPPER))
TEST(is_escaped, v->kind == CJ_STRING && v->text.markup)
TEST(is_eq, cj_compares(r, CJ_EQ, v, &a->at[1]))
TEST(is_ne, cj_compares(r, CJ_NE, v, &a->at[1]))
TEST(is_lt, cj_compares(r, CJ_LT, v, &a->at[1]))
TEST(is_le, cj_compares(r, CJ_LE, v, &a->at[1]))
TEST(is_gt, cj_compares(r, CJ_GT, v, &a->at[1]))
TEST(is_ge, cj_compares(r, CJ_GE, v, &a->at[1]))
TEST(is_in, cj_compares(r, CJ_IN, v, &a->at[1]))

static bool has_name(const cj_value *v, const cj_builtin *(*find)(cl_str name)) {
    return v->kind == CJ_STRING && find((cl_str){v->text.data, v->text.size});
}
TEST(is_filter, has_name(v, cj_find_filter))
TEST(is_test, has_name(v, cj_find_test))

/* Whether v modulo n is a number. */
static bool has_rest(cj_run *r, const cj_value *v, cj_value n, int64_t rest) {
    const cj_value left = cj_binary(r, CJ_MOD, v, &n), expected = cj_int(rest);
    return cj_equal(r, &left, &expected);
}
TEST(is_odd, has_rest(r, v, cj_int(2), 1))
TEST(is_even, has_rest(r, v, cj_int(2), 0))
TEST(is_divisibleby, has_rest(r, v, a->at[1], 0))

/* The same object; what has no identity here is the same if it is equal and of the same type. */
static bool same(cj_run *r, const cj_value *a, const cj_value *b) {
    if (a->kind != b->kind) return false;
    return a->kind >= CJ_LIST ? a->list == b->list : cj_equal(r, a, b);
}
TEST(is_sameas, same(r, v, &a->at[1]))

const cj_builtin cj_tests[] = {
    {"defined", is_defined, "-", 1},
    {"undefined", is_undefined, "-", 1},
    {"none", is_none, "-", 1},
    {"boolean", is_boolean, "-", 1},
    {"true", is_true, "-", 1},
    {"false", is_false, "-", 1},
    {"integer", is_integer, "-", 1},
    {"float", is_float, "-", 1},
    {"number", is_number, "-", 1},
    {"string", is_string, "-", 1},
    {"mapping", is_mapping, "-", 1},
    {"iterable", is_iterable, "-", 1},
    {"sequence", is_sequence, "-", 1},
    {"callable", is_callable, "-", 1},
    {"lower", is_lower, "-", 1},
    {"upper", is_upper, "-", 1},
    {"escaped", is_escaped, "-", 1},
    {"filter", is_filter, "-", 1},
    {"test", is_test, "-", 1},
    {"odd", is_odd, "-", 1},
    {"even", is_even, "-", 1},
    {"divisibleby", is_divisibleby, "value num", 2},
    {"sameas", is_sameas, "value other", 2},
    {"eq", is_eq, "- -", 2},
    {"equalto", is_eq, "- -", 2},
    {"==", is_eq, "- -", 2},
    {"ne", is_ne, "- -", 2},
    {"!=", is_ne, "- -", 2},
    {"lt", is_lt, "- -", 2},
    {"lessthan", is_lt, "- -", 2},
    {"<", is_lt, "- -", 2},
    {"le", is_le, "- -", 2},
    {"<=", is_le, "- -", 2},
    {"gt", is_gt, "- -", 2},
    {"greaterthan", is_gt, "- -", 2},
    {">", is_gt, "- -", 2},
    {"ge", is_ge, "- -", 2},
    {">=", is_ge, "- -", 2},
    {"in", is_in, "value seq", 2},
    {0},
};
