/* Lets choices join and leave the cache: see admission.h. */
#include "admission.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "constraint.h"
#include "runner.h"

/* Chunks that stay free for each choice in the cache when another one joins: see admission.h. */
enum { GROWTH_CHUNKS = 1 };

/*
 * Domains from the first on belong to one request or choice each, those from the second on to salts. Those in requests are
 * lower. The last one is nobody's.
 */
static const uint32_t OWN_DOMAINS = 0x80000000u, SALT_DOMAINS = 0xc0000000u, EMPTY_DOMAIN = UINT32_MAX;

static cattn_stats stats_of(const cl_admission *a) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats_fast(a->cache, &stats);
    return stats;
}

/* An eighth is left for the workspace of steps and for metadata; retained prefixes may use it meanwhile. */
static void count_chunks(cl_admission *a) {
    const int64_t capacity = (int64_t)stats_of(a).chunks_capacity;
    a->n_chunks = capacity - (capacity + 7) / 8;
}

/* Salt domains are about to be reused: drop all retained K/V and drafts. */
static void drop_left(void *ctx) {
    const cl_admission *a = ctx;
    cattn_cache_drop_retained(a->cache, NULL);
    if (a->speculation) cl_speculation_drop_left(a->speculation);
}

bool cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, const cl_engine_config *config) {
    *a = (cl_admission){
        .cache = cache,
        .speculation = sp,
        .choices = calloc((size_t)config->max_seqs, sizeof(cl_choice *)),
        .max_seqs = config->max_seqs,
        .whole_budget = config->kv_budget_bytes,
        .budget = config->kv_budget_bytes,
        .used_budget = config->kv_budget_bytes,
        .chunk_size = config->chunk_size,
        .shares = config->sharing != CATTN_PRIVATE,
        .step_tokens = 1 + (sp ? CL_DRAFT_MAX : 0),
    };
    cl_salts_init(&a->salts, SALT_DOMAINS, EMPTY_DOMAIN - SALT_DOMAINS, drop_left, a);
    count_chunks(a);
    return a->choices;
}

void cl_admission_free(cl_admission *a) {
    cl_salts_free(&a->salts);
    free((void *)a->choices);
}

/* ---- The budget ---- */

static void use_budget(cl_admission *a, uint64_t budget_bytes) {
    if (a->used_budget == budget_bytes) return;
    cattn_cache_set_budget(a->cache, budget_bytes, NULL);
    a->used_budget = budget_bytes;
}

void cl_admission_set_budget(cl_admission *a, uint64_t budget_bytes) {
    a->budget = budget_bytes;
    use_budget(a, budget_bytes);
    count_chunks(a);
    a->full = false;
}

bool cl_admission_use_whole_budget(cl_admission *a) {
    const bool is_less = a->used_budget < a->whole_budget;
    use_budget(a, a->whole_budget);
    return is_less;
}

/* ---- The list ---- */

static void insert(cl_admission *a, cl_choice *c) {
    int32_t i = a->n_seqs++;
    for (; i > 0 && cl_choice_is_before(c, a->choices[i - 1]); i--) a->choices[i] = a->choices[i - 1];
    a->choices[i] = c;
    c->owner->tenant->n_in_cache++;
    if (c->owner->n_in_cache++ == 0) a->n_requests++;
}

static void erase(cl_admission *a, cl_choice *c) {
    int32_t i = 0;
    while (a->choices[i] != c) i++;
    a->n_seqs--;
    memmove((void *)&a->choices[i], (void *)&a->choices[i + 1], (size_t)(a->n_seqs - i) * sizeof(cl_choice *));
    c->owner->tenant->n_in_cache--;
    if (--c->owner->n_in_cache == 0) a->n_requests--;
}

static double share_of(const cl_choice *c) { return cl_tenant_share(c->owner->tenant, c->owner->tenant->n_in_cache); }

cl_choice *cl_admission_worst(const cl_admission *a) {
    cl_choice *worst = a->choices[a->n_seqs - 1];
    for (int32_t i = a->n_seqs - 2; i >= 0; i--)
        if (share_of(a->choices[i]) > share_of(worst)) worst = a->choices[i];
    return worst;
}

/* The first tokens of a prompt: those in which prompts that share a chunk are equal. */
static int64_t n_first(const cl_admission *a, const cl_request *r) {
    return r->params.n_prompt < a->chunk_size ? r->params.n_prompt : a->chunk_size;
}

