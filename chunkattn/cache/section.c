/*
 * Building one section of a plan from its rows and the visits of a walk: the items that the rows pass over, and the blocks that
 * hold these.
 */
#include "plan_internal.h"

/* The section being built. Functions that return int return 0, or -1 without memory. */
typedef struct builder {
    ca_plan *plan;
    ca_section *section;
} builder;

/* The segment that holds a position, and the first position behind a segment. */
static inline int64_t segment_of(const builder *b, int64_t position) { return position >> b->plan->config.log2_segment; }
static inline int64_t segment_end(const builder *b, int64_t segment) { return (segment + 1) << b->plan->config.log2_segment; }

/* ---- Rows ---- */

void ca_section_clear(ca_section *s) {
    s->seqs.n = s->source.n = s->position.n = s->items.n = s->chunks.n = s->blocks.n = 0;
    s->n_rows = 0;
}

int ca_section_add_rows(ca_plan *plan, ca_section *s, const ca_plan_entry *e, int32_t entry) {
    if (CA_ROOM(plan->alloc, &s->seqs, 1) || CA_ROOM(plan->alloc, &s->source, (size_t)e->n_rows) ||
        CA_ROOM(plan->alloc, &s->position, (size_t)e->n_rows))
        return -1;
    s->seqs.at[s->seqs.n++] = (ca_section_seq){e->seq, s->n_rows, e->n_rows, entry};
    for (int32_t i = 0; i < e->n_rows; i++) {
        s->source.at[s->source.n++] = e->row + i;
        s->position.at[s->position.n++] = e->first_pos + i;
    }
    s->n_rows += e->n_rows;
    return 0;
}

/* ---- Items ---- */

/* Chunks that hold sink tokens, and those of them that hold nothing else. */
static int64_t sink_chunks(const ca_plan *plan) {
    return plan->config.window == 0 ? 0 : ((int64_t)plan->config.n_sink_tokens + plan->layout->c - 1) >> plan->layout->log2_c;
}
static int64_t whole_sink_chunks(const ca_plan *plan) { return plan->config.n_sink_tokens >> plan->layout->log2_c; }

