/* Lines of a file, with lengths around those of the buffer and of the limit. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/batches/lines.h"

enum { MAX = 200000 };

static int file_of(const char *text, size_t size) {
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, size, f), size);
    assert_int_equal(fflush(f), 0);
    return dup(fileno(f));
}

static void lines_of_all_lengths(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 2, 65535, 65536, 65537, MAX - 1, MAX, MAX + 1, 3, 3 * MAX, 1, 131072};
    enum { N = sizeof lengths / sizeof *lengths };
    char *text = malloc(8 * MAX), *at = text;
    for (size_t i = 0; i < N; i++) {
        memset(at, 'a' + (int)i, lengths[i]);
        at += lengths[i];
        *at++ = '\n';
    }
    for (int last_break = 0; last_break < 2; last_break++) {
        batch_lines l;
        char *again = NULL;
        size_t capacity = 0;
        const int fd = file_of(text, (size_t)(at - text) - !last_break);
        lines_begin(&l, fd, 0, MAX);
        for (size_t i = 0; i < N; i++) {
            const lines_status status = lines_next(&l);
            assert_int_equal(status, lengths[i] > MAX ? LINES_TOO_LONG : LINES_OK);
            assert_int_equal(l.number, i + 1);
            if (status != LINES_OK) continue;
            assert_int_equal(l.size, lengths[i]);
            assert_true(l.text[0] == 'a' + (int)i && l.text[l.size - 1] == 'a' + (int)i);
            assert_int_equal(lines_read(fd, l.place, l.size, &again, &capacity, NULL), CL_OK);
            assert_memory_equal(again, l.text, l.size);
        }
        assert_int_equal(lines_next(&l), LINES_END);
        assert_int_equal(lines_next(&l), LINES_END);
        assert_true(l.capacity < 2 * MAX + 300000);
        assert_int_equal(lines_read(fd, at - text - 1, 3, &again, &capacity, NULL), CL_ERR_FILE); /* beyond its end */
        free(again);
        lines_free(&l);
        close(fd);
    }
    free(text);
}

static void blank_lines_do_not_count(void **state) {
    (void)state;
    static const char text[] = "head\n\n\r\n \t\na\n\n\nb\r\n\n";
    batch_lines l;
    const int fd = file_of(text, sizeof text - 1);
    lines_begin(&l, fd, strlen("head\n"), 100);
    assert_int_equal(lines_next(&l), LINES_OK);
    assert_true(l.size == 1 && *l.text == 'a' && l.number == 4 && text[l.place] == 'a' && l.place > 4);
    assert_int_equal(lines_next(&l), LINES_OK);
    assert_true(l.size == 2 && *l.text == 'b' && l.number == 7);
    assert_int_equal(lines_next(&l), LINES_END);
    lines_free(&l);
    close(fd);
}

static void a_file_that_cannot_be_read(void **state) {
    (void)state;
    batch_lines l;
    lines_begin(&l, -1, 0, 100);
    assert_int_equal(lines_next(&l), LINES_FAILED);
    lines_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_all_lengths),
        cmocka_unit_test(blank_lines_do_not_count),
        cmocka_unit_test(a_file_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
