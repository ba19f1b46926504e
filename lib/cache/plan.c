/* Keeping the plan: which sections still hold, and how their blocks are dealt to threads. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "section.h"

void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_layout *layout, ca_alloc *alloc) {
    *plan = (ca_plan){.config = *config, .layout = layout, .tree = tree, .alloc = alloc};
}

static void drop_sections(ca_plan *plan) {
    for (size_t i = 0; i < plan->sections.n; i++) ca_section_free(plan->sections.at[i], plan->alloc);
    plan->sections.n = plan->order.n = plan->tasks.n = 0;
}

void ca_plan_free(ca_plan *plan) {
    drop_sections(plan);
    for (size_t i = 0; i < plan->spare.n; i++) ca_section_free(plan->spare.at[i], plan->alloc);
    CA_ARRAY_FREE(plan->alloc, &plan->sections);
    CA_ARRAY_FREE(plan->alloc, &plan->order);
    CA_ARRAY_FREE(plan->alloc, &plan->tasks);
    CA_ARRAY_FREE(plan->alloc, &plan->next);
    CA_ARRAY_FREE(plan->alloc, &plan->spare);
    CA_ARRAY_FREE(plan->alloc, &plan->roots);
    CA_ARRAY_FREE(plan->alloc, &plan->visits);
}

/* The children of the tree's root that have rows, in the order in which the batch meets them, and how many rows each has. */
static int find_roots(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    plan->epoch++;
    plan->roots.n = 0;
    if (CA_ROOM(plan, &plan->roots, (size_t)n_entries)) return -1;
    for (int32_t i = 0; i < n_entries; i++) {
        if (entries[i].n_rows == 0) continue;
        ca_node *root = entries[i].seq->leaf;
        while (root->parent->parent) root = root->parent;
        if (root->plan_mark != plan->epoch) {
            root->plan_mark = plan->epoch;
            root->plan_rows = 0;
            plan->roots.at[plan->roots.n++] = root;
        }
        root->plan_rows += entries[i].n_rows;
    }
    return 0;
}

/* The section that was built for root, if it still holds; its place in the old list is given up. */
static ca_section *take_section(ca_plan *plan, const ca_node *root, const ca_plan_entry *entries) {
    const size_t at = (size_t)root->plan_section;
    if (at >= plan->sections.n) return NULL;
    ca_section *s = plan->sections.at[at];
    if (!s || s->root_id != root->id || s->version != root->version || s->n_rows != root->plan_rows) return NULL;
    if (!ca_section_refresh(plan, s, entries)) return NULL;
    plan->sections.at[at] = NULL;
    return s;
}

static ca_section *new_section(ca_plan *plan) {
    if (plan->spare.n > 0) return plan->spare.at[--plan->spare.n];
    return ca_new_zero(plan->alloc, 1, sizeof(ca_section));
}

/*
 * Put the sections of this batch's roots into plan->next. Sections that are not used any more go to the spare ones, so that a
 * steady state allocates nothing.
 */
static cattn_status update_sections(ca_plan *plan, const ca_plan_entry *entries, bool *changed) {
    const size_t n_old = plan->sections.n;
    plan->next.n = 0;
    if (CA_ROOM(plan, &plan->next, plan->roots.n) || CA_ROOM(plan, &plan->spare, plan->spare.n + n_old)) return CATTN_ERR_NOMEM;
    for (size_t i = 0; i < plan->roots.n; i++) {
        ca_node *root = plan->roots.at[i];
        ca_section *s = take_section(plan, root, entries);
        if (!s || (size_t)root->plan_section != i) *changed = true;
        plan->next.at[plan->next.n++] = s;
    }
    for (size_t i = 0; i < n_old; i++)
        if (plan->sections.at[i]) {
            plan->spare.at[plan->spare.n++] = plan->sections.at[i];
            *changed = true;
        }
    plan->sections.n = 0;
    cattn_status status = CATTN_OK;
    for (size_t i = 0; i < plan->roots.n; i++) {
        ca_node *root = plan->roots.at[i];
        if (!plan->next.at[i] && status == CATTN_OK) {
            plan->next.at[i] = new_section(plan);
            status = plan->next.at[i] ? ca_section_build(plan, plan->next.at[i], root, entries) : CATTN_ERR_NOMEM;
        }
        root->plan_section = (int32_t)i;
    }
    ca_section **old = plan->sections.at;
    const size_t old_capacity = plan->sections.capacity;
    plan->sections.at = plan->next.at;
    plan->sections.capacity = plan->next.capacity;
    plan->next.at = old;
    plan->next.capacity = old_capacity;
    for (size_t i = 0; i < plan->roots.n; i++)
        if (plan->sections.at[i]) plan->sections.at[plan->sections.n++] = plan->sections.at[i];
    if (status) drop_sections(plan);
    return status;
}

/* ---- Dealing blocks to threads ---- */

static int by_cost(const void *a, const void *b) {
    const ca_plan_task *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->row_begin < y->row_begin ? -1 : 1;
}

/* One list of all blocks. Returns the cost of all. */
static double order_blocks(ca_plan *plan) {
    double total = 0;
    plan->order.n = 0;
    plan->max_segments = 0;
    for (size_t i = 0; i < plan->sections.n; i++) {
        ca_section *s = plan->sections.at[i];
        for (size_t j = 0; j < s->blocks.n; j++) {
            ca_block *block = &s->blocks.at[j];
            block->spread = false;
            total += block->cost;
            plan->order.at[plan->order.n++] = (ca_plan_block){s, block};
        }
        for (int32_t r = 0; r < s->n_rows; r++) {
            const int32_t n = s->first_block.at[r + 1] - s->first_block.at[r];
            if (n > plan->max_segments) plan->max_segments = n;
        }
    }
    return total;
}

