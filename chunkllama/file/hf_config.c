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

/*
 * Classes of Hugging Face's library that share their model of text, and its defaults for fields that a file leaves out. Those
 * for models that also see have the fields in text_config. Those whose name ends in "Model" lack the head.
 */
typedef struct hf_class {
    const char *names, *arch; /* names are separated by spaces */
    const char *text_type;    /* model_type of text_config */
    const char *activation_field, *activation;
    double rope_base;
    unsigned reads; /* groups, or-ed */
    bool norm_plus_one, four_norms, tied;
    bool own_head_dim;    /* the head size does not follow from hidden_size and must be given */
    const char *defaults; /* JSON of fields that published files leave out; NULL: none */
} hf_class;

static const hf_class classes[] = {
    {.names = "LlamaForCausalLM LlamaModel",
     .arch = "llama",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4},
    {.names = "MistralForCausalLM MistralModel Mistral3ForConditionalGeneration",
     .arch = "llama",
     .text_type = "mistral",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4,
     .reads = ONE_WINDOW},
    {.names = "Qwen2ForCausalLM Qwen2Model",
     .arch = "qwen2",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4},
    {.names = "Qwen3ForCausalLM Qwen3Model",
     .arch = "qwen3",
     .activation_field = "hidden_act",
     .activation = "silu",
     .rope_base = 1e4,
     .own_head_dim = true},
    {.names = "Gemma3ForCausalLM Gemma3TextModel Gemma3ForConditionalGeneration",
     .arch = "gemma3",
     .text_type = "gemma3_text",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .reads = ONE_WINDOW | LAYER_KINDS | SCORES,
     .norm_plus_one = true,
     .four_norms = true,
     .tied = true,
     .own_head_dim = true,
     .defaults = "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, \"sliding_window\": 4096,"
                 " \"query_pre_attn_scalar\": 256, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6,"
                 " \"vocab_size\": 262208}"},
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
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s%s is %lld; 0 to %u are allowed", c->where, name, (long long)n, UINT32_MAX);
    else
        cl_meta_put_u32(file, key_of(c, key, suffix), (uint32_t)n);
}

static void put_number(const cl_hf_config *c, cl_model_file *file, const char *suffix, double value) {
    char key[96];
    cl_meta_put_f64(file, key_of(c, key, suffix), value);
}

/* ---- Unsupported fields ---- */

/* Fields that change the model, and the only value that is supported. */
static const struct {
    const char *name;
    bool supported;
} flags[] = {
    {"attention_bias", false},
    {"mlp_bias", false},
    {"use_sliding_window", false},
    {"is_causal", true},
    {"use_bidirectional_attention", false},
};

static void refuse_flags(cl_hf_config *c, const json_t *object, const char *where) {
    static const char *const words[] = {"false", "true"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (cl_json_doc_bool(&c->doc, object, where, flags[i].name, flags[i].supported) != flags[i].supported)
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%s%s is %s; only %s is supported", where, flags[i].name,
                             words[!flags[i].supported], words[flags[i].supported]);
    cl_hf_read_quant(&c->doc, object, where, &c->quant);
}

/* Older files have the field beside the others, newer ones in rope_parameters. */
static void refuse_partial_rotation(cl_hf_config *c, const json_t *object, const char *where) {
    if (cl_json_doc_number(&c->doc, object, where, "partial_rotary_factor", 1) != 1)
        cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%spartial_rotary_factor must be 1", where);
}

static void refuse(cl_hf_config *c, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    refuse_flags(c, doc->root, "");
    if (c->text != doc->root) refuse_flags(c, c->text, c->where);
    const cl_str activation = cl_json_doc_string(doc, c->text, c->where, class->activation_field);
    if (activation.size > 0 && !cl_str_is(activation, class->activation))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s%s is \"%.40s\"; a %s model has \"%s\"", c->where, class->activation_field,
                         activation.data, class->arch, class->activation);
    refuse_partial_rotation(c, c->text, c->where);
}

/* ---- Rotation ---- */

/* Where the fields of the rotation are: an object in the model's, or none. */
typedef struct rope_fields {
    const json_t *object;
    char where[64];
} rope_fields;

