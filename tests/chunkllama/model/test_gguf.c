/* GGUF reading: what a good file yields, and that no bad one is believed. */
#define _GNU_SOURCE
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>

#include "chunkllama/model/model.h"
#include "edge.h"
#include "gguf_build.h"

/* Two tensors, one key of each type, arrays of strings, floats and bools. */
static gguf_bytes good_file(uint32_t version) {
    gguf_bytes b = {0};
    put_header(&b, version, 3, 16);
    put_key(&b, "u8", CL_META_U8), put(&b, "\xff", 1);
    put_key(&b, "i8", CL_META_I8), put(&b, "\xff", 1);
    put_key(&b, "u16", CL_META_U16), put(&b, "\x01\x02", 2);
    put_key(&b, "i16", CL_META_I16), put(&b, "\xfe\xff", 2);
    put_key(&b, "u32", CL_META_U32), put_u32(&b, 70000);
    put_key(&b, "i32", CL_META_I32), put_u32(&b, 7);
    put_key(&b, "f32", CL_META_FLOAT32), put_f32(&b, 1e-5f);
    put_key_bool(&b, "bool", 1);
    put_key_string(&b, "string", "a string\n");
    put_key(&b, "u64", CL_META_U64), put_u64(&b, UINT64_MAX);
    put_key(&b, "i64", CL_META_I64), put_u64(&b, (uint64_t)-3);
    put_key(&b, "f64", CL_META_FLOAT64), put(&b, &(double){0.25}, 8);
    put_array(&b, "strings", CL_META_STRING, 3), put_string(&b, "x"), put_string(&b, ""), put_string(&b, "yz");
    put_array(&b, "floats", CL_META_FLOAT32, 5);
    for (int i = 0; i < 5; i++) put_f32(&b, (float)i / 2);
    put_array(&b, "bools", CL_META_BOOL, 2), put(&b, "\1\0", 2);
    put_key_u32(&b, "general.alignment", 64);
    put_tensor(&b, "norm", CL_TENSOR_F32, 4, 1, 0);
    put_tensor(&b, "w", CL_TENSOR_Q4_1, 64, 2, 64);
    put_tensor(&b, "k", 40, 256, 1, 0); /* NVFP4: a type that is named, not read */
    put_padding(&b, 64);
    for (int i = 0; i < 64 + 80; i++) put(&b, &(unsigned char){(unsigned char)i}, 1);
    return b;
}

static void reads_every_type(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_bytes b = good_file(version);
        cl_model_file *f;
        cl_error error = {0};
        if (cl_gguf_open_memory(b.data, b.size, &f, &error) != CL_OK) fail_msg("%s", error.message);
        assert_string_equal(cl_model_file_format(f), version == 2 ? "GGUF version 2" : "GGUF version 3");
        uint64_t u;
        double d;
        bool flag;
        cl_str s;
        assert_true(cl_model_file_get_u64(f, "u8", &u) && u == 255);
        assert_false(cl_model_file_get_u64(f, "i8", &u));
        assert_true(cl_model_file_get_u64(f, "u16", &u) && u == 0x201);
        assert_false(cl_model_file_get_u64(f, "i16", &u));
        assert_true(cl_model_file_get_u64(f, "u32", &u) && u == 70000);
        assert_true(cl_model_file_get_u64(f, "i32", &u) && u == 7);
        assert_true(cl_model_file_get_u64(f, "u64", &u) && u == UINT64_MAX);
        assert_false(cl_model_file_get_u64(f, "i64", &u));
        assert_false(cl_model_file_get_u64(f, "f32", &u));
        assert_false(cl_model_file_get_u64(f, "absent", &u));
        assert_true(cl_model_file_get_f64(f, "f32", &d) && d == (double)1e-5f);
        assert_true(cl_model_file_get_f64(f, "f64", &d) && d == 0.25);
        assert_false(cl_model_file_get_f64(f, "string", &d));
        assert_true(cl_model_file_get_bool(f, "bool", &flag) && flag);
        assert_false(cl_model_file_get_bool(f, "u8", &flag));
        assert_true(cl_model_file_get_string(f, "string", &s) && s.size == 9 && memcmp(s.data, "a string\n", 9) == 0);
        assert_false(cl_model_file_get_string(f, "strings", &s));

        cl_meta_type type;
        size_t n;
        const void *data;
        assert_true(cl_model_file_get_array(f, "floats", &type, &n, &data) && type == CL_META_FLOAT32 && n == 5);
        float last;
        memcpy(&last, (const char *)data + 16, 4);
        assert_true(last == 2.0f);
        assert_true(cl_model_file_get_array(f, "strings", &type, &n, &data) && type == CL_META_STRING && n == 3);
        s = cl_model_file_array_string(f, "strings", 2);
        assert_true(s.size == 2 && memcmp(s.data, "yz", 2) == 0);
        assert_int_equal(cl_model_file_array_string(f, "strings", 3).size, 0);
        assert_false(cl_model_file_get_array(f, "string", &type, &n, &data));

        assert_int_equal(cl_model_file_n_tensors(f), 3);
        const cl_tensor *w = cl_model_file_find_tensor(f, "w");
        assert_non_null(w);
        assert_true(w->type == CL_TENSOR_Q4_1 && w->n_dims == 2 && w->ne[0] == 64 && w->ne[1] == 2 && w->ne[2] == 1);
        assert_int_equal(w->bytes, 80);
        assert_int_equal(*(const unsigned char *)w->data, 64);
        const cl_tensor *k = cl_model_file_tensor_at(f, 2);
        assert_null(k->data);
        assert_string_equal(cl_tensor_type_name(k->type), "NVFP4");
        assert_string_equal(cl_tensor_type_name(99), "type 99");
        assert_null(cl_model_file_find_tensor(f, "v"));
        cl_model_file_close(&f);
        assert_null(f);
        free(b.data);
    }
}

