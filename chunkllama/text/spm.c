/* Encodes by SentencePiece-style BPE: a whole text is merged as one word, in O(n log n) with the heap of merges. */
#include "spm.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/deadline.h"
#include "chunkllama/common/str.h"
#include "merge.h"
#include "vocab.h"

static const char SCORES[] = "tokenizer.ggml.scores";

struct cl_spm {
    const cl_vocab *vocab;
    uint32_t *orders; /* [n_vocab] merge order by score, the highest first; owned. NULL: merges follow `rules` */
    cl_merge_rules rules;
    int32_t byte_ids[256];
    int32_t unknown; /* -1: none */
    bool add_space_prefix;
    bool adds_bos;
    bool fuse_unknown; /* consecutive unknown characters become one token, as in SentencePiece */
    cl_spm_prefix prefix;
};

/* An integer that ascends as the score descends. */
static uint32_t order_of(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}

static cl_status load_scores(cl_spm *s, const cl_model_file *file, cl_error *error) {
    cl_meta_type type;
    size_t n;
    const void *scores;
    if (!cl_model_file_get_array(file, SCORES, &type, &n, &scores) || type != CL_META_FLOAT32 || n != (size_t)s->vocab->n)
        return cl_fail(error, CL_ERR_FORMAT, "%s: a SentencePiece tokenizer needs this array of %d float32", SCORES,
                       s->vocab->n);
    s->orders = malloc(n * sizeof *s->orders);
    if (!s->orders) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu scores", n);
    for (size_t i = 0; i < n; i++) {
        float score;
        memcpy(&score, (const char *)scores + i * sizeof score, sizeof score);
        s->orders[i] = order_of(score);
    }
    return CL_OK;
}

cl_status cl_spm_create(const cl_model_file *file, const cl_vocab *v, bool merges, cl_spm **out, cl_error *error) {
    *out = NULL;
    cl_spm *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for a tokenizer");
    s->vocab = v;
    const bool scored = !merges && (cl_model_file_has(file, SCORES) || !cl_model_file_has(file, "tokenizer.merge_ids"));
    const cl_status status = scored ? load_scores(s, file, error) : cl_merge_rules_load(file, v, &s->rules, error);
    if (status != CL_OK) {
        cl_spm_free(&s);
        return status;
    }
    for (int i = 0; i < 256; i++) s->byte_ids[i] = -1;
    s->unknown = -1;
    for (int32_t id = v->n - 1; id >= 0; id--) {
        if (v->types[id] == CL_VOCAB_BYTE) s->byte_ids[(unsigned char)v->pieces[id].data[0]] = id;
        if (v->types[id] == CL_VOCAB_UNKNOWN) s->unknown = id;
    }
    s->fuse_unknown = true;
    cl_model_file_get_bool(file, "tokenizer.fuse_unknown", &s->fuse_unknown);
    s->adds_bos = s->add_space_prefix = !merges;
    cl_model_file_get_bool(file, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix);
    static const char *const rules[] = {
        [CL_SPM_PREFIX_FIRST] = "first", [CL_SPM_PREFIX_ALWAYS] = "always", [CL_SPM_PREFIX_PREPEND] = "prepend"};
    cl_str rule;
    if (cl_model_file_get_string(file, "tokenizer.space_prefix", &rule))
        for (int i = CL_SPM_PREFIX_FIRST; i <= CL_SPM_PREFIX_PREPEND; i++)
            if (cl_str_is(rule, rules[i])) s->prefix = (cl_spm_prefix)i;
    *out = s;
    return CL_OK;
}

cl_spm_prefix cl_spm_prefix_rule(const cl_spm *s) { return s->prefix; }
bool cl_spm_adds_bos(const cl_spm *s) { return s->adds_bos; }

void cl_spm_free(cl_spm **s) {
    if (!*s) return;
    free((*s)->orders);
    cl_merge_rules_free(&(*s)->rules);
    free(*s);
    *s = NULL;
}

typedef struct encoding {
    const cl_spm *s;
    const char *text;
    cl_merge_space space;
} encoding;

