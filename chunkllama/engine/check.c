/* Completes and checks the engine's configuration and its requests: see check.h. */
#include "check.h"

#include <float.h>
#include <math.h>

/* ---- Configuration ---- */

enum { MAX_STEP_ROWS = 1 << 20 }; /* so that sums of rows and sequences do not overflow an int32_t */

void cl_engine_config_init(cl_engine_config *config) {
    *config = (cl_engine_config){
        .struct_size = sizeof *config,
        .sharing = CATTN_SHARED,
        .retention = CATTN_RETAIN_LEARNED,
        .kv_type = CATTN_BF16,
        .chunk_size = 64,
        .kv_budget_bytes = UINT64_C(1) << 30,
        .max_seqs = 32,
        .max_step_rows = 512,
        .row_cost = 0.15f,
    };
}

cl_status cl_check_config(const cl_engine_config *from, const cl_model *m, cl_engine_config *config, cl_error *error) {
    cl_engine_config_init(config);
    const cl_status status = from ? CL_STRUCT_READ(cl_engine_config, level, config, from, error) : CL_OK;
    if (status != CL_OK) return status;
    if (config->n_ctx < 0)
        return cl_fail(error, CL_ERR_ARG, "n_ctx is %d; it must be at least 1, or 0 for the model's", config->n_ctx);
    if (config->n_ctx == 0) config->n_ctx = m->params.n_ctx_train;
    if (config->n_ctx == 0)
        return cl_fail(error, CL_ERR_ARG, "n_ctx is 0 and the model file names no context; set n_ctx to at least 1");
    if (config->max_seqs < 1 || config->max_seqs > MAX_STEP_ROWS)
        return cl_fail(error, CL_ERR_ARG, "max_seqs is %d; it must be 1 to %d", config->max_seqs, MAX_STEP_ROWS);
    if (config->max_step_rows < config->max_seqs || config->max_step_rows > MAX_STEP_ROWS)
        return cl_fail(error, CL_ERR_ARG, "max_step_rows is %d; it must be at least max_seqs, %d, and at most %d",
                       config->max_step_rows, config->max_seqs, MAX_STEP_ROWS);
    if (config->prefill_piece < 0)
        return cl_fail(error, CL_ERR_ARG, "prefill_piece is %d; it must be at least 1, or 0 for no limit",
                       config->prefill_piece);
    if (!(config->row_cost >= 0))
        return cl_fail(error, CL_ERR_ARG, "row_cost is %g; it must be at least 0", (double)config->row_cost);
    if (config->n_threads < 0)
        return cl_fail(error, CL_ERR_ARG, "n_threads is %d; it must be at least 1, or 0 for one for each CPU",
                       config->n_threads);
    if (config->max_queued_requests < 0 || config->max_queued_tokens < 0)
        return cl_fail(error, CL_ERR_ARG,
                       "max_queued_requests is %lld and max_queued_tokens %lld; they must be at least 1, or "
                       "0 for no limit",
                       (long long)config->max_queued_requests, (long long)config->max_queued_tokens);
    if (!(config->target_itl_s >= 0))
        return cl_fail(error, CL_ERR_ARG, "target_itl_s is %g; it must be above 0, or 0 for none", config->target_itl_s);
    for (int32_t i = 0; i < config->n_weights; i++)
        if (!(config->weights[i].weight >= 0.001f && config->weights[i].weight <= 1000))
            return cl_fail(error, CL_ERR_ARG, "weights[%d].weight is %g; it must be 0.001 to 1000", i,
                           (double)config->weights[i].weight);
    if (config->pin_bytes > config->kv_budget_bytes / 2)
        return cl_fail(error, CL_ERR_ARG, "pin_bytes is %llu; it must be at most half of kv_budget_bytes, %llu",
                       (unsigned long long)config->pin_bytes, (unsigned long long)config->kv_budget_bytes);
    if (config->pin_bytes > 0 && config->sharing == CATTN_PRIVATE)
        return cl_fail(error, CL_ERR_ARG,
                       "pin_bytes is set, but sharing is CATTN_PRIVATE, where no request finds a pinned "
                       "prompt; leave pin_bytes 0 or share");
    if (!config->kv_tier_dir != (config->kv_tier_bytes == 0))
        return cl_fail(error, CL_ERR_ARG, "%s is set, but %s is not; set both or neither",
                       config->kv_tier_dir ? "kv_tier_dir" : "kv_tier_bytes",
                       config->kv_tier_dir ? "kv_tier_bytes" : "kv_tier_dir");
    if (config->kv_tier_dir && !m->has_fingerprint)
        return cl_fail(
            error, CL_ERR_ARG,
            "kv_tier_dir is set, but the model was loaded without its fingerprint; set cl_model_options.fingerprint");
    if (m->params.n_vocab < 1) return cl_fail(error, CL_ERR_ARG, "the model has no vocabulary");
    return CL_OK;
}

