/* Reads a model's parameters from its metadata. Every number is checked against a range, and unsupported features are refused.
 */
#include "params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv_cache.h"
#include "params_reader.h"

/* ---- Attention ---- */

static const char PATTERN[] = "attention.sliding_window_pattern";

/* Read which layers have the window: an array of bools, or the period of the layers that have none. */
static cl_status read_pattern(cl_params_reader *r, cl_model_params *p, int32_t window) {
    const unsigned char *listed = NULL;
    int32_t period = r->arch->full_every;
    cl_status status = CL_OK;
    if (!cl_model_file_get_u64(r->file, cl_params_key(r, PATTERN), &(uint64_t){0}))
        status = cl_params_layers(r, PATTERN, &listed);
    if (status == CL_OK && !listed) status = cl_params_int(r, PATTERN, 0, 1024, &period);
    for (int32_t i = 0; i < p->n_layers; i++) {
        const bool has = listed ? listed[i] : period == 0 || (i + 1) % period != 0;
        p->windows[i] = has ? window : 0;
    }
    return status;
}

static cl_status read_windows(cl_params_reader *r, cl_model_params *p) {
    int32_t window = r->arch->default_window;
    if (!r->arch->windows) return CL_OK;
    const cl_status status = cl_params_int(r, "attention.sliding_window", 0, INT32_MAX, &window);
    if (status != CL_OK || window == 0) return status;
    p->windows = calloc((size_t)p->n_layers, sizeof *p->windows);
    if (!p->windows) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the windows of %d layers", p->n_layers);
    return read_pattern(r, p, window);
}

/* Read the length of K or V in each layer; files may have another one for layers with a window. */
static cl_status read_length(cl_params_reader *r, const cl_model_params *p, const char *suffix, const char *window_suffix,
                             int32_t *out) {
    int32_t length = 0;
    cl_status status = cl_params_ints(r, suffix, 1, 4096, p->n_layers, out);
    if (status == CL_OK && p->windows) status = cl_params_int(r, window_suffix, 1, 4096, &length);
    for (int32_t i = 0; length > 0 && i < p->n_layers; i++)
        if (p->windows[i]) out[i] = length;
    return status;
}

static cl_status read_head_dim(cl_params_reader *r, cl_model_params *p) {
    for (int32_t i = 0; i < p->n_layers; i++) p->head_dim[i] = p->n_embd % p->n_heads ? -1 : p->n_embd / p->n_heads;
    cl_status status = read_length(r, p, "attention.key_length", "attention.key_length_swa", p->head_dim);
    if (status != CL_OK) return status;
    int32_t *of_values = malloc((size_t)p->n_layers * sizeof *of_values);
    if (!of_values) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the shapes of %d layers", p->n_layers);
    memcpy(of_values, p->head_dim, (size_t)p->n_layers * sizeof *of_values);
    status = read_length(r, p, "attention.value_length", "attention.value_length_swa", of_values);
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++)
        if (of_values[i] != p->head_dim[i]) {
            if (!p->windows || !p->windows[i]) (void)cl_params_key(r, "attention.value_length");
            status = CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, " is %d and key_length %d; they must be equal", of_values[i],
                                    p->head_dim[i]);
        }
    free(of_values);
    return status;
}

static cl_status read_kv_heads(cl_params_reader *r, cl_model_params *p) {
    for (int32_t i = 0; i < p->n_layers; i++) p->n_kv_heads[i] = p->n_heads;
    const cl_status status = cl_params_ints(r, "attention.head_count_kv", 1, p->n_heads, p->n_layers, p->n_kv_heads);
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++) {
        if (p->n_heads % p->n_kv_heads[i] == 0) continue;
        cl_params_key(r, "attention.head_count");
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %d; it must be a multiple of the number of KV heads, %d", p->n_heads,
                              p->n_kv_heads[i]);
    }
    return status;
}

