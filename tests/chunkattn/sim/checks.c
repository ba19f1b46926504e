/* Invariants that hold in every run: see world_internal.h. */
#include <math.h>
#include <string.h>

#include "../cache/check_tree.h"
#include "chunkattn/api/cache_handle.h"
#include "chunkattn/cache/tree_internal.h"
#include "chunkllama/engine/overtake.h"
#include "io_thread.h"
#include "sim_disk.h"
#include "world_internal.h"

void checks_note(world *w) {
    for (int64_t i = 0; i < w->n_submitted; i++) {
        client *c = &w->clients[i];
        c->n_in_cache = c->r ? c->r->n_in_cache : 0;
        c->n_waiting = c->r ? cl_request_n_waiting(c->r) : 0;
        c->admitted = c->r && c->r->admitted;
        c->served = c->r ? c->r->tenant->served : 0;
    }
}

/*
 * Whether c must enter the cache before other, if both wait. Between tenants with equal counters the shares decide, which every
 * join changes (tests/chunkllama/engine/test_queue.c).
 */
static bool is_next(const client *c, const client *other) {
    return c->r->tenant == other->r->tenant ? cl_request_is_before(c->r, other->r) : c->served < other->served;
}

/* Whether choices of c joined in this step, and other, which is before it in the queue, waits still. */
static bool has_overtaken(const client *c, const client *other) {
    return c != other && other->r && other->n_waiting > 0 && cl_request_n_waiting(other->r) > 0 && is_next(other, c);
}

/*
 * Whether a request, which is a family of its own here, may have had half of what its tenant had in the cache when choices
 * joined in this step: it took turns then (turns.h). At least those choices were in the cache that are so before and after the
 * step.
 */
static bool takes_turns(const world *w, const client *c) {
    const int32_t n = c->n_in_cache > c->r->n_in_cache ? c->n_in_cache : c->r->n_in_cache;
    int32_t n_of_tenant = 0;
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *k = &w->clients[i];
        if (!k->r || k->r->tenant != c->r->tenant) continue;
        n_of_tenant += k->n_in_cache < k->r->n_in_cache ? k->n_in_cache : k->r->n_in_cache;
    }
    return n > 0 && 2 * n >= n_of_tenant;
}

/* Count the choices of c that have overtaken another request of its tenant, within the bound of overtake.h. */
static void check_overtaken(world *w, const client *c, client *other) {
    if (takes_turns(w, other)) return;
    other->n_overtaken += c->r->n_in_cache - c->n_in_cache;
    if (other->admitted || other->r->params.priority != c->r->params.priority || other->n_overtaken > CL_OVERTAKE_MAX)
        sim_fail(w, "request %d has overtaken request %d", client_number(c), client_number(other));
}

/*
 * If a choice joined in this step, nobody who is before it in the queue waits still, but for the few of its tenant that it may
 * overtake. In relation to other tenants it then stands for these.
 */
static void check_order(world *w) {
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *c = &w->clients[i];
        bool overtakes = false;
        if (!c->r || c->r->n_in_cache <= c->n_in_cache) continue;
        for (int64_t k = 0; k < w->n_submitted; k++) {
            client *other = &w->clients[k];
            if (!has_overtaken(c, other) || other->r->tenant != c->r->tenant) continue;
            check_overtaken(w, c, other);
            overtakes = true;
        }
        for (int64_t k = 0; k < w->n_submitted; k++) {
            const client *other = &w->clients[k];
            if (!has_overtaken(c, other) || other->r->tenant == c->r->tenant || (overtakes && other->served == c->served))
                continue;
            sim_fail(w, "request %d has overtaken request %d of another tenant", client_number(c), client_number(other));
        }
    }
}

static int64_t common_prefix(const client *c, const int32_t *tokens, int64_t n) {
    int64_t same = 0;
    while (same < n && same < c->request.n_prompt && c->prompt[same] == tokens[same]) same++;
    return same;
}

