/* Parses GGUF files: header, metadata and tensor list. Nothing in them is trusted before it is checked against the file's size.
 */
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF files are read in place, little-endian"
#endif

enum {
    MAX_KEY_SIZE = 65535,  /* the format's limit */
    MAX_TENSOR_NAME = 64,  /* likewise */
    MIN_KEY_BYTES = 14,    /* length, one byte of name, type, one byte of value */
    MIN_TENSOR_BYTES = 33, /* length, one byte of name, dimensions, one size, type, offset */
    MIN_ALIGNMENT = 8,
    DEFAULT_ALIGNMENT = 32,
    SHOWN = 80, /* bytes of a name in a message */
};

typedef struct reader {
    cl_file_bytes *file;
    const unsigned char *data;
    size_t size, pos;
    cl_str name;      /* the key or tensor being read, for messages */
    const char *kind; /* "key", "tensor" */
    cl_error *error;
} reader;

#define FAIL(r, code, at, fmt, ...)                                                                                            \
    cl_fail((r)->error, code, "byte %zu: %s%s%s" fmt, at, (r)->kind, (r)->name.size ? " " : "",                                \
            cl_str_show((r)->name, (char[SHOWN]){0}, SHOWN), __VA_ARGS__)

static cl_status take(reader *r, size_t n, const char *what, const unsigned char **p) {
    if (n > r->size - r->pos)
        return FAIL(r, CL_ERR_FORMAT, r->pos, ": the file ends inside its %s: %zu bytes needed, %zu left" CL_CUT_SHORT, what, n,
                    r->size - r->pos);
    const cl_status status = cl_file_bytes_fetch(r->file, r->pos + n, r->error);
    if (status != CL_OK) return status;
    *p = r->data + r->pos;
    r->pos += n;
    return CL_OK;
}

static cl_status read_u32(reader *r, const char *what, uint32_t *value) {
    const unsigned char *p = NULL;
    const cl_status status = take(r, sizeof *value, what, &p);
    if (status == CL_OK) memcpy(value, p, sizeof *value);
    return status;
}

static cl_status read_u64(reader *r, const char *what, uint64_t *value) {
    const unsigned char *p = NULL;
    const cl_status status = take(r, sizeof *value, what, &p);
    if (status == CL_OK) memcpy(value, p, sizeof *value);
    return status;
}

static cl_status read_string(reader *r, const char *what, cl_str *s) {
    uint64_t size = 0;
    const unsigned char *p = NULL;
    cl_status status = read_u64(r, what, &size);
    if (status != CL_OK) return status;
    status = take(r, (size_t)size, what, &p);
    *s = (cl_str){(const char *)p, (size_t)size};
    return status;
}

static cl_status read_name(reader *r, size_t limit) {
    const size_t at = r->pos;
    cl_str name = {0};
    r->name = name;
    const cl_status status = read_string(r, "name", &name);
    if (status != CL_OK) return status;
    if (name.size == 0 || name.size > limit)
        return FAIL(r, CL_ERR_FORMAT, at, ": its name has %zu bytes; 1 to %zu are allowed", name.size, limit);
    r->name = name;
    return CL_OK;
}

/* Read a number of things of at least min_bytes each. */
static cl_status read_count(reader *r, const char *what, size_t min_bytes, size_t *n) {
    const size_t at = r->pos;
    uint64_t count = 0;
    const cl_status status = read_u64(r, what, &count);
    if (status != CL_OK) return status;
    if (count > (r->size - r->pos) / min_bytes || count > INT32_MAX)
        return FAIL(r, CL_ERR_FORMAT, at, ": the %s is %llu, but the %zu bytes left can hold %zu at most" CL_CUT_SHORT, what,
                    (unsigned long long)count, r->size - r->pos, (r->size - r->pos) / min_bytes);
    *n = (size_t)count;
    return CL_OK;
}

static cl_status check_bools(reader *r, const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] > 1) return FAIL(r, CL_ERR_FORMAT, (size_t)(p + i - r->data), ": a bool is %u; it must be 0 or 1", p[i]);
    return CL_OK;
}

/* Read n values of a type: an array's elements, or the only value. */
static cl_status read_values(reader *r, cl_meta_key *key, cl_meta_type type, size_t n) {
    key->raw = r->data + r->pos;
    if (type != CL_META_STRING) {
        const unsigned char *p = NULL;
        /* The product does not overflow, because n values fit into the file. */
        const cl_status status = take(r, n * cl_meta_size(type), "value", &p);
        return status == CL_OK && type == CL_META_BOOL ? check_bools(r, p, n) : status;
    }
    key->strings = calloc(n ? n : 1, sizeof *key->strings);
    if (!key->strings) return FAIL(r, CL_ERR_NOMEM, r->pos, ": no memory for %zu strings", n);
    for (size_t i = 0; i < n; i++) {
        const cl_status status = read_string(r, "string", &key->strings[i]);
        if (status != CL_OK) return status;
    }
    return CL_OK;
}

