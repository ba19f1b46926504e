/* Translates config.json into GGUF's metadata keys, and refuses unsupported settings by the name of the field. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_class.h"
#include "model_file_data.h"

static const struct field {
    const char *name, *key;
    cl_json_kind kind;
    bool required;
    unsigned group; /* 0: all classes read it */
    bool none;      /* without it there is none, whatever GGUF's default is */
} fields[] = {
    {"num_hidden_layers", "block_count", CL_JSON_KIND_INT, true, 0, false},
    {"hidden_size", "embedding_length", CL_JSON_KIND_INT, true, 0, false},
    {"intermediate_size", "feed_forward_length", CL_JSON_KIND_INT, true, 0, false},
    {"num_nextn_predict_layers", "next_layers_behind", CL_JSON_KIND_INT, false, 0, false},
    {"max_position_embeddings", "context_length", CL_JSON_KIND_INT, true, 0, false},
    {"num_attention_heads", "attention.head_count", CL_JSON_KIND_INT, true, 0, false},
    {"num_key_value_heads", "attention.head_count_kv", CL_JSON_KIND_INT, false, 0, false},
    {"head_dim", "attention.key_length", CL_JSON_KIND_INT, false, 0, false},
    {"rope_local_base_freq", "rope.freq_base_swa", CL_JSON_KIND_NUMBER, false, LAYER_KINDS, false},
    {"attn_logit_softcapping", "attn_logit_softcapping", CL_JSON_KIND_NUMBER, false, SCORES, true},
    {"final_logit_softcapping", "final_logit_softcapping", CL_JSON_KIND_NUMBER, false, LOGIT_CAP, true},
    {"sliding_window", "attention.sliding_window", CL_JSON_KIND_INT, false, ONE_WINDOW, false},
    {"embedding_multiplier", "embedding_scale", CL_JSON_KIND_NUMBER, false, MULTIPLIERS, false},
    {"residual_multiplier", "residual_scale", CL_JSON_KIND_NUMBER, false, MULTIPLIERS, false},
    {"attention_multiplier", "attention.scale", CL_JSON_KIND_NUMBER, false, MULTIPLIERS, false},
    {"logits_scaling", "logit_scale", CL_JSON_KIND_NUMBER, false, MULTIPLIERS, false},
    {"logit_scale", "logit_scale", CL_JSON_KIND_NUMBER, false, LOGIT_SCALE, false},
    {"sliding_window_pattern", "attention.sliding_window_pattern", CL_JSON_KIND_INT, false, LAYER_KINDS, false},
    {"num_experts", "expert_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"num_local_experts", "expert_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"n_routed_experts", "expert_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"moe_num_experts", "expert_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"num_experts_per_tok", "expert_used_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"moe_k", "expert_used_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"top_k_experts", "expert_used_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"moe_intermediate_size", "expert_feed_forward_length", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"n_shared_experts", "expert_shared_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"moe_num_shared_experts", "expert_shared_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"first_k_dense_replace", "leading_dense_block_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"moe_layer_start_index", "leading_dense_block_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"n_group", "expert_group_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"topk_group", "expert_group_used_count", CL_JSON_KIND_INT, false, EXPERTS, false},
    {"routed_scaling_factor", "expert_weights_scale", CL_JSON_KIND_NUMBER, false, EXPERTS, false},
    {"altup_num_inputs", "altup.num_inputs", CL_JSON_KIND_INT, false, STATES, false},
    {"altup_active_idx", "altup.active_idx", CL_JSON_KIND_INT, false, STATES, false},
    {"num_kv_shared_layers", "attention.shared_kv_layers", CL_JSON_KIND_INT, false, UNLIKE_LAYERS, false},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", CL_JSON_KIND_INT, false, UNLIKE_LAYERS, false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* Fields of keys that are not in the table above, for messages. */
static const struct {
    const char *key, *name;
} others[] = {
    {"rope.freq_base", "rope_theta"},
    {"rope.scaling.factor", "rope_scaling.factor"},
    {"attention.scale", "query_pre_attn_scalar"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.temperature_scale", "rope_parameters.llama_4_scaling_beta"},
    {"rope.dimension_count", "partial_rotary_factor"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
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

/* A number as metadata keep it, or 0 with an error. */
static uint32_t checked(cl_hf_config *c, const char *name, json_int_t n) {
    if (n >= 0 && n <= UINT32_MAX) return (uint32_t)n;
    cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s%s is %lld; 0 to %u are allowed", c->where, name, (long long)n, UINT32_MAX);
    return 0;
}

static void put_int(cl_hf_config *c, cl_model_file *file, const char *name, const char *suffix, const json_t *value) {
    char key[96];
    cl_meta_put_u32(file, key_of(c, key, suffix), checked(c, name, json_integer_value(value)));
}

static void put_number(const cl_hf_config *c, cl_model_file *file, const char *suffix, double value) {
    char key[96];
    cl_meta_put_f64(file, key_of(c, key, suffix), value);
}

/* ---- Biases and unsupported fields ---- */

/* Fields that change the model, and the only value that is supported. */
static const struct {
    const char *name;
    bool supported;
    const char *word; /* that is supported, too */
} flags[] = {
    {"attention_bias", false, NULL},     {"mlp_bias", false, NULL},
    {"use_sliding_window", false, NULL}, {"is_causal", true, NULL},
    {"altup_correct_scale", true, NULL}, {"use_bidirectional_attention", false, "vision"}, /* which concerns images alone */
};

/* Whether the class has biases where this field says so. */
static bool is_bias_field(const cl_hf_class *class, const char *name) {
    for (int i = 0; i < MAX_BIAS_FIELDS && class->bias_fields[i].name; i++)
        if (strcmp(class->bias_fields[i].name, name) == 0) return true;
    return false;
}

static void read_biases(cl_hf_config *c, cl_model_file *file, const cl_hf_class *class) {
    char key[96];
    c->biases = class->biases;
    for (int i = 0; i < MAX_BIAS_FIELDS && class->bias_fields[i].name; i++) {
        const bias_field *f = &class->bias_fields[i];
        if (cl_json_doc_bool(&c->doc, c->text, c->where, f->name, f->given)) c->biases |= f->biases;
    }
    cl_meta_put_u32(file, key_of(c, key, "biases"), c->biases);
}

static void refuse_flags(cl_hf_config *c, const cl_hf_class *class, const json_t *object, const char *where) {
    static const char *const words[] = {"false", "true"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *name = flags[i].name, *supported = words[flags[i].supported];
        const char *word = flags[i].word ? json_string_value(json_object_get(object, name)) : NULL;
        if (is_bias_field(class, name) || (word && strcmp(word, flags[i].word) == 0)) continue;
        if (word)
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%s%s is \"%.20s\"; only %s and \"%s\" are supported", where, name,
                             word, supported, flags[i].word);
        else if (cl_json_doc_bool(&c->doc, object, where, name, flags[i].supported) != flags[i].supported)
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%s%s is %s; only %s is supported", where, name,
                             words[!flags[i].supported], supported);
    }
    cl_hf_read_quant(&c->doc, object, where, &c->quant);
}

/* The part of a head that is rotated. Older files have the field beside the others, newer ones in rope_parameters. */
static double partial_rotation(cl_hf_config *c, const cl_hf_class *class, const json_t *object, const char *where,
                               double given) {
    const double part = cl_json_doc_number(&c->doc, object, where, "partial_rotary_factor", given);
    if (part != 1 && class->partial == 0)
        cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%spartial_rotary_factor must be 1", where);
    else if (!(part > 0 && part <= 1))
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%spartial_rotary_factor is %g; above 0 to 1 is allowed", where, part);
    return part;
}

static void refuse(cl_hf_config *c, const cl_hf_class *class) {
    cl_json_doc *doc = &c->doc;
    refuse_flags(c, class, doc->root, "");
    if (c->text != doc->root) refuse_flags(c, class, c->text, c->where);
    const cl_str activation = cl_json_doc_string(doc, c->text, c->where, class->activation_field);
    if (activation.size > 0 && !cl_str_is_one_of(activation, class->activation))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s%s is \"%.40s\"; a %s model has \"%s\"", c->where, class->activation_field,
                         activation.data, class->arch, class->activation);
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
static void read_window_rope(cl_hf_config *c, const cl_hf_class *class, cl_model_file *file, const rope_fields *f) {
    cl_json_doc *doc = &c->doc;
    const cl_str type = cl_json_doc_string(doc, f->object, f->where, "rope_type");
    if (type.size > 0 && !cl_str_is(type, "default"))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%srope_type is \"%.40s\"; supported: default", f->where, type.data);
    (void)partial_rotation(c, class, f->object, f->where, 1);
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

/* The dimensions of a head; 0: not known. */
static int32_t head_size(const cl_hf_config *c) {
    const json_int_t given = c->head_dim ? c->head_dim : json_integer_value(json_object_get(c->text, "head_dim"));
    const json_int_t heads = json_integer_value(json_object_get(c->text, "num_attention_heads"));
    const json_int_t size = given > 0 ? given : heads > 0 ? c->n_embd / heads : 0;
    return size > 0 && size <= 4096 ? (int32_t)size : 0; /* params.c refuses 0 with a message */
}

/* A number of the rotation's or, if it has none, of the model's; 0: neither has it. */
static double rope_number(cl_hf_config *c, const rope_fields *f, const char *name) {
    const double outside = cl_json_doc_number(&c->doc, c->text, c->where, name, 0);
    return cl_json_doc_number(&c->doc, f->object, f->where, name, outside);
}

static double mscale(double factor, double weight) { return factor > 1 ? 1 + 0.1 * weight * log(factor) : 1; }

static void put_trained(cl_hf_config *c, cl_model_file *file, double trained) {
    char key[96];
    if (trained >= 1 && trained <= INT32_MAX)
        cl_meta_put_u32(file, key_of(c, key, "rope.scaling.original_context_length"), (uint32_t)trained);
}

static void read_yarn(cl_hf_config *c, cl_model_file *file, const rope_fields *f, double factor) {
    cl_json_doc *doc = &c->doc;
    char key[96];
    const double fast = cl_json_doc_number(doc, f->object, f->where, "beta_fast", 0);
    const double slow = cl_json_doc_number(doc, f->object, f->where, "beta_slow", 0);
    const double one = cl_json_doc_number(doc, f->object, f->where, "mscale", 0);
    const double all = cl_json_doc_number(doc, f->object, f->where, "mscale_all_dim", 0);
    double magnitude = cl_json_doc_number(doc, f->object, f->where, "attention_factor", 0);
    if (magnitude == 0 && one != 0 && all != 0) magnitude = mscale(factor, one) / mscale(factor, all);
    cl_meta_put_string(file, key_of(c, key, "rope.scaling.type"), cl_str_of("yarn"));
    put_number(c, file, "rope.scaling.factor", factor);
    if (fast != 0) put_number(c, file, "rope.scaling.yarn_beta_fast", fast);
    if (slow != 0) put_number(c, file, "rope.scaling.yarn_beta_slow", slow);
    if (magnitude != 0) put_number(c, file, "rope.scaling.magnitude", magnitude);
    cl_meta_put_bool(file, key_of(c, key, "rope.scaling.yarn_whole_pairs"),
                     cl_json_doc_bool(doc, f->object, f->where, "truncate", true));
}

static void read_longrope(cl_hf_config *c, cl_model_file *file, const rope_fields *f, double factor, double trained) {
    cl_json_doc *doc = &c->doc;
    char key[96];
    c->long_divisors = cl_json_doc_field(doc, f->object, f->where, "long_factor", CL_JSON_KIND_ARRAY, true);
    c->short_divisors = cl_json_doc_field(doc, f->object, f->where, "short_factor", CL_JSON_KIND_ARRAY, true);
    double magnitude = cl_json_doc_number(doc, f->object, f->where, "attention_factor", 0);
    if (magnitude == 0) magnitude = factor > 1 && trained > 1 ? sqrt(1 + log(factor) / log(trained)) : 1;
    cl_meta_put_string(file, key_of(c, key, "rope.scaling.type"), cl_str_of("longrope"));
    put_number(c, file, "rope.scaling.magnitude", magnitude);
}

/* The kinds of scaling, and older names of theirs. "proportional" rotates a part of the pairs of the whole head. "dynamic"
 * changes nothing within the trained context, unless it has an alpha. */
typedef enum scaling { DEFAULT, LINEAR, LLAMA3, YARN, LONGROPE, PROPORTIONAL, DYNAMIC } scaling;

static bool find_scaling(cl_hf_config *c, const cl_hf_class *class, const rope_fields *f, scaling *kind) {
    static const struct {
        const char *name;
        scaling kind;
    } names[] = {{"default", DEFAULT},
                 {"linear", LINEAR},
                 {"llama3", LLAMA3},
                 {"yarn", YARN},
                 {"longrope", LONGROPE},
                 {"su", LONGROPE},
                 {"proportional", PROPORTIONAL},
                 {"dynamic", DYNAMIC}};
    cl_json_doc *doc = &c->doc;
    cl_str type = cl_json_doc_string(doc, f->object, f->where, "rope_type");
    if (type.size == 0) type = cl_json_doc_string(doc, f->object, f->where, "type");
    *kind = DEFAULT;
    if (type.size == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!cl_str_is(type, names[i].name)) continue;
        *kind = names[i].kind == YARN && class->yarn_is_long ? LONGROPE : names[i].kind;
        return true;
    }
    cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                     "%srope_type is \"%.40s\"; supported: default, linear, llama3, yarn, longrope, proportional, dynamic",
                     f->where, type.data);
    return false;
}

