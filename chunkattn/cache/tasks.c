/*
 * Dividing the blocks of a plan into tasks of about the same cost.
 *
 * Small chains share a task, large ones are divided. A chain's rows can be sliced: then each slice reads the chain's chunks, so
 * no slice is smaller than min_slice query heads. Or the chain is spread: then nothing is read twice, but a second pass over
 * the threads must merge the states. A chain is spread only if its rows make too few slices, or if no block costs more than a
 * task should.
 */
#include "plan_internal.h"

/* ---- The order of tasks ---- */

/* Ties go by position, so that the order depends on the plan alone. */
static bool comes_before(const ca_plan_task *a, const ca_plan_task *b) {
    if (a->cost != b->cost) return a->cost > b->cost;
    if (a->begin.section != b->begin.section) return a->begin.section < b->begin.section;
    if (a->begin.block != b->begin.block) return a->begin.block < b->begin.block;
    return a->row_begin < b->row_begin;
}

/* Shell's sort, since tasks are few and the C library's qsort allocates. */
static void sort_tasks(ca_plan_task *t, size_t n) {
    size_t gap = 1;
    while (gap < n / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < n; i++) {
            const ca_plan_task task = t[i];
            size_t at = i;
            for (; at >= gap && comes_before(&task, &t[at - gap]); at -= gap) t[at] = t[at - gap];
            t[at] = task;
        }
}

/* ---- States ---- */

/* Number the states of a chain's blocks from `first` on. Returns the number after the last. */
static int64_t number_chain(ca_section *s, int32_t begin, int32_t end, int64_t first, bool spread) {
    for (int32_t i = begin; i < end; i++) {
        ca_block *block = &s->blocks.at[i];
        block->spread = spread;
        block->state = first;
        first += block->row_end - block->row_begin;
    }
    return first;
}

/* Number the states of each chain from 0, with no chain spread. */
static void number_states(ca_section *s) {
    s->n_chain_states = 0;
    for (int32_t i = 0; i < (int32_t)s->blocks.n; i = s->blocks.at[i].chain_end) {
        const int64_t n = number_chain(s, i, s->blocks.at[i].chain_end, 0, false);
        if (n > s->n_chain_states) s->n_chain_states = n;
    }
    s->stale_states = false;
}

/* ---- Tasks ---- */

/* The division in progress. Functions that return int return 0, or -1 without memory. */
typedef struct divider {
    ca_plan *plan;
    double target;     /* a chain that costs more is divided, which has a price */
    double grain;      /* cost of a task of whole chains: less than target, since small tasks help threads to finish together */
    ca_plan_task open; /* a task of whole chains that may still grow */
} divider;

static int push_task(divider *d, const ca_plan_task *task) {
    if (CA_ROOM(d->plan->alloc, &d->plan->tasks, 1)) return -1;
    d->plan->tasks.at[d->plan->tasks.n++] = *task;
    return 0;
}

/* Close the open task before block `at`, unless it is empty, and open another that begins with block `next`. */
static int close_task(divider *d, ca_block_at at, ca_block_at next) {
    d->open.end = at;
    if (!ca_block_same(d->open.begin, at) && push_task(d, &d->open)) return -1;
    d->open = (ca_plan_task){.begin = next, .row_end = INT32_MAX};
    return 0;
}

/*
 * Spread a chain over at least n_tasks tasks of consecutive blocks. They cost no more than the grain if blocks allow it, since
 * the states must be merged anyway.
 */
static int spread_chain(divider *d, const ca_plan_task *chain, int32_t n_tasks) {
    ca_section *s = d->plan->sections.at[chain->begin.section];
    const int32_t end = s->blocks.at[chain->begin.block].chain_end;
    const double share = chain->cost / n_tasks, target = share < d->grain ? share : d->grain;
    for (ca_block_at at = chain->begin; !ca_block_same(at, chain->end);) {
        ca_plan_task task = {.begin = at, .row_end = INT32_MAX};
        do {
            task.cost += s->blocks.at[at.block].cost;
            at = ca_block_after(d->plan, at);
        } while (!ca_block_same(at, chain->end) && task.cost + s->blocks.at[at.block].cost / 2 <= target);
        task.end = at;
        if (push_task(d, &task)) return -1;
    }
    d->plan->n_states = number_chain(s, chain->begin.block, end, d->plan->n_states, true);
    s->stale_states = true;
    return 0;
}

