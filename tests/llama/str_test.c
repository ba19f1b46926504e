/* What is shown of texts from files: no control characters, in names and in messages. */
#include "tests/base/testing.h"

#include <string.h>

#include "llama/error.h"
#include "llama/str.h"

static void names_are_disarmed_and_cut(void **state) {
    (void)state;
    char buf[12];
    assert_string_equal(str_show(str_of(""), buf, sizeof buf), "");
    assert_string_equal(str_show(str_of("a\x1b[1m\r\n\t\x7f"), buf, sizeof buf), "a?[1m????");
    assert_string_equal(str_show(str_of("\xc2\x9b"
                                        "1m\xc2\xa0\xc2"),
                                 buf, sizeof buf),
                        "??1m\xc2\xa0\xc2"); /* U+009B, U+00A0 */
    assert_string_equal(str_show(str_of("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"), buf, sizeof buf),
                        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4...");
}

static void messages_are_disarmed(void **state) {
    (void)state;
    cl_error error;
    const char file_text[] = "\x1b]0;owned\x07\x1b[31mX\xc2\x9b\x7f\n";
    assert_int_equal(cl_fail(&error, CL_ERR_FORMAT, "key: '%.*s X'; know\xc3\xa4n", (int)strlen(file_text), file_text),
                     CL_ERR_FORMAT);
    assert_string_equal(error.message, "key: '?]0;owned??[31mX???? X'; know\xc3\xa4n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_disarmed_and_cut), cmocka_unit_test(messages_are_disarmed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
