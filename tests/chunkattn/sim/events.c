/* Failures, jumps of the clock, changes of the budget, and pins: see world_internal.h. */
#include <string.h>

#include "../cache/check_tree.h"
#include "chunkattn/api/cache_handle.h"
#include "world_internal.h"

static cattn_cache *cache_of(void) { return sim_caches()[0]; }

/* ---- Pins ---- */

/* The n-th choice in the cache whose tokens others may share, or the last one; NULL: there is none. */
static const cl_choice *sharing_choice(const world *w, int64_t n) {
    const cl_choice *last = NULL;
    for (int64_t i = 0; i < w->n_submitted && n >= 0; i++) {
        const cl_request *r = w->clients[i].r;
        for (int32_t k = 0; r && !r->params.prompt_logprobs && k < r->params.n && n >= 0; k++) {
            if (r->choices[k].seq == 0 || r->choices[k].shares_none) continue;
            last = &r->choices[k];
            n--;
        }
    }
    return last;
}

/* Pin what the choice has, less its last tokens. A failure must have changed nothing. */
static void pin(world *w, int64_t n_less) {
    world_pin *p = w->pins;
    while (p < w->pins + PLAN_PINS && p->seq) p++;
    const cl_choice *c = sharing_choice(w, w->step % 3);
    if (p == w->pins + PLAN_PINS || !c) return;
    cattn_seq_info info = {.struct_size = sizeof info};
    CHECK(w, cattn_seq_get_info(cache_of(), c->seq, &info, NULL) == CATTN_OK);
    p->n_tokens = (info.n_ready - n_less) / 2 * 2;
    if (p->n_tokens < 2) return;
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(cache_of(), &stats);
    const uint64_t hash = hash_tree(cache_of()->tree, cache_of()->pool), n_pinned = stats.chunks_pinned;
    enter_engine(w);
    const cattn_status status = cattn_seq_pin(cache_of(), c->seq, p->n_tokens, &p->seq, NULL);
    leave_engine();
    cattn_cache_stats(cache_of(), &stats);
    if (status == CATTN_OK) {
        CHECK(w, p->seq != 0 && stats.chunks_pinned > n_pinned);
        memcpy(p->tokens, c->tokens, (size_t)p->n_tokens * sizeof *p->tokens);
        p->domain = info.domain;
        w->n_pins++;
        w->is_short = true;
        return;
    }
    CHECK(w, p->seq == 0 && stats.chunks_pinned == n_pinned);
    CHECK(w, hash_tree(cache_of()->tree, cache_of()->pool) == hash);
    const bool no_memory = status == CATTN_ERR_NOMEM && fault_fired(w);
    const bool is_private = status == CATTN_ERR_UNSUPPORTED && w->config.sharing == CATTN_PRIVATE;
    if (status != CATTN_ERR_BUDGET && !no_memory && !is_private) sim_fail(w, "a pin was refused without a reason");
}

static void unpin(world *w, world_pin *p) {
    if (p->seq == 0) return;
    enter_engine(w);
    const cattn_status status = cattn_cache_unpin(cache_of(), &p->seq, NULL);
    leave_engine();
    CHECK(w, status == CATTN_OK && p->seq == 0);
    w->n_pins--;
}

int64_t events_n_pinned(const world *w, uint32_t domain, const int32_t *tokens, int64_t n) {
    int64_t most = 0;
    for (const world_pin *p = w->pins; p < w->pins + PLAN_PINS; p++) {
        int64_t same = 0;
        if (p->seq == 0 || p->domain != domain) continue;
        while (same < n && same < p->n_tokens && p->tokens[same] == tokens[same]) same++;
        if (same > most) most = same;
    }
    return most;
}

/* ---- The budget ---- */

static uint64_t budget_of(const world *w, int64_t percent) {
    return percent == 100 ? w->config.kv_budget_bytes : w->config.kv_budget_bytes / 100 * (uint64_t)percent;
}

static void note_bytes(world *w) {
    for (int i = 0; i < SIM_CACHES; i++) {
        cattn_stats stats = {.struct_size = sizeof stats};
        if (sim_caches()[i]) cattn_cache_stats(sim_caches()[i], &stats);
        w->lower_bytes[i] = stats.bytes_in_use;
    }
}

static void set_budget(world *w, int64_t percent) {
    enter_engine(w);
    const cattn_status status = cattn_cache_set_budget(cache_of(), budget_of(w, percent), NULL);
    leave_engine();
    CHECK(w, status == CATTN_OK);
    note_bytes(w);
    if (percent < 100) w->is_short = true;
}

/* The engine knows of this one, so it excuses no error. */
static void set_engine_budget(world *w, int64_t percent) {
    enter_engine(w);
    cl_scheduler_set_budget(w->scheduler, budget_of(w, percent));
    leave_engine();
    note_bytes(w);
    w->engine_lowered = percent < 100;
}

/* ---- Events ---- */

static void jump(double seconds) {
    sim_time += seconds;
    sim_jumped += seconds;
}

void events_due(world *w) {
    const plan *p = w->plan;
    for (; w->next_fault < p->n_faults && p->faults[w->next_fault].at <= w->step; w->next_fault++) {
        const plan_fault *f = &p->faults[w->next_fault];
        switch (f->kind) {
        case EVENT_JUMP: jump((double)f->n / 1000); break;
        case EVENT_BUDGET: set_budget(w, f->n); break;
        case EVENT_ENGINE_BUDGET: set_engine_budget(w, f->n); break;
        case EVENT_PIN: pin(w, f->n); break;
        case EVENT_UNPIN: unpin(w, &w->pins[f->n]); break;
        case EVENT_RESTART: world_restart(w, f->n); break;
        default: fault_request((fault_kind)f->kind, f->n, f->times);
        }
    }
}

void events_unpin_all(world *w) {
    for (world_pin *p = w->pins; p < w->pins + PLAN_PINS; p++) unpin(w, p);
}

void events_end(world *w) {
    events_unpin_all(w);
    set_budget(w, 100);
}
