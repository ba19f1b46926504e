/*
 * The device's plan against the CPU's executor, bit for bit: random worlds are computed by the level `ref` from the plan, and
 * again from a copy of the image to which only the reported changes are applied. Queues get about the same bytes.
 */
#include "../support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../exact/world.h"
#include "lib/cache_handle.h"
#include "lib/cuda/device_plan.h"
#include "scalar.h"

enum { TILE_BYTES = 1000, ROW_BYTES = 7 };

/* A cache's plan on the "device". */
typedef struct device {
    ca_device_plan plan;
    ca_image *copy; /* receives the reported changes only */
} device;

typedef struct player {
    const world *w;
    rng r;
    cattn_cache *cache;
    device devices[WORLD_MAX_LAYERS]; /* one for each of the cache's plans */
    ca_alloc alloc;
    cattn_seq seqs[WORLD_MAX_SEQS];     /* 0: not joined, or done */
    int64_t n_appended[WORLD_MAX_SEQS]; /* tokens in the cache */
    bool done[WORLD_MAX_SEQS];
    cattn_entry entries[WORLD_MAX_SEQS];
    int owner[WORLD_MAX_SEQS]; /* of an entry */
    int n_entries;
} player;

/* Cases that occurred, which the test requires to be enough. */
static int n_compared, n_plain, n_patched, n_many_spread, n_sliced;

/* ---- The image ---- */

/* No queue exceeds an equal share of the bytes by more than one head task. */
static void check_balance(const ca_device_plan *dp) {
    int64_t total = 0, most_head_task = 0, most_queue = 0;
    const int32_t n_queues = dp->config.n_queues, n_heads = dp->config.n_heads;
    const int32_t *image = (const int32_t *)dp->image;
    const int32_t *begin = image + dp->image->at[CA_IMAGE_QUEUE], *head_tasks = image + dp->image->at[CA_IMAGE_HEAD_TASK];
    const ca_image_task *tasks = (const ca_image_task *)(image + dp->image->at[CA_IMAGE_TASK]);
    const ca_image_block *blocks = (const ca_image_block *)(image + dp->image->at[CA_IMAGE_BLOCK]);
    const ca_image_item *items = (const ca_image_item *)(image + dp->image->at[CA_IMAGE_ITEM]);
    for (int32_t q = 0; q < n_queues; q++) {
        int64_t queue = 0;
        for (int32_t i = begin[q]; i < begin[q + 1]; i++) {
            const ca_image_task *t = &tasks[head_tasks[i] / n_heads];
            int64_t head_task = 0;
            for (int32_t b = t->block_begin; b < t->block_end; b++) {
                int32_t rows = 0;
                for (int32_t r = blocks[b].row_begin; r < blocks[b].row_end; r++) rows += r >= t->row_begin && r < t->row_end;
                head_task += (int64_t)rows * ROW_BYTES;
                for (int32_t k = blocks[b].item_begin; k < blocks[b].item_end && rows > 0; k++) {
                    bool any = false;
                    for (int32_t r = items[k].row_begin; r < items[k].row_end; r++) any |= r >= t->row_begin && r < t->row_end;
                    head_task += any ? (int64_t)items[k].n_chunks * TILE_BYTES : 0;
                }
            }
            queue += head_task;
            if (head_task > most_head_task) most_head_task = head_task;
        }
        total += queue;
        if (queue > most_queue) most_queue = queue;
    }
    assert_true(most_queue <= total / n_queues + most_head_task);
}

/* Update the plan's image, and copy only its changed bytes, as for a device. */
static void update_device(device *d, const ca_plan *plan) {
    const int32_t n_rows_before = d->plan.image ? d->plan.image->n[CA_IMAGE_POSITION] : 0;
    assert_int_equal(ca_device_plan_update(&d->plan, plan), CATTN_OK);
    if (d->plan.moved) d->copy = realloc(d->copy, d->plan.image_bytes);
    size_t bytes = 0;
    for (int32_t i = 0; i < d->plan.n_changes; i++) {
        const ca_image_change *c = &d->plan.changes[i];
        memcpy((char *)d->copy + c->offset, (const char *)d->plan.image + c->offset, c->bytes);
        bytes += c->bytes;
    }
    if (plan->only_moved) {
        assert_true(bytes <= sizeof(int32_t) * (size_t)n_rows_before);
        n_plain++;
    } else if (!d->plan.moved) {
        n_patched++;
    }
    n_many_spread += d->plan.image->n[CA_IMAGE_CHAIN] > 1;
    for (size_t i = 0; i < plan->tasks.n; i++)
        n_sliced += plan->tasks.at[i].begin.section > 0 && plan->tasks.at[i].row_end < INT32_MAX;
    check_balance(&d->plan);
}

