/* Keeping the plan: which sections still hold, and how their blocks are dealt to threads. */
#include "plan.h"

#include "section.h"

void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_layout *layout, ca_alloc *alloc) {
    *plan = (ca_plan){.config = *config, .layout = layout, .tree = tree, .alloc = alloc};
}

static void drop_sections(ca_plan *plan) {
    for (size_t i = 0; i < plan->sections.n; i++) ca_section_free(plan->sections.at[i], plan->alloc);
    plan->sections.n = plan->tasks.n = plan->last.n = 0;
}

void ca_plan_free(ca_plan *plan) {
    drop_sections(plan);
    for (size_t i = 0; i < plan->spare.n; i++) ca_section_free(plan->spare.at[i], plan->alloc);
    CA_ARRAY_FREE(plan->alloc, &plan->sections);
    CA_ARRAY_FREE(plan->alloc, &plan->tasks);
    CA_ARRAY_FREE(plan->alloc, &plan->last);
    CA_ARRAY_FREE(plan->alloc, &plan->next);
    CA_ARRAY_FREE(plan->alloc, &plan->spare);
    CA_ARRAY_FREE(plan->alloc, &plan->roots);
    CA_ARRAY_FREE(plan->alloc, &plan->visits);
}

/* ---- Entries ---- */

/* Whether an entry that is as last time needs nothing but its position. */
static bool moves_in_chunk(const ca_plan *plan, const ca_plan_last *l, const ca_plan_entry *e) {
    if (l->n_rows != e->n_rows || l->row != e->row) return false;
    if (e->n_rows == 0) return true;
    return l->first_pos == e->first_pos || (e->n_rows == 1 && ca_plan_same_chunks(plan, l->first_pos, e->first_pos));
}

static void move(ca_plan_last *l, const ca_plan_entry *e) {
    l->first_pos = e->first_pos;
    if (e->n_rows == 1) *l->position = e->first_pos;
}

/* The whole update where neither the tree nor the entries changed; false where they did, and what was moved does not matter. */
static bool move_all(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    enum { AHEAD = 16 };
    if (plan->tree_version != ca_tree_version(plan->tree) || plan->last.n != (size_t)n_entries) return false;
    for (int32_t i = 0; i < n_entries; i++) {
        ca_plan_last *l = &plan->last.at[i];
        if (i + AHEAD < n_entries) __builtin_prefetch(l[AHEAD].position, 1);
        if (l->seq != entries[i].seq || !moves_in_chunk(plan, l, &entries[i])) return false;
        move(l, &entries[i]);
    }
    return true;
}

/*
 * Collect the children of the tree's root that have rows, in the order in which the batch meets them, and how many rows each
 * has. Entries that only moved are done with that; the section of any other must be refreshed.
 */
static cattn_status find_roots(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    const size_t n_last = plan->last.n;
    plan->last.n = plan->roots.n = 0;
    if (CA_ROOM(plan->alloc, &plan->roots, (size_t)n_entries) || CA_ROOM(plan->alloc, &plan->last, (size_t)n_entries))
        return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < n_entries; i++) {
        const ca_plan_entry *e = &entries[i];
        ca_plan_last *l = &plan->last.at[i];
        const bool moves = (size_t)i < n_last && l->id == e->seq->id && moves_in_chunk(plan, l, e);
        if (moves)
            move(l, e);
        else
            *l = (ca_plan_last){e->seq->id, e->seq, e->first_pos, NULL, e->n_rows, e->row};
        e->seq->step_entry = i;
        if (e->n_rows == 0) continue;
        ca_node *root = e->seq->root;
        if (!root->plan_met) {
            root->plan_met = true;
            root->plan_moved = true;
            root->plan_rows = 0;
            plan->roots.at[plan->roots.n++] = root;
        }
        root->plan_moved &= moves;
        root->plan_rows += e->n_rows;
    }
    return CATTN_OK;
}

/* After find_roots, also where the update failed. */
static void forget_marks(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    for (int32_t i = 0; i < n_entries; i++) entries[i].seq->step_entry = -1;
    for (size_t i = 0; i < plan->roots.n; i++) plan->roots.at[i]->plan_met = false;
}

