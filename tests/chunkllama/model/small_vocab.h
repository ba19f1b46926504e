/* Files with small vocabularies: every byte, some words and some special tokens. */
#ifndef TESTS_CHUNKLLAMA_MODEL_SMALL_VOCAB_H
#define TESTS_CHUNKLLAMA_MODEL_SMALL_VOCAB_H

#include "gguf_build.h"

#include "chunkllama/text/tokenizer.h"

enum { MAX_TOKENS = 512 };

typedef struct small_vocab {
    const char *model, *pre, *chat_template, *tool_template; /* NULL: the key is absent */
    int bos, eos, add_bos;                                   /* -1: the key is absent */
    bool add_eos;
    int fim_prefix; /* 0: the key is absent */
    int n;
    char texts[MAX_TOKENS][64];
    float scores[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    int n_merges;
    const char *merges[MAX_TOKENS];
} small_vocab;

static inline int32_t add_piece(small_vocab *v, const char *text, int32_t type, float score) {
    strncpy(v->texts[v->n], text, sizeof v->texts[0] - 1);
    v->types[v->n] = type;
    v->scores[v->n] = score;
    return v->n++;
}

/* Ids 0..255 are the bytes, in the alphabet of byte-level BPE. */
static inline small_vocab byte_level_vocab(const char *pre) {
    small_vocab v = {.model = "gpt2", .pre = pre, .bos = -1, .eos = -1, .add_bos = -1};
    for (int byte = 0, other = 0x100; byte < 256; byte++) {
        const int shown = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        const int c = shown ? byte : other++;
        const char text[3] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3f)), 0};
        add_piece(&v, text, 1, 0);
    }
    return v;
}

/* Ids 0..2 are <unk> <s> </s>, 3..258 the bytes. */
static inline small_vocab spm_vocab(void) {
    small_vocab v = {.model = "llama", .bos = 1, .eos = 2, .add_bos = -1};
    add_piece(&v, "<unk>", 2, 0), add_piece(&v, "<s>", 3, 0), add_piece(&v, "</s>", 3, 0);
    for (int byte = 0; byte < 256; byte++) {
        static const char digits[] = "0123456789ABCDEF";
        const char text[] = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>', 0};
        add_piece(&v, text, 6, 0);
    }
    return v;
}

/* Write the keys of a vocabulary; returns their number. */
static inline uint64_t put_vocab(gguf_bytes *b, const small_vocab *v) {
    uint64_t n_keys = 0;
    if (v->model) put_key_string(b, "tokenizer.ggml.model", v->model), n_keys++;
    if (v->pre) put_key_string(b, "tokenizer.ggml.pre", v->pre), n_keys++;
    if (v->chat_template) put_key_string(b, "tokenizer.chat_template", v->chat_template), n_keys++;
    if (v->tool_template) put_key_string(b, "tokenizer.chat_template.tool_use", v->tool_template), n_keys++;
    if (v->bos >= 0) put_key_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos), n_keys++;
    if (v->eos >= 0) put_key_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos), n_keys++;
    if (v->add_bos >= 0) put_key_bool(b, "tokenizer.ggml.add_bos_token", (unsigned char)v->add_bos), n_keys++;
    if (v->add_eos) put_key_bool(b, "tokenizer.ggml.add_eos_token", 1), n_keys++;
    if (v->fim_prefix > 0) put_key_u32(b, "tokenizer.ggml.fim_pre_token_id", (uint32_t)v->fim_prefix), n_keys++;
    put_array(b, "tokenizer.ggml.tokens", CL_META_STRING, (uint64_t)v->n), n_keys++;
    for (int i = 0; i < v->n; i++) put_string(b, v->texts[i]);
    put_array(b, "tokenizer.ggml.token_type", CL_META_I32, (uint64_t)v->n), n_keys++;
    put(b, v->types, (size_t)v->n * sizeof *v->types);
    put_array(b, "tokenizer.ggml.scores", CL_META_FLOAT32, (uint64_t)v->n), n_keys++;
    put(b, v->scores, (size_t)v->n * sizeof *v->scores);
    put_array(b, "tokenizer.ggml.merges", CL_META_STRING, (uint64_t)v->n_merges), n_keys++;
    for (int i = 0; i < v->n_merges; i++) put_string(b, v->merges[i]);
    return n_keys;
}

/* The file's bytes live until the caller frees *bytes. */
static inline cl_model_file *open_vocab(const small_vocab *v, gguf_bytes *bytes) {
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 0);
    const uint64_t n_keys = put_vocab(&b, v);
    memcpy(b.data + 16, &n_keys, sizeof n_keys);
    cl_model_file *file;
    if (cl_gguf_open_memory(b.data, b.size, &file, NULL) != CL_OK) abort();
    *bytes = b;
    return file;
}

#endif
