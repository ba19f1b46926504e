/* The rules of a request's fields, each of them here alone: APIs and programs only pass on what these refuse. */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/engine/check.h"

enum { VOCAB = 272 };

static cl_engine_request valid(void) {
    cl_engine_request r;
    cl_engine_request_init(&r);
    r.max_tokens = 10;
    return r;
}

static void assert_refused(const cl_engine_request *r, cl_status status, const char *field, const char *reason) {
    cl_error error = {.message = ""};
    char message[sizeof error.message];
    snprintf(message, sizeof message, "%s %s", field, reason);
    if (cl_check_fields(r, VOCAB, &error) != status) fail_msg("%s: status %d", message, (int)error.code);
    assert_int_equal(error.code, status);
    assert_string_equal(error.field, field);
    assert_string_equal(error.message, message);
}

/* A valid request in which an assignment has set a field is refused, for this reason. */
#define REFUSED_AS(status, field, reason, ...)                                                                                 \
    do {                                                                                                                       \
        cl_engine_request r = valid();                                                                                         \
        __VA_ARGS__;                                                                                                           \
        assert_refused(&r, status, field, reason);                                                                             \
    } while (0)
#define REFUSED(field, reason, ...) REFUSED_AS(CL_ERR_ARG, field, reason, __VA_ARGS__)

static void ranges(void **state) {
    (void)state;
    REFUSED("n", "is 0; it must be from 1 to 4096", r.n = 0);
    REFUSED("n", "is 4097; it must be from 1 to 4096", r.n = 4097);
    REFUSED("n_top", "is -1; it must be from 0 to 32", r.n_top = -1);
    REFUSED("n_top", "is 33; it must be from 0 to 32", r.n_top = 33);
    REFUSED("prompt_logprobs_from", "is -1; it must be at least 0", r.prompt_logprobs_from = -1);
    REFUSED("priority", "is 1000001; it must be from -1000000 to 1000000", r.priority = 1000001);
    REFUSED("priority", "is -1000001; it must be from -1000000 to 1000000", r.priority = -1000001);
    REFUSED("timeout_s", "is -1; it must be above 0, or 0 for none", r.timeout_s = -1);
    REFUSED("timeout_s", "is nan; it must be above 0, or 0 for none", r.timeout_s = NAN);
    REFUSED("queue_timeout_s", "is -1; it must be above 0, or 0 for none", r.queue_timeout_s = -1);
    REFUSED("domain", "is 2147483648; it must be at most 2147483647", r.domain = 0x80000000u);
    REFUSED("salt", "has 1025 bytes; it may have at most 1024: shorten it", r.salt = "a"; r.salt_size = 1025);
    REFUSED("salt", "is NULL, but salt_size is 1; set both or neither", r.salt_size = 1);
}

static void sampling(void **state) {
    (void)state;
    REFUSED("sampling.temperature", "is -1; it must be at least 0", r.sampling.temperature = -1);
    REFUSED("sampling.temperature", "is nan; it must be at least 0", r.sampling.temperature = NAN);
    REFUSED("sampling.temperature", "is inf; it must be at least 0", r.sampling.temperature = INFINITY);
    REFUSED("sampling.top_k", "is -1; it must be at least 0", r.sampling.top_k = -1);
    REFUSED("sampling.top_p", "is 1.5; it must be from 0 to 1", r.sampling.top_p = 1.5f);
    REFUSED("sampling.min_p", "is -0.5; it must be from 0 to 1", r.sampling.min_p = -0.5f);
    REFUSED("sampling.repetition_penalty", "is 0; it must be above 0", r.sampling.repetition_penalty = 0);
    REFUSED("sampling.presence_penalty", "is nan; it must be finite", r.sampling.presence_penalty = NAN);
    REFUSED("sampling.frequency_penalty", "is inf; it must be finite", r.sampling.frequency_penalty = INFINITY);
}

static const int32_t foreign = VOCAB, none = 0, one = 1;

static void cuts_and_ends(void **state) {
    (void)state;
    REFUSED("cuts.min_keep", "is -1; it must be at least 0", r.cuts.min_keep = -1);
    REFUSED("cuts.n_steps", "is 5; it must be from 0 to 4", r.cuts.n_steps = 5);
    REFUSED("cuts.steps[0]", "is 4; it must be one of cl_sampler_step", r.cuts.n_steps = 1;
            r.cuts.steps[0] = (cl_sampler_step)(CL_SAMPLER_TOP_P + 1));
    REFUSED("cuts.steps[1]", "is there before; list each step once", r.cuts.n_steps = 2);
    REFUSED("min_indent", "is -1; it must be at least 0", r.min_indent = -1);
    REFUSED("generation_s", "is -1; it must be above 0, or 0 for none", r.generation_s = -1);
}

