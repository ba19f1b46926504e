/* Runs a load: one thread starts the requests, drives all transfers through libcurl, and polls /metrics. */
#include "client.h"

#include <stdio.h>

#include "chunkattn/base/clock.h"

static const double poll_interval_s = 0.2; /* between polls of /metrics */
static const double progress_interval_s = 0.2;

/* The limit for a page of /metrics: an endpoint may accept a request and never answer, and the run waits for the last page. */
static const long poll_timeout_s = 5;

/* A request on its way. */
typedef struct transfer {
    struct run *run;
    CURL *curl;
    load_reply incoming;
} transfer;

typedef struct run {
    const load_config *config;
    const load_requests *requests;
    load_result *result;
    CURLM *multi;
    double start;       /* clock_seconds() */
    transfer **running; /* [n_running], in any order; has room for all requests */
    size_t n_started, n_running, n_done, n_failed;
    int64_t n_outputs;

    CURL *metrics;                   /* the request for /metrics that is on its way; NULL: none */
    load_buffer page;                /* what has come of the page */
    double next_poll, next_progress; /* seconds after the start */
    bool no_metrics;                 /* the endpoint has no /metrics */
} run;

/* Seconds after the start. */
static double now(const run *r) { return clock_seconds() - r->start; }

/* ---- Requests ---- */

/* libcurl's callback for a piece of a reply's body. */
static size_t on_body(char *bytes, size_t one, size_t size, void *ctx) {
    (void)one;
    transfer *t = ctx;
    long http_status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http_status);
    const int64_t before = t->incoming.n_outputs;
    const bool ok = load_reply_feed(&t->incoming, http_status, bytes, size, now(t->run));
    t->run->n_outputs += t->incoming.n_outputs - before;
    return ok ? size : CURL_WRITEFUNC_ERROR;
}

static cl_status start_request(run *r, cl_error *error) {
    const load_request *request = &r->requests->items[r->n_started];
    load_outcome *o = &r->result->outcomes[r->n_started];
    transfer *t = calloc(1, sizeof *t);
    CURL *curl =
        t ? load_endpoint_request(r->config->target, request->chat ? "/v1/chat/completions" : "/v1/completions", request->body)
          : NULL;
    if (!curl) {
        free(t);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for request %zu", r->n_started);
    }
    *t = (transfer){.run = r, .curl = curl};
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, t);
    o->sent = now(r);
    load_reply_begin(&t->incoming, o, request->chat);
    curl_multi_add_handle(r->multi, curl);
    r->n_started++;
    r->running[r->n_running++] = t;
    if (r->n_running > r->result->most_in_flight) r->result->most_in_flight = r->n_running;
    return CL_OK;
}

/* transport_error: why the transfer failed; NULL: it did not. */
static void end_request(run *r, transfer *t, const char *transport_error) {
    load_outcome *o = t->incoming.result;
    long http_status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http_status);
    load_reply_end(&t->incoming, http_status, transport_error, now(r));
    if (o->end > r->result->seconds) r->result->seconds = o->end;
    r->n_done++;
    r->n_failed += o->status != LOAD_OUTCOME_OK;
    curl_multi_remove_handle(r->multi, t->curl);
    curl_easy_cleanup(t->curl);
    size_t i = 0;
    while (r->running[i] != t) i++;
    r->running[i] = r->running[--r->n_running];
    free(t);
}

/* End the requests that run, and do not send the others. `why` is a sentence for their outcomes. */
static void cut_all(run *r, const char *why) {
    while (r->n_running) {
        load_outcome *o = r->running[0]->incoming.result;
        end_request(r, r->running[0], why);
        o->status = LOAD_OUTCOME_CUT;
    }
    for (; r->n_started < r->requests->n; r->n_started++) {
        load_outcome *o = &r->result->outcomes[r->n_started];
        o->status = LOAD_OUTCOME_CUT;
        snprintf(o->message, sizeof o->message, "%s before it was sent", why);
        r->n_done++;
        r->n_failed++;
    }
}

/* ---- /metrics ---- */

/* libcurl's callback for a piece of a /metrics page. */
static size_t on_page(char *bytes, size_t one, size_t size, void *ctx) {
    (void)one;
    return load_buffer_add(ctx, bytes, size) ? size : CURL_WRITEFUNC_ERROR;
}

static void start_poll(run *r) {
    r->metrics = load_endpoint_request(r->config->target, "/metrics", NULL);
    if (!r->metrics) return;
    load_buffer_clear(&r->page);
    curl_easy_setopt(r->metrics, CURLOPT_WRITEFUNCTION, on_page);
    curl_easy_setopt(r->metrics, CURLOPT_WRITEDATA, &r->page);
    curl_easy_setopt(r->metrics, CURLOPT_PRIVATE, NULL);
    curl_easy_setopt(r->metrics, CURLOPT_TIMEOUT, poll_timeout_s);
    curl_multi_add_handle(r->multi, r->metrics);
}

