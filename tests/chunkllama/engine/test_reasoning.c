/*
 * Budgets of reasoning, and further ends of choices: what is reported is the same whatever runs beside it, and the end of
 * reasoning comes where it must.
 */
#include "tests/support/testing.h"

#include <string.h>

#include "chunkllama/engine/draw.h"
#include "chunkllama/engine/reasoning.h"
#include "fixture.h"

/* Whether steps wait for grammars. */
static bool waits = true;
void __real_cl_draw_list_run(cl_draw_list *list, double until);
void __wrap_cl_draw_list_run(cl_draw_list *list, double until);
void __wrap_cl_draw_list_run(cl_draw_list *list, double until) { __real_cl_draw_list_run(list, waits ? until : 0); }

enum { N_PROMPT = 40, MAX_PROMPT = 120, N_KINDS = 36, N_REQUESTS = 2 * N_KINDS };
enum { THE = 260, HALF_EURO = 258 }; /* " the"; "\xe2\x82" */

static const int32_t end_tokens[] = {'E', 'N', 'D'}, one_token[] = {THE};

static void set_budget(cl_engine_request *r, int64_t n, bool inside) {
    r->max_reasoning_tokens = n;
    r->reasoning_begin = "q";
    r->reasoning_end = "END";
    r->reasoning_end_tokens = end_tokens;
    r->n_reasoning_end_tokens = 3;
    r->in_reasoning = inside;
}

static void set_grammar(cl_engine_request *request, const char *pattern) {
    request->grammar_kind = CL_GRAMMAR_REGEX;
    request->grammar = pattern;
    request->grammar_size = strlen(pattern);
}

/* ---- Same bytes ---- */

/* Budgets with draws, penalties, grammars, and the fields that came with them. The first of a kind is a draft for the second.
 */
static cl_engine_request variety(int request_index, int32_t *tokens, recording *r) {
    static const int64_t budgets[] = {0, 1, 2, 5, 11, 30};
    static const char *const patterns[] = {".*END.*", "ab the#*", ".*", "#?#?END the.*"};
    static const cl_logit_bias bias[] = {{'q', 3}, {'E', 2}};
    const int i = request_index % N_KINDS;
    const int64_t n = 1 + 17 * (i % 7);
    make_prompt(tokens, n, n * 2 / 3, (uint32_t)(i % 3), (uint32_t)i);
    cl_engine_request request = make_request(tokens, n, 20 + 7 * (i % 9), r);
    request.sampling.seed = (uint64_t)i;
    if (i % 2 == 1) request.sampling.temperature = 1;
    if (i % 9 != 8) set_budget(&request, budgets[i % 6], i % 4 < 2);
    if (i % 5 == 2) {
        request.reasoning_end = " the";
        request.reasoning_end_tokens = one_token;
        request.n_reasoning_end_tokens = 1;
    }
    if (i % 3 == 1) {
        request.logit_bias = bias;
        request.n_logit_bias = 2;
    }
    if (i % 4 == 3) set_grammar(&request, patterns[i / 4 % 4]);
    if (i % 7 == 5) request.min_indent = 2;
    if (i % 6 > 3) {
        request.sampling.repetition_penalty = 1.3f;
        request.penalty_window = i % 12;
    }
    if (i % 8 == 5) request.cuts = (cl_sampler_cuts){3, 3, {CL_SAMPLER_TOP_K, CL_SAMPLER_TOP_P, CL_SAMPLER_TEMPERATURE}};
    if (i % 8 > 3) {
        request.sampling.top_k = 20;
        request.sampling.top_p = 0.7f;
    }
    request.ignore_eos = i % 3 > 0;
    request.logprobs = i % 4 < 3;
    if (i % 10 == 9) request.n = 3;
    return request;
}

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    if (set->kv_budget_bytes < MIB) assert_true(stats->preemptions > 0);
    if (way->on && set->one_by_one) assert_true(stats->drafts.n_accepted > 20);
}

static void same_bytes_with_budgets(void **state) {
    (void)state;
    static const cattn_type types[] = {CATTN_F32};
    expect_same_bytes_as_usual(&(series){
        .make = variety, .n = N_REQUESTS, .max_prompt = MAX_PROMPT, .types = types, .n_types = 1, .check_run = check_run});
}

