/* Names of tensors: Hugging Face's and GGUF's. */
#include <stdio.h>
#include <string.h>

#include "hf_parts.h"

typedef struct part {
    const char *hf, *gguf;
} part;

static const part whole[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

/* Behind "model.layers.N." and "blk.N.". */
static const part layer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},      {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"}, {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},          {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"}, {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},       {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

/* The norm between attention and feed-forward part is one of two that are called alike. */
static const part two_norms[] = {{"post_attention_layernorm.weight", "ffn_norm.weight"}};
static const part four_norms[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};

#define FIND(parts, name, from_gguf) find(parts, sizeof(parts) / sizeof *(parts), name, from_gguf)

static const char *find(const part *parts, size_t n, const char *name, bool from_gguf) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, from_gguf ? parts[i].gguf : parts[i].hf) == 0) return from_gguf ? parts[i].hf : parts[i].gguf;
    return NULL;
}

/* The other format's name in buf; NULL: it has none. */
static const char *translate(const char *name, bool from_gguf, bool four, char buf[CL_HF_NAME_SIZE]) {
    const char *from = from_gguf ? "blk." : "model.layers.", *to = from_gguf ? "model.layers." : "blk.";
    const char *other = FIND(whole, name, from_gguf);
    if (other) return other;
    const size_t n = strlen(from);
    if (strncmp(name, from, n) != 0) return NULL;
    const size_t digits = strspn(name + n, "0123456789");
    if (digits < 1 || digits > 4 || name[n + digits] != '.') return NULL;
    const char *rest = name + n + digits + 1;
    other = FIND(layer, rest, from_gguf);
    if (!other) other = four ? FIND(four_norms, rest, from_gguf) : FIND(two_norms, rest, from_gguf);
    if (!other) return NULL;
    (void)snprintf(buf, CL_HF_NAME_SIZE, "%s%.*s.%s", to, (int)digits, name + n, other);
    return buf;
}

const char *cl_hf_tensor_name(bool four, const char *hf, char buf[CL_HF_NAME_SIZE]) { return translate(hf, false, four, buf); }

const char *cl_hf_tensor_source(bool four, const char *name) {
    static _Thread_local char buf[CL_HF_NAME_SIZE];
    return translate(name, true, four, buf);
}

bool cl_hf_tensor_ignored(const char *name) {
    static const char ending[] = ".rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0;
}
