/*
 * The waist between tree and kernels: tree + batch -> flat work lists. Kernels, on whatever device, see only the plan.
 *
 * Rows are put in depth-first order of their sequences, so that the rows a node covers are one range. A row passes over each
 * absolute chunk of its context exactly once, in ascending order: at the node in which the chunk is complete or, for the last,
 * incomplete one, at the node where its sequence ends. All rows that such a node covers take the chunk together
 * (chunk-first). Where the chunk began in an ancestor that node has it all the same, if need be as a copy (tree.h):
 *
 *   c = 4   [0..5 | x0 x1]                    x0: the rows of both, together
 *             |-- [6..9 | x1 x2]   row at 9   x1, x2
 *             '-- [6..7 | y0]      row at 7   y0, whose slots 0..1 are a copy of those of x1
 *
 * In the modes that share no reading each sequence has items of its own instead.
 *
 * Under a sliding window a row passes over the chunks that its window touches, and over those of the kept first tokens; nobody
 * reads the others. Layers with the same window share a plan. The chunk in which a window begins is always told as partial, so
 * that a section holds until that chunk is another one.
 *
 * Items are grouped in blocks: up to max_rows rows of a section over one segment. For each K/V head a block is worked off in
 * item order; a row has one state a block. The blocks of the same rows, segments ascending, are a chain. Mostly a thread takes
 * whole chains, or some of a chain's rows, and finishes those rows at once, so that their states never leave its cache; only
 * where rows are too few for the threads are a chain's blocks dealt out, and the rows merged when all tasks are done.
 *
 * The plan is kept in sections, one for each child of the tree's root that has rows in the batch. A section is built anew when
 * its part of the tree, its rows or the chunks they end in changed; otherwise only its positions are refreshed. Where neither
 * the tree nor the list of entries changed, positions are all that an update looks at.
 */
#ifndef LIB_CACHE_PLAN_H
#define LIB_CACHE_PLAN_H

#include "base/array.h"
#include "tree.h"

/* Rows that pass over consecutive chunks together. */
typedef struct ca_item {
    int32_t row_begin, row_end; /* of the section */
    int32_t first_chunk;        /* absolute index */
    int32_t n_chunks;
    int32_t chunk; /* index of the first one's id in the section */
    bool partial;  /* some rows may not see all slots, or none: their positions tell */
} ca_item;

/* Rows of a section over one segment. Between the first and the last there may be some that see nothing of it. */
typedef struct ca_block {
    int32_t row_begin, row_end; /* of the section */
    int32_t segment;
    int32_t item_begin, item_end;
    int32_t chain_end; /* index in the section of the block behind the last one of its chain */
    bool spread;       /* the blocks of its chain are in several tasks */
    int64_t state;     /* place of its first row among the states of its chain; where spread, of the plan */
    double cost;       /* what it costs a K/V head; the unit is one query head passing over one chunk */
} ca_block;

typedef struct ca_section_seq {
    ca_seq *seq;
    int32_t row_begin, n_rows;
    int32_t entry; /* index of the step's entry */
} ca_section_seq;

typedef struct ca_section {
    uint64_t root_id, version;
    int32_t n_rows;
    int32_t max_segments;          /* largest number of blocks a row has */
    double cost;                   /* of all blocks */
    bool unplaced;                 /* not all chains have their states to themselves (ca_block.state), nor is known: */
    int64_t n_chain_states;        /* the most rows over all blocks of a chain */
    CA_ARRAY(ca_section_seq) seqs; /* depth-first, as the rows */
    CA_ARRAY(int32_t) source;      /* [n_rows] the caller's index of a row */
    CA_ARRAY(int64_t) position;    /* [n_rows] */
    CA_ARRAY(int32_t) first_block; /* [n_rows + 1] where a row's blocks begin in row_blocks */
    CA_ARRAY(int32_t) row_blocks;  /* blocks by row, segments ascending */
    CA_ARRAY(ca_item) items;
    CA_ARRAY(ca_chunk_id) chunks;
    CA_ARRAY(ca_block) blocks; /* chain by chain */
} ca_section;

/* A block by the index of its section and its own in there. */
typedef struct ca_block_at {
    int32_t section, block;
} ca_block_at;

/* What one thread does at a time for one K/V head: the blocks from begin to before end, or some rows of one chain. */
typedef struct ca_plan_task {
    ca_block_at begin, end;
    int32_t row_begin, row_end; /* of the section; all of them unless it is one chain */
    double cost;
} ca_plan_task;