static void prints_values(void **state) {
    (void)state;
    gguf_bytes b = good_file(3);
    cl_model_file *f;
    assert_int_equal(cl_gguf_open_memory(b.data, b.size, &f, NULL), CL_OK);
    const char *expect[] = {"255",
                            "-1",
                            "513",
                            "-2",
                            "70000",
                            "7",
                            "9.99999975e-06",
                            "true",
                            "a string\\n",
                            "18446744073709551615",
                            "-3",
                            "0.25",
                            "3: [x, , yz]",
                            "5: [0, 0.5, 1, 1.5, ...]",
                            "2: [true, false]",
                            "64"};
    assert_int_equal(cl_model_file_n_keys(f), 16);
    for (size_t i = 0; i < 16; i++) {
        char buf[64];
        cl_meta_type type;
        cl_model_file_print_value(f, i, buf, sizeof buf);
        assert_string_equal(buf, expect[i]);
        for (size_t size = 0; size < sizeof buf; size++) { /* every buffer size: terminated, and nothing written after it */
            memset(buf, '#', sizeof buf);
            cl_model_file_print_value(f, i, buf, size);
            for (size_t j = size; j < sizeof buf; j++) assert_int_equal(buf[j], '#');
            if (size) assert_non_null(memchr(buf, 0, size));
        }
        assert_true(cl_model_file_key_at(f, i, &type).size > 0);
    }
    cl_model_file_close(&f);
    free(b.data);
}

static cl_status open_at_edge(const unsigned char *data, size_t size, cl_error *error) {
    cl_model_file *f;
    const cl_status status = cl_gguf_open_memory(copy_to_edge(data, size), size, &f, error);
    if (status == CL_OK) {
        read_all(f);
    } else {
        assert_null(f);
        assert_int_equal(error->code, status);
        assert_true(strlen(error->message) > 10);
    }
    cl_model_file_close(&f);
    return status;
}

static void refuses_every_truncation(void **state) {
    (void)state;
    gguf_bytes b = good_file(3);
    cl_error error;
    assert_int_equal(open_at_edge(b.data, b.size, &error), CL_OK);
    for (size_t size = 0; size < b.size; size++) {
        assert_int_equal(open_at_edge(b.data, size, &error), CL_ERR_FORMAT);
        if (!strstr(error.message, "the file is cut short")) fail_msg("%zu bytes: '%s'", size, error.message);
    }
    free(b.data);
}

static void survives_every_bit_flip(void **state) {
    (void)state;
    gguf_bytes b = good_file(3);
    cl_error error;
    int refused = 0;
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refused += open_at_edge(b.data, b.size, &error) != CL_OK;
        b.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(refused > 1000); /* and the flips did something */
    static const unsigned char nasty[] = {0, 1, 0x7f, 0x80, 0xff};
    for (size_t i = 0; i + 8 <= b.size; i++)
        for (size_t v = 0; v < sizeof nasty; v++) {
            unsigned char saved[8];
            memcpy(saved, b.data + i, 8);
            memset(b.data + i, nasty[v], 8);
            open_at_edge(b.data, b.size, &error);
            memcpy(b.data + i, saved, 8);
        }
    free(b.data);
}

