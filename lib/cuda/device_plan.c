/* Updating the image of a plan: count, lay out, flatten and fill the queues, then compare with the image before. */
#include "device_plan.h"

#include <string.h>

static const size_t element_words[CA_IMAGE_ARRAYS] = {
    [CA_IMAGE_POSITION] = 1,
    [CA_IMAGE_SOURCE] = 1,
    [CA_IMAGE_MERGE_BEGIN] = 1,
    [CA_IMAGE_MERGE] = 1,
    [CA_IMAGE_CHUNK] = 1,
    [CA_IMAGE_ITEM] = sizeof(ca_image_item) / sizeof(int32_t),
    [CA_IMAGE_BLOCK] = sizeof(ca_image_block) / sizeof(int32_t),
    [CA_IMAGE_TASK] = sizeof(ca_image_task) / sizeof(int32_t),
    [CA_IMAGE_CHAIN] = sizeof(ca_image_chain) / sizeof(int32_t),
    [CA_IMAGE_QUEUE] = 1,
    [CA_IMAGE_HEAD_TASK] = 1,
};

static void *array_at(ca_image *image, ca_image_array which) { return (int32_t *)image + image->at[which]; }

void ca_device_plan_init(ca_device_plan *dp, const ca_device_plan_config *config, ca_alloc *alloc) {
    *dp = (ca_device_plan){.config = *config, .alloc = alloc};
}

static void drop_images(ca_device_plan *dp) {
    ca_delete(dp->alloc, dp->image, 1, dp->image_bytes);
    ca_delete(dp->alloc, dp->other, 1, dp->image_bytes);
    dp->image = dp->other = NULL;
    dp->image_bytes = 0;
}

void ca_device_plan_free(ca_device_plan *dp) {
    drop_images(dp);
    ca_delete(dp->alloc, dp->bases.at, dp->bases.capacity, sizeof *dp->bases.at);
    ca_delete(dp->alloc, dp->load.at, dp->load.capacity, sizeof *dp->load.at);
    ca_delete(dp->alloc, dp->heap.at, dp->heap.capacity, sizeof *dp->heap.at);
    ca_delete(dp->alloc, dp->owner.at, dp->owner.capacity, sizeof *dp->owner.at);
}

/* ---- Layout ---- */

static void count(const ca_device_plan *dp, const ca_plan *plan, int32_t n[CA_IMAGE_ARRAYS]) {
    memset(n, 0, CA_IMAGE_ARRAYS * sizeof *n);
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        n[CA_IMAGE_POSITION] += s->n_rows;
        n[CA_IMAGE_MERGE] += s->first_block.at[s->n_rows];
        n[CA_IMAGE_CHUNK] += (int32_t)s->chunks.n;
        n[CA_IMAGE_ITEM] += (int32_t)s->items.n;
        n[CA_IMAGE_BLOCK] += (int32_t)s->blocks.n;
        for (int32_t b = 0; b < (int32_t)s->blocks.n; b = s->blocks.at[b].chain_end)
            n[CA_IMAGE_CHAIN] += s->blocks.at[b].spread;
    }
    n[CA_IMAGE_SOURCE] = n[CA_IMAGE_POSITION];
    n[CA_IMAGE_MERGE_BEGIN] = n[CA_IMAGE_POSITION] + 1;
    n[CA_IMAGE_TASK] = (int32_t)plan->tasks.n;
    n[CA_IMAGE_QUEUE] = dp->config.n_queues + 1;
    n[CA_IMAGE_HEAD_TASK] = n[CA_IMAGE_TASK] * dp->config.n_heads;
}

/* Each array begins with a cache line of the device (128 bytes), so no line belongs to two arrays. */
static size_t whole_lines(size_t words) { return (words + 31) / 32 * 32; }

/* Allocate two images for at least n elements of each array. Capacities double, so a growing plan seldom comes back here. */
static cattn_status lay_out(ca_device_plan *dp, const int32_t n[CA_IMAGE_ARRAYS]) {
    drop_images(dp);
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++)
        while (dp->capacity[i] < (size_t)n[i]) dp->capacity[i] = dp->capacity[i] > 0 ? 2 * dp->capacity[i] : 32;
    size_t words = whole_lines(sizeof(ca_image) / sizeof(int32_t));
    int32_t at[CA_IMAGE_ARRAYS];
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++) {
        at[i] = (int32_t)words;
        words += whole_lines(dp->capacity[i] * element_words[i]);
    }
    dp->image_bytes = words * sizeof(int32_t);
    dp->image = ca_new_zero(dp->alloc, 1, dp->image_bytes);
    dp->other = ca_new_zero(dp->alloc, 1, dp->image_bytes);
    if (!dp->image || !dp->other) {
        drop_images(dp);
        return CATTN_ERR_NOMEM;
    }
    ca_image *both[] = {dp->image, dp->other};
    for (int i = 0; i < 2; i++) {
        both[i]->n_words = (int32_t)words;
        memcpy(both[i]->at, at, sizeof at);
    }
    return CATTN_OK;
}

