/* Starts and stops the server. */
#include "server.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "batches.h"
#include "cache.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/signals.h"
#include "chunkllama/common/str.h"
#include "generation.h"
#include "http.h"
#include "log_lines.h"
#include "serve/protocol/json.h"
#include "server_state.h"

void server_config_init(server_config *config) {
    *config = (server_config){
        .host = "127.0.0.1",
        .port = SERVER_DEFAULT_PORT,
        .unix_listener = -1,
        .model_path = "model",
        .max_body_bytes = 16 << 20,
        .request_memory = 512 << 20,
        .max_connections = 1024,
        .timeout_s = 60,
        .chunk_size = 64,
        .max_seqs = 32,
        .max_file_bytes = INT64_C(512) << 20,
        .batch_choices = 24,
        .has_grammars = true,
        .log_load_s = 10,
        .request_timeout_s = 10,
        .prepare_timeout_s = 20,
        .n_threads = 2,
    };
}

/* Seconds between two looks at the file tier, where there are no lines about the load. */
static const double TIER_LOG_S = 10;

static cl_status check(const server_config *c, cl_error *error) {
    assert(c->n_threads >= 1 && c->n_threads <= 64);
    assert(c->max_connections >= c->n_threads && c->max_connections <= 65536);
    assert(c->host || c->unix_listener >= 0);
    assert(c->timeout_s >= 1 && c->request_timeout_s >= 1);
    assert(c->generation_timeout_s >= 0 && c->queue_timeout_s >= 0 && c->log_load_s >= 0);
    assert(!c->model_name || !c->model_name[cl_utf8_valid(c->model_name, strlen(c->model_name))]);
    assert(!c->keys || c->keys->n > 0);
    assert(c->metrics_tenants >= 0 && c->metrics_tenants <= METRICS_MOST_TENANTS);
    assert(c->batch_choices >= 1 && c->max_file_bytes >= 1 && c->max_body_bytes >= 1024);
    if (c->cors_origin && (!*c->cors_origin || strpbrk(c->cors_origin, "\r\n\t")))
        return cl_fail(error, CL_ERR_ARG,
                       "cors_origin is empty or contains control characters; set it to an origin or *, or to NULL");
    return CL_OK;
}

/*
 * Memory of a connection, which bounds the head of a request. libmicrohttpd clears all of it after each request, so an idle
 * connection has all of it in use: with its own default, twice as much, a thousand of them would take 32 MB.
 */
enum { CONNECTION_BYTES = 16 << 10 };

/* GnuTLS's defaults without the versions that RFC 8996 forbids. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"

/*
 * Start libmicrohttpd without a listening socket. The acceptor limits the connections of all threads together, so each thread
 * may have all of them. STRICT refuses HTTP/1.1 without a Host header, as RFC 9112 requires. encryption: NULL: there is none.
 */
static struct MHD_Daemon *start_daemon(http_server *s, const http_tls *encryption) {
    const server_config *c = &s->config;
    struct MHD_OptionItem more[5];
    size_t n = 0;
    if (c->n_threads > 1) /* a pool has at least two threads */
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, c->n_threads, NULL};
    if (encryption) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)tls_cert(encryption)};
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)tls_key(encryption)};
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES};
    }
    more[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    const unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;
    return MHD_start_daemon(flags | (encryption ? MHD_USE_TLS : 0), 0, NULL, NULL, http_on_request, s,
                            MHD_OPTION_EXTERNAL_LOGGER, log_daemon, s, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, s,
                            MHD_OPTION_URI_LOG_CALLBACK, http_on_request_line, s, MHD_OPTION_NOTIFY_COMPLETED,
                            http_on_completed, s, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)((c->max_connections + acceptor_spare(c->max_connections)) * c->n_threads),
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)c->timeout_s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

/* Add a listener, and the daemon of its connections, which is started if no other listener has it yet. */
static void add_listener(http_server *s, acceptor_config *config, struct MHD_Daemon **daemons, int fd,
                         const http_tls *encryption) {
    struct MHD_Daemon **daemon = encryption ? &s->tls_daemon : &s->daemon;
    if (fd < 0) return;
    if (!*daemon) *daemon = start_daemon(s, encryption);
    daemons[config->n_listeners] = *daemon;
    config->listeners[config->n_listeners++] = (acceptor_listener){.fd = fd, .encrypted = encryption};
}

