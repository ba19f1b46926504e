/*
 * Calls of chunkattn_pages.h, chosen by the input's bytes, on a batch that changes from plan to plan. Each plan is compared
 * with the rules for batches, and its attention with plain sums and, bit by bit, with that of a new handle.
 */
#define CATTN_EXPERIMENTAL

#include "fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "chunkattn_pages.h"

enum { DIM = 32, HEADS = 2, KV_HEADS = 1, MAX_PAGES = 12, MAX_PAGE = 32, MAX_SEQS = 6, MAX_TABLE = 10, MAX_CALLS = 40 };

typedef struct paged_seq {
    int32_t n_tokens, n_rows;
    int32_t ids[MAX_TABLE];
} paged_seq;

static struct world {
    fuzz_bytes in;
    fuzz_memory memory, other_memory;
    cattn_pages_config config;
    cattn_pages *pages;
    float kv[2 * MAX_PAGES * MAX_PAGE * KV_HEADS * DIM];
    paged_seq seqs[MAX_SEQS], planned[MAX_SEQS]; /* of the next plan and of the last one */
    int n_seqs, n_planned;
    bool has_plan;
    cattn_error error;
} w;

static void run_tasks(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    (void)ctx;
    for (int32_t i = n_tasks; i-- > 0;) fn(arg, i, i % w.config.common.n_threads);
}

/* ---- Batches ---- */

static void do_resize(void) {
    const int n = fuzz_below(&w.in, MAX_SEQS + 1);
    for (int i = w.n_seqs; i < n; i++)
        w.seqs[i] = i > 0 ? w.seqs[fuzz_below(&w.in, i)] : (paged_seq){.n_tokens = 1, .n_rows = 1};
    w.n_seqs = n;
}

static void do_table(void) {
    paged_seq *s = &w.seqs[fuzz_below(&w.in, MAX_SEQS)];
    const int kind = fuzz_byte(&w.in);
    int32_t *id = &s->ids[fuzz_below(&w.in, MAX_TABLE)];
    *id = kind < 250 ? kind % MAX_PAGES : kind == 251 ? INT32_MAX : kind == 252 ? INT32_MIN : kind - 253;
}

static void do_length(void) {
    paged_seq *s = &w.seqs[fuzz_below(&w.in, MAX_SEQS)];
    const int kind = fuzz_byte(&w.in);
    s->n_tokens = kind < 252 ? fuzz_below(&w.in, MAX_TABLE * w.config.page_size + 3) : kind == 253 ? INT32_MAX : -1;
}

static void do_rows(void) {
    const int kind = fuzz_byte(&w.in);
    w.seqs[fuzz_below(&w.in, MAX_SEQS)].n_rows = kind < 252 ? kind % 12 : -1;
}

static void do_swap(void) {
    paged_seq *a = &w.seqs[fuzz_below(&w.in, MAX_SEQS)], *b = &w.seqs[fuzz_below(&w.in, MAX_SEQS)];
    const paged_seq s = *a;
    *a = *b;
    *b = s;
}

static bool is_wrong(const paged_seq *s) {
    if (s->n_tokens < 0 || s->n_tokens > MAX_TABLE * w.config.page_size || s->n_rows < 0 || s->n_rows > s->n_tokens)
        return true;
    const int n = (s->n_tokens + w.config.page_size - 1) / w.config.page_size;
    for (int i = 0; i < n; i++)
        if (s->ids[i] < 0 || s->ids[i] >= MAX_PAGES) return true;
    return false;
}

static int64_t sum_rows(const paged_seq *seqs, int n) {
    int64_t rows = 0;
    for (int i = 0; i < n; i++) rows += seqs[i].n_rows;
    return rows;
}

/* Plan seqs [n]; arrays have their exact sizes. With `indptr` the tables lie one behind the other, without their last entries.
 */
static cattn_status plan(cattn_pages *pages, const paged_seq *seqs, int n, bool indptr) {
    int32_t *ids = malloc(((size_t)n * MAX_TABLE + 1) * sizeof *ids), *lens = malloc(((size_t)n + 1) * sizeof *lens);
    int32_t *rows = malloc(((size_t)n + 1) * sizeof *rows), *starts = malloc(((size_t)n + 1) * sizeof *starts);
    rows[0] = starts[0] = 0;
    for (int i = 0; i < n; i++) {
        int64_t used = indptr && seqs[i].n_tokens > 0
                           ? ((int64_t)seqs[i].n_tokens + w.config.page_size - 1) / w.config.page_size
                           : MAX_TABLE;
        if (used > MAX_TABLE) used = MAX_TABLE;
        memcpy(ids + starts[i], seqs[i].ids, (size_t)used * sizeof *ids);
        lens[i] = seqs[i].n_tokens;
        rows[i + 1] = rows[i] + seqs[i].n_rows;
        starts[i + 1] = starts[i] + (int32_t)used;
    }
    const size_t n_ids = (size_t)starts[n];
    int32_t *exact = malloc(n_ids ? n_ids * sizeof *ids : 1);
    memcpy(exact, ids, n_ids * sizeof *ids);
    const cattn_pages_batch batch = {.struct_size = sizeof batch,
                                     .n_seqs = n,
                                     .page_ids = exact,
                                     .page_stride = indptr ? 0 : MAX_TABLE,
                                     .page_indptr = indptr ? starts : NULL,
                                     .seq_lens = lens,
                                     .query_indptr = rows};
    const cattn_status status = cattn_pages_plan(pages, &batch, &w.error);
    free(ids), free(exact), free(lens), free(rows), free(starts);
    return status;
}

