/*
 * The budget: bytes in use stay within it in steps, and a call that fails for lack of budget changes nothing. That joins, forks
 * and appends stay within it is in tests/chunkattn/cache/test_tree_random.c.
 */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <string.h>

#include "cache.h"
#include "chunkattn.h"

enum { MAX_SEQS = 4000 };

static cattn_config tiny(uint64_t budget_bytes) {
    cattn_config c = small_config(1, 1, 1, 64, budget_bytes);
    c.kv_type = CATTN_F32;
    return c;
}

static cattn_cache *create_tiny(uint64_t budget_bytes) {
    const cattn_config c = tiny(budget_bytes);
    return create(&c);
}

static uint64_t bytes_of(const cattn_cache *cache) { return stats_of(cache).bytes_in_use; }

/* Join sequences of two tokens until the budget is full. Returns their number. */
static int32_t fill(cattn_cache *cache, cattn_entry *entries) {
    for (int32_t n = 0; n < MAX_SEQS; n++) {
        const int32_t tokens[] = {n, 1};
        cattn_entry *e = &entries[n];
        *e = (cattn_entry){.max_rows = 2};
        if (cattn_seq_join(cache, tokens, 2, NULL, &e->seq, NULL, NULL) != CATTN_OK) return n;
    }
    fail_msg("%d sequences are no end of the budget", MAX_SEQS);
    return 0;
}

/* A step that computes nothing. It stays within the budget if there is room for it, and leaves nothing allocated otherwise. */
static bool begins(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit) {
    const cattn_stats before = stats_of(cache);
    const cattn_status status = cattn_step_begin(cache, entries, n, row_limit, NULL);
    if (status != CATTN_OK) {
        assert_int_equal(status, CATTN_ERR_BUDGET);
        assert_true(bytes_of(cache) <= before.bytes_in_use);
        return false;
    }
    assert_true(bytes_of(cache) <= before.budget_bytes);
    assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
    return true;
}

static void steps_stay_within_it(void **state) {
    (void)state;
    static cattn_entry entries[MAX_SEQS];
    for (uint64_t budget = 256 << 10; budget <= 2 << 20; budget += 32 << 10) {
        cattn_cache *cache = create_tiny(budget);
        const int32_t n = fill(cache, entries);
        int32_t most = 0; /* entries of the largest step that fits; a larger one that failed before must not lower it */
        for (int32_t i = 1; i <= n; i++)
            if (begins(cache, entries, i, 0)) most = i;
        for (int32_t i = 1; i <= n; i++) assert_int_equal(begins(cache, entries, i, 0), i <= most);
        cattn_cache_destroy(&cache);
    }
}

/* ---- A step of one row always begins ---- */

/* Entries and their number after calls that add tokens or sequences, until one finds no room. */
typedef struct batch {
    cattn_cache *cache;
    cattn_entry *entries;
    int32_t n;
} batch;

static cattn_status join_prompt(batch *b, int64_t reserve_tokens) {
    int32_t tokens[24];
    for (int32_t i = 0; i < 24; i++) tokens[i] = 100 * b->n + i;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.reserve_tokens = reserve_tokens;
    cattn_entry *e = &b->entries[b->n];
    *e = (cattn_entry){.max_rows = 64};
    const cattn_status s = cattn_seq_join(b->cache, tokens, 24, &options, &e->seq, NULL, NULL);
    b->n += s == CATTN_OK;
    return s;
}

static void join_two(batch *b) {
    assert_int_equal(join_prompt(b, 0), CATTN_OK);
    assert_int_equal(join_prompt(b, 0), CATTN_OK);
}

static void append_until_full(batch *b) {
    for (int32_t i = 0;; i++) {
        cattn_append a[2] = {{b->entries[i % b->n].seq, &i, 1, 0}, {b->entries[0].seq, &i, 1, 0}};
        if (cattn_seqs_append(b->cache, a, 2, NULL, NULL) != CATTN_OK) return;
    }
}

static void fill_by_a_prompt_that_is_alone(batch *b) {
    assert_int_equal(join_prompt(b, 0), CATTN_OK);
    append_until_full(b);
}

