/* Files and batches on disk: what was reported stays, and a call that fails changes nothing. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs_fixture.h"
#include "serve/batches/batch.h"

static const store_owner nobody = {"default", 0}, alice = {"alice", 7};

static json_t *list_of(store *s, store_kind kind, uint32_t domain) {
    bool found;
    json_t *list = store_list(s, kind, domain, &(store_query){.limit = 100}, &found);
    assert_non_null(list);
    return list;
}

static size_t count(store *s, store_kind kind, uint32_t domain) {
    json_t *list = list_of(s, kind, domain);
    const size_t n = json_array_size(json_object_get(list, "data"));
    json_decref(list);
    return n;
}

static void files_are_there_after_a_restart(void **state) {
    char ids[3][STORE_ID] = {0};
    cl_error error;
    store *s = open_store(*state);
    for (int i = 0; i < 3; i++) assert_true(add_file(s, i == 1 ? &alice : &nobody, i ? "text\n" : "", ids[i], &error));
    json_t *before = list_of(s, STORE_FILE, 0);
    store_close(&s);
    s = open_store(*state);
    json_t *after = list_of(s, STORE_FILE, 0);
    assert_true(json_equal(before, after));
    assert_string_equal(json_string_value(json_object_get(after, "first_id")), ids[2]);
    assert_string_equal(json_string_value(json_object_get(after, "last_id")), ids[0]);
    json_t *record = store_get(s, STORE_FILE, 7, ids[1]);
    assert_non_null(record);
    assert_string_equal(store_owner_of(record).tenant, "alice");
    assert_null(store_get(s, STORE_FILE, 0, ids[1]));
    assert_null(store_get(s, STORE_BATCH, 7, ids[1]));
    char *text = read_file(s, ids[1]);
    assert_string_equal(text, "text\n");
    free(text);
    json_decref(record);
    json_decref(before);
    json_decref(after);
    store_close(&s);
}

static void what_belongs_to_no_record_is_removed(void **state) {
    char id[STORE_ID];
    cl_error error;
    store *s = open_store(*state);
    assert_true(add_file(s, &nobody, "text", id, &error));
    const int fd = store_append_data(s, "file-lost", &error);
    close(fd);
    store_upload *u = store_upload_begin(s, 100);
    store_upload_write(u, "part", 4);
    assert_int_equal(count_files(*state, ".part"), 1);
    store_close(&s); /* as if the process had ended */
    s = open_store(*state);
    assert_int_equal(count_files(*state, ""), 2);
    store_close(&s);
    s = open_store(*state);
    assert_int_equal(count(s, STORE_FILE, 0), 1);
    store_close(&s);
    free(u);
}

static void an_upload_that_ends_early_leaves_nothing(void **state) {
    json_t *record;
    cl_error error;
    store *s = open_store(*state);
    store_upload *u = store_upload_begin(s, 6);
    store_upload_write(u, "four", 4);
    store_upload_free(&u);
    assert_int_equal(count_files(*state, ""), 0);
    u = store_upload_begin(s, 6);
    store_upload_write(u, "four", 4);
    store_upload_write(u, "mor", 3);
    assert_int_equal(store_upload_end(u, &nobody, "name", "batch", &record, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "larger than 6 bytes"));
    store_upload_free(&u);
    assert_int_equal(count_files(*state, ""), 0);
    store_close(&s);
}

/* Each call of the disk fails once. Then the file is refused and leaves nothing; otherwise it is there after a restart. */
static void a_disk_that_fails_keeps_no_half(void **state) {
    int failures = 0;
    for (int n = 1;; n++) {
        char id[STORE_ID];
        cl_error error;
        store *s = open_store(*state);
        fail_disk(n, 1);
        const bool added = add_file(s, &nobody, "some text", id, &error);
        if (!mend_disk()) {
            assert_true(added);
            store_close(&s);
            break;
        }
        failures++;
        assert_false(added);
        assert_int_equal(error.code, CL_ERR_FILE);
        assert_non_null(strstr(error.message, "No space left"));
        assert_int_equal(count(s, STORE_FILE, 0), 0);
        store_close(&s);
        s = open_store(*state);
        assert_int_equal(count(s, STORE_FILE, 0), 0);
        assert_int_equal(count_files(*state, ""), 0);
        store_close(&s);
    }
    assert_true(failures >= 8); /* two pieces, and fsync, rename, fsync of contents and record */
}

static void a_folder_has_one_store(void **state) {
    store *s = open_store(*state), *other;
    cl_error error;
    assert_int_equal(store_open(*state, &other, &error), CL_ERR_FILE);
    assert_non_null(strstr(error.message, "another process"));
    assert_null(other);
    assert_int_equal(store_open("/nowhere/at/all", &other, &error), CL_ERR_FILE);
    store_close(&s);
}

