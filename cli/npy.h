/* NumPy's .npy files: float32 matrices, written row by row. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stdint.h>
#include <stdio.h>

/* Write the header of a float32 matrix in C order; its rows follow with fwrite. False: the file refused it. */
int npy_write_header(FILE *out, int64_t n_rows, int64_t n_columns);

#endif
