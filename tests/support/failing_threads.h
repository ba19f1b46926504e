/*
 * Makes threads of the linked code fail to start. Included by one file of a program, which is linked with
 * --wrap=pthread_create.
 */
#ifndef TESTS_SUPPORT_FAILING_THREADS_H
#define TESTS_SUPPORT_FAILING_THREADS_H

#include <errno.h>
#include <pthread.h>

static int threads_left = -1; /* that start before one does not; < 0: all start */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg), void *arg) {
    if (threads_left >= 0 && threads_left-- == 0) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, arg);
}

#endif
