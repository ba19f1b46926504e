/* Joins and leaves: see admission.h. */
#include "admission.h"

#include "llama/kv_cache.h"

/* Domains from here up belong to one request each; those that requests name are lower. */
static const uint32_t OWN_DOMAINS = 0x80000000u;

void cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, int32_t max_seqs) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(cache, &stats);
    /* An eighth is left to the steps' workspace and to metadata; prefixes kept for later joins may use it meanwhile. */
    const int64_t capacity = (int64_t)stats.chunks_capacity;
    *a = (cl_admission){.cache = cache, .speculation = sp, .max_seqs = max_seqs, .n_chunks = capacity - (capacity + 7) / 8};
}

static uint32_t own_domain(cl_admission *a) { return OWN_DOMAINS + a->n_own_domains++ % OWN_DOMAINS; }

static cattn_status join(cl_admission *a, cl_request *r, uint32_t domain, cattn_join_result *result, cattn_error *error) {
    const cl_engine_request *asked = &r->asked;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = domain;
    options.reserve_tokens = asked->max_tokens;
    cl_choice *first = &r->choices[0];
    cattn_status status = cattn_seq_join(a->cache, asked->prompt, asked->n_prompt, &options, &first->seq, result, error);
    if (status != CATTN_OK) return status;
    a->n_seqs++;
    for (int32_t i = 1; i < asked->n && status == CATTN_OK; i++) {
        status = cattn_seq_fork(a->cache, first->seq, asked->max_tokens, &r->choices[i].seq, error);
        if (status == CATTN_OK) a->n_seqs++;
    }
    return status;
}

static bool promised_too_much(const cl_admission *a) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(a->cache, &stats);
    return (int64_t)(stats.chunks_live + stats.chunks_reserved) > a->n_chunks;
}

cl_admission_answer cl_admission_join(cl_admission *a, cl_request *r, bool alone, cl_error *error) {
    if (a->full || a->n_seqs + r->asked.n > a->max_seqs) return CL_ADMISSION_WAITS;
    cattn_join_result result;
    cattn_error cause = {.message = "no memory for the tokens of a request"};
    const uint32_t domain = r->asked.prompt_logprobs ? own_domain(a) : r->asked.domain;
    cattn_status status = cl_request_start(r) ? join(a, r, domain, &result, &cause) : CATTN_ERR_NOMEM;
    if (status == CATTN_ERR_BUDGET && alone) { /* what it has found takes more room than what it needs */
        cl_admission_leave_all(a, r);
        status = join(a, r, own_domain(a), &result, &cause);
    }
    if (status == CATTN_OK && !alone && promised_too_much(a)) status = CATTN_ERR_BUDGET;
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

void cl_admission_look_again(cl_admission *a) { a->full = false; }

void cl_admission_leave(cl_admission *a, cl_choice *c) {
    if (c->seq == 0) return;
    if (a->speculation) cl_speculation_leave(a->speculation, c);
    /* Nobody will find again what is in a domain of its own. What this call leaves, a fork's prompt, goes when memory is
     * needed. */
    if (c->owner->asked.prompt_logprobs) cattn_seq_truncate(a->cache, c->seq, 1, NULL);
    cattn_seq_leave(a->cache, &c->seq, NULL);
    a->n_seqs--;
    a->full = false;
}

void cl_admission_leave_all(cl_admission *a, cl_request *r) {
    for (int32_t i = 0; i < r->asked.n; i++) cl_admission_leave(a, &r->choices[i]);
}
