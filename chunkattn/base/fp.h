/*
 * The floating-point environment of a task: it rounds to nearest, and treats denormal operands and results as zero. A task sets
 * it at its start, since a thread of the caller may have another, and restores the thread's own at its end.
 */
#ifndef CHUNKATTN_BASE_FP_H
#define CHUNKATTN_BASE_FP_H

#if defined(__x86_64__)
#include <xmmintrin.h>

/* Set the environment of tasks in this thread. Returns the one before, for ca_fp_leave. Without effect on other CPUs. */
static inline unsigned ca_fp_enter(void) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x9fc0); /* all exceptions masked, FTZ, DAZ */
    return before;
}
static inline void ca_fp_leave(unsigned before) { _mm_setcsr(before); }
#else
static inline unsigned ca_fp_enter(void) { return 0; }
static inline void ca_fp_leave(unsigned before) { (void)before; }
#endif

#endif
