/* Dividing the blocks of a plan into tasks of about the same cost. */
#include "plan_internal.h"

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
int ca_plan_deal(ca_plan *plan) {
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
