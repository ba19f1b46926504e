/* Checks of arguments that several public calls have in common. */
#ifndef CHUNKATTN_API_CHECKS_H
#define CHUNKATTN_API_CHECKS_H

#include "cache_handle.h"

/* CATTN_ERR_ARG if n is less than `least`; `name` is the argument's. */
cattn_status ca_check_at_least(const char *name, int64_t n, int64_t least, cattn_error *error);

/* CATTN_ERR_STATE if a step is open. */
cattn_status ca_check_closed(const cattn_cache *cache, cattn_error *error);

/* Of a sequence that does not run: what it is, for messages. */
const char *ca_seq_fault(const cattn_cache *cache, cattn_seq id);

/*
 * Check a view of n_rows rows: its type, its strides, and that its data are aligned as its elements and as the backend
 * requires; `name` is the argument's, for messages. Without rows any view will do, also NULL.
 */
cattn_status ca_check_view(const ca_compute *compute, const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads,
                           int32_t dim, cattn_error *error);

/*
 * Check the views that an attend reads and writes, q and out, and lse [n_rows][n_heads], which may be NULL: each of them, and
 * that nothing that is written is also read or written twice.
 */
cattn_status ca_check_attend_views(const ca_compute *compute, const ca_shape *shape, const cattn_view *q, const cattn_view *out,
                                   const float *lse, int64_t n_rows, cattn_error *error);

#endif
