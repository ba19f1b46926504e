/* What the engine's tests share: see fixture.h. */
#include "fixture.h"

#include "tests/support/wait.h"

#include <stdio.h>
#include <stdlib.h>

bool fixture_has_processes;

cl_engine_config fixture_config(void) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.kv_type = CATTN_F32;
    config.kv_budget_bytes = 64 * MIB;
    config.max_step_rows = 64;
    config.max_seqs = 16;
    config.chunk_size = 16;
    config.speculate = false;
    config.grammar_library = "fake";
    config.grammars_in_process = !fixture_has_processes;
    return config;
}

cl_engine_config setting_config(const setting *set, cattn_type kv_type) {
    cl_engine_config config = fixture_config();
    config.kv_type = kv_type;
    config.sharing = set->sharing;
    config.retention = set->retention;
    config.max_seqs = set->max_seqs;
    config.prefill_segment = set->prefill_segment;
    config.max_step_rows = set->max_step_rows;
    config.kv_budget_bytes = set->kv_budget_bytes;
    return config;
}

void fixture_start(fixture *f, const cl_engine_config *config, int n_threads) {
    cl_error error = {.message = ""};
    f->config = *config;
    toy_release(); /* in case a test failed that held it */
    f->pool = ca_pool_create(n_threads);
    assert_non_null(f->pool);
    if (cl_engine_create_on_pool(toy_model(), f->pool, config, &f->engine, &error) != CL_OK) fail_msg("%s", error.message);
    toy_take_rows();
}

void fixture_stop(fixture *f) {
    cl_engine_destroy(&f->engine);
    ca_pool_destroy(&f->pool);
}

static int32_t token_at(uint32_t key, int64_t position) {
    uint64_t x = ((uint64_t)key << 32 | (uint64_t)position) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return 1 + (int32_t)((x >> 33) % (TOY_VOCAB - 1));
}

void make_prompt(int32_t *tokens, int64_t n, int64_t shared, uint32_t family, uint32_t individual) {
    for (int64_t i = 0; i < n; i++) tokens[i] = i < shared ? token_at(family, i) : token_at(~individual, i);
}

cl_engine_request make_request(const int32_t *tokens, int64_t n_prompt, int64_t max_tokens, recording *r) {
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.prompt = tokens;
    request.n_prompt = n_prompt;
    request.max_tokens = max_tokens;
    request.logprobs = true;
    request.n_top = 2;
    request.ignore_eos = true;
    request.on_event = recording_event;
    request.ctx = r;
    request.sampling.temperature = 0;
    return request;
}

uint64_t submit(fixture *f, const cl_engine_request *request) {
    uint64_t id = 0;
    cl_error error = {.message = ""};
    if (cl_engine_submit(f->engine, request, &id, &error) != CL_OK) fail_msg("%s", error.message);
    return id;
}

recording *run_request(fixture *f, cl_engine_request request) {
    recording *r = recording_create();
    request.on_event = recording_event;
    request.ctx = r;
    submit(f, &request);
    recording_wait(r);
    return r;
}

void submit_together(fixture *f, const cl_engine_request *requests, int n, uint64_t *ids) {
    toy_hold();
    for (int i = 0; i < n; i++) {
        const uint64_t id = submit(f, &requests[i]);
        if (ids) ids[i] = id;
        if (i == 0) toy_pass(0);
    }
    toy_release();
}

int64_t longest_completion(fixture *f, cl_engine_request request) {
    int64_t max_tokens = 0;
    for (int64_t step = 1024; step > 0; step /= 2) {
        recording *r = recording_create();
        request.max_tokens = max_tokens + step;
        request.ctx = r;
        uint64_t id;
        if (cl_engine_submit(f->engine, &request, &id, NULL) == CL_OK) {
            max_tokens += step;
            cl_engine_cancel(f->engine, id);
            recording_wait(r);
        }
        recording_free(r);
    }
    return max_tokens;
}

cl_engine_stats stats_of(fixture *f) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(cl_engine_get_stats(f->engine, &stats), CL_OK);
    return stats;
}

cattn_stats kv_stats_of(fixture *f) {
    cattn_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(cl_engine_get_kv_stats(f->engine, &stats), CL_OK);
    return stats;
}

cl_engine_stats stats_when_idle(fixture *f) {
    cl_engine_stats stats;
    WAIT_UNTIL((stats = stats_of(f), stats.n_running + stats.n_waiting == 0));
    return stats;
}

