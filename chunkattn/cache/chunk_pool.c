/* Chunks of K/V in one reserved range of addresses, of which slabs are committed: see chunk_pool.h. */
#include "chunk_pool.h"

#include <assert.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    SLAB_BYTES = 32 << 20,     /* large enough for long runs of one head's tiles, small enough to become empty */
    MIN_SLABS_PER_BUDGET = 16, /* a small budget has smaller slabs */
    POPULATE_WRITE = 23        /* MADV_POPULATE_WRITE, which musl's headers lack */
};

typedef struct slab {
    int32_t n_taken;  /* chunks */
    int32_t n_live;   /* chunks */
    ca_chunk_id free; /* first free chunk, -1: none; the others follow by ca_chunk.next */
    bool committed;
    size_t n_resident; /* bytes at its beginning that have been made resident */
} slab;

struct ca_chunk_pool {
    ca_alloc *alloc;
    bool elsewhere;        /* the chunks' memory, with which alloc's shares no budget */
    uint64_t budget_bytes; /* at present */
    uint64_t max_budget_bytes;
    int log2_slab_chunks;
    size_t slab_chunks, slab_bytes;
    slab *slabs; /* [n_slabs] */
    size_t n_slabs;
    ca_chunk *chunks; /* [n_slabs * slab_chunks] */
    char *data;       /* aligned to HUGE_PAGE; NULL if the chunks' memory is elsewhere */
    void *map;        /* NULL likewise */
    size_t map_bytes;
    size_t n_committed;  /* slabs */
    size_t n_idle;       /* committed slabs without a live chunk */
    size_t n_free;       /* chunks of committed slabs */
    size_t first_usable; /* no slab before it has a free chunk and is committed */
};

/* log2 of the chunks of a slab: as many as SLAB_BYTES or the budget allow, but at least as many as fill whole pages. */
static int log2_slab_size(size_t chunk_bytes, uint64_t budget_bytes) {
    const uint64_t share = budget_bytes / MIN_SLABS_PER_BUDGET;
    const size_t wanted = (size_t)(share < SLAB_BYTES ? share : SLAB_BYTES) / chunk_bytes;
    const int pages = __builtin_ctzll(PAGE) - __builtin_ctzll(chunk_bytes), least = pages > 0 ? pages : 0;
    const int most = wanted > 0 ? 63 - __builtin_clzll(wanted) : 0;
    return most > least ? most : least;
}