/*
 * Whether joins find all that was ever computed. They may find less if something was evicted, or if the copies that sharing
 * takes exceed the budget.
 */
static bool keeps_all(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    const uint64_t n_used = kv.chunks_live + kv.chunks_retained + kv.chunks_reserved;
    const uint64_t n_context = (uint64_t)(w->config.n_ctx / w->config.chunk_size) + 1;
    return w->config.retention != CATTN_RETAIN_NONE && w->config.sharing != CATTN_PRIVATE && kv.tokens_evicted == 0 &&
           faults_n_fired() == w->fired_before && !w->is_short &&
           n_used + n_context + kv.chunks_capacity / 8 < kv.chunks_capacity;
}

static bool is_lowered(const world *w) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(sim_caches()[0], &stats);
    return stats.budget_bytes < w->config.kv_budget_bytes;
}

/* Whether requests share what they compute. */
static bool share(const client *a, const client *b) {
    return a->planned->domain == b->planned->domain && a->planned->salt == b->planned->salt;
}

/* What was found in the cache is what an earlier request that shares has computed: no more, and no less if all is kept. */
static void check_cached(world *w, const client *c) {
    int64_t most = 0, least = 0;
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *other = &w->clients[i];
        if (other == c || !other->oracle || !share(other, c)) continue;
        const int64_t retained = other->is_retained ? common_prefix(c, other->prompt, other->request.n_prompt) : 0;
        if (retained > least) least = retained;
        for (int32_t k = 0; k < other->request.n; k++) {
            int64_t n;
            const int32_t *tokens = oracle_tokens(other->oracle, k, &n);
            int64_t same = common_prefix(c, tokens, n);
            /* A choice may be cancelled before all tokens of a draft that were accepted are reported; the cache has them. */
            if (other->cancelled && same == n) same += CL_DRAFT_MAX;
            /* The tokens of beams are in the cache before any is reported, and those of beams that were left. */
            if (other->request.beam_search && same >= other->request.n_prompt) same = c->request.n_prompt;
            if (same > most) most = same;
        }
    }
    if (most > c->request.n_prompt - 1) most = c->request.n_prompt - 1;
    if (least > c->request.n_prompt - 1) least = c->request.n_prompt - 1;
    const int64_t n_shareable = w->config.sharing == CATTN_PRIVATE ? 0 : cl_request_n_shareable(c->r);
    if (most > n_shareable) most = n_shareable;
    if (least > n_shareable) least = n_shareable;
    int64_t n_pinned = events_n_pinned(w, cl_request_kv_domain(c->r), c->prompt, c->request.n_prompt - 1);
    if (n_pinned > n_shareable) n_pinned = n_shareable;
    for (int32_t k = 0; k < c->request.n; k++)
        if (c->r->choices[k].shares_none) n_pinned = 0;
    /*
     * With a lower budget, a longer prefix that is retained may be found instead, which leaves the pinned one within its last
     * chunk, and is then given up for lack of chunks.
     */
    if (c->r->n_cached < n_pinned - n_pinned % (is_lowered(w) ? w->config.chunk_size : 2))
        sim_fail(w, "request %d has found %lld tokens where %lld are pinned", client_number(c), (long long)c->r->n_cached,
                 (long long)n_pinned);
    w->counts->cached_tokens += c->r->n_cached;
    if (c->r->n_cached > most)
        sim_fail(w, "request %d has found %lld tokens where there are %lld", client_number(c), (long long)c->r->n_cached,
                 (long long)most);
    if (c->r->n_cached < least - least % 2 && keeps_all(w))
        sim_fail(w, "request %d has found %lld tokens, and %lld were computed before", client_number(c),
                 (long long)c->r->n_cached, (long long)least);
}

void checks_joined(world *w, int64_t preemptions_before) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    if (stats.preemptions == preemptions_before && !fault_fired(w)) check_order(w);
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *c = &w->clients[i];
        if (c->r && c->r->admitted && !c->admitted) check_cached(w, c);
    }
}