static int slice_chain(divider *d, const ca_plan_task *chain, int32_t n_slices) {
    const int64_t rows = chain->row_end - chain->row_begin;
    for (int32_t i = 0; i < n_slices; i++) {
        ca_plan_task task = *chain;
        task.row_begin = chain->row_begin + (int32_t)(rows * i / n_slices);
        task.row_end = chain->row_begin + (int32_t)(rows * (i + 1) / n_slices);
        task.cost /= n_slices;
        if (push_task(d, &task)) return -1;
    }
    return 0;
}

/* At most n slices; a multiple of task_step if n is more than that. */
static int32_t even_slices(const ca_plan_config *c, int32_t n) {
    return n > c->task_step ? n / c->task_step * c->task_step : n;
}

/* The chain that begins at `at`, as a task, and the highest cost of a block of it. */
static ca_plan_task chain_at(const ca_plan *plan, ca_block_at at, double *max_block) {
    const ca_section *s = plan->sections.at[at.section];
    const int32_t end = s->blocks.at[at.block].chain_end;
    ca_plan_task chain = {.begin = at, .row_begin = INT32_MAX};
    *max_block = 0;
    chain.end = ca_block_after(plan, (ca_block_at){at.section, end - 1});
    for (int32_t k = at.block; k < end; k++) {
        const ca_block *block = &s->blocks.at[k];
        if (block->row_end > chain.row_end) chain.row_end = block->row_end;
        if (block->row_begin < chain.row_begin) chain.row_begin = block->row_begin;
        chain.cost += block->cost;
        if (block->cost > *max_block) *max_block = block->cost;
    }
    return chain;
}

/* Divide a section that does not fit into a task as a whole: small chains share tasks, large ones are divided. */
static int divide_section(divider *d, int32_t section) {
    const ca_section *s = d->plan->sections.at[section];
    for (ca_block_at at = {section, 0}; at.section == section;) {
        double max_block;
        const ca_plan_task chain = chain_at(d->plan, at, &max_block);
        const int32_t n_blocks = s->blocks.at[at.block].chain_end - at.block;
        const int32_t max_slices = (chain.row_end - chain.row_begin) * d->plan->config.group / d->plan->config.min_slice;
        const int32_t wanted = (int32_t)(chain.cost / d->target + 0.5);
        const bool spreads =
            wanted > 1 && n_blocks > 1 && (max_block <= d->target || max_slices < (wanted < n_blocks ? wanted : n_blocks));
        const bool slices = wanted > 1 && max_slices > 1;
        at = chain.end;
        if (spreads || slices) {
            if (close_task(d, chain.begin, chain.end)) return -1;
            if (spreads ? spread_chain(d, &chain, wanted < n_blocks ? wanted : n_blocks)
                        : slice_chain(d, &chain, even_slices(&d->plan->config, wanted < max_slices ? wanted : max_slices)))
                return -1;
            continue;
        }
        if (d->open.cost + chain.cost > d->grain && close_task(d, chain.begin, chain.begin)) return -1;
        d->open.cost += chain.cost;
    }
    return 0;
}

/* Chains are looked at only in sections that do not fit into a task, and there are at most as many of these as tasks. */
int ca_plan_divide(ca_plan *plan) {
    enum { TASKS_PER_TARGET = 4 }; /* tasks of whole chains, for each task that is wanted */
    double total = 0;
    for (size_t i = 0; i < plan->sections.n; i++) total += plan->sections.at[i]->cost;
    const double target = total / plan->config.min_tasks;
    divider d = {plan, target, target / TASKS_PER_TARGET, {.row_end = INT32_MAX}};
    const int32_t n = (int32_t)plan->sections.n;
    plan->tasks.n = 0;
    plan->n_states = plan->n_chain_states = 0;
    plan->max_segments = 0;
    plan->n_divided++;
    for (int32_t i = 0; i < n; i++) {
        ca_section *s = plan->sections.at[i];
        const ca_block_at first = {i, 0};
        if (s->stale_states) number_states(s);
        if (s->n_chain_states > plan->n_chain_states) plan->n_chain_states = s->n_chain_states;
        if (s->max_segments > plan->max_segments) plan->max_segments = s->max_segments;
        const bool fits = d.open.cost + s->cost <= d.grain, small = s->cost <= d.grain / 4;
        if (!fits && small && close_task(&d, first, first)) return -1;
        if (fits || small)
            d.open.cost += s->cost;
        else if (divide_section(&d, i))
            return -1;
    }
    if (close_task(&d, (ca_block_at){n, 0}, (ca_block_at){n, 0})) return -1;
    sort_tasks(plan->tasks.at, plan->tasks.n);
    return 0;
}
