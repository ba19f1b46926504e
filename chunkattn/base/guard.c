/* The number of the process, and how a call begins: see guard.h. */
#include "guard.h"

#include <pthread.h>
#include <stddef.h>

#include "fail.h"

static uint32_t process = 1;

static void note_child(void) { process++; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, note_child); }

uint32_t ca_process(void) { return process; }

cattn_status ca_guard_enter(ca_guard *guard, const char *handle, cattn_error *error) {
    if (ca_guard_is_inherited(guard))
        return ca_fail(error, CATTN_ERR_STATE, -1,
                       "%s was created before fork(2), by the parent of this process, which has none of its threads; destroy "
                       "it and create another one",
                       handle);
    if (!atomic_exchange_explicit(&guard->busy, true, memory_order_acquire)) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_STATE, -1,
                   "%s is in use by another call, of another thread or around this one; calls on one handle must not overlap",
                   handle);
}