/* ---- A request's fields ---- */

void cl_engine_request_init(cl_engine_request *request) {
    *request = (cl_engine_request){.struct_size = sizeof *request, .max_tokens = -1, .n = 1, .length_penalty = 1};
    cl_sampler_params_init(&request->sampling);
}

static cl_status check_tokens(const char *field, const int32_t *tokens, int64_t n, int32_t n_vocab, cl_error *error) {
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return cl_fail(error, CL_ERR_ARG, "%s[%lld] is %d; the model's token ids are 0 to %d", field, (long long)i,
                           tokens[i], n_vocab - 1);
    return CL_OK;
}

static cl_status check_sampling(const cl_sampler_params *p, cl_error *error) {
    const struct {
        const char *field;
        float value, low, high;
        const char *range;
    } fields[] = {
        {"temperature", p->temperature, 0, FLT_MAX, "at least 0"},
        {"top_k", (float)p->top_k, 0, FLT_MAX, "at least 0"},
        {"top_p", p->top_p, 0, 1, "from 0 to 1"},
        {"min_p", p->min_p, 0, 1, "from 0 to 1"},
        {"repetition_penalty", p->repetition_penalty, FLT_MIN, FLT_MAX, "above 0"},
        {"presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX, "finite"},
        {"frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX, "finite"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!(fields[i].value >= fields[i].low && fields[i].value <= fields[i].high)) /* nor NaN */
            return cl_fail(error, CL_ERR_ARG, "sampling.%s is %g; it must be %s", fields[i].field, (double)fields[i].value,
                           fields[i].range);
    for (size_t i = 0; i < sizeof p->reserved / sizeof *p->reserved; i++)
        if (p->reserved[i] != 0)
            return cl_fail(error, CL_ERR_UNSUPPORTED,
                           "sampling.reserved[%zu] is set; this library is version %s and knows no such parameter: leave it 0 "
                           "or use a newer library",
                           i, cl_version());
    return CL_OK;
}

/* An array of n elements that is missing, or has a negative number. */
static cl_status check_array(const char *field, const void *array, int32_t n, cl_error *error) {
    if (n < 0) return cl_fail(error, CL_ERR_ARG, "n_%s is %d; it must be at least 0", field, n);
    if (n > 0 && !array) return cl_fail(error, CL_ERR_ARG, "%s is NULL, but n_%s is %d; set both or neither", field, field, n);
    return CL_OK;
}

static cl_status check_bias(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    cl_status status = check_array("logit_bias", r->logit_bias, r->n_logit_bias, error);
    for (int32_t i = 0; status == CL_OK && i < r->n_logit_bias; i++) {
        const cl_logit_bias *b = &r->logit_bias[i];
        if (b->token < 0 || b->token >= limits->n_vocab)
            status = cl_fail(error, CL_ERR_ARG, "logit_bias[%d].token is %d; the model's token ids are 0 to %d", i, b->token,
                             limits->n_vocab - 1);
        else if (!(b->bias < INFINITY)) /* nor NaN */
            status =
                cl_fail(error, CL_ERR_ARG, "logit_bias[%d].bias is %g; it must be finite, or -INFINITY", i, (double)b->bias);
    }
    return status;
}

static cl_status check_bad_words(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    cl_status status = check_array("bad_words", r->bad_words, r->n_bad_words, error);
    if (status == CL_OK && r->n_bad_words > 0 && !r->bad_word_sizes)
        status = cl_fail(error, CL_ERR_ARG, "bad_word_sizes is NULL; set it to the number of tokens of each of the %d words",
                         r->n_bad_words);
    const int32_t *word = r->bad_words;
    for (int32_t i = 0; status == CL_OK && i < r->n_bad_words; word += r->bad_word_sizes[i++]) {
        if (r->bad_word_sizes[i] < 1)
            return cl_fail(error, CL_ERR_ARG, "bad_word_sizes[%d] is %d; a word needs at least one token", i,
                           r->bad_word_sizes[i]);
        status = check_tokens("bad_words", word, r->bad_word_sizes[i], limits->n_vocab, error);
    }
    return status;
}

/* Which tokens may be drawn. */
static cl_status check_rules(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    cl_status status = check_bias(limits, r, error);
    if (status == CL_OK) status = check_bad_words(limits, r, error);
    if (status == CL_OK) status = check_array("allowed_tokens", r->allowed_tokens, r->n_allowed_tokens, error);
    if (status != CL_OK) return status;
    if (r->n_allowed_tokens > limits->n_vocab)
        return cl_fail(error, CL_ERR_ARG, "n_allowed_tokens is %d; the model has %d tokens: list each once",
                       r->n_allowed_tokens, limits->n_vocab);
    if (r->min_tokens < 0 || (r->max_tokens >= 0 && r->min_tokens > r->max_tokens))
        return cl_fail(error, CL_ERR_ARG, "min_tokens is %lld; it must be at least 0 and at most max_tokens, %lld",
                       (long long)r->min_tokens, (long long)r->max_tokens);
    return check_tokens("allowed_tokens", r->allowed_tokens, r->n_allowed_tokens, limits->n_vocab, error);
}

cl_status cl_check_domain(const cl_engine_request *r, cl_error *error) {
    if (r->domain > INT32_MAX) return cl_fail(error, CL_ERR_ARG, "domain is %u; it must be at most %d", r->domain, INT32_MAX);
    if (r->salt_size > CL_ENGINE_MAX_SALT)
        return cl_fail(error, CL_ERR_ARG, "salt has %zu bytes; it may have at most %d: shorten it", r->salt_size,
                       CL_ENGINE_MAX_SALT);
    if (r->salt_size > 0 && !r->salt)
        return cl_fail(error, CL_ERR_ARG, "salt is NULL, but salt_size is %zu; set both or neither", r->salt_size);
    return CL_OK;
}

static cl_status check_stop(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (r->n_stop < 0 || (r->n_stop > 0 && !r->stop))
        return cl_fail(error, CL_ERR_ARG, "stop is NULL or n_stop, %d, is negative", r->n_stop);
    for (int32_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i] || r->stop[i][0] == '\0') return cl_fail(error, CL_ERR_ARG, "stop[%d] is empty; leave it out", i);
    if (r->n_stop_tokens < 0 || (r->n_stop_tokens > 0 && !r->stop_tokens))
        return cl_fail(error, CL_ERR_ARG, "stop_tokens is NULL or n_stop_tokens, %d, is negative", r->n_stop_tokens);
    return check_tokens("stop_tokens", r->stop_tokens, r->n_stop_tokens, limits->n_vocab, error);
}

static cl_status check_pin(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (!limits->can_pin)
        return cl_fail(error, CL_ERR_ARG,
                       "pin is set, but the engine's pin_bytes is 0; set it to the bytes that pins may cover");
    if (r->max_tokens != 0 || r->prompt_logprobs || r->n_prompt < 2)
        return cl_fail(error, CL_ERR_ARG,
                       "pin is set with %lld prompt tokens, max_tokens %lld and prompt_logprobs %d; it needs at least 2, 0 and "
                       "false",
                       (long long)r->n_prompt, (long long)r->max_tokens, r->prompt_logprobs);
    return CL_OK;
}

static cl_status check_pin_tokens(const cl_engine_request *r, cl_error *error) {
    if (r->pin_tokens == 0 || (r->pin_tokens >= 2 && r->pin_tokens <= r->n_prompt && !r->pin)) return CL_OK;
    return cl_fail(error, CL_ERR_ARG,
                   "pin_tokens is %lld with %lld prompt tokens and pin %d; it must be 2 to the number of prompt tokens without "
                   "pin, or 0",
                   (long long)r->pin_tokens, (long long)r->n_prompt, r->pin);
}

static cl_status check_pooling(const cl_engine_request *r, cl_error *error) {
    if (r->pooling < CL_ENGINE_POOL_NONE || r->pooling > CL_ENGINE_POOL_MEAN)
        return cl_fail(error, CL_ERR_ARG, "pooling is %d; it must be one of CL_ENGINE_POOL_...", (int)r->pooling);
    if (r->pooling && (r->max_tokens != 0 || r->n != 1 || r->pin || r->prompt_logprobs || r->beam_search))
        return cl_fail(
            error, CL_ERR_ARG,
            "pooling is set with max_tokens %lld, n %d, pin %d, prompt_logprobs %d and beam_search %d; it needs 0, 1 "
            "and false",
            (long long)r->max_tokens, r->n, r->pin, r->prompt_logprobs, r->beam_search);
    return CL_OK;
}

/* What a beam search cannot be combined with. */
static cl_status check_beams(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    const cl_sampler_params *p = &r->sampling;
    if (!(r->length_penalty >= -10 && r->length_penalty <= 10))
        return cl_fail(error, CL_ERR_ARG, "length_penalty is %g; it must be from -10 to 10", (double)r->length_penalty);
    if (!r->beam_search) return CL_OK;
    if (r->n > limits->max_seqs)
        return cl_fail(error, CL_ERR_ARG, "n is %d; all beams of a search run at once, and max_seqs is %d: lower n", r->n,
                       limits->max_seqs);
    const int64_t n_open = (int64_t)limits->n_vocab - limits->n_end_tokens - r->n_stop_tokens;
    if (r->n > n_open)
        return cl_fail(error, CL_ERR_ARG, "n is %d; %lld tokens of the vocabulary do not end a choice: lower n", r->n,
                       (long long)n_open);
    if (r->n_stop > 0) return cl_fail(error, CL_ERR_ARG, "stop is set; a beam search knows no stop strings: use stop_tokens");
    if (p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0)
        return cl_fail(error, CL_ERR_ARG,
                       "sampling has a penalty; a beam search goes by the model's own distribution: leave penalties out");
    if (r->n_logit_bias > 0 || r->n_allowed_tokens > 0 || r->n_bad_words > 0 || r->min_tokens > 0)
        return cl_fail(error, CL_ERR_ARG, "%s is set; a beam search goes by the model's own distribution: leave it out",
                       r->n_logit_bias > 0       ? "logit_bias"
                       : r->n_allowed_tokens > 0 ? "allowed_tokens"
                       : r->n_bad_words > 0      ? "bad_words"
                                                 : "min_tokens");
    return CL_OK;
}

static cl_status check_grammar(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (r->grammar_kind < CL_GRAMMAR_NONE || r->grammar_kind > CL_GRAMMAR_LARK)
        return cl_fail(error, CL_ERR_ARG, "grammar_kind is %d; it must be one of cl_grammar_kind", (int)r->grammar_kind);
    if (r->grammar_kind == CL_GRAMMAR_NONE)
        return r->grammar_size == 0
                   ? CL_OK
                   : cl_fail(error, CL_ERR_ARG, "grammar is set, but grammar_kind is CL_GRAMMAR_NONE; set both or neither");
    if (!r->grammar || r->grammar_size == 0)
        return cl_fail(error, CL_ERR_ARG, "grammar is empty; it needs the text of a grammar, or grammar_kind CL_GRAMMAR_NONE");
    if (r->grammar_size > CL_ENGINE_MAX_GRAMMAR)
        return cl_fail(error, CL_ERR_LIMIT, "grammar has %zu bytes; it must have at most %d: simplify it", r->grammar_size,
                       CL_ENGINE_MAX_GRAMMAR);
    if (r->beam_search)
        return cl_fail(error, CL_ERR_ARG, "grammar is set; a beam search knows no grammar: leave one of them out");
    if (!limits->has_grammars)
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "the request has a grammar, but this engine has no grammar_library: install llguidance, and name its "
                       "shared object with --grammar-library or in grammar_library");
    return CL_OK;
}

static cl_status check_fields(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (!r->on_event) return cl_fail(error, CL_ERR_ARG, "on_event is NULL; set it to a function");
    if (!r->prompt || r->n_prompt < 1) return cl_fail(error, CL_ERR_ARG, "the prompt is empty; it needs at least one token");
    if (r->n < 1 || r->n > CL_ENGINE_MAX_CHOICES)
        return cl_fail(error, CL_ERR_ARG, "n is %d; it must be 1 to %d", r->n, CL_ENGINE_MAX_CHOICES);
    if (r->n_top < 0 || r->n_top > CL_ENGINE_MAX_TOP)
        return cl_fail(error, CL_ERR_ARG, "n_top is %d; it must be 0 to %d", r->n_top, CL_ENGINE_MAX_TOP);
    if (r->priority < -CL_ENGINE_MAX_PRIORITY || r->priority > CL_ENGINE_MAX_PRIORITY)
        return cl_fail(error, CL_ERR_ARG, "priority is %d; it must be %d to %d", r->priority, -CL_ENGINE_MAX_PRIORITY,
                       CL_ENGINE_MAX_PRIORITY);
    if (!(r->timeout_s >= 0))
        return cl_fail(error, CL_ERR_ARG, "timeout_s is %g; it must be above 0, or 0 for none", r->timeout_s);
    if (!(r->queue_timeout_s >= 0))
        return cl_fail(error, CL_ERR_ARG, "queue_timeout_s is %g; it must be above 0, or 0 for no limit", r->queue_timeout_s);
    cl_status status = cl_check_domain(r, error);
    if (status == CL_OK && r->pin) status = check_pin(limits, r, error);
    if (status == CL_OK) status = check_pin_tokens(r, error);
    if (status == CL_OK) status = check_sampling(&r->sampling, error);
    if (status == CL_OK) status = check_stop(limits, r, error);
    if (status == CL_OK) status = check_rules(limits, r, error);
    if (status == CL_OK) status = check_array("shown_tokens", r->shown_tokens, r->n_shown_tokens, error);
    if (status == CL_OK) status = check_tokens("shown_tokens", r->shown_tokens, r->n_shown_tokens, limits->n_vocab, error);
    if (status == CL_OK) status = check_beams(limits, r, error);
    if (status == CL_OK) status = check_pooling(r, error);
    if (status == CL_OK) status = check_grammar(limits, r, error);
    if (status == CL_OK) status = check_tokens("prompt", r->prompt, r->n_prompt, limits->n_vocab, error);
    return status;
}

/* ---- A request's size ---- */

/*
 * The largest completion, in tokens, of one choice, or of each beam, that the K/V budget could hold in a cache without others;
 * -1: not even the prompt. *result: the bytes behind that answer, for a completion of n_tokens.
 */
static int64_t largest_completion(const cl_engine_limits *limits, const cl_engine_request *r, int64_t n_tokens,
                                  cattn_fit_result *result) {
    cattn_fit_request fit;
    cattn_fit_request_init(&fit);
    fit.n_tokens = r->n_prompt;
    fit.reserve_tokens = n_tokens;
    fit.n_seqs = r->beam_search ? r->n : 1;
    fit.headroom_bytes = limits->kv_headroom_bytes;
    *result = (cattn_fit_result){.struct_size = sizeof *result};
    cattn_cache_can_fit(limits->cache, &fit, result, NULL);
    return result->max_reserve_tokens;
}

static cl_status check_size(const cl_engine_limits *limits, cl_engine_request *r, cl_error *error) {
    const int64_t room = limits->n_ctx - r->n_prompt, wanted = r->max_tokens < 0 ? 1 : r->max_tokens;
    if (wanted > room)
        return cl_fail(error, CL_ERR_LIMIT,
                       CL_CONTEXT_LENGTH_MESSAGE
                       "; %lld prompt tokens and a completion of %lld are more: shorten the prompt or lower max_tokens",
                       (long long)limits->n_ctx, (long long)r->n_prompt, (long long)wanted);
    cattn_fit_result fit;
    const int64_t largest = largest_completion(limits, r, wanted, &fit);
    if (wanted > largest && r->beam_search)
        return cl_fail(
            error, CL_ERR_LIMIT,
            "%lld prompt tokens and %d beams of %lld more need %llu bytes of K/V beside metadata; the K/V budget holds "
            "%llu: lower n, shorten the request or raise the K/V budget",
            (long long)r->n_prompt, r->n, (long long)wanted, (unsigned long long)fit.bytes_needed,
            (unsigned long long)fit.bytes_available);
    if (wanted > largest)
        return cl_fail(
            error, CL_ERR_LIMIT,
            "%lld prompt tokens and a completion of %lld need %llu bytes of K/V beside metadata; the K/V budget holds "
            "%llu: shorten the request or raise the K/V budget",
            (long long)r->n_prompt, (long long)wanted, (unsigned long long)fit.bytes_needed,
            (unsigned long long)fit.bytes_available);
    if (r->max_tokens < 0) r->max_tokens = largest < room ? largest : room;
    return CL_OK;
}

cl_status cl_check_request(const cl_engine_limits *limits, const cl_engine_request *from, cl_engine_request *request,
                           cl_error *error) {
    cl_engine_request_init(request);
    cl_status status = CL_STRUCT_READ(cl_engine_request, ctx, request, from, error);
    if (status == CL_OK) status = check_fields(limits, request, error);
    if (status == CL_OK) status = check_size(limits, request, error);
    if (!limits->can_pin) request->pin_tokens = 0; /* there is no room for pins */
    return status;
}

cl_status cl_check_queue(const cl_engine_limits *limits, const cl_queue_load *load, int64_t n_prompt, cl_error *error) {
    const int64_t n_queued = load->n_waiting - load->n_free;
    const double retry_s = fmax(1, ceil(load->retry_after_s));
    if (limits->max_queued_requests > 0 && n_queued >= limits->max_queued_requests)
        return cl_fail(error, CL_ERR_BUSY, "%lld requests wait, and max_queued_requests is %lld: try again in %.0f s",
                       (long long)n_queued, (long long)limits->max_queued_requests, retry_s);
    if (limits->max_queued_tokens > 0 && n_queued > 0 && load->n_tokens + n_prompt > limits->max_queued_tokens)
        return cl_fail(error, CL_ERR_BUSY,
                       "prompts of %lld tokens wait, %lld more were submitted, and max_queued_tokens is %lld: try again in "
                       "%.0f s",
                       (long long)load->n_tokens, (long long)n_prompt, (long long)limits->max_queued_tokens, retry_s);
    return CL_OK;
}
