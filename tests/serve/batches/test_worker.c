/* Batches over the fake engine: full queues, full disks, and ends of the process at any time. */
#include "tests/support/wait.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "batches_fixture.h"
#include "serve/batches/batch.h"
#include "serve/batches/worker.h"
#include "serve/protocol/json.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/sleeping.h"

/* ---- What the engine gets ---- */

static atomic_int n_wrong; /* requests that a batch must not submit like that */

cl_status __real_cl_engine_submit(cl_engine *e, const cl_engine_request *request, uint64_t *id, cl_error *error);
cl_status __wrap_cl_engine_submit(cl_engine *e, const cl_engine_request *request, uint64_t *id, cl_error *error) {
    const bool right = request->priority == CL_ENGINE_MAX_PRIORITY && request->timeout_s == 0 &&
                       request->queue_timeout_s == 0 && (request->domain == 0 || request->domain == 7);
    if (!right) atomic_fetch_add(&n_wrong, 1);
    return __real_cl_engine_submit(e, request, id, error);
}

static const fake_config fast = {.step_us = 100, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096};
static const fake_config busy = {.step_us = 100, .max_running = 1, .prefill_steps = 1, .n_ctx = 4096, .max_waiting = 1};
static const fake_config slow = {.step_us = 3000, .max_running = 2, .prefill_steps = 1, .n_ctx = 4096};

/* Requests of a batch that takes the slow engine so long that it has not ended when the test goes on. */
enum { N_LONG = 500 };

typedef struct scene {
    batch_store *store;
    cl_engine *engine;
    batch_worker *worker;
    openai_context context;
} scene;

static void begin_with(scene *s, const char *path, const fake_config *config, double retry_s) {
    cl_error error;
    openai_json_init();
    s->store = open_store(path);
    s->engine = fake_engine_create(config);
    s->context = (openai_context){.model = fake_model(),
                                  .model_name = "fake",
                                  .chat = fake_chat(),
                                  .n_ctx = 4096,
                                  .timeout_s = 0.001,
                                  .queue_timeout_s = 0.001};
    openai_defaults_init(&s->context.defaults);
    const worker_config worker = {.store = s->store, .max_choices = 3, .max_line = 1000, .retry_s = retry_s};
    if (worker_create(&worker, &s->worker, &error) != CL_OK) fail_msg("%s", error.message);
    worker_serve(s->worker, s->engine, &s->context);
}

static void begin(scene *s, const char *path, const fake_config *config) { begin_with(s, path, config, 0.01); }

static const double NEVER_S = 1e6; /* of retry_s, where nothing fails that is to be tried again */

static void end(scene *s) {
    worker_destroy(&s->worker);
    assert_int_equal(atomic_load(&n_wrong), 0);
    cl_engine_destroy(&s->engine);
    store_close(&s->store);
}

/* A batch of n requests, each third of which is wrong, and each fifth of which has several prompts and choices. */
static void begin_batch(scene *s, const store_owner *owner, int n, const char *window, char *id) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int i = 1; i <= n; i++)
        fprintf(out,
                "{\"custom_id\": \"c%d\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": %s, "
                "\"n\": %d, \"priority\": -9, \"tenant\": \"alice\", \"max_tokens\": %d}}\n",
                i, i % 5 ? "\"abcdef\"" : "[\"abc\", \"de\"]", i % 5 ? 1 : 2, i % 3 ? 12 : -5);
    fclose(out);
    add_batch(s->store, owner, text, window, id);
    free(text);
    worker_wake(s->worker);
}

static int64_t n_done(scene *s, uint32_t domain, const char *id) {
    json_t *batch = object_of(s->store, STORE_BATCH, domain, id);
    const int64_t n = n_requests(batch, "completed") + n_requests(batch, "failed");
    json_decref(batch);
    return n;
}

static bool is_over(scene *s, uint32_t domain, const char *id) {
    json_t *batch = object_of(s->store, STORE_BATCH, domain, id);
    const bool over = has_ended(batch);
    json_decref(batch);
    return over;
}

/* Wait until a batch has ended; its object. */
static json_t *wait_for(scene *s, uint32_t domain, const char *id) {
    WAIT_UNTIL(is_over(s, domain, id));
    return object_of(s->store, STORE_BATCH, domain, id);
}

static void wait_for_outputs(scene *s, const char *id, int64_t n) { WAIT_UNTIL(n_done(s, 0, id) >= n); }

static bool is_idle(cl_engine *e) {
    cl_engine_stats stats;
    cl_engine_get_stats(e, &stats);
    return stats.n_running + stats.n_waiting == 0;
}

/* The numbers of a file's output lines must be those of `wanted`, and their answers those of a request that ran alone. */
static int check_file(scene *s, const json_t *batch, const char *member, bool (*wanted)(int number), int n) {
    const char *id = json_string_value(json_object_get(batch, member));
    assert_non_null(id);
    char *text = read_file(s->store, 0, id), *rest = NULL;
    int number = 0, found = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char expected[20];
        do number++;
        while (number <= n && !wanted(number));
        json_t *value = json_loads(line, 0, NULL);
        snprintf(expected, sizeof expected, "c%d", number);
        assert_string_equal(json_string_value(json_object_get(value, "custom_id")), expected);
        json_t *body = json_object_get(json_object_get(value, "response"), "body"), *choices = json_object_get(body, "choices");
        if (strcmp(member, "output_file_id") == 0) {
            assert_int_equal(json_array_size(choices), number % 5 ? 1 : 4);
            const json_t *first = json_array_get(choices, 0);
            assert_string_equal(json_string_value(json_object_get(first, "text")),
                                number % 5 ? "abcdefabcdef" : "abcabcabcabc");
        }
        json_decref(value);
        found++;
    }
    free(text);
    return found;
}

