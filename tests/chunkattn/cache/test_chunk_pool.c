/* The chunk pool: its budget, chunks that do not overlap, ids that depend on the calls alone, and slabs that are returned. */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "chunkattn/cache/chunk_pool.h"

static void fits_the_budget(void **state) {
    (void)state;
    static const size_t sizes[] = {64, 128, 4096, 5120, 1474560, 3 << 20, 9 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ca_alloc alloc = ca_alloc_default();
        ca_chunk_pool *pool;
        const uint64_t budget = 64 << 20;
        assert_int_equal(ca_chunk_pool_create(&pool, &alloc, sizes[i], budget), CATTN_OK);
        assert_int_equal(ca_chunk_pool_bytes(pool), 0);
        const size_t capacity = ca_chunk_pool_capacity(pool);
        assert_true(capacity > 0 && ca_chunk_pool_n_free(pool, 0) == capacity);
        assert_true(capacity * sizes[i] >= budget / 8);
        char *previous = NULL;
        for (size_t n = 0; n < capacity; n++) {
            ca_chunk_id id;
            assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
            assert_int_equal(id, n); /* lowest first */
            const ca_chunk *chunk = ca_chunk_at(pool, id);
            assert_true(chunk->refs == 0 && chunk->live == 0 && chunk->fill == 0);
            char *data = ca_chunk_tile(pool, id, (ca_tile_at){0, sizes[i]});
            assert_int_equal((uintptr_t)data % 64, 0);
            assert_true(!previous || data >= previous + sizes[i]);
            data[0] = data[sizes[i] - 1] = 1; /* it is committed */
            previous = data;
            assert_int_equal(ca_chunk_pool_n_free(pool, 0), capacity - n - 1);
            assert_true(ca_chunk_pool_bytes(pool) + alloc.bytes <= budget);
            assert_int_equal(ca_chunk_pool_excess(pool, 0), 0);
            if (n == 200 && sizes[i] < 4096) break; /* enough small chunks */
        }
        ca_chunk_id id;
        if (ca_chunk_pool_n_free(pool, 0) == 0) assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_ERR_BUDGET);
        ca_chunk_pool_destroy(&pool);
        assert_null(pool);
        assert_int_equal(alloc.bytes, 0);
    }
}

/* The tiles of one head in the chunks of a slab are neighbours, and no two tiles overlap, whatever their sizes. */
static void tiles_follow_one_another(void **state) {
    (void)state;
    enum { TILES = 5, ALL = 64 + 256 + 256 + 192 + 128, MOST = 512 };
    static const ca_tile_at tiles[TILES] = {{0, 64}, {64, 256}, {320, 256}, {576, 192}, {768, 128}};
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, ALL, 4 << 20), CATTN_OK);
    const size_t slab = ca_chunk_pool_slab_chunks(pool), n = 2 * slab;
    assert_true(slab > 1 && n <= MOST);
    ca_chunk_id ids[MOST];
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ca_chunk_pool_get(pool, &ids[i]), CATTN_OK);
        for (size_t tile = 0; tile < TILES; tile++) {
            char *data = ca_chunk_tile(pool, ids[i], tiles[tile]);
            memset(data, (int)(i * TILES + tile) % 251, tiles[tile].bytes);
            if (i % slab > 0) assert_ptr_equal(data, (char *)ca_chunk_tile(pool, ids[i - 1], tiles[tile]) + tiles[tile].bytes);
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t tile = 0; tile < TILES; tile++) {
            const uint8_t *data = ca_chunk_tile(pool, ids[i], tiles[tile]);
            for (size_t k = 0; k < tiles[tile].bytes; k++) assert_int_equal(data[k], (i * TILES + tile) % 251);
        }
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

static void too_small_a_budget(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, 1 << 20, (1 << 20) - 1), CATTN_ERR_BUDGET);
    assert_null(pool);
    /* A chunk would fit, but not with the pool's own memory. */
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, 1 << 20, 1 << 20), CATTN_ERR_BUDGET);
    assert_null(pool);
    assert_int_equal(alloc.bytes, 0);
}