static void read_scaling(cl_hf_config *c, const cl_hf_class *class, cl_model_file *file, const rope_fields *f) {
    cl_json_doc *doc = &c->doc;
    scaling kind;
    if (!find_scaling(c, class, f, &kind)) return;
    const double n_ctx = cl_json_doc_number(doc, c->text, c->where, "max_position_embeddings", 0);
    double trained = rope_number(c, f, "original_max_position_embeddings");
    if (trained == 0) trained = n_ctx;
    const double beta = cl_json_doc_number(doc, f->object, f->where, "llama_4_scaling_beta", 0);
    if (beta != 0) put_number(c, file, "attention.temperature_scale", beta);
    if (kind == YARN || kind == LONGROPE || beta != 0) put_trained(c, file, trained);
    double factor = cl_json_doc_number(doc, f->object, f->where, "factor", 0);
    if ((kind == LINEAR || kind == LLAMA3) && factor == 0)
        (void)cl_json_doc_field(doc, f->object, f->where, "factor", CL_JSON_KIND_NUMBER, true);
    if (factor == 0 && trained > 0) factor = n_ctx / trained;
    const double alpha = kind == DYNAMIC ? cl_json_doc_number(doc, f->object, f->where, "alpha", 0) : 0;
    const int32_t d = c->head_dim;
    if (alpha > 0 && d > 2) c->rope_base *= pow(alpha, (double)d / (d - 2));
    if (kind == LINEAR) put_number(c, file, "rope.scaling.factor", factor);
    if (kind == LLAMA3) read_llama3(c, f, factor);
    if (kind == YARN) read_yarn(c, file, f, factor);
    if (kind == LONGROPE) read_longrope(c, file, f, factor, trained);
    if (kind == PROPORTIONAL) c->proportional_factor = cl_json_doc_number(doc, f->object, f->where, "factor", 1);
}

