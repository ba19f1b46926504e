/*
 * Requests with a grammar, over a fake grammar engine: what is reported matches the grammar and is the same whatever runs
 * beside it, forced tokens are computed together, failures end their choice only, and nobody waits for another one's grammar.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "chunkllama/engine/draw.h"
#include "chunkllama/engine/grammar.h"
#include "fixture.h"
#include "tests/support/wait.h"

/* For how long steps wait for grammars: without a limit, so that steps can be counted; not at all; or as long as they do. */
static enum { WAIT_FOR_ALL, WAIT_FOR_NONE, WAIT_AS_USUAL } wait_for = WAIT_FOR_ALL;
void __real_cl_draw_list_run(cl_draw_list *list, double until);
void __wrap_cl_draw_list_run(cl_draw_list *list, double until);
void __wrap_cl_draw_list_run(cl_draw_list *list, double until) {
    __real_cl_draw_list_run(list, wait_for == WAIT_FOR_ALL ? INFINITY : wait_for == WAIT_FOR_NONE ? 0 : until);
}

enum { N_KINDS = 30, N_ROUNDS = 2, N_REQUESTS = N_KINDS * N_ROUNDS, MAX_PROMPT = 100 };

/* Patterns that force nothing, much, and everything. */
static const char *const patterns[] = {
    "{\"name\": \"a b the\", \"number\": #?#?#, \"next\": \".*\"}",
    "#*",
    "ab the end of the tokens that are forced to the very END",
    "a?b?c?d?e?f?.*",
    "#, #, #, #, #, #; forced; #, #, #, #",
    ".*END",
    "x",
    "#?\xe2\x82\xac the \xf0\x9f\x98\x80.*the",
};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };

static void set_grammar(cl_engine_request *request, const char *pattern) {
    request->grammar_kind = CL_GRAMMAR_REGEX;
    request->grammar = pattern;
    request->grammar_size = strlen(pattern);
}

/* Requests of all kinds, every fifth without a grammar. The second round repeats the first, so that lookup drafts are right. */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const char *const stop[] = {"END", "ab", "; f", "e"};
    static const int32_t stop_tokens[] = {65, 66, '7', 130, 131, '}'};
    static const int32_t bad_words[] = {'1', 'a', 'b'}, bad_word_sizes[] = {1, 2}; /* also where the grammar has no others */
    static const cl_logit_bias bias[] = {{'5', 20}, {'x', -INFINITY}};
    const int kind = i % N_KINDS;
    const int64_t n = 1 + 13 * (kind % 7);
    make_prompt(tokens, n, n * 2 / 3, (uint32_t)(kind % 3), (uint32_t)kind);
    cl_engine_request request = make_request(tokens, n, 1 + 7 * (kind % 11), r);
    if (kind % 5 != 4) set_grammar(&request, patterns[kind % N_PATTERNS]);
    request.sampling.seed = (uint64_t)kind;
    if (kind % 2 == 1) request.sampling.temperature = 1;
    if (kind % 8 == 3) request.sampling.frequency_penalty = 0.5f;
    if (kind % 8 == 6) request.sampling.repetition_penalty = 1.3f;
    if (kind % 8 == 7) request.sampling.top_p = 0.6f;
    if (kind % 6 == 2) request.prompt_logprobs = true;
    if (kind % 3 != 0) request.ignore_eos = false;
    if (kind % 3 == 2) request.logprobs = false;
    if (kind % 7 == 3) {
        request.stop = stop;
        request.n_stop = 4;
    }
    if (kind % 7 == 5) {
        request.stop_tokens = stop_tokens;
        request.n_stop_tokens = 6;
    }
    if (kind % 10 == 1 && request.max_tokens > 4) request.min_tokens = 4;
    if (kind % 10 == 2) {
        request.logit_bias = bias;
        request.n_logit_bias = 2;
    }
    if (kind % 10 == 3) {
        request.bad_words = bad_words;
        request.bad_word_sizes = bad_word_sizes;
        request.n_bad_words = 2;
    }
    if (kind % 9 == 8) {
        request.n = 3;
        request.sampling.temperature = 1;
    }
    return request;
}

