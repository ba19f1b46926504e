/* The coroutines, and the functions of pthread.h that they take the place of: see io_thread.h. */
#include "io_thread.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "chunkattn/base/threads.h"
#include "faults.h"

ca_pool *__real_ca_pool_create(int n_threads);
ca_pool *__wrap_ca_pool_create(int n_threads);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int __wrap_pthread_join(pthread_t id, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);

enum { MAX_THREADS = 2, STACK_BYTES = 256 << 10, STALL_US = 300000 };

typedef struct thread {
    ucontext_t context;
    bool exists, has_ended;
    double time, wake_at; /* wake_at: INFINITY if it waits for a signal */
    const pthread_cond_t *waits_for;
    void *(*start)(void *);
    void *arg;
} thread;

static thread threads[MAX_THREADS];
static char stacks[MAX_THREADS][STACK_BYTES];
static ucontext_t program;
static thread *running; /* NULL: the program runs */
static double longest_wait;

/* What the program waits for; NULL: nothing, or it was signalled. */
static const pthread_cond_t *program_waits_for;

/* The thread that goes on first, of equal ones the one that was started first; NULL: none does before it is signalled. */
static thread *first_to_wake(void) {
    thread *first = NULL;
    for (int i = 0; i < MAX_THREADS; i++) {
        thread *t = &threads[i];
        if (t->exists && t->wake_at < INFINITY && (!first || t->wake_at < first->wake_at)) first = t;
    }
    return first;
}

bool io_thread_exists(void) {
    bool exists = false;
    for (int i = 0; i < MAX_THREADS; i++) exists |= threads[i].exists;
    return exists;
}

bool io_thread_is_busy(void) { return first_to_wake(); }
double io_thread_longest_wait(void) { return longest_wait; }
double io_thread_seconds(void) { return running ? running->time : sim_steady_time(); }

/* A mistake of the tier, or a call that this file does not simulate. */
static void require(bool condition, const char *otherwise) {
    if (condition) return;
    fprintf(stderr, "%s\n", otherwise);
    abort();
}

/* ---- Switching ---- */

/* Run a thread until it waits. It allocates nothing, so that no allocation of its can fail. */
static void resume(thread *t) {
    const bool armed = faults_disarm();
    const int64_t n_allocations = faults_n_allocations();
    if (t->time < t->wake_at) t->time = t->wake_at;
    running = t;
    swapcontext(&program, &t->context);
    running = NULL;
    require(faults_n_allocations() == n_allocations, "an I/O thread of the tier allocates memory");
    if (armed) faults_arm();
}

/* In a thread: let the program go on until the thread's time has come, or it is signalled. */
static void wait_until(double time) {
    thread *t = running;
    if (time < INFINITY && time - t->time > longest_wait) longest_wait = time - t->time;
    t->wake_at = time;
    swapcontext(&t->context, &program);
}

/* Let the clock run to the time at which a thread goes on, and let it go on. */
static void resume_later(void) {
    thread *t = first_to_wake();
    require(t, "the program waits for the tier's I/O threads, and they do nothing");
    if (t->wake_at > sim_steady_time()) sim_time += t->wake_at - sim_steady_time();
    resume(t);
}

void io_thread_run(void) {
    for (thread *t; (t = first_to_wake()) && t->wake_at <= sim_steady_time();) resume(t);
}

void io_thread_sleep(double seconds) {
    if (!running) return;
    if (fault_fires(FAULT_STALL)) seconds += 1e-6 * STALL_US;
    wait_until(running->time + seconds);
}

/* ---- Threads ---- */

static void thread_main(void) {
    running->start(running->arg);
    running->has_ended = true;
    wait_until(INFINITY);
}

/* Let the thread begin with thread_main, when it is resumed. */
static void prepare(thread *t, char *stack) {
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = stack;
    t->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t->context, thread_main, 0);
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    (void)attr;
    int i = 0;
    while (i < MAX_THREADS && threads[i].exists) i++;
    require(i < MAX_THREADS, "more threads are started than the tier has");
    if (fault_fires(FAULT_THREAD)) return EAGAIN;
    thread *t = &threads[i];
    *t = (thread){.exists = true, .time = sim_steady_time(), .wake_at = sim_steady_time(), .start = start, .arg = arg};
    prepare(t, stacks[i]);
    *id = (pthread_t)i;
    return 0;
}

/* Where the tier would read headers in several threads, one after the other is read: no pool has more than its caller. */
ca_pool *__wrap_ca_pool_create(int n_threads) {
    (void)n_threads;
    return __real_ca_pool_create(1);
}

int __wrap_pthread_join(pthread_t id, void **result) {
    (void)result;
    while (!threads[id].has_ended) resume_later();
    threads[id].exists = false;
    return 0;
}

/* ---- Locks ---- */

/* No thread waits with a mutex locked, so that a lock never has to wait. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (running && fault_fires(FAULT_STALL)) wait_until(running->time + 1e-6 * STALL_US);
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    pthread_mutex_unlock(mutex);
    if (running) {
        running->waits_for = cond;
        wait_until(INFINITY);
    } else {
        program_waits_for = cond;
        while (program_waits_for) resume_later();
    }
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline) {
    require(!running, "an I/O thread of the tier waits for some time");
    const double end = (double)deadline->tv_sec + 1e-9 * (double)deadline->tv_nsec;
    pthread_mutex_unlock(mutex);
    program_waits_for = cond;
    for (const thread *t; program_waits_for && (t = first_to_wake()) && t->wake_at <= end;) resume_later();
    const bool in_time = !program_waits_for;
    program_waits_for = NULL;
    if (!in_time && end > sim_steady_time()) sim_time += end - sim_steady_time();
    __real_pthread_mutex_lock(mutex);
    return in_time ? 0 : ETIMEDOUT;
}

/* Wake the first thread that waits, or all, and the program. */
static void wake(const pthread_cond_t *cond, bool all) {
    if (program_waits_for == cond) program_waits_for = NULL;
    for (int i = 0; i < MAX_THREADS; i++) {
        thread *t = &threads[i];
        if (!t->exists || t->waits_for != cond) continue;
        t->waits_for = NULL;
        t->wake_at = io_thread_seconds();
        if (!all) return;
    }
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    wake(cond, false);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    wake(cond, true);
    return 0;
}
