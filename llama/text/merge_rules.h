/* BPE's trained merges: which two tokens become which, and in which order. */
#ifndef LLAMA_TEXT_MERGE_RULES_H
#define LLAMA_TEXT_MERGE_RULES_H

#include <stdint.h>

#include "llama/common/hash.h"
#include "llama/file/model_file.h"
#include "vocab.h"

typedef struct cl_merge_rule {
    int32_t left, right; /* left < 0: empty slot */
    uint32_t rank;
    int32_t id;
} cl_merge_rule;

typedef struct cl_merge_rules {
    cl_merge_rule *slots; /* open addressing, a power of two of them */
    size_t mask;
    cl_hash_key key;
} cl_merge_rules;

/* From the file's merges, as ids or as text. On failure, and after use, cl_merge_rules_free. */
cl_status cl_merge_rules_load(const cl_model_file *file, const cl_vocab *v, cl_merge_rules *rules, cl_error *error);
void cl_merge_rules_free(cl_merge_rules *rules);

/* The pair's rule, or NULL. */
const cl_merge_rule *cl_merge_rules_get(const cl_merge_rules *rules, int32_t left, int32_t right);

#endif
