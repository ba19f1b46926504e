/* The public functions: check arguments, call inward. */
#include "backends.h"
#include "cache_handle.h"
#include "chunkattn.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/base/levels.h"
#include "config.h"
#include "export.h"
#include "file_tier.h"
#include "public_struct.h"
#include "step.h"

#define STRING2(x) #x
#define STRING(x)  STRING2(x)

const char *cattn_version(void) {
    return STRING(CATTN_VERSION_MAJOR) "." STRING(CATTN_VERSION_MINOR) "." STRING(CATTN_VERSION_PATCH);
}

const char *cattn_status_name(cattn_status status) {
    switch (status) {
    case CATTN_OK: return "CATTN_OK";
    case CATTN_ERR_ARG: return "CATTN_ERR_ARG";
    case CATTN_ERR_NOMEM: return "CATTN_ERR_NOMEM";
    case CATTN_ERR_BUDGET: return "CATTN_ERR_BUDGET";
    case CATTN_ERR_STATE: return "CATTN_ERR_STATE";
    case CATTN_ERR_UNSUPPORTED: return "CATTN_ERR_UNSUPPORTED";
    case CATTN_ERR_DATA: return "CATTN_ERR_DATA";
    case CATTN_ERR_WRITE: return "CATTN_ERR_WRITE";
    }
    return "unknown status";
}

/* ---- Levels ---- */

const char *cattn_level_name(int32_t i) {
    const int level = i < 0 ? -1 : ca_level_of_cpu(i);
    return level < 0 ? NULL : ca_level_name(level);
}

/* ---- Checks that calls have in common ---- */

static cattn_status check_at_least(const char *name, int64_t n, int64_t least, cattn_error *error) {
    if (n >= least) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %lld; it must be at least %lld", name, (long long)n, (long long)least);
}

static cattn_status check_closed(const cattn_cache *c, cattn_error *error) {
    cattn_status s = ca_need(c, "cache", error);
    if (s) return s;
    return c->step.open ? ca_fail(error, CATTN_ERR_STATE, -1, "a step is open; end or abort it first") : CATTN_OK;
}

/* ---- Cache ---- */

/* A plan for each different window among the layers. */
static cattn_status create_plans(cattn_cache *c, const cattn_config *config) {
    const ca_backend *b = c->compute.backend;
    ca_plan_config plan = b->plan_config(&c->compute, config);
    c->layer_plan = ca_new(&c->alloc, (size_t)config->n_layers, sizeof *c->layer_plan);
    if (!c->layer_plan) return CATTN_ERR_NOMEM;
    for (int32_t layer = 0; layer < config->n_layers; layer++) {
        size_t i = 0;
        plan.window = config->windows ? config->windows[layer] : 0;
        while (i < c->plans.n && c->plans.at[i].config.window != plan.window) i++;
        c->layer_plan[layer] = (int32_t)i;
        if (i < c->plans.n) continue;
        if (CA_ROOM(&c->alloc, &c->plans, 1) || (b->add_plan && b->add_plan(&c->compute))) return CATTN_ERR_NOMEM;
        ca_plan_init(&c->plans.at[c->plans.n++], &plan, c->tree, &c->layout, &c->alloc);
    }
    return CATTN_OK;
}

static cattn_status holds_no_chunk(const cattn_cache *c, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_BUDGET, -1,
                   "budget_bytes is %llu, which does not hold one chunk of %zu bytes and the metadata",
                   (unsigned long long)c->budget_bytes, c->layout.chunk_bytes);
}

static cattn_status create_pool(cattn_cache *c, cattn_error *error) {
    const ca_backend *b = c->compute.backend;
    const ca_layout *l = &c->layout;
    const cattn_status s =
        b->chunk_budget
            ? ca_chunk_pool_create_elsewhere(&c->pool, &c->alloc, l->n_tiles, l->tile_bytes, b->chunk_budget(c->budget_bytes))
            : ca_chunk_pool_create(&c->pool, &c->alloc, l->n_tiles, l->tile_bytes, c->budget_bytes);
    if (s == CATTN_ERR_BUDGET) return holds_no_chunk(c, error);
    if (s)
        return ca_fail(error, s, -1, "budget_bytes is %llu, for which the system gives no address space or metadata; lower it",
                       (unsigned long long)c->budget_bytes);
    return CATTN_OK;
}