/*
 * Memory in use stays within the budget, except that slabs with a live chunk cannot be returned, whatever their other chunks
 * are, and that an append within its reservation may add two nodes (docs/library.md, "Memory").
 */
static void check_cache(const world *w, cattn_cache *cache) {
    check_tree(cache->tree, cache->pool, &cache->layout);
    cattn_stats s = {.struct_size = sizeof s};
    cattn_cache_stats(cache, &s);
    const uint64_t node_bytes = sizeof(ca_node) + 4 * sizeof(int32_t) * SIM_CONTEXT;
    const uint64_t slab_bytes = ca_chunk_pool_bytes(cache->pool),
                   used_bytes = (s.chunks_live + s.chunks_reserved) * s.chunk_bytes;
    const uint64_t spare_bytes = slab_bytes > used_bytes ? slab_bytes - used_bytes : 0;
    uint64_t limit = s.budget_bytes;
    const uint64_t lower_bytes = w->lower_bytes[cache != sim_caches()[0]];
    const uint64_t table_bytes = cache->tree->seqs_capacity * sizeof(ca_seq_ref); /* which may double before a refusal */
    if (lower_bytes > 0 && lower_bytes + table_bytes > limit) limit = lower_bytes + table_bytes;
    if (cache == sim_caches()[0] && w->engine_lowered && w->config.kv_budget_bytes > limit) limit = w->config.kv_budget_bytes;
    if (s.bytes_in_use > limit + spare_bytes + 2 * s.n_seqs * node_bytes)
        sim_fail(w, "the cache has %llu bytes, and its budget is %llu", (unsigned long long)s.bytes_in_use,
                 (unsigned long long)s.budget_bytes);
}

/*
 * Nobody starves. Each step computes a row, and a row is computed again only after a preemption. So a request ends before the
 * rows of all requests that compete with it have been computed a few times. Steps that only wait for the tier do not count,
 * but each record that they wait for takes the place of rows, and a few calls of the disk at most.
 */
static void check_progress(world *w) {
    enum { TIMES = 4, SLACK = 50, FAULT_STEPS = 20, CALLS = 4 };
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *c = &w->clients[i];
        if (!c->r) continue;
        const int64_t n_waits = w->n_waits - c->waits_before, steps = w->step - c->submitted_at - n_waits;
        const int64_t bound = TIMES * (w->work_submitted + c->work_before) + SLACK + FAULT_STEPS * w->plan->n_faults;
        const int64_t part = 1000 * steps / bound;
        if (part > w->counts->longest_wait) w->counts->longest_wait = part;
        if (part > 1000) sim_fail(w, "request %d has not ended after %lld steps", (int)i, (long long)steps);
        const double waited = w->seconds_waited - c->waited_before;
        const double steps_took = 1e-6 * (double)(n_waits * (w->plan->engine.step_us + 1));
        if (waited > (double)bound * CALLS * io_thread_longest_wait() + steps_took)
            sim_fail(w, "request %d waits for the disk: %.3f s", (int)i, waited);
    }
}

/*
 * Of two tenants that both have waiting requests, none is far ahead: one that is ahead gets no further choices into the cache,
 * and those that it has there get at most all that they may.
 */
static void check_tenants(world *w) {
    const double most = (double)(w->config.max_seqs * (int64_t)w->config.n_ctx + w->config.max_step_rows);
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const client *a = &w->clients[i];
        if (!a->r || a->n_waiting == 0 || cl_request_n_waiting(a->r) == 0) continue;
        const cl_tenant *ahead = a->r->tenant;
        for (int64_t k = 0; k < w->n_submitted; k++) {
            const client *b = &w->clients[k];
            if (!b->r || b->r->tenant == ahead || cl_request_n_waiting(b->r) == 0) continue;
            const double lead = ahead->served - b->r->tenant->served;
            const double part = lead * fmin(ahead->weight, b->r->tenant->weight) / most;
            if (1000 * part > (double)w->counts->largest_lead) w->counts->largest_lead = (int64_t)(1000 * part);
            if (part > 1) sim_fail(w, "the tenant of request %d is ahead of that of request %d", (int)i, (int)k);
        }
    }
}

