/*
 * A pool of persistent worker threads that runs the tasks of one parallel loop at a time.
 *
 * The calling thread is worker 0. Workers spin briefly between loops, then sleep. No allocation and no lock in a loop that
 * finds its workers awake.
 */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ca_pool ca_pool;
typedef void (*ca_task)(void *arg, int32_t task, int32_t worker);

/* Start n_threads - 1 threads (n_threads >= 1). NULL without memory or threads. */
ca_pool *ca_pool_create(int n_threads);
void ca_pool_destroy(ca_pool **pool);
int ca_pool_size(const ca_pool *pool);

/*
 * Bind each worker but the caller to a CPU of its own among those that this process may use, from the second on; the first is
 * left to the caller. False, and nothing changes, if there are fewer CPUs than threads or the system does not let it.
 */
bool ca_pool_pin(ca_pool *pool);

/*
 * Call fn(arg, task, worker) once for each task in [0, n_tasks), handed out in ascending order to whoever is free; return
 * when all are done. What the caller wrote before is seen by the tasks, and what they wrote by the caller after. Called from
 * one thread at a time, never from a task.
 */
void ca_pool_run(void *pool, int32_t n_tasks, ca_task fn, void *arg);

/*
 * The same in equal shares of tasks that follow one another: each worker has its own, the same one in every loop of n_tasks,
 * so that what it leaves in its cache is there when it comes back; who has done its share helps the others.
 */
void ca_pool_run_shares(ca_pool *pool, int32_t n_tasks, ca_task fn, void *arg);

#endif
