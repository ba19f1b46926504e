/* Opens GGUF files. */
#include "gguf.h"

#include <stdlib.h>

#include "model_file_data.h"

cl_status gguf_open_memory(const void *data, size_t size, model_file **file, cl_error *error) {
    *file = NULL;
    model_file *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    const cl_status status = gguf_parse(data, size, f, error);
    if (status != CL_OK) model_file_close(&f);
    *file = f;
    return status;
}

cl_status gguf_open(const char *path, model_file **file, cl_error *error) {
    *file = NULL;
    file_map *map = malloc(sizeof *map);
    if (!map) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    cl_status status = file_map_open(path, map, error);
    if (status != CL_OK) {
        free(map);
        return status;
    }
    cl_error inner;
    status = gguf_open_memory(map->data, map->size, file, &inner);
    if (status != CL_OK) {
        file_map_close(map);
        free(map);
        return cl_fail(error, status, "%s: %s", path, inner.message);
    }
    (*file)->maps = map;
    (*file)->n_maps = 1;
    return CL_OK;
}
