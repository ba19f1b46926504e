/* Reads a model's parameters from its metadata. Every number is checked against a range, and unsupported features are refused.
 */
#include "params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The state of reading: the keys of one architecture, and the one being read, for messages. */
typedef struct reader {
    const cl_model_file *file;
    const cl_arch *arch;
    cl_error *error;
    int32_t n_layers; /* of the file; 0: not known yet */
    char key[96];
} reader;

static const char *key(reader *r, const char *suffix) {
    (void)snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, suffix);
    return r->key;
}

/* The file's own name of the key. */
static const char *key_name(const reader *r) { return cl_model_file_source_name(r->file, r->key); }

#define FAIL(r, code, fmt, ...) cl_fail((r)->error, code, "%s" fmt, key_name(r), __VA_ARGS__)

static cl_status bad_value(const reader *r, double value, double min, double max) {
    return FAIL(r, CL_ERR_FORMAT, " is %g; allowed: %g to %g", value, min, max);
}

/* An array has a value for each layer. */
static cl_status check_length(const reader *r) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (!cl_model_file_get_array(r->file, r->key, &type, &n, &data)) return CL_OK;
    if (r->n_layers == 0) return FAIL(r, CL_ERR_FORMAT, "%s", " is an array; one number is needed");
    if (n == (size_t)r->n_layers) return CL_OK;
    return FAIL(r, CL_ERR_FORMAT, " has %zu entries; one number, or one for each of the %d layers, is needed", n, r->n_layers);
}

/* Read an integer. If the key is absent, *out keeps its value, or an error is reported if that is negative. */
static cl_status get_int(reader *r, const char *suffix, int64_t min, int64_t max, int32_t *out) {
    uint64_t value;
    if (!cl_model_file_get_u64(r->file, key(r, suffix), &value)) {
        if (cl_model_file_has(r->file, r->key))
            return FAIL(r, CL_ERR_UNSUPPORTED, "%s",
                        " is not one integer from 0, nor an array of equal ones; layers that differ are not supported");
        if (*out >= 0) return CL_OK;
        return cl_fail(r->error, CL_ERR_FORMAT, "the file has no integer %s; it is not a complete %s model", key_name(r),
                       r->arch->name);
    }
    if (value > (uint64_t)max || value < (uint64_t)min) return bad_value(r, (double)value, (double)min, (double)max);
    *out = (int32_t)value;
    return check_length(r);
}

/* Read a number. If the key is absent, *out keeps its value. */
static cl_status get_double(reader *r, const char *suffix, double min, double max, double *out) {
    double value;
    uint64_t integer;
    if (!cl_model_file_has(r->file, key(r, suffix))) return CL_OK;
    if (cl_model_file_get_u64(r->file, r->key, &integer))
        value = (double)integer;
    else if (!cl_model_file_get_f64(r->file, r->key, &value))
        return FAIL(r, CL_ERR_FORMAT, " is not one number, nor an array of equal ones; %g to %g are allowed", min, max);
    if (!(value >= min && value <= max)) return bad_value(r, value, min, max);
    *out = value;
    return check_length(r);
}

static cl_status get_float(reader *r, const char *suffix, double min, double max, float *out) {
    double value = (double)*out;
    const cl_status status = get_double(r, suffix, min, max, &value);
    *out = (float)value;
    return status;
}

/* ---- Rotation ---- */

static cl_status read_scaling(reader *r, double *scale) {
    cl_str scaling;
    const bool named = cl_model_file_get_string(r->file, key(r, "rope.scaling.type"), &scaling);
    if (named && cl_str_is(scaling, "none")) return CL_OK;
    if (named && !cl_str_is(scaling, "linear")) {
        char shown[40];
        return FAIL(r, CL_ERR_UNSUPPORTED, " is \"%s\"; supported: none, linear, and Llama 3's (tensor rope_freqs)",
                    cl_str_show(scaling, shown, sizeof shown));
    }
    if (named && !cl_model_file_has(r->file, key(r, "rope.scaling.factor")))
        return cl_fail(r->error, CL_ERR_FORMAT, "the file has no number %s, which linear scaling needs", key_name(r));
    double attn_factor = 1;
    cl_status status = get_double(r, "rope.scaling.attn_factor", 0, 1e6, &attn_factor);
    if (status != CL_OK) return status;
    if (attn_factor != 1) return FAIL(r, CL_ERR_UNSUPPORTED, " is %g; only 1 is supported", attn_factor);
    /* First the name in old files. A factor without a type means linear. */
    status = get_double(r, "rope.scale_linear", 1e-3, 1e6, scale);
    return status == CL_OK ? get_double(r, "rope.scaling.factor", 1e-3, 1e6, scale) : status;
}

