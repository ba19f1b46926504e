/* Keeps the tenants and their waiting requests: see queue.h. */
#include "queue.h"

#include <assert.h>
#include <stdlib.h>

void cl_queue_free(cl_queue *q) {
    for (size_t i = 0; i < q->n_tenants; i++) {
        assert(q->tenants[i]->n_waiting == 0);
        free((void *)q->tenants[i]->waiting);
        free(q->tenants[i]);
    }
    free((void *)q->tenants);
    *q = (cl_queue){0};
}

/* An array of pointers with capacity for n, or NULL if memory is lacking; the old one is freed or grown. */
static void *grown(void *array, size_t n, size_t *capacity) {
    if (n <= *capacity) return array;
    void *larger = realloc(array, 2 * n * sizeof(void *));
    if (larger) *capacity = 2 * n;
    return larger;
}

/* ---- A tenant's requests ---- */

static void place(cl_tenant *t, cl_request *r, size_t i) {
    t->waiting[i] = r;
    r->queue_index = i;
}

/* Place a request at the free index i, or above or below, where the order requires it. */
static void settle(cl_tenant *t, cl_request *r, size_t i) {
    for (size_t parent; i > 0 && cl_request_is_before(r, t->waiting[parent = (i - 1) / 2]); i = parent)
        place(t, t->waiting[parent], i);
    for (size_t child; (child = 2 * i + 1) < t->n_waiting; i = child) {
        if (child + 1 < t->n_waiting && cl_request_is_before(t->waiting[child + 1], t->waiting[child])) child++;
        if (cl_request_is_before(r, t->waiting[child])) break;
        place(t, t->waiting[child], i);
    }
    place(t, r, i);
}

/* The counter at which a tenant of which nothing waited starts again: the smallest of those that wait. */
static double start_counter(const cl_queue *q) {
    const cl_tenant *lowest = NULL;
    for (size_t i = 0; i < q->n_tenants; i++)
        if (q->tenants[i]->n_waiting > 0 && (!lowest || q->tenants[i]->served < lowest->served)) lowest = q->tenants[i];
    if (!lowest) lowest = q->last; /* what it runs still is charged to it meanwhile */
    return lowest ? lowest->served : 0;
}

void cl_queue_put(cl_queue *q, cl_request *r) {
    cl_tenant *t = r->tenant;
    assert(t->n_waiting < t->n_live);
    const double start = t->n_waiting == 0 ? start_counter(q) : t->served;
    if (t->served < start) t->served = start;
    t->n_waiting++;
    settle(t, r, t->n_waiting - 1);
}

void cl_queue_remove(cl_queue *q, cl_request *r) {
    cl_tenant *t = r->tenant;
    assert(t->waiting[r->queue_index] == r);
    cl_request *last = t->waiting[--t->n_waiting];
    if (last != r) settle(t, last, r->queue_index);
    if (t->n_waiting == 0) q->last = t;
}

/* ---- Tenants ---- */

/* The tenant of a domain, or one without requests that may become it: it would start at a counter that is no smaller. */
static cl_tenant *find(const cl_queue *q, uint32_t domain) {
    cl_tenant *unused = NULL;
    const double start = start_counter(q);
    for (size_t i = 0; i < q->n_tenants; i++) {
        cl_tenant *t = q->tenants[i];
        if (t->domain == domain) return t;
        if (t->n_live == 0 && !t->stays && t->served <= start) unused = t;
    }
    return unused;
}

/* NULL if memory is lacking. */
static cl_tenant *tenant_of(cl_queue *q, uint32_t domain) {
    cl_tenant *t = find(q, domain);
    if (!t) {
        cl_tenant **tenants = grown((void *)q->tenants, q->n_tenants + 1, &q->capacity);
        if (!tenants) return NULL;
        q->tenants = tenants;
        t = calloc(1, sizeof *t);
        if (!t) return NULL;
        t->weight = 1;
        q->tenants[q->n_tenants++] = t;
    }
    t->domain = domain;
    return t;
}

bool cl_queue_set_weight(cl_queue *q, uint32_t domain, double weight) {
    cl_tenant *t = tenant_of(q, domain);
    if (!t) return false;
    t->weight = weight;
    t->stays = true;
    return true;
}

/* ---- Accounts ---- */

uint32_t cl_queue_account(cl_queue *q, uint32_t domain, int32_t priority) {
    uint32_t i = 0;
    while (i < q->n_accounts && q->accounts[i] != domain) i++;
    if (i == q->n_accounts && i < CL_ACCOUNT_TENANTS) q->accounts[q->n_accounts++] = domain;
    return 2 * i + (priority > 0);
}

void cl_request_set_account(const cl_request *r, cattn_join_options *options) {
    const double low = 0.125;
    options->account = r->account;
    options->account_weight = (float)(r->tenant->weight * (r->params.priority > 0 ? low : 1));
}

/* ---- Requests of all tenants ---- */

bool cl_queue_add(cl_queue *q, cl_request *r) {
    cl_tenant *t = tenant_of(q, r->params.domain);
    if (!t) return false;
    cl_request **waiting = grown((void *)t->waiting, t->n_live + 1, &t->capacity);
    if (!waiting) return false;
    t->waiting = waiting;
    t->n_live++;
    q->n_live++;
    r->tenant = t;
    r->account = cl_queue_account(q, t->domain, r->params.priority);
    cl_queue_put(q, r);
    return true;
}

void cl_queue_forget(cl_queue *q, cl_request *r) {
    r->tenant->n_live--;
    q->n_live--;
}

/*
 * Whether tenant a is served before b. A tenant that comes while another floods starts at the flood's counter, and would wait
 * behind requests that find no place if the rank decided then.
 */
static bool is_before(const cl_tenant *a, const cl_tenant *b) {
    const double share_a = cl_tenant_share(a, a->n_in_cache), share_b = cl_tenant_share(b, b->n_in_cache);
    if (a->served != b->served) return a->served < b->served;
    return share_a != share_b ? share_a < share_b : cl_request_is_before(a->waiting[0], b->waiting[0]);
}

cl_request *cl_queue_first(const cl_queue *q) {
    const cl_tenant *next = NULL;
    for (size_t i = 0; i < q->n_tenants; i++)
        if (q->tenants[i]->n_waiting > 0 && (!next || is_before(q->tenants[i], next))) next = q->tenants[i];
    return next ? next->waiting[0] : NULL;
}