static rope_fields rope_in(cl_hf_config *c, const json_t *object, const char *where, const char *name, bool required) {
    rope_fields f = {.object = cl_json_doc_field(&c->doc, object, where, name, CL_JSON_KIND_OBJECT, required)};
    (void)snprintf(f.where, sizeof f.where, "%.40s%.20s.", where, name);
    return f;
}

/* The rotation of layers with a window, of which only the base is free. */
static void read_window_rope(cl_hf_config *c, cl_model_file *file, const rope_fields *f) {
    cl_json_doc *doc = &c->doc;
    const cl_str type = cl_json_doc_string(doc, f->object, f->where, "rope_type");
    if (type.size > 0 && !cl_str_is(type, "default"))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%srope_type is \"%.40s\"; supported: default", f->where, type.data);
    refuse_partial_rotation(c, f->object, f->where);
    const json_t *base = cl_json_doc_field(doc, f->object, f->where, "rope_theta", CL_JSON_KIND_NUMBER, false);
    if (base) put_number(c, file, "rope.freq_base_swa", json_number_value(base));
}

/* Whether rope_parameters has an object for each kind of layer. */
static bool differs_by_layer(const rope_fields *f) {
    return json_is_object(json_object_get(f->object, "full_attention")) ||
           json_is_object(json_object_get(f->object, "sliding_attention"));
}

static void read_llama3(cl_hf_config *c, const rope_fields *f, double factor) {
    cl_json_doc *doc = &c->doc;
    static const char *const names[] = {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    double *const out[] = {&c->low_factor, &c->high_factor, &c->trained};
    for (int i = 0; i < 3; i++)
        *out[i] = json_number_value(cl_json_doc_field(doc, f->object, f->where, names[i], CL_JSON_KIND_NUMBER, true));
    c->rope_factor = factor;
    if (doc->status == CL_OK && !(factor > 0 && c->low_factor > 0 && c->high_factor > c->low_factor && c->trained > 0))
        cl_json_doc_fail(doc, CL_ERR_FORMAT,
                         "%sfactor %g, low_freq_factor %g, high_freq_factor %g and original_max_position_embeddings %g "
                         "must be positive, the second below the third",
                         f->where, factor, c->low_factor, c->high_factor, c->trained);
}

static void read_scaling(cl_hf_config *c, cl_model_file *file, const rope_fields *f) {
    cl_json_doc *doc = &c->doc;
    refuse_partial_rotation(c, f->object, f->where);
    cl_str type = cl_json_doc_string(doc, f->object, f->where, "rope_type");
    if (type.size == 0) type = cl_json_doc_string(doc, f->object, f->where, "type");
    if (type.size == 0 || cl_str_is(type, "default")) return;
    const bool llama3 = cl_str_is(type, "llama3");
    if (!llama3 && !cl_str_is(type, "linear")) {
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%srope_type is \"%.40s\"; supported: default, linear, llama3", f->where,
                         type.data);
        return;
    }
    const double factor = json_number_value(cl_json_doc_field(doc, f->object, f->where, "factor", CL_JSON_KIND_NUMBER, true));
    if (llama3)
        read_llama3(c, f, factor);
    else
        put_number(c, file, "rope.scaling.factor", factor);
}

/* Newer files have all of it in rope_parameters; if that lacks rope_theta, the one beside it applies. */
static void read_rope(cl_hf_config *c, cl_model_file *file, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    rope_fields f = rope_in(c, c->text, c->where, "rope_parameters", false);
    const bool newer = f.object;
    if (differs_by_layer(&f)) {
        if (!(class->reads & LAYER_KINDS))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                             "%srope_parameters differ by kind of layer; a %s model has the same for all", c->where,
                             class->arch);
        const rope_fields window = rope_in(c, f.object, f.where, "sliding_attention", false);
        read_window_rope(c, file, &window);
        f = rope_in(c, f.object, f.where, "full_attention", true);
    }
    if (!newer) f = rope_in(c, c->text, c->where, "rope_scaling", false);
    c->rope_base = cl_json_doc_number(doc, c->text, c->where, "rope_theta", class->rope_base);
    if (newer) c->rope_base = cl_json_doc_number(doc, f.object, f.where, "rope_theta", c->rope_base);
    put_number(c, file, "rope.freq_base", c->rope_base);
    read_scaling(c, file, &f);
}

