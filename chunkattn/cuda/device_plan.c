/* Building the image of a plan: draft work items from its blocks, link segments, number states, assign to thread blocks. */
#include "device_plan.h"

#include <string.h>

enum { LINE_WORDS = 32 }; /* a cache line of the device */

static size_t element_words(int array) {
    if (array >= CA_IMAGE_PAGES) return sizeof(ca_work_item_pages) / sizeof(int32_t);
    return array >= CA_IMAGE_ITEMS ? sizeof(ca_work_item) / sizeof(int32_t) : 1;
}

void ca_device_plan_init(ca_device_plan *dp, const ca_device_plan_config *config, ca_alloc *alloc) {
    *dp = (ca_device_plan){.config = *config, .alloc = alloc};
}

static void drop_image(ca_device_plan *dp) {
    ca_delete(dp->alloc, dp->image, dp->image_words, sizeof *dp->image);
    ca_delete(dp->alloc, dp->sent, dp->image_words, sizeof *dp->sent);
    dp->image = dp->sent = NULL;
    dp->image_words = 0;
    dp->valid = false;
}

void ca_device_plan_free(ca_device_plan *dp) {
    drop_image(dp);
    CA_ARRAY_FREE(dp->alloc, &dp->drafts);
    CA_ARRAY_FREE(dp->alloc, &dp->pages);
    CA_ARRAY_FREE(dp->alloc, &dp->last);
    CA_ARRAY_FREE(dp->alloc, &dp->slot);
    memset(dp->capacity, 0, sizeof dp->capacity);
}

void ca_device_plan_forget(ca_device_plan *dp) {
    memset(dp->n_sent, 0, sizeof dp->n_sent);
    dp->rebuilt = true;
}

/* ---- Drafts ---- */

/* The chunks of one row in a block's segment. */
typedef struct row_chunks {
    ca_chunk_id id[CA_CUDA_SEGMENT_CHUNKS]; /* -1: the row sees nothing of it */
    uint32_t partial;                       /* bit i: it may not see all of chunk i */
} row_chunks;

/* The block that is being drafted. Functions here that return int return 0, or -1 without memory. */
typedef struct drafter {
    ca_device_plan *dp;
    int32_t first_row; /* of the block, among the plan's rows */
    int32_t segment;
    row_chunks rows[CA_CUDA_MAX_PREFILL_TOKENS];
} drafter;

static void read_block(drafter *d, const ca_section *s, const ca_block *block) {
    memset(d->rows, 0xff, (size_t)(block->row_end - block->row_begin) * sizeof *d->rows);
    for (int32_t r = 0; r < block->row_end - block->row_begin; r++) d->rows[r].partial = 0;
    for (const ca_item *item = s->items.at + block->item_begin; item < s->items.at + block->item_end; item++)
        for (int32_t i = 0; i < item->n_chunks; i++) {
            const int32_t at = item->first_chunk + i - block->segment * CA_CUDA_SEGMENT_CHUNKS;
            for (int32_t r = item->row_begin; r < item->row_end; r++) {
                row_chunks *row = &d->rows[r - block->row_begin];
                row->id[at] = s->chunks.at[item->chunk + i];
                row->partial |= (uint32_t)item->partial << at;
            }
        }
}

/* Set the work item's chunks: those of [from, to) that some of the rows see. */
static void list_chunks(const drafter *d, int32_t begin, int32_t end, int32_t from, int32_t to, ca_work_item *work) {
    for (int32_t at = from; at < to; at++) {
        ca_chunk_id id = -1;
        bool partial = false;
        for (int32_t r = begin; r < end; r++) {
            if (d->rows[r].id[at] >= 0) id = d->rows[r].id[at];
            partial |= d->rows[r].id[at] < 0 || (d->rows[r].partial >> at & 1);
        }
        if (id < 0) continue;
        work->chunk[work->n_chunks] = id;
        work->order |= (uint32_t)at << 4 * work->n_chunks;
        work->partial = (uint8_t)(work->partial | (unsigned)partial << work->n_chunks);
        work->n_chunks++;
    }
}