static void end_poll(run *r, CURLcode code) {
    long http_status = 0;
    curl_easy_getinfo(r->metrics, CURLINFO_RESPONSE_CODE, &http_status);
    if (code == CURLE_OK && http_status == 200 && r->page.size) load_gauges_update(&r->result->peaks, r->page.bytes);
    r->no_metrics = code == CURLE_OK && http_status != 200;
    curl_multi_remove_handle(r->multi, r->metrics);
    curl_easy_cleanup(r->metrics);
    r->metrics = NULL;
    r->next_poll = now(r) + poll_interval_s;
}

/* Read one more page at the end: its peaks date from the endpoint's start, so they include what the polls missed. */
static void last_poll(run *r) {
    int n_left = 1, n_messages;
    if (!r->metrics) start_poll(r);
    while (r->metrics && n_left) {
        if (curl_multi_perform(r->multi, &n_left) != CURLM_OK) break;
        if (n_left) curl_multi_poll(r->multi, NULL, 0, 1000, NULL);
    }
    const CURLMsg *message = curl_multi_info_read(r->multi, &n_messages);
    if (r->metrics) end_poll(r, message ? message->data.result : CURLE_RECV_ERROR);
}

/* ---- The loop ---- */

static void report_progress(run *r) {
    const load_config *c = r->config;
    const load_progress p = {r->n_done, r->n_failed, r->n_running, r->n_outputs, now(r)};
    if (!c->on_progress || p.seconds < r->next_progress) return;
    c->on_progress(c->progress_ctx, &p);
    r->next_progress = p.seconds + progress_interval_s;
}

static bool has_room(const run *r) {
    return r->n_started < r->requests->n &&
           (r->config->max_concurrency == 0 || r->n_running < (size_t)r->config->max_concurrency);
}

/* Milliseconds until the next request or progress report is due, rounded up. */
static int wait_ms(const run *r) {
    double until = now(r) + progress_interval_s;
    if (has_room(r) && r->result->outcomes[r->n_started].due < until) until = r->result->outcomes[r->n_started].due;
    const double ms = 1e3 * (until - now(r));
    return ms > 0 ? (int)ms + 1 : 0;
}

/* End the transfers that libcurl reports as complete. */
static void read_messages(run *r) {
    int n_left;
    for (const CURLMsg *m; (m = curl_multi_info_read(r->multi, &n_left)) != NULL;) {
        if (m->msg != CURLMSG_DONE) continue;
        const CURLcode code = m->data.result;
        transfer *t = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        if (t)
            end_request(r, t, code == CURLE_OK ? NULL : curl_easy_strerror(code));
        else
            end_poll(r, code);
    }
}

/* Start what is due, then let libcurl work until something happens or the next thing is due. */
static cl_status take_turn(run *r, cl_error *error) {
    int n_left;
    if (r->config->watch_gauges && !r->no_metrics && !r->metrics && now(r) >= r->next_poll) start_poll(r);
    while (has_room(r) && r->result->outcomes[r->n_started].due <= now(r)) {
        const cl_status status = start_request(r, error);
        if (status != CL_OK) return status;
    }
    CURLMcode code = curl_multi_perform(r->multi, &n_left);
    read_messages(r);
    if (code == CURLM_OK && r->n_done < r->requests->n) code = curl_multi_poll(r->multi, NULL, 0, wait_ms(r), NULL);
    return code == CURLM_OK ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "libcurl: %s", curl_multi_strerror(code));
}

cl_status load_run(const load_config *config, const load_requests *requests, const double *due, load_result *result,
                   cl_error *error) {
    run r = {.config = config, .requests = requests, .result = result};
    *result = (load_result){.outcomes = calloc(requests->n, sizeof(load_outcome)), .n = requests->n};
    r.running = calloc(requests->n, sizeof *r.running);
    r.multi = curl_multi_init();
    cl_status status = result->outcomes && r.running && r.multi ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for the run");
    for (size_t i = 0; status == CL_OK && i < requests->n; i++) result->outcomes[i].due = due[i];
    r.start = clock_seconds();
    while (status == CL_OK && r.n_done < requests->n) {
        status = take_turn(&r, error);
        report_progress(&r);
        if (config->time_limit_s > 0 && now(&r) >= config->time_limit_s) cut_all(&r, "the time limit came");
        if (config->stop && *config->stop) cut_all(&r, "the run was interrupted");
    }
    if (status == CL_OK && config->watch_gauges && !r.no_metrics) last_poll(&r);
    while (r.n_running) end_request(&r, r.running[0], "the run ended");
    if (r.metrics) end_poll(&r, CURLE_ABORTED_BY_CALLBACK);
    if (r.multi) curl_multi_cleanup(r.multi);
    load_buffer_free(&r.page);
    free(r.running);
    return status;
}

void load_result_free(load_result *result) {
    for (size_t i = 0; i < result->n && result->outcomes; i++) load_outcome_free(&result->outcomes[i]);
    free(result->outcomes);
    result->outcomes = NULL;
    result->n = 0;
}
