/* Lets requests come, run and go: see roster.h. */
#include "roster.h"

#include <math.h>
#include <string.h>

#include "beam.h"
#include "live.h"
#include "overtake.h"
#include "turns.h"

bool cl_roster_init(cl_roster *ro, cattn_cache *cache, cl_speculation *sp, const cl_engine_config *config,
                    cl_engine_stats *stats) {
    *ro = (cl_roster){.stats = stats, .first_deadline = INFINITY, .first_queue_deadline = INFINITY};
    if (!cl_admission_init(&ro->admission, cache, sp, config)) return false;
    for (int32_t i = 0; i < config->n_weights; i++)
        if (!cl_queue_set_weight(&ro->queue, config->weights[i].domain, (double)config->weights[i].weight)) return false;
    return true;
}

void cl_roster_free(cl_roster *ro) {
    cl_queue_free(&ro->queue);
    cl_admission_free(&ro->admission);
}

/* ---- Leaving ---- */

/* List a request that has ended: with those that keep a pin, or with those that need nothing any more. */
static void list_ended(cl_roster *ro, cl_request *r) {
    if (r->pin && cl_request_is_unpinned(r)) cattn_cache_unpin(ro->admission.cache, &r->pin, NULL);
    cl_live_end(r);
    if (!r->pin && r->salt) {
        cl_salts_release(&ro->admission.salts, r->salt);
        r->salt = NULL;
    }
    cl_request_list_add(r->pin ? &ro->pinned : &ro->finished, r);
}

void cl_roster_count_prompt(cl_roster *ro, cl_request *r, int64_t n_cached) {
    if (!r->admitted || r->is_counted) return;
    r->is_counted = true;
    ro->stats->prompt_tokens += r->params.n_prompt;
    ro->stats->cached_tokens += n_cached;
}

static void finish(cl_roster *ro, cl_request *r) {
    cl_roster_count_prompt(ro, r, r->n_cached);
    list_ended(ro, r);
    ro->stats->requests_finished++;
}

void cl_roster_let_go(cl_roster *ro, cl_choice *c) {
    cl_admission_leave(&ro->admission, c);
    if (c->owner->n_unfinished > 0) return;
    if (!c->owner->admitted && !c->owner->dropped) ro->waiting_tokens -= c->owner->params.n_prompt;
    cl_queue_forget(&ro->queue, c->owner);
    finish(ro, c->owner);
}

void cl_roster_end_choice(cl_roster *ro, cl_choice *c, cl_engine_finish why, const cl_error *error) {
    cl_choice_end(c, why, error);
    cl_roster_let_go(ro, c);
}

void cl_roster_end_request(cl_roster *ro, cl_request *r, cl_engine_finish why, const cl_error *error) {
    if (cl_request_is_queued(r)) cl_queue_remove(&ro->queue, r);
    for (int32_t i = 0; i < r->params.n; i++)
        if (r->choices[i].finish == CL_ENGINE_RUNNING) cl_roster_end_choice(ro, &r->choices[i], why, error);
}

void cl_roster_end_prompt(cl_roster *ro, cl_choice *c) {
    cl_error error;
    cl_request *r = c->owner;
    const bool ok =
        !r->params.pin || cl_request_is_unpinned(r) || cl_admission_pin(&ro->admission, c, r, r->params.n_prompt, &error);
    cl_roster_end_request(ro, r, ok ? CL_ENGINE_LENGTH : CL_ENGINE_ERROR, ok ? NULL : &error);
}

/* End the pins that were ended, or all. */
static void unpin(cl_roster *ro, bool all) {
    for (int64_t n = ro->pinned.n; n > 0; n--) {
        cl_request *r = cl_request_list_take(&ro->pinned);
        if (all) cattn_cache_unpin(ro->admission.cache, &r->pin, NULL);
        list_ended(ro, r);
    }
}

