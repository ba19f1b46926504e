/* Reading a batch of block tables, in either form, and checking it before anything is planned. */
#include "backends.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/pages/handle.h"
#include "public_struct.h"

static cattn_status missing(const char *field, const char *instead, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_ARG, -1, "batch->%s is NULL; set it%s", field, instead);
}

static cattn_status check_arrays(const cattn_pages_batch *b, cattn_error *error) {
    if (b->n_seqs < 0) return ca_fail(error, CATTN_ERR_ARG, -1, "batch->n_seqs is %d; it must not be negative", b->n_seqs);
    if (b->n_seqs == 0) return CATTN_OK;
    if (!b->page_ids) return missing("page_ids", "", error);
    if (!b->seq_lens && !b->last_page_lens) return missing("seq_lens", ", or last_page_lens", error);
    if (b->seq_lens && b->last_page_lens)
        return ca_fail(error, CATTN_ERR_ARG, -1, "batch has both seq_lens and last_page_lens; set one of them");
    if (b->last_page_lens && !b->page_indptr) return missing("page_indptr", ", or seq_lens instead of last_page_lens", error);
    if (!b->page_indptr && b->page_stride < 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "batch->page_stride is %lld; it must not be negative",
                       (long long)b->page_stride);
    return CATTN_OK;
}

/* Check that entry i + 1 of an indptr does not lie before entry i, and that none is negative. */
static cattn_status check_indptr(const char *field, const int32_t *indptr, int32_t i, cattn_error *error) {
    if (!indptr || (indptr[i] >= 0 && indptr[i + 1] >= indptr[i])) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, i, "batch->%s goes from %d to %d at sequence %d; it must ascend from 0 or more", field,
                   indptr[i], indptr[i + 1], i);
}

/* Pages in a sequence's table. */
static int64_t table_pages(const cattn_pages_batch *b, int32_t i) {
    return b->page_indptr ? b->page_indptr[i + 1] - b->page_indptr[i] : b->page_stride;
}

/* Tokens of a sequence. */
static cattn_status read_length(const cattn_pages *p, const cattn_pages_batch *b, int32_t i, int64_t *length,
                                cattn_error *error) {
    const int64_t c = INT64_C(1) << p->plan.log2_page, n_pages = table_pages(b, i);
    if (b->last_page_lens) {
        const int32_t last = b->last_page_lens[i];
        if (n_pages > 0 && (last < 1 || last > c))
            return ca_fail(error, CATTN_ERR_ARG, i, "last_page_lens[%d] is %d; it must be from 1 to page_size, %lld", i, last,
                           (long long)c);
        *length = n_pages > 0 ? (n_pages - 1) * c + last : 0;
    } else {
        *length = b->seq_lens[i];
    }
    if (*length < 0 || *length > p->most_tokens)
        return ca_fail(error, CATTN_ERR_ARG, i, "sequence %d has %lld tokens; it must be from 0 to %d", i, (long long)*length,
                       p->most_tokens);
    if ((*length + c - 1) / c > n_pages)
        return ca_fail(error, CATTN_ERR_ARG, i, "sequence %d has %lld tokens, but its table has %lld pages of %lld; add pages",
                       i, (long long)*length, (long long)n_pages, (long long)c);
    return CATTN_OK;
}

static cattn_status check_ids(const cattn_pages *p, const ca_page_seq *s, int32_t i, cattn_error *error) {
    const uint32_t limit = (uint32_t)p->most_ids;
    uint32_t largest = 0;
    for (int32_t j = 0; j < s->n_pages; j++) largest = (uint32_t)s->ids[j] > largest ? (uint32_t)s->ids[j] : largest;
    if (largest < limit) return CATTN_OK;
    int32_t j = 0;
    while ((uint32_t)s->ids[j] < limit) j++;
    return ca_fail(error, CATTN_ERR_ARG, i, "page %d of sequence %d has the id %d; it must be from 0 to %u", j, i, s->ids[j],
                   limit - 1);
}

/* Read sequence i, whose first row is row `row` of the caller. */
static cattn_status read_seq(const cattn_pages *p, const cattn_pages_batch *b, int32_t i, int64_t row, ca_page_seq *s,
                             cattn_error *error) {
    int64_t length;
    cattn_status status;
    if ((status = check_indptr("page_indptr", b->page_indptr, i, error)) ||
        (status = check_indptr("query_indptr", b->query_indptr, i, error)) || (status = read_length(p, b, i, &length, error)))
        return status;
    const int32_t n_rows = b->query_indptr ? b->query_indptr[i + 1] - b->query_indptr[i] : 1;
    if (n_rows > length)
        return ca_fail(error, CATTN_ERR_ARG, i, "sequence %d has %d rows but %lld tokens; its rows are among its tokens", i,
                       n_rows, (long long)length);
    if (row + n_rows > INT32_MAX)
        return ca_fail(error, CATTN_ERR_ARG, i, "the batch has more than %d rows; divide it into several", INT32_MAX);
    *s = (ca_page_seq){.ids = b->page_ids + (b->page_indptr ? b->page_indptr[i] : i * b->page_stride),
                       .n_pages = (int32_t)((length + (1 << p->plan.log2_page) - 1) >> p->plan.log2_page),
                       .first_pos = (int32_t)length - n_rows,
                       .n_rows = n_rows,
                       .row = (int32_t)row};
    return check_ids(p, s, i, error);
}

cattn_status ca_pages_read_batch(cattn_pages *p, const ca_backend *of, const cattn_pages_batch *batch, int64_t *n_rows,
                                 cattn_error *error) {
    cattn_pages_batch b = {0};
    cattn_status s;
    if ((s = ca_check_pages_call(p, of, "plan", error)) || (s = ca_need(batch, "batch", error))) return s;
    if ((s = CA_STRUCT_READ(cattn_pages_batch, query_indptr, &b, batch, error)) || (s = check_arrays(&b, error))) return s;
    if (CA_RESERVE(&p->alloc, &p->seqs, (size_t)b.n_seqs))
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for %d sequences", b.n_seqs);
    *n_rows = 0;
    for (int32_t i = 0; i < b.n_seqs; i++) {
        if ((s = read_seq(p, &b, i, *n_rows, &p->seqs.at[i], error))) return s;
        *n_rows += p->seqs.at[i].n_rows;
    }
    p->seqs.n = (size_t)b.n_seqs;
    return CATTN_OK;
}
