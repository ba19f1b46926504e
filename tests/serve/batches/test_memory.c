/*
 * Files and batches when memory is lacking: for every n the n-th allocation of a call fails, alone or with all later ones. What
 * a client asks for is done or refused for that reason, the files on disk stay whole, and a batch goes on as soon as there is
 * memory again.
 */
#include "tests/support/testing.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "batches_fixture.h"
#include "serve/batches/batch.h"
#include "serve/batches/worker_state.h"
#include "serve/protocol/json.h"
#include "tests/serve/protocol/failing_malloc.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/folder.h"

/* ---- Allocations ---- */

/* Of SQLite's allocations, where they fail alone, only each of these counts: a statement makes dozens of them. */
enum { STRIDE = 8 };

static _Thread_local int n_skipped, n_to_skip; /* allocations of SQLite since the last that counted */

/* As programs do, jansson notes its failures. */
static void begin_failing(int n, bool all) {
    n_skipped = 0;
    n_to_skip = all ? 0 : STRIDE - 1;
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

static bool counts(void) {
    const bool does = n_skipped == n_to_skip;
    n_skipped = does ? 0 : n_skipped + 1;
    return does;
}

/* SQLite allocates with these. */
void *__real_realloc(void *p, size_t size);
static void *allocate(int size) { return counts() ? malloc((size_t)size) : __real_malloc((size_t)size); }
static void *reallocate(void *p, int size) { return counts() ? realloc(p, (size_t)size) : __real_realloc(p, (size_t)size); }
static int size_of(void *p) { return (int)malloc_usable_size(p); }
static int round_up(int size) { return (size + 7) & ~7; }
static int begin_memory(void *unused) { return (void)unused, SQLITE_OK; }
static void end_memory(void *unused) { (void)unused; }
static const sqlite3_mem_methods memory = {allocate, free, reallocate, size_of, round_up, begin_memory, end_memory, NULL};

#define LINE(id, fields)                                                                                                       \
    "{\"custom_id\": \"" id "\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"ab\", " fields   \
    "}}\n"

static const char input[] = LINE("c1", "\"max_tokens\": 2") LINE("c2", "\"max_tokens\": -2");

/* ---- What clients ask for ---- */

typedef struct asked {
    batch_store *s;
    char file[STORE_ID], batch[STORE_ID]; /* that there are */
    json_t *body;                         /* of a further batch */
    openai_writer w;
    openai_error error;
} asked;

/* A request to the store, and how many files and batches it adds if it succeeds. */
typedef struct question {
    bool (*ask)(asked *a); /* false: memory is lacking */
    int more_files, more_batches;
} question;

static bool ask_create(asked *a) { return batch_create(a->s, &nobody, a->body, &a->w, &a->error); }
static bool ask_cancel(asked *a) { return batch_cancel(a->s, 0, a->batch, &a->w, &a->error); }
static bool ask_remove(asked *a) { return store_remove_file(a->s, 0, a->file, &a->error); }
static bool ask_object(asked *a) { return store_get(a->s, STORE_BATCH, 0, a->batch, &a->w, &a->error); }
static bool ask_list(asked *a) { return store_list(a->s, STORE_FILE, 0, &(store_query){.limit = 10}, &a->w, &a->error); }

static bool ask_upload(asked *a) {
    batch_content c = content_begin(a->s);
    const bool ok = content_write(&c, "text", 4, &a->error) && store_add_file(&c, &nobody, "name", "batch", &a->w, &a->error);
    content_end(&c);
    return ok;
}

/* Make the request in a new folder, and let its n-th allocation fail. Returns whether an allocation failed. */
static bool ask_once(const char *path, const question *q, int n, bool all) {
    asked a = {.s = open_store(path)};
    add_batch(a.s, &nobody, input, "24h", a.batch);
    assert_true(add_file(a.s, &nobody, "x", a.file, &a.error));
    a.body = batch_body(a.file, "24h");
    begin_failing(n, all);
    const bool done = q->ask(&a);
    const bool failed = mend_malloc();
    assert_true(done || failed);
    if (!done && a.error.status != 503) fail_msg("%d: %d: %s", n, a.error.status, a.error.message);
    assert_false(done && a.w.failed); /* an answer that is not whole */
    writer_free(&a.w);
    json_decref(a.body);
    store_close(&a.s);
    a.s = open_store(path);
    assert_int_equal(count_of(a.s, STORE_FILE, 0), 2 + (done ? q->more_files : 0));
    assert_int_equal(count_of(a.s, STORE_BATCH, 0), 1 + (done ? q->more_batches : 0));
    assert_int_equal(count_files(path, ".data"), count_of(a.s, STORE_FILE, 0));
    json_t *batch = object_of(a.s, STORE_BATCH, 0, a.batch);
    assert_true(has_status(batch, done && q->ask == ask_cancel ? "cancelling" : "validating"));
    json_decref(batch);
    store_close(&a.s);
    empty_folder(path);
    return failed;
}

static void what_is_asked_is_done_or_refused(void **state) {
    static const question questions[] = {{ask_create, 0, 1}, {ask_cancel, 0, 0}, {ask_object, 0, 0},
                                         {ask_list, 0, 0},   {ask_upload, 1, 0}, {ask_remove, -1, 0}};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        for (int all = 0; all < 2; all++)
            for (int n = 1; ask_once(*state, &questions[i], n, all); n += all ? 1 + n / 16 : 1) {
            }
}

/* ---- The start ---- */

static void a_start_reads_all_or_fails(void **state) {
    char id[STORE_ID];
    batch_store *s = open_store(*state);
    for (int i = 0; i < 3; i++) add_batch(s, &nobody, input, "24h", id);
    store_close(&s);
    for (int all = 0; all < 2; all++) {
        bool did_fail = true;
        for (int n = 1; did_fail; n += all ? 1 + n / 16 : 1) {
            batch_worker *w = NULL;
            cl_error error;
            begin_failing(n, all);
            cl_status status = store_open(*state, NULL, &s, &error);
            const worker_config config = {.store = s, .max_choices = 1, .max_line = 1000, .retry_s = 1};
            if (status == CL_OK) status = worker_create(&config, &w, &error);
            did_fail = mend_malloc();
            if (status != CL_OK && error.code != CL_ERR_NOMEM) fail_msg("%d: %s", n, error.message);
            assert_true(status == CL_OK || did_fail);
            assert_true(status != CL_OK || count_of(s, STORE_BATCH, 0) == 3);
            worker_destroy(&w);
            store_close(&s);
        }
    }
}

/* ---- The worker, on the test's thread ---- */

static const fake_config instant = {.step_us = 1, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096};

/* The only output line of a file: its custom_id and status. */
static void check_output(batch_store *s, const json_t *batch, const char *member, const char *custom_id, int status) {
    const char *id = json_string_value(json_object_get(batch, member)), *found = NULL;
    int answered = 0;
    assert_non_null(id);
    char *text = read_file(s, 0, id);
    json_t *value = json_loads(text, 0, NULL);
    if (!value || json_unpack(value, "{s:s, s:{s:i}}", "custom_id", &found, "response", "status_code", &answered) != 0)
        fail_msg("%s", text);
    assert_string_equal(found, custom_id);
    if (answered != status) fail_msg("%s", text);
    json_decref(value);
    free(text);
}

/* Compute a batch, and let the n-th allocation fail. Returns whether one failed. */
static bool compute(batch_worker *w, int n, bool all) {
    batch_store *s = w->config.store;
    char id[STORE_ID];
    bool did_fail = false;
    add_batch(s, &nobody, input, "24h", id);
    json_t *batch = object_of(s, STORE_BATCH, 0, id);
    begin_failing(n, all);
    for (int turn = 0; !has_ended(batch); turn++) {
        if (!worker_turn(w)) gate_wait(&w->gate, 1e-3);
        if (turn < 12) continue; /* for as long memory may be lacking */
        did_fail |= mend_malloc();
        json_decref(batch);
        batch = object_of(s, STORE_BATCH, 0, id);
        assert_true(turn < 300 * 1000); /* each takes a millisecond at most */
    }
    if (!has_status(batch, "completed")) fail_msg("%d %d: %s", n, all, json_dumps(batch, 0));
    assert_true(n_requests(batch, "total") == 2 && n_requests(batch, "completed") == 1 && n_requests(batch, "failed") == 1);
    assert_true(json_is_integer(json_object_get(batch, "in_progress_at")));
    assert_true(json_is_integer(json_object_get(batch, "finalizing_at")));
    check_output(s, batch, "output_file_id", "c1", 200);
    check_output(s, batch, "error_file_id", "c2", 400);
    json_decref(batch);
    return did_fail;
}

static void begin_worker(batch_worker *w, const char *path) {
    *w = (batch_worker){.config = {.store = open_store(path), .max_choices = 3, .max_line = 1000, .retry_s = 1e-6},
                        .context = {.model = fake_model(), .model_name = "fake", .chat = fake_chat(), .n_ctx = 4096},
                        .gate = {.engine = fake_engine_create(&instant), .waits = true}};
    w->gate.context = &w->context;
    openai_defaults_init(&w->context.defaults);
    gate_init(&w->gate);
}

static void end_worker(batch_worker *w) {
    worker_turn(w); /* forgets the last batch */
    assert_true(!w->runs && w->gate.n_choices == 0);
    cl_engine_destroy(&w->gate.engine);
    store_close(&w->config.store);
    gate_destroy(&w->gate);
}

static void a_batch_waits_for_memory(void **state) {
    batch_worker w;
    begin_worker(&w, *state);
    int n = 1;
    for (bool did_fail = true; did_fail; n += 5) { /* of some 600 allocations that count */
        did_fail = compute(&w, n, false);
        compute(&w, n + 2, true);
    }
    assert_true(n > 200);
    end_worker(&w);
}

/* Between two turns the latest batch may be removed, and another tenant's may get its place in the index. */
static void a_batch_is_no_other_one(void **state) {
    batch_worker w;
    openai_error error;
    char id[STORE_ID];
    begin_worker(&w, *state);
    add_batch(w.config.store, &alice, input, "24h", id);
    json_t *batch = object_of(w.config.store, STORE_BATCH, alice.domain, id);
    while (!has_ended(batch)) {
        if (!worker_turn(&w)) gate_wait(&w.gate, 1e-3);
        json_decref(batch);
        batch = object_of(w.config.store, STORE_BATCH, alice.domain, id);
    }
    json_decref(batch);
    assert_non_null(w.runs); /* until the next turn */
    assert_true(batch_remove(w.config.store, alice.domain, id, &error));
    compute(&w, 1 << 30, false); /* the next batch, of `nobody` */
    end_worker(&w);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_folder, tear_down_folder)
    const struct CMUnitTest tests[] = {
        TEST(what_is_asked_is_done_or_refused),
        TEST(a_start_reads_all_or_fails),
        TEST(a_batch_waits_for_memory),
        TEST(a_batch_is_no_other_one),
    };
    sqlite3_config(SQLITE_CONFIG_MALLOC, &memory);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
