/* Keeping the plan: which sections still hold, and how their blocks are dealt to threads. */
#include "plan.h"

#include "plan_internal.h"

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
    if (status == CATTN_OK && changed && ca_plan_deal(plan)) status = CATTN_ERR_NOMEM;
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
