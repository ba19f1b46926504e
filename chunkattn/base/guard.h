/*
 * The rule of handles whose calls must not overlap: one call at a time, in the process that has created the handle. A guard
 * refuses the others by name: calls of two threads at once, calls from a callback or a hook of the caller's that runs inside a
 * call, and calls in a child of fork(2), which has a copy of the memory, but none of the threads.
 *
 * It costs a call one atomic exchange and a comparison. Any thread may use it at any time.
 */
#ifndef CHUNKATTN_BASE_GUARD_H
#define CHUNKATTN_BASE_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "chunkattn.h"

/*
 * The number of this process: children of fork(2) have another one than their parent. A child that was made without fork(2), by
 * clone(2) or _Fork, keeps the number.
 */
uint32_t ca_process(void);

typedef struct ca_guard {
    atomic_bool busy; /* a call runs */
    uint32_t process; /* in which the handle was created */
} ca_guard;

static inline void ca_guard_init(ca_guard *guard) {
    atomic_init(&guard->busy, false);
    guard->process = ca_process();
}

/* Whether the handle is the parent's of this process. */
static inline bool ca_guard_is_inherited(const ca_guard *guard) { return guard->process != ca_process(); }

/* Begin a call of a handle, whose name is for messages. CATTN_ERR_STATE if another one runs or the handle is inherited. */
cattn_status ca_guard_enter(ca_guard *guard, const char *handle, cattn_error *error);

/* End the call, if one has begun. */
static inline void ca_guard_leave(ca_guard **guard) {
    if (*guard) atomic_store_explicit(&(*guard)->busy, false, memory_order_release);
}

/*
 * The rest of the function, which returns a cattn_status, is a call of this handle, a struct with a `guard`. It returns here if
 * the handle is NULL, or if the call cannot begin.
 */
#define CA_CALL(handle, name, error)                                                                                           \
    __attribute__((cleanup(ca_guard_leave))) ca_guard *ca_guard_of_call = NULL;                                                \
    do {                                                                                                                       \
        cattn_status ca_entered = ca_need((handle), (name), (error));                                                          \
        if (ca_entered) return ca_entered;                                                                                     \
        if ((ca_entered = ca_guard_enter((ca_guard *)&(handle)->guard, (name), (error)))) return ca_entered;                   \
        ca_guard_of_call = (ca_guard *)&(handle)->guard;                                                                       \
    } while (0)

#endif