static cl_status read_type(reader *r, const char *what, cl_meta_type *type) {
    const size_t at = r->pos;
    uint32_t number = 0;
    const cl_status status = read_u32(r, what, &number);
    if (status != CL_OK) return status;
    if (number > CL_META_FLOAT64)
        return FAIL(r, CL_ERR_FORMAT, at, ": its %s is %u; known are 0 to %d", what, number, CL_META_FLOAT64);
    *type = (cl_meta_type)number;
    return CL_OK;
}

/* Whether only the readers of other formats set this key (model_file.h). */
static bool is_internal(cl_str name) {
    static const char *const endings[] = {
        "tokenizer.fuse_unknown",   "tokenizer.normalized_tokens", "tokenizer.merge_ids", "tokenizer.space_prefix",
        "tokenizer.leading_tokens", "tokenizer.trailing_tokens",   ".rope.halves",        ".embeddings_only"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const cl_str end = cl_str_of(endings[i]);
        if (name.size >= end.size && memcmp(name.data + name.size - end.size, end.data, end.size) == 0) return true;
    }
    return false;
}

static cl_status read_key(reader *r, cl_meta_key *key) {
    const size_t at = r->pos;
    cl_status status = read_name(r, MAX_KEY_SIZE);
    if (status != CL_OK) return status;
    if (is_internal(r->name))
        return FAIL(r, CL_ERR_FORMAT, at, ": %s", "it is no key of GGUF files but the program's own; leave it out");
    key->name = r->name;
    status = read_type(r, "value type", &key->type);
    if (status != CL_OK) return status;
    if (key->type != CL_META_ARRAY) return read_values(r, key, key->type, 1);

    const size_t elem_at = r->pos;
    status = read_type(r, "element type", &key->elem);
    if (status != CL_OK) return status;
    if (key->elem == CL_META_ARRAY) return FAIL(r, CL_ERR_UNSUPPORTED, elem_at, ": %s", "arrays of arrays are not supported");
    /* A string has at least the eight bytes of its length. */
    status = read_count(r, "array's length", key->elem == CL_META_STRING ? 8 : cl_meta_size(key->elem), &key->n);
    return status == CL_OK ? read_values(r, key, key->elem, key->n) : status;
}

static cl_status read_keys(reader *r, cl_model_file *file) {
    r->kind = "key";
    for (size_t i = 0; i < file->n_keys; i++) {
        const size_t at = r->pos;
        cl_meta_key *key = &file->keys[i];
        const cl_status status = read_key(r, key);
        if (status != CL_OK) return status;
        const int32_t first = cl_str_map_add(&file->key_map, key->name.data, key->name.size, (int32_t)i);
        if (first >= 0) return FAIL(r, CL_ERR_FORMAT, at, ": it occurs twice, as number %d and %zu", first, i);
    }
    return CL_OK;
}

/* Check the dimensions of a tensor, and set its bytes. */
static cl_status check_shape(reader *r, cl_tensor *t, size_t at) {
    uint32_t block, bytes;
    const bool known = cl_tensor_block(t->type, &block, &bytes);
    uint64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if (t->ne[d] < 1)
            return FAIL(r, CL_ERR_FORMAT, at, ": dimension %d is %lld; 1 to 2^63 - 1 are allowed", d, (long long)t->ne[d]);
        if (__builtin_mul_overflow(n, (uint64_t)t->ne[d], &n) || n > INT64_MAX)
            return FAIL(r, CL_ERR_FORMAT, at, ": its dimensions multiply to more than %lld elements", (long long)INT64_MAX);
    }
    if (!known) return CL_OK;
    if (t->ne[0] % block != 0)
        return FAIL(r, CL_ERR_FORMAT, at, ": rows of %lld elements do not divide into %s blocks of %u", (long long)t->ne[0],
                    cl_tensor_type_name(t->type), block);
    uint64_t total;
    if (__builtin_mul_overflow(n / block, (uint64_t)bytes, &total) || total > r->size)
        return FAIL(r, CL_ERR_FORMAT, at, ": its %llu elements of %s are more than the whole file of %zu bytes" CL_CUT_SHORT,
                    (unsigned long long)n, cl_tensor_type_name(t->type), r->size);
    t->bytes = (size_t)total;
    return CL_OK;
}

