/* Allocation: alignment, the byte count, hooks, overflow and growth. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/alloc.h"

typedef struct hooks {
    size_t size, align; /* of the last alloc */
    int n_left;         /* allocations until failure */
} hooks;

static void *hook_alloc(void *ctx, size_t size, size_t align) {
    hooks *h = ctx;
    h->size = size;
    h->align = align;
    return h->n_left-- > 0 ? malloc(size) : NULL;
}

static void hook_free(void *ctx, void *ptr, size_t size, size_t align) {
    hooks *h = ctx;
    assert_int_equal(align, h->align);
    h->size = size;
    free(ptr);
}

static void default_is_aligned_and_counted(void **state) {
    (void)state;
    ca_alloc a = ca_alloc_default();
    for (size_t n = 1; n < 200; n++) {
        unsigned char *p = ca_new_zero(&a, n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal(a.bytes, n * 3);
        for (size_t i = 0; i < n * 3; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, n * 3); /* the next allocation must be cleared again */
        ca_delete(&a, p, n, 3);
        assert_int_equal(a.bytes, 0);
    }
    ca_delete(&a, NULL, 5, 5);
    assert_int_equal(a.bytes, 0);
}

static void nothing_and_overflow_give_null(void **state) {
    (void)state;
    ca_alloc a = ca_alloc_default();
    assert_null(ca_new(&a, 0, 8));
    assert_null(ca_new(&a, SIZE_MAX / 2, 3));
    assert_null(ca_new(&a, 1, SIZE_MAX - 10));
    assert_null(ca_new_zero(&a, SIZE_MAX, SIZE_MAX));
    assert_int_equal(a.bytes, 0);
}

static void hooks_see_sizes(void **state) {
    (void)state;
    hooks h = {.n_left = 1};
    ca_alloc a = {.alloc = hook_alloc, .free = hook_free, .ctx = &h};
    void *p = ca_new(&a, 7, 9);
    assert_int_equal(h.size, 63);
    assert_int_equal(h.align, 64);
    assert_null(ca_new(&a, 1, 1));
    assert_int_equal(a.bytes, 63);
    h.size = 0;
    ca_delete(&a, p, 7, 9);
    assert_int_equal(h.size, 63);
}

static void grow_keeps_contents_and_survives_failure(void **state) {
    (void)state;
    hooks h = {.n_left = 2};
    ca_alloc a = {.alloc = hook_alloc, .free = hook_free, .ctx = &h};
    void *array = NULL;
    size_t capacity = 0;
    assert_int_equal(ca_grow(&a, &array, &capacity, 3, sizeof(int)), 0);
    assert_true(capacity >= 3);
    int *ints = array;
    for (int i = 0; i < 3; i++) ints[i] = i + 10;
    const size_t before = capacity;
    assert_int_equal(ca_grow(&a, &array, &capacity, before, sizeof(int)), 0); /* there is room, so nothing happens */
    assert_ptr_equal(array, ints);
    assert_int_equal(ca_grow(&a, &array, &capacity, before + 1, sizeof(int)), 0);
    assert_true(capacity >= 2 * before);
    assert_int_equal(a.bytes, capacity * sizeof(int));
    ints = array;
    for (int i = 0; i < 3; i++) assert_int_equal(ints[i], i + 10);

    const size_t full = capacity;
    assert_int_equal(ca_grow(&a, &array, &capacity, full + 1, sizeof(int)), -1);
    assert_int_equal(ca_grow(&a, &array, &capacity, SIZE_MAX, sizeof(int)), -1);
    assert_ptr_equal(array, ints);
    assert_int_equal(capacity, full);
    ca_delete(&a, array, capacity, sizeof(int));
    assert_int_equal(a.bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_is_aligned_and_counted),
        cmocka_unit_test(nothing_and_overflow_give_null),
        cmocka_unit_test(hooks_see_sizes),
        cmocka_unit_test(grow_keeps_contents_and_survives_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
