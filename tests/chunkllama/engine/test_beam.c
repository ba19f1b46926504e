/*
 * Beam search: what it finds is what a plain search over the engine's own logprobs finds, bit for bit, however it is batched,
 * cached, preempted and threaded.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/engine/beam.h"
#include "fixture.h"

enum { MAX_WIDTH = 8, MAX_TOKENS = 64, MAX_PROMPT = 160, N_TOP = 2 };

static cl_engine_request beam_request(const int32_t *prompt, int64_t n_prompt, int32_t n, int64_t max_tokens, recording *r) {
    cl_engine_request request = make_request(prompt, n_prompt, max_tokens, r);
    request.n = n;
    request.beam_search = true;
    request.ignore_eos = false;
    request.n_top = N_TOP;
    return request;
}

/* ---- The plain search ---- */

typedef struct hypothesis {
    int32_t tokens[MAX_PROMPT + MAX_TOKENS];
    int64_t n; /* prompt and completion, with an end token */
    float logprobs[MAX_TOKENS];
    double sum, score;
    bool ended;
} hypothesis;

typedef struct list {
    hypothesis items[2 * MAX_WIDTH * MAX_WIDTH * MAX_TOKENS];
    int n;
} list;

/* The likeliest tokens after some tokens: those that a request for one token reports. */
typedef struct next_tokens {
    cl_sampler_logprob top[2 * MAX_WIDTH];
} next_tokens;

static void note_top(void *ctx, const cl_engine_event *event) {
    next_tokens *next = ctx;
    if (event->kind == CL_EVENT_TOKEN) memcpy(next->top, event->token.top, (size_t)event->token.n_top * sizeof *next->top);
}

static next_tokens ask(fixture *f, const hypothesis *h, int32_t n_top) {
    next_tokens next = {0};
    recording *r = recording_create();
    cl_engine_request request = make_request(h->tokens, h->n, 1, r);
    request.n_top = n_top;
    r->hook = note_top;
    r->hook_ctx = &next;
    submit(f, &request);
    recording_wait(r);
    recording_free(r);
    return next;
}

/* The higher one first. Ties keep the order of creation, which qsort would not. */
static void sort(list *l, bool by_score) {
    for (int i = 1; i < l->n; i++) {
        const hypothesis h = l->items[i];
        int k = i;
        for (; k > 0 && (by_score ? h.score > l->items[k - 1].score : h.sum > l->items[k - 1].sum); k--)
            l->items[k] = l->items[k - 1];
        l->items[k] = h;
    }
}

static bool ends(const cl_engine_request *p, int32_t token) {
    for (int32_t i = 0; i < p->n_stop_tokens; i++)
        if (p->stop_tokens[i] == token) return true;
    return !p->ignore_eos && token == TOY_END;
}

/*
 * vLLM's search: max_tokens steps, all completions kept and sorted at the end. With early_stopping it stops after the step in
 * which the n-th completion was found.
 */
static void search(fixture *f, const cl_engine_request *p, list *found) {
    static list beams, next;
    found->n = 0;
    beams.n = 1;
    beams.items[0] = (hypothesis){.n = p->n_prompt};
    memcpy(beams.items[0].tokens, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    for (int64_t step = 0; step < p->max_tokens; step++) {
        next.n = 0;
        for (int i = 0; i < beams.n; i++) {
            const next_tokens t = ask(f, &beams.items[i], 2 * p->n);
            for (int k = 0; k < 2 * p->n; k++) {
                hypothesis h = beams.items[i];
                h.logprobs[step] = t.top[k].logprob;
                h.sum += (double)t.top[k].logprob;
                h.ended = ends(p, t.top[k].id);
                h.tokens[h.n++] = t.top[k].id;
                h.score = h.sum / pow((double)(h.n - h.ended), (double)p->length_penalty);
                *(h.ended ? &found->items[found->n++] : &next.items[next.n++]) = h;
            }
        }
        sort(&next, false);
        assert_true(next.n >= p->n);
        next.n = p->n;
        beams = next;
        if (p->early_stopping && found->n >= p->n) break;
    }
    for (int i = 0; i < beams.n && !(p->early_stopping && found->n >= p->n); i++) found->items[found->n++] = beams.items[i];
    sort(found, true);
}

/* ---- What is found ---- */

static void assert_found(const cl_engine_request *p, const recording *r, const list *expected) {
    int64_t n_completion = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const hypothesis *h = &expected->items[i];
        const recorded_choice *c = &r->choices[i];
        assert_int_equal(c->n_tokens, h->n - p->n_prompt);
        assert_memory_equal(c->tokens, h->tokens + p->n_prompt, (size_t)c->n_tokens * sizeof *c->tokens);
        assert_memory_equal(c->logprobs, h->logprobs, (size_t)c->n_tokens * sizeof *c->logprobs);
        assert_int_equal(c->finish, h->ended ? CL_ENGINE_STOP : CL_ENGINE_LENGTH);
        n_completion += c->n_tokens;
    }
    assert_int_equal(r->n_completion, n_completion);
}

