/*
 * Calls of chunkattn.h, chosen by the input's bytes, on a cache with a small budget and an allocator that fails now and then.
 *
 * After each call the tree's invariants are recomputed. A failed call must have changed nothing. The sequences' tokens are kept
 * in a list as well. K and V of a position are functions of the tokens up to it, so the attention of each row is compared with
 * plain sums over its sequence. Exports are imported as they are and damaged.
 */
#include "tests/support/testing.h"

#include "fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "tests/chunkattn/cache/check_tree.h"

enum { DIM = 32, HEADS = 2, MAX_LAYERS = 2, MAX_SEQS = 8, MAX_TOKENS = 320, MAX_ROWS = 256, MAX_CALLS = 150 };

typedef struct model_seq {
    cattn_seq id;
    uint32_t domain;
    int64_t n;
    int32_t tokens[MAX_TOKENS];
    uint64_t path[MAX_TOKENS]; /* hash of domain and tokens[0..i] */
} model_seq;

/* A row of the open step. */
typedef struct model_row {
    int seq;
    int64_t position;
} model_row;

static struct world {
    fuzz_bytes in;
    fuzz_memory memory;
    cattn_config config;
    int32_t windows[MAX_LAYERS];
    cattn_cache *cache;
    model_seq seqs[MAX_SEQS]; /* [n_seqs] */
    int n_seqs;
    cattn_seq left; /* a sequence that has left */
    bool open, stepped;
    uint64_t walk;            /* its cursor */
    model_row rows[MAX_ROWS]; /* [n_rows] of the open step */
    int n_rows;
    uint8_t *export; /* [n_export] of `exported`, whose n tokens it has; NULL: none */
    size_t n_export;
    model_seq exported;
    cattn_error error;
} w;

/* ---- What a sequence holds ---- */

static uint64_t mix(uint64_t h) {
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static void set_tokens(model_seq *s, int64_t from, const int32_t *tokens, int64_t n) {
    for (int64_t i = from; i < from + n; i++) {
        s->tokens[i] = tokens[i - from];
        s->path[i] = mix((i > 0 ? s->path[i - 1] : s->domain + 1) + (uint64_t)s->tokens[i] + 0x9e3779b97f4a7c15u);
    }
    s->n = from + n;
}

/* Few different tokens, so that sequences have common prefixes. */
static int64_t read_tokens(int32_t *tokens, int64_t most) {
    int64_t n = 1 + fuzz_below(&w.in, 3 * w.config.chunk_size);
    const int kind = fuzz_below(&w.in, 8);
    if (n > most) n = most;
    for (int64_t i = 0; i < n; i++) tokens[i] = i % 5 == kind ? fuzz_below(&w.in, 3) : 0;
    if (kind == 7) tokens[fuzz_below(&w.in, (int32_t)n)] = -1 - fuzz_below(&w.in, 2);
    return n;
}

static bool has_negative(const int32_t *tokens, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0) return true;
    return false;
}

/* An element of q (what = 0), k (1) or v (2): a multiple of 1/8 within [-1, 1], which all types but int8 hold exactly. */
static float element(uint64_t path, int layer, int what, int i) {
    return (float)(mix(path + (uint64_t)(layer * 3 + what) * 1000 + (uint64_t)i) % 17) / 8 - 1;
}

/* ---- Checks ---- */

static uint64_t hash(void) { return hash_tree(w.cache->tree, w.cache->pool); }

static void check_seqs(void) {
    for (int i = 0; i < w.n_seqs; i++) {
        model_seq *s = &w.seqs[i];
        int32_t tokens[MAX_TOKENS];
        cattn_seq_info info = {.struct_size = sizeof info};
        FUZZ_CHECK(cattn_seq_get_info(w.cache, s->id, &info, &w.error) == CATTN_OK, "%s", w.error.message);
        FUZZ_CHECK(info.n_tokens == s->n && info.domain == s->domain && info.n_ready <= s->n, "sequence %d", i);
        ca_seq_tokens(ca_tree_find(w.cache->tree, s->id), 0, s->n, tokens);
        FUZZ_CHECK(memcmp(tokens, s->tokens, (size_t)s->n * sizeof *tokens) == 0, "sequence %d", i);
    }
}

