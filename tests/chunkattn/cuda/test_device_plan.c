/*
 * Work item lines against the plan: each row passes over each chunk that it sees exactly once, in ascending order, and its
 * states are merged in that order; thread blocks have about the same cost; a copy that only the reported changes keep up to
 * date is the image; and failures of each allocation. tests/chunkattn/cuda/device/ runs the work items.
 */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../exact/world.h"
#include "chunkattn/api/cache_handle.h"
#include "chunkattn/cuda/device_plan.h"
#include "tests/support/failing_alloc.h"
#include "tests/support/write_zeros.h"

enum { N_HEADS = 3, GROUP = 2, HEAD_DIM = 64, PREFILL_BLOCKS = 5, DECODE_BLOCKS = 9, MAX_CHUNKS = 64 };

/* For a prefill kernel with one warp group that computes, or with two. */
static ca_device_plan_config device_config(rng *r) {
    return (ca_device_plan_config){.n_heads = N_HEADS,
                                   .group = GROUP,
                                   .head_dim = HEAD_DIM,
                                   .prefill_tokens = CA_CUDA_PREFILL_ROWS / GROUP * (int32_t)rng_range(r, 1, 2),
                                   .prefill_blocks = PREFILL_BLOCKS,
                                   .decode_blocks = DECODE_BLOCKS,
                                   .tile_bytes = (int64_t)2 * CA_CUDA_CHUNK * HEAD_DIM * 2};
}

/* A cache on the CPU, whose tree is planned again as for a device, and the device's copy of the image. */
typedef struct player {
    const world *w;
    rng r;
    cattn_cache *cache;
    ca_plan plan;
    ca_device_plan dp;
    int32_t *copy;
    cattn_seq seqs[WORLD_MAX_SEQS];
    int64_t length[WORLD_MAX_SEQS];
    int n_seqs;
} player;

/* How often each case occurred; the test fails if one is too rare. */
static int n_kept, n_kept_beside, n_carried, n_merged, n_merged_many, n_moved;

static size_t array_bytes(const ca_device_plan *dp, int array) {
    const size_t items = sizeof(ca_work_item), pages = sizeof(ca_work_item_pages);
    return dp->n[array] * (array >= CA_IMAGE_PAGES ? pages : array >= CA_IMAGE_ITEMS ? items : sizeof(int32_t));
}

static const ca_work_item *items_of(const player *p, int list) {
    return (const ca_work_item *)(p->copy + p->dp.at[CA_IMAGE_ITEMS + list]);
}

/* What work items have done for a row: the chunks that they pass over, by absolute index (-1: not yet), and the ends of its
 * sums. */
typedef struct seen {
    ca_chunk_id id[MAX_CHUNKS];
    int n_states, n_outputs;
} seen;

/* What a state holds: the sums of a row up to a segment, or of that segment alone. */
typedef struct held {
    int32_t row, segment;
    bool folded; /* onto those of earlier segments, from the row's first one on */
} held;

static bool is_merged(const ca_work_item *work) {
    return work->carry_out < 0 && !(work->flags & (CA_WORK_ITEM_OUTPUT | CA_WORK_ITEM_KEEP));
}

static void follow_work(const ca_work_item *work, seen *rows, held *states) {
    for (int t = 0; t < work->n_tokens; t++) {
        seen *row = &rows[work->row + t];
        for (int i = 0; i < work->n_chunks; i++) {
            const int at = work->segment * CA_CUDA_SEGMENT_CHUNKS + (int)(work->order >> 4 * i & 15);
            if (i > 0) assert_true((work->order >> 4 * i & 15) > (work->order >> 4 * (i - 1) & 15));
            assert_int_equal(row->id[at], -1); /* not before */
            row->id[at] = work->chunk[i];
        }
        row->n_outputs += (work->flags & CA_WORK_ITEM_OUTPUT) != 0;
        if (!is_merged(work)) continue;
        row->n_states++;
        states[work->state + t] = (held){work->row + t, work->segment, work->fold >= 0};
    }
}

/* Sums are added from left to right, so segments ascend, and only a row's first state may hold several. */
static void check_merge(const player *p, const held *states, int32_t row) {
    const int32_t *begin = p->copy + p->dp.at[CA_IMAGE_MERGE_BEGIN] + row, *merge = p->copy + p->dp.at[CA_IMAGE_MERGE];
    for (int32_t k = begin[0]; k < begin[1]; k++) {
        assert_in_range(merge[k], 0, p->dp.n_states - 1);
        const held *of = &states[merge[k]];
        assert_int_equal(of->row, row);
        if (k == begin[0]) continue;
        assert_true(of->segment > states[merge[k - 1]].segment);
        assert_false(of->folded);
    }
    n_merged += begin[1] - begin[0] > 1;
    n_merged_many += begin[1] - begin[0] > 2;
}

