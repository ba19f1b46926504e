/* What a tokenizer.json does to text before merging, recognised as one of the ways that are known here. */
#ifndef LLAMA_FILE_HF_PRETOKENIZER_H
#define LLAMA_FILE_HF_PRETOKENIZER_H

#include "json_doc.h"

typedef struct cl_hf_pipeline {
    bool byte_level;
    bool metaspace;   /* spaces are replaced when text is cut, so after the search for added tokens */
    const char *name; /* byte-level: of pretokenizer.c; otherwise of spm.h's rules for the space, NULL: none is put before */
} cl_hf_pipeline;

/* From normalizer and pre_tokenizer. False, with doc failed, where they are none of the known ones. */
bool cl_hf_read_pipeline(cl_json_doc *doc, bool ignore_merges, cl_hf_pipeline *pipeline);

#endif