static void expect_error(gguf_bytes b, cl_status status, const char *part) {
    cl_error error = {0};
    assert_int_equal(open_at_edge(b.data, b.size, &error), status);
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
    free(b.data);
}

/* What is taken for a model, and is none. */
static void names_other_files(void **state) {
    (void)state;
    static const struct {
        const char *begin, *part;
    } files[] = {
        {"root:x:0:0:root", "it does not begin with \"GGUF\"; name a GGUF file"},
        {"<!DOCTYPE html><html>", "it is a web page"},
        {"<html><body></body>", "it is a web page"},
        {"tjgg\1\0\0\0", "it has GGUF's predecessor's format"},
        {"fmgg\1\0\0\0", "it has GGUF's predecessor's format"},
        {"lmgg\1\0\0\0", "it has GGUF's predecessor's format"},
        {"PK\3\4\0\0\0\0", "it is an archive"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        gguf_bytes b = {0};
        put(&b, files[i].begin, 8), put(&b, (char[60]){0}, 60);
        expect_error(b, CL_ERR_FORMAT, files[i].part);
    }
}

/* A model that was split into one part is whole, and one in memory cannot be split. */
static void needs_files_for_parts(void **state) {
    (void)state;
    for (int count = 1; count <= 3; count += 2) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 2), put_key(&b, "split.no", CL_META_U16), put(&b, &(uint16_t){1}, 2);
        put_key(&b, "split.count", CL_META_U16), put(&b, &(uint16_t){(uint16_t)count}, 2);
        if (count > 1) {
            expect_error(b, CL_ERR_UNSUPPORTED, "it is a part of a split model");
        } else {
            cl_error error;
            assert_int_equal(open_at_edge(b.data, b.size, &error), CL_OK);
            free(b.data);
        }
    }
}

/* A folder with a model of three parts. */
typedef struct split_model {
    char folder[32], path[4][64]; /* paths of parts 1 to 3, and of the first under a name that is no part's */
} split_model;

/* A part: two tensors, `name` and the same with a 2 behind it, of two floats each, which count up from `first`. */
typedef struct split_part {
    int no, count, n_tensors; /* as its keys say; count 0: it has none */
    const char *name;         /* NULL: it has no tensors */
    float first;
} split_part;

static void write_part(const char *path, split_part p) {
    gguf_bytes b = {0};
    put_header(&b, 3, p.name ? 2 : 0, (p.count ? 3 : 0) + (p.no == 0 ? 1 : 0));
    if (p.no == 0) put_key_string(&b, "general.name", "parts");
    if (p.count) {
        put_key(&b, "split.no", CL_META_U16), put(&b, &(uint16_t){(uint16_t)p.no}, 2);
        put_key(&b, "split.count", CL_META_U16), put(&b, &(uint16_t){(uint16_t)p.count}, 2);
        put_key(&b, "split.tensors.count", CL_META_I32), put_u32(&b, (uint32_t)p.n_tensors);
    }
    for (int i = 0; p.name && i < 2; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%s%s", p.name, i ? "2" : "");
        put_tensor(&b, name, CL_TENSOR_F32, 2, 1, 32 * (uint64_t)i);
    }
    put_padding(&b, 32);
    for (int i = 0; p.name && i < 2; i++) {
        put_f32(&b, p.first + (float)(2 * i)), put_f32(&b, p.first + (float)(2 * i + 1));
        put_padding(&b, 32);
    }
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(b.data, 1, b.size, f) == b.size && fclose(f) == 0);
    free(b.data);
}

static const split_part good_parts[3] = {{0, 3, 4, NULL, 0}, {1, 3, 4, "a", 10}, {2, 3, 4, "b", 20}};

static void make_split(split_model *m) {
    char folder[] = "/tmp/gguf_parts.XXXXXX";
    assert_non_null(mkdtemp(folder));
    strcpy(m->folder, folder);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(m->path[i], sizeof m->path[i], "%s/m-0000%d-of-00003.gguf", folder, i + 1);
        write_part(m->path[i], good_parts[i]);
    }
    (void)snprintf(m->path[3], sizeof m->path[3], "%s/m.gguf", folder);
}

