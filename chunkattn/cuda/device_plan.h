/*
 * A plan in the form that the kernels read: work item lines (work_item.h), and the arrays that they refer to, in one image of
 * 32-bit words. The host keeps the image, and knows which of its words the device's copy lacks.
 *
 *   header | position | chunk | source | merge_begin | merge | parts of each list | work items of each list | pages of each
 * list
 *
 * A block of the plan becomes one work item for each KV head and set of rows that pass over the same chunks:
 *
 *   c = 64, rows 0 to 15 in a segment:   x0 x1 x2, then row 0: y3, row 1: z3 z4, ...
 *
 *     list "prefill" or "decode", by the number of rows      rows 0 to 15 over x0 x1 x2, whose sums are carried
 *     the same, "carried": a launch behind it                row 0 over y3, row 1 over z3 z4, ...: each goes on from the sums
 *
 * So the chunks of a segment that several rows share are read once up to where they part. They part once: rows that part again
 * in the same segment read what they still have in common for themselves. Nothing is carried where that moves more bytes.
 *
 * A list is one launch. Its thread blocks have work items of about the same cost, in the order of the plan. Consecutive
 * segments of the same rows stay in one thread block from the first on, as long as they cost no more than half of its share:
 * their states fold at once and need no memory of their own.
 *
 * One thread at a time may use a ca_device_plan. No function touches a device.
 */
#ifndef CHUNKATTN_CUDA_DEVICE_PLAN_H
#define CHUNKATTN_CUDA_DEVICE_PLAN_H

#include "chunkattn/base/array.h"
#include "chunkattn/cache/plan.h"
#include "work_item.h"

/* Lists of work items, in the order of their launches. */
typedef enum ca_work_list {
    CA_LIST_PREFILL,
    CA_LIST_DECODE,
    CA_LIST_PREFILL_CARRIED,
    CA_LIST_DECODE_CARRIED,
    CA_N_LISTS
} ca_work_list;

/* Whether a list's work items take so few rows that the decode kernel runs them. */
static inline bool ca_list_decodes(int list) { return list % 2 == CA_LIST_DECODE; }

/* The arrays, in their order in the image. Each begins at a multiple of 128 bytes. */
typedef enum ca_image_array {
    CA_IMAGE_N_ROWS,      /* [1] */
    CA_IMAGE_POSITION,    /* [rows] position of each row in its sequence */
    CA_IMAGE_CHUNK,       /* [rows] chunk of each row's own token; empty with a page source */
    CA_IMAGE_SOURCE,      /* [rows] the caller's index of each row */
    CA_IMAGE_MERGE_BEGIN, /* [rows + 1] where each row's list of states begins in merge */
    CA_IMAGE_MERGE,       /* the states of each row that are merged, segments ascending */
    CA_IMAGE_PARTS,       /* [blocks + 1] of the first list, then of the others: where each thread block's work items begin */
    CA_IMAGE_ITEMS = CA_IMAGE_PARTS + CA_N_LISTS, /* ca_work_item, likewise */
    CA_IMAGE_PAGES =
        CA_IMAGE_ITEMS + CA_N_LISTS, /* ca_work_item_pages of each work item, likewise; empty without a page source */
    CA_IMAGE_ARRAYS = CA_IMAGE_PAGES + CA_N_LISTS
} ca_image_array;

enum {
    CA_CUDA_DECODE_ROWS = 32,        /* the most rows (tokens x query heads) of a work item for the decode kernel */
    CA_CUDA_PREFILL_ROWS = 64,       /* and of whole tokens for a warp group of a prefill kernel */
    CA_CUDA_MAX_PREFILL_TOKENS = 128 /* the most tokens of a work item for any prefill kernel: one row each, two warp groups */
};

/* Where the plan's chunks lie if they consist of foreign pages. */
typedef struct ca_page_source {
    /* The places of a chunk's quarters, as in ca_work_item_pages. `chunk` is an id from the plan. */
    void (*find)(const void *ctx, ca_chunk_id chunk, int32_t places[CA_CUDA_QUARTERS]);
    const void *ctx;
} ca_page_source;

