/*
 * Files and batches when memory is lacking: for every n the n-th allocation of a call fails, alone or with all later ones. What
 * a client asks for is done or refused for that reason, what is on disk stays whole, and a batch goes on as soon as there is
 * memory again.
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "jobs_fixture.h"
#include "serve/batches/batch.h"
#include "serve/batches/worker_state.h"
#include "serve/protocol/json.h"
#include "tests/serve/protocol/failing_malloc.h"
#include "tests/serve/protocol/fake.h"

static const store_owner nobody = {"default", 0};

/* As programs do, jansson notes its failures. */
static void begin_failing(int n, bool all) {
    fail_malloc(n, all);
    openai_json_init();
}

/*
 * Jansson's parser does not survive each failure of an allocation, so the program asks for the memory beforehand. Here a text
 * is parsed whole, or memory is lacking for it.
 */
void *__real_malloc(size_t size);
json_t *__real_openai_json_parse(const char *what, const char *text, size_t size, openai_error *error);
json_t *__wrap_openai_json_parse(const char *what, const char *text, size_t size, openai_error *error);
json_t *__wrap_openai_json_parse(const char *what, const char *text, size_t size, openai_error *error) {
    json_set_alloc_funcs(__real_malloc, free);
    json_t *value = __real_openai_json_parse(what, text, size, error);
    openai_json_init();
    return value;
}

#define LINE(id, fields)                                                                                                       \
    "{\"custom_id\": \"" id "\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"ab\", " fields   \
    "}}\n"

static const char input[] = LINE("c1", "\"max_tokens\": 2") LINE("c2", "\"max_tokens\": -2");

static json_t *batch_body(const char *file) {
    return json_pack("{s:s, s:s, s:s, s:{s:s}}", "input_file_id", file, "endpoint", "/v1/completions", "completion_window",
                     "24h", "metadata", "a", "b");
}

static void begin_batch(store *s, char *id) {
    char file[STORE_ID];
    cl_error cause;
    openai_error error;
    json_t *record;
    assert_true(add_file(s, &nobody, input, file, &cause));
    json_t *body = batch_body(file);
    if (!batch_create(s, &nobody, body, &record, &error)) fail_msg("%s", error.message);
    snprintf(id, STORE_ID, "%s", store_id(record));
    json_decref(record);
    json_decref(body);
}

/* ---- What clients ask for ---- */

typedef struct asked {
    store *s;
    char file[STORE_ID], batch[STORE_ID]; /* that there are */
    json_t *body;                         /* of a further batch */
} asked;

/* A request to the store, and how many files and batches it adds if it succeeds. */
typedef struct question {
    bool (*ask)(asked *a); /* false: memory is lacking */
    int more_files, more_batches;
} question;

/* An error says that memory is lacking. Returns false. */
static bool refused(const openai_error *error) {
    if (error->status != 503) fail_msg("%d: %s", error->status, error->message);
    return false;
}

static bool ask_create(asked *a) {
    json_t *record = NULL;
    openai_error error;
    if (!batch_create(a->s, &nobody, a->body, &record, &error)) return refused(&error);
    assert_string_equal(batch_status(record), "validating");
    json_decref(record);
    return true;
}

static bool ask_cancel(asked *a) {
    json_t *record = NULL;
    openai_error error;
    if (!batch_cancel(a->s, 0, a->batch, &record, &error)) return refused(&error);
    assert_string_equal(batch_status(record), "cancelling");
    json_decref(record);
    return true;
}

static bool ask_remove(asked *a) {
    openai_error error;
    return batch_remove_file(a->s, 0, a->file, &error) || refused(&error);
}

static bool ask_record(asked *a) {
    openai_error error;
    json_t *record = batch_find(a->s, STORE_BATCH, 0, a->batch, &error);
    if (!record) return refused(&error);
    json_decref(record);
    return true;
}

static bool ask_list(asked *a) {
    bool found;
    json_t *list = store_list(a->s, STORE_FILE, 0, &(store_query){.limit = 10}, &found);
    assert_true(found);
    assert_true(!list || json_array_size(json_object_get(list, "data")) >= 1);
    json_decref(list);
    return list;
}

static bool ask_upload(asked *a) {
    cl_error error;
    json_t *record = NULL;
    store_upload *u = store_upload_begin(a->s, 100);
    if (!u) return false;
    store_upload_write(u, "text", 4);
    const bool ok = store_upload_end(u, &nobody, "name", "batch", &record, &error) == CL_OK;
    if (!ok) assert_int_equal(error.code, CL_ERR_NOMEM);
    json_decref(record);
    store_upload_free(&u);
    return ok;
}

/* The records of a kind in the folder, as a later process finds them. */
static int count_kind(store *s, store_kind kind) {
    bool found;
    json_t *list = store_list(s, kind, 0, &(store_query){.limit = 1000}, &found);
    const int n = (int)json_array_size(json_object_get(list, "data"));
    json_decref(list);
    return n;
}

/* Make the request in a new folder, and let its n-th allocation fail. Returns whether an allocation failed. */
static bool ask_once(const char *path, const question *q, int n, bool all) {
    asked a = {.s = open_store(path)};
    cl_error error;
    begin_batch(a.s, a.batch);
    assert_true(add_file(a.s, &nobody, "x", a.file, &error));
    a.body = batch_body(a.file);
    begin_failing(n, all);
    const bool done = q->ask(&a);
    const bool failed = mend_malloc();
    assert_true(done || failed);
    json_decref(a.body);
    store_close(&a.s);
    a.s = open_store(path);
    assert_int_equal(count_kind(a.s, STORE_FILE), 2 + (done ? q->more_files : 0));
    assert_int_equal(count_kind(a.s, STORE_BATCH), 1 + (done ? q->more_batches : 0));
    assert_int_equal(count_files(path, ".part") + count_files(path, ".tmp"), 0);
    store_close(&a.s);
    empty_folder(path);
    return failed;
}

