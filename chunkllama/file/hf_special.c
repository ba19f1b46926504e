/* Reads special tokens, chat templates, and how tokens are drawn by default, from tokenizer_config.json and other files. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/common/file_bytes.h"
#include "hf.h"
#include "model_file_data.h"

enum { SHOWN = 60 };
#define SHOW(s) cl_str_show(s, (char[SHOWN]){0}, SHOWN)

typedef struct reader {
    const cl_hf_config *config;
    const cl_str *texts; /* [n_vocab] */
    cl_hf_tokens leading, trailing;
    cl_model_file *file;
} reader;

static int32_t find_text(const reader *r, cl_str text) {
    for (int32_t id = 0; id < r->config->n_vocab; id++)
        if (r->texts[id].size == text.size && memcmp(r->texts[id].data, text.data, text.size) == 0) return id;
    return -1;
}

/* The text of a token that tokenizer_config.json names, which may be in an object; no data: it names none. */
static cl_str token_text(const cl_json_doc *doc, const char *name) {
    const json_t *value = json_object_get(doc->root, name);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_string(value) ? cl_json_str(value) : (cl_str){NULL, 0};
}

/* The id of the token that a field names; `otherwise` if the field is missing. */
static int32_t named_token(const reader *r, cl_json_doc *doc, const char *name, int32_t otherwise) {
    const cl_str text = token_text(doc, name);
    if (!text.data) return otherwise;
    const int32_t id = find_text(r, text);
    if (id < 0) cl_json_doc_fail(doc, CL_ERR_FORMAT, "%s '%s' is not in the vocabulary", name, SHOW(text));
    return id;
}

/* ---- Around a text ---- */

static bool contains(const cl_hf_tokens *list, int32_t id) {
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] == id) return true;
    return false;
}

static void insert(cl_hf_tokens *list, size_t at, int32_t id) {
    memmove(list->ids + at + 1, list->ids + at, (list->n++ - at) * sizeof *list->ids);
    list->ids[at] = id;
}

static void erase(cl_hf_tokens *list, int32_t id) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] != id) list->ids[n++] = list->ids[i];
    list->n = n;
}

static void put_tokens(const reader *r, const char *key, const cl_hf_tokens *list) {
    int32_t *ids = cl_meta_put_array(r->file, key, CL_META_I32, list->n);
    if (ids) memcpy(ids, list->ids, list->n * sizeof *ids);
}

/* Put the tokens of the post_processor, to which tokenizer_config.json may add BOS and EOS, or without which BOS is to be. */
static void put_around(reader *r, cl_json_doc *doc, int32_t bos) {
    const bool adds_bos = cl_json_doc_bool(doc, doc->root, "", "add_bos_token", contains(&r->leading, bos)) && bos >= 0;
    const bool adds_eos = cl_json_doc_bool(doc, doc->root, "", "add_eos_token", false);
    const int32_t eos = adds_eos ? named_token(r, doc, "eos_token", r->config->n_ends ? r->config->ends[0] : -1) : -1;
    if (!adds_bos) erase(&r->leading, bos);
    if (adds_bos && !contains(&r->leading, bos)) insert(&r->leading, 0, bos);
    if (eos >= 0 && !contains(&r->trailing, eos)) insert(&r->trailing, r->trailing.n, eos);
    cl_meta_put_bool(r->file, "tokenizer.ggml.add_bos_token", adds_bos);
    cl_meta_put_bool(r->file, "tokenizer.ggml.add_eos_token", r->trailing.n > 0);
    put_tokens(r, "tokenizer.leading_tokens", &r->leading);
    put_tokens(r, "tokenizer.trailing_tokens", &r->trailing);
}

/* ---- Chat templates ---- */

static const char DEFAULT_KEY[] = "tokenizer.chat_template", TOOL_KEY[] = "tokenizer.chat_template.tool_use";

/* Put a template under a key of GGUF, unless there is one. */
static void put_template(cl_model_file *file, const char *key, cl_str text) {
    if (text.size > 0 && !cl_model_file_has(file, key)) cl_meta_put_string(file, key, text);
}

/* The field chat_template: a string, or an array of templates with names, of which two are used. */
static void read_templates(cl_json_doc *doc, cl_model_file *file) {
    static const char where[] = "chat_template[].";
    const json_t *all = json_object_get(doc->root, "chat_template");
    if (!json_is_array(all)) put_template(file, DEFAULT_KEY, cl_json_doc_string(doc, doc->root, "", "chat_template"));
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const cl_str name = cl_json_doc_string(doc, one, where, "name"), text = cl_json_doc_string(doc, one, where, "template");
        if (cl_str_is(name, "default")) put_template(file, DEFAULT_KEY, text);
        if (cl_str_is(name, "tool_use")) put_template(file, TOOL_KEY, text);
    }
}

