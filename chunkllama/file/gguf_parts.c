/* Opens GGUF files, also a model that was split into several, by any of its parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

/* ---- Names of parts ---- */

enum {
    DIGITS = 5, /* of a part's number, and of the number of parts */
    SUFFIX = sizeof "-00001-of-00003.gguf" - 1,
    MOST_PARTS = 65535, /* the format's limit */
};

/* The number in the five digits at p; -1: these are not all digits. */
static int32_t number_at(const char *p) {
    int32_t n = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (p[i] < '0' || p[i] > '9') return -1;
        n = 10 * n + (p[i] - '0');
    }
    return n;
}

size_t cl_model_file_part_of(const char *path, int32_t *part, int32_t *n_parts) {
    const size_t size = strlen(path);
    if (size <= SUFFIX) return 0;
    const char *no = path + size - SUFFIX + 1, *of = no + DIGITS, *count = of + 4, *end = count + DIGITS;
    if (no[-1] != '-' || memcmp(of, "-of-", 4) != 0 || strcmp(end, ".gguf") != 0) return 0;
    *part = number_at(no);
    *n_parts = number_at(count);
    return *part >= 1 && *part <= *n_parts && *n_parts <= MOST_PARTS ? size - SUFFIX : 0;
}

char *cl_model_file_part_path(const char *path, int32_t part) {
    int32_t own, n_parts;
    const size_t stem = cl_model_file_part_of(path, &own, &n_parts), size = stem + SUFFIX + 1;
    char *name = stem ? malloc(size) : NULL;
    if (name) (void)snprintf(name, size, "%.*s-%05d-of-%05d.gguf", (int)stem, path, part, n_parts);
    return name;
}

/* ---- Parts ---- */

/* What a file says about the model that it is a part of; all 0: it is whole. */
typedef struct split {
    uint64_t no, count, n_tensors;
} split;

static split split_of(const cl_model_file *file) {
    split s = {0};
    (void)cl_model_file_get_u64(file, "split.no", &s.no);
    (void)cl_model_file_get_u64(file, "split.count", &s.count);
    (void)cl_model_file_get_u64(file, "split.tensors.count", &s.n_tensors);
    return s.count > 1 ? s : (split){0}; /* a model that was split into one part is whole */
}

static cl_status no_handle(cl_error *error) { return cl_fail(error, CL_ERR_NOMEM, "no memory for a file handle"); }

/* Open a file into *bytes, which the caller closes, and parse it into an empty handle, also after a failure. */
static cl_status open_one(const char *path, cl_file_bytes *bytes, cl_model_file *file, cl_error *error) {
    cl_error inner;
    cl_status status = cl_file_bytes_open(path, bytes, error);
    if (status != CL_OK) return status;
    status = cl_gguf_parse(bytes, file, &inner);
    return status == CL_OK ? CL_OK : cl_fail(error, status, "%s: %s", path, inner.message);
}

/* Check that the file is part `no`, counted from 0, of the model that *s describes. */
static cl_status check_part(const char *path, const cl_model_file *file, const split *s, uint64_t no, cl_error *error) {
    const split own = split_of(file);
    if (own.count == 0)
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: it should be part %llu of %llu of a model, but has no split.count; download the part again", path,
                       (unsigned long long)no + 1, (unsigned long long)s->count);
    if (own.count != s->count || own.no != no)
        return cl_fail(
            error, CL_ERR_FORMAT,
            "%s: it should be part %llu of %llu of a model, but says that it is part %llu of %llu; name the parts as "
            "they were published",
            path, (unsigned long long)no + 1, (unsigned long long)s->count, (unsigned long long)own.no + 1,
            (unsigned long long)own.count);
    if (own.n_tensors != s->n_tensors)
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: it is part of a model of %llu tensors (split.tensors.count), and another part of one of %llu; "
                       "download all parts of one model",
                       path, (unsigned long long)own.n_tensors, (unsigned long long)s->n_tensors);
    return CL_OK;
}

/* Move the tensors of a part to the end of the whole model's, and, of the first part, its keys. */
static cl_status take_part(const char *path, cl_model_file *whole, cl_model_file *part, cl_error *error) {
    if (part->n_tensors > 0) {
        const size_t n = whole->n_tensors + part->n_tensors;
        cl_tensor *tensors = realloc(whole->tensors, n * sizeof *tensors);
        if (!tensors) return cl_fail(error, CL_ERR_NOMEM, "%s: no memory for its %zu tensors", path, part->n_tensors);
        memcpy(tensors + whole->n_tensors, part->tensors, part->n_tensors * sizeof *tensors);
        whole->tensors = tensors;
        whole->n_tensors = n;
    }
    if (whole->keys) return CL_OK;
    memcpy(whole->format, part->format, sizeof whole->format);
    whole->keys = part->keys;
    whole->n_keys = part->n_keys;
    whole->key_map = part->key_map;
    part->keys = NULL;
    part->n_keys = 0;
    part->key_map = (cl_str_map){0};
    return CL_OK;
}