static void fill_by_appends(batch *b) {
    join_two(b);
    append_until_full(b);
}

static void fill_by_forks(batch *b) {
    join_two(b);
    cattn_entry *e = &b->entries[b->n];
    for (; cattn_seq_fork(b->cache, b->entries[0].seq, 1, &e->seq, NULL) == CATTN_OK; b->n++, e++) e->max_rows = 64;
    for (int32_t i = 0; i < b->n; i++) cattn_seq_append(b->cache, b->entries[i].seq, &i, 1, NULL);
}

static void fill_by_a_reservation(batch *b) {
    join_two(b);
    int64_t n = 0;
    while (cattn_seq_reserve(b->cache, b->entries[0].seq, n + 8, NULL) == CATTN_OK) n += 8;
    for (int32_t i = 0; i < n; i++) assert_int_equal(cattn_seq_append(b->cache, b->entries[0].seq, &i, 1, NULL), CATTN_OK);
}

static void fill_by_joins(batch *b) {
    while (join_prompt(b, 40) == CATTN_OK) continue;
    append_until_full(b);
}

/* Live chunks everywhere, so that no slab can be returned though half of the chunks are free. */
static void scatter(batch *b) {
    fill_by_joins(b);
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++)
        if (i % 2)
            assert_int_equal(cattn_seq_leave(b->cache, &b->entries[i].seq, NULL), CATTN_OK);
        else
            b->entries[n++] = b->entries[i];
    b->n = n;
}

static void lower_the_budget(batch *b) {
    fill_by_joins(b);
    assert_int_equal(cattn_cache_set_budget(b->cache, 0, NULL), CATTN_OK);
}

static void begin_one_row(batch *b) {
    enum { ROW_BYTES = 64 << 10 }; /* of the plan and workspace, beside the entries */
    const cattn_stats before = stats_of(b->cache);
    const uint64_t full = before.bytes_in_use > before.budget_bytes ? before.bytes_in_use : before.budget_bytes;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cattn_step_begin(b->cache, b->entries, b->n, 1, NULL), CATTN_OK);
        assert_true(bytes_of(b->cache) <= full + ROW_BYTES + 256 * (uint64_t)b->n);
        end_step(b->cache);
    }
}

/* Whatever has filled the budget, sequences can go on. Larger steps are refused, or stay within it. */
static void a_step_of_one_row_begins(void **state) {
    (void)state;
    static void (*const fills[])(batch *) = {fill_by_a_prompt_that_is_alone,
                                             fill_by_appends,
                                             fill_by_forks,
                                             fill_by_a_reservation,
                                             fill_by_joins,
                                             scatter,
                                             lower_the_budget};
    static cattn_entry entries[MAX_SEQS];
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        int n_refused = 0;
        for (uint64_t budget = 1 << 20; budget <= 2 << 20; budget += 48 << 10) {
            cattn_config config = tiny(budget);
            config.n_heads = 16, config.n_threads = 4;
            batch b = {.cache = create(&config), .entries = entries};
            fills[i](&b);
            n_refused += cattn_step_begin(b.cache, entries, b.n, 2, NULL) == CATTN_ERR_BUDGET;
            cattn_step_abort(b.cache, NULL);
            begin_one_row(&b);
            cattn_cache_destroy(&b.cache);
        }
        assert_true(n_refused > 0);
    }
}

/* ---- Caches ---- */

static void a_cache_holds_a_chunk(void **state) {
    (void)state;
    int n_refused = 0, n_created = 0;
    for (uint64_t budget = 16 << 10; budget <= 128 << 10; budget += 64) {
        const cattn_config c = tiny(budget);
        cattn_cache *cache;
        cattn_error error;
        const cattn_status status = cattn_cache_create(&c, &cache, &error);
        if (status != CATTN_OK) {
            assert_int_equal(status, CATTN_ERR_BUDGET);
            n_refused++;
            continue;
        }
        assert_true(stats_of(cache).chunks_capacity > 0);
        n_created++;
        cattn_cache_destroy(&cache);
    }
    assert_true(n_refused > 0 && n_created > 0);
}