static bool lookup(const void *ctx, const cl_merge_symbol *left, const cl_merge_symbol *right, uint32_t *order, int32_t *id) {
    const encoding *e = ctx;
    if (!e->s->orders) {
        const cl_merge_rule *rule = cl_merge_rules_get(&e->s->rules, left->id, right->id);
        if (!rule) return false;
        *order = rule->rank;
        *id = rule->id;
        return true;
    }
    const size_t size = (size_t)left->size + right->size;
    if (size > e->s->vocab->longest) return false;
    *id = cl_vocab_find(e->s->vocab, e->text + left->start, size);
    if (*id < 0) return false;
    *order = e->s->orders[*id];
    return true;
}

/* Add the byte tokens of a symbol that is not a token. Bytes without one become one unknown token, fused with the one before.
 */
static cl_status add_bytes(const encoding *e, const cl_merge_symbol *symbol, bool *unknown, cl_token_list *out,
                           cl_error *error) {
    cl_status status = CL_OK;
    for (uint32_t i = 0; status == CL_OK && i < symbol->size; i++) {
        const int32_t id = e->s->byte_ids[(unsigned char)e->text[symbol->start + i]];
        if (id >= 0)
            status = cl_token_list_add(out, id, error);
        else if (e->s->unknown >= 0 && !*unknown)
            status = cl_token_list_add(out, e->s->unknown, error);
        *unknown = id < 0;
    }
    return status;
}

/* Whether a character is dropped, so that its neighbours may be merged: a tokenizer.json without an unknown token does that. */
static bool is_dropped(const cl_spm *s, const char *text, size_t size) {
    if (s->orders || s->unknown >= 0) return false;
    for (size_t i = 0; i < size; i++)
        if (s->byte_ids[(unsigned char)text[i]] < 0) return true;
    return false;
}

static cl_status encode(encoding *e, size_t size, cl_token_list *out, cl_error *error) {
    if (cl_merge_reserve(&e->space, size) != 0) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    cl_status status = CL_OK;
    for (size_t i = 0, turn = 0; i < size && (status = cl_deadline_look(turn, error)) == CL_OK; turn++) {
        const size_t n = cl_utf8_char(e->text + i, size - i), bytes = n ? n : 1;
        const int32_t id = n ? cl_vocab_find(e->s->vocab, e->text + i, n) : -1;
        if (id >= 0 || !is_dropped(e->s, e->text + i, bytes)) cl_merge_add(&e->space, (uint32_t)i, (uint32_t)bytes, id);
        i += bytes;
    }
    if (status == CL_OK && e->space.n_symbols > 0) status = cl_merge_run(&e->space, lookup, e, error);
    bool unknown = false;
    for (int32_t i = e->space.n_symbols > 0 ? 0 : -1; status == CL_OK && i >= 0; i = e->space.symbols[i].next) {
        const cl_merge_symbol *symbol = &e->space.symbols[i];
        if (symbol->id < 0) {
            unknown = unknown && e->s->fuse_unknown;
            status = add_bytes(e, symbol, &unknown, out, error);
        } else {
            status = cl_token_list_add(out, symbol->id, error);
            unknown = false;
        }
    }
    return status;
}

cl_status cl_spm_normalize(const cl_spm *s, const char *text, size_t size, bool prefix, char **buf, cl_str *out,
                           cl_error *error) {
    *buf = NULL;
    if (size >= INT32_MAX)
        return cl_fail(error, CL_ERR_LIMIT, "a text of %zu bytes is too long; the limit is %d", size, INT32_MAX - 1);
    char *spaced = *buf = malloc(size + 1);
    if (!spaced) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    size_t n = 0;
    const bool begins = size > 0 && (text[0] == ' ' || cl_metaspace_size(text, size) > 0);
    const bool unless_space = s->prefix == CL_SPM_PREFIX_FIRST || s->prefix == CL_SPM_PREFIX_ALWAYS;
    if (prefix && s->add_space_prefix && !(unless_space && begins)) spaced[n++] = ' ';
    n += cl_metaspace_replace(text, size, spaced + n);
    *out = (cl_str){spaced, n};
    return CL_OK;
}

cl_status cl_spm_encode(const cl_spm *s, const char *text, size_t size, bool prefix, cl_token_list *out, cl_error *error) {
    char *buf;
    cl_str spaced;
    cl_status status = cl_spm_normalize(s, text, size, prefix, &buf, &spaced, error);
    if (status != CL_OK) return status;
    encoding e = {.s = s, .text = spaced.data};
    if (spaced.size > 0) status = encode(&e, spaced.size, out, error);
    cl_merge_free(&e.space);
    free(buf);
    return status;
}
