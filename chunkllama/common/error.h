/* Failures of ChunkLlama's modules: filling a cl_error, also from a mistake in a caller's struct. */
#ifndef CHUNKLLAMA_COMMON_ERROR_H
#define CHUNKLLAMA_COMMON_ERROR_H

#include "chunkattn/base/struct_size.h"
#include "chunkllama.h"

/* Control characters of the finished message become question marks: it may quote a file, and end on a terminal. */
void cl_error_set(cl_error *error, cl_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for an error of a field, whose name, such as "stop[3]", the message gets before the formatted text, with a blank. */
void cl_error_set_field(cl_error *error, cl_status code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fill *error (NULL is ignored); the value is code, for `return cl_fail(error, CL_ERR_ARG, "...", ...)`. */
#define cl_fail(error, code, ...)              (cl_error_set(error, code, __VA_ARGS__), cl_failed(code))
#define cl_fail_field(error, code, field, ...) (cl_error_set_field(error, code, field, __VA_ARGS__), cl_failed(code))

/* The name of an element of an array, such as "stop[3]". */
typedef struct cl_name {
    char text[48];
} cl_name;

cl_name cl_item(const char *array, int64_t i);

/* CL_ERR_ARG for a field. */
#define cl_refuse(error, field, ...) cl_fail_field(error, CL_ERR_ARG, field, __VA_ARGS__)

/* Inline, so that compilers and analysers see that cl_fail never returns CL_OK. */
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