static void equals_the_plain_search(void **state) {
    (void)state;
    static const int32_t stop_tokens[] = {17, 33, 65, 129, 193, 200, 201, 202};
    static const struct {
        int32_t n;
        int64_t n_prompt, max_tokens;
        float length_penalty;
        bool early_stopping, ignore_eos;
        int32_t n_stop_tokens;
    } cases[] = {
        {1, 5, 12, 1, false, false, 0},  {2, 40, 1, 1, false, false, 0},    {2, 40, 20, 1, false, false, 0},
        {3, 33, 20, 0, false, false, 0}, {4, 64, 24, 2, false, false, 0},   {4, 1, 24, -1, false, false, 0},
        {4, 20, 24, 1, true, false, 0},  {8, 50, 16, 1, false, false, 8},   {8, 50, 20, 1, true, true, 8},
        {4, 17, 40, 1, false, true, 0},  {5, 31, 24, 0.5f, false, true, 3}, {3, 100, 30, 10, false, false, 0},
        {2, 1, 40, 3, false, false, 0},  {2, 2, 40, 2, false, false, 1},    {3, 1, 40, 5, false, false, 0},
        {4, 1, 40, 1, false, false, 2},  {2, 1, 40, -3, false, false, 2},   {3, 2, 40, -1, false, false, 0},
    };
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    list *expected = calloc(1, sizeof *expected);
    int n_stopped = 0, n_length = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t prompt[MAX_PROMPT];
        make_prompt(prompt, cases[i].n_prompt, 0, 0, (uint32_t)i);
        recording *r = recording_create();
        cl_engine_request request = beam_request(prompt, cases[i].n_prompt, cases[i].n, cases[i].max_tokens, r);
        request.length_penalty = cases[i].length_penalty;
        request.early_stopping = cases[i].early_stopping;
        request.ignore_eos = cases[i].ignore_eos;
        request.stop_tokens = stop_tokens;
        request.n_stop_tokens = cases[i].n_stop_tokens;
        submit(&f, &request);
        recording_wait(r);
        search(&f, &request, expected);
        assert_found(&request, r, expected);
        for (int32_t k = 0; k < request.n; k++) {
            n_stopped += r->choices[k].finish == CL_ENGINE_STOP;
            n_length += r->choices[k].finish == CL_ENGINE_LENGTH;
        }
        recording_free(r);
    }
    assert_true(n_stopped > 8 && n_length > 8);
    free(expected);
    fixture_stop(&f);
}

/* ---- However it runs ---- */

enum { N_REQUESTS = 24 };

