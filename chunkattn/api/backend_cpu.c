/* The CPU as a backend: its level, threads, plans, and a cache's memory: see backend_cpu.h. */
#include "backend_cpu.h"

#include "backends.h"
#include "cache_fingerprint.h"
#include "chunkattn/attn/kernels.h"
#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/base/levels.h"
#include "export.h"
#include "file_tier.h"
#include "read.h"
#include "step.h"

/* ---- Kernel level ---- */

/*
 * *level is the highest level that the caller (`highest`; NULL: any), CATTN_LEVEL and the CPU allow.
 * CATTN_ERR_ARG for an unknown name; CATTN_ERR_UNSUPPORTED where the CPU lacks the caller's level.
 */
static cattn_status choose_level(const char *highest, int *level, cattn_error *error) {
    switch (ca_level_choose(highest, level)) {
    case CA_LEVEL_UNKNOWN:
        return ca_fail(error, CATTN_ERR_ARG, -1, "level is \"%s\", which this build does not know; see cattn_level_name",
                       highest);
    case CA_LEVEL_LACKING:
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "level is \"%s\", which this CPU lacks; see cattn_level_name",
                       highest);
    case CA_LEVEL_ENVIRONMENT_UNKNOWN:
        return ca_fail(error, CATTN_ERR_ARG, -1, "CATTN_LEVEL is \"%s\", which this build does not know; see cattn_level_name",
                       ca_level_environment());
    case CA_LEVEL_OK: break;
    }
    return CATTN_OK;
}

/* ---- Threads ---- */

static cattn_status start_threads(ca_compute *compute, const cattn_config *config, cattn_error *error) {
    compute->n_threads = config->n_threads;
    compute->parallel = config->parallel;
    if (compute->parallel.run) return CATTN_OK;
    compute->threads = ca_pool_create(config->n_threads);
    if (!compute->threads) return ca_fail(error, CATTN_ERR_NOMEM, -1, "%d threads cannot be started", config->n_threads);
    compute->parallel = (cattn_parallel){ca_pool_run, compute->threads};
    return CATTN_OK;
}

/* ---- Caches and foreign pages ---- */

cattn_status ca_cpu_start(ca_compute *compute, const cattn_config *config, const ca_chunk_layout *layout,
                          const ca_chunk_pool *pool, const ca_tile_source *source, ca_alloc *alloc, cattn_error *error) {
    int level = CA_LEVEL_ref;
    cattn_status s = choose_level(config->level, &level, error);
    if (s || (s = start_threads(compute, config, error))) return s;
    const ca_kernel *kernel = ca_kernel_find(level, config->kv_type);
    const ca_attn_options options = {config->softcap, config->alibi_slopes, config->sink_logits};
    compute->level = kernel->level;
    if (ca_attn_init(&compute->attn, kernel, layout, pool, source, alloc, &compute->parallel, config->n_threads, &options))
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the workers' scratch");
    return CATTN_OK;
}

/* The pool knows itself which process its threads are in. */
static void destroy(ca_compute *compute, bool inherited) {
    (void)inherited;
    if (compute->attn.workers) ca_attn_free(&compute->attn);
    ca_pool_destroy(&compute->threads);
}

/* ---- Plan ---- */

/*
 * What packing foreign pages adds to the cost of a chunk, in units of one query head's attention over it: measured 2 (Xeon,
 * avx2) to 6 (Zen 5), with K and V in the second-level cache and d = 128.
 */
static const double PACK_COST = 4;

/* A multiple of this many tasks for each KV head gives all threads the same number of tasks over all heads. */
static int32_t task_step(int32_t heads, int32_t threads) {
    int32_t n = 1;
    while (n * heads % threads) n++;
    return n;
}

/* Tasks for each KV head, so that each thread has about four; a multiple of task_step unless it is 1. */
static int32_t min_tasks(int32_t heads, int32_t threads) {
    enum { TASKS_PER_THREAD = 4 };
    const int32_t step = task_step(heads, threads);
    if (threads == 1) return 1;
    const int32_t n = (TASKS_PER_THREAD * threads + heads - 1) / heads;
    return n > 1 ? (n + step - 1) / step * step : n;
}

/* Query heads down to which a chain's rows are split: two full register tiles, and at least one row of the sequence. */
static int32_t min_slice(const ca_kernel *kernel, int32_t group) {
    const int32_t tiles = 2 * kernel->tile_rows;
    return tiles > group ? tiles : group;
}

static ca_plan_config plan_config(const ca_compute *compute, const cattn_config *config, int32_t shape) {
    const ca_attn *attn = &compute->attn;
    const ca_attn_shape *s = &attn->shapes[shape];
    return (ca_plan_config){.shape = shape,
                            .together = config->sharing == CATTN_SHARED,
                            .group = s->group,
                            .max_rows = s->max_rows,
                            .min_slice = min_slice(attn->kernel, s->group),
                            .chunk_cost = attn->kernel->chunk_cost + (attn->source ? PACK_COST : 0),
                            .min_tasks = min_tasks(s->n_kv_heads, config->n_threads),
                            .task_step = task_step(s->n_kv_heads, config->n_threads),
                            .log2_segment = CA_LOG2_SEGMENT,
                            .n_sink_tokens = config->n_sink_tokens};
}

/* ---- Caches ---- */

