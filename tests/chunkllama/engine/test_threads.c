/* Many threads submit, cancel, watch and stop at random moments; nothing is lost, and what finishes is right. */
#include "tests/support/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "tests/support/folder.h"

enum { N_THREADS = 4, N_ROUNDS = 30, N_KINDS = 12, N_PROMPT = 90, N_TIER_CHUNKS = 200, TIER_CHUNK = 16 };

static int32_t prompts[N_KINDS][N_PROMPT];
static recording *expected[N_KINDS];

static cl_engine_request kind(int i, recording *r) {
    cl_engine_request request = make_request(prompts[i], N_PROMPT - i, 10 + i, r);
    request.n = i % 4 == 3 ? 3 : 1;
    request.sampling.temperature = i % 2 ? 1 : 0;
    request.prompt_logprobs = i % 6 == 5;
    return request;
}

typedef struct client {
    fixture *f;
    pthread_t thread;
    unsigned seed;
    int n_finished, n_cancelled;
} client;

static bool has_cancelled_choice(const recording *r) {
    bool cancelled = false;
    for (int i = 0; i < RECORDING_CHOICES; i++) cancelled |= r->choices[i].finish == CL_ENGINE_CANCELLED;
    return cancelled;
}

static void *be_client(void *arg) {
    client *c = arg;
    for (int round = 0; round < N_ROUNDS; round++) {
        enum { N = 4 };
        recording *r[N];
        uint64_t ids[N];
        int kinds[N];
        for (int i = 0; i < N; i++) {
            kinds[i] = rand_r(&c->seed) % N_KINDS;
            r[i] = recording_create();
            const cl_engine_request request = kind(kinds[i], r[i]);
            ids[i] = submit(c->f, &request);
        }
        for (int i = 0; i < N; i++) {
            if (rand_r(&c->seed) % 2) {
                recording_wait_events(r[i], rand_r(&c->seed) % 12);
                cl_engine_cancel(c->f->engine, ids[i]);
                cl_engine_cancel(c->f->engine, ids[i] + 100000);
            }
            (void)stats_of(c->f);
        }
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            cl_engine_cancel(c->f->engine, ids[i]); /* too late for anything */
            if (has_cancelled_choice(r[i])) {
                c->n_cancelled++;
            } else {
                c->n_finished++;
                assert_true(recording_equal(r[i], expected[kinds[i]]));
            }
            recording_free(r[i]);
        }
    }
    return NULL;
}

static int compute_expected(void **state) {
    (void)state;
    fixture f;
    cl_engine_config config = fixture_config();
    config.sharing = CATTN_PRIVATE;
    fixture_start(&f, &config, 1);
    for (int i = 0; i < N_KINDS; i++) {
        make_prompt(prompts[i], N_PROMPT, i % 2 ? 60 : 25, 1, (uint32_t)i);
        expected[i] = recording_create();
        const cl_engine_request request = kind(i, expected[i]);
        submit(&f, &request);
        recording_wait(expected[i]);
    }
    fixture_stop(&f);
    return 0;
}

static int free_expected(void **state) {
    (void)state;
    for (int i = 0; i < N_KINDS; i++) recording_free(expected[i]);
    return 0;
}

static void random_cancels(void **state) {
    (void)state;
    fixture f;
    cl_engine_config config = fixture_config();
    config.prefill_segment = 16;
    config.max_seqs = 9;
    config.speculate = true;
    config.row_cost = 0; /* a draft wherever there is one */
    fixture_start(&f, &config, 2);
    client clients[N_THREADS];
    int n_finished = 0, n_cancelled = 0;
    for (unsigned i = 0; i < N_THREADS; i++) {
        clients[i] = (client){.f = &f, .seed = 100 + i};
        printf("seed %u\n", clients[i].seed);
        assert_int_equal(pthread_create(&clients[i].thread, NULL, be_client, &clients[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(clients[i].thread, NULL);
        n_finished += clients[i].n_finished;
        n_cancelled += clients[i].n_cancelled;
    }
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.requests_finished, N_THREADS * N_ROUNDS * 4);
    assert_true(n_finished > 0 && n_cancelled > 0);
    assert_int_equal(kv_stats_of(&f).n_seqs, 0);
    assert_int_equal(kv_stats_of(&f).chunks_live, 0);
    assert_int_equal(kv_stats_of(&f).chunks_reserved, 0);
    fixture_stop(&f);
}

/* Destroying an engine cancels what waits and runs, and every request hears of it. */
static void destroyed_at_work(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        fixture f;
        cl_engine_config config = fixture_config();
        config.max_seqs = 4;
        fixture_start(&f, &config, 1);
        recording *r[N_KINDS];
        for (int i = 0; i < N_KINDS; i++) {
            r[i] = recording_create();
            const cl_engine_request request = kind(i, r[i]);
            submit(&f, &request);
        }
        if (round > 0) recording_wait_events(r[0], round / 2);
        fixture_stop(&f);
        for (int i = 0; i < N_KINDS; i++) {
            assert_true(r[i]->done);
            assert_int_not_equal(r[i]->choices[0].finish, CL_ENGINE_RUNNING);
            recording_free(r[i]);
        }
    }
}

/* ---- Statistics of an idle engine ---- */

static bool all_is_written(fixture *f) {
    (void)stats_of(f);
    const cattn_stats stats = kv_stats_of(f);
    return stats.tier_queued == 0 && stats.tier_writes == N_TIER_CHUNKS;
}

static void *wait_for_writes(void *f) {
    WAIT_UNTIL(all_is_written(f));
    return NULL;
}

/* Many threads see what the file tier's thread writes, although no step follows. */
static void idle_engine_reports_its_tier(void **state) {
    (void)state;
    static int32_t prompt[N_TIER_CHUNKS * TIER_CHUNK];
    char dir[] = "/tmp/chunkllama-engine-XXXXXX";
    assert_non_null(mkdtemp(dir));
    fixture f;
    cl_engine_config config = fixture_config();
    config.chunk_size = TIER_CHUNK;
    config.kv_tier_dir = dir;
    config.kv_tier_bytes = 64 * MIB;
    fixture_start(&f, &config, 1);
    /* Under a lowered budget an idle engine makes no memory resident and refreshes its statistics. */
    assert_int_equal(cl_engine_set_kv_budget(f.engine, config.kv_budget_bytes - 1, NULL), CL_OK);
    pthread_t readers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(pthread_create(&readers[i], NULL, wait_for_writes, &f), 0);
    make_prompt(prompt, N_TIER_CHUNKS * TIER_CHUNK, 0, 1, 1);
    recording *r = recording_create();
    const cl_engine_request request = make_request(prompt, N_TIER_CHUNKS * TIER_CHUNK, 1, r);
    submit(&f, &request);
    recording_wait(r);
    for (int i = 0; i < N_THREADS; i++) pthread_join(readers[i], NULL);
    recording_free(r);
    fixture_stop(&f);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_cancels, compute_expected, free_expected),
        cmocka_unit_test_setup_teardown(destroyed_at_work, compute_expected, free_expected),
        cmocka_unit_test(idle_engine_reports_its_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
