/* The open step of a cache: claims, the place of each row's K/V, K/V commands, the plan and its workspace. */
#ifndef LIB_STEP_H
#define LIB_STEP_H

#include "cache_handle.h"

/* As cattn_step_begin, with checked arguments. */
cattn_status ca_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error);

/* Write K/V of all rows of one layer, in parallel where that pays. */
void ca_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v);

/* Close the step: what was claimed becomes ready, or can be claimed again. */
void ca_step_close(cattn_cache *cache, bool ready);

/* The tree's executor: carry out K/V commands now, in all layers. ctx is the cache. */
void ca_step_execute(void *ctx, const ca_kv_command *commands, size_t n);

void ca_step_free(cattn_cache *cache);

/* Bytes that count against the budget now; keeps the peak. */
uint64_t ca_cache_bytes(cattn_cache *cache);

#endif
