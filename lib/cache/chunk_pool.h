/*
 * Fixed-size K/V chunks by id, in one reserved address range that is committed slab by slab up to a byte budget and given back
 * slab by slab.
 *
 * A chunk is a number of tiles, one for each layer and K/V head, which are not neighbours: a slab is
 *
 *   [tiles of a chunk][chunks of the slab][bytes of a tile]
 *
 * Chunks are taken in ascending order, so those of a prompt follow one another, and a kernel that goes over one head's tiles
 * of a run reads memory in its own order; from chunk to chunk it would jump otherwise, which costs the processor's prefetching
 * a start each time (docs/experiments.md).
 *
 * A chunk is referred to by the tree's nodes. `refs` counts all of them, `live` those that a sequence covers; refs > 0 with
 * live == 0 is a retained chunk, which eviction can free. `fill` is the first slot not yet given to a node: slots are handed
 * out in ascending order, so only the node that filled slot fill - 1 can go on in the chunk. Where the first node does not
 * begin with slot 0, `n_copied` of the slots before hold copies of what its ancestors have there (ca_path_branch_copies).
 * `open`: its open groups (layout.h).
 */
#ifndef LIB_CACHE_CHUNK_POOL_H
#define LIB_CACHE_CHUNK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "chunkattn.h"

typedef int32_t ca_chunk_id;

typedef struct ca_chunk {
    int32_t refs, live;
    int32_t fill, n_copied;
    uint32_t open;
    ca_chunk_id next_free;
} ca_chunk;

typedef struct ca_chunk_pool ca_chunk_pool;

/*
 * Reserve address space for as many chunks of n_tiles times tile_bytes as budget_bytes can hold; commit none. *alloc is
 * borrowed until destroy; its `bytes` count against the budget beside the slabs. CATTN_ERR_BUDGET if not even one chunk fits.
 */
cattn_status ca_chunk_pool_create(ca_chunk_pool **pool, ca_alloc *alloc, size_t n_tiles, size_t tile_bytes,
                                  uint64_t budget_bytes);
void ca_chunk_pool_destroy(ca_chunk_pool **pool);

/* Take a free chunk: refs, live, fill, n_copied and open are 0. CATTN_ERR_BUDGET when none is free and no slab may be added;
 * CATTN_ERR_NOMEM. */
cattn_status ca_chunk_pool_get(ca_chunk_pool *pool, ca_chunk_id *id);

/* Commit slabs until n_chunks are free, so that as many gets cannot fail. Errors as get. */
cattn_status ca_chunk_pool_prepare(ca_chunk_pool *pool, size_t n_chunks);

/*
 * Make at most 2 MB of free chunks resident, so that the step that first writes them need not wait until the system has found
 * and cleared memory; a slab is added for it while fewer than n_chunks are free. False: nothing was left to do.
 */
bool ca_chunk_pool_prefault(ca_chunk_pool *pool, size_t n_chunks);

/* Give a chunk with refs == 0 back. */
void ca_chunk_pool_put(ca_chunk_pool *pool, ca_chunk_id id);

ca_chunk *ca_chunk_at(ca_chunk_pool *pool, ca_chunk_id id);
uint32_t ca_chunk_open(const ca_chunk_pool *pool, ca_chunk_id id);

/* First byte of one of a chunk's tiles, 64-byte aligned, stable until the chunk is put back. */
void *ca_chunk_tile(const ca_chunk_pool *pool, ca_chunk_id id, size_t tile);

/* Give slabs without a taken chunk back until it were `bytes` or only n_keep chunks stay free; returns the bytes given back. */
size_t ca_chunk_pool_trim(ca_chunk_pool *pool, size_t bytes, size_t n_keep);

/*
 * Chunks that could be taken now without eviction; of those, the ones in committed slabs; and chunks the budget could hold in
 * all. Only the second does not shrink when other memory grows.
 */
size_t ca_chunk_pool_n_free(const ca_chunk_pool *pool);
size_t ca_chunk_pool_n_committed_free(const ca_chunk_pool *pool);
size_t ca_chunk_pool_capacity(const ca_chunk_pool *pool);

/* Chunks the budget could hold in all if other memory took other_bytes. */
size_t ca_chunk_pool_capacity_beside(const ca_chunk_pool *pool, uint64_t other_bytes);

/* Chunks a slab, and bytes. */
size_t ca_chunk_pool_slab_chunks(const ca_chunk_pool *pool);
size_t ca_chunk_pool_slab_bytes(const ca_chunk_pool *pool);

/* Committed slab bytes, and by how many bytes slabs and other memory, and `more` of that, exceed the budget together. */
size_t ca_chunk_pool_bytes(const ca_chunk_pool *pool);
size_t ca_chunk_pool_excess(const ca_chunk_pool *pool, size_t more);

#endif
