/* Structs that grow at their end, between callers and libraries of different versions. */
#include <stdint.h>
#include <string.h>

#include "tests/support/testing.h"

#include "chunkattn/base/struct_size.h"

/* One struct in three versions; the library has the second. */
typedef struct first {
    size_t struct_size;
    int64_t a;
} first;
typedef struct second {
    size_t struct_size;
    int64_t a, b;
} second;
typedef struct third {
    size_t struct_size;
    int64_t a, b, c;
} third;

static const ca_struct type = {"second", sizeof(second), sizeof(first)};

static void an_older_caller_gets_defaults(void **state) {
    (void)state;
    char message[CA_STRUCT_MESSAGE];
    second read = {.b = 7};
    const first from = {sizeof from, 1};
    assert_int_equal(ca_struct_read(&type, &read, &from, "1.2.3", message), CA_STRUCT_OK);
    assert_int_equal(read.struct_size, sizeof read);
    assert_int_equal(read.a, 1);
    assert_int_equal(read.b, 7);

    struct {
        first known;
        int64_t after;
    } to = {{sizeof to.known, 0}, 5};
    assert_int_equal(ca_struct_write(&type, &to, &(second){sizeof(second), 1, 2}, message), CA_STRUCT_OK);
    assert_int_equal(to.known.struct_size, sizeof to.known);
    assert_int_equal(to.known.a, 1);
    assert_int_equal(to.after, 5);
}

static void a_newer_caller_leaves_new_fields_zero(void **state) {
    (void)state;
    char message[CA_STRUCT_MESSAGE];
    second read = {0};
    third from = {sizeof from, 1, 2, 0};
    assert_int_equal(ca_struct_read(&type, &read, &from, "1.2.3", message), CA_STRUCT_OK);
    assert_int_equal(read.b, 2);
    for (size_t byte = offsetof(third, c); byte < sizeof from; byte++) {
        from.c = 0;
        ((unsigned char *)&from)[byte] = 1;
        read = (second){0};
        assert_int_equal(ca_struct_read(&type, &read, &from, "1.2.3", message), CA_STRUCT_UNKNOWN_FIELD);
        assert_int_equal(read.a, 0);
        assert_non_null(strstr(message, "second"));
        assert_non_null(strstr(message, "1.2.3"));
    }
    third to = {sizeof to, 0, 0, 9};
    assert_int_equal(ca_struct_write(&type, &to, &(second){sizeof(second), 1, 2}, message), CA_STRUCT_OK);
    assert_int_equal(to.struct_size, sizeof to);
    assert_int_equal(to.b, 2);
    assert_int_equal(to.c, 0);
}

static void an_impossible_size_is_refused(void **state) {
    (void)state;
    static const size_t sizes[] = {0, sizeof(first) - 1, ((size_t)1 << 16) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char message[CA_STRUCT_MESSAGE] = "";
        second caller = {sizes[i], 1, 2}, other = {sizeof other, 3, 4};
        assert_int_equal(ca_struct_check(&type, &caller, message), CA_STRUCT_WRONG_SIZE);
        assert_int_equal(ca_struct_read(&type, &other, &caller, "1.2.3", message), CA_STRUCT_WRONG_SIZE);
        assert_int_equal(other.a, 3);
        assert_int_equal(ca_struct_write(&type, &caller, &other, message), CA_STRUCT_WRONG_SIZE);
        assert_int_equal(caller.a, 1);
        assert_non_null(strstr(message, "sizeof(second)"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_caller_gets_defaults),
        cmocka_unit_test(a_newer_caller_leaves_new_fields_zero),
        cmocka_unit_test(an_impossible_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