static void what_is_asked_is_done_or_refused(void **state) {
    static const question questions[] = {{ask_create, 0, 1}, {ask_cancel, 0, 0}, {ask_record, 0, 0},
                                         {ask_list, 0, 0},   {ask_upload, 1, 0}, {ask_remove, -1, 0}};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        for (int all = 0; all < 2; all++)
            for (int n = 1; ask_once(*state, &questions[i], n, all); n++) {
            }
}

/* ---- The start ---- */

static void a_start_reads_all_or_fails(void **state) {
    char id[STORE_ID];
    store *s = open_store(*state);
    for (int i = 0; i < 3; i++) begin_batch(s, id);
    store_close(&s);
    bool did_fail = true;
    for (int n = 1; did_fail; n++) {
        for (int all = 0; all < 2; all++) {
            worker *w = NULL;
            cl_error error;
            begin_failing(n, all);
            cl_status status = store_open(*state, &s, &error);
            const worker_config config = {.store = s, .max_choices = 1, .max_line = 1000, .retry_s = 1};
            if (status == CL_OK) status = worker_create(&config, &w, &error);
            did_fail = mend_malloc();
            if (status != CL_OK && error.code != CL_ERR_NOMEM) fail_msg("%d: %s", n, error.message);
            assert_true(status == CL_OK || did_fail);
            assert_true(status != CL_OK || count_kind(s, STORE_BATCH) == 3);
            worker_destroy(&w);
            store_close(&s);
        }
    }
}

/* ---- The worker, on the test's thread ---- */

static const fake_config instant = {.step_us = 1, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096};

/* The only record of a file: its custom_id and status. */
static void check_record(store *s, const json_t *record, const char *member, const char *custom_id, int status) {
    const char *id = json_string_value(json_object_get(store_object(record), member)), *found;
    int answered;
    assert_non_null(id);
    char *text = read_file(s, id);
    json_t *value = json_loads(text, 0, NULL);
    if (!value || json_unpack(value, "{s:s, s:{s:i}}", "custom_id", &found, "response", "status_code", &answered) != 0)
        fail_msg("%s", text);
    assert_string_equal(found, custom_id);
    if (answered != status) fail_msg("%s", text);
    json_decref(value);
    free(text);
}

/* Wait until a request has ended, or for a little while. */
static void wait_for_event(worker *w) {
    const struct timespec until = clock_deadline(1e-3);
    int timed_out = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->woken && !timed_out) timed_out = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    w->woken = false;
    pthread_mutex_unlock(&w->lock);
}

/* Compute a batch, and let the n-th allocation fail. Returns whether one failed. */
static bool compute(worker *w, int n, bool all) {
    char id[STORE_ID];
    begin_batch(w->config.store, id);
    json_t *record = store_get(w->config.store, STORE_BATCH, 0, id);
    run *r = NULL;
    bool did_fail = false;
    begin_failing(n, all);
    /* As the worker's thread does: a run that could not be made is made later, as is one that ended before its batch did. */
    for (int turn = 0;; turn++) {
        bool progress = false;
        if (turn == 12) did_fail = mend_malloc();
        if (!r) r = run_create(w, record);
        if (r && !run_advance(r, &progress)) {
            run_free(r);
            r = NULL;
            json_t *now = store_get(w->config.store, STORE_BATCH, 0, id);
            const bool ended = now && store_batch_ended(store_object(now));
            if (now) {
                json_decref(record);
                record = now;
            }
            if (ended) break;
        }
        while (r && run_submit(r)) progress = true;
        if (!progress) wait_for_event(w);
        assert_true(turn < 300 * 1000); /* each takes a millisecond at most */
    }
    did_fail |= mend_malloc();
    json_decref(record);
    record = store_get(w->config.store, STORE_BATCH, 0, id);
    assert_string_equal(batch_status(record), "completed");
    int total, completed, failed;
    assert_int_equal(json_unpack(json_object_get(store_object(record), "request_counts"), "{s:i, s:i, s:i}", "total", &total,
                                 "completed", &completed, "failed", &failed),
                     0);
    assert_true(total == 2 && completed == 1 && failed == 1);
    assert_true(json_is_integer(json_object_get(store_object(record), "in_progress_at")));
    assert_true(json_is_integer(json_object_get(store_object(record), "finalizing_at")));
    check_record(w->config.store, record, "output_file_id", "c1", 200);
    check_record(w->config.store, record, "error_file_id", "c2", 400);
    json_decref(record);
    return did_fail;
}

static void a_batch_waits_for_memory(void **state) {
    worker w = {.config = {.store = open_store(*state), .max_choices = 3, .max_line = 1000, .retry_s = 1e-6},
                .engine = fake_engine_create(&instant),
                .context = {.model = fake_model(), .model_name = "fake", .chat = fake_chat(), .n_ctx = 4096}};
    openai_defaults_init(&w.context.defaults);
    pthread_mutex_init(&w.lock, NULL);
    clock_cond_init(&w.changed);
    int n = 1;
    for (bool did_fail = true; did_fail; n += 17) { /* of two thousand allocations */
        did_fail = compute(&w, n, false);
        compute(&w, n + 8, true);
    }
    assert_true(n > 200);
    assert_int_equal(w.n_choices, 0);
    cl_engine_destroy(&w.engine);
    store_close(&w.config.store);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_folder, tear_down_folder)
    const struct CMUnitTest tests[] = {
        TEST(what_is_asked_is_done_or_refused),
        TEST(a_start_reads_all_or_fails),
        TEST(a_batch_waits_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
