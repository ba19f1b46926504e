/* Refusing what can never run: see check.h. */
#include "check.h"

static cl_status check_tokens(const char *field, const int32_t *tokens, int64_t n, int32_t n_vocab, cl_error *error) {
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return cl_fail(error, CL_ERR_ARG, "%s[%lld] is %d; the model's token ids are 0 to %d", field, (long long)i,
                           tokens[i], n_vocab - 1);
    return CL_OK;
}

static cl_status check_fields(const cl_engine_limits *limits, const cl_engine_request *asked, cl_error *error) {
    if (!asked->on_event) return cl_fail(error, CL_ERR_ARG, "on_event is missing");
    if (!asked->prompt || asked->n_prompt < 1)
        return cl_fail(error, CL_ERR_ARG, "the prompt is empty; it needs a token at least");
    if (asked->n < 1) return cl_fail(error, CL_ERR_ARG, "n is %d; it must be at least 1", asked->n);
    if (asked->n > limits->max_seqs)
        return cl_fail(error, CL_ERR_ARG, "n is %d; at most %d sequences run at once (max_seqs)", asked->n, limits->max_seqs);
    if (asked->n_top < 0 || asked->n_top > CL_ENGINE_MAX_TOP)
        return cl_fail(error, CL_ERR_ARG, "the number of top logprobs is %d; it must be 0 to %d", asked->n_top,
                       CL_ENGINE_MAX_TOP);
    if (asked->domain > INT32_MAX)
        return cl_fail(error, CL_ERR_ARG, "domain is %u; it must be at most %d", asked->domain, INT32_MAX);
    if (asked->n_stop < 0 || (asked->n_stop > 0 && !asked->stop)) return cl_fail(error, CL_ERR_ARG, "stop is missing");
    for (int32_t i = 0; i < asked->n_stop; i++)
        if (!asked->stop[i] || asked->stop[i][0] == '\0') return cl_fail(error, CL_ERR_ARG, "stop[%d] is empty", i);
    if (asked->n_stop_tokens < 0 || (asked->n_stop_tokens > 0 && !asked->stop_tokens))
        return cl_fail(error, CL_ERR_ARG, "stop_tokens is missing");
    const cl_status status = check_tokens("prompt", asked->prompt, asked->n_prompt, limits->n_vocab, error);
    if (status != CL_OK) return status;
    return check_tokens("stop_tokens", asked->stop_tokens, asked->n_stop_tokens, limits->n_vocab, error);
}

/*
 * Chunks that n choices may come to need. Shared, the prompt's whole chunks are stored once and each choice that goes on does
 * so in chunks of its own; the prompt's last chunk may stay beside them.
 */
static int64_t chunks_needed(const cl_engine_limits *limits, int64_t n_prompt, int64_t max_tokens, int64_t n) {
    const int64_t c = limits->chunk_size;
    if (max_tokens == 0 && limits->sharing != CATTN_PRIVATE) return (n_prompt + c - 1) / c;
    const int64_t whole = limits->sharing == CATTN_PRIVATE ? 0 : n_prompt / c;
    const int64_t prompt_tail = n > 1 && limits->sharing != CATTN_PRIVATE && n_prompt % c > 0 ? 1 : 0;
    return whole + prompt_tail + n * ((n_prompt - whole * c + max_tokens + c - 1) / c);
}

/* The largest completion, at most max_tokens, whose chunks the budget holds; one of a token is known to fit. */
static int64_t largest_completion(const cl_engine_limits *limits, int64_t n_prompt, int64_t max_tokens, int64_t n) {
    int64_t fits = 1, too_large = max_tokens + 1;
    while (too_large - fits > 1) {
        const int64_t middle = fits + (too_large - fits) / 2;
        if (chunks_needed(limits, n_prompt, middle, n) <= limits->n_chunks)
            fits = middle;
        else
            too_large = middle;
    }
    return fits;
}

cl_status cl_check_request(const cl_engine_limits *limits, const cl_engine_request *asked, int64_t *max_tokens,
                           cl_error *error) {
    const cl_status status = check_fields(limits, asked, error);
    if (status != CL_OK) return status;
    const int64_t n_prompt = asked->n_prompt, room = limits->n_ctx - n_prompt;
    const int64_t wanted = asked->max_tokens < 0 ? 1 : asked->max_tokens;
    if (wanted > room)
        return cl_fail(error, CL_ERR_LIMIT,
                       ENGINE_CONTEXT_LENGTH
                       "; %lld prompt tokens and a completion of %lld are more: shorten the prompt or lower max_tokens",
                       (long long)limits->n_ctx, (long long)n_prompt, (long long)wanted);
    const int64_t needed = chunks_needed(limits, n_prompt, wanted, asked->n);
    if (needed > limits->n_chunks)
        return cl_fail(
            error, CL_ERR_LIMIT,
            "%lld prompt tokens and %d choices of %lld tokens need %lld chunks of K/V; the budget holds %lld: shorten "
            "the request or raise the K/V budget",
            (long long)n_prompt, asked->n, (long long)wanted, (long long)needed, (long long)limits->n_chunks);
    *max_tokens = asked->max_tokens < 0 ? largest_completion(limits, n_prompt, room, asked->n) : asked->max_tokens;
    return CL_OK;
}