static void a_damaged_record_is_named(void **state) {
    static const char *const texts[] = {"", "{", "[]", "{\"object\": {\"id\": \"file-2\"}}",
                                        "{\"object\": {\"id\": \"file-1\"}, \"tenant\": 1, \"domain\": 0, \"sequence\": 1}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char path[100];
        store *s;
        cl_error error;
        snprintf(path, sizeof path, "%s/file-1.json", (char *)*state);
        FILE *f = fopen(path, "w");
        fputs(texts[i], f);
        fclose(f);
        assert_int_equal(store_open(*state, &s, &error), CL_ERR_FORMAT);
        assert_non_null(strstr(error.message, "file-1.json"));
    }
}

/* ---- Batches ---- */

static json_t *make_batch(store *s, const char *file, const char *more, openai_error *error) {
    char text[400];
    json_t *record = NULL;
    snprintf(text, sizeof text,
             "{\"input_file_id\": \"%s\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"24h\"%s}", file, more);
    json_t *body = json_loads(text, 0, NULL);
    assert_non_null(body);
    if (!batch_create(s, &nobody, body, &record, error)) record = NULL;
    json_decref(body);
    return record;
}

static void a_batch_changes_as_it_may(void **state) {
    char file[STORE_ID];
    cl_error cause;
    openai_error error;
    json_t *after = NULL;
    store *s = open_store(*state);
    assert_true(add_file(s, &nobody, "{}", file, &cause));
    json_t *record = make_batch(s, file, ", \"metadata\": {\"a\": \"b\"}", &error);
    char id[STORE_ID];
    snprintf(id, sizeof id, "%s", store_id(record));
    assert_true(batch_has_status(record, "validating"));
    json_decref(record);
    assert_false(batch_remove_file(s, 0, file, &error));
    assert_int_equal(error.status, 409);

    assert_int_equal(batch_set(s, id, &(batch_change){.status = "in_progress"}, true, &after, &cause), CL_OK);
    assert_true(batch_has_status(after, "in_progress"));
    json_decref(after);
    assert_false(batch_cancel(s, 7, id, &after, &error)); /* of another tenant */
    assert_int_equal(error.status, 404);
    assert_true(batch_cancel(s, 0, id, &after, &error));
    json_decref(after);
    store_close(&s);
    s = open_store(*state);
    assert_int_equal(batch_set(s, id, &(batch_change){.status = "completed"}, true, &after, &cause), CL_OK);
    assert_true(batch_has_status(after, "cancelling"));
    json_decref(after);
    assert_int_equal(batch_set(s, id, &(batch_change){.status = "cancelled"}, true, &after, &cause), CL_OK);
    assert_true(batch_has_status(after, "cancelled") && json_is_integer(json_object_get(store_object(after), "cancelled_at")));
    json_decref(after);
    assert_int_equal(batch_set(s, id, &(batch_change){.status = "in_progress"}, true, &after, &cause), CL_OK);
    assert_true(batch_has_status(after, "cancelled"));
    json_decref(after);
    assert_true(batch_remove_file(s, 0, file, &error));
    assert_int_equal(count_files(*state, ".data"), 0);
    store_close(&s);
}

static void a_change_that_fails_is_none(void **state) {
    char file[STORE_ID], id[STORE_ID];
    cl_error cause;
    openai_error error;
    store *s = open_store(*state);
    assert_true(add_file(s, &nobody, "{}", file, &cause));
    json_t *record = make_batch(s, file, "", &error);
    snprintf(id, sizeof id, "%s", store_id(record));
    json_decref(record);
    for (int n = 1; n <= 3; n++) { /* write, fsync, rename; after the rename a failed fsync of the folder may leave either */
        json_t *after = NULL;
        fail_disk(n, 1);
        assert_false(batch_cancel(s, 0, id, &after, &error));
        assert_true(mend_disk());
        assert_int_equal(error.status, 500);
        record = store_get(s, STORE_BATCH, 0, id);
        assert_true(batch_has_status(record, "validating"));
        json_decref(record);
        assert_int_equal(count_files(*state, ".tmp"), 0);
    }
    store_close(&s);
    s = open_store(*state);
    record = store_get(s, STORE_BATCH, 0, id);
    assert_true(batch_has_status(record, "validating"));
    json_decref(record);
    store_close(&s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_folder, tear_down_folder)
    const struct CMUnitTest tests[] = {
        TEST(files_are_there_after_a_restart),
        TEST(what_belongs_to_no_record_is_removed),
        TEST(an_upload_that_ends_early_leaves_nothing),
        TEST(a_disk_that_fails_keeps_no_half),
        TEST(a_folder_has_one_store),
        TEST(a_damaged_record_is_named),
        TEST(a_batch_changes_as_it_may),
        TEST(a_change_that_fails_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
