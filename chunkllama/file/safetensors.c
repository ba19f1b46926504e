/* Parses a safetensors file; nothing in its header is trusted before it is checked against the file's size. */
#include "safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"

enum { SIZE_BYTES = 8, MAX_HEADER = 100 << 20, SHOWN = 80 };

typedef struct reader {
    const char *path;
    const cl_file_bytes *file;
    size_t n_data;    /* bytes after the header */
    const char *name; /* of the tensor being read */
    cl_error *error;
} reader;

#define FAIL(r, code, fmt, ...)                                                                                                \
    cl_fail((r)->error, code, "%s: tensor %s: " fmt, (r)->path, cl_str_show(cl_str_of((r)->name), (char[SHOWN]){0}, SHOWN),    \
            __VA_ARGS__)

/* The format's types: name, GGUF's number of the same type if it has one, and bytes of an element. */
static const struct {
    const char *name;
    uint32_t type;
    size_t size;
} types[] = {
    {"F32", CL_TENSOR_F32, 4},
    {"F16", CL_TENSOR_F16, 2},
    {"BF16", CL_TENSOR_BF16, 2},
    {"F64", 28, 8},
    {"I64", 27, 8},
    {"I32", CL_TENSOR_I32, 4},
    {"I16", 25, 2},
    {"I8", 24, 1},
    {"U8", CL_TENSOR_U8, 1},
    {"F8_E4M3", CL_TENSOR_F8_E4M3, 1},
};
enum { N_TYPES = sizeof types / sizeof *types };

static cl_status read_type(const reader *r, const json_t *entry, cl_tensor *t, size_t *size) {
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name) return FAIL(r, CL_ERR_FORMAT, "%s", "its dtype must be a string");
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(name, types[i].name) == 0) {
            t->type = types[i].type;
            *size = types[i].size;
            return CL_OK;
        }
    return FAIL(r, CL_ERR_UNSUPPORTED, "its dtype is %.20s; supported: F32, F16, BF16, F8_E4M3 (convert the model)", name);
}

/* *n: the number of elements. The file lists the slowest dimension first. */
static cl_status read_shape(const reader *r, const json_t *entry, cl_tensor *t, uint64_t *n) {
    const json_t *shape = json_object_get(entry, "shape");
    const size_t n_dims = json_array_size(shape);
    if (!json_is_array(shape) || n_dims > 4)
        return FAIL(r, CL_ERR_FORMAT, "its shape has %zu dimensions; an array of 0 to 4 is needed", n_dims);
    t->n_dims = n_dims ? (int32_t)n_dims : 1;
    for (int d = 0; d < 4; d++) t->ne[d] = 1;
    *n = 1;
    for (size_t d = 0; d < n_dims; d++) {
        const json_t *value = json_array_get(shape, d);
        const json_int_t ne = json_integer_value(value);
        if (!json_is_integer(value) || ne < 1) return FAIL(r, CL_ERR_FORMAT, "shape[%zu] must be an integer from 1", d);
        if (__builtin_mul_overflow(*n, (uint64_t)ne, n) || *n > INT64_MAX)
            return FAIL(r, CL_ERR_FORMAT, "its dimensions multiply to more than %lld elements", (long long)INT64_MAX);
        t->ne[n_dims - 1 - d] = ne;
    }
    return CL_OK;
}

static cl_status read_tensor(const reader *r, const json_t *entry, const unsigned char *data, cl_tensor *t) {
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return FAIL(r, CL_ERR_FORMAT, "%s", "it must be an object of dtype, shape and data_offsets");
    t->name = cl_str_of(r->name);
    size_t size = 0;
    uint64_t n = 0, bytes = 0;
    cl_status status = read_type(r, entry, t, &size);
    if (status == CL_OK) status = read_shape(r, entry, t, &n);
    if (status != CL_OK) return status;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) || begin < 0 || end < begin)
        return FAIL(r, CL_ERR_FORMAT, "%s", "its data_offsets must be two ascending integers from 0");
    if ((uint64_t)end > r->n_data)
        return FAIL(r, CL_ERR_FORMAT, "its data end at %lld, past the file's %zu bytes of data" CL_CUT_SHORT, (long long)end,
                    r->n_data);
    if (__builtin_mul_overflow(n, (uint64_t)size, &bytes) || bytes != (uint64_t)(end - begin))
        return FAIL(r, CL_ERR_FORMAT, "%llu elements of %zu bytes do not fill data_offsets [%lld, %lld]", (unsigned long long)n,
                    size, (long long)begin, (long long)end);
    t->bytes = (size_t)bytes;
    t->data = data + begin;
    t->file = r->file->on_disk ? r->file : NULL;
    return CL_OK;
}

