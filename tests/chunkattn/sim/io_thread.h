/*
 * The I/O threads of the file tier as coroutines, so that one seed gives one interleaving. At link time the functions of
 * io_thread.c take the place of pthread_create, pthread_join, pthread_mutex_lock and those for condition variables; the tier's
 * threads are the only ones, since the engine runs with one.
 *
 * A thread runs when the program calls io_thread_run, waits for a condition variable, or joins a thread. It stops where it
 * waits: for a signal, in a call of the disk, or before it locks a mutex, where the system may interrupt it. Each of these ends
 * at a virtual time, and the thread whose time comes first goes on. So the program may release a chunk while its record is
 * being read, or while it is being copied.
 */
#ifndef TESTS_CHUNKATTN_SIM_IO_THREAD_H
#define TESTS_CHUNKATTN_SIM_IO_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* Let the threads do what they do up to now. */
void io_thread_run(void);

/* Wait: in a thread, so that the program goes on meanwhile; elsewhere, at once. */
void io_thread_sleep(double seconds);

/* The time where the caller is, in seconds: a thread's is behind that of the program while it is being run. */
double io_thread_seconds(void);

/* Whether there is a thread, and whether any goes on, now or later, without being signalled. */
bool io_thread_exists(void);
bool io_thread_is_busy(void);

/* The longest time for which a thread has waited at once since the program began, beside for signals. */
double io_thread_longest_wait(void);

#endif