static void check_all(void) {
    check_tree(w.cache->tree, w.cache->pool, &w.cache->layout);
    cattn_stats stats = {.struct_size = sizeof stats};
    FUZZ_CHECK(cattn_cache_stats(w.cache, &stats) == CATTN_OK, "stats");
    FUZZ_CHECK(stats.n_seqs == (uint64_t)w.n_seqs && stats.chunks_live <= stats.chunks_unshared, "counts");
    FUZZ_CHECK(stats.bytes_in_use <= stats.bytes_peak && stats.budget_bytes == w.config.budget_bytes, "bytes");
    check_seqs();
}

/* Whether a call that changes the tree has succeeded. Otherwise it must have a reason, and must not have changed anything. */
static bool done(cattn_status status, uint64_t before, bool wrong_argument) {
    if (status == CATTN_OK) {
        FUZZ_CHECK(!wrong_argument && !w.open, "a wrong call is accepted");
        return true;
    }
    FUZZ_CHECK(status == w.error.code && w.error.message[0], "%d, %d", status, w.error.code);
    FUZZ_CHECK(hash() == before, "%s: the tree has changed: %s", cattn_status_name(status), w.error.message);
    FUZZ_CHECK(status != CATTN_ERR_ARG || wrong_argument, "%s", w.error.message);
    FUZZ_CHECK(status != CATTN_ERR_STATE || w.open, "%s", w.error.message);
    FUZZ_CHECK(status != CATTN_ERR_NOMEM || w.memory.n_until_failure == 0, "%s", w.error.message);
    FUZZ_CHECK(status != CATTN_ERR_UNSUPPORTED, "%s", w.error.message);
    return false;
}

/* ---- Calls on sequences ---- */

/* A running sequence's index; -1: *id is none, as a wrong argument. */
static int pick(cattn_seq *id) {
    const int i = fuzz_below(&w.in, MAX_SEQS + 1);
    *id = i == MAX_SEQS ? w.left : 0;
    if (i == MAX_SEQS || w.n_seqs == 0) return -1;
    *id = w.seqs[i % w.n_seqs].id;
    return i % w.n_seqs;
}

static cattn_join_options read_options(void) {
    cattn_join_options options;
    cattn_join_options_init(&options);
    const int kind = fuzz_byte(&w.in);
    options.domain = kind % 2;
    options.account = (uint32_t)kind / 64;
    options.account_weight = (float)(kind % 8);
    if (kind & 2) options.reserve_tokens = fuzz_byte(&w.in);
    if (kind == 255) options.reserve_tokens = -1;
    if (kind == 254) options.reserve_tokens = INT64_MAX - fuzz_byte(&w.in);
    return options;
}

/* A match ends at an even length and before the last of n tokens, and only what is matched can be ready. */
static void check_match(const cattn_join_result *r, int64_t n) {
    FUZZ_CHECK(r->n_matched % 2 == 0 && 0 <= r->n_ready && r->n_ready <= r->n_matched && r->n_matched < n, "match");
}

static void do_join(void) {
    static int32_t tokens[MAX_TOKENS];
    if (w.n_seqs == MAX_SEQS) return;
    int64_t n = 0;
    if (fuzz_below(&w.in, 2) && w.n_seqs > 0) { /* the tokens of a running sequence, or some of them */
        const model_seq *s = &w.seqs[fuzz_below(&w.in, w.n_seqs)];
        n = 1 + fuzz_below(&w.in, (int32_t)s->n);
        memcpy(tokens, s->tokens, (size_t)n * sizeof *tokens);
    }
    if (n < MAX_TOKENS) n += read_tokens(tokens + n, MAX_TOKENS - n);
    const cattn_join_options options = read_options();
    cattn_join_result found, result;
    const cattn_status matched = cattn_cache_match(w.cache, tokens, n, &options, &found, &w.error);
    cattn_explanation why = {.struct_size = sizeof why};
    const cattn_status explained = cattn_cache_explain(w.cache, tokens, n, &options, &why, &w.error);
    FUZZ_CHECK(explained == matched && (explained != CATTN_OK || why.n_matched == found.n_matched), "match and explain differ");
    const uint64_t before = hash();
    model_seq *s = &w.seqs[w.n_seqs];
    const cattn_status status = cattn_seq_join(w.cache, tokens, n, &options, &s->id, &result, &w.error);
    if (!done(status, before, has_negative(tokens, n) || options.reserve_tokens < 0 || options.reserve_tokens > INT32_MAX)) {
        FUZZ_CHECK(s->id == 0, "a sequence in spite of %s", w.error.message);
        return;
    }
    FUZZ_CHECK(matched == CATTN_OK && found.n_matched >= result.n_matched, "match and join differ");
    check_match(&result, n);
    s->domain = options.domain;
    set_tokens(s, 0, tokens, n);
    w.n_seqs++;
}

