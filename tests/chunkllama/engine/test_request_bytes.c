/* What a request allocates while it waits is known before: its record, its choices, and all that its parameters point to. */
#include "tests/support/testing.h"

#include <string.h>

#include "chunkllama/engine/beam.h"
#include "chunkllama/engine/params_copy.h"
#include "chunkllama/engine/request.h"
#include "tests/serve/protocol/failing_malloc.h"

enum { N = 1000 };

static int32_t numbers[N];
static const int32_t n_numbers = N;
static cl_logit_bias bias[N];
static char text[N + 1];
static const char *texts[N];

/* Parameters with one token, and with N elements of list k. False: there is no list k. */
static bool set_list(cl_engine_request *p, int k) {
    cl_engine_request_init(p);
    p->prompt = numbers;
    p->n_prompt = 1;
    switch (k) {
    case 0: p->n_prompt = N; break;
    case 1: p->stop = texts, p->n_stop = N; break;
    case 2: p->stop_tokens = numbers, p->n_stop_tokens = N; break;
    case 3: p->logit_bias = bias, p->n_logit_bias = N; break;
    case 4: p->allowed_tokens = numbers, p->n_allowed_tokens = N; break;
    case 5: p->bad_words = numbers, p->bad_word_sizes = &n_numbers, p->n_bad_words = 1; break;
    case 6: p->bad_words = numbers, p->bad_word_sizes = numbers, p->n_bad_words = N; break;
    case 7: p->shown_tokens = numbers, p->n_shown_tokens = N; break;
    case 8: p->salt = text, p->salt_size = N; break;
    case 9: p->top_tokens = numbers, p->n_top = N; break;
    case 10: p->max_reasoning_tokens = 0, p->reasoning_begin = text, p->reasoning_end = "e"; break;
    case 11: p->max_reasoning_tokens = 0, p->reasoning_begin = "b", p->reasoning_end = text; break;
    case 12:
        p->max_reasoning_tokens = 0, p->reasoning_begin = "b", p->reasoning_end = "e";
        p->reasoning_end_tokens = numbers, p->n_reasoning_end_tokens = N;
        break;
    default: return false;
    }
    return true;
}

/* Fails unless an array of the copy has the same elements in another place. */
static void check_array(const void *copy, const void *from, size_t bytes) {
    if (bytes == 0) return;
    assert_ptr_not_equal(copy, from);
    assert_memory_equal(copy, from, bytes);
}

static void check_copy(const cl_engine_request *copy, const cl_engine_request *p) {
    check_array(copy->prompt, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    check_array(copy->stop_tokens, p->stop_tokens, (size_t)p->n_stop_tokens * sizeof *p->stop_tokens);
    check_array(copy->logit_bias, p->logit_bias, (size_t)p->n_logit_bias * sizeof *p->logit_bias);
    check_array(copy->allowed_tokens, p->allowed_tokens, (size_t)p->n_allowed_tokens * sizeof *p->allowed_tokens);
    check_array(copy->bad_words, p->bad_words, p->n_bad_words > 0 ? N * sizeof *p->bad_words : 0);
    check_array(copy->bad_word_sizes, p->bad_word_sizes, (size_t)p->n_bad_words * sizeof *p->bad_word_sizes);
    check_array(copy->shown_tokens, p->shown_tokens, (size_t)p->n_shown_tokens * sizeof *p->shown_tokens);
    check_array(copy->salt, p->salt, p->salt_size);
    check_array(copy->top_tokens, p->top_tokens, (size_t)p->n_top * sizeof *p->top_tokens);
    check_array(copy->reasoning_end_tokens, p->reasoning_end_tokens,
                (size_t)p->n_reasoning_end_tokens * sizeof *p->reasoning_end_tokens);
    for (int i = 0; i < p->n_stop; i++) check_array(copy->stop[i], p->stop[i], strlen(p->stop[i]) + 1);
    if (p->max_reasoning_tokens < 0) return;
    check_array(copy->reasoning_begin, p->reasoning_begin, strlen(p->reasoning_begin) + 1);
    check_array(copy->reasoning_end, p->reasoning_end, strlen(p->reasoning_end) + 1);
}

static void all_that_is_copied_counts(void **state) {
    (void)state;
    memset(text, 'x', N);
    for (int i = 0; i < N; i++) {
        numbers[i] = 1;
        bias[i] = (cl_logit_bias){i, 1};
        texts[i] = text + i;
    }
    cl_engine_request p;
    for (int k = 0; set_list(&p, k); k++) {
        const size_t counted = cl_params_bytes(&p);
        count_malloc();
        cl_request *r = cl_request_create(&p);
        assert_int_equal(counted_malloc(), sizeof *r + sizeof *r->choices + counted);
        assert_true(counted >= N);
        check_copy(&r->params, &p);
        cl_request_free(r);
    }
}

/* What a request is computed with is not allocated while it waits, since nobody counts it then. */
static void what_waits_has_no_work_space(void **state) {
    (void)state;
    enum { N_BEAMS = 4, MOST = 8192 };
    for (int beams = 0; beams < 2; beams++) {
        cl_engine_request p;
        cl_engine_request_init(&p);
        p.prompt = numbers;
        p.n_prompt = 1;
        p.max_tokens = beams ? N : 0;
        p.n = beams ? N_BEAMS : 1;
        p.n_top = beams;
        cl_request *r = cl_request_create(&p);
        count_malloc();
        if (beams)
            r->beams = cl_beams_create(&p, 1);
        else
            r->embedding = cl_embedding_create(N);
        assert_in_range(counted_malloc(), 1, MOST);
        for (int i = 0; i < p.n; i++) assert_true(cl_choice_start(&r->choices[i]));
        assert_true(counted_malloc() > (beams ? N_BEAMS * N * 32 : N * 12));
        const size_t counted = counted_malloc();
        assert_true(cl_choice_start(&r->choices[0])); /* again, as after a preemption */
        assert_int_equal(counted_malloc(), counted);
        cl_request_free(r);
    }
}

/* A missing prompt counts nothing, so that one can count what is the same for many prompts. */
static void nothing_counts_nothing(void **state) {
    (void)state;
    cl_engine_request p;
    cl_engine_request_init(&p);
    assert_int_equal(cl_params_bytes(&p), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_copied_counts),
        cmocka_unit_test(what_waits_has_no_work_space),
        cmocka_unit_test(nothing_counts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