static bool fits(const ca_device_plan *dp, const int32_t n[CA_IMAGE_ARRAYS]) {
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++)
        if ((size_t)n[i] > dp->capacity[i]) return false;
    return dp->image != NULL;
}

/* ---- Flattening ---- */

static void flatten_rows(ca_image *image, const ca_section *s, const ca_image_base *b) {
    int32_t *position = (int32_t *)array_at(image, CA_IMAGE_POSITION) + b->row;
    int32_t *source = (int32_t *)array_at(image, CA_IMAGE_SOURCE) + b->row;
    int32_t *begin = (int32_t *)array_at(image, CA_IMAGE_MERGE_BEGIN) + b->row;
    int32_t *merge = (int32_t *)array_at(image, CA_IMAGE_MERGE) + b->merge;
    for (int32_t r = 0; r < s->n_rows; r++) {
        position[r] = (int32_t)s->position.at[r];
        source[r] = s->source.at[r];
        begin[r] = b->merge + s->first_block.at[r];
    }
    begin[s->n_rows] = b->merge + s->first_block.at[s->n_rows];
    for (int32_t i = 0; i < s->first_block.at[s->n_rows]; i++) merge[i] = b->block + s->row_blocks.at[i];
}

static void flatten_items(ca_image *image, const ca_section *s, const ca_image_base *b) {
    ca_image_item *items = (ca_image_item *)array_at(image, CA_IMAGE_ITEM) + b->item;
    memcpy((int32_t *)array_at(image, CA_IMAGE_CHUNK) + b->chunk, s->chunks.at, s->chunks.n * sizeof *s->chunks.at);
    for (size_t i = 0; i < s->items.n; i++) {
        const ca_item *item = &s->items.at[i];
        items[i] = (ca_image_item){b->row + item->row_begin, b->row + item->row_end, item->first_chunk,
                                   item->n_chunks,           b->chunk + item->chunk, item->partial};
    }
}

static void flatten_blocks(ca_image *image, const ca_section *s, const ca_image_base *b) {
    ca_image_block *blocks = (ca_image_block *)array_at(image, CA_IMAGE_BLOCK) + b->block;
    for (size_t i = 0; i < s->blocks.n; i++) {
        const ca_block *block = &s->blocks.at[i];
        blocks[i] = (ca_image_block){b->row + block->row_begin, b->row + block->row_end, b->item + block->item_begin,
                                     b->item + block->item_end, (int32_t)block->state};
    }
}

/* Write the section's spread chains, whose tasks are counted later. Returns the number of chains. */
static int32_t flatten_chains(ca_image *image, const ca_section *s, const ca_image_base *b) {
    ca_image_chain *chains = (ca_image_chain *)array_at(image, CA_IMAGE_CHAIN) + b->chain;
    int32_t n = 0;
    for (int32_t i = 0, end; i < (int32_t)s->blocks.n; i = end) {
        end = s->blocks.at[i].chain_end;
        if (!s->blocks.at[i].spread) continue;
        ca_image_chain chain = {b->block + i, b->block + end, INT32_MAX, 0, 0};
        for (const ca_block *block = s->blocks.at + i; block < s->blocks.at + end; block++) {
            if (b->row + block->row_begin < chain.row_begin) chain.row_begin = b->row + block->row_begin;
            if (b->row + block->row_end > chain.row_end) chain.row_end = b->row + block->row_end;
        }
        chains[n++] = chain;
    }
    return n;
}

/* Index of the spread chain that a block belongs to; -1 if its chain is not spread. */
static int32_t chain_of(ca_image *image, int32_t block) {
    const ca_image_chain *chains = array_at(image, CA_IMAGE_CHAIN);
    int32_t lo = 0, hi = image->n[CA_IMAGE_CHAIN]; /* the last chain that begins at or before the block is before hi */
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        if (chains[mid].block_begin <= block)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && block < chains[lo - 1].block_end ? lo - 1 : -1;
}