/* The request whose pin r's pin replaces; NULL: none. */
static cl_request *find_replaced(const cl_roster *ro, const cl_request *r) {
    const cl_engine_request *p = &r->params;
    cl_request *old = p->pin_instead_of ? ro->pinned.first : NULL;
    while (old && old->id != p->pin_instead_of) old = old->next;
    const bool fits = old && cl_request_kv_domain(old) == cl_request_kv_domain(r) && old->n_pinned <= p->pin_tokens &&
                      memcmp(old->params.prompt, p->prompt, (size_t)old->n_pinned * sizeof *p->prompt) == 0;
    return fits ? old : NULL;
}

void cl_roster_pin_prefix(cl_roster *ro, cl_choice *c) {
    cl_error ignored;
    cl_request *r = c->owner;
    if (r->params.pin_tokens == 0 || r->pin_tried || c->shares_none) return;
    if (r->params.pin_tokens > cl_request_n_shareable(r)) return;
    r->pin_tried = true;
    cl_request *old = find_replaced(ro, r);
    if (old) cattn_cache_unpin(ro->admission.cache, &old->pin, NULL);
    const bool ok = cl_admission_pin(&ro->admission, c, r, r->params.pin_tokens, &ignored);
    if (old && !ok) cl_admission_pin(&ro->admission, c, old, old->n_pinned, &ignored); /* it fitted before */
    if (old) unpin(ro, false);
}

/* Find the salt of a request that has one. False if memory is lacking. */
static bool find_salt(cl_roster *ro, cl_request *r) {
    const cl_engine_request *p = &r->params;
    if (p->salt_size == 0) return true;
    r->salt = cl_salts_acquire(&ro->admission.salts, p->domain, p->salt, p->salt_size);
    return r->salt;
}

void cl_roster_add(cl_roster *ro, cl_request *r, bool complete) {
    if (complete && find_salt(ro, r) && cl_queue_add(&ro->queue, r)) {
        ro->waiting_tokens += r->params.n_prompt;
        if (r->deadline < ro->first_deadline) ro->first_deadline = r->deadline;
        if (r->queue_deadline < ro->first_queue_deadline) ro->first_queue_deadline = r->queue_deadline;
        return;
    }
    cl_error error;
    cl_fail(&error, CL_ERR_NOMEM, "no memory for another request in the queue");
    for (int32_t i = 0; i < r->params.n; i++) cl_choice_end(&r->choices[i], CL_ENGINE_ERROR, &error);
    finish(ro, r);
}

/* Whether a request is cancelled or late; one that is neither lowers first_deadline to its own. */
static bool is_dropped(cl_roster *ro, const cl_request *r, bool all, double now) {
    if (all || atomic_load_explicit(&r->cancelled, memory_order_relaxed) || r->deadline <= now) return true;
    if (r->deadline < ro->first_deadline) ro->first_deadline = r->deadline;
    return false;
}

/*
 * Let a request leave whose end is reported later: by then the statistics do not count it any more, so that a client that has
 * its answer does not find its request there.
 */
static void drop(cl_roster *ro, cl_request *r, cl_drop why) {
    if (cl_request_is_queued(r)) cl_queue_remove(&ro->queue, r);
    for (int32_t i = 0; i < r->params.n; i++) cl_admission_leave(&ro->admission, &r->choices[i]);
    if (!r->admitted) ro->waiting_tokens -= r->params.n_prompt;
    r->dropped = why;
    cl_request_list_add(&ro->dropped, r);
}

static void report_dropped(cl_roster *ro, cl_request *r) {
    cl_error error;
    if (r->dropped == CL_DROP_LATE)
        cl_fail(&error, CL_ERR_TIMEOUT, "the request did not end within timeout_s, %g s", r->params.timeout_s);
    if (r->dropped == CL_DROP_NOT_ADMITTED)
        cl_fail(&error, CL_ERR_BUSY, "the request was not admitted within queue_timeout_s, %g s: try again later",
                r->params.queue_timeout_s);
    const bool cancelled = r->dropped == CL_DROP_CANCELLED;
    cl_roster_end_request(ro, r, cancelled ? CL_ENGINE_CANCELLED : CL_ENGINE_ERROR, cancelled ? NULL : &error);
}

