/* The engine's thread, the inbox through which other threads reach it, and the public calls: see engine.h. */
#include "engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn/base/guard.h"
#include "chunkattn/base/signals.h"
#include "grammar_process.h"
#include "inspection.h"
#include "live.h"
#include "scheduler.h"

struct cl_engine {
    uint32_t process;             /* in which its threads are */
    cl_engine_transfers can;      /* constant */
    cl_event_queue events;        /* of requests without on_event */
    cl_scheduler *scheduler;      /* used by the engine's thread only, once that runs */
    cl_engine_limits limits;      /* constant */
    cl_grammar_library *grammars; /* NULL: none */
    ca_pool *own_pool;            /* NULL: the pool is the caller's */
    cl_inspection *due;           /* of the thread: inspections that it has taken and not called yet */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t wake;   /* the thread has something to do */
    cl_request_list inbox; /* submitted, and not seen by the thread yet */
    cl_queue_load arrived; /* the requests that `stats` does not count yet: n_free is what is left for more of them */
    cl_live live;          /* all requests that the thread has not freed */
    bool cancels;          /* a request was cancelled, or a pin ended, since the thread looked last */
    bool resets;           /* the thread has not dropped the retained chunks yet */
    bool stop;
    cl_inspection *inspections; /* posted, and not taken by the thread yet; the last one first */
    bool idle;                  /* the thread waits for `wake`; other threads with the mutex may read the scheduler */
    bool has_budget;            /* the thread has not seen kv_budget yet */
    uint64_t kv_budget;
    uint64_t last_id;
    cl_engine_stats stats; /* after the last step, or of an idle engine when they were read last */
    cattn_stats kv_stats;  /* the same of the cache */
};

/* ---- The thread ---- */

/* Whether a request finds a place at once. */
static bool finds_place(const cl_queue_load *load, const cl_engine_request *r) {
    return load->n_free >= (r->beam_search ? r->n : 1);
}

/* Called with the mutex locked: count a request that has arrived. One that finds a place at once does not count as queued. */
static void count_arrived(cl_engine *e, const cl_request *r) {
    cl_queue_load *load = &e->arrived;
    load->n_waiting++;
    load->n_tokens += r->params.n_prompt;
    if (finds_place(load, &r->params))
        load->n_free -= r->params.n < load->n_free ? r->params.n : load->n_free;
    else {
        load->n_queued++;
        load->n_queued_tokens += r->params.n_prompt;
    }
}

/* Called with the mutex locked: use new statistics, which count all requests but those in the inbox. */
static void set_stats(cl_engine *e, const cl_engine_stats *stats, const cattn_stats *kv_stats, int32_t n_free) {
    e->stats = *stats;
    e->kv_stats = *kv_stats;
    e->arrived = (cl_queue_load){.n_free = n_free};
    for (const cl_request *r = e->inbox.first; r; r = r->next) count_arrived(e, r);
}

static void publish_stats(cl_engine *e) {
    cl_engine_stats stats;
    cattn_stats kv_stats;
    cl_scheduler_get_stats(e->scheduler, &stats, &kv_stats);
    const int32_t n_free = cl_scheduler_n_free(e->scheduler);
    pthread_mutex_lock(&e->mutex);
    set_stats(e, &stats, &kv_stats, n_free);
    pthread_mutex_unlock(&e->mutex);
}

/* Forget and free the requests that have ended. */
static void free_finished(cl_engine *e) {
    cl_request_list *finished = cl_scheduler_finished(e->scheduler);
    pthread_mutex_lock(&e->mutex);
    for (cl_request *r = finished->first; r; r = r->next) cl_live_remove(&e->live, r);
    if (atomic_exchange(&e->events.lost, false)) e->cancels = true;
    pthread_mutex_unlock(&e->mutex);
    while (finished->n > 0) cl_request_free(cl_request_list_take(finished));
}

/* Called with the mutex locked: wait until there is something to do, and make memory resident meanwhile. */
static void wait_for_work(cl_engine *e) {
    bool prefaults = true;
    while (!e->stop && !e->cancels && !e->resets && !e->has_budget && e->inbox.n == 0 && !e->inspections && !e->due &&
           cl_scheduler_idle(e->scheduler)) {
        if (prefaults) {
            pthread_mutex_unlock(&e->mutex);
            prefaults = cl_scheduler_prefault(e->scheduler);
            publish_stats(e);
            pthread_mutex_lock(&e->mutex);
        } else {
            e->idle = true;
            pthread_cond_wait(&e->wake, &e->mutex);
            e->idle = false;
        }
    }
}