/* Newer files have all of it in rope_parameters; if that lacks rope_theta, the one beside it applies. */
static void read_rope(cl_hf_config *c, cl_model_file *file, const cl_hf_class *class) {
    cl_json_doc *doc = &c->doc;
    rope_fields f = rope_in(c, c->text, c->where, "rope_parameters", false);
    const bool newer = f.object;
    if (differs_by_layer(&f)) {
        if (!(class->reads & LAYER_KINDS))
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                             "%srope_parameters differ by kind of layer; a %s model has the same for all", c->where,
                             class->arch);
        const rope_fields window = rope_in(c, f.object, f.where, "sliding_attention", false);
        read_window_rope(c, class, file, &window);
        f = rope_in(c, f.object, f.where, "full_attention", true);
    }
    if (!newer) f = rope_in(c, c->text, c->where, "rope_scaling", false);
    c->rope_base = cl_json_doc_number(doc, c->text, c->where, "rope_theta", class->rope_base);
    c->head_dim = head_size(c);
    if (newer) c->rope_base = cl_json_doc_number(doc, f.object, f.where, "rope_theta", c->rope_base);
    read_scaling(c, class, file, &f);
    put_number(c, file, "rope.freq_base", c->rope_base);
    double part = partial_rotation(c, class, c->text, c->where, class->partial > 0 ? class->partial : 1);
    part = partial_rotation(c, class, f.object, f.where, part);
    c->n_rot = (int32_t)(c->head_dim * part);
    char key[96];
    if (part < 1 && c->proportional_factor == 0)
        cl_meta_put_u32(file, key_of(c, key, "rope.dimension_count"), (uint32_t)c->n_rot);
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