/* Note where the chunks of the next draft lie, if they consist of foreign pages. */
static int find_pages(ca_device_plan *dp, const ca_work_item *work) {
    const ca_page_source *source = dp->config.source;
    if (!source) return 0;
    if (CA_ROOM(dp->alloc, &dp->pages, 1)) return -1;
    ca_work_item_pages *pages = &dp->pages.at[dp->pages.n++];
    memset(pages, 0xff, sizeof *pages);
    for (int32_t i = 0; i < work->n_chunks; i++)
        source->find(source->ctx, work->chunk[i], pages->quarter + i * CA_CUDA_QUARTERS);
    return 0;
}

/* Note that a work item ends its segment for its rows, and find the work item that it may be linked to. */
static void follow_rows(ca_device_plan *dp, ca_work_draft *draft, int32_t index) {
    int32_t *last = dp->last.at + draft->work.row;
    const int32_t n = draft->work.n_tokens, before = last[0];
    bool same = true;
    for (int32_t i = 0; i < n; i++) {
        same &= last[i] == before;
        last[i] = index;
    }
    draft->from_first = same && before < 0 && draft->work.carry_in < 0;
    if (!same || before < 0) return;
    const ca_work_draft *b = &dp->drafts.at[before];
    if (!b->from_first || b->work.row != draft->work.row || b->work.n_tokens != n || b->list != draft->list) return;
    if (draft->work.carry_in >= 0 || ca_list_decodes(draft->list)) return;
    draft->before = before;
    draft->from_first = true;
}

/* Draft a work item for rows [begin, end) of the block over its chunks [from, to), unless they see nothing there. */
static int add_draft(drafter *d, int32_t begin, int32_t end, int32_t from, int32_t to, int32_t carry_in, int32_t carry_out) {
    ca_device_plan *dp = d->dp;
    ca_work_item work = {.row = d->first_row + begin,
                         .n_tokens = (uint8_t)(end - begin),
                         .segment = (uint16_t)d->segment,
                         .state = -1,
                         .fold = -1,
                         .carry_in = carry_in,
                         .carry_out = carry_out};
    list_chunks(d, begin, end, from, to, &work);
    if (work.n_chunks == 0 && carry_in < 0) return 0;
    if (CA_ROOM(dp->alloc, &dp->drafts, 1) || find_pages(dp, &work)) return -1;
    const int32_t n_rows = (end - begin) * dp->config.group;
    const int list = n_rows <= CA_CUDA_DECODE_ROWS ? CA_LIST_DECODE : CA_LIST_PREFILL;
    const int32_t index = (int32_t)dp->drafts.n++;
    dp->drafts.at[index] = (ca_work_draft){.work = work,
                                           .list = (int8_t)(carry_in < 0 ? list : list + CA_LIST_PREFILL_CARRIED),
                                           .before = -1,
                                           .next = -1,
                                           .cost = ca_work_cost(work.n_chunks, n_rows)};
    if (carry_out < 0) follow_rows(dp, &dp->drafts.at[index], index);
    return 0;
}

/* The first chunk from `from` on in which two rows part. */
static int32_t common_end(const drafter *d, int32_t begin, int32_t end, int32_t from) {
    for (int32_t at = from; at < CA_CUDA_SEGMENT_CHUNKS; at++) {
        ca_chunk_id one = -1;
        for (int32_t r = begin; r < end; r++) {
            const ca_chunk_id id = d->rows[r].id[at];
            if (id >= 0 && one >= 0 && id != one) return at;
            if (id >= 0) one = id;
        }
    }
    return CA_CUDA_SEGMENT_CHUNKS;
}

/* The end of the rows from `begin` on that stay together at chunk `at`. Rows that see nothing of it go with any. */
static int32_t rows_together(const drafter *d, int32_t begin, int32_t end, int32_t at) {
    ca_chunk_id one = -1;
    for (int32_t r = begin; r < end; r++) {
        const ca_chunk_id id = d->rows[r].id[at];
        if (id >= 0 && one >= 0 && id != one) return r;
        if (id >= 0) one = id;
    }
    return end;
}

/* Whether rows that part at chunk `at` move fewer bytes if the chunks from `from` on are read once and their sums are carried.
 */
