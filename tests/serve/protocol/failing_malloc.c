/* Counts allocations, and lets the chosen ones fail. */
#include "failing_malloc.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *s);

/* Each thread has its own. */
static _Thread_local int left; /* allocations until one fails; 0: none will */
static _Thread_local bool all_fail, failed;

static _Thread_local size_t n_bytes;

static bool fails(size_t size) {
    n_bytes += size;
    if (left == 0) return false;
    if (left > 1) return left--, false;
    if (!all_fail) left = 0;
    return failed = true;
}

void *__wrap_malloc(size_t size) { return fails(size) ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails(n * size) ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return fails(size) ? NULL : __real_realloc(p, size); }
void *__wrap_aligned_alloc(size_t align, size_t size) { return fails(size) ? NULL : __real_aligned_alloc(align, size); }
char *__wrap_strdup(const char *s) { return fails(strlen(s) + 1) ? NULL : __real_strdup(s); }

void fail_malloc(int n, bool all) {
    json_set_alloc_funcs(__wrap_malloc, free);
    left = n;
    all_fail = all;
    failed = false;
}

void count_malloc(void) {
    json_set_alloc_funcs(__wrap_malloc, free);
    n_bytes = 0;
}

size_t counted_malloc(void) { return n_bytes; }

bool mend_malloc(void) {
    left = 0;
    return failed;
}
