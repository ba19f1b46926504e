/* Reads the fields of a request other than its prompt: how to generate, and which things to report. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "parse.h"

void openai_defaults_init(openai_defaults *defaults) {
    *defaults = (openai_defaults){.penalty_window = -1, .max_tokens_chat = -1, .max_tokens_completion = 16};
    cl_sampler_params_init(&defaults->sampling);
}

/* The request's seed; otherwise the server's, which *seed holds; otherwise a random one. */
static bool parse_seed(const openai_defaults *defaults, const json_t *body, uint64_t *seed, openai_error *error) {
    int64_t sent = -1; /* -1 is "no seed" for llama-server, vLLM and --seed */
    if (!field_int(body, "seed", INT64_MIN, INT64_MAX, &sent, error)) return false;
    if (sent != -1) {
        *seed = (uint64_t)sent;
        return true;
    }
    if (defaults->has_seed || getrandom(seed, sizeof *seed, 0) == sizeof *seed) return true;
    openai_fail(error, NULL, "the operating system provided no random seed; send a 'seed'");
    error->status = 500;
    error->type = "server_error";
    return false;
}

static bool parse_sampling(const openai_context *context, const json_t *body, cl_sampler_params *s, openai_error *error) {
    *s = context->defaults.sampling;
    const int32_t n_vocab = cl_tokenizer_n_vocab(context->model->tok);
    /* The aliases are llama-server's. OpenAI's largest temperature is 2, the others have no limit. */
    if (!field_float(body, "temperature", 0, 10000, &s->temperature, error) ||
        !field_int32(body, "top_k", -1, INT32_MAX, &s->top_k, error) ||
        !field_float(body, "top_p", FIELD_ANY, &s->top_p, error) || !field_float(body, "min_p", FIELD_ANY, &s->min_p, error) ||
        !field_float(body, "repeat_penalty", 0.01, 100, &s->repetition_penalty, error) ||
        !field_float(body, "repetition_penalty", 0.01, 100, &s->repetition_penalty, error) ||
        !field_float(body, "presence_penalty", -2, 2, &s->presence_penalty, error) ||
        !field_float(body, "frequency_penalty", -2, 2, &s->frequency_penalty, error))
        return false;
    if (s->top_k < 0 || s->top_k > n_vocab) s->top_k = 0; /* all tokens: vLLM turns top_k off with -1, we with 0 */
    return parse_seed(&context->defaults, body, &s->seed, error);
}

/* llama-server's penalties count a window, which is the whole context if it is -1; OpenAI's and vLLM's have none. */
static bool parse_window(const openai_context *context, const json_t *body, cl_engine_request *p, openai_error *error) {
    int32_t window = -1;
    p->penalty_window = field_get(body, "repeat_penalty") ? OPENAI_PENALTY_WINDOW : context->defaults.penalty_window;
    if (!field_get(body, "repeat_last_n")) return true;
    if (!field_int32(body, "repeat_last_n", -1, INT32_MAX, &window, error)) return false;
    p->penalty_window = window < 0 ? INT32_MAX : window;
    return true;
}

/* ---- llama-server's `samplers` ---- */

/* A sampler by its name and its letter. Those without a step change nothing here, as their parameters are refused. */
typedef struct sampler_name {
    const char *name;
    char letter;
    int step; /* cl_sampler_step; NO_STEP; PENALTIES */
} sampler_name;

enum { NO_STEP = -1, PENALTIES = -2 };

static const sampler_name *find_sampler(const json_t *value, size_t i) {
    static const sampler_name names[] = {
        {"temperature", 't', CL_SAMPLER_TEMPERATURE},
        {"min_p", 'm', CL_SAMPLER_MIN_P},
        {"top_k", 'k', CL_SAMPLER_TOP_K},
        {"top_p", 'p', CL_SAMPLER_TOP_P},
        {"penalties", 'e', PENALTIES},
        {"dry", 'd', NO_STEP},
        {"typ_p", 'y', NO_STEP},
        {"typical_p", 'y', NO_STEP},
        {"tfs_z", 'f', NO_STEP},
        {"adaptive_p", 'a', NO_STEP},
        {"top_n_sigma", 's', NO_STEP},
        {"xtc", 'x', NO_STEP},
    };
    const char *letters = json_string_value(value), *name = json_string_value(json_array_get(value, i));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (letters ? letters[i] == names[k].letter : name && strcmp(name, names[k].name) == 0) return &names[k];
    return NULL;
}