/* Whether a grammar allows the tokens of a choice, which may be those of a beginning. */
static void expect_match(const recorded_choice *c, const char *pattern) {
    cl_grammar_library *library;
    cl_grammar *grammar;
    assert_int_equal(cl_grammar_open("fake", NULL, TOY_VOCAB, false, &library, NULL), CL_OK);
    assert_int_equal(library->compile(library, 0, CL_GRAMMAR_REGEX, pattern, strlen(pattern), &grammar, NULL), CL_OK);
    cl_matcher *m = grammar->start(grammar);
    assert_int_equal(m->count_valid(m, c->tokens, (int32_t)c->n_tokens), c->n_tokens);
    m->free(m);
    grammar->free(grammar);
    library->free(library);
}

static void expect_matches(recording *const *recordings) {
    int32_t tokens[MAX_PROMPT];
    int n_complete = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        const cl_engine_request request = variety(i, tokens, recordings[i]);
        for (int k = 0; k < request.n && request.grammar; k++) {
            const recorded_choice *c = &recordings[i]->choices[k];
            assert_true(c->finish == CL_ENGINE_STOP || c->finish == CL_ENGINE_LENGTH);
            assert_true(c->n_tokens > 0);
            expect_match(c, request.grammar);
            n_complete += c->finish == CL_ENGINE_STOP && c->n_tokens < request.max_tokens;
        }
    }
    assert_in_range(n_complete, N_REQUESTS / 5, N_REQUESTS);
}

static int64_t n_preempted, n_accepted;

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    (void)set;
    (void)way;
    n_preempted += stats->preemptions;
    n_accepted += stats->drafts.n_accepted;
}

/*
 * Alone or together, drafted by whom ever, preempted and in any sharing mode. The types of K/V take turns, so that each is in
 * every setting and with every way of drafting.
 */
static void same_bytes_in_every_setting(void **state) {
    (void)state;
    const drafting ways[] = {{false, NULL}, {true, NULL}, {true, toy_draft_model(0.1f)}};
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 3, 0, 64, 1, 64 * MIB, true},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 0, 64, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 7, 33, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 4, 3, 5, 3, MIB / 2, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 32, 0, 512, 4, MIB / 2, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 16, 5, 64, 1, MIB / 3, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 16, 0, 64, 2, MIB / 3, false},
    };
    static const cattn_type types[2] = {CATTN_F32, CATTN_I8};
    expect_same_bytes(&(series){.make = variety,
                                .n = N_REQUESTS,
                                .max_prompt = MAX_PROMPT,
                                .undisturbed = {CATTN_PRIVATE, CATTN_RETAIN_NONE, 3, 0, 512, 1, 64 * MIB, true},
                                .settings = settings,
                                .n_settings = sizeof settings / sizeof *settings,
                                .types = types,
                                .n_types = 2,
                                .ways = ways,
                                .n_ways = 3,
                                .turns = true,
                                .check_undisturbed = expect_matches,
                                .check_run = check_run});
    assert_true(n_preempted > 20);
    assert_true(n_accepted > 200);
}

/* Grammars in processes of their own report the same, with and without drafts, and whatever is preempted or sits out. */
static void processes_change_nothing(void **state) {
    (void)state;
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 7, 33, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 4, 3, 5, 3, MIB / 2, false},
    };
    for (int i = 0; i < 2; i++) {
        recording *expected[N_REQUESTS], *got[N_REQUESTS];
        run_requests(&settings[i], CATTN_F32, &(drafting){i == 0, NULL}, variety, N_REQUESTS, MAX_PROMPT, expected);
        fixture_has_processes = true;
        for (int k = 0; k < 6; k++) {
            wait_for = k / 2;
            run_requests(&settings[i], CATTN_F32, &(drafting){k % 2 == 0, NULL}, variety, N_REQUESTS, MAX_PROMPT, got);
            expect_same_reports(expected, got, N_REQUESTS, "in processes");
        }
        fixture_has_processes = false;
        wait_for = WAIT_FOR_ALL;
        for (int k = 0; k < N_REQUESTS; k++) recording_free(expected[k]);
    }
}

