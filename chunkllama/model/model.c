/* The public functions of a model: loads its file, chooses the kernel level, and turns text and messages into tokens. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/cpu.h"
#include "chunkattn/base/levels.h"
#include "device_model.h"

/* ---- Loading ---- */

/* Report why there are no kernels for a level: what is wrong with it or with CATTN_LEVEL, and the levels of this CPU. */
static cl_status level_refused(const char *level, cl_error *error) {
    char list[128] = "";
    size_t used = 0;
    int ignored;
    for (int i = 0; cl_kernels_level_name(i); i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", cl_kernels_level_name(i));
    switch (ca_level_choose(level, &ignored)) {
    case CA_LEVEL_UNKNOWN:
        return cl_fail(error, CL_ERR_ARG, "level is '%s', which this build does not know; this CPU has %s", level, list);
    case CA_LEVEL_LACKING:
        return cl_fail(error, CL_ERR_UNSUPPORTED, "level is '%s', which this CPU lacks; it has %s", level, list);
    default:
        return cl_fail(error, CL_ERR_ARG,
                       "the environment variable CATTN_LEVEL is '%s', which is no kernel level; this CPU has %s",
                       ca_level_environment(), list);
    }
}

/* A template that cannot be used is no error, since completions need none, and chats may use another one. */
static cl_status load_chat(cl_model *m, cl_error *error) {
    cl_error cause;
    const cl_status status = cl_chat_of_file(m->file, m->tok, &m->chat, &cause);
    if (status == CL_ERR_NOMEM) return cl_fail(error, status, "%s", cause.message);
    if (status != CL_OK)
        cl_error_set(&m->chat_error, CL_ERR_UNSUPPORTED,
                     "%.400s; use another template (options --chat-template, --chat-format)", cause.message);
    return CL_OK;
}

cl_status cl_model_load_watched(const char *path, const cl_model_options *options, ca_pool *pool,
                                const cl_load_watcher *watcher, cl_model **out, cl_error *error) {
    const char *level = options->level;
    const bool has_fingerprint = options->fingerprint != 0;
    int32_t device;
    *out = NULL;
    cl_status status = cl_device_parse(options->device, &device, error);
    if (status != CL_OK) return status;
    cl_model *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return cl_fail(error, CL_ERR_NOMEM, "no memory to load %s", path);
    }
    m->kernels = cl_kernels_find(level);
    if (!m->kernels) status = level_refused(level, error);
    if (status == CL_OK) status = cl_model_file_open(path, &m->file, error);
    if (status == CL_OK) status = cl_params_read(m->file, &m->params, error);
    if (status == CL_OK && device >= 0) status = cl_device_model_check(m->file, &m->params, device, error);
    if (status == CL_OK) status = cl_tokenizer_create(m->file, &m->tok, error);
    if (status == CL_OK) {
        m->params.n_vocab = cl_tokenizer_n_vocab(m->tok);
        status = cl_weights_load(m->file, &m->params, pool, watcher, &m->weights, error);
    }
    if (status == CL_OK && device >= 0) status = cl_device_model_create(m, device, &m->on_device, error);
    m->has_fingerprint = has_fingerprint;
    if (status == CL_OK && has_fingerprint) status = cl_model_file_fingerprint(m->file, m->fingerprint, error);
    if (status == CL_OK) status = cl_model_file_sample(m->file, &m->sample, error);
    if (status == CL_OK) status = cl_model_file_end_loading(m->file, error);
    if (status == CL_OK) status = load_chat(m, error);
    if (status != CL_OK) cl_model_free(&m);
    *out = m;
    return status;
}

cl_status cl_model_load_on_pool(const char *path, const char *level, ca_pool *pool, cl_model **model, cl_error *error) {
    cl_model_options options;
    cl_model_options_init(&options);
    options.level = level;
    return cl_model_load_watched(path, &options, pool, NULL, model, error);
}

void cl_model_options_init(cl_model_options *options) { *options = (cl_model_options){.struct_size = sizeof *options}; }

