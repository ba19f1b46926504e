/* The walk over a prefix tree that a section is built from: the rows below one child of its root, and a visit for each node. */
#include "plan_internal.h"

typedef struct walker {
    ca_plan *plan;
    ca_section *section;
    const ca_plan_entry *entries;
} walker;

static bool has_rows(const walker *w, const ca_seq *seq) {
    return seq->step_entry >= 0 && w->entries[seq->step_entry].n_rows > 0;
}

/* Visit a node: add it to the visits and to the path, and the rows of the sequences that end at it. 0, or -1 without memory. */
static int enter(walker *w, ca_node *node) {
    ca_plan *plan = w->plan;
    if (CA_ROOM(plan->alloc, &plan->visits, 1) || CA_ROOM(plan->alloc, &plan->path, 1)) return -1;
    const int32_t row_begin = w->section->n_rows;
    for (const ca_seq *seq = node->ending; seq; seq = seq->next)
        if (has_rows(w, seq) && ca_section_add_rows(plan, w->section, &w->entries[seq->step_entry], seq->step_entry)) return -1;
    plan->path.at[plan->path.n++] = (ca_plan_step){node, plan->visits.n, 0};
    plan->visits.at[plan->visits.n++] = (ca_visit){.start = node->start,
                                                   .end = ca_node_end(node),
                                                   .chunks = node->chunks,
                                                   .row_begin = row_begin,
                                                   .row_own_end = w->section->n_rows};
    return 0;
}

/* Visit all nodes with rows. There is no recursion, since a tree can be as deep as a text is long. */
static int walk(walker *w, ca_node *root) {
    ca_plan *plan = w->plan;
    plan->visits.n = plan->path.n = 0;
    if (enter(w, root)) return -1;
    while (plan->path.n > 0) {
        ca_plan_step *at = &plan->path.at[plan->path.n - 1];
        while (at->next_child < at->node->n_children && at->node->children[at->next_child]->n_seqs == 0) at->next_child++;
        if (at->next_child < at->node->n_children) {
            if (enter(w, at->node->children[at->next_child++])) return -1;
            continue;
        }
        ca_visit *v = &plan->visits.at[at->visit];
        v->row_end = w->section->n_rows;
        if (v->row_end == v->row_begin) plan->visits.n--; /* nor was any visit below it kept */
        plan->path.n--;
    }
    return 0;
}

cattn_status ca_section_build_subtree(ca_plan *plan, ca_section *s, ca_node *root, const ca_plan_entry *entries) {
    walker w = {plan, s, entries};
    ca_section_clear(s);
    if (walk(&w, root) || ca_section_build(plan, s)) return CATTN_ERR_NOMEM;
    s->root_id = root->id;
    s->version = root->version;
    for (size_t i = 0; i < s->seqs.n; i++)
        plan->last.at[s->seqs.at[i].entry].position = s->position.at + s->seqs.at[i].row_begin;
    return CATTN_OK;
}

bool ca_section_refresh(ca_plan *plan, ca_section *s, const ca_plan_entry *entries) {
    for (size_t i = 0; i < s->seqs.n; i++) {
        ca_section_seq *q = &s->seqs.at[i];
        q->entry = q->seq->step_entry;
        if (q->entry < 0) return false;
        const ca_plan_entry *e = &entries[q->entry];
        int64_t *pos = s->position.at + q->row_begin;
        if (e->n_rows != q->n_rows) return false;
        if (e->first_pos != pos[0] && (e->n_rows > 1 || !ca_plan_same_chunks(plan, e->first_pos, pos[0]))) return false;
        plan->last.at[q->entry].position = pos;
        for (int32_t r = 0; r < e->n_rows; r++) {
            pos[r] = e->first_pos + r;
            s->source.at[q->row_begin + r] = e->row + r;
        }
    }
    return true;
}
