/* The worker pool, whose state is one word: which loop runs, and how many of its tasks are left. See threads.h. */
#define _GNU_SOURCE /* CPU sets */
#include "threads.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"
#include "guard.h"
#include "signals.h"

/*
 * The word `loop` holds the loop's number and the number of its tasks that no worker has taken yet:
 *
 *   63      32 31        0
 *   [ loop    | n_left   ]
 *
 * A worker takes a task by decrementing the word with compare-and-swap. If the swap succeeds, what the worker has read before
 * (fn, arg, n_tasks) belongs to this loop: the caller changes these only when n_left is 0 and all tasks are done, and then it
 * changes the loop's number too. Hence the caller waits only for workers that have taken a task. A worker that is not
 * scheduled, or that comes late, delays no other.
 *
 * A waiting thread spins for a few microseconds, then yields, then sleeps: if another process occupies a core, the thread that
 * is waited for may need the very core on which the waiting thread spins.
 */
struct ca_pool {
    alignas(64) _Atomic uint64_t loop;
    alignas(64) _Atomic int32_t n_done; /* tasks of the present loop */
    alignas(64) _Atomic int32_t n_tasks;
    _Atomic(ca_task) fn;
    _Atomic(void *) arg;
    ca_task share_fn; /* of the present loop in shares; on the cache line that workers read in every loop */
    void *share_arg;
    _Atomic bool stop;
    _Atomic int32_t n_sleeping; /* workers */
    _Atomic bool caller_sleeping;
    pthread_mutex_t mutex;
    pthread_cond_t work, done; /* for workers and for the caller */
    int n_threads, n_started;
    uint32_t process; /* in which they were started */
    struct worker {
        alignas(64) _Atomic int32_t next; /* the first task of its share that is not taken */
        int32_t end;                      /* of its share */
        ca_pool *pool;
        pthread_t thread;
        int32_t id;
    } workers[]; /* [n_threads]; 0 is the caller */
};

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait for ready(pool) without sleeping. False if it is time to sleep. */
static bool spin(ca_pool *pool, bool (*ready)(ca_pool *)) {
    enum { PAUSES = 32 };
    const double spin_s = 5e-6, yield_s = 50e-6, start = clock_seconds();
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (ready(pool)) return true;
            pause_cpu();
        }
        const double waited = clock_seconds() - start;
        if (waited > yield_s) return false;
        if (waited > spin_s) sched_yield();
    }
}

static bool has_work(ca_pool *pool) { return (uint32_t)atomic_load(&pool->loop) != 0 || atomic_load(&pool->stop); }
static bool is_done(ca_pool *pool) { return atomic_load(&pool->n_done) == atomic_load(&pool->n_tasks); }

/* Run tasks until none is left to take. */
static void work(ca_pool *pool, int32_t worker) {
    int32_t n_done = 0;
    for (;;) {
        uint64_t loop = atomic_load(&pool->loop);
        if ((uint32_t)loop == 0) break;
        const int32_t task = atomic_load(&pool->n_tasks) - (int32_t)(uint32_t)loop;
        const ca_task fn = atomic_load(&pool->fn);
        void *const arg = atomic_load(&pool->arg);
        if (!atomic_compare_exchange_weak(&pool->loop, &loop, loop - 1)) continue;
        fn(arg, task, worker);
        n_done++;
    }
    /* The worker whose tasks are counted last ends the loop; from then on the caller may start the next. */
    if (n_done == 0) return;
    const int32_t n_tasks = atomic_load(&pool->n_tasks);
    if (atomic_fetch_add(&pool->n_done, n_done) + n_done == n_tasks && atomic_load(&pool->caller_sleeping)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

/*
 * A sleeper counts itself, then checks the condition again. A thread that changes the condition does so first, then looks for
 * sleepers. So one of the two always notices the other.
 */
static void sleep_for_work(ca_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!has_work(pool)) pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void sleep_till_done(ca_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeping, true);
    while (!is_done(pool)) pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_sleeping, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* Wake n workers, or all sleepers if there are no more. */
static void wake_workers(ca_pool *pool, int32_t n) {
    if (atomic_load(&pool->n_sleeping) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    if (n >= atomic_load(&pool->n_sleeping)) {
        pthread_cond_broadcast(&pool->work);
    } else {
        for (int32_t i = 0; i < n; i++) pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg) {
    const struct worker *w = arg;
    thread_set_name("cattn-worker");
    while (!atomic_load(&w->pool->stop)) {
        if (!spin(w->pool, has_work)) sleep_for_work(w->pool);
        work(w->pool, w->id);
    }
    return NULL;
}

/* Start the threads with all signals blocked, since signals are for the program's own threads. Returns 0 or an error. */
static int start_workers(ca_pool *pool) {
    sigset_t before;
    signals_block_all(&before);
    int failed = 0;
    for (int i = 1; i < pool->n_threads && !failed; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].id = i;
        failed = pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]);
        if (!failed) pool->n_started++;
    }
    signals_restore(&before);
    return failed;
}

ca_pool *ca_pool_create(int n_threads) {
    assert(n_threads >= 1);
    const size_t size = sizeof(ca_pool) + (size_t)n_threads * sizeof(struct worker);
    ca_pool *pool = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!pool) return NULL;
    *pool = (ca_pool){.n_threads = n_threads, .process = ca_process()};
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    if (start_workers(pool) != 0) ca_pool_destroy(&pool);
    return pool;
}