static void add_task(ca_plan *plan, const ca_plan_task *task) { plan->tasks.at[plan->tasks.n++] = *task; }

/* Runs of blocks of one chain, each of about 1/parts of the cost. */
static void spread_chain(ca_plan *plan, const ca_plan_task *chain, int32_t parts) {
    const double target = chain->cost / parts;
    for (int32_t i = chain->begin; i < chain->end;) {
        ca_plan_task task = {.begin = i, .row_end = INT32_MAX};
        do {
            plan->order.at[i].block->spread = true;
            task.cost += plan->order.at[i++].block->cost;
        } while (i < chain->end && task.cost + plan->order.at[i].block->cost / 2 <= target);
        task.end = i;
        add_task(plan, &task);
    }
}

static void split_rows(ca_plan *plan, const ca_plan_task *chain, int32_t parts) {
    const int64_t rows = chain->row_end - chain->row_begin;
    for (int32_t p = 0; p < parts; p++) {
        ca_plan_task task = *chain;
        task.row_begin = chain->row_begin + (int32_t)(rows * p / parts);
        task.row_end = chain->row_begin + (int32_t)(rows * (p + 1) / parts);
        task.cost /= parts;
        add_task(plan, &task);
    }
}

/* The chain that begins at i in the order. */
static ca_plan_task chain_at(const ca_plan *plan, int32_t i) {
    const ca_plan_block *first = &plan->order.at[i];
    const int32_t n = first->block->chain_end - (int32_t)(first->block - first->section->blocks.at);
    ca_plan_task chain = {.begin = i, .end = i + n, .row_begin = first->block->row_begin};
    for (int32_t k = i; k < i + n; k++) {
        const ca_block *block = plan->order.at[k].block;
        if (block->row_end > chain.row_end) chain.row_end = block->row_end;
        if (block->row_begin < chain.row_begin) chain.row_begin = block->row_begin;
        chain.cost += block->cost;
    }
    return chain;
}

/* Where the states of each block are. */
static void place_states(ca_plan *plan) {
    plan->n_states = plan->n_chain_states = 0;
    for (size_t i = 0; i < plan->order.n;) {
        const ca_plan_task chain = chain_at(plan, (int32_t)i);
        const bool spread = plan->order.at[i].block->spread;
        int64_t n = spread ? plan->n_states : 0;
        for (; i < (size_t)chain.end; i++) {
            ca_block *block = plan->order.at[i].block;
            block->state = n;
            n += block->row_end - block->row_begin;
        }
        if (spread)
            plan->n_states = n;
        else if (n > plan->n_chain_states)
            plan->n_chain_states = n;
    }
}

/*
 * Tasks of about the same cost: small chains together, large ones apart. A chain's rows can be split, which reads its chunks
 * twice, so no further than leaves each part a full register tile; where it has blocks enough they are spread instead, which
 * reads nothing twice but takes a second run over the threads.
 */
static int deal(ca_plan *plan) {
    enum { MIN_SPLIT = 16 }; /* query heads in a part of a chain */
    size_t n_blocks = 0;
    for (size_t i = 0; i < plan->sections.n; i++) n_blocks += plan->sections.at[i]->blocks.n;
    plan->order.n = plan->tasks.n = 0;
    if (CA_ROOM(plan, &plan->order, n_blocks)) return -1;
    const double target = order_blocks(plan) / plan->config.min_tasks;
    ca_plan_task task = {.row_end = INT32_MAX};
    for (int32_t i = 0; i < (int32_t)n_blocks;) {
        const ca_plan_task chain = chain_at(plan, i);
        const int32_t blocks = chain.end - chain.begin;
        const int32_t most = (chain.row_end - chain.row_begin) * plan->config.group / MIN_SPLIT;
        const int32_t parts = (int32_t)(chain.cost / target + 0.5);
        if (CA_ROOM(plan, &plan->tasks, (size_t)(blocks > most ? blocks : most) + 2)) return -1;
        i = chain.end;
        if (task.end > task.begin && (parts > 1 || task.cost + chain.cost > target)) {
            add_task(plan, &task);
            task.end = task.begin;
        }
        if (parts > 1 && blocks > 1 && (blocks >= parts || most <= 1)) {
            spread_chain(plan, &chain, parts < blocks ? parts : blocks);
        } else if (parts > 1 && most > 1) {
            split_rows(plan, &chain, parts < most ? parts : most);
        } else {
            if (task.end == task.begin) task = (ca_plan_task){.begin = chain.begin, .row_end = INT32_MAX};
            task.end = chain.end;
            task.cost += chain.cost;
        }
    }
    if (task.end > task.begin) add_task(plan, &task);
    place_states(plan);
    qsort(plan->tasks.at, plan->tasks.n, sizeof *plan->tasks.at, by_cost);
    return 0;
}

cattn_status ca_plan_update(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    bool changed = plan->tasks.n == 0;
    cattn_status status = find_roots(plan, entries, n_entries) ? CATTN_ERR_NOMEM : update_sections(plan, entries, &changed);
    if (status == CATTN_OK && changed && deal(plan)) status = CATTN_ERR_NOMEM;
    if (status) drop_sections(plan);
    return status;
}
