/* Keeping a plan from step to step: an update rebuilds only the sections that no longer hold. */
#include "plan_internal.h"

void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_chunk_layout *layout, ca_alloc *alloc) {
    *plan = (ca_plan){.config = *config, .layout = layout, .tree = tree, .alloc = alloc};
}

/* Leave an empty plan, with its arrays still allocated. */
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
    CA_ARRAY_FREE(plan->alloc, &plan->path);
}

/* ---- Entries ---- */

/* Whether the entry is as in the last update, or one row that has moved within its chunks. */
static bool moves_in_chunk(const ca_plan *plan, const ca_plan_last *l, const ca_plan_entry *e) {
    if (l->n_rows != e->n_rows || l->row != e->row) return false;
    if (e->n_rows == 0) return true;
    return l->first_pos == e->first_pos || (e->n_rows == 1 && ca_plan_same_chunks(plan, l->first_pos, e->first_pos));
}

/* Set the position of an entry that has moved. */
static void move(ca_plan_last *l, const ca_plan_entry *e) {
    l->first_pos = e->first_pos;
    if (e->n_rows == 1) *l->position = e->first_pos;
}

/*
 * Try to update a plan by moving its rows, which suffices if neither the tree nor the list of entries has changed. False if it
 * does not suffice; positions that have been moved by then do no harm.
 */
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

/* ---- Roots ---- */

/*
 * List the children of the tree's root that have rows, in the order in which the entries meet them, with the number of their
 * rows. Entries that only move are moved; the sections of all others must be refreshed.
 *
 * Not inlined, since gcc 12 then keeps its counters in memory, which costs a tenth of an update of a large batch.
 */
static __attribute__((noinline)) cattn_status find_roots(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
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
        if (!root->plan.met) {
            root->plan.met = true;
            root->plan.moved = true;
            root->plan.n_rows = 0;
            plan->roots.at[plan->roots.n++] = root;
        }
        root->plan.moved &= moves;
        root->plan.n_rows += e->n_rows;
    }
    return CATTN_OK;
}

/* Undo the marks of find_roots, even if the update has failed. */
static void clear_marks(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    for (int32_t i = 0; i < n_entries; i++) entries[i].seq->step_entry = -1;
    for (size_t i = 0; i < plan->roots.n; i++) plan->roots.at[i]->plan.met = false;
}

/* ---- Sections ---- */

/* Take the section that was built for a root from the old list, if it still holds; NULL if it does not. */
static ca_section *take_section(ca_plan *plan, const ca_node *root, const ca_plan_entry *entries) {
    const size_t at = (size_t)root->plan.section;
    if (at >= plan->sections.n) return NULL;
    ca_section *s = plan->sections.at[at];
    if (!s || s->root_id != root->id || s->version != root->version || s->n_rows != root->plan.n_rows) return NULL;
    if (!root->plan.moved && !ca_section_refresh(plan, s, entries)) return NULL;
    plan->sections.at[at] = NULL;
    return s;
}

/* A spare section, or a new one; NULL without memory. */
static ca_section *new_section(ca_plan *plan) {
    if (plan->spare.n > 0) return plan->spare.at[--plan->spare.n];
    return ca_new_zero(plan->alloc, 1, sizeof(ca_section));
}

/* Exchange the lists plan->sections and plan->next; their counts stay. */
static void swap_sections(ca_plan *plan) {
    ca_section **at = plan->sections.at;
    const size_t capacity = plan->sections.capacity;
    plan->sections.at = plan->next.at;
    plan->sections.capacity = plan->next.capacity;
    plan->next.at = at;
    plan->next.capacity = capacity;
}

/*
 * Replace the sections by those of the roots: old ones that still hold, and new ones. Sections without a root become spare, so
 * that a steady state allocates nothing. *changed is set if a section is new, has gone or has another index.
 */
