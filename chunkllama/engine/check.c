/* Completes and checks the engine's configuration and its requests: see check.h. */
#include "check.h"

#include <link.h>
#include <math.h>

/* ---- The program ---- */

/* For dl_iterate_phdr, which lists the program first: a program that is not static names its dynamic linker. */
static int look_for_linker(struct dl_phdr_info *info, size_t size, void *is_static) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP) *(bool *)is_static = false;
    return 1;
}

/*
 * Whether the program is linked statically: it has no dynamic linker, so that a library that dlopen loads into it finds none of
 * the libraries that it needs in a state in which it can use them.
 */
static bool is_static_program(void) {
    bool is_static = true;
    dl_iterate_phdr(look_for_linker, &is_static);
    return is_static;
}

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
    const cl_range ranges[] = {
        {"n_ctx", config->n_ctx, 0, INT32_MAX, "at least 1, or 0 for the model's"},
        {"max_seqs", config->max_seqs, 1, MAX_STEP_ROWS, NULL},
        {"max_step_rows", config->max_step_rows, config->max_seqs, MAX_STEP_ROWS, "from max_seqs to 1048576"},
        {"prefill_segment", config->prefill_segment, 0, INT32_MAX, "at least 1, or 0 for no limit"},
        {"row_cost", config->row_cost, 0, INFINITY, "at least 0"},
        {"n_threads", config->n_threads, 0, INT32_MAX, "at least 1, or 0 for one for each CPU"},
        {"max_queued_requests", (double)config->max_queued_requests, 0, INFINITY, "at least 1, or 0 for no limit"},
        {"max_queued_tokens", (double)config->max_queued_tokens, 0, INFINITY, "at least 1, or 0 for no limit"},
        {"target_itl_s", config->target_itl_s, -INFINITY, INFINITY,
         "above 0, 0 for none, or negative for three times the time of decoding"},
    };
    if (cl_check_ranges(ranges, sizeof ranges / sizeof *ranges, error) != CL_OK) return CL_ERR_ARG;
    if (config->n_ctx == 0) config->n_ctx = m->params.n_ctx_train;
    if (config->n_ctx == 0) return cl_refuse(error, "n_ctx", "is 0, and the model file names no context; set it to at least 1");
    for (int32_t i = 0; i < config->n_weights; i++)
        if (!(config->weights[i].weight >= 0.001f && config->weights[i].weight <= 1000))
            return cl_refuse(error, cl_item("weights", i).text, "has the weight %g; it must be 0.001 to 1000",
                             (double)config->weights[i].weight);
    if (config->pin_bytes > config->kv_budget_bytes / 2)
        return cl_refuse(error, "pin_bytes", "is %llu; it must be at most half of the K/V budget, %llu",
                         (unsigned long long)config->pin_bytes, (unsigned long long)config->kv_budget_bytes);
    if (config->pin_bytes > 0 && config->sharing == CATTN_PRIVATE)
        return cl_refuse(error, "pin_bytes",
                         "is set, but sharing is CATTN_PRIVATE, where no request finds a pinned prompt; leave it 0 or share");
    if (!config->kv_tier_dir != (config->kv_tier_bytes == 0))
        return cl_refuse(error, config->kv_tier_dir ? "kv_tier_dir" : "kv_tier_bytes",
                         "is set, but %s is not; set both or neither", config->kv_tier_dir ? "kv_tier_bytes" : "kv_tier_dir");
    if (config->kv_tier_dir && !m->has_fingerprint)
        return cl_refuse(error, "kv_tier_dir",
                         "is set, but the model was loaded without its fingerprint; set cl_model_options.fingerprint");
    if (config->grammar_library && is_static_program())
        return cl_fail_field(
            error, CL_ERR_UNSUPPORTED, "grammar_library",
            "is set, but this program is linked statically, and cannot load a library while it runs; link it with "
            "the shared libraries, or leave it NULL");
    if (m->params.n_vocab < 1) return cl_fail(error, CL_ERR_ARG, "the model has no vocabulary");
    return CL_OK;
}

/* ---- A request ---- */

static cl_status check_pin(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (r->pin && !limits->can_pin)
        return cl_refuse(error, "pin", "is set, but the engine's pin_bytes is 0; set it to the bytes that pins may cover");
    if (r->pin && (r->max_tokens != 0 || r->prompt_logprobs || r->n_prompt < 2))
        return cl_refuse(error, "pin",
                         "is set with %lld prompt tokens, max_tokens %lld and prompt_logprobs %d; it needs at least 2, 0 and "
                         "false",
                         (long long)r->n_prompt, (long long)r->max_tokens, r->prompt_logprobs);
    if (r->pin_tokens == 0 || (r->pin_tokens >= 2 && r->pin_tokens <= r->n_prompt && !r->pin)) return CL_OK;
    return cl_refuse(
        error, "pin_tokens",
        "is %lld with %lld prompt tokens and pin %d; it must be 2 to the number of prompt tokens without pin, or 0",
        (long long)r->pin_tokens, (long long)r->n_prompt, r->pin);
}

