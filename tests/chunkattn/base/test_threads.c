/* The worker pool with 1 to 8 threads, on any number of CPUs: each task runs once, no worker runs two tasks at a time, and
 * tasks and caller see what the other wrote. */
#define _GNU_SOURCE
#include "tests/support/wait.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/cpu.h"
#include "chunkattn/base/threads.h"
#include "tests/support/sleeping.h"

enum { MAX_THREADS = 8, MAX_TASKS = 1000 };

typedef struct loop {
    int n_threads;
    int32_t input[MAX_TASKS], output[MAX_TASKS]; /* plain memory: a race shows under TSan */
    int32_t n_calls[MAX_TASKS];
    atomic_int busy[MAX_THREADS];
    atomic_int n_bad, last;
    int32_t n_tasks,
        latest[MAX_THREADS]; /* latest[worker]: last task of its own share, -1 before the first, n_tasks once it helps others */
} loop;

static void task_fn(void *arg, int32_t task, int32_t worker) {
    loop *l = arg;
    if (worker < 0 || worker >= l->n_threads || atomic_exchange(&l->busy[worker], 1)) atomic_fetch_add(&l->n_bad, 1);
    l->n_calls[task]++;
    l->output[task] = l->input[task] * 3 + 1;
    atomic_store(&l->busy[worker], 0);
}

static void run_and_check(ca_pool *pool, loop *l, int32_t n_tasks, int32_t salt) {
    for (int32_t i = 0; i < n_tasks; i++) {
        l->input[i] = i ^ salt;
        l->n_calls[i] = 0;
    }
    ca_pool_run(pool, n_tasks, task_fn, l);
    for (int32_t i = 0; i < n_tasks; i++) {
        assert_int_equal(l->n_calls[i], 1);
        assert_int_equal(l->output[i], (i ^ salt) * 3 + 1);
    }
    assert_int_equal(atomic_load(&l->n_bad), 0);
}

static void every_task_once(void **state) {
    (void)state;
    static loop l;
    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        ca_pool *pool = ca_pool_create(n_threads);
        assert_non_null(pool);
        assert_int_equal(ca_pool_size(pool), n_threads);
        l.n_threads = n_threads;
        const int32_t counts[] = {0, 1, 2, 3, n_threads, n_threads + 1, 64, MAX_TASKS};
        for (int round = 0; round < 300; round++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_and_check(pool, &l, counts[i], round);
        ca_pool_destroy(&pool);
        assert_null(pool);
    }
    ca_pool_destroy(NULL);
}

/* A worker runs its own share first, in ascending order, and does not return to it. */
static void shared_task(void *arg, int32_t task, int32_t worker) {
    loop *l = arg;
    const int64_t begin = (int64_t)l->n_tasks * worker / l->n_threads, end = (int64_t)l->n_tasks * (worker + 1) / l->n_threads;
    const bool own = task >= begin && task < end;
    if (own && task <= l->latest[worker]) atomic_fetch_add(&l->n_bad, 1);
    l->latest[worker] = own ? task : l->n_tasks;
    task_fn(arg, task, worker);
}

static void shares(void **state) {
    (void)state;
    static loop l;
    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        ca_pool *pool = ca_pool_create(n_threads);
        l.n_threads = n_threads;
        const int32_t counts[] = {0, 1, n_threads - 1, n_threads + 1, 64, MAX_TASKS};
        for (int round = 0; round < 300; round++) {
            l.n_tasks = counts[round % (int)(sizeof counts / sizeof *counts)];
            memset(l.n_calls, 0, sizeof l.n_calls);
            for (int i = 0; i < n_threads; i++) l.latest[i] = -1;
            ca_pool_run_shares(pool, l.n_tasks, shared_task, &l);
            for (int32_t i = 0; i < l.n_tasks; i++) assert_int_equal(l.n_calls[i], 1);
            assert_int_equal(atomic_load(&l.n_bad), 0);
        }
        ca_pool_destroy(&pool);
    }
}