/* Beam searches, with some ordinary requests between them, whose prompts partly share a beginning. */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 48, 65, 100, 119};
    static const int32_t widths[] = {1, 2, 3, 4, 5, 8};
    const int64_t n = lengths[i % 10];
    make_prompt(tokens, n, i % 5 == 4 ? n : n * 2 / 3, (uint32_t)(i % 3), (uint32_t)i);
    if (i % 4 == 3) {
        cl_engine_request request = make_request(tokens, n, 30 + 7 * (i % 11), r);
        request.n = 1 + i % 3;
        request.sampling.temperature = 1;
        return request;
    }
    cl_engine_request request = beam_request(tokens, n, widths[i % 6], 20 + 5 * (i % 9), r);
    request.ignore_eos = i % 4 == 2;
    request.early_stopping = i % 8 == 1;
    request.length_penalty = (float)(i % 3);
    request.prompt_logprobs = i % 6 == 2;
    if (i % 7 == 0) request.logprobs = false;
    if (i % 5 == 1) request.domain = 3;
    return request;
}

static int64_t n_preemptions;

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    (void)set;
    (void)way;
    n_preemptions += stats->preemptions;
}

/*
 * Alone in a fresh cache, batched, found in the cache, in every sharing mode, preempted, at several thread counts; the ordinary
 * requests with drafts and without.
 */
static void same_bytes_however_it_runs(void **state) {
    (void)state;
    static const drafting ways[] = {{false, NULL}, {true, NULL}};
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 64, 0, 64, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 7, 64, 2, 5 * MIB / 8, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 8, 0, 19, 1, 5 * MIB / 8, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 40, 0, 64, 2, 5 * MIB / 8, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LEARNED, 32, 5, 64, 1, 5 * MIB / 8, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 16, 0, 512, 3, 3 * MIB / 2, false},
    };
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_I8};
    expect_same_bytes(&(series){.make = variety,
                                .n = N_REQUESTS,
                                .max_prompt = MAX_PROMPT,
                                .undisturbed = {CATTN_SHARED, CATTN_RETAIN_NONE, 64, 0, 64, 1, 64 * MIB, true},
                                .settings = settings,
                                .n_settings = sizeof settings / sizeof *settings,
                                .types = types,
                                .n_types = 3,
                                .ways = ways,
                                .n_ways = 2,
                                .turns = true,
                                .check_run = check_run});
    assert_true(n_preemptions > 30); /* in 12 runs */
}

/* ---- Memory ---- */

static void keep_kv_stats(void *ctx, const cl_engine_event *event) {
    fixture *f = ((void **)ctx)[0];
    cattn_stats *stats = ((void **)ctx)[1];
    if (event->choice == 0 && event->kind == CL_EVENT_TOKEN && event->token.position == MAX_PROMPT) *stats = kv_stats_of(f);
}

/* Each token is computed once and stored once, whatever beams share it, and beams leave nothing live behind. */
static void common_tokens_are_shared(void **state) {
    (void)state;
    enum { WIDTH = 4 };
    int32_t prompt[MAX_PROMPT];
    make_prompt(prompt, MAX_PROMPT, 0, 0, 1);
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    recording *r = recording_create();
    cattn_stats kv = {0};
    void *ctx[] = {&f, &kv};
    cl_engine_request request = beam_request(prompt, MAX_PROMPT, WIDTH, 200, r);
    request.ignore_eos = true;
    r->hook = keep_kv_stats;
    r->hook_ctx = ctx;
    submit(&f, &request);
    recording_wait(r);
    assert_int_equal(toy_take_rows(), MAX_PROMPT + WIDTH * (request.max_tokens - 1));
    assert_int_equal(kv.tokens_referenced, WIDTH * (MAX_PROMPT + 199));
    assert_int_equal(kv.tokens_stored, MAX_PROMPT + WIDTH * 199); /* with those that beams have left behind */
    assert_true(kv.chunks_live + kv.chunks_superseded < kv.chunks_unshared / 2);
    assert_int_equal(kv_stats_when_idle(&f).n_seqs, 0);
    recording_free(r);
    fixture_stop(&f);
}