static void do_append(void) {
    static int32_t tokens[MAX_TOKENS];
    cattn_seq id;
    const int i = pick(&id);
    const int64_t most = i < 0 ? 10 : MAX_TOKENS - w.seqs[i].n;
    if (most <= 0) return;
    const int64_t n = fuzz_below(&w.in, 2) ? 1 : read_tokens(tokens, most);
    if (n == 1) tokens[0] = fuzz_below(&w.in, 3);
    const uint64_t before = hash();
    if (done(cattn_seq_append(w.cache, id, tokens, n, &w.error), before, i < 0 || has_negative(tokens, n)))
        set_tokens(&w.seqs[i], w.seqs[i].n, tokens, n);
}

/* Without memory, the last token may be lost. */
static void recompute_last(int i, cattn_seq id) {
    cattn_seq_info info = {.struct_size = sizeof info};
    const uint64_t before = hash();
    const cattn_status status = cattn_seq_recompute_last(w.cache, id, &w.error);
    const bool has_info = cattn_seq_get_info(w.cache, id, &info, NULL) == CATTN_OK;
    if (status == CATTN_ERR_NOMEM && w.memory.n_until_failure == 0 && has_info && info.n_tokens == w.seqs[i].n - 1)
        w.seqs[i].n--;
    else if (done(status, before, i < 0 || w.seqs[i].n == 1))
        FUZZ_CHECK(info.n_tokens == w.seqs[i].n && info.n_ready < info.n_tokens, "the last token is not to be computed");
}

static void do_truncate(void) {
    cattn_seq id;
    const int i = pick(&id);
    const int64_t n = fuzz_below(&w.in, MAX_TOKENS + 32);
    if (n > MAX_TOKENS + 1) {
        recompute_last(i, id);
        return;
    }
    const uint64_t before = hash();
    if (done(cattn_seq_truncate(w.cache, id, n, &w.error), before, i < 0 || n < 1 || n > w.seqs[i].n)) w.seqs[i].n = n;
}

static void do_fork(void) {
    cattn_seq id, fork;
    const int i = pick(&id);
    if (w.n_seqs == MAX_SEQS) return;
    const int64_t reserve = fuzz_below(&w.in, 256) - 1;
    const uint64_t before = hash();
    if (!done(cattn_seq_fork(w.cache, id, reserve, &fork, &w.error), before, i < 0 || reserve < 0)) {
        FUZZ_CHECK(fork == 0, "a fork in spite of %s", w.error.message);
        return;
    }
    w.seqs[w.n_seqs] = w.seqs[i];
    w.seqs[w.n_seqs++].id = fork;
}

static void do_reserve(void) {
    cattn_seq id;
    const int i = pick(&id);
    const int64_t n = fuzz_below(&w.in, 512) - 1;
    const uint64_t before = hash();
    if (!done(cattn_seq_reserve(w.cache, id, n, &w.error), before, i < 0 || n < 0)) return;
    cattn_seq_info info = {.struct_size = sizeof info};
    FUZZ_CHECK(cattn_seq_get_info(w.cache, id, &info, NULL) == CATTN_OK && info.n_reserved >= n, "reserved less than %d",
               (int)n);
}

static void do_leave(void) {
    cattn_seq id;
    const int i = pick(&id);
    const cattn_seq left = id;
    const uint64_t before = hash();
    if (!done(cattn_seq_leave(w.cache, &id, &w.error), before, i < 0)) return;
    FUZZ_CHECK(id == 0, "the sequence remains");
    w.left = left;
    w.seqs[i] = w.seqs[--w.n_seqs];
}