static const double MOST_INSPECTING = 1e-3; /* seconds of inspections between two steps, beyond which no other begins */

static void *run(void *arg) {
    cl_engine *e = arg;
    thread_set_name("cl-engine");
    bool stop = false;
    while (!stop) {
        pthread_mutex_lock(&e->mutex);
        wait_for_work(e);
        cl_request_list arrived = e->inbox;
        e->inbox = (cl_request_list){0};
        const bool cancels = e->cancels;
        e->cancels = false;
        stop = e->stop;
        const bool has_budget = e->has_budget;
        const uint64_t kv_budget = e->kv_budget;
        e->has_budget = false;
        const bool resets = e->resets;
        e->resets = false;
        cl_inspections_append(&e->due, &e->inspections);
        pthread_mutex_unlock(&e->mutex);

        while (arrived.n > 0) cl_scheduler_add(e->scheduler, cl_request_list_take(&arrived));
        if (cl_scheduler_drop(e->scheduler, cancels, stop)) {
            cl_scheduler_admit(e->scheduler); /* so that no request that finds a place is counted as waiting */
            publish_stats(e);
            cl_scheduler_report_dropped(e->scheduler);
        }
        if (has_budget) cl_scheduler_set_budget(e->scheduler, kv_budget);
        if (resets) cl_scheduler_reset_cache(e->scheduler);
        cl_inspections_call(&e->due, cl_scheduler_cache(e->scheduler), stop ? INFINITY : MOST_INSPECTING);
        cl_scheduler_step(e->scheduler);
        publish_stats(e); /* all tokens that are reported have been counted */
        cl_scheduler_report(e->scheduler);
        free_finished(e);
        publish_stats(e);
    }
    return NULL;
}

/* Start the thread with all signals blocked: signals belong to the program, which handles them on threads of its own. */
static int start_thread(cl_engine *e) {
    sigset_t before;
    signals_block_all(&before);
    const int failed = pthread_create(&e->thread, NULL, run, e);
    signals_restore(&before);
    return failed;
}

/* ---- Life ---- */

/* Whether processes that are forked inherit the weights of both models. */
static void fork_weights(const cl_model *m, const cl_engine_config *config, bool inherited) {
    cl_weights_fork(&m->weights, inherited);
    if (config->draft_model) cl_weights_fork(&config->draft_model->weights, inherited);
}

/* Open the library of grammars that a configuration names; *grammars is NULL if it names none. */
static cl_status open_grammars(const cl_model *m, const cl_engine_config *config, cl_grammar_library **grammars,
                               cl_error *error) {
    const char *path = config->grammar_library;
    const int32_t n_vocab = m->params.n_vocab;
    *grammars = NULL;
    if (!path) return CL_OK;
    if (config->grammars_in_process) return cl_grammar_open(path, m->tok, n_vocab, false, grammars, error);
    fork_weights(m, config, false);
    const cl_status status =
        cl_grammar_open_processes(cl_grammar_open, path, m->tok, n_vocab, &cl_process_defaults, grammars, error);
    fork_weights(m, config, true);
    return status;
}

/* Lower the context to what the K/V budget holds. CL_ERR_LIMIT: it holds no prompt of one token with its completion. */
static cl_status limit_context(cl_engine_limits *limits, cl_error *error) {
    const int64_t n_ctx = cl_served_context(limits);
    if (n_ctx == limits->n_ctx) return CL_OK;
    if (n_ctx < 2)
        return cl_fail_field(error, CL_ERR_LIMIT, "kv_budget_bytes",
                             "is %llu, which holds no request beside the workspace of steps and pin_bytes; raise it",
                             (unsigned long long)limits->kv_budget_bytes);
    limits->context_reason = ", as many as the K/V budget (kv_budget_bytes, --kv-budget) holds";
    limits->n_ctx = n_ctx;
    return CL_OK;
}

/* Start an engine whose configuration is complete. */
static cl_status start(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_engine **out, cl_error *error) {
    cl_engine *e = calloc(1, sizeof *e);
    if (!e) return cl_fail(error, CL_ERR_NOMEM, "no memory for the engine");
    cl_status status = cl_scheduler_create(m, pool, config, &e->scheduler, error);
    if (status != CL_OK) goto free_engine;
    e->limits = cl_scheduler_limits(e->scheduler);
    status = limit_context(&e->limits, error);
    if (status == CL_OK) status = open_grammars(m, config, &e->grammars, error);
    if (status != CL_OK) goto free_scheduler;
    e->process = ca_process();
    e->can = (cl_engine_transfers){.has_fingerprint = cl_scheduler_has_fingerprint(e->scheduler),
                                   .retains = config->sharing != CATTN_PRIVATE && config->retention != CATTN_RETAIN_NONE};
    cl_event_queue_init(&e->events);
    e->limits.has_grammars = e->grammars;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->wake, NULL);
    publish_stats(e);
    if (start_thread(e) != 0) {
        status = cl_fail(error, CL_ERR_NOMEM, "the engine's thread cannot be started");
        goto free_grammars;
    }
    *out = e;
    return CL_OK;

