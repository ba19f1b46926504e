/* Failures of ChunkLlama's modules: filling a cl_error, also from what is wrong with a caller's struct. */
#ifndef CHUNKLLAMA_COMMON_ERROR_H
#define CHUNKLLAMA_COMMON_ERROR_H

#include "chunkattn/base/struct_size.h"
#include "chunkllama.h"

/* Control characters of the finished message become question marks: it may quote a file, and end on a terminal. */
void cl_error_set(cl_error *error, cl_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Fill *error (NULL is ignored); the value is code, for `return cl_fail(error, CL_ERR_ARG, "...", ...)`. */
#define cl_fail(error, code, ...) (cl_error_set(error, code, __VA_ARGS__), cl_failed(code))

/* Inline, so that compilers and analysers see that what cl_fail returns is never CL_OK. */
static inline cl_status cl_failed(cl_status code) { return code; }

/*
 * As ca_struct_read and ca_struct_write, for a struct type by its name and the last field that its first version had.
 * CL_ERR_ARG for an impossible struct_size; CL_ERR_UNSUPPORTED for an unknown field that is set.
 */
#define CL_STRUCT_READ(type, last, to, from, error)  cl_struct_read(CA_STRUCT(type, last, to), (to), (from), (error))
#define CL_STRUCT_WRITE(type, last, to, from, error) cl_struct_write(CA_STRUCT(type, last, to), (to), (from), (error))

cl_status cl_struct_read(const ca_struct *type, void *to, const void *from, cl_error *error);
cl_status cl_struct_write(const ca_struct *type, void *to, const void *from, cl_error *error);

#endif
