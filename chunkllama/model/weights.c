/* Loads the weights of a model. Tables list the tensors of a layer with their shapes. */
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chunkllama/tensor/tensor.h"

enum { NAME_SIZE = 64 };

/* "output_norm.weight" or, for layer >= 0, "blk.3.attn_q.weight". */
static void tensor_name(char name[NAME_SIZE], int32_t layer, const char *part) {
    if (layer < 0)
        (void)snprintf(name, NAME_SIZE, "%s", part);
    else
        (void)snprintf(name, NAME_SIZE, "blk.%d.%s", layer, part);
}

static bool has_tensor(const cl_model_file *file, int32_t layer, const char *part) {
    char name[NAME_SIZE];
    tensor_name(name, layer, part);
    return cl_model_file_find_tensor(file, name) != NULL;
}

/* Rows of a tensor that holds several matrices or vectors, one behind the other. */
typedef struct slice {
    const char *part; /* NULL: the tensor holds no other */
    int64_t first, n_all;
} slice;

/*
 * The tensor [n_out][n_in] called `part`, or the rows of it in another tensor. *found is a copy, whose memory is that of the
 * file.
 */
static cl_status find_tensor(const cl_model_file *file, int32_t layer, const char *part, slice in, int64_t n_in, int64_t n_out,
                             cl_tensor *found, cl_error *error) {
    char name[NAME_SIZE];
    tensor_name(name, layer, in.part ? in.part : part);
    const cl_tensor *t = cl_model_file_find_tensor(file, name);
    const int64_t rows = in.part ? in.n_all : n_out;
    const char *shown = cl_model_file_source_name(file, name);
    if (!t) return cl_fail(error, CL_ERR_FORMAT, "tensor %s is missing", shown);
    if (t->ne[0] != n_in || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %s has shape [%lld, %lld, %lld, %lld]; the parameters say [%lld, %lld]",
                       shown, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3],
                       (long long)n_in, (long long)rows);
    if (!cl_tensor_is_readable(t)) return cl_tensor_fail_type(t, error);
    *found = *t;
    if (!in.part) return CL_OK;
    uint32_t block, block_bytes;
    if (!cl_tensor_block(t->type, &block, &block_bytes) || n_in % block) return CL_OK; /* cl_linear_pack refuses it */
    const size_t row_bytes = cl_tensor_row_bytes(t->type, n_in);
    if (t->data) found->data = (const uint8_t *)t->data + (size_t)in.first * row_bytes;
    found->recipe_row += in.first;
    found->bytes = (size_t)n_out * row_bytes;
    found->ne[1] = n_out;
    return CL_OK;
}

/* Load a vector of n values as f32; the file has it in rows. */
static cl_status load_vector(const cl_model_file *file, int32_t layer, const char *part, int64_t n, int64_t rows, float **out,
                             cl_error *error) {
    cl_tensor t;
    cl_status status = find_tensor(file, layer, part, (slice){0}, n / rows, rows, &t, error);
    if (status != CL_OK) return status;
    if (t.type != CL_TENSOR_F32 && t.type != CL_TENSOR_F16 && t.type != CL_TENSOR_BF16)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %.*s has type %s; it must be F32, F16 or BF16", (int)t.name.size,
                       t.name.data, cl_tensor_type_name(t.type));
    *out = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) / 64 * 64);
    if (!*out) return cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %.*s", (int)t.name.size, t.name.data);
    for (int64_t i = 0; status == CL_OK && i < rows; i++) status = cl_tensor_row_f32(&t, i, *out + i * (n / rows), error);
    return status;
}

static cl_status pack_matrix(const cl_model_file *file, ca_pool *pool, int32_t layer, const char *part, slice in, int64_t n_in,
                             int64_t n_out, cl_linear *out, cl_error *error) {
    cl_tensor t;
    const cl_status status = find_tensor(file, layer, part, in, n_in, n_out, &t, error);
    return status == CL_OK ? cl_linear_pack(&t, pool, out, error) : status;
}

