/* Loads a model: reads and checks its parameters, checks each tensor's shape against them, repacks the weights. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor_row.h"

/* ---- Parameters ---- */

static cl_status bad_value(cl_error *error, const char *key, double value, double min, double max) {
    return cl_fail(error, CL_ERR_FORMAT, "%s is %g; allowed: %g to %g", key, value, min, max);
}

/* An integer key; absent: the value that *out has, or an error where that is negative. */
static cl_status get_int(const model_file *file, const char *key, int64_t min, int64_t max, int32_t *out, cl_error *error) {
    uint64_t value;
    double other;
    if (!model_file_get_u64(file, key, &value)) {
        meta_type type;
        size_t n;
        const void *data;
        if (model_file_get_f64(file, key, &other) || model_file_get_array(file, key, &type, &n, &data))
            return cl_fail(error, CL_ERR_UNSUPPORTED, "%s is not a single integer; layers that differ are not supported", key);
        if (*out >= 0) return CL_OK;
        return cl_fail(error, CL_ERR_FORMAT, "the file has no integer %s; it is not a complete llama model", key);
    }
    if (value > (uint64_t)max || value < (uint64_t)min) return bad_value(error, key, (double)value, (double)min, (double)max);
    *out = (int32_t)value;
    return CL_OK;
}

/* A number; absent: the value that *out has. */
static cl_status get_double(const model_file *file, const char *key, double min, double max, double *out, cl_error *error) {
    double value;
    if (!model_file_get_f64(file, key, &value)) return CL_OK;
    if (!(value >= min && value <= max)) return bad_value(error, key, value, min, max);
    *out = value;
    return CL_OK;
}

static cl_status read_rope(const model_file *file, model_params *p, cl_error *error) {
    p->n_rot = p->head_dim;
    cl_status status = get_int(file, "llama.rope.dimension_count", 2, p->head_dim, &p->n_rot, error);
    if (status != CL_OK) return status;
    if (p->n_rot % 2) return cl_fail(error, CL_ERR_FORMAT, "llama.rope.dimension_count is %d; it must be even", p->n_rot);
    p->rope_base = 10000;
    if ((status = get_double(file, "llama.rope.freq_base", 1, 1e12, &p->rope_base, error)) != CL_OK) return status;
    p->rope_scale = 1;
    str scaling;
    const bool named = model_file_get_string(file, "llama.rope.scaling.type", &scaling);
    if (named && str_is(scaling, "none")) return CL_OK;
    if (named && !str_is(scaling, "linear"))
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "llama.rope.scaling.type is \"%.*s\"; supported: none, linear, and Llama 3's (tensor rope_freqs)",
                       (int)(scaling.size < 40 ? scaling.size : 40), scaling.data);
    double factor;
    if (named && !model_file_get_f64(file, "llama.rope.scaling.factor", &factor))
        return cl_fail(error, CL_ERR_FORMAT, "the file has no number llama.rope.scaling.factor, which linear scaling needs");
    /* The name in old files first. A factor without a type means linear. */
    if ((status = get_double(file, "llama.rope.scale_linear", 1e-3, 1e6, &p->rope_scale, error)) != CL_OK) return status;
    return get_double(file, "llama.rope.scaling.factor", 1e-3, 1e6, &p->rope_scale, error);
}

static cl_status read_heads(const model_file *file, model_params *p, cl_error *error) {
    cl_status status;
    p->n_heads = p->head_dim = -1;
    if ((status = get_int(file, "llama.attention.head_count", 1, 4096, &p->n_heads, error)) != CL_OK) return status;
    p->n_kv_heads = p->n_heads;
    if ((status = get_int(file, "llama.attention.head_count_kv", 1, p->n_heads, &p->n_kv_heads, error)) != CL_OK) return status;
    if (p->n_heads % p->n_kv_heads || p->n_heads / p->n_kv_heads > 16)
        return cl_fail(
            error, CL_ERR_UNSUPPORTED,
            "llama.attention.head_count is %d with head_count_kv %d; it must be a multiple, at most 16 times as many",
            p->n_heads, p->n_kv_heads);
    if (p->n_embd % p->n_heads == 0) p->head_dim = p->n_embd / p->n_heads;
    if ((status = get_int(file, "llama.attention.key_length", 1, 4096, &p->head_dim, error)) != CL_OK) return status;
    int32_t value_length = p->head_dim;
    if ((status = get_int(file, "llama.attention.value_length", 1, 4096, &value_length, error)) != CL_OK) return status;
    if (value_length != p->head_dim)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "llama.attention.value_length is %d and key_length %d; they must be equal",
                       value_length, p->head_dim);
    static const int32_t supported[] = {64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof supported / sizeof *supported; i++)
        if (p->head_dim == supported[i]) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED, "heads have %d dimensions; supported: 64, 80, 96, 128, 256", p->head_dim);
}