/* The last layers may attend over the K and V of the last layer before them that has a window as they do, or none. */
static cl_status read_kv_sources(cl_params_reader *r, cl_model_params *p) {
    int32_t n_shared = 0, last[2] = {-1, -1};
    const cl_status status = cl_params_int(r, "attention.shared_kv_layers", 0, p->n_layers - 1, &n_shared);
    if (status != CL_OK) return status;
    for (int32_t i = 0; i < p->n_layers; i++) {
        const bool has_window = p->windows && p->windows[i];
        if (i < p->n_layers - n_shared) last[has_window] = i;
        p->kv_source[i] = last[has_window];
        if (last[has_window] < 0)
            return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %d, but no layer before these has K and V for layer %d, which has %s",
                                  n_shared, i, has_window ? "a window" : "no window");
    }
    return CL_OK;
}

/* Whether the attention library supports these layers: it refuses a cache of another shape. */
static cl_status check_heads(cl_params_reader *r, const cl_model_params *p) {
    cattn_config config;
    cattn_config_init(&config);
    cl_params_to_cache(p, &config);
    config.n_threads = 1;
    config.budget_bytes = 1 << 20;
    cattn_cache *cache = NULL;
    cattn_error error;
    const cattn_status status = cattn_cache_create(&config, &cache, &error);
    cattn_cache_destroy(&cache);
    if (status != CATTN_ERR_ARG) return CL_OK; /* what else may fail would also fail when an engine creates its cache */
    return cl_fail(r->error, CL_ERR_UNSUPPORTED, "the model's attention is not supported: %s", error.message);
}

/* Each row sees the rows before it alone; a model that was trained to see those behind it, too, would be computed wrongly. */
static cl_status check_causal(cl_params_reader *r) {
    bool causal = true;
    const bool is_bool = cl_model_file_get_bool(r->file, cl_params_key(r, "attention.causal"), &causal);
    if (causal && (is_bool || !cl_model_file_has(r->file, r->key))) return CL_OK;
    return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, "%s", " must be true; attention in both directions is not supported");
}

static cl_status read_attention(cl_params_reader *r, cl_model_params *p) {
    cl_status status = check_causal(r);
    if (status != CL_OK) return status;
    p->n_heads = -1;
    if ((status = cl_params_int(r, "attention.head_count", 1, 4096, &p->n_heads)) != CL_OK) return status;
    p->score_scale = r->arch->score_scale;
    p->score_softcap = r->arch->default_score_softcap;
    if (p->n_layers == r->arch->wide_scale_layers) p->score_scale = sqrtf((float)p->n_heads / (float)p->n_embd);
    if ((status = read_kv_heads(r, p)) != CL_OK || (status = read_windows(r, p)) != CL_OK ||
        (status = read_head_dim(r, p)) != CL_OK || (status = read_kv_sources(r, p)) != CL_OK ||
        (status = cl_params_float(r, "attention.scale", 1e-6, 1e6, &p->score_scale)) != CL_OK ||
        (status = cl_params_float(r, "attn_logit_softcapping", 0, 1e6, &p->score_softcap)) != CL_OK)
        return status;
    p->maybe_values_are_keys = r->arch->values_may_be_keys;
    if (p->maybe_values_are_keys)
        p->maybe_values_are_keys =
            !cl_model_file_get_bool(r->file, cl_params_key(r, "attention.values_are_keys"), &p->values_are_keys);
    return check_heads(r, p);
}

/* ---- Embeddings ---- */

static cl_status read_pooling(cl_params_reader *r, cl_model_params *p) {
    enum { NONE, MEAN, CLS, LAST, RANK }; /* llama.cpp's numbers */
    uint64_t pooling = NONE;
    const bool given = cl_model_file_get_u64(r->file, cl_params_key(r, "pooling_type"), &pooling);
    if (given && pooling == RANK)
        return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED,
                              " is %d (rank): the file has the rows of a few labels in place of all words; use the model's "
                              "folder, or a GGUF file that was converted as one of a chat model",
                              RANK);
    if (given && pooling != NONE && pooling != MEAN && pooling != LAST)
        return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, " is %llu; supported: 0 (none), 1 (mean), 3 (last)",
                              (unsigned long long)pooling);
    p->for_embeddings = pooling != NONE;
    p->pools_mean = pooling == MEAN;
    cl_model_file_get_bool(r->file, cl_params_key(r, "embeddings_only"), &p->embeddings_only);
    return CL_OK;
}