static int64_t clamp64(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/*
 * Add items for the item's rows over those of its chunks that they see. There are up to five, in this order: whole chunks of
 * sink tokens; the last chunk of these, which may be visible in part; chunks in which the window of some row begins; chunks
 * that all rows see in full; chunks in which some row ends.
 */
static int push_item(builder *b, ca_item item) {
    enum { N_RANGES = 5 };
    ca_section *s = b->section;
    const int c_shift = b->plan->layout->log2_c;
    const int64_t *pos = s->position.at;
    int64_t first = item.first_chunk, last = first - 1, seen_by_all = first + item.n_chunks;
    int64_t window_first = INT64_MAX, window_last = -1; /* the chunks in which windows begin */
    while (item.row_begin < item.row_end && pos[item.row_begin] >> c_shift < first) item.row_begin++;
    while (item.row_begin < item.row_end && pos[item.row_end - 1] >> c_shift < first) item.row_end--;
    for (int32_t r = item.row_begin; r < item.row_end; r++) {
        last = ca_max(last, pos[r] >> c_shift);
        seen_by_all = ca_min(seen_by_all, (pos[r] + 1) >> c_shift);
        if (pos[r] >> c_shift < first) continue;
        window_first = ca_min(window_first, ca_plan_window_chunk(b->plan, pos[r]));
        window_last = ca_max(window_last, ca_plan_window_chunk(b->plan, pos[r]));
    }
    const int64_t end = ca_min(first + item.n_chunks, last + 1), window = clamp64(window_first, first, ca_max(first, end));
    const int64_t full = clamp64(window_last + 1, window, ca_max(window, end));
    const struct {
        int64_t from, to;
        bool partial;
    } ranges[N_RANGES] = {
        {first, ca_min(ca_min(whole_sink_chunks(b->plan), seen_by_all), window), false},
        {ca_max(first, ca_min(whole_sink_chunks(b->plan), seen_by_all)), ca_min(sink_chunks(b->plan), window), true},
        {window, full, true},
        {full, ca_min(seen_by_all, end), false},
        {ca_max(seen_by_all, full), end, true},
    };
    if (CA_ROOM(b->plan->alloc, &s->items, N_RANGES)) return -1;
    for (int i = 0; i < N_RANGES; i++) {
        const int64_t from = ranges[i].from, to = ranges[i].to;
        if (from >= to) continue;
        ca_item added = item;
        added.first_chunk = (int32_t)from;
        added.n_chunks = (int32_t)(to - from);
        added.chunk += (int32_t)(from - first);
        added.partial = ranges[i].partial;
        s->items.at[s->items.n++] = added;
        ca_block *block = &s->blocks.at[s->blocks.n - 1];
        block->cost += (double)added.n_chunks *
                       (b->plan->config.chunk_cost + (double)(item.row_end - item.row_begin) * b->plan->config.group);
    }
    return 0;
}

/* Add an item for all rows, or one for each sequence if nothing is read together. */
static int add_item(builder *b, const ca_item *item) {
    if (b->plan->config.together) return push_item(b, *item);
    const ca_section *s = b->section;
    size_t lo = 0, hi = s->seqs.n; /* the sequence with the item's first row */
    while (lo + 1 < hi) {
        const size_t mid = (lo + hi) / 2;
        if (s->seqs.at[mid].row_begin <= item->row_begin)
            lo = mid;
        else
            hi = mid;
    }
    /*
     * If several sequences pass over the same chunks, they do so chunk by chunk in turn, so that all but the first sequence
     * find each chunk in the nearest cache.
     */
    const bool alone = lo + 1 == s->seqs.n || s->seqs.at[lo + 1].row_begin >= item->row_end;
    const int32_t step = alone ? item->n_chunks : 1;
    for (int32_t i = 0; i < item->n_chunks; i += step)
        for (size_t k = lo; k < s->seqs.n && s->seqs.at[k].row_begin < item->row_end; k++) {
            const ca_section_seq *q = &s->seqs.at[k];
            ca_item own = *item;
            own.row_begin = (int32_t)ca_max(own.row_begin, q->row_begin);
            own.row_end = (int32_t)ca_min(own.row_end, q->row_begin + q->n_rows);
            if (step < item->n_chunks) {
                own.first_chunk += i;
                own.chunk += i;
                own.n_chunks = 1;
            }
            if (push_item(b, own)) return -1;
        }
    return 0;
}

/* Add an item for chunks [from, to), absolute indices, of a visit. */
static int add_chunks(builder *b, const ca_visit *v, int64_t from, int64_t to, int32_t row_begin, int32_t row_end) {
    ca_section *s = b->section;
    if (from >= to || row_begin >= row_end) return 0;
    if (CA_ROOM(b->plan->alloc, &s->chunks, (size_t)(to - from))) return -1;
    const ca_item item = {.row_begin = row_begin,
                          .row_end = row_end,
                          .first_chunk = (int32_t)from,
                          .n_chunks = (int32_t)(to - from),
                          .chunk = (int32_t)s->chunks.n};
    const int64_t first = v->start >> b->plan->layout->log2_c;
    for (int64_t j = from; j < to; j++)
        s->chunks.at[s->chunks.n++] = v->chunks ? v->chunks[j - first] : v->first_chunk + (ca_chunk_id)(j - first);
    return add_item(b, &item);
}

/* The same for those chunks that some row sees: the chunks of sink tokens, and those from the first window on. */
static int add_seen_chunks(builder *b, const ca_visit *v, int64_t from, int64_t to, int32_t row_begin, int32_t row_end) {
    const int64_t *pos = b->section->position.at;
    const int64_t sink = ca_min(sink_chunks(b->plan), to);
    int64_t window = to;
    for (int32_t r = row_begin; r < row_end && window > ca_max(from, sink); r++)
        if (pos[r] >> b->plan->layout->log2_c >= from) window = ca_min(window, ca_plan_window_chunk(b->plan, pos[r]));
    if (window <= ca_max(from, sink)) return add_chunks(b, v, from, to, row_begin, row_end);
    if (add_chunks(b, v, from, sink, row_begin, row_end)) return -1;
    return add_chunks(b, v, window, to, row_begin, row_end);
}

/* Add the items of a visit to the block being built, which is the last and lies in one segment. */
static int add_visit(builder *b, const ca_visit *v, int64_t segment) {
    const ca_block *block = &b->section->blocks.at[b->section->blocks.n - 1];
    const int shift = b->plan->layout->log2_c;
    const int64_t per_segment = segment_end(b, 0) >> shift, c = b->plan->layout->c;
    const int64_t begin = ca_max(v->start >> shift, segment * per_segment);
    const int64_t complete = ca_min(v->end >> shift, (segment + 1) * per_segment);
    const int64_t end = ca_min((v->end + c - 1) >> shift, (segment + 1) * per_segment);
    const int32_t row_begin = (int32_t)ca_max(v->row_begin, block->row_begin);
    if (add_seen_chunks(b, v, begin, complete, row_begin, (int32_t)ca_min(v->row_end, block->row_end))) return -1;
    /* An incomplete last chunk is processed further down, except for the sequences that end here. */
    return add_seen_chunks(b, v, ca_max(begin, complete), end, row_begin, (int32_t)ca_min(v->row_own_end, block->row_end));
}

/* ---- Blocks ---- */

/* Add a block with its items. */
static int add_block(builder *b, int32_t row_begin, int32_t row_end, int64_t segment) {
    ca_section *s = b->section;
    if (CA_ROOM(b->plan->alloc, &s->blocks, 1)) return -1;
    s->blocks.at[s->blocks.n++] =
        (ca_block){.row_begin = row_begin, .row_end = row_end, .segment = (int32_t)segment, .item_begin = (int32_t)s->items.n};
    for (size_t i = 0; i < b->plan->visits.n; i++) {
        const ca_visit *v = &b->plan->visits.at[i];
        if (v->row_begin >= row_end) break;
        if (v->row_end > row_begin && v->end > segment_end(b, segment - 1) && v->start < segment_end(b, segment) &&
            add_visit(b, v, segment))
            return -1;
    }
    s->blocks.at[s->blocks.n - 1].item_end = (int32_t)s->items.n;
    return 0;
}

/* Whether a row sees any position of a segment. */
static bool sees_segment(const builder *b, int32_t row, int64_t segment) {
    const ca_plan_config *c = &b->plan->config;
    const int64_t pos = b->section->position.at[row];
    return pos >= segment_end(b, segment - 1) &&
           (c->window == 0 || pos + 1 - c->window < segment_end(b, segment) || segment_end(b, segment - 1) < c->n_sink_tokens);
}

/*
 * Add the blocks of a chain's rows over one segment. A row whose window has left the segment does not end a block, since the
 * rows before and after it may have chunks in common.
 */
static int add_segment(builder *b, int32_t begin, int32_t end, int64_t segment) {
    const int64_t *pos = b->section->position.at;
    for (int32_t r = begin, to; r < end; r = to) {
        to = r + 1;
        if (!sees_segment(b, r, segment)) continue;
        while (to < end && segment_of(b, pos[to]) >= segment) to++;
        while (!sees_segment(b, to - 1, segment)) to--;
        if (add_block(b, r, to, segment)) return -1;
    }
    return 0;
}

/* The first row after `row` that shares no chunk with the rows before it, since its path separates within the first chunk. */
static int32_t next_separate_row(const builder *b, size_t *visit, int32_t row) {
    const ca_plan *plan = b->plan;
    for (; *visit < plan->visits.n; ++*visit) {
        const ca_visit *v = &plan->visits.at[*visit];
        if (v->row_begin > row && v->start < plan->layout->c) return v->row_begin;
    }
    return b->section->n_rows;
}

/* Add blocks chain by chain, segments ascending, so that each row's blocks are in the order in which its states merge. */
static int add_blocks(builder *b) {
    const ca_plan_config *c = &b->plan->config;
    ca_section *s = b->section;
    size_t visit = 0;
    const int64_t *pos = s->position.at, sinks = c->window == 0 ? 0 : segment_of(b, c->n_sink_tokens + segment_end(b, 0) - 1);
    for (int32_t begin = 0, end; begin < s->n_rows; begin = end) {
        const size_t chain = s->blocks.n;
        const int32_t most = (int32_t)ca_min(next_separate_row(b, &visit, begin), begin + c->max_rows);
        int64_t last = 0, window = INT64_MAX; /* the last segment, and the first that a window touches */
        for (end = begin; end < most; end++) {
            last = ca_max(last, segment_of(b, pos[end]));
            window = c->window == 0 ? 0 : ca_min(window, segment_of(b, ca_max(pos[end] + 1 - c->window, 0)));
        }
        for (int64_t segment = 0; segment <= last; segment++) {
            if (segment >= sinks && segment < window) segment = window;
            if (add_segment(b, begin, end, segment)) return -1;
        }
        for (size_t i = chain; i < s->blocks.n; i++) s->blocks.at[i].chain_end = (int32_t)s->blocks.n;
    }
    return 0;
}

/* List the blocks of each row, and sum up the section. */
static int link_rows(builder *b) {
    ca_section *s = b->section;
    const size_t n_rows = (size_t)s->n_rows;
    if (CA_ROOM(b->plan->alloc, &s->first_block, n_rows + 1)) return -1;
    int32_t *first = s->first_block.at;
    for (size_t r = 0; r <= n_rows; r++) first[r] = 0;
    size_t total = 0;
    for (size_t i = 0; i < s->blocks.n; i++)
        for (int32_t r = s->blocks.at[i].row_begin; r < s->blocks.at[i].row_end; r++)
            if (sees_segment(b, r, s->blocks.at[i].segment)) first[r]++, total++;
    if (CA_ROOM(b->plan->alloc, &s->row_blocks, total)) return -1;
    int32_t sum = 0;
    for (size_t r = 0; r <= n_rows; r++) {
        const int32_t n = first[r];
        first[r] = sum;
        sum += n;
    }
    /* Filling advances first[r] to where row r + 1 begins; the shift afterwards undoes that. */
    for (size_t i = 0; i < s->blocks.n; i++)
        for (int32_t r = s->blocks.at[i].row_begin; r < s->blocks.at[i].row_end; r++)
            if (sees_segment(b, r, s->blocks.at[i].segment)) s->row_blocks.at[first[r]++] = (int32_t)i;
    for (size_t r = n_rows; r > 0; r--) first[r] = first[r - 1];
    first[0] = 0;
    s->max_segments = 0;
    for (size_t r = 0; r < n_rows; r++) s->max_segments = (int32_t)ca_max(s->max_segments, first[r + 1] - first[r]);
    s->cost = 0;
    for (size_t i = 0; i < s->blocks.n; i++) s->cost += s->blocks.at[i].cost;
    s->stale_states = true;
    return 0;
}

cattn_status ca_section_build(ca_plan *plan, ca_section *s) {
    builder b = {plan, s};
    s->items.n = s->chunks.n = s->blocks.n = 0;
    if (add_blocks(&b) || link_rows(&b)) return CATTN_ERR_NOMEM;
    plan->n_built++;
    return CATTN_OK;
}

void ca_section_free(ca_section *s, ca_alloc *a) {
    CA_ARRAY_FREE(a, &s->seqs);
    CA_ARRAY_FREE(a, &s->source);
    CA_ARRAY_FREE(a, &s->position);
    CA_ARRAY_FREE(a, &s->first_block);
    CA_ARRAY_FREE(a, &s->row_blocks);
    CA_ARRAY_FREE(a, &s->items);
    CA_ARRAY_FREE(a, &s->chunks);
    CA_ARRAY_FREE(a, &s->blocks);
    ca_delete(a, s, 1, sizeof *s);
}
