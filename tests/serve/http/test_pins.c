/* The list of pins, and the pins of cache_control in a server whose clock the test moves on. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "serve/http/pins.h"
#include "server_fixture.h"
#include "tests/support/still_clock.h"

/* ---- The list ---- */

static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8}, others[] = {1, 2, 9, 9};

/* A pin of cache_control. */
static server_pin make_pin(uint64_t id, const int32_t *of, int64_t n, int32_t ttl_s, double now) {
    server_pin pin = {
        .id = id, .n_tokens = n, .ttl_s = ttl_s, .ends_at = now + ttl_s, .domain = 1, .tokens = malloc(4 * (size_t)n)};
    memcpy(pin.tokens, of, 4 * (size_t)n);
    return pin;
}

static void add(server_pins *p, uint64_t id, const int32_t *of, int64_t n, int32_t ttl_s, double now) {
    const server_pin pin = make_pin(id, of, n, ttl_s, now);
    assert_true(pins_add(p, &pin));
}

static bool use(server_pins *p, uint32_t domain, const int32_t *of, int64_t n, int32_t ttl_s, double now) {
    uint64_t shorter;
    return pins_use(p, domain, of, n, ttl_s, now, &shorter);
}

static void a_pin_ends_some_time_after_its_last_use(void **state) {
    (void)state;
    server_pins p;
    pins_init(&p);
    const server_pin lasting = {.id = 9, .n_tokens = 4, .tenant = "default"};
    assert_true(pins_add(&p, &lasting));
    add(&p, 1, tokens, 4, 300, 0);
    assert_int_equal(pins_take_ended(&p, 299), 0);
    assert_true(use(&p, 1, tokens, 4, 300, 200)); /* the same */
    assert_int_equal(pins_take_ended(&p, 499), 0);
    assert_false(use(&p, 1, tokens, 8, 3600, 400)); /* a longer one, which lasts longer, begins with it */
    assert_int_equal(pins_take_ended(&p, 699), 0);
    assert_false(use(&p, 2, tokens, 4, 300, 600)); /* that of another tenant */
    assert_false(use(&p, 1, tokens, 2, 300, 600)); /* a shorter one */
    assert_false(use(&p, 1, others, 4, 300, 600)); /* another one */
    assert_int_equal(pins_take_ended(&p, 700), 1);
    assert_int_equal(pins_take_ended(&p, 1e9), 0); /* that of /cache/pin has no end */
    add(&p, 2, tokens, 4, 300, 0);
    assert_true(use(&p, 1, tokens, 4, 3600, 100)); /* from now on for an hour */
    assert_true(use(&p, 1, tokens, 4, 300, 200));  /* which it keeps, once promised */
    assert_int_equal(pins_take_ended(&p, 3699), 0);
    assert_int_equal(pins_take_ended(&p, 3700), 2);
    assert_true(pins_remove(&p, 9));
    pins_destroy(&p);
}

static void a_longer_pin_takes_the_place_of_a_shorter_one(void **state) {
    (void)state;
    server_pins p;
    pins_init(&p);
    add(&p, 1, tokens, 2, 3600, 0);
    add(&p, 2, tokens, 4, 300, 0);
    add(&p, 3, others, 4, 300, 0);
    add(&p, 4, tokens, 6, 300, 100);
    server_pin by = make_pin(5, tokens, 6, 300, 100);
    uint64_t shorter;
    assert_false(pins_use(&p, 1, tokens, 8, 300, 0, &shorter));
    assert_int_equal(shorter, 2); /* 4 would end later */
    assert_false(pins_use(&p, 1, tokens, 8, 300, 100, &shorter));
    assert_int_equal(shorter, 4);
    assert_false(pins_use(&p, 1, &tokens[4], 4, 300, 100, &shorter));
    assert_int_equal(shorter, 0);
    assert_int_equal(pins_take_covered(&p, &by), 2);
    assert_int_equal(pins_take_covered(&p, &by), 4); /* two requests had the same at once */
    assert_int_equal(pins_take_covered(&p, &by), 0); /* 1 lasts longer, and 3 is another one */
    by.domain = 2;
    by.ends_at = 1e9;
    assert_int_equal(pins_take_covered(&p, &by), 0);
    by.domain = 1;
    assert_int_equal(pins_take_covered(&p, &by), 1);
    free(by.tokens);
    assert_true(pins_remove(&p, 3));
    assert_false(pins_remove(&p, 3));
    pins_destroy(&p);
}

/* ---- A server ---- */

#define MARKED(text, ttl)                                                                                                      \
    "{\"type\":\"text\",\"text\":\"" text "\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"" ttl "\"}}"

/* Send messages; returns the tokens that the request has created in the cache. */
static json_int_t send_messages(const fixture *f, const char *system, const char *user) {
    char body[512];
    json_t *reply;
    json_int_t created;
    sprintf(body, "{\"max_tokens\":2,\"system\":[%s],\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}", system, user);
    assert_int_equal(client_call_json(f->port, "POST", "/v1/messages", body, &reply), 200);
    assert_unpack(reply, "{s:{s:I}}", "usage", "cache_creation_input_tokens", &created);
    json_decref(reply);
    return created;
}

