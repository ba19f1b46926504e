/* Loads a vocabulary. The texts of tokens are translated to plain bytes once, so that encoding and decoding need not do it. */
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens";
static const char TYPES[] = "tokenizer.ggml.token_type";
static const char NORMALIZED[] = "tokenizer.normalized_tokens";

/*
 * The byte of a character of the byte-level alphabet, or -1. Bytes that are printable in Latin-1 stand for themselves; the
 * others, in ascending order, are U+0100, U+0101 and so on.
 */
static int byte_of(unsigned c) {
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad)) return (int)c;
    if (c < 0x100) return -1;
    c -= 0x100;
    if (c < 0x21) return (int)c;                 /* 00..20 */
    if (c < 0x43) return (int)(c - 0x21 + 0x7f); /* 7f..a0 */
    return c == 0x43 ? 0xad : -1;
}

bool cl_vocab_from_byte_level(cl_str text, char *buf, size_t *size) {
    const unsigned char *s = (const unsigned char *)text.data;
    size_t n = 0;
    for (size_t i = 0; i < text.size; n++) {
        const bool two = s[i] >= 0xc2 && s[i] <= 0xdf && i + 1 < text.size && (s[i + 1] & 0xc0) == 0x80;
        const unsigned c = two ? (s[i] & 0x1fu) << 6 | (s[i + 1] & 0x3fu) : s[i];
        const int byte = two || c < 0x80 ? byte_of(c) : -1;
        if (byte < 0) {
            memcpy(buf, text.data, text.size);
            *size = text.size;
            return false;
        }
        buf[n] = (char)byte;
        i += two ? 2 : 1;
    }
    *size = n;
    return true;
}

static cl_status load_piece(cl_vocab *v, int32_t id, cl_str text, bool byte_level, char *buf, cl_error *error) {
    cl_str *piece = &v->pieces[id];
    piece->data = buf;
    switch (v->types[id]) {
    case CL_VOCAB_BYTE: {
        const int byte = cl_vocab_byte_token(text);
        if (byte < 0) return cl_fail(error, CL_ERR_FORMAT, "%s[%d]: a byte token must read <0x00> to <0xFF>", TOKENS, id);
        buf[0] = (char)byte;
        piece->size = 1;
        break;
    }
    case CL_VOCAB_NORMAL:
    case CL_VOCAB_UNUSED:
        if (byte_level)
            (void)cl_vocab_from_byte_level(text, buf, &piece->size);
        else
            piece->size = cl_metaspace_replace(text.data, text.size, buf);
        break;
    case CL_VOCAB_USER:
        if (!byte_level) {
            piece->size = cl_metaspace_replace(text.data, text.size, buf);
            break;
        } /* fall through */
    default: /* special and added tokens are written as they are */ memcpy(buf, text.data, text.size); piece->size = text.size;
    }
    return CL_OK;
}

static cl_status load_types(cl_vocab *v, const cl_model_file *file, cl_error *error) {
    cl_meta_type type;
    size_t n;
    const void *data;
    memset(v->types, CL_VOCAB_NORMAL, (size_t)v->n);
    if (!cl_model_file_get_array(file, TYPES, &type, &n, &data)) return CL_OK;
    if ((type != CL_META_I32 && type != CL_META_U32) || n != (size_t)v->n)
        return cl_fail(error, CL_ERR_FORMAT, "%s: %zu entries; an int32 for each of the %d tokens is needed", TYPES, n, v->n);
    for (size_t i = 0; i < n; i++) {
        int32_t t;
        memcpy(&t, (const char *)data + i * sizeof t, sizeof t);
        if (t < CL_VOCAB_NORMAL || t > CL_VOCAB_BYTE)
            return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: %d; 1 to 6 are known", TYPES, i, t);
        v->types[i] = (unsigned char)t;
    }
    return CL_OK;
}

static void load_normalized(cl_vocab *v, const cl_model_file *file) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (cl_model_file_get_array(file, NORMALIZED, &type, &n, &data) && type == CL_META_BOOL && n == (size_t)v->n)
        v->normalized = data;
}

static bool is_added(const cl_vocab *v, int32_t id) {
    return (cl_vocab_is_special(v, id) || v->types[id] == CL_VOCAB_USER) && v->pieces[id].size > 0;
}

static cl_status list_names(cl_vocab *v, bool special, cl_added_tokens *list, cl_error *error) {
    cl_added_token *all = malloc(((size_t)v->n + 1) * sizeof *all);
    if (!all) return cl_fail(error, CL_ERR_NOMEM, "no memory for a vocabulary of %d tokens", v->n);
    size_t n = 0;
    for (int32_t id = 0; id < v->n; id++)
        if (is_added(v, id) && !cl_vocab_is_normalized(v, id) && cl_vocab_is_special(v, id) == special)
            all[n++] = (cl_added_token){v->pieces[id], id};
    cl_added_tokens_init(list, all, n);
    for (int byte = 0; byte < 256; byte++) v->begins_name[byte] |= cl_added_tokens_start_with(list, (unsigned char)byte);
    return CL_OK;
}