static void flatten_tasks(const ca_device_plan *dp, ca_image *image, const ca_plan *plan) {
    ca_image_task *tasks = array_at(image, CA_IMAGE_TASK);
    ca_image_chain *chains = array_at(image, CA_IMAGE_CHAIN);
    for (size_t i = 0; i < plan->tasks.n; i++) {
        const ca_plan_task *t = &plan->tasks.at[i];
        const ca_image_base *b = &dp->bases.at[t->begin.section];
        const int32_t begin = b->block + t->begin.block, end = dp->bases.at[t->end.section].block + t->end.block;
        const bool all = t->row_begin == 0 && t->row_end == INT32_MAX; /* the blocks may belong to several sections */
        const int32_t chain = chain_of(image, begin);
        tasks[i] = (ca_image_task){begin, end, all ? 0 : b->row + t->row_begin, all ? INT32_MAX : b->row + t->row_end, chain};
        if (chain >= 0) chains[chain].n_tasks++;
    }
}

/* ---- Queues ---- */

/* Bytes that a head task of this task reads and writes. */
static int64_t task_bytes(const ca_device_plan *dp, ca_image *image, const ca_image_task *t) {
    const ca_image_block *blocks = array_at(image, CA_IMAGE_BLOCK);
    const ca_image_item *items = array_at(image, CA_IMAGE_ITEM);
    int64_t bytes = 0;
    for (const ca_image_block *b = blocks + t->block_begin; b < blocks + t->block_end; b++) {
        const int32_t begin = b->row_begin > t->row_begin ? b->row_begin : t->row_begin;
        const int32_t end = b->row_end < t->row_end ? b->row_end : t->row_end;
        if (begin >= end) continue;
        bytes += (end - begin) * dp->config.row_bytes;
        for (const ca_image_item *item = items + b->item_begin; item < items + b->item_end; item++)
            if (item->row_begin < end && item->row_end > begin) bytes += item->n_chunks * dp->config.tile_bytes;
    }
    return bytes;
}

/* The queue with fewer bytes comes first; of equal queues, the one with the lower index. */
static bool comes_before(const ca_device_plan *dp, int32_t a, int32_t b) {
    return dp->load.at[a] != dp->load.at[b] ? dp->load.at[a] < dp->load.at[b] : a < b;
}

/* Add bytes to the load of the heap's first queue and sift it down. Returns the queue. */
static int32_t load_first(ca_device_plan *dp, int64_t bytes) {
    int32_t *heap = dp->heap.at;
    const int32_t n = dp->config.n_queues, queue = heap[0];
    dp->load.at[queue] += bytes;
    int32_t at = 0;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_before(dp, heap[child + 1], heap[child])) child++;
        if (!comes_before(dp, heap[child], queue)) break;
        heap[at] = heap[child];
    }
    heap[at] = queue;
    return queue;
}

/*
 * Give each head task to the queue with the least load, in the plan's order, which begins with the task of the highest cost.
 * Hence no queue exceeds an equal share of the bytes by more than one head task. The arrays have been allocated.
 */
static void fill_queues(ca_device_plan *dp, ca_image *image) {
    const ca_image_task *tasks = array_at(image, CA_IMAGE_TASK);
    int32_t *begin = array_at(image, CA_IMAGE_QUEUE), *head_tasks = array_at(image, CA_IMAGE_HEAD_TASK);
    const int32_t n_queues = dp->config.n_queues, n_heads = dp->config.n_heads, n_head_tasks = image->n[CA_IMAGE_HEAD_TASK];
    for (int32_t q = 0; q < n_queues; q++) {
        dp->load.at[q] = 0;
        dp->heap.at[q] = q;
    }
    memset(begin, 0, (size_t)(n_queues + 1) * sizeof *begin);
    for (int32_t i = 0; i < image->n[CA_IMAGE_TASK]; i++) {
        const int64_t bytes = task_bytes(dp, image, &tasks[i]);
        for (int32_t h = 0; h < n_heads; h++) {
            const int32_t queue = load_first(dp, bytes);
            dp->owner.at[i * n_heads + h] = queue;
            begin[queue]++;
        }
    }
    /* begin[q] counts queue q's head tasks, becomes the queue's end, and its beginning when the queue is filled backwards. */
    for (int32_t q = 1; q < n_queues; q++) begin[q] += begin[q - 1];
    begin[n_queues] = n_head_tasks;
    for (int32_t i = n_head_tasks; i-- > 0;) head_tasks[--begin[dp->owner.at[i]]] = i;
}

/* ---- Updates ---- */

static void add_change(ca_device_plan *dp, size_t offset, size_t bytes) {
    dp->changes[dp->n_changes++] = (ca_image_change){offset, bytes};
}

