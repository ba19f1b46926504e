/* Texts are translated once, at load, so that encoding and decoding work on plain bytes. */
#define _GNU_SOURCE /* qsort_r */
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens";
static const char TYPES[] = "tokenizer.ggml.token_type";
static const char SPACE[] = "\xe2\x96\x81"; /* U+2581 */
enum { SPACE_SIZE = sizeof SPACE - 1 };

/*
 * The byte of a character of the byte-level alphabet, or -1. Bytes that Latin-1 prints stand for themselves; the others, in
 * ascending order, are U+0100 and on.
 */
static int byte_of(unsigned c) {
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad)) return (int)c;
    if (c < 0x100) return -1;
    c -= 0x100;
    if (c < 0x21) return (int)c;                 /* 00..20 */
    if (c < 0x43) return (int)(c - 0x21 + 0x7f); /* 7f..a0 */
    return c == 0x43 ? 0xad : -1;
}

size_t vocab_from_byte_level(str text, char *buf) {
    const unsigned char *s = (const unsigned char *)text.data;
    size_t n = 0;
    for (size_t i = 0; i < text.size; n++) {
        const bool two = s[i] >= 0xc2 && s[i] <= 0xdf && i + 1 < text.size && (s[i + 1] & 0xc0) == 0x80;
        const unsigned c = two ? (s[i] & 0x1fu) << 6 | (s[i + 1] & 0x3fu) : s[i];
        const int byte = two || c < 0x80 ? byte_of(c) : -1;
        if (byte < 0) {
            memcpy(buf, text.data, text.size);
            return text.size;
        }
        buf[n] = (char)byte;
        i += two ? 2 : 1;
    }
    return n;
}

static size_t from_spaced(str text, char *buf) {
    size_t n = 0;
    for (size_t i = 0; i < text.size; n++) {
        const bool space = text.size - i >= SPACE_SIZE && memcmp(text.data + i, SPACE, SPACE_SIZE) == 0;
        buf[n] = space ? ' ' : text.data[i];
        i += space ? SPACE_SIZE : 1;
    }
    return n;
}