static cattn_status create_parts(cattn_cache *c, const cattn_config *config, const ca_file_tier_hooks *hooks,
                                 cattn_error *error) {
    c->compute = ca_compute_for(config);
    const ca_backend *b = c->compute.backend;
    c->max_budget_bytes = c->budget_bytes = config->budget_bytes;
    c->pin_bytes = config->pin_bytes;
    c->sharing = config->sharing;
    ca_layout_init(&c->layout, config->kv_type, config->n_layers, config->n_kv_heads, config->head_dim, config->head_dim_v,
                   config->chunk_size);
    cattn_status s;
    if ((s = create_pool(c, error)) || (s = b->create_cache(c, config, error))) return s;
    if (config->tier_dir && (s = b->open_tier(c, config, hooks, error))) return s;
    const ca_tree_config tree = {config->sharing, config->retention, {b->execute, c}, c->tier};
    if ((s = ca_tree_create(&c->tree, &tree, &c->layout, c->pool, &c->alloc)))
        return ca_fail(error, s, -1, "no memory for the prefix tree");
    if ((s = create_plans(c, config))) return ca_fail(error, s, -1, "no memory for the plans");
    if (ca_chunk_pool_n_free(c->pool, 0) == 0) return holds_no_chunk(c, error);
    c->empty_bytes = ca_chunk_pool_other_bytes(c->pool);
    ca_cache_note_bytes(c);
    return CATTN_OK;
}

cattn_status ca_cache_create(const cattn_config *config, const ca_file_tier_hooks *hooks, cattn_cache **cache,
                             cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(cache, "cache", error))) return s;
    *cache = NULL;
    if ((s = ca_need(config, "config", error))) return s;
    cattn_config resolved;
    if ((s = ca_config_resolve(config, &resolved, error))) return s;
    ca_alloc alloc = ca_alloc_default();
    if (resolved.allocator.alloc)
        alloc = (ca_alloc){resolved.allocator.alloc, resolved.allocator.free, resolved.allocator.ctx, 0};
    cattn_cache *c = ca_new_zero(&alloc, 1, sizeof *c);
    if (!c) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the cache");
    c->alloc = alloc;
    if ((s = create_parts(c, &resolved, hooks, error))) {
        cattn_cache_destroy(&c);
        return s;
    }
    *cache = c;
    return CATTN_OK;
}

cattn_status cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error) {
    return ca_cache_create(config, NULL, cache, error);
}

void cattn_cache_destroy(cattn_cache **cache) {
    if (!cache || !*cache) return;
    cattn_cache *c = *cache;
    ca_file_tier_close(c); /* it writes chunks that are queued */
    ca_step_free(c);
    for (size_t i = 0; i < c->plans.n; i++) ca_plan_free(&c->plans.at[i]);
    ca_delete(&c->alloc, c->plans.at, c->plans.capacity, sizeof *c->plans.at);
    ca_delete(&c->alloc, c->layer_plan, (size_t)c->layout.n_layers, sizeof *c->layer_plan);
    ca_tree_destroy(&c->tree);
    c->compute.backend->destroy(&c->compute);
    ca_chunk_pool_destroy(&c->pool);
    ca_alloc alloc = c->alloc;
    ca_delete(&alloc, c, 1, sizeof *c);
    *cache = NULL;
}

cattn_status cattn_cache_prefault(cattn_cache *c, int64_t n_chunks, bool *more, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = ca_need(more, "more", error)) ||
        (s = check_at_least("n_chunks", n_chunks, 0, error)))
        return s;
    *more = ca_chunk_pool_prefault(c->pool, (size_t)n_chunks);
    ca_cache_note_bytes(c);
    return CATTN_OK;
}

cattn_status cattn_cache_wait(cattn_cache *c, double seconds, bool *ended, cattn_error *error) {
    const cattn_status s = check_closed(c, error);
    if (s) return s;
    if (!(seconds >= 0)) return ca_fail(error, CATTN_ERR_ARG, -1, "seconds is %g; it must not be negative", seconds);
    const bool has_read = c->tier && ca_tree_restores(c->tree) && ca_tier_wait(c->tier, seconds);
    if (has_read) ca_tree_poll_tier(c->tree);
    if (ended) *ended = has_read;
    return CATTN_OK;
}

