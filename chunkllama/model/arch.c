/*
 * The architectures. Sources: Llama (arXiv 2302.13971), Qwen2 (2407.10671), Qwen3 (2505.09388), Gemma 1 to 3 (2403.08295,
 * 2408.00118, 2503.19786), Phi-3 (2404.14219), OLMo 2 (2501.00656), EXAONE 4 (2507.11407), StarCoder2 (2402.19173), gpt-oss
 * (2508.10925), and the models' published configurations.
 */
#include "arch.h"

#include <stdio.h>
#include <string.h>

#define VISION                                                                                                                 \
    { "vision tower", "v. vision_tower. model.vision_tower." }
#define PROJECTOR                                                                                                              \
    { "projector", "mm. multi_modal_projector. model.multi_modal_projector." }
#define GEMMA_TOWERS                                                                                                           \
    { "towers of images and sound", "model.vision_tower. model.embed_vision. model.audio_tower. model.embed_audio." }
#define NEXT_TOKEN                                                                                                             \
    { "next-token layers", "mtp. model.mtp. model.mtp_" }

/* Files of these may have every bias of Llama's layers. */
#define MAYBE_BIASED .maybe_biases = CL_BIAS_MATRICES

static const cl_arch table[] = {
    /* and Mistral, Mixtral, SmolLM2, TinyLlama, Falcon 3, InternLM 3 */
    {.name = "llama",
     MAYBE_BIASED,
     .windows = true,
     .experts = true,
     .normalised = true,
     .left_out = {VISION, PROJECTOR, NEXT_TOKEN}},
    {.name = "mistral3", MAYBE_BIASED, .windows = true, .left_out = {VISION, PROJECTOR}},
    {.name = "qwen2", .rope_halves = true, .biases = CL_BIAS_QKV, .maybe_biases = CL_BIAS_OUTPUT, .left_out = {NEXT_TOKEN}},
    {.name = "qwen3",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT,
     .left_out = {NEXT_TOKEN}},
    {.name = "qwen2moe", .rope_halves = true, .biases = CL_BIAS_QKV, .experts = true, .shared_router = true},
    {.name = "qwen3moe",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT,
     .experts = true,
     .normalised = true,
     .left_out = {NEXT_TOKEN}},
    {.name = "gemma",
     .rope_halves = true,
     .ffn = CL_FFN_GEGLU,
     .embedding_root = true,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT},
    {.name = "gemma2",
     .rope_halves = true,
     .norm_place = CL_NORM_AROUND,
     .ffn = CL_FFN_GEGLU,
     .embedding_root = true,
     .windows = true,
     .default_window = 4096,
     .full_every = 2,
     .default_score_softcap = 50,
     .default_logit_softcap = 30,
     .wide_scale_layers = 46},
    {.name = "gemma3",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .norm_place = CL_NORM_AROUND,
     .ffn = CL_FFN_GEGLU,
     .embedding_root = true,
     .windows = true,
     .full_every = 6,
     .window_rope_base = 10000,
     .window_unscaled = true,
     .wide_scale_layers = 62,
     .left_out = {VISION, PROJECTOR}},
    {.name = "gemma3n",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .v_norm = true,
     .norm_place = CL_NORM_AROUND,
     .ffn = CL_FFN_GEGLU,
     .embedding_root = true,
     .altup = true,
     .windows = true,
     .full_every = 5,
     .default_logit_softcap = 30,
     .window_rope_base = 10000,
     .window_unscaled = true,
     .score_scale = 1,
     .left_out = {GEMMA_TOWERS}},
    {.name = "gemma4",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .v_norm = true,
     .values_may_be_keys = true,
     .norm_place = CL_NORM_AROUND,
     .ffn = CL_FFN_GEGLU,
     .embedding_root = true,
     .experts = true,
     .experts_beside = true,
     .normalised = true,
     .layer_scale = true,
     .windows = true,
     .full_every = 6,
     .window_rope_base = 10000,
     .window_unscaled = true,
     .score_scale = 1,
     .left_out = {GEMMA_TOWERS}},
    {.name = "phi3", .rope_halves = true, .fused_gate = true, .windows = true},
    {.name = "granite", MAYBE_BIASED, .logit_scale = CL_LOGIT_SCALE_DIVISOR, .plain_untrained = true},
    {.name = "granitemoe",
     MAYBE_BIASED,
     .logit_scale = CL_LOGIT_SCALE_DIVISOR,
     .plain_untrained = true,
     .experts = true,
     .normalised = true},
    {.name = "smollm3", MAYBE_BIASED, .plain_every = 4},
    {.name = "olmo2", /* and OLMo 3 */
     .rope_halves = true,
     .norm_place = CL_NORM_BEHIND,
     .qk_norm = CL_QK_NORM_ALL,
     .windows = true,
     .full_every = 4,
     .window_unscaled = true,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT},
    {.name = "olmoe", .rope_halves = true, .qk_norm = CL_QK_NORM_ALL, .experts = true},
    {.name = "exaone4",
     .rope_halves = true,
     .norm_place = CL_NORM_BEHIND,
     .qk_norm = CL_QK_NORM_HEAD,
     .windows = true,
     .full_every = 4,
     .plain_full = true,
     .left_out = {NEXT_TOKEN}},
    {.name = "glm4", .norm_place = CL_NORM_AROUND, .fused_gate = true, .maybe_biases = CL_BIAS_QKV, .left_out = {NEXT_TOKEN}},
    {.name = "glm4moe", /* GLM-4.5 */
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .maybe_qk_norm = true,
     .ffn_norm = "post_attention_norm.weight",
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_CHOICE,
     .experts = true,
     .scoring = CL_SCORING_SIGMOID,
     .normalised = true,
     .left_out = {NEXT_TOKEN}},
    {.name = "gpt-oss",
     .rope_halves = true,
     .ffn = CL_FFN_SWIGLU_CLAMPED,
     .ffn_norm = "post_attention_norm.weight",
     .sinks = true,
     .windows = true,
     .full_every = 2,
     .yarn_unrounded = true,
     .biases = CL_BIAS_QKV | CL_BIAS_OUTPUT | CL_BIAS_EXPERTS,
     .experts = true,
     .normalised = true},
    {.name = "seed_oss", .rope_halves = true, .ffn_norm = "post_attention_norm.weight", MAYBE_BIASED},
    {.name = "ernie4_5", MAYBE_BIASED},
    {.name = "ernie4_5-moe",
     .maybe_biases = CL_BIAS_MATRICES | CL_BIAS_CHOICE,
     .experts = true,
     .normalised = true,
     .left_out = {NEXT_TOKEN}},
    {.name = "command-r",
     .norm = CL_NORM_LAYER,
     .parallel = true,
     .qk_norm = CL_QK_NORM_OWN,
     .maybe_qk_norm = true,
     .logit_scale = CL_LOGIT_SCALE_FACTOR,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT},
    {.name = "cohere2", /* Command R7B, A */
     .norm = CL_NORM_LAYER,
     .parallel = true,
     .logit_scale = CL_LOGIT_SCALE_FACTOR,
     .windows = true,
     .full_every = 4,
     .plain_full = true,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT},
    {.name = "hunyuan-dense",
     .rope_halves = true,
     .qk_norm = CL_QK_NORM_HEAD,
     .qk_norm_rotated = true,
     .maybe_biases = CL_BIAS_QKV | CL_BIAS_OUTPUT},
    {.name = "starcoder2",
     .rope_halves = true,
     .norm = CL_NORM_LAYER,
     .ffn = CL_FFN_GELU,
     .windows = true,
     .biases = CL_BIAS_NORM,
     .maybe_biases = CL_BIAS_MATRICES},
};
enum { N_ARCHS = sizeof table / sizeof *table };