static void peaks_are_of_what_ran(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(4 << 20);
    static const int32_t tokens[2000];
    cattn_seq seqs[2], fork;
    assert_int_equal(cattn_seq_join(cache, tokens, 100, NULL, &seqs[0], NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_join(cache, tokens, 2000, NULL, &seqs[1], NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_fork(cache, seqs[1], 0, &fork, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &fork, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &seqs[1], NULL), CATTN_OK); /* the failed step did not end it */
    cattn_entry entry = {.seq = seqs[0], .max_rows = 100};
    assert_true(begins(cache, &entry, 1, 0));
    assert_int_equal(stats_of(cache).chunks_live_peak, 7);
    assert_int_equal(stats_of(cache).chunks_unshared_peak, 7);
    assert_int_equal(cattn_seq_reserve(cache, seqs[0], 1000, NULL), CATTN_OK);
    const uint64_t peak = stats_of(cache).bytes_peak;
    assert_true(peak >= bytes_of(cache));
    assert_int_equal(cattn_seq_leave(cache, &seqs[0], NULL), CATTN_OK);
    assert_true(stats_of(cache).bytes_peak >= peak);
    cattn_cache_destroy(&cache);
}

static void no_chunk_is_made_resident_unasked(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(64 << 20);
    static const int32_t tokens[10];
    cattn_seq seq;
    assert_int_equal(cattn_seq_join(cache, tokens, 10, NULL, &seq, NULL, NULL), CATTN_OK);
    for (int n = 0; n < 2; n++) {
        bool more;
        assert_int_equal(cattn_cache_prefault(cache, n, &more, NULL), CATTN_OK);
        assert_int_equal(more, n > 0);
    }
    assert_int_equal(cattn_cache_prefault(cache, 1, NULL, NULL), CATTN_ERR_ARG);
    cattn_cache_destroy(&cache);
}

/* ---- Whether a request can ever fit ---- */

typedef struct request {
    int64_t n_tokens, n_seqs, reserve_tokens;
} request;

static cattn_status can_fit(const cattn_cache *cache, request r, uint64_t headroom_bytes, cattn_fit_result *result) {
    cattn_fit_request asked;
    cattn_fit_request_init(&asked);
    asked.n_tokens = r.n_tokens;
    asked.n_seqs = r.n_seqs;
    asked.reserve_tokens = r.reserve_tokens;
    asked.headroom_bytes = headroom_bytes;
    *result = (cattn_fit_result){.struct_size = sizeof *result};
    return cattn_cache_can_fit(cache, &asked, result, NULL);
}

static int32_t token_of(int64_t i) { return (int32_t)(i * 7 % 1000); }

/* Join, fork, and append all reserved tokens, then leave. CATTN_ERR_BUDGET if there is no room. The cache is empty in either
 * case. */
static cattn_status run_request(cattn_cache *cache, request r) {
    enum { MOST_SEQS = 8, MOST_TOKENS = 4000 };
    static int32_t tokens[MOST_TOKENS];
    cattn_seq seqs[MOST_SEQS] = {0};
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.reserve_tokens = r.reserve_tokens;
    assert_true(r.n_seqs <= MOST_SEQS && r.n_tokens <= MOST_TOKENS);
    for (int64_t i = 0; i < r.n_tokens; i++) tokens[i] = token_of(i);
    cattn_status status = cattn_seq_join(cache, tokens, r.n_tokens, &options, &seqs[0], NULL, NULL);
    for (int64_t i = 1; i < r.n_seqs && status == CATTN_OK; i++)
        status = cattn_seq_fork(cache, seqs[0], r.reserve_tokens, &seqs[i], NULL);
    for (int64_t n = 0; n < r.reserve_tokens && status == CATTN_OK; n++)
        for (int64_t i = 0; i < r.n_seqs; i++) {
            const int32_t token = (int32_t)(1000 + i);
            assert_int_equal(cattn_seq_append(cache, seqs[i], &token, 1, NULL), CATTN_OK); /* reserved */
        }
    assert_true(bytes_of(cache) <= stats_of(cache).budget_bytes);
    for (int64_t i = 0; i < r.n_seqs; i++)
        if (seqs[i]) assert_int_equal(cattn_seq_leave(cache, &seqs[i], NULL), CATTN_OK);
    assert_true(status == CATTN_OK || status == CATTN_ERR_BUDGET);
    return status;
}

/* A request that fits can run, also with the largest reservation; one that is larger by a slab cannot. */
static void what_fits_runs(void **state) {
    (void)state;
    static const request shapes[] = {{1, 1, 0},    {16, 1, 1},  {100, 1, 0},   {100, 3, 50},  {33, 8, 1},  {32, 8, 40},
                                     {1500, 2, 1}, {700, 2, 0}, {1501, 1, 20}, {3999, 1, 10}, {15, 5, 300}};
    for (int sharing = CATTN_SHARED; sharing <= CATTN_PRIVATE; sharing++)
        for (uint64_t budget = 192 << 10; budget <= 3 << 20; budget = budget * 5 / 4) {
            cattn_config config = tiny(budget);
            config.sharing = (cattn_sharing)sharing;
            config.retention = CATTN_RETAIN_NONE; /* sequences that have left occupy nothing */
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                cattn_cache *cache = create(&config);
                request r = shapes[i];
                cattn_fit_result fit;
                const cattn_status status = can_fit(cache, r, 0, &fit);
                assert_int_equal(status, r.reserve_tokens <= fit.max_reserve_tokens ? CATTN_OK : CATTN_ERR_BUDGET);
                if (status == CATTN_OK) assert_true(fit.bytes_needed <= fit.bytes_available);
                if (status == CATTN_OK) assert_int_equal(run_request(cache, r), CATTN_OK);
                r.reserve_tokens = fit.max_reserve_tokens;
                if (r.reserve_tokens >= 0) assert_int_equal(run_request(cache, r), CATTN_OK);
                cattn_cache_destroy(&cache);
                /* A slab is a sixteenth of this budget; metadata, counted with all their growth, are a hundredth of the K/V. */
                r.reserve_tokens += (int64_t)(budget / 8 / (64 * 2 * sizeof(float))) / r.n_seqs + 2 * config.chunk_size;
                cache = create(&config);
                if (fit.max_reserve_tokens >= 0) assert_int_equal(run_request(cache, r), CATTN_ERR_BUDGET);
                cattn_cache_destroy(&cache);
            }
        }
}

static void the_answer_does_not_depend_on_the_moment(void **state) {
    (void)state;
    static const int32_t tokens[1000];
    cattn_cache *cache = create_tiny(1 << 20);
    cattn_fit_result before, after;
    cattn_seq seq;
    assert_int_equal(can_fit(cache, (request){500, 2, 100}, 0, &before), CATTN_OK);
    assert_int_equal(cattn_seq_join(cache, tokens, 1000, NULL, &seq, NULL, NULL), CATTN_OK);
    cattn_entry entry = {.seq = seq, .max_rows = 100};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(can_fit(cache, (request){500, 2, 100}, 0, &after), CATTN_OK);
    assert_memory_equal(&before, &after, sizeof before);
    cattn_cache_destroy(&cache);
}

static void headroom_is_kept_free(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(1 << 20);
    cattn_fit_result all, some, none;
    assert_int_equal(can_fit(cache, (request){10, 1, 0}, 0, &all), CATTN_OK);
    assert_int_equal(can_fit(cache, (request){10, 1, 0}, 1 << 19, &some), CATTN_OK);
    assert_true(some.bytes_available <= all.bytes_available - (1 << 19));
    assert_true(some.max_reserve_tokens < all.max_reserve_tokens);
    assert_int_equal(can_fit(cache, (request){10, 1, 0}, UINT64_MAX, &none), CATTN_ERR_BUDGET);
    assert_int_equal(none.bytes_available, 0);
    assert_int_equal(none.max_reserve_tokens, -1);
    cattn_cache_destroy(&cache);
}

/* Join n sequences of a chunk each, compute and end them, so that their chunks are retained. Returns how many could join. */
static int32_t retain(cattn_cache *cache, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        int32_t tokens[16];
        for (int32_t k = 0; k < 16; k++) tokens[k] = i;
        cattn_entry e = {.max_rows = 16};
        if (cattn_seq_join(cache, tokens, 16, NULL, &e.seq, NULL, NULL) != CATTN_OK) return i - first;
        assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
        end_step(cache);
        assert_int_equal(cattn_seq_leave(cache, &e.seq, NULL), CATTN_OK);
    }
    return n;
}