static void remove_split(const split_model *m) {
    for (int i = 0; i < 4; i++) (void)unlink(m->path[i]);
    assert_int_equal(rmdir(m->folder), 0);
}

/* Any part opens all: metadata of the first, tensors of each, a hash over the bytes of each. */
static void opens_all_parts(void **state) {
    (void)state;
    split_model m;
    make_split(&m);
    uint64_t before[3] = {0}, after[3];
    for (int by = 0; by < 3; by++) {
        cl_model_file *f;
        cl_error error;
        if (cl_gguf_open(m.path[by], &f, &error) != CL_OK) fail_msg("%s", error.message);
        cl_str name;
        assert_true(cl_model_file_get_string(f, "general.name", &name) && cl_str_is(name, "parts"));
        assert_string_equal(cl_model_file_format(f), "GGUF version 3, 3 parts");
        assert_int_equal(cl_model_file_n_tensors(f), 4);
        assert_int_equal(cl_model_file_bytes(f), 32);
        assert_int_equal(cl_model_file_memory(f), 16 * 32); /* a panel has 16 rows */
        for (int i = 0; i < 4; i++) {
            static const char *const names[] = {"a", "a2", "b", "b2"};
            const cl_tensor *t = cl_model_file_find_tensor(f, names[i]);
            float row[2];
            assert_non_null(t);
            assert_int_equal(cl_tensor_row_f32(t, 0, row, NULL), CL_OK);
            assert_true(row[0] == (float)(i < 2 ? 10 + 2 * i : 16 + 2 * i) && row[1] == row[0] + 1);
        }
        assert_int_equal(cl_model_file_fingerprint(f, after, NULL), CL_OK);
        assert_int_equal(cl_model_file_sample(f, &after[2], NULL), CL_OK);
        if (by > 0) assert_memory_equal(after, before, sizeof after);
        memcpy(before, after, sizeof before);
        assert_int_equal(cl_model_file_end_loading(f, NULL), CL_OK);
        cl_model_file_close(&f);
        char *model = cl_model_file_name(m.path[by]), *first = cl_model_file_part_path(m.path[by], 1);
        assert_string_equal(model, "m");
        assert_string_equal(first, m.path[0]);
        free(model);
        free(first);
    }
    for (int changed = 1; changed < 3; changed++) { /* another weight in any part */
        split_part other = good_parts[changed];
        other.first += 1;
        write_part(m.path[changed], other);
        cl_model_file *f;
        assert_int_equal(cl_gguf_open(m.path[0], &f, NULL), CL_OK);
        assert_int_equal(cl_model_file_fingerprint(f, after, NULL), CL_OK);
        assert_int_equal(cl_model_file_sample(f, &after[2], NULL), CL_OK);
        for (int i = 0; i < 3; i++) assert_int_not_equal(after[i], before[i]);
        write_part(m.path[changed], good_parts[changed]);
        assert_int_equal(cl_model_file_end_loading(f, NULL), CL_ERR_FILE); /* it was changed while it was open */
        cl_model_file_close(&f);
    }
    remove_split(&m);
}

