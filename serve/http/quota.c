/* Counts the requests and tokens of tenants, and lets the counts flow off. */
#include "quota.h"

#include <math.h>
#include <stdlib.h>

/* What is in use of a limit. */
typedef struct meter {
    int64_t limit; /* a minute; 0: none */
    double used;   /* at the entry's time; may be above the limit */
} meter;

struct quota_entry {
    uint32_t domain;
    meter requests, tokens;
    double at; /* the time up to which `used` has flowed off */
};

static const double minute_s = 60;
static const double rounding = 1e-6; /* sums of the parts that flow off are not exact */

void quota_init(http_quota *q) {
    *q = (http_quota){0};
    pthread_mutex_init(&q->lock, NULL);
}

void quota_destroy(http_quota *q) {
    free(q->entries);
    pthread_mutex_destroy(&q->lock);
}

/* ---- Meters ---- */

static void flow(meter *m, double seconds) {
    if (m->limit > 0) m->used = fmax(0, m->used - (double)m->limit * seconds / minute_s);
}

static void use(meter *m, double n) {
    if (m->limit > 0) m->used = fmax(0, m->used + n);
}

/* Seconds until `n` more fit into the limit, which is at least n; 0: they do. */
static double wait_for(const meter *m, double n) {
    const double excess = m->used + n - (double)m->limit;
    return m->limit > 0 && excess > rounding ? excess * minute_s / (double)m->limit : 0;
}

static quota_left left_of(const meter *m) {
    if (m->limit == 0) return (quota_left){0};
    return (quota_left){.limit = m->limit,
                        .left = (int64_t)fmax(0, floor((double)m->limit - m->used + rounding)),
                        .reset_s = m->used * minute_s / (double)m->limit};
}

/* ---- Tenants ---- */

/* The entry of a domain, with its current use; NULL: it has no limits. The caller holds the lock. */
static quota_entry *find(http_quota *q, uint32_t domain, double now) {
    for (size_t i = 0; i < q->n_entries; i++) {
        quota_entry *e = &q->entries[i];
        if (e->domain != domain) continue;
        const double seconds = fmax(0, now - e->at); /* threads may come in another order than they looked at the clock */
        flow(&e->requests, seconds);
        flow(&e->tokens, seconds);
        e->at = fmax(e->at, now);
        return e;
    }
    return NULL;
}

quota_entry *quota_reserve(size_t n) { return calloc(n + 1, sizeof(quota_entry)); }

void quota_set(http_quota *q, quota_entry *entries, const quota_limit *limits, size_t n, double now) {
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < n; i++) {
        const quota_entry *before = find(q, limits[i].domain, now);
        quota_entry *e = &entries[i];
        if (before) *e = *before;
        *e = (quota_entry){.domain = limits[i].domain,
                           .requests = {.limit = limits[i].requests, .used = limits[i].requests ? e->requests.used : 0},
                           .tokens = {.limit = limits[i].tokens, .used = limits[i].tokens ? e->tokens.used : 0},
                           .at = now};
    }
    quota_entry *replaced = q->entries;
    q->entries = entries;
    q->n_entries = n;
    pthread_mutex_unlock(&q->lock);
    free(replaced);
}

quota_state quota_take(http_quota *q, uint32_t domain, int64_t n_prompt, double now) {
    quota_state state = {0};
    pthread_mutex_lock(&q->lock);
    quota_entry *e = find(q, domain, now);
    if (e) {
        const double wait_requests = wait_for(&e->requests, 1),
                     wait_tokens = wait_for(&e->tokens, fmin((double)n_prompt, (double)e->tokens.limit));
        state.retry_s = fmax(wait_requests, wait_tokens);
        if (state.retry_s > 0) {
            state.exceeded = wait_requests >= wait_tokens ? "requests" : "tokens";
        } else {
            use(&e->requests, 1);
            use(&e->tokens, (double)n_prompt);
        }
        state.requests = left_of(&e->requests);
        state.tokens = left_of(&e->tokens);
    }
    pthread_mutex_unlock(&q->lock);
    return state;
}

void quota_count(http_quota *q, uint32_t domain, int64_t n_tokens, double now) {
    pthread_mutex_lock(&q->lock);
    quota_entry *e = find(q, domain, now);
    if (e) use(&e->tokens, (double)n_tokens);
    pthread_mutex_unlock(&q->lock);
}

void quota_give_back(http_quota *q, uint32_t domain, int64_t n_prompt, double now) {
    pthread_mutex_lock(&q->lock);
    quota_entry *e = find(q, domain, now);
    if (e) {
        use(&e->requests, -1);
        use(&e->tokens, -(double)n_prompt);
    }
    pthread_mutex_unlock(&q->lock);
}