/* Load a matrix that is multiplied. */
static cl_status load_matrix(const cl_model_file *file, ca_pool *pool, int32_t layer, const char *part, slice in, int64_t n_in,
                             int64_t n_out, cl_linear *out, cl_model_weights *w, cl_error *error) {
    const cl_status status = pack_matrix(file, pool, layer, part, in, n_in, n_out, out, error);
    if (status != CL_OK) return status;
    w->bytes += out->bytes;
    w->forms |= cl_linear_forms(out);
    return CL_OK;
}

/* Whether a model has a tensor: it has not, the file decides, or it must have. */
typedef enum presence { ABSENT, OPTIONAL, REQUIRED } presence;

static presence when(bool has) { return has ? REQUIRED : ABSENT; }

/* The tensors of a layer, with their shapes, and where they are loaded to. */
typedef struct layer_parts {
    struct {
        presence has;
        const char *name;
        int64_t n, rows;
        float **out;
    } vectors[15];
    struct {
        bool has;
        const char *name;
        int64_t n_in, n_out;
        cl_linear *out;
        slice in;
    } matrices[7];
} layer_parts;

enum {
    N_VECTORS = sizeof((layer_parts *)0)->vectors / sizeof *((layer_parts *)0)->vectors,
    N_MATRICES = sizeof((layer_parts *)0)->matrices / sizeof *((layer_parts *)0)->matrices,
};

static presence bias_of(const cl_model_params *p, unsigned bias) {
    return p->biases & bias ? REQUIRED : p->maybe_biases & bias ? OPTIONAL : ABSENT;
}

static layer_parts parts_of(const cl_model_params *p, bool fused_qkv, cl_layer_weights *l) {
    const cl_arch *a = p->arch;
    const int64_t n = p->n_embd, n_ff = p->n_ff, d = p->head_dim, n_q = p->n_heads * d, n_kv = p->n_kv_heads * d;
    const bool before = a->norm_place != CL_NORM_BEHIND, behind = a->norm_place != CL_NORM_BEFORE,
               gated = a->ffn != CL_FFN_GELU;
    const presence qkv_bias = bias_of(p, CL_BIAS_QKV), ffn_bias = bias_of(p, CL_BIAS_FFN), norm_bias = bias_of(p, CL_BIAS_NORM);
    const presence qk_norm = a->maybe_qk_norm ? OPTIONAL : when(a->qk_norm);
    const bool of_head = a->qk_norm == CL_QK_NORM_HEAD, own = a->qk_norm == CL_QK_NORM_OWN;
    const char *qkv = fused_qkv ? "attn_qkv.weight" : NULL, *both = a->fused_gate ? "ffn_up.weight" : NULL;
    const int64_t n_qkv = n_q + 2 * n_kv;
    return (layer_parts){
        .vectors =
            {
                {when(before), "attn_norm.weight", n, 1, &l->attn_norm.scale},
                {before ? norm_bias : ABSENT, "attn_norm.bias", n, 1, &l->attn_norm.bias},
                {when(before && !a->parallel), a->ffn_norm ? a->ffn_norm : "ffn_norm.weight", n, 1, &l->ffn_norm.scale},
                {before && !a->parallel ? norm_bias : ABSENT, "ffn_norm.bias", n, 1, &l->ffn_norm.bias},
                {when(behind), "post_attention_norm.weight", n, 1, &l->post_attn_norm.scale},
                {when(behind), "post_ffw_norm.weight", n, 1, &l->post_ffn_norm.scale},
                {qk_norm, "attn_q_norm.weight", of_head ? d : n_q, own ? p->n_heads : 1, &l->q_norm},
                {qk_norm, "attn_k_norm.weight", of_head ? d : n_kv, own ? p->n_kv_heads : 1, &l->k_norm},
                {qkv_bias, "attn_q.bias", n_q, 1, &l->q_bias},
                {qkv_bias, "attn_k.bias", n_kv, 1, &l->k_bias},
                {qkv_bias, "attn_v.bias", n_kv, 1, &l->v_bias},
                {bias_of(p, CL_BIAS_OUTPUT), "attn_output.bias", n, 1, &l->o_bias},
                {gated ? ffn_bias : ABSENT, "ffn_gate.bias", n_ff, 1, &l->gate_bias},
                {ffn_bias, "ffn_up.bias", n_ff, 1, &l->up_bias},
                {ffn_bias, "ffn_down.bias", n, 1, &l->down_bias},
            },
        .matrices =
            {
                {true, "attn_q.weight", n, n_q, &l->q, {qkv, 0, n_qkv}},
                {true, "attn_k.weight", n, n_kv, &l->k, {qkv, n_q, n_qkv}},
                {true, "attn_v.weight", n, n_kv, &l->v, {qkv, n_q + n_kv, n_qkv}},
                {true, "attn_output.weight", n_q, n, &l->o, {0}},
                {gated, "ffn_gate.weight", n, n_ff, &l->gate, {both, 0, 2 * n_ff}},
                {true, "ffn_up.weight", n, n_ff, &l->up, {both, n_ff, 2 * n_ff}},
                {true, "ffn_down.weight", n_ff, n, &l->down, {0}},
            },
    };
}