static void a_lower_budget_returns_memory(void **state) {
    (void)state;
    const uint64_t high = 8 << 20, low = 3 << 20;
    cattn_cache *cache = create_tiny(high);
    retain(cache, 0, 2000);
    const uint64_t before = bytes_of(cache);
    assert_in_range(before, high / 2, high);
    assert_int_equal(cattn_cache_set_budget(cache, low, NULL), CATTN_OK);
    assert_in_range(bytes_of(cache), 1, low);
    const cattn_stats stats = stats_of(cache);
    assert_true(stats.budget_bytes == low && stats.chunks_retained > 0 && stats.chunks_capacity * stats.chunk_bytes <= low);
    assert_int_equal(retain(cache, 2000, 1000), 1000); /* evicts */
    assert_in_range(bytes_of(cache), 1, low);
    assert_int_equal(cattn_cache_set_budget(cache, high, NULL), CATTN_OK);
    retain(cache, 3000, 2000);
    assert_in_range(bytes_of(cache), high / 2, high);
    cattn_cache_destroy(&cache);
}

static void live_chunks_outlive_a_lower_budget(void **state) {
    (void)state;
    static cattn_entry entries[MAX_SEQS];
    const uint64_t high = 4 << 20;
    cattn_cache *cache = create_tiny(high);
    const int32_t n = fill(cache, entries);
    assert_int_equal(cattn_cache_set_budget(cache, high / 4, NULL), CATTN_OK);
    assert_int_equal(stats_of(cache).n_seqs, n);
    assert_int_equal(retain(cache, MAX_SEQS, 1), 0);
    for (int32_t i = 0; i < n; i++) assert_int_equal(cattn_seq_leave(cache, &entries[i].seq, NULL), CATTN_OK);
    assert_in_range(bytes_of(cache), 1, high / 4);
    assert_int_equal(retain(cache, MAX_SEQS, 1), 1);
    cattn_cache_destroy(&cache);
}