const char *cattn_cache_level(const cattn_cache *cache) { return cache ? cache->compute.level : NULL; }

cattn_status cattn_cache_stats(const cattn_cache *c, cattn_stats *stats) {
    if (!c || !stats) return CATTN_ERR_ARG;
    const ca_tree_counts *t = ca_tree_get_counts(c->tree);
    const uint64_t bytes = ca_cache_bytes(c), n_superseded = ca_tree_count_superseded(c->tree);
    cattn_stats now = {
        .budget_bytes = c->budget_bytes,
        .bytes_in_use = bytes,
        .bytes_peak = bytes > c->bytes_peak ? bytes : c->bytes_peak,
        .chunk_bytes = c->layout.chunk_bytes,
        .chunks_live = t->chunks_live - n_superseded,
        .chunks_live_peak = t->chunks_live_peak,
        .chunks_retained = t->chunks_retained + n_superseded,
        .chunks_reserved = t->chunks_reserved,
        .chunks_capacity = ca_chunk_pool_capacity(c->pool),
        .chunks_unshared = t->chunks_unshared,
        .chunks_unshared_peak = t->chunks_unshared_peak,
        .tokens_stored = t->tokens_stored,
        .tokens_referenced = t->tokens_referenced,
        .tokens_joined = t->tokens_joined,
        .tokens_matched = t->tokens_matched,
        .tokens_evicted = t->tokens_evicted,
        .n_seqs = t->n_seqs,
        .n_nodes = t->n_nodes,
        .chunks_superseded = n_superseded,
        .tokens_retained = t->tokens_retained,
        .slots_padding = (t->chunks_live + t->chunks_retained) * (uint64_t)c->layout.c - t->tokens_stored,
        .chunks_pinned = c->chunks_pinned,
        .tokens_imported = t->tokens_imported,
    };
    ca_file_tier_stats(c, &now);
    return CA_STRUCT_WRITE(cattn_stats, tokens_imported, stats, &now, NULL);
}

void cattn_fit_request_init(cattn_fit_request *request) {
    *request = (cattn_fit_request){.struct_size = sizeof *request, .n_seqs = 1};
}

static cattn_status read_fit_request(const cattn_fit_request *request, cattn_fit_request *r, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(request, "request", error))) return s;
    cattn_fit_request_init(r);
    if ((s = CA_STRUCT_READ(cattn_fit_request, headroom_bytes, r, request, error))) return s;
    if ((s = check_at_least("n_tokens", r->n_tokens, 1, error)) || (s = check_at_least("n_seqs", r->n_seqs, 1, error)))
        return s;
    return check_at_least("reserve_tokens", r->reserve_tokens, 0, error);
}

cattn_status cattn_cache_can_fit(const cattn_cache *c, const cattn_fit_request *request, cattn_fit_result *result,
                                 cattn_error *error) {
    cattn_fit_request r;
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = read_fit_request(request, &r, error))) return s;
    const ca_fit fit = {r.n_tokens, r.n_seqs, r.reserve_tokens};
    const uint64_t other = r.headroom_bytes < c->max_budget_bytes ? c->empty_bytes + r.headroom_bytes : c->max_budget_bytes;
    const uint64_t chunk_bytes = c->layout.chunk_bytes, n_chunks = (uint64_t)ca_fit_chunks(c->tree, &fit);
    const cattn_fit_result now = {
        .max_reserve_tokens = ca_fit_max_reserve(c->tree, &fit, other),
        .bytes_needed = n_chunks > UINT64_MAX / chunk_bytes ? UINT64_MAX : n_chunks * chunk_bytes,
        .bytes_available = ca_chunk_pool_capacity_beside(c->pool, other) * chunk_bytes,
    };
    if (result && (s = CA_STRUCT_WRITE(cattn_fit_result, bytes_available, result, &now, error))) return s;
    if (ca_fit_holds(c->tree, &fit, other)) return CATTN_OK;
    return ca_fail(
        error, CATTN_ERR_BUDGET, -1,
        "%lld prompt tokens and %lld sequences of %lld more need %llu bytes of K/V beside metadata; budget_bytes holds "
        "%llu: shorten the request or raise the budget",
        (long long)r.n_tokens, (long long)r.n_seqs, (long long)r.reserve_tokens, (unsigned long long)now.bytes_needed,
        (unsigned long long)now.bytes_available);
}

