/*
 * The CPU as a backend (chunkattn/attn/backend.h): K and V in the host's memory, kernels of the CPU's level, worker threads.
 * backend_cpu.c has its table, backend_cpu_write.c writes a step's rows, backend_cpu_pages.c attends to foreign pages.
 */
#ifndef CHUNKATTN_API_BACKEND_CPU_H
#define CHUNKATTN_API_BACKEND_CPU_H

#include "cache_handle.h"
#include "chunkattn_pages.h"

/*
 * Fill *compute: level, threads, and the workers' scratch. Tiles are in a pool or come from a source, which is NULL otherwise.
 * layout, pool, source and alloc are borrowed until it is destroyed. Errors as create_cache.
 */
cattn_status ca_cpu_start(ca_compute *compute, const cattn_config *config, const ca_chunk_layout *layout,
                          const ca_chunk_pool *pool, const ca_tile_source *source, ca_alloc *alloc, cattn_error *error);

/* Execute K/V commands in one KV head of one layer. */
void ca_cpu_execute(const cattn_cache *cache, int32_t layer, int32_t head, const ca_kv_commands *commands);

/* Entries of the table. */
cattn_status ca_cpu_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v, void *stream,
                          cattn_error *error);
cattn_status ca_cpu_create_pages(cattn_pages *pages, const cattn_config *config, cattn_error *error);
cattn_status ca_cpu_attend_pages(cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, void *stream, cattn_error *error);

#endif