static bool carrying_pays(const drafter *d, int32_t begin, int32_t end, int32_t from, int32_t at) {
    const int64_t dim = d->dp->config.head_dim, n_rows = (int64_t)(end - begin) * d->dp->config.group;
    int64_t n_parts = 0, n_chunks = 0;
    for (int32_t r = begin; r < end; r = rows_together(d, r, end, at)) n_parts++;
    for (int32_t i = from; i < at; i++)
        for (int32_t r = begin, found = 0; r < end && !found; r++) n_chunks += found = d->rows[r].id[i] >= 0;
    const int64_t carry_bytes = CA_CUDA_QUARTERS * (dim + CA_CUDA_CARRY) * (int64_t)sizeof(float);
    return (n_parts - 1) * n_chunks * d->dp->config.tile_bytes > n_rows * 2 * carry_bytes;
}

/* Draft work items for rows whose chunks before `from` are the same, and whose sums over these are carried from `carry` on. */
static int split_rows(drafter *d, int32_t begin, int32_t end, int32_t from, int32_t carry) {
    const int32_t at = common_end(d, begin, end, from);
    if (at == CA_CUDA_SEGMENT_CHUNKS) return add_draft(d, begin, end, from, at, carry, -1);
    if (carry < 0 && carrying_pays(d, begin, end, from, at)) {
        carry = d->dp->n_carried;
        d->dp->n_carried += end - begin;
        if (add_draft(d, begin, end, from, at, -1, carry)) return -1;
        from = at;
    }
    for (int32_t r = begin, to; r < end; r = to) {
        to = rows_together(d, r, end, at);
        if (split_rows(d, r, to, from, carry < 0 ? -1 : carry + r - begin)) return -1;
    }
    return 0;
}

/* The end of the block's rows from `row` on that may share work items: those of one sequence if nothing is read together. */
static int32_t sharing_end(const ca_section *s, const ca_plan *plan, int32_t row, int32_t end) {
    if (plan->config.together) return end;
    size_t lo = 0, hi = s->seqs.n;
    while (lo + 1 < hi) {
        const size_t mid = (lo + hi) / 2;
        if (s->seqs.at[mid].row_begin <= row)
            lo = mid;
        else
            hi = mid;
    }
    const int32_t own = s->seqs.at[lo].row_begin + s->seqs.at[lo].n_rows;
    return own < end ? own : end;
}

static int draft_section(ca_device_plan *dp, const ca_plan *plan, const ca_section *s, int32_t first_row) {
    drafter d = {.dp = dp};
    for (const ca_block *block = s->blocks.at; block < s->blocks.at + s->blocks.n; block++) {
        d.first_row = first_row + block->row_begin;
        d.segment = block->segment;
        read_block(&d, s, block);
        for (int32_t row = block->row_begin, end; row < block->row_end; row = end) {
            end = sharing_end(s, plan, row, block->row_end);
            if (split_rows(&d, row - block->row_begin, end - block->row_begin, 0, -1)) return -1;
        }
    }
    return 0;
}

static int32_t count_rows(const ca_plan *plan) {
    int32_t n = 0;
    for (size_t i = 0; i < plan->sections.n; i++) n += plan->sections.at[i]->n_rows;
    return n;
}

static int draft_items(ca_device_plan *dp, const ca_plan *plan, int32_t n_rows) {
    dp->drafts.n = dp->pages.n = 0;
    dp->n_carried = 0;
    /* Neither array is NULL without rows. */
    if (CA_RESERVE(dp->alloc, &dp->last, (size_t)n_rows + 1) || CA_RESERVE(dp->alloc, &dp->drafts, 1)) return -1;
    memset(dp->last.at, 0xff, (size_t)n_rows * sizeof *dp->last.at);
    int32_t row = 0;
    for (size_t i = 0; i < plan->sections.n; i++) {
        if (draft_section(dp, plan, plan->sections.at[i], row)) return -1;
        row += plan->sections.at[i]->n_rows;
    }
    return 0;
}

/* ---- Links and states ---- */

static int32_t n_blocks(const ca_device_plan *dp, int list) {
    return ca_list_decodes(list) ? dp->config.decode_blocks : dp->config.prefill_blocks;
}

