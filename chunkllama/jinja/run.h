/*
 * The common ground of compiling a template and rendering it: memory that is freed as a whole, limits, and failure.
 *
 * A failure leaves everything with one longjmp to cj_try. This is safe because all memory that is allocated below it comes from
 * the run's arena, which its caller frees, and it spares each of some thousand calls a check.
 */
#ifndef CHUNKLLAMA_JINJA_RUN_H
#define CHUNKLLAMA_JINJA_RUN_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

typedef struct cj_block cj_block;

/* One compilation or one rendering, on one thread. */
typedef struct cj_run {
    cj_block *blocks; /* the arena; the newest block first */
    size_t bytes, max_bytes;
    int64_t steps; /* left until the clock is read */
    int64_t later; /* left after these */
    int64_t max_steps;
    int32_t depth, max_depth; /* of nested calls, so that the stack's use is bounded */
    size_t max_text;          /* bytes of one string */
    int32_t line;             /* of the template, for messages */
    jmp_buf failed;
    cl_status status;
    cl_error *error; /* borrowed */
    int64_t now;     /* seconds since 1970 */
} cj_run;

/* Call `body`; false if it failed, with r->status and the error set. The caller frees r->blocks. */
bool cj_try(cj_run *r, void (*body)(cj_run *r, void *context), void *context);

/* Leave cj_try with a message, before which the current line is put. Does not return. */
#define cj_fail(r, code, ...) (cl_error_set((r)->error, code, __VA_ARGS__), cj_exit((r), code))
_Noreturn void cj_exit(cj_run *r, cl_status status);

/* Memory that lives until cj_blocks_free, aligned for any type, not cleared. Fails without memory, and at the limit. */
void *cj_alloc(cj_run *r, size_t n, size_t size);
/* The same, cleared. */
void *cj_alloc_zero(cj_run *r, size_t n, size_t size);
#define CJ_NEW(r, type) ((type *)cj_alloc_zero((r), 1, sizeof(type)))

/* Reserve one element more in an array of the arena. */
void *cj_grow(cj_run *r, void *array, size_t n, size_t *capacity, size_t size);
#define CJ_PUSH(r, array, n, capacity, value)                                                                                  \
    do {                                                                                                                       \
        (array) = cj_grow((r), (array), (n), &(capacity), sizeof *(array));                                                    \
        (array)[(n)++] = (value);                                                                                              \
    } while (0)

/* The arena's blocks, so that they can outlive the run; free them with cj_blocks_free. */
void cj_blocks_free(cj_block *blocks);

/*
 * Count work before or after it is done. cj_step counts one evaluation, which is one step of about 20 ns; cj_steps n steps;
 * cj_step_elements n elements that are read; cj_step_bytes n bytes that are copied or compared; cj_step_text n bytes that are
 * read character by character.
 */
void cj_steps(cj_run *r, size_t n);
static inline void cj_step(cj_run *r) {
    if (--r->steps < 0) cj_steps(r, 0);
}
static inline void cj_step_elements(cj_run *r, size_t n) { cj_steps(r, n / 8 + 1); }
static inline void cj_step_bytes(cj_run *r, size_t n) { cj_steps(r, n / 64 + 1); }
static inline void cj_step_text(cj_run *r, size_t n) { cj_steps(r, n / 8 + 1); }
enum { CJ_SLOW = 32 }; /* steps of writing a float or a part of a date */

/* Begin and end a level of nesting. */
void cj_enter(cj_run *r);
static inline void cj_leave(cj_run *r) { r->depth--; }

#endif
