/* The engine over a real model: what is reported does not depend on the configuration either. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording.h"

enum { N = 13, N_EMBEDDINGS = 3, MAX_PROMPT = 200 }; /* they come first, so that rows with logits follow rows without */

typedef struct setting {
    cattn_sharing sharing;
    int32_t max_seqs, prefill_piece, n_threads;
    bool together, drafts;
} setting;

/* Half of each prompt is one of two prefixes. */
static int64_t fill_prompt(int32_t *prompt, int i, int32_t n_vocab) {
    const int64_t n = 60 + 17 * (i % 9);
    for (int64_t p = 0; p < n; p++) {
        const uint32_t key = p < n / 2 ? (uint32_t)i % 2 : (uint32_t)i + 100;
        prompt[p] = (int32_t)((key * 2654435761u + (uint32_t)p * 40503u) % (uint32_t)(n_vocab - 1000)) + 500;
    }
    return n;
}

static void run(const cl_model *m, const setting *set, recording **recordings) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.sharing = set->sharing;
    config.max_seqs = set->max_seqs;
    config.prefill_piece = set->prefill_piece;
    config.max_step_rows = 128;
    config.n_ctx = 1024;
    config.speculate = set->drafts;
    config.row_cost = 0; /* a draft wherever there is one */
    config.kv_budget_bytes = 256 << 20;
    ca_pool *pool = ca_pool_create(set->n_threads);
    cl_engine *e;
    cl_error error;
    if (cl_engine_create_on_pool(m, pool, &config, &e, &error) != CL_OK) fail_msg("%s", error.message);
    for (int i = 0; i < N; i++) {
        int32_t prompt[MAX_PROMPT];
        recordings[i] = recording_create();
        cl_engine_request request;
        cl_engine_request_init(&request);
        request.prompt = prompt;
        request.n_prompt = fill_prompt(prompt, i, m->params.n_vocab);
        request.n = i == 4 && set->max_seqs > 2 ? 3 : 1;
        request.max_tokens = 24;
        request.logprobs = true;
        request.n_top = 4;
        request.prompt_logprobs = i % 4 == 3;
        request.on_event = recording_event;
        request.ctx = recordings[i];
        request.sampling.temperature = (float)(i % 2);
        if (i < N_EMBEDDINGS) {
            request.max_tokens = 0;
            request.prompt_logprobs = false;
            request.pooling = i % 2 ? CL_ENGINE_POOL_LAST : CL_ENGINE_POOL_MEAN;
        }
        uint64_t id;
        if (cl_engine_submit(e, &request, &id, &error) != CL_OK) fail_msg("%s", error.message);
        if (!set->together) recording_wait(recordings[i]);
    }
    for (int i = 0; i < N; i++) recording_wait(recordings[i]);
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(e, &stats);
    assert_true(set->drafts ? stats.drafts.n_tokens > stats.drafts.n_accepted : stats.drafts.n_tokens == 0);
    cl_engine_destroy(&e);
    ca_pool_destroy(&pool);
}

static void same_bytes_in_every_setting(void **state) {
    (void)state;
    static const setting settings[] = {
        {CATTN_PRIVATE, 3, 0, 1, false, false},        {CATTN_SHARED, 1, 0, 2, true, true},
        {CATTN_SHARED, 16, 0, 2, true, false},         {CATTN_SHARED, 16, 7, 1, true, true},
        {CATTN_SHARED_STORAGE, 16, 64, 2, true, true},
    };
    const char *path = getenv("CHUNKLLAMA_MODEL");
    if (!path) {
        printf("skipped: no model; name a GGUF file in CHUNKLLAMA_MODEL\n");
        skip();
    }
    cl_model *m;
    cl_error error;
    ca_pool *pool = ca_pool_create(2);
    if (cl_model_load_on_pool(path, NULL, pool, &m, &error) != CL_OK) fail_msg("%s", error.message);
    recording *expected[N], *got[N];
    run(m, &settings[0], expected);
    for (size_t s = 1; s < sizeof settings / sizeof *settings; s++) {
        run(m, &settings[s], got);
        for (int i = 0; i < N; i++) {
            const bool same_request = i != 4 || settings[s].max_seqs > 2;
            if (same_request && !recording_equal(expected[i], got[i]))
                fail_msg("setting %zu, request %d: something else was reported", s, i);
            recording_free(got[i]);
        }
    }
    for (int i = 0; i < N; i++) recording_free(expected[i]);
    cl_model_free(&m);
    ca_pool_destroy(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes_in_every_setting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
