/*
 * The plan of a step: flat work lists, made from the tree and the batch. Kernels on any device see the plan and nothing else of
 * either.
 *
 *   row       one token of a sequence in the batch
 *   section   the part of the plan for the rows below one child of the tree's root
 *   segment   consecutive positions over which one state of a row is summed: 1024 on a CPU, 512 on a device
 *   block     up to max_rows rows of a section over one segment
 *   chain     the blocks of the same rows, segments ascending
 *   item      rows of a block that pass over consecutive chunks together
 *   partial   an item is partial if some of its rows do not see all slots of its chunks
 *   task      what one thread does at a time for one KV head: some whole chains, a slice of one, or some blocks of one
 *   slice     the rows of a chain that one of several tasks processes
 *   spread    a chain is spread if its blocks are in several tasks
 *   cost      estimated time; the unit is one query head that passes over one chunk
 *
 * Rows are in the depth-first order of their sequences, so the rows that a node covers are one range. A row passes over each
 * absolute chunk of its context exactly once, in ascending order. A chunk that ends inside a node is processed there, for all
 * rows that the node covers (chunk-first). The last chunk of a node, if it does not end there, is processed there only for the
 * sequences that end at the node. If a chunk begins in an ancestor, the node holds all of it nevertheless, as a copy if needed
 * (tree.h):
 *
 *   c = 4   [0..5 | x0 x1]                    x0: the rows of both sequences, together
 *             |-- [6..9 | x1 x2]   row at 9   x1, then x2
 *             '-- [6..7 | y0]      row at 7   y0, whose slots 0..1 are copies of those of x1
 *
 * In the sharing modes that read nothing together, each sequence has items of its own.
 *
 * Under a sliding window a row passes over the chunks that its window touches and over those of the sink tokens; chunks that no
 * row sees are left out. Layers with the same window and shape share a plan. An item whose chunk a window begins in is always
 * partial, so a section holds until the window begins in another chunk.
 *
 * A block's items are processed in order for each KV head, and a row has one state in each block. A thread that has whole
 * chains, or a slice of one, merges the states of its rows itself, so the states stay in its cache. Only if the rows are too
 * few for the threads is a chain spread; its rows are then merged when all tasks are done.
 *
 * A section is rebuilt when its part of the tree, its rows, or the chunks in which they end have changed. Otherwise only its
 * positions are refreshed. If neither the tree nor the list of entries has changed, an update looks at nothing but positions.
 *
 * One thread at a time may use the plans of a tree, and it must be the thread that uses the tree.
 */
#ifndef CHUNKATTN_CACHE_PLAN_H
#define CHUNKATTN_CACHE_PLAN_H

#include "chunkattn/base/array.h"
#include "tree.h"

/* Rows of a block that pass over consecutive chunks together. */
typedef struct ca_item {
    int32_t row_begin, row_end; /* of the section */
    int32_t first_chunk;        /* absolute index */
    int32_t n_chunks;
    int32_t chunk; /* index of the first chunk's id in section.chunks */
    bool partial;  /* some rows may not see all slots, or none; their positions say which */
} ca_item;

/* Rows of a section over one segment. Rows between the first and the last may see nothing of it. */
typedef struct ca_block {
    int32_t row_begin, row_end; /* of the section */
    int32_t segment;
    int32_t item_begin, item_end; /* in section.items */
    int32_t chain_end;            /* index in section.blocks after the last block of its chain */
    bool spread;                  /* its chain is spread */
    int64_t state; /* index of its first row's state: among those of its chain, or among the plan's n_states if spread */
    double cost;   /* for one KV head */
} ca_block;

/* A sequence of the batch in its section. */
typedef struct ca_section_seq {
    ca_seq *seq;
    int32_t row_begin, n_rows;
    int32_t entry; /* index of the step's entry */
} ca_section_seq;

typedef struct ca_section {
    uint64_t root_id, version; /* of the child of the tree's root, when the section was built */
    int32_t n_rows;
    int32_t max_segments;          /* the largest number of blocks of a row */
    double cost;                   /* of all blocks */
    bool stale_states;             /* block.state, block.spread and n_chain_states must be set anew (tasks.c) */
    int64_t n_chain_states;        /* the largest number of rows over all blocks of a chain */
    CA_ARRAY(ca_section_seq) seqs; /* depth-first, as the rows */
    CA_ARRAY(int32_t) source;      /* [n_rows] the caller's index of each row */
    CA_ARRAY(int64_t) position;    /* [n_rows] position of each row in its sequence */
    CA_ARRAY(int32_t) first_block; /* [n_rows + 1] where each row's blocks begin in row_blocks */
    CA_ARRAY(int32_t) row_blocks;  /* the blocks of each row, segments ascending */
    CA_ARRAY(ca_item) items;       /* block by block */
    CA_ARRAY(ca_chunk_id) chunks;  /* ids of the items' chunks */
    CA_ARRAY(ca_block) blocks;     /* chain by chain */
} ca_section;

/* A block, by the index of its section and its index there. */
typedef struct ca_block_at {
    int32_t section, block;
} ca_block_at;