/* All beams of a search run at once, and each of them goes on with a token that does not end it. */
static cl_status check_beams(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (!r->beam_search) return CL_OK;
    if (r->n > limits->max_seqs)
        return cl_refuse(error, "n", "is %d; all beams of a search run at once, and max_seqs is %d: lower it", r->n,
                         limits->max_seqs);
    const int64_t n_open = (int64_t)limits->n_vocab - limits->n_end_tokens - r->n_stop_tokens;
    if (r->n > n_open)
        return cl_refuse(error, "n", "is %d; %lld tokens of the vocabulary do not end a choice: lower it", r->n,
                         (long long)n_open);
    return CL_OK;
}

static cl_status check_fields(const cl_engine_limits *limits, const cl_engine_request *r, cl_error *error) {
    if (!r->prompt || r->n_prompt < 1) return cl_refuse(error, "prompt", "is empty; it needs at least one token");
    cl_status status = cl_check_fields(r, limits->n_vocab, error);
    if (status == CL_OK) status = check_pin(limits, r, error);
    if (status == CL_OK) status = check_beams(limits, r, error);
    if (status == CL_OK && limits->embeddings_only && r->pooling == CL_ENGINE_POOL_NONE)
        status = cl_fail(error, CL_ERR_UNSUPPORTED, "the model's file has no output matrix, so it makes embeddings only");
    if (status == CL_OK && r->grammar_kind != CL_GRAMMAR_NONE && !limits->has_grammars)
        status = cl_fail_field(error, CL_ERR_UNSUPPORTED, "grammar",
                               "is set, but this engine has no grammar_library: install llguidance, and name its shared object "
                               "with --grammar-library or in grammar_library");
    return status == CL_OK ? cl_check_tokens("prompt", r->prompt, r->n_prompt, limits->n_vocab, error) : status;
}

/*
 * The largest completion, in tokens, of one choice, or of each beam, that the K/V budget could hold in a cache without others,
 * where one of n_tokens is requested; -1: not even the prompt.
 */
static int64_t largest_completion(const cl_engine_limits *limits, const cl_engine_request *r, int64_t n_tokens) {
    cattn_fit_request fit;
    cattn_fit_result result = {.struct_size = sizeof result};
    cattn_fit_request_init(&fit);
    fit.n_tokens = r->n_prompt;
    fit.reserve_tokens = n_tokens;
    fit.n_seqs = r->beam_search ? r->n : 1;
    fit.headroom_bytes = limits->kv_headroom_bytes;
    cattn_cache_can_fit(limits->cache, &fit, &result, NULL);
    return result.max_reserve_tokens;
}

int64_t cl_served_context(const cl_engine_limits *limits) {
    const cl_engine_request one = {.n_prompt = 1};
    const int64_t held = 1 + largest_completion(limits, &one, 0);
    return held < limits->n_ctx ? held : limits->n_ctx;
}

static cl_status check_size(const cl_engine_limits *limits, cl_engine_request *r, cl_error *error) {
    const int64_t left = limits->n_ctx - r->n_prompt, wanted = r->max_tokens < 0 ? 1 : r->max_tokens;
    if (wanted > left)
        return cl_fail(error, CL_ERR_LIMIT,
                       CL_CONTEXT_LENGTH_MESSAGE
                       "%s; %lld prompt tokens and a completion of %lld are more: shorten the prompt or lower max_tokens",
                       (long long)limits->n_ctx, limits->context_reason, (long long)r->n_prompt, (long long)wanted);
    const int64_t largest = largest_completion(limits, r, wanted);
    if (wanted > largest)
        return cl_fail(error, CL_ERR_LIMIT,
                       "%lld prompt tokens and %s of %lld are more than the K/V budget holds, which has room for %lld behind "
                       "this prompt: shorten the prompt, lower %s, or raise the K/V budget (--kv-budget)",
                       (long long)r->n_prompt, r->beam_search ? "beams" : "a completion", (long long)wanted,
                       (long long)(largest > 0 ? largest : 0), r->beam_search ? "n" : "max_tokens");
    if (r->max_tokens < 0) r->max_tokens = largest < left ? largest : left;
    return CL_OK;
}

cl_status cl_check_request(const cl_engine_limits *limits, const cl_engine_request *from, cl_engine_request *request,
                           cl_error *error) {
    cl_engine_request_init(request);
    cl_status status = CL_STRUCT_READ(cl_engine_request, ctx, request, from, error);
    if (status == CL_OK) status = check_fields(limits, request, error);
    if (status == CL_OK) status = check_size(limits, request, error);
    if (!limits->can_pin) request->pin_tokens = 0; /* no bytes are kept for pins */
    return status;
}

cl_status cl_check_queue(const cl_engine_limits *limits, const cl_queue_load *load, int64_t n_prompt, cl_error *error) {
    const double retry_s = fmax(1, ceil(load->retry_after_s));
    if (limits->max_queued_requests > 0 && load->n_queued >= limits->max_queued_requests)
        return cl_fail(error, CL_ERR_BUSY, "%lld requests wait, and max_queued_requests is %lld: try again in %.0f s",
                       (long long)load->n_queued, (long long)limits->max_queued_requests, retry_s);
    if (limits->max_queued_tokens > 0 && load->n_queued > 0 && load->n_queued_tokens + n_prompt > limits->max_queued_tokens)
        return cl_fail(error, CL_ERR_BUSY,
                       "prompts of %lld tokens wait, %lld more were submitted, and max_queued_tokens is %lld: try again in "
                       "%.0f s",
                       (long long)load->n_queued_tokens, (long long)n_prompt, (long long)limits->max_queued_tokens, retry_s);
    return CL_OK;
}
