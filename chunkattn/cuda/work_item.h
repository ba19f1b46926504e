/*
 * What the CUDA kernels are launched with: one line for each work item, and one struct of arguments for each kernel. Plain C,
 * for host and device.
 *
 * A work item takes the rows of some tokens, for one KV head, over the chunks of one segment. Its line holds everything that a
 * thread block needs before its first byte of K/V, the ids of the chunks included, so that one load starts it; over foreign
 * pages a second line (ca_work_item_pages) is loaded together with it. The grid is constant: block b works through the work
 * items parts[b] to parts[b + 1] - 1 in order.
 *
 * A work item ends in one of four ways, for each of its rows:
 *
 *   OUTPUT          the row has no other state: it is normalised and written to `out`
 *   KEEP            the next work item of this block takes the same rows over their next segment, and folds onto this one's
 * state carry_out >= 0  the segment goes on in a work item of a later launch: O, M and l of each quarter are saved as they are
 *   otherwise       the state is stored, and the row's counter of arrivals advances; the work item that completes the count
 * merges the row's states in the order of its list
 *
 * Every way gives the same bits: quarters fold in ascending order to a segment's state, and segments fold in ascending order.
 * A work item that folds or keeps begins at its rows' first segment, since ((a + b) + c) is not (a + (b + c)).
 *
 * Everything that changes from step to step is in device memory, so a captured graph stays valid while the workspace does.
 */
#ifndef CHUNKATTN_CUDA_WORK_ITEM_H
#define CHUNKATTN_CUDA_WORK_ITEM_H

#include <stdint.h>

enum {
    CA_CUDA_CHUNK = 64,           /* slots of a chunk: the only chunk size on a device */
    CA_CUDA_SEGMENT_CHUNKS = 8,   /* chunks of a segment, over which one state is summed */
    CA_CUDA_MAX_TOKENS = 1 << 25, /* of a sequence: 512 for each value of ca_work_item.segment */
    CA_CUDA_QUARTERS = 4,         /* of a chunk: 16 slots each; each has its own sum within a segment */
    CA_CUDA_LOG2_QUARTER = 4,     /* log2 of the slots of a quarter */
    CA_CUDA_CARRY = 16,           /* floats of a carried quarter besides O: M, 7 unused, l of 8 slot classes */
};

enum {
    CA_WORK_ITEM_OUTPUT = 1,
    CA_WORK_ITEM_KEEP = 2,
};

typedef struct ca_work_item {
    int32_t row;      /* the first of its tokens' rows, which are consecutive in the plan */
    uint16_t head;    /* KV head */
    uint8_t n_tokens; /* n_tokens x group rows: see ca_device_plan_config for their limits */
    uint8_t flags;    /* CA_WORK_ITEM_* */
    uint16_t segment; /* absolute index: positions from 512 segment on */
    uint8_t n_chunks; /* 0 to 8, ascending; a segment's other chunks are hidden from all rows */
    uint8_t partial;  /* bit i: some row does not see all slots of chunk i of the list */
    uint32_t order;   /* 4 bits for each chunk of the list, the first one's lowest: its index in the segment */
    /* States and carried states of the first token; the other tokens' follow. */
    int32_t state;                         /* to store; not with OUTPUT or carry_out */
    int32_t fold;                          /* to fold onto: what this block's previous work item kept, not `state`; -1: none */
    int32_t carry_in, carry_out;           /* -1: none */
    int32_t chunk[CA_CUDA_SEGMENT_CHUNKS]; /* ids of the list's chunks */
} ca_work_item;

/*
 * About the time that a thread block takes for a work item, in quarters of what it takes for a chunk and up to 8 rows. On an
 * H200 a chunk and 16 or 32 rows, which are two or four tiles, take 1.5 and 2.5 times as long, and the ends of a work item, the
 * merge included, as long as six chunks.
 */
static inline int64_t ca_work_cost(int32_t n_chunks, int32_t n_rows) {
    int32_t tiles = 1;
    while (8 * tiles < n_rows) tiles *= 2;
    return (int64_t)(n_chunks + 6) * (2 + 2 * tiles);
}