/* ---- Windows ---- */

static void read_layer_types(cl_hf_config *c, cl_model_file *file, bool windows) {
    cl_json_doc *doc = &c->doc;
    const json_t *types = cl_json_doc_field(doc, c->text, c->where, "layer_types", CL_JSON_KIND_ARRAY, false);
    if (!types) return;
    char key[96];
    unsigned char *has = windows ? cl_meta_put_array(file, key_of(c, key, "attention.sliding_window_pattern"), CL_META_BOOL,
                                                     json_array_size(types))
                                 : NULL;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && !(type && strcmp(type, "full_attention") == 0))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%slayer_types[%zu] must be \"full_attention\" or \"sliding_attention\"",
                             c->where, i);
        else if (sliding && !windows)
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                             "%slayer_types[%zu] is \"sliding_attention\", which is not supported in this architecture",
                             c->where, i);
        if (has) has[i] = sliding;
    }
}

/* ---- All ---- */

static bool has_name(const char *names, const char *name) {
    const size_t size = strlen(name);
    for (; *names; names += strspn(names, " ")) {
        const size_t n = strcspn(names, " ");
        if (n == size && memcmp(names, name, n) == 0) return true;
        names += n;
    }
    return false;
}

static const hf_class *find_class(cl_hf_config *c) {
    cl_json_doc *doc = &c->doc;
    const json_t *list = cl_json_doc_field(doc, doc->root, "", "architectures", CL_JSON_KIND_ARRAY, true);
    const char *name = json_string_value(json_array_get(list, 0));
    static const char base[] = "Model";
    char known[400];
    size_t used = 0;
    for (int i = 0; i < N_CLASSES; i++) {
        if (name && has_name(classes[i].names, name)) {
            c->base = strlen(name) > strlen(base) && strcmp(name + strlen(name) - strlen(base), base) == 0;
            return &classes[i];
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? " " : "", classes[i].names);
    }
    if (doc->status == CL_OK)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "architectures is \"%.60s\"; supported: %s", name ? name : "", known);
    return NULL;
}

/* Find the object with the fields of the model of text, and add the class's defaults to it. */
static void find_text(cl_hf_config *c, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    c->where = "";
    c->text = cl_json_doc_field(doc, doc->root, "", "text_config", CL_JSON_KIND_OBJECT, false);
    if (c->text && class->text_type) {
        c->where = "text_config.";
        const cl_str type = cl_json_doc_string(doc, c->text, c->where, "model_type");
        if (type.size > 0 && !cl_str_is(type, class->text_type))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%smodel_type is \"%.40s\"; supported: %s", c->where, type.data,
                             class->text_type);
    } else {
        c->text = doc->root;
    }
    json_t *defaults = class->defaults ? json_loads(class->defaults, 0, NULL) : NULL;
    if (class->defaults && (!defaults || json_object_update_missing((json_t *)c->text, defaults) != 0))
        cl_json_doc_fail(doc, CL_ERR_NOMEM, "%s", "no memory for the fields that it leaves out");
    json_decref(defaults);
}

static int32_t token_id(cl_hf_config *c, const char *name, const json_t *value) {
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= c->n_vocab) {
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s must be a token id below vocab_size, %d", name, c->n_vocab);
        return -1;
    }
    return (int32_t)id;
}

/* A token beside text_config comes before one in it; NULL: there is none. */
static const json_t *token_field(const cl_hf_config *c, const char *name) {
    const json_t *value = json_object_get(c->doc.root, name);
    if (!value || json_is_null(value)) value = json_object_get(c->text, name);
    return json_is_null(value) ? NULL : value;
}