/* ---- Experts ---- */

static cl_status read_scoring(cl_params_reader *r, cl_router_params *p) {
    enum { SOFTMAX = 1, SIGMOID, SOFTMAX_OF_CHOSEN }; /* llama.cpp's numbers */
    uint64_t scoring;
    p->scoring = r->arch->scoring;
    p->normalised = r->arch->normalised;
    cl_model_file_get_bool(r->file, cl_params_key(r, "expert_weights_norm"), &p->normalised);
    if (!cl_model_file_get_u64(r->file, cl_params_key(r, "expert_gating_func"), &scoring)) return CL_OK;
    if (scoring < SOFTMAX || scoring > SOFTMAX_OF_CHOSEN)
        return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED,
                              " is %llu; supported: 1 (softmax), 2 (sigmoid), 3 (softmax of the chosen experts)",
                              (unsigned long long)scoring);
    p->scoring = scoring == SIGMOID ? CL_SCORING_SIGMOID : CL_SCORING_SOFTMAX;
    p->normalised |= scoring == SOFTMAX_OF_CHOSEN; /* the same */
    return CL_OK;
}

static cl_status read_groups(cl_params_reader *r, cl_router_params *p) {
    static const char GROUPS[] = "expert_group_count", USED[] = "expert_group_used_count";
    p->n_groups = p->n_groups_used = 1;
    cl_status status = cl_params_int(r, GROUPS, 1, CL_ROUTER_MAX_GROUPS, &p->n_groups);
    if (status == CL_OK) status = cl_params_int(r, USED, 1, p->n_groups, &p->n_groups_used);
    if (status != CL_OK || p->n_groups == p->n_groups_used) return status;
    const int32_t size = p->n_experts / p->n_groups;
    cl_params_key(r, GROUPS);
    if (p->n_experts % p->n_groups || size < 2)
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %d; the %d experts cannot be divided into so many groups of at least 2",
                              p->n_groups, p->n_experts);
    cl_params_key(r, USED);
    if (size * p->n_groups_used < p->n_used)
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %d; so few groups of %d experts do not have the %d that a row goes to",
                              p->n_groups_used, size, p->n_used);
    return CL_OK;
}

static cl_status read_experts(cl_params_reader *r, cl_model_params *p) {
    cl_router_params *router = &p->router;
    int32_t n_shared = 0, shared_n_ff, step = 1;
    cl_status status = cl_params_int(r, "expert_count", 0, CL_ROUTER_MAX_EXPERTS, &router->n_experts);
    if (status != CL_OK || router->n_experts == 0) return status;
    if (!r->arch->experts)
        return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, " is %d; models of the architecture %s have no experts", router->n_experts,
                              r->arch->name);
    router->n_used = -1;
    p->expert_n_ff = p->n_ff[0];
    if ((status = cl_params_int(r, "expert_used_count", 1, router->n_experts, &router->n_used)) != CL_OK ||
        (status = cl_params_int(r, "expert_feed_forward_length", 1, 1 << 22, &p->expert_n_ff)) != CL_OK ||
        (status = cl_params_int(r, "expert_shared_count", 0, 64, &n_shared)) != CL_OK)
        return status;
    shared_n_ff = n_shared * p->expert_n_ff;
    if ((status = cl_params_int(r, "expert_shared_feed_forward_length", 0, 1 << 24, &shared_n_ff)) != CL_OK ||
        (status = cl_params_int(r, "leading_dense_block_count", 0, p->n_layers, &p->n_dense_layers)) != CL_OK ||
        (status = cl_params_int(r, "interleave_moe_layer_step", 1, 1, &step)) != CL_OK ||
        (status = cl_params_float(r, "expert_weights_scale", 0, 1e6, &router->scale)) != CL_OK ||
        (status = read_scoring(r, router)) != CL_OK)
        return status;
    if (router->scale == 0) router->scale = 1; /* files that have no scale may say so by 0 */
    for (int32_t i = p->n_dense_layers; !r->arch->experts_beside && i < p->n_layers; i++) p->n_ff[i] = shared_n_ff;
    return read_groups(r, router);
}

