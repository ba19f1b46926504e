/* Reads the tensors of a Hugging Face folder's safetensors files under the names that GGUF gives them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/tensor/tensor.h"
#include "hf.h"
#include "hf_experts.h"
#include "model_file_data.h"
#include "safetensors.h"

/* ---- Names of tensors ---- */

typedef struct part {
    const char *hf, *gguf;
} part;

/* What comes before the names below. A folder of a model without a head has nothing there. */
static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "model.", ""};
enum { N_PREFIXES = sizeof prefixes / sizeof *prefixes };

static const char HEAD[] = "lm_head.weight", HEAD_OF_TEXT[] = "language_model.lm_head.weight";
static const part whole[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"norm.bias", "output_norm.bias"},
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"altup_projections.#.weight", "altup_proj.#.weight"}, /* # is a number */
    {"altup_unembed_projections.#.weight", "altup_unembd_proj.#.weight"},
};

/* Names after "layers.N." and after "blk.N.". */
static const part layer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"mlp.gate_proj.bias", "ffn_gate.bias"},
    {"mlp.up_proj.bias", "ffn_up.bias"},
    {"mlp.down_proj.bias", "ffn_down.bias"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},

    /* Experts. */
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.experts.#.gate_proj.weight", "ffn_gate.#.weight"},
    {"mlp.experts.#.up_proj.weight", "ffn_up.#.weight"},
    {"mlp.experts.#.down_proj.weight", "ffn_down.#.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
};

