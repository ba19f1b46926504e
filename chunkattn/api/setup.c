/* What a cache and foreign pages are set up with, and the check of views that both get. */
#include "setup.h"

#include "chunkattn/base/error.h"
#include "chunkattn/base/levels.h"

/* ---- Kernel level ---- */

cattn_status ca_setup_level(const char *highest, int *level, cattn_error *error) {
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

cattn_status ca_setup_threads(const cattn_config *config, ca_pool **threads, cattn_parallel *parallel, cattn_error *error) {
    *parallel = config->parallel;
    if (parallel->run) return CATTN_OK;
    *threads = ca_pool_create(config->n_threads);
    if (!*threads) return ca_fail(error, CATTN_ERR_NOMEM, -1, "%d threads cannot be started", config->n_threads);
    *parallel = (cattn_parallel){ca_pool_run, *threads};
    return CATTN_OK;
}

/* ---- Plan ---- */

/* A multiple of this many tasks for each KV head gives all threads the same number of tasks over all heads. */
static int32_t task_step(const cattn_config *config) {
    int32_t n = 1;
    while (n * config->n_kv_heads % config->n_threads) n++;
    return n;
}

/* Tasks for each KV head, so that each thread has about four; a multiple of task_step unless it is 1. */
static int32_t min_tasks(const cattn_config *config) {
    enum { TASKS_PER_THREAD = 4 };
    const int32_t heads = config->n_kv_heads, threads = config->n_threads, step = task_step(config);
    if (threads == 1) return 1;
    const int32_t n = (TASKS_PER_THREAD * threads + heads - 1) / heads;
    return n > 1 ? (n + step - 1) / step * step : n;
}

/* Query heads down to which a chain's rows are split: two full register tiles, and at least one row of the sequence. */
static int32_t min_slice(const ca_attn *attn) {
    const int32_t tiles = 2 * attn->kernel->tile_rows;
    return tiles > attn->group ? tiles : attn->group;
}

ca_plan_config ca_setup_plan(const cattn_config *config, const ca_attn *attn) {
    return (ca_plan_config){.together = config->sharing == CATTN_SHARED,
                            .group = attn->group,
                            .max_rows = attn->max_rows,
                            .min_slice = min_slice(attn),
                            .chunk_cost = attn->kernel->chunk_cost,
                            .min_tasks = min_tasks(config),
                            .task_step = task_step(config),
                            .log2_segment = CA_LOG2_SEGMENT,
                            .n_sink_tokens = config->n_sink_tokens};
}

/* ---- Views ---- */

/* A stride over a single element is not checked. */
static cattn_status check_stride(const char *name, const char *field, int64_t stride, int64_t n, int32_t dim,
                                 cattn_error *error) {
    if (n <= 1 || stride >= dim) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s->%s is %lld; it must be at least the head size, %d", name, field,
                   (long long)stride, dim);
}

cattn_status ca_check_view(const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads, int32_t dim,
                           cattn_error *error) {
    if (!view || !view->data) return ca_fail(error, CATTN_ERR_ARG, -1, "%s is NULL", name);
    if (view->type != CATTN_F32 && view->type != CATTN_F16 && view->type != CATTN_BF16)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "%s->type is %d; it must be CATTN_F32, CATTN_F16 or CATTN_BF16", name,
                       view->type);
    const cattn_status s = check_stride(name, "row_stride", view->row_stride, n_rows, dim, error);
    if (s) return s;
    return check_stride(name, "head_stride", view->head_stride, n_heads, dim, error);
}
