/* The public functions of the library and of caches: check arguments, call inward. */
#include "backends.h"
#include "cache_handle.h"
#include "checks.h"
#include "chunkattn.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/base/levels.h"
#include "config.h"
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

/* ---- Cache ---- */

/* A plan for each different shape and window among the layers. */
static cattn_status create_plans(cattn_cache *c, const cattn_config *config) {
    const ca_backend *b = c->compute.backend;
    c->layer_plan = ca_new(&c->alloc, (size_t)config->n_layers, sizeof *c->layer_plan);
    if (!c->layer_plan) return CATTN_ERR_NOMEM;
    for (int32_t layer = 0; layer < config->n_layers; layer++) {
        const int32_t shape = c->layout.layers[layer].shape;
        size_t i = 0;
        ca_plan_config plan = b->plan_config(&c->compute, config, shape);
        if (config->windows) plan.window = config->windows[layer];
        while (i < c->plans.n && !ca_plan_serves(&c->plans.at[i], shape, plan.window)) i++;
        c->layer_plan[layer] = (int32_t)i;
        if (i < c->plans.n) continue;
        if (CA_ROOM(&c->alloc, &c->plans, 1) || (b->add_plan && b->add_plan(&c->compute, shape))) return CATTN_ERR_NOMEM;
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
    const ca_chunk_layout *l = &c->layout;
    const cattn_status s =
        b->chunk_budget ? ca_chunk_pool_create_elsewhere(&c->pool, &c->alloc, l->chunk_bytes, b->chunk_budget(c->budget_bytes))
                        : ca_chunk_pool_create(&c->pool, &c->alloc, l->chunk_bytes, c->budget_bytes);
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
    cattn_status s = ca_chunk_layout_init(&c->layout, config, config->chunk_size, &c->alloc);
    if (s) return ca_fail(error, s, -1, "no memory for the shapes of %d layers", config->n_layers);
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
    ca_guard_init(&c->guard);
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

/* Free a cache that no call uses. */
static void destroy(cattn_cache *c) {
    const bool inherited = ca_guard_is_inherited(&c->guard);
    ca_file_tier_close(c, inherited); /* it writes chunks that are queued */
    ca_step_free(c);
    for (size_t i = 0; i < c->plans.n; i++) ca_plan_free(&c->plans.at[i]);
    ca_delete(&c->alloc, c->plans.at, c->plans.capacity, sizeof *c->plans.at);
    ca_delete(&c->alloc, c->layer_plan, (size_t)c->layout.n_layers, sizeof *c->layer_plan);
    ca_tree_destroy(&c->tree);
    c->compute.backend->destroy(&c->compute, inherited);
    ca_chunk_pool_destroy(&c->pool);
    ca_chunk_layout_free(&c->layout, &c->alloc);
    ca_alloc alloc = c->alloc;
    ca_delete(&alloc, c, 1, sizeof *c);
}

/* A call that ran when this process was forked from its parent never ends here, and has left the memory in between. */
void cattn_cache_destroy(cattn_cache **cache) {
    if (!cache || !*cache) return;
    const bool busy = atomic_exchange(&(*cache)->guard.busy, true);
    if (busy && !ca_guard_is_inherited(&(*cache)->guard)) return;
    if (!busy) destroy(*cache);
    *cache = NULL;
}

cattn_status cattn_cache_prefault(cattn_cache *c, int64_t n_chunks, bool *more, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s;
    if ((s = ca_need(more, "more", error)) || (s = ca_check_at_least("n_chunks", n_chunks, 0, error))) return s;
    *more = ca_chunk_pool_prefault(c->pool, (size_t)n_chunks);
    ca_cache_note_bytes(c);
    return CATTN_OK;
}

cattn_status cattn_cache_wait(cattn_cache *c, double seconds, bool *ended, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_status s = ca_check_closed(c, error);
    if (s) return s;
    if (!(seconds >= 0)) return ca_fail(error, CATTN_ERR_ARG, -1, "seconds is %g; it must not be negative", seconds);
    const bool has_read = c->tier && ca_tree_restores(c->tree) && ca_tier_wait(c->tier, seconds);
    if (has_read) ca_tree_poll_tier(c->tree);
    if (ended) *ended = has_read;
    return CATTN_OK;
}

const char *cattn_cache_level(const cattn_cache *cache) { return cache ? cache->compute.level : NULL; }

cattn_status cattn_cache_drop_retained(cattn_cache *c, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_status s = ca_check_closed(c, error);
    if (s != CATTN_OK) return s;
    if (c->compute.backend->trim) c->compute.backend->trim(c);
    ca_tree_drop_retained(c->tree);
    return CATTN_OK;
}

cattn_status cattn_cache_set_budget(cattn_cache *c, uint64_t budget_bytes, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_status s = ca_check_closed(c, error);
    if (s) return s;
    if (!c->compute.backend->set_budget) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_SET_BUDGET, error);
    if (budget_bytes > c->max_budget_bytes)
        return ca_fail(error, CATTN_ERR_ARG, -1, "budget_bytes is %llu; it must be at most the configured %llu",
                       (unsigned long long)budget_bytes, (unsigned long long)c->max_budget_bytes);
    c->compute.backend->set_budget(c, budget_bytes);
    return CATTN_OK;
}