/* Searches that need the whole budget each, among ordinary requests that compete for it: all end, with what they find alone. */
static void what_fits_alone_finishes(void **state) {
    (void)state;
    enum { N = 9, N_PROMPT = 40, WIDTH = 4 };
    int32_t tokens[N][N_PROMPT];
    recording *expected[N], *got[N];
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = MIB / 4;
    fixture f;
    fixture_start(&f, &config, 1);
    for (int i = 0; i < N; i++) make_prompt(tokens[i], N_PROMPT, 20, 1, (uint32_t)i);
    const cl_engine_request largest = beam_request(tokens[0], N_PROMPT, WIDTH, 0, NULL);
    const int64_t max_tokens = longest_completion(&f, largest);
    assert_in_range(max_tokens, 30, 1000);
    for (int turn = 0; turn < 2; turn++) {
        cl_engine_request requests[N];
        for (int i = 0; i < N; i++) {
            recording *r = recording_create();
            *(turn ? &got[i] : &expected[i]) = r;
            requests[i] = i % 3 == 1 ? make_request(tokens[i], N_PROMPT, max_tokens, r)
                                     : beam_request(tokens[i], N_PROMPT, WIDTH, max_tokens, r);
            requests[i].ignore_eos = true;
            if (turn == 1) continue;
            submit(&f, &requests[i]);
            recording_wait(r);
        }
        if (turn == 1) submit_together(&f, requests, N, NULL);
        for (int i = 0; i < N && turn == 1; i++) recording_wait(got[i]);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(got[i]->choices[0].finish, CL_ENGINE_LENGTH);
        assert_true(recording_equal(expected[i], got[i]));
        recording_free(expected[i]);
        recording_free(got[i]);
    }
    assert_true(stats_when_idle(&f).preemptions > WIDTH);
    fixture_stop(&f);
}

/* ---- One advance after the other, over logits by hand ---- */

typedef struct scene {
    cl_engine_request params;
    cl_request *r;
    cl_sampler *sampler;
    recording *recording;
    float logits[TOY_VOCAB]; /* of the next step; all equal at first */
} scene;

/* A search behind a prompt of one token. */
static scene begin(int32_t n, int64_t max_tokens, float length_penalty) {
    static const int32_t prompt[] = {7};
    scene s = {.recording = recording_create(), .sampler = cl_sampler_create(TOY_VOCAB)};
    s.params = beam_request(prompt, 1, n, max_tokens, s.recording);
    s.params.length_penalty = length_penalty;
    return s;
}

/* Let rank k's logits be s->logits in all of the next step, and advance. */
static cl_beams_answer advance(scene *s) {
    if (!s->r) {
        s->r = cl_request_create(&s->params);
        s->r->beams = cl_beams_create(&s->params, 1);
        for (int32_t i = 0; i < s->params.n; i++) assert_true(cl_choice_start(&s->r->choices[i]));
    }
    cl_beams_answer answer = CL_BEAMS_AWAIT;
    for (int32_t k = 0; k < s->params.n && answer == CL_BEAMS_AWAIT; k++) {
        cl_beams_expand(s->sampler, cl_beams_ranked(s->r, k), s->logits);
        answer = cl_beams_select(s->r, toy_model()->tok);
        cl_beams_settle(s->r);
    }
    return answer;
}

/* The logits of a step in which two tokens are possible, the first with probability p. */
static void set_two(scene *s, int32_t first, float p, int32_t second) {
    for (int i = 0; i < TOY_VOCAB; i++) s->logits[i] = -100;
    s->logits[first] = logf(p);
    s->logits[second] = logf(1 - p);
}

static void assert_beam(const scene *s, int32_t k, const int32_t *tokens, int64_t n) {
    const cl_choice *c = cl_beams_ranked(s->r, k);
    assert_int_equal(c->n_tokens, 1 + n);
    assert_memory_equal(c->tokens + 1, tokens, (size_t)n * sizeof *tokens);
}

static void assert_reported(scene *s, int32_t i, const int32_t *tokens, int64_t n) {
    cl_beams_report(s->r, i, toy_model()->tok);
    assert_int_equal(s->recording->choices[i].n_tokens, n);
    assert_memory_equal(s->recording->choices[i].tokens, tokens, (size_t)n * sizeof *tokens);
}

static void end(scene *s) {
    cl_request_free(s->r);
    cl_sampler_free(&s->sampler);
    recording_free(s->recording);
}