cl_status cl_model_load(const char *path, const cl_model_options *options, cl_model **model, cl_error *error) {
    if (!model) return cl_fail(error, CL_ERR_ARG, "model is NULL; pass the address of a pointer");
    *model = NULL;
    if (!path) return cl_fail(error, CL_ERR_ARG, "path is NULL; name a GGUF file or a folder of safetensors");
    cl_model_options o;
    cl_model_options_init(&o);
    cl_status status = options ? CL_STRUCT_READ(cl_model_options, level, &o, options, error) : CL_OK;
    if (status != CL_OK) return status;
    if (o.n_threads < 0)
        return cl_fail(error, CL_ERR_ARG, "n_threads is %d; it must be at least 1, or 0 for one for each CPU", o.n_threads);
    const int n_threads = o.n_threads > 0 ? o.n_threads : ca_cpu_count();
    ca_pool *pool = ca_pool_create(n_threads);
    if (!pool) return cl_fail(error, CL_ERR_NOMEM, "cannot start %d threads; lower n_threads", n_threads);
    status = cl_model_load_watched(path, &o, pool, NULL, model, error);
    ca_pool_destroy(&pool);
    return status;
}

void cl_model_free(cl_model **model) {
    cl_model *m = model ? *model : NULL;
    if (!m) return;
    cl_device_model_free(&m->on_device);
    cl_weights_free(&m->weights);
    cl_params_free(&m->params);
    cl_chat_free(&m->chat);
    cl_tokenizer_free(&m->tok);
    cl_model_file_close(&m->file);
    free(m->path);
    free(m);
    *model = NULL;
}

/* ---- Properties ---- */

int32_t cl_model_n_vocab(const cl_model *m) { return m ? m->params.n_vocab : 0; }
int32_t cl_model_n_ctx(const cl_model *m) { return m ? m->params.n_ctx_train : 0; }
int32_t cl_model_bos(const cl_model *m) { return m ? cl_tokenizer_bos(m->tok) : -1; }
int32_t cl_model_eos(const cl_model *m) { return m ? cl_tokenizer_eos(m->tok) : -1; }
bool cl_model_is_end(const cl_model *m, int32_t token) { return m && cl_tokenizer_is_end(m->tok, token); }
const char *cl_model_chat_format(const cl_model *m) { return m && m->chat ? cl_chat_name(m->chat) : NULL; }

/* ---- Text ---- */

cl_status cl_model_tokenize(const cl_model *m, const char *text, size_t size, unsigned flags, cl_token_list *tokens,
                            cl_error *error) {
    if (!m || !tokens || (!text && size > 0))
        return cl_fail(error, CL_ERR_ARG, "%s is NULL", !m ? "model" : !tokens ? "tokens" : "text");
    if (flags & ~(unsigned)(CL_TOKENIZE_BEGIN | CL_TOKENIZE_SPECIAL | CL_TOKENIZE_END))
        return cl_fail(error, CL_ERR_ARG, "flags is %#x; known are CL_TOKENIZE_BEGIN, CL_TOKENIZE_SPECIAL and CL_TOKENIZE_END",
                       flags);
    const size_t n_before = tokens->n;
    const bool begins = flags & CL_TOKENIZE_BEGIN;
    cl_status status = begins ? cl_tokenizer_add_leading(m->tok, tokens, error) : CL_OK;
    if (status == CL_OK && size > 0)
        status = (flags & CL_TOKENIZE_SPECIAL ? cl_tokenizer_encode_template : cl_tokenizer_encode)(m->tok, text, size, begins,
                                                                                                    tokens, error);
    if (status == CL_OK && flags & CL_TOKENIZE_END) status = cl_tokenizer_add_trailing(m->tok, tokens, error);
    if (status != CL_OK) tokens->n = n_before;
    return status;
}

cl_status cl_model_detokenize(const cl_model *m, const int32_t *tokens, size_t n_tokens, bool special, char *text,
                              size_t capacity, size_t *size, cl_error *error) {
    if (!m || !size || (!tokens && n_tokens > 0) || (!text && capacity > 0))
        return cl_fail(error, CL_ERR_ARG, "%s is NULL",
                       !m                      ? "model"
                       : !size                 ? "size"
                       : !text && capacity > 0 ? "text"
                                               : "tokens");
    for (size_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= m->params.n_vocab)
            return cl_fail(error, CL_ERR_ARG, "tokens[%zu] is %d; the model's token ids are 0 to %d", i, tokens[i],
                           m->params.n_vocab - 1);
    *size = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        const size_t left = *size < capacity ? capacity - *size : 0;
        *size += cl_tokenizer_piece(m->tok, tokens[i], special, left ? text + *size : NULL, left);
    }
    return CL_OK;
}