/* Whether two choices have the K/V of the beginning of their prompts in common. This is an equivalence relation. */
static bool share(const cl_admission *a, const cl_choice *c, const cl_choice *d) {
    const cl_request *r = c->owner, *q = d->owner;
    if (c->shares_none || d->shares_none) return false;
    if (cl_request_n_shareable(r) < n_first(a, r) || cl_request_n_shareable(q) < n_first(a, q)) return false;
    return cl_request_kv_domain(r) == cl_request_kv_domain(q) && n_first(a, r) == n_first(a, q) &&
           memcmp(r->params.prompt, q->params.prompt, (size_t)n_first(a, r) * sizeof *r->params.prompt) == 0;
}

/* The first choice of a request has joined: count the requests that share with it, for all of them. */
static void count_sharing(const cl_admission *a, cl_choice *c) {
    int32_t n = 0;
    const cl_request *last = c->owner; /* choices of a request are neighbours */
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const cl_choice *d = a->choices[i];
        n += d->owner != last && d->owner != c->owner && share(a, c, d);
        last = d->owner;
    }
    for (int32_t i = 0; n > 0 && i < a->n_seqs; i++) {
        const cl_choice *d = a->choices[i];
        if (d->owner->n_sharing < n && (d->owner == c->owner || share(a, c, d))) d->owner->n_sharing = n;
    }
}

/* ---- Reserves ---- */

/*
 * The length up to which a choice gets chunks: that of a step's tokens, to the end of the last one's chunk. A choice that
 * shares none gets all that it may need at once, before a step's workspace takes it.
 */
static int64_t reserve_for(const cl_admission *a, const cl_choice *c) {
    const int64_t most = c->owner->params.n_prompt + c->owner->params.max_tokens, size = a->chunk_size;
    const int64_t end = (c->n_tokens + a->step_tokens + cl_constraint_n_forced(c) + size - 1) / size * size;
    return end < most && !c->shares_none ? end : most;
}

/* Chunks that are in use, superseded ones among them, or reserved. */
static int64_t chunks_taken(const cl_admission *a) {
    const cattn_stats stats = stats_of(a);
    return (int64_t)(stats.chunks_live + stats.chunks_reserved);
}

/* Whether n_more chunks are free beside those that the choices in the cache have, and beside those for their growth if that
 * counts. */
static bool fits(const cl_admission *a, int64_t n_more, bool growth_counts) {
    int64_t n = chunks_taken(a) + n_more;
    for (int32_t i = 0; i < a->n_seqs && growth_counts; i++) {
        const cl_choice *c = a->choices[i];
        const bool may_grow = c->reserved_to < c->owner->params.n_prompt + c->owner->params.max_tokens;
        n += may_grow ? GROWTH_CHUNKS : 0;
    }
    return n <= a->n_chunks;
}

bool cl_admission_extend(cl_admission *a, cl_choice *c, cl_error *error) {
    const int64_t reserved_to = reserve_for(a, c);
    if (reserved_to <= c->reserved_to) return true;
    cattn_error cause;
    const cattn_status status = cattn_seq_reserve(a->cache, c->seq, reserved_to - c->n_tokens, &cause);
    if (status == CATTN_OK && (cl_admission_is_alone(a, c) || fits(a, 0, false))) {
        c->reserved_to = reserved_to;
        return true;
    }
    if (status != CATTN_OK) cl_kv_fail(status, &cause, error);
    return false;
}

/* ---- Joining ---- */

static uint32_t new_domain(cl_admission *a) { return OWN_DOMAINS + a->n_own_domains++ % (SALT_DOMAINS - OWN_DOMAINS); }

static uint32_t domain_of(cl_admission *a, const cl_choice *c) {
    cl_request *r = c->owner;
    if (c->shares_none && !r->beams) return new_domain(a); /* beams share with each other */
    if (!c->shares_none && !cl_request_computes_all(r)) return cl_request_kv_domain(r);
    if (r->own_domain == 0) r->own_domain = new_domain(a);
    return r->own_domain;
}

static cattn_join_options options_of(uint32_t domain) {
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = domain;
    options.max_step_rows = -1; /* a step that has no room for its workspace is repeated with fewer rows */
    /* The domain is one of the next process, too, for another request or salt, and the file tier outlives this one. */
    if (domain >= OWN_DOMAINS) options.flags = CATTN_JOIN_NO_TIER;
    return options;
}

