/* Reads what a Hugging Face folder says about embeddings: the tokens around a text, and how its states are pooled. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hf.h"
#include "model_file_data.h"

enum { SHOWN = 60 };
#define SHOW(s) cl_str_show(s, (char[SHOWN]){0}, SHOWN)

/* ---- The post-processor ---- */

static void add(cl_json_doc *doc, int32_t n_vocab, const json_t *id, cl_hf_tokens *list) {
    const json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= n_vocab)
        cl_json_doc_fail(doc, CL_ERR_FORMAT,
                         "post_processor: an id of a special token must be below vocab_size in config.json, %d", n_vocab);
    else if (list->n == CL_HF_MAX_TOKENS)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                         "post_processor: more than %d tokens before or behind a text are not supported", CL_HF_MAX_TOKENS);
    else
        list->ids[list->n++] = (int32_t)value;
}

/* TemplateProcessing: `single` lists the text and the names of special tokens, of which each may stand for several tokens. */
static void read_template(cl_json_doc *doc, int32_t n_vocab, const json_t *processor, cl_hf_tokens *leading,
                          cl_hf_tokens *trailing) {
    static const char where[] = "post_processor.";
    const json_t *single = cl_json_doc_field(doc, processor, where, "single", CL_JSON_KIND_ARRAY, true);
    const json_t *known = cl_json_doc_field(doc, processor, where, "special_tokens", CL_JSON_KIND_OBJECT, false);
    cl_hf_tokens *list = leading;
    for (size_t i = 0; doc->status == CL_OK && i < json_array_size(single); i++) {
        const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
        if (!special) {
            list = trailing;
            continue;
        }
        const cl_str name = cl_json_doc_string(doc, special, "post_processor.single[].SpecialToken.", "id");
        const json_t *ids = json_object_get(json_object_get(known, name.data), "ids");
        if (!json_is_array(ids))
            cl_json_doc_fail(doc, CL_ERR_FORMAT, "post_processor.special_tokens has no ids of '%s'", SHOW(name));
        for (size_t j = 0; j < json_array_size(ids); j++) add(doc, n_vocab, json_array_get(ids, j), list);
    }
}

static void read_processor(cl_json_doc *doc, int32_t n_vocab, const json_t *processor, cl_hf_tokens *leading,
                           cl_hf_tokens *trailing) {
    const cl_str type = cl_json_doc_string(doc, processor, "post_processor.", "type");
    if (cl_str_is(type, "TemplateProcessing")) read_template(doc, n_vocab, processor, leading, trailing);
    if (!cl_str_is(type, "BertProcessing") && !cl_str_is(type, "RobertaProcessing")) return;
    add(doc, n_vocab, json_array_get(json_object_get(processor, "cls"), 1), leading); /* each is [name, id] */
    add(doc, n_vocab, json_array_get(json_object_get(processor, "sep"), 1), trailing);
}

bool cl_hf_read_post_processor(cl_json_doc *doc, int32_t n_vocab, cl_hf_tokens *leading, cl_hf_tokens *trailing) {
    const json_t *post = json_object_get(doc->root, "post_processor"), *all = json_object_get(post, "processors");
    *leading = *trailing = (cl_hf_tokens){0};
    for (size_t i = 0; i < json_array_size(all); i++) read_processor(doc, n_vocab, json_array_get(all, i), leading, trailing);
    if (!all && json_is_object(post)) read_processor(doc, n_vocab, post, leading, trailing);
    return doc->status == CL_OK;
}

/* ---- Pooling ---- */

/* GGUF's numbers of kinds of pooling. */
enum { NONE, MEAN, LAST = 3, UNSUPPORTED };

/* The kinds of sentence-transformers: a flag in older files, a name in newer ones. */
static const struct {
    const char *flag, *name;
    int type;
} poolings[] = {
    {"pooling_mode_mean_tokens", "mean", MEAN},
    {"pooling_mode_lasttoken", "lasttoken", LAST},
    {"pooling_mode_cls_token", "cls", UNSUPPORTED},
    {"pooling_mode_max_tokens", "max", UNSUPPORTED},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", UNSUPPORTED},
    {"pooling_mode_weightedmean_tokens", "weightedmean", UNSUPPORTED},
};

static int pooling_of(cl_json_doc *doc) {
    const cl_str mode = cl_json_doc_string(doc, doc->root, "", "pooling_mode");
    int type = NONE;
    for (size_t i = 0; i < sizeof poolings / sizeof *poolings; i++) {
        const bool flagged = cl_json_doc_bool(doc, doc->root, "", poolings[i].flag, false);
        if (!flagged && !cl_str_is(mode, poolings[i].name)) continue;
        if (type != NONE || poolings[i].type == UNSUPPORTED)
            cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s: only one of mean and lasttoken is supported",
                             flagged ? poolings[i].flag : "pooling_mode");
        type = poolings[i].type;
    }
    if (mode.size > 0 && type == NONE)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "pooling_mode is \"%s\"; supported: mean, lasttoken", SHOW(mode));
    return type;
}

/* Layers behind the pooling would be left out. */
static cl_status refuse_dense(const char *folder, cl_error *error) {
    static const char *const names[] = {"2_Dense", "3_Dense"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0)
            return cl_fail(error, CL_ERR_UNSUPPORTED, "%s: layers behind the pooling of embeddings are not supported", path);
    }
    return CL_OK;
}

cl_status cl_hf_read_pooling(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error) {
    cl_json_doc doc;
    char key[64];
    (void)snprintf(key, sizeof key, "%s.pooling_type", config->arch);
    cl_json_doc_open(&doc, folder, "1_Pooling/config.json", 0, error);
    const int type = doc.status == CL_OK ? pooling_of(&doc) : NONE;
    if (doc.status == CL_OK && type != NONE) cl_meta_put_u32(file, key, (uint32_t)type);
    cl_json_doc_close(&doc);
    return doc.status == CL_OK ? refuse_dense(folder, error) : doc.status;
}