/* ---- Steps ---- */

/* A new array [n_rows][n]: the floats [from, from + n) of the input of each row of the step. */
static float *gather(const player *p, int layer, size_t from, size_t n, int64_t n_rows) {
    float *rows = malloc((size_t)n_rows * n * sizeof *rows + 1), *to = rows;
    for (int i = 0; i < p->n_entries; i++)
        for (int64_t k = 0; k < p->entries[i].n_rows; k++, to += n)
            memcpy(to, world_row(p->w, &p->w->seqs[p->owner[i]], p->entries[i].first_pos + k, layer) + from, n * sizeof *to);
    return rows;
}

static void compare_layer(player *p, int layer, const cattn_view *q, int64_t n_rows) {
    const cattn_config *c = &p->w->config;
    const size_t heads = (size_t)(n_rows * c->n_heads), dim = (size_t)world_dim_v(p->w);
    float *out[2], *lse[2];
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(heads * dim * sizeof(float));
        lse[i] = malloc(heads * sizeof(float));
        memset(out[i], 0xa5 + i, heads * dim * sizeof(float));
        memset(lse[i], 0xa5 + i, heads * sizeof(float));
        const cattn_view view = {out[i], CATTN_F32, (int64_t)dim * c->n_heads, (int64_t)dim};
        if (i == 0)
            assert_int_equal(cattn_step_attend(p->cache, layer, q, &view, lse[i], NULL), CATTN_OK);
        else
            scalar_run(p->devices[p->cache->layer_plan[layer]].copy, &p->cache->attn, layer, q, &view, lse[i], &p->r);
    }
    if (memcmp(out[0], out[1], heads * dim * sizeof(float)) || memcmp(lse[0], lse[1], heads * sizeof(float)))
        fail_msg("seed %llu, layer %d: the image gives other bits than the plan", (unsigned long long)p->w->seed, layer);
    n_compared++;
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        free(lse[i]);
    }
}

static void write_and_compare(player *p, int64_t n_rows) {
    const cattn_config *c = &p->w->config;
    const int64_t d = c->head_dim, d_v = world_dim_v(p->w);
    const size_t n_q = (size_t)(c->n_heads * d), n_k = (size_t)(c->n_kv_heads * d), n_v = (size_t)(c->n_kv_heads * d_v);
    const bool compares = n_rows <= 40 || rng_chance(&p->r, 4); /* the level `ref` is slow */
    for (int layer = 0; layer < c->n_layers; layer++) {
        float *q = gather(p, layer, 0, n_q, n_rows), *k = gather(p, layer, n_q, n_k, n_rows);
        float *v = gather(p, layer, n_q + n_k, n_v, n_rows);
        const cattn_view q_view = {q, CATTN_F32, (int64_t)n_q, d}, k_view = {k, CATTN_F32, (int64_t)n_k, d};
        const cattn_view v_view = {v, CATTN_F32, (int64_t)n_v, d_v};
        assert_int_equal(cattn_step_write(p->cache, layer, &k_view, &v_view, NULL), CATTN_OK);
        if (compares) compare_layer(p, layer, &q_view, n_rows);
        free(q);
        free(k);
        free(v);
    }
}

static void step(player *p) {
    static const int64_t pieces[] = {1, 5, 300};
    const int64_t most = pieces[rng_range(&p->r, 0, 2)];
    int64_t n_rows = 0;
    if (p->n_entries == 0) return;
    for (int i = 0; i < p->n_entries; i++) p->entries[i].max_rows = most;
    assert_int_equal(cattn_step_begin(p->cache, p->entries, p->n_entries, 0, NULL), CATTN_OK);
    for (size_t i = 0; i < p->cache->plans.n; i++) update_device(&p->devices[i], &p->cache->plans.at[i]);
    for (int i = 0; i < p->n_entries; i++) n_rows += p->entries[i].n_rows;
    if (n_rows > 0) write_and_compare(p, n_rows);
    assert_int_equal(rng_chance(&p->r, 12) ? cattn_step_abort(p->cache, NULL) : cattn_step_end(p->cache, NULL), CATTN_OK);
}

