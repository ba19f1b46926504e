/* For tests of parsers: input that ends where an unmapped page begins, and a look at all that was believed of it. */
#ifndef TESTS_CHUNKLLAMA_MODEL_EDGE_H
#define TESTS_CHUNKLLAMA_MODEL_EDGE_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chunkllama/file/model_file.h"

/* A copy of at most 8 KB, valid until the next call. Reading a byte after its end crashes. */
static inline unsigned char *copy_to_edge(const unsigned char *data, size_t size) {
    static unsigned char *pages;
    const size_t space = 8192, page = (size_t)sysconf(_SC_PAGESIZE);
    if (!pages) {
        pages = mmap(NULL, space + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED || mprotect(pages + space, page, PROT_NONE) != 0) abort();
    }
    if (size > space) abort();
    if (size) memcpy(pages + space - size, data, size);
    return pages + space - size;
}

static inline void read_tensor_data(const cl_tensor *t) {
    unsigned sum = 0;
    for (size_t i = 0; t->data && i < t->bytes; i++) sum += ((const unsigned char *)t->data)[i];
    volatile unsigned keep = sum;
    (void)keep;
}

/* Every byte of every tensor, every key as text. */
static inline void read_all(const cl_model_file *f) {
    for (size_t i = 0; i < cl_model_file_n_tensors(f); i++) read_tensor_data(cl_model_file_tensor_at(f, i));
    for (size_t i = 0; i < cl_model_file_n_keys(f); i++) {
        char buf[4096];
        cl_model_file_print_value(f, i, buf, sizeof buf);
    }
}

#endif
