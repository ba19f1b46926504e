/* Elements that attention moves in a step, counted in the plan. The one file of `moved` that knows the library from within. */
#include "moved_count.h"

#include "lib/cache_handle.h"

/* Tokens of an item that some of its rows [row_begin, row_end) see. */
static int64_t item_tokens(const ca_section *s, const ca_item *item, int32_t row_begin, int32_t row_end, int c) {
    const int64_t start = (int64_t)item->first_chunk * c;
    int64_t last = start - 1;
    for (int32_t r = row_begin; r < row_end; r++)
        if (s->position.at[r] > last) last = s->position.at[r];
    const int64_t seen = last + 1 - start, all = (int64_t)item->n_chunks * c;
    return seen < all ? seen : all;
}

moved_count moved_count_plan(const cattn_cache *cache) {
    const ca_plan *plan = &cache->plans.at[0];
    const ca_layout *l = &cache->layout;
    const int64_t kv_heads = l->n_kv_heads, heads = kv_heads * cache->attn.group;
    moved_count n = {0};
    for (size_t t = 0; t < plan->tasks.n; t++) {
        const ca_plan_task *task = &plan->tasks.at[t];
        for (ca_block_at at = task->begin; !ca_block_same(at, task->end); at = ca_block_after(plan, at)) {
            const ca_section *s = plan->sections.at[at.section];
            const ca_block *block = &s->blocks.at[at.block];
            for (int32_t k = block->item_begin; k < block->item_end; k++) {
                const ca_item *item = &s->items.at[k];
                const int32_t begin = item->row_begin > task->row_begin ? item->row_begin : task->row_begin;
                const int32_t end = item->row_end < task->row_end ? item->row_end : task->row_end;
                if (begin < end) n.kv += item_tokens(s, item, begin, end, l->c) * kv_heads * (l->d_k + l->d_v);
            }
        }
    }
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        n.rows += (int64_t)s->n_rows * heads * (l->d_k + l->d_v);
        for (int32_t r = 0; r < s->n_rows; r++) {
            const int64_t n_states = s->first_block.at[r + 1] - s->first_block.at[r];
            if (n_states > 1) n.states += 2 * n_states * heads * l->d_v;
        }
    }
    return n;
}
