/* Encodes by byte-level BPE: the bytes of a piece are the symbols that are merged. */
#include "bpe.h"

#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "pretokenizer.h"

struct cl_bpe {
    const cl_vocab *vocab;
    bool guesses;
    cl_pretokenizer *pre;
    cl_merge_rules rules;
    int32_t byte_ids[256]; /* -1: not in the vocabulary */
};

static bool lookup(const void *ctx, const cl_merge_symbol *left, const cl_merge_symbol *right, uint32_t *order, int32_t *id) {
    const cl_bpe *b = ctx;
    const cl_merge_rule *rule = cl_merge_rules_get(&b->rules, left->id, right->id);
    if (!rule) return false;
    *order = rule->rank;
    *id = rule->id;
    return true;
}

/*
 * Vocabularies that are recognised by the name of a token, for files that name no pre-tokenizer: those that were converted
 * before May 2024 do not. arch: only in files of this architecture; NULL: in all.
 */
static const struct {
    const char *token, *arch, *pre;
} recognised[] = {
    {"<|begin_of_text|>", NULL, "llama-bpe"}, /* Llama 3 */
    {"<|im_start|>", "qwen2", "qwen2"},       /* Qwen 1.5 */
};

/* Whether the vocabulary has a token, of whatever type. */
static bool has_token(const cl_vocab *v, const char *text) {
    return cl_str_map_get(&v->by_name, text, strlen(text)) >= 0 || cl_vocab_find(v, text, strlen(text)) >= 0;
}

/* The pre-tokenizer's name, as the file has it or as the vocabulary is recognised. */
static cl_str find_pre(cl_bpe *b, const cl_model_file *file) {
    cl_str arch = {"", 0}, name;
    if (cl_model_file_get_string(file, "tokenizer.ggml.pre", &name)) return name;
    (void)cl_model_file_get_string(file, "general.architecture", &arch);
    for (size_t i = 0; i < sizeof recognised / sizeof *recognised; i++) {
        const bool of_arch = !recognised[i].arch || cl_str_is(arch, recognised[i].arch);
        if (of_arch && has_token(b->vocab, recognised[i].token)) return cl_str_of(recognised[i].pre);
    }
    b->guesses = true;
    return cl_str_of("default");
}

/* Create the pre-tokenizer of a folder, whose steps the file lists, or the one that it names. */
static cl_status create_pre(cl_bpe *b, const cl_model_file *file, cl_error *error) {
    static const char STEPS[] = "tokenizer.pre_steps";
    cl_meta_type type;
    size_t n;
    const void *data;
    if (!cl_model_file_get_array(file, STEPS, &type, &n, &data) || type != CL_META_STRING)
        return cl_pretokenizer_create(find_pre(b, file), &b->pre, error);
    bool nfc = false, whole_words = false;
    cl_model_file_get_bool(file, "tokenizer.nfc", &nfc);
    cl_model_file_get_bool(file, "tokenizer.ignore_merges", &whole_words);
    cl_str *steps = malloc((n + 1) * sizeof *steps);
    if (!steps) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu steps", n);
    for (size_t i = 0; i < n; i++) steps[i] = cl_model_file_array_string(file, STEPS, i);
    const cl_status status = cl_pretokenizer_create_of_steps(steps, n, nfc, whole_words, &b->pre, error);
    free(steps);
    return status;
}

cl_status cl_bpe_create(const cl_model_file *file, const cl_vocab *v, cl_bpe **out, cl_error *error) {
    *out = NULL;
    cl_bpe *b = calloc(1, sizeof *b);
    if (!b) return cl_fail(error, CL_ERR_NOMEM, "no memory for a tokenizer");
    b->vocab = v;
    for (int i = 0; i < 256; i++) b->byte_ids[i] = cl_vocab_find(v, (const char[]){(char)i}, 1);
    cl_status status = create_pre(b, file, error);
    if (status == CL_OK) status = cl_merge_rules_load(file, v, &b->rules, error);
    if (status != CL_OK) cl_bpe_free(&b);
    *out = b;
    return status;
}

void cl_bpe_free(cl_bpe **b) {
    if (!*b) return;
    cl_pretokenizer_free(&(*b)->pre);
    cl_merge_rules_free(&(*b)->rules);
    free(*b);
    *b = NULL;
}

cl_str cl_bpe_pre(const cl_bpe *b) { return cl_pretokenizer_name(b->pre); }
bool cl_bpe_guesses(const cl_bpe *b) { return b->guesses; }
bool cl_bpe_adds_bos(const cl_bpe *b) { return cl_pretokenizer_adds_bos(b->pre); }

bool cl_bpe_normalizes(const cl_bpe *b) { return cl_pretokenizer_normalizes(b->pre); }

cl_status cl_bpe_normalize(const cl_bpe *b, cl_str text, char **buf, cl_str *out, cl_error *error) {
    return cl_pretokenizer_normalize(b->pre, text, buf, out, error);
}

typedef struct encoding {
    const cl_bpe *b;
    cl_merge_space space;
    cl_token_list *out;
} encoding;

static cl_status encode_piece(void *ctx, const char *piece, size_t size, cl_error *error) {
    encoding *e = ctx;
    if (cl_pretokenizer_whole_words(e->b->pre)) {
        const int32_t id = cl_vocab_find(e->b->vocab, piece, size);
        if (id >= 0) return cl_token_list_add(e->out, id, error);
    }
    if (cl_merge_reserve(&e->space, size) != 0) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        const int32_t id = e->b->byte_ids[(unsigned char)piece[i]];
        if (id >= 0) cl_merge_add(&e->space, (uint32_t)i, 1, id);
    }
    if (e->space.n_symbols == 0) return CL_OK;
    cl_status status = cl_merge_run(&e->space, lookup, e->b, error);
    for (int32_t i = 0; status == CL_OK && i >= 0; i = e->space.symbols[i].next)
        status = cl_token_list_add(e->out, e->space.symbols[i].id, error);
    return status;
}

cl_status cl_bpe_encode(const cl_bpe *b, const char *text, size_t size, cl_token_list *out, cl_error *error) {
    encoding e = {.b = b, .out = out};
    const cl_status status = cl_pretokenizer_split(b->pre, text, size, encode_piece, &e, error);
    cl_merge_free(&e.space);
    return status;
}
