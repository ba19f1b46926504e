/* Requests whose prefix is in the cache go before others, which saves what these would evict, and within its bound only. */
#include "tests/support/testing.h"

#include "chunkllama/engine/overtake.h"
#include "fixture.h"

enum { N = 48, N_SHARED = 320, N_PROMPT = N_SHARED + 16 };

/* Requests that are submitted at once, when the engine reports the first token of one that runs meanwhile. */
typedef struct crowd {
    fixture f;
    int32_t tokens[N][N_PROMPT];
    cl_engine_request requests[N];
    recording *r[N];
} crowd;

static void add(crowd *c, int i, uint32_t family, int64_t max_tokens) {
    make_prompt(c->tokens[i], N_PROMPT, N_SHARED, family, (uint32_t)i);
    c->r[i] = recording_create();
    c->requests[i] = make_request(c->tokens[i], N_PROMPT, max_tokens, c->r[i]);
}

static void submit_others(void *ctx, const cl_engine_event *event) {
    crowd *c = ctx;
    for (int i = 1; i < N && event->kind == CL_EVENT_TOKEN && event->token.position == N_PROMPT; i++)
        submit(&c->f, &c->requests[i]);
}

static cl_engine_stats run(crowd *c, int32_t max_seqs, uint64_t kv_budget_bytes) {
    cl_engine_config config = fixture_config();
    config.max_seqs = max_seqs;
    config.kv_budget_bytes = kv_budget_bytes;
    fixture_start(&c->f, &config, 1);
    c->r[0]->hook = submit_others;
    c->r[0]->hook_ctx = c;
    submit(&c->f, &c->requests[0]);
    for (int i = 0; i < N; i++) recording_wait(c->r[i]);
    const cl_engine_stats stats = stats_when_idle(&c->f);
    fixture_stop(&c->f);
    return stats;
}

static void free_recordings(crowd *c) {
    for (int i = 0; i < N; i++) recording_free(c->r[i]);
}

/* One request has a prefix of its own, and all later ones that of the running request. */
static void a_request_is_overtaken_by_few(void **state) {
    (void)state;
    static crowd c;
    for (int priority = -1; priority <= 1; priority++) {
        for (int i = 0; i < N; i++) add(&c, i, i == 1 ? 2 : 1, i == 0 ? 20 : 2);
        c.requests[1].priority = priority;
        run(&c, 1, 64 * MIB);
        const int64_t before = c.r[1]->first_event_order - c.r[0]->first_event_order - 1;
        if (priority == 0) assert_int_equal(before, CL_OVERTAKE_MAX);
        if (priority < 0) assert_int_equal(before, 0); /* others are not its equals */
        if (priority > 0) assert_int_equal(before, N - 2);
        for (int i = 3; i < N; i++) assert_true(c.r[i]->first_event_order > c.r[i - 1]->first_event_order);
        free_recordings(&c);
    }
}

/* Choices are counted, not requests. */
static void choices_count(void **state) {
    (void)state;
    static crowd c;
    for (int i = 0; i < N; i++) {
        add(&c, i, i == 1 ? 2 : 1, i == 0 ? 20 : 2);
        if (i > 1) c.requests[i].n = 4;
    }
    run(&c, 1, 64 * MIB);
    assert_int_equal(c.r[1]->first_event_order - c.r[0]->first_event_order - 1, CL_OVERTAKE_MAX / 4);
    free_recordings(&c);
}

/* Four prefixes in turns, and memory for two of them: distinct priorities keep the order of submission, for comparison. */
static void groups_go_together(void **state) {
    (void)state;
    static crowd c;
    cl_engine_stats stats[2];
    for (int ordered = 0; ordered < 2; ordered++) {
        for (int i = 0; i < N; i++) {
            add(&c, i, (uint32_t)(i % 4), 24);
            c.requests[i].priority = ordered ? i : 0;
        }
        stats[ordered] = run(&c, 4, 5 * MIB / 8);
        free_recordings(&c);
    }
    const int64_t n_together = stats[0].prefill_tokens_computed + stats[0].recomputed_tokens;
    const int64_t n_ordered = stats[1].prefill_tokens_computed + stats[1].recomputed_tokens;
    print_message("%lld tokens computed for prompts of %lld, %lld in order\n", (long long)n_together,
                  (long long)stats[0].prompt_tokens, (long long)n_ordered);
    assert_true(2 * n_together < n_ordered);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_overtaken_by_few),
        cmocka_unit_test(choices_count),
        cmocka_unit_test(groups_go_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