/* Link drafts to those before them while a chain costs at most half of a thread block's share of its list. */
static void link_drafts(ca_device_plan *dp) {
    int64_t most[CA_N_LISTS] = {0};
    for (size_t i = 0; i < dp->drafts.n; i++) most[dp->drafts.at[i].list] += dp->drafts.at[i].cost;
    for (int l = 0; l < CA_N_LISTS; l++) most[l] = most[l] * dp->config.n_heads / (2 * (int64_t)n_blocks(dp, l));
    for (size_t i = 0; i < dp->drafts.n; i++) {
        ca_work_draft *d = &dp->drafts.at[i];
        if (d->before < 0) continue;
        ca_work_draft *b = &dp->drafts.at[d->before];
        if ((b->before >= 0 && !b->linked) || b->cost + d->cost > most[d->list]) continue;
        d->cost += b->cost;
        d->linked = true;
        b->next = (int32_t)i;
        b->work.flags |= CA_WORK_ITEM_KEEP;
    }
}

static bool has_state(const ca_work_draft *d) { return d->work.carry_out < 0 && !(d->work.flags & CA_WORK_ITEM_KEEP); }

/* Number the states that are merged, and set OUTPUT where a row has no other. Afterwards last[row] is the number of its states.
 */
static void number_states(ca_device_plan *dp, int32_t n_rows) {
    int32_t *n = dp->last.at;
    memset(n, 0, (size_t)n_rows * sizeof *n);
    for (const ca_work_draft *d = dp->drafts.at; d < dp->drafts.at + dp->drafts.n; d++)
        for (int32_t i = 0; has_state(d) && i < d->work.n_tokens; i++) n[d->work.row + i]++;
    dp->n_states = 0;
    for (ca_work_draft *d = dp->drafts.at; d < dp->drafts.at + dp->drafts.n; d++) {
        if (!has_state(d)) continue;
        bool only = true;
        for (int32_t i = 0; i < d->work.n_tokens; i++) only &= n[d->work.row + i] == 1;
        if (only) {
            d->work.flags |= CA_WORK_ITEM_OUTPUT;
            memset(n + d->work.row, 0, d->work.n_tokens * sizeof *n);
        } else {
            d->work.state = dp->n_states;
            dp->n_states += d->work.n_tokens;
        }
    }
}

/* ---- The image ---- */

static void count_elements(ca_device_plan *dp, int32_t n_rows) {
    memset(dp->n, 0, sizeof dp->n);
    for (const ca_work_draft *d = dp->drafts.at; d < dp->drafts.at + dp->drafts.n; d++) {
        dp->n[CA_IMAGE_ITEMS + d->list] += (size_t)dp->config.n_heads;
        if (d->work.state >= 0) dp->n[CA_IMAGE_MERGE] += d->work.n_tokens;
    }
    dp->n[CA_IMAGE_N_ROWS] = 1;
    dp->n[CA_IMAGE_POSITION] = dp->n[CA_IMAGE_SOURCE] = (size_t)n_rows;
    dp->n[CA_IMAGE_CHUNK] = dp->config.source ? 0 : (size_t)n_rows;
    dp->n[CA_IMAGE_MERGE_BEGIN] = (size_t)n_rows + 1;
    for (int l = 0; l < CA_N_LISTS; l++) {
        dp->n[CA_IMAGE_PARTS + l] = (size_t)n_blocks(dp, l) + 1;
        dp->n[CA_IMAGE_PAGES + l] = dp->config.source ? dp->n[CA_IMAGE_ITEMS + l] : 0;
    }
}

static bool fits(const ca_device_plan *dp) {
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++)
        if (dp->n[i] > dp->capacity[i]) return false;
    return dp->image != NULL;
}

/* Allocate an image for the counted elements, unless it fits. Capacities double, so a growing plan is seldom laid out anew. */
static int lay_out(ca_device_plan *dp) {
    if (fits(dp)) return 0;
    drop_image(dp);
    ca_device_plan_forget(dp);
    dp->moved = true;
    size_t words = 0;
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++) {
        while (dp->capacity[i] < dp->n[i]) dp->capacity[i] = dp->capacity[i] > 0 ? 2 * dp->capacity[i] : LINE_WORDS;
        dp->at[i] = words;
        words += (dp->capacity[i] * element_words(i) + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
    }
    dp->image_words = words;
    dp->image = ca_new(dp->alloc, words, sizeof *dp->image);
    dp->sent = ca_new(dp->alloc, words, sizeof *dp->sent);
    if (dp->image && dp->sent) return 0;
    drop_image(dp);
    return -1;
}

