/* Runs a plan: see world.h. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "world_internal.h"

void sim_fail(const world *w, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    w->fail(w->step, format, message);
}

/* ---- Steps ---- */

static void collect_finished(world *w) {
    cl_request_list *finished = cl_scheduler_finished(w->scheduler);
    while (finished->n > 0) {
        cl_request *r = cl_request_list_take(finished);
        client *c = r->params.ctx;
        if (!oracle_is_done(c->oracle)) sim_fail(w, "request %d is finished without its last event", client_number(c));
        w->work_ended += client_work(c);
        c->r = NULL;
        cl_request_free(r);
    }
}

static void submit_due(world *w) {
    for (; w->n_submitted < w->plan->n_requests && w->plan->requests[w->n_submitted].at <= w->step; w->n_submitted++)
        client_submit(&w->clients[w->n_submitted]);
}

static void cancel_due(world *w) {
    for (int64_t i = 0; i < w->n_submitted; i++)
        if (w->clients[i].planned->cancel_at == w->step) client_cancel(&w->clients[i]);
}

/* End the requests that were cancelled, those that are late, or all. */
static void drop(world *w, bool all) {
    enter_engine(w);
    cl_scheduler_drop(w->scheduler, w->cancels, all);
    leave_engine();
    w->cancels = false;
    collect_finished(w);
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *c = &w->clients[i];
        if (c->r && (all || c->cancelled || c->r->deadline <= sim_time)) sim_fail(w, "request %d has not ended", (int)i);
    }
}

/* A step, as the engine's thread does it. */
static void run_step(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    checks_note(w);
    enter_engine(w);
    cl_scheduler_step(w->scheduler);
    leave_engine();
    checks_joined(w, stats.preemptions);
    sim_time += 1e-6 * (double)w->plan->engine.step_us;
    faults_arm(); /* what fails in the step may be reported now */
    cl_scheduler_report(w->scheduler);
    leave_engine();
    collect_finished(w);
    checks_state(w);
    w->counts->steps++;
}

/* Go on to the next step in which something happens. */
static void idle(world *w) {
    enter_engine(w);
    cl_scheduler_prefault(w->scheduler);
    leave_engine();
    const int64_t next = w->n_submitted < w->plan->n_requests ? w->plan->requests[w->n_submitted].at : w->step;
    w->step = next > w->step ? next : w->step + 1;
}

static void run_steps(world *w) {
    const int64_t stop_at = w->plan->engine.stop_at;
    for (;;) {
        const bool stops = stop_at >= 0 && w->step >= stop_at;
        events_due(w);
        if (!stops) submit_due(w);
        cancel_due(w);
        if (stops)
            for (int64_t i = 0; i < w->n_submitted; i++) w->clients[i].cancelled = true;
        drop(w, stops);
        if (!cl_scheduler_idle(w->scheduler)) {
            run_step(w);
            w->step++;
        } else if (stops || w->n_submitted == w->plan->n_requests)
            return;
        else
            idle(w);
    }
}

/* ---- Life ---- */

static void make_config(world *w) {
    const plan_engine *e = &w->plan->engine;
    cl_engine_config *to = &w->config;
    cl_engine_config_init(to);
    for (uint32_t i = 0; i < 4; i++) w->weights[i] = (cl_engine_weight){i, (float)e->weights[i] / 1000};
    to->sharing = (cattn_sharing)e->sharing;
    to->retention = (cattn_retention)e->retention;
    to->kv_type = (cattn_type)e->kv_type;
    to->chunk_size = (int32_t)e->chunk_size;
    to->kv_budget_bytes = (uint64_t)e->kv_budget_bytes;
    to->n_ctx = (int32_t)e->n_ctx;
    to->max_seqs = (int32_t)e->max_seqs;
    to->max_step_rows = (int32_t)e->max_step_rows;
    to->prefill_piece = (int32_t)e->prefill_piece;
    to->target_itl_s = 1e-6 * (double)e->target_us;
    to->max_queued_requests = e->max_queued_requests;
    to->max_queued_tokens = e->max_queued_tokens;
    to->speculate = e->speculation > 0;
    to->draft_model = e->speculation == 2 ? sim_draft_model() : NULL;
    to->row_cost = (float)e->row_cost / 1000;
    to->n_threads = 1;
    to->weights = w->weights;
    to->n_weights = 4;
}