/* ---- Layers that differ ---- */

/* The value of a layer's own field, or of the model's, such as "head_dim". */
static json_int_t layer_field(cl_hf_config *c, int32_t layer, bool full, const char *name, const char *global_name) {
    char index[12], where[64];
    const json_t *all = json_object_get(c->text, "per_layer_config"), *value = NULL;
    (void)snprintf(index, sizeof index, "%d", layer);
    (void)snprintf(where, sizeof where, "%.20sper_layer_config.%s.", c->where, index);
    if (all)
        value = cl_json_doc_field(&c->doc, json_object_get(all, index), where, name, CL_JSON_KIND_INT, false);
    else if (full && global_name)
        value = cl_json_doc_field(&c->doc, c->text, c->where, global_name, CL_JSON_KIND_INT, false);
    return json_integer_value(value ? value : json_object_get(c->text, name));
}

/* Only fields that layer_field reads may differ between layers. */
static void check_layer_fields(cl_hf_config *c) {
    const char *index, *name;
    json_t *layer, *value;
    json_object_foreach(json_object_get(c->text, "per_layer_config"), index, layer) json_object_foreach(layer, name, value) {
        if (strcmp(name, "head_dim") != 0 && strcmp(name, "num_key_value_heads") != 0)
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%sper_layer_config.%.10s.%.40s: layers may not differ in it",
                             c->where, index, name);
    }
}

