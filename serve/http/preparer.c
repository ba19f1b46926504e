/* A queue of tasks and the thread that prepares them. */
#include "preparer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct http_preparer {
    void (*prepare)(preparer_task *task);
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    preparer_task *first; /* by turn, then in the order in which they were added */
    uint64_t turn;        /* of the task that was prepared last */
    bool stop;
};

/* Wait for the next task and remove it from the queue; NULL: the queue is empty and the preparer ends. */
static preparer_task *take(http_preparer *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->first && !p->stop) pthread_cond_wait(&p->changed, &p->lock);
    preparer_task *task = p->first;
    if (task) {
        p->first = task->next;
        p->turn = task->turn;
    }
    pthread_mutex_unlock(&p->lock);
    return task;
}

static void *run(void *arg) {
    http_preparer *p = arg;
    for (preparer_task *task; (task = take(p));) p->prepare(task);
    return NULL;
}

http_preparer *preparer_create(void (*prepare)(preparer_task *task)) {
    http_preparer *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->prepare = prepare;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, run, p) == 0) return p;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

void preparer_destroy(http_preparer **address) {
    http_preparer *p = address ? *address : NULL;
    if (!p) return;
    *address = NULL;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* A tenant has one task in each turn: the next turn, or the one after the tenant's last task that waits. */
void preparer_add(http_preparer *p, preparer_task *task) {
    pthread_mutex_lock(&p->lock);
    task->turn = p->turn + 1;
    for (const preparer_task *t = p->first; t; t = t->next)
        if (t->domain == task->domain) task->turn = t->turn + 1;
    preparer_task **at = &p->first;
    while (*at && (*at)->turn <= task->turn) at = &(*at)->next;
    task->next = *at;
    *at = task;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}
