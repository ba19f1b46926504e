/*
 * The structs of chunkattn.h and chunkattn_cuda.h as version 0.1.0 had them, never to be edited: programs that were compiled
 * with them must go on working. A later version gets a file of its own.
 */
#ifndef TESTS_CHUNKATTN_API_ABI_0_1_0_H
#define TESTS_CHUNKATTN_API_ABI_0_1_0_H

#include <stddef.h>
#include <stdint.h>

typedef struct abi_0_1_0_error {
    int code;
    int32_t entry;
    char message[248];
} abi_0_1_0_error;

typedef struct abi_0_1_0_allocator {
    void *(*alloc)(void *ctx, size_t size, size_t align);
    void (*free)(void *ctx, void *ptr, size_t size, size_t align);
    void *ctx;
} abi_0_1_0_allocator;

typedef struct abi_0_1_0_parallel {
    void (*run)(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg);
    void *ctx;
} abi_0_1_0_parallel;

typedef struct abi_0_1_0_config {
    size_t struct_size;
    int32_t n_layers;
    int32_t n_heads;
    int32_t n_kv_heads;
    int32_t head_dim;
    int32_t head_dim_v;
    int32_t chunk_size;
    int kv_type;
    int sharing;
    int retention;
    float scale;
    uint64_t budget_bytes;
    int32_t n_threads;
    const char *level;
    abi_0_1_0_allocator allocator;
    abi_0_1_0_parallel parallel;
    const int32_t *windows;
    int32_t n_sink_tokens;
    float softcap;
    const float *sink_logits;
    const float *alibi_slopes;
    int32_t cuda_device;
    int32_t reserved;
} abi_0_1_0_config;

typedef struct abi_0_1_0_stats {
    size_t struct_size;
    uint64_t budget_bytes;
    uint64_t bytes_in_use;
    uint64_t bytes_peak;
    uint64_t chunk_bytes;
    uint64_t chunks_live;
    uint64_t chunks_live_peak;
    uint64_t chunks_retained;
    uint64_t chunks_reserved;
    uint64_t chunks_capacity;
    uint64_t chunks_unshared;
    uint64_t chunks_unshared_peak;
    uint64_t tokens_stored;
    uint64_t tokens_referenced;
    uint64_t tokens_joined;
    uint64_t tokens_matched;
    uint64_t tokens_evicted;
    uint64_t n_seqs;
    uint64_t n_nodes;
} abi_0_1_0_stats;

typedef struct abi_0_1_0_fit_request {
    size_t struct_size;
    int64_t n_tokens;
    int64_t n_seqs;
    int64_t reserve_tokens;
    uint64_t headroom_bytes;
} abi_0_1_0_fit_request;

typedef struct abi_0_1_0_fit_result {
    size_t struct_size;
    int64_t max_reserve_tokens;
    uint64_t bytes_needed;
    uint64_t bytes_available;
} abi_0_1_0_fit_result;

typedef struct abi_0_1_0_node_info {
    size_t struct_size;
    uint64_t id;
    uint64_t parent_id;
    int32_t depth;
    uint32_t domain;
    int64_t first_pos;
    int64_t n_tokens;
    int64_t n_ready;
    int64_t n_chunks;
    const int32_t *tokens;
    uint64_t first_seq;
    uint64_t n_seqs;
} abi_0_1_0_node_info;

typedef struct abi_0_1_0_join_options {
    size_t struct_size;
    uint32_t domain;
    int64_t reserve_tokens;
} abi_0_1_0_join_options;

typedef struct abi_0_1_0_join_result {
    int64_t n_matched;
    int64_t n_ready;
} abi_0_1_0_join_result;

typedef struct abi_0_1_0_seq_info {
    size_t struct_size;
    uint32_t domain;
    int64_t n_tokens;
    int64_t n_ready;
    int64_t n_reserved;
} abi_0_1_0_seq_info;

typedef struct abi_0_1_0_entry {
    uint64_t seq;
    int64_t max_rows;
    int64_t first_pos;
    int64_t n_rows;
} abi_0_1_0_entry;

typedef struct abi_0_1_0_view {
    void *data;
    int type;
    int64_t row_stride;
    int64_t head_stride;
} abi_0_1_0_view;

typedef struct abi_0_1_0_cuda_device_info {
    size_t struct_size;
    char name[64];
    int32_t major;
    int32_t minor;
    int32_t n_processors;
    uint64_t memory_bytes;
} abi_0_1_0_cuda_device_info;

#endif