/* The same of grammars in processes, of which all answers are late. */
static void late_answers_change_nothing(void **state) {
    (void)state;
    static const setting set = {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 7, 33, 2, MIB / 2, false};
    recording *expected[N_REQUESTS], *got[N_REQUESTS];
    run_requests(&set, CATTN_F32, &(drafting){false, NULL}, variety, N_REQUESTS, MAX_PROMPT, expected);
    fixture_has_processes = true;
    waits = false;
    run_requests(&set, CATTN_F32, &(drafting){true, NULL}, variety, N_REQUESTS, MAX_PROMPT, got);
    fixture_has_processes = false;
    waits = true;
    expect_same_reports(expected, got, N_REQUESTS, "in processes");
    for (int i = 0; i < N_REQUESTS; i++) recording_free(expected[i]);
}

/* ---- Where reasoning ends ---- */

/* What a request writes, of max_tokens tokens; the caller frees it. */
static recording *run(cl_engine_request request, int64_t max_tokens) {
    int32_t tokens[N_PROMPT];
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    recording *r = recording_create();
    const cl_engine_request made = make_request(tokens, N_PROMPT, max_tokens, r);
    request.prompt = made.prompt;
    request.n_prompt = made.n_prompt;
    request.max_tokens = made.max_tokens;
    request.on_event = made.on_event;
    request.ctx = made.ctx;
    submit(&f, &request);
    recording_wait(r);
    fixture_stop(&f);
    return r;
}

static void assert_text(const cl_engine_request *request, int64_t max_tokens, const char *text, cl_engine_finish finish) {
    recording *r = run(*request, max_tokens);
    r->choices[0].text[r->choices[0].text_size] = '\0';
    assert_string_equal(r->choices[0].text, text);
    assert_int_equal(r->choices[0].finish, finish);
    recording_free(r);
}

/* A model that only writes q, which begins reasoning. */
static cl_engine_request writes_q(void) {
    static const int32_t q = 'q';
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.sampling.temperature = 0;
    request.allowed_tokens = &q;
    request.n_allowed_tokens = 1;
    return request;
}

static void reasoning_ends_with_its_budget(void **state) {
    (void)state;
    cl_engine_request request = writes_q();
    assert_text(&request, 6, "qqqqqq", CL_ENGINE_LENGTH);
    set_budget(&request, -1, true);
    assert_text(&request, 6, "qqqqqq", CL_ENGINE_LENGTH);
    set_budget(&request, 0, true); /* from the first token on; afterwards q begins reasoning again, for which nothing is left */
    assert_text(&request, 9, "ENDqENDqE", CL_ENGINE_LENGTH);
    set_budget(&request, 4, true);
    assert_text(&request, 9, "qqqqENDqE", CL_ENGINE_LENGTH);
    set_budget(&request, 4, false); /* the first q begins it, and is none of its tokens */
    assert_text(&request, 9, "qqqqqENDq", CL_ENGINE_LENGTH);
    set_budget(&request, 100, true);
    assert_text(&request, 5, "qqqqq", CL_ENGINE_LENGTH);
    set_budget(&request, 2, true); /* further text before the mark */
    static const int32_t message[] = {'o', 'k', 'E', 'N', 'D'};
    request.reasoning_end_tokens = message;
    request.n_reasoning_end_tokens = 5;
    assert_text(&request, 8, "qqokENDq", CL_ENGINE_LENGTH);
}

/* Tokens come one by one, so that max_tokens and stop strings end a choice within the mark, too. */
static void other_ends_come_first(void **state) {
    (void)state;
    static const char *const stop[] = {"EN"};
    cl_engine_request request = writes_q();
    set_budget(&request, 2, true);
    assert_text(&request, 3, "qqE", CL_ENGINE_LENGTH);
    request.stop = stop;
    request.n_stop = 1;
    assert_text(&request, 9, "qq", CL_ENGINE_STOP);
}

/* A grammar that has the mark gets it; one that forbids it there counts more. */
static void grammars_count_more(void **state) {
    (void)state;
    cl_engine_request request;
    static const cl_logit_bias bias = {'7', 100};
    cl_engine_request_init(&request);
    request.sampling.temperature = 0;
    request.logit_bias = &bias;
    request.n_logit_bias = 1;
    set_budget(&request, 2, true);
    set_grammar(&request, "##*END");
    recording *r = run(request, 30);
    const recorded_choice *c = &r->choices[0];
    assert_int_equal(c->n_tokens, 5);
    assert_memory_equal(c->text + 2, "END", 3);
    assert_int_equal(c->finish, CL_ENGINE_STOP);
    recording_free(r);
    set_grammar(&request, "#*");
    request.ignore_eos = true;
    r = run(request, 12);
    assert_null(memchr(r->choices[0].text, 'E', r->choices[0].text_size));
    assert_int_equal(r->choices[0].n_tokens, 12);
    recording_free(r);
}