/* A sequence of 16 tokens equal to `token`, all of which have been computed. */
static cattn_seq compute_prompt(cattn_cache *cache, int32_t token) {
    int32_t tokens[16];
    for (int32_t k = 0; k < 16; k++) tokens[k] = token;
    cattn_entry e = {.max_rows = 16};
    assert_int_equal(cattn_seq_join(cache, tokens, 16, NULL, &e.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    end_step(cache);
    return e.seq;
}

static int64_t n_ready_of(const cattn_cache *cache, int32_t token) {
    int32_t tokens[17];
    for (int32_t k = 0; k < 17; k++) tokens[k] = token;
    cattn_join_result result;
    assert_int_equal(cattn_cache_match(cache, tokens, 17, NULL, &result, NULL), CATTN_OK);
    return result.n_ready;
}

static void what_is_pinned_is_never_evicted(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(2 << 20);
    cattn_seq seq = compute_prompt(cache, 7), pin;
    assert_int_equal(cattn_seq_pin(cache, seq, 12, &pin, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    retain(cache, 100, 2000);
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
    assert_int_equal(n_ready_of(cache, 7), 12);
    assert_int_equal(stats_of(cache).chunks_pinned, 1);
    const int32_t token = 7;
    cattn_error error;
    assert_int_equal(cattn_seq_append(cache, pin, &token, 1, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "which is a pin; only cattn_cache_unpin ends it"));
    assert_int_equal(cattn_seq_leave(cache, &pin, NULL), CATTN_ERR_ARG);
    assert_int_equal(cattn_cache_unpin(cache, &pin, NULL), CATTN_OK);
    assert_int_equal(pin, 0);
    assert_int_equal(n_ready_of(cache, 7), 12); /* retained */
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
    assert_int_equal(n_ready_of(cache, 7), 0);
    assert_int_equal(stats_of(cache).chunks_pinned, 0);
    cattn_cache_destroy(&cache);
}

static void pins_have_a_budget(void **state) {
    (void)state;
    cattn_config config = tiny(2 << 20);
    config.pin_bytes = 3 * 16 * 64 * 2 * sizeof(float); /* three chunks */
    cattn_cache *cache = create(&config);
    cattn_seq seqs[4], pins[4];
    cattn_error error;
    for (int32_t i = 0; i < 4; i++) {
        seqs[i] = compute_prompt(cache, i);
        assert_int_equal(cattn_seq_pin(cache, seqs[i], 16, &pins[i], &error), i < 3 ? CATTN_OK : CATTN_ERR_BUDGET);
    }
    assert_non_null(strstr(error.message, "the pins would cover 4 chunks"));
    assert_int_equal(pins[3], 0);
    assert_int_equal(cattn_cache_unpin(cache, &pins[0], NULL), CATTN_OK);
    assert_int_equal(cattn_seq_pin(cache, seqs[3], 16, &pins[3], NULL), CATTN_OK);
    assert_int_equal(cattn_cache_unpin(cache, &seqs[0], NULL), CATTN_ERR_ARG);
    const int64_t wrong[] = {0, 3, 18, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(cattn_seq_pin(cache, seqs[0], wrong[i], &pins[0], NULL), CATTN_ERR_ARG);
    assert_int_equal(stats_of(cache).chunks_pinned, 3);
    cattn_cache_destroy(&cache);
}

static void wrong_budgets_are_refused(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(1 << 20);
    cattn_error error;
    assert_int_equal(cattn_cache_set_budget(cache, (1 << 20) + 1, &error), CATTN_ERR_ARG);
    assert_string_equal(error.message, "budget_bytes is 1048577; it must be at most the configured 1048576");
    assert_int_equal(cattn_cache_set_budget(NULL, 1, NULL), CATTN_ERR_ARG);
    assert_int_equal(cattn_cache_set_budget(cache, 0, NULL), CATTN_OK);
    assert_int_equal(retain(cache, 0, 1), 0);
    cattn_cache_destroy(&cache);
}

/* No answer overflows, however large the numbers are. */
static void nothing_huge_fits(void **state) {
    (void)state;
    cattn_cache *cache = create_tiny(1 << 20);
    cattn_fit_result fit;
    assert_int_equal(can_fit(cache, (request){INT64_MAX, 1, 0}, 0, &fit), CATTN_ERR_BUDGET);
    assert_int_equal(fit.max_reserve_tokens, -1);
    assert_int_equal(can_fit(cache, (request){1, INT64_MAX, 0}, 0, &fit), CATTN_ERR_BUDGET);
    assert_int_equal(can_fit(cache, (request){1, 1, INT64_MAX}, 0, &fit), CATTN_ERR_BUDGET);
    assert_true(fit.max_reserve_tokens > 0);
    assert_int_equal(can_fit(cache, (request){INT64_MAX, INT64_MAX, INT64_MAX}, UINT64_MAX, &fit), CATTN_ERR_BUDGET);
    assert_int_equal(can_fit(cache, (request){0, 1, 0}, 0, &fit), CATTN_ERR_ARG);
    assert_int_equal(can_fit(cache, (request){1, 0, 0}, 0, &fit), CATTN_ERR_ARG);
    assert_int_equal(can_fit(cache, (request){1, 1, -1}, 0, &fit), CATTN_ERR_ARG);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_stay_within_it),
        cmocka_unit_test(a_step_of_one_row_begins),
        cmocka_unit_test(a_cache_holds_a_chunk),
        cmocka_unit_test(peaks_are_of_what_ran),
        cmocka_unit_test(no_chunk_is_made_resident_unasked),
        cmocka_unit_test(what_fits_runs),
        cmocka_unit_test(the_answer_does_not_depend_on_the_moment),
        cmocka_unit_test(headroom_is_kept_free),
        cmocka_unit_test(nothing_huge_fits),
        cmocka_unit_test(a_lower_budget_returns_memory),
        cmocka_unit_test(live_chunks_outlive_a_lower_budget),
        cmocka_unit_test(wrong_budgets_are_refused),
        cmocka_unit_test(what_is_pinned_is_never_evicted),
        cmocka_unit_test(pins_have_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