static bool has_fused_qkv(const cl_model_file *file, int32_t layer) { return has_tensor(file, layer, "attn_qkv.weight"); }

/* Whether a vector of a layer must be there, or is. */
static bool is_needed(const cl_model_file *file, const layer_parts *parts, int32_t layer, int i) {
    const presence has = parts->vectors[i].has;
    return has == REQUIRED || (has == OPTIONAL && has_tensor(file, layer, parts->vectors[i].name));
}

static cl_status load_layer(const cl_model_file *file, const cl_model_params *p, ca_pool *pool, int32_t i, cl_model_weights *w,
                            cl_error *error) {
    const layer_parts parts = parts_of(p, has_fused_qkv(file, i), &w->layers[i]);
    cl_status status = CL_OK;
    for (int j = 0; status == CL_OK && j < N_VECTORS; j++)
        if (is_needed(file, &parts, i, j))
            status = load_vector(file, i, parts.vectors[j].name, parts.vectors[j].n, parts.vectors[j].rows,
                                 parts.vectors[j].out, error);
    for (int j = 0; status == CL_OK && j < N_MATRICES; j++)
        if (parts.matrices[j].has)
            status = load_matrix(file, pool, i, parts.matrices[j].name, parts.matrices[j].in, parts.matrices[j].n_in,
                                 parts.matrices[j].n_out, parts.matrices[j].out, w, error);
    return status;
}

/* ---- Tensors that the model does not have ---- */

/* The divisors of RoPE's speeds: Llama 3's, and longrope's for long and short sequences. */
static const char FREQS[] = "rope_freqs.weight", LONG[] = "rope_factors_long.weight", SHORT[] = "rope_factors_short.weight";

/* known: [n_tensors] */
static void mark(const cl_model_file *file, int32_t layer, const char *part, bool *known) {
    char name[NAME_SIZE];
    tensor_name(name, layer, part);
    const cl_tensor *t = cl_model_file_find_tensor(file, name);
    if (t) known[t - cl_model_file_tensor_at(file, 0)] = true;
}

static void mark_all(const cl_model_file *file, const cl_model_params *p, bool *known) {
    static const char *const whole[] = {"token_embd.weight", "output.weight", "output_norm.weight", FREQS, LONG, SHORT};
    cl_layer_weights none = {0};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) mark(file, -1, whole[i], known);
    if (bias_of(p, CL_BIAS_NORM)) mark(file, -1, "output_norm.bias", known);
    for (int32_t i = 0; i < p->n_layers; i++) {
        const layer_parts parts = parts_of(p, has_fused_qkv(file, i), &none);
        mark(file, i, "attn_rot_embd.weight", known); /* frequencies in old files, which follow from the metadata */
        for (int j = 0; j < N_VECTORS; j++)
            if (parts.vectors[j].has) mark(file, i, parts.vectors[j].name, known);
        for (int j = 0; j < N_MATRICES; j++)
            if (parts.matrices[j].has)
                mark(file, i, parts.matrices[j].in.part ? parts.matrices[j].in.part : parts.matrices[j].name, known);
    }
}

