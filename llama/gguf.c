/* Opens GGUF files and finds things in them. */
#include "gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_file.h"

cl_status gguf_open_memory(const void *data, size_t size, gguf **file, cl_error *error) {
    *file = NULL;
    gguf *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle");
    f->data = data;
    f->size = size;
    const cl_status status = gguf_parse(f, error);
    if (status != CL_OK) {
        gguf_close(&f);
        return status;
    }
    *file = f;
    return CL_OK;
}

static cl_status map_file(const char *path, void **mapping, size_t *size, cl_error *error) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
    struct stat st;
    cl_status status = CL_OK;
    if (fstat(fd, &st) != 0) {
        status = cl_fail(error, CL_ERR_FILE, "%s: cannot be examined: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = cl_fail(error, CL_ERR_FILE, "%s: not a regular file", path);
    } else if (st.st_size == 0) {
        status = cl_fail(error, CL_ERR_FORMAT, "%s: the file is empty", path);
    } else {
        *size = (size_t)st.st_size;
        *mapping = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (*mapping == MAP_FAILED) status = cl_fail(error, CL_ERR_FILE, "%s: cannot be mapped: %s", path, strerror(errno));
    }
    close(fd);
    return status;
}

cl_status gguf_open(const char *path, gguf **file, cl_error *error) {
    *file = NULL;
    void *mapping = NULL;
    size_t size = 0;
    cl_status status = map_file(path, &mapping, &size, error);
    if (status != CL_OK) return status;
    cl_error inner;
    status = gguf_open_memory(mapping, size, file, &inner);
    if (status != CL_OK) {
        munmap(mapping, size);
        return cl_fail(error, status, "%s: %s", path, inner.message);
    }
    (*file)->mapping = mapping;
    return CL_OK;
}

void gguf_close(gguf **file) {
    gguf *f = *file;
    if (!f) return;
    *file = NULL;
    for (size_t i = 0; i < f->n_keys; i++) free(f->keys[i].strings);
    free(f->keys);
    free(f->tensors);
    str_map_free(&f->key_map);
    str_map_free(&f->tensor_map);
    if (f->mapping) munmap(f->mapping, f->size);
    free(f);
}

uint32_t gguf_version(const gguf *file) { return file->version; }
size_t gguf_n_tensors(const gguf *file) { return file->n_tensors; }
const tensor *gguf_tensor_at(const gguf *file, size_t i) { return &file->tensors[i]; }

const tensor *gguf_find_tensor(const gguf *file, const char *name) {
    const int32_t i = str_map_get(&file->tensor_map, name, strlen(name));
    return i < 0 ? NULL : &file->tensors[i];
}

static const gguf_key *find_key(const gguf *file, const char *name) {
    const int32_t i = str_map_get(&file->key_map, name, strlen(name));
    return i < 0 ? NULL : &file->keys[i];
}

size_t gguf_value_size(uint32_t type) {
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_FLOAT32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_FLOAT64: return 8;
    default: return 0;
    }
}

/* An unaligned value as an int64, or as the uint64 that does not fit one; false if the type is no integer. */
static bool load_integer(gguf_value_type type, const unsigned char *raw, int64_t *i, uint64_t *u) {
    const size_t size = gguf_value_size(type);
    uint64_t bits = 0;
    switch (type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        memcpy(&bits, raw, size);
        *u = bits;
        *i = bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        memcpy(&bits, raw, size);
        *i = (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size);
        *u = *i < 0 ? 0 : (uint64_t)*i;
        return true;
    default: return false;
    }
}

static bool load_float(gguf_value_type type, const unsigned char *raw, double *value) {
    float f;
    if (type == GGUF_FLOAT64) memcpy(value, raw, sizeof *value);
    if (type != GGUF_FLOAT32) return type == GGUF_FLOAT64;
    memcpy(&f, raw, sizeof f);
    *value = f;
    return true;
}

bool gguf_get_u64(const gguf *file, const char *key, uint64_t *value) {
    const gguf_key *k = find_key(file, key);
    int64_t i;
    uint64_t u;
    if (!k || !load_integer(k->type, k->raw, &i, &u) || i < 0) return false;
    *value = u;
    return true;
}

bool gguf_get_f64(const gguf *file, const char *key, double *value) {
    const gguf_key *k = find_key(file, key);
    return k && load_float(k->type, k->raw, value);
}

bool gguf_get_bool(const gguf *file, const char *key, bool *value) {
    const gguf_key *k = find_key(file, key);
    if (!k || k->type != GGUF_BOOL) return false;
    *value = k->raw[0] != 0;
    return true;
}

bool gguf_get_string(const gguf *file, const char *key, str *value) {
    const gguf_key *k = find_key(file, key);
    if (!k || k->type != GGUF_STRING) return false;
    *value = k->strings[0];
    return true;
}

bool gguf_get_array(const gguf *file, const char *key, gguf_value_type *type, size_t *n, const void **data) {
    const gguf_key *k = find_key(file, key);
    if (!k || k->type != GGUF_ARRAY) return false;
    *type = k->elem;
    *n = k->n;
    *data = k->raw;
    return true;
}

str gguf_array_string(const gguf *file, const char *key, size_t i) {
    const gguf_key *k = find_key(file, key);
    if (!k || k->type != GGUF_ARRAY || k->elem != GGUF_STRING || i >= k->n) return (str){"", 0};
    return k->strings[i];
}

size_t gguf_n_keys(const gguf *file) { return file->n_keys; }

str gguf_key_at(const gguf *file, size_t i, gguf_value_type *type) {
    *type = file->keys[i].type;
    return file->keys[i].name;
}

static void print_one(const gguf_key *key, gguf_value_type type, size_t i, char *buf, size_t size) {
    const unsigned char *raw = key->raw + i * gguf_value_size(type);
    int64_t n;
    uint64_t u;
    double f;
    if (type == GGUF_STRING) {
        str_show(key->strings[i], buf, size);
    } else if (type == GGUF_BOOL) {
        snprintf(buf, size, "%s", *raw ? "true" : "false");
    } else if (load_float(type, raw, &f)) {
        snprintf(buf, size, "%.9g", f);
    } else if (load_integer(type, raw, &n, &u)) {
        if (n < 0)
            snprintf(buf, size, "%lld", (long long)n);
        else
            snprintf(buf, size, "%llu", (unsigned long long)u);
    }
}

void gguf_print_value(const gguf *file, size_t i, char *buf, size_t size) {
    const gguf_key *key = &file->keys[i];
    if (size < 8) { /* no room for anything sensible */
        if (size) buf[0] = 0;
        return;
    }
    if (key->type != GGUF_ARRAY) {
        print_one(key, key->type, 0, buf, size);
        return;
    }
    enum { ITEMS = 4, ITEM_SIZE = 40 };
    size_t used = (size_t)snprintf(buf, size, "%zu: [", key->n);
    for (size_t j = 0; j < key->n && j < ITEMS && used < size; j++) {
        char item[ITEM_SIZE];
        print_one(key, key->elem, j, item, sizeof item);
        used += (size_t)snprintf(buf + used, size - used, "%s%s", j ? ", " : "", item);
    }
    if (used < size) snprintf(buf + used, size - used, "%s]", key->n > ITEMS ? ", ..." : "");
}