static void stop_daemons(http_server *s) {
    if (s->daemon) MHD_stop_daemon(s->daemon);
    if (s->tls_daemon) MHD_stop_daemon(s->tls_daemon);
}

/* Start the daemons, and the acceptor of their connections from the listening sockets. */
static bool start_serving(http_server *s) {
    const server_config *c = &s->config;
    acceptor_config config = {.max_connections = c->max_connections,
                              .max_spare = acceptor_spare(c->max_connections),
                              .request_timeout_s = c->request_timeout_s,
                              .idle_timeout_s = c->timeout_s,
                              .on_hangup = generation_abandon,
                              .on_refused = log_refused_connection,
                              .ctx = s,
                              .cors_origin = c->cors_origin};
    struct MHD_Daemon *daemons[ACCEPTOR_MAX_LISTENERS] = {NULL};
    add_listener(s, &config, daemons, s->listener, c->tls);
    add_listener(s, &config, daemons, c->unix_listener, NULL);
    bool ok = true;
    for (int i = 0; i < config.n_listeners; i++) ok = ok && daemons[i];
    if (ok) s->arrivals = acceptor_create(&config);
    if (s->arrivals && acceptor_start(s->arrivals, daemons)) return true;
    stop_daemons(s);
    return false;
}

static cl_status fail_start(cl_error *error) {
    return cl_fail(error, CL_ERR_NOMEM, "memory, threads or files are lacking for the server");
}

/* Open the folder of files and start all threads, with all signals blocked, which the program handles on threads of its own. */
static cl_status start_threads(http_server *s, cl_error *error) {
    sigset_t before;
    signals_block_all(&before);
    cl_status status = batches_open(s, error);
    if (status == CL_OK) {
        s->requests = preparer_create(generation_prepare);
        s->grammars = preparer_create(generation_compile);
        if (!s->requests || !s->grammars || !start_serving(s)) status = fail_start(error);
    }
    signals_restore(&before);
    return status;
}

static void server_free(http_server *s) {
    http_destroy_no_memory_replies(s);
    acceptor_destroy(&s->arrivals);
    preparer_destroy(&s->requests); /* it may still add to the next */
    preparer_destroy(&s->grammars);
    batches_close(s);
    metrics_destroy(&s->metrics);
    process_files_close(&s->process);
    pins_destroy(&s->pins);
    keyring_destroy(&s->keys);
    quota_destroy(&s->quotas);
    shares_destroy(&s->memory);
    shares_destroy(&s->transfers);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->freed);
    free(s->model_name);
    free(s);
}

static bool set_quotas(http_server *s, const server_keys *keys) {
    quota_entry *entries = quota_reserve(keys->n_quotas);
    if (entries) quota_set(&s->quotas, entries, keys->quotas, keys->n_quotas, clock_seconds());
    return entries;
}

/* A server that does not run yet; server_free frees it. NULL: memory is lacking. */
static http_server *server_create(const server_config *config, int listener, uint16_t port, int32_t max_connections) {
    http_server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->config = *config;
    s->config.max_connections = max_connections;
    s->port = port;
    s->listener = listener;
    s->is_local = listener >= 0 && listener_is_local(listener);
    s->started_at = (int64_t)time(NULL);
    s->model_name = config->model_name ? strdup(config->model_name) : cl_model_file_name(config->model_path);
    atomic_init(&s->serves, false);
    atomic_init(&s->drains, false);
    atomic_init(&s->stopping, false);
    atomic_init(&s->n_requests, 0);
    atomic_init(&s->n_freed, 0);
    shares_init(&s->memory, config->request_memory);
    shares_init(&s->transfers, BATCHES_MAX_TRANSFERS);
    process_files_open(&s->process);
    const bool has_metrics = metrics_init(&s->metrics, config->metrics_tenants);
    pins_init(&s->pins);
    quota_init(&s->quotas);
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->freed);
    const bool has_keyring = keyring_init(&s->keys, config->keys) && (!config->keys || set_quotas(s, config->keys));
    if (has_metrics && has_keyring && s->model_name && http_create_no_memory_replies(s)) return s;
    server_free(s);
    return NULL;
}