static bool has_step(const cl_sampler_cuts *cuts, cl_sampler_step step) {
    for (int32_t i = 0; i < cuts->n_steps; i++)
        if (cuts->steps[i] == step) return true;
    return false;
}

/* Add sampler i of the list, of which `i` have been read, to the steps. *penalises: penalties are among them. */
static bool add_sampler(const json_t *value, size_t i, cl_sampler_cuts *cuts, bool *penalises, openai_error *error) {
    const sampler_name *sampler = find_sampler(value, i);
    const field_path where = path_of("samplers[%zu]", i);
    if (!sampler)
        return openai_refuse(error, where.text,
                             "is no sampler of this server; send \"penalties\", \"temperature\", \"min_p\", \"top_k\" and "
                             "\"top_p\", in any order behind the first");
    if (sampler->step == PENALTIES && cuts->n_steps > 0)
        return openai_refuse(error, where.text, "is behind other samplers; penalties come first: move it to the beginning");
    *penalises |= sampler->step == PENALTIES;
    if (sampler->step < 0) return true;
    if (has_step(cuts, (cl_sampler_step)sampler->step))
        return openai_refuse(error, where.text, "is listed before; list each sampler once");
    cuts->steps[cuts->n_steps++] = (cl_sampler_step)sampler->step;
    return true;
}

/* The order of samplers, as names or letters; those that are not listed are off. An empty list is the server's order. */
static bool parse_samplers(const json_t *body, cl_engine_request *p, openai_error *error) {
    const json_t *value = field_get_requested(body, "samplers");
    bool penalises = false;
    if (!value) return true;
    if (!json_is_string(value) && !json_is_array(value))
        return openai_refuse(error, "samplers", "must be an array of names, or a string of letters, not %s", field_kind(value));
    const size_t n = json_is_string(value) ? json_string_length(value) : json_array_size(value);
    if (n > OPENAI_MAX_SAMPLERS)
        return openai_refuse(error, "samplers", "has %zu samplers; at most %d are allowed: list each once", n,
                             OPENAI_MAX_SAMPLERS);
    for (size_t i = 0; i < n; i++)
        if (!add_sampler(value, i, &p->cuts, &penalises, error)) return false;
    if (!penalises) p->penalty_window = 0;
    if (has_step(&p->cuts, CL_SAMPLER_TEMPERATURE)) return true;
    p->sampling.temperature = 1;
    if (p->cuts.n_steps == 0) p->cuts.steps[p->cuts.n_steps++] = CL_SAMPLER_TEMPERATURE; /* no steps would mean all */
    return true;
}

static bool parse_cuts(const openai_context *context, const json_t *body, cl_engine_request *p, openai_error *error) {
    return parse_window(context, body, p, error) && field_int32(body, "min_keep", 0, INT32_MAX, &p->cuts.min_keep, error) &&
           parse_samplers(body, p, error);
}

/* ---- Length ---- */

static bool parse_length(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    static const char *const names[] = {"n_predict", "max_tokens", "max_completion_tokens"}; /* the last one counts */
    const int64_t min = r->endpoint == OPENAI_CHAT ? 1 : 0;
    const openai_defaults *d = &context->defaults;
    r->params.max_tokens = r->endpoint == OPENAI_CHAT ? d->max_tokens_chat : d->max_tokens_completion;
    r->params.ignore_eos = d->ignore_eos;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t n = r->params.max_tokens;
        if (!field_int(body, names[i], INT64_MIN, INT32_MAX, &n, error)) return false;
        if (field_get(body, names[i]) && n != -1 && n < min)
            return openai_refuse(error, names[i], "is %lld; it must be from %lld to %d, or -1 for no limit", (long long)n,
                                 (long long)min, INT32_MAX);
        r->params.max_tokens = n;
    }
    return field_bool(body, "ignore_eos", &r->params.ignore_eos, error);
}