/* The statistics count the requests that have not ended, and the prompts of those that were never in the cache. */
static void check_stats(world *w) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    int64_t n_live = 0, n_running = 0, n_tokens = 0;
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const cl_request *r = w->clients[i].r;
        if (!r) continue;
        n_live++;
        n_running += r->n_in_cache > 0;
        if (!r->admitted) n_tokens += r->params.n_prompt;
    }
    CHECK(w, stats.n_running + stats.n_waiting == n_live);
    CHECK(w, stats.n_running == n_running);
    CHECK(w, stats.waiting_tokens == n_tokens);
}

/* ---- The file tier ---- */

/* Whether a cell of the file has a whole record that the tier finds by its key, which is *key then. */
static bool is_found(ca_tier *tier, const uint8_t *cell, ca_tier_key *key) {
    static ca_record_header header;
    memcpy(&header, cell, sizeof header);
    const ca_record_format *format = ca_tier_format(tier);
    *key = header.key;
    return ca_record_header_valid(format, &header) && ca_tier_has(tier, header.key) &&
           ca_record_valid(format, &header, cell + CA_RECORD_HEADER_BYTES, header.parent, header.tokens);
}

/* The number of records that are found in the file; some may be there twice, of which the tier lists one. */
static uint64_t count_found(ca_tier *tier, size_t cell_bytes) {
    enum { MOST = 4 * PLAN_TIER_CELLS }; /* records of small K/V are smaller than the cells that the plan counts */
    static ca_tier_key keys[MOST];
    uint64_t n = 0;
    for (uint64_t at = 0; at + cell_bytes <= sim_disk()->size && n < MOST; at += cell_bytes) {
        uint64_t i = 0;
        if (!is_found(tier, sim_disk()->bytes + at, &keys[n])) continue;
        while (!ca_tier_key_equal(keys[i], keys[n])) i++;
        n += i == n;
    }
    return n;
}

void checks_tier(const world *w) {
    ca_tier *tier = world_tier();
    if (!tier) return;
    const sim_disk_state *disk = sim_disk();
    ca_tier_stats stats;
    ca_tier_get_stats(tier, &stats);
    const uint64_t n_found = count_found(tier, stats.cell_bytes);
    if (!disk->has_lied && n_found != stats.n_records)
        sim_fail(w, "the tier lists %llu records, and the file has %llu of them", (unsigned long long)stats.n_records,
                 (unsigned long long)n_found);
}

/* No cell is used twice or forgotten, and only what the disk did wrong is counted. */
static void check_tier(const world *w) {
    ca_tier *tier = world_tier();
    if (!tier) return;
    const sim_disk_state *disk = sim_disk();
    ca_tier_stats stats;
    ca_tier_get_stats(tier, &stats);
    if (disk->wrong) sim_fail(w, "the tier's file: %s", disk->wrong);
    const uint64_t n_cells = stats.n_records + stats.n_free_cells + stats.n_broken_cells;
    CHECK(w, n_cells == stats.n_cells || (n_cells + 1 == stats.n_cells && stats.n_queued_writes > 0));
    CHECK(w, stats.file_bytes <= w->config.kv_tier_bytes && disk->size <= w->config.kv_tier_bytes);
    CHECK(w, (int64_t)stats.n_write_errors <= disk->n_failed);
    /* After a write that was lost the file may end where a record was to be, which is an error when it is read. */
    CHECK(w, disk->has_lied || (int64_t)(stats.n_read_errors + stats.n_write_errors) <= disk->n_failed);
    CHECK(w, disk->has_lied || (int64_t)stats.n_refused <= disk->n_lying_reads);
}

void checks_state(world *w) {
    check_stats(w);
    check_tier(w);
    for (int i = 0; i < SIM_CACHES; i++)
        if (sim_caches()[i]) check_cache(w, sim_caches()[i]);
    check_progress(w);
    check_tenants(w);
}
