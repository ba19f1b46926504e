/*
 * The shapes of decode steps that a device run times, and their lists of work items, which are made without the planner.
 * All sequences have the same number of tokens and share the first n_shared.
 */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_RUN_SHAPES_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_RUN_SHAPES_H

#include <cstdint>
#include <string>
#include <vector>

#include "chunkattn/cuda/work_item.h"

struct step_shape {
    const char *name;
    int b, heads, kv_heads;
    int n, n_shared; /* tokens, multiples of 64 */
    bool all;        /* all ways of reading, rather than the usual ones */

    int group() const { return heads / kv_heads; }
    int chunks() const { return n / CA_CUDA_CHUNK; }
    int shared_chunks() const { return n_shared / CA_CUDA_CHUNK; }
};
extern const std::vector<step_shape> step_shapes;
step_shape tiny(step_shape s); /* the same form for the emulation */

/* How K/V are stored and read, as in docs/benchmarks.md. */
enum method { PAGED, PAGED_SHARED, CHUNK };
extern const char *const method_names[];

/* Chunks that a step stores. With shared_storage a shared chunk is stored once, otherwise once for each sequence. */
int stored_chunks(const step_shape &s, bool shared_storage);
int chunk_id(const step_shape &s, bool shared_storage, int row, int chunk);

struct step_lists {
    std::vector<ca_work_item> items;
    std::vector<int32_t> parts, merge_begin, merge;
    int n_states;
};
/*
 * tile_rows: rows of a work item at most. chained: all segments of a row in one block, which needs rows that share nothing or a
 * method other than CHUNK. Work items are assigned to `blocks` blocks, the longest first, each to the block with the fewest
 * chunks.
 */
step_lists make_lists(const step_shape &s, method how, int tile_rows, bool chained, int blocks);
/* Whether every row's chunks are in exactly one work item for each KV head. */
bool covers(const step_shape &s, method how, const step_lists &l);

#endif
