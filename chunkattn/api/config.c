/* Checking a cattn_config. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "backends.h"
#include "chunkattn/attn/head_sizes.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn/base/fail.h"
#include "chunkattn_cuda.h"
#include "public_struct.h"

enum { MAX_GROUP = 128, MAX_LAYERS = 4096, MAX_HEADS = 4096, MAX_THREADS = 1024 };

void cattn_config_init(cattn_config *config) {
    *config = (cattn_config){.struct_size = sizeof *config,
                             .chunk_size = 64,
                             .kv_type = CATTN_BF16,
                             .sharing = CATTN_SHARED,
                             .retention = CATTN_RETAIN_LEARNED,
                             .budget_bytes = (uint64_t)1 << 30};
}

static cattn_status check_range(const char *field, int64_t value, int64_t low, int64_t high, cattn_error *error) {
    if (value >= low && value <= high) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %lld; it must be from %lld to %lld", field, (long long)value,
                   (long long)low, (long long)high);
}

static cattn_status check_head_dim(const char *field, int32_t d, cattn_error *error) {
    char list[80] = "";
    size_t used = 0;
    for (int i = 0; i < CA_N_HEAD_SIZES; i++) {
        if (d == ca_head_sizes[i]) return CATTN_OK;
        const char *separator = i == 0 ? "" : i < CA_N_HEAD_SIZES - 1 ? ", " : " or ";
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", separator, ca_head_sizes[i]);
    }
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %d; it must be %s", field, d, list);
}

static cattn_status check_shape(const cattn_config *c, cattn_error *error) {
    cattn_status s;
    if ((s = check_range("n_layers", c->n_layers, 1, MAX_LAYERS, error))) return s;
    if ((s = check_range("n_kv_heads", c->n_kv_heads, 1, MAX_HEADS, error))) return s;
    if ((s = check_range("n_heads", c->n_heads, 1, MAX_HEADS, error))) return s;
    if (c->n_heads % c->n_kv_heads != 0 || c->n_heads / c->n_kv_heads > MAX_GROUP)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_heads is %d; it must be 1 to %d times n_kv_heads, which is %d", c->n_heads,
                       MAX_GROUP, c->n_kv_heads);
    if ((s = check_head_dim("head_dim", c->head_dim, error))) return s;
    if ((s = check_head_dim("head_dim_v", c->head_dim_v, error))) return s;
    if (c->chunk_size < 16 || c->chunk_size > 256 || (c->chunk_size & (c->chunk_size - 1)))
        return ca_fail(error, CATTN_ERR_ARG, -1, "chunk_size is %d; it must be 16, 32, 64, 128 or 256", c->chunk_size);
    return CATTN_OK;
}

static cattn_status check_hooks(const cattn_config *c, cattn_error *error) {
    if (!c->allocator.alloc != !c->allocator.free)
        return ca_fail(error, CATTN_ERR_ARG, -1, "allocator has only one of alloc and free; set both or neither");
    if (c->parallel.run && c->n_threads == 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "parallel is set but n_threads is 0; set it to the number of workers");
    return check_range("n_threads", c->n_threads, 0, MAX_THREADS, error);
}

/* NaN is in no range. */
static cattn_status check_number(const char *field, float value, float low, float high, cattn_error *error) {
    if (value >= low && value <= high) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %g; it must be from %g to %g", field, (double)value, (double)low,
                   (double)high);
}

static cattn_status check_windows(const cattn_config *c, cattn_error *error) {
    for (int32_t i = 0; c->windows && i < c->n_layers; i++)
        if (c->windows[i] < 0)
            return ca_fail(error, CATTN_ERR_ARG, i, "windows[%d] is %d; it must be the positions that a row sees, or 0 for all",
                           i, c->windows[i]);
    return check_range("n_sink_tokens", c->n_sink_tokens, 0, INT32_MAX, error);
}

/* The limits are far beyond those of any model, and nothing overflows within them. */
static cattn_status check_scores(const cattn_config *c, cattn_error *error) {
    const float limit = 1e6f;
    char field[80];
    cattn_status s = CATTN_OK;
    if (c->softcap != 0 && (s = check_number("softcap, where it is not 0 for none,", c->softcap, 1e-3f, limit, error)))
        return s;
    for (int32_t i = 0; c->alibi_slopes && i < c->n_heads && s == CATTN_OK; i++) {
        snprintf(field, sizeof field, "alibi_slopes[%d]", i);
        s = check_number(field, c->alibi_slopes[i], -limit, limit, error);
    }
    for (int32_t i = 0; c->sink_logits && i < c->n_layers * c->n_heads && s == CATTN_OK; i++) {
        snprintf(field, sizeof field, "sink_logits[%d][%d], where it is not -INFINITY for none,", i / c->n_heads,
                 i % c->n_heads);
        if (c->sink_logits[i] != -INFINITY) s = check_number(field, c->sink_logits[i], -limit, limit, error);
    }
    return s;
}

static cattn_status check_tier(const cattn_config *c, cattn_error *error) {
    if (!c->tier_dir != (c->tier_bytes == 0))
        return ca_fail(error, CATTN_ERR_ARG, -1, "%s is set, but %s is not; set both or neither",
                       c->tier_dir ? "tier_dir" : "tier_bytes", c->tier_dir ? "tier_bytes" : "tier_dir");
    if (!c->tier_dir) return CATTN_OK;
    const ca_compute compute = ca_compute_for(c);
    if (!compute.backend->open_tier) return ca_backend_refuse(compute.cuda_device, CA_LACKS_TIER, error);
    if (c->sharing == CATTN_PRIVATE || c->retention == CATTN_RETAIN_NONE)
        return ca_fail(error, CATTN_ERR_ARG, -1, "tier_dir is set, but with this %s nothing is retained; choose another",
                       c->sharing == CATTN_PRIVATE ? "sharing" : "retention");
    return CATTN_OK;
}

cattn_status ca_config_resolve(const cattn_config *config, cattn_config *c, cattn_error *error) {
    cattn_status s;
    cattn_config_init(c);
    if ((s = CA_STRUCT_READ(cattn_config, tier_fingerprint, c, config, error))) return s;
    if (c->head_dim_v == 0) c->head_dim_v = c->head_dim;
    if ((s = check_shape(c, error)) || (s = check_hooks(c, error))) return s;
    if ((s = check_windows(c, error)) || (s = check_scores(c, error))) return s;
    if ((s = check_range("kv_type", c->kv_type, CATTN_F32, CATTN_E4M3, error))) return s;
    if ((s = check_range("sharing", c->sharing, CATTN_SHARED, CATTN_PRIVATE, error))) return s;
    if ((s = check_range("retention", c->retention, CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED, error))) return s;
    if (c->cuda && (s = check_range("cuda->device", c->cuda->device, 0, INT32_MAX, error))) return s;
    if ((s = check_tier(c, error))) return s;
    if (!isfinite(c->scale)) return ca_fail(error, CATTN_ERR_ARG, -1, "scale is not a finite number");
    if (c->pin_bytes == 0) c->pin_bytes = c->budget_bytes / 4;
    if (c->scale == 0) c->scale = (float)(1 / sqrt((double)c->head_dim));
    if (c->n_threads == 0) c->n_threads = ca_cpu_count();
    return CATTN_OK;
}