free_grammars:
    cl_event_queue_free(&e->events);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->mutex);
    if (e->grammars) e->grammars->free(e->grammars);
free_scheduler:
    cl_scheduler_free(&e->scheduler);
free_engine:
    free(e);
    return status;
}

cl_status cl_engine_create_on_pool(const cl_model *m, ca_pool *pool, const cl_engine_config *from, cl_engine **out,
                                   cl_error *error) {
    *out = NULL;
    cl_engine_config config;
    const cl_status status = cl_check_config(from, m, &config, error);
    return status == CL_OK ? start(m, pool, &config, out, error) : status;
}

static cl_status create_pool(const cl_engine_config *config, ca_pool **pool, cl_error *error) {
    const int n_threads = config->n_threads > 0 ? config->n_threads : ca_cpu_count();
    *pool = ca_pool_create(n_threads);
    if (!*pool) return cl_fail(error, CL_ERR_NOMEM, "cannot start %d threads; lower n_threads", n_threads);
    if (!config->pin_threads || ca_pool_pin(*pool)) return CL_OK;
    ca_pool_destroy(pool);
    return cl_fail(error, CL_ERR_ARG,
                   "pin_threads: %d threads cannot be bound to CPUs of their own, of %d that this process may use; lower "
                   "n_threads or clear pin_threads",
                   n_threads, ca_cpu_count());
}

cl_status cl_engine_create(const cl_model *m, const cl_engine_config *from, cl_engine **out, cl_error *error) {
    if (!out) return cl_fail(error, CL_ERR_ARG, "engine is NULL; pass the address of a pointer");
    *out = NULL;
    if (!m) return cl_fail(error, CL_ERR_ARG, "model is NULL; load one with cl_model_load");
    cl_engine_config config;
    ca_pool *pool = NULL;
    cl_status status = cl_check_config(from, m, &config, error);
    if (status == CL_OK) status = create_pool(&config, &pool, error);
    if (status == CL_OK) status = start(m, pool, &config, out, error);
    if (status == CL_OK)
        (*out)->own_pool = pool;
    else
        ca_pool_destroy(&pool);
    return status;
}

/* A child of fork(2) has a copy of the engine in whatever state its threads had left it, with locks that nobody will open. */
static bool is_inherited(const cl_engine *e) { return e->process != ca_process(); }

static cl_status check_process(const cl_engine *e, cl_error *error) {
    if (!is_inherited(e)) return CL_OK;
    return cl_fail(
        error, CL_ERR_UNSUPPORTED,
        "engine was created before fork(2), by the parent of this process, which has none of its threads; destroy it and "
        "create another one");
}

void cl_engine_destroy(cl_engine **ep) {
    cl_engine *e = ep ? *ep : NULL;
    if (!e) return;
    if (is_inherited(e)) {
        cl_scheduler_abandon(e->scheduler);
        *ep = NULL;
        return;
    }
    if (pthread_equal(pthread_self(), e->thread)) return; /* the thread cannot wait for itself */
    pthread_mutex_lock(&e->mutex);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->mutex);
    pthread_join(e->thread, NULL);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->mutex);
    cl_scheduler_free(&e->scheduler);
    if (e->grammars) e->grammars->free(e->grammars);
    ca_pool_destroy(&e->own_pool);
    cl_event_queue_free(&e->events);
    free(e);
    *ep = NULL;
}

/* ---- Requests ---- */

/* Called with the mutex locked: whether the queue accepts a request. */
static cl_status check_queue(const cl_engine *e, const cl_engine_request *r, cl_error *error) {
    if (finds_place(&e->arrived, r)) return CL_OK;
    cl_queue_load load = e->arrived;
    load.n_queued += e->stats.n_waiting;
    load.n_queued_tokens += e->stats.waiting_tokens;
    load.retry_after_s = e->stats.retry_after_s;
    return cl_check_queue(&e->limits, &load, r->n_prompt, error);
}

/*
 * Called with the mutex locked: whether a request is accepted now. Others' queues must not keep out the only one of its domain.
 */
