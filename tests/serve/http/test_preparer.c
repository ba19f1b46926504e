/* Tenants take turns, a tenant's tasks keep their order, and all are prepared, one at a time, on another thread. */
#include "tests/support/testing.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http/preparer.h"

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
    http_preparer *to;
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
    http_preparer *p = preparer_create(prepare);
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

/* ---- Turns ---- */

enum { N_LETTERS = 11 };

static char letters[N_LETTERS + 1]; /* of the tasks in the order in which they were prepared */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool has_begun;

static void note(preparer_task *task) {
    const numbered *t = (const numbered *)task;
    atomic_store(&has_begun, true);
    pthread_mutex_lock(&gate); /* the first task waits here until all have been added */
    letters[strlen(letters)] = (char)t->number;
    pthread_mutex_unlock(&gate);
}

/* While a task of tenant a is prepared, six more of it are added, then others: those wait for one of each tenant at most. */
static void tenants_take_turns(void **state) {
    (void)state;
    static const char added[] = "aAAAAAABBCB";
    numbered tasks[N_LETTERS];
    http_preparer *p = preparer_create(note);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < N_LETTERS; i++) {
        tasks[i] = (numbered){.number = added[i], .task.domain = (uint32_t)toupper(added[i])};
        preparer_add(p, &tasks[i].task);
        while (!atomic_load(&has_begun)) sched_yield();
    }
    pthread_mutex_unlock(&gate);
    preparer_destroy(&p);
    assert_string_equal(letters, "aABCABABAAA");
}

static void none_is_fine(void **state) {
    (void)state;
    http_preparer *p = preparer_create(prepare);
    preparer_destroy(&p);
    preparer_destroy(&p);
    preparer_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tasks_keep_their_order), cmocka_unit_test(tenants_take_turns),
                                       cmocka_unit_test(none_is_fine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
