/* Plans over foreign pages: their sections, which follow from the sorted tables, and what is kept from batch to batch. */
#include "page_plan.h"

#include "chunkattn/base/fail.h"
#include "chunkattn/cache/plan_internal.h"

void ca_page_plan_init(ca_page_plan *p, int32_t page_size, bool apart, ca_alloc *alloc) {
    const int32_t log2_page = __builtin_ctz((uint32_t)page_size);
    *p = (ca_page_plan){
        .alloc = alloc, .log2_page = log2_page, .log2_quarters = log2_page - CA_PAGE_LOG2_QUARTER, .apart = apart};
    ca_tables_init(&p->tables, alloc);
}

void ca_page_plan_free(ca_page_plan *p) {
    for (size_t i = 0; i < p->plans.n; i++) ca_plan_free(&p->plans.at[i]);
    CA_ARRAY_FREE(p->alloc, &p->plans);
    CA_ARRAY_FREE(p->alloc, &p->ranges);
    ca_tables_free(&p->tables);
}

int32_t ca_page_plan_add(ca_page_plan *p, const ca_plan_config *config, const ca_chunk_layout *layout) {
    for (size_t i = 0; i < p->plans.n; i++)
        if (ca_plan_serves(&p->plans.at[i], config->shape, config->window)) return (int32_t)i;
    if (CA_ROOM(p->alloc, &p->plans, 1)) return -1;
    ca_plan_init(&p->plans.at[p->plans.n], config, NULL, layout, p->alloc);
    return (int32_t)p->plans.n++;
}

/* ---- Numbers of chunks ---- */

static bool numbers_fit(const ca_page_plan *p) { return (int64_t)p->tables.tables.n << p->next_log2 <= (int64_t)INT32_MAX + 1; }

/*
 * Choose the bits of an index so that the numbers of the update reach over its longest table. More bits than needed are kept
 * from earlier updates, so that sections stay valid, unless the tables are too many for that. CATTN_ERR_ARG if they are in any
 * case.
 */
static cattn_status number_chunks(ca_page_plan *p) {
    const int shift = p->plans.at[0].layout->log2_c;
    int64_t most = 1;
    for (size_t i = 0; i < p->tables.next.n; i++)
        most = ca_max(most, ((int64_t)ca_table_at(&p->tables, p->tables.next.at[i])->n_next << p->log2_page) >> shift);
    p->next_log2 = p->log2_chunks;
    while ((int64_t)1 << p->next_log2 <= most) p->next_log2++;
    if (numbers_fit(p)) return CATTN_OK;
    for (p->next_log2 = 0; (int64_t)1 << p->next_log2 <= most;) p->next_log2++;
    return numbers_fit(p) ? CATTN_OK : CATTN_ERR_ARG;
}

int64_t ca_page_plan_find(const ca_page_plan *p, ca_chunk_id chunk, int32_t quarter) {
    const ca_table *t = &p->tables.tables.at[chunk >> p->log2_chunks];
    const int32_t index = chunk & ((1 << p->log2_chunks) - 1), at = index * CA_PAGE_QUARTERS + quarter;
    const int32_t page = at >> p->log2_quarters;
    return page < t->n ? ((int64_t)t->ids.at[page] << p->log2_quarters) + (at & ((1 << p->log2_quarters) - 1)) : -1;
}

/* ---- Ranges ---- */

/* Whether nothing of a table and its rows has changed, except that positions advanced within their pages. */
static bool is_kept(const ca_page_plan *p, const ca_table *t, const ca_page_seq *s) {
    if (t->section < 0 || t->n_next != t->n || s->n_rows != t->n_rows || s->first_pos < t->first_pos) return false;
    if (s->first_pos == t->first_pos) return true;
    for (const ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n; plan++)
        for (int32_t r = 0; r < s->n_rows; r++)
            if (!ca_plan_same_chunks(plan, t->first_pos + r, s->first_pos + r)) return false;
    return true;
}

