/* Translates config.json into GGUF's metadata keys, and refuses unsupported settings by the name of the field. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf.h"
#include "model_file_data.h"

/* Groups of fields that only some classes read. Files may have fields of other classes, which then mean nothing. */
enum {
    ONE_WINDOW = 1,  /* sliding_window */
    LAYER_KINDS = 2, /* layers may differ in their window, and so in their rotation */
    SCORES = 4       /* caps and the scale of attention scores, and the cap of logits */
};

/* A class of Hugging Face's library, and its defaults for fields that a file leaves out. */
typedef struct hf_class {
    const char *name, *arch;
    const char *activation_field, *activation;
    double rope_base;
    unsigned reads; /* groups, or-ed */
    bool norm_plus_one, four_norms, tied;
    bool own_head_dim; /* the head size does not follow from hidden_size and must be given */
} hf_class;

static const hf_class classes[] = {
    {.name = "LlamaForCausalLM", .arch = "llama", .activation_field = "hidden_act", .activation = "silu", .rope_base = 1e4},
    {.name = "MistralForCausalLM",
     .arch = "llama",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4,
     .reads = ONE_WINDOW},
    {.name = "Qwen2ForCausalLM", .arch = "qwen2", .activation_field = "hidden_act", .activation = "silu", .rope_base = 1e4},
    {.name = "Qwen3ForCausalLM",
     .arch = "qwen3",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4,
     .own_head_dim = true},
    {.name = "Gemma3ForCausalLM",
     .arch = "gemma3",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .reads = ONE_WINDOW | LAYER_KINDS | SCORES,
     .norm_plus_one = true,
     .four_norms = true,
     .tied = true,
     .own_head_dim = true},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

static const struct field {
    const char *name, *key;
    cl_json_kind kind;
    bool required;
    unsigned group; /* 0: all classes read it */
} fields[] = {
    {"num_hidden_layers", "block_count", CL_JSON_KIND_INT, true, 0},
    {"hidden_size", "embedding_length", CL_JSON_KIND_INT, true, 0},
    {"intermediate_size", "feed_forward_length", CL_JSON_KIND_INT, true, 0},
    {"max_position_embeddings", "context_length", CL_JSON_KIND_INT, true, 0},
    {"num_attention_heads", "attention.head_count", CL_JSON_KIND_INT, true, 0},
    {"num_key_value_heads", "attention.head_count_kv", CL_JSON_KIND_INT, false, 0},
    {"head_dim", "attention.key_length", CL_JSON_KIND_INT, false, 0},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", CL_JSON_KIND_NUMBER, true, 0},
    {"rope_local_base_freq", "rope.freq_base_swa", CL_JSON_KIND_NUMBER, false, LAYER_KINDS},
    {"attn_logit_softcapping", "attn_logit_softcapping", CL_JSON_KIND_NUMBER, false, SCORES},
    {"final_logit_softcapping", "final_logit_softcapping", CL_JSON_KIND_NUMBER, false, SCORES},
    {"sliding_window", "attention.sliding_window", CL_JSON_KIND_INT, false, ONE_WINDOW},
    {"sliding_window_pattern", "attention.sliding_window_pattern", CL_JSON_KIND_INT, false, LAYER_KINDS},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* Fields of keys that are not in the table above, for messages. */
static const struct {
    const char *key, *name;
} others[] = {
    {"rope.freq_base", "rope_theta"},
    {"rope.scaling.factor", "rope_scaling.factor"},
    {"attention.scale", "query_pre_attn_scalar"},
};

const char *cl_hf_config_source(const char *key) {
    static _Thread_local char shown[64];
    const char *suffix = strchr(key, '.');
    const char *name = NULL;
    for (int i = 0; suffix && i < N_FIELDS; i++)
        if (strcmp(suffix + 1, fields[i].key) == 0) name = fields[i].name;
    for (size_t i = 0; suffix && i < sizeof others / sizeof *others; i++)
        if (strcmp(suffix + 1, others[i].key) == 0) name = others[i].name;
    if (!name) return NULL;
    (void)snprintf(shown, sizeof shown, "config.json: %s", name);
    return shown;
}

static const char *key_of(const cl_hf_config *c, char key[96], const char *suffix) {
    (void)snprintf(key, 96, "%s.%s", c->arch, suffix);
    return key;
}

static void put_int(cl_hf_config *c, cl_model_file *file, const char *name, const char *suffix, const json_t *value) {
    char key[96];
    const json_int_t n = json_integer_value(value);
    if (n < 0 || n > UINT32_MAX)
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s is %lld; 0 to %u are allowed", name, (long long)n, UINT32_MAX);
    else
        cl_meta_put_u32(file, key_of(c, key, suffix), (uint32_t)n);
}

static void put_number(const cl_hf_config *c, cl_model_file *file, const char *suffix, double value) {
    char key[96];
    cl_meta_put_f64(file, key_of(c, key, suffix), value);
}

/* ---- Unsupported fields ---- */

static void refuse(cl_hf_config *c, const hf_class *class) {
    static const char *const flags[] = {"attention_bias", "mlp_bias", "use_sliding_window"};
    cl_json_doc *doc = &c->doc;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (cl_json_doc_bool(doc, doc->root, "", flags[i], false))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s is true; only false is supported", flags[i]);
    if (doc->status != CL_OK) return;
    if (json_is_object(json_object_get(doc->root, "quantization_config")))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s",
                         "quantization_config: quantised weights are not supported; use a GGUF file, or bf16, "
                         "f16 or f32 weights");
    const cl_str activation = cl_json_doc_string(doc, doc->root, "", class->activation_field);
    if (activation.size > 0 && !cl_str_is(activation, class->activation))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s is \"%.40s\"; a %s has \"%s\"", class->activation_field, activation.data,
                         class->name, class->activation);
    if (cl_json_doc_number(doc, doc->root, "", "partial_rotary_factor", 1) != 1)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s", "partial_rotary_factor must be 1");
}