static cattn_status create_cache(cattn_cache *c, const cattn_config *config, cattn_error *error) {
    if (config->kv_type == CATTN_E4M3)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                       "kv_type is CATTN_E4M3, which only a CUDA device has; set cuda, or use CATTN_I8, which takes the same "
                       "memory, CATTN_BF16, CATTN_F16 or CATTN_F32");
    const cattn_status s = ca_cpu_start(&c->compute, config, &c->layout, c->pool, NULL, &c->alloc, error);
    if (s == CATTN_OK) ca_fingerprint_init(c, config);
    return s;
}

static uint64_t other_bytes(const cattn_cache *c) { return c->alloc.bytes; }

static void set_budget(cattn_cache *c, uint64_t budget_bytes) {
    ca_cache_note_bytes(c);
    c->budget_bytes = budget_bytes;
    ca_chunk_pool_set_budget(c->pool, budget_bytes);
    ca_tree_shrink(c->tree);
}

/* ---- K/V commands ---- */

void ca_cpu_execute(const cattn_cache *c, int32_t layer, int32_t head, const ca_kv_commands *commands) {
    ca_kv_execute(&c->layout, c->pool, layer, head, commands->at, commands->n);
}

static void execute(void *ctx, const ca_kv_command *commands, size_t n) {
    const cattn_cache *c = ctx;
    for (int32_t layer = 0, head = -1; ca_next_tile(&c->layout, &layer, &head);)
        ca_kv_execute(&c->layout, c->pool, layer, head, commands, n);
}

/* ---- Steps ---- */

static size_t most_bytes(const cattn_cache *c, int64_t n_tokens, int64_t n_rows) {
    int64_t n_segments = 0;
    for (size_t i = 0; i < c->plans.n; i++)
        n_segments = ca_max(n_segments, ca_plan_most_segments(&c->plans.at[i], n_tokens, n_rows));
    return ca_attn_most_missing(&c->compute.attn, n_segments, n_rows);
}

/* Nothing is evicted if evicting everything would not suffice, unless the step begins nevertheless. */
static bool make_room(const cattn_cache *c, size_t excess, bool may_exceed) {
    if (excess == 0) return true;
    return (may_exceed || ca_tree_may_have_room(c->tree, excess)) && ca_tree_make_room(c->tree, excess);
}

/* Make sure that the budget holds what the step has allocated since the cache had bytes_before, and the workspace to come. */
static cattn_status reserve(cattn_cache *c, size_t bytes_before, size_t n_after, bool may_exceed, cattn_error *error) {
    (void)n_after; /* the commands need no memory of their own */
    const size_t missing = ca_attn_missing(&c->compute.attn, c->plans.at, c->plans.n);
    const bool grows = c->alloc.bytes + missing > bytes_before;
    const size_t excess = grows ? ca_chunk_pool_excess(c->pool, missing) : 0;
    if (!make_room(c, excess, may_exceed) && !may_exceed)
        return ca_fail(
            error, CATTN_ERR_BUDGET, -1,
            "the step's plan and workspace exceed budget_bytes, %llu, by %zu, and the other chunks are in use or reserved; "
            "raise it or lower row_limit",
            (unsigned long long)c->budget_bytes, excess);
    if (ca_attn_reserve(&c->compute.attn, c->plans.at, c->plans.n))
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the step's workspace");
    return CATTN_OK;
}

static void release(ca_compute *compute) { ca_attn_release(&compute->attn); }

static cattn_status attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse, void *stream,
                           cattn_error *error) {
    (void)stream, (void)error;
    ca_attn_run(&c->compute.attn, &c->plans.at[c->layer_plan[layer]], layer, q, out, lse);
    return CATTN_OK;
}

static bool has_written(const cattn_cache *c, int32_t layer) { return c->step.prepared.at[layer]; }

/* Execute the commands of a layer that was not written: those before the rows always, those after them only if `ready`. */
static void finish_layer(const cattn_cache *c, int32_t layer, bool ready) {
    for (int32_t head = 0; head < ca_shape_of(&c->layout, layer)->n_kv_heads; head++) {
        ca_cpu_execute(c, layer, head, &c->step.before);
        if (ready) ca_cpu_execute(c, layer, head, &c->step.after);
    }
}

static void end(cattn_cache *c, bool ready) {
    for (int32_t layer = 0; layer < c->layout.n_layers; layer++)
        if (!c->step.prepared.at[layer] && ca_layer_stores(&c->layout, layer)) finish_layer(c, layer, ready);
}

/* ---- Table ---- */

const ca_backend ca_backend_cpu = {
    .name = "the CPU",
    .choice = "leave cuda NULL",
    .steps = {"cattn_step_", "chunkattn.h"},
    .pages = {"cattn_pages_", "chunkattn_pages.h"},
    .max_tokens = INT64_MAX,
    .destroy = destroy,
    .plan_config = plan_config,
    .create_cache = create_cache,
    .other_bytes = other_bytes,
    .execute = execute,
    .most_bytes = most_bytes,
    .reserve = reserve,
    .write = ca_cpu_write,
    .attend = attend,
    .has_written = has_written,
    .end = end,
    .release = release,
    .trim = ca_step_release,
    .set_budget = set_budget,
    .export_seq = ca_export,
    .import_seq = ca_import,
    .read_seq = ca_read,
    .open_tier = ca_file_tier_open,
    .create_pages = ca_cpu_create_pages,
    .attend_pages = ca_cpu_attend_pages,
};