/* The number of chunk ids times this chunk size does not fit in 64 bits. */
static void huge_chunks_fill_the_budget(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    const size_t chunk = ((size_t)8 << 30) + 4096;
    assert_int_equal(ca_chunk_pool_create_elsewhere(&pool, &alloc, chunk, (uint64_t)16 << 40), CATTN_OK);
    assert_int_equal(ca_chunk_pool_capacity(pool), 2047);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

static void empty_slabs_are_returned(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, 4096, 1 << 20), CATTN_OK);
    const size_t slab = ca_chunk_pool_slab_chunks(pool), slab_bytes = slab * 4096;
    enum { N_SLABS = 5 };
    ca_chunk_id ids[N_SLABS * 64];
    assert_true(slab > 1 && slab <= 64);
    for (size_t i = 0; i < N_SLABS * slab; i++) {
        assert_int_equal(ca_chunk_pool_get(pool, &ids[i]), CATTN_OK);
        memset(ca_chunk_tile(pool, ids[i], (ca_tile_at){0, 4096}), 0x55, 4096);
    }
    assert_int_equal(ca_chunk_pool_bytes(pool), N_SLABS * slab_bytes);
    assert_int_equal(ca_chunk_pool_trim(pool, SIZE_MAX, 0), 0); /* all chunks are taken */

    for (size_t i = slab; i < 3 * slab; i++) ca_chunk_pool_put(pool, ids[i]); /* slabs 1 and 2 */
    ca_chunk_pool_put(pool, ids[4 * slab]);                                   /* one chunk of slab 4 */
    assert_int_equal(ca_chunk_pool_n_committed_free(pool), 2 * slab + 1);
    assert_int_equal(ca_chunk_pool_trim(pool, SIZE_MAX, slab + 2), 0); /* without a slab, one chunk too few would be free */
    assert_int_equal(ca_chunk_pool_trim(pool, SIZE_MAX, slab + 1), slab_bytes);
    assert_int_equal(ca_chunk_pool_trim(pool, 1, 0), slab_bytes);
    assert_int_equal(ca_chunk_pool_trim(pool, 1, 0), 0);
    assert_int_equal(ca_chunk_pool_bytes(pool), (N_SLABS - 2) * slab_bytes);

    /* Other slabs keep their contents. A slab that is committed again is zero; chunks come from the lowest slab. */
    assert_int_equal(((char *)ca_chunk_tile(pool, ids[3 * slab], (ca_tile_at){0, 4096}))[4095], 0x55);
    ca_chunk_id id;
    assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
    assert_int_equal(id, ids[4 * slab]); /* the only free chunk of a committed slab */
    assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
    assert_int_equal(id, ids[slab]);
    assert_int_equal(((char *)ca_chunk_tile(pool, id, (ca_tile_at){0, 4096}))[0], 0);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

/* Other memory of the same budget leaves less for slabs, but committed slabs stay. */
static void other_memory_counts(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    const size_t other = 512 << 10;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, 4096, 1 << 20), CATTN_OK);
    const size_t before = ca_chunk_pool_n_free(pool, 0);
    assert_int_equal(ca_chunk_pool_prepare(pool, before + 1), CATTN_ERR_BUDGET);
    ca_chunk_pool_trim(pool, SIZE_MAX, 0);
    void *p = ca_new(&alloc, other, 1);
    assert_true(ca_chunk_pool_n_free(pool, 0) <= before - other / 4096 + ca_chunk_pool_slab_chunks(pool));
    ca_delete(&alloc, p, other, 1);
    assert_int_equal(ca_chunk_pool_prepare(pool, before), CATTN_OK);
    p = ca_new(&alloc, other, 1);
    assert_int_equal(ca_chunk_pool_n_free(pool, 0), before);
    assert_true(ca_chunk_pool_excess(pool, 0) > 0 && ca_chunk_pool_excess(pool, 0) <= other);
    ca_delete(&alloc, p, other, 1);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

static size_t n_resident_pages(const ca_chunk_pool *pool, size_t n_chunks, size_t chunk_bytes) {
    unsigned char pages[4096];
    const size_t n = n_chunks * chunk_bytes / 4096;
    assert_true(n <= sizeof pages);
    assert_int_equal(mincore(ca_chunk_tile(pool, 0, (ca_tile_at){0, 4096}), n * 4096, pages), 0);
    size_t n_resident = 0;
    for (size_t i = 0; i < n; i++) n_resident += pages[i] & 1;
    return n_resident;
}

static int n_prefaults(ca_chunk_pool *pool, size_t n_chunks) {
    int n = 0;
    while (ca_chunk_pool_prefault(pool, n_chunks)) n++;
    return n;
}

static void free_chunks_are_made_resident(void **state) {
    (void)state;
    enum { CHUNK = 64 << 10, BUDGET = 16 << 20 };
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, CHUNK, BUDGET), CATTN_OK);
    const size_t capacity = ca_chunk_pool_capacity(pool), slab = ca_chunk_pool_slab_chunks(pool), pages = CHUNK / 4096;
    assert_int_equal(n_prefaults(pool, 0), 0);
    assert_int_equal(n_resident_pages(pool, capacity, CHUNK), 0);
    ca_chunk_id first, id;
    assert_int_equal(ca_chunk_pool_get(pool, &first), CATTN_OK);
    memset(ca_chunk_tile(pool, first, (ca_tile_at){0, CHUNK}), 0x55, CHUNK);

    assert_true(n_prefaults(pool, slab) > 1); /* the rest of this slab, and another, since fewer than `slab` chunks are free */
    assert_int_equal(ca_chunk_pool_n_committed_free(pool), 2 * slab - 1);
    assert_true(n_resident_pages(pool, capacity, CHUNK) >= 2 * slab * pages);
    for (int i = 0; i < CHUNK; i++) assert_int_equal(((char *)ca_chunk_tile(pool, first, (ca_tile_at){0, CHUNK}))[i], 0x55);
    assert_int_equal(n_prefaults(pool, slab), 0);
    for (size_t i = 0; i < 2 * slab - 1; i++) assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
    assert_true(n_prefaults(pool, 1) > 0); /* none is free, so another slab is committed */

    assert_true(n_prefaults(pool, SIZE_MAX) > 0); /* as much as the budget holds */
    assert_int_equal(n_resident_pages(pool, capacity, CHUNK), capacity * pages);
    assert_int_equal(ca_chunk_pool_excess(pool, 0), 0);
    const size_t returned = ca_chunk_pool_trim(pool, SIZE_MAX, 0);
    assert_int_equal(n_resident_pages(pool, capacity, CHUNK), capacity * pages - returned / 4096);
    assert_true(n_prefaults(pool, SIZE_MAX) > 0); /* returned slabs are committed again */
    assert_int_equal(n_resident_pages(pool, capacity, CHUNK), capacity * pages);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