/* Loops so far apart that all workers sleep in between; some take less time than to wake up. */
static void after_sleep(void **state) {
    (void)state;
    static loop l = {.n_threads = 4};
    ca_pool *pool = ca_pool_create(4);
    for (int round = 0; round < 100; round++) {
        WAIT_UNTIL(others_sleep());
        run_and_check(pool, &l, 1 + round % 9, round);
    }
    ca_pool_destroy(&pool);
}

/* Pools that are destroyed right after their creation, after use, or while they sleep. */
static void create_and_destroy(void **state) {
    (void)state;
    static loop l;
    for (int round = 0; round < 200; round++) {
        l.n_threads = 1 + round % MAX_THREADS;
        ca_pool *pool = ca_pool_create(l.n_threads);
        assert_non_null(pool);
        if (round % 3) run_and_check(pool, &l, 10, round);
        if (round % 20 == 1) WAIT_UNTIL(others_sleep());
        ca_pool_destroy(&pool);
    }
}

typedef struct long_loop {
    atomic_int n_done;
    atomic_bool has_worker; /* a worker other than the caller runs a task */
} long_loop;

/* The caller leaves a task to another worker, who ends it when the caller sleeps. */
static void long_task(void *arg, int32_t task, int32_t worker) {
    (void)task, (void)worker;
    long_loop *l = arg;
    if (syscall(SYS_gettid) == getpid()) {
        while (!atomic_load(&l->has_worker)) sched_yield();
    } else {
        atomic_store(&l->has_worker, true);
        WAIT_UNTIL(thread_sleeps(getpid()));
    }
    atomic_fetch_add(&l->n_done, 1);
}

/* Tasks so long that the caller sleeps, and must be woken. */
static void caller_sleeps(void **state) {
    (void)state;
    ca_pool *pool = ca_pool_create(3);
    for (int round = 0; round < 30; round++) {
        long_loop l = {0};
        ca_pool_run(pool, 8, long_task, &l);
        assert_int_equal(atomic_load(&l.n_done), 8);
    }
    ca_pool_destroy(&pool);
}

static void in_order(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    loop *l = arg;
    if (atomic_exchange(&l->last, task) != task - 1) atomic_fetch_add(&l->n_bad, 1);
}

/* A pool of one thread runs the tasks in ascending order. */
static void ascending(void **state) {
    (void)state;
    static loop l;
    ca_pool *pool = ca_pool_create(1);
    atomic_store(&l.last, -1);
    ca_pool_run(pool, 50, in_order, &l);
    assert_int_equal(atomic_load(&l.n_bad), 0);
    assert_int_equal(atomic_load(&l.last), 49);
    ca_pool_destroy(&pool);
}

static void note_cpus(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    cpu_set_t *seen = (cpu_set_t *)arg + task;
    sched_getaffinity(0, sizeof *seen, seen);
    sched_yield(); /* so that other workers take a task, too */
}

/* A pinned worker has one CPU, and the caller is not bound. More threads than CPUs cannot be pinned, and run as before. */
static void pinned(void **state) {
    (void)state;
    const int n_cpus = ca_cpu_count();
    static cpu_set_t seen[MAX_TASKS];
    ca_pool *pool = ca_pool_create(n_cpus);
    assert_true(ca_pool_pin(pool));
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int round = 0, n_pinned = 0; n_cpus > 1 && n_pinned == 0; round++) {
        assert_true(round < 100000);
        ca_pool_run(pool, MAX_TASKS, note_cpus, seen);
        for (int i = 0; i < MAX_TASKS; i++) {
            if (CPU_EQUAL(&seen[i], &allowed)) continue; /* the caller ran this task */
            assert_int_equal(CPU_COUNT(&seen[i]), 1);
            n_pinned++;
        }
    }
    ca_pool_destroy(&pool);

    pool = ca_pool_create(n_cpus + 1);
    assert_false(ca_pool_pin(pool));
    ca_pool_run(pool, MAX_TASKS, note_cpus, seen);
    for (int i = 0; i < MAX_TASKS; i++) assert_true(CPU_EQUAL(&seen[i], &allowed));
    ca_pool_destroy(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once), cmocka_unit_test(shares),
        cmocka_unit_test(after_sleep),     cmocka_unit_test(create_and_destroy),
        cmocka_unit_test(caller_sleeps),   cmocka_unit_test(ascending),
        cmocka_unit_test(pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