/* ---- Attention ---- */

static float element(int64_t row, int i) { return (float)((row * 37 + i * 11) % 17) / 8 - 1; }

static void attend(cattn_pages *pages, int64_t n_rows, float *out, float *lse) {
    const size_t n = (size_t)n_rows * HEADS * DIM;
    float *q = malloc(n ? n * sizeof *q : 1);
    for (size_t i = 0; i < n; i++) q[i] = element((int64_t)(i / (HEADS * DIM)), (int)(i % (HEADS * DIM)));
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    cattn_page_view k, v;
    FUZZ_CHECK(cattn_pages_views(pages, 0, CATTN_PAGES_VLLM, w.kv, MAX_PAGES, &k, &v, &w.error) == CATTN_OK, "%s",
               w.error.message);
    FUZZ_CHECK(cattn_pages_attend(pages, 0, &k, &v, &q_view, &out_view, lse, &w.error) == CATTN_OK, "%s", w.error.message);
    free(q);
}

static const float *slot(const paged_seq *s, int64_t position, int of_v) {
    const int64_t page = s->ids[position / w.config.page_size] + of_v * MAX_PAGES;
    return w.kv + (page * w.config.page_size + position % w.config.page_size) * DIM;
}

static void check_row(const paged_seq *s, int64_t row, int64_t position, const float *out) {
    for (int head = 0; head < HEADS; head++) {
        double expected[DIM] = {0}, sum = 0;
        for (int64_t p = 0; p <= position; p++) {
            double score = 0;
            for (int i = 0; i < DIM; i++) score += (double)element(row, head * DIM + i) * (double)slot(s, p, 0)[i];
            const double weight = exp(score / sqrt(DIM));
            sum += weight;
            for (int i = 0; i < DIM; i++) expected[i] += weight * (double)slot(s, p, 1)[i];
        }
        for (int i = 0; i < DIM; i++)
            FUZZ_CHECK(fabs((double)out[head * DIM + i] - expected[i] / sum) < 1e-4, "row %d, position %d: %g, not %g",
                       (int)row, (int)position, (double)out[head * DIM + i], expected[i] / sum);
    }
}

static void check_attention(const float *out) {
    int64_t row = 0;
    for (int i = 0; i < w.n_planned; i++)
        for (int r = 0; r < w.planned[i].n_rows; r++, row++)
            check_row(&w.planned[i], row, w.planned[i].n_tokens - w.planned[i].n_rows + r, out + row * HEADS * DIM);
}

static void do_attend(void) {
    const int64_t n_rows = sum_rows(w.planned, w.n_planned);
    const size_t n = (size_t)n_rows * HEADS;
    if (!w.has_plan) {
        FUZZ_CHECK(cattn_pages_attend(w.pages, 0, NULL, NULL, NULL, NULL, NULL, &w.error) == CATTN_ERR_STATE, "no plan");
        return;
    }
    float *out = malloc(n * (DIM + 1) * sizeof *out + 1), *again = malloc(n * (DIM + 1) * sizeof *again + 1);
    attend(w.pages, n_rows, out, out + n * DIM);
    check_attention(out);
    cattn_pages_config config = w.config;
    config.common.allocator.ctx = &w.other_memory;
    cattn_pages *other = NULL;
    FUZZ_CHECK(cattn_pages_create(&config, &other, &w.error) == CATTN_OK, "%s", w.error.message);
    FUZZ_CHECK(plan(other, w.planned, w.n_planned, true) == CATTN_OK, "%s", w.error.message);
    attend(other, n_rows, again, again + n * DIM);
    FUZZ_CHECK(memcmp(out, again, n * (DIM + 1) * sizeof *out) == 0, "a new handle gives other bits");
    cattn_pages_destroy(&other);
    free(out), free(again);
}