/* The existing section that is still valid for a range; -1: none. */
static int32_t kept_section(const ca_page_plan *p, const ca_page_range *g, const ca_page_seq *seqs) {
    const ca_table_place *places = p->tables.next.at;
    const int32_t section = ca_table_at(&p->tables, places[g->begin])->section;
    if (p->next_log2 != p->log2_chunks) return -1; /* its chunks have other numbers now */
    for (int32_t i = g->begin; i < g->end; i++) {
        const ca_table *t = ca_table_at(&p->tables, places[i]);
        if (t->section != section || !is_kept(p, t, &seqs[t->seq])) return -1;
    }
    return p->plans.at[0].sections.at[section]->seqs.n == (size_t)(g->end - g->begin) ? section : -1;
}

/* List the ranges. *changed is set unless the sections stay the same, in the same order. */
static cattn_status find_ranges(ca_page_plan *p, const ca_page_seq *seqs, bool *changed) {
    const ca_table_order *order = &p->tables.next;
    p->ranges.n = 0;
    if (CA_RESERVE(p->alloc, &p->ranges, order->n)) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < (int32_t)order->n;) {
        ca_page_range *g = &p->ranges.at[p->ranges.n++];
        g->begin = i++;
        while (i < (int32_t)order->n && order->at[i].common > 0 && !p->apart) i++;
        g->end = i;
        g->section = kept_section(p, g, seqs);
        if (g->section != (int32_t)p->ranges.n - 1) *changed = true;
    }
    if (p->ranges.n != p->plans.at[0].sections.n) *changed = true;
    return CATTN_OK;
}

/* ---- Sections ---- */

static int add_rows(ca_plan *plan, ca_section *s, const ca_page_plan *p, const ca_page_range *g, const ca_page_seq *seqs) {
    ca_section_clear(s);
    for (int32_t i = g->begin; i < g->end; i++) {
        const int32_t seq = ca_table_at(&p->tables, p->tables.next.at[i])->seq;
        const ca_page_seq *of = &seqs[seq];
        const ca_plan_entry e = {.first_pos = of->first_pos, .n_rows = of->n_rows, .row = of->row};
        if (ca_section_add_rows(plan, s, &e, seq)) return -1;
    }
    return 0;
}

/* The run [start, end) of table i's pages, which the range's tables from i up to j share. Those that end with it come first. */
static ca_visit visit_of(const ca_plan *plan, const ca_section *s, const ca_page_plan *p, const ca_table_place *places,
                         int32_t i, int32_t j, int32_t start, int32_t end) {
    int32_t own = i;
    while (own < j && ca_table_at(&p->tables, places[own])->n_next == end) own++;
    const int32_t n = (int32_t)s->seqs.n, index = (int32_t)(((int64_t)start << p->log2_page) >> plan->layout->log2_c);
    return (ca_visit){.start = (int64_t)start << p->log2_page,
                      .end = (int64_t)end << p->log2_page,
                      .first_chunk = (places[i].table << p->next_log2) + index,
                      .row_begin = s->seqs.at[i].row_begin,
                      .row_own_end = own < n ? s->seqs.at[own].row_begin : s->n_rows,
                      .row_end = j < n ? s->seqs.at[j].row_begin : s->n_rows};
}

/*
 * Add the visits of a range: for each table, the runs of pages that it does not have in common with the table before it. A run
 * is cut wherever fewer of the following tables share it.
 */
static int add_visits(ca_plan *plan, const ca_section *s, const ca_page_plan *p, const ca_page_range *g) {
    const ca_table_place *places = p->tables.next.at + g->begin;
    const int32_t n = g->end - g->begin;
    plan->visits.n = 0;
    for (int32_t i = 0; i < n; i++) {
        const ca_table *t = ca_table_at(&p->tables, places[i]);
        const int32_t own = i > 0 ? places[i].common : 0;
        const size_t first = plan->visits.n;
        for (int32_t end = t->n_next, j = i + 1; end > own;) {
            while (j < n && places[j].common >= end) j++;
            const int32_t start = j < n && places[j].common > own ? places[j].common : own;
            if (CA_ROOM(plan->alloc, &plan->visits, 1)) return -1;
            plan->visits.at[plan->visits.n++] = visit_of(plan, s, p, places, i, j, start, end);
            end = start;
        }
        for (size_t a = first, b = plan->visits.n; a + 1 < b; a++, b--) { /* they were added in descending order */
            const ca_visit v = plan->visits.at[a];
            plan->visits.at[a] = plan->visits.at[b - 1];
            plan->visits.at[b - 1] = v;
        }
    }
    return 0;
}

