/* Opens a model file of either format, and looks up its metadata and tensors by name. */
#include "model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chunkllama/common/str.h"
#include "chunkllama/tensor/weight_type.h"
#include "hf.h"
#include "model_file_data.h"

/* Refuse a folder that holds no model. */
static cl_status refuse_folder(const char *path, cl_error *error) {
    if (cl_hf_refuse_other(path, "the folder has no config.json", error)) return CL_ERR_FILE;
    return cl_fail(error, CL_ERR_FILE,
                   "%s: the folder is no model, since it has no config.json; name a GGUF file, or a folder as Hugging Face "
                   "publishes them, with config.json, tokenizer.json and *.safetensors",
                   path);
}

/* A folder is a model if it has a configuration. */
static cl_status open_folder(const char *path, cl_model_file **file, cl_error *error) {
    char config[512];
    const int n = snprintf(config, sizeof config, "%s/config.json", path);
    *file = NULL;
    if (n > 0 && (size_t)n < sizeof config && access(config, F_OK) != 0) return refuse_folder(path, error);
    return cl_hf_open(path, file, error);
}

cl_status cl_model_file_open(const char *path, cl_model_file **file, cl_error *error) {
    struct stat st;
    static const char ending[] = ".safetensors";
    const size_t n = strlen(path), m = sizeof ending - 1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return open_folder(path, file, error);
    if (n > m && strcmp(path + n - m, ending) == 0)
        return cl_fail(error, CL_ERR_ARG, "%s: name the folder it is in, with config.json and tokenizer.json beside it", path);
    return cl_gguf_open(path, file, error);
}

char *cl_model_file_name(const char *path) {
    static const char ending[] = ".gguf";
    size_t end = strlen(path), m = sizeof ending - 1;
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    int32_t part, n_parts;
    const size_t before_part = cl_model_file_part_of(path, &part, &n_parts);
    if (before_part > start)
        end = before_part;
    else if (end - start > m && memcmp(path + end - m, ending, m) == 0)
        end -= m;
    return cl_utf8_mended(path + start, end - start, NULL);
}

const char *cl_model_file_source_name(const cl_model_file *file, const char *name) {
    const char *source = file->source_name ? file->source_name(file, name) : NULL;
    return source ? source : name;
}

cl_status cl_model_file_end_loading(cl_model_file *file, cl_error *error) {
    for (size_t i = 0; i < file->n_files; i++) {
        if (!cl_file_bytes_unchanged(&file->files[i]))
            return cl_fail(error, CL_ERR_FILE, "a file of the model was changed while it was loaded; load the model again");
        cl_file_bytes_release(&file->files[i]);
    }
    return CL_OK;
}

void cl_model_file_close(cl_model_file **file) {
    cl_model_file *f = *file;
    if (!f) return;
    *file = NULL;
    for (size_t i = 0; i < f->n_keys; i++) free(f->keys[i].strings);
    free(f->keys);
    free(f->tensors);
    cl_str_map_free(&f->key_map);
    cl_str_map_free(&f->tensor_map);
    for (size_t i = 0; i < f->n_files; i++) cl_file_bytes_close(&f->files[i]);
    free(f->files);
    cl_arena_free(&f->memory);
    free(f);
}

const char *cl_model_file_format(const cl_model_file *file) { return file->format; }
size_t cl_model_file_n_tensors(const cl_model_file *file) { return file->n_tensors; }
const cl_tensor *cl_model_file_tensor_at(const cl_model_file *file, size_t i) { return &file->tensors[i]; }

uint64_t cl_model_file_bytes(const cl_model_file *file) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) bytes += file->tensors[i].bytes;
    return bytes;
}

uint64_t cl_model_file_memory(const cl_model_file *file) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const cl_tensor *t = &file->tensors[i];
        const cl_linear_layout layout = cl_linear_layout_of(t->type);
        if (!cl_tensor_is_readable(t) || layout == CL_LINEAR_N_LAYOUTS || t->ne[0] > INT32_MAX - CL_LINEAR_BLOCK) continue;
        const uint64_t n_rows = (uint64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
        const uint64_t n_panels = (n_rows + CL_LINEAR_LANES - 1) / CL_LINEAR_LANES;
        bytes += t->n_dims == 1 ? 4 * (uint64_t)t->ne[0] : n_panels * cl_linear_panel_bytes(layout, (int32_t)t->ne[0]);
    }
    return bytes;
}

int64_t cl_model_file_n_elements(const cl_model_file *file) {
    int64_t sum = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const int64_t *ne = file->tensors[i].ne; /* a file with a tensor whose product overflows is not opened */
        if (__builtin_add_overflow(sum, ne[0] * ne[1] * ne[2] * ne[3], &sum)) return INT64_MAX;
    }
    return sum;
}

uint32_t cl_model_file_main_type(const cl_model_file *file) {
    enum { N_TYPES = 64 }; /* those with a higher number cannot be read */
    uint64_t bytes[N_TYPES] = {0};
    uint32_t most = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const cl_tensor *t = &file->tensors[i];
        if (t->type >= N_TYPES) continue;
        bytes[t->type] += t->bytes;
        if (bytes[t->type] > bytes[most]) most = t->type;
    }
    return most;
}

const cl_tensor *cl_model_file_find_tensor(const cl_model_file *file, const char *name) {
    const int32_t i = cl_str_map_get(&file->tensor_map, name, strlen(name));
    return i < 0 ? NULL : &file->tensors[i];
}

static const cl_meta_key *find_key(const cl_model_file *file, const char *name) {
    const int32_t i = cl_str_map_get(&file->key_map, name, strlen(name));
    return i < 0 ? NULL : &file->keys[i];
}