cl_status server_start(const server_config *config, http_server **started, cl_error *error) {
    *started = NULL;
    if (check(config, error) != CL_OK) return CL_ERR_ARG;
    int fd = -1;
    const int32_t n_daemons = config->tls && config->unix_listener >= 0 ? 2 : 1;
    uint16_t port = config->host ? config->port : 0;
    int32_t max_connections = config->max_connections;
    cl_status status = files_fit_connections(config->n_threads, n_daemons,
                                             PROCESS_FILES + (config->files_dir ? BATCHES_FILES : 0), &max_connections, error);
    if (status == CL_OK && config->host) status = listener_open(config->host, &port, &fd, error);
    if (status != CL_OK) return status;
    openai_json_init();
    http_server *s = server_create(config, fd, port, max_connections);
    status = s ? start_threads(s, error) : fail_start(error);
    if (status == CL_OK) {
        *started = s;
        return CL_OK;
    }
    if (s) server_free(s);
    if (fd >= 0) close(fd);
    return status;
}

void server_serve(http_server *s, cl_engine *e, const cl_model *m, const cl_chat *chat, const json_t *chat_kwargs) {
    const server_config *config = &s->config;
    openai_defaults defaults;
    openai_defaults_init(&defaults);
    s->engine = e;
    s->context = (openai_context){.model = m,
                                  .model_name = s->model_name,
                                  .names = s->config.names,
                                  .started_at = s->started_at,
                                  .chat = chat,
                                  .chat_kwargs = chat_kwargs,
                                  .n_ctx = (int32_t)cl_engine_n_ctx(e),
                                  .n_ctx_reason = cl_engine_context_reason(e),
                                  .timeout_s = s->config.generation_timeout_s,
                                  .queue_timeout_s = s->config.queue_timeout_s,
                                  .can_pin = s->config.can_pin,
                                  .defaults = config->request ? *config->request : defaults,
                                  .local = config->local ? *config->local : defaults};
    if (s->batches) worker_serve(s->batches, e, &s->context);
    s->logged.struct_size = sizeof s->logged; /* requests before this, such as pins, are no load */
    cl_engine_get_stats(e, &s->logged);
    s->logged_at = clock_seconds();
    atomic_store_explicit(&s->serves, true, memory_order_release);
}

cl_status server_replace_keys(http_server *s, server_keys *keys, cl_error *error) {
    server_keys quotas = {.quotas = keys->quotas, .n_quotas = keys->n_quotas};
    quota_entry *entries = quota_reserve(quotas.n_quotas);
    if (!entries) return cl_fail(error, CL_ERR_NOMEM, "no memory for the quotas");
    keys->quotas = NULL;
    keys->n_quotas = 0;
    const cl_status status = keyring_replace(&s->keys, keys, error);
    if (status == CL_OK)
        quota_set(&s->quotas, entries, quotas.quotas, quotas.n_quotas, clock_seconds());
    else
        free(entries);
    server_keys_free(&quotas);
    return status;
}

void server_tick(http_server *s) {
    cache_end_pins(s);
    generation_return_memory(s);
}

double server_log_load(http_server *s) {
    const double period = s->config.log_load_s > 0 ? s->config.log_load_s : TIER_LOG_S;
    const double left = s->logged_at + period - clock_seconds();
    if (left > 0) return left;
    log_tier(s);
    log_load(s);
    return period;
}

/* A request is counted before it looks at `drains` (http.c), so either it is refused, or server_n_requests counts it. */
void server_drain(http_server *s) {
    atomic_store(&s->drains, true);
    acceptor_drain(s->arrivals);
    if (s->batches) worker_drain(s->batches);
}

int32_t server_n_requests(const http_server *s) { return atomic_load(&s->n_requests); }

const char *server_model_name(const http_server *s) { return s->model_name; }

uint16_t server_port(const http_server *s) { return s->port; }

bool server_is_local(const http_server *s) { return s->is_local; }

void server_stop(http_server **address) {
    http_server *s = address ? *address : NULL;
    if (!s) return;
    *address = NULL;
    server_drain(s);
    acceptor_stop(s->arrivals);
    if (s->listener >= 0) close(s->listener);
    generation_stop_all(s);
    generation_wait_all(s, 2);
    if (atomic_load(&s->serves)) log_tier(s);
    stop_daemons(s);            /* by now no connection is suspended */
    generation_wait_all(s, -1); /* until the engine's last events, and the preparer's last task */
    server_free(s);
}
