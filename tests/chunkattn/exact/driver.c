/* Runs the rounds of a world: see driver.h. */
#include "driver.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../cache/check_tree.h"
#include "../tier/disk.h"
#include "chunkattn/api/file_tier.h"
#include "chunkattn/base/half.h"
#include "chunkattn/cache/tree_internal.h"
#include "engine.h"
#include "reference.h"
#include "tests/support/blob.h"
#include "tests/support/failing_alloc.h"

const char *const count_names[N_COUNTS] = {[COUNT_ROWS] = "rows",
                                           [COUNT_RESTORED] = "tokens restored",
                                           [COUNT_WRITTEN] = "chunks written",
                                           [COUNT_REFUSED] = "records refused",
                                           [COUNT_ERRORS] = "errors of the disk",
                                           [COUNT_WAITS] = "waits",
                                           [COUNT_PROMPT_ENDS] = "ends of prompts",
                                           [COUNT_SHARED_RUNS] = "shared runs",
                                           [COUNT_KEPT] = "plans kept",
                                           [COUNT_IMPORTED] = "imports",
                                           [COUNT_FAILED] = "calls without memory",
                                           [COUNT_FAULTY] = "rounds without memory",
                                           [COUNT_WGMMA] = "products by wgmma",
                                           [COUNT_WORST_ERROR] = "thousandths of the allowed error"};

enum { MAX_RUNNING = 16, MAX_RUNNING_IN_PAGES = 12, MAX_PENDING = 16, MAX_STEPS = 100000 };

/* A running copy of a sequence: in a cache `seq`, in foreign pages `paged`. */
typedef struct runner {
    world_seq *is;
    int64_t length;
    cattn_seq seq;
    engine_seq paged;
} runner;

/* Rows of one sequence in a step. */
typedef struct part {
    world_seq *is;
    int64_t first, n;
} part;

typedef struct tensor {
    cattn_view view;
    void *memory; /* [bytes] */
    size_t bytes;
} tensor;

/* A layer of a step, which may not have been computed yet. */
typedef struct layer {
    tensor q, k, v, out;
    float *lse;
    int32_t index;
    int n_parts;
    part parts[MAX_RUNNING];
} layer;

/* An allocator that fails and counts what remains. */
typedef struct memory {
    failing failing;
    int n_allocated;
} memory;

typedef struct run {
    world *w;
    const plan_round *how;
    const backend *b;
    int64_t *counts;
    bool is_expected; /* results are stored as the expected ones */
    bool heads_alone; /* the query heads of a KV head are attended to one by one */
    memory memory;
    cattn_config config;
    cattn_cache *cache;
    cattn_pages *pages;
    engine e;
    rng r; /* of the present step */
    int64_t step, next_event, n_joined;
    int order[WORLD_MAX_SEQS];   /* in which the sequences join */
    bool is_again;               /* they join once more, all at once */
    int64_t limit, aborts_after; /* of the next step; 0 and -1: none */
    cattn_seq pin;
    int n_runners, n_parts, n_pending;
    runner runners[MAX_RUNNING];
    part parts[MAX_RUNNING]; /* of the open step */
    layer pending[MAX_PENDING];
    cattn_stats before; /* a call that may fail */
    cattn_error error;
} run;

/* An export, which later rounds may import. */
static blob exported;
static world_seq *exported_seq; /* NULL: there is none */
static int64_t n_exported;      /* tokens */

static disk the_disk;

/* ---- Failures ---- */

static __attribute__((format(printf, 2, 3))) _Noreturn void fail(const run *x, const char *format, ...) {
    char text[600];
    va_list args;
    int n = x->is_expected ? snprintf(text, sizeof text, "each sequence alone: ")
                           : snprintf(text, sizeof text, "round %d, step %d, level %s: ", (int)(x->how - x->w->plan->rounds),
                                      (int)x->step, x->config.level);
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    plan_fail(format, text);
}

