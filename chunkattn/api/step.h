/*
 * The open step of a cache: the rows that its entries claim, the places of their K/V, K/V commands, the plan and its workspace.
 * One thread at a time may call these for a cache. Only ca_step_begin allocates.
 */
#ifndef CHUNKATTN_API_STEP_H
#define CHUNKATTN_API_STEP_H

#include "cache_handle.h"

/* Check the arguments of cattn_step_begin. */
cattn_status ca_step_check_begin(const cattn_cache *cache, const cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                 cattn_error *error);

/* Check that a step is open and that it has this layer. */
cattn_status ca_step_check_layer(const cattn_cache *cache, int32_t layer, cattn_error *error);

/* As cattn_step_begin, with checked arguments. On a device, whose stream is set, also what cattn_cuda_step_begin queues. */
cattn_status ca_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error);

/*
 * Write K and V of all rows of one layer, on several threads if there are enough numbers. k: [rows][n_kv_heads][head_dim],
 * v: [rows][n_kv_heads][head_dim_v], borrowed for the call.
 */
void ca_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v);

/* Close the step. The claimed tokens become ready, or, if not `ready`, can be claimed again. */
void ca_step_close(cattn_cache *cache, bool ready);

/* The tree's executor: execute n K/V commands now, in all layers. ctx is the cache. */
void ca_step_execute(void *ctx, const ca_kv_command *commands, size_t n);

/* Free plan and workspace, which the last step left for the next one. No step is open. */
void ca_step_release(cattn_cache *cache);

/* Free the arrays that steps reuse. No step is open. */
void ca_step_free(cattn_cache *cache);

/* Bytes that count against the budget now; ca_cache_note_bytes updates the peak. */
uint64_t ca_cache_bytes(const cattn_cache *cache);
void ca_cache_note_bytes(cattn_cache *cache);

/* ---- Between step.c and step_write.c ---- */

/* The number of rows from `first` on that go to consecutive slots of one chunk. */
int32_t ca_step_run_length(const ca_step *step, int32_t first);

/* Execute K/V commands in one KV head of one layer. */
void ca_step_execute_commands(const cattn_cache *cache, int32_t layer, int32_t head, const ca_kv_commands *commands);

#endif