/* The chat of a format's name, or the model's own; the caller frees *made. */
static cl_status find_chat(const cl_model *m, const char *format, const cl_chat **chat, cl_chat **made, cl_error *error) {
    *made = NULL;
    *chat = m->chat;
    if (format && strcmp(format, CL_CHAT_TEMPLATE) != 0) {
        const cl_status status = cl_chat_by_name(format, m->file, m->tok, made, error);
        *chat = *made;
        return status;
    }
    if (m->chat) return CL_OK;
    if (m->chat_error.code != CL_OK) return cl_fail(error, m->chat_error.code, "%s", m->chat_error.message);
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the model's file has no chat template; name a format: " CL_CHAT_NAMES);
}

cl_status cl_model_format_chat(const cl_model *m, const char *format, const cl_chat_message *messages, size_t n_messages,
                               cl_token_list *tokens, cl_error *error) {
    if (!m || !tokens || (!messages && n_messages > 0))
        return cl_fail(error, CL_ERR_ARG, "%s is NULL", !m ? "model" : !tokens ? "tokens" : "messages");
    for (size_t i = 0; i < n_messages; i++)
        if (!messages[i].role || (!messages[i].content && messages[i].content_size > 0))
            return cl_fail(error, CL_ERR_ARG, "messages[%zu].%s is NULL", i, messages[i].role ? "content" : "role");
    const cl_chat *chat;
    cl_chat *made;
    const size_t n_before = tokens->n;
    cl_status status = find_chat(m, format, &chat, &made, error);
    if (status == CL_OK) status = cl_chat_tokenize_messages(chat, messages, n_messages, NULL, tokens, error);
    if (status != CL_OK) tokens->n = n_before;
    cl_chat_free(&made);
    return status;
}

/* ---- Sampling ---- */

enum { GGUF_PENALTY_WINDOW = 64 }; /* tokens, as in llama.cpp, if the file has a penalty without one */

/* A number of any type; false: the file has none under this key, or one beyond the limits of requests. */
static bool get_number(const cl_model_file *file, const char *key, double min, double max, double *value) {
    uint64_t whole;
    if (cl_model_file_get_u64(file, key, &whole))
        *value = (double)whole;
    else if (!cl_model_file_get_f64(file, key, value))
        return false;
    return *value >= min && *value <= max;
}

static bool get_float(const cl_model_file *file, const char *key, double min, double max, float *value) {
    double x;
    if (!get_number(file, key, min, max, &x)) return false;
    *value = (float)x;
    return true;
}

bool cl_model_recommended_sampling(const cl_model *m, cl_sampler_params *params, int32_t *penalty_window) {
    static const char WINDOW[] = "general.sampling.penalty_last_n";
    if (!m) return false;
    double top_k, window;
    bool any = get_float(m->file, "general.sampling.temp", 0, 10000, &params->temperature);
    any |= get_float(m->file, "general.sampling.top_p", 0, 1, &params->top_p);
    any |= get_float(m->file, "general.sampling.min_p", 0, 1, &params->min_p);
    if (get_number(m->file, "general.sampling.top_k", -1, INT32_MAX, &top_k)) {
        params->top_k = top_k > 0 ? (int32_t)top_k : 0;
        any = true;
    }
    if (!get_float(m->file, "general.sampling.penalty_repeat", 0.01, 100, &params->repetition_penalty)) return any;
    *penalty_window = GGUF_PENALTY_WINDOW;
    if (cl_model_file_has(m->file, WINDOW)) *penalty_window = INT32_MAX; /* a negative integer */
    if (get_number(m->file, WINDOW, -1, INT32_MAX, &window)) *penalty_window = (int32_t)window;
    return true;
}