/* A text of which everything is forced takes two steps: the prompt's, and one for all its tokens. */
static void forced_tokens_are_computed_together(void **state) {
    (void)state;
    static const char text[] = "0123456789ABCDEFGHIJKLMNOPQRSTUV"; /* 32 tokens */
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        cl_engine_config config = fixture_config();
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[11];
        make_prompt(tokens, 11, 0, 0, 1);
        cl_engine_request request = make_request(tokens, 11, 100, NULL);
        request.logprobs = logprobs;
        set_grammar(&request, text);
        recording *r = run_request(&f, request);
        const recorded_choice *c = &r->choices[0];
        assert_int_equal(c->finish, CL_ENGINE_STOP);
        assert_int_equal(c->n_tokens, 32);
        assert_int_equal(c->text_size, 32);
        assert_memory_equal(c->text, text, 32);
        assert_int_equal(stats_when_idle(&f).steps, 2);
        assert_int_equal(toy_take_rows(), 11 + 32);
        for (int i = 0; i < 32 && logprobs; i++) assert_true(c->logprobs[i] < 0);
        recording_free(r);
        fixture_stop(&f);
    }
}

/* With several choices and few rows the forced tokens of each still take fewer steps than tokens. */
static void forced_tokens_share_the_rows_of_a_step(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.max_step_rows = config.max_seqs = 20;
    fixture f;
    fixture_start(&f, &config, 2);
    int32_t tokens[11];
    make_prompt(tokens, 11, 0, 0, 1);
    cl_engine_request request = make_request(tokens, 11, 100, NULL);
    request.n = 4;
    set_grammar(&request, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    recording *r = run_request(&f, request);
    for (int k = 0; k < 4; k++) assert_int_equal(r->choices[k].n_tokens, 36);
    assert_in_range(stats_when_idle(&f).steps, 1 + 4 * 35 / 20, 1 + 4 * 35 / 20 + 4);
    recording_free(r);
    fixture_stop(&f);
}

/* max_tokens, stop strings and stop tokens end a choice within forced tokens, and what comes after them is not reported. */
static void forced_tokens_end_where_others_would(void **state) {
    (void)state;
    static const char *const stop[] = {"IJ"};
    static const int32_t stop_tokens[] = {'K'};
    cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[11];
    make_prompt(tokens, 11, 0, 0, 1);
    for (int i = 0; i < 3; i++) {
        cl_engine_request request = make_request(tokens, 11, i == 0 ? 13 : 100, NULL);
        set_grammar(&request, "0123456789ABCDEFGHIJKLMNOPQRSTUV");
        if (i == 1) request.stop = stop, request.n_stop = 1;
        if (i == 2) request.stop_tokens = stop_tokens, request.n_stop_tokens = 1;
        recording *r = run_request(&f, request);
        const recorded_choice *c = &r->choices[0];
        static const int64_t n_tokens[] = {13, 20, 21}, n_text[] = {13, 18, 20};
        assert_int_equal(c->finish, i == 0 ? CL_ENGINE_LENGTH : CL_ENGINE_STOP);
        assert_int_equal(c->n_tokens, n_tokens[i]);
        assert_int_equal(c->text_size, n_text[i]);
        assert_int_equal(r->n_completion, n_tokens[i]);
        recording_free(r);
    }
    fixture_stop(&f);
}

/* End tokens come only where the grammar may end; with ignore_eos only where nothing else may come. */
static void end_tokens_follow_the_grammar(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[11];
    make_prompt(tokens, 11, 0, 0, 1);
    cl_engine_request request = make_request(tokens, 11, 30, NULL);
    set_grammar(&request, "#*");
    recording *r = run_request(&f, request);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
    for (int i = 0; i < 30; i++) assert_in_range(r->choices[0].tokens[i], '0', '9');
    recording_free(r);
    request.ignore_eos = false; /* the toy model likes its end token best */
    r = run_request(&f, request);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP);
    assert_int_equal(r->choices[0].tokens[r->choices[0].n_tokens - 1], TOY_END);
    recording_free(r);
    set_grammar(&request, "##########");
    r = run_request(&f, request);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP);
    assert_int_equal(r->choices[0].n_tokens, 10);
    recording_free(r);
    fixture_stop(&f);
}

