/* Executing K/V commands on the CPU. */
#ifndef CHUNKATTN_ATTN_KV_COPY_H
#define CHUNKATTN_ATTN_KV_COPY_H

#include "chunkattn/cache/chunk_pool.h"
#include "chunkattn/cache/kv_commands.h"

/* A K tile with the V tile behind it: where they are, and which slot groups are open. */
typedef struct ca_kv_tile {
    void *data;
    uint32_t open;
} ca_kv_tile;

/*
 * Copy slots [begin, end) of a K tile and the V tile behind it to the same slots of others, open or closed as each says.
 */
void ca_kv_copy_tile(const ca_layout *l, ca_kv_tile dst, ca_kv_tile src, int begin, int end);

/* Transpose a slot group of a K tile: open becomes closed, closed open. */
void ca_kv_transpose(const ca_layout *l, void *k_tile, int group);

/*
 * Carry out n commands in their order, in one KV head of one layer. Different heads and layers are independent, so that
 * several threads may do this at once.
 */
void ca_kv_execute(const ca_chunk_layout *layout, const ca_chunk_pool *pool, int32_t layer, int32_t head,
                   const ca_kv_command *commands, size_t n);

#endif