/* llama-server's other ends of an answer: at a line that is indented less, and by the time since its first token. */
static bool parse_ends(const json_t *body, cl_engine_request *p, openai_error *error) {
    int64_t ms = -1;
    if (!field_int32(body, "n_indent", 0, INT32_MAX, &p->min_indent, error) ||
        !field_int(body, "t_max_predict_ms", -1, INT64_MAX, &ms, error))
        return false;
    if (ms > 0) p->generation_s = (double)ms / 1000;
    return true;
}

/* How many tokens of reasoning there may be: vLLM's name, llama-server's, and Qwen's service's. */
static bool parse_budget(const json_t *body, openai_request *r, openai_error *error) {
    static const char *const names[] = {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens",
                                        "thinking_budget"};
    const size_t n = sizeof names / sizeof *names;
    r->max_reasoning_tokens = -1;
    for (size_t i = 0; i < n; i++)
        if (!field_int(body, names[i], -1, INT32_MAX, &r->max_reasoning_tokens, error)) return false;
    return field_agree(body, names, n, error);
}

/*
 * Add a stop string; `where` is its name in messages. Number and length are limited, since the engine copies stop strings for
 * each prompt and searches for them after each token.
 */
static bool add_stop(openai_request *r, const json_t *value, const char *where, openai_error *error) {
    if (!json_is_string(value)) return openai_refuse(error, where, "must be a string, not %s", field_kind(value));
    const char *text = json_string_value(value);
    if (!*text || strlen(text) != json_string_length(value))
        return openai_refuse(error, where, "is empty or contains a zero character; leave it out");
    if (strlen(text) > OPENAI_MAX_STOP_BYTES)
        return openai_refuse(error, where, "has %zu bytes; a stop string may have at most %d: shorten it", strlen(text),
                             OPENAI_MAX_STOP_BYTES);
    char *copy = strdup(text);
    if (!copy) return openai_fail_memory(error);
    r->stop[r->params.n_stop++] = copy;
    return true;
}

static bool parse_stop(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *stop = field_get(body, "stop"), *ids;
    if (stop && !json_is_array(stop)) {
        if (!add_stop(r, stop, "stop", error)) return false;
    } else if (!field_array(body, "stop", "strings", OPENAI_MAX_STOP, &stop, error)) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!add_stop(r, json_array_get(stop, i), path_of("stop[%zu]", i).text, error)) return false;
    if (!field_array(body, "stop_token_ids", "token ids", OPENAI_MAX_STOP_TOKENS, &ids, error)) return false;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const field_path where = path_of("stop_token_ids[%zu]", i);
        if (!field_token(json_array_get(ids, i), where.text, context->model, &r->stop_tokens[i], error)) return false;
        r->params.n_stop_tokens++;
    }
    r->params.stop = (const char *const *)r->stop;
    r->params.stop_tokens = r->stop_tokens;
    return true;
}