static ca_section *new_section(ca_plan *plan) {
    if (plan->spare.n > 0) return plan->spare.at[--plan->spare.n];
    return ca_new_zero(plan->alloc, 1, sizeof(ca_section));
}

/* Make the sections that were built for the update spare, for which there is room. */
static void discard_built(ca_plan *plan, const ca_page_plan *p) {
    for (size_t i = 0; i < plan->next.n; i++)
        if (p->ranges.at[i].section < 0) plan->spare.at[plan->spare.n++] = plan->next.at[i];
    plan->next.n = 0;
}

/* Put the sections of all ranges, kept and new, into plan->next. */
static cattn_status build_sections(ca_plan *plan, const ca_page_plan *p, const ca_page_seq *seqs) {
    const size_t n = p->ranges.n;
    if (CA_RESERVE(plan->alloc, &plan->next, n) || CA_RESERVE(plan->alloc, &plan->spare, plan->spare.n + plan->sections.n + n))
        return CATTN_ERR_NOMEM;
    while (plan->next.n < n) {
        const ca_page_range *g = &p->ranges.at[plan->next.n];
        ca_section *s = g->section < 0 ? new_section(plan) : plan->sections.at[g->section];
        if (!s) return CATTN_ERR_NOMEM;
        plan->next.at[plan->next.n++] = s;
        if (g->section < 0 && (add_rows(plan, s, p, g, seqs) || add_visits(plan, s, p, g) || ca_section_build(plan, s)))
            return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
}

/* ---- Update ---- */

/* Exchange the sections in use for those of the update, or back. */
static void swap_sections(ca_plan *plan) {
    ca_section **at = plan->sections.at;
    const size_t n = plan->sections.n, capacity = plan->sections.capacity;
    plan->sections.at = plan->next.at, plan->sections.n = plan->next.n, plan->sections.capacity = plan->next.capacity;
    plan->next.at = at, plan->next.n = n, plan->next.capacity = capacity;
}

/* Divide the work again, and reserve the memory that it needs. */
static cattn_status divide(ca_page_plan *p, ca_attn *attn) {
    if (!attn) return CATTN_OK; /* on a device ca_device_plan divides it */
    for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n; plan++)
        if (ca_plan_divide(plan)) return CATTN_ERR_NOMEM;
    return ca_attn_reserve(attn, p->plans.at, p->plans.n);
}

/* Replace the sections of all plans by those of the update, or leave the plans unchanged. */
static cattn_status replace_sections(ca_page_plan *p, ca_attn *attn, const ca_page_seq *seqs) {
    cattn_status status = CATTN_OK;
    for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n && status == CATTN_OK; plan++)
        status = build_sections(plan, p, seqs);
    if (status == CATTN_OK) {
        for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n; plan++) swap_sections(plan);
        if ((status = divide(p, attn))) {
            for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n; plan++) swap_sections(plan);
            p->exists = p->exists && divide(p, attn) == CATTN_OK;
        }
    }
    for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n && status; plan++) discard_built(plan, p);
    return status;
}

/* Make the replaced sections spare, except those that were kept. */
static void spare_replaced(ca_plan *plan, const ca_page_plan *p) {
    for (size_t i = 0; i < p->ranges.n; i++)
        if (p->ranges.at[i].section >= 0) plan->next.at[p->ranges.at[i].section] = NULL;
    for (size_t i = 0; i < plan->next.n; i++)
        if (plan->next.at[i]) plan->spare.at[plan->spare.n++] = plan->next.at[i];
    plan->next.n = 0;
}

