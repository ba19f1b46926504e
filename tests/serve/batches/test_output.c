/* The files of a batch's records after a crash, and on a disk that fails. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs_fixture.h"
#include "serve/batches/output.h"

static const char *const ids[OUTPUT_KINDS] = {"file-a", "file-e"};

static json_t *make_record(void) { return json_pack("{s:s, s:s}", "output", ids[0], "errors", ids[1]); }

/* Records of these numbers, and then `rest`. */
static void write_records(store *s, output_kind kind, const char *numbers, const char *rest) {
    cl_error error;
    store_remove_data(s, ids[kind]);
    const int fd = store_append_data(s, ids[kind], &error);
    for (const char *n = numbers; *n; n++) dprintf(fd, "{\"id\": \"batch_req_%d\", \"x\": \"\\u00e9\"}\n", *n - '0');
    dprintf(fd, "%s", rest);
    close(fd);
}

static void expect(store *s, output_kind kind, const char *numbers) {
    char *text = read_file(s, ids[kind]), *at = text;
    for (const char *n = numbers; *n; n++) {
        char record[80];
        snprintf(record, sizeof record, "{\"id\": \"batch_req_%d\", \"x\": \"\\u00e9\"}\n", *n - '0');
        if (strncmp(at, record, strlen(record)) != 0) fail_msg("<%s> does not have %s", text, numbers);
        at += strlen(record);
    }
    if (*at) fail_msg("<%s> has more than %s", text, numbers);
    free(text);
}

static void what_is_not_whole_is_cut(void **state) {
    static const struct {
        const char *answers, *answers_rest, *errors, *errors_rest;
        bool gaps;
        const char *kept_answers, *kept_errors;
    } cases[] = {
        {"", "", "", "", false, "", ""},
        {"124", "", "35", "", false, "124", "35"},
        {"124", "{\"id\": \"batch_req_6\"", "35", "", false, "124", "35"},
        {"124", "", "3", "{", false, "124", "3"},
        {"1245", "", "", "", false, "12", ""}, /* the system lost 3 */
        {"2", "", "3", "", false, "", ""},
        {"1245", "", "", "{\"id\"", true, "1245", ""},
        {"12", "no record\n", "3", "", false, "12", "3"},
        {"12", "{\"id\": \"batch_req_1\"}\n", "", "", false, "12", ""},
        {"12", "{\"id\": \"batch_req_99999999999999999999\"}\n", "", "\n", false, "12", ""},
    };
    json_t *record = make_record();
    store *s = open_store(*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        output o;
        cl_error error;
        write_records(s, OUTPUT_ANSWERS, cases[i].answers, cases[i].answers_rest);
        write_records(s, OUTPUT_ERRORS, cases[i].errors, cases[i].errors_rest);
        assert_int_equal(output_open(&o, s, record, cases[i].gaps, &error), CL_OK);
        assert_int_equal(o.n[OUTPUT_ANSWERS], strlen(cases[i].kept_answers));
        assert_int_equal(o.n[OUTPUT_ERRORS], strlen(cases[i].kept_errors));
        expect(s, OUTPUT_ANSWERS, cases[i].kept_answers);
        expect(s, OUTPUT_ERRORS, cases[i].kept_errors);
        output_close(&o);
    }
    store_close(&s);
    json_decref(record);
}

/* A record that could not be written whole is written once the disk has room, and nothing stands between. */
static void a_full_disk_leaves_whole_records(void **state) {
    static const char text[] = "{\"id\": \"batch_req_1\", \"x\": \"\\u00e9\"}\n";
    json_t *record = make_record();
    store *s = open_store(*state);
    for (int times = 1; times <= 4; times++) {
        output o;
        cl_error error;
        write_records(s, OUTPUT_ANSWERS, "", "");
        assert_int_equal(output_open(&o, s, record, false, &error), CL_OK);
        fail_disk(1, times);
        int failures = 0;
        while (output_add(&o, OUTPUT_ANSWERS, text, sizeof text - 1, &error) != CL_OK) failures++;
        assert_true(mend_disk() && failures >= 1);
        assert_non_null(strstr(error.message, "No space left"));
        assert_true(o.n[OUTPUT_ANSWERS] == 1 && o.size[OUTPUT_ANSWERS] == sizeof text - 1);
        expect(s, OUTPUT_ANSWERS, "1");
        output_close(&o);
    }
    store_close(&s);
    json_decref(record);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_not_whole_is_cut, set_up_folder, tear_down_folder),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_whole_records, set_up_folder, tear_down_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