/* The list of pins in GET /cache, and the number of those that the engine has. */
static json_t *list_pins(const fixture *f, json_int_t *n_pinned) {
    json_t *reply, *pins;
    assert_int_equal(client_call_json(f->port, "GET", "/cache", NULL, &reply), 200);
    assert_unpack(reply, "{s:O, s:I}", "pins", &pins, "sequences", n_pinned);
    json_decref(reply);
    return pins;
}

/* The pins are as many, and the first one has n tokens and ends ttl seconds from now. */
static void assert_pins(const fixture *f, size_t n_pins, json_int_t n, int ttl) {
    json_int_t n_pinned, n_tokens, created, expires_at;
    time_t before = time(NULL);
    json_t *pins = list_pins(f, &n_pinned);
    assert_int_equal(json_array_size(pins), n_pins);
    while ((size_t)n_pinned != n_pins) { /* the engine's thread is about to end the request, whose answer has arrived */
        json_decref(pins);
        before = time(NULL);
        pins = list_pins(f, &n_pinned);
    }
    if (n_pins > 0) {
        const char *tenant;
        assert_unpack(json_array_get(pins, 0), "{s:I, s:s, s:I, s:I}", "tokens", &n_tokens, "tenant", &tenant, "created",
                      &created, "expires_at", &expires_at);
        assert_int_equal(n_tokens, n);
        assert_string_equal(tenant, "default");
        assert_in_range(expires_at, before + ttl - 1, time(NULL) + ttl); /* a fraction of a second is cut off */
    }
    json_decref(pins);
}

static void marked_prompts_stay_for_their_time(void **state) {
    const fixture *f = *state;
    assert_int_equal(send_messages(f, MARKED("abcdefgh", "5m"), "{\"type\":\"text\",\"text\":\"ij\"}"),
                     3); /* 8 of 11; half is cached */
    assert_pins(f, 1, 8, 300);
    char *slots;
    assert_int_equal(client_call(f->port, "GET", "/slots", NULL, &slots), 200);
    assert_non_null(strstr(slots, "[{\"id\":0,\"n_ctx\":4096,\"is_processing\":false}")); /* a pin does not run */
    free(slots);
    move_clock(200);
    assert_int_equal(send_messages(f, MARKED("abcdefgh", "5m"), "{\"type\":\"text\",\"text\":\"kl\"}"), 0); /* pinned already */
    assert_pins(f, 1, 8, 300);
    move_clock(200); /* 400 s after the first request */
    assert_pins(f, 1, 8, 100);
    /* the conversation goes on */
    assert_int_equal(send_messages(f, MARKED("abcdefgh", "5m"), MARKED("klmn", "5m")), 6);
    assert_pins(f, 1, 12, 300);
    send_messages(f, MARKED("abcdefgh", "1h"), "{\"type\":\"text\",\"text\":\"kl\"}"); /* lasts longer than the one with more */
    assert_pins(f, 2, 12, 300);
    move_clock(301);
    assert_pins(f, 1, 8, 3600 - 301);
    move_clock(3600);
    send_messages(f, "", "{\"type\":\"text\",\"text\":\"kl\"}"); /* no request finds its memory in use */
    assert_pins(f, 0, 0, 0);
}

/* A server that gets no requests ends pins as well; and they can be deleted. */
static void pins_end_without_requests(void **state) {
    const fixture *f = *state;
    json_int_t n_pinned;
    char path[64];
    send_messages(f, MARKED("abcdefgh", "5m"), "{\"type\":\"text\",\"text\":\"ij\"}");
    move_clock(301);
    server_tick(f->running);
    cattn_stats kv = {.struct_size = sizeof kv};
    do cl_engine_get_kv_stats(f->engine, &kv); /* the engine's thread is about to end the request and the pin */
    while (kv.n_seqs > 0);
    send_messages(f, MARKED("abcdefgh", "5m"), "{\"type\":\"text\",\"text\":\"ij\"}");
    json_t *pins = list_pins(f, &n_pinned);
    sprintf(path, "/cache/pin/%s", json_string_value(json_object_get(json_array_get(pins, 0), "id")));
    json_decref(pins);
    assert_int_equal(client_call_json(f->port, "DELETE", path, NULL, &pins), 200);
    json_decref(pins);
    assert_pins(f, 0, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pin_ends_some_time_after_its_last_use),
        cmocka_unit_test(a_longer_pin_takes_the_place_of_a_shorter_one),
        cmocka_unit_test_setup_teardown(marked_prompts_stay_for_their_time, set_up_pins, tear_down),
        cmocka_unit_test_setup_teardown(pins_end_without_requests, set_up_pins, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
