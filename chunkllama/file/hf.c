/* Opens a Hugging Face folder by the steps of hf.h, and reports errors by the names in its files. */
#include "hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model_file_data.h"

static const char *source_name(const cl_model_file *file, const char *name) {
    cl_str arch = {"", 0};
    (void)cl_model_file_get_string(file, "general.architecture", &arch);
    const char *source = cl_hf_config_source(name);
    return source ? source : cl_hf_tensor_source(file, arch.data, name);
}

/*
 * The tokenizer allocates memory in proportion to vocab_size. So the tensor with a row for each token, of at least hidden_size
 * bytes, is checked before: a small file cannot claim a large vocabulary.
 */
static cl_status check_embedding(const cl_model_file *file, cl_hf_config *config, cl_error *error) {
    static const char embedding[] = "token_embd.weight";
    const cl_tensor *t = cl_model_file_find_tensor(file, embedding);
    const char *name = cl_hf_tensor_source(file, config->arch, embedding);
    if (!t) return cl_fail(error, CL_ERR_FORMAT, "tensor %s is missing", name);
    if (config->n_embd != t->ne[0])
        cl_json_doc_fail(&config->doc, CL_ERR_FORMAT,
                         "hidden_size is %" PRId64 "; tensor %s has rows of %" PRId64 ", and they must be as long",
                         config->n_embd, name, t->ne[0]);
    if (config->n_vocab > t->ne[1])
        cl_json_doc_fail(&config->doc, CL_ERR_FORMAT,
                         "vocab_size is %d; tensor %s has %" PRId64 " rows, and one is needed for each", config->n_vocab, name,
                         t->ne[1]);
    return config->doc.status;
}

static cl_status fill(const char *folder, cl_model_file *file, cl_error *error) {
    (void)snprintf(file->format, sizeof file->format, "safetensors");
    file->source_name = source_name;
    cl_status status = cl_meta_init(file, error);
    if (status != CL_OK) return status;
    cl_hf_config config;
    status = cl_hf_read_config(folder, file, &config, error);
    if (status == CL_OK) status = cl_hf_read_tensors(folder, &config, file, error);
    if (status == CL_OK) status = check_embedding(file, &config, error);
    if (status == CL_OK) status = cl_hf_read_tokenizer(folder, &config, file, error);
    if (status == CL_OK) status = cl_hf_read_pooling(folder, &config, file, error);
    if (status == CL_OK) status = cl_hf_read_generation(folder, file, error);
    cl_json_doc_close(&config.doc);
    if (status == CL_OK && file->no_memory) status = cl_fail(error, CL_ERR_NOMEM, "no memory for the model in %s", folder);
    return status;
}

/* ---- Folders to look at ---- */

/* Put the numbers, strings and flags of an object as metadata, as far as there is room. */
static void put_fields(cl_model_file *file, const json_t *object, const char *prefix) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        char key[96];
        const int n = snprintf(key, sizeof key, "%s%s", prefix, name);
        if (n >= (int)sizeof key || file->n_keys == CL_META_MAX_KEYS || cl_model_file_has(file, key)) continue;
        if (json_is_string(value)) cl_meta_put_string(file, key, cl_json_str(value));
        if (json_is_number(value)) cl_meta_put_f64(file, key, json_number_value(value));
        if (json_is_boolean(value)) cl_meta_put_bool(file, key, json_is_true(value));
    }
}

static cl_status look(const char *folder, cl_model_file *file, cl_error *error) {
    (void)snprintf(file->format, sizeof file->format, "safetensors");
    cl_json_doc doc;
    cl_status status = cl_meta_init(file, error);
    if (status != CL_OK) return status;
    cl_json_doc_open(&doc, folder, "config.json", CL_JSON_DOC_REQUIRED, error);
    status = doc.status;
    if (status == CL_OK) {
        const json_t *class = json_array_get(json_object_get(doc.root, "architectures"), 0);
        if (json_is_string(class)) cl_meta_put_string(file, "general.architecture", cl_json_str(class));
        put_fields(file, json_object_get(doc.root, "text_config"), "text_config.");
        put_fields(file, json_object_get(doc.root, "quantization_config"), "quantization_config.");
        put_fields(file, doc.root, "");
        status = cl_hf_list_tensors(folder, file, error);
    }
    cl_json_doc_close(&doc);
    if (status == CL_OK && file->no_memory) status = cl_fail(error, CL_ERR_NOMEM, "no memory to look at %s", folder);
    return status;
}

/* Open a folder by one of the functions above. */
static cl_status open_by(cl_status (*read)(const char *folder, cl_model_file *file, cl_error *error), const char *folder,
                         cl_model_file **out, cl_error *error) {
    *out = NULL;
    cl_model_file *file = calloc(1, sizeof *file);
    if (!file) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    const cl_status status = read(folder, file, error);
    if (status != CL_OK) cl_model_file_close(&file);
    *out = file;
    return status;
}

cl_status cl_hf_open(const char *folder, cl_model_file **out, cl_error *error) { return open_by(fill, folder, out, error); }
cl_status cl_hf_look(const char *folder, cl_model_file **out, cl_error *error) { return open_by(look, folder, out, error); }