/* ---- Constants ---- */

static cl_status read_scales(cl_params_reader *r, cl_model_params *p) {
    float logit_scale = 1;
    p->embedding_scale = r->arch->embedding_root ? sqrtf((float)p->n_embd) : 1;
    p->residual_scale = 1;
    p->logit_softcap = r->arch->default_logit_softcap;
    float clamp = 0; /* of Q, K and V */
    cl_status status = cl_params_float(r, "attention.clamp_kqv", 0, 1e6, &clamp);
    if (status == CL_OK && clamp > 0)
        return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, " is %g; that is not supported", (double)clamp);
    if (status == CL_OK) status = cl_params_float(r, "embedding_scale", 1e-6, 1e6, &p->embedding_scale);
    if (status == CL_OK) status = cl_params_float(r, "residual_scale", 1e-6, 1e6, &p->residual_scale);
    if (status == CL_OK) status = cl_params_float(r, "final_logit_softcapping", 0, 1e6, &p->logit_softcap);
    if (status == CL_OK && r->arch->logit_scale) status = cl_params_float(r, "logit_scale", 1e-6, 1e6, &logit_scale);
    p->logit_scale = r->arch->logit_scale == CL_LOGIT_SCALE_DIVISOR ? 1 / logit_scale : logit_scale;
    return status;
}

/* A folder says which biases there are; a GGUF file shows it. */
static cl_status read_biases(cl_params_reader *r, cl_model_params *p) {
    int32_t listed = -1;
    if (!cl_model_file_has(r->file, cl_params_key(r, "biases"))) {
        p->biases = r->arch->biases;
        p->maybe_biases = r->arch->maybe_biases;
        return CL_OK;
    }
    const cl_status status = cl_params_int(r, "biases", 0, CL_BIAS_ALL, &listed);
    p->biases = (unsigned)listed;
    return status;
}

static cl_status read_eps(cl_params_reader *r, cl_model_params *p) {
    double eps = -1;
    const bool rms = r->arch->norm == CL_NORM_RMS;
    const cl_status status =
        cl_params_double(r, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 0, 1, &eps);
    if (status == CL_OK && eps < 0) return cl_fail(r->error, CL_ERR_FORMAT, "the file has no number %s", cl_params_key_name(r));
    p->norm_eps = (float)eps;
    return status;
}

/* ---- States ---- */

static cl_status read_cuts(cl_params_reader *r, cl_model_params *p) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (!cl_model_file_get_array(r->file, cl_params_key(r, "activation_sparsity_scale"), &type, &n, &data) ||
        type != CL_META_FLOAT32 || n != (size_t)p->n_layers)
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " must be an array of a float32 for each of the %d layers", p->n_layers);
    p->gate_cuts = malloc(n * sizeof *p->gate_cuts);
    if (!p->gate_cuts) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the shapes of %d layers", p->n_layers);
    memcpy(p->gate_cuts, data, n * sizeof *p->gate_cuts);
    for (int32_t i = 0; i < p->n_layers; i++)
        if (!(p->gate_cuts[i] < 100))
            return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " has %g for layer %d; numbers below 100 are allowed",
                                  (double)p->gate_cuts[i], i);
    return CL_OK;
}

