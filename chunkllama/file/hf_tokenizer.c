/* Translates tokenizer.json into GGUF's metadata keys: vocabulary, added tokens and merges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/vocab_type.h"
#include "hf.h"
#include "model_file_data.h"

enum { SHOWN = 60 };
#define SHOW(s) cl_str_show(s, (char[SHOWN]){0}, SHOWN)

typedef struct reader {
    cl_json_doc doc; /* tokenizer.json */
    const json_t *model, *vocab;
    const cl_hf_config *config;
    cl_model_file *file;
    cl_str *texts;             /* [n_vocab] */
    int32_t *types;            /* [n_vocab]; 0: not seen yet */
    unsigned char *normalized; /* [n_vocab] as in vocab.h; NULL: no token is searched for in normalised text */
    bool byte_level, metaspace;
} reader;

/* ---- The vocabulary ---- */

static void add_words(reader *r) {
    const cl_str unknown = cl_json_doc_string(&r->doc, r->model, "model.", "unk_token");
    const bool bytes = cl_json_doc_bool(&r->doc, r->model, "model.", "byte_fallback", false);
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)r->vocab, text, value) {
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= r->config->n_vocab) {
            cl_json_doc_fail(&r->doc, CL_ERR_FORMAT, "model.vocab: the id of '%s' must be below vocab_size in config.json, %d",
                             SHOW(cl_str_of(text)), r->config->n_vocab);
            return;
        }
        if (r->types[id]) {
            cl_json_doc_fail(&r->doc, CL_ERR_FORMAT, "model.vocab: '%s' has id %lld, which '%s' has already",
                             SHOW(cl_str_of(text)), (long long)id, SHOW(r->texts[id]));
            return;
        }
        const cl_str s = cl_str_of(text);
        r->texts[id] = cl_meta_copy(r->file, s);
        r->types[id] = unknown.size == s.size && memcmp(unknown.data, text, s.size) == 0 ? CL_VOCAB_UNKNOWN
                       : bytes && cl_vocab_byte_token(s) >= 0                            ? CL_VOCAB_BYTE
                                                                                         : CL_VOCAB_NORMAL;
    }
}

static void mark_normalized(reader *r, int32_t id) {
    if (!r->normalized)
        r->normalized = cl_meta_put_array(r->file, "tokenizer.normalized_tokens", CL_META_BOOL, (size_t)r->config->n_vocab);
    if (r->normalized) r->normalized[id] = 1;
}

/*
 * The type of an added token. Text is searched for most added tokens before its spaces are replaced, so those with U+2581 are
 * found by merging only. Normalised ones are found after that; with SentencePiece, those in model.vocab may be merged too.
 */
static cl_vocab_type added_type(const reader *r, cl_str text, bool special, bool normalized, bool trained) {
    if (special) return CL_VOCAB_CONTROL;
    if (r->byte_level) return CL_VOCAB_USER;
    const bool merged = normalized ? trained : cl_str_contains(text, CL_METASPACE);
    return merged ? CL_VOCAB_NORMAL : CL_VOCAB_USER;
}

