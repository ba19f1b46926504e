/*
 * Plans for random block tables, compared with an oracle that looks only at the tables of one batch: each row passes over each
 * of its pages once and in ascending order, the counts of shared pages follow from equal ids at equal indices, and the order is
 * sorted. Tables grow, shrink, fork, change places, enter and leave the batch, and ids are reused.
 */
#define CATTN_EXPERIMENTAL
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn/pages/handle.h"
#include "tests/chunkattn/cache/small_layout.h"
#include "tests/support/rng.h"

enum { MOST_SEQS = 40, MOST_PAGES = 200, C = 16, N_IDS = 6000 };

typedef struct table {
    int32_t ids[MOST_PAGES];
    int32_t length, n_rows; /* tokens, and how many of the last ones are rows */
} table;

typedef struct fixture {
    cattn_pages *pages;
    rng r;
    table tables[MOST_SEQS];
    int n;
    int32_t next_id;
} fixture;

static int32_t n_pages(const table *t) { return (t->length + C - 1) / C; }

/* ---- The oracle ---- */

/* Whether a and b have their first n > 0 pages in common. */
static bool has_pages(const table *a, int32_t n, const table *b) {
    return b->n_rows > 0 && n <= n_pages(b) && memcmp(a->ids, b->ids, (size_t)n * sizeof *a->ids) == 0;
}

/* The number of sequences that have the first n pages of sequence i, and whether an earlier one is among them. */
static int count_having(const fixture *f, int i, int32_t n, bool *earlier) {
    int count = 0;
    *earlier = false;
    for (int j = 0; j < f->n; j++)
        if (has_pages(&f->tables[i], n, &f->tables[j])) {
            count++;
            *earlier |= j < i;
        }
    return count;
}

static cattn_pages_info count_shared(const fixture *f) {
    cattn_pages_info info = {0};
    for (int i = 0; i < f->n; i++) {
        const table *t = &f->tables[i];
        int before = 0; /* sequences that have the page before in common */
        info.n_rows += t->n_rows;
        if (t->n_rows == 0) continue;
        for (int32_t p = 1; p <= n_pages(t); p++) {
            bool earlier;
            const int n = count_having(f, i, p, &earlier);
            info.pages_referenced++;
            info.pages_read += !earlier;
            info.shared_pages += !earlier && n > 1;
            info.shared_runs += !earlier && n > 1 && n != before;
            before = n;
        }
    }
    return info;
}

/* ---- The plan ---- */

/* Check that the quarters of a table's chunk, which are pages here, are those of the table. */
static void check_chunk(const fixture *f, ca_chunk_id chunk, const table *t, int32_t at) {
    for (int32_t i = 0; i < CA_PAGE_QUARTERS; i++) {
        const int32_t page = at * CA_PAGE_QUARTERS + i;
        assert_int_equal(ca_page_plan_find(&f->pages->plan, chunk, i), page < n_pages(t) ? t->ids[page] : -1);
    }
}

/* Check that the row passes over its chunks from the first on. */
static void check_row(const fixture *f, const ca_section *s, int32_t row, const table *t) {
    enum { CHUNK = CA_PAGE_CHUNK };
    int32_t at = 0;
    for (int32_t b = s->first_block.at[row]; b < s->first_block.at[row + 1]; b++) {
        const ca_block *block = &s->blocks.at[s->row_blocks.at[b]];
        for (int32_t k = block->item_begin; k < block->item_end; k++) {
            const ca_item *item = &s->items.at[k];
            if (row < item->row_begin || row >= item->row_end) continue;
            for (int32_t i = 0; i < item->n_chunks && at * CHUNK <= s->position.at[row]; i++, at++) {
                assert_int_equal(item->first_chunk + i, at);
                check_chunk(f, s->chunks.at[item->chunk + i], t, at);
                assert_true(item->partial || (at + 1) * CHUNK <= s->position.at[row] + 1);
            }
        }
    }
    assert_int_equal(at, s->position.at[row] / CHUNK + 1);
}