static void write_rows(ca_device_plan *dp, const ca_plan *plan, int32_t n_rows) {
    int32_t *position = ca_device_plan_array(dp, CA_IMAGE_POSITION), *source = ca_device_plan_array(dp, CA_IMAGE_SOURCE);
    *ca_device_plan_array(dp, CA_IMAGE_N_ROWS) = n_rows;
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        for (int32_t r = 0; r < s->n_rows; r++) {
            *position++ = (int32_t)s->position.at[r];
            *source++ = s->source.at[r];
        }
    }
}

/* Drafts of a row have ascending segments. Filling advances begin[row] to where row + 1 begins; the shift undoes that. */
static void write_merge(ca_device_plan *dp, int32_t n_rows) {
    int32_t *begin = ca_device_plan_array(dp, CA_IMAGE_MERGE_BEGIN), *merge = ca_device_plan_array(dp, CA_IMAGE_MERGE), sum = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        begin[r] = sum;
        sum += dp->last.at[r];
    }
    for (const ca_work_draft *d = dp->drafts.at; d < dp->drafts.at + dp->drafts.n; d++)
        for (int32_t i = 0; d->work.state >= 0 && i < d->work.n_tokens; i++)
            merge[begin[d->work.row + i]++] = d->work.state + i;
    memmove(begin + 1, begin, (size_t)n_rows * sizeof *begin);
    begin[0] = 0;
}

/* ---- Assignment to thread blocks ---- */

/* Of prefill a chain folds through two states in turn; a thread block uses the same two for all its chains of a head. */
typedef struct assigner {
    ca_device_plan *dp;
    int list;
    int32_t block, n_items;
    int32_t *parts;
    ca_work_item *items;
    ca_work_item_pages *pages;        /* of each work item, if there is a source */
    int32_t *scratch_block, *scratch; /* [KV heads] the last thread block with a chain of the head, and its index among them */
    int32_t n_scratch;
} assigner;

static void go_to_block(assigner *d, int32_t block) {
    while (d->block < block) d->parts[++d->block] = d->n_items;
}

/* The first of two times prefill_tokens states that this thread block may use for a head. */
static int32_t scratch_states(assigner *d, int32_t head) {
    if (d->scratch_block[head] != d->block) {
        d->scratch_block[head] = d->block;
        d->scratch[head]++;
        if (d->scratch[head] >= d->n_scratch) d->n_scratch = d->scratch[head] + 1;
    }
    return d->dp->n_states + d->scratch[head] * 2 * d->dp->config.prefill_tokens;
}

/* Write a draft's work item for one head to the list's line i, from where chains then set what links them. */
static ca_work_item *write_work(assigner *d, const ca_work_draft *draft, int32_t head, int32_t i) {
    if (d->dp->config.source) d->pages[i] = d->dp->pages.at[draft - d->dp->drafts.at];
    d->items[i] = draft->work;
    d->items[i].head = (uint16_t)head;
    return &d->items[i];
}

/* Write the work items of a chain, or a single work item, for one head. */
static void write_chain(assigner *d, const ca_work_draft *draft, int32_t head) {
    const int32_t scratch = draft->next >= 0 ? scratch_states(d, head) : 0;
    for (int32_t i = 0, fold = -1;; i++) {
        ca_work_item *work = write_work(d, draft, head, d->n_items++);
        work->fold = fold;
        if (draft->next >= 0) work->state = fold = scratch + i % 2 * work->n_tokens;
        if (draft->next < 0) return;
        draft = &d->dp->drafts.at[draft->next];
    }
}

static int64_t chain_cost(const ca_device_plan *dp, const ca_work_draft *draft) {
    while (draft->next >= 0) draft = &dp->drafts.at[draft->next];
    return draft->cost;
}