static void add_token(reader *r, size_t i, const json_t *token) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    char where[40];
    (void)snprintf(where, sizeof where, "added_tokens[%zu].", i);
    const json_t *number = cl_json_doc_field(&r->doc, token, where, "id", CL_JSON_KIND_INT, true);
    const json_t *content = cl_json_doc_field(&r->doc, token, where, "content", CL_JSON_KIND_STRING, true);
    const bool special = cl_json_doc_bool(&r->doc, token, where, "special", false);
    const bool normalized = cl_json_doc_bool(&r->doc, token, where, "normalized", false) && !special && !r->metaspace;
    for (size_t j = 0; j < sizeof flags / sizeof *flags; j++)
        if (cl_json_doc_bool(&r->doc, token, where, flags[j], false))
            cl_json_doc_fail(&r->doc, CL_ERR_UNSUPPORTED, "%s%s is true; only false is supported", where, flags[j]);
    if (r->doc.status != CL_OK) return;
    const json_int_t id = json_integer_value(number);
    const cl_str text = cl_json_str(content);
    if (id >= r->config->n_vocab) return; /* the model has no row for it, so it cannot occur */
    if (id < 0) {
        cl_json_doc_fail(&r->doc, CL_ERR_FORMAT, "%sid is %lld; ids begin at 0", where, (long long)id);
        return;
    }
    const bool same = r->types[id] && r->texts[id].size == text.size && memcmp(r->texts[id].data, text.data, text.size) == 0;
    if (r->types[id] && !same) {
        cl_json_doc_fail(&r->doc, CL_ERR_FORMAT, "%sid %lld is '%s' here and '%s' in model.vocab", where, (long long)id,
                         SHOW(text), SHOW(r->texts[id]));
        return;
    }
    if (!same) r->texts[id] = cl_meta_copy(r->file, text);
    if (r->types[id] != CL_VOCAB_UNKNOWN) r->types[id] = added_type(r, text, special, normalized, same);
    if (normalized) mark_normalized(r, (int32_t)id);
}

static void fill_gaps(reader *r) {
    for (int32_t id = 0; id < r->config->n_vocab; id++) {
        if (r->types[id]) continue;
        char name[32];
        (void)snprintf(name, sizeof name, "[PAD%d]", id);
        r->texts[id] = cl_meta_copy(r->file, cl_str_of(name));
        r->types[id] = CL_VOCAB_UNUSED;
    }
}

static void read_vocab(reader *r) {
    const size_t n = (size_t)r->config->n_vocab;
    r->vocab = cl_json_doc_field(&r->doc, r->model, "model.", "vocab", CL_JSON_KIND_OBJECT, true);
    r->texts = cl_meta_put_strings(r->file, "tokenizer.ggml.tokens", n);
    r->types = cl_meta_put_array(r->file, "tokenizer.ggml.token_type", CL_META_I32, n);
    if (!r->texts || !r->types || r->doc.status != CL_OK) return;
    add_words(r);
    const json_t *added = cl_json_doc_field(&r->doc, r->doc.root, "", "added_tokens", CL_JSON_KIND_ARRAY, false);
    for (size_t i = 0; r->doc.status == CL_OK && i < json_array_size(added); i++) add_token(r, i, json_array_get(added, i));
    if (r->doc.status == CL_OK) fill_gaps(r);
}

/* ---- Merges ---- */

/* A merge is "left right" or, in newer files, [left, right]. */
static bool split_merge(const json_t *merge, cl_str *left, cl_str *right) {
    if (json_is_array(merge) && json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
        json_is_string(json_array_get(merge, 1))) {
        *left = cl_json_str(json_array_get(merge, 0));
        *right = cl_json_str(json_array_get(merge, 1));
        return true;
    }
    const cl_str all = json_is_string(merge) ? cl_json_str(merge) : (cl_str){"", 0};
    const char *space = memchr(all.data, ' ', all.size);
    if (!space || memchr(space + 1, ' ', all.size - (size_t)(space + 1 - all.data))) return false;
    *left = (cl_str){all.data, (size_t)(space - all.data)};
    *right = (cl_str){space + 1, all.size - left->size - 1};
    return true;
}

enum { MAX_MERGE = 4095 };

/* The id of the token whose text is left and right together; -1: none. */
static int32_t id_of(const reader *r, cl_str left, cl_str right) {
    char text[MAX_MERGE + 1];
    memcpy(text, left.data, left.size);
    memcpy(text + left.size, right.data, right.size);
    text[left.size + right.size] = 0;
    const json_t *id = json_object_get(r->vocab, text);
    return id ? (int32_t)json_integer_value(id) : -1;
}