/* One sequence in the step. */
typedef struct ca_plan_entry {
    ca_seq *seq;
    int64_t first_pos;
    int32_t n_rows;
    int32_t row; /* the caller's index of its first row */
} ca_plan_entry;

/* A child of the tree's root with rows in the batch, during ca_plan_update. */
typedef struct ca_plan_root {
    ca_node *node;
    size_t old_section; /* index of its section, if it has one, before the update */
    int32_t n_rows;
    bool moved; /* in the plan being updated, no more than positions within their chunks has changed */
} ca_plan_root;

typedef CA_ARRAY(ca_plan_root) ca_plan_roots;

/* An entry as it was when last planned. */
typedef struct ca_plan_last {
    cattn_seq id;
    ca_seq *seq; /* running as long as the tree's version is the same */
    int64_t first_pos;
    int64_t *position; /* of its first row, in its section; NULL: it has none */
    int32_t n_rows, row;
} ca_plan_last;

typedef struct ca_plan_config {
    bool together;     /* rows of different sequences share items: chunk-first */
    int32_t group;     /* query heads a K/V head */
    int32_t max_rows;  /* rows a block */
    int32_t min_part;  /* query heads that the rows of a chain are split down to */
    double chunk_cost; /* what a chunk costs a K/V head besides arithmetic, in units of a query head's arithmetic on it */
    int32_t min_tasks; /* tasks wanted for each K/V head so that the threads finish together */
    int32_t task_step; /* multiples of this are as many tasks for one thread as for another */
    int32_t window;    /* a row sees its own position and so many less one before; 0: all */
    int32_t n_kept;    /* first positions that every row sees all the same */
} ca_plan_config;

typedef struct ca_plan {
    CA_ARRAY(ca_section *) sections;
    CA_ARRAY(ca_plan_task) tasks; /* dearest first */
    int64_t n_states;             /* rows over all blocks of spread chains */
    int64_t n_chain_states;       /* the most rows over all blocks of another chain */
    int32_t max_segments;         /* largest number of blocks a row has */
    bool only_moved;              /* the last update changed no more than positions within their chunks */
    uint64_t n_built, n_dealt;    /* sections built, and times that tasks were dealt, so far */
    /* The planner's own. */
    ca_plan_config config;
    const ca_layout *layout;
    const ca_tree *tree;
    ca_alloc *alloc;
    uint64_t tree_version; /* as of the last update */
    CA_ARRAY(ca_plan_last) last;
    CA_ARRAY(ca_section *) next, spare;
    ca_plan_roots roots; /* of the first plan only: they are the same for all */
    CA_ARRAY(struct ca_visit) visits;
} ca_plan;

/* The block that follows in a task. */
static inline ca_block_at ca_block_after(const ca_plan *plan, ca_block_at at) {
    const bool last = at.block + 1 == (int32_t)plan->sections.at[at.section]->blocks.n;
    return last ? (ca_block_at){at.section + 1, 0} : (ca_block_at){at.section, at.block + 1};
}
static inline bool ca_block_same(ca_block_at a, ca_block_at b) { return a.section == b.section && a.block == b.block; }

/* The chunk in which the window of a row at this position begins; -1: it sees all before it. */
static inline int64_t ca_plan_window_chunk(const ca_plan *plan, int64_t position) {
    const int64_t begin = position + 1 - plan->config.window;
    return plan->config.window == 0 || begin < 0 ? -1 : begin >> plan->layout->log2_c;
}

/* Whether a row that moves from one position to the other ends, and its window begins, in the same absolute chunks. */
static inline bool ca_plan_same_chunks(const ca_plan *plan, int64_t from, int64_t to) {
    return (from ^ to) >> plan->layout->log2_c == 0 && ca_plan_window_chunk(plan, from) == ca_plan_window_chunk(plan, to);
}

/* tree, layout and alloc are borrowed as long as the plan is in use. */
void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_layout *layout, ca_alloc *alloc);

/* Free all it holds, after which it is an empty plan. */
void ca_plan_free(ca_plan *plan);

/*
 * Bring all plans over one tree, n_plans >= 1, up to date for these entries, in which no sequence occurs twice; those without
 * rows are passed over. CATTN_ERR_NOMEM leaves empty plans, which the next call builds from nothing.
 */
cattn_status ca_plan_update(ca_plan *plans, size_t n_plans, const ca_plan_entry *entries, int32_t n_entries);

#endif