static cl_status check_now(const cl_engine *e, const cl_engine_request *r, cl_error *error) {
    if (e->stop) return cl_fail(error, CL_ERR_UNSUPPORTED, "the engine is stopping; it accepts no more requests");
    return cl_live_has_open(&e->live, r->domain) ? check_queue(e, r, error) : CL_OK;
}

/* Called with the mutex locked: add a request to the list and the inbox. */
static cl_status post(cl_engine *e, cl_request *r, cl_error *error) {
    const cl_status status = check_now(e, &r->params, error);
    if (status != CL_OK) return status;
    if (!cl_live_add(&e->live, r)) return cl_fail(error, CL_ERR_NOMEM, "no memory for another request");
    const double now = cl_now();
    r->submitted = now;
    r->due = cl_request_due(now, r->params.priority);
    r->deadline = r->params.timeout_s > 0 ? now + r->params.timeout_s : INFINITY;
    r->queue_deadline = r->params.queue_timeout_s > 0 ? now + r->params.queue_timeout_s : INFINITY;
    cl_request_list_add(&e->inbox, r);
    count_arrived(e, r);
    pthread_cond_signal(&e->wake);
    return CL_OK;
}

/* Compile a request's grammar, unless the request would be refused now; *grammar is NULL if it has none. */
static cl_status compile_grammar(cl_engine *e, const cl_engine_request *r, cl_grammar **grammar, cl_error *error) {
    *grammar = NULL;
    if (r->grammar_kind == CL_GRAMMAR_NONE) return CL_OK;
    pthread_mutex_lock(&e->mutex);
    const cl_status status = check_now(e, r, error);
    pthread_mutex_unlock(&e->mutex);
    if (status != CL_OK) return status;
    return e->grammars->compile(e->grammars, r->domain, r->grammar_kind, r->grammar, r->grammar_size, grammar, error);
}

cl_status cl_engine_submit(cl_engine *e, const cl_engine_request *from, uint64_t *id, cl_error *error) {
    uint64_t ignored;
    if (!id) id = &ignored;
    *id = 0;
    if (!e || !from) return cl_fail(error, CL_ERR_ARG, "%s is NULL", e ? "request" : "engine");
    cl_engine_request request;
    cl_status status = check_process(e, error);
    if (status == CL_OK) status = cl_check_request(&e->limits, from, &request, error);
    cl_grammar *grammar = NULL;
    if (status == CL_OK) status = compile_grammar(e, &request, &grammar, error);
    if (status != CL_OK) return status;
    cl_request *r = cl_request_create(&request);
    if (!r && grammar) grammar->free(grammar);
    if (!r || (grammar && !cl_request_set_grammar(r, grammar)) ||
        (!request.on_event && !cl_request_set_events(r, &e->events))) {
        cl_request_free(r);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a request of %lld tokens", (long long)request.n_prompt);
    }
    pthread_mutex_lock(&e->mutex);
    r->id = e->last_id + 1;
    status = post(e, r, error);
    if (status == CL_OK) *id = e->last_id = r->id;
    pthread_mutex_unlock(&e->mutex);
    if (status != CL_OK) cl_request_free(r);
    return status;
}

/* Flag a request as cancelled, or its pin as ended. One that has ended and has no pin is not found. */
static void flag(cl_engine *e, uint64_t id, bool unpin) {
    if (!e || is_inherited(e)) return;
    pthread_mutex_lock(&e->mutex);
    cl_request *r = cl_live_find(&e->live, id);
    if (r) {
        atomic_store_explicit(unpin ? &r->unpinned : &r->cancelled, true, memory_order_relaxed);
        e->cancels = true;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->mutex);
}

void cl_engine_cancel(cl_engine *e, uint64_t id) { flag(e, id, false); }

void cl_engine_unpin(cl_engine *e, uint64_t id) { flag(e, id, true); }

cl_status cl_engine_set_kv_budget(cl_engine *e, uint64_t budget_bytes, cl_error *error) {
    if (!e) return cl_fail(error, CL_ERR_ARG, "engine is NULL");
    const cl_status status = check_process(e, error);
    if (status != CL_OK) return status;
    if (budget_bytes > e->limits.kv_budget_bytes)
        return cl_fail(error, CL_ERR_ARG, "budget_bytes is %llu; it must be at most kv_budget_bytes, %llu",
                       (unsigned long long)budget_bytes, (unsigned long long)e->limits.kv_budget_bytes);
    pthread_mutex_lock(&e->mutex);
    e->kv_budget = budget_bytes;
    e->has_budget = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->mutex);
    return CL_OK;
}

/* ---- Polling ---- */

