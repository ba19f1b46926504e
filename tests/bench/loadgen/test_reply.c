/* Replies: what counts as output and when, the counts of `usage`, and every way in which a reply can be wrong. */
#include "tests/support/testing.h"

#include <math.h>
#include <string.h>

#include "bench/loadgen/load_reply.h"

#define TEXT(t)    "data: {\"choices\":[{\"text\":\"" t "\",\"finish_reason\":null}]}\n\n"
#define CONTENT(t) "data: {\"choices\":[{\"delta\":{\"content\":\"" t "\"}}]}\n\n"
#define ROLE       "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define END        "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
#define USAGE                                                                                                                  \
    "data: "                                                                                                                   \
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":"     \
    "4}}}\n\n"
#define DONE "data: [DONE]\n\n"

static load_outcome o;

/* Read a reply whose pieces come at 1, 2, ... seconds and which ends one second after the last. */
static void run(bool chat, long http_status, const char *transport_error, const char *const *pieces) {
    load_reply r;
    double now = 1;
    bool ok = true;
    load_outcome_free(&o);
    o = (load_outcome){0};
    load_reply_begin(&r, &o, chat);
    for (; ok && *pieces; now++, pieces++) ok = load_reply_feed(&r, http_status, *pieces, strlen(*pieces), now);
    load_reply_end(&r, http_status, transport_error, now);
}

#define RUN(chat, status, transport, ...) run(chat, status, transport, (const char *const[]){__VA_ARGS__, NULL})

static void test_completion(void **state) {
    (void)state;
    RUN(false, 200, NULL, TEXT("a"), TEXT(""), TEXT("b") TEXT("c"), END, USAGE, DONE);
    assert_int_equal(o.status, LOAD_OUTCOME_OK);
    assert_int_equal(o.tokens, 5);
    assert_int_equal(o.prompt_tokens, 9);
    assert_int_equal(o.cached_tokens, 4);
    assert_true(o.first == 1 && o.end == 7);
    assert_int_equal(o.n_gaps, 3);
    assert_true(o.gaps[0] == 1 && o.gaps[1] == 1 && o.gaps[2] == 0);
}

static void test_without_usage(void **state) {
    (void)state;
    RUN(false, 200, NULL, TEXT("a"), TEXT("b"), DONE);
    assert_int_equal(o.status, LOAD_OUTCOME_OK);
    assert_int_equal(o.tokens, 2);
    assert_int_equal(o.prompt_tokens, -1);
    assert_int_equal(o.cached_tokens, -1);
}

static void test_chat(void **state) {
    (void)state;
    RUN(true, 200, NULL, ROLE, CONTENT("a"), CONTENT("b"), USAGE DONE);
    assert_int_equal(o.status, LOAD_OUTCOME_OK);
    assert_true(o.first == 2);
    assert_int_equal(o.n_gaps, 1);
}

static void assert_wrong(load_outcome_status status, const char *message) {
    assert_int_equal(o.status, status);
    assert_string_equal(o.message, message);
}

static void test_wrong_streams(void **state) {
    (void)state;
    RUN(false, 200, NULL, TEXT("a"), USAGE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "the stream ended without [DONE]");
    RUN(false, 200, NULL, TEXT("a"), "data: {\"cho");
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "the stream ended without [DONE], inside an event");
    RUN(false, 200, NULL, TEXT("a"), "data: {\"cho\n\n", TEXT("b"), DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "an event is not a JSON object: {\"cho");
    RUN(false, 200, NULL, "data: {\"object\":\"x\xc3\xa4\"}\n\n", DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "an event is not a completion: {\"object\":\"x  \"}");
    RUN(false, 200, NULL, TEXT("a"), "data: {\"error\":{\"message\":\"overloaded\"}}\n\n", DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "error event: overloaded");
    RUN(false, 200, NULL, "data: {\"error\":7}\n\n", DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "error event: {\"error\":7}");
    RUN(false, 200, NULL, DONE, TEXT("a"));
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "an event after [DONE]: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}");
    RUN(false, 200, NULL, USAGE, DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "the stream brought no output");
}

#define COUNTS(prompt, tokens, cached)                                                                                         \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":" prompt ",\"completion_tokens\":" tokens                              \
    ",\"prompt_tokens_details\":{\"cached_tokens\":" cached "}}}\n\n"

static void test_impossible_counts(void **state) {
    (void)state;
    RUN(false, 200, NULL, TEXT("a"), COUNTS("9223372036854775807", "1", "0"), DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "usage: prompt_tokens is 9223372036854775807; it must be from 0 to 4294967296");
    RUN(false, 200, NULL, TEXT("a"), COUNTS("1", "-9223372036854775808", "0"), DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "usage: completion_tokens is -9223372036854775808; it must be from 0 to 4294967296");
    RUN(false, 200, NULL, TEXT("a"), COUNTS("1", "2", "4294967297"), DONE);
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "usage: cached_tokens is 4294967297; it must be from 0 to 4294967296");
    RUN(false, 200, NULL, TEXT("a"), COUNTS("4294967296", "0", "null"), DONE);
    assert_int_equal(o.status, LOAD_OUTCOME_OK);
    assert_true(o.prompt_tokens == 4294967296 && o.tokens == 0 && o.cached_tokens == -1);
}

static void test_refusals(void **state) {
    (void)state;
    RUN(false, 400, NULL, "{\"error\": {\"mess", "age\": \"too long\"}}");
    assert_wrong(LOAD_OUTCOME_REFUSED, "HTTP 400: too long");
    RUN(false, 503, NULL, "busy");
    assert_wrong(LOAD_OUTCOME_REFUSED, "HTTP 503: busy");
    RUN(false, 404, NULL, "");
    assert_wrong(LOAD_OUTCOME_REFUSED, "HTTP 404: ");
}

static void test_connection(void **state) {
    (void)state;
    RUN(false, 0, "refused", "");
    assert_wrong(LOAD_OUTCOME_UNREACHABLE, "refused");
    RUN(false, 200, "reset", TEXT("a"));
    assert_wrong(LOAD_OUTCOME_UNREACHABLE, "reset");
    /* The first failure is reported, not that the client then ended the transfer. */
    RUN(false, 200, "write error", "data: x\n\n");
    assert_wrong(LOAD_OUTCOME_BAD_STREAM, "an event is not a JSON object: x");
    load_outcome_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion),    cmocka_unit_test(test_without_usage),     cmocka_unit_test(test_chat),
        cmocka_unit_test(test_wrong_streams), cmocka_unit_test(test_impossible_counts), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_connection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