static cl_status read_params(const model_file *file, model_params *p, cl_error *error) {
    str architecture;
    if (!model_file_get_string(file, "general.architecture", &architecture))
        return cl_fail(error, CL_ERR_FORMAT, "the file has no general.architecture; it is not a model");
    if (!str_is(architecture, "llama"))
        return cl_fail(error, CL_ERR_UNSUPPORTED, "general.architecture is \"%.*s\"; supported: llama",
                       (int)(architecture.size < 40 ? architecture.size : 40), architecture.data);
    cl_status status;
    int32_t n_experts = 0;
    p->n_layers = p->n_embd = p->n_ff = p->n_ctx_train = -1;
    if ((status = get_int(file, "llama.block_count", 1, 1024, &p->n_layers, error)) != CL_OK ||
        (status = get_int(file, "llama.embedding_length", 1, 1 << 20, &p->n_embd, error)) != CL_OK ||
        (status = get_int(file, "llama.feed_forward_length", 1, 1 << 22, &p->n_ff, error)) != CL_OK ||
        (status = get_int(file, "llama.context_length", 1, INT32_MAX, &p->n_ctx_train, error)) != CL_OK ||
        (status = get_int(file, "llama.expert_count", 0, INT32_MAX, &n_experts, error)) != CL_OK ||
        (status = read_heads(file, p, error)) != CL_OK || (status = read_rope(file, p, error)) != CL_OK)
        return status;
    if (n_experts)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "llama.expert_count is %d; mixtures of experts are not supported", n_experts);
    double eps = -1;
    if ((status = get_double(file, "llama.attention.layer_norm_rms_epsilon", 0, 1, &eps, error)) != CL_OK) return status;
    if (eps < 0) return cl_fail(error, CL_ERR_FORMAT, "the file has no number llama.attention.layer_norm_rms_epsilon");
    p->rms_eps = (float)eps;
    return CL_OK;
}

/* ---- Tensors ---- */

enum { NAME_SIZE = 64 };

/* The tensor's name: "output_norm" or, for layer >= 0, "blk.3.attn_q"; ".weight" follows. */
static void tensor_name(char name[NAME_SIZE], int32_t layer, const char *part) {
    if (layer < 0)
        (void)snprintf(name, NAME_SIZE, "%s.weight", part);
    else
        (void)snprintf(name, NAME_SIZE, "blk.%d.%s.weight", layer, part);
}

static cl_status find_tensor(const model_file *file, int32_t layer, const char *part, int64_t n_in, int64_t n_out,
                             const tensor **found, cl_error *error) {
    char name[NAME_SIZE];
    tensor_name(name, layer, part);
    const tensor *t = model_file_find_tensor(file, name);
    if (!t) return cl_fail(error, CL_ERR_FORMAT, "tensor %s is missing", name);
    if (t->ne[0] != n_in || t->ne[1] != n_out || t->ne[2] != 1 || t->ne[3] != 1)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %s has shape [%lld, %lld, %lld, %lld]; the parameters say [%lld, %lld]",
                       name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3],
                       (long long)n_in, (long long)n_out);
    if (!t->data)
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "tensor %s has type %s; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1 (requantise the model)", name,
                       tensor_type_name(t->type));
    *found = t;
    return CL_OK;
}

/* A vector that is used where it lies in the file. */
static cl_status find_vector(const model_file *file, int32_t layer, const char *part, int64_t n, const float **out,
                             cl_error *error) {
    const tensor *t;
    const cl_status status = find_tensor(file, layer, part, n, 1, &t, error);
    if (status != CL_OK) return status;
    if (t->type != TENSOR_F32 || (uintptr_t)t->data % sizeof(float))
        return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %.*s has type %s; it must be aligned F32", (int)t->name.size,
                       t->name.data, tensor_type_name(t->type));
    *out = t->data;
    return CL_OK;
}

static cl_status load_matrix(model *m, ca_pool *pool, int32_t layer, const char *part, int64_t n_in, int64_t n_out, linear *out,
                             cl_error *error) {
    const tensor *t;
    cl_status status = find_tensor(m->file, layer, part, n_in, n_out, &t, error);
    if (status == CL_OK) status = linear_pack(t, pool, out, error);
    if (status == CL_OK) m->weight_bytes += out->bytes;
    return status;
}

