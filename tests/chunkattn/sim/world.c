/* Runs a plan: see world.h. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "chunkattn/api/file_tier.h"
#include "chunkattn/tier/io_queue.h"
#include "io_thread.h"
#include "sim_disk.h"
#include "world_internal.h"

void sim_fail(const world *w, const char *format, ...) {
    char message[512];
    va_list args;
    const int n = snprintf(message, sizeof message, "step %lld: ", (long long)w->step);
    va_start(args, format);
    vsnprintf(message + n, sizeof message - (size_t)n, format, args);
    va_end(args);
    plan_fail(format, message);
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
    cl_scheduler_report_dropped(w->scheduler);
    leave_engine();
    w->cancels = false;
    collect_finished(w);
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *c = &w->clients[i];
        if (c->r && (all || c->cancelled || c->r->deadline <= sim_time)) sim_fail(w, "request %d has not ended", (int)i);
    }
}

/* Count a step that has computed no row because the tier reads. */
static void count_wait(world *w, double began) {
    w->n_waits++;
    w->seconds_waited += sim_steady_time() - began;
}

static bool reads(void) {
    ca_tier_stats stats = {0};
    if (world_tier()) ca_tier_get_stats(world_tier(), &stats);
    return stats.n_queued_reads > 0;
}

/* A step, as the engine's thread does it. */
static void run_step(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    checks_note(w);
    const double began = sim_steady_time();
    const int64_t n_rows = sim_n_rows();
    const bool read = reads();
    enter_engine(w);
    cl_scheduler_step(w->scheduler);
    leave_engine();
    checks_joined(w, stats.preemptions);
    sim_time += 1e-6 * (double)w->plan->engine.step_us;
    if (sim_n_rows() == n_rows && (read || reads())) count_wait(w, began);
    io_thread_run();
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
        io_thread_run();
    }
}

/* ---- Life ---- */

/* Takes the place of cattn_cache_create: the tier's file is on the simulated disk. */
cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);
cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error) {
    static const ca_file_tier_hooks hooks = {.files = &sim_disk_files};
    return ca_cache_create(config, &hooks, cache, error);
}

ca_tier *world_tier(void) { return sim_caches()[0] ? sim_caches()[0]->tier : NULL; }

/* Bytes of the tier's file: cells of a header, and of K and V of a chunk at four bytes an element, beside all layers. */
static uint64_t tier_bytes(const plan_engine *e) {
    const uint64_t token_bytes = e->window > 0 ? 512 : 256;
    return (uint64_t)e->tier_cells * (CA_RECORD_HEADER_BYTES + (uint64_t)e->chunk_size * token_bytes);
}

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
    to->prefill_segment = (int32_t)e->prefill_segment;
    to->target_itl_s = 1e-6 * (double)e->target_us;
    to->max_queued_requests = e->max_queued_requests;
    to->max_queued_tokens = e->max_queued_tokens;
    to->speculate = e->speculation > 0;
    to->draft_model = e->speculation == 2 ? sim_draft_model() : NULL;
    to->row_cost = (float)e->row_cost / 1000;
    to->n_threads = 1;
    to->weights = w->weights;
    to->n_weights = 4;
    if (e->tier_cells == 0) return;
    to->kv_tier_dir = "anywhere";
    to->kv_tier_bytes = tier_bytes(e);
}

/* Create a scheduler, again and again while the disk fails. The engine's code does not fail. */
static cl_status create_now(world *w, const cl_engine_config *config, cl_error *error) {
    cl_status status;
    int64_t n_fired;
    do {
        n_fired = faults_n_fired_disk();
        status = cl_scheduler_create(sim_model(), w->pool, config, &w->scheduler, error);
        CHECK(w, (status == CL_OK) == (w->scheduler != NULL));
        CHECK(w, io_thread_exists() == (status == CL_OK && config->kv_tier_dir));
    } while (status != CL_OK && status != CL_ERR_LIMIT && faults_n_fired_disk() > n_fired);
    return status;
}

/* Create the scheduler; first once with an allocation that fails. False: the budget is too small. */
static bool create(world *w) {
    cl_engine_config config;
    cl_error error = {.message = ""};
    make_config(w);
    if (cl_check_config(&w->config, sim_model(), &config, &error) != CL_OK) sim_fail(w, "the plan's engine: %s", error.message);
    if (w->plan->engine.create_fault > 0) {
        fault_request(FAULT_ALLOCATION, w->plan->engine.create_fault, 1);
        enter_engine(w);
        cl_status status = cl_scheduler_create(sim_model(), w->pool, &config, &w->scheduler, &error);
        leave_engine();
        fault_request(FAULT_ALLOCATION, 0, 0);
        if (status == CL_OK && !fault_fired(w)) return true;
        if (status == CL_OK) cl_scheduler_free(&w->scheduler);
        if (w->scheduler) sim_fail(w, "a scheduler that was not created is there");
    }
    const cl_status status = create_now(w, &config, &error);
    if (status != CL_OK && status != CL_ERR_LIMIT) sim_fail(w, "the engine is not created: %s", error.message);
    return status == CL_OK;
}

