/* The whole text is one word: the heap of merges keeps that n log n. */
#include "spm.h"

#include <stdlib.h>
#include <string.h>

#include "merge.h"
#include "utf8.h"

static const char SCORES[] = "tokenizer.ggml.scores";
static const char SPACE[] = "\xe2\x96\x81"; /* U+2581, which in SentencePiece is a space */
enum { SPACE_SIZE = sizeof SPACE - 1 };

struct spm {
    const vocab *vocab;
    uint32_t *orders; /* [n_vocab] merge order: highest score first */
    int32_t byte_ids[256];
    int32_t unknown; /* -1: none */
    bool add_space_prefix;
};

/* Descending floats as ascending integers. */
static uint32_t order_of(float score) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}

cl_status spm_create(const model_file *file, const vocab *v, spm **out, cl_error *error) {
    *out = NULL;
    meta_type type;
    size_t n;
    const void *scores;
    if (!model_file_get_array(file, SCORES, &type, &n, &scores) || type != META_FLOAT32 || n != (size_t)v->n)
        return cl_fail(error, CL_ERR_FORMAT, "%s: a SentencePiece tokenizer needs this array of %d float32", SCORES, v->n);
    spm *s = calloc(1, sizeof *s);
    uint32_t *orders = malloc(n * sizeof *orders);
    if (!s || !orders) {
        free(s);
        free(orders);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu scores", n);
    }
    for (size_t i = 0; i < n; i++) {
        float score;
        memcpy(&score, (const char *)scores + i * sizeof score, sizeof score);
        orders[i] = order_of(score);
    }
    s->vocab = v;
    s->orders = orders;
    for (int i = 0; i < 256; i++) s->byte_ids[i] = -1;
    s->unknown = -1;
    for (int32_t id = v->n - 1; id >= 0; id--) {
        if (v->types[id] == VOCAB_BYTE) s->byte_ids[(unsigned char)v->pieces[id].data[0]] = id;
        if (v->types[id] == VOCAB_UNKNOWN) s->unknown = id;
    }
    s->add_space_prefix = true;
    model_file_get_bool(file, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix);
    *out = s;
    return CL_OK;
}

void spm_free(spm **s) {
    if (!*s) return;
    free((*s)->orders);
    free(*s);
    *s = NULL;
}

typedef struct encoding {
    const spm *s;
    const char *text;
    merge_space space;
} encoding;

static bool lookup(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t *order, int32_t *id) {
    const encoding *e = ctx;
    const size_t size = (size_t)left->size + right->size;
    if (size > e->s->vocab->longest) return false;
    *id = vocab_find(e->s->vocab, e->text + left->start, size);
    if (*id < 0) return false;
    *order = e->s->orders[*id];
    return true;
}

/* Bytes of a symbol that is no token; a run of them without byte tokens is one unknown. */
static cl_status add_bytes(const encoding *e, const merge_symbol *symbol, bool *unknown, token_list *out, cl_error *error) {
    cl_status status = CL_OK;
    for (uint32_t i = 0; status == CL_OK && i < symbol->size; i++) {
        const int32_t id = e->s->byte_ids[(unsigned char)e->text[symbol->start + i]];
        if (id >= 0)
            status = token_list_add(out, id, error);
        else if (e->s->unknown >= 0 && !*unknown)
            status = token_list_add(out, e->s->unknown, error);
        *unknown = id < 0;
    }
    return status;
}

static cl_status encode(encoding *e, size_t size, token_list *out, cl_error *error) {
    if (merge_reserve(&e->space, size) != 0) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    for (size_t i = 0; i < size;) {
        const size_t n = utf8_char(e->text + i, size - i), bytes = n ? n : 1;
        merge_add(&e->space, (uint32_t)i, (uint32_t)bytes, n ? vocab_find(e->s->vocab, e->text + i, n) : -1);
        i += bytes;
    }
    merge_run(&e->space, lookup, e);
    cl_status status = CL_OK;
    bool unknown = false;
    for (int32_t i = 0; status == CL_OK && i >= 0; i = e->space.symbols[i].next) {
        const merge_symbol *symbol = &e->space.symbols[i];
        if (symbol->id < 0) {
            status = add_bytes(e, symbol, &unknown, out, error);
        } else {
            status = token_list_add(out, symbol->id, error);
            unknown = false;
        }
    }
    return status;
}

cl_status spm_encode(const spm *s, const char *text, size_t size, bool prefix, token_list *out, cl_error *error) {
    if (size >= INT32_MAX)
        return cl_fail(error, CL_ERR_LIMIT, "a text of %zu bytes is too long; the limit is %d", size, INT32_MAX - 1);
    char *spaced = malloc(size + 1);
    if (!spaced) return cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", size);
    size_t n = 0;
    if (prefix && s->add_space_prefix) spaced[n++] = ' ';
    for (size_t i = 0; i < size; n++) {
        const bool space = size - i >= SPACE_SIZE && memcmp(text + i, SPACE, SPACE_SIZE) == 0;
        spaced[n] = space ? ' ' : text[i];
        i += space ? SPACE_SIZE : 1;
    }
    encoding e = {.s = s, .text = spaced};
    const cl_status status = n > 0 ? encode(&e, n, out, error) : CL_OK;
    merge_free(&e.space);
    free(spaced);
    return status;
}