/* A second line of each work item over foreign pages: where its chunks lie in them. */
typedef struct ca_work_item_pages {
    /* [chunk of the list][quarter]: page * quarters of a page + index in the page; -1: behind the sequence's last page. */
    int32_t quarter[CA_CUDA_SEGMENT_CHUNKS * CA_CUDA_QUARTERS];
} ca_work_item_pages;

/* A tensor of the caller: [rows][heads][d], d contiguous; strides in bytes, multiples of 16. */
typedef struct ca_cuda_view {
    void *data;
    int64_t row_stride, head_stride;
    int32_t type; /* cattn_type: f32, f16, bf16 */
    int32_t pad;
} ca_cuda_view;

/* K or V of one layer in the caller's pages, d contiguous; strides in bytes, multiples of 16. */
typedef struct ca_cuda_page_view {
    const unsigned char *data; /* page 0, slot 0, KV head 0 */
    int64_t page_stride, slot_stride, head_stride;
} ca_cuda_page_view;

/* Foreign pages (chunkattn_pages.h), from which the kernels *_pages_* read instead of from tiles. */
typedef struct ca_cuda_pages {
    const ca_work_item_pages *items; /* of the list that is launched */
    ca_cuda_page_view k, v;
    int32_t log2_quarters; /* of the quarters of a page, 1 to 8 */
    int32_t pad;
} ca_cuda_pages;

/* Of one layer. Arrays named [rows] go by the plan's rows, one a token. */
typedef struct ca_cuda_attend_args {
    const ca_work_item *items;
    const int32_t *parts;       /* [blocks + 1] */
    const int32_t *position;    /* [rows] */
    const int32_t *source;      /* [rows] the caller's row, of q, out and lse */
    const int32_t *merge_begin; /* [rows + 1] where a row's list of states begins in merge; ascending segments */
    const int32_t *merge;
    const void *kv;      /* the layer's tiles in chunk 0, KV head 0 */
    int64_t chunk_bytes; /* from chunk to chunk */
    float *o;            /* [states][KV heads][group][d] */
    float *ml;           /* [states][KV heads][group][2]: M, l */
    float *carry;        /* [carried states][KV heads][group][quarters][d + CA_CUDA_CARRY] */
    uint32_t *arrivals;  /* [rows][KV heads]; zero between launches */
    ca_cuda_view q, out; /* of query heads */
    float *lse;          /* [caller's rows][query heads], base 2; NULL: not wanted */
    const float *slopes; /* [query heads] ALiBi, base 2; NULL: none */
    const float *sinks;  /* [query heads] sink logits, base 2; NULL: none */
    float scale_log2;    /* multiplies q k; base 2 */
    float softcap;       /* base 2; 0: none */
    int32_t n_kv_heads;
    int32_t group;          /* query heads of a KV head, 1 to 16 */
    uint32_t group_inverse; /* ceil(2^16 / group): row / group is row * group_inverse >> 16 below 64 rows */
    int32_t window;         /* positions that a row sees; 0: all */
    int32_t n_sink_tokens;  /* which any window sees */
    ca_cuda_pages pages;    /* of foreign pages, in place of kv and chunk_bytes */
} ca_cuda_attend_args;

/* A step's k and v on their way into the tiles of one layer. */
typedef struct ca_cuda_write_args {
    const int32_t *n_rows;   /* one number in device memory */
    const int32_t *source;   /* [rows] the caller's row */
    const int32_t *position; /* [rows]: the slot is position % 64 */
    const int32_t *chunk;    /* [rows] chunk of the row's own token */
    void *kv;                /* as above */
    int64_t chunk_bytes;
    ca_cuda_view k, v; /* of KV heads */
    int32_t n_kv_heads;
} ca_cuda_write_args;

/* Slots [begin, end) of `from` to the same slots of `to`, in all layers and KV heads. */
typedef struct ca_cuda_copy {
    int32_t from, to, begin, end;
} ca_cuda_copy;

typedef struct ca_cuda_copy_args {
    const int32_t *n_copies;    /* one number in device memory */
    const ca_cuda_copy *copies; /* carried out in their order: each may read what one before it wrote */
    void *kv;                   /* chunk 0 */
    int64_t chunk_bytes;
    int32_t n_tiles; /* pairs of tiles in a chunk: layers x KV heads */
} ca_cuda_copy_args;

#endif