/* Create the scheduler; first once with an allocation that fails. False: the budget is too small. */
static bool create(world *w, ca_pool *pool) {
    cl_engine_config config;
    cl_error error = {.message = ""};
    make_config(w);
    if (cl_check_config(&w->config, sim_model(), &config, &error) != CL_OK) sim_fail(w, "the plan's engine: %s", error.message);
    if (w->plan->engine.create_fault > 0) {
        fault_request(FAULT_ALLOCATION, w->plan->engine.create_fault, 1);
        enter_engine(w);
        cl_status status = cl_scheduler_create(sim_model(), pool, &config, &w->scheduler, &error);
        leave_engine();
        fault_request(FAULT_ALLOCATION, 0, 0);
        if (status == CL_OK && !fault_fired(w)) return true;
        if (status == CL_OK) cl_scheduler_free(&w->scheduler);
        if (w->scheduler) sim_fail(w, "a scheduler that was not created is there");
    }
    const cl_status status = cl_scheduler_create(sim_model(), pool, &config, &w->scheduler, &error);
    if (status != CL_OK && status != CL_ERR_LIMIT) sim_fail(w, "the engine is not created: %s", error.message);
    return status == CL_OK;
}

/* At the end the cache is as empty as it was at the beginning. */
static void check_empty(world *w, uint64_t bytes_before) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    const uint64_t evicted = kv.tokens_evicted;
    for (int i = 0; i < SIM_CACHES; i++)
        if (sim_caches()[i]) cattn_cache_drop_retained(sim_caches()[i], NULL);
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    CHECK(w, kv.n_seqs + kv.n_nodes + kv.tokens_stored + kv.tokens_referenced == 0);
    CHECK(w, kv.chunks_live + kv.chunks_retained + kv.chunks_reserved == 0);
    CHECK(w, kv.bytes_in_use <= bytes_before + 16384); /* arrays of sequences and nodes stay */
    CHECK(w, stats.n_running + stats.n_waiting == 0);
    CHECK(w, stats.completion_tokens >= w->n_completion);
    for (int64_t i = 0; i < w->n_submitted; i++) CHECK(w, !w->clients[i].r);
    w->counts->preemptions += stats.preemptions;
    w->counts->evicted_tokens += (int64_t)evicted;
    w->counts->drafts_accepted += stats.drafts.n_accepted;
}

static void run(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    w->counts->engines++;
    run_steps(w);
    events_end(w);
    check_empty(w, kv.bytes_in_use);
    cl_scheduler_free(&w->scheduler);
}

void world_run(const plan *p, world_counts *counts, world_fail *fail_fn) {
    static ca_pool *pool;
    static world w;
    oracle_prepare();
    if (!pool) pool = ca_pool_create(1);
    assert(pool);
    const int64_t allocated = faults_n_allocated(), fired = faults_n_fired(), rows = sim_n_rows();
    memset(&w, 0, sizeof w);
    w.plan = p;
    w.counts = counts;
    w.fail = fail_fn;
    w.fired_before = fired;
    sim_time = 0;
    sim_set_window((int32_t)p->engine.window);
    sim_row_seconds = 1e-6 * (double)p->engine.row_us;
    for (int i = 0; i < FAULT_KINDS; i++) fault_request((fault_kind)i, 0, 0);
    for (int64_t i = 0; i < p->n_requests; i++) w.clients[i] = (client){.world = &w, .planned = &p->requests[i]};
    if (create(&w, pool)) run(&w);
    for (int64_t i = 0; i < p->n_requests; i++) oracle_free(w.clients[i].oracle);
    counts->faults += faults_n_fired() - fired;
    counts->rows += sim_n_rows() - rows;
    CHECK(&w, faults_n_allocated() == allocated);
}