/* The inner size of a layer's feed-forward block: a number for all, or a list. */
static json_int_t n_ff_of(cl_hf_config *c, size_t layer, size_t n_layers) {
    static const char name[] = "intermediate_size";
    const json_t *value = json_object_get(c->text, name);
    if (!json_is_array(value)) return checked(c, name, json_integer_value(value));
    if (json_array_size(value) != n_layers)
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s%s has %zu entries, but num_hidden_layers is %zu", c->where, name,
                         json_array_size(value), n_layers);
    return checked(c, name, json_integer_value(json_array_get(value, layer)));
}

/* How many standard deviations above its mean a part `below` of normally distributed values is; minus infinity for 0. */
static double deviations_of(double below) {
    double low = -40, high = 40;
    if (below == 0) return -INFINITY;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < below)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* The part of a layer's gates that is cut; a file that leaves it out has it in the first ten layers. */
static void read_sparsity(cl_hf_config *c, cl_model_file *file, size_t n_layers) {
    enum { SPARSE = 10 };
    char key[96];
    static const char name[] = "activation_sparsity_pattern";
    const json_t *list = cl_json_doc_field(&c->doc, c->text, c->where, name, CL_JSON_KIND_ARRAY, false);
    if (list && json_array_size(list) != n_layers)
        cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s%s has %zu entries, but num_hidden_layers is %zu", c->where, name,
                         json_array_size(list), n_layers);
    float *cuts = cl_meta_put_array(file, key_of(c, key, "activation_sparsity_scale"), CL_META_FLOAT32, n_layers);
    for (size_t i = 0; cuts && i < n_layers; i++) {
        const double given = list ? json_number_value(json_array_get(list, i)) : n_layers > SPARSE && i < SPARSE ? 0.95 : 0;
        if (!(given >= 0 && given < 1))
            cl_json_doc_fail(&c->doc, CL_ERR_FORMAT, "%s%s[%zu] is %g; 0 to below 1 is allowed", c->where, name, i, given);
        cuts[i] = given >= 0 && given < 1 ? (float)deviations_of(given) : 0;
    }
}

