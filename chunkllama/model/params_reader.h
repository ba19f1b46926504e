/* Reads numbers from a file's metadata under the keys of one architecture, and checks them. */
#ifndef CHUNKLLAMA_MODEL_PARAMS_READER_H
#define CHUNKLLAMA_MODEL_PARAMS_READER_H

#include "params.h"

/* The state of reading: the keys of one architecture, and the one being read, for messages. */
typedef struct cl_params_reader {
    const cl_model_file *file;
    const cl_arch *arch;
    cl_error *error;
    int32_t n_layers; /* of the file; 0: not known yet */
    char key[96];
} cl_params_reader;

/* Make ARCH.suffix the key that is read, and return it. */
const char *cl_params_key(cl_params_reader *r, const char *suffix);
/* The file's own name of the key, for messages; valid until the thread's next call. */
const char *cl_params_key_name(const cl_params_reader *r);

#define CL_PARAMS_FAIL(r, code, fmt, ...) cl_fail((r)->error, code, "%s" fmt, cl_params_key_name(r), __VA_ARGS__)

/* Read an integer. If the key is absent, *out keeps its value, or an error is reported if that is negative. */
cl_status cl_params_int(cl_params_reader *r, const char *suffix, int64_t min, int64_t max, int32_t *out);
/*
 * Read an integer for each of n layers, from one for all or an array. If the key is absent, out [n] keeps its values, or an
 * error is reported if the first is negative.
 */
cl_status cl_params_ints(cl_params_reader *r, const char *suffix, int64_t min, int64_t max, int32_t n, int32_t *out);
/* Read a number. If the key is absent, *out keeps its value. */
cl_status cl_params_double(cl_params_reader *r, const char *suffix, double min, double max, double *out);
cl_status cl_params_float(cl_params_reader *r, const char *suffix, double min, double max, float *out);

/* Read an array of a bool for each layer. *out: [n_layers] borrowed from the file; NULL: the key is absent or no array. */
cl_status cl_params_layers(cl_params_reader *r, const char *suffix, const unsigned char **out);

/* Read the rotation: rope_halves, rope, plain and the scale of queries. */
cl_status cl_params_rope(cl_params_reader *r, cl_model_params *p);

#endif
