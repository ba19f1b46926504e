/* Starts threads, model and engine as the options say. */
#include "session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "chunkattn/base/cpu.h"
#include "chunkattn/base/threads.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/engine/grammar.h"
#include "chunkllama/model/device_model.h"
#include "progress.h"

/* The error of an unknown level: "--level is 'mmx'; this CPU has ref, avx2". */
static cl_status level_unknown(const char *level, cl_error *error) {
    char list[128] = "";
    size_t used = 0;
    for (int i = 0; cattn_level_name(i); i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", cattn_level_name(i));
    return cl_fail(error, CL_ERR_ARG, "--level is '%s'; this CPU has %s", level, list);
}

cl_status session_attention_level(const cli_options *opt, const char **level, cl_error *error) {
    *level = NULL;
    if (!opt->level) return CL_OK;
    for (int i = 0; cattn_level_name(i); i++)
        if (strcmp(cattn_level_name(i), opt->level) == 0) *level = cattn_level_name(i);
    return *level ? CL_OK : level_unknown(opt->level, error);
}

int32_t session_n_threads(const cli_options *opt) { return opt->threads ? (int32_t)opt->threads : ca_cpu_count(); }

cl_status session_no_model(cl_error *error) {
    return cl_fail(error, CL_ERR_ARG,
                   "no model; name a GGUF file or a folder of safetensors with --model or in the environment variable "
                   "CHUNKLLAMA_MODEL. docs/models.md says how to get one: ./run.sh of the sources installs a small one, and "
                   "'hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B' downloads another into a folder");
}

cl_status session_read_template(cli_session *s, const cli_options *opt, cl_error *error) {
    if (!opt->chat_template || s->template.data) return CL_OK;
    if (opt->chat_format) return cl_fail(error, CL_ERR_ARG, "--chat-template with --chat-format; leave one of them out");
    return text_buffer_read(&s->template, opt->chat_template, error) == CL_OK ? CL_OK : option_fail("chat-template", error);
}

/* Read the variables of --chat-template-kwargs. */
static cl_status read_kwargs(cli_session *s, const cli_options *opt, cl_error *error) {
    json_error_t wrong;
    if (!opt->chat_kwargs) return CL_OK;
    s->chat_kwargs = cl_json_load(opt->chat_kwargs, strlen(opt->chat_kwargs), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &wrong);
    if (!s->chat_kwargs)
        return cl_fail(error, CL_ERR_ARG, "--chat-template-kwargs is not valid JSON: %s at column %d", wrong.text,
                       wrong.column);
    if (json_is_object(s->chat_kwargs)) return CL_OK;
    return cl_fail(error, CL_ERR_ARG, "--chat-template-kwargs must be a JSON object, such as '{\"enable_thinking\": false}'");
}

/* Make the chat that the options ask for. */
static cl_status load_chat(cli_session *s, const cli_options *opt, cl_error *error) {
    const cl_model *m = s->model;
    cl_status status = session_read_template(s, opt, error);
    if (status == CL_OK) status = read_kwargs(s, opt, error);
    if (status != CL_OK) return status;
    if (opt->chat_template) {
        status = cl_chat_of_template(s->template.data, s->template.size, m->file, m->tok, &s->chat, error);
        return status == CL_OK ? CL_OK : option_fail("chat-template", error);
    }
    if (!opt->chat_format) return CL_OK;
    status = cl_chat_by_name(opt->chat_format, m->file, m->tok, &s->chat, error);
    return status == CL_OK ? CL_OK : option_fail("chat-format", error);
}

int64_t session_n_users(int64_t n_chunks, int64_t shared, int64_t own, int64_t chunk) {
    const int64_t left = n_chunks - (shared + chunk - 1) / chunk;
    const int64_t each = (own + chunk - 1) / chunk + 1; /* the first one is cut */
    return left < each ? 0 : left / each;
}

/* The progress is shown only of models that take longer than this to load. */
static const double QUICK_LOAD_S = 0.5;

static void show_layers(void *ctx, int32_t n_done, int32_t n_layers) {
    cli_progress *p = ctx;
    p->done = (size_t)n_done;
    p->total = (size_t)n_layers;
    p->work_done = n_done;
    p->work = n_layers;
    progress_show(p);
}

static cl_status load_model(cli_session *s, const char *path, const cli_options *opt, bool has_fingerprint, cl_model **model,
                            cl_error *error) {
    cl_model_options options;
    cl_model_options_init(&options);
    options.level = opt->level;
    options.device = opt->device;
    options.fingerprint = has_fingerprint;
    cli_progress p = progress_begin("layers of the model loaded", 0, 0);
    const cl_load_watcher watcher = {show_layers, &p};
    const cl_load_watcher *shown = p.terminal || !s->has_log ? &watcher : NULL;
    if (p.next_s < QUICK_LOAD_S) p.next_s = QUICK_LOAD_S;
    const cl_status status = cl_model_load_watched(path, &options, s->pool, shown, model, error);
    progress_clear(&p);
    return status;
}

cl_status session_load(cli_session *s, const cli_options *opt, cl_error *error) {
    if (!opt->model) return session_no_model(error);
    if (s->free_memory == 0) s->free_memory = session_memory(opt).free;
    const char *level;
    const cl_status status = session_attention_level(opt, &level, error);
    if (status != CL_OK) return status;
    s->pool = ca_pool_create(session_n_threads(opt));
    if (!s->pool) return cl_fail(error, CL_ERR_NOMEM, "cannot start %d threads; lower --threads", session_n_threads(opt));
    if (opt->pin_threads && !ca_pool_pin(s->pool))
        return session_n_threads(opt) > ca_cpu_count()
                   ? cl_fail(error, CL_ERR_ARG,
                             "--pin-threads with %d threads, but this process may use %d CPUs; lower --threads",
                             session_n_threads(opt), ca_cpu_count())
                   : cl_fail(
                         error, CL_ERR_ARG, "%s",
                         "--pin-threads: the system does not allow this process to bind threads to CPUs; leave the option out");
    /* Linear layers accept the names of attention's levels. */
    cl_status loaded = load_model(s, opt->model, opt, opt->kv_tier != NULL, &s->model, error);
    if (loaded == CL_OK) loaded = load_chat(s, opt, error);
    if (loaded != CL_OK || !opt->draft_model) return loaded;
    if (!opt->speculate)
        return cl_fail(error, CL_ERR_ARG, "--draft-model has no effect with --speculate off; leave one of them out");
    return load_model(s, opt->draft_model, opt, false, &s->draft_model, error);
}

bool session_can_pin(const cli_options *opt) { return opt->pin || opt->pin_budget > 0; }

void session_use_grammars(cli_session *s, const cli_options *opt) {
    const char *name;
    s->grammar_library = opt->grammar_library;
    if (!s->grammar_library && cl_grammar_find(&name)) s->grammar_library = name;
}

/* What threads take of the address space: those of the pool, of a server, and of the engine. */
static uint64_t space_of_threads(const cli_options *opt) {
    enum { N_OTHERS = 16 };
    static const uint64_t arena = UINT64_C(64) << 20, most = UINT64_C(8) << 20; /* a heap of glibc; its usual stack */
    struct rlimit stack;
    const bool is_small = getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < most;
    return (uint64_t)(session_n_threads(opt) + N_OTHERS) * (arena + (is_small ? stack.rlim_cur : most));
}

ca_memory session_memory(const cli_options *opt) {
    ca_memory m = ca_memory_read("/proc", "/sys/fs/cgroup");
    const uint64_t threads = space_of_threads(opt);
    const uint64_t left = m.space == UINT64_MAX ? m.space : m.space > threads ? m.space - threads : 0;
    if (left < m.free) m.free = left;
    int32_t device;
    if (cl_device_parse(opt->device, &device, NULL) == CL_OK && device >= 0) m.free = cl_device_memory(device);
    return m;
}

uint64_t session_weights(const cli_session *s) {
    return cl_model_file_memory(s->model->file) + (s->draft_model ? cl_model_file_memory(s->draft_model->file) : 0);
}

/* A quarter of the free memory is left to activations, requests and other programs. */
uint64_t session_kv_budget(const cli_options *opt, uint64_t free_memory, uint64_t weights) {
    static const uint64_t least = UINT64_C(64) << 20, of_unknown = UINT64_C(2) << 30;
    if (opt->kv_budget > 0) return (uint64_t)opt->kv_budget;
    if (free_memory == UINT64_MAX) return of_unknown;
    const uint64_t part = free_memory > weights ? (free_memory - weights) / 4 * 3 : 0;
    return part > least ? part : least;
}

cl_status session_engine_config(const cli_session *s, const cli_options *opt, int64_t max_seqs, cl_engine_config *config,
                                cl_error *error) {
    cl_engine_config_init(config);
    config->sharing = (cattn_sharing)opt->sharing;
    config->retention = (cattn_retention)opt->retention;
    config->kv_type = (cattn_type)opt->kv_type;
    config->kv_budget_bytes = session_kv_budget(opt, s->free_memory, session_weights(s));
    config->kv_tier_dir = opt->kv_tier;
    config->kv_tier_bytes = opt->kv_tier ? (uint64_t)opt->kv_tier_size : 0;
    config->n_ctx = (int32_t)opt->ctx;
    config->max_seqs = (int32_t)max_seqs;
    config->max_step_rows = (int32_t)(opt->max_step_rows > max_seqs ? opt->max_step_rows : max_seqs);
    config->prefill_segment = (int32_t)opt->prefill_segment;
    config->chunk_size = (int32_t)opt->chunk_size;
    config->speculate = opt->speculate != 0;
    config->draft_model = s->draft_model;
    config->grammar_library = s->grammar_library;
    config->grammars_in_process = opt->grammars_in_process;
    config->max_queued_requests = opt->max_queued_requests;
    config->max_queued_tokens = opt->max_queued_tokens;
    config->target_itl_s = opt->target_itl;
    config->weights = s->weights;
    config->n_weights = s->n_weights;
    const bool pins = session_can_pin(opt);
    if (pins && config->sharing == CATTN_PRIVATE)
        return cl_fail(error, CL_ERR_ARG,
                       "%s with --sharing private, where no request finds a pinned prompt; leave one of them out",
                       opt->pin ? "--pin" : "--pin-budget");
    if (pins) config->pin_bytes = opt->pin_budget ? (uint64_t)opt->pin_budget : config->kv_budget_bytes / 4;
    return session_attention_level(opt, &config->level, error);
}

cl_status session_start(cli_session *s, const cli_options *opt, int64_t max_seqs, cl_error *error) {
    cl_engine_config config;
    cl_status status = session_engine_config(s, opt, max_seqs, &config, error);
    if (status != CL_OK) return status;
    status = cl_engine_create_on_pool(s->model, s->pool, &config, &s->engine, error);
    return status == CL_OK ? CL_OK : options_name_field(error);
}

void session_close(cli_session *s) {
    if (s->engine) cl_engine_destroy(&s->engine);
    cl_chat_free(&s->chat);
    json_decref(s->chat_kwargs);
    openai_names_free(&s->names);
    text_buffer_free(&s->template);
    if (s->model) cl_model_free(&s->model);
    if (s->draft_model) cl_model_free(&s->draft_model);
    if (s->pool) ca_pool_destroy(&s->pool);
}

const cl_chat *session_chat(const cli_session *s) { return s->chat ? s->chat : s->model->chat; }

cl_status session_require_chat(const cli_session *s, const cl_chat **chat, cl_error *error) {
    *chat = session_chat(s);
    if (*chat) return CL_OK;
    const cl_error *cause = &s->model->chat_error;
    if (cause->code != CL_OK) return cl_fail(error, cause->code, "%s", cause->message);
    return cl_fail(error, CL_ERR_ARG,
                   "the model's file has no chat template; name one with --chat-template or a format with --chat-format");
}

/* The sampling of options that are left out. */
static cli_sampling default_sampling(const cli_session *s, const cli_options *opt, bool local) {
    cli_sampling sampling = {.penalty_window = -1, .source = "openai"};
    cl_sampler_params *p = &sampling.params;
    cl_sampler_params_init(p);
    if (opt->sampling_defaults == SAMPLING_OF_OPENAI) return sampling;
    if (cl_model_recommended_sampling(s->model, p, &sampling.penalty_window)) {
        sampling.source = "model";
    } else if (local) {
        sampling.source = "llama.cpp";
        p->temperature = 0.8f;
        p->top_k = 40;
        p->top_p = 0.95f;
        p->min_p = 0.05f;
    }
    return sampling;
}

static uint64_t seed_of(const cli_options *opt) {
    struct timespec now;
    if (opt->seed >= 0) return (uint64_t)opt->seed;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
}

static void set_number(float *value, double option) {
    if (!isnan(option)) *value = (float)option;
}

cli_sampling session_sampling(const cli_session *s, const cli_options *opt, bool local) {
    cli_sampling sampling = default_sampling(s, opt, local);
    cl_sampler_params *p = &sampling.params;
    set_number(&p->temperature, opt->temperature);
    set_number(&p->top_p, opt->top_p);
    set_number(&p->min_p, opt->min_p);
    set_number(&p->repetition_penalty, opt->repetition_penalty);
    if (opt->top_k != OPTION_UNSET) p->top_k = (int32_t)opt->top_k;
    if (!isnan(opt->repetition_penalty)) sampling.penalty_window = -1;
    p->presence_penalty = (float)opt->presence_penalty;
    p->frequency_penalty = (float)opt->frequency_penalty;
    p->seed = seed_of(opt);
    return sampling;
}

int session_fail(cli_command_id cmd, const cl_error *error) {
    fprintf(stderr, "chunkllama %s: %s\n", commands[cmd].name, error->message);
    return 1;
}