static void do_drop(void) {
    const uint64_t before = hash();
    if (!done(cattn_cache_drop_retained(w.cache, &w.error), before, false)) return;
    cattn_stats stats = {.struct_size = sizeof stats};
    FUZZ_CHECK(cattn_cache_stats(w.cache, &stats) == CATTN_OK && stats.chunks_retained == stats.chunks_superseded, "retained");
}

/* A request that can_fit accepts must be possible while nothing else is in the cache. */
static void do_fit(void) {
    static int32_t tokens[MAX_TOKENS];
    cattn_fit_request request;
    cattn_fit_request_init(&request);
    request.n_tokens = fuzz_below(&w.in, MAX_TOKENS + 1);
    request.n_seqs = fuzz_below(&w.in, MAX_SEQS + 1);
    request.reserve_tokens = fuzz_below(&w.in, 600) - 1;
    const bool wrong = request.n_tokens < 1 || request.n_seqs < 1 || request.reserve_tokens < 0;
    cattn_fit_result result = {.struct_size = sizeof result};
    const cattn_status status = cattn_cache_can_fit(w.cache, &request, &result, &w.error);
    FUZZ_CHECK((status == CATTN_ERR_ARG) == wrong, "%s", w.error.message);
    if (status != CATTN_OK || w.n_seqs > 0 || w.open || w.stepped || w.memory.n_until_failure >= 0) return;
    FUZZ_CHECK(result.max_reserve_tokens >= request.reserve_tokens, "fit");
    if (cattn_cache_drop_retained(w.cache, &w.error) != CATTN_OK) return;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.reserve_tokens = request.reserve_tokens;
    cattn_seq seqs[MAX_SEQS];
    memset(tokens, 0, sizeof tokens);
    FUZZ_CHECK(cattn_seq_join(w.cache, tokens, request.n_tokens, &options, &seqs[0], NULL, &w.error) == CATTN_OK, "%s",
               w.error.message);
    for (int64_t i = 1; i < request.n_seqs; i++)
        FUZZ_CHECK(cattn_seq_fork(w.cache, seqs[0], request.reserve_tokens, &seqs[i], &w.error) == CATTN_OK, "%s",
                   w.error.message);
    check_tree(w.cache->tree, w.cache->pool, &w.cache->layout);
    for (int64_t i = 0; i < request.n_seqs; i++) cattn_seq_leave(w.cache, &seqs[i], NULL);
}

/* ---- Exports and imports ---- */

static int add_bytes(void *ctx, const void *bytes, size_t n) {
    uint8_t *const *end = ctx; /* of the memory, behind which the next bytes must not go */
    FUZZ_CHECK(w.export + w.n_export + n <= *end, "an export is larger than it says");
    memcpy(w.export + w.n_export, bytes, n);
    w.n_export += n;
    return 0;
}

static void do_export(void) {
    cattn_seq id;
    const int i = pick(&id);
    if (i < 0) return;
    cattn_seq_info info = {.struct_size = sizeof info};
    FUZZ_CHECK(cattn_seq_get_info(w.cache, id, &info, NULL) == CATTN_OK, "info");
    const int64_t n = 1 + fuzz_below(&w.in, MAX_TOKENS);
    const size_t n_bytes = (size_t)cattn_cache_export_bytes(w.cache, n);
    free(w.export);
    w.export = malloc(n_bytes);
    w.n_export = 0;
    uint8_t *end = w.export + n_bytes;
    const uint64_t before = hash();
    const cattn_status status = cattn_seq_export(w.cache, id, n, add_bytes, (void *)&end, &w.error);
    FUZZ_CHECK(hash() == before, "the tree has changed");
    if (done(status, before, n > info.n_ready)) {
        FUZZ_CHECK(w.n_export == n_bytes, "an export is smaller than it says");
        w.exported = w.seqs[i];
        w.exported.n = n;
        return;
    }
    free(w.export);
    w.export = NULL;
}