static cl_status load_layer(model *m, ca_pool *pool, int32_t i, cl_error *error) {
    const model_params *p = &m->params;
    const int64_t n = p->n_embd, n_q = (int64_t)p->n_heads * p->head_dim, n_kv = (int64_t)p->n_kv_heads * p->head_dim;
    model_layer *l = &m->layers[i];
    cl_status status;
    if ((status = find_vector(m->file, i, "attn_norm", n, &l->attn_norm, error)) != CL_OK ||
        (status = find_vector(m->file, i, "ffn_norm", n, &l->ffn_norm, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "attn_q", n, n_q, &l->q, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "attn_k", n, n_kv, &l->k, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "attn_v", n, n_kv, &l->v, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "attn_output", n_q, n, &l->o, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "ffn_gate", n, p->n_ff, &l->gate, error)) != CL_OK ||
        (status = load_matrix(m, pool, i, "ffn_up", n, p->n_ff, &l->up, error)) != CL_OK)
        return status;
    return load_matrix(m, pool, i, "ffn_down", p->n_ff, n, &l->down, error);
}

static cl_status load_tensors(model *m, ca_pool *pool, cl_error *error) {
    model_params *p = &m->params;
    for (size_t i = 0; i < model_file_n_tensors(m->file); i++) {
        const str name = model_file_tensor_at(m->file, i)->name;
        if (name.size > 5 && !memcmp(name.data + name.size - 5, ".bias", 5))
            return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %.*s: layers with a bias are not supported",
                           (int)(name.size < 60 ? name.size : 60), name.data);
    }
    p->n_vocab = tokenizer_n_vocab(m->tok);
    cl_status status = find_tensor(m->file, -1, "token_embd", p->n_embd, p->n_vocab, &m->embedding, error);
    if (status != CL_OK) return status;
    const bool tied = !model_file_find_tensor(m->file, "output.weight");
    if ((status = load_matrix(m, pool, -1, tied ? "token_embd" : "output", p->n_embd, p->n_vocab, &m->output, error)) !=
            CL_OK ||
        (status = find_vector(m->file, -1, "output_norm", p->n_embd, &m->output_norm, error)) != CL_OK)
        return status;
    if (model_file_find_tensor(m->file, "rope_freqs.weight")) {
        status = find_vector(m->file, -1, "rope_freqs", p->n_rot / 2, &p->rope_factors, error);
        if (status != CL_OK) return status;
        for (int32_t i = 0; i < p->n_rot / 2; i++)
            if (!(p->rope_factors[i] > 0 && isfinite(p->rope_factors[i])))
                return cl_fail(error, CL_ERR_FORMAT, "tensor rope_freqs.weight has %g at %d; factors are positive",
                               (double)p->rope_factors[i], i);
    }
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    if (!m->layers) return cl_fail(error, CL_ERR_NOMEM, "no memory for %d layers", p->n_layers);
    for (int32_t i = 0; i < p->n_layers; i++)
        if ((status = load_layer(m, pool, i, error)) != CL_OK) return status;
    return CL_OK;
}

cl_status model_load(const char *path, const model_options *options, model **out, cl_error *error) {
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return cl_fail(error, CL_ERR_NOMEM, "no memory to load %s", path);
    }
    cl_status status = CL_OK;
    m->kernel = linear_kernel_find(options->level);
    if (!m->kernel)
        status = cl_fail(error, CL_ERR_ARG, "kernel level %s or CATTN_LEVEL is unknown, or this CPU lacks it",
                         options->level ? options->level : "(none)");
    if (status == CL_OK) status = model_file_open(path, &m->file, error);
    if (status == CL_OK) status = read_params(m->file, &m->params, error);
    if (status == CL_OK) status = tokenizer_create(m->file, &m->tok, error);
    if (status == CL_OK) status = load_tensors(m, options->pool, error);
    if (status != CL_OK) {
        model_free(&m);
        return status;
    }
    if (chat_detect(m->file, &m->chat, &m->chat_error) != CL_OK) m->chat = CHAT_NONE; /* completions work without */
    *out = m;
    return CL_OK;
}

void model_free(model **model_) {
    model *m = *model_;
    if (!m) return;
    for (int32_t i = 0; m->layers && i < m->params.n_layers; i++) {
        model_layer *l = &m->layers[i];
        linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) linear_free(all[j]);
    }
    linear_free(&m->output);
    free(m->layers);
    tokenizer_free(&m->tok);
    model_file_close(&m->file);
    free(m->path);
    free(m);
    *model_ = NULL;
}