static void check_plan(const fixture *f, const ca_plan *plan) {
    int32_t first_row[MOST_SEQS + 1] = {0};
    int n_found = 0, n_expected = 0;
    for (int i = 0; i < f->n; i++) {
        first_row[i + 1] = first_row[i] + f->tables[i].n_rows;
        n_expected += f->tables[i].n_rows > 0;
    }
    for (size_t k = 0; k < plan->sections.n; k++) {
        const ca_section *s = plan->sections.at[k];
        for (size_t i = 0; i < s->seqs.n; i++, n_found++) {
            const ca_section_seq *q = &s->seqs.at[i];
            const table *t = &f->tables[q->entry];
            assert_int_equal(q->n_rows, t->n_rows);
            for (int32_t r = 0; r < q->n_rows; r++) {
                assert_int_equal(s->source.at[q->row_begin + r], first_row[q->entry] + r);
                assert_int_equal(s->position.at[q->row_begin + r], t->length - t->n_rows + r);
                check_row(f, s, q->row_begin + r, t);
            }
        }
    }
    assert_int_equal(n_found, n_expected);
}

/* Check that the order is sorted, that `common` is right for all neighbours, and that each table is in the order or unused. */
static void check_order(const ca_tables *t) {
    assert_int_equal(t->order.n + t->unused.n, t->tables.n);
    for (size_t i = 1; i < t->order.n; i++) {
        const ca_table *a = ca_table_at(t, t->order.at[i - 1]), *b = ca_table_at(t, t->order.at[i]);
        const int32_t common = t->order.at[i].common;
        assert_true(common <= a->n && common <= b->n);
        assert_memory_equal(a->ids.at, b->ids.at, (size_t)common * sizeof *a->ids.at);
        assert_true(common == a->n || (common < b->n && a->ids.at[common] < b->ids.at[common]));
    }
}

static cattn_status plan(fixture *f, cattn_error *error) {
    static int32_t ids[MOST_SEQS * MOST_PAGES];
    int32_t lengths[MOST_SEQS], query_indptr[MOST_SEQS + 1] = {0};
    for (int i = 0; i < f->n; i++) {
        memcpy(ids + (ptrdiff_t)i * MOST_PAGES, f->tables[i].ids, sizeof f->tables[i].ids);
        lengths[i] = f->tables[i].length;
        query_indptr[i + 1] = query_indptr[i] + f->tables[i].n_rows;
    }
    const cattn_pages_batch b = {.struct_size = sizeof b,
                                 .n_seqs = f->n,
                                 .page_ids = ids,
                                 .page_stride = MOST_PAGES,
                                 .seq_lens = lengths,
                                 .query_indptr = query_indptr};
    return cattn_pages_plan(f->pages, &b, error);
}

static cattn_pages_info info_of(const fixture *f) {
    cattn_pages_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_pages_get_info(f->pages, &info), CATTN_OK);
    return info;
}

static void check(fixture *f) {
    cattn_error error = {0};
    if (plan(f, &error)) fail_msg("%s", error.message);
    const ca_page_plan *p = &f->pages->plan;
    check_order(&p->tables);
    for (size_t i = 0; i < p->plans.n; i++)
        if (p->plans.at[i].config.window == 0) check_plan(f, &p->plans.at[i]);
    const cattn_pages_info is = info_of(f), expected = count_shared(f);
    assert_int_equal(is.n_rows, expected.n_rows);
    assert_int_equal(is.pages_referenced, expected.pages_referenced);
    assert_int_equal(is.pages_read, expected.pages_read);
    assert_int_equal(is.shared_pages, expected.shared_pages);
    assert_int_equal(is.shared_runs, expected.shared_runs);
}

/* ---- Random tables ---- */

static int32_t new_id(fixture *f) { return f->next_id = (f->next_id + 1) % N_IDS; } /* ids are reused soon */

static void resize(fixture *f, table *t, int32_t length) {
    for (int32_t p = n_pages(t); p < (length + C - 1) / C; p++) t->ids[p] = new_id(f);
    t->length = length;
    if (t->n_rows > length) t->n_rows = length;
}

