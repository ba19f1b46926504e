/* cl_engine_export and cl_engine_import: the K/V of a conversation leave an engine's cache as bytes, and enter another's. */
#include "engine.h"
#include "question.h"
#include "runner.h"

typedef struct transfer {
    const cl_engine *engine;
    cl_engine_request request;
    int (*write)(void *ctx, const void *bytes, size_t n_bytes); /* of an export, as the next one */
    void *write_ctx;
    const void *bytes; /* [n_bytes] of an import */
    size_t n_bytes;
    int64_t n_tokens; /* out, as the next ones */
    cattn_status status;
    cattn_error cause;
} transfer;

static int64_t ready_tokens(const cattn_cache *cache, cattn_seq seq) {
    cattn_seq_info info = {.struct_size = sizeof info};
    return cattn_seq_get_info(cache, seq, &info, NULL) == CATTN_OK ? info.n_ready : 0;
}

/* Export what is ready of the prompt. A sequence joins for it with one token more, since a match is never whole. */
static void export_prompt(void *ctx, cattn_cache *cache) {
    transfer *t = ctx;
    const cl_engine_request *r = &t->request;
    cattn_join_options options = cl_engine_join_options(t->engine, r);
    cattn_join_result result;
    cattn_seq seq;
    t->status = cattn_cache_match(cache, r->prompt, r->n_prompt, &options, &result, &t->cause);
    if (t->status || result.n_ready == 0) return;
    options.flags |= CATTN_JOIN_NO_TIER;
    if ((t->status = cattn_seq_join(cache, r->prompt, result.n_ready + 1, &options, &seq, NULL, &t->cause))) return;
    const int64_t n_ready = ready_tokens(cache, seq);
    t->status = cattn_seq_export(cache, seq, n_ready, t->write, t->write_ctx, &t->cause);
    if (t->status == CATTN_OK) t->n_tokens = n_ready;
    cattn_seq_leave(cache, &seq, NULL);
}

/* The sequence leaves at once, and its tokens are retained. */
static void import_prompt(void *ctx, cattn_cache *cache) {
    transfer *t = ctx;
    const cattn_join_options options = cl_engine_join_options(t->engine, &t->request);
    cattn_seq seq;
    t->status = cattn_seq_import(cache, t->bytes, t->n_bytes, &options, &seq, NULL, &t->cause);
    if (t->status) return;
    t->n_tokens = ready_tokens(cache, seq);
    cattn_seq_leave(cache, &seq, NULL);
}

static cl_status check_engine(const cl_engine *e, cl_error *error) {
    const cl_engine_transfers can = cl_engine_can_transfer(e);
    if (!can.has_fingerprint)
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "K/V cannot leave or enter this engine: the model was loaded without its fingerprint "
                       "(cl_model_options.fingerprint), or the program has no GNU build id");
    if (can.retains) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the engine retains no tokens; it needs a sharing mode and a retention that do");
}

/* Ask the engine for a transfer, and say what has become of it. */
static cl_status carry_out(cl_engine *e, void (*fn)(void *ctx, cattn_cache *cache), transfer *t, int64_t *n_tokens,
                           cl_error *error) {
    t->engine = e;
    cl_status status = check_engine(e, error);
    if (status == CL_OK) status = cl_engine_ask(e, fn, t, error);
    if (status != CL_OK) return status;
    if (t->status == CATTN_ERR_DATA) return cl_fail(error, CL_ERR_FORMAT, "%s", t->cause.message);
    if (t->status == CATTN_ERR_WRITE) return cl_fail(error, CL_ERR_FILE, "%s", t->cause.message);
    if (t->status) return cl_kv_fail(t->status, &t->cause, error);
    if (n_tokens) *n_tokens = t->n_tokens;
    return CL_OK;
}

cl_status cl_engine_export(cl_engine *e, const cl_engine_request *request,
                           int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, int64_t *n_tokens,
                           cl_error *error) {
    if (!e || !request || !write)
        return cl_fail(error, CL_ERR_ARG, "%s is NULL", !e ? "engine" : request ? "write" : "request");
    transfer t = {.write = write, .write_ctx = ctx};
    const cl_status status = cl_read_prompt(request, &t.request, error);
    return status == CL_OK ? carry_out(e, export_prompt, &t, n_tokens, error) : status;
}

cl_status cl_engine_import(cl_engine *e, const void *bytes, size_t n_bytes, uint32_t domain, int64_t *n_tokens,
                           cl_error *error) {
    if (!e || !bytes) return cl_fail(error, CL_ERR_ARG, "%s is NULL", e ? "bytes" : "engine");
    if (domain > INT32_MAX) return cl_refuse(error, "domain", "is %u; it must be at most %d", domain, INT32_MAX);
    transfer t = {.request = {.domain = domain}, .bytes = bytes, .n_bytes = n_bytes};
    return carry_out(e, import_prompt, &t, n_tokens, error);
}
