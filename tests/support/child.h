/* Child processes of tests. */
#ifndef TESTS_SUPPORT_CHILD_H
#define TESTS_SUPPORT_CHILD_H

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

/* As fork(2). An assertion that fails in the child aborts it; cmocka would run the tests that remain there, a second time. */
static inline pid_t fork_child(void) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) setenv("CMOCKA_TEST_ABORT", "1", 1);
    return child;
}

/* Wait for the end of a child; the status is waitpid's. */
static inline int end_of_child(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* The condition must hold in a child process. */
#define EXPECT_IN_CHILD(condition)                                                                                             \
    do {                                                                                                                       \
        const pid_t child_ = fork_child();                                                                                     \
        if (child_ == 0) _exit((condition) ? 0 : 1);                                                                           \
        assert_int_equal(end_of_child(child_), 0);                                                                             \
    } while (0)

#endif
