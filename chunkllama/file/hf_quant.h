/*
 * Quantised weights of Hugging Face folders, as tensors of GGUF's types, whose rows are made when they are read:
 *
 *   fp8, fbgemm_fp8, compressed-tensors (float)   BF16: the product of weight and scale, rounded
 *   mxfp4                                         MXFP4, exact
 *   gptq, awq, compressed-tensors (packed)        Q4_0, or Q5_0 if zeros differ from 8; exact but for scales, which become f16
 */
#ifndef CHUNKLLAMA_FILE_HF_QUANT_H
#define CHUNKLLAMA_FILE_HF_QUANT_H

#include "chunkllama/common/json_doc.h"
#include "model_file_data.h"

typedef enum cl_hf_scheme {
    CL_HF_PLAIN, /* not quantised */
    CL_HF_FP8,
    CL_HF_MXFP4,
    CL_HF_GPTQ,
    CL_HF_AWQ,
    CL_HF_PACKED
} cl_hf_scheme;

/* How the weights of a folder are quantised. */
typedef struct cl_hf_quant {
    cl_hf_scheme scheme;
    int64_t block_out, block_in; /* FP8: of a scale; 0: outputs or whole tensors have one */
    int zero_offset;             /* GPTQ: what stored zeros are less than zeros, 0 or 1 */
} cl_hf_quant;

/* Read the field quantization_config of an object in config.json, if it has one. Another scheme is a failure of doc. */
void cl_hf_read_quant(cl_json_doc *doc, const json_t *object, const char *where, cl_hf_quant *quant);

/* All tensors of a folder, under its own names. */
typedef struct cl_hf_stored {
    const cl_tensor **tensors; /* [n] */
    size_t n;
    cl_str_map map; /* from names to indices */
} cl_hf_stored;

/*
 * Whether a tensor is the weights of a quantised one, or belongs to one: *made is the quantised tensor, or has no name if it is
 * added with another one. False: it is not quantised. On failure *status is set. The handle owns what *made borrows.
 */
bool cl_hf_quantised(const cl_hf_quant *quant, const cl_hf_stored *stored, const cl_tensor *t, cl_model_file *file,
                     cl_tensor *made, cl_status *status, cl_error *error);

#endif