/* Import an export as it is, damaged, or cut off; or any bytes. */
static void do_import(void) {
    const int damage = fuzz_below(&w.in, 4);
    size_t n = damage == 2 ? (size_t)fuzz_below(&w.in, 65536) : w.n_export;
    if (!w.export || w.n_seqs == MAX_SEQS || n > w.n_export) return;
    uint8_t *bytes = malloc(n + 1);
    memcpy(bytes, w.export, n);
    bool damaged = n < w.n_export;
    if (damage == 1) {
        const size_t at = (size_t)fuzz_below(&w.in, 65536) * 7 % n;
        const uint8_t bits = fuzz_byte(&w.in);
        bytes[at] ^= bits;
        damaged = bits != 0;
    } else if (damage == 3) {
        for (size_t i = 0; i < n && w.in.at < w.in.end; i++) bytes[i] = fuzz_byte(&w.in);
        damaged = memcmp(bytes, w.export, n) != 0;
    }
    cattn_join_options options = read_options();
    options.domain = w.exported.domain; /* K/V are functions of the domain here */
    model_seq *s = &w.seqs[w.n_seqs];
    cattn_join_result result;
    const uint64_t before = hash();
    cattn_seq id = 1;
    const cattn_status status = cattn_seq_import(w.cache, bytes, n, &options, &id, &result, &w.error);
    free(bytes);
    if (status == CATTN_ERR_DATA) {
        FUZZ_CHECK(damaged && id == 0 && hash() == before, "%s", w.error.message);
        return;
    }
    if (!done(status, before, damaged || options.reserve_tokens < 0 || options.reserve_tokens > INT32_MAX)) {
        FUZZ_CHECK(id == 0, "a sequence in spite of %s", w.error.message);
        return;
    }
    check_match(&result, w.exported.n);
    *s = w.exported;
    s->id = id;
    w.n_seqs++;
    cattn_seq_info info = {.struct_size = sizeof info};
    FUZZ_CHECK(cattn_seq_get_info(w.cache, id, &info, NULL) == CATTN_OK && info.n_ready == s->n, "imported and not ready");
}

static void do_transfer(void) { (fuzz_below(&w.in, 2) ? do_import : do_export)(); }

/* ---- Steps ---- */

static void read_entries(cattn_entry *entries, int n) {
    for (int i = 0; i < n; i++) {
        cattn_seq id;
        pick(&id);
        entries[i] = (cattn_entry){.seq = id, .max_rows = fuzz_below(&w.in, 50)};
    }
}

static bool entries_are_wrong(const cattn_entry *entries, int n) {
    for (int i = 0; i < n; i++) {
        bool runs = false;
        for (int s = 0; s < w.n_seqs; s++) runs |= entries[i].seq == w.seqs[s].id;
        for (int j = 0; j < i; j++) runs &= entries[i].seq != entries[j].seq;
        if (!runs || entries[i].max_rows < 1) return true;
    }
    return false;
}

static int index_of(cattn_seq id) {
    int i = 0;
    while (w.seqs[i].id != id) i++;
    return i;
}

static void do_begin(void) {
    cattn_entry entries[MAX_SEQS];
    int n = w.n_seqs;
    if (fuzz_below(&w.in, 4) > 0) { /* all sequences, from any of them on */
        const int first = n ? fuzz_below(&w.in, n) : 0;
        for (int i = 0; i < n; i++)
            entries[i] = (cattn_entry){.seq = w.seqs[(first + i) % n].id, .max_rows = 1 + fuzz_below(&w.in, 40)};
    } else {
        n = fuzz_below(&w.in, MAX_SEQS + 1);
        read_entries(entries, n);
    }
    const int64_t limit = MAX_ROWS - fuzz_below(&w.in, MAX_ROWS);
    const cattn_status status = cattn_step_begin(w.cache, entries, n, limit, &w.error);
    if (status != CATTN_OK) {
        FUZZ_CHECK((status == CATTN_ERR_STATE) == w.open, "%s", w.error.message);
        FUZZ_CHECK(status != CATTN_ERR_ARG || n == 0 || entries_are_wrong(entries, n), "%s", w.error.message);
        FUZZ_CHECK(status != CATTN_ERR_NOMEM || w.memory.n_until_failure == 0, "%s", w.error.message);
        return;
    }
    FUZZ_CHECK(!w.open && !entries_are_wrong(entries, n), "a wrong step is begun");
    w.open = w.stepped = true;
    w.n_rows = 0;
    for (int i = 0; i < n; i++) {
        FUZZ_CHECK(entries[i].n_rows >= 0 && entries[i].n_rows <= entries[i].max_rows, "rows");
        for (int64_t r = 0; r < entries[i].n_rows; r++) {
            FUZZ_CHECK(w.n_rows < limit, "more rows than row_limit");
            w.rows[w.n_rows++] = (model_row){index_of(entries[i].seq), entries[i].first_pos + r};
        }
    }
}