static void expect_split_error(const char *path, cl_status code, const char *part) {
    cl_model_file *f;
    cl_error error;
    assert_int_equal(cl_gguf_open(path, &f, &error), code);
    assert_null(f);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void names_wrong_parts(void **state) {
    (void)state;
    static const struct {
        split_part third;
        const char *message;
    } cases[] = {
        {{1, 3, 4, "b", 0}, "-00003-of-00003.gguf: it should be part 3 of 3 of a model, but says that it is part 2 of 3"},
        {{2, 4, 4, "b", 0}, "it should be part 3 of 3 of a model, but says that it is part 3 of 4; name the parts as"},
        {{2, 0, 4, "b", 0}, "it should be part 3 of 3 of a model, but has no split.count; download the part again"},
        {{2, 3, 9, "b", 0}, "it is part of a model of 9 tensors (split.tensors.count), and another part of one of 4"},
        {{2, 3, 4, NULL, 0}, "the 3 parts of the model have 2 tensors, but split.tensors.count is 4; download"},
        {{2, 3, 4, "a", 0}, "tensor a is in two parts of the model; download all parts of one model"},
    };
    split_model m;
    make_split(&m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_part(m.path[2], cases[i].third);
        expect_split_error(m.path[0], CL_ERR_FORMAT, cases[i].message);
    }
    assert_int_equal(unlink(m.path[2]), 0);
    expect_split_error(m.path[0], CL_ERR_FILE, "part 3 of 3 of the model: ");
    expect_split_error(m.path[1], CL_ERR_FILE, "cannot be opened: No such file or directory; all parts must be in one folder");
    assert_int_equal(rename(m.path[0], m.path[3]), 0);
    expect_split_error(m.path[1], CL_ERR_FILE, "part 1 of 3 of the model: ");
    expect_split_error(m.path[3], CL_ERR_FORMAT,
                       "m.gguf: it is part 1 of 3 of a split model, so its name must end in \"-00001-of-00003.gguf\"");
    remove_split(&m);
}

/* Tensors behind 4 GB are read from their places. The file takes no room on the disk. */
static void reads_behind_four_gigabytes(void **state) {
    (void)state;
    enum { ROWS = 1 << 20, COLUMNS = 1 << 10 };
    const uint64_t bytes = (uint64_t)ROWS * COLUMNS * 4;
    gguf_bytes b = {0};
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "large", CL_TENSOR_F32, COLUMNS, ROWS, 0);
    put_tensor(&b, "behind", CL_TENSOR_F32, 2, 1, bytes);
    put_padding(&b, 32);
    char path[] = "/tmp/gguf_test.XXXXXX";
    const int fd = mkstemp(path);
    const float values[2] = {3, 4};
    assert_int_equal(pwrite(fd, b.data, b.size, 0), (ssize_t)b.size);
    assert_int_equal(pwrite(fd, values, sizeof values, (off_t)(b.size + bytes)), sizeof values);
    assert_int_equal(pwrite(fd, values, sizeof values, (off_t)(b.size + bytes - 8)), sizeof values);
    cl_model_file *f;
    cl_error error;
    if (cl_gguf_open(path, &f, &error) != CL_OK) fail_msg("%s", error.message);
    float row[COLUMNS];
    assert_int_equal(cl_tensor_row_f32(cl_model_file_find_tensor(f, "behind"), 0, row, NULL), CL_OK);
    assert_true(row[0] == 3 && row[1] == 4);
    assert_int_equal(cl_tensor_row_f32(cl_model_file_find_tensor(f, "large"), ROWS - 1, row, NULL), CL_OK);
    assert_true(row[COLUMNS - 3] == 0 && row[COLUMNS - 2] == 3 && row[COLUMNS - 1] == 4);
    cl_model_file_close(&f);
    close(fd);
    unlink(path);
    free(b.data);
}

/* An array of equal numbers, as files have for each layer, is that number. */
static void equal_values_are_one(void **state) {
    (void)state;
    static const uint32_t values[][3] = {{7, 7, 7}, {7, 7, 8}, {8, 7, 7}};
    for (int i = 0; i < 3; i++)
        for (int real = 0; real < 2; real++) {
            gguf_bytes b = {0};
            put_header(&b, 3, 0, 1), put_array(&b, "k", real ? CL_META_FLOAT32 : CL_META_U32, 3);
            for (int k = 0; k < 3; k++) real ? put_f32(&b, (float)values[i][k]) : put_u32(&b, values[i][k]);
            cl_model_file *f;
            assert_int_equal(cl_gguf_open_memory(b.data, b.size, &f, NULL), CL_OK);
            uint64_t u = 0;
            double d = 0;
            assert_int_equal(cl_model_file_get_u64(f, "k", &u), i == 0 && !real);
            assert_int_equal(cl_model_file_get_f64(f, "k", &d), i == 0 && real);
            if (i == 0) assert_true(real ? d == 7 : u == 7);
            cl_model_file_close(&f);
            free(b.data);
        }
}

