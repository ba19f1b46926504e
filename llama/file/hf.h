/* The steps of reading a Hugging Face folder: configuration, tensors, tokenizer, special tokens. Each fills a part of the
 * handle. */
#ifndef LLAMA_FILE_HF_H
#define LLAMA_FILE_HF_H

#include "json_doc.h"
#include "model_file_data.h"

/* What config.json says that tensors and tokenizer need. */
typedef struct cl_hf_config {
    cl_json_doc doc;
    const char *arch;   /* general.architecture */
    bool norm_plus_one; /* norms multiply by 1 + w; GGUF has the sum */
    bool four_norms;    /* a layer's norms stand before and behind each part */
    bool tied;          /* the embedding is the output matrix */
    int32_t n_vocab;
    int64_t n_embd;
    double rope_factor, low_factor, high_factor, trained; /* Llama 3's scaling; rope_factor 0: none */
    double rope_base;
    int32_t n_rot;
    int32_t bos; /* -1: none */
    int32_t ends[3];
    int n_ends;
} cl_hf_config;

/* Metadata of the architecture, and *config, whose doc the caller closes. */
cl_status cl_hf_read_config(const char *folder, cl_model_file *file, cl_hf_config *config, cl_error *error);

/* Tensors, under GGUF's names; file->maps. */
cl_status cl_hf_read_tensors(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error);

/* Special tokens and chat template, for a vocabulary's texts [n_vocab]. */
cl_status cl_hf_read_special(const char *folder, const cl_hf_config *config, const json_t *tokenizer, const cl_str *texts,
                             cl_model_file *file, cl_error *error);

/* Metadata of the tokenizer, and all of the above. */
cl_status cl_hf_read_tokenizer(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error);

/* The field of config.json for a key, the tensor's name for one of GGUF's; NULL: none. Until the thread's next call. */
const char *cl_hf_config_source(const char *key);
const char *cl_hf_tensor_source(bool four_norms, const char *gguf);

/* GGUF's name for a tensor; NULL: none. */
enum { CL_HF_NAME_SIZE = 96 };
const char *cl_hf_tensor_name(bool four_norms, const char *hf, char buf[CL_HF_NAME_SIZE]);
/* Whether a tensor says nothing new: frequencies that older files keep. */
bool cl_hf_tensor_ignored(const char *hf);

typedef struct cl_hf_pipeline {
    bool byte_level;
    bool metaspace;   /* spaces are replaced when text is cut, so after the search for added tokens */
    const char *name; /* byte-level: of pretokenizer.c; otherwise of spm.h's rules for the space, NULL: none is put before */
} cl_hf_pipeline;

/* From normalizer and pre_tokenizer. False, with doc failed, where they are none of the known ones. */
bool cl_hf_read_pipeline(cl_json_doc *doc, bool ignore_merges, cl_hf_pipeline *pipeline);

#endif