static cl_status read_rope(reader *r, cl_model_params *p) {
    cl_rope_params *full = &p->rope[CL_ROPE_FULL], *window = &p->rope[CL_ROPE_WINDOW];
    p->n_rot = p->head_dim;
    cl_status status = get_int(r, "rope.dimension_count", 2, p->head_dim, &p->n_rot);
    if (status != CL_OK) return status;
    if (p->n_rot % 2) return FAIL(r, CL_ERR_FORMAT, " is %d; it must be even", p->n_rot);
    p->rope_halves = r->arch->rope_halves;
    cl_model_file_get_bool(r->file, key(r, "rope.halves"), &p->rope_halves);
    *full = (cl_rope_params){.base = 10000, .scale = 1};
    if ((status = get_double(r, "rope.freq_base", 1, 1e12, &full->base)) != CL_OK) return status;
    if ((status = read_scaling(r, &full->scale)) != CL_OK) return status;
    *window = *full;
    if (r->arch->window_rope_base > 0) *window = (cl_rope_params){.base = r->arch->window_rope_base, .scale = 1};
    return r->arch->windows ? get_double(r, "rope.freq_base_swa", 1, 1e12, &window->base) : CL_OK;
}

/* ---- Attention ---- */

/* Read which layers have the window: an array of bools, or the period of the layers that have none. */
static cl_status read_pattern(reader *r, cl_model_params *p, int32_t window) {
    cl_meta_type type;
    size_t n;
    const void *data;
    const bool listed = cl_model_file_get_array(r->file, key(r, "attention.sliding_window_pattern"), &type, &n, &data);
    if (listed && (type != CL_META_BOOL || n != (size_t)p->n_layers))
        return FAIL(r, CL_ERR_FORMAT, " has %zu entries; a bool for each of the %d layers is needed", n, p->n_layers);
    int32_t period = r->arch->full_every;
    const cl_status status = listed ? CL_OK : get_int(r, "attention.sliding_window_pattern", 0, 1024, &period);
    for (int32_t i = 0; i < p->n_layers; i++) {
        const bool has = listed ? ((const unsigned char *)data)[i] : period == 0 || (i + 1) % period != 0;
        p->windows[i] = has ? window : 0;
    }
    return status;
}

static cl_status read_windows(reader *r, cl_model_params *p) {
    int32_t window = 0;
    if (!r->arch->windows) return CL_OK;
    const cl_status status = get_int(r, "attention.sliding_window", 0, INT32_MAX, &window);
    if (status != CL_OK || window == 0) return status;
    p->windows = calloc((size_t)p->n_layers, sizeof *p->windows);
    if (!p->windows) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the windows of %d layers", p->n_layers);
    return read_pattern(r, p, window);
}

static cl_status read_head_dim(reader *r, cl_model_params *p) {
    p->head_dim = p->n_embd % p->n_heads ? -1 : p->n_embd / p->n_heads;
    cl_status status = get_int(r, "attention.key_length", 1, 4096, &p->head_dim);
    if (status != CL_OK) return status;
    int32_t value_length = p->head_dim;
    if ((status = get_int(r, "attention.value_length", 1, 4096, &value_length)) != CL_OK) return status;
    if (value_length != p->head_dim)
        return FAIL(r, CL_ERR_UNSUPPORTED, " is %d and key_length %d; they must be equal", value_length, p->head_dim);
    return CL_OK;
}

/* Whether the attention library supports these heads: it refuses a cache of another shape. */
static cl_status check_heads(reader *r, const cl_model_params *p) {
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_threads = 1;
    config.n_heads = p->n_heads;
    config.n_kv_heads = p->n_kv_heads;
    config.head_dim = p->head_dim;
    config.budget_bytes = 1 << 20;
    cattn_cache *cache = NULL;
    cattn_error error;
    const cattn_status status = cattn_cache_create(&config, &cache, &error);
    cattn_cache_destroy(&cache);
    if (status != CATTN_ERR_ARG) return CL_OK; /* what else may fail would also fail when an engine creates its cache */
    return cl_fail(r->error, CL_ERR_UNSUPPORTED, "the model's attention is not supported: %s", error.message);
}

/* Each row sees the rows before it alone; a model that was trained to see those behind it, too, would be computed wrongly. */
static cl_status check_causal(reader *r) {
    bool causal = true;
    const bool is_bool = cl_model_file_get_bool(r->file, key(r, "attention.causal"), &causal);
    if (causal && (is_bool || !cl_model_file_has(r->file, r->key))) return CL_OK;
    return FAIL(r, CL_ERR_UNSUPPORTED, "%s", " must be true; attention in both directions is not supported");
}