static int by_place(const void *a, const void *b) {
    const cl_tensor *s = a, *t = b;
    return s->data < t->data ? -1 : s->data > t->data;
}

/* Check that the tensors fill the data from the first byte to the last. Clears `data` of those whose type cannot be read. */
static cl_status check_places(reader *r, const unsigned char *data, cl_safetensors *file) {
    qsort(file->tensors, file->n, sizeof *file->tensors, by_place);
    size_t at = 0;
    for (size_t i = 0; i < file->n; i++) {
        cl_tensor *t = &file->tensors[i];
        const size_t begin = (size_t)((const unsigned char *)t->data - data);
        r->name = t->name.data;
        if (begin != at)
            return FAIL(r, CL_ERR_FORMAT, "its data begin at %zu, but those before end at %zu: they %s", begin, at,
                        begin < at ? "overlap" : "leave a gap");
        at = begin + t->bytes;
        uint32_t block, bytes;
        const bool is_quantised = t->type == CL_TENSOR_F8_E4M3 || t->type == CL_TENSOR_U8 || t->type == CL_TENSOR_I32;
        if (!is_quantised && !cl_tensor_block(t->type, &block, &bytes)) t->data = NULL;
    }
    if (at != r->n_data)
        return cl_fail(r->error, CL_ERR_FORMAT, "%s: %zu of %zu bytes of data belong to no tensor", r->path, r->n_data - at,
                       r->n_data);
    return CL_OK;
}

static cl_status check_metadata(const reader *r, const json_t *metadata) {
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);
    json_object_foreach((json_t *)metadata, key, value) good = good && json_is_string(value);
    return good ? CL_OK : cl_fail(r->error, CL_ERR_FORMAT, "%s: __metadata__ must be an object of strings", r->path);
}

static cl_status read_tensors(reader *r, const unsigned char *data, cl_safetensors *file) {
    const char *name;
    json_t *entry;
    cl_status status = CL_OK;
    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the tensors of %s", r->path);
    json_object_foreach(file->header, name, entry) {
        r->name = name;
        status = strcmp(name, "__metadata__") == 0 ? check_metadata(r, entry)
                                                   : read_tensor(r, entry, data, &file->tensors[file->n++]);
        if (status != CL_OK) return status;
    }
    return check_places(r, data, file);
}

cl_status cl_safetensors_parse(const char *path, cl_file_bytes *bytes, cl_safetensors *file, cl_error *error) {
    *file = (cl_safetensors){0};
    uint64_t size = 0;
    if (bytes->size < SIZE_BYTES)
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: %zu bytes; a safetensors file begins with 8 of its header's size" CL_CUT_SHORT, path, bytes->size);
    cl_error cause;
    if (cl_file_bytes_fetch(bytes, SIZE_BYTES, &cause) != CL_OK)
        return cl_fail(error, cause.code, "%s: %s", path, cause.message);
    memcpy(&size, bytes->data, SIZE_BYTES);
    if (size > bytes->size - SIZE_BYTES || size > MAX_HEADER)
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: its header has %llu bytes; %zu are left in the file, and %d are allowed" CL_CUT_SHORT, path,
                       (unsigned long long)size, bytes->size - SIZE_BYTES, MAX_HEADER);
    if (cl_file_bytes_fetch(bytes, SIZE_BYTES + (size_t)size, &cause) != CL_OK)
        return cl_fail(error, cause.code, "%s: %s", path, cause.message);
    json_error_t wrong;
    bool no_memory;
    file->header =
        cl_json_parse((const char *)bytes->data + SIZE_BYTES, (size_t)size, JSON_REJECT_DUPLICATES, &wrong, &no_memory);
    if (no_memory)
        return cl_fail(error, CL_ERR_NOMEM, "%s: no memory to parse its header of %llu bytes", path, (unsigned long long)size);
    if (!json_is_object(file->header)) {
        const cl_status status = cl_fail(error, CL_ERR_FORMAT, "%s: its header is no JSON object: byte %d: %s", path,
                                         file->header ? 0 : wrong.position, file->header ? "another value" : wrong.text);
        cl_safetensors_free(file);
        return status;
    }
    reader r = {.path = path, .file = bytes, .n_data = bytes->size - SIZE_BYTES - (size_t)size, .error = error};
    const cl_status status = read_tensors(&r, bytes->data + SIZE_BYTES + size, file);
    if (status != CL_OK) cl_safetensors_free(file);
    return status;
}

void cl_safetensors_free(cl_safetensors *file) {
    free(file->tensors);
    json_decref(file->header);
    *file = (cl_safetensors){0};
}
