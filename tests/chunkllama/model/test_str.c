/* Texts from outside: without control characters where they are shown, UTF-8 where they go into JSON. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"
#include "chunkllama/file/model_file.h"

static void names_are_disarmed_and_cut(void **state) {
    (void)state;
    char buf[12];
    assert_string_equal(cl_str_show(cl_str_of(""), buf, sizeof buf), "");
    assert_string_equal(cl_str_show(cl_str_of("\x1b[1m\r\n\x7f"), buf, sizeof buf), "?[1m\\r\\n?");
    assert_string_equal(cl_str_show(cl_str_of("a\tb\n"), buf, sizeof buf), "a\\tb\\n"); /* white space can be read */
    assert_string_equal(cl_str_show(cl_str_of("abcdefg\nhij"), buf, sizeof buf), "abcdefg...");
    assert_string_equal(cl_str_show(cl_str_of("\xc2\x9b"
                                              "1m\xc2\xa0\xc2"),
                                    buf, sizeof buf),
                        "??1m\xc2\xa0\xc2"); /* U+009B, U+00A0 */
    assert_string_equal(cl_str_show(cl_str_of("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"), buf, sizeof buf),
                        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4...");
}

static void words_are_whole(void **state) {
    (void)state;
    static const char words[] = " ab  b-c abc ";
    static const char *const in[] = {"ab", "b-c", "abc"}, *const out[] = {"",   " ",   "a",    "b",      "c",
                                                                          "bc", "ab ", "abcd", "ab  b-c"};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) assert_true(cl_str_is_one_of(cl_str_of(in[i]), words));
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) assert_false(cl_str_is_one_of(cl_str_of(out[i]), words));
    assert_true(cl_str_is_one_of((cl_str){"abcd", 3}, words));
    assert_false(cl_str_is_one_of(cl_str_of(""), ""));
}

static void messages_are_disarmed(void **state) {
    (void)state;
    cl_error error;
    const char file_text[] = "\x1b]0;owned\x07\x1b[31mX\xc2\x9b\x7f\n";
    assert_int_equal(cl_fail(&error, CL_ERR_FORMAT, "key: '%.*s X'; know\xc3\xa4n", (int)strlen(file_text), file_text),
                     CL_ERR_FORMAT);
    assert_string_equal(error.message, "key: '?]0;owned??[31mX???? X'; know\xc3\xa4n");
}

/* size: with a zero byte in text */
static void assert_mended(const char *text, size_t size, const char *wanted, size_t wanted_size) {
    size_t mended_size;
    char *mended = cl_utf8_mended(text, size, &mended_size);
    assert_int_equal(mended_size, wanted_size);
    assert_memory_equal(mended, wanted, wanted_size + 1);
    free(mended);
    assert_int_equal(cl_utf8_valid(wanted, wanted_size), wanted_size);
}

#define FFFD "\xef\xbf\xbd"

static void broken_bytes_are_mended(void **state) {
    (void)state;
    assert_mended("", 0, "", 0);
    assert_mended("a\0\xc3\xa4", 4, "a\0\xc3\xa4", 4);
    assert_mended("mod\xe9le", 6, "mod" FFFD "le", 8);
    assert_mended("\xff\xe2\x82", 3, FFFD FFFD, 6); /* the last two begin a character, together */
    assert_mended("\xed\xa0\x80\xf0\x9f\x98\x80", 7, FFFD FFFD FFFD "\xf0\x9f\x98\x80", 13); /* a surrogate, a face */
    assert_int_equal(cl_utf8_valid("ab\xe9", 3), 2);
}

static void assert_name(const char *path, const char *wanted) {
    char *name = cl_model_file_name(path);
    assert_string_equal(name, wanted);
    free(name);
}

static void names_from_paths_are_utf8(void **state) {
    (void)state;
    assert_name("/tmp/model.gguf", "model");
    assert_name("folder/mod\xc3\xa8le//", "mod\xc3\xa8le");
    assert_name("/tmp/x\xff/mod\xe9le.gguf", "mod" FFFD "le");
    assert_name("/tmp/model-00002-of-00003.gguf", "model");
    assert_name("/tmp/-00002-of-00003.gguf", "-00002-of-00003");
    assert_name("/tmp/model-00004-of-00003.gguf", "model-00004-of-00003"); /* no part */
    char path[512], wanted[512];                                           /* a long name is whole */
    memset(path, 'x', 255);
    strcpy(path + 255, "\xc3\xa8.gguf");
    memset(wanted, 'x', 255);
    strcpy(wanted + 255, "\xc3\xa8");
    assert_name(path, wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_disarmed_and_cut), cmocka_unit_test(words_are_whole),
                                       cmocka_unit_test(messages_are_disarmed), cmocka_unit_test(broken_bytes_are_mended),
                                       cmocka_unit_test(names_from_paths_are_utf8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
