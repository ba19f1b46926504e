/* Tasks are prepared in the order they come in, one at a time, on another thread, and all of them before the end. */
#include "../support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/preparer.h"

enum { N_THREADS = 4, N_TASKS = 1000 };

typedef struct numbered {
    preparer_task task;
    int thread, number;
} numbered;

typedef struct order {
    pthread_t thread;
    int next[N_THREADS];
    int n_wrong, n_done;
} order;

static order seen; /* of the preparer's thread, without a lock */
static atomic_int at_once;

static void prepare(preparer_task *task) {
    const numbered *t = (const numbered *)task;
    seen.n_wrong += atomic_fetch_add(&at_once, 1) != 0 || t->number != seen.next[t->thread]++;
    seen.n_done++;
    seen.thread = pthread_self();
    atomic_fetch_sub(&at_once, 1);
    free(task);
}

typedef struct sender {
    preparer *to;
    int thread;
} sender;

static void *send_tasks(void *arg) {
    const sender *s = arg;
    for (int i = 0; i < N_TASKS; i++) {
        numbered *t = malloc(sizeof *t);
        *t = (numbered){.thread = s->thread, .number = i};
        preparer_add(s->to, &t->task);
    }
    return NULL;
}

static void tasks_keep_their_order(void **state) {
    (void)state;
    preparer *p = preparer_create(prepare);
    assert_non_null(p);
    sender senders[N_THREADS];
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        senders[i] = (sender){p, i};
        pthread_create(&threads[i], NULL, send_tasks, &senders[i]);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    preparer_destroy(&p);
    assert_null(p);
    assert_int_equal(seen.n_done, N_THREADS * N_TASKS);
    assert_int_equal(seen.n_wrong, 0);
    assert_false(pthread_equal(seen.thread, pthread_self()));
}

static void none_is_fine(void **state) {
    (void)state;
    preparer *p = preparer_create(prepare);
    preparer_destroy(&p);
    preparer_destroy(&p);
    preparer_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tasks_keep_their_order), cmocka_unit_test(none_is_fine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
