/* A cache whose sequences are ready for a decode step without arithmetic; knows the library from within. */
#include "planned.h"

#include <stdio.h>
#include <stdlib.h>

#include "library_internals.h"

static cattn_status create_cache(planned *p, method_id id, const shape *s, ca_pool *pool, cattn_error *error) {
    const cattn_config c = method_config(id, s, pool);
    return cattn_cache_create(&c, &p->cache, error);
}

/* Join a sequence and end a step over all of its tokens but the last. */
static cattn_status add_sequence(planned *p, const token_tree *tree, int32_t i, int32_t *tokens, cattn_error *error) {
    const int64_t prefix = token_tree_prefix(tree, i);
    cattn_entry *entry = &p->entries[i];
    cattn_seq_info info = {.struct_size = sizeof info};
    token_tree_tokens(tree, i, tokens);
    cattn_status status = cattn_seq_join(p->cache, tokens, prefix + 1, NULL, &entry->seq, NULL, error);
    if (status == CATTN_OK) status = cattn_seq_get_info(p->cache, entry->seq, &info, error);
    entry->max_rows = prefix - info.n_ready;
    if (status == CATTN_OK && entry->max_rows > 0) {
        status = cattn_step_begin(p->cache, entry, 1, 0, error);
        if (status == CATTN_OK) status = cattn_step_end(p->cache, error);
    }
    entry->max_rows = 1;
    return status;
}

bool planned_create(planned *p, method_id id, const shape *s, ca_pool *pool) {
    cattn_error error = {.message = "no memory"};
    *p = (planned){.n = s->tree->n_seqs};
    p->entries = calloc((size_t)p->n, sizeof *p->entries);
    int32_t *tokens = malloc(((size_t)token_tree_longest(s->tree) + 1) * sizeof *tokens);
    cattn_status status = p->entries && tokens ? create_cache(p, id, s, pool, &error) : CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < p->n && status == CATTN_OK; i++) status = add_sequence(p, s->tree, i, tokens, &error);
    if (status != CATTN_OK) fprintf(stderr, "cattn-bench: %s: %s\n", method_name(id), error.message);
    free(tokens);
    return status == CATTN_OK;
}

void planned_free(planned *p) {
    cattn_cache_destroy(&p->cache);
    free(p->entries);
}

bool planned_begin(planned *p) {
    cattn_error error;
    if (cattn_step_begin(p->cache, p->entries, p->n, 0, &error) == CATTN_OK) return true;
    fprintf(stderr, "cattn-bench: %s\n", error.message);
    return false;
}

void planned_forget(planned *p) {
    ca_plan *plan = &p->cache->plans.at[0];
    plan->tree_version--;
    for (size_t i = 0; i < plan->sections.n; i++) plan->sections.at[i]->version--;
}

/* Tokens of an item that some of its rows [row_begin, row_end) see. */
static int64_t item_tokens(const ca_section *s, const ca_item *item, int32_t row_begin, int32_t row_end, int c) {
    const int64_t start = (int64_t)item->first_chunk * c;
    int64_t last = start - 1;
    for (int32_t r = row_begin; r < row_end; r++)
        if (s->position.at[r] > last) last = s->position.at[r];
    const int64_t seen = last + 1 - start, all = (int64_t)item->n_chunks * c;
    return seen < all ? seen : all;
}

planned_moved planned_count(const planned *p) {
    const ca_plan *plan = &p->cache->plans.at[0];
    const ca_layout *l = &p->cache->layout;
    const int64_t kv_heads = l->n_kv_heads, heads = p->cache->compute.n_heads;
    planned_moved n = {0};
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
