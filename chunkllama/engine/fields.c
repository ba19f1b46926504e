/* A request's defaults, and the rules of its fields that hold for every engine: see check.h. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

void cl_engine_request_init(cl_engine_request *request) {
    *request = (cl_engine_request){.struct_size = sizeof *request,
                                   .max_tokens = -1,
                                   .n = 1,
                                   .length_penalty = 1,
                                   .penalty_window = -1,
                                   .max_reasoning_tokens = -1};
    cl_sampler_params_init(&request->sampling);
}

cl_status cl_check_tokens(const char *field, const int32_t *tokens, int64_t n, int32_t n_vocab, cl_error *error) {
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return cl_refuse(error, cl_item(field, i).text, "is %d; the model's token ids are 0 to %d", tokens[i], n_vocab - 1);
    return CL_OK;
}

/* A number with the digits of a float, or all those of an integer. */
typedef struct number {
    char text[32];
} number;

static number number_of(double x) {
    number n;
    snprintf(n.text, sizeof n.text, "%.*g", x == floor(x) && fabs(x) < 1e15 ? 15 : 7, x);
    return n;
}

cl_status cl_check_ranges(const cl_range *ranges, size_t n, cl_error *error) {
    for (size_t i = 0; i < n; i++) {
        const cl_range *r = &ranges[i];
        if (r->value >= r->low && r->value <= r->high) continue;
        const number value = number_of(r->value);
        if (r->text) return cl_refuse(error, r->field, "is %s; it must be %s", value.text, r->text);
        return cl_refuse(error, r->field, "is %s; it must be from %s to %s", value.text, number_of(r->low).text,
                         number_of(r->high).text);
    }
    return CL_OK;
}

