/*
 * What a device's kernels take of a plan: arrays of 32-bit integers in one piece of memory, the image. Plain C, for both sides.
 *
 *   header | position | source | merge_begin | merge | chunk | run | unit | task | chain | part | job
 *
 * Rows are those of the plan, all sections one after the other. A unit is a block of the plan: some rows over one segment, in
 * runs of consecutive chunks. A task is some units in order, for some of their rows: whole chains of units, in which case it
 * finishes its rows itself, or a piece of one chain, whose other pieces are in other tasks. A job is a task for one K/V head,
 * job = task * n_heads + head. A thread block takes one part, a list of jobs; parts have about the same bytes to read.
 *
 * A job leaves one state for each row (and query head of the group) of each of its units. Those of a piece of a chain go to
 * memory, at unit.state + row - unit.row_begin of n_states; all others are the thread block's own, at the same place of
 * n_own_states. Of a chain in pieces the job that comes last, for each K/V head, merges the rows of the chain. A row's states
 * are merged in the order of its list in `merge`, segments ascending, so it does not matter which job that is.
 *
 * All counts are in the image, none in a kernel's arguments: a captured graph goes on to hold when the plan changes.
 */
#ifndef LIB_CUDA_IMAGE_H
#define LIB_CUDA_IMAGE_H

#include <stdint.h>

typedef enum ca_image_array {
    CA_IMAGE_POSITION,    /* [n_rows] of a row in its sequence; where nothing else changed only these do */
    CA_IMAGE_SOURCE,      /* [n_rows] the caller's index of a row */
    CA_IMAGE_MERGE_BEGIN, /* [n_rows + 1] where a row's list begins in merge */
    CA_IMAGE_MERGE,       /* units of each row, in the order in which their states merge */
    CA_IMAGE_CHUNK,       /* physical chunks of the runs */
    CA_IMAGE_RUN,         /* ca_image_run */
    CA_IMAGE_UNIT,        /* ca_image_unit */
    CA_IMAGE_TASK,        /* ca_image_task */
    CA_IMAGE_CHAIN,       /* ca_image_chain: those in pieces */
    CA_IMAGE_PART,        /* [n_parts + 1] where a part's list begins in job */
    CA_IMAGE_JOB,         /* jobs of each part, in the order in which they are done */
    CA_IMAGE_ARRAYS
} ca_image_array;

typedef struct ca_image {
    int32_t n_words; /* of the whole image */
    int32_t n_heads; /* K/V heads */
    int32_t n_states, n_own_states;
    int32_t window, n_kept;      /* as ca_plan_config */
    int32_t n[CA_IMAGE_ARRAYS];  /* elements */
    int32_t at[CA_IMAGE_ARRAYS]; /* first word from the image's beginning on */
} ca_image;

/* Rows that pass over consecutive chunks together. */
typedef struct ca_image_run {
    int32_t row_begin, row_end;
    int32_t first_chunk; /* absolute index */
    int32_t n_chunks;
    int32_t chunk;   /* index of the first one's id */
    int32_t partial; /* some rows may not see all slots, or none: their positions tell */
} ca_image_run;

typedef struct ca_image_unit {
    int32_t row_begin, row_end;
    int32_t run_begin, run_end;
    int32_t state;
} ca_image_unit;

typedef struct ca_image_task {
    int32_t unit_begin, unit_end;
    int32_t row_begin, row_end; /* of its units' rows only these */
    int32_t chain;              /* of which it is a piece; -1: it is whole chains */
} ca_image_task;

typedef struct ca_image_chain {
    int32_t unit_begin, unit_end;
    int32_t row_begin, row_end;
    int32_t n_tasks; /* its pieces */
} ca_image_chain;

#endif