/* Equal sums go by the beam's rank, then by the token's id, equal scores by time. With a prompt of one token, penalty 1 and
 * equal logits, all completions that end have the score of one token. */
static void ties_have_an_order(void **state) {
    (void)state;
    scene s = begin(2, 9, 1);
    s.params.early_stopping = true;
    assert_int_equal(advance(&s), CL_BEAMS_ADVANCE);
    assert_beam(&s, 0, (int32_t[]){1}, 1);
    assert_beam(&s, 1, (int32_t[]){2}, 1);
    assert_ptr_equal(cl_beams_source(cl_beams_ranked(s.r, 1)), cl_beams_ranked(s.r, 1)); /* all were forks of the prompt */
    assert_int_equal(advance(&s), CL_BEAMS_END);
    assert_beam(&s, 0, (int32_t[]){1, 1}, 2);
    assert_beam(&s, 1, (int32_t[]){1, 2}, 2);
    assert_ptr_equal(cl_beams_source(cl_beams_ranked(s.r, 1)), cl_beams_ranked(s.r, 0));
    assert_int_equal(cl_beams_n_tokens(s.r), 3);
    assert_reported(&s, 0, (int32_t[]){TOY_END}, 1);
    assert_reported(&s, 1, (int32_t[]){1, TOY_END}, 2);
    end(&s);
}

/* A completion that is worse now, and may be better when it is longer, keeps the search going; also where shorter is better. */
static void the_end_is_not_too_early(void **state) {
    (void)state;
    const int32_t nine[] = {5, 5, 5, 5, 5, 5, 5, 5, 5};
    scene s = begin(1, 9, 1);
    set_two(&s, TOY_END, 0.8f, 5); /* log 0.8 / 1 is more than log 0.2 / 2, and less than log 0.2 / 10 */
    assert_int_equal(advance(&s), CL_BEAMS_ADVANCE);
    for (int i = 1; i < 8; i++) {
        set_two(&s, 5, 1 - 1e-6f, TOY_END);
        assert_int_equal(advance(&s), CL_BEAMS_ADVANCE);
    }
    assert_int_equal(advance(&s), CL_BEAMS_END);
    assert_reported(&s, 0, nine, 9);
    end(&s);

    s = begin(1, 9, -1);
    set_two(&s, TOY_END, 0.2f, 5); /* log 0.2 * 1 is less than log 0.8 * 2, and more than log 0.8 * 10 */
    assert_int_equal(advance(&s), CL_BEAMS_ADVANCE);
    set_two(&s, TOY_END, 1 - 1e-6f, 5);
    assert_int_equal(advance(&s), CL_BEAMS_END); /* nothing can be better than this */
    assert_reported(&s, 0, (int32_t[]){5, TOY_END}, 2);
    end(&s);
}

/* Where all of the 2 n likeliest tokens end a choice, the next ones are the beams; logits that are not numbers are an error. */
static void tokens_that_end_leave_beams(void **state) {
    (void)state;
    static const int32_t stop_tokens[] = {1, 2, 3, 4, 5, 6, 8, 9};
    scene s = begin(2, 9, 1);
    s.params.stop_tokens = stop_tokens;
    s.params.n_stop_tokens = 8;
    for (int i = 0; i < TOY_VOCAB; i++) s.logits[i] = (float)-i;
    assert_int_equal(advance(&s), CL_BEAMS_ADVANCE);
    assert_beam(&s, 0, (int32_t[]){7}, 1);
    assert_beam(&s, 1, (int32_t[]){10}, 1);
    for (int i = 0; i < TOY_VOCAB; i++) s.logits[i] = NAN;
    assert_int_equal(advance(&s), CL_BEAMS_FAIL);
    end(&s);
}

/* ---- Life ---- */

static void expect_refused(fixture *f, const cl_engine_request *request, cl_status status, const char *in_message) {
    cl_error error = {.message = ""};
    assert_int_equal(cl_engine_submit(f->engine, request, NULL, &error), status);
    if (!strstr(error.message, in_message)) fail_msg("'%s' lacks '%s'", error.message, in_message);
}