static cl_status add_part(const char *path, cl_model_file *whole, const split *s, uint64_t no, cl_error *error) {
    cl_model_file *part = calloc(1, sizeof *part);
    if (!part) return no_handle(error);
    cl_file_bytes *bytes = &whole->files[whole->n_files];
    cl_error inner;
    cl_status status = open_one(path, bytes, part, &inner);
    whole->n_files += bytes->on_disk;
    if (status == CL_ERR_FILE)
        (void)cl_fail(error, status, "part %llu of %llu of the model: %s; all parts must be in one folder",
                      (unsigned long long)no + 1, (unsigned long long)s->count, inner.message);
    else if (status != CL_OK)
        (void)cl_fail(error, status, "%s", inner.message);
    if (status == CL_OK) status = check_part(path, part, s, no, error);
    if (status == CL_OK) status = take_part(path, whole, part, error);
    cl_model_file_close(&part);
    return status;
}

/* Index the tensors of all parts by their names. */
static cl_status index_tensors(cl_model_file *whole, const split *s, cl_error *error) {
    enum { SHOWN = 80 };
    if (whole->n_tensors != s->n_tensors)
        return cl_fail(error, CL_ERR_FORMAT,
                       "the %llu parts of the model have %zu tensors, but split.tensors.count is %llu; download all parts of "
                       "one model",
                       (unsigned long long)s->count, whole->n_tensors, (unsigned long long)s->n_tensors);
    if (cl_str_map_init(&whole->tensor_map, whole->n_tensors) != 0) return no_handle(error);
    for (size_t i = 0; i < whole->n_tensors; i++) {
        const cl_str name = whole->tensors[i].name;
        if (cl_str_map_add(&whole->tensor_map, name.data, name.size, (int32_t)i) >= 0)
            return cl_fail(error, CL_ERR_FORMAT, "tensor %s is in two parts of the model; download all parts of one model",
                           cl_str_show(name, (char[SHOWN]){0}, SHOWN));
    }
    return CL_OK;
}

/* Open all parts of a model, of which the file of this name is one. */
static cl_status open_parts(const char *path, cl_model_file *whole, const split *s, cl_error *error) {
    whole->files = calloc(s->count, sizeof *whole->files);
    if (!whole->files) return no_handle(error);
    cl_status status = CL_OK;
    for (uint64_t no = 0; status == CL_OK && no < s->count; no++) {
        char *name = cl_model_file_part_path(path, (int32_t)no + 1);
        status = name ? add_part(name, whole, s, no, error) : no_handle(error);
        free(name);
    }
    if (status != CL_OK) return status;
    (void)snprintf(whole->format + strlen(whole->format), sizeof whole->format - strlen(whole->format), ", %d parts",
                   (int)s->count);
    return index_tensors(whole, s, error);
}

/* Open a file whose name says which part of a model it is, and with it all others. */
static cl_status open_split(const char *path, const split *s, cl_model_file **file, cl_error *error) {
    int32_t part = 0, n_parts = 0;
    if (!cl_model_file_part_of(path, &part, &n_parts) || (uint64_t)part != s->no + 1 || (uint64_t)n_parts != s->count)
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: it is part %llu of %llu of a split model, so its name must end in \"-%05llu-of-%05llu.gguf\", by "
                       "which the other parts are found; name the parts as they were published",
                       path, (unsigned long long)s->no + 1, (unsigned long long)s->count, (unsigned long long)s->no + 1,
                       (unsigned long long)s->count);
    cl_model_file *whole = calloc(1, sizeof *whole);
    if (!whole) return no_handle(error);
    const cl_status status = open_parts(path, whole, s, error);
    if (status != CL_OK) cl_model_file_close(&whole);
    *file = whole;
    return status;
}

/* ---- All ---- */

cl_status cl_gguf_open_memory(const void *data, size_t size, cl_model_file **file, cl_error *error) {
    *file = NULL;
    cl_file_bytes bytes = {.data = data, .size = size};
    cl_model_file *f = calloc(1, sizeof *f);
    if (!f) return no_handle(error);
    cl_status status = cl_gguf_parse(&bytes, f, error);
    if (status == CL_OK && split_of(f).count > 1)
        status = cl_fail(error, CL_ERR_UNSUPPORTED, "it is a part of a split model, which only files can be");
    if (status != CL_OK) cl_model_file_close(&f);
    *file = f;
    return status;
}

cl_status cl_gguf_open(const char *path, cl_model_file **file, cl_error *error) {
    *file = NULL;
    cl_model_file *f = calloc(1, sizeof *f);
    if (!f || !(f->files = calloc(1, sizeof *f->files))) {
        free(f);
        return no_handle(error);
    }
    const cl_status status = open_one(path, f->files, f, error);
    f->n_files = f->files->on_disk;
    const split s = status == CL_OK ? split_of(f) : (split){0};
    if (status == CL_OK && s.count == 0) {
        *file = f;
        return CL_OK;
    }
    cl_model_file_close(&f);
    return status == CL_OK ? open_split(path, &s, file, error) : status;
}
