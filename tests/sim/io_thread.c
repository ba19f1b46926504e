/* The coroutine, and the functions of pthread.h that it takes the place of: see io_thread.h. */
#include "io_thread.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "faults.h"

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int __wrap_pthread_join(pthread_t id, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);

enum { STACK_BYTES = 256 << 10, STALL_US = 300000 };

/* The thread; all zero if there is none. */
static struct {
    ucontext_t program, own;
    bool exists, runs, has_ended;
    double time, wake_at; /* wake_at: INFINITY if it waits for a signal */
    const pthread_cond_t *waits_for;
    void *(*start)(void *);
    void *arg;
} thread;

static char stack[STACK_BYTES];
static double longest_wait;

/* What the program waits for; NULL: nothing, or it was signalled. */
static const pthread_cond_t *program_waits_for;

bool io_thread_exists(void) { return thread.exists; }
bool io_thread_is_busy(void) { return thread.exists && thread.wake_at < INFINITY; }
double io_thread_longest_wait(void) { return longest_wait; }
double io_thread_seconds(void) { return thread.runs ? thread.time : sim_steady_time(); }

/* A mistake of the tier, or a call that this file does not simulate. */
static void require(bool condition, const char *otherwise) {
    if (condition) return;
    fprintf(stderr, "%s\n", otherwise);
    abort();
}

/* ---- Switching ---- */

/* Run the thread until it waits. It allocates nothing, so that no allocation of its can fail. */
static void resume(void) {
    const bool armed = faults_disarm();
    const int64_t n_allocations = faults_n_allocations();
    if (thread.time < thread.wake_at) thread.time = thread.wake_at;
    thread.runs = true;
    swapcontext(&thread.program, &thread.own);
    thread.runs = false;
    require(faults_n_allocations() == n_allocations, "the tier's I/O thread allocates memory");
    if (armed) faults_arm();
}

/* In the thread: let the program go on until the thread's time has come, or it is signalled. */
static void wait_until(double time) {
    if (time < INFINITY && time - thread.time > longest_wait) longest_wait = time - thread.time;
    thread.wake_at = time;
    swapcontext(&thread.own, &thread.program);
}

/* Let the clock run to the time at which the thread goes on, and let it go on. */
static void resume_later(void) {
    require(thread.exists && thread.wake_at < INFINITY, "the program waits for the tier's I/O thread, and it does nothing");
    if (thread.wake_at > sim_steady_time()) sim_time += thread.wake_at - sim_steady_time();
    resume();
}

void io_thread_run(void) {
    while (thread.exists && !thread.has_ended && thread.wake_at <= sim_steady_time()) resume();
}

void io_thread_sleep(double seconds) {
    if (!thread.runs) return;
    if (fault_fires(FAULT_STALL)) seconds += 1e-6 * STALL_US;
    wait_until(thread.time + seconds);
}

/* ---- Threads ---- */

static void thread_main(void) {
    thread.start(thread.arg);
    thread.has_ended = true;
    wait_until(INFINITY);
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    (void)attr;
    require(!thread.exists, "a second thread is started");
    if (fault_fires(FAULT_THREAD)) return EAGAIN;
    thread.exists = true;
    thread.has_ended = false;
    thread.time = thread.wake_at = sim_steady_time();
    thread.start = start;
    thread.arg = arg;
    getcontext(&thread.own);
    thread.own.uc_stack.ss_sp = stack;
    thread.own.uc_stack.ss_size = sizeof stack;
    makecontext(&thread.own, thread_main, 0);
    *id = pthread_self();
    return 0;
}

int __wrap_pthread_join(pthread_t id, void **result) {
    (void)id, (void)result;
    while (!thread.has_ended) resume_later();
    thread.exists = false;
    return 0;
}

/* ---- Locks ---- */

/* No thread waits with a mutex locked, so that a lock never has to wait. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (thread.runs && fault_fires(FAULT_STALL)) wait_until(thread.time + 1e-6 * STALL_US);
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    pthread_mutex_unlock(mutex);
    if (thread.runs) {
        thread.waits_for = cond;
        wait_until(INFINITY);
    } else {
        program_waits_for = cond;
        while (program_waits_for) resume_later();
    }
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline) {
    require(!thread.runs, "the tier's I/O thread waits for some time");
    const double end = (double)deadline->tv_sec + 1e-9 * (double)deadline->tv_nsec;
    pthread_mutex_unlock(mutex);
    program_waits_for = cond;
    while (program_waits_for && thread.wake_at <= end) resume_later();
    const bool in_time = !program_waits_for;
    program_waits_for = NULL;
    if (!in_time && end > sim_steady_time()) sim_time += end - sim_steady_time();
    __real_pthread_mutex_lock(mutex);
    return in_time ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    if (program_waits_for == cond) program_waits_for = NULL;
    if (thread.exists && thread.waits_for == cond) {
        thread.waits_for = NULL;
        thread.wake_at = sim_steady_time();
    }
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) { return __wrap_pthread_cond_signal(cond); }