static void what_a_search_cannot_do_is_refused(void **state) {
    (void)state;
    static int32_t stop_tokens[TOY_VOCAB - 2];
    int32_t prompt[MAX_PROMPT];
    make_prompt(prompt, MAX_PROMPT, 0, 0, 1);
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = MIB / 2;
    fixture f;
    fixture_start(&f, &config, 1);
    const cl_engine_request right = beam_request(prompt, MAX_PROMPT, 4, 8, NULL);
    cl_engine_request wrong = right;
    wrong.n = config.max_seqs + 1;
    expect_refused(&f, &wrong, CL_ERR_ARG, "n is 17; all beams of a search run at once, and max_seqs is 16: lower it");
    wrong = right;
    wrong.stop_tokens = stop_tokens;
    wrong.n_stop_tokens = TOY_VOCAB - 2;
    expect_refused(&f, &wrong, CL_ERR_ARG, "1 tokens of the vocabulary do not end a choice");
    wrong = right;
    wrong.max_tokens = 1000;
    expect_refused(&f, &wrong, CL_ERR_LIMIT, "160 prompt tokens and a completion of 1000 are more");
    wrong.max_tokens = 400;
    expect_refused(&f, &wrong, CL_ERR_LIMIT, "160 prompt tokens and beams of 400 are more than the K/V budget holds");
    wrong.n = 1;
    wrong.max_tokens = 200; /* of one beam they fit */
    recording *r = wrong.ctx = recording_create();
    submit(&f, &wrong);
    recording_wait(r);
    recording_free(r);
    wrong.n = 4;
    expect_refused(&f, &wrong, CL_ERR_LIMIT, "160 prompt tokens and beams of 200 are more than the K/V budget holds");
    fixture_stop(&f);
}

/* Cancelled, late and failed searches report each choice's end once, and no token; a prompt alone is computed. */
static void searches_end_early(void **state) {
    (void)state;
    enum { N = 6 };
    int32_t prompt[MAX_PROMPT];
    fixture f;
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = MIB / 2;
    fixture_start(&f, &config, 2);
    for (int turn = 0; turn < 6; turn++) {
        recording *r[N];
        uint64_t ids[N];
        for (int i = 0; i < N; i++) {
            r[i] = recording_create();
            make_prompt(prompt, 60, 30, 1, (uint32_t)i);
            cl_engine_request request = beam_request(prompt, 60, 4, 60, r[i]);
            request.ignore_eos = true;
            if (turn == 4) request.max_tokens = 0;
            if (turn == 5) request.timeout_s = 1e-9;
            ids[i] = submit(&f, &request);
        }
        if (turn == 3) toy_fail_steps(20, 3);
        for (int i = 0; i < N && turn < 3; i++) {
            if (i == turn) recording_wait(r[0]);
            cl_engine_cancel(f.engine, ids[i]);
        }
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            for (int k = 0; k < 4; k++) {
                const recorded_choice *c = &r[i]->choices[k];
                assert_true(c->finish != CL_ENGINE_RUNNING);
                assert_int_equal(c->n_tokens, c->finish == CL_ENGINE_LENGTH && turn != 4 ? 60 : 0);
                if (turn == 4) assert_int_equal(c->finish, CL_ENGINE_LENGTH);
                if (turn == 5) assert_int_equal(c->finish, CL_ENGINE_ERROR);
            }
            recording_free(r[i]);
        }
        assert_int_equal(kv_stats_when_idle(&f).n_seqs + kv_stats_of(&f).chunks_live, 0);
    }
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_plain_search),     cmocka_unit_test(same_bytes_however_it_runs),
        cmocka_unit_test(common_tokens_are_shared),    cmocka_unit_test(what_fits_alone_finishes),
        cmocka_unit_test(ties_have_an_order),          cmocka_unit_test(the_end_is_not_too_early),
        cmocka_unit_test(tokens_that_end_leave_beams), cmocka_unit_test(what_a_search_cannot_do_is_refused),
        cmocka_unit_test(searches_end_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
