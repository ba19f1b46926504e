/* `serve`: runs the HTTP server until a signal ends it. */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/levels.h"
#include "chunkllama/model/device_model.h"
#include "serve.h"
#include "serve/http/sandbox.h"
#include "tier_files.h"
#include "warm.h"

enum { PRINT_MS = 2000 }; /* milliseconds that a text waits to be printed */

/*
 * Print a text, unless nobody takes it for a while: standard output may be a pipe that is full or has no reader any more, which
 * must not keep the server from serving, nor from its end. poll(2) says whether a pipe takes PIPE_BUF bytes, and a terminal,
 * once most of the log's lines before have been read.
 */
__attribute__((format(printf, 1, 2))) static void print(const char *format, ...) {
    char text[PIPE_BUF];
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0 && poll(&out, 1, PRINT_MS) > 0 &&
        write(STDOUT_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text) < 0)
        return; /* nothing depends on it */
}

/* Print where the server listens, and a command that sends a request. */
static void print_hello(const cli_options *opt, unsigned port, const char *model_name, bool grammars) {
    const char *socket = opt->unix_socket, *scheme = opt->tls_cert ? "https" : "http";
    const bool certificate = port && opt->tls_cert;
    char url[300] = "http://localhost";
    /* URLs put IPv6 addresses in brackets. */
    if (port) snprintf(url, sizeof url, strchr(opt->host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", scheme, opt->host, port);
    print(
        "chunkllama serves %s at %s%s%s (Ctrl-C ends it). %s%s\n\n  curl %s%s%s%s%s%s%s/v1/chat/completions -H 'Content-Type: "
        "application/json' \\\n    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}], "
        "\"max_tokens\": 64}'\n\n",
        model_name, port ? url : "", port && socket ? " and " : "", socket ? socket : "",
        grammars ? "" : "It has no grammars, since llguidance was not found. ",
        port && !opt->no_page ? "Open this address in a browser, or try" : "Try", port ? "" : "--unix-socket '",
        port ? "" : socket, port ? "" : "' ", certificate ? "--cacert '" : "", certificate ? opt->tls_cert : "",
        certificate ? "' " : "", url);
}

/* Print that the server has stopped. The line break ends the line in which a terminal shows ^C. */
static void print_end(uint64_t n_lost_lines) {
    print("\nThe server has stopped.\n");
    if (n_lost_lines > 0)
        print("%" PRIu64 " lines at the end of its log are lost, since standard error did not take them.\n", n_lost_lines);
}

void serve_log(const cli_serving *v, log_level level, const char *event, const char *file, const char *reason,
               const char *fix) {
    log_line line;
    if (!log_begin(&line, v->log, level, event)) return;
    log_text(&line, "file", file);
    log_text(&line, "reason", reason);
    log_text(&line, "fix", fix);
    log_end(&line);
}

/* Warn of a K/V budget that is too small for the context, or too large for the machine. */
static void warn_about_budget(const cli_serving *v, uint64_t budget) {
    const cli_session *s = &v->model;
    const int64_t n_ctx = cl_engine_n_ctx(s->engine), wanted = v->opt->ctx ? v->opt->ctx : cl_model_n_ctx(s->model);
    const uint64_t weights = session_weights(s);
    log_line line;
    if (n_ctx < wanted && log_begin(&line, v->log, LOG_LEVEL_WARN, "--kv-budget holds less than a whole context; raise it")) {
        log_integer(&line, "context", n_ctx);
        log_integer(&line, "whole_context", wanted);
        log_end(&line);
    }
    if (budget + weights > s->free_memory &&
        log_begin(&line, v->log, LOG_LEVEL_WARN, "--kv-budget is beyond the memory that is free; lower it")) {
        log_integer(&line, "kv_budget_bytes", (int64_t)budget);
        log_integer(&line, "weights_bytes", (int64_t)weights);
        log_integer(&line, "free_bytes", (int64_t)s->free_memory);
        log_end(&line);
    }
}

/* Log how tokens are drawn for requests that leave it out. */
static void log_sampling(const cli_serving *v, const char *event, bool local) {
    const cli_sampling sampling = session_sampling(&v->model, v->opt, local);
    const cl_sampler_params *p = &sampling.params;
    log_line line;
    if (!log_begin(&line, v->log, LOG_LEVEL_INFO, event)) return;
    log_text(&line, "defaults", sampling.source);
    log_real(&line, "temperature", (double)p->temperature);
    log_integer(&line, "top_k", p->top_k);
    log_real(&line, "top_p", (double)p->top_p);
    log_real(&line, "min_p", (double)p->min_p);
    log_real(&line, "repetition_penalty", (double)p->repetition_penalty);
    log_end(&line);
}

/* The port that the server listens on; -1: none. */
static int port_of(const cli_options *opt) {
    if (opt->port >= 0) return (int)opt->port;
    return opt->unix_socket ? -1 : SERVER_DEFAULT_PORT;
}

/* Log what is in force, and what of it may surprise. */
static void log_start(const cli_serving *v) {
    const cli_session *s = &v->model;
    const cli_options *opt = v->opt;
    server_log *log = v->log;
    cattn_stats kv = {.struct_size = sizeof kv};
    log_line line;
    int level;
    cl_engine_get_kv_stats(s->engine, &kv);
    const int64_t n_ctx = cl_engine_n_ctx(s->engine), trained = cl_model_n_ctx(s->model),
                  n_chunks = (int64_t)kv.chunks_capacity;
    const char *chat = s->chat ? opt->chat_template ? "file" : opt->chat_format : cl_model_chat_format(s->model);
    if (log_begin(&line, log, LOG_LEVEL_INFO, "model")) {
        log_text(&line, "file", opt->model);
        log_integer(&line, "context", n_ctx);
        log_text(&line, "chat_format", chat ? chat : "none");
        log_end(&line);
    }
    if (log_begin(&line, log, LOG_LEVEL_INFO, "cache")) {
        log_integer(&line, "kv_budget_bytes", (int64_t)kv.budget_bytes);
        log_integer(&line, "kv_tokens", n_chunks * opt->chunk_size);
        log_integer(&line, "users_of_whole_context", session_n_users(n_chunks, 0, n_ctx, opt->chunk_size));
        log_integer(&line, "users_of_512_tokens_behind_2048_shared",
                    session_n_users(n_chunks, SHARED_TOKENS, OWN_TOKENS, opt->chunk_size));
        log_end(&line);
    }
    if (s->model->on_device && log_begin(&line, log, LOG_LEVEL_INFO, "device")) {
        log_integer(&line, "number", s->model->on_device->device);
        log_integer(&line, "weights_bytes", (int64_t)s->model->on_device->bytes);
        log_integer(&line, "kv_bytes", (int64_t)kv.budget_bytes);
        log_integer(&line, "workspace_bytes", (int64_t)cl_engine_device_bytes(s->engine));
        log_end(&line);
    }
    if (log_begin(&line, log, LOG_LEVEL_INFO, "engine")) {
        log_integer(&line, "sequences", opt->max_seqs);
        log_integer(&line, "threads", session_n_threads(opt));
        log_text(&line, "level", ca_level_choose(opt->level, &level) == CA_LEVEL_OK ? ca_level_name(level) : NULL);
        log_end(&line);
    }
    log_sampling(v, "sampling of requests", false);
    log_sampling(v, "sampling of the page", true);
    if (trained > 0 && n_ctx > trained && log_begin(&line, log, LOG_LEVEL_WARN, "--ctx is beyond the model's context")) {
        log_integer(&line, "context", n_ctx);
        log_integer(&line, "trained_for", trained);
        log_end(&line);
    }
    warn_about_budget(v, kv.budget_bytes);
    if (!s->grammar_library)
        serve_log(v, LOG_LEVEL_WARN, "requests with a grammar or a JSON schema are refused: llguidance was not found", NULL,
                  NULL, "install libllguidance.so, or name it with --grammar-library");
    if (port_of(opt) >= 0 && !server_is_local(v->running) && v->keys.n == 0)
        serve_log(v, LOG_LEVEL_WARN, "everybody who reaches the port may use the server, since no key is needed", NULL, NULL,
                  "set --api-key or --api-keys, or listen on 127.0.0.1");
    if (!chat)
        serve_log(v, LOG_LEVEL_WARN, "chats are refused: the model has no chat template that can be used", NULL,
                  s->model->chat_error.code != CL_OK ? s->model->chat_error.message : "its file has none",
                  "name one with --chat-template, or a format with --chat-format");
    if (cl_tokenizer_warning(s->model->tok))
        serve_log(
            v, LOG_LEVEL_WARN, "text may become wrong tokens", opt->model, cl_tokenizer_warning(s->model->tok),
            "convert the model again, or name its pre-tokenizer with 'gguf-new-metadata --pre-tokenizer' of Python's gguf");
    if (v->manager.error)
        serve_log(v, LOG_LEVEL_WARN, "the service manager gets no messages", NULL, strerror(v->manager.error),
                  "unset NOTIFY_SOCKET, or let it name a socket that this user may write to");
}

/* Compute the prompts of both files. */
static cl_status warm_up(const cli_serving *v, warm_file *pinned, warm_file *warm, cl_error *error) {
    const cli_session *s = &v->model;
    const server_keys *keys = &v->keys;
    openai_context context = {.model = s->model,
                              .model_name = "",
                              .chat = session_chat(s),
                              .chat_kwargs = s->chat_kwargs,
                              .n_ctx = (int32_t)cl_engine_n_ctx(s->engine),
                              .n_ctx_reason = cl_engine_context_reason(s->engine)};
    openai_defaults_init(&context.defaults);
    context.defaults.parse_special = v->opt->parse_special;
    if (warm_compute(pinned, true, &context, keys, s->engine, error) != CL_OK) return option_fail("pin", error);
    return warm_compute(warm, false, &context, keys, s->engine, error) == CL_OK ? CL_OK : option_fail("warm", error);
}

/* Create the Unix socket, if there is to be one. */
static cl_status open_socket(const cli_options *opt, unix_socket *socket, cl_error *error) {
    char *end;
    const unsigned long mode = strtoul(opt->unix_socket_mode, &end, 8);
    if (*end || end == opt->unix_socket_mode || mode > 0777)
        return cl_fail(error, CL_ERR_ARG, "--unix-socket-mode is '%.40s'; it must be an octal number up to 777, such as 660",
                       opt->unix_socket_mode);
    if (opt->unix_socket && opt->port < 0 && opt->tls_cert)
        return cl_fail(
            error, CL_ERR_ARG,
            "--tls-cert encrypts connections to a port, and with --unix-socket there is none; set --port, or leave out "
            "--tls-cert and --tls-key");
    if (!opt->unix_socket || unix_socket_open(socket, opt->unix_socket, (mode_t)mode, error) == CL_OK) return CL_OK;
    return option_fail("unix-socket", error);
}

/* Open the files that the server reads later, when the sandbox allows no others. */
static cl_status open_files(const cli_options *opt, warm_file *pinned, warm_file *warm, http_pressure **memory,
                            cl_error *error) {
    if (warm_open(pinned, opt->pin, error) != CL_OK) return option_fail("pin", error);
    if (warm_open(warm, opt->warm, error) != CL_OK) return option_fail("warm", error);
    if (opt->memory_pressure && pressure_open(opt->memory_pressure, memory, error) != CL_OK)
        return option_fail("memory-pressure", error);
    return CL_OK;
}

/* Listen, before the model is loaded; jansson is set up then, too. */
static cl_status listen_for(cli_serving *v, cl_error *error) {
    const cli_options *opt = v->opt;
    server_config config;
    if (!opt->model) return session_no_model(error);
    if (openai_names_init(&v->model.names, opt->model_name, opt->model, error) != CL_OK) return error->code;
    server_config_init(&config);
    config.host = port_of(opt) >= 0 ? opt->host : NULL;
    if (config.host) config.port = (uint16_t)port_of(opt);
    config.unix_listener = v->socket.fd;
    config.model_name = v->model.names.names[0];
    config.names = &v->model.names;
    config.model_path = opt->model;
    config.keys = v->keys.n ? &v->keys : NULL;
    config.tls = v->tls;
    config.cors_origin = opt->cors_origin;
    config.allowed_hosts = opt->allowed_hosts;
    config.request_memory = (size_t)opt->request_memory;
    config.no_page = opt->no_page;
    config.can_pin = session_can_pin(opt);
    config.chunk_size = (int32_t)opt->chunk_size;
    config.max_seqs = (int32_t)opt->max_seqs;
    config.request = &v->request;
    config.local = &v->local;
    config.generation_timeout_s = opt->timeout;
    config.queue_timeout_s = opt->queue_timeout;
    config.log = v->log;
    config.log_prompts = opt->log_prompts;
    config.log_load_s = opt->log_load;
    config.metrics_tenants = (int32_t)opt->metrics_tenants;
    config.has_grammars = v->model.grammar_library;
    config.files_dir = opt->files_dir;
    config.max_file_bytes = opt->max_file_bytes;
    config.batch_choices =
        (int32_t)(opt->max_seqs - opt->max_seqs / 4); /* a quarter remains for requests that someone awaits */
    return server_start(&config, &v->running, error);
}

/* Set what requests leave out, as the options and the model say. local: by llama-server's names, and on the page. */
static void set_defaults(const cli_serving *v, bool local, openai_defaults *d) {
    const cli_options *opt = v->opt;
    const cli_sampling sampling = session_sampling(&v->model, opt, local);
    openai_defaults_init(d);
    d->sampling = sampling.params;
    d->penalty_window = sampling.penalty_window;
    d->has_seed = opt->seed >= 0;
    d->max_tokens_chat = opt->max_tokens;
    d->open_objects = opt->open_objects;
    d->pooling = (cl_engine_pooling)opt->pooling;
    d->parse_special = opt->parse_special;
    if (!local) return;
    d->parse_special = true;
    d->max_tokens_completion = -1;
    if (d->sampling.repetition_penalty == 1) d->penalty_window = OPENAI_PENALTY_WINDOW;
}

/* The files in the folder of --kv-tier that no process uses. */
typedef struct stale_files {
    int64_t n, bytes;
    tier_file one; /* of them */
} stale_files;

static void count_stale(void *ctx, int folder, const tier_file *file) {
    stale_files *stale = ctx;
    (void)folder;
    if (file->used) return;
    stale->n++;
    stale->bytes += file->bytes;
    stale->one = *file;
}

/* Log them: they may be of an earlier build or of other options, and nothing removes them by itself. */
static void log_stale(const cli_serving *v) {
    stale_files stale = {0};
    log_line line;
    if (!v->opt->kv_tier || !tier_files_for_each(v->opt->kv_tier, count_stale, &stale) || stale.n == 0) return;
    if (!log_begin(&line, v->log, LOG_LEVEL_INFO, "--kv-tier has files that no process uses")) return;
    log_integer(&line, "files", stale.n);
    log_integer(&line, "bytes", stale.bytes);
    log_text(&line, "one_of_them", stale.one.name);
    log_text(&line, "fix", "list them with chunkllama tier, and remove them with its option --remove");
    log_end(&line);
}

/* Load the model, start the engine and compute prompts, which may take a while. */
static cl_status load(cli_serving *v, warm_file *pinned, warm_file *warm, cl_error *error) {
    cl_status status = session_load(&v->model, v->opt, error);
    if (status == CL_OK) status = session_start(&v->model, v->opt, v->opt->max_seqs, error);
    if (status == CL_OK) log_stale(v);
    return status == CL_OK ? warm_up(v, pinned, warm, error) : status;
}

/* Start the log on standard error, whose thread has the limits of the sandbox's first part. */
static cl_status open_log(const cli_options *opt, server_log **log, cl_error *error) {
    *log = server_log_create(STDERR_FILENO, (log_level)opt->log_level, opt->log_format == 1);
    return *log ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "memory or threads are lacking for the log");
}

/* Between the sandbox's two parts, of which the second one forbids the question. */
static void log_sandbox(const cli_serving *v) {
    log_line line;
    if (!v->opt->sandbox || !log_begin(&line, v->log, LOG_LEVEL_INFO, "sandbox")) return;
    log_integer(&line, "landlock_version", sandbox_landlock_version());
    log_end(&line);
}

static cl_status limit_files(const cli_options *opt, const char *const *paths, cl_error *error) {
    const sandbox_rights rights = {.paths = paths, .tier = opt->kv_tier, .files = opt->files_dir, .port = port_of(opt)};
    return sandbox_limit_files(&rights, error);
}

/*
 * Start to serve. The sandbox's first part comes before any thread, and its second part when no file, thread or socket is
 * needed any more; while the model is loaded, clients are answered with the first alone.
 */
static cl_status start(cli_serving *v, cl_error *error) {
    const cli_options *opt = v->opt;
    cli_session *s = &v->model;
    warm_file pinned = {0}, warm = {0};
    const char *paths[4] = {opt->model}; /* the last one is NULL */
    size_t n_paths = 1;
    if (opt->draft_model) paths[n_paths++] = opt->draft_model;
    if (opt->grammar_library) paths[n_paths++] = opt->grammar_library;
    cl_status status = open_files(opt, &pinned, &warm, &v->memory, error);
    if (status == CL_OK) status = open_socket(opt, &v->socket, error);
    if (status == CL_OK) status = session_read_template(s, opt, error);
    s->free_memory = session_memory(opt).free; /* the sandbox hides it */
    tzset(); /* chat templates may ask for the date, when the file of the time zone cannot be read any more */
    if (status == CL_OK && opt->sandbox && opt->model) status = limit_files(opt, paths, error);
    if (status == CL_OK) status = open_log(opt, &v->log, error);
    if (status == CL_OK) log_sandbox(v);
    if (status == CL_OK) status = serve_signals_start(v, error);
    session_use_grammars(s, opt);
    if (status == CL_OK) status = listen_for(v, error);
    if (status == CL_OK) service_manager_loading(&v->manager);
    if (status == CL_OK) status = load(v, &pinned, &warm, error);
    warm_close(&pinned);
    warm_close(&warm);
    if (status == CL_OK && opt->sandbox) status = sandbox_limit_calls(opt->files_dir, error);
    if (status != CL_OK) return status;
    set_defaults(v, false, &v->request);
    set_defaults(v, true, &v->local);
    serve_signals_set_orderly(v, true);
    log_start(v);
    serve_log_tls(v, "TLS");
    server_serve(v->running, s->engine, s->model, session_chat(s), s->chat_kwargs);
    return CL_OK;
}

int cmd_serve(const cli_options *opt) {
    cli_serving v = {
        .opt = opt, .model.has_log = true, .socket.fd = -1, .keys_file.fd = -1, .cert_file.fd = -1, .key_file.fd = -1};
    cl_error error;
    cl_status status = serve_files_open(&v, &error); /* a signal may still end it, and it is before the sandbox */
    v.model.weights = v.keys.weights;
    v.model.n_weights = v.keys.n_weights;
    int exit_status = 0;
    serve_signals_block(&v);
    service_manager_open(&v.manager);
    if (status == CL_OK) status = start(&v, &error);
    if (status == CL_OK) {
        service_manager_ready(&v.manager);
        print_hello(opt, server_port(v.running), server_model_name(v.running), v.model.grammar_library);
        exit_status = serve_until_end(&v);
    }
    serve_end_waits_for(&v, "the server's threads");
    server_stop(&v.running);
    unix_socket_close(&v.socket);
    serve_end_waits_for(&v, "the engine and the file of --kv-tier");
    session_close(&v.model);
    serve_signals_stop(&v);
    const uint64_t n_lost = server_log_destroy(&v.log);
    if (status == CL_OK) print_end(n_lost);
    pressure_close(&v.memory);
    service_manager_close(&v.manager);
    serve_files_close(&v);
    return status == CL_OK ? exit_status : session_fail(CMD_SERVE, &error);
}