static void reasoning(void **state) {
    (void)state;
#define LIMITED(field, reason, ...)                                                                                            \
    REFUSED(field, reason, r.max_reasoning_tokens = 5; r.reasoning_begin = "a"; r.reasoning_end = "b";                         \
            r.reasoning_end_tokens = &one; r.n_reasoning_end_tokens = 1; __VA_ARGS__)
#define SET ", and max_reasoning_tokens is set; it "
    static const char long_mark[65] = "0123456789012345678901234567890123456789012345678901234567890123";
    LIMITED("reasoning_begin", "has 0 bytes" SET "must have 1 to 63", r.reasoning_begin = NULL);
    LIMITED("reasoning_end", "has 64 bytes" SET "must have 1 to 63", r.reasoning_end = long_mark);
    LIMITED("reasoning_end_tokens", "is empty" SET "needs at least one token", r.n_reasoning_end_tokens = 0);
    LIMITED("reasoning_end_tokens", "is NULL, but n_reasoning_end_tokens is 1; set both or neither",
            r.reasoning_end_tokens = NULL);
    LIMITED("reasoning_end_tokens[0]", "is 272; the model's token ids are 0 to 271", r.reasoning_end_tokens = &foreign);
    LIMITED("max_reasoning_tokens", "is set, which a beam search does not support: set it to -1", r.beam_search = true);
}

static void ends(void **state) {
    (void)state;
    static const char *const stop[] = {"a", ""}, *const null[] = {NULL};
    static const int32_t tokens[] = {1, -1};
    REFUSED("stop", "is NULL, but n_stop is 1; set both or neither", r.n_stop = 1);
    REFUSED("stop", "has -1 elements; n_stop must be at least 0", r.n_stop = -1);
    REFUSED("stop[1]", "is empty; leave it out", r.stop = stop; r.n_stop = 2);
    REFUSED("stop[0]", "is empty; leave it out", r.stop = null; r.n_stop = 1);
    REFUSED("stop_tokens", "is NULL, but n_stop_tokens is 1; set both or neither", r.n_stop_tokens = 1);
    REFUSED("stop_tokens[1]", "is -1; the model's token ids are 0 to 271", r.stop_tokens = tokens; r.n_stop_tokens = 2);
    REFUSED("shown_tokens", "is NULL, but n_shown_tokens is 1; set both or neither", r.n_shown_tokens = 1);
    REFUSED("shown_tokens[0]", "is 272; the model's token ids are 0 to 271", r.shown_tokens = &foreign; r.n_shown_tokens = 1);
}

static void rules_on_tokens(void **state) {
    (void)state;
    static const cl_logit_bias odd[] = {{VOCAB, 1}, {1, INFINITY}, {1, NAN}};
    REFUSED("logit_bias", "is NULL, but n_logit_bias is 1; set both or neither", r.n_logit_bias = 1);
    REFUSED("logit_bias", "has -1 elements; n_logit_bias must be at least 0", r.n_logit_bias = -1);
    REFUSED("logit_bias[0]", "has the token 272; the model's token ids are 0 to 271", r.logit_bias = odd; r.n_logit_bias = 1);
    REFUSED("logit_bias[0]", "has the bias inf; it must be finite, or -INFINITY", r.logit_bias = odd + 1; r.n_logit_bias = 1);
    REFUSED("logit_bias[0]", "has the bias nan; it must be finite, or -INFINITY", r.logit_bias = odd + 2; r.n_logit_bias = 1);
    REFUSED("allowed_tokens", "is NULL, but n_allowed_tokens is 1; set both or neither", r.n_allowed_tokens = 1);
    REFUSED("allowed_tokens", "has 273 elements; the model has 272 tokens: list each once", r.allowed_tokens = &one;
            r.n_allowed_tokens = VOCAB + 1);
    REFUSED("allowed_tokens[0]", "is 272; the model's token ids are 0 to 271", r.allowed_tokens = &foreign;
            r.n_allowed_tokens = 1);
    REFUSED("bad_words", "is NULL, but n_bad_words is 1; set both or neither", r.n_bad_words = 1);
    REFUSED("bad_word_sizes", "is NULL; set it to the number of tokens of each of the 1 words", r.bad_words = &one;
            r.n_bad_words = 1);
    REFUSED("bad_word_sizes[0]", "is 0; a word needs at least one token", r.bad_words = &one; r.bad_word_sizes = &none;
            r.n_bad_words = 1);
    REFUSED("bad_words[0]", "is 272; the model's token ids are 0 to 271", r.bad_words = &foreign; r.bad_word_sizes = &one;
            r.n_bad_words = 1);
    REFUSED("top_tokens[0]", "is 272; the model's token ids are 0 to 271", r.top_tokens = &foreign; r.n_top = 1);
    REFUSED("min_tokens", "is 11; it must be at least 0 and at most max_tokens, 10", r.min_tokens = 11);
    REFUSED("min_tokens", "is -1; it must be at least 0 and at most max_tokens, 10", r.min_tokens = -1);
}

