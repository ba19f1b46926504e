/* Reading the K and V of a sequence's tokens from their chunks, on the CPU. */
#ifndef CHUNKATTN_API_READ_H
#define CHUNKATTN_API_READ_H

#include "cache_handle.h"

/* As cattn_seq_read, with checked arguments and n_tokens >= 1. */
void ca_read(cattn_cache *cache, const ca_seq *seq, int32_t layer, int64_t first_pos, int64_t n_tokens, const cattn_view *k,
             const cattn_view *v);

#endif
