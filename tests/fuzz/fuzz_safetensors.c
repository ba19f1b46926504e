/* A safetensors file. An input that begins with '{' is the header, whose size is put before it. */
#include "fuzz.h"

#include <string.h>

#include "chunkllama/file/safetensors.h"
#include "tests/chunkllama/model/edge.h"

static void parse(const uint8_t *data, size_t size) {
    cl_file_bytes bytes = {.data = data, .size = size};
    cl_safetensors file;
    cl_error error = {.message = ""};
    const cl_status status = cl_safetensors_parse("file", &bytes, &file, &error);
    if (status == CL_OK) {
        for (size_t i = 0; i < file.n; i++) read_tensor_data(&file.tensors[i]);
    } else {
        FUZZ_CHECK(error.code == status && error.message[0] && !file.tensors && !file.header && file.n == 0, "status");
    }
    cl_safetensors_free(&file);
}

/* The file: the size of the input's header, which ends at its last '}', and the input. */
static void parse_header(const uint8_t *data, size_t size) {
    uint64_t n_header = size;
    while (n_header > 0 && data[n_header - 1] != '}') n_header--;
    uint8_t *file = malloc(sizeof n_header + size);
    memcpy(file, &n_header, sizeof n_header);
    memcpy(file + sizeof n_header, data, size);
    parse(file, sizeof n_header + size);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 0 && data[0] == '{') parse_header(data, size);
    parse(data, size);
    return 0;
}