/*
 * Record the range of words in [begin, end) from the first to the last that differs from the image before. That image is valid
 * up to word `known`. Words from there on count as different: they are left over from older images, and the device's copy may
 * hold others.
 */
static void add_difference(ca_device_plan *dp, size_t begin, size_t known, size_t end) {
    const int32_t *now = (const int32_t *)dp->image, *before = (const int32_t *)dp->other;
    while (begin < end && begin < known && now[begin] == before[begin]) begin++;
    while (begin < end && end <= known && now[end - 1] == before[end - 1]) end--;
    if (begin < end) add_change(dp, begin * sizeof(int32_t), (end - begin) * sizeof(int32_t));
}

static void find_changes(ca_device_plan *dp) {
    const size_t header = sizeof(ca_image) / sizeof(int32_t);
    add_difference(dp, 0, header, header);
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++) {
        const size_t at = (size_t)dp->image->at[i], words = element_words[i];
        add_difference(dp, at, at + (size_t)dp->other->n[i] * words, at + (size_t)dp->image->n[i] * words);
    }
}

/* The update where only positions have changed. */
static void move_rows(ca_device_plan *dp, const ca_plan *plan) {
    int32_t *position = array_at(dp->image, CA_IMAGE_POSITION), row = 0, first = INT32_MAX, last = -1;
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        for (int32_t r = 0; r < s->n_rows; r++, row++) {
            if (position[row] == s->position.at[r]) continue;
            position[row] = (int32_t)s->position.at[r];
            if (first > row) first = row;
            last = row;
        }
    }
    if (last < 0) return;
    add_change(dp, ((size_t)dp->image->at[CA_IMAGE_POSITION] + (size_t)first) * sizeof(int32_t),
               (size_t)(last + 1 - first) * sizeof(int32_t));
}

static void flatten(ca_device_plan *dp, ca_image *image, const ca_plan *plan, const int32_t n[CA_IMAGE_ARRAYS]) {
    ca_image_base b = {0};
    image->n_heads = dp->config.n_heads;
    image->n_states = (int32_t)plan->n_states;
    image->n_chain_states = (int32_t)plan->n_chain_states;
    image->window = plan->config.window;
    image->n_sink_tokens = plan->config.n_sink_tokens;
    memcpy(image->n, n, sizeof image->n);
    *(int32_t *)array_at(image, CA_IMAGE_MERGE_BEGIN) = 0;
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        dp->bases.at[i] = b;
        flatten_rows(image, s, &b);
        flatten_items(image, s, &b);
        flatten_blocks(image, s, &b);
        b.chain += flatten_chains(image, s, &b);
        b.row += s->n_rows;
        b.merge += s->first_block.at[s->n_rows];
        b.chunk += (int32_t)s->chunks.n;
        b.item += (int32_t)s->items.n;
        b.block += (int32_t)s->blocks.n;
    }
    dp->bases.at[plan->sections.n] = b;
    flatten_tasks(dp, image, plan);
    fill_queues(dp, image);
}

static cattn_status make_room(ca_device_plan *dp, const ca_plan *plan, const int32_t n[CA_IMAGE_ARRAYS]) {
    const size_t n_queues = (size_t)dp->config.n_queues;
    if (CA_RESERVE(dp->alloc, &dp->bases, plan->sections.n + 1) || CA_RESERVE(dp->alloc, &dp->load, n_queues) ||
        CA_RESERVE(dp->alloc, &dp->heap, n_queues) || CA_RESERVE(dp->alloc, &dp->owner, (size_t)n[CA_IMAGE_HEAD_TASK]))
        return CATTN_ERR_NOMEM;
    if (fits(dp, n)) return CATTN_OK;
    dp->moved = true;
    return lay_out(dp, n);
}

cattn_status ca_device_plan_update(ca_device_plan *dp, const ca_plan *plan) {
    dp->n_changes = 0;
    dp->moved = false;
    if (plan->only_moved && dp->image) {
        move_rows(dp, plan);
        return CATTN_OK;
    }
    int32_t n[CA_IMAGE_ARRAYS];
    count(dp, plan, n);
    if (make_room(dp, plan, n)) {
        drop_images(dp);
        dp->moved = false;
        return CATTN_ERR_NOMEM;
    }
    ca_image *before = dp->image;
    dp->image = dp->other;
    dp->other = before;
    flatten(dp, dp->image, plan, n);
    if (dp->moved)
        add_change(dp, 0, dp->image_bytes);
    else
        find_changes(dp);
    return CATTN_OK;
}