/* Stop the threads, and free what they wait for. */
static void stop_workers(ca_pool *p) {
    atomic_store(&p->stop, true);
    wake_workers(p, p->n_started);
    for (int i = 1; i <= p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
}

void ca_pool_destroy(ca_pool **pool) {
    if (!pool || !*pool) return;
    if ((*pool)->process == ca_process()) stop_workers(*pool); /* a child of fork(2) has none */
    free(*pool);
    *pool = NULL;
}

int ca_pool_size(const ca_pool *pool) { return pool->n_threads; }

static bool pin(struct worker *w, int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(w->thread, sizeof one, &one) == 0;
}

bool ca_pool_pin(ca_pool *pool) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < pool->n_threads) return false;
    int next = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && next < pool->n_threads; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        if (next > 0 && !pin(&pool->workers[next], cpu)) break;
        next++;
    }
    if (next == pool->n_threads) return true;
    for (int i = 1; i < next; i++) pthread_setaffinity_np(pool->workers[i].thread, sizeof allowed, &allowed);
    return false;
}

void ca_pool_run(void *pool, int32_t n_tasks, ca_task fn, void *arg) {
    ca_pool *p = pool;
    if (n_tasks <= 1 || p->n_threads == 1) { /* no task for another worker */
        for (int32_t task = 0; task < n_tasks; task++) fn(arg, task, 0);
        return;
    }
    const uint64_t number = (atomic_load(&p->loop) >> 32) + 1;
    /* The store to `loop` orders these. If each were ordered, each would wait for its cache line to come from the workers. */
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->n_tasks, n_tasks, memory_order_relaxed);
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store(&p->loop, number << 32 | (uint32_t)n_tasks);
    wake_workers(p, n_tasks - 1);
    work(p, 0);
    if (!spin(p, is_done)) sleep_till_done(p);
}

/* Take a task of the worker's own share, or of another share if there is none left; -1 if there is none at all. */
static int32_t take_shared(ca_pool *pool, int32_t worker) {
    for (int32_t n = 0, i = worker; n < pool->n_threads; n++, i = i + 1 < pool->n_threads ? i + 1 : 0) {
        struct worker *w = &pool->workers[i];
        if (atomic_load(&w->next) >= w->end) continue;
        const int32_t task = atomic_fetch_add(&w->next, 1);
        if (task < w->end) return task;
    }
    return -1;
}

/*
 * The task of the loop that runs a loop in shares. There are only as many as workers, so that the words which all workers write
 * are written once for each worker, not for each task. The caller waits for a worker that is preempted inside one, as inside
 * any task; the rest of its share is taken by the others.
 */
static void run_shared(void *arg, int32_t index, int32_t worker) {
    (void)index;
    ca_pool *pool = arg;
    for (int32_t task; (task = take_shared(pool, worker)) >= 0;) pool->share_fn(pool->share_arg, task, worker);
}

void ca_pool_run_shares(ca_pool *pool, int32_t n_tasks, ca_task fn, void *arg) {
    for (int i = 0; i < pool->n_threads; i++) {
        const int32_t first = (int32_t)((int64_t)n_tasks * i / pool->n_threads);
        atomic_store_explicit(&pool->workers[i].next, first, memory_order_relaxed);
        pool->workers[i].end = (int32_t)((int64_t)n_tasks * (i + 1) / pool->n_threads);
    }
    pool->share_fn = fn;
    pool->share_arg = arg;
    ca_pool_run(pool, n_tasks < pool->n_threads ? n_tasks : pool->n_threads, run_shared, pool);
}