static void fill(float *to, int layer, int what, int heads) {
    for (int r = 0; r < w.n_rows; r++) {
        const model_seq *s = &w.seqs[w.rows[r].seq];
        for (int i = 0; i < heads * DIM; i++) to[r * heads * DIM + i] = element(s->path[w.rows[r].position], layer, what, i);
    }
}

static bool sees(int layer, int64_t position, int64_t key) {
    const int32_t window = w.windows[layer];
    return window == 0 || position - key < window || key < w.config.n_sink_tokens;
}

/* One row's result for one head, by plain sums. */
static void attend_plainly(const model_seq *s, int64_t position, int layer, int head, double out[DIM]) {
    double weights[MAX_TOKENS], sum = 0, most = -INFINITY;
    for (int64_t p = 0; p <= position; p++) {
        weights[p] = 0;
        for (int i = 0; i < DIM; i++)
            weights[p] +=
                (double)element(s->path[position], layer, 0, head * DIM + i) * (double)element(s->path[p], layer, 1, i);
        weights[p] = sees(layer, position, p) ? weights[p] / sqrt(DIM) : -INFINITY;
        if (weights[p] > most) most = weights[p];
    }
    for (int i = 0; i < DIM; i++) out[i] = 0;
    for (int64_t p = 0; p <= position; p++) {
        const double weight = exp(weights[p] - most);
        sum += weight;
        for (int i = 0; i < DIM; i++) out[i] += weight * (double)element(s->path[p], layer, 2, i);
    }
    for (int i = 0; i < DIM; i++) out[i] /= sum;
}

static void check_rows(int layer, const float *out) {
    const double tolerance = w.config.kv_type == CATTN_F32 ? 1e-4 : 0.03;
    for (int r = 0; r < w.n_rows; r++) {
        const model_seq *s = &w.seqs[w.rows[r].seq];
        for (int head = 0; head < HEADS; head++) {
            double expected[DIM];
            attend_plainly(s, w.rows[r].position, layer, head, expected);
            for (int i = 0; i < DIM; i++) {
                const double got = (double)out[(r * HEADS + head) * DIM + i];
                FUZZ_CHECK(fabs(got - expected[i]) <= tolerance, "row %d, position %d, head %d, element %d: %g, not %g", r,
                           (int)w.rows[r].position, head, i, got, expected[i]);
            }
        }
    }
}

/* Write the step's rows of a layer, and attend if `attend`. Arrays have their exact sizes. */
static void do_layer(int layer, bool attend) {
    const size_t n = (size_t)w.n_rows + (w.n_rows == 0), row = DIM * sizeof(float);
    float *k = malloc(n * row), *v = malloc(n * row), *q = malloc(n * row * HEADS), *out = malloc(n * row * HEADS);
    float *lse = malloc(n * HEADS * sizeof *lse);
    fill(k, layer, 1, 1), fill(v, layer, 2, 1), fill(q, layer, 0, HEADS);
    const cattn_view k_view = {k, CATTN_F32, DIM, DIM}, v_view = {v, CATTN_F32, DIM, DIM};
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    FUZZ_CHECK(cattn_step_write(w.cache, layer, &k_view, &v_view, &w.error) == CATTN_OK, "%s", w.error.message);
    if (attend) {
        FUZZ_CHECK(cattn_step_attend(w.cache, layer, &q_view, &out_view, lse, &w.error) == CATTN_OK, "%s", w.error.message);
        check_rows(layer, out);
    }
    free(k), free(v), free(q), free(out), free(lse);
}

