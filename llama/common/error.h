/* Status and message of ChunkLlama's modules: what failed, where, the limit and the fix. */
#ifndef LLAMA_COMMON_ERROR_H
#define LLAMA_COMMON_ERROR_H

typedef enum cl_status {
    CL_OK = 0,
    CL_ERR_ARG = -1,         /* the caller's request is wrong */
    CL_ERR_FILE = -2,        /* a file cannot be opened, read or written */
    CL_ERR_FORMAT = -3,      /* a file or text is not what it should be */
    CL_ERR_UNSUPPORTED = -4, /* valid, but not offered here */
    CL_ERR_NOMEM = -5,
    CL_ERR_LIMIT = -6, /* larger than the context, the K/V budget or another configured limit */
} cl_status;

typedef struct cl_error {
    cl_status code;
    char message[512]; /* always terminated */
} cl_error;

/* Control characters of the finished message become question marks: it may quote a file, and end on a terminal. */
void cl_error_set(cl_error *error, cl_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Fill *error (NULL is ignored); the value is code, for `return cl_fail(error, CL_ERR_ARG, "...", ...)`. */
#define cl_fail(error, code, ...) (cl_error_set(error, code, __VA_ARGS__), cl_failed(code))

/* Inline, so that compilers and analysers see that what cl_fail gives is never CL_OK. */
static inline cl_status cl_failed(cl_status code) { return code; }

#endif
