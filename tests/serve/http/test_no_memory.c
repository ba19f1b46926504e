/* When memory is lacking for an answer, the client receives an error in its place, and the server goes on. */
#include "tests/support/testing.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "serve/http/generation_state.h"
#include "server_fixture.h"

/* ---- The linker calls these in place of the functions of these names ---- */

static atomic_bool no_text, no_chunk, no_event;

char *__real_writer_end(openai_writer *w, size_t *size);
char *__wrap_writer_end(openai_writer *w, size_t *size);
char *__wrap_writer_end(openai_writer *w, size_t *size) {
    if (no_text) writer_fail(w);
    return __real_writer_end(w, size);
}

void __real_openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event, size_t k);
void __wrap_openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event, size_t k);
void __wrap_openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event, size_t k) {
    __real_openai_write_chunk(w, result, i, event, k);
    if (no_chunk && event->kind == CL_EVENT_END) writer_fail(w);
}

/* Only the copy of an event with one character of text has this size. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return no_event && size == sizeof(generation_event) + 1 ? NULL : __real_malloc(size); }

/* ---- Tests ---- */

static const char lacking[] = "memory is lacking for the answer";

static void assert_recovered(const fixture *f) {
    char *text;
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":2}", &text), 200);
    assert_non_null(strstr(text, "\"text\":\"ab\""));
    free(text);
}

static void whole_answers_become_errors(void **state) {
    const fixture *f = *state;
    no_text = true;
    assert_refused(f->port, "POST", "/v1/completions", "{\"prompt\":\"ab\"}", 500, NULL, lacking);
    assert_refused(f->port, "POST", "/v1/completions", "{", 500, NULL, lacking); /* not even its error can be written */
    assert_refused(f->port, "GET", "/v1/models", NULL, 500, NULL, lacking);
    assert_refused(f->port, "GET", "/health", NULL, 500, NULL, lacking);
    assert_refused(f->port, "GET", "/cache", NULL, 500, NULL, lacking);
    assert_refused(f->port, "GET", "/cache?nodes=3", NULL, 500, NULL, lacking);
    assert_refused(f->port, "POST", "/cache/explain", "{\"prompt\":\"ab\"}", 500, NULL, lacking);
    assert_refused(f->port, "POST", "/cache/reset", NULL, 500, NULL, lacking);
    no_text = false;
    assert_recovered(f);
}

/* Of each API in its own shape. */
static void all_apis_have_such_errors(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < OPENAI_N_DIALECTS; i++) {
        const openai_dialect *d = openai_dialects[i];
        char *text;
        no_text = true;
        assert_int_equal(client_call(f->port, "POST", d->path, "{}", &text), 500);
        no_text = false;
        assert_string_equal(text, d->no_memory_body);
        free(text);
    }
    assert_recovered(f);
}

static void streams_end_with_an_error(void **state) {
    const fixture *f = *state;
    char *text;
    no_chunk = true;
    assert_int_equal(
        client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":2,\"stream\":true}", &text), 200);
    no_chunk = false;
    const char *error = strstr(text, "data: {\"error\": {\"message\": \"memory is lacking");
    assert_non_null(error);
    assert_non_null(strstr(error, "}\n\ndata: [DONE]\n\n"));
    assert_null(strstr(text, "\"finish_reason\":\"length\""));
    free(text);
    assert_recovered(f);
}

static void a_lost_event_is_an_error(void **state) {
    const fixture *f = *state;
    char *text;
    no_event = true;
    assert_refused(f->port, "POST", "/v1/completions", "{\"prompt\":\"ab\"}", 500, NULL, lacking);
    const int status = client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"ab\",\"stream\":true}", &text);
    no_event = false;
    assert_true(status == 200 || status == 500); /* 500: the event was lost before the answer began */
    assert_non_null(strstr(text, lacking));
    if (status == 200) assert_non_null(strstr(text, "data: [DONE]\n\n"));
    free(text);
    assert_recovered(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_answers_become_errors, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(all_apis_have_such_errors, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(streams_end_with_an_error, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_event_is_an_error, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
