/* `serve`: runs the HTTP server until a signal ends it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/sandbox.h"
#include "server/server.h"
#include "session.h"

/* Print where the server listens, and a command that sends a request. */
static void print_hello(const char *host, unsigned port, const char *model_name) {
    char url[300];
    /* URLs put IPv6 addresses in brackets. */
    snprintf(url, sizeof url, strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u", host, port);
    printf("chunkllama serves %s at %s (Ctrl-C ends it). Try\n\n"
           "  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}], \"max_tokens\": "
           "64}'\n\n",
           model_name, url, url);
    fflush(stdout);
}

/* Serve until one of the signals `ends` arrives. */
static cl_status serve(const session *s, const server_keys *keys, const options *opt, const sigset_t *ends, cl_error *error) {
    server_config config;
    server_config_init(&config, s->model);
    config.host = opt->host;
    config.port = (uint16_t)opt->port;
    config.model_name = opt->model_name;
    config.keys = keys->n ? keys : NULL;
    config.cors_origin = opt->cors_origin;
    config.request.sampling = session_sampling(opt);
    config.request.has_seed = opt->seed >= 0;
    config.request.max_tokens_chat = opt->max_tokens;
    config.generation_timeout_s = opt->timeout;
    cl_status status = opt->chat_format ? cl_chat_by_name(opt->chat_format, &config.chat, error) : CL_OK;
    server *running = NULL;
    if (status == CL_OK) status = server_start(&config, s->engine, s->model, &running, error);
    if (status == CL_OK && opt->sandbox) status = sandbox_limit_calls(error);
    if (status != CL_OK) {
        server_stop(&running);
        return status;
    }
    print_hello(opt->host, server_port(running), server_model_name(running));
    int signal;
    sigwait(ends, &signal);
    server_stop(&running);
    printf("\nThe server has stopped.\n"); /* the line break ends the line in which a terminal shows ^C */
    return CL_OK;
}

static cl_status read_keys(server_keys *keys, const options *opt, cl_error *error) {
    cl_error cause;
    if (opt->api_key && server_keys_add(keys, OPENAI_DEFAULT_TENANT, opt->api_key, &cause) != CL_OK)
        return cl_fail(error, cause.code, "--api-key: %s", cause.message);
    return opt->api_keys ? server_keys_read(keys, opt->api_keys, error) : CL_OK;
}

/* A thread that ends the program at a signal. */
static void *end_at_signal(void *ends) {
    int signal;
    sigwait(ends, &signal);
    _exit(128 + signal); /* nothing needs an orderly end yet */
}

/* Load the model and start the engine, which may take a while; a signal ends the program meanwhile. */
static cl_status start(session *s, const options *opt, sigset_t *ends, cl_error *error) {
    pthread_t waiting;
    const char *const paths[] = {opt->model, opt->draft_model, NULL};
    if (opt->sandbox && opt->model) {
        const cl_status status = sandbox_limit_files(paths, error);
        if (status != CL_OK) return status;
    }
    if (pthread_create(&waiting, NULL, end_at_signal, ends)) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
    cl_status status = session_load(s, opt, error);
    if (status == CL_OK) status = session_start(s, opt, opt->max_seqs, error);
    pthread_cancel(waiting);
    pthread_join(waiting, NULL);
    return status;
}

int cmd_serve(const options *opt) {
    session s = {0};
    cl_error error;
    server_keys keys = {0};
    cl_status status = read_keys(&keys, opt, &error); /* a signal may still end it, and it is before the sandbox */
    s.weights = keys.weights;
    s.n_weights = keys.n_weights;
    sigset_t ends; /* blocked before any thread starts, so that only sigwait receives them */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    if (status == CL_OK) status = start(&s, opt, &ends, &error);
    if (status == CL_OK) status = serve(&s, &keys, opt, &ends, &error);
    session_close(&s);
    server_keys_free(&keys);
    return status == CL_OK ? 0 : session_fail(CMD_SERVE, &error);
}