/*
 * First tokens under a grammar, the end among them, are drawn by the probability that they have among those that are allowed:
 * chi-square over all that come.
 */
static void the_distribution_is_that_of_masks(void **state) {
    (void)state;
    enum { REQUESTS = 250, DRAWS = REQUESTS * RECORDING_CHOICES };
    static const struct {
        const char *pattern;
        int n_tokens; /* that are allowed at least */
    } cases[] = {{"#*", 11}, {".*", 60}};
    const double temperature = 10;
    cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 2);
    int32_t tokens[11];
    make_prompt(tokens, 11, 0, 0, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count[TOY_VOCAB] = {0}, n_seen = 0;
        double weight[TOY_VOCAB] = {0}, sum = 0, chi2 = 0;
        cl_engine_request request = make_request(tokens, 11, 1, NULL);
        request.n = RECORDING_CHOICES;
        request.sampling.temperature = (float)temperature;
        request.ignore_eos = false;
        set_grammar(&request, cases[i].pattern);
        for (int k = 0; k < REQUESTS; k++) {
            request.sampling.seed = (uint64_t)k;
            recording *r = run_request(&f, request);
            for (int c = 0; c < RECORDING_CHOICES; c++) {
                const int32_t id = r->choices[c].tokens[0];
                count[id]++;
                weight[id] = exp((double)r->choices[c].logprobs[0] / temperature);
            }
            recording_free(r);
        }
        for (int id = 0; id < TOY_VOCAB; id++) {
            sum += weight[id];
            n_seen += count[id] > 0;
        }
        for (int id = 0; id < TOY_VOCAB; id++) {
            if (count[id] == 0) continue;
            const double expected = DRAWS * weight[id] / sum;
            chi2 += (count[id] - expected) * (count[id] - expected) / expected;
        }
        assert_true(count[TOY_END] > 0 && n_seen >= cases[i].n_tokens);
        /* Five standard deviations of chi-square; the seeds are fixed. */
        if (chi2 > n_seen + 5 * sqrt(2.0 * n_seen)) fail_msg("%s: chi-square %g of %d tokens", cases[i].pattern, chi2, n_seen);
    }
    fixture_stop(&f);
}

/* A grammar that fails amid a completion, or for lack of memory, ends its choice with the engine's message, and no other one.
 */
static void failures_end_their_choice(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.speculate = true;
    config.row_cost = 0;
    fixture f;
    fixture_start(&f, &config, 2);
    int32_t tokens[3][20];
    recording *r[3], *alone = recording_create();
    cl_engine_request requests[3];
    static const char *const failing[] = {"##0123!", "!", "0123#,#,#,#,#,#,#,#"};
    for (int i = 0; i < 3; i++) {
        r[i] = recording_create();
        make_prompt(tokens[i], 20, 8, 0, (uint32_t)i);
        requests[i] = make_request(tokens[i], 20, 40, r[i]);
        requests[i].n = i == 0 ? 3 : 1;
        set_grammar(&requests[i], failing[i]);
    }
    submit_together(&f, requests, 3, NULL);
    for (int i = 0; i < 3; i++) recording_wait(r[i]);
    const int64_t n_before = fixture_has_processes ? 6 : 5; /* a process says with the next answer that it has failed */
    for (int k = 0; k < 3; k++) {
        assert_int_equal(r[0]->choices[k].finish, CL_ENGINE_ERROR);
        assert_int_equal(r[0]->choices[k].n_tokens, n_before);
    }
    assert_string_equal(r[0]->error, "grammar fails on request");
    assert_int_equal(r[1]->choices[0].finish, CL_ENGINE_ERROR);
    assert_int_equal(r[1]->n_completion, 0);
    assert_string_equal(r[1]->error, "no memory for the grammar of a choice");
    assert_int_equal(r[2]->choices[0].finish, CL_ENGINE_STOP);
    assert_int_equal(stats_when_idle(&f).completion_tokens, 3 * n_before + r[2]->n_completion);
    requests[2].ctx = alone;
    submit(&f, &requests[2]);
    recording_wait(alone);
    assert_true(recording_equal(alone, r[2]));
    assert_int_equal(kv_stats_when_idle(&f).chunks_live, 0);
    for (int i = 0; i < 3; i++) recording_free(r[i]);
    recording_free(alone);
    fixture_stop(&f);
}

