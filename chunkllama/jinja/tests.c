/* The tests of `is`. */
#include "builtins.h"

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
TEST(is_integer, v->kind == CJ_INT || cj_is_long_int(v))
TEST(is_float, v->kind == CJ_FLOAT || (v->kind == CJ_LONG_NUMBER && !cj_is_long_int(v)))
TEST(is_number, cj_is_number(v))
TEST(is_string, v->kind == CJ_STRING)
TEST(is_mapping, v->kind == CJ_DICT)
TEST(is_iterable, cj_is_iterable(v) || v->kind == CJ_LOOP)
TEST(is_sequence, cj_has_length(v) && v->kind != CJ_VIEW && v->kind != CJ_LOOP)
TEST(is_eq, cj_equal(r, v, &a->at[1]))
TEST(is_in, cj_contains(r, &a->at[1], v))

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
    {"eq", is_eq, "- -", 2},
    {"equalto", is_eq, "- -", 2},
    {"in", is_in, "value seq", 2},
    {0},
};
