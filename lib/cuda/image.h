/*
 * The image of a plan: the arrays that a device's kernels read, in one piece of memory. Plain C, for host and device.
 *
 *   header | position | source | merge_begin | merge | chunk | item | block | task | chain | queue | head_task
 *
 * The words are those of lib/cache/plan.h. The image differs from a plan as follows.
 *
 *   rows        are numbered through all sections, in the plan's order; so are blocks, items and chunks.
 *   head task   is a task for one KV head, with the number task * n_heads + head.
 *   queue       is the list of head tasks that one thread block runs, in order. All queues read and write about as many bytes.
 *   chain       is stored only if it is spread.
 *
 * A head task leaves one state for each row and query head of the GQA group in each of its blocks. The state of a block's row
 * is at block.state + row - block.row_begin: of n_states in memory if the chain is spread, and of n_chain_states that each
 * thread block has for itself if it is not.
 *
 * A head task over whole chains merges the states of its rows. Of a spread chain, the head task that finishes last merges them,
 * for each KV head. A row's states are merged in the order of its list in `merge`, segments ascending, so the result does not
 * depend on which head task that is.
 *
 * All counts are in the image and none is a kernel argument, so a captured graph stays valid when the plan changes.
 */
#ifndef LIB_CUDA_IMAGE_H
#define LIB_CUDA_IMAGE_H

#include <stdint.h>

/* The arrays, in their order in the image. Each begins at a multiple of 128 bytes. */
typedef enum ca_image_array {
    CA_IMAGE_POSITION,    /* int32_t [n_rows]: position of each row in its sequence */
    CA_IMAGE_SOURCE,      /* int32_t [n_rows]: the caller's index of each row */
    CA_IMAGE_MERGE_BEGIN, /* int32_t [n_rows + 1]: where each row's list begins in merge */
    CA_IMAGE_MERGE,       /* int32_t: blocks of each row, in the order in which their states merge */
    CA_IMAGE_CHUNK,       /* int32_t: ids of the items' chunks */
    CA_IMAGE_ITEM,        /* ca_image_item */
    CA_IMAGE_BLOCK,       /* ca_image_block */
    CA_IMAGE_TASK,        /* ca_image_task */
    CA_IMAGE_CHAIN,       /* ca_image_chain: the spread chains */
    CA_IMAGE_QUEUE,       /* int32_t [n_queues + 1]: where each queue begins in head_task */
    CA_IMAGE_HEAD_TASK,   /* int32_t [n_tasks * n_heads]: head tasks, queue by queue */
    CA_IMAGE_ARRAYS
} ca_image_array;

/* The header, at the image's beginning. */
typedef struct ca_image {
    int32_t n_words;               /* of the whole image, 4 bytes each */
    int32_t n_heads;               /* KV heads */
    int32_t n_states;              /* rows over all blocks of the spread chains */
    int32_t n_chain_states;        /* rows over all blocks of the largest other chain */
    int32_t window, n_sink_tokens; /* as in ca_plan_config */
    int32_t n[CA_IMAGE_ARRAYS];    /* elements of each array */
    int32_t at[CA_IMAGE_ARRAYS];   /* first word of each array, counted from the image's beginning */
} ca_image;

/* As ca_item. */
typedef struct ca_image_item {
    int32_t row_begin, row_end;
    int32_t first_chunk; /* absolute index */
    int32_t n_chunks;
    int32_t chunk;   /* index of the first chunk's id */
    int32_t partial; /* some rows may not see all slots, or none; their positions say which */
} ca_image_item;

/* As ca_block. */
typedef struct ca_image_block {
    int32_t row_begin, row_end;
    int32_t item_begin, item_end;
    int32_t state; /* index of the first row's state */
} ca_image_block;

/* As ca_plan_task: some blocks, and the rows that the task processes in them. */
typedef struct ca_image_task {
    int32_t block_begin, block_end;
    int32_t row_begin, row_end;
    int32_t chain; /* index of the spread chain that the blocks belong to; -1: they are whole chains */
} ca_image_task;

typedef struct ca_image_chain {
    int32_t block_begin, block_end;
    int32_t row_begin, row_end; /* all rows of the blocks */
    int32_t n_tasks;            /* tasks over which the chain is spread */
} ca_image_chain;

#endif