static void read_tokens(cl_hf_config *c) {
    const json_t *bos = token_field(c, "bos_token_id"), *eos = token_field(c, "eos_token_id");
    c->bos = bos ? token_id(c, "bos_token_id", bos) : -1;
    const size_t n = json_is_array(eos) ? json_array_size(eos) : 1;
    for (size_t i = 0; eos && i < n; i++) {
        if (i == sizeof c->ends / sizeof *c->ends) {
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "eos_token_id has %zu entries; %zu are supported", n, i);
            return;
        }
        c->ends[c->n_ends++] = token_id(c, "eos_token_id", json_is_array(eos) ? json_array_get(eos, i) : eos);
    }
}

/* Whether another field of the file says the same. */
static bool is_replaced(const cl_hf_config *c, const char *name) {
    const json_t *rope = json_object_get(c->text, "rope_parameters");
    if (strcmp(name, "rope_local_base_freq") == 0) return json_object_get(rope, "sliding_attention");
    return strcmp(name, "sliding_window_pattern") == 0 && json_is_array(json_object_get(c->text, "layer_types"));
}

static void read_fields(cl_hf_config *c, cl_model_file *file, const hf_class *class) {
    cl_json_doc *doc = &c->doc;
    for (int i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const bool required = f->required || (class->own_head_dim && strcmp(f->name, "head_dim") == 0);
        if (f->group & ~class->reads || is_replaced(c, f->name)) continue;
        const json_t *value = cl_json_doc_field(doc, c->text, c->where, f->name, f->kind, required);
        if (value && f->kind == CL_JSON_KIND_INT) put_int(c, file, f->name, f->key, value);
        if (value && f->kind == CL_JSON_KIND_NUMBER) put_number(c, file, f->key, json_number_value(value));
    }
    const json_t *n_vocab = cl_json_doc_field(doc, c->text, c->where, "vocab_size", CL_JSON_KIND_INT, true);
    const json_int_t n = json_integer_value(n_vocab);
    if (n_vocab && (n < 1 || n > INT32_MAX))
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "%svocab_size is %lld; 1 to %d are allowed", c->where, (long long)n, INT32_MAX);
    c->n_vocab = (int32_t)n;
    c->n_embd = json_integer_value(json_object_get(c->text, "hidden_size"));
    const double scalar = class->reads & SCORES ? cl_json_doc_number(doc, c->text, c->where, "query_pre_attn_scalar", 0) : 0;
    if (scalar > 0) put_number(c, file, "attention.scale", 1 / sqrt(scalar));
}

/* The dimensions of a head that are rotated: all. */
static int32_t head_size(const cl_hf_config *c) {
    const json_int_t given = json_integer_value(json_object_get(c->text, "head_dim"));
    const json_int_t heads = json_integer_value(json_object_get(c->text, "num_attention_heads"));
    const json_int_t size = given > 0 ? given : heads > 0 ? c->n_embd / heads : 0;
    return size > 0 && size <= 4096 ? (int32_t)size : 0; /* params.c refuses 0 with a message */
}

cl_status cl_hf_read_config(const char *folder, cl_model_file *file, cl_hf_config *c, cl_error *error) {
    *c = (cl_hf_config){.bos = -1};
    cl_json_doc *doc = &c->doc;
    cl_json_doc_open(doc, folder, "config.json", CL_JSON_DOC_REQUIRED, error);
    if (doc->status != CL_OK) return doc->status;
    const hf_class *class = find_class(c);
    if (!class) return doc->status;
    find_text(c, class);
    c->arch = class->arch;
    c->norm_plus_one = class->norm_plus_one;
    c->four_norms = class->four_norms;
    const bool tied = cl_json_doc_bool(doc, doc->root, "", "tie_word_embeddings", class->tied);
    c->tied = cl_json_doc_bool(doc, c->text, c->where, "tie_word_embeddings", tied);
    char key[96];
    cl_meta_put_string(file, "general.architecture", cl_str_of(class->arch));
    cl_meta_put_bool(file, key_of(c, key, "rope.halves"), true);
    read_fields(c, file, class);
    refuse(c, class);
    read_rope(c, file, class);
    read_layer_types(c, file, class->reads & LAYER_KINDS);
    if (doc->status == CL_OK) read_tokens(c);
    c->n_rot = head_size(c);
    return doc->status;
}
