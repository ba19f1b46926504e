/*
 * A server that lacks a thread or memory when it starts reports that and leaves nothing behind: no thread, no file, no
 * listening socket. The next attempt succeeds.
 */
#include "tests/support/wait.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/failing_malloc.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/failing_threads.h"

/* ---- Starting ---- */

/* Wait until there are n threads: one that has been joined stays in /proc for a moment. */
static void wait_for_threads(int n) { WAIT_UNTIL(n_threads() == n); }

typedef struct scene {
    cl_engine *engine;
    http_server *running;
    int n_files, n_threads; /* without a server */
    cl_error error;
} scene;

static int set_up(void **state) {
    static scene s;
    s.engine = fake_engine_create(&(fake_config){.step_us = 200, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096});
    *state = &s;
    s.n_threads = n_threads();
    /* What libraries open once stays open. */
    const server_config config = base_config();
    if (server_start(&config, &s.running, &s.error) != CL_OK) return -1;
    server_stop(&s.running);
    s.n_files = n_files();
    return 0;
}

static int tear_down_engine(void **state) {
    scene *s = *state;
    cl_engine_destroy(&s->engine);
    return 0;
}

/* Whether a server starts. If not, nothing of it may be left; if it does, it must answer. */
static bool starts(scene *s) {
    const server_config config = base_config();
    s->error = (cl_error){.message = ""};
    const cl_status status = server_start(&config, &s->running, &s->error);
    mend_malloc();
    threads_left = -1;
    if (status != CL_OK) {
        assert_null(s->running);
        assert_int_equal(s->error.code, status);
        assert_true(strlen(s->error.message) > 0);
        wait_for_threads(s->n_threads);
        return false;
    }
    server_serve(s->running, s->engine, fake_model(), fake_chat(), NULL);
    char *text;
    assert_int_equal(
        client_call(server_port(s->running), "POST", "/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":2}", &text), 200);
    assert_non_null(strstr(text, "\"text\":\"ab\""));
    free(text);
    server_stop(&s->running);
    return true;
}

static void without_a_thread(void **state) {
    scene *s = *state;
    int n = 0;
    for (;; n++) {
        threads_left = n;
        if (starts(s)) break;
        assert_int_equal(s->error.code, CL_ERR_NOMEM);
        assert_non_null(strstr(s->error.message, "threads"));
        assert_int_equal(n_files(), s->n_files);
    }
    assert_int_equal(n, 3); /* that prepare requests, compile grammars and accept connections */
}

static void without_memory(void **state) {
    scene *s = *state;
    int n = 1;
    for (;; n++) {
        fail_malloc(n, false);
        if (starts(s)) break;
        assert_int_equal(s->error.code, CL_ERR_NOMEM);
        assert_int_equal(n_files(), s->n_files);
    }
    assert_true(n > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down_engine);
}
