/* What integrators use beside requests and events: polling, a hook on logits, sessions, and processes that fork. */
#include "tests/support/testing.h"

#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../model/status.h"
#include "chunkllama/engine/event_queue.h"
#include "fixture.h"
#include "tests/support/blob.h"
#include "tests/support/child.h"
#include "tests/support/sleeping.h"
#include "tests/support/thread_names.h"

enum { N_PROMPT = 50, N_COMPLETION = 20 };

static const int32_t *a_prompt(void) {
    static int32_t tokens[N_PROMPT];
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    return tokens;
}

/* ---- Polling ---- */

static bool is_readable(int fd, int milliseconds) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, milliseconds) == 1 && (p.revents & POLLIN);
}

/* Take events, at most `most` at a time, until the last one of n requests; each goes to the recording that is its ctx. */
static void poll_requests(fixture *f, int fd, size_t most, int n) {
    const cl_engine_event *events[64];
    while (n > 0) {
        size_t n_events;
        assert_true(is_readable(fd, -1));
        assert_int_equal(cl_engine_poll(f->engine, events, most, &n_events, NULL), CL_OK);
        assert_true(n_events >= 1 && n_events <= most);
        for (size_t i = 0; i < n_events; i++) {
            recording_event(events[i]->ctx, events[i]);
            n -= events[i]->last;
        }
    }
}

/* The events of requests that are polled are those that on_event gets. */
static void events_can_be_polled(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 2);
    cl_engine_request requests[3];
    for (int i = 0; i < 3; i++) requests[i] = make_request(a_prompt(), N_PROMPT - i, N_COMPLETION, NULL);
    requests[0].n = 3, requests[0].sampling.temperature = 1;
    requests[1].prompt_logprobs = true;
    requests[2].max_tokens = 0, requests[2].pooling = CL_ENGINE_POOL_LAST, requests[2].logprobs = false, requests[2].n_top = 0;
    int fd, again;
    assert_int_equal(cl_engine_poll_fd(f.engine, &fd, NULL), CL_OK);
    assert_int_equal(cl_engine_poll_fd(f.engine, &again, NULL), CL_OK);
    assert_int_equal(fd, again);
    for (size_t most = 1; most <= 64; most *= 8) {
        recording *polled[3];
        assert_false(is_readable(fd, 0));
        for (int i = 0; i < 3; i++) {
            cl_engine_request request = requests[i];
            request.on_event = NULL;
            request.ctx = polled[i] = recording_create();
            submit(&f, &request);
        }
        poll_requests(&f, fd, most, 3);
        for (int i = 0; i < 3; i++) {
            recording *called = run_request(&f, requests[i]);
            assert_true(recording_equal(called, polled[i]));
            assert_int_equal(called->n_events, polled[i]->n_events);
            assert_int_equal(called->n_embedding, polled[i]->n_embedding);
            assert_memory_equal(called->embedding, polled[i]->embedding, (size_t)called->n_embedding * sizeof(float));
            recording_free(called);
            recording_free(polled[i]);
        }
    }
    size_t n = 7;
    assert_int_equal(cl_engine_poll(f.engine, NULL, 0, &n, NULL), CL_OK); /* only frees what was taken last */
    assert_int_equal(n, 0);
    fixture_stop(&f);
}

static void destroy_in_event(void *ctx, const cl_engine_event *event) {
    cl_engine *same = *(cl_engine **)ctx;
    if (event->last) cl_engine_destroy(&same);
    if (event->last && same) *(cl_engine **)ctx = NULL;
}

static void an_engine_is_not_destroyed_by_its_own_thread(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    cl_engine *seen = f.engine;
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 2, NULL);
    request.on_event = destroy_in_event;
    request.ctx = &seen;
    submit(&f, &request);
    assert_int_equal(stats_when_idle(&f).requests_finished, 1);
    assert_null(seen); /* the engine was left as it is */
    recording_free(run_request(&f, make_request(a_prompt(), N_PROMPT, 2, NULL)));
    fixture_stop(&f);
}