static bool is_right(int number) { return number % 3 != 0; }
static bool is_wrong(int number) { return number % 3 == 0; }

/* All output lines of a batch that was completed. */
static void check_completed(scene *s, json_t *batch, int n) {
    assert_true(has_status(batch, "completed"));
    assert_int_equal(n_requests(batch, "total"), n);
    assert_int_equal(n_requests(batch, "completed"), n - n / 3);
    assert_int_equal(n_requests(batch, "failed"), n / 3);
    assert_int_equal(check_file(s, batch, "output_file_id", is_right, n), n - n / 3);
    assert_int_equal(check_file(s, batch, "error_file_id", is_wrong, n), n / 3);
    json_decref(batch);
}

static void a_batch_is_computed(void **state) {
    const fake_config *const configs[] = {&fast, &busy};
    for (int i = 0; i < 2; i++) {
        scene s;
        char id[STORE_ID];
        begin_with(&s, *state, configs[i], configs[i] == &fast ? NEVER_S : 0.01);
        begin_batch(&s, &nobody, 40, "24h", id);
        check_completed(&s, wait_for(&s, 0, id), 40);
        end(&s);
    }
}

/* A window whose requests have all ended is filled again, although no event will come. */
static void wrong_requests_need_no_events(void **state) {
    enum { N = 100 };
    scene s;
    char text[100 * N] = "", id[STORE_ID], *at = text;
    for (int i = 0; i < N; i++)
        at += sprintf(at, "{\"custom_id\": \"c%d\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {}}\n", i);
    begin_with(&s, *state, &fast, NEVER_S);
    add_batch(s.store, &nobody, text, "24h", id);
    worker_wake(s.worker);
    json_t *batch = wait_for(&s, 0, id);
    assert_true(has_status(batch, "completed"));
    assert_int_equal(n_requests(batch, "failed"), N);
    json_decref(batch);
    end(&s);
}

static void ignore_event(void *ctx, const cl_engine_event *event) { (void)ctx, (void)event; }

/* Where the queue is full because of others, the batch waits, and no request fails. */
static void a_full_queue_is_waited_for(void **state) {
    scene s;
    char id[STORE_ID];
    cl_error error;
    begin(&s, *state, &(fake_config){.step_us = 2000, .max_running = 1, .prefill_steps = 1, .n_ctx = 4096, .max_waiting = 1});
    const int32_t prompt[] = {'x', 'y'};
    for (int i = 0; i < 2; i++) {
        cl_engine_request request;
        uint64_t number;
        cl_engine_request_init(&request);
        request.prompt = prompt;
        request.n_prompt = 2;
        request.max_tokens = 100;
        request.on_event = ignore_event;
        WAIT_UNTIL(__real_cl_engine_submit(s.engine, &request, &number, &error) == CL_OK); /* the first is admitted soon */
    }
    begin_batch(&s, &nobody, 10, "24h", id);
    check_completed(&s, wait_for(&s, 0, id), 10);
    end(&s);
}

/* What runs is written, nothing else is begun, and another process goes on. */
static void a_worker_that_drains_begins_nothing(void **state) {
    scene s;
    char id[STORE_ID];
    begin(&s, *state, &slow);
    begin_batch(&s, &nobody, N_LONG, "24h", id);
    wait_for_outputs(&s, id, 3);
    worker_drain(s.worker);
    WAIT_UNTIL(others_sleep() && is_idle(s.engine)); /* a turn that began before has ended */
    cl_engine_stats stats;
    cl_engine_get_stats(s.engine, &stats);
    const int64_t n_finished = stats.requests_finished;
    for (int i = 0; i < 20; i++) { /* turns, in which requests would be submitted */
        worker_wake(s.worker);
        WAIT_UNTIL(others_sleep());
    }
    WAIT_UNTIL(is_idle(s.engine));
    cl_engine_get_stats(s.engine, &stats);
    assert_int_equal(stats.requests_finished, n_finished);
    assert_in_range(n_done(&s, 0, id), 3, N_LONG - 1);
    end(&s);
    begin(&s, *state, &fast);
    check_completed(&s, wait_for(&s, 0, id), N_LONG);
    end(&s);
}

/* Each call of the disk fails once while a batch is computed; it is tried again, and the output is the same. */
static void a_full_disk_is_waited_for(void **state) {
    for (int n = 1; n <= 26; n += 5) {
        scene s;
        char id[STORE_ID];
        begin(&s, *state, &fast);
        fake_hold_steps(true);
        begin_batch(&s, &nobody, 9, "24h", id);
        fail_disk(n, 2);
        fake_hold_steps(false);
        json_t *batch = wait_for(&s, 0, id);
        assert_true(mend_disk());
        check_completed(&s, batch, 9);
        end(&s);
    }
}

static void what_is_wrong_fails(void **state) {
    scene s;
    char text[2000], id[STORE_ID];
    begin(&s, *state, &fast);
    snprintf(text, sizeof text, "{\"custom_id\": \"%01000d\"}\n", 0);
    add_batch(s.store, &nobody, text, "24h", id);
    worker_wake(s.worker);
    json_t *batch = wait_for(&s, 0, id);
    assert_true(has_status(batch, "failed"));
    const json_t *errors = json_object_get(json_object_get(batch, "errors"), "data");
    assert_string_equal(json_string_value(json_object_get(json_array_get(errors, 0), "code")), "line_too_long");
    json_decref(batch);
    end(&s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_folder, tear_down_folder)
    const struct CMUnitTest tests[] = {
        TEST(a_batch_is_computed),        TEST(wrong_requests_need_no_events),
        TEST(a_full_queue_is_waited_for), TEST(a_worker_that_drains_begins_nothing),
        TEST(a_full_disk_is_waited_for),  TEST(what_is_wrong_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