static int hex_digit(char c) {
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* "<0x0A>" to its byte, or -1. */
static int byte_token(str text) {
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    const int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static cl_status load_piece(vocab *v, int32_t id, str text, bool byte_level, char *buf, cl_error *error) {
    str *piece = &v->pieces[id];
    piece->data = buf;
    switch (v->types[id]) {
    case VOCAB_BYTE: {
        const int byte = byte_token(text);
        if (byte < 0) return cl_fail(error, CL_ERR_FORMAT, "%s[%d]: a byte token must read <0x00> to <0xFF>", TOKENS, id);
        buf[0] = (char)byte;
        piece->size = 1;
        break;
    }
    case VOCAB_NORMAL:
    case VOCAB_UNUSED: piece->size = byte_level ? vocab_from_byte_level(text, buf) : from_spaced(text, buf); break;
    case VOCAB_USER:
        if (!byte_level) {
            piece->size = from_spaced(text, buf);
            break;
        } /* fall through */
    default: /* special and added tokens are written as they are */ memcpy(buf, text.data, text.size); piece->size = text.size;
    }
    return CL_OK;
}

static cl_status load_types(vocab *v, const model_file *file, cl_error *error) {
    meta_type type;
    size_t n;
    const void *data;
    memset(v->types, VOCAB_NORMAL, (size_t)v->n);
    if (!model_file_get_array(file, TYPES, &type, &n, &data)) return CL_OK;
    if ((type != META_I32 && type != META_U32) || n != (size_t)v->n)
        return cl_fail(error, CL_ERR_FORMAT, "%s: %zu entries; an int32 for each of the %d tokens is needed", TYPES, n, v->n);
    for (size_t i = 0; i < n; i++) {
        int32_t t;
        memcpy(&t, (const char *)data + i * sizeof t, sizeof t);
        if (t < VOCAB_NORMAL || t > VOCAB_BYTE)
            return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: %d; 1 to 6 are known", TYPES, i, t);
        v->types[i] = (unsigned char)t;
    }
    return CL_OK;
}

static bool is_added(const vocab *v, int32_t id) {
    return (vocab_is_special(v, id) || v->types[id] == VOCAB_USER) && v->pieces[id].size > 0;
}

/* By first byte, then length downwards, then id. */
static int compare_added(const void *a, const void *b, void *ctx) {
    const vocab *v = ctx;
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const str s = v->pieces[i], t = v->pieces[j];
    if (s.data[0] != t.data[0]) return (unsigned char)s.data[0] < (unsigned char)t.data[0] ? -1 : 1;
    if (s.size != t.size) return s.size > t.size ? -1 : 1;
    return i < j ? -1 : 1;
}

static void list_added(vocab *v) {
    int32_t n = 0;
    for (int32_t id = 0; id < v->n; id++)
        if (is_added(v, id)) v->added[n++] = id;
    qsort_r(v->added, (size_t)n, sizeof *v->added, compare_added, v);
    for (int32_t i = 0, byte = 0; byte <= 256; byte++) {
        while (i < n && (unsigned char)v->pieces[v->added[i]].data[0] < byte) i++;
        v->added_at[byte] = i;
    }
}

/* Where two tokens have the same bytes, the lower id is found. */
static void index_tokens(vocab *v, bool byte_level) {
    for (int32_t id = 0; id < v->n; id++) {
        const str piece = v->pieces[id];
        const int type = v->types[id];
        if (piece.size > v->longest) v->longest = piece.size;
        /* A trained merge may also have been added; SentencePiece never merges into one. */
        const bool word = type == VOCAB_NORMAL || (byte_level && (type == VOCAB_UNUSED || type == VOCAB_USER));
        if (word && piece.size > 0) str_map_add(&v->words, piece.data, piece.size, id);
        if (is_added(v, id)) str_map_add(&v->names, piece.data, piece.size, id);
    }
    list_added(v);
}

cl_status vocab_load(vocab *v, const model_file *file, bool byte_level, cl_error *error) {
    meta_type type;
    size_t n, bytes = 0;
    const void *data;
    if (!model_file_get_array(file, TOKENS, &type, &n, &data) || type != META_STRING || n == 0)
        return cl_fail(error, CL_ERR_FORMAT, "%s: the array of the tokens' texts is missing or empty", TOKENS);
    v->n = (int32_t)n; /* a file holds no longer arrays */
    for (size_t i = 0; i < n; i++) bytes += model_file_array_string(file, TOKENS, i).size;
    v->types = malloc(n);
    v->pieces = calloc(n, sizeof *v->pieces);
    v->bytes = malloc(bytes + 1);
    v->added = malloc(n * sizeof *v->added);
    if (!v->types || !v->pieces || !v->bytes || !v->added || str_map_init(&v->words, n) != 0 || str_map_init(&v->names, n) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a vocabulary of %zu tokens", n);
    cl_status status = load_types(v, file, error);
    char *buf = v->bytes;
    for (int32_t id = 0; status == CL_OK && id < v->n; id++) {
        status = load_piece(v, id, model_file_array_string(file, TOKENS, (size_t)id), byte_level, buf, error);
        buf += v->pieces[id].size;
    }
    v->spaced = !byte_level;
    if (status == CL_OK) index_tokens(v, byte_level);
    return status;
}

void vocab_free(vocab *v) {
    free(v->types);
    free(v->pieces);
    free(v->bytes);
    free(v->added);
    str_map_free(&v->words);
    str_map_free(&v->names);
}

int32_t vocab_find(const vocab *v, const char *data, size_t size) { return str_map_get(&v->words, data, size); }

static size_t space_size(const char *text, size_t size) {
    return size >= SPACE_SIZE && memcmp(text, SPACE, SPACE_SIZE) == 0 ? SPACE_SIZE : 0;
}

/* Bytes of text that the token's piece stands for at its start, or 0. */
static size_t piece_at(const vocab *v, int32_t id, const char *text, size_t size) {
    const str piece = v->pieces[id];
    if (!v->spaced || vocab_is_special(v, id))
        return piece.size <= size && memcmp(piece.data, text, piece.size) == 0 ? piece.size : 0;
    size_t at = 0;
    for (size_t i = 0; i < piece.size; i++) {
        const size_t space = piece.data[i] == ' ' ? space_size(text + at, size - at) : 0;
        if (space == 0 && (at == size || text[at] != piece.data[i])) return 0;
        at += space ? space : 1;
    }
    return at;
}

int32_t vocab_added_at(const vocab *v, const char *text, size_t size, size_t special_size, size_t *taken) {
    const unsigned char first = v->spaced && space_size(text, size) ? ' ' : (unsigned char)text[0];
    for (int32_t i = v->added_at[first]; i < v->added_at[first + 1]; i++) {
        const int32_t id = v->added[i];
        *taken = piece_at(v, id, text, vocab_is_special(v, id) ? special_size : size);
        if (*taken > 0) return id;
    }
    return -1;
}