static void do_end(void) {
    const int how = fuzz_byte(&w.in);
    const bool abort_it = how % 4 == 0;
    if (w.open && how != 0)
        for (int layer = 0; layer < w.config.n_layers; layer++) do_layer(layer, !(how & 64 << layer));
    const cattn_status status = abort_it ? cattn_step_abort(w.cache, &w.error) : cattn_step_end(w.cache, &w.error);
    FUZZ_CHECK(status == (w.open ? CATTN_OK : CATTN_ERR_STATE), "%s", w.error.message);
    w.open = false;
}

static void do_step(void) {
    do_begin();
    if (w.open) do_end();
}

/* ---- Calls that change nothing, and calls that are wrong ---- */

static int add_tokens(void *ctx, const cattn_node_info *node) {
    *(uint64_t *)ctx += (uint64_t)node->n_tokens;
    FUZZ_CHECK(node->n_ready <= node->n_tokens && node->first_pos % 2 == 0, "node");
    return 0;
}

static void walk(int64_t max_nodes, uint64_t *cursor, uint64_t *n_tokens) {
    cattn_walk_options options;
    cattn_walk_options_init(&options);
    options.max_nodes = max_nodes;
    FUZZ_CHECK(cattn_cache_walk(w.cache, &options, cursor, add_tokens, n_tokens, &w.error) == CATTN_OK, "%s", w.error.message);
}

static void do_walk(void) {
    uint64_t n = 0, cursor = 0;
    bool more;
    cattn_stats stats = {.struct_size = sizeof stats};
    walk(CATTN_MAX_WALK_NODES, &cursor, &n);
    FUZZ_CHECK(cursor == 0 && cattn_cache_stats(w.cache, &stats) == CATTN_OK && n == stats.tokens_stored, "tokens");
    walk(3, &w.walk, &n); /* a part of a walk, whose others come between later calls */
    cattn_cache_prefault(w.cache, fuzz_below(&w.in, 20) - 1, &more, &w.error);
}

/* Structs of any size, in memory of that size. */
static void do_sizes(void) {
    const size_t size = fuzz_byte(&w.in), room = size < sizeof(size_t) ? sizeof(size_t) : size;
    cattn_seq id;
    pick(&id);
    size_t *any = calloc(1, room);
    any[0] = size;
    if (room > sizeof(size_t))
        ((uint8_t *)any)[fuzz_below(&w.in, (int32_t)(room - sizeof(size_t))) + (int32_t)sizeof(size_t)] = fuzz_byte(&w.in);
    cattn_seq none = 1;
    static const int32_t token = 1;
    const uint64_t before = hash();
    switch (fuzz_below(&w.in, 5)) {
    case 0: cattn_cache_stats(w.cache, (cattn_stats *)any); break;
    case 1: cattn_seq_get_info(w.cache, id, (cattn_seq_info *)any, &w.error); break;
    case 2: cattn_cache_can_fit(w.cache, (cattn_fit_request *)any, NULL, &w.error); break;
    case 3: cattn_cache_match(w.cache, &token, 1, (cattn_join_options *)any, NULL, &w.error); break;
    default:
        if (cattn_seq_join(w.cache, &token, 1, (cattn_join_options *)any, &none, NULL, &w.error) == CATTN_OK) {
            FUZZ_CHECK(cattn_seq_leave(w.cache, &none, NULL) == CATTN_OK, "leave");
            free(any);
            return;
        }
        FUZZ_CHECK(none == 0, "a sequence in spite of %s", w.error.message);
    }
    FUZZ_CHECK(hash() == before, "the tree has changed");
    free(any);
}