/* What cannot be combined with a beam search. */
static void beams(void **state) {
    (void)state;
    static const cl_logit_bias bias = {1, 1};
    static const char *const stop[] = {"x"};
#define BEAMS(field, fix, ...)                                                                                                 \
    REFUSED(field, "is set, which a beam search does not support: " fix, r.beam_search = true; __VA_ARGS__)
    REFUSED("length_penalty", "is nan; it must be from -10 to 10", r.length_penalty = NAN);
    REFUSED("length_penalty", "is 11; it must be from -10 to 10", r.length_penalty = 11);
    BEAMS("stop", "use stop tokens", r.stop = stop; r.n_stop = 1);
    BEAMS("sampling.repetition_penalty", "set it to 1", r.sampling.repetition_penalty = 2);
    BEAMS("sampling.presence_penalty", "set it to 0", r.sampling.presence_penalty = 1);
    BEAMS("sampling.frequency_penalty", "set it to 0", r.sampling.frequency_penalty = 1);
    BEAMS("logit_bias", "leave it out", r.logit_bias = &bias; r.n_logit_bias = 1);
    BEAMS("allowed_tokens", "leave it out", r.allowed_tokens = &one; r.n_allowed_tokens = 1);
    BEAMS("bad_words", "leave it out", r.bad_words = &one; r.bad_word_sizes = &one; r.n_bad_words = 1);
    BEAMS("min_tokens", "set it to 0", r.min_tokens = 1);
    BEAMS("top_tokens", "leave it NULL", r.top_tokens = &one);
    BEAMS("grammar", "leave it out", r.grammar_kind = CL_GRAMMAR_REGEX; r.grammar = "a"; r.grammar_size = 1);
}

static void poolings(void **state) {
    (void)state;
#define POOLED(reason, ...) REFUSED("pooling", reason, r.max_tokens = 0; r.pooling = CL_ENGINE_POOL_LAST; __VA_ARGS__)
#define NEEDS               "; it needs 0, 1 and false"
    POOLED("is 3; it must be one of CL_ENGINE_POOL_...", r.pooling = (cl_engine_pooling)(CL_ENGINE_POOL_MEAN + 1));
    POOLED("is set with max_tokens 1, n 1, pin 0, prompt_logprobs 0 and beam_search 0" NEEDS, r.max_tokens = 1);
    POOLED("is set with max_tokens 0, n 2, pin 0, prompt_logprobs 0 and beam_search 0" NEEDS, r.n = 2);
    POOLED("is set with max_tokens 0, n 1, pin 1, prompt_logprobs 0 and beam_search 0" NEEDS, r.pin = true);
    POOLED("is set with max_tokens 0, n 1, pin 0, prompt_logprobs 1 and beam_search 0" NEEDS, r.prompt_logprobs = true);
    POOLED("is set with max_tokens 0, n 1, pin 0, prompt_logprobs 0 and beam_search 1" NEEDS, r.beam_search = true);
}

static void grammars(void **state) {
    (void)state;
#define GRAMMAR(field, reason, ...)                                                                                            \
    REFUSED(field, reason, r.grammar_kind = CL_GRAMMAR_REGEX; r.grammar = "x"; r.grammar_size = 1; __VA_ARGS__)
    GRAMMAR("grammar_kind", "is 17; it must be one of cl_grammar_kind", r.grammar_kind = (cl_grammar_kind)17);
    GRAMMAR("grammar", "is set, but grammar_kind is CL_GRAMMAR_NONE; set both or neither", r.grammar_kind = CL_GRAMMAR_NONE);
    GRAMMAR("grammar", "is empty; it needs the text of a grammar, or grammar_kind CL_GRAMMAR_NONE", r.grammar_size = 0);
    GRAMMAR("grammar", "is empty; it needs the text of a grammar, or grammar_kind CL_GRAMMAR_NONE", r.grammar = NULL);
    REFUSED_AS(CL_ERR_LIMIT, "grammar", "has 262145 bytes; it must have at most 262144: simplify it",
               r.grammar_kind = CL_GRAMMAR_REGEX;
               r.grammar = "x"; r.grammar_size = CL_ENGINE_MAX_GRAMMAR + 1);
}

/* The defaults, and the borders of ranges, are accepted. */
static void what_is_right_is_accepted(void **state) {
    (void)state;
    cl_engine_request r = valid();
    assert_int_equal(cl_check_fields(&r, VOCAB, NULL), CL_OK);
    r.n = CL_ENGINE_MAX_CHOICES;
    r.n_top = CL_ENGINE_MAX_TOP;
    r.priority = -CL_ENGINE_MAX_PRIORITY;
    r.min_tokens = r.max_tokens;
    r.domain = INT32_MAX;
    r.length_penalty = -10;
    r.grammar_kind = CL_GRAMMAR_LARK;
    r.grammar = "x";
    r.grammar_size = CL_ENGINE_MAX_GRAMMAR;
    assert_int_equal(cl_check_fields(&r, VOCAB, NULL), CL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),        cmocka_unit_test(sampling),
        cmocka_unit_test(cuts_and_ends), cmocka_unit_test(reasoning),
        cmocka_unit_test(ends),          cmocka_unit_test(beams),
        cmocka_unit_test(poolings),      cmocka_unit_test(rules_on_tokens),
        cmocka_unit_test(grammars),      cmocka_unit_test(what_is_right_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
