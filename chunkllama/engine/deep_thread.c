/* Runs calls on a thread with a large stack: see deep_thread.h. */
#include "deep_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/signals.h"

/* Bytes of the stack, at whose end is a page that cannot be accessed; and the bytes that stay resident between calls. */
static const size_t STACK = (size_t)256 << 20, GUARD = 1 << 16, KEPT = 1 << 17;

struct cl_deep_thread {
    char *stack; /* [STACK] mapped, owned */
    pthread_t thread;
    pthread_mutex_t turn;  /* held by the thread whose call it is */
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    void (*run)(void *arg); /* NULL: nothing to do */
    void *arg;
    bool stops;
};

/* Return the memory of the stack that is not in use. It grows downwards, so that is what is below this function's frame. */
static void return_stack(const cl_deep_thread *t) {
    const size_t used = (size_t)(t->stack + STACK - (char *)__builtin_frame_address(0));
    if (used < KEPT) madvise(t->stack + GUARD, STACK - KEPT - GUARD, MADV_DONTNEED);
}

static void *work(void *arg) {
    cl_deep_thread *t = arg;
    thread_set_name("cl-grammar");
    pthread_mutex_lock(&t->mutex);
    while (!t->stops) {
        if (!t->run) {
            pthread_cond_wait(&t->changed, &t->mutex);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        t->run(t->arg);
        return_stack(t);
        pthread_mutex_lock(&t->mutex);
        t->run = NULL;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* Start the thread with all signals blocked, as the engine's. */
static bool start(cl_deep_thread *t) {
    sigset_t before;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    signals_block_all(&before);
    const bool ok =
        pthread_attr_setstack(&attributes, t->stack, STACK) == 0 && pthread_create(&t->thread, &attributes, work, t) == 0;
    signals_restore(&before);
    pthread_attr_destroy(&attributes);
    return ok;
}

cl_deep_thread *cl_deep_thread_create(void) {
    cl_deep_thread *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (t->stack == MAP_FAILED) {
        free(t);
        return NULL;
    }
    mprotect(t->stack, GUARD, PROT_NONE);
    pthread_mutex_init(&t->turn, NULL);
    pthread_mutex_init(&t->mutex, NULL);
    clock_cond_init(&t->changed);
    if (start(t)) return t;
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->mutex);
    pthread_mutex_destroy(&t->turn);
    munmap(t->stack, STACK);
    free(t);
    return NULL;
}

void cl_deep_thread_free(cl_deep_thread **tp) {
    cl_deep_thread *t = tp ? *tp : NULL;
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    t->stops = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->mutex);
    pthread_mutex_destroy(&t->turn);
    munmap(t->stack, STACK);
    free(t);
    *tp = NULL;
}

void cl_deep_thread_call(cl_deep_thread *t, void (*run)(void *arg), void *arg, double limit, void (*late)(void *arg)) {
    pthread_mutex_lock(&t->turn);
    pthread_mutex_lock(&t->mutex);
    t->run = run;
    t->arg = arg;
    pthread_cond_broadcast(&t->changed);
    const struct timespec until = clock_deadline(limit);
    while (t->run && pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0) {
    }
    if (t->run) late(arg);
    while (t->run) pthread_cond_wait(&t->changed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    pthread_mutex_unlock(&t->turn);
}