void cl_roster_report_dropped(cl_roster *ro) {
    while (ro->dropped.n > 0) report_dropped(ro, cl_request_list_take(&ro->dropped));
}

static cl_drop reason_of(const cl_request *r, double now) { return r->deadline <= now ? CL_DROP_LATE : CL_DROP_CANCELLED; }

void cl_roster_drop(cl_roster *ro, bool cancels, bool all) {
    const double now = isinf(ro->first_deadline) ? 0 : cl_now();
    if (!cancels && !all && now < ro->first_deadline) return;
    ro->first_deadline = INFINITY;
    cl_request_list dropped = {0};
    for (int32_t i = 0; i < ro->admission.n_seqs;) {
        cl_request *r = ro->admission.choices[i]->owner;
        if (is_dropped(ro, r, all, now))
            drop(ro, r, reason_of(r, now)); /* its choices are neighbours */
        else
            i++;
    }
    for (size_t i = 0; i < ro->queue.n_tenants; i++) {
        const cl_tenant *t = ro->queue.tenants[i];
        for (size_t k = 0; k < t->n_waiting; k++)
            if (is_dropped(ro, t->waiting[k], all, now)) cl_request_list_add(&dropped, t->waiting[k]);
    }
    for (cl_request *r; dropped.n > 0; drop(ro, r, reason_of(r, now))) r = cl_request_list_take(&dropped);
    unpin(ro, all);
}

/* ---- Who is in the cache ---- */

static void preempt(cl_roster *ro, cl_choice *c) {
    const int32_t n_before = ro->admission.n_seqs;
    if (!cl_request_is_queued(c->owner)) cl_queue_put(&ro->queue, c->owner);
    cl_admission_preempt(&ro->admission, c);
    ro->stats->preemptions += n_before - ro->admission.n_seqs;
}

bool cl_roster_free_chunks(cl_roster *ro) {
    cl_choice *worst = cl_admission_worst(&ro->admission);
    const bool alone = cl_admission_is_alone(&ro->admission, worst);
    if (alone && cl_admission_use_whole_budget(&ro->admission)) return true;
    /* Beams that advanced since they joined need less when they join again (beam.h). */
    const bool shrinks = worst->owner->beams && worst->n_tokens > worst->n_joined;
    if (alone && worst->shares_none && !shrinks) return false;
    preempt(ro, worst);
    return true;
}

void cl_roster_end_last(cl_roster *ro, const cl_error *error) {
    cl_roster_end_request(ro, cl_admission_worst(&ro->admission)->owner, CL_ENGINE_ERROR, error);
}

void cl_roster_extend(cl_roster *ro) {
    cl_error error;
    for (int32_t i = 0; i < ro->admission.n_seqs;) {
        if (cl_admission_extend(&ro->admission, ro->admission.choices[i], &error)) {
            i++;
            continue;
        }
        if (!cl_roster_free_chunks(ro)) cl_roster_end_last(ro, &error);
        i = 0;
    }
}

/*
 * Preempt a choice of the tenant with the largest share of the cache, if its share without it and one more is larger than that
 * of the tenant of r with the choices that join. So a flood of one tenant does not keep the others waiting, and no two tenants
 * preempt each other in turns. Without this, the first tokens beside a flood take 1.5 to 2.6 times as long
 * (docs/experiments.md, "Scheduling").
 */
static bool make_place(cl_roster *ro, const cl_request *r) {
    cl_choice *worst = cl_admission_worst(&ro->admission);
    const cl_tenant *largest = worst->owner->tenant, *t = r->tenant;
    const int32_t n_left = largest->n_in_cache - cl_request_n_together(worst->owner);
    if (n_left < 1 || cl_tenant_share(largest, n_left + 1) <= cl_tenant_share(t, t->n_in_cache + cl_request_n_together(r)))
        return false;
    preempt(ro, worst);
    ro->admission.full = false;
    return true;
}