bool cl_model_file_has(const cl_model_file *file, const char *key) { return find_key(file, key) != NULL; }

size_t cl_meta_size(uint32_t type) {
    switch (type) {
    case CL_META_U8:
    case CL_META_I8:
    case CL_META_BOOL: return 1;
    case CL_META_U16:
    case CL_META_I16: return 2;
    case CL_META_U32:
    case CL_META_I32:
    case CL_META_FLOAT32: return 4;
    case CL_META_U64:
    case CL_META_I64:
    case CL_META_FLOAT64: return 8;
    default: return 0;
    }
}

/* An unaligned value as an int64 and as a uint64, each limited to its range; false if the type is not an integer. */
static bool load_integer(cl_meta_type type, const unsigned char *raw, int64_t *i, uint64_t *u) {
    const size_t size = cl_meta_size(type);
    uint64_t bits = 0;
    switch (type) {
    case CL_META_U8:
    case CL_META_U16:
    case CL_META_U32:
    case CL_META_U64:
        memcpy(&bits, raw, size);
        *u = bits;
        *i = bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
        return true;
    case CL_META_I8:
    case CL_META_I16:
    case CL_META_I32:
    case CL_META_I64:
        memcpy(&bits, raw, size);
        *i = (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size);
        *u = *i < 0 ? 0 : (uint64_t)*i;
        return true;
    default: return false;
    }
}

static bool load_float(cl_meta_type type, const unsigned char *raw, double *value) {
    float f;
    if (type == CL_META_FLOAT64) memcpy(value, raw, sizeof *value);
    if (type != CL_META_FLOAT32) return type == CL_META_FLOAT64;
    memcpy(&f, raw, sizeof f);
    *value = f;
    return true;
}

/* The type of a value, *raw, or of the elements of an array that all have one value; CL_META_ARRAY: they differ. */
static cl_meta_type only_value(const cl_meta_key *key, const unsigned char **raw) {
    *raw = key->raw;
    if (key->type != CL_META_ARRAY) return key->type;
    const size_t size = cl_meta_size(key->elem);
    for (size_t i = 1; i < key->n; i++)
        if (memcmp(key->raw, key->raw + i * size, size) != 0) return CL_META_ARRAY;
    return key->n > 0 ? key->elem : CL_META_ARRAY;
}

bool cl_model_file_get_u64(const cl_model_file *file, const char *key, uint64_t *value) {
    const cl_meta_key *k = find_key(file, key);
    const unsigned char *raw;
    int64_t i;
    uint64_t u;
    if (!k) return false;
    const cl_meta_type type = only_value(k, &raw);
    if (!load_integer(type, raw, &i, &u) || i < 0) return false;
    *value = u;
    return true;
}

bool cl_model_file_get_u64_at(const cl_model_file *file, const char *key, size_t i, uint64_t *value) {
    const cl_meta_key *k = find_key(file, key);
    int64_t number;
    if (!k || k->type != CL_META_ARRAY) return cl_model_file_get_u64(file, key, value);
    return i < k->n && load_integer(k->elem, k->raw + i * cl_meta_size(k->elem), &number, value) && number >= 0;
}

bool cl_model_file_get_f64(const cl_model_file *file, const char *key, double *value) {
    const cl_meta_key *k = find_key(file, key);
    const unsigned char *raw;
    if (!k) return false;
    const cl_meta_type type = only_value(k, &raw);
    return load_float(type, raw, value);
}

bool cl_model_file_get_bool(const cl_model_file *file, const char *key, bool *value) {
    const cl_meta_key *k = find_key(file, key);
    if (!k || k->type != CL_META_BOOL) return false;
    *value = k->raw[0] != 0;
    return true;
}

bool cl_model_file_get_string(const cl_model_file *file, const char *key, cl_str *value) {
    const cl_meta_key *k = find_key(file, key);
    if (!k || k->type != CL_META_STRING) return false;
    *value = k->strings[0];
    return true;
}

bool cl_model_file_get_array(const cl_model_file *file, const char *key, cl_meta_type *type, size_t *n, const void **data) {
    const cl_meta_key *k = find_key(file, key);
    if (!k || k->type != CL_META_ARRAY) return false;
    *type = k->elem;
    *n = k->n;
    *data = k->raw;
    return true;
}

cl_str cl_model_file_array_string(const cl_model_file *file, const char *key, size_t i) {
    const cl_meta_key *k = find_key(file, key);
    if (!k || k->type != CL_META_ARRAY || k->elem != CL_META_STRING || i >= k->n) return (cl_str){"", 0};
    return k->strings[i];
}

size_t cl_model_file_n_keys(const cl_model_file *file) { return file->n_keys; }

cl_str cl_model_file_key_at(const cl_model_file *file, size_t i, cl_meta_type *type) {
    *type = file->keys[i].type;
    return file->keys[i].name;
}

static void print_one(const cl_meta_key *key, cl_meta_type type, size_t i, char *buf, size_t size) {
    const unsigned char *raw = key->raw + i * cl_meta_size(type);
    int64_t n;
    uint64_t u;
    double f;
    if (type == CL_META_STRING) {
        cl_str_show(key->strings[i], buf, size);
    } else if (type == CL_META_BOOL) {
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

void cl_model_file_print_value(const cl_model_file *file, size_t i, char *buf, size_t size) {
    const cl_meta_key *key = &file->keys[i];
    if (size < 8) { /* too small for a value */
        if (size) buf[0] = 0;
        return;
    }
    if (key->type != CL_META_ARRAY) {
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