/* The chunks that a row must see, from the tree; those that it may pass over without seeing them are left out. */
static void check_row(const player *p, const ca_section *s, int32_t r, const seen *row) {
    const int64_t position = s->position.at[r];
    const ca_section_seq *q = s->seqs.at;
    while (r >= q->row_begin + q->n_rows) q++;
    for (int64_t at = 0; at <= position / CA_CUDA_CHUNK; at++) {
        const int64_t first = at * CA_CUDA_CHUNK, window = p->plan.config.window;
        const bool sees = window == 0 || first + CA_CUDA_CHUNK > position + 1 - window || first < p->plan.config.n_sink_tokens;
        const int64_t last = ca_min(first + CA_CUDA_CHUNK, q->seq->n_tokens) - 1; /* the lowest node has all of it */
        if (sees) assert_int_equal(row->id[at], ca_path_chunk(p->cache->tree, q->seq->leaf, last));
    }
}

static void check_balance(const player *p, int list) {
    const int n_blocks = ca_list_decodes(list) ? DECODE_BLOCKS : PREFILL_BLOCKS;
    const int32_t *parts = p->copy + p->dp.at[CA_IMAGE_PARTS + list];
    int64_t total = 0, most_block = 0, most_unit = 0;
    for (int b = 0; b < n_blocks; b++) {
        int64_t block = 0, unit = 0;
        for (const ca_work_item *j = items_of(p, list) + parts[b]; j < items_of(p, list) + parts[b + 1]; j++) {
            const int64_t cost = ca_work_cost(j->n_chunks, j->n_tokens * GROUP);
            assert_in_range(j->n_tokens * GROUP, 1,
                            ca_list_decodes(list) ? CA_CUDA_DECODE_ROWS : p->dp.config.prefill_tokens * GROUP);
            assert_int_equal(j->carry_in >= 0, list >= CA_LIST_PREFILL_CARRIED);
            unit = j->fold >= 0 ? unit + cost : cost;
            if (j->fold >= 0) { /* the work item before kept what this one folds onto */
                assert_true(j > items_of(p, list) + parts[b] && (j[-1].flags & CA_WORK_ITEM_KEEP) && j[-1].state == j->fold);
                assert_true(j[-1].row == j->row && j[-1].n_tokens == j->n_tokens && j[-1].segment < j->segment);
                assert_true(j->state != j->fold || (j->flags & CA_WORK_ITEM_OUTPUT));
                n_kept++;
            }
            most_unit = unit > most_unit ? unit : most_unit;
            block += cost;
            n_carried += j->carry_in >= 0;
        }
        total += block;
        most_block = block > most_block ? block : most_block;
    }
    assert_int_equal(parts[n_blocks], p->dp.n[CA_IMAGE_ITEMS + list]);
    assert_int_equal(p->dp.lists >> list & 1, parts[n_blocks] > 0);
    assert_true(most_block <= total / n_blocks + most_unit + 1);
}

/* Thread blocks run at the same time, so what a work item keeps for the next one is in states that no other block has. */
static void check_kept(const player *p, int list) {
    const int n_blocks = ca_list_decodes(list) ? DECODE_BLOCKS : PREFILL_BLOCKS;
    const int32_t *parts = p->copy + p->dp.at[CA_IMAGE_PARTS + list];
    const size_t n_merged_states = p->dp.n[CA_IMAGE_MERGE], n_states = (size_t)p->dp.n_states;
    int *owner = calloc(N_HEADS * n_states + 1, sizeof *owner); /* a block's number plus 1; 0: none */
    for (int b = 0; b < n_blocks; b++)
        for (const ca_work_item *j = items_of(p, list) + parts[b]; j < items_of(p, list) + parts[b + 1]; j++)
            for (int t = 0; j->flags & CA_WORK_ITEM_KEEP && t < j->n_tokens; t++) {
                const size_t state = (size_t)(j->state + t);
                assert_in_range(state, n_merged_states, n_states - 1);
                int *of = &owner[(size_t)j->head * n_states + state];
                assert_true(*of == 0 || *of == b + 1);
                n_kept_beside += state >= n_merged_states + 2 * (size_t)p->dp.config.prefill_tokens;
                *of = b + 1;
            }
    free(owner);
}

