/* Checking a cattn_config. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "backends.h"
#include "chunkattn/attn/head_sizes.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/cache/chunk_layout.h"
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

/* The name of a field or, if layers have an array for it, of its element. */
typedef char field_name[40];
static const char *name_of(const void *by_layer, const char *field, int32_t layer, field_name name) {
    if (by_layer)
        snprintf(name, sizeof(field_name), "layer_%s[%d]", field, layer);
    else
        snprintf(name, sizeof(field_name), "%s", field);
    return name;
}

static cattn_status check_heads(const cattn_config *c, int32_t layer, cattn_error *error) {
    const ca_heads h = ca_heads_of(c, layer);
    field_name name, other;
    cattn_status s;
    if ((s = check_range(name_of(c->layer_n_kv_heads, "n_kv_heads", layer, name), h.n_kv_heads, 1, MAX_HEADS, error)) ||
        (s = check_range(name_of(c->layer_n_heads, "n_heads", layer, name), h.n_heads, 1, MAX_HEADS, error)))
        return s;
    if (h.n_heads % h.n_kv_heads != 0 || h.n_heads / h.n_kv_heads > MAX_GROUP)
        return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %d; it must be 1 to %d times %s, which is %d", name, h.n_heads,
                       MAX_GROUP, name_of(c->layer_n_kv_heads, "n_kv_heads", layer, other), h.n_kv_heads);
    if ((s = check_head_dim(name_of(c->layer_head_dim, "head_dim", layer, name), h.d_k, error)) ||
        (s = check_head_dim(name_of(c->layer_head_dim_v, "head_dim_v", layer, name), h.d_v, error)) || isfinite(h.scale))
        return s;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is not a finite number", name_of(c->layer_scale, "scale", layer, name));
}

/* Whether a layer can attend over the K/V of another one. */
static cattn_status check_source(const cattn_config *c, int32_t layer, cattn_error *error) {
    const int32_t source = c->kv_source[layer];
    if (source == layer) return CATTN_OK;
    if (source < 0 || source > layer || c->kv_source[source] != source)
        return ca_fail(error, CATTN_ERR_ARG, layer,
                       "kv_source[%d] is %d; it must be %d, or an earlier layer whose kv_source is that layer itself", layer,
                       source, layer);
    const ca_heads own = ca_heads_of(c, layer), of = ca_heads_of(c, source);
    if (own.n_kv_heads == of.n_kv_heads && own.d_k == of.d_k && own.d_v == of.d_v) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, layer,
                   "kv_source[%d] is %d, which has %d KV heads of %d and %d; layer %d has %d of %d and %d, and they must agree",
                   layer, source, of.n_kv_heads, of.d_k, of.d_v, layer, own.n_kv_heads, own.d_k, own.d_v);
}

static cattn_status check_shape(const cattn_config *c, cattn_error *error) {
    cattn_status s = check_range("n_layers", c->n_layers, 1, MAX_LAYERS, error);
    for (int32_t i = 0; s == CATTN_OK && i < c->n_layers; i++) {
        s = check_heads(c, i, error);
        if (s == CATTN_OK && c->kv_source) s = check_source(c, i, error);
    }
    if (s) return s;
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
    const int32_t n_heads = ca_heads_of(c, 0).n_heads;
    for (int32_t i = 0; c->alibi_slopes && i < n_heads && s == CATTN_OK; i++) {
        snprintf(field, sizeof field, "alibi_slopes[%d]", i);
        s = check_number(field, c->alibi_slopes[i], -limit, limit, error);
    }
    const float *sinks = c->sink_logits;
    for (int32_t layer = 0; layer < c->n_layers && s == CATTN_OK; layer++) {
        const int32_t n = ca_heads_of(c, layer).n_heads;
        if (c->alibi_slopes && n != n_heads)
            return ca_fail(error, CATTN_ERR_ARG, layer,
                           "alibi_slopes is set, but layer_n_heads[%d] is %d and that of layer 0 is %d; they must agree", layer,
                           n, n_heads);
        for (int32_t i = 0; sinks && i < n && s == CATTN_OK; i++, sinks++) {
            snprintf(field, sizeof field, "sink_logits[%d][%d], where it is not -INFINITY for none,", layer, i);
            if (*sinks != -INFINITY) s = check_number(field, *sinks, -limit, limit, error);
        }
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
    if ((s = check_shape(c, error)) || (s = check_hooks(c, error))) return s;
    if ((s = check_windows(c, error)) || (s = check_scores(c, error))) return s;
    if ((s = check_range("kv_type", c->kv_type, CATTN_F32, CATTN_E4M3, error))) return s;
    if ((s = check_range("sharing", c->sharing, CATTN_SHARED, CATTN_PRIVATE, error))) return s;
    if ((s = check_range("retention", c->retention, CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED, error))) return s;
    if (c->cuda && (s = check_range("cuda->device", c->cuda->device, 0, INT32_MAX, error))) return s;
    if ((s = check_tier(c, error))) return s;
    if (c->pin_bytes == 0) c->pin_bytes = c->budget_bytes / 4;
    if (c->n_threads == 0) c->n_threads = ca_cpu_count();
    return CATTN_OK;
}