typedef struct canceller {
    fixture *f;
    int64_t n_events, cancel_at;
} canceller;

static void cancel_at(void *ctx, const cl_engine_event *event) {
    canceller *c = ctx;
    if (c->n_events++ == c->cancel_at) cl_engine_cancel(c->f->engine, event->request);
}

/* After a request cancels itself at an event, none of the forced tokens after it is reported. */
static void cancelled_amid_forced_tokens(void **state) {
    (void)state;
    for (int64_t at = 0; at < 30; at += 5) {
        const cl_engine_config config = fixture_config();
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[11];
        make_prompt(tokens, 11, 0, 0, 1);
        recording *r = recording_create();
        cl_engine_request request = make_request(tokens, 11, 100, r);
        set_grammar(&request, "0123456789ABCDEFGHIJKLMNOPQRSTUV");
        canceller c = {&f, 0, at};
        r->hook = cancel_at;
        r->hook_ctx = &c;
        submit(&f, &request);
        recording_wait(r);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_CANCELLED);
        assert_int_equal(r->choices[0].n_tokens, at + 1);
        assert_int_equal(kv_stats_when_idle(&f).chunks_live, 0);
        recording_free(r);
        fixture_stop(&f);
    }
}

/* Stops the process of a grammar with SIGSTOP when n_left more tokens have been reported. */
typedef struct stopper {
    int process;
    int64_t n_left;
} stopper;

static bool is_stopped(int process) {
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
    fclose(file);
    return state == 'T';
}

static void stop(int process) {
    kill(process, SIGSTOP);
    WAIT_UNTIL(is_stopped(process));
}

static void stop_after(void *ctx, const cl_engine_event *event) {
    stopper *s = ctx;
    if (event->kind == CL_EVENT_TOKEN && --s->n_left == 0) stop(s->process);
}

/*
 * While the answer of a grammar is held, requests that come then go on to their ends, with and without grammars of their own.
 * The held one is cancelled, or goes on when the answer comes, with the same tokens.
 */
static void nobody_waits_for_the_grammar_of_another(void **state) {
    (void)state;
    enum { N = 3, N_PROMPT = 20 }; /* the first one is held */
    static const char *const grammars[N] = {"#*, a?b?c?d?e?f?.*", ".*END", NULL};
    static const struct {
        int n;
        int64_t n_before; /* tokens before the grammar is held */
        bool speculates, cancels;
    } cases[] = {{1, 0, false, false}, {1, 5, true, true}, {3, 0, true, false}, {3, 7, false, true}, {1, 9, true, false}};
    wait_for = WAIT_AS_USUAL;
    fixture_has_processes = true;
    fake_grammar_process = mmap(NULL, sizeof *fake_grammar_process, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(fake_grammar_process, MAP_FAILED);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_engine_config config = fixture_config();
        config.speculate = cases[i].speculates;
        config.row_cost = 0;
        fixture f;
        fixture_start(&f, &config, 2);
        int32_t tokens[N][N_PROMPT];
        cl_engine_request requests[N];
        recording *expected[N], *got[N];
        stopper s = {0, cases[i].n_before};
        for (int k = 0; k < N; k++) {
            make_prompt(tokens[k], N_PROMPT, 8, 0, (uint32_t)k);
            requests[k] = make_request(tokens[k], N_PROMPT, 60, NULL);
            requests[k].domain = (uint32_t)k;
            requests[k].n = k == 0 ? cases[i].n : 1;
            requests[k].sampling.temperature = 1;
            if (grammars[k]) set_grammar(&requests[k], grammars[k]);
            expected[k] = run_request(&f, requests[k]);
            if (k == 0) s.process = atomic_load(fake_grammar_process);
            requests[k].ctx = got[k] = recording_create();
        }
        got[0]->hook = stop_after;
        got[0]->hook_ctx = &s;
        toy_hold();
        const uint64_t held = submit(&f, &requests[0]);
        if (s.n_left == 0) stop(s.process);
        toy_release();
        WAIT_UNTIL(is_stopped(s.process));
        for (int k = 1; k < N; k++) submit(&f, &requests[k]);
        for (int k = 1; k < N; k++) recording_wait(got[k]);
        pthread_mutex_lock(&got[0]->mutex);
        assert_false(got[0]->done);
        pthread_mutex_unlock(&got[0]->mutex);
        if (cases[i].cancels) cl_engine_cancel(f.engine, held);
        if (cases[i].cancels) recording_wait(got[0]);
        kill(s.process, SIGCONT);
        if (cases[i].cancels) {
            assert_int_equal(got[0]->choices[0].finish, CL_ENGINE_CANCELLED);
            recording_free(got[0]);
            got[0] = run_request(&f, requests[0]);
        }
        recording_wait(got[0]);
        assert_int_equal(kv_stats_when_idle(&f).chunks_live, 0);
        expect_same_reports(expected, got, N, "with a grammar that was held");
        for (int k = 0; k < N; k++) recording_free(expected[k]);
        fixture_stop(&f);
    }
    munmap(fake_grammar_process, sizeof *fake_grammar_process);
    fake_grammar_process = NULL;
    fixture_has_processes = false;
    wait_for = WAIT_FOR_ALL;
}

