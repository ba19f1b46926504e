/*
 * Makes allocations of the linked code and of jansson fail, or counts them, on the calling thread only. The program is linked
 * with the options FAILING_MALLOC of tests/CMakeLists.txt.
 */
#ifndef TESTS_SERVE_PROTOCOL_FAILING_MALLOC_H
#define TESTS_SERVE_PROTOCOL_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* From now on the n-th allocation fails, n >= 1, and with `all` every later one, too. */
void fail_malloc(int n, bool all);

/* Count the bytes that this thread allocates from now on; a block that grows counts with its new size. */
void count_malloc(void);
size_t counted_malloc(void);

/* Let all allocations succeed again. Returns whether one failed since fail_malloc. */
bool mend_malloc(void);

#endif