static void names_what_is_wrong(void **state) {
    (void)state;
    gguf_bytes b = {0};
    put(&b, "FUGG\3\0\0\0", 8), put(&b, (char[16]){0}, 16);
    expect_error(b, CL_ERR_UNSUPPORTED, "big-endian");

    b = (gguf_bytes){0};
    put_header(&b, 0x03000000, 0, 0);
    expect_error(b, CL_ERR_UNSUPPORTED, "big-endian");

    b = (gguf_bytes){0};
    put_header(&b, 1, 0, 0);
    expect_error(b, CL_ERR_UNSUPPORTED, "byte 4: header: GGUF version 1; 2 and 3 are supported");

    b = (gguf_bytes){0};
    put(&b,
        "\x7f"
        "ELF",
        4),
        put(&b, (char[60]){0}, 60);
    expect_error(b, CL_ERR_FORMAT, "no GGUF file");

    b = (gguf_bytes){0};
    put_header(&b, 3, UINT64_MAX, 0);
    expect_error(b, CL_ERR_FORMAT, "byte 8: header: the number of tensors is 18446744073709551615");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 2), put_key_u32(&b, "twice", 1), put_key_u32(&b, "twice", 2);
    expect_error(b, CL_ERR_FORMAT, "key twice: it occurs twice");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_key(&b, "deep", CL_META_ARRAY), put_u32(&b, CL_META_ARRAY), put_u64(&b, 0), put_u32(&b, 0);
    expect_error(b, CL_ERR_UNSUPPORTED, "key deep: arrays of arrays");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_array(&b, "long", CL_META_U64, UINT64_MAX / 8 + 1), put_u64(&b, 0);
    expect_error(b, CL_ERR_FORMAT, "key long: the array's length is 2305843009213693952");

    for (int i = 0; i < 2; i++) {
        b = (gguf_bytes){0};
        put_header(&b, 3, 0, 1), put_key(&b, "text", CL_META_STRING), put_u64(&b, i ? 9 : UINT64_MAX), put_u64(&b, 0);
        expect_error(b, CL_ERR_FORMAT,
                     i ? "key text: the file ends inside its string: 9 bytes needed, 8 left"
                       : "key text: the file ends inside its string: 18446744073709551615 bytes needed");
    }

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_key_bool(&b, "flag", 2);
    expect_error(b, CL_ERR_FORMAT, "key flag: a bool is 2");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_key(&b, "odd", 13), put_u32(&b, 0);
    expect_error(b, CL_ERR_FORMAT, "key odd: its value type is 13");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_string(&b, ""), put_u32(&b, 0), put_u32(&b, 0);
    expect_error(b, CL_ERR_FORMAT, "its name has 0 bytes");

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_key_u32(&b, "general.alignment", 24);
    expect_error(b, CL_ERR_FORMAT, "key general.alignment: it is 24; a power of two");

    static const char *const internal[] = {"tokenizer.merge_ids",      "tokenizer.space_prefix",    "qwen2.rope.halves",
                                           "tokenizer.leading_tokens", "tokenizer.trailing_tokens", "llama.embeddings_only"};
    for (size_t i = 0; i < sizeof internal / sizeof *internal; i++) {
        b = (gguf_bytes){0};
        put_header(&b, 3, 0, 1), put_array(&b, internal[i], CL_META_I32, 3), put(&b, (int32_t[3]){0}, sizeof(int32_t[3]));
        char expect[128];
        (void)snprintf(expect, sizeof expect, "byte 24: key %s: it is no key of GGUF files", internal[i]);
        expect_error(b, CL_ERR_FORMAT, expect);
    }

    b = (gguf_bytes){0};
    put_header(&b, 3, 0, 1), put_key_string(&b, "esc\x1b[31m", "v"), b.size--;
    expect_error(b, CL_ERR_FORMAT, "key esc?[31m: ");
}

static void expect_tensor_error(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset, const char *part) {
    gguf_bytes b = {0};
    put_header(&b, 3, 1, 0), put_tensor(&b, "w", type, ne0, ne1, offset);
    put_padding(&b, 32), put(&b, (char[320]){0}, 320);
    expect_error(b, CL_ERR_FORMAT, part);
}

static void checks_tensors(void **state) {
    (void)state;
    expect_tensor_error(CL_TENSOR_F32, 0, 4, 0, "tensor w: dimension 0 is 0");
    expect_tensor_error(CL_TENSOR_F32, 4, UINT64_MAX, 0, "dimension 1 is -1");
    expect_tensor_error(CL_TENSOR_F32, 1u << 31, 1ull << 33, 0, "multiply to more than");
    expect_tensor_error(CL_TENSOR_F32, 1u << 31, 1ull << 32, 0, "multiply to more than");
    expect_tensor_error(CL_TENSOR_F32, 1u << 30, 1u << 30, 0, "more than the whole file");
    expect_tensor_error(CL_TENSOR_Q8_0, 48, 1, 0, "rows of 48 elements do not divide into Q8_0 blocks of 32");
    expect_tensor_error(CL_TENSOR_F32, 4, 1, 16, "offset 16 is no multiple of the alignment 32");
    expect_tensor_error(CL_TENSOR_F32, 81, 1, 0, "its 324 bytes at offset 0");
    expect_tensor_error(CL_TENSOR_F32, 8, 1, 320, "its 32 bytes at offset 320");
    expect_tensor_error(CL_TENSOR_F32, 8, 1, UINT64_MAX - 31, "end past the file's");

    gguf_bytes b = {0};
    put_header(&b, 3, 2, 0), put_tensor(&b, "w", CL_TENSOR_F32, 1, 1, 0), put_tensor(&b, "w", CL_TENSOR_F32, 1, 1, 0);
    put_padding(&b, 32), put_u32(&b, 0);
    expect_error(b, CL_ERR_FORMAT, "tensor w: it occurs twice");

    for (uint32_t n_dims = 0; n_dims < 6; n_dims += 5) {
        b = (gguf_bytes){0};
        put_header(&b, 3, 1, 0), put_string(&b, "w"), put_u32(&b, n_dims);
        for (uint32_t i = 0; i < n_dims; i++) put_u64(&b, 1);
        put_u32(&b, CL_TENSOR_F32), put_u64(&b, 0), put_padding(&b, 32), put(&b, (char[32]){0}, 32);
        expect_error(b, CL_ERR_FORMAT, "dimensions; 1 to 4 are allowed");
    }
}