/* A sequence with new pages, or one that shares the first pages of another. */
static void join(fixture *f) {
    table *t = &f->tables[f->n];
    *t = (table){.n_rows = rng_chance(&f->r, 10) ? 0 : 1};
    int32_t common = 0;
    if (f->n > 0 && !rng_chance(&f->r, 4)) {
        const table *other = &f->tables[rng_below(&f->r, f->n)];
        common = (int32_t)rng_range(&f->r, 0, n_pages(other));
        memcpy(t->ids, other->ids, (size_t)common * sizeof *t->ids);
    }
    t->length = common * C;
    resize(f, t, (int32_t)rng_range(&f->r, t->length > 0 ? t->length : 1, t->length + rng_below(&f->r, 100) + 1));
    if (t->length > (MOST_PAGES - 4) * C) t->length = (MOST_PAGES - 4) * C;
    f->n++;
}

static void swap(fixture *f, int i, int j) {
    const table t = f->tables[i];
    f->tables[i] = f->tables[j];
    f->tables[j] = t;
}

static void change(fixture *f) {
    rng *r = &f->r;
    for (int i = f->n - 1; i >= 0; i--) {
        table *t = &f->tables[i];
        if (rng_chance(r, 30)) {
            swap(f, i, --f->n);
            continue;
        }
        if (t->length < (MOST_PAGES - 4) * C) resize(f, t, t->length + (rng_chance(r, 10) ? rng_below(r, 40) : 1));
        if (rng_chance(r, 20)) resize(f, t, (int32_t)rng_range(r, 1, t->length));
        if (rng_chance(r, 10)) t->n_rows = (int32_t)rng_range(r, 0, t->length < 40 ? t->length : 40);
        if (rng_chance(r, 40)) t->ids[rng_below(r, n_pages(t))] = new_id(f); /* another page takes the place of one */
        if (rng_chance(r, 20) && f->n < MOST_SEQS) f->tables[f->n++] = *t;
    }
    while (f->n < MOST_SEQS && rng_chance(r, 2)) join(f);
    if (rng_chance(r, 8))
        for (int i = f->n - 1; i > 0; i--) swap(f, i, rng_below(r, i + 1));
    if (rng_chance(r, 60)) f->n = 0;
}

static cattn_pages *create(const cattn_pages_config *config) {
    cattn_pages *pages = NULL;
    cattn_error error = {0};
    if (cattn_pages_create(config, &pages, &error)) fail_msg("%s", error.message);
    return pages;
}

static cattn_pages_config small_config(void) {
    cattn_pages_config c;
    cattn_pages_config_init(&c);
    c.common.n_heads = 2, c.common.n_kv_heads = 1, c.common.head_dim = 64, c.common.n_threads = 1;
    return c;
}

static void test_random(void **state) {
    (void)state;
    static const int32_t windows[] = {0, 50, 0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static fixture f;
        cattn_pages_config c = small_config();
        c.common.n_layers = 1 + (int32_t)(seed % 3);
        c.common.windows = seed % 2 ? windows : NULL;
        f = (fixture){.pages = create(&c), .r = {seed}};
        for (int i = 0; i < 150; i++) {
            change(&f);
            check(&f);
        }
        cattn_pages_destroy(&f.pages);
    }
}

/* ---- What is kept ---- */

/* If no row enters another page, a decode step keeps the plan; another order of the sequences needs no new section. */
static void test_kept(void **state) {
    (void)state;
    static fixture f;
    const cattn_pages_config c = small_config();
    f = (fixture){.pages = create(&c), .r = {7}};
    for (int i = 0; i < 20; i++) join(&f);
    for (int i = 0; i < f.n; i++) f.tables[i].n_rows = 1;
    check(&f);
    for (int step = 0; step < 3 * C; step++) {
        bool enters = false;
        for (int i = 0; i < f.n; i++) {
            enters |= f.tables[i].length % C == 0;
            resize(&f, &f.tables[i], f.tables[i].length + 1);
        }
        const int64_t n_kept = info_of(&f).n_kept;
        check(&f);
        assert_int_equal(info_of(&f).n_kept, n_kept + !enters);
    }
    const uint64_t n_built = f.pages->plan.plans.at[0].n_built;
    const int64_t n_kept = info_of(&f).n_kept;
    for (int i = f.n - 1; i > 0; i--) swap(&f, i, rng_below(&f.r, i + 1));
    check(&f);
    assert_int_equal(info_of(&f).n_kept, n_kept + 1);
    assert_int_equal(f.pages->plan.plans.at[0].n_built, n_built);
    /* With one sequence less, only its section is rebuilt. */
    f.n--;
    check(&f);
    assert_true(f.pages->plan.plans.at[0].n_built <= n_built + 1);
    cattn_pages_destroy(&f.pages);
}

