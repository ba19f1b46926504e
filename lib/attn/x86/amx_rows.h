/*
 * Part of a tile's rows: level amx takes them in passes of as many as go into tile registers at once, whose scores and sums
 * stay in the first-level cache. Before including, a level includes weigh.h and defines query_bytes.
 */
#ifndef LIB_ATTN_X86_AMX_ROWS_H
#define LIB_ATTN_X86_AMX_ROWS_H

/* Rows [row, row + n) of a tile as one of their own, whose options are kept in *options. */
static inline ca_tile rows_of(const ca_tile *t, int32_t row, int32_t n, ca_tile_options *options) {
    ca_tile rows = *t;
    rows.n_rows = n;
    rows.q = (const char *)t->q + (size_t)row * query_bytes(t->d_k);
    rows.state = state_at(t, row);
    if (t->n_seen) rows.n_seen = t->n_seen + row;
    if (!t->options) return rows;
    *options = *t->options;
    if (options->slopes) options->slopes += row;
    if (options->distances) options->distances += row;
    if (options->n_hidden) options->n_hidden += row;
    rows.options = options;
    return rows;
}

#endif