static void expect_refusal(fixture *f, const cl_engine_request *request, cl_status status, const char *one, const char *other) {
    cl_error error = {.message = ""};
    assert_int_equal(cl_engine_submit(f->engine, request, NULL, &error), status);
    if (!strstr(error.message, one) || !strstr(error.message, other))
        fail_msg("\"%s\" should name %s and %s", error.message, one, other);
}

static void what_cannot_run_is_refused(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[11];
    make_prompt(tokens, 11, 0, 0, 1);
    recording *r = recording_create();
    const cl_engine_request plain = make_request(tokens, 11, 10, r);
    cl_engine_request request = plain;
    request.domain = 5;
    set_grammar(&request, "(");
    const char *says = fixture_has_processes ? "is not a pattern, for domain 0" : "is not a pattern, for domain 5";
    expect_refusal(&f, &request, CL_ERR_ARG, "grammar", says);
    fixture_stop(&f);

    config.grammar_library = NULL;
    fixture_start(&f, &config, 1);
    request = plain;
    set_grammar(&request, "x");
    expect_refusal(&f, &request, CL_ERR_UNSUPPORTED, "grammar_library", "--grammar-library");
    assert_int_equal(r->n_events, 0);
    recording_free(r);
    fixture_stop(&f);

    cl_engine *e;
    cl_error error;
    ca_pool *pool = ca_pool_create(1);
    config.grammar_library = "/no/such.so";
    assert_int_equal(cl_engine_create_on_pool(toy_model(), pool, &config, &e, &error), CL_ERR_FILE);
    assert_null(e);
    assert_non_null(strstr(error.message, "grammar_library"));
    ca_pool_destroy(&pool);
}

int main(void) {
    const struct CMUnitTest once[] = {
        cmocka_unit_test(same_bytes_in_every_setting),
        cmocka_unit_test(processes_change_nothing),
        cmocka_unit_test(nobody_waits_for_the_grammar_of_another),
        cmocka_unit_test(the_distribution_is_that_of_masks),
    };
    const struct CMUnitTest twice[] = {
        cmocka_unit_test(forced_tokens_are_computed_together),
        cmocka_unit_test(forced_tokens_share_the_rows_of_a_step),
        cmocka_unit_test(forced_tokens_end_where_others_would),
        cmocka_unit_test(end_tokens_follow_the_grammar),
        cmocka_unit_test(failures_end_their_choice),
        cmocka_unit_test(cancelled_amid_forced_tokens),
        cmocka_unit_test(what_cannot_run_is_refused),
    };
    int n_failed = cmocka_run_group_tests(once, NULL, NULL);
    n_failed += cmocka_run_group_tests_name("in the own process", twice, NULL, NULL);
    fixture_has_processes = true;
    return n_failed + cmocka_run_group_tests_name("in processes", twice, NULL, NULL);
}
