/* Opens GGUF files. */
#include "gguf.h"

#include <stdlib.h>

#include "model_file_data.h"

cl_status cl_gguf_open_memory(const void *data, size_t size, cl_model_file **file, cl_error *error) {
    *file = NULL;
    cl_model_file *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    const cl_status status = cl_gguf_parse(data, size, f, error);
    if (status != CL_OK) cl_model_file_close(&f);
    *file = f;
    return status;
}

cl_status cl_gguf_open(const char *path, cl_model_file **file, cl_error *error) {
    *file = NULL;
    cl_file_map *map = malloc(sizeof *map);
    if (!map) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    cl_status status = cl_file_map_open(path, map, error);
    if (status != CL_OK) {
        free(map);
        return status;
    }
    cl_error inner;
    status = cl_gguf_open_memory(map->data, map->size, file, &inner);
    if (status != CL_OK) {
        cl_file_map_close(map);
        free(map);
        return cl_fail(error, status, "%s: %s", path, inner.message);
    }
    (*file)->maps = map;
    (*file)->n_maps = 1;
    return CL_OK;
}