cattn_stats kv_stats_when_idle(fixture *f) {
    stats_when_idle(f);
    return kv_stats_of(f);
}

cl_engine_stats run_requests(const setting *set, cattn_type kv_type, const drafting *drafting, make_request_fn *make, int n,
                             int max_prompt, recording **recordings) {
    cl_engine_config config = setting_config(set, kv_type);
    config.speculate = drafting->on;
    config.row_cost = 0;
    config.draft_model = drafting->model;
    fixture f;
    fixture_start(&f, &config, set->n_threads);
    int32_t *tokens = calloc((size_t)n * (size_t)max_prompt, sizeof *tokens);
    cl_engine_request *requests = calloc((size_t)n, sizeof *requests);
    assert_true(tokens && requests);
    for (int i = 0; i < n; i++) {
        recordings[i] = recording_create();
        requests[i] = make(i, tokens + (size_t)i * (size_t)max_prompt, recordings[i]);
        if (!set->one_by_one) continue;
        submit(&f, &requests[i]);
        recording_wait(recordings[i]);
    }
    if (!set->one_by_one) submit_together(&f, requests, n, NULL);
    int64_t n_completion = 0;
    for (int i = 0; i < n; i++) {
        recording_wait(recordings[i]);
        n_completion += recordings[i]->n_completion;
    }
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.completion_tokens, n_completion);
    assert_int_equal(stats.requests_finished, n);
    const cattn_stats kv = kv_stats_of(&f);
    assert_int_equal(kv.n_seqs + kv.chunks_live + kv.chunks_reserved, 0);
    fixture_stop(&f);
    free(requests);
    free(tokens);
    return stats;
}

void expect_same_reports(recording *const *expected, recording **got, int n, const char *text) {
    for (int i = 0; i < n; i++) {
        if (!recording_equal(expected[i], got[i]))
            fail_msg("%s, request %d: something else was reported: %s", text, i, got[i]->error);
        assert_int_equal(got[i]->n_completion, expected[i]->n_completion);
        recording_free(got[i]);
    }
}

void expect_same_bytes(const series *s) {
    const drafting off = {false, NULL};
    recording **expected = calloc((size_t)s->n, sizeof(recording *)), **got = calloc((size_t)s->n, sizeof(recording *));
    assert_true(expected && got);
    for (size_t t = 0; t < s->n_types; t++) {
        run_requests(&s->undisturbed, s->types[t], &off, s->make, s->n, s->max_prompt, expected);
        if (s->check_undisturbed) s->check_undisturbed(expected);
        for (size_t run = 0; run < s->n_settings * s->n_ways; run++) {
            const size_t set = run / s->n_ways, way = run % s->n_ways;
            if (s->turns && (set + way) % s->n_types != t) continue;
            const cl_engine_stats stats =
                run_requests(&s->settings[set], s->types[t], &s->ways[way], s->make, s->n, s->max_prompt, got);
            if (s->check_run) s->check_run(&s->settings[set], &s->ways[way], &stats);
            char text[128];
            snprintf(text, sizeof text, "K/V type %zu, setting %zu, way %zu", t, set, way);
            expect_same_reports(expected, got, s->n, text);
        }
        for (int i = 0; i < s->n; i++) recording_free(expected[i]);
    }
    free((void *)expected);
    free((void *)got);
}

void expect_same_bytes_as_usual(const series *s) {
    const drafting ways[] = {{false, NULL}, {true, NULL}, {true, toy_free_model()}};
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 3, 0, 64, 1, 64 * MIB, true},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 40, 7, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 0, 64, 1, MIB * 2 / 9, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 32, 5, 64, 2, MIB / 3, false},
    };
    series usual = *s;
    usual.undisturbed = (setting){CATTN_PRIVATE, CATTN_RETAIN_NONE, 3, 0, 64, 1, 64 * MIB, true};
    usual.settings = settings;
    usual.n_settings = sizeof settings / sizeof *settings;
    usual.ways = ways;
    usual.n_ways = sizeof ways / sizeof *ways;
    expect_same_bytes(&usual);
}

int64_t trie_tokens(const prompt *prompts, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        const prompt *p = &prompts[i];
        int64_t longest = 0;
        for (int j = 0; j < i; j++) {
            const int64_t limit = prompts[j].n < p->n - 1 ? prompts[j].n : p->n - 1;
            int64_t same = 0;
            while (same < limit && prompts[j].tokens[same] == p->tokens[same]) same++;
            if (same - same % 2 > longest) longest = same - same % 2;
        }
        total += p->n - longest;
    }
    return total;
}