static void polling_is_checked(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    cl_error error;
    const cl_engine_event *events[1];
    size_t n = 7;
    int fd = 7;
    expect_status(cl_engine_poll(NULL, events, 1, &n, &error), &error, CL_ERR_ARG, "engine is NULL");
    assert_int_equal(n, 0);
    expect_status(cl_engine_poll(f.engine, NULL, 1, &n, &error), &error, CL_ERR_ARG, "events is NULL");
    expect_status(cl_engine_poll(f.engine, events, 1, NULL, &error), &error, CL_ERR_ARG, "n_events is NULL");
    expect_status(cl_engine_poll_fd(f.engine, NULL, &error), &error, CL_ERR_ARG, "fd is NULL");
    expect_status(cl_engine_poll_fd(NULL, &fd, &error), &error, CL_ERR_ARG, "engine is NULL");
    /* Events that nobody takes are freed with the engine; the descriptor may be made after they have come. */
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
    request.on_event = NULL;
    submit(&f, &request);
    assert_int_equal(stats_when_idle(&f).requests_finished, 1);
    assert_int_equal(cl_engine_poll_fd(f.engine, &fd, NULL), CL_OK);
    assert_true(is_readable(fd, 0));
    assert_int_equal(cl_engine_poll(f.engine, events, 1, &n, NULL), CL_OK);
    assert_int_equal(n, 1);
    assert_true(is_readable(fd, 0));
    fixture_stop(&f);
}

/* A choice whose events cannot be copied ends with an error all the same. */
static void the_last_event_is_never_lost(void **state) {
    (void)state;
    cl_event_queue queue;
    cl_event_queue_init(&queue);
    cl_queued_event *reserve = cl_event_reserve(2);
    const cl_engine_event end = {.kind = CL_EVENT_END, .choice = 1, .last = true, .text = "rest", .text_size = 4};
    const cl_engine_event *got[2];
    assert_non_null(reserve);
    cl_event_queue_add_failure(&queue, &end, &reserve);
    assert_int_equal(cl_event_queue_take(&queue, got, 2), 1);
    assert_int_equal(got[0]->end.finish, CL_ENGINE_ERROR);
    assert_int_equal(got[0]->end.error->code, CL_ERR_NOMEM);
    assert_true(got[0]->last && got[0]->choice == 1 && got[0]->text_size == 0);
    cl_event_reserve_free(&reserve);
    cl_event_queue_free(&queue);
}

/* What waits for a program that polls seldom takes little more memory than what it says. */
static void a_queued_token_is_small(void **state) {
    (void)state;
    enum { N = 1000 };
    cl_event_queue queue;
    cl_event_queue_init(&queue);
    const cl_engine_event token = {.kind = CL_EVENT_TOKEN, .text = "text", .text_size = 4};
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < N; i++) assert_true(cl_event_queue_add(&queue, &token));
    assert_in_range((mallinfo2().uordblks - before) / N, 0, sizeof token + 100);
    cl_event_queue_free(&queue);
}

/* ---- Logits ---- */

/* What a hook has seen, and which token it lets through at each position; -1: it changes nothing. */
typedef struct hook {
    recording *recording;
    int32_t wanted;
    atomic_int n_calls, n_wrong;
    const int32_t *prompt;
} hook;

static void on_logits(void *ctx, const cl_logits *l) {
    hook *h = ctx;
    h->n_calls++;
    h->n_wrong += l->n_vocab != TOY_VOCAB || l->n_prompt != N_PROMPT || l->n_tokens < N_PROMPT || l->struct_size != sizeof *l ||
                  memcmp(l->tokens, h->prompt, N_PROMPT * sizeof *l->tokens) != 0;
    for (int64_t i = N_PROMPT; i < l->n_tokens && h->wanted >= 0; i++)
        h->n_wrong += l->tokens[i] != (h->wanted + l->choice + (int)i) % TOY_VOCAB;
    if (h->wanted < 0) return;
    const int32_t token = (h->wanted + l->choice + (int)l->n_tokens) % TOY_VOCAB;
    for (int32_t i = 0; i < l->n_vocab; i++)
        if (i != token) l->logits[i] = i % 2 ? NAN : -INFINITY;
}

static void hook_event(void *ctx, const cl_engine_event *event) { recording_event(((hook *)ctx)->recording, event); }

static void run_hook(fixture *f, hook *h, cl_engine_request request) {
    h->recording = recording_create();
    h->prompt = request.prompt;
    request.on_event = hook_event;
    request.on_logits = on_logits;
    request.ctx = h;
    submit(f, &request);
    recording_wait(h->recording);
    assert_int_equal(h->n_wrong, 0);
}

