/*
 * A pool of persistent worker threads that runs the tasks of one parallel loop at a time.
 *
 * The calling thread is worker 0. Workers spin briefly between loops, then sleep. A loop allocates nothing, and takes no lock
 * if its workers are awake. One thread at a time may use a pool, and never from a task.
 */
#ifndef CHUNKATTN_BASE_THREADS_H
#define CHUNKATTN_BASE_THREADS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ca_pool ca_pool;
/* Task `task` of a loop, run by worker `worker`; arg is the loop's. */
typedef void (*ca_task)(void *arg, int32_t task, int32_t worker);

/* A pool of n_threads >= 1 workers, for which n_threads - 1 threads are started. NULL without memory or threads. */
ca_pool *ca_pool_create(int n_threads);

/*
 * Stop the threads, free the pool and set *pool to NULL. pool and *pool may be NULL. In a child of fork(2), which has none of
 * the threads, it only frees.
 */
void ca_pool_destroy(ca_pool **pool);

/* The number of workers, the caller included. */
int ca_pool_size(const ca_pool *pool);

/*
 * Bind each worker except the caller to a CPU of its own among those that this process may use. The first CPU is left to the
 * caller, which is not bound. False, with nothing changed, if there are fewer CPUs than workers or the system refuses.
 */
bool ca_pool_pin(ca_pool *pool);

/*
 * Call fn(arg, task, worker) once for each task in [0, n_tasks), and return when all calls have returned. Tasks are given in
 * ascending order to workers that are free. Tasks see what the caller wrote before, and the caller sees what they wrote. `pool`
 * is a ca_pool; it is a void * so that the function fits cattn_parallel.
 */
void ca_pool_run(void *pool, int32_t n_tasks, ca_task fn, void *arg);

/*
 * The same in equal shares of consecutive tasks. A worker has the same share in every loop of n_tasks tasks, so that it finds
 * in its cache what it left there. A worker that has finished its share helps the others.
 */
void ca_pool_run_shares(ca_pool *pool, int32_t n_tasks, ca_task fn, void *arg);

#endif