/* What one thread does at a time for one KV head: the blocks from `begin` up to, but not including, `end`. */
typedef struct ca_plan_task {
    ca_block_at begin, end;
    int32_t row_begin, row_end; /* of the section, if it is a slice; else 0 and INT32_MAX */
    double cost;
} ca_plan_task;

/* One sequence of the batch. */
typedef struct ca_plan_entry {
    ca_seq *seq;
    int64_t first_pos; /* position of its first row */
    int32_t n_rows;    /* may be 0 */
    int32_t row;       /* the caller's index of its first row */
} ca_plan_entry;

/* An entry as the last update planned it. */
typedef struct ca_plan_last {
    cattn_seq id;
    ca_seq *seq; /* valid as long as the tree's version is the same */
    int64_t first_pos;
    int64_t *position; /* of its first row, in its section; NULL if it has no rows */
    int32_t n_rows, row;
} ca_plan_last;

typedef struct ca_plan_config {
    int32_t shape;         /* of the layers (ca_chunk_layout) whose attention follows the plan */
    bool together;         /* rows of different sequences share items: chunk-first */
    int32_t group;         /* query heads of a GQA group */
    int32_t max_rows;      /* of a block */
    int32_t min_slice;     /* query heads (rows times group) below which a chain is not sliced further */
    double chunk_cost;     /* cost of a chunk for one KV head besides the arithmetic of the query heads */
    int32_t min_tasks;     /* tasks wanted for each KV head, so that the threads finish together */
    int32_t task_step;     /* as many tasks, or a multiple, give each thread the same number over all KV heads */
    int32_t log2_segment;  /* of the positions of a segment, which are whole chunks */
    int32_t window;        /* positions that a row sees, its own the last; 0: all */
    int32_t n_sink_tokens; /* first positions, which every row sees under any window */
} ca_plan_config;

typedef struct ca_plan {
    CA_ARRAY(ca_section *) sections;
    CA_ARRAY(ca_plan_task) tasks; /* in descending order of cost */
    int64_t n_states;             /* rows over all blocks of spread chains */
    int64_t n_chain_states;       /* the largest number of rows over all blocks of another chain */
    int32_t max_segments;         /* the largest number of blocks of a row */
    bool only_moved;              /* the last update changed only positions within their chunks */
    uint64_t n_built, n_divided;  /* so far: sections built, and times that blocks were divided into tasks */
    /* Private. */
    ca_plan_config config;
    const ca_chunk_layout *layout;
    const ca_tree *tree;
    ca_alloc *alloc;
    uint64_t tree_version; /* at the last update */
    CA_ARRAY(ca_plan_last) last;
    CA_ARRAY(ca_section *) next, spare;
    CA_ARRAY(ca_node *) roots; /* children of the tree's root that have rows, in the order of their sections */
    CA_ARRAY(struct ca_visit) visits;
    CA_ARRAY(struct ca_plan_step) path; /* during a walk */
} ca_plan;

/* Whether a plan is for layers of this shape and window. */
static inline bool ca_plan_serves(const ca_plan *plan, int32_t shape, int32_t window) {
    return plan->config.shape == shape && plan->config.window == window;
}

/* The block after one in a task. */
static inline ca_block_at ca_block_after(const ca_plan *plan, ca_block_at at) {
    const bool last = at.block + 1 == (int32_t)plan->sections.at[at.section]->blocks.n;
    return last ? (ca_block_at){at.section + 1, 0} : (ca_block_at){at.section, at.block + 1};
}
static inline bool ca_block_same(ca_block_at a, ca_block_at b) { return a.section == b.section && a.block == b.block; }

/* Absolute chunk in which the window of a row at this position begins; -1 if the row sees all positions before it. */
static inline int64_t ca_plan_window_chunk(const ca_plan *plan, int64_t position) {
    const int64_t begin = position + 1 - plan->config.window;
    return plan->config.window == 0 || begin < 0 ? -1 : begin >> plan->layout->log2_c;
}

/* Whether the rows at both positions end in the same absolute chunk, and their windows begin in the same one. */
static inline bool ca_plan_same_chunks(const ca_plan *plan, int64_t from, int64_t to) {
    return (from ^ to) >> plan->layout->log2_c == 0 && ca_plan_window_chunk(plan, from) == ca_plan_window_chunk(plan, to);
}

/* Make an empty plan. It borrows tree, layout and alloc until ca_plan_free, and allocates nothing yet. */
void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_chunk_layout *layout, ca_alloc *alloc);

/* Free everything that the plan holds. It is then an empty plan, which may be updated again. */
void ca_plan_free(ca_plan *plan);

/*
 * Bring all plans of one tree (n_plans >= 1) up to date for the entries. No sequence may occur twice; entries without rows add
 * nothing. The entries are borrowed for the call. CATTN_ERR_NOMEM leaves all plans empty, and the next call builds everything.
 */
cattn_status ca_plan_update(ca_plan *plans, size_t n_plans, const ca_plan_entry *entries, int32_t n_entries);

/*
 * For rows of one sequence of n_tokens tokens: the most segments of which a row sees something, and the most bytes that their
 * part of a plan has.
 */
int64_t ca_plan_most_segments(const ca_plan *plan, int64_t n_tokens, int64_t n_rows);
size_t ca_plan_most_bytes(const ca_plan *plan, int64_t n_tokens, int64_t n_rows);

#endif