/* A row that goes back within its page sees less of it: an item that was not partial becomes partial. */
static void test_back(void **state) {
    (void)state;
    static fixture f;
    const cattn_pages_config c = small_config();
    f = (fixture){.pages = create(&c), .n = 1};
    f.tables[0].n_rows = 1;
    resize(&f, &f.tables[0], 2 * C);
    check(&f);
    resize(&f, &f.tables[0], 2 * C - 3);
    check(&f);
    cattn_pages_destroy(&f.pages);
}

/* ---- Memory ---- */

/* An allocator that counts, and fails at the n-th allocation from now on. */
typedef struct failing {
    int64_t left, n, bytes;
} failing;

static void *failing_alloc(void *ctx, size_t size, size_t align) {
    failing *f = ctx;
    f->n++;
    if (f->left > 0 && --f->left == 0) return NULL;
    f->bytes += (int64_t)size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void failing_free(void *ctx, void *p, size_t size, size_t align) {
    (void)align;
    ((failing *)ctx)->bytes -= (int64_t)size;
    free(p);
}

/* Attend with K and V that depend on the page alone, and return the sum of all results. */
static double attend(const fixture *f, cattn_status *status) {
    enum { D = 64, HEADS = 2, ROWS = MOST_SEQS * 40 };
    static uint16_t kv[N_IDS * 2];
    static float q[ROWS * HEADS * D], out[ROWS * HEADS * D];
    for (int i = 0; i < N_IDS * 2; i++) kv[i] = (uint16_t)(0x3f00 + i % 97);
    const cattn_page_view k = {kv, 1, 0, D}; /* all tokens of a page are the same memory, which no engine would do */
    const cattn_view qv = {q, CATTN_F32, HEADS * D, D}, ov = {out, CATTN_F32, HEADS * D, D};
    double sum = 0;
    for (int i = 0; i < ROWS * HEADS * D; i++) q[i] = 0.01f * (float)(i % 31), out[i] = 0;
    cattn_pages *p = f->pages;
    p->k = p->v = k;
    *status = p->plan.exists ? CATTN_OK : CATTN_ERR_STATE;
    if (*status == CATTN_OK) ca_attn_run(&p->compute.attn, &p->plan.plans.at[0], 0, &qv, &ov, NULL);
    for (int i = 0; i < ROWS * HEADS * D; i++) sum += (double)out[i] * (1 + i % 7);
    return sum;
}

/*
 * Whichever allocation fails, the previous plan remains and gives the same results, or there is no plan. Once there is memory,
 * the same batch or another one is planned.
 */
static void test_plan_without_memory(void **state) {
    (void)state;
    int n_failed = 0, n_lost = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        static fixture f;
        failing memory = {0};
        cattn_pages_config c = small_config();
        c.common.allocator = (cattn_allocator){failing_alloc, failing_free, &memory};
        f = (fixture){.pages = create(&c), .r = {seed}};
        for (int step = 0; step < 25; step++) {
            cattn_status before, after;
            const double expected = attend(&f, &before);
            const cattn_pages_info info = info_of(&f);
            change(&f);
            for (int64_t n = 1;; n++) {
                cattn_error error = {0};
                memory.left = n;
                const cattn_status s = plan(&f, &error);
                memory.left = 0;
                if (s == CATTN_OK) break;
                assert_int_equal(s, CATTN_ERR_NOMEM);
                assert_int_equal(error.code, CATTN_ERR_NOMEM);
                const double is = attend(&f, &after);
                n_failed++;
                n_lost += after != before;
                if (after == CATTN_OK) {
                    assert_memory_equal(&is, &expected, sizeof is);
                    const cattn_pages_info still = info_of(&f);
                    assert_memory_equal(&still, &info, sizeof info);
                }
                before = after;
                if (rng_chance(&f.r, 4))
                    change(&f); /* so that the next update recognises other tables than the one that was undone */
            }
            check(&f);
        }
        cattn_pages_destroy(&f.pages);
        assert_int_equal(memory.bytes, 0);
    }
    assert_true(n_failed > 100);
    assert_int_equal(n_lost, 0); /* one failure at a time leaves memory for the old workspace */
}