/* Whether a tensor is of a layer behind the model's, which predicts further tokens. */
static bool is_of_next_layer(const cl_model_params *p, cl_str name) {
    for (int32_t i = p->n_layers; i < p->n_layers + p->n_next_layers; i++) {
        char begin[NAME_SIZE];
        tensor_name(begin, i, "");
        if (name.size > strlen(begin) && memcmp(name.data, begin, strlen(begin)) == 0) return true;
    }
    return false;
}

/* A tensor that is not used would be left out silently, and another model computed; so a file with one is refused. */
static cl_status refuse_unknown(const cl_model_file *file, const cl_model_params *p, cl_error *error) {
    const size_t n = cl_model_file_n_tensors(file);
    bool *known = calloc(n + 1, sizeof *known);
    if (!known) return cl_fail(error, CL_ERR_NOMEM, "no memory to look at %zu tensors", n);
    mark_all(file, p, known);
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < n; i++) {
        const cl_str name = cl_model_file_tensor_at(file, i)->name;
        if (known[i] || cl_arch_left_out(p->arch, name) || is_of_next_layer(p, name)) continue;
        char shown[2 * NAME_SIZE];
        status = cl_fail(error, CL_ERR_UNSUPPORTED,
                         "tensor %s is not part of the architecture %s; the model differs from it, and is not supported",
                         cl_str_show(name, shown, sizeof shown), p->arch->name);
    }
    free(known);
    return status;
}

cl_status cl_weights_check(const cl_model_file *file, const cl_model_params *p, cl_error *error) {
    cl_tensor t;
    cl_layer_weights none = {0};
    const slice whole = {0};
    cl_status status = refuse_unknown(file, p, error);
    if (status == CL_OK) status = find_tensor(file, -1, "token_embd.weight", whole, p->n_embd, p->n_vocab, &t, error);
    if (status == CL_OK) status = find_tensor(file, -1, "output_norm.weight", whole, p->n_embd, 1, &t, error);
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++) {
        const layer_parts parts = parts_of(p, has_fused_qkv(file, i), &none);
        for (int j = 0; status == CL_OK && j < N_VECTORS; j++)
            if (is_needed(file, &parts, i, j))
                status =
                    find_tensor(file, i, parts.vectors[j].name, whole, parts.vectors[j].n, parts.vectors[j].rows, &t, error);
        for (int j = 0; status == CL_OK && j < N_MATRICES; j++)
            if (parts.matrices[j].has)
                status = find_tensor(file, i, parts.matrices[j].name, parts.matrices[j].in, parts.matrices[j].n_in,
                                     parts.matrices[j].n_out, &t, error);
    }
    return status;
}

static cl_status load_divisors(const cl_model_file *file, const char *name, int32_t n, float **out, cl_error *error) {
    const cl_status status = load_vector(file, -1, name, n, 1, out, error);
    for (int32_t i = 0; status == CL_OK && i < n; i++)
        if (!((*out)[i] > 0 && isfinite((*out)[i])))
            return cl_fail(error, CL_ERR_FORMAT, "tensor %s has %g at %d; factors are positive", name, (double)(*out)[i], i);
    return status;
}

static cl_status load_rope(const cl_model_file *file, cl_model_params *p, cl_model_weights *w, cl_error *error) {
    const bool two = has_tensor(file, -1, LONG);
    if (!two && !has_tensor(file, -1, FREQS)) return CL_OK;
    cl_status status = load_divisors(file, two ? LONG : FREQS, p->n_rot / 2, &w->divisors, error);
    if (status == CL_OK && two) status = load_divisors(file, SHORT, p->n_rot / 2, &w->short_divisors, error);
    for (int i = 0; i < CL_N_ROPES; i++) {
        p->rope[i].divisors = w->divisors;
        p->rope[i].short_divisors = w->short_divisors;
    }
    return status;
}

