/*
 * The steps of reading a Hugging Face folder: configuration, tensors, tokenizer, special tokens. Each step fills a part of the
 * handle, and fails with a message that names the file and the field.
 */
#ifndef CHUNKLLAMA_FILE_HF_H
#define CHUNKLLAMA_FILE_HF_H

#include "chunkllama/common/json_doc.h"
#include "hf_quant.h"
#include "model_file_data.h"

/* The fields of config.json that the readers of tensors and tokenizer need. */
typedef struct cl_hf_config {
    cl_json_doc doc;    /* config.json, open */
    const json_t *text; /* the object in doc with the fields of the model of text: the root, or text_config */
    const char *where;  /* that object in messages; static */
    bool base;          /* a class without a head: the output matrix may be missing */
    const char *arch;   /* general.architecture in GGUF; static */
    bool norm_plus_one; /* norms multiply by 1 + w; GGUF stores the sum */
    bool own_experts;   /* hf_experts.h */
    unsigned biases;    /* ARCH.biases (model_file.h) */
    bool tied;          /* the embedding is the output matrix too */
    cl_hf_quant quant;  /* how the weights are quantised */
    int32_t n_vocab;
    int64_t n_embd;
    double rope_factor, low_factor, high_factor, trained; /* Llama 3's scaling; rope_factor 0: none */
    double rope_base;
    double proportional_factor; /* slows the leading n_rot / 2 pairs of a head, and the others do not turn; 0: none */
    int32_t head_dim;           /* of layers without a window, if layers differ; 0: not known */
    const json_t *long_divisors, *short_divisors; /* arrays in doc; NULL: none */
    int32_t n_rot;                                /* dimensions of a head that are rotated */
    int32_t bos;                                  /* -1: none */
    int32_t ends[3];                              /* [n_ends] tokens at which generation stops */
    int n_ends;
} cl_hf_config;

/*
 * Refuse a folder that lacks a file of the model, and say what to do with what it holds instead: GGUF files, an adapter, or
 * weights in another format. lack: what the message says about the missing file. False, and no error: it holds none of these.
 */
bool cl_hf_refuse_other(const char *folder, const char *lack, cl_error *error);

/* Read the metadata of the architecture, and *config, whose doc the caller closes, after a failure too. */
cl_status cl_hf_read_config(const char *folder, cl_model_file *file, cl_hf_config *config, cl_error *error);

/*
 * Map the files of the weights and list their tensors, under GGUF's names. Those that have none are listed under the name
 * "hf:NAME", and the loader of the weights decides about them.
 */
cl_status cl_hf_read_tensors(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error);

/* List the tensors of the files under their own names. */
cl_status cl_hf_list_tensors(const char *folder, cl_model_file *file, cl_error *error);

/* Read special tokens and chat template. tokenizer: tokenizer.json; texts: [n_vocab] the vocabulary's; both borrowed. */
cl_status cl_hf_read_special(const char *folder, const cl_hf_config *config, cl_json_doc *tokenizer, const cl_str *texts,
                             cl_model_file *file, cl_error *error);

/* The tokens before or behind a text: those of a post_processor, and BOS or EOS. */
enum { CL_HF_MAX_TOKENS = 16 };
typedef struct cl_hf_tokens {
    int32_t ids[CL_HF_MAX_TOKENS + 1]; /* [n] below n_vocab */
    size_t n;
} cl_hf_tokens;

/* Read what the post_processor of a tokenizer.json puts around a text. False: doc has failed. */
bool cl_hf_read_post_processor(cl_json_doc *doc, int32_t n_vocab, cl_hf_tokens *leading, cl_hf_tokens *trailing);

/* Read how sentence-transformers pools the states of a text, if the folder says it. */
cl_status cl_hf_read_pooling(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error);

/* Read the metadata of the tokenizer, special tokens and chat template included. */
cl_status cl_hf_read_tokenizer(const char *folder, const cl_hf_config *config, cl_model_file *file, cl_error *error);

/* Read generation_config.json, if there is one, as GGUF's keys general.sampling.*. */
cl_status cl_hf_read_generation(const char *folder, cl_model_file *file, cl_error *error);

/*
 * The field of config.json that a key comes from, and the name that a tensor of GGUF's name has in the folder, or would have;
 * NULL: none. Valid until the thread's next call.
 */
const char *cl_hf_config_source(const char *key);
const char *cl_hf_tensor_source(const cl_model_file *file, const char *arch, const char *gguf);

/* GGUF's name of a tensor, perhaps in buf; NULL: none. */
enum { CL_HF_NAME_SIZE = 96 };
const char *cl_hf_tensor_name(const char *arch, const char *hf, char buf[CL_HF_NAME_SIZE]);
/* Whether a tensor is not needed: older files keep frequencies that follow from the configuration. */
bool cl_hf_tensor_ignored(const char *hf);

/* How tokenizer.json prepares text before it is merged. */
typedef struct cl_hf_pipeline {
    bool byte_level;
    bool metaspace;           /* spaces are replaced when text is cut, so after the search for added tokens */
    const char *space_prefix; /* SentencePiece's: a rule in spm.h, or NULL: no space is put before texts. Static. */
} cl_hf_pipeline;

/*
 * Read normalizer and pre_tokenizer, and put what byte-level BPE needs of them into the file (pretokenizer.h). False if they
 * are none of the known ones; doc has failed then.
 */
bool cl_hf_read_pipeline(cl_json_doc *doc, cl_model_file *file, cl_hf_pipeline *pipeline);

#endif
