/*
 * Quotas of tenants: how many requests, and how many tokens of prompts and answers, each may use in a minute.
 *
 * What a tenant uses flows off evenly: a limit of 60 a minute allows 60 at once, and one more each second. A request is
 * admitted if it and its prompt fit into the rest of the limit; a prompt that is larger than the whole limit, if nothing is in
 * use. Tokens of answers are counted when they come, and may exceed the limit; the next request then waits until the excess has
 * flowed off. So over a long time no tenant uses more than its limit.
 *
 * Times are those of one clock that does not go back, in seconds. Threads: quota_take, quota_count and quota_give_back may be
 * called from any thread, also while quota_set replaces the limits.
 */
#ifndef SERVE_HTTP_QUOTA_H
#define SERVE_HTTP_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUOTA_MOST = 1000000000 }; /* the largest limit */

/* The limits of a tenant, for each minute; 0: there is none of this kind. */
typedef struct quota_limit {
    uint32_t domain; /* of the tenant */
    int64_t requests, tokens;
} quota_limit;

/* What a tenant may still use of one of its limits. */
typedef struct quota_left {
    int64_t limit;  /* 0: there is none, nor the next two */
    int64_t left;   /* whole ones, at least 0 */
    double reset_s; /* seconds until all of it is left */
} quota_left;

/* The answer to a request. */
typedef struct quota_state {
    quota_left requests, tokens; /* with this request, if it is admitted */
    const char *exceeded;        /* the limit that is too small: "requests" or "tokens"; NULL: the request is admitted */
    double retry_s; /* seconds after which the same request would be admitted, if there is no other; with `exceeded` */
} quota_state;

typedef struct quota_entry quota_entry; /* of one tenant */

typedef struct http_quota {
    pthread_mutex_t lock; /* guards the fields below */
    quota_entry *entries; /* [n_entries] owned */
    size_t n_entries;
} http_quota;

void quota_init(http_quota *q);
void quota_destroy(http_quota *q);

/* Memory for quota_set with n limits, which takes it over; otherwise to be freed with free(). NULL: memory is lacking. */
quota_entry *quota_reserve(size_t n);

/*
 * From now on these limits [n] of different domains apply, and no others. Requests and tokens
 * counted against a limit still count; those of a time without a limit do not. entries: of quota_reserve(n).
 */
void quota_set(http_quota *q, quota_entry *entries, const quota_limit *limits, size_t n, double now);

/* Admit a request with a prompt of n_prompt tokens, and count both; or refuse it, and count nothing. */
quota_state quota_take(http_quota *q, uint32_t domain, int64_t n_prompt, double now);

/* Count tokens of an answer. */
void quota_count(http_quota *q, uint32_t domain, int64_t n_tokens, double now);

/* Undo a quota_take, since the server could not begin the request. */
void quota_give_back(http_quota *q, uint32_t domain, int64_t n_prompt, double now);

#endif