static void logits_can_be_read_and_changed(void **state) {
    (void)state;
    for (int speculates = 0; speculates < 2; speculates++) {
        cl_engine_config config = fixture_config();
        config.speculate = speculates;
        fixture f;
        fixture_start(&f, &config, 3);
        cl_engine_request request = make_request(a_prompt(), N_PROMPT, N_COMPLETION, NULL);
        request.n = 3;
        request.sampling.temperature = 1;
        recording *plain = run_request(&f, request);
        hook reads = {.wanted = -1}, writes = {.wanted = 40};
        run_hook(&f, &reads, request);
        assert_true(recording_equal(plain, reads.recording));
        assert_int_equal(reads.n_calls, 3 * N_COMPLETION);
        run_hook(&f, &writes, request);
        assert_int_equal(writes.n_calls, 3 * N_COMPLETION);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < N_COMPLETION; i++) {
                const recorded_choice *got = &writes.recording->choices[c];
                assert_int_equal(got->tokens[i], (40 + c + N_PROMPT + i) % TOY_VOCAB);
                assert_true(got->logprobs[i] < 0); /* of the model's own distribution */
            }
        recording_free(plain);
        recording_free(reads.recording);
        recording_free(writes.recording);
        fixture_stop(&f);
    }
}

/* What a request asks for besides holds for the changed logits; a beam search has none to change. */
static void rules_follow_the_hook(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    hook h = {.wanted = -1};
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
    static const int32_t allowed[] = {77};
    request.allowed_tokens = allowed, request.n_allowed_tokens = 1;
    run_hook(&f, &h, request);
    for (int i = 0; i < 3; i++) assert_int_equal(h.recording->choices[0].tokens[i], 77);
    recording_free(h.recording);
    cl_error error;
    cl_engine_request beams = make_request(a_prompt(), N_PROMPT, 3, NULL);
    beams.beam_search = true, beams.n = 2, beams.on_logits = on_logits;
    expect_status(cl_engine_submit(f.engine, &beams, NULL, &error), &error, CL_ERR_ARG, "on_logits is set");
    fixture_stop(&f);
}

/* A value that a hook writes to all logits but that of one token; -1: to all. */
typedef struct overwriting {
    recording *recording;
    float value, mixed_with; /* for even and odd tokens */
    int32_t but;
} overwriting;

static void overwrite(void *ctx, const cl_logits *l) {
    const overwriting *o = ctx;
    for (int32_t i = 0; i < l->n_vocab; i++)
        if (i != o->but) l->logits[i] = i % 2 ? o->mixed_with : o->value;
}

static void overwriting_event(void *ctx, const cl_engine_event *event) {
    recording_event(((overwriting *)ctx)->recording, event);
}

static recording *run_overwriting(fixture *f, overwriting o, cl_engine_request request) {
    request.on_event = overwriting_event, request.on_logits = overwrite, request.ctx = &o;
    o.recording = recording_create();
    submit(f, &request);
    recording_wait(o.recording);
    return o.recording;
}

static void expect_no_token(recording *r, const char *field) {
    assert_int_equal(r->choices[0].finish, CL_ENGINE_ERROR);
    assert_int_equal(r->choices[0].n_tokens, 0);
    assert_true(strncmp(r->error, field, strlen(field)) == 0);
    assert_non_null(strstr(r->error, " leaves no token to draw"));
    recording_free(r);
}

/* No token is drawn that was excluded, and other requests go on. */
static void all_tokens_can_be_excluded(void **state) {
    (void)state;
    static const float values[][2] = {{NAN, NAN}, {-INFINITY, -INFINITY}, {-INFINITY, NAN}};
    static const int32_t allowed[] = {77};
    static cl_logit_bias biases[TOY_VOCAB];
    for (int32_t i = 0; i < TOY_VOCAB; i++) biases[i] = (cl_logit_bias){i, -INFINITY};
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    for (int i = 0; i < 6; i++) {
        cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
        request.sampling.temperature = i % 2 ? 1 : 0;
        if (i == 5) request.allowed_tokens = allowed, request.n_allowed_tokens = 1;
        const overwriting o = {.value = values[i / 2][0], .mixed_with = values[i / 2][1], .but = -1};
        expect_no_token(run_overwriting(&f, o, request), "on_logits");
        request.logit_bias = biases, request.n_logit_bias = TOY_VOCAB;
        if (i < 5) expect_no_token(run_request(&f, request), "logit_bias");
    }
    recording *after = run_request(&f, make_request(a_prompt(), N_PROMPT, 3, NULL));
    assert_int_equal(after->choices[0].n_tokens, 3);
    recording_free(after);
    fixture_stop(&f);
}