static void check_items(const player *p) {
    const size_t n_rows = p->dp.n[CA_IMAGE_POSITION];
    seen *rows = malloc((n_rows + 1) * sizeof *rows);
    held *states = malloc(((size_t)p->dp.n_states + 1) * sizeof *states);
    for (int head = 0; head < N_HEADS; head++) {
        memset(rows, 0xff, n_rows * sizeof *rows);
        for (size_t r = 0; r < n_rows; r++) rows[r].n_states = rows[r].n_outputs = 0;
        for (int l = 0; l < CA_N_LISTS; l++)
            for (size_t j = 0; j < p->dp.n[CA_IMAGE_ITEMS + l]; j++)
                if (items_of(p, l)[j].head == head) follow_work(&items_of(p, l)[j], rows, states);
        size_t row = 0;
        for (size_t i = 0; i < p->plan.sections.n; i++)
            for (int32_t r = 0; r < p->plan.sections.at[i]->n_rows; r++, row++) {
                const int32_t *begin = p->copy + p->dp.at[CA_IMAGE_MERGE_BEGIN] + row;
                assert_int_equal(p->copy[p->dp.at[CA_IMAGE_POSITION] + row], p->plan.sections.at[i]->position.at[r]);
                assert_int_equal(begin[1] - begin[0], rows[row].n_states);
                assert_int_equal(rows[row].n_outputs, rows[row].n_states == 0);
                check_merge(p, states, (int32_t)row);
                check_row(p, p->plan.sections.at[i], r, &rows[row]);
            }
    }
    free(states);
    free(rows);
    for (int l = 0; l < CA_N_LISTS; l++) {
        check_balance(p, l);
        check_kept(p, l);
    }
}

/* Apply the changes to the copy, which must then be the image. */
static void update_copy(player *p) {
    ca_image_range changes[CA_IMAGE_ARRAYS];
    if (p->dp.moved) {
        free(p->copy);
        p->copy = malloc(p->dp.image_words * sizeof *p->copy);
        memset(p->copy, 0xaa, p->dp.image_words * sizeof *p->copy);
    }
    int32_t *chunk = ca_device_plan_array(&p->dp, CA_IMAGE_CHUNK);
    for (size_t r = 0; r < p->dp.n[CA_IMAGE_CHUNK]; r++) chunk[r] = 7;
    const int32_t n = ca_device_plan_take_changes(&p->dp, changes);
    for (int32_t i = 0; i < n; i++)
        memcpy(p->copy + changes[i].at, p->dp.image + changes[i].at, changes[i].n * sizeof *p->copy);
    for (int a = 0; a < CA_IMAGE_ARRAYS; a++)
        assert_memory_equal(p->copy + p->dp.at[a], p->dp.image + p->dp.at[a], array_bytes(&p->dp, a));
    if (p->plan.only_moved) {
        n_moved++;
        assert_true(n <= 1 && (n == 0 || changes[0].n <= p->dp.n[CA_IMAGE_POSITION]));
    }
}

static void step(player *p) {
    cattn_entry entries[WORLD_MAX_SEQS];
    for (int i = 0; i < p->n_seqs; i++) entries[i] = (cattn_entry){.seq = p->seqs[i], .max_rows = rng_range(&p->r, 1, 400)};
    assert_int_equal(cattn_step_begin(p->cache, entries, p->n_seqs, 0, NULL), CATTN_OK);
    const ca_step *s = &p->cache->step;
    assert_int_equal(ca_plan_update(&p->plan, 1, s->entries.at, (int32_t)s->entries.n), CATTN_OK);
    assert_int_equal(ca_device_plan_update(&p->dp, &p->plan), CATTN_OK);
    update_copy(p);
    check_items(p);
    assert_true(write_zeros(p->cache));
    assert_int_equal(cattn_step_end(p->cache, NULL), CATTN_OK);
}

static void change(player *p) {
    for (int i = 0; i < p->n_seqs; i++) {
        const int32_t token = (int32_t)rng_range(&p->r, 0, 2);
        if (rng_chance(&p->r, 8) && p->length[i] > 4) {
            p->length[i] -= 3;
            assert_int_equal(cattn_seq_truncate(p->cache, p->seqs[i], p->length[i], NULL), CATTN_OK);
        } else if (p->length[i] < (MAX_CHUNKS - 1) * CA_CUDA_CHUNK) {
            p->length[i]++;
            assert_int_equal(cattn_seq_append(p->cache, p->seqs[i], &token, 1, NULL), CATTN_OK);
        }
    }
}

static ca_plan_config plan_config(const world *w, const ca_device_plan_config *device, rng *r) {
    const int32_t window = rng_chance(r, 3) ? (int32_t)rng_range(r, 1, 900) : 0;
    return (ca_plan_config){.together = !rng_chance(r, 4),
                            .group = GROUP,
                            .max_rows = device->prefill_tokens,
                            .min_slice = 64,
                            .chunk_cost = 8,
                            .min_tasks = 1,
                            .task_step = 1,
                            .log2_segment = 9,
                            .window = window,
                            .n_sink_tokens = window ? w->config.n_sink_tokens : 0};
}