/* Architectures that are not supported, and what they need. */
static const struct {
    const char *names, *needs; /* names are separated by spaces */
} others[] = {
    {"deepseek2 deepseek2-ocr deepseek32 deepseek4 glm-dsa minicpm3 mistral4 plm", "multi-head latent attention"},
    {"qwen3next qwen35 qwen35moe kimi-linear", "recurrent layers (a gated delta rule)"},
    {"mamba mamba2 jamba falcon-h1 nemotron_h nemotron_h_moe granitehybrid plamo2", "recurrent layers (state spaces)"},
    {"lfm2 lfm2moe", "recurrent layers (short convolutions)"},
    {"rwkv6 rwkv6qwen2 rwkv7 arwkv7", "recurrent layers (RWKV)"},
    {"bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding t5encoder "
     "llama-embed",
     "attention in both directions, as an encoder does"},
    {"t5", "an encoder beside the decoder"},
    {"clip", "a vision tower, and has no model of text"},
    {"qwen2vl qwen3vl qwen3vlmoe cogvlm hunyuan_vl paddleocr chameleon", "a vision tower"},
    {"dream llada llada-moe rnd1", "diffusion in place of one token after another"},
    {"eagle3 dflash gemma4-assistant", "another model, whose tokens it drafts"},
    {"apertus arcee nemotron", "an activation of its own"},
    {"bitnet deci minicpm chatglm internlm2 exaone baichuan orion xverse stablelm plamo gptneox gpt2 gptj bloom mpt falcon "
     "starcoder refact phi2 codeshell openelm jais",
     "layers of a form of its own"},
    {"llama4 phimoe deepseek dots1 bailingmoe bailingmoe2 hunyuan-moe minimax-m2 minimax-m3 exaone-moe grok dbrx arctic afmoe "
     "mimo2 step35 smallthinker grovemoe hy_v3 cohere2moe",
     "a mixture of experts of a form of its own"},
};

cl_status cl_arch_find(cl_str name, const cl_arch **found, cl_error *error) {
    char names[800], shown[40];
    size_t used = 0;
    for (int i = 0; i < N_ARCHS; i++) {
        if (cl_str_is(name, table[i].name)) {
            *found = &table[i];
            return CL_OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", table[i].name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cl_str_is_one_of(name, others[i].names))
            return cl_fail(error, CL_ERR_UNSUPPORTED, "general.architecture is \"%s\", which needs %s; that is not supported",
                           cl_str_show(name, shown, sizeof shown), others[i].needs);
    return cl_fail(error, CL_ERR_UNSUPPORTED, "general.architecture is \"%s\"; supported: %s",
                   cl_str_show(name, shown, sizeof shown), names);
}

static bool begins(cl_str name, const char *part, size_t size) {
    return name.size >= size && memcmp(name.data, part, size) == 0;
}

const char *cl_arch_left_out(const cl_arch *arch, cl_str name) {
    for (int i = 0; i < CL_MAX_LEFT_OUT && arch->left_out[i].names; i++)
        for (const char *part = arch->left_out[i].names; *part; part += strspn(part, " ")) {
            const size_t size = strcspn(part, " ");
            if (begins(name, part, size)) return arch->left_out[i].what;
            part += size;
        }
    return NULL;
}