static bool parse_chat_logprobs(const json_t *body, openai_request *r, openai_error *error) {
    if (field_get(body, "logprobs")) r->n_top = 0;
    if (!field_bool(body, "logprobs", &r->logprobs, error) ||
        !field_int32(body, "top_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &r->n_top, error))
        return false;
    if (r->n_top > 0 && !r->logprobs) return openai_refuse(error, "top_logprobs", "needs 'logprobs' to be true");
    return true;
}

/* n_probs is llama-server's name; its 0 is no logprobs. */
static bool parse_completion_logprobs(const json_t *body, openai_request *r, openai_error *error) {
    r->logprobs = r->logprobs || field_get(body, "logprobs") || field_get_requested(body, "n_probs");
    return field_int32(body, "n_probs", 0, OPENAI_MAX_TOP_LOGPROBS, &r->n_top, error) &&
           field_int32(body, "logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &r->n_top, error);
}

/* vLLM's prompt_logprobs, which is a part of whole answers. */
static bool parse_prompt_logprobs(const json_t *body, openai_request *r, openai_error *error) {
    r->n_prompt_top = -1;
    if (!field_get(body, "prompt_logprobs")) return true;
    if (!field_int32(body, "prompt_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &r->n_prompt_top, error)) return false;
    if (r->stream)
        return openai_refuse(error, "prompt_logprobs",
                             "is not part of a stream; clear 'stream', or use 'echo' with 'logprobs'");
    return true;
}

/* The position of the last token before those whose logprobs are wanted: SGLang's name and vLLM's. */
static bool parse_logprob_start(const json_t *body, cl_engine_request *p, openai_error *error) {
    int64_t start = -1;
    if (!field_int(body, "prompt_logprob_start", 0, INT32_MAX, &start, error) ||
        !field_int(body, "logprob_start_len", 0, INT32_MAX, &start, error))
        return false;
    p->prompt_logprobs_from = start + 1;
    return true;
}

/* The stream and echo have been read. */
static bool parse_logprobs(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    r->logprobs = context->defaults.logprobs;
    r->n_top = context->defaults.n_top;
    if (!(r->endpoint == OPENAI_CHAT ? parse_chat_logprobs : parse_completion_logprobs)(body, r, error) ||
        !parse_prompt_logprobs(body, r, error) || !parse_logprob_start(body, &r->params, error))
        return false;
    cl_engine_request *p = &r->params;
    p->logprobs = r->logprobs;
    p->prompt_logprobs = r->n_prompt_top >= 0 || (r->echo && r->logprobs);
    p->n_top = r->n_prompt_top > r->n_top ? r->n_prompt_top : r->n_top;
    return field_bool(body, "return_tokens_as_token_ids", &r->tokens_as_ids, error);
}

/* Which tokens have text. spaces_between_special_tokens makes no difference for the tokenizers of these models. */
static bool parse_text(const json_t *body, cl_engine_request *p, openai_error *error) {
    bool skip = true;
    if (!field_bool(body, "skip_special_tokens", &skip, error) ||
        !field_bool(body, "no_stop_trim", &p->include_stop, error) || /* SGLang's name */
        !field_bool(body, "include_stop_str_in_output", &p->include_stop, error))
        return false;
    p->show_special = !skip;
    return true;
}

/* vLLM's salt: requests with different salts share no K/V. */
static bool parse_salt(const json_t *body, openai_request *r, openai_error *error) {
    const json_t *salt = field_get(body, "cache_salt");
    const size_t size = json_string_length(salt);
    if (!salt) return true;
    if (!json_is_string(salt)) return openai_refuse(error, "cache_salt", "must be a string, not %s", field_kind(salt));
    if (size == 0) return openai_refuse(error, "cache_salt", "is empty; leave it out");
    if (size > CL_ENGINE_MAX_SALT)
        return openai_refuse(error, "cache_salt", "has %zu bytes; it may have at most %d: shorten it", size,
                             CL_ENGINE_MAX_SALT);
    r->salt = malloc(size);
    if (!r->salt) return openai_fail_memory(error);
    memcpy(r->salt, json_string_value(salt), size);
    r->params.salt = r->salt;
    r->params.salt_size = size;
    return true;
}

bool openai_is_request_id(const char *id) {
    size_t n = 0;
    while (id[n] >= ' ' && id[n] <= '~') n++;
    return n > 0 && n <= OPENAI_MAX_REQUEST_ID && !id[n];
}

/* vLLM's name for the answer, or SGLang's, which becomes a part of its id. */
static bool parse_id(const json_t *body, openai_request *r, openai_error *error) {
    const char *id, *name = field_get(body, "request_id") ? "request_id" : "rid";
    const json_t *field = field_get(body, name);
    if (!field) return true;
    if (!field_name(field, name, &id, error)) return false;
    if (!openai_is_request_id(id))
        return openai_refuse(error, name, "must have from 1 to %d characters of printable ASCII, or be left out",
                             OPENAI_MAX_REQUEST_ID);
    r->id = strdup(id);
    return r->id || openai_fail_memory(error);
}

/* What the answer reports beside text and logprobs. */
static bool parse_reports(const json_t *body, openai_request *r, openai_error *error) {
    if (!field_bool(body, "timings", &r->timings, error) ||
        !field_bool(body, "timings_per_token", &r->timings_per_token, error) ||
        !field_bool(body, "return_prompt_token_ids", &r->return_token_ids, error) || /* SGLang's, of a part of them */
        !field_bool(body, "return_token_ids", &r->return_token_ids, error))
        return false;
    r->timings = r->timings || r->timings_per_token;
    return true;
}

/* How much of each prompt counts. */
static bool parse_truncation(const json_t *body, openai_request *r, openai_error *error) {
    if (!field_int(body, "truncate_prompt_tokens", -1, INT32_MAX, &r->truncate, error)) return false;
    return r->truncate != 0 || !field_get(body, "truncate_prompt_tokens") ||
           openai_refuse(error, "truncate_prompt_tokens",
                         "is 0; it must be at least 1, or -1 for as many as the context can hold");
}

bool openai_parse_common(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    r->params.timeout_s = context->timeout_s;
    r->params.queue_timeout_s = context->queue_timeout_s;
    return field_int32(body, "priority", -CL_ENGINE_MAX_PRIORITY, CL_ENGINE_MAX_PRIORITY, &r->params.priority, error) &&
           parse_salt(body, r, error) && parse_id(body, r, error) && parse_truncation(body, r, error);
}

static bool parse_stream(const json_t *body, openai_request *r, openai_error *error) {
    const json_t *options;
    if (!field_bool(body, "stream", &r->stream, error) || !field_object(body, "stream_options", &options, error)) return false;
    if (!options) return true;
    if (!r->stream) return openai_refuse(error, "stream_options", "needs 'stream' to be true");
    if (!field_bool(options, "include_usage", &r->include_usage, error) ||
        !field_bool(options, "continuous_usage_stats", &r->continuous_usage, error))
        return false;
    r->continuous_usage = r->continuous_usage && r->include_usage;
    return true;
}

/* vLLM's "never" is the end of the search that is the default here. */
static bool parse_early_stopping(const json_t *body, openai_request *r, openai_error *error) {
    const json_t *field = field_get(body, "early_stopping");
    if (json_is_string(field) && strcmp(json_string_value(field), "never") == 0) return true;
    if (field && !json_is_boolean(field)) return openai_refuse(error, "early_stopping", "must be true, false or \"never\"");
    r->params.early_stopping = json_is_true(field);
    return true;
}

static bool parse_beams(const json_t *body, openai_request *r, openai_error *error) {
    cl_engine_request *p = &r->params;
    if (!field_bool(body, "use_beam_search", &p->beam_search, error) ||
        !field_float(body, "length_penalty", FIELD_ANY, &p->length_penalty, error) || !parse_early_stopping(body, r, error))
        return false;
    const char *without = p->length_penalty != 1 ? "length_penalty" : p->early_stopping ? "early_stopping" : NULL;
    if (p->beam_search || !without) return true;
    return openai_refuse(error, without, "needs 'use_beam_search' to be true");
}

/* How many choices are generated and how many returned; the stream and logprobs have been read. */
static bool parse_n(const json_t *body, openai_request *r, openai_error *error) {
    static const char *const names[] = {"n", "n_cmpl"};
    r->n = 1;
    for (size_t i = 0; i < 2; i++)
        if (!field_int32(body, names[i], 1, OPENAI_MAX_N, &r->n, error)) return false;
    if (!field_agree(body, names, 2, error)) return false;
    r->params.n = r->n;
    if (!field_int32(body, "best_of", 1, OPENAI_MAX_N, &r->params.n, error)) return false;
    if (r->params.n < r->n)
        return openai_refuse(error, "best_of", "is %d and 'n' is %d; it must be at least 'n'", r->params.n, r->n);
    if (r->params.n > r->n && r->stream)
        return openai_refuse(error, "best_of",
                             "is %d and 'n' is %d; a stream shows all that it generates: clear 'stream' or send equal "
                             "numbers",
                             r->params.n, r->n);
    r->params.logprobs |= r->params.n > r->n && !r->params.beam_search; /* a beam search reports its choices in order */
    return true;
}

bool openai_parse_params(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    if (r->endpoint == OPENAI_COMPLETION && !field_bool(body, "echo", &r->echo, error)) return false;
    return openai_parse_common(context, body, r, error) && parse_sampling(context, body, &r->params.sampling, error) &&
           parse_cuts(context, body, &r->params, error) && parse_length(context, body, r, error) &&
           parse_ends(body, &r->params, error) && parse_budget(body, r, error) && openai_parse_rules(context, body, r, error) &&
           parse_stop(context, body, r, error) && parse_stream(body, r, error) && parse_logprobs(context, body, r, error) &&
           parse_text(body, &r->params, error) && parse_reports(body, r, error) &&
           openai_parse_constraint(context, body, r, error) && parse_beams(body, r, error) && parse_n(body, r, error) &&
           openai_check_fields(context, r, error);
}