/* The file of three tensors, of 64, 32 and, where it is read, 32 bytes. */
static gguf_bytes three_tensors(uint64_t a, uint64_t b, uint64_t c, uint32_t type_of_c) {
    gguf_bytes bytes = {0};
    put_header(&bytes, 3, 3, 0);
    put_tensor(&bytes, "a", CL_TENSOR_F32, 16, 1, a), put_tensor(&bytes, "b", CL_TENSOR_F32, 1, 8, b);
    put_tensor(&bytes, "c", type_of_c, type_of_c == CL_TENSOR_F32 ? 8 : 256, 1, c);
    put_padding(&bytes, 32), put(&bytes, (char[128]){0}, 128);
    return bytes;
}

static void refuses_tensors_that_overlap(void **state) {
    (void)state;
    enum { NVFP4 = 40 };
    expect_error(three_tensors(0, 32, 96, CL_TENSOR_F32), CL_ERR_FORMAT,
                 "tensor b: its data begin at offset 32, but those of a end at 64: each needs its own");
    expect_error(three_tensors(32, 0, 64, CL_TENSOR_F32), CL_ERR_FORMAT,
                 "tensor c: its data begin at offset 64, but those of a end at 96");
    expect_error(three_tensors(32, 96, 96, CL_TENSOR_F32), CL_ERR_FORMAT, "its data begin at offset 96, but those of ");
    static const uint64_t apart[][3] = {{0, 64, 96}, {64, 32, 0}, {32, 0, 96}};
    cl_error error;
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        gguf_bytes b = three_tensors(apart[i][0], apart[i][1], apart[i][2], CL_TENSOR_F32);
        assert_int_equal(open_at_edge(b.data, b.size, &error), CL_OK);
        free(b.data);
    }
    gguf_bytes b = three_tensors(0, 64, 32, NVFP4); /* nothing is read of it, and its size is not known */
    assert_int_equal(open_at_edge(b.data, b.size, &error), CL_OK);
    free(b.data);
}

static void opens_files(void **state) {
    (void)state;
    gguf_bytes b = good_file(3);
    char path[] = "/tmp/gguf_test.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    cl_model_file *f;
    cl_error error;
    assert_int_equal(cl_gguf_open(path, &f, &error), CL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "empty"));
    assert_int_equal(write(fd, b.data, b.size), (ssize_t)b.size);
    assert_int_equal(cl_gguf_open(path, &f, &error), CL_OK);
    assert_int_equal(cl_model_file_n_tensors(f), 3);
    cl_model_file_close(&f);
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(cl_gguf_open(path, &f, &error), CL_ERR_FORMAT);
    assert_memory_equal(error.message, path, strlen(path));
    close(fd);
    unlink(path);
    assert_int_equal(cl_gguf_open(path, &f, &error), CL_ERR_FILE);
    assert_int_equal(cl_gguf_open("/tmp", &f, &error), CL_ERR_FILE);
    free(b.data);
}