/* Chunks of 64 tokens are numbers of 31 bits, by table and index: see page_plan.h. */
static void test_numbers_of_chunks(void **state) {
    (void)state;
    enum { LONG = 1 << 25, MANY = 3000 }; /* an index of 20 bits leaves numbers for 2048 tables */
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_layout layout;
    small_layout(&layout, 1, 64, 64);
    ca_page_plan plan;
    cattn_error error;
    ca_page_plan_init(&plan, C, false, &alloc);
    const ca_plan_config config = {
        .together = true, .group = 1, .max_rows = 64, .min_slice = 1, .min_tasks = 1, .task_step = 1, .log2_segment = 9};
    assert_int_equal(ca_page_plan_add(&plan, &config, &layout), 0);
    int32_t *ids = malloc((LONG / C + MANY) * sizeof *ids);
    for (int32_t i = 0; i < LONG / C + MANY; i++) ids[i] = i;
    ca_page_seq *seqs = calloc(MANY + 1, sizeof *seqs);
    for (int32_t i = 0; i < MANY; i++) seqs[i] = (ca_page_seq){.ids = ids + LONG / C + i, .n_pages = 1, .n_rows = 1, .row = i};
    seqs[MANY] = (ca_page_seq){.ids = ids, .n_pages = LONG / C, .first_pos = LONG - 1, .n_rows = 1, .row = MANY};
    assert_int_equal(ca_page_plan_update(&plan, NULL, &seqs[MANY], 1, &error), CATTN_OK);
    assert_int_equal(ca_page_plan_update(&plan, NULL, seqs, MANY + 1, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "too many sequences for its longest one; divide it"));
    assert_int_equal(ca_page_plan_update(&plan, NULL, seqs, MANY, &error), CATTN_OK);
    const ca_plan *p = &plan.plans.at[0];
    assert_int_equal(p->sections.n, MANY);
    for (size_t i = 0; i < MANY; i++) {
        const ca_section *s = p->sections.at[i];
        const int32_t id = ca_page_plan_find(&plan, s->chunks.at[s->items.at[0].chunk], 0);
        assert_int_equal(id, LONG / C + s->source.at[0]);
    }
    ca_page_plan_free(&plan);
    small_layout_free(&layout);
    free(seqs);
    free(ids);
    assert_int_equal(alloc.bytes, 0);
}

/* Decoding allocates nothing after a while, if sequences that end are replaced by others of the same length. */
static void test_steady_state(void **state) {
    (void)state;
    static fixture f;
    failing memory = {0};
    cattn_pages_config c = small_config();
    c.common.allocator = (cattn_allocator){failing_alloc, failing_free, &memory};
    f = (fixture){.pages = create(&c), .r = {3}};
    for (int i = 0; i < 16; i++) f.tables[f.n++] = (table){.n_rows = 1};
    int64_t n_warm = 0;
    for (int step = 0; step < 1200; step++) {
        for (int i = 0; i < f.n; i++) {
            table *t = &f.tables[i];
            if (t->length == 0 ||
                t->length >= 300) { /* a new sequence on the common prefix; sequences end at different steps */
                const int32_t own = t->length == 0 ? 1 + 8 * i : 1;
                for (int p = 0; p < 10; p++) t->ids[p] = N_IDS + p;
                t->length = 10 * C;
                resize(&f, t, 10 * C + own);
                continue;
            }
            resize(&f, t, t->length + 1);
        }
        if (step % 50 == 0) swap(&f, rng_below(&f.r, f.n), rng_below(&f.r, f.n));
        check(&f);
        if (step == 400) n_warm = memory.n;
    }
    assert_int_equal(memory.n, n_warm);
    cattn_pages_destroy(&f.pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_plan_without_memory),
        cmocka_unit_test(test_numbers_of_chunks),
        cmocka_unit_test(test_steady_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