/* Architectures that have other names, or the same for other tensors. */
static const struct {
    const char *archs; /* separated by spaces */
    part parts[9];
} dialects[] = {
    {"gemma3n",
     {{"altup.modality_router.weight", "altup_router.weight"},
      {"altup.router_norm.weight", "altup_router_norm.weight"},
      {"altup.prediction_coefs.weight", "altup_predict_coef.weight"},
      {"altup.correction_coefs.weight", "altup_correct_coef.weight"},
      {"altup.correct_output_scale", "altup_correct_scale.weight"},
      {"laurel.linear_left.weight", "laurel_l.weight"},
      {"laurel.linear_right.weight", "laurel_r.weight"},
      {"laurel.post_laurel_norm.weight", "laurel_post_norm.weight"}}},
    {"gemma3n gemma4",
     {{"per_layer_input_gate.weight", "inp_gate.weight"},
      {"per_layer_projection.weight", "proj.weight"},
      {"post_per_layer_input_norm.weight", "post_norm.weight"},
      {"layer_scalar", "layer_output_scale.weight"}}},
    {"gemma4",
     {{"router.proj.weight", "ffn_gate_inp.weight"},
      {"router.scale", "ffn_gate_inp.scale"},
      {"router.per_expert_scale", "ffn_down_exps.scale"},
      {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
      {"experts.down_proj", "ffn_down_exps.weight"},
      {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
      {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
      {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"}}},
    {"gemma2 gemma3 gemma3n gemma4",
     {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
      {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}},
    {"olmo2 exaone4",
     {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}},
    {"glm4",
     {{"post_self_attn_layernorm.weight", "post_attention_norm.weight"},
      {"post_mlp_layernorm.weight", "post_ffw_norm.weight"},
      {"mlp.gate_up_proj.weight", "ffn_up.weight"}}},
    {"phi3", {{"self_attn.qkv_proj.weight", "attn_qkv.weight"}, {"mlp.gate_up_proj.weight", "ffn_up.weight"}}},
    {"llama",
     {{"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
      {"block_sparse_moe.experts.#.w1.weight", "ffn_gate.#.weight"},
      {"block_sparse_moe.experts.#.w3.weight", "ffn_up.#.weight"},
      {"block_sparse_moe.experts.#.w2.weight", "ffn_down.#.weight"}}},
    {"qwen2moe",
     {{"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
      {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
      {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
      {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"}}},
    {"granitemoe",
     {{"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
      {"block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"},
      {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
      {"shared_mlp.input_linear.weight", "ffn_gate_up_shexp.weight"},
      {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight"}}},
    {"gpt-oss",
     {{"self_attn.sinks", "attn_sinks.weight"},
      {"post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"mlp.router.weight", "ffn_gate_inp.weight"},
      {"mlp.router.bias", "ffn_gate_inp.bias"},
      {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight"}, /* and its other half, add_reordered */
      {"mlp.experts.gate_up_proj", "ffn_up_exps.weight"},
      {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"},
      {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias"},
      {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"}}},
    {"seed_oss glm4moe", {{"post_attention_layernorm.weight", "post_attention_norm.weight"}}},
    {"hunyuan-dense",
     {{"self_attn.query_layernorm.weight", "attn_q_norm.weight"}, {"self_attn.key_layernorm.weight", "attn_k_norm.weight"}}},
    {"starcoder2",
     {{"input_layernorm.bias", "attn_norm.bias"},
      {"post_attention_layernorm.bias", "ffn_norm.bias"},
      {"mlp.c_fc.weight", "ffn_up.weight"},
      {"mlp.c_fc.bias", "ffn_up.bias"},
      {"mlp.c_proj.weight", "ffn_down.weight"},
      {"mlp.c_proj.bias", "ffn_down.bias"}}},
};
enum { N_DIALECTS = sizeof dialects / sizeof *dialects };

#define FIND(parts, name, from_gguf) find(parts, sizeof(parts) / sizeof *(parts), name, from_gguf)

static const char *find(const part *parts, size_t n, const char *name, bool from_gguf) {
    for (size_t i = 0; i < n; i++)
        if (parts[i].hf && strcmp(name, from_gguf ? parts[i].gguf : parts[i].hf) == 0)
            return from_gguf ? parts[i].hf : parts[i].gguf;
    return NULL;
}

/* The other name of a layer's tensor; NULL: it has none. */
static const char *find_part(const char *arch, const char *name, bool from_gguf) {
    for (int i = 0; i < N_DIALECTS; i++) {
        const char *other =
            cl_str_is_one_of(cl_str_of(arch), dialects[i].archs) ? FIND(dialects[i].parts, name, from_gguf) : NULL;
        if (other) return other;
    }
    return FIND(layer, name, from_gguf);
}

/*
 * Replace a number that stands between two dots by #: name to plain [CL_HF_NAME_SIZE]. Returns the digits in
 * name, *n of them; NULL: there is no number, and plain is name.
 */
static const char *hide_number(const char *name, char *plain, int *n) {
    (void)snprintf(plain, CL_HF_NAME_SIZE, "%s", name);
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        *n = (int)strspn(dot + 1, "0123456789");
        if (*n < 1 || *n > 5 || dot[1 + *n] != '.') continue;
        (void)snprintf(plain, CL_HF_NAME_SIZE, "%.*s#%s", (int)(dot + 1 - name), name, dot + 1 + *n);
        return dot + 1;
    }
    return NULL;
}

/* A name behind its beginning, with the number in the place of #; NULL: it is too long. */
static const char *put_name(char buf[CL_HF_NAME_SIZE], const char *begin, const char *name, const char *number, int n_number) {
    const char *mark = number ? strchr(name, '#') : NULL;
    int n;
    if (mark)
        n = snprintf(buf, CL_HF_NAME_SIZE, "%s%.*s%.*s%s", begin, (int)(mark - name), name, n_number, number, mark + 1);
    else
        n = snprintf(buf, CL_HF_NAME_SIZE, "%s%s", begin, name);
    return n >= 0 && n < CL_HF_NAME_SIZE ? buf : NULL;
}

/* The name in the other format, behind the prefix if that is Hugging Face's, in buf; NULL: it has none. */
static const char *translate(const char *name, bool from_gguf, const char *arch, const char *prefix,
                             char buf[CL_HF_NAME_SIZE]) {
    const char *from = from_gguf ? "blk." : "layers.", *to = from_gguf ? "layers." : "blk.";
    char plain[CL_HF_NAME_SIZE], begin[CL_HF_NAME_SIZE];
    int n_number = 0;
    const char *number = hide_number(name, plain, &n_number);
    const char *other = FIND(whole, plain, from_gguf);
    if (other) return put_name(buf, prefix, other, number, n_number);
    const size_t n = strlen(from);
    if (strncmp(name, from, n) != 0) return NULL;
    const int digits = (int)strspn(name + n, "0123456789");
    if (digits < 1 || digits > 4 || name[n + (size_t)digits] != '.') return NULL;
    number = hide_number(name + n + digits + 1, plain, &n_number);
    other = find_part(arch, plain, from_gguf);
    if (!other) return NULL;
    (void)snprintf(begin, sizeof begin, "%s%s%.*s.", prefix, to, digits, name + n);
    return put_name(buf, begin, other, number, n_number);
}

const char *cl_hf_tensor_name(const char *arch, const char *hf, char buf[CL_HF_NAME_SIZE]) {
    if (strcmp(hf, HEAD) == 0 || strcmp(hf, HEAD_OF_TEXT) == 0) return "output.weight";
    for (int i = 0; i < N_PREFIXES; i++) {
        const size_t n = strlen(prefixes[i]);
        const char *name = strncmp(hf, prefixes[i], n) == 0 ? translate(hf + n, false, arch, "", buf) : NULL;
        if (name) return name;
    }
    return NULL;
}

/* The prefix of a folder's names, by that of the embedding. */
static const char *prefix_of(const cl_model_file *file) {
    const cl_tensor *t = cl_model_file_find_tensor(file, "token_embd.weight");
    for (int i = 0; t && i < N_PREFIXES; i++)
        if (t->name.size == strlen(prefixes[i]) + strlen(whole[0].hf) && cl_str_contains(t->name, prefixes[i]))
            return prefixes[i];
    return "model.";
}

const char *cl_hf_tensor_source(const cl_model_file *file, const char *arch, const char *name) {
    static _Thread_local char buf[CL_HF_NAME_SIZE];
    const char *prefix = prefix_of(file);
    if (strcmp(name, "output.weight") == 0) return strncmp(prefix, "language_model.", 15) == 0 ? HEAD_OF_TEXT : HEAD;
    return translate(name, true, arch, prefix, buf);
}

bool cl_hf_tensor_ignored(const char *name) {
    static const char ending[] = ".rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0;
}

static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";
enum { MAX_SHARDS = 1000, SHOWN = 80, PATH_BYTES = 512 };

typedef struct shards {
    const char **names;    /* [n] borrowed from the index; the array is owned */
    cl_safetensors *files; /* [n] owned */
    size_t n;
    cl_json_doc index;        /* root is NULL if there is only one file */
    const json_t *weight_map; /* of the index, from tensors to files */
} shards;

#define SHOW(s) cl_str_show(s, (char[SHOWN]){0}, SHOWN)

/* ---- Files ---- */

static cl_status add_shard(shards *s, const char *name) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->names[i], name) == 0) return CL_OK;
    if (name[0] == 0 || name[0] == '.' || strchr(name, '/'))
        return cl_json_doc_fail(&s->index, CL_ERR_FORMAT, "weight_map names \"%s\"; a file of the same folder is needed",
                                SHOW(cl_str_of(name)));
    if (s->n == MAX_SHARDS)
        return cl_json_doc_fail(&s->index, CL_ERR_UNSUPPORTED, "weight_map names more than %d files", MAX_SHARDS);
    s->names[s->n++] = name;
    return CL_OK;
}

/* Refuse a folder without weights. */
static cl_status refuse_folder(const char *folder, cl_error *error) {
    static const char lack[] = "neither model.safetensors nor model.safetensors.index.json is there";
    if (cl_hf_refuse_other(folder, lack, error)) return CL_ERR_FILE;
    return cl_fail(error, CL_ERR_FILE, "%s: %s", folder, lack);
}

static cl_status list_shards(shards *s, const char *folder, cl_error *error) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, SINGLE);
    s->names = calloc(MAX_SHARDS, sizeof *s->names);
    s->files = calloc(MAX_SHARDS, sizeof *s->files);
    if (!s->names || !s->files) return cl_fail(error, CL_ERR_NOMEM, "no memory for the weights of %s", folder);
    if (access(path, F_OK) == 0) {
        s->names[s->n++] = SINGLE;
        return CL_OK;
    }
    cl_json_doc_open(&s->index, folder, INDEX, 0, error);
    if (s->index.status != CL_OK) return s->index.status;
    if (!s->index.root) return refuse_folder(folder, error);
    s->weight_map = cl_json_doc_field(&s->index, s->index.root, "", "weight_map", CL_JSON_KIND_OBJECT, true);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)s->weight_map, name, value) {
        if (!json_is_string(value))
            cl_json_doc_fail(&s->index, CL_ERR_FORMAT, "weight_map: the file of %s must be a string", SHOW(cl_str_of(name)));
        else
            (void)add_shard(s, json_string_value(value));
        if (s->index.status != CL_OK) break;
    }
    return s->index.status;
}

/* Open a file of the folder as one of the model's, whose bytes the fingerprint depends on. path is set to the file's. */
static cl_status open_part(const char *folder, const char *name, cl_model_file *file, char path[PATH_BYTES], cl_error *error) {
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    const cl_status status = cl_file_bytes_open(path, &file->files[file->n_files], error);
    file->n_files += status == CL_OK;
    return status;
}

static cl_status open_shards(shards *s, const char *folder, cl_model_file *file, cl_error *error) {
    char path[PATH_BYTES];
    file->files = calloc(s->n + 1, sizeof *file->files);
    if (!file->files) return cl_fail(error, CL_ERR_NOMEM, "no memory for the weights of %s", folder);
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < s->n; i++) {
        status = open_part(folder, s->names[i], file, path, error);
        if (status == CL_OK) status = cl_safetensors_parse(path, &file->files[i], &s->files[i], error);
    }
    return status == CL_OK ? open_part(folder, "config.json", file, path, error) : status;
}

/* Check that the index lists exactly the tensors that the files hold. */
static cl_status check_index(shards *s) {
    size_t n = 0;
    for (size_t i = 0; s->index.root && i < s->n; i++)
        for (size_t j = 0; j < s->files[i].n; j++, n++) {
            const cl_str name = s->files[i].tensors[j].name;
            const char *listed = json_string_value(json_object_get(s->weight_map, name.data));
            if (!listed || strcmp(listed, s->names[i]) != 0)
                return cl_json_doc_fail(&s->index, CL_ERR_FORMAT, "weight_map has tensor %s in %s, but it is in %s", SHOW(name),
                                        listed ? SHOW(cl_str_of(listed)) : "no file", s->names[i]);
        }
    if (s->index.root && n != json_object_size(s->weight_map))
        return cl_json_doc_fail(&s->index, CL_ERR_FORMAT, "weight_map has %zu tensors, the files hold %zu of them",
                                json_object_size(s->weight_map), n);
    return CL_OK;
}

/* ---- Tensors ---- */

static cl_status add_tensor(cl_model_file *file, const char *name, const cl_tensor *t, cl_error *error) {
    const cl_str key = cl_meta_copy(file, cl_str_of(name));
    cl_tensor *copy = &file->tensors[file->n_tensors];
    uint32_t block, bytes;
    *copy = *t;
    if (!cl_tensor_block(t->type, &block, &bytes)) copy->data = NULL; /* only the readers of quantised weights need them */
    copy->name = cl_meta_copy(file, t->name);
    if (file->no_memory) return cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %s", SHOW(t->name));
    if (cl_str_map_add(&file->tensor_map, key.data, key.size, (int32_t)file->n_tensors) >= 0)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %s occurs twice", SHOW(t->name));
    file->n_tensors++;
    return CL_OK;
}

/* Turn *t into a new f32 vector of n elements, whose memory the handle owns. */
static float *new_vector(cl_model_file *file, cl_tensor *t, int64_t n, cl_error *error) {
    float *values = cl_arena_alloc(&file->memory, (size_t)n * sizeof *values);
    if (!values) (void)cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %s", SHOW(t->name));
    t->type = CL_TENSOR_F32;
    t->n_dims = 1;
    t->ne[0] = n;
    t->ne[1] = t->ne[2] = t->ne[3] = 1;
    t->data = values;
    t->file = NULL;
    t->bytes = (size_t)n * sizeof *values;
    return values;
}

static bool ends_with(const char *name, const char *ending) {
    const size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static cl_status add_plus_one(cl_model_file *file, const char *name, const cl_tensor *t, cl_error *error) {
    cl_tensor sum = *t;
    float *values = new_vector(file, &sum, t->ne[0], error);
    if (!values) return CL_ERR_NOMEM;
    const cl_status status = cl_tensor_row_f32(t, 0, values, error);
    if (status != CL_OK) return status;
    for (int64_t i = 0; i < t->ne[0]; i++) values[i] += 1;
    return add_tensor(file, name, &sum, error);
}

/*
 * Llama 3: rotations that turn less than low_factor times within the trained context are slowed by rope_factor, those that turn
 * more than high_factor times are kept, with a linear ramp between.
 */
static cl_status add_rope_factors(const cl_hf_config *c, cl_model_file *file, cl_error *error) {
    cl_tensor t = {.name = cl_str_of("rope_scaling")};
    float *factors = new_vector(file, &t, c->n_rot / 2, error);
    if (!factors) return CL_ERR_NOMEM;
    for (int32_t i = 0; i < c->n_rot / 2; i++) {
        const double turns = c->trained * pow(c->rope_base, -2.0 * i / c->n_rot) / (2 * M_PI);
        double kept = (turns - c->low_factor) / (c->high_factor - c->low_factor);
        kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
        factors[i] = (float)(1 / ((1 - kept) / c->rope_factor + kept));
    }
    return add_tensor(file, "rope_freqs.weight", &t, error);
}

/* The pairs behind those that are rotated turn by nothing, which a divisor beyond all positions says. */
static cl_status add_proportional(const cl_hf_config *c, cl_model_file *file, cl_error *error) {
    cl_tensor t = {.name = cl_str_of("rope_scaling")};
    float *factors = new_vector(file, &t, c->head_dim / 2, error);
    if (!factors) return CL_ERR_NOMEM;
    for (int32_t i = 0; i < c->head_dim / 2; i++) factors[i] = i < c->n_rot / 2 ? (float)c->proportional_factor : 1e30f;
    return add_tensor(file, "rope_freqs.weight", &t, error);
}

/* longrope's divisors. */
static cl_status add_divisors(cl_model_file *file, const char *name, const json_t *list, cl_error *error) {
    cl_tensor t = {.name = cl_str_of("rope_scaling")};
    const size_t n = json_array_size(list);
    float *values = new_vector(file, &t, (int64_t)(n ? n : 1), error);
    if (!values) return CL_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) values[i] = (float)json_number_value(json_array_get(list, i));
    return add_tensor(file, name, &t, error);
}

/* Whether the configuration says that there is no such bias, which is no part of the model then. */
static bool lacks_bias(const cl_hf_config *c, const char *name) {
    static const struct {
        const char *ending;
        unsigned bias;
    } biases[] = {{"attn_q.bias", 1},   {"attn_k.bias", 1}, {"attn_v.bias", 1},   {"attn_output.bias", 2},
                  {"ffn_gate.bias", 4}, {"ffn_up.bias", 4}, {"ffn_down.bias", 4}, {"norm.bias", 8}};
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (ends_with(name, biases[i].ending)) return !(c->biases & biases[i].bias);
    return false;
}

/* Add experts that a folder has in another order, under GGUF's name; gate and up as two tensors. */
static cl_status add_reordered(const char *name, const cl_tensor *t, cl_model_file *file, cl_error *error) {
    static const char GATE[] = "ffn_gate_exps";
    const char *gate = strstr(name, GATE);
    const bool vectors = ends_with(name, ".bias"), transposed = !vectors && t->type != CL_TENSOR_MXFP4;
    cl_hf_order order = {.step = gate ? 2 : 1, .transposed = transposed, .vectors = vectors};
    char up[CL_HF_NAME_SIZE];
    cl_tensor made;
    if (!gate && !transposed) return add_tensor(file, name, t, error);
    cl_status status = cl_hf_reorder(t, &order, file, &made, error);
    if (status == CL_OK) status = add_tensor(file, name, &made, error);
    if (status != CL_OK || !gate) return status;
    order.first = 1;
    (void)snprintf(up, sizeof up, "%.*sffn_up_exps%s", (int)(gate - name), name, gate + sizeof GATE - 1);
    status = cl_hf_reorder(t, &order, file, &made, error);
    return status == CL_OK ? add_tensor(file, up, &made, error) : status;
}

/* Add a tensor under GGUF's name or, if it has none, under its own one behind a mark. */
static cl_status add_named(const cl_hf_config *c, const cl_tensor *t, cl_model_file *file, cl_error *error) {
    char buf[CL_HF_NAME_SIZE], unknown[CL_HF_NAME_SIZE + 4];
    const char *name = cl_hf_tensor_name(c->arch, t->name.data, buf);
    if (cl_hf_tensor_ignored(t->name.data) || (c->tied && name && strcmp(name, "output.weight") == 0)) return CL_OK;
    if (!name || lacks_bias(c, name)) {
        if (t->name.size >= CL_HF_NAME_SIZE)
            return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %s: names of up to %d bytes are supported", SHOW(t->name),
                           CL_HF_NAME_SIZE - 1);
        (void)snprintf(unknown, sizeof unknown, "hf:%s", t->name.data);
        return add_tensor(file, unknown, t, error);
    }
    if (c->own_experts && strstr(name, "_exps.") && cl_tensor_is_readable(t)) return add_reordered(name, t, file, error);
    const bool sum = c->norm_plus_one && ends_with(name, "norm.weight") && t->n_dims == 1 && t->data;
    return sum ? add_plus_one(file, name, t, error) : add_tensor(file, name, t, error);
}

/* A model without a head can only make embeddings, unless its embedding is the output matrix, too. */
static cl_status check_head(const cl_hf_config *c, cl_model_file *file, cl_error *error) {
    char key[96];
    if (c->tied || cl_model_file_find_tensor(file, "output.weight")) return CL_OK;
    if (!c->base && prefix_of(file)[0] != 0)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %s is missing, and tie_word_embeddings in config.json is false",
                       cl_hf_tensor_source(file, c->arch, "output.weight"));
    (void)snprintf(key, sizeof key, "%s.embeddings_only", c->arch);
    cl_meta_put_bool(file, key, true);
    return CL_OK;
}

/* List the tensors of all files by their names. */
static cl_status list_stored(const shards *s, cl_hf_stored *stored, cl_error *error) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->files[i].n;
    stored->tensors = calloc(n + 1, sizeof(*stored->tensors));
    if (!stored->tensors || cl_str_map_init(&stored->map, n) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->files[i].n; j++) {
            const cl_tensor *t = &s->files[i].tensors[j];
            stored->tensors[stored->n] = t;
            if (cl_str_map_add(&stored->map, t->name.data, t->name.size, (int32_t)stored->n++) >= 0)
                return cl_fail(error, CL_ERR_FORMAT, "tensor %s occurs twice", SHOW(t->name));
        }
    return CL_OK;
}

static cl_status add_stored(const cl_hf_config *c, const cl_hf_stored *stored, cl_model_file *file, cl_error *error) {
    enum { DIVISORS = 2 };                        /* tensors of the rotation, which the configuration makes */
    const size_t most = 2 * stored->n + DIVISORS; /* add_reordered makes two of one */
    file->tensors = calloc(most, sizeof *file->tensors);
    if (!file->tensors || cl_str_map_init(&file->tensor_map, most) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu tensors", stored->n);
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < stored->n; i++) {
        cl_tensor made;
        if (!cl_hf_quantised(&c->quant, stored, stored->tensors[i], file, &made, &status, error))
            status = add_named(c, stored->tensors[i], file, error);
        else if (status == CL_OK && made.name.size > 0)
            status = add_named(c, &made, file, error);
    }
    if (status == CL_OK && c->rope_factor > 0 && c->n_rot > 0) status = add_rope_factors(c, file, error);
    if (status == CL_OK && c->proportional_factor > 0 && c->head_dim > 1) status = add_proportional(c, file, error);
    if (status == CL_OK && c->long_divisors) status = add_divisors(file, "rope_factors_long.weight", c->long_divisors, error);
    if (status == CL_OK && c->long_divisors) status = add_divisors(file, "rope_factors_short.weight", c->short_divisors, error);
    return status == CL_OK ? check_head(c, file, error) : status;
}

/* List the tensors as they are, to look at. */
static cl_status add_as_stored(const cl_hf_stored *stored, cl_model_file *file, cl_error *error) {
    file->tensors = calloc(stored->n + 1, sizeof *file->tensors);
    if (!file->tensors || cl_str_map_init(&file->tensor_map, stored->n) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu tensors", stored->n);
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < stored->n; i++)
        status = add_tensor(file, stored->tensors[i]->name.data, stored->tensors[i], error);
    return status;
}

/* config: NULL: the tensors are only looked at. */
static cl_status add_tensors(const cl_hf_config *config, const shards *s, cl_model_file *file, cl_error *error) {
    cl_hf_stored stored = {0};
    cl_status status = list_stored(s, &stored, error);
    if (status == CL_OK) status = config ? add_stored(config, &stored, file, error) : add_as_stored(&stored, file, error);
    cl_str_map_free(&stored.map);
    free(stored.tensors);
    return status;
}

static cl_status read_tensors(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error) {
    shards s = {0};
    cl_status status = list_shards(&s, folder, error);
    if (status == CL_OK) status = open_shards(&s, folder, file, error);
    if (status == CL_OK) status = check_index(&s);
    if (status == CL_OK) status = add_tensors(config, &s, file, error);
    for (size_t i = 0; s.files && i < s.n; i++) cl_safetensors_free(&s.files[i]);
    free(s.files);
    free(s.names);
    cl_json_doc_close(&s.index);
    return status;
}

cl_status cl_hf_read_tensors(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error) {
    return read_tensors(folder, config, file, error);
}

cl_status cl_hf_list_tensors(const char *folder, cl_model_file *file, cl_error *error) {
    return read_tensors(folder, NULL, file, error);
}