#define CHECK(condition)                                                                                                       \
    do {                                                                                                                       \
        if (!(condition)) fail(x, "not " #condition);                                                                          \
    } while (0)

static cattn_stats stats_of(const run *x) {
    cattn_stats s = {.struct_size = sizeof s};
    if (x->cache) CHECK(cattn_cache_stats(x->cache, &s) == CATTN_OK);
    return s;
}

/* Statistics that a call that fails leaves unchanged. Workspace and arrays that have grown may stay. */
static cattn_stats settled_stats(const run *x) {
    cattn_stats s = {.struct_size = sizeof s};
    if (x->how->fail) s = stats_of(x);
    s.bytes_in_use = s.bytes_peak = 0;
    return s;
}

/* Whether a call must be made again, since an allocation has failed as the plan says. */
static bool has_failed(run *x, cattn_status status, const char *call) {
    const bool may_fail = x->memory.failing.left < 0 || (x->b->allocation_failed && x->b->allocation_failed());
    if (status == CATTN_OK) return false;
    if (status != CATTN_ERR_NOMEM || x->error.code != status || !may_fail) fail(x, "%s: %s", call, x->error.message);
    const cattn_stats now = settled_stats(x);
    if (memcmp(&now, &x->before, sizeof now)) fail(x, "a call that failed has changed the cache: %s", call);
    x->counts[COUNT_FAILED]++;
    return true;
}

/* Make a call, and again as long as it fails for lack of memory that the plan takes from it. */
#define TRY(call)                                                                                                              \
    for (x->before = settled_stats(x); has_failed(x, (call), #call);) continue

static void *allocate(void *ctx, size_t size, size_t align) {
    memory *m = ctx;
    void *p = failing_alloc(&m->failing, size, align);
    m->n_allocated += p != NULL;
    return p;
}

static void release(void *ctx, void *p, size_t size, size_t align) {
    memory *m = ctx;
    m->n_allocated--;
    failing_free(&m->failing, p, size, align);
}

/* ---- Tensors ---- */

static size_t size_of(cattn_type type) { return type == CATTN_F32 ? 4 : 2; }

/* A tensor of NaN, so that a row that is not written is found. */
static tensor new_tensor(const run *x, int64_t rows, int heads, int dim, int64_t type, const char *name) {
    const plan_shape *p = &x->w->plan->shape;
    const int64_t inner = dim + p->gap, outer = (p->heads_outer ? rows : heads) * inner + 2 * p->gap;
    tensor t = {.view = {.type = (cattn_type)type, .row_stride = outer, .head_stride = inner}};
    if (p->heads_outer) t.view.row_stride = inner, t.view.head_stride = outer;
    t.bytes = (size_t)((p->heads_outer ? heads : rows) * outer + 1) * size_of(t.view.type);
    t.memory = memset(x->b->alloc(t.bytes, name), 0xff, t.bytes);
    t.view.data = (char *)t.memory + (x->b->aligned ? 0 : size_of(t.view.type));
    return t;
}

static void *element(const cattn_view *view, int64_t row, int head) {
    return (char *)view->data + (row * view->row_stride + head * view->head_stride) * (int64_t)size_of(view->type);
}

static void put_row(const tensor *t, int64_t row, int heads, int dim, const float *from) {
    for (int h = 0; h < heads; h++) {
        uint16_t *half = element(&t->view, row, h);
        if (t->view.type == CATTN_F32) memcpy(half, from + h * dim, (size_t)dim * sizeof *from);
        for (int i = 0; i < dim && t->view.type != CATTN_F32; i++)
            half[i] = t->view.type == CATTN_F16 ? ca_f16_from_f32(from[h * dim + i]) : ca_bf16_from_f32(from[h * dim + i]);
    }
}

/* Take a row out of the tensor, which becomes NaN there. */
static void take_out(const tensor *t, int64_t row, int heads, int dim, float *to) {
    for (int h = 0; h < heads; h++) {
        uint16_t *half = element(&t->view, row, h);
        if (t->view.type == CATTN_F32) memcpy(to + h * dim, half, (size_t)dim * sizeof *to);
        for (int i = 0; i < dim && t->view.type != CATTN_F32; i++)
            to[h * dim + i] = t->view.type == CATTN_F16 ? ca_f32_from_f16(half[i]) : ca_f32_from_bf16(half[i]);
        memset(half, 0xff, (size_t)dim * size_of(t->view.type));
    }
}

static void fill_layer(run *x, layer *l, int64_t n_rows) {
    const ca_heads h = world_heads(x->w, l->index);
    const plan_shape *p = &x->w->plan->shape;
    l->q = new_tensor(x, n_rows, h.n_heads, h.d_k, x->is_expected ? CATTN_F32 : p->q_type, "q");
    l->k = new_tensor(x, n_rows, h.n_kv_heads, h.d_k, x->is_expected ? CATTN_F32 : p->k_type, "k");
    l->v = new_tensor(x, n_rows, h.n_kv_heads, h.d_v, x->is_expected ? CATTN_F32 : p->v_type, "v");
    l->out = new_tensor(x, n_rows, h.n_heads, h.d_v, x->how->out_type, "out");
    const size_t lse_bytes = (size_t)(n_rows * h.n_heads) * sizeof(float);
    l->lse = memset(x->b->alloc(lse_bytes, "lse"), 0xff, lse_bytes);
    int64_t row = 0;
    for (int i = 0; i < l->n_parts; i++)
        for (int64_t j = 0; j < l->parts[i].n; j++, row++) {
            const world_input from = world_row(x->w, l->parts[i].is, l->parts[i].first + j, l->index);
            put_row(&l->q, row, h.n_heads, h.d_k, from.q);
            put_row(&l->k, row, h.n_kv_heads, h.d_k, from.k);
            put_row(&l->v, row, h.n_kv_heads, h.d_v, from.v);
        }
}

/* ---- Results ---- */

/* The reference is slow, so it has some rows only. */
static void check_reference(const run *x, const world_seq *s, int64_t position, int index, const float *out, const float *lse) {
    if (position % (s->n_tokens > 300 ? 101 : 7) && position + 1 < s->n_tokens) return;
    const double error = reference_error(x->w, s, position, index, x->b->cuda != NULL, out, lse);
    if (!(error <= 1))
        fail(x, "a row's error is %g of what is allowed: sequence %d, position %d, layer %d", error, (int)(s - x->w->seqs),
             (int)position, index);
    const int64_t part = (int64_t)(1000 * error);
    if (part > x->counts[COUNT_WORST_ERROR]) x->counts[COUNT_WORST_ERROR] = part;
}

static void take_row(run *x, world_seq *s, int64_t position, int index, const float *out, const float *lse) {
    const ca_heads h = world_heads(x->w, index);
    const int n_heads = h.n_heads, n_out = n_heads * h.d_v;
    float *want = world_out(x->w, s, position, index), *want_lse = world_lse(x->w, s, position, index);
    if (x->is_expected) {
        memcpy(want, out, (size_t)n_out * sizeof *out);
        memcpy(want_lse, lse, (size_t)n_heads * sizeof *lse);
        check_reference(x, s, position, index, out, lse);
        return;
    }
    bool is_same = world_same(want_lse, lse, n_heads);
    for (int i = 0; i < n_out; i++) {
        const float x_i = world_rounded(x->how->out_type, want[i]);
        is_same &= world_same(&x_i, &out[i], 1);
    }
    if (!is_same)
        fail(x, "a row has other bits than alone: sequence %d, position %d, layer %d", (int)(s - x->w->seqs), (int)position,
             index);
    x->counts[COUNT_ROWS]++;
}

static void take_layer(run *x, const layer *l) {
    const ca_heads h = world_heads(x->w, l->index);
    float *out = malloc((size_t)(h.n_heads * h.d_v) * sizeof *out);
    int64_t row = 0;
    for (int i = 0; i < l->n_parts; i++)
        for (int64_t j = 0; j < l->parts[i].n; j++, row++) {
            take_out(&l->out, row, h.n_heads, h.d_v, out);
            take_row(x, l->parts[i].is, l->parts[i].first + j, l->index, out, l->lse + row * h.n_heads);
        }
    for (size_t i = 0; i < l->out.bytes; i++)
        if (((const uint8_t *)l->out.memory)[i] != 0xff) fail(x, "a gap between outputs has been written");
    free(out);
}

/* Wait until all is computed, and look at it. */
static void finish(run *x) {
    if (x->b->finish) x->b->finish();
    for (int i = 0; i < x->n_pending; i++) {
        layer *l = &x->pending[i];
        take_layer(x, l);
        void *const memory[] = {l->q.memory, l->k.memory, l->v.memory, l->out.memory, l->lse};
        for (int k = 0; k < 5; k++) x->b->free(memory[k]);
    }
    x->n_pending = 0;
}

/* ---- Layers ---- */

/* Attend to each query head of a KV head alone, in a cache with one for each. */
static void attend_alone(run *x, const layer *l, int64_t n_rows) {
    const ca_heads h = world_heads(x->w, l->index);
    const int n_kv = h.n_kv_heads, group = h.n_heads / n_kv;
    float *lse = malloc((size_t)(n_rows * n_kv) * sizeof *lse);
    cattn_view q = l->q.view, out = l->out.view;
    q.head_stride *= group;
    out.head_stride *= group;
    for (int g = 0; g < group; g++) {
        q.data = element(&l->q.view, 0, g);
        out.data = element(&l->out.view, 0, g);
        CHECK(x->b->attend(x->cache, l->index, &q, &out, lse, &x->error) == CATTN_OK);
        for (int64_t i = 0; i < n_rows * n_kv; i++) l->lse[i * group + g] = lse[i];
    }
    free(lse);
}

static void run_layer(run *x, int32_t index, int64_t n_rows) {
    if (x->n_pending == x->b->most_pending) finish(x);
    layer *l = &x->pending[x->n_pending++];
    l->index = index;
    l->n_parts = x->n_parts;
    memcpy(l->parts, x->parts, sizeof l->parts);
    fill_layer(x, l, n_rows);
    if (x->pages) {
        TRY(x->b->attend_pages(x->pages, index, &x->e.k[index], &x->e.v[index], &l->q.view, &l->out.view, l->lse, &x->error));
        return;
    }
    const int n_left = x->memory.failing.left;
    const bool stores = !x->config.kv_source || x->config.kv_source[index] == index;
    const cattn_status status = x->b->write(x->cache, index, &l->k.view, &l->v.view, &x->error);
    CHECK(status == (stores ? CATTN_OK : CATTN_ERR_ARG));
    if (x->heads_alone)
        attend_alone(x, l, n_rows);
    else
        CHECK(x->b->attend(x->cache, index, &l->q.view, &l->out.view, l->lse, &x->error) == CATTN_OK);
    CHECK(x->memory.failing.left == n_left); /* nothing is allocated in a step after it has begun */
}

/* ---- Steps ---- */

static void swap(run *x, int i, int j) {
    const runner other = x->runners[i];
    x->runners[i] = x->runners[j];
    x->runners[j] = other;
}

/* The open step says of its rows what the entries [n] say. */
static void check_rows(run *x, const cattn_entry *entries, int n, int64_t n_rows) {
    cattn_rows rows = {.struct_size = sizeof rows, .capacity = n_rows};
    const size_t size = (size_t)n_rows + 1;
    rows.tokens = malloc(size * sizeof *rows.tokens), rows.positions = malloc(size * sizeof *rows.positions);
    rows.entries = malloc(size * sizeof *rows.entries), rows.is_last = malloc(size * sizeof *rows.is_last);
    CHECK(cattn_step_rows(x->cache, &rows, &x->error) == CATTN_OK && rows.n_rows == n_rows);
    for (int64_t i = 0, row = 0; i < n; i++)
        for (int64_t p = entries[i].first_pos; p < entries[i].first_pos + entries[i].n_rows; p++, row++) {
            const runner *who = &x->runners[i];
            CHECK(rows.entries[row] == i && rows.positions[row] == p && rows.tokens[row] == who->is->tokens[p]);
            CHECK(rows.is_last[row] == (p + 1 == who->length));
        }
    free(rows.tokens), free(rows.positions), free(rows.entries), free(rows.is_last);
}

/* Begin a step. Returns its rows, whose parts are those of the runners. */
static int64_t begin_in_cache(run *x) {
    cattn_entry entries[MAX_RUNNING];
    int64_t n_rows = 0;
    for (int i = 0; i < x->n_runners; i++)
        entries[i] =
            (cattn_entry){.seq = x->runners[i].seq, .max_rows = x->how->piece ? x->how->piece : rng_range(&x->r, 1, 100)};
    TRY(x->b->begin(x->cache, entries, x->n_runners, x->limit, &x->error));
    for (int i = 0; i < x->n_runners; i++) {
        x->parts[i] = (part){x->runners[i].is, entries[i].first_pos, entries[i].n_rows};
        n_rows += entries[i].n_rows;
    }
    check_rows(x, entries, x->n_runners, n_rows);
    return n_rows;
}

static int64_t draw_rows(run *x, int64_t n_tokens) {
    if (rng_chance(&x->r, 2)) return 1;
    if (rng_chance(&x->r, 8)) return 0;
    const int64_t n = rng_range(&x->r, 1, rng_chance(&x->r, 3) || n_tokens < 5 ? n_tokens : 5);
    return x->b->most_rows > 0 && n > x->b->most_rows ? x->b->most_rows : n;
}

/* A batch of all runners, as a padded table with arbitrary ids behind the last page, or as ids with an indptr. */
static int64_t begin_in_pages(run *x) {
    static int32_t ids[MAX_RUNNING * ENGINE_MAX_TABLE], page_indptr[MAX_RUNNING + 1], query_indptr[MAX_RUNNING + 1],
        lengths[MAX_RUNNING], last_lens[MAX_RUNNING];
    const int n = x->n_runners;
    const bool padded = rng_chance(&x->r, 2), one_each = rng_chance(&x->r, 3), by_last = !padded && rng_chance(&x->r, 2);
    const int32_t stride = ENGINE_MAX_TABLE - rng_below(&x->r, 4);
    for (int i = 0; i < n; i++) {
        const engine_seq *s = &x->runners[i].paged;
        int32_t *to = ids + (padded ? i * stride : page_indptr[i]);
        for (int32_t j = 0; j < (padded ? stride : s->n_pages); j++) to[j] = j < s->n_pages ? s->table[j] : -7;
        const int64_t n_rows = one_each ? 1 : draw_rows(x, s->n_tokens);
        x->parts[i] = (part){x->runners[i].is, s->n_tokens - n_rows, n_rows};
        page_indptr[i + 1] = page_indptr[i] + s->n_pages;
        query_indptr[i + 1] = query_indptr[i] + (int32_t)n_rows;
        lengths[i] = s->n_tokens;
        last_lens[i] = (s->n_tokens - 1) % x->e.page_size + 1;
    }
    const cattn_pages_batch batch = {.struct_size = sizeof batch,
                                     .n_seqs = n,
                                     .page_ids = ids,
                                     .page_stride = padded ? stride : 0,
                                     .page_indptr = padded ? NULL : page_indptr,
                                     .seq_lens = by_last ? NULL : lengths,
                                     .last_page_lens = by_last ? last_lens : NULL,
                                     .query_indptr = one_each ? NULL : query_indptr};
    TRY(x->b->plan_pages(x->pages, &batch, &x->error));
    cattn_pages_info info = {.struct_size = sizeof info};
    CHECK(cattn_pages_get_info(x->pages, &info) == CATTN_OK && info.n_rows == query_indptr[n]);
    x->counts[COUNT_SHARED_RUNS] += info.shared_runs;
    return info.n_rows;
}

/* One step of all runners, in an order that changes. */
static void step(run *x) {
    const bool shuffles = rng_chance(&x->r, 2);
    for (int i = x->n_runners - 1; i > 0 && shuffles; i--) swap(x, i, rng_below(&x->r, i + 1));
    x->n_parts = x->n_runners;
    const int64_t n_rows = x->pages ? begin_in_pages(x) : begin_in_cache(x);
    const bool aborts = x->aborts_after >= 0 && !x->pages;
    const int64_t n = aborts && x->aborts_after < x->config.n_layers ? x->aborts_after : x->config.n_layers;
    for (int32_t i = 0; i < n && n_rows > 0; i++) run_layer(x, i, n_rows);
    if (!x->pages) CHECK((aborts ? cattn_step_abort : cattn_step_end)(x->cache, &x->error) == CATTN_OK);
    if (x->pages || !x->b->finish || rng_chance(&x->r, 4)) finish(x); /* pages may be written again */
    if (n_rows == 0 && !x->pages) {
        bool ended;
        CHECK(cattn_cache_wait(x->cache, 1, &ended, &x->error) == CATTN_OK);
        x->counts[COUNT_WAITS] += ended;
    }
    x->limit = 0;
    x->aborts_after = -1;
}

/* ---- Sequences ---- */

/* The end of the tokens from `first` on, and before `end`, that have the same extra hash. */
static int64_t end_of_run(const world_seq *is, int64_t first, int64_t end) {
    int64_t i = first + 1;
    while (i < end && is->marks[i] == is->marks[first]) i++;
    return i;
}

/* What joins in a cache is found there as a query has said, which changes nothing. */
static void join_cache(run *x, runner *who) {
    cattn_join_options options;
    cattn_join_result would, did;
    cattn_extra extras[2];
    cattn_join_options_init(&options);
    options.domain = who->is->domain;
    options.extra_hash = who->is->whole;
    options.extras = extras;
    for (int64_t first = 0, end; first < who->length; first = end) {
        end = end_of_run(who->is, first, who->length);
        if (who->is->marks[first]) extras[options.n_extras++] = (cattn_extra){first, end - first, who->is->marks[first]};
    }
    const cattn_stats before = stats_of(x);
    TRY(cattn_cache_match(x->cache, who->is->tokens, who->length, &options, &would, &x->error));
    const cattn_stats after = stats_of(x);
    TRY(cattn_seq_join(x->cache, who->is->tokens, who->length, &options, &who->seq, &did, &x->error));
    if (x->cache->tier) return; /* whose reads end at any time */
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(would.n_matched == did.n_matched && would.n_ready == did.n_ready);
}

static void join(run *x, world_seq *is, int64_t n_tokens) {
    runner *who = &x->runners[x->n_runners];
    *who = (runner){.is = is, .length = n_tokens};
    if (x->pages)
        engine_join(&x->e, &who->paged, is, (int32_t)n_tokens);
    else
        join_cache(x, who);
    x->n_runners++;
}

/* Some of a sequence's tokens are those that it was given, and no more are copied. */
static void check_tokens(run *x, const runner *who) {
    const int64_t first = rng_range(&x->r, 0, who->length), n = rng_range(&x->r, 0, who->length - first);
    int32_t *got = memset(malloc((size_t)(n + 1) * sizeof *got), 0xff, (size_t)(n + 1) * sizeof *got);
    ca_tree_tokens(x->cache->tree, ca_tree_find(x->cache->tree, who->seq), first, n, got);
    CHECK(got[n] == -1 && memcmp(got, who->is->tokens + first, (size_t)n * sizeof *got) == 0);
    free(got);
}

/* Whether a number that was read is what x has become; `most`: the largest of its token and head. Denormal ones may be zero. */
static bool is_stored(int64_t type, float got, float x, float most) {
    const float rounded = world_rounded(type, x);
    if (type != CATTN_I8) return world_same(&got, &rounded, 1) || (got == 0 && fabsf(x) < FLT_MIN);
    if (!isfinite(most)) return isnan(got);
    return fabsf(got - x) <= most * (0.505f / 127) || (got == 0 && most < 128 * FLT_MIN);
}

/* One KV head's K or V of a token, as it was written and as it was read. */
static void check_stored(run *x, const float *written, const float *read, int dim) {
    float most = 0;
    for (int i = 0; i < dim; i++) most = fmaxf(most, fabsf(written[i]));
    for (int i = 0; i < dim; i++) CHECK(is_stored(x->w->plan->shape.kv_type, read[i], written[i], most));
}

static int64_t n_ready(const run *x, const runner *who);

/* What is read of some of a sequence's tokens in one layer is what was written for them. */
static void check_stored_tokens(run *x, const runner *who) {
    const int layer = rng_below(&x->r, x->w->config.n_layers);
    const ca_heads h = world_heads(x->w, layer);
    const int kv = h.n_kv_heads;
    const int64_t first = rng_range(&x->r, 0, n_ready(x, who)), n = rng_range(&x->r, 0, n_ready(x, who) - first);
    float *k = malloc((size_t)(n * kv * h.d_k + 1) * sizeof *k), *v = malloc((size_t)(n * kv * h.d_v + 1) * sizeof *v);
    const cattn_view k_view = {k, CATTN_F32, kv * h.d_k, h.d_k}, v_view = {v, CATTN_F32, kv * h.d_v, h.d_v};
    const cattn_status status = cattn_seq_read(x->cache, who->seq, layer, first, n, &k_view, &v_view, &x->error);
    CHECK(status == (x->b->cuda ? CATTN_ERR_UNSUPPORTED : CATTN_OK));
    for (int64_t i = 0; i < n && status == CATTN_OK; i++)
        for (int head = 0; head < kv; head++) {
            const world_input row = world_row(x->w, who->is, first + i, layer);
            check_stored(x, row.k + head * h.d_k, k + (i * kv + head) * h.d_k, h.d_k);
            check_stored(x, row.v + head * h.d_v, v + (i * kv + head) * h.d_v, h.d_v);
        }
    free(k), free(v);
}

static void leave(run *x, runner *who) {
    if (x->pages) {
        engine_leave(&x->e, &who->paged);
    } else {
        check_tokens(x, who);
        check_stored_tokens(x, who);
        CHECK(cattn_seq_leave(x->cache, &who->seq, &x->error) == CATTN_OK);
    }
    *who = x->runners[--x->n_runners];
}

/* By either call, tokens with extra hashes by the one that takes them. */
static void append_in_cache(run *x, const runner *who, int64_t n) {
    const world_seq *is = who->is;
    for (int64_t first = who->length, to = who->length + n, end; first < to; first = end) {
        end = end_of_run(is, first, to);
        const cattn_append one = {who->seq, is->tokens + first, end - first, is->marks[first]};
        if (is->marks[first] == 0 && rng_chance(&x->r, 2))
            TRY(cattn_seq_append(x->cache, who->seq, is->tokens + first, end - first, &x->error));
        else
            TRY(cattn_seqs_append(x->cache, &one, 1, NULL, &x->error));
    }
}

static void append(run *x, runner *who, int64_t n) {
    if (n > who->is->n_tokens - who->length) n = who->is->n_tokens - who->length;
    if (n == 0) return;
    if (x->pages)
        engine_resize(&x->e, &who->paged, (int32_t)(who->length + n), rng_chance(&x->r, 2));
    else
        append_in_cache(x, who, n);
    who->length += n;
}

static void truncate(run *x, runner *who, int64_t n) {
    if (n >= who->length) n = who->length - 1;
    if (n == 0) return;
    who->length -= n;
    if (x->pages)
        engine_resize(&x->e, &who->paged, (int32_t)who->length, true);
    else
        TRY(cattn_seq_truncate(x->cache, who->seq, who->length, &x->error));
}

static bool has_room(const run *x) { return x->n_runners < (x->pages ? MAX_RUNNING_IN_PAGES : MAX_RUNNING); }

static void fork_runner(run *x, const runner *who, int64_t n_reserved) {
    if (!has_room(x)) return;
    runner *fork = &x->runners[x->n_runners];
    *fork = *who;
    if (x->pages)
        engine_fork(&x->e, &fork->paged, &who->paged);
    else
        TRY(cattn_seq_fork(x->cache, who->seq, n_reserved, &fork->seq, &x->error));
    x->n_runners++;
}

static int64_t n_ready(const run *x, const runner *who) {
    cattn_seq_info info = {.struct_size = sizeof info};
    if (x->pages) return who->length;
    CHECK(cattn_seq_get_info(x->cache, who->seq, &info, NULL) == CATTN_OK);
    return info.n_ready;
}

/* ---- Pins and exports, which foreign pages and devices do not have ---- */

static void unpin(run *x) {
    if (x->pin) CHECK(cattn_cache_unpin(x->cache, &x->pin, &x->error) == CATTN_OK && x->pin == 0);
}

static void pin(run *x, const runner *who, int64_t n_less) {
    const int64_t n = (n_ready(x, who) - n_less) / 2 * 2;
    if (n < 2 || x->how->sharing == CATTN_PRIVATE) return;
    unpin(x);
    TRY(cattn_seq_pin(x->cache, who->seq, n, &x->pin, &x->error));
}

/* Nothing is written by a call that fails for lack of memory. */
static void export_to(run *x, const runner *who, int64_t n, blob *to) {
    to->n = 0;
    TRY(cattn_seq_export(x->cache, who->seq, n, blob_add, to, &x->error));
    CHECK(to->n == cattn_cache_export_bytes(x->cache, n));
}

static void export(run *x, const runner *who, int64_t n_less) {
    const int64_t n = n_ready(x, who) - n_less;
    if (n < 1) return;
    export_to(x, who, n, &exported);
    exported_seq = who->is;
    n_exported = n;
}

/* All tokens are ready then, and are exported again as the same bytes. */
static void import(run *x) {
    static blob again;
    if (!exported_seq || !has_room(x)) return;
    runner *who = &x->runners[x->n_runners];
    *who = (runner){.is = exported_seq, .length = n_exported};
    TRY(cattn_seq_import(x->cache, exported.bytes, exported.n, NULL, &who->seq, NULL, &x->error));
    CHECK(n_ready(x, who) == who->length);
    export_to(x, who, n_exported, &again);
    CHECK(again.n == exported.n && memcmp(again.bytes, exported.bytes, again.n) == 0);
    x->n_runners++;
    x->counts[COUNT_IMPORTED]++;
}

/* ---- Events ---- */

static void happen_in_cache(run *x, const plan_event *e, const runner *who) {
    const bool is_cpu = !x->b->cuda;
    switch (e->kind) {
    case EVENT_RESERVE:
        if (who) TRY(cattn_seq_reserve(x->cache, who->seq, e->n, &x->error));
        break;
    case EVENT_PIN:
        if (who) pin(x, who, e->n);
        break;
    case EVENT_EXPORT:
        if (who && is_cpu) export(x, who, e->n);
        break;
    case EVENT_IMPORT:
        if (is_cpu) import(x);
        break;
    case EVENT_LIMIT: x->limit = e->n; break;
    case EVENT_ABORT: x->aborts_after = e->n; break;
    case EVENT_DROP: CHECK(cattn_cache_drop_retained(x->cache, &x->error) == CATTN_OK); break;
    case EVENT_READ_ERROR: the_disk.read_error = -EIO; break;
    case EVENT_STREAM:
        finish(x); /* streams must be ordered by the caller */
        if (x->b->other_stream) x->b->other_stream();
        break;
    }
}

static void happen(run *x, const plan_event *e) {
    runner *who = x->n_runners > 0 ? &x->runners[e->who % x->n_runners] : NULL;
    world_seq *is = &x->w->seqs[e->who % x->w->n_seqs];
    if (e->kind == EVENT_JOIN) {
        if (has_room(x)) join(x, is, is->n_tokens > e->n ? is->n_tokens - e->n : 1);
    } else if (e->kind > EVENT_JOIN) {
        if (!x->pages) happen_in_cache(x, e, who);
    } else if (who) {
        if (e->kind == EVENT_APPEND) append(x, who, e->n);
        if (e->kind == EVENT_FORK) fork_runner(x, who, e->n);
        if (e->kind == EVENT_TRUNCATE) truncate(x, who, e->n);
        if (e->kind == EVENT_LEAVE) leave(x, who);
    }
}

static void events_due(run *x) {
    const plan *p = x->w->plan;
    const int64_t round = x->how - p->rounds;
    for (; x->next_event < p->n_events && !x->is_expected; x->next_event++) {
        const plan_event *e = &p->events[x->next_event];
        if (e->round == round && e->at > x->step) return;
        if (e->round == round) happen(x, e);
    }
}

/* ---- What happens by itself ---- */

static void evict(run *x) {
    for (int n = rng_below(&x->r, 4); n > 0; n--) ca_budget_evict_one(x->cache->tree);
}

/* The disk works for a while, unless it has a thread. */
static void work(run *x) {
    const ca_tree *tree = x->cache->tree;
    for (size_t i = 0; i < tree->restores.n; i++)
        x->counts[COUNT_PROMPT_ENDS] += tree->restores.at[i].end < tree->restores.at[i].seq->n_tokens;
    if (!x->w->plan->shape.tier_thread)
        for (int n = rng_below(&x->r, 3); n > 0; n--) ca_tier_work(x->cache->tier);
    the_disk.read_error = 0;
}

static void disturb(run *x) {
    const int64_t checks = x->w->plan->shape.check_tree;
    if (checks && x->step % checks == 0) check_tree(x->cache->tree, x->cache->pool, &x->cache->layout);
    if (x->how->evicts && rng_chance(&x->r, (int)x->how->evicts)) evict(x);
    if (x->cache->tier) work(x);
}

/* The next sequences join. */
static void join_due(run *x) {
    for (; x->n_joined < x->w->n_seqs && has_room(x); x->n_joined++) {
        world_seq *is = &x->w->seqs[x->order[x->n_joined]];
        const int64_t at = x->w->plan->seqs[x->order[x->n_joined]].at;
        if (x->how->one_by_one && !x->is_again ? x->n_runners > 0 : at > x->step && !x->is_again) return;
        join(x, is, x->is_expected ? is->n_tokens : is->n_prompt);
    }
}

/* Append to sequences with no token left to compute, and let complete ones leave. */
static void advance(run *x) {
    for (int i = x->n_runners - 1; i >= 0; i--) {
        runner *who = &x->runners[i];
        if (n_ready(x, who) < who->length) continue;
        if (who->length < who->is->n_tokens)
            append(x, who, 1);
        else if (!x->pages || rng_chance(&x->r, 2))
            leave(x, who);
    }
}

/* Run the sequences that have not joined until all have left. */
static void run_all(run *x) {
    for (; x->n_joined < x->w->n_seqs || x->n_runners > 0; x->step++) {
        x->r = (rng){(uint64_t)x->how->own * 1000003 + (uint64_t)x->step};
        join_due(x);
        events_due(x);
        if (!x->pages) disturb(x);
        if (x->n_runners > 0) step(x);
        advance(x);
        if (x->step == MAX_STEPS) fail(x, "the sequences do not leave");
    }
}

/* ---- Rounds ---- */

/* Fill every chunk that the pool can hold with infinities and NaN, as earlier sequences could leave them. */
static void poison(cattn_cache *cache) {
    enum { MOST = 4096 };
    static ca_chunk_id ids[MOST];
    int n = 0;
    while (n < MOST && ca_chunk_pool_get(cache->pool, &ids[n]) == CATTN_OK) {
        for (int32_t layer = 0, head = -1; ca_next_tile(&cache->layout, &layer, &head);) {
            const ca_tile_at tile = ca_tile_of(&cache->layout, layer, head);
            uint16_t *data = ca_chunk_tile(cache->pool, ids[n], tile);
            for (size_t i = 0; i < tile.bytes / 2; i++) data[i] = i % 3 ? 0x7f80 : 0xffff;
        }
        n++;
    }
    while (n > 0) ca_chunk_pool_put(cache->pool, ids[--n]);
}

static void open_cache(run *x) {
    const plan_shape *p = &x->w->plan->shape;
    const ca_file_tier_hooks hooks = {.files = &the_disk.files, .no_thread = !p->tier_thread};
    if (x->heads_alone) x->config.layer_n_heads = x->w->n_kv_heads;
    if (p->tier_mb && !x->is_expected) {
        x->config.tier_dir = "anywhere";
        x->config.tier_bytes = (uint64_t)p->tier_mb << 20;
    }
    TRY(ca_cache_create(&x->config, &hooks, &x->cache, &x->error));
    CHECK(x->cache != NULL);
    if (p->poison) poison(x->cache);
}

static void open_pages(run *x) {
    const plan_shape *p = &x->w->plan->shape;
    const engine_memory memory = {x->b->alloc, x->b->free, x->b->page_gap};
    cattn_pages_config to;
    int64_t longest = 0;
    for (int i = 0; i < x->w->n_seqs; i++) longest = x->w->seqs[i].n_tokens > longest ? x->w->seqs[i].n_tokens : longest;
    cattn_pages_config_init(&to);
    to.common = x->config;
    to.page_size = (int32_t)p->pages;
    to.n_pages = (MAX_RUNNING_IN_PAGES + 1) * (int32_t)((longest + p->pages - 1) / p->pages);
    TRY(cattn_pages_create(&to, &x->pages, &x->error));
    engine_init(&x->e, x->w, &to, x->pages, (int)x->how->layout, &memory);
}

static void open_round(run *x) {
    const plan_round *how = x->how;
    x->memory.failing = (failing){how->fail ? (int)how->fail - 1 : INT_MAX, (int)how->times};
    x->config = x->w->config;
    x->config.sharing = (cattn_sharing)how->sharing;
    x->config.retention = (cattn_retention)how->retention;
    x->config.n_threads = (int32_t)how->threads;
    x->config.cuda = x->b->cuda;
    x->config.budget_bytes = x->b->budget_bytes;
    x->config.tier_fingerprint[0] = (uint64_t)x->w->plan->shape.values | 1;
    x->config.allocator = (cattn_allocator){allocate, release, &x->memory};
    if (x->b->open) x->b->open(how);
    if (x->w->plan->shape.pages && !x->is_expected)
        open_pages(x);
    else
        open_cache(x);
}

/* Change a byte in some of the cells of the file, so that their records are damaged. */
static void damage(size_t cell_bytes, rng *r) {
    for (size_t at = 0; at + cell_bytes <= the_disk.size; at += cell_bytes)
        if (rng_chance(r, 6)) the_disk.bytes[at + rng_next(r) % cell_bytes] ^= (uint8_t)(1 << rng_below(r, 8));
}

/* Nothing is in use; the tier's file stays. */
static void close_cache(run *x) {
    ca_tier *const tier = x->cache->tier;
    unpin(x);
    const cattn_stats s = stats_of(x);
    CHECK(s.n_seqs == 0 && s.tokens_referenced == 0 && s.chunks_live == 0 && s.chunks_reserved == 0);
    x->counts[COUNT_RESTORED] += (int64_t)s.tokens_restored;
    x->counts[COUNT_WRITTEN] += (int64_t)s.tier_writes;
    x->counts[COUNT_REFUSED] += (int64_t)s.tier_refused;
    x->counts[COUNT_ERRORS] += (int64_t)s.tier_errors;
    ca_tier_stats of_tier = {0};
    if (tier) ca_tier_get_stats(tier, &of_tier);
    cattn_cache_destroy(&x->cache);
    if (tier) damage(of_tier.cell_bytes, &x->r);
}

static void close_pages(run *x) {
    cattn_pages_info info = {.struct_size = sizeof info};
    CHECK(cattn_pages_get_info(x->pages, &info) == CATTN_OK);
    x->counts[COUNT_KEPT] += info.n_kept;
    cattn_pages_destroy(&x->pages);
    engine_free(&x->e);
}

/* Each sequence's order of joining is that of their steps. */
static void make_order(run *x) {
    for (int i = 0; i < x->w->n_seqs; i++) {
        int at = i;
        for (; at > 0 && x->w->plan->seqs[x->order[at - 1]].at > x->w->plan->seqs[i].at; at--) x->order[at] = x->order[at - 1];
        x->order[at] = i;
    }
}

static void run_round(world *w, const backend *b, const plan_round *how, bool is_expected, int64_t *counts) {
    static run the_run;
    run *x = &the_run;
    *x = (run){.w = w, .how = how, .b = b, .counts = counts, .is_expected = is_expected, .aborts_after = -1};
    if (is_expected && !b->cuda && !w->config.sink_logits && !w->config.alibi_slopes) x->heads_alone = true;
    make_order(x);
    open_round(x);
    run_all(x);
    if (how->again) {
        x->is_again = true;
        x->n_joined = 0;
        run_all(x);
    }
    finish(x);
    if (x->pages)
        close_pages(x);
    else
        close_cache(x);
    CHECK(x->memory.n_allocated == 0);
    counts[COUNT_FAULTY] += x->memory.failing.left < 0 || (b->allocation_failed && b->allocation_failed());
    if (b->close) b->close(how, counts);
}

void world_run(const plan *p, const backend *b, int64_t *counts) {
    static const plan_round alone = {
        .sharing = CATTN_PRIVATE, .retention = CATTN_RETAIN_NONE, .threads = 1, .piece = WHOLE, .one_by_one = true};
    static world w;
    world_make(&w, p);
    disk_init(&the_disk);
    run_round(&w, b, &alone, true, counts);
    for (int64_t i = 0; i < p->n_rounds; i++) run_round(&w, b, &p->rounds[i], false, counts);
    disk_free(&the_disk);
    exported_seq = NULL;
    world_free(&w);
}