/* Read what belongs to several states of a row. The rank of the product beside attention follows from its matrix. */
static cl_status read_states(cl_params_reader *r, cl_model_params *p) {
    int32_t active = 0;
    p->n_states = 1;
    if (!r->arch->altup) return CL_OK;
    p->n_states = -1;
    cl_status status = cl_params_int(r, "altup.num_inputs", 2, CL_MAX_STATES, &p->n_states);
    if (status == CL_OK) status = cl_params_int(r, "altup.active_idx", 0, 0, &active);
    const cl_tensor *left = cl_model_file_find_tensor(r->file, "blk.0.laurel_l.weight");
    if (status == CL_OK && (!left || left->ne[1] < 1 || left->ne[1] > 1 << 16))
        return cl_fail(r->error, CL_ERR_FORMAT, "tensor %s is missing or has not 1 to %d rows",
                       cl_model_file_source_name(r->file, "blk.0.laurel_l.weight"), 1 << 16);
    if (left) p->laurel_rank = (int32_t)left->ne[1];
    return status == CL_OK ? read_cuts(r, p) : status;
}

/* ---- All ---- */

static bool allocate_layers(cl_model_params *p) {
    int32_t **const arrays[] = {&p->n_kv_heads, &p->head_dim, &p->n_ff, &p->kv_source};
    bool made = true;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        made &= (*arrays[i] = calloc((size_t)p->n_layers, sizeof **arrays[i])) != NULL;
    return made;
}

cl_status cl_params_read(const cl_model_file *file, cl_model_params *p, cl_error *error) {
    *p = (cl_model_params){0};
    cl_str name;
    if (!cl_model_file_get_string(file, "general.architecture", &name))
        return cl_fail(error, CL_ERR_FORMAT, "the file has no general.architecture; it is not a model");
    cl_status status = cl_arch_find(name, &p->arch, error);
    if (status != CL_OK) return status;
    cl_params_reader r = {.file = file, .arch = p->arch, .error = error};
    p->n_layers = p->n_embd = p->n_ctx_train = -1;
    if ((status = cl_params_int(&r, "block_count", 1, 1024, &p->n_layers)) != CL_OK) return status;
    r.n_layers = p->n_layers;
    if ((status = cl_params_int(&r, "embedding_length", 1, 1 << 20, &p->n_embd)) != CL_OK ||
        (status = cl_params_int(&r, "context_length", 1, INT32_MAX, &p->n_ctx_train)) != CL_OK ||
        (status = cl_params_int(&r, "embedding_length_per_layer_input", 0, 1 << 16, &p->n_layer_embd)) != CL_OK ||
        (status = cl_params_int(&r, "nextn_predict_layers", 0, p->n_layers - 1, &p->n_next_layers)) != CL_OK)
        return status;
    p->n_layers -= p->n_next_layers;
    /* Folders do not count them. */
    if ((status = cl_params_int(&r, "next_layers_behind", 0, 1024, &p->n_next_layers)) != CL_OK) return status;
    if (!allocate_layers(p)) return cl_fail(error, CL_ERR_NOMEM, "no memory for the shapes of %d layers", p->n_layers);
    p->n_ff[0] = -1;
    if ((status = cl_params_ints(&r, "feed_forward_length", 1, 1 << 22, p->n_layers, p->n_ff)) != CL_OK) return status;
    if ((status = read_attention(&r, p)) != CL_OK || (status = cl_params_rope(&r, p)) != CL_OK ||
        (status = read_experts(&r, p)) != CL_OK || (status = read_scales(&r, p)) != CL_OK ||
        (status = read_biases(&r, p)) != CL_OK || (status = read_eps(&r, p)) != CL_OK || (status = read_states(&r, p)) != CL_OK)
        return status;
    return read_pooling(&r, p);
}

void cl_params_free(cl_model_params *p) {
    free(p->n_kv_heads);
    free(p->head_dim);
    free(p->n_ff);
    free(p->kv_source);
    free(p->windows);
    free(p->plain);
    free(p->gate_cuts);
    p->n_kv_heads = p->head_dim = p->n_ff = p->kv_source = p->windows = NULL;
    p->plain = NULL;
    p->gate_cuts = NULL;
}

uint64_t cl_params_kv_bytes(const cl_model_params *p, uint64_t number, uint64_t head) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < p->n_layers; i++)
        if (cl_has_kv(p, i)) bytes += 2 * (uint64_t)p->n_kv_heads[i] * ((uint64_t)p->head_dim[i] * number + head);
    return bytes;
}
