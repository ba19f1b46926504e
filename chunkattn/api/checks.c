/* Checks of arguments: see checks.h. */
#include "checks.h"

#include "chunkattn/base/fail.h"

cattn_status ca_check_at_least(const char *name, int64_t n, int64_t least, cattn_error *error) {
    if (n >= least) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is %lld; it must be at least %lld", name, (long long)n, (long long)least);
}

cattn_status ca_check_closed(const cattn_cache *c, cattn_error *error) {
    return c->step.open ? ca_fail(error, CATTN_ERR_STATE, -1, "a step is open; end or abort it first") : CATTN_OK;
}

const char *ca_seq_fault(const cattn_cache *c, cattn_seq id) {
    if (id == 0) return "no sequence";
    return ca_tree_has_made(c->tree, id) ? "no running sequence of this cache; it has left" : "a sequence of another cache";
}

/* ---- A view ---- */

/* A stride over a single element is not checked. */
static cattn_status check_stride(const char *name, const char *field, int64_t stride, int64_t n, int32_t dim,
                                 cattn_error *error) {
    if (n <= 1 || stride >= dim) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s->%s is %lld; it must be at least the head size, %d", name, field,
                   (long long)stride, dim);
}

static cattn_status check_data(const char *name, const void *data, size_t size, cattn_error *error) {
    if ((uintptr_t)data % size == 0) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s is at %p; it must be a multiple of the %zu bytes of its elements", name, data,
                   size);
}

cattn_status ca_check_view(const ca_compute *compute, const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads,
                           int32_t dim, cattn_error *error) {
    cattn_status s;
    if (n_rows == 0) return CATTN_OK;
    if (!view || !view->data) return ca_fail(error, CATTN_ERR_ARG, -1, "%s is NULL", name);
    if (view->type != CATTN_F32 && view->type != CATTN_F16 && view->type != CATTN_BF16)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "%s->type is %d; it must be CATTN_F32, CATTN_F16 or CATTN_BF16", name,
                       view->type);
    if ((s = check_stride(name, "row_stride", view->row_stride, n_rows, dim, error)) ||
        (s = check_stride(name, "head_stride", view->head_stride, n_heads, dim, error)) ||
        (s = check_data(name, view->data, ca_type_size(view->type), error)))
        return s;
    const ca_backend *b = compute->backend;
    return b->check_alignment ? b->check_alignment(name, view, n_rows, n_heads, error) : CATTN_OK;
}

/* ---- Views that must not overlap ---- */

/*
 * The bytes of a view: `bytes` each time, n[0] times at distances of stride[0] bytes, and all of these n[1] times at distances
 * of stride[1] >= stride[0] bytes.
 */
typedef struct extent {
    const char *at;
    int64_t bytes, n[2], stride[2];
} extent;

static extent extent_of(const cattn_view *view, int64_t n_rows, int32_t n_heads, int32_t dim) {
    const int64_t size = (int64_t)ca_type_size(view->type);
    const int64_t row = n_rows > 1 ? view->row_stride * size : 0, head = n_heads > 1 ? view->head_stride * size : 0;
    if (n_heads == 1 || row >= head) return (extent){view->data, dim * size, {n_heads, n_rows}, {head, row}};
    return (extent){view->data, dim * size, {n_rows, n_heads}, {row, head}};
}

/* Bytes from the first one of a run of the inner dimension to behind its last, and the same of all. */
static int64_t inner_bytes(const extent *e) { return (e->n[0] - 1) * e->stride[0] + e->bytes; }
static int64_t all_bytes(const extent *e) { return (e->n[1] - 1) * e->stride[1] + inner_bytes(e); }

/* Whether the runs of the inner dimension follow one another, so that no byte is in two of them. */
static bool is_nested(const extent *e) { return e->n[1] == 1 || e->stride[1] >= inner_bytes(e); }

/* The last of n places at distances of `stride` that is not behind `offset`; 0 if all of them are. */
static int64_t last_before(int64_t offset, int64_t stride, int64_t n) {
    const int64_t i = offset <= 0 || stride == 0 ? 0 : offset / stride;
    return i < n ? i : n - 1;
}

/* Whether a nested extent has one of the bytes from `from` to `to`. Only the last element before `to` may have one. */
static bool has_byte(const extent *e, const char *from, const char *to) {
    const int64_t end = to - e->at - 1, outer = last_before(end, e->stride[1], e->n[1]) * e->stride[1];
    const int64_t at = outer + last_before(end - outer, e->stride[0], e->n[0]) * e->stride[0];
    return at <= end && e->at + at + e->bytes > from;
}

/* Whether the runs of both lie side by side at the same distances, as tensors do that are parts of each row of a larger one. */
static bool are_side_by_side(const extent *a, const extent *b) {
    const int64_t stride = a->stride[1], offset = stride > 0 ? (b->at - a->at) % stride : 0;
    const int64_t behind = offset < 0 ? offset + stride : offset;
    return stride == b->stride[1] && behind >= inner_bytes(a) && behind + inner_bytes(b) <= stride;
}

/* Whether two extents, of which b is nested, have a byte in common. */
static bool overlap(const extent *a, const extent *b) {
    if (a->at + all_bytes(a) <= b->at || b->at + all_bytes(b) <= a->at || are_side_by_side(a, b)) return false;
    for (int64_t i = 0; i < a->n[1]; i++)
        for (int64_t j = 0; j < a->n[0]; j++) {
            const char *at = a->at + i * a->stride[1] + j * a->stride[0];
            if (has_byte(b, at, at + a->bytes)) return true;
        }
    return false;
}

static cattn_status refuse_overlap(const char *a, const char *b, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s overlaps %s; they must have no byte in common", a, b);
}

cattn_status ca_check_attend_views(const ca_compute *compute, const ca_shape *shape, const cattn_view *q, const cattn_view *out,
                                   const float *lse, int64_t n_rows, cattn_error *error) {
    const int32_t n_heads = shape->n_heads;
    const ca_layout *l = &shape->tiles;
    cattn_status s;
    if (n_rows == 0) return CATTN_OK;
    if ((s = ca_check_view(compute, "q", q, n_rows, n_heads, l->d_k, error)) ||
        (s = ca_check_view(compute, "out", out, n_rows, n_heads, l->d_v, error)) ||
        (s = check_data("lse", lse, sizeof *lse, error)))
        return s;
    const extent read = extent_of(q, n_rows, n_heads, l->d_k), written = extent_of(out, n_rows, n_heads, l->d_v),
                 sums = {(const char *)lse, n_rows * n_heads * (int64_t)sizeof *lse, {1, 1}, {0, 0}};
    if (!is_nested(&written))
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "out overlaps itself or interleaves rows with heads: row_stride is %lld and head_stride %lld elements, "
                       "for %lld rows of %d heads of %d",
                       (long long)out->row_stride, (long long)out->head_stride, (long long)n_rows, n_heads, l->d_v);
    if (overlap(&read, &written)) return refuse_overlap("out", "q", error);
    if (lse && overlap(&sums, &written)) return refuse_overlap("lse", "out", error);
    return lse && overlap(&read, &sums) ? refuse_overlap("lse", "q", error) : CATTN_OK;
}