static cattn_status update_sections(ca_plan *plan, const ca_plan_entry *entries, bool *changed) {
    const size_t n_roots = plan->roots.n, n_old = plan->sections.n;
    plan->next.n = 0;
    if (CA_ROOM(plan->alloc, &plan->next, n_roots) || CA_ROOM(plan->alloc, &plan->spare, plan->spare.n + n_old))
        return CATTN_ERR_NOMEM;
    for (size_t i = 0; i < n_roots; i++) {
        ca_section *s = take_section(plan, plan->roots.at[i], entries);
        if (!s || (size_t)plan->roots.at[i]->plan.section != i) *changed = true;
        plan->next.at[plan->next.n++] = s;
    }
    for (size_t i = 0; i < n_old; i++)
        if (plan->sections.at[i]) {
            plan->spare.at[plan->spare.n++] = plan->sections.at[i];
            *changed = true;
        }
    plan->sections.n = 0;
    cattn_status status = CATTN_OK;
    for (size_t i = 0; i < n_roots; i++) {
        if (plan->next.at[i] || status != CATTN_OK) continue;
        plan->next.at[i] = new_section(plan);
        status =
            plan->next.at[i] ? ca_section_build_subtree(plan, plan->next.at[i], plan->roots.at[i], entries) : CATTN_ERR_NOMEM;
    }
    swap_sections(plan);
    for (size_t i = 0; i < n_roots; i++)
        if (plan->sections.at[i]) plan->sections.at[plan->sections.n++] = plan->sections.at[i];
    return status;
}

/* ---- Update ---- */

static cattn_status update_plan(ca_plan *plan, const ca_plan_entry *entries, int32_t n_entries) {
    plan->only_moved = move_all(plan, entries, n_entries);
    if (plan->only_moved) return CATTN_OK;
    bool changed = plan->tasks.n == 0;
    cattn_status status = find_roots(plan, entries, n_entries);
    if (status) return status;
    status = update_sections(plan, entries, &changed);
    clear_marks(plan, entries, n_entries);
    if (status) return status;
    if (changed && ca_plan_divide(plan)) return CATTN_ERR_NOMEM;
    plan->last.n = (size_t)n_entries;
    plan->tree_version = ca_tree_version(plan->tree);
    return CATTN_OK;
}

cattn_status ca_plan_update(ca_plan *plans, size_t n_plans, const ca_plan_entry *entries, int32_t n_entries) {
    cattn_status status = CATTN_OK;
    for (size_t i = 0; i < n_plans && status == CATTN_OK; i++) status = update_plan(&plans[i], entries, n_entries);
    for (size_t i = 0; i < n_plans && status != CATTN_OK; i++) drop_sections(&plans[i]);
    /* All plans have their sections in the same order, and each has found its old ones by the order before. */
    for (ca_plan *plan = plans; plan < plans + n_plans; plan++)
        for (size_t i = 0; !plan->only_moved && i < plan->sections.n; i++) plan->roots.at[i]->plan.section = (int32_t)i;
    return status;
}

/* ---- What a plan may need ---- */

int64_t ca_plan_most_segments(const ca_plan *plan, int64_t n_tokens, int64_t n_rows) {
    const ca_plan_config *config = &plan->config;
    const int64_t all = ((n_tokens - 1) >> config->log2_segment) + 1;
    if (config->window == 0) return all;
    const int64_t n_parts = 2,
                  seen = config->window + n_rows + config->n_sink_tokens; /* the sink tokens, and what the windows see */
    return ca_min(all, (seen >> config->log2_segment) + 2 * n_parts);
}

size_t ca_plan_most_bytes(const ca_plan *plan, int64_t n_tokens, int64_t n_rows) {
    enum { MOST_GROWTH = 2 }; /* arrays double */
    const int64_t n_segments = ca_plan_most_segments(plan, n_tokens, n_rows);
    const int64_t n_chunks = n_segments << (plan->config.log2_segment - plan->layout->log2_c);
    const int64_t n_chains = (n_rows - 1) / plan->config.max_rows + 1;
    const size_t row = sizeof(int32_t) * (size_t)(2 + n_segments) + sizeof(int64_t);
    const size_t chunk = sizeof(ca_item) + sizeof(ca_chunk_id), block = sizeof(ca_block) + sizeof(ca_plan_task);
    return sizeof(ca_section) + MOST_GROWTH * ((size_t)n_rows * row + (size_t)(n_chains * n_chunks) * chunk +
                                               (size_t)(n_chains * n_segments) * block + (size_t)n_chunks * sizeof(ca_visit));
}
