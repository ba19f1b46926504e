/* How the C tests wait for what another thread or process brings about: for a state that can be observed, never for a time. */
#ifndef TESTS_SUPPORT_WAIT_H
#define TESTS_SUPPORT_WAIT_H

#include <time.h>

#include "testing.h"

/* Wait until the condition holds. It is evaluated about once a millisecond; after five minutes, which only a hang takes, the
 * test fails and names it. */
#define WAIT_UNTIL(condition)                                                                                                  \
    for (int turns_ = 0; !(condition); turns_++) wait_a_turn(turns_, #condition, __FILE__, __LINE__)

static inline void wait_a_turn(int turns, const char *condition, const char *file, int line) {
    if (turns == 300 * 1000) {
        print_error("waited five minutes for: %s\n", condition);
        _fail(file, line);
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Compute something, so that what follows happens at another moment of other threads. It is no wait: any moment will do. */
static inline void spin(int n) {
    for (volatile int i = 0; i < n; i++) {
    }
}

#endif
