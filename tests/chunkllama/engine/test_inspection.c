/* Looking into the cache of an engine that is idle, busy, or stops; and dropping what the cache retains. */
#include "tests/support/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "tests/support/sleeping.h"

enum { TRUNK = 128, LONG = 200, N_RUNNING = 16 };

/* What an inspection has found; filled on the engine's thread. */
typedef struct finding {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done;
    pthread_t thread;
    cattn_stats kv;
    cattn_node_info nodes[64];
    int n;
} finding;

static int add_node(void *ctx, const cattn_node_info *node) {
    finding *f = ctx;
    assert_true(f->n < 64);
    f->nodes[f->n++] = *node;
    return 0;
}

static void look(void *ctx, const cattn_cache *cache) {
    finding *f = ctx;
    uint64_t cursor = 0;
    f->thread = pthread_self();
    f->kv.struct_size = sizeof f->kv;
    assert_int_equal(cattn_cache_stats(cache, &f->kv), CATTN_OK);
    assert_int_equal(cattn_cache_walk(cache, NULL, &cursor, add_node, f, NULL), CATTN_OK);
    pthread_mutex_lock(&f->mutex);
    f->done = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

static finding *finding_create(void) {
    finding *f = calloc(1, sizeof *f);
    assert_non_null(f);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    return f;
}

static void finding_wait(finding *f) {
    pthread_mutex_lock(&f->mutex);
    while (!f->done) pthread_cond_wait(&f->changed, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
}

static void finding_free(finding *f) {
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

static finding *inspect(fixture *f) {
    finding *found = finding_create();
    cl_error error;
    if (cl_engine_inspect(f->engine, look, found, &error) != CL_OK) fail_msg("%s", error.message);
    finding_wait(found);
    return found;
}

/* salt: NULL for none. */
static void ask_with(fixture *f, const char *salt, const int32_t *tokens, int64_t n) {
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, n, 2, r);
    request.salt = salt;
    request.salt_size = salt ? strlen(salt) : 0;
    submit(f, &request);
    recording_wait(r);
    recording_free(r);
    stats_when_idle(f);
}

static void ask(fixture *f, const int32_t *tokens, int64_t n) { ask_with(f, NULL, tokens, n); }

static cattn_explanation explain_with(fixture *f, uint32_t domain, const char *salt, const int32_t *tokens, int64_t n) {
    cattn_explanation e = {.struct_size = sizeof e};
    cl_engine_request request = make_request(tokens, n, 1, NULL);
    cl_error error;
    request.domain = domain;
    request.salt = salt;
    request.salt_size = salt ? strlen(salt) : 0;
    if (cl_engine_explain(f->engine, &request, &e, &error) != CL_OK) fail_msg("%s", error.message);
    return e;
}

static cattn_explanation explain(fixture *f, uint32_t domain, const int32_t *tokens, int64_t n) {
    return explain_with(f, domain, NULL, tokens, n);
}

static void an_idle_engine(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[LONG];
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    finding *found = inspect(&f);
    assert_int_equal(found->n, 0);
    assert_false(pthread_equal(found->thread, pthread_self()));
    finding_free(found);
    make_prompt(tokens, LONG, TRUNK, 1, 1);
    ask(&f, tokens, LONG);
    found = inspect(&f);
    assert_int_equal(found->n, 1);
    assert_int_equal(found->nodes[0].n_seqs, 0);
    assert_true(found->nodes[0].n_tokens >= LONG);
    finding_free(found);
    assert_int_equal(explain(&f, 0, tokens, LONG).end, CATTN_MATCH_WHOLE);
    assert_int_equal(explain(&f, 1, tokens, LONG).n_other_matched, LONG - 2);
    tokens[77]++;
    cattn_explanation e = explain(&f, 0, tokens, LONG);
    assert_int_equal(e.end, CATTN_MATCH_DIFFERS);
    assert_int_equal(e.difference, 77);
    assert_int_equal(e.next[1] + 1, tokens[77]);
    tokens[77]--;
    assert_int_equal(cl_engine_reset_cache(f.engine, NULL), CL_OK);
    found = inspect(&f);
    assert_int_equal(found->n, 0);
    assert_int_equal(found->kv.tokens_retained, 0);
    finding_free(found);
    e = explain(&f, 0, tokens, LONG);
    assert_int_equal(e.end, CATTN_MATCH_EVICTED);
    assert_int_equal(e.n_evicted, LONG);
    fixture_stop(&f);
}

/*
 * A prompt matches the prompts of its own domain and salt. With a salt that no request has used it matches nothing, and the
 * explanation says that another domain has it.
 */
static void salts(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[LONG];
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    make_prompt(tokens, LONG, TRUNK, 1, 1);
    ask_with(&f, "a", tokens, LONG);
    assert_int_equal(explain_with(&f, 0, "a", tokens, LONG).end, CATTN_MATCH_WHOLE);
    const cattn_explanation others[] = {explain(&f, 0, tokens, LONG), explain_with(&f, 0, "b", tokens, LONG),
                                        explain_with(&f, 1, "a", tokens, LONG)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(others[i].end, CATTN_MATCH_ENDS);
        assert_int_equal(others[i].n_matched, 0);
        assert_int_equal(others[i].n_other_matched, LONG - 2);
        assert_true(others[i].other_domain > INT32_MAX);
    }
    ask_with(&f, "b", tokens, TRUNK);
    assert_int_equal(explain_with(&f, 0, "b", tokens, LONG).n_matched, TRUNK);
    assert_int_equal(explain_with(&f, 0, "a", tokens, LONG).n_matched, LONG - 2);
    assert_int_equal(cl_engine_reset_cache(f.engine, NULL), CL_OK);
    assert_int_equal(explain_with(&f, 0, "a", tokens, LONG).end, CATTN_MATCH_EVICTED);
    fixture_stop(&f);
}

/* While requests run, an inspection sees them between two steps: one trunk, which all read, and a leaf of each. */
static void a_busy_engine(void **state) {
    (void)state;
    fixture f;
    static int32_t tokens[N_RUNNING][LONG];
    cl_engine_request requests[N_RUNNING];
    recording *recordings[N_RUNNING];
    uint64_t ids[N_RUNNING];
    cl_engine_config config = fixture_config();
    config.max_step_rows = 4096;
    fixture_start(&f, &config, 1);
    for (int i = 0; i < N_RUNNING; i++) {
        make_prompt(tokens[i], LONG, TRUNK, 1, (uint32_t)i + 1);
        recordings[i] = recording_create();
        requests[i] = make_request(tokens[i], LONG, 900, recordings[i]); /* so many that none ends by itself */
    }
    submit_together(&f, requests, N_RUNNING, ids);
    for (int i = 0; i < N_RUNNING; i++) recording_wait_events(recordings[i], 3);
    toy_hold();
    toy_pass(0); /* a step waits, so that nothing ends */
    finding *found = finding_create();
    assert_int_equal(cl_engine_inspect(f.engine, look, found, NULL), CL_OK);
    WAIT_UNTIL(others_sleep());
    pthread_mutex_lock(&found->mutex);
    assert_false(found->done); /* not within the step */
    pthread_mutex_unlock(&found->mutex);
    toy_release();
    finding_wait(found);
    assert_int_equal(found->n, 1 + N_RUNNING);
    assert_int_equal(found->nodes[0].n_tokens, TRUNK);
    assert_int_equal(found->nodes[0].n_seqs, N_RUNNING);
    assert_int_equal(found->nodes[0].n_step_seqs, N_RUNNING);
    for (int i = 1; i <= N_RUNNING; i++) {
        assert_int_equal(found->nodes[i].parent_id, found->nodes[0].id);
        assert_int_equal(found->nodes[i].n_step_seqs, 1);
    }
    finding_free(found);
    cl_engine_reset_cache(f.engine, NULL); /* what runs stays */
    found = inspect(&f);
    assert_int_equal(found->n, 1 + N_RUNNING);
    finding_free(found);
    for (int i = 0; i < N_RUNNING; i++) cl_engine_cancel(f.engine, ids[i]);
    for (int i = 0; i < N_RUNNING; i++) {
        recording_wait(recordings[i]);
        recording_free(recordings[i]);
    }
    assert_int_equal(stats_when_idle(&f).recomputed_tokens, 0);
    fixture_stop(&f);
}

static atomic_bool stops;

/* Look at the cache again and again, in turn with resets, until the requests have ended. */
static void *poll(void *ctx) {
    fixture *f = ctx;
    int32_t tokens[LONG];
    make_prompt(tokens, LONG, TRUNK, 1, 3);
    while (!atomic_load(&stops)) {
        finding_free(inspect(f));
        explain(f, 0, tokens, LONG);
        cl_engine_reset_cache(f->engine, NULL);
    }
    return NULL;
}

/* What is reported does not depend on whether someone looks. */
static void answers_stay_the_same(void **state) {
    (void)state;
    enum { N = 12 };
    static int32_t tokens[N][LONG];
    recording *expected[N], *got[N];
    for (int polls = 0; polls < 2; polls++) {
        fixture f;
        cl_engine_request requests[N];
        pthread_t thread;
        recording **recordings = polls ? got : expected;
        const cl_engine_config config = fixture_config();
        fixture_start(&f, &config, 1);
        for (int i = 0; i < N; i++) {
            make_prompt(tokens[i], LONG, TRUNK, 1, (uint32_t)i / 2);
            recordings[i] = recording_create();
            requests[i] = make_request(tokens[i], LONG, 60, recordings[i]);
        }
        atomic_store(&stops, false);
        if (polls) assert_int_equal(pthread_create(&thread, NULL, poll, &f), 0);
        for (int i = 0; i < N; i++) submit(&f, &requests[i]);
        for (int i = 0; i < N; i++) recording_wait(recordings[i]);
        atomic_store(&stops, true);
        if (polls) pthread_join(thread, NULL);
        fixture_stop(&f);
    }
    expect_same_reports(expected, got, N, "while someone looks");
    for (int i = 0; i < N; i++) recording_free(expected[i]);
}

/* ---- On the engine's thread, and at its end ---- */

typedef struct nested {
    fixture *f;
    int n_calls;
} nested;

static void count(void *ctx, const cattn_cache *cache) {
    assert_non_null(cache);
    ++*(int *)ctx;
}

static void on_the_thread(void *ctx, const cl_engine_event *event) {
    (void)event;
    nested *n = ctx;
    const int32_t tokens[] = {1, 2, 3};
    const int before = n->n_calls;
    cattn_explanation e = {.struct_size = sizeof e};
    assert_int_equal(cl_engine_inspect(n->f->engine, count, &n->n_calls, NULL), CL_OK);
    assert_int_equal(n->n_calls, before + 1); /* it has been called */
    const cl_engine_request request = make_request(tokens, 3, 1, NULL);
    assert_int_equal(cl_engine_explain(n->f->engine, &request, &e, NULL), CL_OK); /* and nobody waits for himself */
}

static void callbacks_may_look(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[LONG];
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    nested n = {.f = &f};
    recording *r = recording_create();
    make_prompt(tokens, LONG, 0, 0, 1);
    cl_engine_request request = make_request(tokens, LONG, 5, r);
    r->hook = on_the_thread;
    r->hook_ctx = &n;
    submit(&f, &request);
    recording_wait(r);
    fixture_stop(&f);
    assert_int_equal(n.n_calls, r->n_events);
    recording_free(r);
}

/* All that was accepted is called before the engine has gone, though a step is in progress when it is to stop. */
static void what_waits_is_called_at_the_end(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[LONG];
    int n_calls = 0, n_posted = 0;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    recording *r = recording_create();
    make_prompt(tokens, LONG, 0, 0, 1);
    const cl_engine_request request = make_request(tokens, LONG, 500, r);
    submit(&f, &request);
    toy_hold();
    toy_pass(0);
    for (int i = 0; i < 100; i++) n_posted += cl_engine_inspect(f.engine, count, &n_calls, NULL) == CL_OK;
    toy_release();
    fixture_stop(&f);
    assert_int_equal(n_posted, 100);
    assert_int_equal(n_calls, 100);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_CANCELLED);
    recording_free(r);
}

static void wrong_arguments(void **state) {
    (void)state;
    fixture f;
    const cl_engine_config config = fixture_config();
    const int32_t tokens[] = {1, -2};
    cattn_explanation e = {.struct_size = sizeof e};
    int n = 0;
    fixture_start(&f, &config, 1);
    cl_error error;
#define REFUSED(call, text)                                                                                                    \
    do {                                                                                                                       \
        assert_int_equal(call, CL_ERR_ARG);                                                                                    \
        if (!strstr(error.message, text)) fail_msg("<%s> does not say <%s>", error.message, text);                             \
    } while (0)
    REFUSED(cl_engine_inspect(NULL, count, &n, &error), "engine is NULL");
    REFUSED(cl_engine_inspect(f.engine, NULL, &n, &error), "fn is NULL");
    REFUSED(cl_engine_reset_cache(NULL, &error), "engine is NULL");
    cl_engine_request request = make_request(tokens, 1, 1, NULL);
    REFUSED(cl_engine_explain(NULL, &request, &e, &error), "engine is NULL");
    REFUSED(cl_engine_explain(f.engine, NULL, &e, &error), "request is NULL");
    REFUSED(cl_engine_explain(f.engine, &request, NULL, &error), "explanation is NULL");
    request.n_prompt = 2;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "tokens[1] is -2");
    request.n_prompt = 0;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "n_prompt is 0");
    request.prompt = NULL;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "prompt is NULL");
    request.struct_size = 7;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "cl_engine_request");
    request = make_request(tokens, 1, 1, NULL);
    request.domain = 1u << 31;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "domain is 2147483648");
    request.domain = 0;
    request.salt_size = 1;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "salt is NULL");
    request.salt_size = 0;
    e.struct_size = 7;
    REFUSED(cl_engine_explain(f.engine, &request, &e, &error), "cattn_explanation");
    fixture_stop(&f);
    assert_int_equal(n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_engine),     cmocka_unit_test(salts),
        cmocka_unit_test(a_busy_engine),      cmocka_unit_test(answers_stay_the_same),
        cmocka_unit_test(callbacks_may_look), cmocka_unit_test(what_waits_is_called_at_the_end),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