/* *offset: from the start of the data, which is known only after the last tensor. */
static cl_status read_tensor(reader *r, cl_tensor *t, uint64_t *offset) {
    cl_status status = read_name(r, MAX_TENSOR_NAME);
    if (status != CL_OK) return status;
    t->name = r->name;
    const size_t at = r->pos;
    uint32_t n_dims = 0;
    status = read_u32(r, "number of dimensions", &n_dims);
    if (status != CL_OK) return status;
    if (n_dims < 1 || n_dims > 4) return FAIL(r, CL_ERR_FORMAT, at, ": it has %u dimensions; 1 to 4 are allowed", n_dims);
    t->n_dims = (int32_t)n_dims;
    for (int d = 0; d < 4; d++) {
        uint64_t ne = 1;
        if (d < t->n_dims) status = read_u64(r, "dimensions", &ne);
        if (status != CL_OK) return status;
        t->ne[d] = (int64_t)ne;
    }
    status = read_u32(r, "type", &t->type);
    if (status == CL_OK) status = check_shape(r, t, at);
    return status == CL_OK ? read_u64(r, "offset", offset) : status;
}

static cl_status read_alignment(reader *r, const cl_model_file *file, size_t *alignment) {
    static const char name[] = "general.alignment";
    *alignment = DEFAULT_ALIGNMENT;
    const int32_t i = cl_str_map_get(&file->key_map, name, sizeof name - 1);
    if (i < 0) return CL_OK;
    uint64_t value = 0;
    const bool number = cl_model_file_get_u64(file, name, &value);
    if (!number || value < MIN_ALIGNMENT || value > UINT32_MAX || (value & (value - 1)) != 0) {
        r->kind = "key", r->name = file->keys[i].name;
        return FAIL(r, CL_ERR_FORMAT, (size_t)(file->keys[i].raw - r->data), ": it is %llu; a power of two from %d is needed",
                    (unsigned long long)value, MIN_ALIGNMENT);
    }
    *alignment = (size_t)value;
    return CL_OK;
}

static cl_status place_tensor(reader *r, cl_tensor *t, uint64_t offset, size_t start, size_t alignment) {
    r->kind = "tensor", r->name = t->name;
    if (offset % alignment != 0)
        return FAIL(r, CL_ERR_FORMAT, r->pos, ": its offset %llu is no multiple of the alignment %zu",
                    (unsigned long long)offset, alignment);
    if (start > r->size || offset > r->size - start || t->bytes > r->size - start - offset)
        return FAIL(
            r, CL_ERR_FORMAT, r->pos,
            ": its %zu bytes at offset %llu of the data, which begin at byte %zu, end past the file's %zu bytes" CL_CUT_SHORT,
            t->bytes, (unsigned long long)offset, start, r->size);
    uint32_t block, bytes;
    if (cl_tensor_block(t->type, &block, &bytes)) t->data = r->data + start + offset;
    t->file = r->file->on_disk ? r->file : NULL;
    return CL_OK;
}

static int by_place(const void *a, const void *b) {
    const cl_tensor *s = *(const cl_tensor *const *)a, *t = *(const cl_tensor *const *)b;
    return s->data < t->data ? -1 : s->data > t->data;
}

/* placed: scratch, [n_tensors]. Tensors of unknown types, whose size is unknown too, have no data. */
static cl_status check_places(reader *r, const cl_model_file *file, size_t start, const cl_tensor **placed) {
    size_t n = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (file->tensors[i].data) placed[n++] = &file->tensors[i];
    qsort(placed, n, sizeof *placed, by_place);
    for (size_t i = 1; i < n; i++) {
        const cl_tensor *before = placed[i - 1], *t = placed[i];
        const size_t begin = (size_t)((const unsigned char *)t->data - r->data);
        const size_t end = (size_t)((const unsigned char *)before->data - r->data) + before->bytes;
        r->name = t->name;
        if (begin < end)
            return FAIL(r, CL_ERR_FORMAT, begin,
                        ": its data begin at offset %zu, but those of %s end at %zu: each needs its own", begin - start,
                        cl_str_show(before->name, (char[SHOWN]){0}, SHOWN), end - start);
    }
    return CL_OK;
}

/* Weights are repacked when they are loaded: bytes that many tensors share would become many times the file's size. */
static cl_status refuse_overlap(reader *r, const cl_model_file *file, size_t start) {
    const cl_tensor **placed = malloc((file->n_tensors + 1) * sizeof *placed);
    if (!placed) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for %zu tensors", file->n_tensors);
    const cl_status status = check_places(r, file, start, placed);
    free(placed);
    return status;
}