/* Reserve addresses for all slabs. Returns 0, or -1. */
static int reserve_addresses(ca_chunk_pool *p) {
    p->map_bytes = p->n_slabs * p->slab_bytes + HUGE_PAGE;
    void *map = mmap(NULL, p->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return -1;
    p->map = map;
    p->data = (char *)map + (-(uintptr_t)map & (HUGE_PAGE - 1));
    madvise(p->data, p->n_slabs * p->slab_bytes, MADV_HUGEPAGE); /* without huge pages everything works, only slower */
    return 0;
}

static cattn_status create(ca_chunk_pool **pool, ca_alloc *alloc, size_t chunk_bytes, uint64_t budget_bytes, bool elsewhere) {
    assert(chunk_bytes > 0 && chunk_bytes % 64 == 0);
    *pool = NULL;
    size_t slab_bytes;
    if (chunk_bytes > budget_bytes) return CATTN_ERR_BUDGET;
    const int log2_slab_chunks = log2_slab_size(chunk_bytes, budget_bytes);
    const size_t slab_chunks = (size_t)1 << log2_slab_chunks;
    if (__builtin_mul_overflow(slab_chunks, chunk_bytes, &slab_bytes) || slab_bytes > budget_bytes) return CATTN_ERR_BUDGET;
    const size_t addressable = INT32_MAX / slab_chunks; /* by ids */
    const size_t n_slabs = budget_bytes / slab_bytes < addressable ? (size_t)(budget_bytes / slab_bytes) : addressable;

    cattn_status status = CATTN_ERR_NOMEM;
    ca_chunk_pool *p = ca_new_zero(alloc, 1, sizeof *p);
    if (!p) return status;
    *p = (ca_chunk_pool){.alloc = alloc, .budget_bytes = budget_bytes, .max_budget_bytes = budget_bytes};
    p->log2_slab_chunks = log2_slab_chunks;
    p->slab_chunks = slab_chunks;
    p->slab_bytes = slab_bytes;
    p->n_slabs = n_slabs;
    p->slabs = ca_new_zero(alloc, n_slabs, sizeof *p->slabs);
    if (!p->slabs) goto fail_slabs;
    p->chunks = ca_new_zero(alloc, n_slabs * slab_chunks, sizeof *p->chunks);
    if (!p->chunks) goto fail_chunks;
    p->elsewhere = elsewhere;
    if (!elsewhere && reserve_addresses(p)) goto fail_map;
    if (ca_chunk_pool_n_free(p, 0) == 0) {
        status = CATTN_ERR_BUDGET;
        goto fail_budget;
    }
    *pool = p;
    return CATTN_OK;

fail_budget:
    if (p->map) munmap(p->map, p->map_bytes);
fail_map:
    ca_delete(alloc, p->chunks, n_slabs * slab_chunks, sizeof *p->chunks);
fail_chunks:
    ca_delete(alloc, p->slabs, n_slabs, sizeof *p->slabs);
fail_slabs:
    ca_delete(alloc, p, 1, sizeof *p);
    return status;
}

cattn_status ca_chunk_pool_create(ca_chunk_pool **pool, ca_alloc *alloc, size_t chunk_bytes, uint64_t budget_bytes) {
    return create(pool, alloc, chunk_bytes, budget_bytes, false);
}

cattn_status ca_chunk_pool_create_elsewhere(ca_chunk_pool **pool, ca_alloc *alloc, size_t chunk_bytes, uint64_t budget_bytes) {
    return create(pool, alloc, chunk_bytes, budget_bytes, true);
}

void ca_chunk_pool_destroy(ca_chunk_pool **pool) {
    ca_chunk_pool *p = *pool;
    if (!p) return;
    if (p->map) munmap(p->map, p->map_bytes);
    ca_delete(p->alloc, p->chunks, p->n_slabs * p->slab_chunks, sizeof *p->chunks);
    ca_delete(p->alloc, p->slabs, p->n_slabs, sizeof *p->slabs);
    ca_delete(p->alloc, p, 1, sizeof *p);
    *pool = NULL;
}

void ca_chunk_pool_set_budget(ca_chunk_pool *p, uint64_t budget_bytes) {
    assert(budget_bytes <= p->max_budget_bytes);
    p->budget_bytes = budget_bytes;
}

static slab *slab_of(const ca_chunk_pool *p, ca_chunk_id id) { return &p->slabs[(size_t)id >> p->log2_slab_chunks]; }

/* Slabs that a budget holds beside `others` bytes of other memory. */
static size_t slabs_beside(const ca_chunk_pool *p, uint64_t budget_bytes, uint64_t others) {
    if (others >= budget_bytes) return 0;
    const uint64_t n = (budget_bytes - others) / p->slab_bytes;
    return n < p->n_slabs ? (size_t)n : p->n_slabs;
}

/* Bytes of other memory that count against the same budget, after `more` have been added. */
static uint64_t other_bytes(const ca_chunk_pool *p, uint64_t more) { return p->elsewhere ? 0 : p->alloc->bytes + more; }

static size_t affordable_slabs(const ca_chunk_pool *p) { return slabs_beside(p, p->budget_bytes, other_bytes(p, 0)); }

static cattn_status commit_slab(ca_chunk_pool *p) {
    if (affordable_slabs(p) <= p->n_committed) return CATTN_ERR_BUDGET;
    size_t s = 0;
    while (p->slabs[s].committed) s++;
    if (p->map && mprotect(p->data + s * p->slab_bytes, p->slab_bytes, PROT_READ | PROT_WRITE) != 0) return CATTN_ERR_NOMEM;
    slab *added = &p->slabs[s];
    *added = (slab){.committed = true, .free = -1};
    for (size_t i = p->slab_chunks; i-- > 0;) {
        const ca_chunk_id id = (ca_chunk_id)(s * p->slab_chunks + i);
        p->chunks[id] = (ca_chunk){.next = added->free};
        added->free = id;
    }
    p->n_committed++;
    p->n_idle++;
    p->n_free += p->slab_chunks;
    if (s < p->first_usable) p->first_usable = s;
    return CATTN_OK;
}

cattn_status ca_chunk_pool_prepare(ca_chunk_pool *p, size_t n_chunks) {
    while (p->n_free < n_chunks) {
        const cattn_status status = commit_slab(p);
        if (status != CATTN_OK) return status;
    }
    return CATTN_OK;
}

/* The lowest slab that has one of the next n_chunks free chunks and is not resident; NULL if there is none. */
static slab *find_cold(ca_chunk_pool *p, size_t n_chunks) {
    const size_t n = n_chunks < p->n_free ? n_chunks : p->n_free;
    size_t n_seen = 0;
    for (slab *s = p->slabs + p->first_usable; n_seen < n; s++) {
        if (!s->committed || s->free < 0) continue;
        if (s->n_resident < p->slab_bytes) return s;
        n_seen += p->slab_chunks - (size_t)s->n_taken;
    }
    return NULL;
}

bool ca_chunk_pool_prefault(ca_chunk_pool *p, size_t n_chunks) {
    if (p->elsewhere) return false;
    slab *cold = find_cold(p, n_chunks);
    if (!cold && p->n_free < n_chunks && commit_slab(p) == CATTN_OK) cold = find_cold(p, n_chunks);
    if (!cold) return false;
    const size_t left = p->slab_bytes - cold->n_resident, n = left < HUGE_PAGE ? left : HUGE_PAGE;
    char *from = p->data + (size_t)(cold - p->slabs) * p->slab_bytes + cold->n_resident;
    /* The system makes pages resident without writing to them: the tier's threads may read and write chunks in use there. */
    if (madvise(from, n, POPULATE_WRITE) != 0) return false;
    cold->n_resident += n;
    return true;
}

/* The chunk comes from the lowest slab that has a free one, so that higher slabs become empty and can be returned. */
cattn_status ca_chunk_pool_get(ca_chunk_pool *p, ca_chunk_id *id) {
    const cattn_status status = ca_chunk_pool_prepare(p, 1);
    if (status != CATTN_OK) return status;
    while (!p->slabs[p->first_usable].committed || p->slabs[p->first_usable].free < 0) p->first_usable++;
    slab *lowest = &p->slabs[p->first_usable];
    *id = lowest->free;
    lowest->free = p->chunks[*id].next;
    lowest->n_taken++;
    p->n_free--;
    p->chunks[*id] = (ca_chunk){.next = -1};
    return CATTN_OK;
}

void ca_chunk_pool_put(ca_chunk_pool *p, ca_chunk_id id) {
    assert(p->chunks[id].refs == 0 && p->chunks[id].live == 0);
    slab *owner = slab_of(p, id);
    const size_t s = (size_t)(owner - p->slabs);
    assert(owner->committed && owner->n_taken > 0);
    p->chunks[id].next = owner->free;
    owner->free = id;
    owner->n_taken--;
    p->n_free++;
    if (s < p->first_usable) p->first_usable = s;
}

/* Both calls keep the mapping, so they fail only if it would have to be split beyond the system's limit. */
static bool return_memory(const ca_chunk_pool *p, size_t slab) {
    if (!p->map) return true;
    char *data = p->data + slab * p->slab_bytes;
    return madvise(data, p->slab_bytes, MADV_DONTNEED) == 0 && mprotect(data, p->slab_bytes, PROT_NONE) == 0;
}

size_t ca_chunk_pool_trim(ca_chunk_pool *p, size_t bytes, size_t n_keep) {
    size_t returned = 0;
    for (size_t s = p->n_slabs; s-- > 0 && returned < bytes && p->n_free >= n_keep + p->slab_chunks;) {
        slab *highest = &p->slabs[s];
        if (!highest->committed || highest->n_taken > 0) continue;
        if (!return_memory(p, s)) break;
        highest->committed = false;
        p->n_committed--;
        p->n_idle--;
        p->n_free -= p->slab_chunks;
        returned += p->slab_bytes;
    }
    return returned;
}

ca_chunk *ca_chunk_at(ca_chunk_pool *p, ca_chunk_id id) {
    assert(id >= 0 && (size_t)id < p->n_slabs * p->slab_chunks);
    return &p->chunks[id];
}

uint32_t ca_chunk_open(const ca_chunk_pool *p, ca_chunk_id id) { return p->chunks[id].open; }

void *ca_chunk_tile(const ca_chunk_pool *p, ca_chunk_id id, ca_tile_at tile) {
    const size_t slab = (size_t)id >> p->log2_slab_chunks, in_slab = (size_t)id & (p->slab_chunks - 1);
    return p->data + slab * p->slab_bytes + tile.begin * p->slab_chunks + in_slab * tile.bytes;
}

bool ca_chunk_cover(ca_chunk_pool *p, ca_chunk_id id) {
    if (p->chunks[id].live++ > 0) return false;
    p->n_idle -= slab_of(p, id)->n_live++ == 0;
    return true;
}

bool ca_chunk_uncover(ca_chunk_pool *p, ca_chunk_id id) {
    assert(p->chunks[id].live > 0);
    if (--p->chunks[id].live > 0) return false;
    p->n_idle += --slab_of(p, id)->n_live == 0;
    return true;
}

size_t ca_chunk_pool_n_idle_slabs(const ca_chunk_pool *p) { return p->n_idle; }

size_t ca_chunk_pool_n_free(const ca_chunk_pool *p, size_t more) {
    const size_t n = slabs_beside(p, p->budget_bytes, other_bytes(p, more));
    return p->n_free + (n > p->n_committed ? (n - p->n_committed) * p->slab_chunks : 0);
}

size_t ca_chunk_pool_n_committed_free(const ca_chunk_pool *p) { return p->n_free; }

size_t ca_chunk_pool_capacity(const ca_chunk_pool *p) { return ca_chunk_pool_capacity_with(p, 0); }

size_t ca_chunk_pool_capacity_with(const ca_chunk_pool *p, size_t more) {
    return slabs_beside(p, p->budget_bytes, other_bytes(p, more)) * p->slab_chunks;
}

size_t ca_chunk_pool_capacity_beside(const ca_chunk_pool *p, uint64_t others) {
    return slabs_beside(p, p->max_budget_bytes, others) * p->slab_chunks;
}

size_t ca_chunk_pool_other_bytes(const ca_chunk_pool *p) { return (size_t)other_bytes(p, 0); }

size_t ca_chunk_pool_slab_chunks(const ca_chunk_pool *p) { return p->slab_chunks; }

size_t ca_chunk_pool_slab_bytes(const ca_chunk_pool *p) { return p->slab_bytes; }

size_t ca_chunk_pool_bytes(const ca_chunk_pool *p) { return p->n_committed * p->slab_bytes; }

size_t ca_chunk_pool_excess(const ca_chunk_pool *p, size_t more) {
    const uint64_t used = p->n_committed * p->slab_bytes + other_bytes(p, more);
    return used > p->budget_bytes ? (size_t)(used - p->budget_bytes) : 0;
}