static cl_status read_attention(reader *r, cl_model_params *p) {
    cl_status status = check_causal(r);
    if (status != CL_OK) return status;
    p->n_heads = -1;
    if ((status = get_int(r, "attention.head_count", 1, 4096, &p->n_heads)) != CL_OK) return status;
    p->n_kv_heads = p->n_heads;
    if ((status = get_int(r, "attention.head_count_kv", 1, p->n_heads, &p->n_kv_heads)) != CL_OK) return status;
    if (p->n_heads % p->n_kv_heads) {
        key(r, "attention.head_count");
        return FAIL(r, CL_ERR_FORMAT, " is %d; it must be a multiple of the number of KV heads, %d", p->n_heads, p->n_kv_heads);
    }
    if (p->n_layers == r->arch->wide_scale_layers) p->score_scale = sqrtf((float)p->n_heads / (float)p->n_embd);
    if ((status = read_head_dim(r, p)) != CL_OK || (status = check_heads(r, p)) != CL_OK ||
        (status = read_windows(r, p)) != CL_OK ||
        (status = get_float(r, "attention.scale", 1e-6, 1e6, &p->score_scale)) != CL_OK)
        return status;
    return get_float(r, "attn_logit_softcapping", 1e-3, 1e6, &p->score_softcap);
}

/* ---- Embeddings ---- */

static cl_status read_pooling(reader *r, cl_model_params *p) {
    enum { NONE, MEAN, CLS, LAST }; /* llama.cpp's numbers */
    uint64_t pooling = NONE;
    const bool given = cl_model_file_get_u64(r->file, key(r, "pooling_type"), &pooling);
    if (given && pooling != NONE && pooling != MEAN && pooling != LAST)
        return FAIL(r, CL_ERR_UNSUPPORTED, " is %llu; supported: 0 (none), 1 (mean), 3 (last)", (unsigned long long)pooling);
    p->for_embeddings = pooling != NONE;
    p->pools_mean = pooling == MEAN;
    cl_model_file_get_bool(r->file, key(r, "embeddings_only"), &p->embeddings_only);
    return CL_OK;
}

/* ---- All ---- */

cl_status cl_params_read(const cl_model_file *file, cl_model_params *p, cl_error *error) {
    *p = (cl_model_params){0};
    cl_str name;
    if (!cl_model_file_get_string(file, "general.architecture", &name))
        return cl_fail(error, CL_ERR_FORMAT, "the file has no general.architecture; it is not a model");
    cl_status status = cl_arch_find(name, &p->arch, error);
    if (status != CL_OK) return status;
    reader r = {.file = file, .arch = p->arch, .error = error};
    int32_t n_experts = 0;
    double eps = -1;
    p->n_layers = p->n_embd = p->n_ff = p->n_ctx_train = -1;
    if ((status = get_int(&r, "block_count", 1, 1024, &p->n_layers)) != CL_OK) return status;
    r.n_layers = p->n_layers;
    if ((status = get_int(&r, "embedding_length", 1, 1 << 20, &p->n_embd)) != CL_OK ||
        (status = get_int(&r, "feed_forward_length", 1, 1 << 22, &p->n_ff)) != CL_OK ||
        (status = get_int(&r, "context_length", 1, INT32_MAX, &p->n_ctx_train)) != CL_OK ||
        (status = get_int(&r, "expert_count", 0, INT32_MAX, &n_experts)) != CL_OK)
        return status;
    if (n_experts) return FAIL(&r, CL_ERR_UNSUPPORTED, " is %d; mixtures of experts are not supported", n_experts);
    if ((status = get_int(&r, "nextn_predict_layers", 0, p->n_layers - 1, &p->n_next_layers)) != CL_OK) return status;
    p->n_layers -= p->n_next_layers;
    if ((status = read_attention(&r, p)) != CL_OK || (status = read_rope(&r, p)) != CL_OK ||
        (status = get_float(&r, "final_logit_softcapping", 1e-3, 1e6, &p->logit_softcap)) != CL_OK ||
        (status = get_double(&r, "attention.layer_norm_rms_epsilon", 0, 1, &eps)) != CL_OK)
        return status;
    if (eps < 0) return cl_fail(error, CL_ERR_FORMAT, "the file has no number %s", key_name(&r));
    p->rms_eps = (float)eps;
    return read_pooling(&r, p);
}

void cl_params_free(cl_model_params *p) {
    free(p->windows);
    p->windows = NULL;
}