/* Update positions and indices in a section that was kept. Returns whether the indices are the same. */
static bool refresh(ca_section *s, const ca_page_plan *p, const ca_page_range *g, const ca_page_seq *seqs) {
    bool same = true;
    for (int32_t i = g->begin; i < g->end; i++) {
        ca_section_seq *q = &s->seqs.at[i - g->begin];
        q->entry = ca_table_at(&p->tables, p->tables.next.at[i])->seq;
        for (int32_t r = 0; r < q->n_rows; r++) {
            same &= s->source.at[q->row_begin + r] == seqs[q->entry].row + r;
            s->position.at[q->row_begin + r] = seqs[q->entry].first_pos + r;
            s->source.at[q->row_begin + r] = seqs[q->entry].row + r;
        }
    }
    return same;
}

static void commit(ca_page_plan *p, const ca_page_seq *seqs) {
    for (size_t i = 0; i < p->ranges.n; i++) {
        const ca_page_range *g = &p->ranges.at[i];
        for (size_t k = 0; k < p->plans.n && g->section >= 0; k++)
            if (!refresh(p->plans.at[k].sections.at[i], p, g, seqs)) p->plans.at[k].only_moved = false;
        for (int32_t j = g->begin; j < g->end; j++) {
            ca_table *t = ca_table_at(&p->tables, p->tables.next.at[j]);
            t->first_pos = seqs[t->seq].first_pos;
            t->n_rows = seqs[t->seq].n_rows;
            t->section = (int32_t)i;
        }
    }
    ca_tables_commit(&p->tables);
    p->log2_chunks = p->next_log2;
}

static cattn_status update(ca_page_plan *p, ca_attn *attn, const ca_page_seq *seqs, int32_t n_seqs) {
    bool changed = !p->exists;
    cattn_status status = ca_tables_update(&p->tables, seqs, n_seqs);
    if (status) return status;
    if ((status = number_chunks(p)) || (status = find_ranges(p, seqs, &changed)) ||
        (changed && (status = replace_sections(p, attn, seqs)))) {
        ca_tables_undo(&p->tables);
        return status;
    }
    for (ca_plan *plan = p->plans.at; plan < p->plans.at + p->plans.n; plan++) {
        plan->only_moved = !changed;
        if (changed) spare_replaced(plan, p);
    }
    commit(p, seqs);
    p->exists = true;
    p->n_made++;
    p->n_kept += !changed;
    return CATTN_OK;
}

cattn_status ca_page_plan_update(ca_page_plan *p, ca_attn *attn, const ca_page_seq *seqs, int32_t n_seqs, cattn_error *error) {
    const cattn_status s = update(p, attn, seqs, n_seqs);
    if (s == CATTN_ERR_ARG)
        return ca_fail(error, s, -1, "the batch has too many sequences for its longest one; divide it into several");
    return s ? ca_fail(error, s, -1, "no memory for the plan of %d sequences", n_seqs) : s;
}

/* ---- What is shared ---- */

/* The number of runs of pages that begin at a place of the order and are shared with the tables behind it. */
static int64_t count_runs(const ca_table_order *order, size_t place) {
    const int32_t own = order->at[place].common;
    int64_t n = 0;
    int32_t end = INT32_MAX;
    for (size_t j = place + 1; j < order->n && order->at[j].common > own; j++) {
        n += order->at[j].common < end;
        if (order->at[j].common < end) end = order->at[j].common;
    }
    return n;
}

void ca_page_plan_count(const ca_page_plan *p, cattn_pages_info *info) {
    const ca_table_order *order = &p->tables.order;
    const bool together = p->plans.at[0].config.together;
    for (size_t i = 0; i < order->n; i++) {
        const int32_t common = order->at[i].common, next = i + 1 < order->n ? order->at[i + 1].common : 0;
        const ca_table *t = ca_table_at(&p->tables, order->at[i]);
        info->n_rows += t->n_rows;
        info->pages_referenced += t->n;
        info->pages_read += together ? t->n - common : t->n;
        if (p->apart) continue;
        info->shared_pages += next > common ? next - common : 0;
        info->shared_runs += count_runs(order, i);
    }
    info->n_plans = p->n_made;
    info->n_kept = p->n_kept;
}
