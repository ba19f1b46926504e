/* Options from tables: the command line that is stored beside results. */
#include "bench/shared/bench_options.h"
#include "tests/support/testing.h"

static void assert_command(const char *const *arguments, int n, const char *command) {
    int64_t number = 0;
    bool flag = false;
    const char *text = NULL, *dir = NULL;
    option_list list = {0};
    const option_row rows[] = {{"steps", OPTION_INT, &number, 0, 100, "", 0},
                               {"quick", OPTION_FLAG, &flag, 0, 0, "", 0},
                               {"files", OPTION_TEXT, &text, 0, 0, "", 0},
                               {"out", OPTION_TEXT, &dir, 0, 0, "", 'o'},
                               {0}};
    char *argv[8] = {NULL};
    options_add(&list, rows);
    for (int i = 0; i < n; i++) argv[i] = (char *)arguments[i];
    assert_int_equal(options_read(n, argv, &list, ""), OPTIONS_RUN);
    assert_string_equal(list.command, command);
}

static void command_repeats_the_measurement(void **state) {
    (void)state;
    assert_command((const char *[]){"x"}, 1, "cattn-bench x");
    assert_command((const char *[]){"x", "--steps", "5", "--quick", "-o", "a/b"}, 6, "cattn-bench x --steps 5 --quick");
}

/* Folders belong to one machine, so the command omits them, in lists of paths as well. */
static void paths_have_no_folders(void **state) {
    (void)state;
    assert_command((const char *[]){"x", "--files", "/a/b.gguf"}, 3, "cattn-bench x --files b.gguf");
    assert_command((const char *[]){"x", "--files=a/b.jsonl,c.jsonl,/d/e/f"}, 2, "cattn-bench x --files b.jsonl,c.jsonl,f");
    assert_command((const char *[]){"x", "--files", "paged,chunk"}, 3, "cattn-bench x --files paged,chunk");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_repeats_the_measurement),
        cmocka_unit_test(paths_have_no_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
