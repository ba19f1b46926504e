/*
 * The open step of a cache: the rows that its entries claim, the places of their K/V, K/V commands, the plan and its workspace.
 * One thread at a time may call these for a cache. Only ca_step_begin allocates.
 */
#ifndef CHUNKATTN_API_STEP_H
#define CHUNKATTN_API_STEP_H

#include "cache_handle.h"

/* Check a call of backend `of` that begins a step. */
cattn_status ca_step_check_begin(const cattn_cache *cache, const ca_backend *of, const cattn_entry *entries, int32_t n_entries,
                                 int64_t row_limit, cattn_error *error);

/* As cattn_step_begin, with checked arguments. On a device, whose stream is set, also what cattn_cuda_step_begin queues. */
cattn_status ca_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error);

/* As cattn_step_write and cattn_step_attend, for a call of backend `of`. */
cattn_status ca_step_write(cattn_cache *cache, const ca_backend *of, int32_t layer, const cattn_view *k, const cattn_view *v,
                           void *stream, cattn_error *error);
cattn_status ca_step_attend(cattn_cache *cache, const ca_backend *of, int32_t layer, const cattn_view *q, const cattn_view *out,
                            float *lse, void *stream, cattn_error *error);

/*
 * The most bytes that a step of n_rows rows of a sequence of n_tokens tokens, which is about to join others, may need
 * beside what is there. 0: there are no rows, no other sequence could leave to make room, or the budget is not for such memory.
 * No step is open.
 */
size_t ca_step_headroom(const cattn_cache *cache, int64_t n_tokens, int64_t n_rows);

/* Close the step. The claimed tokens become ready, or, if not `ready`, can be claimed again. */
void ca_step_close(cattn_cache *cache, bool ready);

/* The number of rows from `first` on that go to consecutive slots of one chunk. */
static inline int32_t ca_step_run_length(const ca_step *step, int32_t first) {
    const ca_row *rows = step->rows.at + first;
    int32_t n = 1;
    while (first + n < (int32_t)step->rows.n && rows[n].chunk == rows->chunk && rows[n].slot == rows->slot + n) n++;
    return n;
}

/* Free plan and workspace, which the last step left for the next one. No step is open. */
void ca_step_release(cattn_cache *cache);

/* Free the arrays that steps reuse. No step is open. */
void ca_step_free(cattn_cache *cache);

/* Bytes that count against the budget now; ca_cache_note_bytes updates the peak. */
uint64_t ca_cache_bytes(const cattn_cache *cache);
void ca_cache_note_bytes(cattn_cache *cache);

#endif
