/*
 * The index against a plain model of it: an array in order of use. Random trees of records are written, touched, removed and
 * replaced; a parent is always more recent than its children, and an index loaded from a file has the order of the writes.
 */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn/tier/index.h"

enum { N_CELLS = 40, N_KEYS = 120, N_STEPS = 20000 };

/* Key k is a child of key parent_of[k], or of a root if that is -1. */
static int parent_of[N_KEYS];

typedef struct model {
    int keys[N_CELLS]; /* most recent first */
    int n;
} model;

/* Keys of which many begin at the same place of the table. */
static ca_tier_key key_of(int k) {
    return (ca_tier_key){k < 0 ? 999 : (uint64_t)(k % 7) + (uint64_t)(k / 40) * 4096, (uint64_t)k};
}

static ca_tier_entry entry_of(int k) { return (ca_tier_entry){key_of(k), key_of(parent_of[k])}; }

static int place_in(const model *m, int k) {
    for (int i = 0; i < m->n; i++)
        if (m->keys[i] == k) return i;
    return -1;
}

static void remove_key(model *m, int k) {
    const int at = place_in(m, k);
    memmove(m->keys + at, m->keys + at + 1, (size_t)(--m->n - at) * sizeof *m->keys);
}

static void push_first(model *m, int k) {
    memmove(m->keys + 1, m->keys, (size_t)m->n++ * sizeof *m->keys);
    m->keys[0] = k;
}

static void touch(model *m, int k) {
    for (; k >= 0 && place_in(m, k) >= 0; k = parent_of[k]) {
        remove_key(m, k);
        push_first(m, k);
    }
}

static void use(model *m, int k) {
    push_first(m, k);
    touch(m, k);
}

static void check(const ca_tier_index *index, const model *m) {
    int32_t cell = index->used.first;
    for (int i = 0; i < m->n; i++, cell = index->links[cell].next) {
        assert_true(cell >= 0);
        assert_int_equal(index->entries[cell].key.high, m->keys[i]);
        assert_int_equal(ca_tier_index_find(index, key_of(m->keys[i])), cell);
        const int parent = parent_of[m->keys[i]];
        if (parent >= 0) assert_true(place_in(m, parent) < i); /* -1: it has been removed */
    }
    assert_int_equal(cell, CA_LIST_END);
    assert_int_equal(index->used.n, m->n);
    for (int k = 0; k < N_KEYS; k++)
        if (place_in(m, k) < 0) assert_int_equal(ca_tier_index_find(index, key_of(k)), -1);
}

static void make_tree(void) {
    for (int k = 0; k < N_KEYS; k++) parent_of[k] = rand() % 5 == 0 ? -1 : rand() % (k + 1) - 1;
}

static void as_the_model(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    for (int seed = 0; seed < 5; seed++) {
        srand((unsigned)seed);
        make_tree();
        ca_tier_index index;
        model m = {.n = 0};
        assert_int_equal(ca_tier_index_create(&index, N_CELLS, &alloc), 0);
        for (int step = 0; step < N_STEPS; step++) {
            const int k = rand() % N_KEYS;
            int32_t cell = ca_tier_index_find(&index, key_of(k));
            assert_int_equal(cell >= 0, place_in(&m, k) >= 0);
            if (cell >= 0 && rand() % 4 == 0) {
                ca_tier_index_remove(&index, cell);
                if (rand() % 4 == 0)
                    ca_tier_index_set_aside(&index, cell);
                else
                    ca_tier_index_free(&index, cell);
                remove_key(&m, k);
            } else if (cell >= 0) {
                ca_tier_index_touch(&index, cell);
                touch(&m, k);
            } else {
                cell = index.free.first;
                if (cell >= 0) {
                    ca_tier_index_take(&index, cell);
                } else if (index.used.n > 0) {
                    cell = index.used.last;
                    assert_int_equal(index.entries[cell].key.high, m.keys[m.n - 1]);
                    ca_tier_index_remove(&index, cell);
                    m.n--;
                }
                if (cell >= 0) {
                    ca_tier_index_use(&index, cell, entry_of(k));
                    use(&m, k);
                }
            }
            if (rand() % 50 == 0) ca_tier_index_bring_back(&index);
            assert_int_equal(index.used.n + index.free.n + index.aside.n, N_CELLS);
            if (step % 20 == 0) check(&index, &m);
        }
        ca_tier_index_destroy(&index);
    }
    assert_int_equal(alloc.bytes, 0);
}

/* Loading restores the order in which the same records were written, a record that was written twice in its later place. */
static void loaded(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    for (int seed = 0; seed < 200; seed++) {
        srand((unsigned)seed);
        make_tree();
        ca_tier_index index;
        model m = {.n = 0};
        assert_int_equal(ca_tier_index_create(&index, N_CELLS, &alloc), 0);
        ca_tier_found found[N_CELLS];
        int32_t path[N_CELLS];
        const int n = 1 + rand() % N_CELLS;
        for (int i = 0; i < n; i++) {
            const int k = rand() % N_KEYS;
            found[i] = (ca_tier_found){(uint64_t)i * 3, i, entry_of(k)};
            if (place_in(&m, k) >= 0) remove_key(&m, k); /* the later one counts */
            use(&m, k);
        }
        for (int i = n - 1; i > 0; i--) {
            const int j = rand() % (i + 1);
            const ca_tier_found swapped = found[i];
            found[i] = found[j];
            found[j] = swapped;
        }
        ca_tier_index_load(&index, found, path, (size_t)n);
        check(&index, &m);
        assert_int_equal(index.used.n + index.free.n, N_CELLS);
        ca_tier_index_destroy(&index);
    }
}

/* A forged file may have records that are each other's ancestors. Touching and loading them end. */
static void circle(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_tier_index index;
    assert_int_equal(ca_tier_index_create(&index, 3, &alloc), 0);
    ca_tier_found found[3];
    int32_t path[3];
    for (int i = 0; i < 3; i++) found[i] = (ca_tier_found){5, i, {key_of(i), key_of((i + 1) % 3)}};
    ca_tier_index_load(&index, found, path, 3);
    assert_int_equal(index.used.n, 3);
    for (int i = 0; i < 3; i++) {
        ca_tier_index_touch(&index, i);
        assert_int_equal(index.used.n, 3);
        assert_int_equal(ca_tier_index_find(&index, key_of(i)), i);
    }
    ca_tier_index_destroy(&index);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_model),
        cmocka_unit_test(loaded),
        cmocka_unit_test(circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