/* The section that was built for root, if it still holds; its place in the old list is given up. */
static ca_section *take_section(ca_plan *plan, const ca_node *root, const ca_plan_entry *entries) {
    const size_t at = (size_t)root->plan_section;
    if (at >= plan->sections.n) return NULL;
    ca_section *s = plan->sections.at[at];
    if (!s || s->root_id != root->id || s->version != root->version || s->n_rows != root->plan_rows) return NULL;
    if (!root->plan_moved && !ca_section_refresh(plan, s, entries)) return NULL;
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
    if (CA_ROOM(plan->alloc, &plan->next, plan->roots.n) || CA_ROOM(plan->alloc, &plan->spare, plan->spare.n + n_old))
        return CATTN_ERR_NOMEM;
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
        if (plan->next.at[i] || status != CATTN_OK) continue;
        plan->next.at[i] = new_section(plan);
        status = plan->next.at[i] ? ca_section_build(plan, plan->next.at[i], plan->roots.at[i], entries) : CATTN_ERR_NOMEM;
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

static bool is_dearer(const ca_plan_task *a, const ca_plan_task *b) {
    if (a->cost != b->cost) return a->cost > b->cost;
    if (a->begin.section != b->begin.section) return a->begin.section < b->begin.section;
    if (a->begin.block != b->begin.block) return a->begin.block < b->begin.block;
    return a->row_begin < b->row_begin;
}

/* Shell's sort: tasks are few, and the C library's qsort allocates. */
static void sort_tasks(ca_plan_task *t, size_t n) {
    size_t gap = 1;
    while (gap < n / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < n; i++) {
            const ca_plan_task task = t[i];
            size_t at = i;
            for (; at >= gap && is_dearer(&task, &t[at - gap]); at -= gap) t[at] = t[at - gap];
            t[at] = task;
        }
}

/* What dealing goes along with. */
typedef struct dealer {
    ca_plan *plan;
    double target;    /* cost from which on a chain is taken apart, which has its price */
    double grain;     /* cost of a run of chains: small, for the threads to finish together, which is free */
    ca_plan_task run; /* of whole chains, still open */
} dealer;

static int push_task(dealer *d, const ca_plan_task *task) {
    if (CA_ROOM(d->plan->alloc, &d->plan->tasks, 1)) return -1;
    d->plan->tasks.at[d->plan->tasks.n++] = *task;
    return 0;
}

/* Close the run before `at`, unless it is empty, and begin another one at `next`. */
static int close_run(dealer *d, ca_block_at at, ca_block_at next) {
    d->run.end = at;
    if (!ca_block_same(d->run.begin, at) && push_task(d, &d->run)) return -1;
    d->run = (ca_plan_task){.begin = next, .row_end = INT32_MAX};
    return 0;
}

/* Number the states of a chain from `first` on. Returns the number behind the last. */
static int64_t place_chain(ca_section *s, int32_t begin, int32_t end, int64_t first, bool spread) {
    for (int32_t i = begin; i < end; i++) {
        ca_block *block = &s->blocks.at[i];
        block->spread = spread;
        block->state = first;
        first += block->row_end - block->row_begin;
    }
    return first;
}

/* Each chain's states are its own. */
static void place_section(ca_section *s) {
    s->n_chain_states = 0;
    for (int32_t i = 0; i < (int32_t)s->blocks.n; i = s->blocks.at[i].chain_end) {
        const int64_t n = place_chain(s, i, s->blocks.at[i].chain_end, 0, false);
        if (n > s->n_chain_states) s->n_chain_states = n;
    }
    s->unplaced = false;
}

/* Runs of blocks of one chain, each of at most about 1/parts of the cost; small ones, since merging is paid for anyway. */
static int spread_chain(dealer *d, const ca_plan_task *chain, int32_t parts) {
    ca_section *s = d->plan->sections.at[chain->begin.section];
    const int32_t end = s->blocks.at[chain->begin.block].chain_end;
    const double share = chain->cost / parts, target = share < d->grain ? share : d->grain;
    for (ca_block_at at = chain->begin; !ca_block_same(at, chain->end);) {
        ca_plan_task task = {.begin = at, .row_end = INT32_MAX};
        do {
            task.cost += s->blocks.at[at.block].cost;
            at = ca_block_after(d->plan, at);
        } while (!ca_block_same(at, chain->end) && task.cost + s->blocks.at[at.block].cost / 2 <= target);
        task.end = at;
        if (push_task(d, &task)) return -1;
    }
    d->plan->n_states = place_chain(s, chain->begin.block, end, d->plan->n_states, true);
    s->unplaced = true;
    return 0;
}

static int split_rows(dealer *d, const ca_plan_task *chain, int32_t parts) {
    const int64_t rows = chain->row_end - chain->row_begin;
    for (int32_t p = 0; p < parts; p++) {
        ca_plan_task task = *chain;
        task.row_begin = chain->row_begin + (int32_t)(rows * p / parts);
        task.row_end = chain->row_begin + (int32_t)(rows * (p + 1) / parts);
        task.cost /= parts;
        if (push_task(d, &task)) return -1;
    }
    return 0;
}

/* At most n parts of equal cost, if it can be as many for one thread as for another. */
static int32_t even_parts(const ca_plan_config *c, int32_t n) { return n > c->task_step ? n / c->task_step * c->task_step : n; }

/* The chain that begins at `at`, and the cost of its dearest block. */
static ca_plan_task chain_at(const ca_plan *plan, ca_block_at at, double *dearest_block) {
    const ca_section *s = plan->sections.at[at.section];
    const int32_t end = s->blocks.at[at.block].chain_end;
    ca_plan_task chain = {.begin = at, .row_begin = INT32_MAX};
    *dearest_block = 0;
    chain.end = ca_block_after(plan, (ca_block_at){at.section, end - 1});
    for (int32_t k = at.block; k < end; k++) {
        const ca_block *block = &s->blocks.at[k];
        if (block->row_end > chain.row_end) chain.row_end = block->row_end;
        if (block->row_begin < chain.row_begin) chain.row_begin = block->row_begin;
        chain.cost += block->cost;
        if (block->cost > *dearest_block) *dearest_block = block->cost;
    }
    return chain;
}

/* The chains of a section that does not fit into the run as a whole: small ones together, large ones apart. */
static int deal_chains(dealer *d, int32_t section) {
    const ca_section *s = d->plan->sections.at[section];
    for (ca_block_at at = {section, 0}; at.section == section;) {
        double dearest_block;
        const ca_plan_task chain = chain_at(d->plan, at, &dearest_block);
        const int32_t blocks = s->blocks.at[at.block].chain_end - at.block;
        const int32_t most = (chain.row_end - chain.row_begin) * d->plan->config.group / d->plan->config.min_part;
        const int32_t parts = (int32_t)(chain.cost / d->target + 0.5);
        const bool spreads =
            parts > 1 && blocks > 1 && (dearest_block <= d->target || most < (parts < blocks ? parts : blocks));
        const bool splits = parts > 1 && most > 1;
        at = chain.end;
        if (spreads || splits) {
            if (close_run(d, chain.begin, chain.end)) return -1;
            if (spreads ? spread_chain(d, &chain, parts < blocks ? parts : blocks)
                        : split_rows(d, &chain, even_parts(&d->plan->config, parts < most ? parts : most)))
                return -1;
            continue;
        }
        if (d->run.cost + chain.cost > d->grain && close_run(d, chain.begin, chain.begin)) return -1;
        d->run.cost += chain.cost;
    }
    return 0;
}

/*
 * Tasks of about the same cost: small chains together, large ones apart. A chain's rows can be split, which reads its chunks
 * twice, so no further than leaves each part a full register tile; where no block is dearer than a task should be, or
 * rows make fewer parts, they are spread instead, which reads nothing twice but takes a second run over the threads.
 *
 * Of sections that fit into a task as a whole no chain is looked at, and of others there are not more than tasks.
 */
static int deal(ca_plan *plan) {
    enum { RUNS = 4 }; /* for each of the tasks wanted */
    double total = 0;
    for (size_t i = 0; i < plan->sections.n; i++) total += plan->sections.at[i]->cost;
    const double target = total / plan->config.min_tasks;
    dealer d = {plan, target, target / RUNS, {.row_end = INT32_MAX}};
    const int32_t n = (int32_t)plan->sections.n;
    plan->tasks.n = 0;
    plan->n_states = plan->n_chain_states = 0;
    plan->max_segments = 0;
    plan->n_dealt++;
    for (int32_t i = 0; i < n; i++) {
        ca_section *s = plan->sections.at[i];
        const ca_block_at first = {i, 0};
        if (s->unplaced) place_section(s);
        if (s->n_chain_states > plan->n_chain_states) plan->n_chain_states = s->n_chain_states;
        if (s->max_segments > plan->max_segments) plan->max_segments = s->max_segments;
        const bool fits = d.run.cost + s->cost <= d.grain, small = s->cost <= d.grain / 4;
        if (!fits && small && close_run(&d, first, first)) return -1;
        if (fits || small)
            d.run.cost += s->cost;
        else if (deal_chains(&d, i))
            return -1;
    }
    if (close_run(&d, (ca_block_at){n, 0}, (ca_block_at){n, 0})) return -1;
    sort_tasks(plan->tasks.at, plan->tasks.n);
    return 0;
}

static cattn_status update_plan(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    plan->only_moved = move_all(plan, entries, n_entries);
    if (plan->only_moved) return CATTN_OK;
    bool changed = plan->tasks.n == 0;
    cattn_status status = find_roots(plan, entries, n_entries);
    if (status) {
        drop_sections(plan);
        return status;
    }
    status = update_sections(plan, entries, &changed);
    forget_marks(plan, entries, n_entries);
    if (status == CATTN_OK && changed && deal(plan)) status = CATTN_ERR_NOMEM;
    if (status) {
        drop_sections(plan);
        return status;
    }
    plan->last.n = (size_t)n_entries;
    plan->tree_version = ca_tree_version(plan->tree);
    return CATTN_OK;
}

cattn_status ca_plan_update(ca_plan *plans, size_t n_plans, const ca_plan_entry *entries, int32_t n_entries) {
    cattn_status status = CATTN_OK;
    for (size_t i = 0; i < n_plans && status == CATTN_OK; i++) status = update_plan(&plans[i], entries, n_entries);
    for (size_t i = 0; i < n_plans && status != CATTN_OK; i++) drop_sections(&plans[i]);
    /* Sections are in the same order in all plans: that order changes when the last plan has found its old ones by it. */
    for (ca_plan *plan = plans; plan < plans + n_plans; plan++)
        for (size_t i = 0; !plan->only_moved && i < plan->sections.n; i++) plan->roots.at[i]->plan_section = (int32_t)i;
    return status;
}
