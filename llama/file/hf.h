/*
 * A model's folder as Hugging Face has them: config.json, model.safetensors or the shards that model.safetensors.index.json
 * lists, tokenizer.json, and tokenizer_config.json with the chat template. Read into the keys and tensor names of GGUF.
 */
#ifndef LLAMA_FILE_HF_H
#define LLAMA_FILE_HF_H

#include "model_file.h"

/* Messages name file and field. */
cl_status cl_hf_open(const char *folder, cl_model_file **file, cl_error *error);

#endif