static void make(world *w, uint64_t seed, int64_t longest) {
    static plan p;
    rng r = {seed};
    p = (plan){
        .shape = {.level = -1, .chunk_size = 64, .n_layers = 1, .n_kv_heads = 1, .group = 1, .head_dim = 64, .head_dim_v = 64}};
    if (rng_chance(&r, 3)) p.shape.n_sink_tokens = rng_range(&r, 1, longest / 2);
    plan_make_seqs(&p, &r, longest);
    world_make(w, &p);
}

static void play(uint64_t seed, int64_t longest, int n_steps) {
    world w;
    make(&w, seed, longest);
    player p = {.w = &w, .r = {seed}, .n_seqs = w.n_seqs};
    ca_alloc alloc = ca_alloc_default();
    cattn_config config = w.config;
    config.n_threads = 1;
    config.windows = NULL;
    assert_int_equal(cattn_cache_create(&config, &p.cache, NULL), CATTN_OK);
    const ca_device_plan_config device = device_config(&p.r);
    const ca_plan_config plan = plan_config(&w, &device, &p.r);
    ca_plan_init(&p.plan, &plan, p.cache->tree, &p.cache->layout, &alloc);
    ca_device_plan_init(&p.dp, &device, &alloc);
    for (int i = 0; i < w.n_seqs; i++) {
        p.length[i] = w.seqs[i].n_tokens;
        assert_int_equal(cattn_seq_join(p.cache, w.seqs[i].tokens, p.length[i], NULL, &p.seqs[i], NULL, NULL), CATTN_OK);
    }
    for (int i = 0; i < n_steps; i++) {
        step(&p);
        change(&p);
    }
    ca_device_plan_free(&p.dp);
    ca_plan_free(&p.plan);
    assert_int_equal(alloc.bytes, 0);
    free(p.copy);
    cattn_cache_destroy(&p.cache);
    world_free(&w);
}

static void items_are_the_plan(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) play(seed, seed % 3 ? 300 : 2500, 30);
    assert_true(n_kept > 100 && n_kept_beside > 100 && n_carried > 100 && n_merged > 100 && n_merged_many > 100 &&
                n_moved > 100);
}

/* Two images are equal except in the array that the caller fills. */
static void assert_same_image(const ca_device_plan *a, const ca_device_plan *b) {
    for (int i = 0; i < CA_IMAGE_ARRAYS; i++) {
        assert_int_equal(a->n[i], b->n[i]);
        if (i != CA_IMAGE_CHUNK) assert_memory_equal(ca_device_plan_array(a, i), ca_device_plan_array(b, i), array_bytes(a, i));
    }
}

static void an_update_succeeds_after_one_without_memory(void **state) {
    (void)state;
    world w;
    make(&w, 3, 700);
    cattn_config config = w.config;
    cattn_cache *cache;
    cattn_entry entry = {.max_rows = 700};
    config.n_threads = 1;
    assert_int_equal(cattn_cache_create(&config, &cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_join(cache, w.seqs[0].tokens, w.seqs[0].n_tokens, NULL, &entry.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    rng r = {1};
    const ca_device_plan_config device = device_config(&r);
    const ca_plan_config plan_of = plan_config(&w, &device, &r);
    ca_alloc plain = ca_alloc_default();
    ca_plan plan;
    ca_plan_init(&plan, &plan_of, cache->tree, &cache->layout, &plain);
    assert_int_equal(ca_plan_update(&plan, 1, cache->step.entries.at, 1), CATTN_OK);
    ca_device_plan want;
    ca_device_plan_init(&want, &device, &plain);
    assert_int_equal(ca_device_plan_update(&want, &plan), CATTN_OK);
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        failing host = {.left = n, .times = 1};
        ca_alloc alloc = {failing_alloc, failing_free, &host, 0};
        ca_device_plan dp;
        ca_device_plan_init(&dp, &device, &alloc);
        failed = ca_device_plan_update(&dp, &plan) != CATTN_OK;
        if (failed) assert_int_equal(ca_device_plan_update(&dp, &plan), CATTN_OK);
        assert_true(dp.moved);
        assert_int_equal(dp.n[CA_IMAGE_POSITION], entry.n_rows);
        assert_same_image(&dp, &want);
        ca_device_plan_free(&dp);
        assert_int_equal(alloc.bytes, 0);
    }
    assert_true(n > 4);
    ca_device_plan_free(&want);
    ca_plan_free(&plan);
    cattn_cache_destroy(&cache);
    world_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_the_plan),
        cmocka_unit_test(an_update_succeeds_after_one_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