/* ---- Sequences ---- */

void cattn_join_options_init(cattn_join_options *options) { *options = (cattn_join_options){.struct_size = sizeof *options}; }

/* A loop that always runs to its end, so that compilers vectorise it. A join of a long prompt spends most of its time here. */
static bool any_negative(const int32_t *tokens, int64_t n) {
    int32_t bits = 0;
    for (int64_t i = 0; i < n; i++) bits |= tokens[i];
    return bits < 0;
}

static cattn_status check_tokens(const int32_t *tokens, int64_t n, cattn_error *error) {
    cattn_status s;
    if ((s = check_at_least("n_tokens", n, 1, error)) || (s = ca_need(tokens, "tokens", error)) || !any_negative(tokens, n))
        return s;
    int64_t i = 0;
    while (tokens[i] >= 0) i++;
    return ca_fail(error, CATTN_ERR_ARG, (int32_t)i, "tokens[%lld] is %d; tokens are not negative", (long long)i, tokens[i]);
}

/* More than any memory holds. Larger reservations are cut to it, which fail just the same, so that no sum overflows. */
static const int64_t MAX_RESERVE = INT64_C(1) << 48;

static cattn_status check_reserve(const char *name, int64_t *n, cattn_error *error) {
    if (*n > MAX_RESERVE) *n = MAX_RESERVE;
    return check_at_least(name, *n, 0, error);
}

static cattn_status find_running(const cattn_cache *c, cattn_seq id, ca_seq **seq, cattn_error *error) {
    *seq = ca_tree_find(c->tree, id);
    if (*seq) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "seq is %llu, which is no running sequence of this cache", (unsigned long long)id);
}

/* A sequence that a call may change: no step is open, and it is a pin or not, as the call expects. */
static cattn_status find_to_change(const cattn_cache *c, cattn_seq id, bool pin, ca_seq **seq, cattn_error *error) {
    cattn_status s;
    if ((s = check_closed(c, error)) || (s = find_running(c, id, seq, error)) || (*seq)->is_pin == pin) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   pin ? "pin is %llu, which is a sequence but no pin; use cattn_seq_leave"
                       : "seq is %llu, which is a pin; only cattn_cache_unpin ends it",
                   (unsigned long long)id);
}

static cattn_status find_seq(const cattn_cache *c, cattn_seq id, ca_seq **seq, cattn_error *error) {
    return find_to_change(c, id, false, seq, error);
}

static cattn_status read_join_options(const cattn_join_options *options, cattn_join_options *o, cattn_error *error) {
    cattn_join_options_init(o);
    const cattn_status s = options ? CA_STRUCT_READ(cattn_join_options, flags, o, options, error) : CATTN_OK;
    if (s) return s;
    if (o->flags & ~(uint64_t)CATTN_JOIN_NO_TIER)
        return ca_fail(error, CATTN_ERR_ARG, -1, "flags is %#llx; it must be 0 or CATTN_JOIN_NO_TIER",
                       (unsigned long long)o->flags);
    return check_reserve("reserve_tokens", &o->reserve_tokens, error);
}

cattn_status cattn_cache_match(const cattn_cache *c, const int32_t *tokens, int64_t n_tokens, const cattn_join_options *options,
                               cattn_join_result *result, cattn_error *error) {
    cattn_join_options o;
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = ca_need(result, "result", error))) return s;
    if ((s = check_tokens(tokens, n_tokens, error)) || (s = read_join_options(options, &o, error))) return s;
    *result = ca_tree_find_prefix(c->tree, tokens, n_tokens, o.domain);
    return CATTN_OK;
}

cattn_status cattn_cache_explain(const cattn_cache *c, const int32_t *tokens, int64_t n_tokens,
                                 const cattn_join_options *options, cattn_explanation *explanation, cattn_error *error) {
    cattn_join_options o;
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = ca_need(explanation, "explanation", error))) return s;
    if ((s = check_tokens(tokens, n_tokens, error)) || (s = read_join_options(options, &o, error))) return s;
    cattn_explanation found;
    ca_tree_explain(c->tree, tokens, n_tokens, o.domain, !(o.flags & CATTN_JOIN_NO_TIER), &found);
    return CA_STRUCT_WRITE(cattn_explanation, n_other_matched, explanation, &found, error);
}