/* Assign one work item or chain for one head to the thread block in whose share of the total its middle falls. */
static void assign_draft(assigner *d, const ca_work_draft *draft, int32_t head, int64_t *assigned, int64_t total) {
    const int64_t cost = chain_cost(d->dp, draft);
    go_to_block(d, (int32_t)((2 * *assigned + cost) * n_blocks(d->dp, d->list) / (2 * total)));
    write_chain(d, draft, head);
    *assigned += cost;
}

/*
 * Assign the list's work items, whose cost is `total` over all heads: head by head, so that a thread block has chains of few
 * heads and scratch is small.
 */
static void assign_prefill(assigner *d, int64_t total) {
    const ca_device_plan *dp = d->dp;
    int64_t assigned = 0;
    for (int32_t head = 0; head < dp->config.n_heads; head++)
        for (const ca_work_draft *draft = dp->drafts.at; draft < dp->drafts.at + dp->drafts.n; draft++)
            if (draft->list == d->list && !draft->linked) assign_draft(d, draft, head, &assigned, total);
}

/* The cost to which the thread blocks below it have to be filled up so that `more` is assigned. */
static int64_t find_level(const int32_t *load, int32_t n, int64_t more) {
    int64_t level = INT64_MAX;
    for (int32_t below = n + 1;;) {
        int64_t sum = more;
        const int32_t before = below;
        below = 0;
        for (int32_t b = 0; b < n; b++) {
            if (load[b] >= level) continue;
            sum += load[b];
            below++;
        }
        if (below == before || below == 0) return level;
        level = (sum + below - 1) / below;
    }
}

static bool is_heavy(const ca_device_plan *dp, const ca_work_draft *draft) {
    return draft->work.n_tokens * dp->config.group > 8;
}

/* Assign the work items of more than 8 rows, or the others: count them in parts[block + 1], or write them from next[block] on.
 */
static void assign_weight(assigner *d, bool heavy, int32_t *load, int32_t *next) {
    const ca_device_plan *dp = d->dp;
    const int32_t n_heads = dp->config.n_heads, n = n_blocks(dp, d->list);
    int64_t total = 0, assigned = 0, filled = 0;
    for (const ca_work_draft *draft = dp->drafts.at; draft < dp->drafts.at + dp->drafts.n; draft++)
        if (draft->list == d->list && is_heavy(dp, draft) == heavy) total += draft->cost * n_heads;
    if (total == 0) return;
    const int64_t level = find_level(load, n, total);
    int32_t block = 0;
    int64_t room = ca_max(level - load[0], 0);
    for (const ca_work_draft *draft = dp->drafts.at; draft < dp->drafts.at + dp->drafts.n; draft++) {
        if (draft->list != d->list || is_heavy(dp, draft) != heavy) continue;
        for (int32_t head = 0; head < n_heads; head++) {
            for (; block + 1 < n && assigned + draft->cost / 2 >= filled + room; room = ca_max(level - load[block], 0)) {
                filled += room;
                block++;
            }
            load[block] += (int32_t)draft->cost;
            assigned += draft->cost;
            if (next)
                write_work(d, draft, head, next[block]++);
            else
                d->parts[block + 1]++;
        }
    }
}

/*
 * Assign the list's work items: first those of many rows, whose chunks take longest, then the others, where these leave room.
 * Work items of one draft are neighbours, so that a chunk that is filled changes few lines.
 */
static void assign_decode(assigner *d) {
    const int32_t n = n_blocks(d->dp, d->list);
    int32_t *load = d->dp->slot.at, *next = load + n;
    memset(load, 0, (size_t)n * sizeof *load);
    memset(d->parts, 0, ((size_t)n + 1) * sizeof *d->parts);
    assign_weight(d, true, load, NULL);
    assign_weight(d, false, load, NULL);
    for (int32_t b = 0; b < n; b++) {
        next[b] = d->parts[b];
        d->parts[b + 1] += d->parts[b];
    }
    memset(load, 0, (size_t)n * sizeof *load);
    assign_weight(d, true, load, next);
    assign_weight(d, false, load, next);
}