cl_status cl_engine_poll(cl_engine *e, const cl_engine_event **events, size_t max_events, size_t *n_events, cl_error *error) {
    if (!n_events) return cl_fail(error, CL_ERR_ARG, "n_events is NULL");
    *n_events = 0;
    if (!e || (!events && max_events > 0)) return cl_fail(error, CL_ERR_ARG, "%s is NULL", e ? "events" : "engine");
    const cl_status status = check_process(e, error);
    if (status == CL_OK) *n_events = cl_event_queue_take(&e->events, events, max_events);
    return status;
}

cl_status cl_engine_poll_fd(cl_engine *e, int *fd, cl_error *error) {
    if (!e || !fd) return cl_fail(error, CL_ERR_ARG, "%s is NULL", e ? "fd" : "engine");
    *fd = -1;
    const cl_status status = check_process(e, error);
    if (status != CL_OK) return status;
    *fd = cl_event_queue_fd(&e->events);
    return *fd >= 0 ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "the system has no descriptor left for the engine's events");
}

/* ---- The cache ---- */

cl_engine_transfers cl_engine_can_transfer(const cl_engine *e) { return e->can; }

cl_status cl_engine_reset_cache(cl_engine *e, cl_error *error) {
    if (!e) return cl_fail(error, CL_ERR_ARG, "engine is NULL");
    const cl_status status = check_process(e, error);
    if (status != CL_OK) return status;
    pthread_mutex_lock(&e->mutex);
    e->resets = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->mutex);
    return CL_OK;
}

cattn_join_options cl_engine_join_options(const cl_engine *e, const cl_engine_request *r) {
    return cl_scheduler_join_options(e->scheduler, r);
}

cl_status cl_engine_inspect(cl_engine *e, void (*fn)(void *ctx, const cattn_cache *cache), void *ctx, cl_error *error) {
    if (!e || !fn) return cl_fail(error, CL_ERR_ARG, "%s is NULL", e ? "fn" : "engine");
    const cl_status status = check_process(e, error);
    if (status != CL_OK) return status;
    if (pthread_equal(pthread_self(), e->thread)) {
        fn(ctx, cl_scheduler_cache(e->scheduler));
        return CL_OK;
    }
    cl_inspection *inspection = cl_inspection_create(fn, ctx);
    if (!inspection) return cl_fail(error, CL_ERR_NOMEM, "no memory for an inspection");
    pthread_mutex_lock(&e->mutex);
    const bool stops = e->stop;
    if (!stops) cl_inspections_post(&e->inspections, inspection);
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->mutex);
    if (!stops) return CL_OK;
    cl_inspection_free(inspection);
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the engine is stopping; its cache cannot be inspected any more");
}

/* ---- Statistics ---- */

/*
 * Called with the mutex locked: no step refreshes the statistics of an idle engine, but its file tier may still write, which
 * the statistics count.
 */
static void refresh_idle_stats(cl_engine *e) {
    cl_engine_stats stats;
    cattn_stats kv_stats;
    if (!e->idle) return;
    cl_scheduler_get_stats(e->scheduler, &stats, &kv_stats);
    set_stats(e, &stats, &kv_stats, cl_scheduler_n_free(e->scheduler));
}

cl_status cl_engine_get_stats(cl_engine *e, cl_engine_stats *stats) {
    if (!e || !stats) return CL_ERR_ARG;
    if (is_inherited(e)) return CL_ERR_UNSUPPORTED;
    pthread_mutex_lock(&e->mutex);
    refresh_idle_stats(e);
    cl_engine_stats now = e->stats;
    now.n_waiting += e->arrived.n_waiting;
    now.waiting_tokens += e->arrived.n_tokens;
    pthread_mutex_unlock(&e->mutex);
    return CL_STRUCT_WRITE(cl_engine_stats, drafts, stats, &now, NULL);
}

cl_status cl_engine_get_kv_stats(cl_engine *e, cattn_stats *stats) {
    if (!e || !stats) return CL_ERR_ARG;
    if (is_inherited(e)) return CL_ERR_UNSUPPORTED;
    pthread_mutex_lock(&e->mutex);
    refresh_idle_stats(e);
    const cattn_stats now = e->kv_stats;
    pthread_mutex_unlock(&e->mutex);
    return CL_STRUCT_WRITE(cattn_stats, n_nodes, stats, &now, NULL);
}

int64_t cl_engine_n_ctx(const cl_engine *e) { return e ? e->limits.n_ctx : 0; }

const char *cl_engine_context_reason(const cl_engine *e) { return e->limits.context_reason; }

uint64_t cl_engine_device_bytes(const cl_engine *e) { return e->limits.device_bytes; }