cattn_status cattn_cache_drop_retained(cattn_cache *c, cattn_error *error) {
    const cattn_status s = check_closed(c, error);
    if (s != CATTN_OK) return s;
    if (c->compute.backend->trim) c->compute.backend->trim(c);
    ca_tree_drop_retained(c->tree);
    return CATTN_OK;
}

cattn_status cattn_cache_set_budget(cattn_cache *c, uint64_t budget_bytes, cattn_error *error) {
    const cattn_status s = check_closed(c, error);
    if (s) return s;
    if (!c->compute.backend->set_budget) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_SET_BUDGET, error);
    if (budget_bytes > c->max_budget_bytes)
        return ca_fail(error, CATTN_ERR_ARG, -1, "budget_bytes is %llu; it must be at most the configured %llu",
                       (unsigned long long)budget_bytes, (unsigned long long)c->max_budget_bytes);
    c->compute.backend->set_budget(c, budget_bytes);
    return CATTN_OK;
}

/* Let tokens of a sequence that has joined come from the file tier. They count as matched, since they are not computed. */
static void restore(cattn_cache *c, ca_seq *seq, const int32_t *tokens, cattn_join_result *result) {
    const int64_t n_coming = ca_tree_restore(c->tree, seq, tokens, c->row_seconds);
    if (result && n_coming > result->n_matched) result->n_matched = n_coming;
}

cattn_status cattn_seq_join(cattn_cache *c, const int32_t *tokens, int64_t n_tokens, const cattn_join_options *options,
                            cattn_seq *seq, cattn_join_result *result, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(seq, "seq", error))) return s;
    *seq = 0;
    if ((s = check_closed(c, error)) || (s = ca_check_length(&c->compute, n_tokens, error)) ||
        (s = check_tokens(tokens, n_tokens, error)))
        return s;
    cattn_join_options o;
    if ((s = read_join_options(options, &o, error))) return s;
    ca_file_tier_poll(c);
    s = ca_tree_join(c->tree, tokens, n_tokens, o.domain, o.reserve_tokens, seq, result, error);
    if (s == CATTN_OK) {
        ca_seq *joined = ca_tree_find(c->tree, *seq);
        joined->no_tier = o.flags & CATTN_JOIN_NO_TIER;
        if (c->tier && !joined->no_tier) restore(c, joined, tokens, result);
    }
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_append(cattn_cache *c, cattn_seq id, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = find_seq(c, id, &seq, error)) || (s = check_tokens(tokens, n_tokens, error)) ||
        (s = ca_check_length(&c->compute, seq->n_tokens + n_tokens, error)))
        return s;
    s = ca_tree_append(c->tree, seq, tokens, n_tokens, error);
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_truncate(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_error *error) {
    ca_seq *seq;
    cattn_status s = find_seq(c, id, &seq, error);
    if (s) return s;
    if (n_tokens < 1 || n_tokens > seq->n_tokens)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be from 1 to the sequence's length, %lld",
                       (long long)n_tokens, (long long)seq->n_tokens);
    s = ca_tree_truncate(c->tree, seq, n_tokens, error);
    if (c->tier) ca_tree_drop_orphans(c->tree);
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_fork(cattn_cache *c, cattn_seq id, int64_t reserve_tokens, cattn_seq *fork, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = ca_need(fork, "fork", error))) return s;
    *fork = 0;
    if ((s = find_seq(c, id, &seq, error)) || (s = check_reserve("reserve_tokens", &reserve_tokens, error))) return s;
    s = ca_tree_fork(c->tree, seq, reserve_tokens, fork, error);
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_reserve(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = find_seq(c, id, &seq, error)) || (s = check_reserve("n_tokens", &n_tokens, error))) return s;
    s = ca_tree_reserve(c->tree, seq, n_tokens, error);
    ca_cache_note_bytes(c);
    return s;
}

/* A sequence leaves; with a file tier, its chunks are written there. */
static void leave(cattn_cache *c, ca_seq *seq) {
    if (c->tier) ca_tree_write_behind(c->tree, seq);
    ca_tree_leave(c->tree, seq);
    if (c->tier) ca_tree_drop_orphans(c->tree);
}