cattn_join_options cl_admission_join_options(const cl_admission *a, const cl_engine_request *r) {
    if (r->salt_size == 0) return options_of(r->domain);
    const cl_salt *salt = cl_salts_find(&a->salts, r->domain, r->salt, r->salt_size);
    return options_of(salt ? salt->kv_domain : EMPTY_DOMAIN);
}

static cattn_status join(cl_admission *a, cl_choice *c, int64_t n_reserved, cattn_error *error) {
    cattn_join_options options = options_of(domain_of(a, c));
    cl_request_set_account(c->owner, &options);
    /* An extra hash of its first token that is not shared parts the choice, from there on, from all other requests. */
    const cattn_extra own = {.first_pos = cl_request_n_shareable(c->owner), .n_tokens = 1, .hash = c->owner->id};
    if (!cl_request_computes_all(c->owner) && own.first_pos < c->n_tokens) {
        options.extras = &own;
        options.n_extras = 1;
        options.flags = CATTN_JOIN_NO_TIER; /* ids of requests come again in the next process */
    }
    options.reserve_tokens = n_reserved;
    cattn_join_result result;
    const cattn_status status = cattn_seq_join(a->cache, c->tokens, c->n_tokens, &options, &c->seq, &result, error);
    if (status == CATTN_OK && !c->owner->admitted) c->owner->n_cached = result.n_matched;
    return status;
}

/* Whether a choice may fit, by the tokens that the cache has. It is cheaper than to join, for which others are evicted. */
static bool may_fit(const cl_admission *a, const cl_choice *c, bool growth_counts) {
    const cattn_join_options options = options_of(cl_request_kv_domain(c->owner));
    cattn_join_result result = {0};
    const int32_t *tokens = c->tokens ? c->tokens : c->owner->params.prompt;
    cattn_cache_match(a->cache, tokens, c->n_tokens, &options, &result, NULL);
    const int64_t n_forks = cl_request_n_together(c->owner) - 1; /* a chunk each at least */
    return fits(a, (c->n_tokens - cl_request_n_found(c->owner, &result)) / a->chunk_size + n_forks, growth_counts);
}

static cattn_status enter(cl_admission *a, cl_choice *c, cattn_error *error) {
    if (!cl_choice_start(c)) return CATTN_ERR_NOMEM;
    const cl_choice *leader = c->n_tokens == c->owner->params.n_prompt ? cl_request_leader(c->owner) : NULL;
    const int64_t reserved_to = reserve_for(a, c), n_reserved = reserved_to - c->n_tokens;
    const cattn_status status =
        leader ? cattn_seq_fork(a->cache, leader->seq, n_reserved, &c->seq, error) : join(a, c, n_reserved, error);
    if (status != CATTN_OK) return status;
    c->reserved_to = reserved_to;
    c->n_joined = c->n_tokens;
    insert(a, c);
    return CATTN_OK;
}

/* Let the choices leave that join together with c, as far as they are in the cache. */
static void leave_together(cl_admission *a, cl_choice *c) {
    cl_choice *first = c->owner->beams ? c->owner->choices : c;
    for (int32_t i = 0; i < cl_request_n_together(c->owner); i++) cl_admission_leave(a, &first[i]);
}

static cattn_status enter_together(cl_admission *a, cl_choice *c, cattn_error *error) {
    cl_choice *first = c->owner->beams ? c->owner->choices : c;
    cattn_status status = CATTN_OK;
    for (int32_t i = 0; status == CATTN_OK && i < cl_request_n_together(c->owner); i++) status = enter(a, &first[i], error);
    if (status != CATTN_OK) leave_together(a, c);
    return status;
}

static void share_none(cl_choice *c) {
    cl_choice *first = c->owner->beams ? c->owner->choices : c;
    for (int32_t i = 0; i < cl_request_n_together(c->owner); i++) first[i].shares_none = true;
}