static void read_merges(reader *r) {
    const json_t *merges = cl_json_doc_field(&r->doc, r->model, "model.", "merges", CL_JSON_KIND_ARRAY, true);
    if (!merges) return;
    int32_t *ids = cl_meta_put_array(r->file, "tokenizer.merge_ids", CL_META_I32, 3 * json_array_size(merges));
    const cl_str nothing = {"", 0};
    for (size_t i = 0; ids && r->doc.status == CL_OK && i < json_array_size(merges); i++, ids += 3) {
        cl_str left, right;
        if (!split_merge(json_array_get(merges, i), &left, &right)) {
            cl_json_doc_fail(&r->doc, CL_ERR_FORMAT,
                             "model.merges[%zu] must be two tokens, [left, right] or with a space between", i);
            return;
        }
        if (left.size + right.size > MAX_MERGE) {
            cl_json_doc_fail(&r->doc, CL_ERR_UNSUPPORTED, "model.merges[%zu] has %zu bytes; the limit is %d", i,
                             left.size + right.size, MAX_MERGE);
            return;
        }
        ids[0] = id_of(r, left, nothing);
        ids[1] = id_of(r, right, nothing);
        ids[2] = id_of(r, left, right);
        if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
            cl_json_doc_fail(&r->doc, CL_ERR_FORMAT,
                             "model.merges[%zu]: a part or the result of '%s' and '%s' is not in model.vocab", i, SHOW(left),
                             SHOW(right));
    }
}

/* ---- The model ---- */

static void check_model(reader *r) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    cl_json_doc *doc = &r->doc;
    r->model = cl_json_doc_field(doc, doc->root, "", "model", CL_JSON_KIND_OBJECT, true);
    const cl_str type = cl_json_doc_string(doc, r->model, "model.", "type");
    if (!cl_str_is(type, "BPE")) cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "model.type is \"%s\"; supported: BPE", SHOW(type));
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++)
        if (cl_json_doc_string(doc, r->model, "model.", affixes[i]).size > 0)
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "model.%s is not supported", affixes[i]);
    if (cl_json_doc_number(doc, r->model, "model.", "dropout", 0) != 0)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s", "model.dropout must be null");
}

/* How text is cut before merging, or SentencePiece's spaces. */
static void read_pipeline(reader *r) {
    cl_hf_pipeline p;
    if (!cl_hf_read_pipeline(&r->doc, r->file, &p)) return;
    const bool ignores_merges = cl_json_doc_bool(&r->doc, r->model, "model.", "ignore_merges", false);
    r->byte_level = p.byte_level;
    r->metaspace = p.metaspace;
    cl_meta_put_string(r->file, "tokenizer.ggml.model", cl_str_of(p.byte_level ? "gpt2" : "llama"));
    if (p.byte_level) {
        cl_meta_put_bool(r->file, "tokenizer.ignore_merges", ignores_merges);
        return;
    }
    if (ignores_merges)
        cl_json_doc_fail(&r->doc, CL_ERR_UNSUPPORTED, "%s", "model.ignore_merges is true; only with ByteLevel it may be");
    cl_meta_put_bool(r->file, "tokenizer.fuse_unknown", cl_json_doc_bool(&r->doc, r->model, "model.", "fuse_unk", false));
    cl_meta_put_bool(r->file, "tokenizer.ggml.add_space_prefix", p.space_prefix != NULL);
    if (p.space_prefix) cl_meta_put_string(r->file, "tokenizer.space_prefix", cl_str_of(p.space_prefix));
}

cl_status cl_hf_read_tokenizer(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error) {
    reader r = {.config = config, .file = file};
    cl_json_doc_open(&r.doc, folder, "tokenizer.json", CL_JSON_DOC_REQUIRED, error);
    if (r.doc.status == CL_OK) check_model(&r);
    if (r.doc.status == CL_OK) read_pipeline(&r);
    if (r.doc.status == CL_OK) read_vocab(&r);
    if (r.doc.status == CL_OK) read_merges(&r);
    cl_status status = r.doc.status;
    if (status == CL_OK && file->no_memory) status = cl_fail(error, CL_ERR_NOMEM, "no memory for the tokenizer in %s", folder);
    if (status == CL_OK) status = cl_hf_read_special(folder, config, &r.doc, r.texts, file, error);
    cl_json_doc_close(&r.doc);
    return status;
}