cattn_status cattn_seq_leave(cattn_cache *c, cattn_seq *id, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = ca_need(id, "seq", error)) || (s = find_seq(c, *id, &seq, error))) return s;
    leave(c, seq);
    ca_cache_note_bytes(c);
    *id = 0;
    return CATTN_OK;
}

static uint64_t chunks_of(const cattn_cache *c, int64_t n_tokens) {
    return (uint64_t)((n_tokens + c->layout.c - 1) >> c->layout.log2_c);
}

static cattn_status check_pin(const cattn_cache *c, const ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    if (n_tokens < 2 || n_tokens % 2 != 0 || n_tokens > n_ready)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be even, from 2 to the %lld tokens that are ready",
                       (long long)n_tokens, (long long)n_ready);
    const uint64_t n_chunks = c->chunks_pinned + chunks_of(c, n_tokens);
    if (n_chunks <= c->pin_bytes / c->layout.chunk_bytes) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_BUDGET, -1,
                   "pin_bytes is %llu, and the pins would cover %llu chunks of %zu bytes: raise it, or unpin others",
                   (unsigned long long)c->pin_bytes, (unsigned long long)n_chunks, c->layout.chunk_bytes);
}

cattn_status cattn_seq_pin(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_seq *pin, cattn_error *error) {
    cattn_status s;
    ca_seq *seq;
    if ((s = ca_need(pin, "pin", error))) return s;
    *pin = 0;
    if ((s = find_seq(c, id, &seq, error))) return s;
    if (c->sharing == CATTN_PRIVATE)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "sharing is CATTN_PRIVATE, where no sequence could use a pin");
    if ((s = check_pin(c, seq, n_tokens, error)) || (s = ca_tree_pin(c->tree, seq, n_tokens, pin, error))) return s;
    c->chunks_pinned += chunks_of(c, n_tokens);
    if (c->tier) ca_tree_write_behind(c->tree, ca_tree_find(c->tree, *pin));
    ca_cache_note_bytes(c);
    return CATTN_OK;
}

cattn_status cattn_cache_unpin(cattn_cache *c, cattn_seq *pin, cattn_error *error) {
    cattn_status s;
    ca_seq *seq;
    if ((s = ca_need(pin, "pin", error)) || (s = find_to_change(c, *pin, true, &seq, error))) return s;
    c->chunks_pinned -= chunks_of(c, seq->n_tokens);
    leave(c, seq);
    *pin = 0;
    return CATTN_OK;
}

cattn_status cattn_seq_get_info(const cattn_cache *c, cattn_seq id, cattn_seq_info *info, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = ca_need(info, "info", error))) return s;
    ca_seq *seq;
    if ((s = find_running(c, id, &seq, error))) return s;
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    const cattn_seq_info now = {.domain = seq->domain,
                                .n_tokens = seq->n_tokens,
                                .n_ready = n_ready,
                                .n_reserved = seq->reserve_to > seq->n_tokens ? seq->reserve_to - seq->n_tokens : 0,
                                .n_coming = ca_path_n_coming(seq->leaf) - n_ready};
    return CA_STRUCT_WRITE(cattn_seq_info, n_coming, info, &now, error);
}

/* ---- Export and import ---- */

uint64_t cattn_cache_export_bytes(const cattn_cache *c, int64_t n_tokens) {
    return c && c->compute.backend->export_seq && n_tokens > 0 ? ca_export_bytes(c, n_tokens) : 0;
}

/* No step is open, and the cache can say what its K/V depend on. */
static cattn_status check_transfer(const cattn_cache *c, cattn_error *error) {
    const cattn_status s = check_closed(c, error);
    if (s) return s;
    if (c->model[0] == 0 && c->model[1] == 0)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_fingerprint of the cache's config is 0; set it to a hash of the model and of the program");
    return CATTN_OK;
}

cattn_status cattn_seq_export(cattn_cache *c, cattn_seq id, int64_t n_tokens,
                              int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = ca_need(c, "cache", error))) return s;
    const ca_backend *b = c->compute.backend;
    if (!b->export_seq) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_EXPORT, error);
    if ((s = check_transfer(c, error)) || (s = find_running(c, id, &seq, error))) return s;
    if (!write) return ca_fail(error, CATTN_ERR_ARG, -1, "write is NULL");
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    if (n_tokens < 1 || n_tokens > n_ready)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be from 1 to the %lld tokens that are ready",
                       (long long)n_tokens, (long long)n_ready);
    return b->export_seq(c, seq, n_tokens, write, ctx, error);
}