/* Put the template that a file of its own has, if there is such a file. */
static cl_status read_template_file(const char *folder, const char *name, const char *key, cl_model_file *file,
                                    cl_error *error) {
    char path[512];
    cl_file_bytes bytes;
    cl_error absent = {0};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    cl_status status = cl_file_bytes_open(path, &bytes, &absent);
    if (status == CL_ERR_FILE) return CL_OK;
    if (status != CL_OK) return cl_fail(error, status, "%s", absent.message);
    status = cl_file_bytes_fetch(&bytes, bytes.size, &absent);
    if (status == CL_OK)
        put_template(file, key, (cl_str){(const char *)bytes.data, bytes.size});
    else
        (void)cl_fail(error, status, "%s: %s", path, absent.message);
    cl_file_bytes_close(&bytes);
    return status;
}

/* As in Transformers, files of their own come before the field of tokenizer_config.json. */
static cl_status read_all_templates(const char *folder, cl_json_doc *doc, cl_model_file *file, cl_error *error) {
    cl_status status = read_template_file(folder, "chat_template.jinja", DEFAULT_KEY, file, error);
    if (status == CL_OK) status = read_template_file(folder, "additional_chat_templates/tool_use.jinja", TOOL_KEY, file, error);
    if (status == CL_OK) read_templates(doc, file);
    return status == CL_OK ? doc->status : status;
}

/* ---- Special tokens ---- */

/* Put the texts by which chat templates know special tokens: config.json may name another end of sequence. */
static void put_token_texts(const cl_json_doc *doc, cl_model_file *file) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char key[32];
        const cl_str text = token_text(doc, names[i]);
        (void)snprintf(key, sizeof key, "tokenizer.%s", names[i]);
        if (text.size > 0) cl_meta_put_string(file, key, text);
    }
}

static void read_special(reader *r, cl_json_doc *doc) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const cl_hf_config *c = r->config;
    assert(c->n_ends <= (int)(sizeof keys / sizeof *keys)); /* hf_config.c holds no more */
    const int32_t bos = named_token(r, doc, "bos_token", c->bos);
    if (bos >= 0) cl_meta_put_u32(r->file, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && i < (size_t)c->n_ends; i++)
        cl_meta_put_u32(r->file, keys[i], (uint32_t)c->ends[i]);
    const int32_t eos = c->n_ends ? -1 : named_token(r, doc, "eos_token", -1);
    if (eos >= 0) cl_meta_put_u32(r->file, keys[0], (uint32_t)eos);
    put_around(r, doc, bos);
}

cl_status cl_hf_read_special(const char *folder, const cl_hf_config *config, cl_json_doc *tokenizer, const cl_str *texts,
                             cl_model_file *file, cl_error *error) {
    reader r = {.config = config, .texts = texts, .file = file};
    cl_json_doc doc;
    if (!cl_hf_read_post_processor(tokenizer, config->n_vocab, &r.leading, &r.trailing)) return tokenizer->status;
    /* model_max_length is 10^30 if there is no limit, which no integer type holds. */
    cl_json_doc_open(&doc, folder, "tokenizer_config.json", CL_JSON_DOC_REALS, error);
    if (doc.status == CL_OK) read_special(&r, &doc);
    put_token_texts(&doc, file);
    const cl_status status = doc.status == CL_OK ? read_all_templates(folder, &doc, file, error) : doc.status;
    cl_json_doc_close(&doc);
    return status;
}

/* ---- Draws ---- */

/* The window of penalties is the whole text, which GGUF's key says with -1. */
static void put_penalty(cl_model_file *file, double penalty) {
    cl_meta_put_f64(file, "general.sampling.penalty_repeat", penalty);
    cl_meta_put_f64(file, "general.sampling.penalty_last_n", -1);
}

cl_status cl_hf_read_generation(const char *folder, cl_model_file *file, cl_error *error) {
    static const char *const fields[][2] = {{"temperature", "general.sampling.temp"},
                                            {"top_k", "general.sampling.top_k"},
                                            {"top_p", "general.sampling.top_p"},
                                            {"min_p", "general.sampling.min_p"}};
    cl_json_doc doc;
    cl_json_doc_open(&doc, folder, "generation_config.json", CL_JSON_DOC_REALS, error);
    for (size_t i = 0; doc.root && i < sizeof fields / sizeof *fields; i++) {
        const double value = cl_json_doc_number(&doc, doc.root, "", fields[i][0], NAN);
        if (!isnan(value)) cl_meta_put_f64(file, fields[i][1], value);
    }
    const double penalty = doc.root ? cl_json_doc_number(&doc, doc.root, "", "repetition_penalty", NAN) : NAN;
    if (!isnan(penalty)) put_penalty(file, penalty);
    cl_json_doc_close(&doc);
    return doc.status;
}
