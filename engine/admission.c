/* Lets requests join and leave the cache: see admission.h. */
#include "admission.h"

#include "llama/kv_cache.h"

/* Domains from here up belong to one request each; the domains in requests are lower. */
static const uint32_t OWN_DOMAINS = 0x80000000u;

void cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, int32_t max_seqs) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(cache, &stats);
    /* An eighth is left for the workspace of steps and for metadata; retained prefixes may use it meanwhile. */
    const int64_t capacity = (int64_t)stats.chunks_capacity;
    *a = (cl_admission){.cache = cache, .speculation = sp, .max_seqs = max_seqs, .n_chunks = capacity - (capacity + 7) / 8};
}

static uint32_t own_domain(cl_admission *a) { return OWN_DOMAINS + a->n_own_domains++ % OWN_DOMAINS; }

static cattn_status join(cl_admission *a, cl_request *r, uint32_t domain, cattn_join_result *result, cattn_error *error) {
    const cl_engine_request *params = &r->params;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = domain;
    options.reserve_tokens = params->max_tokens;
    cl_choice *first = &r->choices[0];
    cattn_status status = cattn_seq_join(a->cache, params->prompt, params->n_prompt, &options, &first->seq, result, error);
    if (status != CATTN_OK) return status;
    a->n_seqs++;
    for (int32_t i = 1; i < params->n && status == CATTN_OK; i++) {
        status = cattn_seq_fork(a->cache, first->seq, params->max_tokens, &r->choices[i].seq, error);
        if (status == CATTN_OK) a->n_seqs++;
    }
    return status;
}

static bool exceeds_budget(const cl_admission *a) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(a->cache, &stats);
    return (int64_t)(stats.chunks_live + stats.chunks_superseded + stats.chunks_reserved) > a->n_chunks;
}

cl_admission_answer cl_admission_join(cl_admission *a, cl_request *r, bool alone, cl_error *error) {
    if (a->full || a->n_seqs + r->params.n > a->max_seqs) return CL_ADMISSION_WAITS;
    cattn_join_result result;
    cattn_error cause = {.message = "no memory for the tokens of a request"};
    const uint32_t domain = r->params.prompt_logprobs ? own_domain(a) : r->params.domain;
    cattn_status status = cl_request_start(r) ? join(a, r, domain, &result, &cause) : CATTN_ERR_NOMEM;
    if (status == CATTN_ERR_BUDGET && alone) { /* sharing takes copies, and more room than joining without it */
        cl_admission_leave_all(a, r);
        status = join(a, r, own_domain(a), &result, &cause);
    }
    if (status == CATTN_OK && !alone && exceeds_budget(a)) status = CATTN_ERR_BUDGET;
    if (status == CATTN_OK) {
        r->n_cached = result.n_matched;
        return CL_ADMISSION_JOINED;
    }
    if (status == CATTN_ERR_BUDGET && !alone) {
        cl_admission_leave_all(a, r);
        a->full = true;
        return CL_ADMISSION_WAITS;
    }
    cl_fail(error, cl_kv_status(status), "K/V cache: %s", cause.message);
    return CL_ADMISSION_NEVER;
}

void cl_admission_retry(cl_admission *a) { a->full = false; }

void cl_admission_leave(cl_admission *a, cl_choice *c) {
    if (c->seq == 0) return;
    if (a->speculation) cl_speculation_leave(a->speculation, c);
    /* Nobody can match tokens in a domain of its own. The prompt of a fork stays, until memory is needed. */
    if (c->owner->params.prompt_logprobs) cattn_seq_truncate(a->cache, c->seq, 1, NULL);
    cattn_seq_leave(a->cache, &c->seq, NULL);
    a->n_seqs--;
    a->full = false;
}

void cl_admission_leave_all(cl_admission *a, cl_request *r) {
    for (int32_t i = 0; i < r->params.n; i++) cl_admission_leave(a, &r->choices[i]);
}