/* ---- Rotation ---- */

/* Newer files have all of it in rope_parameters; if that lacks rope_theta, the one beside it applies. */
static void read_rope(cl_hf_config *c, cl_model_file *file, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    const json_t *all = cl_json_doc_field(doc, doc->root, "", "rope_parameters", CL_JSON_KIND_OBJECT, false);
    const json_t *scaling = all ? all : cl_json_doc_field(doc, doc->root, "", "rope_scaling", CL_JSON_KIND_OBJECT, false);
    const char *where = all ? "rope_parameters." : "rope_scaling.";
    if (all && (json_object_get(all, "full_attention") || json_object_get(all, "sliding_attention"))) {
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s",
                         "rope_parameters differ by kind of layer; save the model with rope_theta and "
                         "rope_local_base_freq instead");
        return;
    }
    c->rope_base = cl_json_doc_number(doc, doc->root, "", "rope_theta", class->rope_base);
    if (all) c->rope_base = cl_json_doc_number(doc, all, where, "rope_theta", c->rope_base);
    put_number(c, file, "rope.freq_base", c->rope_base);
    cl_str type = cl_json_doc_string(doc, scaling, where, "rope_type");
    if (type.size == 0) type = cl_json_doc_string(doc, scaling, where, "type");
    if (!scaling || type.size == 0 || cl_str_is(type, "default")) return;
    const bool llama3 = cl_str_is(type, "llama3");
    if (!llama3 && !cl_str_is(type, "linear")) {
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%srope_type is \"%.40s\"; supported: default, linear, llama3", where,
                         type.data);
        return;
    }
    const double factor = json_number_value(cl_json_doc_field(doc, scaling, where, "factor", CL_JSON_KIND_NUMBER, true));
    if (!llama3) {
        put_number(c, file, "rope.scaling.factor", factor);
        return;
    }
    c->low_factor = json_number_value(cl_json_doc_field(doc, scaling, where, "low_freq_factor", CL_JSON_KIND_NUMBER, true));
    c->high_factor = json_number_value(cl_json_doc_field(doc, scaling, where, "high_freq_factor", CL_JSON_KIND_NUMBER, true));
    c->trained = json_number_value(
        cl_json_doc_field(doc, scaling, where, "original_max_position_embeddings", CL_JSON_KIND_NUMBER, true));
    c->rope_factor = factor;
    if (doc->status == CL_OK && !(factor > 0 && c->low_factor > 0 && c->high_factor > c->low_factor && c->trained > 0))
        cl_json_doc_fail(doc, CL_ERR_FORMAT,
                         "%sfactor %g, low_freq_factor %g, high_freq_factor %g and original_max_position_embeddings %g "
                         "must be positive, the second below the third",
                         where, factor, c->low_factor, c->high_factor, c->trained);
}

/* ---- Windows ---- */

static void read_layer_types(cl_hf_config *c, cl_model_file *file, bool windows) {
    cl_json_doc *doc = &c->doc;
    const json_t *types = cl_json_doc_field(doc, doc->root, "", "layer_types", CL_JSON_KIND_ARRAY, false);
    if (!types) return;
    char key[96];
    unsigned char *has = windows ? cl_meta_put_array(file, key_of(c, key, "attention.sliding_window_pattern"), CL_META_BOOL,
                                                     json_array_size(types))
                                 : NULL;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && !(type && strcmp(type, "full_attention") == 0))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "layer_types[%zu] must be \"full_attention\" or \"sliding_attention\"",
                             i);
        else if (sliding && !windows)
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                             "layer_types[%zu] is \"sliding_attention\", which is not supported in this architecture", i);
        if (has) has[i] = sliding;
    }
}

