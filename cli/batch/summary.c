/* Prints and writes what an offline job did. */
#include "summary.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static uint64_t kv_bytes_peak(const cattn_stats *kv) { return kv->chunks_live_peak * kv->chunk_bytes; }
static uint64_t kv_bytes_unshared(const cattn_stats *kv) { return kv->chunks_unshared_peak * kv->chunk_bytes; }
static double per_second(int64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

void summary_print(const batch_summary *summary) {
    const cl_engine_stats *s = &summary->stats;
    const cattn_stats *kv = &summary->kv_stats;
    if (summary->n_kept > 0) fprintf(stderr, "kept       %zu records that were there\n", summary->n_kept);
    fprintf(stderr,
            "requests   %zu in %.2f s, %zu failed\n"
            "prefill    %" PRId64 " of %" PRId64 " prompt tokens computed in %.2f s: %.1f tokens/s\n"
            "decode     %" PRId64 " tokens in %.2f s: %.1f tokens/s\n"
            "drafts     %" PRId64 " of %" PRId64 " drafted tokens accepted\n"
            "K/V peak   %.1f MB; unshared it would be %.1f MB\n",
            summary->n_requests, summary->total_s, summary->n_failed, s->prefill_tokens_computed, s->prompt_tokens,
            s->prefill_s, per_second(s->prefill_tokens_computed, s->prefill_s), s->completion_tokens, s->decode_s,
            per_second(s->completion_tokens, s->decode_s), s->drafts.n_accepted, s->drafts.n_tokens,
            (double)kv_bytes_peak(kv) / 1e6, (double)kv_bytes_unshared(kv) / 1e6);
}

cl_status summary_write(const batch_summary *summary, const char *path, cl_error *error) {
    const cl_engine_stats *s = &summary->stats;
    const cattn_stats *kv = &summary->kv_stats;
    json_t *object = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "prefill_tokens_computed",
                               (json_int_t)s->prefill_tokens_computed, "prompt_tokens", (json_int_t)s->prompt_tokens,
                               "completion_tokens", (json_int_t)s->completion_tokens, "prefill_s", s->prefill_s, "decode_s",
                               s->decode_s, "total_s", summary->total_s, "kv_bytes_peak", (json_int_t)kv_bytes_peak(kv),
                               "kv_bytes_unshared", (json_int_t)kv_bytes_unshared(kv), "draft_tokens",
                               (json_int_t)s->drafts.n_tokens, "draft_tokens_accepted", (json_int_t)s->drafts.n_accepted);
    if (!object) return cl_fail(error, CL_ERR_NOMEM, "no memory for the summary");
    const int failed = json_dump_file(object, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    return failed ? cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", path, strerror(errno)) : CL_OK;
}