/* The heads and the feed-forward block of each layer. Newer files list what differs; older ones have fields for all layers
 * without a window. */
static void read_unlike_layers(cl_hf_config *c, cl_model_file *file, bool states) {
    cl_json_doc *doc = &c->doc;
    char key[96];
    const json_t *types = cl_json_doc_field(doc, c->text, c->where, "layer_types", CL_JSON_KIND_ARRAY, true);
    const size_t n = json_array_size(types);
    const json_int_t n_layers = json_integer_value(json_object_get(c->text, "num_hidden_layers"));
    static const char N_FF[] = "intermediate_size", HEAD_DIM[] = "head_dim", KV_HEADS[] = "num_key_value_heads",
                      SHARED[] = "num_kv_shared_layers";
    const json_int_t n_shared = checked(c, SHARED, json_integer_value(json_object_get(c->text, SHARED)));
    const bool wide = cl_json_doc_bool(doc, c->text, c->where, "use_double_wide_mlp", false);
    const bool same = cl_json_doc_bool(doc, c->text, c->where, "attention_k_eq_v", false);
    cl_meta_put_bool(file, key_of(c, key, "attention.values_are_keys"), same);
    (void)cl_json_doc_field(doc, c->text, c->where, "per_layer_config", CL_JSON_KIND_OBJECT, false);
    check_layer_fields(c);
    if (types && (json_int_t)n != n_layers)
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "%slayer_types has %zu entries, but num_hidden_layers is %lld", c->where, n,
                         (long long)n_layers);
    uint32_t *kv_heads = cl_meta_put_array(file, key_of(c, key, "attention.head_count_kv"), CL_META_U32, n);
    uint32_t *head_dims = cl_meta_put_array(file, key_of(c, key, "attention.key_length"), CL_META_U32, n);
    uint32_t *n_ffs = cl_meta_put_array(file, key_of(c, key, "feed_forward_length"), CL_META_U32, n);
    for (size_t i = 0; kv_heads && head_dims && n_ffs && i < n; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool full = type && strcmp(type, "full_attention") == 0;
        head_dims[i] = checked(c, HEAD_DIM, layer_field(c, (int32_t)i, full, HEAD_DIM, "global_head_dim"));
        kv_heads[i] =
            checked(c, KV_HEADS, layer_field(c, (int32_t)i, full, KV_HEADS, same ? "num_global_key_value_heads" : NULL));
        n_ffs[i] = checked(c, N_FF, n_ff_of(c, i, n) * (wide && (json_int_t)i >= (json_int_t)n - n_shared ? 2 : 1));
        if (full && head_dims[i] <= 4096) c->head_dim = (int32_t)head_dims[i];
        if (i == n - 1 && !full && !states) /* Transformers would make it one */
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%slayer_types[%zu] must be \"full_attention\"", c->where, i);
    }
    if (states) read_sparsity(c, file, n);
}

