/* A piece's bytes are the symbols that merge. */
#include "bpe.h"

#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "merge_rules.h"
#include "pretokenizer.h"

struct bpe {
    const vocab *vocab;
    pretokenizer *pre;
    merge_rules rules;
    int32_t byte_ids[256]; /* -1: not in the vocabulary */
};

static bool lookup(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t *order, int32_t *id) {
    const bpe *b = ctx;
    const merge_rule *rule = merge_rules_get(&b->rules, left->id, right->id);
    if (!rule) return false;
    *order = rule->rank;
    *id = rule->id;
    return true;
}

cl_status bpe_create(const model_file *file, const vocab *v, bpe **out, cl_error *error) {
    *out = NULL;
    bpe *b = calloc(1, sizeof *b);
    if (!b) return cl_fail(error, CL_ERR_NOMEM, "no memory for a tokenizer");
    b->vocab = v;
    for (int i = 0; i < 256; i++) b->byte_ids[i] = vocab_find(v, (const char[]){(char)i}, 1);
    str pre = {"default", 7};
    model_file_get_string(file, "tokenizer.ggml.pre", &pre);
    cl_status status = pretokenizer_create(pre, &b->pre, error);
    if (status == CL_OK) status = merge_rules_load(file, v, &b->rules, error);
    if (status != CL_OK) bpe_free(&b);
    *out = b;
    return status;
}

void bpe_free(bpe **b) {
    if (!*b) return;
    pretokenizer_free(&(*b)->pre);
    merge_rules_free(&(*b)->rules);
    free(*b);
    *b = NULL;
}

bool bpe_adds_bos(const bpe *b) { return pretokenizer_adds_bos(b->pre); }

bool bpe_normalizes(const bpe *b) { return pretokenizer_normalizes(b->pre); }

cl_status bpe_normalize(const bpe *b, str text, char **buf, str *out, cl_error *error) {
    return pretokenizer_normalize(b->pre, text, buf, out, error);
}

typedef struct encoding {
    const bpe *b;
    merge_space space;
    token_list *out;
} encoding;

static cl_status encode_piece(void *ctx, const char *piece, size_t size, cl_error *error) {
    encoding *e = ctx;
    if (pretokenizer_whole_words(e->b->pre)) {
        const int32_t id = vocab_find(e->b->vocab, piece, size);
        if (id >= 0) return token_list_add(e->out, id, error);
    }
    if (merge_reserve(&e->space, size) != 0) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        const int32_t id = e->b->byte_ids[(unsigned char)piece[i]];
        if (id >= 0) merge_add(&e->space, (uint32_t)i, 1, id);
    }
    if (e->space.n_symbols == 0) return CL_OK;
    merge_run(&e->space, lookup, e->b);
    cl_status status = CL_OK;
    for (int32_t i = 0; status == CL_OK && i >= 0; i = e->space.symbols[i].next)
        status = token_list_add(e->out, e->space.symbols[i].id, error);
    return status;
}

cl_status bpe_encode(const bpe *b, const char *text, size_t size, token_list *out, cl_error *error) {
    encoding e = {.b = b, .out = out};
    const cl_status status = pretokenizer_split(b->pre, text, size, encode_piece, &e, error);
    merge_free(&e.space);
    return status;
}