/* When all requests have ended, nothing in the cache is in use. Counts what the engine did. */
static void check_unused(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    CHECK(w, kv.n_seqs + kv.tokens_referenced + kv.chunks_live + kv.chunks_reserved == 0);
    CHECK(w, stats.n_running + stats.n_waiting == 0);
    CHECK(w, stats.completion_tokens >= w->n_completion);
    for (int64_t i = 0; i < w->n_submitted; i++) CHECK(w, !w->clients[i].r);
    world_counts *c = w->counts;
    c->preemptions += stats.preemptions;
    c->evicted_tokens += (int64_t)kv.tokens_evicted;
    c->drafts_accepted += stats.drafts.n_accepted;
    c->restored_tokens += (int64_t)kv.tokens_restored;
    c->records_written += (int64_t)kv.tier_writes;
    c->records_refused += (int64_t)kv.tier_refused;
    checks_tier(w);
}

/* At the end the cache is as empty as it was at the beginning, but for arrays of sequences, nodes and the tier's queue. */
static void check_empty(world *w, uint64_t bytes_before) {
    cl_engine_stats stats;
    cattn_stats kv;
    check_unused(w);
    for (int i = 0; i < SIM_CACHES; i++)
        if (sim_caches()[i]) cattn_cache_drop_retained(sim_caches()[i], NULL);
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    CHECK(w, kv.n_seqs + kv.n_nodes + kv.tokens_stored + kv.tokens_referenced == 0);
    CHECK(w, kv.chunks_live + kv.chunks_retained + kv.chunks_reserved == 0);
    const uint64_t request_bytes =
        sizeof(ca_request) + sizeof(ca_link) + (uint64_t)(w->config.chunk_size + 1) * sizeof(int32_t);
    const uint64_t queue_bytes = world_tier() ? 2 * kv.chunks_capacity * request_bytes : 0; /* one for each chunk at most */
    CHECK(w, kv.bytes_in_use <= bytes_before + queue_bytes + 16384);
}

void world_restart(world *w, int64_t how) {
    if (how == RESTART_KILL) sim_disk_kill();
    if (how == RESTART_POWER) sim_disk_lose_power();
    for (int64_t i = 0; i < w->n_submitted; i++) {
        w->clients[i].cancelled = true;
        w->clients[i].is_retained = false;
    }
    drop(w, true);
    events_unpin_all(w);
    check_unused(w);
    cl_scheduler_free(&w->scheduler);
    if (how == RESTART_STOP_POWER) sim_disk_lose_power();
    sim_disk_start();
    w->n_completion = 0;
    w->is_short = false;
    w->engine_lowered = false;
    for (int i = 0; i < SIM_CACHES; i++) w->lower_bytes[i] = 0;
    w->counts->restarts++;
    cl_error error = {.message = ""};
    cl_engine_config config;
    if (cl_check_config(&w->config, sim_model(), &config, NULL) != CL_OK || create_now(w, &config, &error) != CL_OK)
        sim_fail(w, "the engine is not created again: %s", error.message);
    checks_tier(w);
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

void world_run(const plan *p, world_counts *counts) {
    static ca_pool *pool;
    static world w;
    oracle_prepare();
    if (!pool) pool = ca_pool_create(1);
    assert(pool);
    const int64_t allocated = faults_n_allocated(), fired = faults_n_fired(), rows = sim_n_rows(),
                  disk_fired = faults_n_fired_disk();
    memset(&w, 0, sizeof w);
    w.plan = p;
    w.counts = counts;
    w.fired_before = fired;
    w.pool = pool;
    sim_time = sim_jumped = 0;
    if (p->engine.tier_cells > 0) sim_disk_reset(tier_bytes(&p->engine), 1e-6 * (double)p->engine.disk_us);
    sim_set_window((int32_t)p->engine.window);
    sim_row_seconds = 1e-6 * (double)p->engine.row_us;
    for (int i = 0; i < FAULT_KINDS; i++) fault_request((fault_kind)i, 0, 0);
    for (int64_t i = 0; i < p->n_requests; i++) w.clients[i] = (client){.world = &w, .planned = &p->requests[i]};
    if (create(&w)) run(&w);
    CHECK(&w, !io_thread_exists());
    for (int64_t i = 0; i < p->n_requests; i++) oracle_free(w.clients[i].oracle);
    counts->faults += faults_n_fired() - fired;
    counts->disk_faults += faults_n_fired_disk() - disk_fired;
    counts->rows += sim_n_rows() - rows;
    CHECK(&w, faults_n_allocated() == allocated);
}