/* ---- All ---- */

static const hf_class *find_class(cl_json_doc *doc) {
    const json_t *names = cl_json_doc_field(doc, doc->root, "", "architectures", CL_JSON_KIND_ARRAY, true);
    const char *name = json_string_value(json_array_get(names, 0));
    char known[200];
    size_t used = 0;
    for (int i = 0; i < N_CLASSES; i++) {
        if (name && strcmp(name, classes[i].name) == 0) return &classes[i];
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", classes[i].name);
    }
    if (doc->status == CL_OK)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "architectures is \"%.60s\"; supported: %s", name ? name : "", known);
    return NULL;
}

static int32_t token_id(cl_hf_config *c, const char *name, const json_t *value) {
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= c->n_vocab) {
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s must be a token id below vocab_size, %d", name, c->n_vocab);
        return -1;
    }
    return (int32_t)id;
}

static void read_tokens(cl_hf_config *c) {
    const json_t *bos = json_object_get(c->doc.root, "bos_token_id"), *eos = json_object_get(c->doc.root, "eos_token_id");
    c->bos = !bos || json_is_null(bos) ? -1 : token_id(c, "bos_token_id", bos);
    const size_t n = json_is_array(eos) ? json_array_size(eos) : 1;
    for (size_t i = 0; eos && !json_is_null(eos) && i < n; i++) {
        if (i == sizeof c->ends / sizeof *c->ends) {
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "eos_token_id has %zu entries; %zu are supported", n, i);
            return;
        }
        c->ends[c->n_ends++] = token_id(c, "eos_token_id", json_is_array(eos) ? json_array_get(eos, i) : eos);
    }
}

static void read_fields(cl_hf_config *c, cl_model_file *file, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    const bool by_layer = json_is_array(json_object_get(doc->root, "layer_types"));
    for (int i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const bool required = f->required || (class->own_head_dim && strcmp(f->name, "head_dim") == 0);
        if (f->group & ~class->reads) continue;
        if (by_layer && strcmp(f->name, "sliding_window_pattern") == 0) continue;
        const json_t *value = cl_json_doc_field(doc, doc->root, "", f->name, f->kind, required);
        if (value && f->kind == CL_JSON_KIND_INT) put_int(c, file, f->name, f->key, value);
        if (value && f->kind == CL_JSON_KIND_NUMBER) put_number(c, file, f->key, json_number_value(value));
    }
    const json_t *n_vocab = cl_json_doc_field(doc, doc->root, "", "vocab_size", CL_JSON_KIND_INT, true);
    const json_int_t n = json_integer_value(n_vocab);
    if (n_vocab && (n < 1 || n > INT32_MAX))
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "vocab_size is %lld; 1 to %d are allowed", (long long)n, INT32_MAX);
    c->n_vocab = (int32_t)n;
    c->n_embd = json_integer_value(json_object_get(doc->root, "hidden_size"));
    const double scalar = class->reads & SCORES ? cl_json_doc_number(doc, doc->root, "", "query_pre_attn_scalar", 0) : 0;
    if (scalar > 0) put_number(c, file, "attention.scale", 1 / sqrt(scalar));
}

cl_status cl_hf_read_config(const char *folder, cl_model_file *file, cl_hf_config *c, cl_error *error) {
    *c = (cl_hf_config){.bos = -1};
    cl_json_doc *doc = &c->doc;
    cl_json_doc_open(doc, folder, "config.json", CL_JSON_DOC_REQUIRED, error);
    if (doc->status != CL_OK) return doc->status;
    const hf_class *class = find_class(doc);
    if (!class) return doc->status;
    c->arch = class->arch;
    c->norm_plus_one = class->norm_plus_one;
    c->four_norms = class->four_norms;
    c->tied = cl_json_doc_bool(doc, doc->root, "", "tie_word_embeddings", class->tied);
    char key[96];
    cl_meta_put_string(file, "general.architecture", cl_str_of(class->arch));
    cl_meta_put_bool(file, key_of(c, key, "rope.halves"), true);
    read_fields(c, file, class);
    refuse(c, class);
    read_rope(c, file, class);
    read_layer_types(c, file, class->reads & LAYER_KINDS);
    if (doc->status == CL_OK) read_tokens(c);
    const json_int_t head_dim = json_integer_value(json_object_get(doc->root, "head_dim"));
    const json_int_t heads = json_integer_value(json_object_get(doc->root, "num_attention_heads"));
    const json_int_t width = json_integer_value(json_object_get(doc->root, "hidden_size"));
    const json_int_t n_rot = head_dim > 0 ? head_dim : heads > 0 ? width / heads : 0;
    c->n_rot = n_rot > 0 && n_rot <= 4096 ? (int32_t)n_rot : 0; /* params.c refuses 0 with a message */
    return doc->status;
}