static void a_token_can_be_forced(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    for (int i = 0; i < 2; i++) {
        cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
        request.sampling.temperature = (float)i;
        /* Odd tokens are infinite, and the first of them is drawn. */
        recording *r = run_overwriting(&f, (overwriting){.value = 1e30f, .mixed_with = INFINITY, .but = 1}, request);
        for (int k = 0; k < 3; k++) assert_int_equal(r->choices[0].tokens[k], 3);
        recording_free(r);
    }
    fixture_stop(&f);
}

/* ---- Sessions ---- */

/* A conversation that is saved in one engine, and continued in another as if that had computed it. */
static void a_session_continues_elsewhere(void **state) {
    (void)state;
    enum { N = N_PROMPT + N_COMPLETION };
    const cl_engine_config config = fixture_config();
    fixture a, b;
    fixture_start(&a, &config, 1);
    fixture_start(&b, &config, 1);
    int32_t tokens[N];
    memcpy(tokens, a_prompt(), N_PROMPT * sizeof *tokens);
    recording *first = run_request(&a, make_request(tokens, N_PROMPT, N_COMPLETION, NULL));
    memcpy(tokens + N_PROMPT, first->choices[0].tokens, N_COMPLETION * sizeof *tokens);
    cl_engine_request next = make_request(tokens, N, 10, NULL);
    blob saved = {0};
    int64_t n_saved = 0, n_loaded = 0;
    cl_error error = {.message = ""};
    if (cl_engine_export(a.engine, &next, blob_add, &saved, &n_saved, &error)) fail_msg("%s", error.message);
    assert_int_equal(n_saved, N - 2); /* the last token was not computed, and what is retained is even */
    const cattn_stats before = kv_stats_when_idle(&a);
    assert_int_equal(before.n_seqs, 0);
    if (cl_engine_import(b.engine, saved.bytes, saved.n, 0, &n_loaded, &error)) fail_msg("%s", error.message);
    assert_int_equal(n_loaded, n_saved);
    recording *here = run_request(&a, next), *there = run_request(&b, next);
    assert_int_equal(there->n_cached, n_saved);
    assert_true(recording_equal(here, there));
    /* Another domain has none of it. */
    next.domain = 3;
    blob none = {0};
    assert_int_equal(cl_engine_export(b.engine, &next, blob_add, &none, &n_saved, NULL), CL_OK);
    assert_true(n_saved == 0 && none.n == 0);
    blob_free(&saved);
    recording_free(first), recording_free(here), recording_free(there);
    fixture_stop(&a);
    fixture_stop(&b);
}

static void sessions_are_checked(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    cl_error error;
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 1, NULL);
    recording_free(run_request(&f, request));
    blob saved = {0}, full = {.most = 5000};
    assert_int_equal(cl_engine_export(f.engine, &request, blob_add, &saved, NULL, NULL), CL_OK);
    expect_status(cl_engine_export(f.engine, &request, blob_add, &full, NULL, &error), &error, CL_ERR_FILE, "stopped");
    saved.bytes[saved.n - 1] ^= 1;
    expect_status(cl_engine_import(f.engine, saved.bytes, saved.n, 0, NULL, &error), &error, CL_ERR_FORMAT, "damaged");
    expect_status(cl_engine_import(f.engine, saved.bytes, 100, 0, NULL, &error), &error, CL_ERR_FORMAT, "n_bytes is 100");
    expect_status(cl_engine_import(f.engine, saved.bytes, saved.n, 1u << 31, NULL, &error), &error, CL_ERR_ARG, "domain is");
    expect_status(cl_engine_import(NULL, saved.bytes, saved.n, 0, NULL, &error), &error, CL_ERR_ARG, "engine is NULL");
    expect_status(cl_engine_import(f.engine, NULL, 1, 0, NULL, &error), &error, CL_ERR_ARG, "bytes is NULL");
    expect_status(cl_engine_export(f.engine, &request, NULL, NULL, NULL, &error), &error, CL_ERR_ARG, "write is NULL");
    request.prompt = NULL;
    expect_status(cl_engine_export(f.engine, &request, blob_add, &saved, NULL, &error), &error, CL_ERR_ARG, "prompt is NULL");
    fixture_stop(&f);
    config.retention = CATTN_RETAIN_NONE;
    fixture_start(&f, &config, 1);
    expect_status(cl_engine_import(f.engine, saved.bytes, saved.n, 0, NULL, &error), &error, CL_ERR_UNSUPPORTED, "retains no");
    fixture_stop(&f);
    blob_free(&saved);
    blob_free(&full);
}

