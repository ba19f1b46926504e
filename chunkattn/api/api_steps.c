/* The public functions of steps. */
#include "backends.h"
#include "checks.h"
#include "chunkattn/base/fail.h"
#include "public_struct.h"
#include "step.h"

static cattn_status check_open(const cattn_cache *c, cattn_error *error) {
    return c->step.open ? CATTN_OK : ca_fail(error, CATTN_ERR_STATE, -1, "no step is open; call cattn_step_begin first");
}

static cattn_status check_layer(const cattn_cache *c, int32_t layer, cattn_error *error) {
    cattn_status s = check_open(c, error);
    if (s || (layer >= 0 && layer < c->layout.n_layers)) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d; it must be from 0 to %d", layer, c->layout.n_layers - 1);
}

static cattn_status check_stores(const cattn_cache *c, int32_t layer, cattn_error *error) {
    if (ca_layer_stores(&c->layout, layer)) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d, which has the K and V of its kv_source, %d; write those alone",
                   layer, c->layout.layers[layer].source);
}

/* Whether the open step has K and V of its rows for a layer. */
static cattn_status check_written(const cattn_cache *c, int32_t of, cattn_error *error) {
    const ca_backend *b = c->compute.backend;
    const int32_t layer = c->layout.layers[of].source;
    if (c->step.rows.n == 0 || !b->has_written || b->has_written(c, layer)) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_STATE, -1,
                   "layer %d was not written in this step of %zu rows; call cattn_step_write for it, or cattn_step_abort",
                   layer, c->step.rows.n);
}

cattn_status ca_step_check_begin(const cattn_cache *c, const ca_backend *of, const cattn_entry *entries, int32_t n_entries,
                                 int64_t row_limit, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "begin", error)) || (s = ca_check_closed(c, error)) ||
        (s = ca_check_at_least("n_entries", n_entries, 1, error)) || (s = ca_need(entries, "entries", error)))
        return s;
    return ca_check_at_least("row_limit", row_limit, 0, error);
}

cattn_status ca_step_write(cattn_cache *c, const ca_backend *of, int32_t layer, const cattn_view *k, const cattn_view *v,
                           void *stream, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "write", error)) || (s = check_layer(c, layer, error)) ||
        (s = check_stores(c, layer, error)))
        return s;
    const int64_t n_rows = (int64_t)c->step.rows.n;
    const ca_shape *shape = ca_shape_of(&c->layout, layer);
    if ((s = ca_check_view(&c->compute, "k", k, n_rows, shape->n_kv_heads, shape->tiles.d_k, error)) ||
        (s = ca_check_view(&c->compute, "v", v, n_rows, shape->n_kv_heads, shape->tiles.d_v, error)))
        return s;
    return n_rows > 0 ? of->write(c, layer, k, v, stream, error) : CATTN_OK;
}

cattn_status ca_step_attend(cattn_cache *c, const ca_backend *of, int32_t layer, const cattn_view *q, const cattn_view *out,
                            float *lse, void *stream, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s;
    if ((s = ca_check_step_call(c, of, "attend", error)) || (s = check_layer(c, layer, error)) ||
        (s = check_written(c, layer, error)))
        return s;
    const int64_t n_rows = (int64_t)c->step.rows.n;
    if ((s = ca_check_attend_views(&c->compute, ca_shape_of(&c->layout, layer), q, out, lse, n_rows, error))) return s;
    return n_rows > 0 ? of->attend(c, layer, q, out, lse, stream, error) : CATTN_OK;
}

cattn_status cattn_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_status s = ca_step_check_begin(c, &ca_backend_cpu, entries, n_entries, row_limit, error);
    return s ? s : ca_step_begin(c, entries, n_entries, row_limit, error);
}

/* Describe the rows of an entry. */
static void describe_rows(const cattn_cache *c, int32_t entry, const cattn_rows *rows) {
    const ca_plan_entry *e = &c->step.entries.at[entry];
    const int64_t end = e->seq->n_tokens;
    if (rows->tokens && e->n_rows > 0) ca_tree_tokens(c->tree, e->seq, e->first_pos, e->n_rows, rows->tokens + e->row);
    for (int32_t i = 0; i < e->n_rows; i++) {
        const int64_t row = e->row + i, position = e->first_pos + i;
        if (rows->positions) rows->positions[row] = position;
        if (rows->entries) rows->entries[row] = entry;
        if (rows->is_last) rows->is_last[row] = position + 1 == end;
    }
}

cattn_status cattn_step_rows(const cattn_cache *c, cattn_rows *rows, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_rows r = {0};
    cattn_status s;
    if ((s = ca_need(rows, "rows", error)) || (s = CA_STRUCT_READ(cattn_rows, is_last, &r, rows, error)) ||
        (s = check_open(c, error)))
        return s;
    rows->n_rows = (int64_t)c->step.rows.n;
    if (r.capacity < rows->n_rows)
        return ca_fail(error, CATTN_ERR_ARG, -1, "rows->capacity is %lld; the step has %lld rows", (long long)r.capacity,
                       (long long)rows->n_rows);
    for (size_t i = 0; i < c->step.entries.n; i++) describe_rows(c, (int32_t)i, &r);
    return CATTN_OK;
}

cattn_status cattn_step_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v, cattn_error *error) {
    return ca_step_write(c, &ca_backend_cpu, layer, k, v, NULL, error);
}

cattn_status cattn_step_attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                               cattn_error *error) {
    return ca_step_attend(c, &ca_backend_cpu, layer, q, out, lse, NULL, error);
}

cattn_status cattn_step_end(cattn_cache *c, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s = check_open(c, error);
    for (int32_t layer = 0; s == CATTN_OK && layer < c->layout.n_layers; layer++) s = check_written(c, layer, error);
    if (s == CATTN_OK) ca_step_close(c, true);
    return s;
}

cattn_status cattn_step_abort(cattn_cache *c, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_status s = check_open(c, error);
    if (s == CATTN_OK) ca_step_close(c, false);
    return s;
}