typedef struct chunk_user {
    volatile char *chunk;
    size_t n_bytes;
    atomic_bool uses, stop;
    int64_t n_lost; /* writes that were undone */
} chunk_user;

static void *use_chunk(void *arg) {
    chunk_user *user = arg;
    for (char c = 1; !atomic_load(&user->stop); c++) {
        for (size_t i = 0; i < user->n_bytes; i += 4096) user->chunk[i] = c;
        for (size_t i = 0; i < user->n_bytes; i += 4096) user->n_lost += user->chunk[i] != c;
        atomic_store(&user->uses, true);
    }
    return NULL;
}

/* As a thread of the tier reads and writes chunks. Under TSan: memory is made resident without an access to it. */
static void another_thread_uses_a_chunk(void **state) {
    (void)state;
    enum { CHUNK = 64 << 10, BUDGET = 256 << 20 };
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create(&pool, &alloc, CHUNK, BUDGET), CATTN_OK);
    ca_chunk_id id;
    assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
    chunk_user user = {.chunk = ca_chunk_tile(pool, id, (ca_tile_at){0, CHUNK}), .n_bytes = CHUNK};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_chunk, &user), 0);
    while (!atomic_load(&user.uses)) continue;
    const int n = n_prefaults(pool, SIZE_MAX);
    atomic_store(&user.stop, true);
    pthread_join(thread, NULL);
    assert_true(n > 1);
    assert_int_equal(user.n_lost, 0);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

/* The pool has records only, and other memory has a budget of its own. */
static void memory_may_be_elsewhere(void **state) {
    (void)state;
    enum { CHUNK = 4096, CHUNKS = 64 };
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_pool *pool;
    assert_int_equal(ca_chunk_pool_create_elsewhere(&pool, &alloc, CHUNK, CHUNKS * CHUNK - 1), CATTN_OK);
    const size_t n = ca_chunk_pool_capacity(pool);
    assert_true(n < CHUNKS && n >= CHUNKS - ca_chunk_pool_slab_chunks(pool));
    void *other = ca_new(&alloc, CHUNKS, CHUNK);
    assert_int_equal(ca_chunk_pool_n_free(pool, 0), n);
    assert_int_equal(ca_chunk_pool_excess(pool, 1 << 30), 0);
    ca_chunk_id id;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_OK);
        assert_int_equal(id, i);
    }
    assert_int_equal(ca_chunk_pool_get(pool, &id), CATTN_ERR_BUDGET);
    assert_int_equal(ca_chunk_pool_bytes(pool), n * CHUNK);
    for (size_t i = 0; i < n; i++) ca_chunk_pool_put(pool, (ca_chunk_id)i);
    assert_int_equal(ca_chunk_pool_trim(pool, SIZE_MAX, 0), n * CHUNK);
    assert_int_equal(ca_chunk_pool_n_free(pool, 0), n);
    ca_delete(&alloc, other, CHUNKS, CHUNK);
    ca_chunk_pool_destroy(&pool);
    assert_int_equal(alloc.bytes, 0);
}

/* Fails after *ctx successful allocations. */
static void *nth_fails(void *ctx, size_t size, size_t align) {
    int *n = ctx;
    return (*n)-- > 0 ? ca_alloc_default().alloc(NULL, size, align) : NULL;
}

static void every_allocation_fails(void **state) {
    (void)state;
    int left = 0;
    for (int n = 0;; n++) {
        ca_alloc alloc = ca_alloc_default();
        alloc.alloc = nth_fails;
        alloc.ctx = &left;
        left = n;
        ca_chunk_pool *pool;
        const cattn_status status = ca_chunk_pool_create(&pool, &alloc, 4096, 1 << 20);
        if (status == CATTN_OK)
            assert_int_equal(n, 3);
        else
            assert_true(status == CATTN_ERR_NOMEM && !pool);
        ca_chunk_pool_destroy(&pool);
        assert_int_equal(alloc.bytes, 0);
        if (status == CATTN_OK) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_the_budget),
        cmocka_unit_test(tiles_follow_one_another),
        cmocka_unit_test(huge_chunks_fill_the_budget),
        cmocka_unit_test(too_small_a_budget),
        cmocka_unit_test(empty_slabs_are_returned),
        cmocka_unit_test(other_memory_counts),
        cmocka_unit_test(free_chunks_are_made_resident),
        cmocka_unit_test(another_thread_uses_a_chunk),
        cmocka_unit_test(memory_may_be_elsewhere),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
