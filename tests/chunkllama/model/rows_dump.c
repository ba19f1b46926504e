/*
 * Writes every row of every tensor of a GGUF file as f32, in file order, for tests/chunkllama/model/test_tensor_types.py.
 *
 * rows_dump MODEL OUT
 */
#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/file/model_file.h"
#include "chunkllama/tensor/tensor.h"

static int write_rows(const cl_model_file *file, FILE *out) {
    for (size_t i = 0; i < cl_model_file_n_tensors(file); i++) {
        const cl_tensor *t = cl_model_file_tensor_at(file, i);
        float *row = malloc((size_t)t->ne[0] * sizeof *row);
        if (!row) return -1;
        for (int64_t r = 0; r < t->ne[1] * t->ne[2] * t->ne[3]; r++) {
            if (cl_tensor_row_f32(t, r, row, NULL) != CL_OK) exit(1);
            fwrite(row, sizeof *row, (size_t)t->ne[0], out);
        }
        free(row);
    }
    return ferror(out) ? -1 : 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: rows_dump MODEL OUT\n", stderr);
        return 2;
    }
    cl_model_file *file;
    cl_error error;
    if (cl_model_file_open(argv[1], &file, &error) != CL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    FILE *out = fopen(argv[2], "wb");
    int status = out ? write_rows(file, out) : -1;
    if (out && fclose(out) != 0) status = -1;
    cl_model_file_close(&file);
    return status == 0 ? 0 : 1;
}
