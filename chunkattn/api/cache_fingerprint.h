/* What the K/V of a cache depend on beside tokens, and the format of the records that hold them outside the cache. */
#ifndef CHUNKATTN_API_CACHE_FINGERPRINT_H
#define CHUNKATTN_API_CACHE_FINGERPRINT_H

#include "cache_handle.h"

/* Set cache->record and cache->model, of a cache on the CPU whose layout and level are set. */
void ca_fingerprint_init(cattn_cache *cache, const cattn_config *config);

#endif