/* Which layers are rotated: a list of 1 and 0, or the period of those that are not. */
static void read_plain_layers(cl_hf_config *c, cl_model_file *file) {
    char key[96];
    const json_t *list = cl_json_doc_field(&c->doc, c->text, c->where, "no_rope_layers", CL_JSON_KIND_ARRAY, false);
    const json_int_t n_layers = json_integer_value(json_object_get(c->text, "num_hidden_layers"));
    const double period = cl_json_doc_number(&c->doc, c->text, c->where, "no_rope_layer_interval", 4);
    const size_t n = list ? json_array_size(list) : n_layers > 0 && n_layers <= 1024 ? (size_t)n_layers : 0;
    unsigned char *rotated = cl_meta_put_array(file, key_of(c, key, "rope.layers"), CL_META_BOOL, n);
    for (size_t i = 0; rotated && i < n; i++)
        rotated[i] = list ? json_integer_value(json_array_get(list, i)) != 0 : period < 1 || (i + 1) % (size_t)period != 0;
}

/* ---- Experts ---- */

/* Refuse a number that is not the only one supported. */
static void require_int(cl_hf_config *c, const char *name, json_int_t only) {
    const json_t *value = cl_json_doc_field(&c->doc, c->text, c->where, name, CL_JSON_KIND_INT, false);
    if (value && json_integer_value(value) != only)
        cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%s%s is %lld; only %lld is supported", c->where, name,
                         (long long)json_integer_value(value), (long long)only);
}

static void require_number(cl_hf_config *c, const char *name, double only) {
    const double value = cl_json_doc_number(&c->doc, c->text, c->where, name, only);
    if (value != only)
        cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED, "%s%s is %g; only %g is supported", c->where, name, value, only);
}

/* The layers without experts, of which only the first ones are supported. */
static void read_dense_layers(cl_hf_config *c, cl_model_file *file) {
    const json_t *list = cl_json_doc_field(&c->doc, c->text, c->where, "mlp_only_layers", CL_JSON_KIND_ARRAY, false);
    char key[96];
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) != (json_int_t)i)
            cl_json_doc_fail(&c->doc, CL_ERR_UNSUPPORTED,
                             "%smlp_only_layers[%zu] must be %zu; only the first layers may lack experts", c->where, i, i);
    if (json_array_size(list) > 0)
        cl_meta_put_u32(file, key_of(c, key, "leading_dense_block_count"), (uint32_t)json_array_size(list));
}

static void read_experts(cl_hf_config *c, cl_model_file *file) {
    cl_json_doc *doc = &c->doc;
    char key[96];
    const json_int_t n_layers = json_integer_value(json_object_get(c->text, "num_hidden_layers"));
    const json_t *last = json_object_get(c->text, "moe_layer_end_index");
    require_int(c, "decoder_sparse_step", 1);
    require_int(c, "moe_layer_interval", 1);
    require_number(c, "swiglu_alpha", 1.702);
    require_number(c, "swiglu_limit", 7);
    if (json_integer_value(last) != -1) require_int(c, "moe_layer_end_index", n_layers - 1);
    if (cl_json_doc_field(doc, c->text, c->where, "clip_qkv", CL_JSON_KIND_NUMBER, false))
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%sclip_qkv must be null; values of Q, K and V are not cut", c->where);
    read_dense_layers(c, file);
    if (json_object_get(c->text, "norm_topk_prob"))
        cl_meta_put_bool(file, key_of(c, key, "expert_weights_norm"),
                         cl_json_doc_bool(doc, c->text, c->where, "norm_topk_prob", false));
}

/* ---- All ---- */

