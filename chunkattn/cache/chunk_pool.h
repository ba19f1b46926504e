/*
 * Chunks of K/V by id, in one reserved range of addresses that is committed, and returned to the system, slab by slab, within a
 * byte budget.
 *
 * A chunk has one tile for each layer and KV head (here K and V together; chunk_layout.h), which are not neighbours in memory.
 * A slab is
 *
 *   [tiles of a chunk][chunks of the slab][bytes of the tile]
 *
 * Ids are handed out in ascending order, so the chunks of a prompt are usually consecutive, and a kernel that passes over the
 * tiles of one head in them reads consecutive memory. Otherwise it would jump from chunk to chunk, and the processor's
 * prefetcher would have to start anew each time (docs/experiments.md).
 *
 * The nodes of the tree refer to chunks. `refs` counts them, and `live` counts those of them that a sequence covers. A chunk
 * with refs > 0 and live == 0 is retained, and can be evicted; a committed slab without a live chunk can be emptied and
 * returned. `fill` is the first slot that no node uses yet; slots are used in ascending order, so only the node that uses slot
 * fill - 1 can continue in the chunk. If the chunk's first node does not begin with slot 0, the first n_copied slots hold
 * copies of what its ancestors have in these slots (ca_path_branch_copies). `open` is the set of open slot groups (layout.h).
 *
 * One thread at a time may use a pool, except that ca_chunk_open and ca_chunk_tile may be called from several threads while no
 * thread changes it.
 */
#ifndef CHUNKATTN_CACHE_CHUNK_POOL_H
#define CHUNKATTN_CACHE_CHUNK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk_layout.h"

typedef int32_t ca_chunk_id;

typedef struct ca_chunk {
    int32_t refs, live;     /* nodes */
    int32_t fill, n_copied; /* slots */
    uint32_t open;          /* ca_slot_group_bit */
    uint16_t n_uses;        /* sequences that have used its tokens when it was full, as the history says (reuse.h) */
    uint16_t account;       /* for which it counts while it is retained (evict.c) */
    uint32_t prefix;        /* when it was full: the hash of all tokens up to its end (reuse.h); 0: not known */
    ca_chunk_id next;       /* of a free chunk: private; otherwise -1 */
} ca_chunk;

typedef struct ca_chunk_pool ca_chunk_pool;

/*
 * Reserve addresses for as many chunks of chunk_bytes, a multiple of 64, as budget_bytes can hold, and commit none. *alloc is
 * borrowed until destroy; its `bytes` count against the budget together with the slabs. CATTN_ERR_BUDGET if not even one slab
 * fits; CATTN_ERR_NOMEM. Errors leave *pool NULL.
 */
cattn_status ca_chunk_pool_create(ca_chunk_pool **pool, ca_alloc *alloc, size_t chunk_bytes, uint64_t budget_bytes);

/*
 * The same for chunks whose memory is elsewhere, all of it from the beginning. The pool keeps only their states, other memory
 * does not count against the budget, ca_chunk_pool_prefault has nothing to do, and ca_chunk_tile must not be called.
 */
cattn_status ca_chunk_pool_create_elsewhere(ca_chunk_pool **pool, ca_alloc *alloc, size_t chunk_bytes, uint64_t budget_bytes);

/*
 * Change the budget, which may not exceed that of the creation. Slabs that exceed it stay committed until they are trimmed.
 */
void ca_chunk_pool_set_budget(ca_chunk_pool *pool, uint64_t budget_bytes);

/* Return all memory and set *pool to NULL. *pool may be NULL. */
void ca_chunk_pool_destroy(ca_chunk_pool **pool);

/*
 * Take a free chunk, whose refs, live, fill, n_copied, open, n_uses and account are 0. CATTN_ERR_BUDGET if no chunk is free and
 * the budget has no room for another slab; CATTN_ERR_NOMEM if the system gives no memory.
 */
cattn_status ca_chunk_pool_get(ca_chunk_pool *pool, ca_chunk_id *id);

/* Commit slabs until n_chunks chunks are free, so that taking these cannot fail. Errors as ca_chunk_pool_get. */
cattn_status ca_chunk_pool_prepare(ca_chunk_pool *pool, size_t n_chunks);

/*
 * Make at most 2 MB of free chunks resident, so that the step that first writes to them need not wait until the system has
 * found and cleared memory. A slab is committed for this if fewer than n_chunks chunks are free. Other threads may use chunks
 * that are taken meanwhile. False if nothing was left to do, or the system has no memory or cannot do it (Linux before 5.14).
 */
bool ca_chunk_pool_prefault(ca_chunk_pool *pool, size_t n_chunks);

/* Free a chunk with refs == 0. */
void ca_chunk_pool_put(ca_chunk_pool *pool, ca_chunk_id id);

/* The state of a chunk, valid until the pool is destroyed, and its open slot groups. */
ca_chunk *ca_chunk_at(ca_chunk_pool *pool, ca_chunk_id id);
uint32_t ca_chunk_open(const ca_chunk_pool *pool, ca_chunk_id id);

/* First byte of one of a chunk's tiles, a multiple of 64, valid until the chunk is freed. */
void *ca_chunk_tile(const ca_chunk_pool *pool, ca_chunk_id id, ca_tile_at tile);

/*
 * Return empty slabs to the system until `bytes` bytes are returned, or until another one would leave fewer than n_keep free
 * chunks in committed slabs. Returns the number of bytes returned.
 */
size_t ca_chunk_pool_trim(ca_chunk_pool *pool, size_t bytes, size_t n_keep);

/* One node more or fewer with a covering sequence refers to the chunk. True if it became live or ceased to be. */
bool ca_chunk_cover(ca_chunk_pool *pool, ca_chunk_id id);
bool ca_chunk_uncover(ca_chunk_pool *pool, ca_chunk_id id);

/* Committed slabs without a live chunk. */
size_t ca_chunk_pool_n_idle_slabs(const ca_chunk_pool *pool);

/*
 * Chunks that could be taken without eviction if other memory grew by `more` bytes; chunks that can be taken now, in committed
 * slabs; and all chunks that the budget could hold. Only the second does not shrink when other memory grows.
 */
size_t ca_chunk_pool_n_free(const ca_chunk_pool *pool, size_t more);
size_t ca_chunk_pool_n_committed_free(const ca_chunk_pool *pool);
size_t ca_chunk_pool_capacity(const ca_chunk_pool *pool);

/* All chunks that the budget could hold if other memory grew by `more` bytes. */
size_t ca_chunk_pool_capacity_with(const ca_chunk_pool *pool, size_t more);

/* All chunks that the budget of the creation could hold if other memory had other_bytes. */
size_t ca_chunk_pool_capacity_beside(const ca_chunk_pool *pool, uint64_t other_bytes);

/* Chunks of a slab, and its bytes. */
size_t ca_chunk_pool_slab_chunks(const ca_chunk_pool *pool);
size_t ca_chunk_pool_slab_bytes(const ca_chunk_pool *pool);

/* Bytes of other memory that count against the budget. */
size_t ca_chunk_pool_other_bytes(const ca_chunk_pool *pool);

/* Bytes of committed slabs, and by how many bytes these, other memory and `more` other bytes exceed the budget together. */
size_t ca_chunk_pool_bytes(const ca_chunk_pool *pool);
size_t ca_chunk_pool_excess(const ca_chunk_pool *pool, size_t more);

#endif
