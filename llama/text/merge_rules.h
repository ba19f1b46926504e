/* BPE's trained merges: which two tokens become which, and in which order. */
#ifndef LLAMA_TEXT_MERGE_RULES_H
#define LLAMA_TEXT_MERGE_RULES_H

#include <stdint.h>

#include "llama/common/hash.h"
#include "llama/file/model_file.h"
#include "vocab.h"

typedef struct merge_rule {
    int32_t left, right; /* left < 0: empty slot */
    uint32_t rank;
    int32_t id;
} merge_rule;

typedef struct merge_rules {
    merge_rule *slots; /* open addressing, a power of two of them */
    size_t mask;
    hash_key key;
} merge_rules;

/* From the file's merges, as ids or as text. On failure, and after use, merge_rules_free. */
cl_status merge_rules_load(const model_file *file, const vocab *v, merge_rules *rules, cl_error *error);
void merge_rules_free(merge_rules *rules);

/* The pair's rule, or NULL. */
const merge_rule *merge_rules_get(const merge_rules *rules, int32_t left, int32_t right);

#endif
