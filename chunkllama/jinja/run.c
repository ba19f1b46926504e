/* The arena, the limits and the failures of a run. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/deadline.h"

enum { BLOCK = 16 << 10, ALIGN = 16 };

struct cj_block {
    cj_block *next;
    size_t used, size; /* of the bytes that follow */
    _Alignas(ALIGN) char data[];
};

bool cj_try(cj_run *r, void (*body)(cj_run *r, void *context), void *context) {
    if (setjmp(r->failed)) return false;
    body(r, context);
    return true;
}

void cj_exit(cj_run *r, cl_status status) {
    const cl_error error = *r->error;
    cl_error_set(r->error, status, "line %d: %s", (int)r->line, error.message);
    r->status = status;
    longjmp(r->failed, 1);
}

static void add_block(cj_run *r, size_t bytes) {
    const size_t size = bytes > BLOCK ? bytes : BLOCK;
    if (size > r->max_bytes - r->bytes)
        cj_fail(r, CL_ERR_LIMIT, "the template needs more than the allowed %zu bytes of memory", r->max_bytes);
    cj_block *block = malloc(sizeof *block + size);
    if (!block) cj_fail(r, CL_ERR_NOMEM, "no memory for %zu bytes", size);
    *block = (cj_block){.next = r->blocks, .size = size};
    r->bytes += size;
    r->blocks = block;
}

void *cj_alloc(cj_run *r, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
        cj_fail(r, CL_ERR_LIMIT, "the template needs more than the allowed %zu bytes of memory", r->max_bytes);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!r->blocks || bytes > r->blocks->size - r->blocks->used) {
        cj_block *current = r->blocks;
        add_block(r, bytes);
        if (current && bytes > BLOCK / 4) { /* go on with the current block, which may have more space left */
            cj_block *large = r->blocks;
            large->used = bytes;
            r->blocks = current;
            large->next = current->next;
            current->next = large;
            return large->data;
        }
    }
    void *p = r->blocks->data + r->blocks->used;
    r->blocks->used += bytes;
    return p;
}

void *cj_alloc_zero(cj_run *r, size_t n, size_t size) {
    void *p = cj_alloc(r, n, size);
    memset(p, 0, n * size);
    return p;
}

void *cj_grow(cj_run *r, void *array, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity) return array;
    const size_t grown_capacity = 2 * *capacity + 4;
    void *grown = cj_alloc(r, grown_capacity, size);
    if (n > 0) memcpy(grown, array, n * size);
    *capacity = grown_capacity;
    return grown;
}

void cj_blocks_free(cj_block *blocks) {
    while (blocks) {
        cj_block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

enum { STEPS_BETWEEN_LOOKS = 1 << 16 }; /* at the clock: about a millisecond */

/* Count n steps, more than r->steps, and begin the next interval, if the limit and the thread's deadline allow it. */
static void begin_interval(cj_run *r, size_t n) {
    const size_t owed = n - (size_t)r->steps; /* r->steps may be -1 */
    if (owed > (size_t)r->later) {
        r->steps = r->later = 0;
        cj_fail(r, CL_ERR_LIMIT, "the template needs more than the allowed %lld steps", (long long)r->max_steps);
    }
    if (cl_deadline_check(r->error) != CL_OK) cj_exit(r, r->error->code);
    r->later -= (int64_t)owed;
    r->steps = r->later < STEPS_BETWEEN_LOOKS ? r->later : STEPS_BETWEEN_LOOKS;
    r->later -= r->steps;
}

void cj_steps(cj_run *r, size_t n) {
    if (r->steps >= 0 && n <= (size_t)r->steps)
        r->steps -= (int64_t)n;
    else
        begin_interval(r, n);
}

void cj_enter(cj_run *r) {
    if (r->depth >= r->max_depth) cj_fail(r, CL_ERR_LIMIT, "nested deeper than the allowed %d levels", (int)r->max_depth);
    r->depth++;
}