/* Find the object with the fields of the model of text, and add the class's defaults to it. */
static void find_text(cl_hf_config *c, const cl_hf_class *class) {
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

/* Whether another field of the file says the same, or the field is read layer by layer. */
static bool is_replaced(const cl_hf_config *c, const cl_hf_class *class, const char *name) {
    static const char of_layers[] = "head_dim num_key_value_heads intermediate_size";
    if (class->reads & UNLIKE_LAYERS && cl_str_is_one_of(cl_str_of(name), of_layers)) return true;
    const json_t *rope = json_object_get(c->text, "rope_parameters");
    if (strcmp(name, "rope_local_base_freq") == 0) return json_object_get(rope, "sliding_attention");
    return strcmp(name, "sliding_window_pattern") == 0 && json_is_array(json_object_get(c->text, "layer_types"));
}

/* Whether the model has experts; classes that may do without them say so. */
static bool has_experts(cl_hf_config *c, const cl_hf_class *class) {
    return class->reads & EXPERTS && cl_json_doc_bool(&c->doc, c->text, c->where, "enable_moe_block", true);
}

static void read_fields(cl_hf_config *c, cl_model_file *file, const cl_hf_class *class) {
    cl_json_doc *doc = &c->doc;
    const bool experts = has_experts(c, class);
    for (int i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[i];
        const bool required = f->required || (class->own_head_dim && strcmp(f->name, "head_dim") == 0);
        if (f->group & ~class->reads || (f->group == EXPERTS && !experts) || is_replaced(c, class, f->name)) continue;
        const json_t *value = cl_json_doc_field(doc, c->text, c->where, f->name, f->kind, required);
        if (!value && f->none) put_number(c, file, f->key, 0);
        if (value && f->kind == CL_JSON_KIND_INT) put_int(c, file, f->name, f->key, value);
        if (value && f->kind == CL_JSON_KIND_NUMBER) put_number(c, file, f->key, json_number_value(value));
    }
    const json_t *eps =
        cl_json_doc_field(doc, c->text, c->where, class->eps ? class->eps : "rms_norm_eps", CL_JSON_KIND_NUMBER, true);
    put_number(c, file, class->eps ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
               json_number_value(eps));
    const json_t *n_vocab = cl_json_doc_field(doc, c->text, c->where, "vocab_size", CL_JSON_KIND_INT, true);
    const json_int_t n = json_integer_value(n_vocab);
    if (n_vocab && (n < 1 || n > INT32_MAX))
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "%svocab_size is %lld; 1 to %d are allowed", c->where, (long long)n, INT32_MAX);
    c->n_vocab = (int32_t)n;
    c->n_embd = json_integer_value(json_object_get(c->text, "hidden_size"));
    const double scalar = class->reads & SCORES ? cl_json_doc_number(doc, c->text, c->where, "query_pre_attn_scalar", 0) : 0;
    if (scalar > 0) put_number(c, file, "attention.scale", 1 / sqrt(scalar));
}

cl_status cl_hf_read_config(const char *folder, cl_model_file *file, cl_hf_config *c, cl_error *error) {
    *c = (cl_hf_config){.bos = -1};
    cl_json_doc *doc = &c->doc;
    cl_json_doc_open(doc, folder, "config.json", CL_JSON_DOC_REQUIRED, error);
    if (doc->status != CL_OK) return doc->status;
    const cl_hf_class *class = cl_hf_find_class(&c->doc, &c->base);
    if (!class) return doc->status;
    find_text(c, class);
    c->arch = class->arch;
    c->norm_plus_one = class->norm_plus_one;
    c->own_experts = class->own_experts;
    const bool tied = cl_json_doc_bool(doc, doc->root, "", "tie_word_embeddings", class->tied);
    c->tied = cl_json_doc_bool(doc, c->text, c->where, "tie_word_embeddings", tied);
    char key[96];
    cl_meta_put_string(file, "general.architecture", cl_str_of(class->arch));
    cl_meta_put_bool(file, key_of(c, key, "rope.halves"), !class->pairs);
    read_fields(c, file, class);
    refuse(c, class);
    read_biases(c, file, class);
    if (class->reads & UNLIKE_LAYERS) read_unlike_layers(c, file, class->reads & STATES);
    read_rope(c, file, class);
    read_layer_types(c, file, class->reads & LAYER_KINDS);
    if (class->reads & PLAIN_LAYERS) read_plain_layers(c, file);
    if (has_experts(c, class)) read_experts(c, file);
    if (doc->status == CL_OK) read_tokens(c);
    return doc->status;
}