static cl_status check_numbers(const cl_engine_request *r, cl_error *error) {
    const cl_sampler_params *p = &r->sampling;
    const cl_range ranges[] = {
        {"n", r->n, 1, CL_ENGINE_MAX_CHOICES, NULL},
        {"n_top", r->n_top, 0, CL_ENGINE_MAX_TOP, NULL},
        {"prompt_logprobs_from", (double)r->prompt_logprobs_from, 0, INFINITY, "at least 0"},
        {"priority", r->priority, -CL_ENGINE_MAX_PRIORITY, CL_ENGINE_MAX_PRIORITY, NULL},
        {"timeout_s", r->timeout_s, 0, INFINITY, "above 0, or 0 for none"},
        {"queue_timeout_s", r->queue_timeout_s, 0, INFINITY, "above 0, or 0 for none"},
        {"length_penalty", r->length_penalty, -10, 10, NULL},
        {"generation_s", r->generation_s, 0, INFINITY, "above 0, or 0 for none"},
        {"min_indent", r->min_indent, 0, INT32_MAX, "at least 0"},
        {"cuts.min_keep", r->cuts.min_keep, 0, INT32_MAX, "at least 0"},
        {"cuts.n_steps", r->cuts.n_steps, 0, CL_SAMPLER_MAX_STEPS, NULL},
        {"sampling.temperature", p->temperature, 0, FLT_MAX, "at least 0"},
        {"sampling.top_k", p->top_k, 0, INT32_MAX, "at least 0"},
        {"sampling.top_p", p->top_p, 0, 1, NULL},
        {"sampling.min_p", p->min_p, 0, 1, NULL},
        {"sampling.repetition_penalty", p->repetition_penalty, FLT_MIN, FLT_MAX, "above 0"},
        {"sampling.presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX, "finite"},
        {"sampling.frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX, "finite"},
    };
    return cl_check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
}

static cl_status check_steps(const cl_sampler_cuts *cuts, cl_error *error) {
    unsigned seen = 0;
    for (int32_t i = 0; i < cuts->n_steps; i++) {
        const cl_sampler_step step = cuts->steps[i];
        if (step < CL_SAMPLER_TEMPERATURE || step > CL_SAMPLER_TOP_P)
            return cl_refuse(error, cl_item("cuts.steps", i).text, "is %d; it must be one of cl_sampler_step", (int)step);
        if (seen >> step & 1) return cl_refuse(error, cl_item("cuts.steps", i).text, "is there before; list each step once");
        seen |= 1u << step;
    }
    return CL_OK;
}

static cl_status check_mark(const char *field, const char *mark, cl_error *error) {
    const size_t size = mark ? strlen(mark) : 0;
    if (size >= 1 && size <= CL_ENGINE_MAX_MARK) return CL_OK;
    return cl_refuse(error, field, "has %zu bytes, and max_reasoning_tokens is set; it must have 1 to %d", size,
                     CL_ENGINE_MAX_MARK);
}

/* An array of n elements that is missing, or has a negative number. */
static cl_status check_array(const char *field, const void *array, int32_t n, cl_error *error) {
    if (n < 0) return cl_refuse(error, field, "has %d elements; n_%s must be at least 0", n, field);
    if (n > 0 && !array) return cl_refuse(error, field, "is NULL, but n_%s is %d; set both or neither", field, n);
    return CL_OK;
}

static cl_status check_bias(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    cl_status status = check_array("logit_bias", r->logit_bias, r->n_logit_bias, error);
    for (int32_t i = 0; status == CL_OK && i < r->n_logit_bias; i++) {
        const cl_logit_bias *b = &r->logit_bias[i];
        if (b->token < 0 || b->token >= n_vocab)
            return cl_refuse(error, cl_item("logit_bias", i).text, "has the token %d; the model's token ids are 0 to %d",
                             b->token, n_vocab - 1);
        if (!(b->bias < INFINITY)) /* nor NaN */
            return cl_refuse(error, cl_item("logit_bias", i).text, "has the bias %g; it must be finite, or -INFINITY",
                             (double)b->bias);
    }
    return status;
}

static cl_status check_bad_words(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    cl_status status = check_array("bad_words", r->bad_words, r->n_bad_words, error);
    if (status == CL_OK && r->n_bad_words > 0 && !r->bad_word_sizes)
        return cl_refuse(error, "bad_word_sizes", "is NULL; set it to the number of tokens of each of the %d words",
                         r->n_bad_words);
    const int32_t *word = r->bad_words;
    for (int32_t i = 0; status == CL_OK && i < r->n_bad_words; word += r->bad_word_sizes[i++]) {
        if (r->bad_word_sizes[i] < 1)
            return cl_refuse(error, cl_item("bad_word_sizes", i).text, "is %d; a word needs at least one token",
                             r->bad_word_sizes[i]);
        status = cl_check_tokens("bad_words", word, r->bad_word_sizes[i], n_vocab, error);
    }
    return status;
}

/* Which tokens may be drawn. */
static cl_status check_rules(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    cl_status status = check_bias(r, n_vocab, error);
    if (status == CL_OK) status = check_bad_words(r, n_vocab, error);
    if (status == CL_OK) status = check_array("allowed_tokens", r->allowed_tokens, r->n_allowed_tokens, error);
    if (status != CL_OK) return status;
    if (r->n_allowed_tokens > n_vocab)
        return cl_refuse(error, "allowed_tokens", "has %d elements; the model has %d tokens: list each once",
                         r->n_allowed_tokens, n_vocab);
    if (r->min_tokens < 0 || (r->max_tokens >= 0 && r->min_tokens > r->max_tokens))
        return cl_refuse(error, "min_tokens", "is %lld; it must be at least 0 and at most max_tokens, %lld",
                         (long long)r->min_tokens, (long long)r->max_tokens);
    return cl_check_tokens("allowed_tokens", r->allowed_tokens, r->n_allowed_tokens, n_vocab, error);
}

cl_status cl_check_domain(const cl_engine_request *r, cl_error *error) {
    if (r->domain > INT32_MAX) return cl_refuse(error, "domain", "is %u; it must be at most %d", r->domain, INT32_MAX);
    if (r->salt_size > CL_ENGINE_MAX_SALT)
        return cl_refuse(error, "salt", "has %zu bytes; it may have at most %d: shorten it", r->salt_size, CL_ENGINE_MAX_SALT);
    if (r->salt_size > 0 && !r->salt)
        return cl_refuse(error, "salt", "is NULL, but salt_size is %zu; set both or neither", r->salt_size);
    return CL_OK;
}

static cl_status check_stop(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    cl_status status = check_array("stop", r->stop, r->n_stop, error);
    for (int32_t i = 0; status == CL_OK && i < r->n_stop; i++)
        if (!r->stop[i] || r->stop[i][0] == '\0') return cl_refuse(error, cl_item("stop", i).text, "is empty; leave it out");
    if (status == CL_OK) status = check_array("stop_tokens", r->stop_tokens, r->n_stop_tokens, error);
    return status == CL_OK ? cl_check_tokens("stop_tokens", r->stop_tokens, r->n_stop_tokens, n_vocab, error) : status;
}

static cl_status check_pooling(const cl_engine_request *r, cl_error *error) {
    if (r->pooling < CL_ENGINE_POOL_NONE || r->pooling > CL_ENGINE_POOL_MEAN)
        return cl_refuse(error, "pooling", "is %d; it must be one of CL_ENGINE_POOL_...", (int)r->pooling);
    if (r->pooling && (r->max_tokens != 0 || r->n != 1 || r->pin || r->prompt_logprobs || r->beam_search))
        return cl_refuse(error, "pooling",
                         "is set with max_tokens %lld, n %d, pin %d, prompt_logprobs %d and beam_search %d; it needs 0, 1 "
                         "and false",
                         (long long)r->max_tokens, r->n, r->pin, r->prompt_logprobs, r->beam_search);
    return CL_OK;
}

/* What ends reasoning, if it has a budget. */
static cl_status check_reasoning(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    if (r->max_reasoning_tokens < 0) return CL_OK;
    cl_status status = check_mark("reasoning_begin", r->reasoning_begin, error);
    if (status == CL_OK) status = check_mark("reasoning_end", r->reasoning_end, error);
    if (status == CL_OK)
        status = check_array("reasoning_end_tokens", r->reasoning_end_tokens, r->n_reasoning_end_tokens, error);
    if (status == CL_OK && r->n_reasoning_end_tokens == 0)
        return cl_refuse(error, "reasoning_end_tokens",
                         "is empty, and max_reasoning_tokens is set; it needs at least one token");
    return status == CL_OK
               ? cl_check_tokens("reasoning_end_tokens", r->reasoning_end_tokens, r->n_reasoning_end_tokens, n_vocab, error)
               : status;
}

/* A beam search goes by the model's own distribution, and its ends are tokens. */
static cl_status check_beams(const cl_engine_request *r, cl_error *error) {
    const cl_sampler_params *p = &r->sampling;
    const struct {
        const char *field;
        bool is_set;
        const char *fix;
    } without[] = {
        {"stop", r->n_stop > 0, "use stop tokens"},
        {"sampling.repetition_penalty", p->repetition_penalty != 1, "set it to 1"},
        {"sampling.presence_penalty", p->presence_penalty != 0, "set it to 0"},
        {"sampling.frequency_penalty", p->frequency_penalty != 0, "set it to 0"},
        {"logit_bias", r->n_logit_bias > 0, "leave it out"},
        {"allowed_tokens", r->n_allowed_tokens > 0, "leave it out"},
        {"bad_words", r->n_bad_words > 0, "leave it out"},
        {"min_tokens", r->min_tokens > 0, "set it to 0"},
        {"grammar", r->grammar_kind != CL_GRAMMAR_NONE, "leave it out"},
        {"min_indent", r->min_indent > 0, "set it to 0"},
        {"generation_s", r->generation_s > 0, "set it to 0"},
        {"max_reasoning_tokens", r->max_reasoning_tokens >= 0, "set it to -1"},
        {"on_logits", r->on_logits != NULL, "leave it NULL"},
        {"top_tokens", r->top_tokens != NULL, "leave it NULL"},
    };
    for (size_t i = 0; r->beam_search && i < sizeof without / sizeof *without; i++)
        if (without[i].is_set)
            return cl_refuse(error, without[i].field, "is set, which a beam search does not support: %s", without[i].fix);
    return CL_OK;
}

static cl_status check_grammar(const cl_engine_request *r, cl_error *error) {
    if (r->grammar_kind < CL_GRAMMAR_NONE || r->grammar_kind > CL_GRAMMAR_LARK)
        return cl_refuse(error, "grammar_kind", "is %d; it must be one of cl_grammar_kind", (int)r->grammar_kind);
    if (r->grammar_kind == CL_GRAMMAR_NONE)
        return r->grammar_size == 0
                   ? CL_OK
                   : cl_refuse(error, "grammar", "is set, but grammar_kind is CL_GRAMMAR_NONE; set both or neither");
    if (!r->grammar || r->grammar_size == 0)
        return cl_refuse(error, "grammar", "is empty; it needs the text of a grammar, or grammar_kind CL_GRAMMAR_NONE");
    if (r->grammar_size > CL_ENGINE_MAX_GRAMMAR)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has %zu bytes; it must have at most %d: simplify it",
                             r->grammar_size, CL_ENGINE_MAX_GRAMMAR);
    return CL_OK;
}

cl_status cl_check_fields(const cl_engine_request *r, int32_t n_vocab, cl_error *error) {
    cl_status status = check_numbers(r, error);
    if (status == CL_OK) status = cl_check_domain(r, error);
    if (status == CL_OK) status = check_stop(r, n_vocab, error);
    if (status == CL_OK) status = check_rules(r, n_vocab, error);
    if (status == CL_OK) status = check_array("shown_tokens", r->shown_tokens, r->n_shown_tokens, error);
    if (status == CL_OK) status = cl_check_tokens("shown_tokens", r->shown_tokens, r->n_shown_tokens, n_vocab, error);
    if (status == CL_OK && r->top_tokens) status = cl_check_tokens("top_tokens", r->top_tokens, r->n_top, n_vocab, error);
    if (status == CL_OK) status = check_steps(&r->cuts, error);
    if (status == CL_OK) status = check_reasoning(r, n_vocab, error);
    if (status == CL_OK) status = check_beams(r, error);
    if (status == CL_OK) status = check_pooling(r, error);
    return status == CL_OK ? check_grammar(r, error) : status;
}
