/* The table of classes: see hf_class.h. */
#include "hf_class.h"

#include <stdio.h>
#include <string.h>

#define SILU .activation_field = "hidden_act", .activation = "silu"
#define ATTENTION_BIAS(given)                                                                                                  \
    { "attention_bias", QKV | OUTPUT, given }

#define GEMMA4_DEFAULTS                                                                                                        \
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, \"global_head_dim\": 512,"                     \
    " \"rms_norm_eps\": 1e-6, \"vocab_size\": 262144, \"rope_parameters\": {\"sliding_attention\": {}, \"full_attention\":"    \
    " {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}}"

static const cl_hf_class classes[] = {
    {.names = "LlamaForCausalLM LlamaModel",
     .arch = "llama",
     SILU,
     .rope_base = 1e4,
     .bias_fields = {ATTENTION_BIAS(false), {"mlp_bias", FFN, false}}},
    {.names = "InternLM3ForCausalLM",
     .arch = "llama",
     SILU,
     .rope_base = 1e4,
     .bias_fields = {{"qkv_bias", QKV, false}, {"bias", OUTPUT | FFN, false}}},
    {.names = "MistralForCausalLM MistralModel Mistral3ForConditionalGeneration",
     .arch = "llama",
     .text_type = "mistral",
     SILU,
     .rope_base = 1e4,
     .reads = ONE_WINDOW},
    {.names = "MixtralForCausalLM MixtralModel", .arch = "llama", SILU, .rope_base = 1e6, .reads = ONE_WINDOW | EXPERTS},
    {.names = "Ministral3ForCausalLM Ministral3Model Mistral3ForConditionalGeneration",
     .arch = "mistral3",
     .text_type = "ministral3",
     SILU,
     .rope_base = 1e6,
     .reads = ONE_WINDOW},
    {.names = "Qwen2ForCausalLM Qwen2Model", .arch = "qwen2", SILU, .rope_base = 1e4, .biases = QKV},
    {.names = "Qwen3ForCausalLM Qwen3Model",
     .arch = "qwen3",
     SILU,
     .rope_base = 1e4,
     .own_head_dim = true,
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "Qwen2MoeForCausalLM Qwen2MoeModel",
     .arch = "qwen2moe",
     SILU,
     .rope_base = 1e4,
     .reads = EXPERTS,
     .defaults = "{\"norm_topk_prob\": false}",
     .bias_fields = {{"qkv_bias", QKV, true}}},
    {.names = "Qwen3MoeForCausalLM Qwen3MoeModel",
     .arch = "qwen3moe",
     SILU,
     .rope_base = 1e4,
     .reads = EXPERTS,
     .own_head_dim = true,
     .defaults = "{\"norm_topk_prob\": false}",
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "GemmaForCausalLM GemmaModel", /* older files name the activation, which is GELU's tanh form, only gelu */
     .arch = "gemma",
     .activation_field = "hidden_act",
     .activation = "gelu_pytorch_tanh gelu",
     .rope_base = 1e4,
     .norm_plus_one = true,
     .tied = true,
     .own_head_dim = true,
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "Gemma2ForCausalLM Gemma2Model",
     .arch = "gemma2",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e4,
     .reads = ONE_WINDOW | LAYER_KINDS | SCORES | LOGIT_CAP,
     .norm_plus_one = true,
     .tied = true,
     .own_head_dim = true,
     .defaults = "{\"sliding_window\": 4096, \"query_pre_attn_scalar\": 256, \"attn_logit_softcapping\": 50.0,"
                 " \"final_logit_softcapping\": 30.0}"},
    {.names = "Gemma3ForCausalLM Gemma3TextModel Gemma3ForConditionalGeneration",
     .arch = "gemma3",
     .text_type = "gemma3_text",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .reads = ONE_WINDOW | LAYER_KINDS | SCORES | LOGIT_CAP,
     .norm_plus_one = true,
     .tied = true,
     .own_head_dim = true,
     .defaults = "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, \"sliding_window\": 4096,"
                 " \"query_pre_attn_scalar\": 256, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6,"
                 " \"vocab_size\": 262208}"},
    {.names = "Gemma3nForCausalLM Gemma3nTextModel Gemma3nForConditionalGeneration",
     .arch = "gemma3n",
     .text_type = "gemma3n_text",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .reads = ONE_WINDOW | LAYER_KINDS | LOGIT_CAP | UNLIKE_LAYERS | STATES,
     .tied = true,
     .defaults = "{\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 256, \"sliding_window\": 512,"
                 " \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, \"vocab_size\": 262400,"
                 " \"final_logit_softcapping\": 30.0, \"hidden_size_per_layer_input\": 256, \"num_kv_shared_layers\": 15,"
                 " \"altup_num_inputs\": 4}"},
    {.names = "Gemma4ForCausalLM Gemma4TextModel Gemma4ForConditionalGeneration",
     .arch = "gemma4",
     .text_type = "gemma4_text",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .partial = 1,
     .reads = ONE_WINDOW | LAYER_KINDS | EXPERTS | LOGIT_CAP | UNLIKE_LAYERS,
     .tied = true,
     .defaults = "{\"hidden_size_per_layer_input\": 256, \"sliding_window\": 512, \"max_position_embeddings\": 131072,"
                 " \"enable_moe_block\": false, " GEMMA4_DEFAULTS "}"},
    {.names = "Gemma4UnifiedForCausalLM Gemma4UnifiedTextModel Gemma4UnifiedForConditionalGeneration",
     .arch = "gemma4",
     .text_type = "gemma4_unified_text",
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .rope_base = 1e6,
     .partial = 1,
     .reads = ONE_WINDOW | LAYER_KINDS | LOGIT_CAP | UNLIKE_LAYERS,
     .tied = true,
     .defaults = "{\"sliding_window\": 1024, \"max_position_embeddings\": 262144, " GEMMA4_DEFAULTS "}"},
    {.names = "Phi3ForCausalLM Phi3Model",
     .arch = "phi3",
     SILU,
     .rope_base = 1e4,
     .partial = 1,
     .reads = ONE_WINDOW,
     .yarn_is_long = true},
    {.names = "GraniteForCausalLM GraniteModel",
     .arch = "granite",
     SILU,
     .rope_base = 1e4,
     .reads = MULTIPLIERS,
     .defaults = "{\"attention_multiplier\": 1.0}",
     .bias_fields = {ATTENTION_BIAS(false), {"mlp_bias", FFN, false}}},
    {.names = "GraniteMoeForCausalLM GraniteMoeModel GraniteMoeSharedForCausalLM GraniteMoeSharedModel",
     .arch = "granitemoe",
     SILU,
     .rope_base = 1e4,
     .reads = MULTIPLIERS | EXPERTS,
     .defaults = "{\"attention_multiplier\": 1.0}",
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "SmolLM3ForCausalLM SmolLM3Model",
     .arch = "smollm3",
     SILU,
     .rope_base = 2e6,
     .reads = PLAIN_LAYERS,
     .tied = true,
     .bias_fields = {ATTENTION_BIAS(false), {"mlp_bias", FFN, false}}},
    {.names = "Olmo2ForCausalLM Olmo2Model", .arch = "olmo2", SILU, .rope_base = 1e4, .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "Olmo3ForCausalLM Olmo3Model",
     .arch = "olmo2",
     SILU,
     .rope_base = 5e5,
     .reads = ONE_WINDOW | LAYER_KINDS,
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "OlmoeForCausalLM OlmoeModel",
     .arch = "olmoe",
     SILU,
     .rope_base = 1e4,
     .reads = EXPERTS,
     .defaults = "{\"norm_topk_prob\": false}"},
    {.names = "Exaone4ForCausalLM Exaone4Model", .arch = "exaone4", SILU, .rope_base = 1e4, .reads = ONE_WINDOW | LAYER_KINDS},
    {.names = "Glm4ForCausalLM Glm4Model",
     .arch = "glm4",
     SILU,
     .rope_base = 1e4,
     .partial = 0.5,
     .pairs = true,
     .bias_fields = {{"attention_bias", QKV, true}}},
    {.names = "Glm4MoeForCausalLM Glm4MoeModel",
     .arch = "glm4moe",
     SILU,
     .rope_base = 1e4,
     .partial = 0.5,
     .reads = EXPERTS,
     .biases = CHOICE,
     .own_head_dim = true,
     .bias_fields = {{"attention_bias", QKV, false}}},
    {.names = "GptOssForCausalLM GptOssModel",
     .arch = "gpt-oss",
     SILU,
     .rope_base = 1.5e5,
     .reads = ONE_WINDOW | LAYER_KINDS | EXPERTS,
     .biases = EXPERT,
     .own_head_dim = true,
     .own_experts = true,
     .bias_fields = {ATTENTION_BIAS(true)}},
    {.names = "SeedOssForCausalLM SeedOssModel",
     .arch = "seed_oss",
     SILU,
     .rope_base = 1e4,
     .bias_fields = {{"attention_bias", QKV, true}, {"attention_out_bias", OUTPUT, false}, {"mlp_bias", FFN, false}}},
    {.names = "Ernie4_5ForCausalLM Ernie4_5Model Ernie4_5_ForCausalLM",
     .arch = "ernie4_5",
     SILU,
     .rope_base = 5e5,
     .pairs = true,
     .tied = true,
     .bias_fields = {{"use_bias", QKV | OUTPUT | FFN, false}}},
    {.names = "Ernie4_5_MoeForCausalLM Ernie4_5_MoeModel",
     .arch = "ernie4_5-moe",
     SILU,
     .rope_base = 5e5,
     .reads = EXPERTS,
     .biases = CHOICE,
     .pairs = true,
     .tied = true,
     .bias_fields = {{"use_bias", QKV | OUTPUT | FFN, false}}},
    {.names = "CohereForCausalLM CohereModel",
     .arch = "command-r",
     SILU,
     .eps = "layer_norm_eps",
     .rope_base = 1e4,
     .reads = LOGIT_SCALE,
     .pairs = true,
     .tied = true,
     .defaults = "{\"logit_scale\": 0.0625}",
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "Cohere2ForCausalLM Cohere2Model",
     .arch = "cohere2",
     SILU,
     .eps = "layer_norm_eps",
     .rope_base = 1e4,
     .reads = LOGIT_SCALE | ONE_WINDOW | LAYER_KINDS,
     .pairs = true,
     .tied = true,
     .defaults = "{\"logit_scale\": 0.0625, \"sliding_window\": 4096}",
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "HunYuanDenseV1ForCausalLM HunYuanDenseV1Model",
     .arch = "hunyuan-dense",
     SILU,
     .rope_base = 1e4,
     .bias_fields = {ATTENTION_BIAS(false)}},
    {.names = "Starcoder2ForCausalLM Starcoder2Model",
     .arch = "starcoder2",
     .activation_field = "hidden_act",
     .activation = "gelu_pytorch_tanh",
     .eps = "norm_epsilon",
     .rope_base = 1e4,
     .reads = ONE_WINDOW,
     .biases = NORM,
     .tied = true,
     .bias_fields = {{"use_bias", QKV | OUTPUT | FFN, true}}},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

/* Whether a class that others share its name with is that of the file's model of text. The first one is it in doubt. */
static bool has_text(const cl_json_doc *doc, const cl_hf_class *class) {
    const json_t *text = json_object_get(doc->root, "text_config");
    const char *type = json_string_value(json_object_get(text, "model_type"));
    for (int i = 0; type && i < N_CLASSES; i++)
        if (classes[i].text_type && strcmp(classes[i].text_type, type) == 0) return &classes[i] == class || !class->text_type;
    return true;
}

#define MLA                "multi-head latent attention"
#define DELTA_RULE         "recurrent layers (a gated delta rule)"
#define STATE_SPACES       "recurrent layers (state spaces)"
#define ENCODER            "attention in both directions, as an encoder does"
#define ENCODER_BESIDE     "an encoder beside the decoder"
#define TOWER              "a vision tower"
#define ACTIVATION         "an activation of its own"
#define EXPERTS_OF_ITS_OWN "a mixture of experts of a form of its own"

/* What classes need that is not supported, by parts of their names; the first that fits counts. */
static const char *needs_of(const char *name) {
    static const struct {
        const char *part, *needs;
    } others[] = {
        {"DeepseekV", MLA},
        {"MiniCPM3", MLA},
        {"Glm4MoeLite", MLA},
        {"GlmMoeDsa", MLA},
        {"Mistral4", MLA},
        {"VL", TOWER}, /* Qwen2_5_VL, Qwen3VLMoe, SmolVLM, InternVL */
        {"Vision", TOWER},
        {"Glm4v", TOWER},
        {"Mllama", TOWER},
        {"Llava", TOWER},
        {"Idefics", TOWER},
        {"PaliGemma", TOWER},
        {"KimiK25", TOWER},
        {"Siglip", TOWER},
        {"CLIP", TOWER},
        {"Qwen3Next", DELTA_RULE},
        {"Qwen3_5", DELTA_RULE},
        {"KimiLinear", DELTA_RULE},
        {"OlmoHybrid", DELTA_RULE},
        {"Mamba", STATE_SPACES},
        {"Jamba", STATE_SPACES},
        {"Bamba", STATE_SPACES},
        {"Zamba", STATE_SPACES},
        {"Plamo2", STATE_SPACES},
        {"Phi4Flash", STATE_SPACES},
        {"FalconH1", STATE_SPACES},
        {"NemotronH", STATE_SPACES},
        {"GraniteMoeHybrid", STATE_SPACES " in most sizes"},
        {"Lfm2", "recurrent layers (short convolutions)"},
        {"Rwkv", "recurrent layers (RWKV)"},
        {"Bert", ENCODER},
        {"BERT", ENCODER},
        {"Roberta", ENCODER},
        {"Deberta", ENCODER},
        {"Electra", ENCODER},
        {"MPNet", ENCODER},
        {"T5", ENCODER_BESIDE},
        {"Bart", ENCODER_BESIDE},
        {"Whisper", ENCODER_BESIDE},
        {"ForSequenceClassification", "a head of labels"},
        {"Apertus", ACTIVATION},
        {"Arcee", ACTIVATION},
        {"Nemotron", ACTIVATION},
        {"Phimoe", EXPERTS_OF_ITS_OWN},
        {"Llama4", EXPERTS_OF_ITS_OWN},
        {"MiniMax", EXPERTS_OF_ITS_OWN},
        {"MiMo", EXPERTS_OF_ITS_OWN},
        {"Afmoe", EXPERTS_OF_ITS_OWN},
        {"Dots1", EXPERTS_OF_ITS_OWN},
        {"Grok", EXPERTS_OF_ITS_OWN},
        {"Dbrx", EXPERTS_OF_ITS_OWN},
        {"Arctic", EXPERTS_OF_ITS_OWN},
        {"Moe", EXPERTS_OF_ITS_OWN},
        {"MoE", EXPERTS_OF_ITS_OWN},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i].part)) return others[i].needs;
    return NULL;
}

const cl_hf_class *cl_hf_find_class(cl_json_doc *doc, bool *base) {
    const json_t *list = cl_json_doc_field(doc, doc->root, "", "architectures", CL_JSON_KIND_ARRAY, true);
    const char *name = json_string_value(json_array_get(list, 0));
    static const char model[] = "Model";
    char known[800];
    size_t used = 0;
    for (int i = 0; i < N_CLASSES; i++) {
        if (name && cl_str_is_one_of(cl_str_of(name), classes[i].names) && has_text(doc, &classes[i])) {
            *base = strlen(name) > strlen(model) && strcmp(name + strlen(name) - strlen(model), model) == 0;
            return &classes[i];
        }
        const char *end = strstr(classes[i].names, "ForCausalLM");
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%.*s", i ? ", " : "", (int)(end - classes[i].names),
                                 classes[i].names);
    }
    const char *needs = name ? needs_of(name) : NULL;
    if (needs)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "architectures is \"%.60s\", which needs %s; that is not supported", name,
                         needs);
    else if (doc->status == CL_OK)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "architectures is \"%.60s\"; supported, each with ForCausalLM behind it: %s",
                         name ? name : "", known);
    return NULL;
}
