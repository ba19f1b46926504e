/* `serve`: runs the HTTP server until a signal ends it. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/levels.h"
#include "serve.h"
#include "serve/http/sandbox.h"
#include "warm.h"

/* Print where the server listens, and a command that sends a request. */
static void print_hello(const cli_options *opt, unsigned port, const char *model_name) {
    const char *socket = opt->unix_socket, *scheme = opt->tls_cert ? "https" : "http";
    char url[300] = "http://localhost";
    /* URLs put IPv6 addresses in brackets. */
    if (port) snprintf(url, sizeof url, strchr(opt->host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", scheme, opt->host, port);
    printf("chunkllama serves %s at %s%s%s (Ctrl-C ends it). %s\n\n  curl ", model_name, port ? url : "",
           port && socket ? " and " : "", socket ? socket : "",
           port && !opt->no_page ? "Open this address in a browser, or try" : "Try");
    if (!port) printf("--unix-socket '%s' ", socket);
    if (port && opt->tls_cert) printf("--cacert '%s' ", opt->tls_cert);
    printf("%s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}], \"max_tokens\": "
           "64}'\n\n",
           url);
    fflush(stdout);
}

/* Print that the server has stopped. The line break ends the line in which a terminal shows ^C. */
static void print_end(uint64_t n_lost_lines) {
    printf("\nThe server has stopped.\n");
    if (n_lost_lines > 0)
        printf("%" PRIu64 " lines at the end of its log are lost, since standard error did not take them.\n", n_lost_lines);
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
    if (log_begin(&line, log, LOG_LEVEL_INFO, "engine")) {
        log_integer(&line, "sequences", opt->max_seqs);
        log_integer(&line, "threads", session_n_threads(opt));
        log_text(&line, "level", ca_level_choose(opt->level, &level) == CA_LEVEL_OK ? ca_level_name(level) : NULL);
        log_end(&line);
    }
    if (trained > 0 && n_ctx > trained && log_begin(&line, log, LOG_LEVEL_WARN, "--ctx is beyond the model's context")) {
        log_integer(&line, "context", n_ctx);
        log_integer(&line, "trained_for", trained);
        log_end(&line);
    }
    if (!chat)
        serve_log(v, LOG_LEVEL_WARN, "chats are refused: the model has no chat template that can be used", NULL,
                  s->model->chat_error.code != CL_OK ? s->model->chat_error.message : "its file has none",
                  "name one with --chat-template, or a format with --chat-format");
    if (v->manager.error)
        serve_log(v, LOG_LEVEL_WARN, "the service manager gets no messages", NULL, strerror(v->manager.error),
                  "unset NOTIFY_SOCKET, or let it name a socket that this user may write to");
}

static void *end_at_signal(void *arg) {
    const cli_serving *v = arg;
    int signal;
    sigwait(&v->ends, &signal);
    unix_socket_remove(&v->socket);
    _exit(128 + signal); /* nothing else needs an orderly end yet */
}

/* Compute the prompts of both files. */
static cl_status warm_up(const cli_session *s, const server_keys *keys, warm_file *pinned, warm_file *warm, cl_error *error) {
    openai_context context = {.model = s->model,
                              .model_name = "",
                              .chat = session_chat(s),
                              .chat_kwargs = s->chat_kwargs,
                              .n_ctx = (int32_t)cl_engine_n_ctx(s->engine)};
    openai_defaults_init(&context.defaults);
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
    config.host = opt->port >= 0 || !opt->unix_socket ? opt->host : NULL;
    if (opt->port >= 0) config.port = (uint16_t)opt->port;
    config.unix_listener = v->socket.fd;
    config.model_name = v->model.names.names[0];
    config.names = &v->model.names;
    config.model_path = opt->model;
    config.keys = v->keys.n ? &v->keys : NULL;
    config.tls = v->tls;
    config.cors_origin = opt->cors_origin;
    config.no_page = opt->no_page;
    config.can_pin = session_can_pin(opt);
    config.chunk_size = (int32_t)opt->chunk_size;
    config.max_seqs = (int32_t)opt->max_seqs;
    config.request.sampling = session_sampling(opt);
    config.request.has_seed = opt->seed >= 0;
    config.request.max_tokens_chat = opt->max_tokens;
    config.request.pooling = (cl_engine_pooling)opt->pooling;
    config.generation_timeout_s = opt->timeout;
    config.queue_timeout_s = opt->queue_timeout;
    config.log = v->log;
    config.log_prompts = opt->log_prompts;
    config.log_load_s = opt->log_load;
    config.files_dir = opt->files_dir;
    config.max_file_bytes = opt->max_file_bytes;
    config.batch_choices =
        (int32_t)(opt->max_seqs - opt->max_seqs / 4); /* a quarter remains for requests that someone awaits */
    return server_start(&config, &v->running, error);
}

/* Load the model, start the engine and compute prompts, which may take a while; a signal ends the program meanwhile. */
static cl_status load(cli_serving *v, warm_file *pinned, warm_file *warm, cl_error *error) {
    pthread_t waiting;
    if (pthread_create(&waiting, NULL, end_at_signal, v)) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
    cl_status status = session_load(&v->model, v->opt, error);
    session_use_grammars(&v->model, v->opt);
    if (status == CL_OK) status = session_start(&v->model, v->opt, v->opt->max_seqs, error);
    if (status == CL_OK) status = warm_up(&v->model, &v->keys, pinned, warm, error);
    pthread_cancel(waiting);
    pthread_join(waiting, NULL);
    return status;
}

/* Start the log on standard error, whose thread has the limits of the sandbox's first part. */
static cl_status open_log(const cli_options *opt, server_log **log, cl_error *error) {
    *log = server_log_create(STDERR_FILENO, (log_level)opt->log_level, opt->log_format == 1);
    return *log ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "memory or threads are lacking for the log");
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
    tzset(); /* chat templates may ask for the date, when the file of the time zone cannot be read any more */
    if (status == CL_OK && opt->sandbox && opt->model) status = sandbox_limit_files(paths, opt->kv_tier, opt->files_dir, error);
    if (status == CL_OK) status = open_log(opt, &v->log, error);
    if (status == CL_OK) status = listen_for(v, error);
    if (status == CL_OK) service_manager_loading(&v->manager);
    if (status == CL_OK) status = load(v, &pinned, &warm, error);
    warm_close(&pinned);
    warm_close(&warm);
    if (status == CL_OK && opt->sandbox) status = sandbox_limit_calls(opt->files_dir, error);
    if (status != CL_OK) return status;
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
        print_hello(opt, server_port(v.running), server_model_name(v.running));
        exit_status = serve_until_end(&v);
    }
    server_stop(&v.running);
    unix_socket_close(&v.socket);
    const uint64_t n_lost = server_log_destroy(&v.log);
    if (status == CL_OK) print_end(n_lost);
    session_close(&v.model);
    pressure_close(&v.memory);
    service_manager_close(&v.manager);
    serve_files_close(&v);
    return status == CL_OK ? exit_status : session_fail(CMD_SERVE, &error);
}
