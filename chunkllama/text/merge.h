/* Byte-pair encoding: the rules that a file lists, and the merging of a text's symbols pair by pair. */
#ifndef CHUNKLLAMA_TEXT_MERGE_H
#define CHUNKLLAMA_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/hash.h"
#include "chunkllama/file/model_file.h"
#include "vocab.h"

/* ---- Merging ---- */

typedef struct cl_merge_symbol {
    uint32_t start, size; /* bytes of the text; size 0: merged into its left neighbour */
    int32_t id;           /* token, or -1 */
    int32_t prev, next;   /* neighbours, or -1 */
} cl_merge_symbol;

typedef struct cl_merge_pair {
    uint32_t order; /* the smallest is merged first; of equal ones, the leftmost */
    int32_t left, right;
    uint32_t size; /* bytes of both symbols, when the pair was found */
    int32_t id;    /* token that they merge into */
} cl_merge_pair;

/* Memory that is reused for many texts. Zero-initialise, free with cl_merge_free. */
typedef struct cl_merge_space {
    cl_merge_symbol *symbols; /* [n_symbols] */
    cl_merge_pair *heap;      /* [n_heap] candidates */
    size_t n_symbols, n_heap, capacity;
} cl_merge_space;

/* Whether two neighbours may be merged; if so, into which token and in which order. */
typedef bool (*cl_merge_lookup)(const void *ctx, const cl_merge_symbol *left, const cl_merge_symbol *right, uint32_t *order,
                                int32_t *id);

/* Start an empty text with capacity for n symbols. Returns 0, or -1 if memory is lacking. */
int cl_merge_reserve(cl_merge_space *space, size_t n);
void cl_merge_free(cl_merge_space *space);

/* Append a symbol, within the capacity. */
void cl_merge_add(cl_merge_space *space, uint32_t start, uint32_t size, int32_t id);

/*
 * Merge. The result is the linked list from symbols[0] over `next`. Takes O(n log n) for n symbols. The only errors are those
 * of cl_deadline_check.
 */
cl_status cl_merge_run(cl_merge_space *space, cl_merge_lookup lookup, const void *ctx, cl_error *error);

/* ---- Rules ---- */

typedef struct cl_merge_rule {
    int32_t left, right; /* tokens; left < 0: the slot is empty */
    uint32_t rank;       /* the lowest is merged first */
    int32_t id;          /* the token that they merge into */
} cl_merge_rule;

typedef struct cl_merge_rules {
    cl_merge_rule *slots; /* [mask + 1] a hash table with open addressing; owned */
    size_t mask;
    cl_hash_key key;
} cl_merge_rules;

/* From the file's merges, as ids or as text. Call cl_merge_rules_free after use and after a failure. */
cl_status cl_merge_rules_load(const cl_model_file *file, const cl_vocab *v, cl_merge_rules *rules, cl_error *error);
void cl_merge_rules_free(cl_merge_rules *rules);

/* The rule of a pair of tokens, or NULL. */
const cl_merge_rule *cl_merge_rules_get(const cl_merge_rules *rules, int32_t left, int32_t right);

#endif
