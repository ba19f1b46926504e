/* The queue: requests by rank, tenants by their counters. */
#include "tests/support/testing.h"

#include <stdlib.h>

#include "chunkllama/engine/queue.h"

static void ignore_event(void *ctx, const cl_engine_event *event) {
    (void)ctx;
    (void)event;
}

static cl_request *request_of(uint64_t id, uint32_t domain, double submitted, int32_t priority) {
    const int32_t token = 1;
    const cl_engine_request params = {
        .prompt = &token, .n_prompt = 1, .n = 1, .max_reasoning_tokens = -1, .domain = domain, .on_event = ignore_event};
    cl_request *r = cl_request_create(&params);
    r->id = id;
    r->due = cl_request_due(submitted, priority);
    return r;
}

static void add(cl_queue *q, cl_request *r) { assert_true(cl_queue_add(q, r)); }

/* All choices of a request that is in the queue have ended. */
static void end(cl_queue *q, cl_request *r) {
    cl_queue_remove(q, r);
    cl_queue_forget(q, r);
    cl_request_free(r);
}

static uint32_t random_below(uint32_t n) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (uint32_t)(x >> 32) % n;
}

/* Requests that come, go and return in random order: the first is always the one that a plain search finds. */
static void first_is_the_best(void **state) {
    (void)state;
    enum { N = 300, N_TURNS = 20000 };
    cl_queue q = {0};
    cl_request *all[N];
    bool waits[N];
    for (uint64_t i = 0; i < N; i++) {
        all[i] = request_of(i + 1, 0, (double)random_below(50), (int32_t)random_below(7) - 3);
        add(&q, all[i]);
        waits[i] = true;
    }
    for (int turn = 0; turn < N_TURNS; turn++) {
        const uint32_t k = random_below(N);
        if (waits[k])
            cl_queue_remove(&q, all[k]);
        else
            cl_queue_put(&q, all[k]);
        waits[k] = !waits[k];
        const cl_request *best = NULL;
        for (int i = 0; i < N; i++)
            if (waits[i] && (!best || cl_request_is_before(all[i], best))) best = all[i];
        assert_ptr_equal(cl_queue_first(&q), best);
    }
    for (int i = 0; i < N; i++) {
        if (!waits[i]) cl_queue_put(&q, all[i]);
        end(&q, all[i]);
    }
    assert_null(cl_queue_first(&q));
    assert_int_equal(q.n_live, 0);
    cl_queue_free(&q);
}

/* A unit of priority is worth 10 s: no request is overtaken by those that come later than that. */
static void waiting_is_bounded(void **state) {
    (void)state;
    cl_queue q = {0};
    cl_request *late = request_of(1, 0, 0, 3);
    add(&q, late);
    for (uint64_t i = 0; i < 100; i++) add(&q, request_of(i + 2, 0, (double)i, 0));
    for (int i = 0; i < 30; i++) {
        assert_true(cl_queue_first(&q) != late);
        end(&q, cl_queue_first(&q));
    }
    assert_ptr_equal(cl_queue_first(&q), late);
    while (cl_queue_first(&q)) end(&q, cl_queue_first(&q));
    cl_queue_free(&q);
}

/* Tenants are served by weight: while all wait, their counters differ by one admission at most. */
static void counters_stay_together(void **state) {
    (void)state;
    enum { N_TENANTS = 4, COST = 50 };
    static const double weights[N_TENANTS] = {1, 3, 1, 0.5};
    cl_queue q = {0};
    int64_t n_served[N_TENANTS] = {0};
    uint64_t id = 0;
    for (uint32_t t = 0; t < N_TENANTS; t++) assert_true(cl_queue_set_weight(&q, t, weights[t]));
    for (uint32_t t = 0; t < N_TENANTS; t++)
        for (int i = 0; i < 1000; i++) add(&q, request_of(++id, t, 0, 0));
    for (int turn = 0; turn < 500; turn++) {
        cl_request *r = cl_queue_first(&q);
        const int64_t cost = 1 + (int64_t)random_below(COST);
        n_served[r->params.domain] += cost;
        cl_tenant_charge(r->tenant, cost);
        end(&q, r);
        for (size_t a = 0; a < N_TENANTS; a++)
            for (size_t b = 0; b < N_TENANTS; b++)
                assert_true(q.tenants[a]->served - q.tenants[b]->served <= COST / q.tenants[a]->weight);
    }
    assert_in_range(n_served[1] * 100 / n_served[0], 290, 310);
    while (cl_queue_first(&q)) end(&q, cl_queue_first(&q));
    cl_queue_free(&q);
}