/* Load the output matrix and the embedding, which are one matrix if the file has no output matrix (tied). */
static cl_status load_embedding(const cl_model_file *file, const cl_model_params *p, ca_pool *pool, cl_model_weights *w,
                                cl_error *error) {
    static const char embedding[] = "token_embd.weight", output[] = "output.weight";
    const bool tied = !has_tensor(file, -1, output);
    w->embedding = tied ? &w->output : &w->own_embedding;
    const cl_status status =
        tied ? CL_OK : pack_matrix(file, pool, -1, embedding, (slice){0}, p->n_embd, p->n_vocab, &w->own_embedding, error);
    if (status != CL_OK) return status;
    return load_matrix(file, pool, -1, tied ? embedding : output, (slice){0}, p->n_embd, p->n_vocab, &w->output, w, error);
}

cl_status cl_weights_load(const cl_model_file *file, cl_model_params *p, ca_pool *pool, const cl_load_watcher *watcher,
                          cl_model_weights *w, cl_error *error) {
    *w = (cl_model_weights){0};
    cl_status status = refuse_unknown(file, p, error);
    if (status == CL_OK) status = load_embedding(file, p, pool, w, error);
    if (status == CL_OK) status = load_vector(file, -1, "output_norm.weight", p->n_embd, 1, &w->output_norm.scale, error);
    if (status == CL_OK && bias_of(p, CL_BIAS_NORM))
        status = load_vector(file, -1, "output_norm.bias", p->n_embd, 1, &w->output_norm.bias, error);
    if (status == CL_OK) status = load_rope(file, p, w, error);
    if (status != CL_OK) return status;
    w->layers = calloc((size_t)p->n_layers, sizeof *w->layers);
    if (!w->layers) return cl_fail(error, CL_ERR_NOMEM, "no memory for %d layers", p->n_layers);
    w->n_layers = p->n_layers;
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++) {
        status = load_layer(file, p, pool, i, w, error);
        if (watcher) watcher->on_layer(watcher->ctx, i + 1, p->n_layers);
    }
    return status;
}

void cl_weights_free(cl_model_weights *w) {
    for (int32_t i = 0; i < w->n_layers; i++) {
        cl_layer_weights *l = &w->layers[i];
        float *const vectors[] = {l->attn_norm.scale,
                                  l->attn_norm.bias,
                                  l->ffn_norm.scale,
                                  l->ffn_norm.bias,
                                  l->post_attn_norm.scale,
                                  l->post_ffn_norm.scale,
                                  l->q_norm,
                                  l->k_norm,
                                  l->q_bias,
                                  l->k_bias,
                                  l->v_bias,
                                  l->o_bias,
                                  l->gate_bias,
                                  l->up_bias,
                                  l->down_bias};
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++) free(vectors[j]);
        cl_linear *const matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++) cl_linear_free(matrices[j]);
    }
    cl_linear_free(&w->output);
    cl_linear_free(&w->own_embedding);
    free(w->output_norm.scale);
    free(w->output_norm.bias);
    free(w->divisors);
    free(w->short_divisors);
    free(w->layers);
    *w = (cl_model_weights){0};
}

/* The whole pages of a matrix. */
static void fork_matrix(const cl_linear *m, bool inherited) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (page - (uintptr_t)m->data % page) % page;
    if (m->data && m->bytes >= before + page)
        madvise((char *)m->data + before, (m->bytes - before) / page * page, inherited ? MADV_DOFORK : MADV_DONTFORK);
}

void cl_weights_fork(const cl_model_weights *w, bool inherited) {
    for (int32_t i = 0; i < w->n_layers; i++) {
        const cl_layer_weights *l = &w->layers[i];
        const cl_linear *const matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++) fork_matrix(matrices[j], inherited);
    }
    fork_matrix(&w->output, inherited);
    fork_matrix(&w->own_embedding, inherited);
}
