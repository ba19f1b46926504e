/*
 * The floating-point environment of a task: round to nearest, results and operands that are denormal become zero. Set at the
 * start of every task, since threads of the caller's may come with another mode, and put back at its end.
 */
#ifndef BASE_FP_H
#define BASE_FP_H

#if defined(__x86_64__)
#include <xmmintrin.h>

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