/* ---- Threads ---- */

static void threads_have_names(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 2);
    wait_for_threads("cl-engine", 1);
    wait_for_threads("cattn-worker", 1);
    fixture_stop(&f);
    wait_for_threads("cl-engine", 0);
}

/* ---- Processes ---- */

static bool behaves_in_a_child(fixture *parent) {
    cl_engine *e = parent->engine;
    cl_engine_stats stats = {.struct_size = sizeof stats};
    const cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
    cl_error error = {.message = ""};
    size_t n;
    if (cl_engine_submit(e, &request, NULL, &error) != CL_ERR_UNSUPPORTED || !strstr(error.message, "fork(2)")) return false;
    if (cl_engine_poll(e, NULL, 0, &n, NULL) != CL_ERR_UNSUPPORTED || cl_engine_get_stats(e, &stats) != CL_ERR_UNSUPPORTED ||
        cl_engine_reset_cache(e, NULL) != CL_ERR_UNSUPPORTED || cl_engine_set_kv_budget(e, 1, NULL) != CL_ERR_UNSUPPORTED)
        return false;
    cl_engine_cancel(e, 1);
    cl_engine_destroy(&e);
    fixture own;
    fixture_start(&own, &parent->config, 2);
    recording *r = run_request(&own, request);
    const bool ok = !e && r->choices[0].n_tokens == 3;
    recording_free(r);
    fixture_stop(&own);
    return ok;
}

static void a_forked_child_may_destroy(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it does not follow the threads that a child starts */
#endif
    fixture_has_processes = true; /* of grammars, which the child has no part in */
    const cl_engine_config config = fixture_config();
    fixture_has_processes = false;
    fixture f;
    fixture_start(&f, &config, 2);
    recording_free(run_request(&f, make_request(a_prompt(), N_PROMPT, 3, NULL)));
    wait_for_threads("cattn-worker", 1);
    assert_int_equal(stats_when_idle(&f).requests_finished, 1);
    WAIT_UNTIL(others_sleep()); /* none has a lock that the child would inherit */
    EXPECT_IN_CHILD(behaves_in_a_child(&f));
    recording_free(run_request(&f, make_request(a_prompt(), N_PROMPT, 3, NULL))); /* nothing has changed here */
    fixture_stop(&f);
}

/* A child, which may know nothing of engines, has copies of its parent's sockets to the processes of grammars. */
static void an_engine_ends_beside_a_child(void **state) {
    (void)state;
    fixture_has_processes = true;
    const cl_engine_config config = fixture_config();
    fixture_has_processes = false;
    fixture f;
    fixture_start(&f, &config, 1);
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 3, NULL);
    request.grammar_kind = CL_GRAMMAR_REGEX;
    request.grammar = ".*";
    request.grammar_size = 2;
    recording_free(run_request(&f, request));
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    fixture_stop(&f);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no other child is left */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_can_be_polled),       cmocka_unit_test(an_engine_is_not_destroyed_by_its_own_thread),
        cmocka_unit_test(polling_is_checked),         cmocka_unit_test(the_last_event_is_never_lost),
        cmocka_unit_test(a_queued_token_is_small),    cmocka_unit_test(logits_can_be_read_and_changed),
        cmocka_unit_test(rules_follow_the_hook),      cmocka_unit_test(all_tokens_can_be_excluded),
        cmocka_unit_test(a_token_can_be_forced),      cmocka_unit_test(a_session_continues_elsewhere),
        cmocka_unit_test(sessions_are_checked),       cmocka_unit_test(threads_have_names),
        cmocka_unit_test(a_forked_child_may_destroy), cmocka_unit_test(an_engine_ends_beside_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
