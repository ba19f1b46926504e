/*
 * A GGUF file. First the input is opened as it is, then, with bytes behind it that serve as the tensors' data, loaded as a
 * model and used: a model's header alone is a small input.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/chunkllama/model/edge.h"
#include "use_model.h"

enum { MAX_SIZE = 1 << 16, DATA_BYTES = 1 << 18 };

static void open_as_it_is(const uint8_t *data, size_t size) {
    cl_model_file *file;
    cl_error error = {.message = ""};
    const cl_status status = cl_gguf_open_memory(data, size, &file, &error);
    FUZZ_CHECK((status == CL_OK) == (file != NULL) && (status == CL_OK || (error.code == status && error.message[0])),
               "status");
    if (status == CL_OK) read_all(file);
    cl_model_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t zeros[DATA_BYTES];
    if (size > MAX_SIZE) return 0;
    open_as_it_is(data, size);
    const int fd = memfd_create("model", 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && write(fd, zeros, DATA_BYTES) == DATA_BYTES, "memfd");
    use_model(path);
    close(fd);
    return 0;
}
