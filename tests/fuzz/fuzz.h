/*
 * What fuzz targets have in common. A target is a program fuzz_<name>.c that defines LLVMFuzzerTestOneInput. Built with clang's
 * libFuzzer it is called with inputs that libFuzzer makes; built with replay.c, with files.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Use the input data [size], which is borrowed for the call. A finding ends the process. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Called once, before the first input. A target may leave it out. Returns 0. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* End the process with a message unless the condition holds. */
#define FUZZ_CHECK(condition, ...)                                                                                             \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "%s:%d: not %s: ", __FILE__, __LINE__, #condition);                                                \
            fprintf(stderr, __VA_ARGS__);                                                                                      \
            fprintf(stderr, "\n");                                                                                             \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

/* ---- Choices: a target that builds its calls from the input reads them byte by byte ---- */

typedef struct fuzz_bytes {
    const uint8_t *at, *end;
} fuzz_bytes;

/* The next byte; 0 once the input is used up. */
static inline uint8_t fuzz_byte(fuzz_bytes *b) { return b->at < b->end ? *b->at++ : 0; }

/* A number from 0 to n - 1. */
static inline int32_t fuzz_below(fuzz_bytes *b, int32_t n) {
    const int32_t byte = fuzz_byte(b);
    return n <= 256 ? byte % n : (byte << 8 | fuzz_byte(b)) % n;
}

/* ---- Memory: an allocator for the library's calls, which counts and fails when the input says so ---- */

typedef struct fuzz_memory {
    int64_t n_until_failure; /* allocations; < 0: none fails */
    size_t n, bytes;         /* allocated and not freed */
} fuzz_memory;

/* `ctx` is a fuzz_memory. */
static inline void *fuzz_alloc(void *ctx, size_t size, size_t align) {
    fuzz_memory *m = ctx;
    if (m->n_until_failure == 0) return NULL;
    if (m->n_until_failure > 0) m->n_until_failure--;
    m->n++;
    m->bytes += size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static inline void fuzz_free(void *ctx, void *p, size_t size, size_t align) {
    fuzz_memory *m = ctx;
    (void)align;
    m->n--;
    m->bytes -= size;
    free(p);
}

#endif
