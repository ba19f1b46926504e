/* A deadline holds for its thread, by time or by a flag, and tokenizers look at it. */
#include "tests/support/testing.h"

#include <math.h>
#include <string.h>

#include "chunkllama/common/deadline.h"
#include "chunkllama/text/merge.h"
#include "small_vocab.h"

static void without_one_nothing_passes(void **state) {
    (void)state;
    cl_deadline_set(NULL);
    assert_false(cl_deadline_passed());
    assert_int_equal(cl_deadline_check(NULL), CL_OK);
}

static void it_passes_by_time_and_by_a_flag(void **state) {
    (void)state;
    atomic_bool stop = false;
    cl_error error;
    const cl_deadline late = {.limit_s = 1.5, .at = 0}, flagged = {.at = INFINITY, .stop = &stop};
    cl_deadline_set(&late);
    assert_int_equal(cl_deadline_check(&error), CL_ERR_LIMIT);
    assert_string_equal(error.message, "the request takes longer to prepare than the 1.5 s that it may: shorten it");
    cl_deadline_set(&flagged);
    assert_false(cl_deadline_passed());
    atomic_store(&stop, true);
    assert_int_equal(cl_deadline_check(&error), CL_ERR_BUSY);
    assert_non_null(strstr(error.message, "was stopped while it was prepared"));
    cl_deadline_set(NULL);
}

/* Every tokenizer adds its tokens one by one. */
static void tokens_are_added_until_it_has_passed(void **state) {
    (void)state;
    cl_token_list list = {0};
    cl_error error;
    const cl_deadline late = {.limit_s = 1, .at = 0};
    cl_status status = CL_OK;
    cl_deadline_set(&late);
    while (status == CL_OK && list.n < 100000) status = cl_token_list_add(&list, 1, &error);
    assert_int_equal(status, CL_ERR_LIMIT);
    assert_in_range(list.n, 1, 5000);
    cl_deadline_set(NULL);
    assert_int_equal(cl_token_list_add(&list, 1, &error), CL_OK);
    cl_token_list_free(&list);
}

static atomic_bool stop;
static int n_lookups, most_lookups;

static bool stop_amid_merges(const void *ctx, const cl_merge_symbol *left, const cl_merge_symbol *right, uint32_t *order,
                             int32_t *id) {
    (void)ctx, (void)left, (void)right;
    if (++n_lookups == most_lookups) atomic_store(&stop, true);
    *order = 0;
    *id = 0;
    return true;
}

/* A text that is one word is merged as a whole, before its first token is added. */
static void a_long_word_is_merged_until_it_has_passed(void **state) {
    (void)state;
    enum { N = 20000 };
    static const int most[] = {10000, 30000}; /* among the first pairs, and among those that merges make */
    for (size_t k = 0; k < sizeof most / sizeof *most; k++) {
        cl_merge_space space = {0};
        cl_error error;
        const cl_deadline flagged = {.at = INFINITY, .stop = &stop};
        atomic_store(&stop, false);
        n_lookups = 0;
        most_lookups = most[k];
        assert_int_equal(cl_merge_reserve(&space, N), 0);
        for (uint32_t i = 0; i < N; i++) cl_merge_add(&space, i, 1, 0);
        cl_deadline_set(&flagged);
        assert_int_equal(cl_merge_run(&space, stop_amid_merges, NULL, &error), CL_ERR_BUSY);
        cl_deadline_set(NULL);
        assert_in_range(n_lookups, most[k], most[k] + 5000);
        cl_merge_free(&space);
    }
}

/* Texts that are too short to be looked at amid their tokens are looked at before them. */
static void no_text_begins_after_it(void **state) {
    (void)state;
    const small_vocab v = byte_level_vocab("gpt-2");
    const cl_deadline late = {.limit_s = 1, .at = 0};
    gguf_bytes bytes;
    cl_model_file *file = open_vocab(&v, &bytes);
    cl_tokenizer *tok;
    cl_token_list list = {0};
    assert_int_equal(cl_tokenizer_create(file, &tok, NULL), CL_OK);
    cl_deadline_set(&late);
    assert_int_equal(cl_tokenizer_encode(tok, "a", 1, true, &list, NULL), CL_ERR_LIMIT);
    cl_deadline_set(NULL);
    assert_int_equal(cl_tokenizer_encode(tok, "a", 1, true, &list, NULL), CL_OK);
    assert_int_equal(list.n, 1);
    cl_token_list_free(&list);
    cl_tokenizer_free(&tok);
    cl_model_file_close(&file);
    free(bytes.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_one_nothing_passes),
        cmocka_unit_test(it_passes_by_time_and_by_a_flag),
        cmocka_unit_test(tokens_are_added_until_it_has_passed),
        cmocka_unit_test(a_long_word_is_merged_until_it_has_passed),
        cmocka_unit_test(no_text_begins_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