/* Index a token by the bytes that merges yield, which are written to buf. Returns the end of what was written. */
static char *add_word(cl_vocab *v, const cl_model_file *file, int32_t id, char *buf) {
    const cl_str text = cl_model_file_array_string(file, TOKENS, (size_t)id);
    size_t size = 0;
    const bool yielded = v->metaspace ? !memchr(text.data, ' ', text.size) : cl_vocab_from_byte_level(text, buf, &size);
    if (v->metaspace) size = cl_metaspace_replace(text.data, text.size, buf);
    if (!yielded || size == 0) return buf;
    cl_str_map_add(&v->words, buf, size, id);
    return buf + size;
}

/*
 * Index the tokens that merges can yield. Of two with the same bytes, one of the trained vocabulary is found, and of these the
 * lower id. With byte-level BPE, a token that merges yield may also have been added; SentencePiece never merges into an added
 * one.
 */
static void index_words(cl_vocab *v, const cl_model_file *file, char *buf) {
    for (int32_t id = 0; id < v->n; id++) {
        if (v->types[id] != CL_VOCAB_NORMAL) continue;
        buf = add_word(v, file, id, buf);
        v->n_trained = id + 1;
    }
    for (int32_t id = 0; id < v->n && !v->metaspace; id++)
        if (v->types[id] == CL_VOCAB_UNUSED || v->types[id] == CL_VOCAB_USER) buf = add_word(v, file, id, buf);
}

/* Index special and added tokens by their names; of two with the same name, the lower id is found. */
static cl_status index_names(cl_vocab *v, cl_error *error) {
    for (int32_t id = 0; id < v->n; id++) {
        const cl_str piece = v->pieces[id];
        if (piece.size > v->longest) v->longest = piece.size;
        if (is_added(v, id) || cl_vocab_is_normalized(v, id)) cl_str_map_add(&v->by_name, piece.data, piece.size, id);
    }
    cl_status status = list_names(v, true, &v->special, error);
    if (status == CL_OK) status = list_names(v, false, &v->user, error);
    if (v->metaspace) v->begins_name[(unsigned char)CL_METASPACE[0]] |= v->begins_name[' '];
    return status;
}

cl_status cl_vocab_load(cl_vocab *v, const cl_model_file *file, bool byte_level, cl_error *error) {
    cl_meta_type type;
    size_t n, bytes = 0;
    const void *data;
    if (!cl_model_file_get_array(file, TOKENS, &type, &n, &data) || type != CL_META_STRING || n == 0)
        return cl_fail(error, CL_ERR_FORMAT, "%s: the array of the tokens' texts is missing or empty", TOKENS);
    v->n = (int32_t)n; /* files with longer arrays are refused */
    for (size_t i = 0; i < n; i++) bytes += cl_model_file_array_string(file, TOKENS, i).size;
    v->types = malloc(n);
    v->pieces = calloc(n, sizeof *v->pieces);
    v->bytes = malloc(2 * bytes + 1);
    if (!v->types || !v->pieces || !v->bytes || cl_str_map_init(&v->words, n) != 0 || cl_str_map_init(&v->by_name, n) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a vocabulary of %zu tokens", n);
    cl_status status = load_types(v, file, error);
    char *buf = v->bytes;
    for (int32_t id = 0; status == CL_OK && id < v->n; id++) {
        status = load_piece(v, id, cl_model_file_array_string(file, TOKENS, (size_t)id), byte_level, buf, error);
        buf += v->pieces[id].size;
    }
    v->metaspace = !byte_level;
    load_normalized(v, file);
    if (status != CL_OK) return status;
    index_words(v, file, buf);
    return index_names(v, error);
}

void cl_vocab_free(cl_vocab *v) {
    free(v->types);
    free(v->pieces);
    free(v->bytes);
    cl_added_tokens_free(&v->special);
    cl_added_tokens_free(&v->user);
    cl_str_map_free(&v->words);
    cl_str_map_free(&v->by_name);
}

int32_t cl_vocab_find(const cl_vocab *v, const char *data, size_t size) { return cl_str_map_get(&v->words, data, size); }

/* Longer texts come first; of equal ones, the lower id. */
static bool is_before(const cl_added_token *a, const cl_added_token *b) {
    return a->text.size != b->text.size ? a->text.size > b->text.size : a->id < b->id;
}

int32_t cl_vocab_find_added(const cl_vocab *v, const char *text, size_t size, size_t special_size, size_t *matched) {
    if (!v->begins_name[(unsigned char)text[0]]) return -1; /* true of nearly all positions */
    size_t special_matched = 0;
    const cl_added_token *user = cl_added_tokens_find(&v->user, v->metaspace, text, size, matched);
    const cl_added_token *special = cl_added_tokens_find(&v->special, false, text, special_size, &special_matched);
    if (!special || (user && is_before(user, special))) return user ? user->id : -1;
    *matched = special_matched;
    return special->id;
}