static cl_status read_tensors(reader *r, cl_model_file *file, uint64_t *offsets) {
    size_t alignment;
    cl_status status = read_alignment(r, file, &alignment);
    r->kind = "tensor";
    for (size_t i = 0; status == CL_OK && i < file->n_tensors; i++) {
        const size_t at = r->pos;
        cl_tensor *t = &file->tensors[i];
        status = read_tensor(r, t, &offsets[i]);
        if (status != CL_OK) return status;
        const int32_t first = cl_str_map_add(&file->tensor_map, t->name.data, t->name.size, (int32_t)i);
        if (first >= 0) return FAIL(r, CL_ERR_FORMAT, at, ": it occurs twice, as number %d and %zu", first, i);
    }
    /* pos is at most the file's size, so this cannot overflow for an alignment below 2^32. */
    const size_t start = (r->pos + alignment - 1) & ~(alignment - 1);
    for (size_t i = 0; status == CL_OK && i < file->n_tensors; i++)
        status = place_tensor(r, &file->tensors[i], offsets[i], start, alignment);
    return status == CL_OK ? refuse_overlap(r, file, start) : status;
}

/* What files begin with that are taken for models. */
static const struct {
    char magic[4];
    const char *what;
} other_formats[] = {
    {"tjgg", "it has GGUF's predecessor's format; convert the model again"},
    {"fmgg", "it has GGUF's predecessor's format; convert the model again"},
    {"lmgg", "it has GGUF's predecessor's format; convert the model again"},
    {"PK\3\4", "it is an archive, as PyTorch writes weights; convert the model to GGUF, or to a folder of safetensors"},
    {"<!DO", "it is a web page; download the file itself"},
    {"<!do", "it is a web page; download the file itself"},
    {"<htm", "it is a web page; download the file itself"},
};

static cl_status refuse_format(const unsigned char *magic, cl_error *error) {
    const char *what = "it does not begin with \"GGUF\"; name a GGUF file, or a folder of safetensors";
    for (size_t i = 0; i < sizeof other_formats / sizeof *other_formats; i++)
        if (memcmp(magic, other_formats[i].magic, sizeof other_formats[i].magic) == 0) what = other_formats[i].what;
    return cl_fail(error, CL_ERR_FORMAT, "no GGUF file: %s", what);
}

static cl_status read_header(reader *r, cl_model_file *file) {
    const unsigned char *magic = NULL;
    r->kind = "header";
    cl_status status = take(r, 4, "magic", &magic);
    if (status != CL_OK) return status;
    if (memcmp(magic, "FUGG", 4) == 0)
        return FAIL(r, CL_ERR_UNSUPPORTED, (size_t)0, ": %s", "a big-endian GGUF file; convert it to little-endian");
    if (memcmp(magic, "GGUF", 4) != 0) return refuse_format(magic, r->error);
    uint32_t version = 0;
    status = read_u32(r, "version", &version);
    if (status != CL_OK) return status;
    if (version != 0 && (version & 0xffff) == 0)
        return FAIL(r, CL_ERR_UNSUPPORTED, (size_t)4, ": %s", "a big-endian GGUF file; convert it to little-endian");
    if (version != 2 && version != 3)
        return FAIL(r, CL_ERR_UNSUPPORTED, (size_t)4, ": GGUF version %u; 2 and 3 are supported", version);
    (void)snprintf(file->format, sizeof file->format, "GGUF version %u", version);
    status = read_count(r, "number of tensors", MIN_TENSOR_BYTES, &file->n_tensors);
    return status == CL_OK ? read_count(r, "number of keys", MIN_KEY_BYTES, &file->n_keys) : status;
}

cl_status cl_gguf_parse(cl_file_bytes *bytes, cl_model_file *file, cl_error *error) {
    reader r = {.file = bytes, .data = bytes->data, .size = bytes->size, .error = error};
    cl_status status = read_header(&r, file);
    if (status != CL_OK) {
        file->n_keys = file->n_tensors = 0;
        return status;
    }
    file->keys = calloc(file->n_keys + 1, sizeof *file->keys);
    file->tensors = calloc(file->n_tensors + 1, sizeof *file->tensors);
    uint64_t *offsets = calloc(file->n_tensors + 1, sizeof *offsets);
    if (!file->keys || !file->tensors || !offsets || cl_str_map_init(&file->key_map, file->n_keys) != 0 ||
        cl_str_map_init(&file->tensor_map, file->n_tensors) != 0) {
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for %zu keys and %zu tensors", file->n_keys, file->n_tensors);
        if (!file->keys) file->n_keys = 0;
    }
    if (status == CL_OK) status = read_keys(&r, file);
    if (status == CL_OK) status = read_tensors(&r, file, offsets);
    free(offsets);
    return status;
}