static void note_admission(cl_roster *ro, cl_request *r) {
    if (cl_request_n_waiting(r) == 0) cl_queue_remove(&ro->queue, r);
    if (r->admitted) return;
    r->admitted = true;
    r->admitted_at = cl_now();
    ro->waiting_tokens -= r->params.n_prompt;
    ro->recent_tokens += (double)r->params.n_prompt;
}

/* Admit the choice that is next, or end its request if it can never run. False: it goes on waiting, or there is none. */
static bool admit_next(cl_roster *ro) {
    cl_request *first = cl_queue_first(&ro->queue);
    if (!first) return false;
    cl_request *r = cl_turns_choose(&ro->admission, first);
    const bool by_rank = r == first;
    if (by_rank) r = cl_overtake_choose(&ro->admission, r);
    cl_choice *c = cl_request_first_waiting(r);
    cl_admission_answer answer;
    cl_error error;
    do answer = cl_admission_join(&ro->admission, c, &error);
    while (answer == CL_ADMISSION_WAITS && make_place(ro, r));
    if (answer == CL_ADMISSION_JOINED && by_rank) cl_overtake_note(r);
    if (answer == CL_ADMISSION_JOINED) note_admission(ro, r);
    if (answer == CL_ADMISSION_NEVER) cl_roster_end_request(ro, r, CL_ENGINE_ERROR, &error);
    return answer != CL_ADMISSION_WAITS;
}

/* Drop the requests that have waited too long for their first place. */
static void drop_unadmitted(cl_roster *ro) {
    const double now = isinf(ro->first_queue_deadline) ? 0 : cl_now();
    if (now < ro->first_queue_deadline) return;
    ro->first_queue_deadline = INFINITY;
    cl_request_list dropped = {0};
    for (size_t i = 0; i < ro->queue.n_tenants; i++) {
        const cl_tenant *t = ro->queue.tenants[i];
        for (size_t k = 0; k < t->n_waiting; k++) {
            if (t->waiting[k]->admitted) continue;
            if (t->waiting[k]->queue_deadline <= now)
                cl_request_list_add(&dropped, t->waiting[k]);
            else
                ro->first_queue_deadline = fmin(ro->first_queue_deadline, t->waiting[k]->queue_deadline);
        }
    }
    while (dropped.n > 0) drop(ro, cl_request_list_take(&dropped), CL_DROP_NOT_ADMITTED);
}

/* A request may have come during a long step, so it is dropped only if this finds no place for it. */
void cl_roster_admit(cl_roster *ro) {
    while (admit_next(ro)) {
    }
    drop_unadmitted(ro);
}

/* ---- Beams ---- */

/* Let a beam join as a fork; others may leave for it. False: the beams of its request had to leave. */
static bool fork_beam(cl_roster *ro, cl_choice *c) {
    cattn_error cause;
    while (!cl_admission_fork(&ro->admission, c, cl_beams_source(c), &cause)) {
        cl_choice *worst = cl_admission_worst(&ro->admission);
        if (cl_admission_is_alone(&ro->admission, worst) && cl_admission_use_whole_budget(&ro->admission)) continue;
        preempt(ro, worst);
        if (c->owner->n_in_cache == 0) return false;
    }
    return true;
}

void cl_roster_advance(cl_roster *ro, cl_request *r) {
    const bool full = ro->admission.full;
    for (int32_t i = 0; i < r->params.n; i++)
        if (cl_beams_source(&r->choices[i]) != &r->choices[i]) cl_admission_leave(&ro->admission, &r->choices[i]);
    ro->admission.full = full; /* their places are taken again */
    for (int32_t i = 0; i < r->params.n; i++)
        if (cl_beams_source(&r->choices[i]) != &r->choices[i] && !fork_beam(ro, &r->choices[i])) return;
    /* Of sequences that part here, the last one stays in the chunk, so this is the best. */
    for (int32_t k = r->params.n - 1; k >= 0; k--) {
        cl_choice *c = cl_beams_ranked(r, k);
        if (cattn_seq_append(ro->admission.cache, c->seq, &c->tokens[c->n_tokens - 1], 1, NULL) == CATTN_OK) continue;
        preempt(ro, c);
        return;
    }
}