static void do_plan(void) {
    const bool indptr = fuzz_below(&w.in, 2);
    bool wrong = false;
    for (int i = 0; i < w.n_seqs; i++) wrong |= is_wrong(&w.seqs[i]);
    const cattn_status status = plan(w.pages, w.seqs, w.n_seqs, indptr);
    FUZZ_CHECK((status == CATTN_ERR_ARG) == wrong || status == CATTN_ERR_NOMEM, "%s: %s", cattn_status_name(status),
               w.error.message);
    if (status == CATTN_ERR_NOMEM) {
        FUZZ_CHECK(w.memory.n_until_failure == 0, "%s", w.error.message);
        w.memory.n_until_failure = -1;
        w.has_plan = false;
        if (plan(w.pages, w.planned, 0, indptr) == CATTN_OK) w.has_plan = true, w.n_planned = 0;
    }
    if (status != CATTN_OK) return;
    memcpy(w.planned, w.seqs, sizeof w.seqs);
    w.n_planned = w.n_seqs;
    w.has_plan = true;
    cattn_pages_info info = {.struct_size = sizeof info};
    FUZZ_CHECK(cattn_pages_get_info(w.pages, &info) == CATTN_OK && info.n_rows == sum_rows(w.planned, w.n_planned), "rows");
    FUZZ_CHECK(info.pages_read <= info.pages_referenced && info.n_kept <= info.n_plans, "pages");
}

static void do_plan_and_attend(void) {
    do_plan();
    do_attend();
}

/* A batch of any bytes, as far as its arrays' sizes allow. */
static void do_wrong(void) {
    struct {
        cattn_pages_batch known;
        uint8_t unknown[256]; /* fields of a newer version, which are zero */
    } longer = {.known.struct_size = fuzz_below(&w.in, 4) ? sizeof(cattn_pages_batch) : fuzz_byte(&w.in)};
    cattn_pages_batch *batch = &longer.known;
    batch->n_seqs = fuzz_below(&w.in, 3) - 1;
    int32_t ids[2 * MAX_TABLE] = {0}, lens[2] = {1, 1}, indptr[3], rows[3];
    for (int i = 0; i < 3; i++) indptr[i] = fuzz_below(&w.in, MAX_TABLE + 2) - 1, rows[i] = fuzz_below(&w.in, 4) - 1;
    const int which = fuzz_byte(&w.in);
    if (which & 1) batch->page_ids = ids;
    if (which & 2) batch->page_stride = MAX_TABLE;
    if (which & 4) batch->page_indptr = indptr;
    if (which & 8) batch->seq_lens = lens;
    if (which & 16) batch->last_page_lens = lens;
    if (which & 32) batch->query_indptr = rows;
    if (which & 64) lens[0] = fuzz_below(&w.in, 40) - 1;
    if (cattn_pages_plan(w.pages, batch, &w.error) == CATTN_OK) w.has_plan = false, w.n_planned = 0;
    if (!w.has_plan && plan(w.pages, w.planned, 0, false) == CATTN_OK) w.has_plan = true;
}

static void do_fail(void) { w.memory.n_until_failure = fuzz_below(&w.in, 6) - 1; }

static void (*const calls[])(void) = {do_resize, do_table, do_table,  do_length,          do_length, do_rows,
                                      do_swap,   do_plan,  do_attend, do_plan_and_attend, do_wrong,  do_fail};
enum { N_CALLS = sizeof calls / sizeof *calls };

static bool create(void) {
    const int shape = fuzz_byte(&w.in);
    cattn_pages_config_init(&w.config);
    w.config.common.n_heads = HEADS, w.config.common.n_kv_heads = KV_HEADS, w.config.common.head_dim = DIM;
    w.config.page_size = shape & 1 ? 16 : MAX_PAGE;
    w.config.n_pages = MAX_PAGES;
    w.config.common.kv_type = CATTN_F32;
    w.config.common.sharing = (cattn_sharing)((shape >> 1) % 3);
    w.config.common.level = cattn_level_name(shape >> 4);
    w.config.common.n_threads = 1 + (shape >> 3 & 1);
    w.config.common.allocator = (cattn_allocator){fuzz_alloc, fuzz_free, &w.memory};
    w.config.common.parallel = (cattn_parallel){run_tasks, NULL};
    w.memory.n_until_failure = fuzz_below(&w.in, 64) - 1;
    w.other_memory.n_until_failure = -1;
    if (w.memory.n_until_failure > 30) w.memory.n_until_failure = -1;
    for (size_t i = 0; i < sizeof w.kv / sizeof *w.kv; i++) w.kv[i] = (float)((i * 2654435761u >> 7) % 33) / 16 - 1;
    const cattn_status status = cattn_pages_create(&w.config, &w.pages, &w.error);
    FUZZ_CHECK((status == CATTN_OK) == (w.pages != NULL), "create");
    return status == CATTN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&w, 0, sizeof w);
    w.in = (fuzz_bytes){data, data + size};
    if (create())
        for (int i = 0; i < MAX_CALLS && w.in.at < w.in.end; i++) calls[fuzz_below(&w.in, N_CALLS)]();
    cattn_pages_destroy(&w.pages);
    FUZZ_CHECK(w.memory.n == 0 && w.memory.bytes == 0 && w.other_memory.n == 0, "%zu allocations remain", w.memory.n);
    return 0;
}