cattn_status cattn_seq_import(cattn_cache *c, const void *bytes, size_t n_bytes, const cattn_join_options *options,
                              cattn_seq *seq, cattn_join_result *result, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(seq, "seq", error))) return s;
    *seq = 0;
    if ((s = ca_need(c, "cache", error))) return s;
    const ca_backend *b = c->compute.backend;
    if (!b->import_seq) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_IMPORT, error);
    if ((s = check_transfer(c, error)) || (s = ca_need(bytes, "bytes", error))) return s;
    cattn_join_options o;
    if ((s = read_join_options(options, &o, error))) return s;
    s = b->import_seq(c, bytes, n_bytes, &o, seq, result, error);
    ca_cache_note_bytes(c);
    return s;
}

/* ---- Steps ---- */

static cattn_status check_open(const cattn_cache *c, cattn_error *error) {
    cattn_status s = ca_need(c, "cache", error);
    if (s) return s;
    return c->step.open ? CATTN_OK : ca_fail(error, CATTN_ERR_STATE, -1, "no step is open; call cattn_step_begin first");
}

static cattn_status check_layer(const cattn_cache *c, int32_t layer, cattn_error *error) {
    cattn_status s = check_open(c, error);
    if (s || (layer >= 0 && layer < c->layout.n_layers)) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d; it must be from 0 to %d", layer, c->layout.n_layers - 1);
}

cattn_status ca_step_check_begin(const cattn_cache *c, const ca_backend *of, const cattn_entry *entries, int32_t n_entries,
                                 int64_t row_limit, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "begin", error)) || (s = check_closed(c, error)) ||
        (s = check_at_least("n_entries", n_entries, 1, error)) || (s = ca_need(entries, "entries", error)))
        return s;
    return check_at_least("row_limit", row_limit, 0, error);
}

cattn_status ca_step_write(cattn_cache *c, const ca_backend *of, int32_t layer, const cattn_view *k, const cattn_view *v,
                           void *stream, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "write", error)) || (s = check_layer(c, layer, error))) return s;
    const int64_t n_rows = (int64_t)c->step.rows.n;
    if ((s = ca_check_view(&c->compute, "k", k, n_rows, c->layout.n_kv_heads, c->layout.d_k, error)) ||
        (s = ca_check_view(&c->compute, "v", v, n_rows, c->layout.n_kv_heads, c->layout.d_v, error)))
        return s;
    return n_rows > 0 ? of->write(c, layer, k, v, stream, error) : CATTN_OK;
}

cattn_status ca_step_attend(cattn_cache *c, const ca_backend *of, int32_t layer, const cattn_view *q, const cattn_view *out,
                            float *lse, void *stream, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "attend", error)) || (s = check_layer(c, layer, error))) return s;
    const int64_t n_rows = (int64_t)c->step.rows.n;
    if ((s = ca_check_view(&c->compute, "q", q, n_rows, c->compute.n_heads, c->layout.d_k, error)) ||
        (s = ca_check_view(&c->compute, "out", out, n_rows, c->compute.n_heads, c->layout.d_v, error)))
        return s;
    return n_rows > 0 ? of->attend(c, layer, q, out, lse, stream, error) : CATTN_OK;
}

cattn_status cattn_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    const cattn_status s = ca_step_check_begin(c, &ca_backend_cpu, entries, n_entries, row_limit, error);
    return s ? s : ca_step_begin(c, entries, n_entries, row_limit, error);
}

cattn_status cattn_step_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v, cattn_error *error) {
    return ca_step_write(c, &ca_backend_cpu, layer, k, v, NULL, error);
}

cattn_status cattn_step_attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                               cattn_error *error) {
    return ca_step_attend(c, &ca_backend_cpu, layer, q, out, lse, NULL, error);
}

static cattn_status close_step(cattn_cache *c, bool ready, cattn_error *error) {
    cattn_status s = check_open(c, error);
    if (s == CATTN_OK) ca_step_close(c, ready);
    return s;
}

cattn_status cattn_step_end(cattn_cache *c, cattn_error *error) { return close_step(c, true, error); }

cattn_status cattn_step_abort(cattn_cache *c, cattn_error *error) { return close_step(c, false, error); }