static void do_wrong(void) {
    cattn_seq id, fork;
    int32_t token = 0;
    const uint64_t before = hash();
    pick(&id);
    FUZZ_CHECK(cattn_seq_join(NULL, &token, 1, NULL, &fork, NULL, &w.error) == CATTN_ERR_ARG, "join");
    FUZZ_CHECK(cattn_seq_join(w.cache, NULL, 1, NULL, &fork, NULL, &w.error) != CATTN_OK, "join");
    FUZZ_CHECK(cattn_seq_join(w.cache, &token, -(int64_t)fuzz_byte(&w.in), NULL, &fork, NULL, &w.error) != CATTN_OK, "join");
    FUZZ_CHECK(cattn_seq_append(w.cache, id, NULL, 1, &w.error) != CATTN_OK, "append");
    FUZZ_CHECK(cattn_seq_append(w.cache, id, &token, 0, &w.error) != CATTN_OK, "append");
    FUZZ_CHECK(cattn_seq_fork(w.cache, id, 0, NULL, &w.error) != CATTN_OK, "fork");
    const int32_t layer = fuzz_below(&w.in, 4);
    const bool no_rows = w.open && w.n_rows == 0 && layer < w.config.n_layers; /* which need no views */
    FUZZ_CHECK((cattn_step_write(w.cache, layer, NULL, NULL, &w.error) == CATTN_OK) == no_rows, "write");
    FUZZ_CHECK(cattn_step_attend(w.cache, -1, NULL, NULL, NULL, &w.error) != CATTN_OK, "attend");
    FUZZ_CHECK(cattn_seq_reserve(w.cache, id, INT64_MAX, &w.error) != CATTN_OK, "reserve");
    FUZZ_CHECK(hash() == before, "the tree has changed");
}

/* Let an allocation fail soon, and all after it, until the next call of this kind. */
static void do_fail(void) { w.memory.n_until_failure = fuzz_below(&w.in, 8) - 1; }

static void (*const calls[])(void) = {do_join,  do_append, do_truncate, do_fork, do_reserve, do_leave, do_drop, do_fit,
                                      do_begin, do_end,    do_step,     do_walk, do_sizes,   do_wrong, do_fail, do_transfer};
enum { N_CALLS = sizeof calls / sizeof *calls };

/* ---- A run ---- */

static void run_tasks(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    (void)ctx;
    for (int32_t i = 0; i < n_tasks; i++) fn(arg, i, i % w.config.n_threads);
}

static bool create(void) {
    static const cattn_type types[] = {CATTN_F32, CATTN_F16, CATTN_BF16, CATTN_I8};
    const int shape = fuzz_byte(&w.in), modes = fuzz_byte(&w.in);
    cattn_config_init(&w.config);
    w.config.n_layers = 1 + shape % 2;
    w.config.n_heads = HEADS, w.config.n_kv_heads = 1, w.config.head_dim = DIM;
    w.config.chunk_size = shape & 2 ? 16 : 32;
    w.config.kv_type = types[shape >> 2 & 3];
    w.config.level = cattn_level_name(shape >> 4);
    w.config.sharing = (cattn_sharing)(modes % 3);
    w.config.retention = modes & 8 ? CATTN_RETAIN_NONE : CATTN_RETAIN_LRU;
    w.windows[0] = 0, w.windows[1] = modes >> 4;
    w.config.windows = modes & 128 ? w.windows : NULL;
    if (!w.config.windows) w.windows[1] = 0;
    w.config.n_sink_tokens = w.config.windows ? modes >> 5 & 3 : 0;
    w.config.budget_bytes = 4096 + (uint64_t)fuzz_below(&w.in, 512) * 4096;
    w.config.n_threads = 1 + fuzz_below(&w.in, 3);
    w.config.tier_fingerprint[0] = 1;
    w.config.allocator = (cattn_allocator){fuzz_alloc, fuzz_free, &w.memory};
    w.config.parallel = (cattn_parallel){run_tasks, NULL};
    w.memory.n_until_failure = fuzz_below(&w.in, 256) - 1;
    if (w.memory.n_until_failure > 60) w.memory.n_until_failure = -1;
    const cattn_status status = cattn_cache_create(&w.config, &w.cache, &w.error);
    FUZZ_CHECK((status == CATTN_OK) == (w.cache != NULL), "create");
    return status == CATTN_OK;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    return setenv("CMOCKA_TEST_ABORT", "1", 1); /* check_tree fails by cmocka, which ends the process then */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&w, 0, sizeof w);
    w.in = (fuzz_bytes){data, data + size};
    if (create()) {
        for (int i = 0; i < MAX_CALLS && w.in.at < w.in.end; i++) {
            calls[fuzz_below(&w.in, N_CALLS)]();
            check_all();
        }
    }
    cattn_cache_destroy(&w.cache);
    free(w.export);
    FUZZ_CHECK(w.memory.n == 0 && w.memory.bytes == 0, "%zu allocations of %zu bytes remain", w.memory.n, w.memory.bytes);
    return 0;
}