cl_admission_answer cl_admission_join(cl_admission *a, cl_choice *c, cl_error *error) {
    const bool alone = a->n_seqs == 0;
    const bool growth_counts = c->owner->tenant->n_in_cache > 0; /* a tenant's first choice must not wait */
    if (!alone && (a->full || a->n_seqs + cl_request_n_together(c->owner) > a->max_seqs)) return CL_ADMISSION_WAITS;
    if (!alone && !may_fit(a, c, growth_counts)) {
        a->full = true;
        return CL_ADMISSION_WAITS;
    }
    cattn_error cause = {.message = "no memory for the tokens of a request"};
    /* Beams would find what they left, where forks have parted within chunks, and need more than the first time. */
    if (alone && c->shares_none && c->owner->beams) cattn_cache_drop_retained(a->cache, NULL);
    cattn_status status = enter_together(a, c, &cause);
    if (status == CATTN_ERR_BUDGET && alone && cl_admission_use_whole_budget(a)) status = enter_together(a, c, &cause);
    if (status == CATTN_ERR_BUDGET && alone) {
        share_none(c);
        cattn_cache_drop_retained(a->cache, NULL);
        status = enter_together(a, c, &cause);
    }
    if (status == CATTN_OK && (alone || fits(a, 0, growth_counts))) {
        if (a->shares && c->owner->n_in_cache == cl_request_n_together(c->owner)) count_sharing(a, c);
        return CL_ADMISSION_JOINED;
    }
    leave_together(a, c);
    if (!alone && (status == CATTN_OK || status == CATTN_ERR_BUDGET)) {
        a->full = true;
        return CL_ADMISSION_WAITS;
    }
    cl_kv_fail(status, &cause, error);
    return CL_ADMISSION_NEVER;
}

bool cl_admission_fork(cl_admission *a, cl_choice *c, const cl_choice *from, cattn_error *error) {
    const int64_t reserved_to = reserve_for(a, c);
    if (cattn_seq_fork(a->cache, from->seq, reserved_to - (c->n_tokens - 1), &c->seq, error) != CATTN_OK) return false;
    c->reserved_to = reserved_to;
    c->n_joined = from->n_joined;
    c->n_lost = from->n_lost;
    c->decoding = true;
    insert(a, c);
    if (cl_admission_is_alone(a, c) || fits(a, 0, false)) return true;
    cl_admission_leave(a, c);
    return false;
}

/* ---- Pins ---- */

bool cl_admission_pin(cl_admission *a, const cl_choice *c, cl_request *r, int64_t n_tokens, cl_error *error) {
    cattn_error cause = {.message = "pin_bytes does not hold the prompt to be pinned beside other pins: lower it"};
    const int64_t n = n_tokens / 2 * 2;
    const cattn_status status = c->shares_none ? CATTN_ERR_BUDGET : cattn_seq_pin(a->cache, c->seq, n, &r->pin, &cause);
    if (status != CATTN_OK) cl_kv_fail(status, &cause, error);
    if (status == CATTN_OK) r->n_pinned = n;
    return status == CATTN_OK;
}

/* ---- Leaving ---- */

void cl_admission_leave(cl_admission *a, cl_choice *c) {
    if (c->seq == 0) return;
    if (a->speculation) cl_speculation_leave(a->speculation, c);
    /* Nobody else can match the tokens that it does not share. The prompt of a fork stays, until memory is needed. */
    const int64_t n_kept = c->shares_none ? 0 : cl_request_n_shareable(c->owner) / 2 * 2; /* an odd number may take a copy */
    if (n_kept < c->n_tokens) cattn_seq_truncate(a->cache, c->seq, n_kept > 0 ? n_kept : 1, NULL);
    cattn_seq_leave(a->cache, &c->seq, NULL);
    erase(a, c);
    cl_constraint_go_on(c);
    c->decoding = false;
    a->full = false;
    if (a->n_seqs == 0) use_budget(a, a->budget);
}

static void note_loss(const cl_admission *a, cl_choice *c) {
    cattn_seq_info info = {.struct_size = sizeof info};
    if (c->seq == 0) return;
    cattn_seq_get_info(a->cache, c->seq, &info, NULL);
    if (info.n_ready > c->n_lost) c->n_lost = info.n_ready;
}

void cl_admission_preempt(cl_admission *a, cl_choice *c) {
    cl_choice *first = c->owner->beams ? c->owner->choices : c;
    for (int32_t i = 0; i < cl_request_n_together(c->owner); i++) note_loss(a, &first[i]);
    if (cl_admission_is_alone(a, c)) share_none(c);
    leave_together(a, c);
    if (c->owner->beams) cl_beams_forget(c->owner);
    a->full = true;
}