/* The next call for sequence i: join, append or leave. */
static void advance(player *p, int i) {
    const world_seq *s = &p->w->seqs[i];
    if (p->done[i]) return;
    if (p->seqs[i] == 0) {
        if (!rng_chance(&p->r, 3)) return;
        assert_int_equal(cattn_seq_join(p->cache, s->tokens, s->n_prompt, NULL, &p->seqs[i], NULL, NULL), CATTN_OK);
        p->n_appended[i] = s->n_prompt;
        return;
    }
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(p->cache, p->seqs[i], &info, NULL), CATTN_OK);
    if (info.n_ready < info.n_tokens) return;
    if (p->n_appended[i] < s->n_tokens) {
        assert_int_equal(cattn_seq_append(p->cache, p->seqs[i], &s->tokens[p->n_appended[i]++], 1, NULL), CATTN_OK);
    } else {
        assert_int_equal(cattn_seq_leave(p->cache, &p->seqs[i], NULL), CATTN_OK);
        p->done[i] = true;
    }
}

static void play(uint64_t seed, int64_t longest) {
    world w;
    world_make(&w, seed, longest);
    for (int i = 1; i < w.n_seqs && seed % 2; i += 2) w.seqs[i].tokens[0] = 3; /* two trees */
    player p = {.w = &w, .r = {seed * 77}, .alloc = ca_alloc_default()};
    cattn_config config = w.config;
    config.level = "ref";
    config.n_threads = (int32_t)rng_range(&p.r, 1, 4);
    config.sharing = rng_chance(&p.r, 4) ? CATTN_SHARED_STORAGE : CATTN_SHARED;
    assert_int_equal(cattn_cache_create(&config, &p.cache, NULL), CATTN_OK);
    const ca_device_plan_config device_config = {(int32_t)rng_range(&p.r, 1, 20), config.n_kv_heads, TILE_BYTES, ROW_BYTES};
    for (size_t i = 0; i < p.cache->plans.n; i++) ca_device_plan_init(&p.devices[i].plan, &device_config, &p.alloc);
    for (int n_done = 0; n_done < w.n_seqs;) {
        n_done = p.n_entries = 0;
        for (int i = 0; i < w.n_seqs; i++) {
            advance(&p, i);
            n_done += p.done[i];
            if (p.seqs[i] == 0) continue;
            p.owner[p.n_entries] = i;
            p.entries[p.n_entries++].seq = p.seqs[i];
        }
        step(&p);
    }
    for (size_t i = 0; i < p.cache->plans.n; i++) {
        ca_device_plan_free(&p.devices[i].plan);
        free(p.devices[i].copy);
    }
    assert_int_equal(p.alloc.bytes, 0);
    cattn_cache_destroy(&p.cache);
    world_free(&w);
}

static void the_image_is_the_plan(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) play(seed, 150);
    for (uint64_t seed = 61; seed <= 68; seed++) play(seed, 2300);
    assert_true(n_compared > 1000 && n_plain > 500 && n_patched > 200 && n_many_spread > 5 && n_sliced > 20);
}

/* Fails once, after *ctx successful allocations. */
static void *failing_alloc(void *ctx, size_t size, size_t align) {
    return (*(int *)ctx)-- == 0 ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}
static void plain_free(void *ctx, void *p, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(p);
}

static void an_update_succeeds_after_one_without_memory(void **state) {
    (void)state;
    world w;
    world_make(&w, 3, 100);
    cattn_config config = w.config;
    cattn_cache *cache;
    cattn_entry entry = {.max_rows = 100};
    config.n_threads = 1;
    assert_int_equal(cattn_cache_create(&config, &cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_join(cache, w.seqs[0].tokens, w.seqs[0].n_tokens, NULL, &entry.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        int left = n;
        ca_alloc alloc = {failing_alloc, plain_free, &left, 0};
        ca_device_plan dp;
        const ca_device_plan_config device_config = {3, config.n_kv_heads, TILE_BYTES, ROW_BYTES};
        ca_device_plan_init(&dp, &device_config, &alloc);
        failed = ca_device_plan_update(&dp, cache->plans.at) != CATTN_OK;
        if (failed) {
            assert_true(!dp.image && !dp.moved && dp.n_changes == 0);
            left = 1000;
            assert_int_equal(ca_device_plan_update(&dp, cache->plans.at), CATTN_OK);
        }
        assert_true(dp.moved && dp.n_changes == 1 && dp.changes[0].bytes == dp.image_bytes);
        assert_int_equal(dp.image->n[CA_IMAGE_POSITION], entry.n_rows);
        ca_device_plan_free(&dp);
        assert_int_equal(alloc.bytes, 0);
    }
    assert_true(n > 4);
    cattn_cache_destroy(&cache);
    world_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_image_is_the_plan),
        cmocka_unit_test(an_update_succeeds_after_one_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