typedef struct ca_device_plan_config {
    int32_t n_heads; /* KV heads */
    int32_t group;   /* query heads of each */
    int32_t head_dim;
    int32_t prefill_tokens;                /* the most tokens of a work item for the prefill kernel */
    int32_t prefill_blocks, decode_blocks; /* thread blocks of a launch */
    int64_t tile_bytes;                    /* of a chunk's K and V for one KV head */
    const ca_page_source *source;          /* NULL: chunks are the library's own */
} ca_device_plan_config;

/* A range of the image, in words. */
typedef struct ca_image_range {
    size_t at, n;
} ca_image_range;

/* A work item before it is assigned to a thread block: for all KV heads. */
typedef struct ca_work_draft {
    ca_work_item work; /* of head 0 */
    int8_t list;
    bool from_first; /* it takes its rows' first segment, or may be linked to one that does */
    bool linked;     /* it folds onto the work item before it */
    int32_t before;  /* the draft of the same rows' previous segment, if it may be linked to that; else -1 */
    int32_t next;    /* the draft that is linked to it; else -1 */
    int64_t cost;    /* ca_work_cost; in a chain, the sum over its drafts up to this one */
} ca_work_draft;

typedef struct ca_device_plan {
    int32_t *image; /* owned, [image_words]; NULL before the first build */
    size_t image_words;
    size_t at[CA_IMAGE_ARRAYS];  /* first word of each array */
    size_t n[CA_IMAGE_ARRAYS];   /* its elements */
    int32_t n_states, n_carried; /* states and carried states, for each KV head */
    uint32_t lists;              /* bit i: list i has work items */
    bool moved;                  /* the last build allocated the image anew: the device's copy needs new memory */
    /* Private. */
    bool valid;   /* the image is that of the plan's last update */
    bool rebuilt; /* since the last ca_device_plan_take_changes, more than positions and chunks may have changed */
    ca_device_plan_config config;
    ca_alloc *alloc;
    int32_t *sent;                      /* what the device's copy holds */
    size_t n_sent[CA_IMAGE_ARRAYS];     /* elements of each array that have been sent to it */
    size_t capacity[CA_IMAGE_ARRAYS];   /* in elements */
    CA_ARRAY(ca_work_draft) drafts;     /* during a build, as the next three */
    CA_ARRAY(int32_t) last;             /* [rows] the last draft of each row; then the number of its states */
    CA_ARRAY(int32_t) slot;             /* scratch of the assignment: of each KV head, or of each thread block */
    CA_ARRAY(ca_work_item_pages) pages; /* [drafts] where each draft's chunks lie; empty without a page source */
} ca_device_plan;

/* Allocates nothing. alloc is borrowed until free. */
void ca_device_plan_init(ca_device_plan *dp, const ca_device_plan_config *config, ca_alloc *alloc);
void ca_device_plan_free(ca_device_plan *dp);

/*
 * Bring the image up to date but for CA_IMAGE_CHUNK, which the caller fills; to be called once after each update of the same
 * plan. It allocates only if a plan is larger than any before. CATTN_ERR_NOMEM: the next call builds everything.
 */
cattn_status ca_device_plan_update(ca_device_plan *dp, const ca_plan *plan);

/* An array of the image. */
static inline int32_t *ca_device_plan_array(const ca_device_plan *dp, int array) { return dp->image + dp->at[array]; }

/*
 * The ranges that the device's copy lacks, at most one for each array; returns their number. The caller must send them: they
 * count as sent from now on.
 */
int32_t ca_device_plan_take_changes(ca_device_plan *dp, ca_image_range changes[CA_IMAGE_ARRAYS]);

/* The device's copy is lost: everything must be sent again. */
void ca_device_plan_forget(ca_device_plan *dp);

#endif