/* The end waits for a character, and for an end mark that the model has begun. */
static void the_end_waits(void **state) {
    (void)state;
    static const struct {
        int32_t tokens[5];
        int n;
        bool ends; /* behind them */
    } cases[] = {
        {{'a'}, 1, false},
        {{'a', 'b'}, 2, true},
        {{'a', HALF_EURO}, 2, false},
        {{'a', HALF_EURO, 0xac}, 3, true},
        {{'a', HALF_EURO, HALF_EURO, HALF_EURO, HALF_EURO}, 5, true}, /* not for ever */
        {{'a', 'E'}, 2, false},
        {{'a', 'E', 'N'}, 3, false},
        {{'a', 'E', 'x'}, 3, true},
        {{'a', 'E', 'N', 'D'}, 4, false}, /* it has ended */
        {{'a', 'E', 'E', 'N', 'D'}, 5, false},
        {{'a', 'E', 'N', 'D', 'q'}, 5, true}, /* and begun again */
    };
    cl_engine_request request;
    cl_engine_request_init(&request);
    set_budget(&request, 2, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_reasoning r = cl_reasoning_begin(&request);
        int32_t n;
        for (int k = 0; k < cases[i].n; k++) cl_reasoning_add(&r, &request, NULL, cases[i].tokens[k]);
        const int32_t *forced = cl_reasoning_forced(&r, &request, &n);
        if ((n > 0) != cases[i].ends) fail_msg("case %zu: %d", i, n);
        if (n > 0) assert_true(n == 3 && *forced == 'E');
    }
}

/* A text that ends with the beginning of the mark after each token does not escape its budget. */
static void the_end_waits_no_longer_than_a_mark(void **state) {
    (void)state;
    cl_engine_request request;
    cl_engine_request_init(&request);
    set_budget(&request, 2, true);
    cl_reasoning r = cl_reasoning_begin(&request);
    int32_t n = 0, n_tokens = 0;
    for (; n == 0 && n_tokens < 1000; n_tokens++) {
        cl_reasoning_add(&r, &request, NULL, 'E');
        cl_reasoning_forced(&r, &request, &n);
    }
    assert_int_equal(n_tokens, 2 + CL_ENGINE_MAX_MARK);
    for (int i = 0; i < 3; i++) cl_reasoning_add(&r, &request, NULL, end_tokens[i]);
    assert_false(r.inside);
}

/* Tokens that end reasoning without the mark, of which they have a beginning, which is no beginning of the other mark. */
static void tokens_without_the_mark_end_it(void **state) {
    (void)state;
    static const char begin[] = "q\0x"; /* what is behind the mark does not count */
    static const int32_t tokens[] = {'a', 'b', 'E', 'N', 'x', 'c', 'd'};
    cl_engine_request request;
    cl_engine_request_init(&request);
    set_budget(&request, 2, true);
    request.reasoning_begin = begin;
    request.n_reasoning_end_tokens = 2; /* EN */
    cl_reasoning r = cl_reasoning_begin(&request);
    int32_t n;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) cl_reasoning_add(&r, &request, NULL, tokens[i]);
    cl_reasoning_forced(&r, &request, &n);
    assert_false(r.inside);
    assert_int_equal(n, 0);
    cl_reasoning_add(&r, &request, NULL, 'q');
    assert_true(r.inside);
}

/* ---- Other fields ---- */

/* A choice ends at a line that is indented less, with the text before it. */
static void a_line_that_is_indented_less_ends_a_choice(void **state) {
    (void)state;
    static const int32_t message[] = {'a', '\n', ' ', ' ', 'b', '\n', ' ', 'c'};
    cl_engine_request request = writes_q();
    set_budget(&request, 1, true); /* the forced tokens are the text */
    request.reasoning_end_tokens = message;
    request.n_reasoning_end_tokens = 8;
    assert_text(&request, 9, "qa\n  b\n c", CL_ENGINE_LENGTH);
    request.min_indent = 2;
    assert_text(&request, 9, "qa\n  b\n ", CL_ENGINE_LENGTH);
    request.min_indent = 1;
    assert_text(&request, 10, "qa\n  b\n cq", CL_ENGINE_LENGTH);
    request.min_indent = 3;
    assert_text(&request, 9, "qa\n  ", CL_ENGINE_LENGTH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_with_budgets),
        cmocka_unit_test(late_answers_change_nothing),
        cmocka_unit_test(reasoning_ends_with_its_budget),
        cmocka_unit_test(other_ends_come_first),
        cmocka_unit_test(grammars_count_more),
        cmocka_unit_test(the_end_waits),
        cmocka_unit_test(the_end_waits_no_longer_than_a_mark),
        cmocka_unit_test(tokens_without_the_mark_end_it),
        cmocka_unit_test(a_line_that_is_indented_less_ends_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