/* A tenant that comes back gets no more than the others from then on, and the records of tenants that left are used again. */
static void nothing_is_saved_up(void **state) {
    (void)state;
    cl_queue q = {0};
    cl_request *first = request_of(1, 7, 0, 0), *second = request_of(2, 8, 1, 0);
    add(&q, first);
    cl_tenant_charge(first->tenant, 1000);
    add(&q, second);
    assert_true(second->tenant->served == 1000);
    assert_ptr_equal(cl_queue_first(&q), first);
    first->tenant->n_in_cache = 3; /* of equal counters the smaller share is first */
    second->tenant->n_in_cache = 1;
    assert_ptr_equal(cl_queue_first(&q), second);
    first->tenant->n_in_cache = second->tenant->n_in_cache = 0;
    cl_tenant_charge(first->tenant, 1);
    assert_ptr_equal(cl_queue_first(&q), second);
    end(&q, first);
    end(&q, second);
    for (uint64_t i = 0; i < 1000; i++) {
        cl_request *r = request_of(3 + i, (uint32_t)i, 0, 0);
        add(&q, r);
        assert_true(r->tenant->served >= 1000);
        cl_tenant_charge(r->tenant, 1);
        end(&q, r);
    }
    assert_in_range(q.n_tenants, 1, 3);
    cl_queue_free(&q);
}

/* Nor does a tenant that runs less than its part while the others wait. */
static void nothing_is_saved_up_while_running(void **state) {
    (void)state;
    cl_queue q = {0};
    cl_request *small = request_of(1, 7, 0, 0), *waiting = request_of(2, 8, 0, 0), *next = request_of(3, 7, 1, 0);
    add(&q, small);
    add(&q, waiting);
    cl_queue_remove(&q, small); /* it runs */
    cl_tenant_charge(small->tenant, 10);
    cl_tenant_charge(waiting->tenant, 1000); /* by other requests */
    add(&q, next);
    assert_true(next->tenant->served == 1000);
    cl_queue_remove(&q, next);
    cl_queue_remove(&q, waiting); /* nobody waits now, and the tenant that waited last runs on */
    cl_tenant_charge(waiting->tenant, 500);
    cl_queue_put(&q, next);
    assert_true(next->tenant->served == 1500);
    cl_queue_put(&q, small);
    end(&q, small);
    end(&q, next);
    cl_queue_put(&q, waiting);
    end(&q, waiting);
    cl_queue_free(&q);
}

/* A tenant that starts again is before one that has choices in the cache, although that one's requests are older. */
static void who_starts_again_is_next(void **state) {
    (void)state;
    cl_queue q = {0};
    cl_request *flood = request_of(1, 7, 0, 0), *first = request_of(2, 8, 5, 0), *second = request_of(3, 9, 6, 0);
    add(&q, flood);
    flood->tenant->n_in_cache = 3;
    cl_tenant_charge(flood->tenant, 1000);
    add(&q, first);
    assert_ptr_equal(cl_queue_first(&q), first);
    add(&q, second); /* it starts as the first did, which has nothing in the cache, so the older request stays first */
    assert_ptr_equal(cl_queue_first(&q), first);
    cl_tenant_charge(first->tenant, 1);
    assert_ptr_equal(cl_queue_first(&q), second);
    cl_tenant_charge(second->tenant, 1);
    assert_ptr_equal(cl_queue_first(&q), flood);
    end(&q, first);
    end(&q, second);
    end(&q, flood);
    cl_queue_free(&q);
}

/* What requests leave counts for their tenant and their priority; the tenants that come last have accounts in common. */
static void tenants_have_accounts(void **state) {
    (void)state;
    cl_queue q = {0};
    assert_int_equal(cl_queue_account(&q, 77, 0), 0);
    for (uint32_t i = 0; i < CL_ACCOUNT_TENANTS + 10; i++) {
        const uint32_t expected = 2 * (i < CL_ACCOUNT_TENANTS - 1 ? i + 1 : CL_ACCOUNT_TENANTS);
        assert_int_equal(cl_queue_account(&q, 1000 + i, -5), expected);
        assert_int_equal(cl_queue_account(&q, 1000 + i, 0), expected);
        assert_int_equal(cl_queue_account(&q, 1000 + i, 1), expected + 1);
        assert_true(expected + 1 < CATTN_MAX_ACCOUNTS);
    }
    assert_int_equal(cl_queue_account(&q, 1001, 0), 4);
    assert_int_equal(cl_queue_account(&q, 77, CL_ENGINE_MAX_PRIORITY), 1);
}

static void accounts_have_the_weights_of_tenants(void **state) {
    (void)state;
    cl_queue q = {0};
    assert_true(cl_queue_set_weight(&q, 5, 4));
    cl_request *r[] = {request_of(1, 5, 0, 0), request_of(2, 5, 0, 0), request_of(3, 6, 0, 0)};
    r[1]->params.priority = 3;
    const float weights[] = {4, 0.5F, 1};
    for (int i = 0; i < 3; i++) {
        cattn_join_options options;
        cattn_join_options_init(&options);
        add(&q, r[i]);
        cl_request_set_account(r[i], &options);
        assert_int_equal(options.account, i);
        assert_true(options.account_weight == weights[i]);
    }
    for (int i = 0; i < 3; i++) end(&q, r[i]);
    cl_queue_free(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_is_the_best),
        cmocka_unit_test(waiting_is_bounded),
        cmocka_unit_test(counters_stay_together),
        cmocka_unit_test(tenants_have_accounts),
        cmocka_unit_test(accounts_have_the_weights_of_tenants),
        cmocka_unit_test(nothing_is_saved_up),
        cmocka_unit_test(nothing_is_saved_up_while_running),
        cmocka_unit_test(who_starts_again_is_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
