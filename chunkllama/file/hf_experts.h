/*
 * Experts of gpt-oss, whose folders have outputs of gate and up in turn, and, if they are not quantised, inputs as rows.
 */
#ifndef CHUNKLLAMA_FILE_HF_EXPERTS_H
#define CHUNKLLAMA_FILE_HF_EXPERTS_H

#include "model_file_data.h"

/* How GGUF's form of a tensor follows from the folder's: its rows, or the values of its rows, are those from `first` on. */
typedef struct cl_hf_order {
    int64_t first, step;
    bool transposed; /* matrices have inputs as rows */
    bool vectors;    /* rows are vectors of outputs, such as biases */
} cl_hf_order;

/* The tensor in GGUF's form; its rows are made when they are read. The handle owns what *made borrows. */
cl_status cl_hf_reorder(const cl_tensor *stored, const cl_hf_order *order, cl_model_file *file, cl_tensor *made,
                        cl_error *error);

#endif
