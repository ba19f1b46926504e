/* Keeping a plan from step to step: an update rebuilds only the sections that no longer hold. */
#include "plan_internal.h"

void ca_plan_init(ca_plan *plan, const ca_plan_config *config, ca_tree *tree, const ca_layout *layout, ca_alloc *alloc) {
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

/* The record of a root, added if there is none. An index that an earlier update has left is recognised by the node. */
static ca_plan_root *root_of(ca_plan_roots *roots, ca_node *node) {
    if (node->plan_index < roots->n && roots->at[node->plan_index].node == node) return &roots->at[node->plan_index];
    roots->at[roots->n] = (ca_plan_root){.node = node, .old_section = node->plan_index, .moved = true};
    node->plan_index = roots->n;
    return &roots->at[roots->n++];
}

/*
 * List the children of the tree's root that have rows, in the order in which the entries meet them. The sections of every plan
 * have the same order, so until the next update a root's index is also that of its section. For the plans after the first, the
 * list is there and only `moved` differs. Entries that only move are moved; the sections of all others must be refreshed.
 */
static cattn_status read_entries(ca_plan *plan, ca_plan_roots *roots, const ca_plan_entry *entries, int32_t n_entries) {
    const size_t n_last = plan->last.n;
    plan->last.n = 0;
    if (CA_RESERVE(plan->alloc, roots, (size_t)n_entries) || CA_RESERVE(plan->alloc, &plan->last, (size_t)n_entries))
        return CATTN_ERR_NOMEM;
    for (size_t i = 0; i < roots->n; i++) {
        roots->at[i].n_rows = 0;
        roots->at[i].moved = true;
    }
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
        ca_plan_root *root = root_of(roots, e->seq->root);
        root->moved &= moves;
        root->n_rows += e->n_rows;
    }
    return CATTN_OK;
}

/* ---- Sections ---- */

/* Take the section that was built for a root from the old list, if it still holds; NULL if it does not. */
static ca_section *take_section(ca_plan *plan, const ca_plan_root *root, const ca_plan_entry *entries) {
    if (root->old_section >= plan->sections.n) return NULL;
    ca_section *s = plan->sections.at[root->old_section];
    if (!s || s->root_id != root->node->id || s->version != root->node->version || s->n_rows != root->n_rows) return NULL;
    if (!root->moved && !ca_section_refresh(plan, s, entries)) return NULL;
    plan->sections.at[root->old_section] = NULL;
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
static cattn_status update_sections(ca_plan *plan, const ca_plan_roots *roots, const ca_plan_entry *entries, bool *changed) {
    const size_t n_old = plan->sections.n;
    plan->next.n = 0;
    if (CA_ROOM(plan->alloc, &plan->next, roots->n) || CA_ROOM(plan->alloc, &plan->spare, plan->spare.n + n_old))
        return CATTN_ERR_NOMEM;
    for (size_t i = 0; i < roots->n; i++) {
        ca_section *s = take_section(plan, &roots->at[i], entries);
        if (!s || roots->at[i].old_section != i) *changed = true;
        plan->next.at[plan->next.n++] = s;
    }
    for (size_t i = 0; i < n_old; i++)
        if (plan->sections.at[i]) {
            plan->spare.at[plan->spare.n++] = plan->sections.at[i];
            *changed = true;
        }
    plan->sections.n = 0;
    cattn_status status = CATTN_OK;
    for (size_t i = 0; i < roots->n; i++) {
        if (plan->next.at[i] || status != CATTN_OK) continue;
        plan->next.at[i] = new_section(plan);
        status = plan->next.at[i] ? ca_section_build(plan, plan->next.at[i], roots->at[i].node, entries) : CATTN_ERR_NOMEM;
    }
    swap_sections(plan);
    for (size_t i = 0; i < roots->n; i++)
        if (plan->sections.at[i]) plan->sections.at[plan->sections.n++] = plan->sections.at[i];
    return status;
}

/* ---- Update ---- */

static cattn_status update_plan(ca_plan *plan, ca_plan_roots *roots, const ca_plan_entry *entries, int32_t n_entries) {
    bool changed = plan->tasks.n == 0;
    if (read_entries(plan, roots, entries, n_entries) || update_sections(plan, roots, entries, &changed))
        return CATTN_ERR_NOMEM;
    if (changed && ca_plan_divide(plan)) return CATTN_ERR_NOMEM;
    plan->last.n = (size_t)n_entries;
    plan->tree_version = ca_tree_version(plan->tree);
    return CATTN_OK;
}

cattn_status ca_plan_update(ca_plan *plans, size_t n_plans, const ca_plan_entry *entries, int32_t n_entries) {
    bool all_moved = true;
    for (ca_plan *plan = plans; plan < plans + n_plans; plan++) {
        plan->only_moved = move_all(plan, entries, n_entries);
        all_moved = all_moved && plan->only_moved;
    }
    if (all_moved) return CATTN_OK;
    ca_plan_roots *roots = &plans->roots; /* the same for every plan */
    cattn_status status = CATTN_OK;
    roots->n = 0;
    for (ca_plan *plan = plans; plan < plans + n_plans && status == CATTN_OK; plan++)
        if (!plan->only_moved) status = update_plan(plan, roots, entries, n_entries);
    for (int32_t i = 0; i < n_entries; i++) entries[i].seq->step_entry = -1;
    for (ca_plan *plan = plans; plan < plans + n_plans && status != CATTN_OK; plan++) drop_sections(plan);
    return status;
}