/* The sample of a GGUF file with one tensor of 2^18 floats, all `weight`, and a key. */
static uint64_t sample_of(float weight, uint32_t key) {
    enum { N = 1 << 18 };
    char path[] = "/tmp/gguf_test.XXXXXX";
    const int fd = mkstemp(path);
    uint64_t sample = 0;
    gguf_bytes b = {0};
    put_header(&b, 3, 1, 1);
    put_key_u32(&b, "key", key);
    put_tensor(&b, "w", 0, N, 1, 0);
    put_padding(&b, 32);
    for (int i = 0; i < N; i++) put_f32(&b, weight);
    assert_int_equal(write(fd, b.data, b.size), (ssize_t)b.size);
    cl_model_file *f;
    assert_int_equal(cl_gguf_open(path, &f, NULL), CL_OK);
    assert_int_equal(cl_model_file_sample(f, &sample, NULL), CL_OK);
    cl_model_file_close(&f);
    close(fd);
    unlink(path);
    free(b.data);
    return sample;
}

static void samples_tell_models_apart(void **state) {
    (void)state;
    const uint64_t sample = sample_of(1, 1);
    assert_int_equal(sample_of(1, 1), sample);
    assert_int_not_equal(sample_of(2, 1), sample);
    assert_int_not_equal(sample_of(1, 2), sample);
}

static void put_key_f32(gguf_bytes *b, const char *name, float v) {
    put_key(b, name, CL_META_FLOAT32);
    put_f32(b, v);
}

static void put_key_i32(gguf_bytes *b, const char *name, int32_t v) {
    put_key(b, name, CL_META_I32);
    put_u32(b, (uint32_t)v);
}

/* What a file with these keys recommends; those that are NAN or INT32_MIN are absent. */
static bool recommended(float temp, int32_t top_k, float penalty, int32_t window, cl_sampler_params *p, int32_t *found_window) {
    gguf_bytes b = {0};
    const bool has_k = top_k != INT32_MIN, has_window = window != INT32_MIN;
    put_header(&b, 3, 0, (uint64_t)!isnan(temp) + has_k + !isnan(penalty) + has_window);
    if (!isnan(temp)) put_key_f32(&b, "general.sampling.temp", temp);
    if (has_k) put_key_i32(&b, "general.sampling.top_k", top_k);
    if (!isnan(penalty)) put_key_f32(&b, "general.sampling.penalty_repeat", penalty);
    if (has_window) put_key_i32(&b, "general.sampling.penalty_last_n", window);
    cl_model_file *f;
    cl_error error;
    if (cl_gguf_open_memory(b.data, b.size, &f, &error) != CL_OK) fail_msg("%s", error.message);
    cl_sampler_params_init(p);
    *found_window = -1;
    const bool any = cl_model_recommended_sampling(&(cl_model){.file = f}, p, found_window);
    cl_model_file_close(&f);
    free(b.data);
    return any;
}

/* Keys of llama.cpp say how to draw tokens; what they leave out, and what no request could have, stays. */
static void recommends_sampling(void **state) {
    (void)state;
    cl_sampler_params p;
    int32_t window;
    assert_false(recommended(NAN, INT32_MIN, NAN, INT32_MIN, &p, &window));
    assert_true(p.temperature == 1 && p.top_k == 0 && window == -1);
    assert_true(recommended(0.25f, INT32_MIN, NAN, INT32_MIN, &p, &window));
    assert_true(p.temperature == 0.25f && p.top_k == 0 && p.repetition_penalty == 1 && window == -1);
    assert_true(recommended(NAN, 20, 1.5f, INT32_MIN, &p, &window));
    assert_true(p.temperature == 1 && p.top_k == 20 && p.repetition_penalty == 1.5f && window == 64);
    assert_true(recommended(0, 0, 1.5f, 100, &p, &window));
    assert_true(p.temperature == 0 && p.top_k == 0 && window == 100);
    assert_true(recommended(NAN, INT32_MIN, 1.5f, -1, &p, &window));
    assert_int_equal(window, INT32_MAX);
    assert_false(recommended(-3, INT32_MIN, 1000, INT32_MIN, &p, &window));
    assert_true(p.temperature == 1 && p.repetition_penalty == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recommends_sampling),
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(prints_values),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(survives_every_bit_flip),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(names_other_files),
        cmocka_unit_test(needs_files_for_parts),
        cmocka_unit_test(opens_all_parts),
        cmocka_unit_test(names_wrong_parts),
        cmocka_unit_test(reads_behind_four_gigabytes),
        cmocka_unit_test(equal_values_are_one),
        cmocka_unit_test(checks_tensors),
        cmocka_unit_test(refuses_tensors_that_overlap),
        cmocka_unit_test(opens_files),
        cmocka_unit_test(samples_tell_models_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
