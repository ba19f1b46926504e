/* Merges are found in a hash table from pairs of token ids to rank and result. */
#include "bpe.h"

#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "pretokenizer.h"

static const char MERGES[] = "tokenizer.ggml.merges";

typedef struct merge_rule {
    int32_t left, right; /* left < 0: empty slot */
    uint32_t rank;
    int32_t id;
} merge_rule;

struct bpe {
    const vocab *vocab;
    pretokenizer *pre;
    merge_rule *rules; /* open addressing, a power of two of them */
    size_t rule_mask;
    int32_t byte_ids[256]; /* -1: not in the vocabulary */
};

/* The pair's slot, or the empty one where it belongs. */
static merge_rule *find_rule(const bpe *b, int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t i = (h ^ h >> 32) & b->rule_mask;
    while (b->rules[i].left >= 0 && (b->rules[i].left != left || b->rules[i].right != right)) i = (i + 1) & b->rule_mask;
    return &b->rules[i];
}

static bool lookup(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t *order, int32_t *id) {
    const merge_rule *rule = find_rule(ctx, left->id, right->id);
    *order = rule->rank;
    *id = rule->id;
    return rule->left >= 0;
}

/* "left right" as in the file; buf has room for both sides' bytes. */
static cl_status add_rule(bpe *b, str text, size_t rank, char *buf, cl_error *error) {
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (!space)
        return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: '%.*s' is not two tokens with a space between", MERGES, rank,
                       (int)(text.size < 60 ? text.size : 60), text.data);
    const str l = {text.data, (size_t)(space - text.data)}, r = {space + 1, text.size - l.size - 1};
    const size_t left_size = vocab_from_byte_level(l, buf), right_size = vocab_from_byte_level(r, buf + left_size);
    const int32_t left = vocab_find(b->vocab, buf, left_size), right = vocab_find(b->vocab, buf + left_size, right_size),
                  id = vocab_find(b->vocab, buf, left_size + right_size);
    if (left < 0 || right < 0 || id < 0)
        return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: a part or the result of '%.*s' is not in the vocabulary", MERGES, rank,
                       (int)(text.size < 60 ? text.size : 60), text.data);
    merge_rule *rule = find_rule(b, left, right);
    if (rule->left < 0) *rule = (merge_rule){left, right, (uint32_t)rank, id};
    return CL_OK;
}

static cl_status load_rules(bpe *b, const model_file *file, cl_error *error) {
    meta_type type;
    size_t n, longest = 0;
    const void *data;
    if (!model_file_get_array(file, MERGES, &type, &n, &data) || type != META_STRING)
        return cl_fail(error, CL_ERR_FORMAT, "%s: a byte-level BPE tokenizer needs this array of strings", MERGES);
    size_t n_rules = 16;
    while (n_rules / 2 < n) n_rules *= 2;
    for (size_t i = 0; i < n; i++) {
        const size_t size = model_file_array_string(file, MERGES, i).size;
        if (size > longest) longest = size;
    }
    char *buf = malloc(longest + 1);
    b->rules = malloc(n_rules * sizeof *b->rules);
    b->rule_mask = n_rules - 1;
    cl_status status = CL_OK;
    if (!buf || !b->rules) status = cl_fail(error, CL_ERR_NOMEM, "no memory for %zu merges", n);
    for (size_t i = 0; status == CL_OK && i < n_rules; i++) b->rules[i].left = -1;
    for (size_t i = 0; status == CL_OK && i < n; i++)
        status = add_rule(b, model_file_array_string(file, MERGES, i), i, buf, error);
    free(buf);
    return status;
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
    if (status == CL_OK) status = load_rules(b, file, error);
    if (status != CL_OK) bpe_free(&b);
    *out = b;
    return status;
}

void bpe_free(bpe **b) {
    if (!*b) return;
    pretokenizer_free(&(*b)->pre);
    free((*b)->rules);
    free(*b);
    *b = NULL;
}

bool bpe_adds_bos(const bpe *b) { return pretokenizer_adds_bos(b->pre); }

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
