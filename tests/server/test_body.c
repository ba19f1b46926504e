/* Bodies are parsed, or refused with the reason. */
#include "../support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "server/body.h"

/* ---- An allocator that fails once: the linker puts it in place of malloc in the code under test ---- */

static int allocations_left = -1; /* that succeed before one fails; < 0: all do */

void *__real_malloc(size_t size); // NOLINT(bugprone-reserved-identifier)
void *__wrap_malloc(size_t size); // NOLINT(bugprone-reserved-identifier)

void *__wrap_malloc(size_t size) { // NOLINT(bugprone-reserved-identifier)
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL : __real_malloc(size);
}

/* Whichever allocation fails, the answer is that memory is lacking, and the next try succeeds. */
static void lacking_memory_is_not_the_clients_fault(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"prompt\": \"abc\"}",
        "{\"a\": [1, 2.5, true, null, \"x\"], \"b\": {\"c\": [[], {}]}}",
        "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]",
        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":0}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        openai_error error;
        json_t *json = NULL;
        int n = 0;
        for (; !json; n++) {
            allocations_left = n;
            json = body_parse(bodies[i], strlen(bodies[i]), &error);
            allocations_left = -1;
            if (!json && (error.status != 503 || strcmp(error.type, "server_error") != 0 || !strstr(error.message, "memory")))
                fail_msg("%s, allocation %d: %d %s", bodies[i], n, error.status, error.message);
        }
        assert_true(n > 5);
        json_decref(json);
    }
}

static void invalid_text_is_the_clients_fault(void **state) {
    (void)state;
    static const char *const bodies[] = {"", "{", "{\"a\":}", "[1,]", "\"abc", "{\"a\":\"\xff\"}", "1e999 "};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        openai_error error;
        assert_null(body_parse(bodies[i], strlen(bodies[i]), &error));
        assert_int_equal(error.status, 400);
        assert_non_null(strstr(error.message, "the body is not valid JSON: "));
    }
}

static int set_up(void **state) {
    (void)state;
    body_init();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lacking_memory_is_not_the_clients_fault),
        cmocka_unit_test(invalid_text_is_the_clients_fault),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