/* Returns the number of thread blocks that need scratch states for the same head. */
static int32_t assign_list(ca_device_plan *dp, int list) {
    const int32_t n_heads = dp->config.n_heads;
    assigner d = {.dp = dp,
                  .list = list,
                  .parts = ca_device_plan_array(dp, CA_IMAGE_PARTS + list),
                  .items = (ca_work_item *)ca_device_plan_array(dp, CA_IMAGE_ITEMS + list),
                  .pages = (ca_work_item_pages *)ca_device_plan_array(dp, CA_IMAGE_PAGES + list),
                  .scratch_block = dp->slot.at,
                  .scratch = dp->slot.at + n_heads};
    int64_t total = 0;
    for (const ca_work_draft *draft = dp->drafts.at; draft < dp->drafts.at + dp->drafts.n; draft++)
        if (draft->list == list && !draft->linked) total += chain_cost(dp, draft) * n_heads;
    if (total > 0) dp->lists |= 1u << list;
    if (ca_list_decodes(list)) {
        assign_decode(&d);
        return 0;
    }
    memset(dp->slot.at, 0xff, 2 * (size_t)n_heads * sizeof *dp->slot.at);
    d.parts[0] = 0;
    if (total > 0) assign_prefill(&d, total);
    go_to_block(&d, n_blocks(dp, list));
    return d.n_scratch;
}

/* Lists run one after the other, so all use the same scratch states. */
static void assign_items(ca_device_plan *dp) {
    int32_t n_scratch = 0;
    dp->lists = 0;
    for (int l = 0; l < CA_N_LISTS; l++) {
        const int32_t n = assign_list(dp, l);
        if (n > n_scratch) n_scratch = n;
    }
    dp->n_states += n_scratch * 2 * dp->config.prefill_tokens;
}

/* ---- Updates ---- */

static void move_rows(ca_device_plan *dp, const ca_plan *plan) {
    int32_t *position = ca_device_plan_array(dp, CA_IMAGE_POSITION);
    for (size_t i = 0; i < plan->sections.n; i++)
        for (int32_t r = 0; r < plan->sections.at[i]->n_rows; r++) *position++ = (int32_t)plan->sections.at[i]->position.at[r];
}

cattn_status ca_device_plan_update(ca_device_plan *dp, const ca_plan *plan) {
    dp->moved = false;
    if (plan->only_moved && dp->valid) {
        move_rows(dp, plan);
        return CATTN_OK;
    }
    dp->valid = false;
    const int32_t n_rows = count_rows(plan);
    const size_t n_slots = 2 * (size_t)ca_max(dp->config.n_heads, dp->config.decode_blocks);
    if (draft_items(dp, plan, n_rows) || CA_RESERVE(dp->alloc, &dp->slot, n_slots)) return CATTN_ERR_NOMEM;
    link_drafts(dp);
    number_states(dp, n_rows);
    count_elements(dp, n_rows);
    if (lay_out(dp)) return CATTN_ERR_NOMEM;
    write_rows(dp, plan, n_rows);
    write_merge(dp, n_rows);
    assign_items(dp);
    dp->valid = dp->rebuilt = true;
    return CATTN_OK;
}

/* The words of an array that the device's copy lacks, from the first to the last. */
static ca_image_range find_change(const ca_device_plan *dp, int array) {
    const size_t words = element_words(array), first = dp->at[array], known = first + dp->n_sent[array] * words;
    size_t begin = first, end = first + dp->n[array] * words;
    while (begin < end && begin < known && dp->image[begin] == dp->sent[begin]) begin++;
    while (begin < end && end <= known && dp->image[end - 1] == dp->sent[end - 1]) end--;
    return (ca_image_range){begin, end - begin};
}

int32_t ca_device_plan_take_changes(ca_device_plan *dp, ca_image_range changes[CA_IMAGE_ARRAYS]) {
    int32_t n = 0;
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++) {
        if (!dp->rebuilt && i != CA_IMAGE_POSITION && i != CA_IMAGE_CHUNK) continue;
        const ca_image_range c = find_change(dp, i);
        if (c.n == 0) continue;
        memcpy(dp->sent + c.at, dp->image + c.at, c.n * sizeof *dp->image);
        if (dp->n_sent[i] < dp->n[i]) dp->n_sent[i] = dp->n[i];
        changes[n++] = c;
    }
    dp->rebuilt = false;
    return n;
}
