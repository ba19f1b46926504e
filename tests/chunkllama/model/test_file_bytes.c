/* Files are read when their bytes are needed; one that changes meanwhile is an error, and ends no process. */
#include "tests/support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chunkllama/common/file_bytes.h"
#include "chunkllama/linear/linear.h"
#include "gguf_build.h"

enum { FILE_BYTES = (3 << 20) + 123 };

/* ---- The linker calls this in place of pread ---- */

static _Atomic int reads_to_failure; /* the last of these fails; 0: none does */
static bool in_pieces;               /* reads are interrupted, and give less than was requested */

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at) {
    static bool interrupt;
    if (reads_to_failure > 0 && --reads_to_failure == 0) {
        errno = EIO;
        return -1;
    }
    if (!in_pieces) return __real_pread(fd, to, n, at);
    errno = EINTR;
    interrupt = !interrupt;
    return interrupt ? -1 : __real_pread(fd, to, n > 1000 ? n / 3 : n, at);
}

static bool no_addresses; /* mmap fails */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (!no_addresses) return __real_mmap(at, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

/* A temporary file with these bytes; the caller removes it. */
static void make_file(char path[32], const void *data, size_t size) {
    strcpy(path, "/tmp/file_bytes_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static unsigned char *some_bytes(size_t size) {
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    return bytes;
}

/* An open file of FILE_BYTES. */
typedef struct opened {
    char path[32];
    unsigned char *expected;
    cl_file_bytes file;
} opened;

/* The first n_fetched bytes are fetched. */
static void open_some(opened *o, size_t n_fetched) {
    cl_error error;
    o->expected = some_bytes(FILE_BYTES);
    make_file(o->path, o->expected, FILE_BYTES);
    assert_int_equal(cl_file_bytes_open(o->path, &o->file, &error), CL_OK);
    assert_int_equal(cl_file_bytes_fetch(&o->file, n_fetched, &error), CL_OK);
}

static void close_some(opened *o) {
    cl_file_bytes_close(&o->file);
    free(o->expected);
    unlink(o->path);
}

static void bytes_are_those_of_the_file(void **state) {
    (void)state;
    opened o;
    unsigned char part[1000];
    cl_error error;
    open_some(&o, 0);
    assert_int_equal(o.file.size, FILE_BYTES);
    static const size_t ends[] = {1, 70000, (1 << 20) + 1, FILE_BYTES};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(cl_file_bytes_fetch(&o.file, ends[i], &error), CL_OK);
        assert_memory_equal(o.file.data, o.expected, ends[i]);
    }
    assert_true(cl_file_bytes_copy(&o.file, o.file.data + FILE_BYTES - sizeof part, sizeof part, part));
    assert_memory_equal(part, o.expected + FILE_BYTES - sizeof part, sizeof part);
    assert_true(cl_file_bytes_unchanged(&o.file));
    close_some(&o);
}

static void a_truncated_file_is_an_error(void **state) {
    (void)state;
    opened o;
    unsigned char part[100];
    cl_error error;
    open_some(&o, 1000);
    assert_int_equal(truncate(o.path, 1 << 20), 0);
    assert_false(cl_file_bytes_unchanged(&o.file));
    assert_int_equal(cl_file_bytes_fetch(&o.file, FILE_BYTES, &error), CL_ERR_FILE);
    assert_non_null(strstr(error.message, "bytes 1048576 to 3145851 of 3145851 cannot be read any more"));
    assert_false(cl_file_bytes_copy(&o.file, o.file.data + (1 << 20) - 50, sizeof part, part));
    assert_memory_equal(o.file.data, o.expected, 1000);
    close_some(&o);
}

static void reads_may_come_in_pieces(void **state) {
    (void)state;
    opened o;
    cl_error error;
    open_some(&o, 0);
    in_pieces = true;
    assert_int_equal(cl_file_bytes_fetch(&o.file, FILE_BYTES, &error), CL_OK);
    in_pieces = false;
    assert_memory_equal(o.file.data, o.expected, FILE_BYTES);
    close_some(&o);
}

/* What was read stays, and the rest can be read once the disk answers again. */
static void a_disk_that_fails_is_an_error(void **state) {
    (void)state;
    opened o;
    unsigned char part[100];
    cl_error error;
    open_some(&o, 1000);
    reads_to_failure = 1;
    assert_int_equal(cl_file_bytes_fetch(&o.file, FILE_BYTES, &error), CL_ERR_FILE);
    assert_non_null(strstr(error.message, "of 3145851 cannot be read: Input/output error"));
    reads_to_failure = 1;
    assert_false(cl_file_bytes_copy(&o.file, o.file.data + 5, sizeof part, part));
    assert_int_equal(cl_file_bytes_fetch(&o.file, FILE_BYTES, &error), CL_OK);
    assert_memory_equal(o.file.data, o.expected, FILE_BYTES);
    close_some(&o);
}

/* An open GGUF file with one F32 matrix "w" (64, 40) of consecutive numbers, and what is read of it. */
typedef struct model {
    char path[32];
    cl_model_file *file;
    const cl_tensor *tensor;
    ca_pool *pool;
    cl_linear packed;
    float row[64];
    cl_error error;
} model;

static void open_model(model *m) {
    gguf_bytes b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", CL_TENSOR_F32, 64, 40, 0);
    put_padding(&b, 32);
    for (int i = 0; i < 64 * 40; i++) put_f32(&b, (float)i);
    make_file(m->path, b.data, b.size);
    free(b.data);
    if (cl_model_file_open(m->path, &m->file, &m->error) != CL_OK) fail_msg("%s", m->error.message);
    m->tensor = cl_model_file_find_tensor(m->file, "w");
    m->pool = ca_pool_create(2);
}

static void close_model(model *m) {
    cl_model_file_close(&m->file);
    unlink(m->path);
    ca_pool_destroy(&m->pool);
}

static void weights_are_read_from_the_file(void **state) {
    (void)state;
    model m;
    open_model(&m);
    assert_int_equal(cl_linear_pack(m.tensor, m.pool, &m.packed, &m.error), CL_OK);
    assert_int_equal(cl_tensor_row_f32(m.tensor, 39, m.row, &m.error), CL_OK);
    assert_true(m.row[63] == 64 * 40 - 1);
    assert_int_equal(cl_model_file_end_loading(m.file, &m.error), CL_OK);
    assert_int_equal(truncate(m.path, 10), 0); /* no longer matters */
    cl_linear_row_f32(&m.packed, 38, m.row);
    for (int i = 0; i < 64; i++) assert_true(m.row[i] == (float)(38 * 64 + i));
    assert_true(cl_str_is(m.tensor->name, "w"));
    cl_linear_free(&m.packed);
    close_model(&m);
}

static void a_disk_that_fails_while_loading_is_an_error(void **state) {
    (void)state;
    model m;
    open_model(&m);
    reads_to_failure = 1;
    assert_int_equal(cl_linear_pack(m.tensor, m.pool, &m.packed, &m.error), CL_ERR_FILE);
    assert_non_null(strstr(m.error.message, "tensor w cannot be read any more"));
    assert_null(m.packed.data);
    close_model(&m);
}

static void truncation_while_loading_is_an_error(void **state) {
    (void)state;
    model m;
    open_model(&m);
    assert_int_equal(truncate(m.path, 64 * 20), 0);
    assert_int_equal(cl_linear_pack(m.tensor, m.pool, &m.packed, &m.error), CL_ERR_FILE);
    assert_string_equal(m.error.message,
                        "tensor w cannot be read any more; was its file truncated while it was loaded, or does its disk fail?");
    assert_null(m.packed.data);
    assert_int_equal(cl_tensor_row_f32(m.tensor, 39, m.row, &m.error), CL_ERR_FILE);
    assert_int_equal(cl_model_file_end_loading(m.file, &m.error), CL_ERR_FILE);
    assert_non_null(strstr(m.error.message, "was changed while it was loaded"));
    close_model(&m);
}

/* What Git leaves in the place of a large file where Git LFS is not installed. */
static void a_pointer_is_no_file(void **state) {
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 4920739232\n";
    char path[32];
    cl_file_bytes file;
    cl_error error;
    make_file(path, text, sizeof text - 1);
    assert_int_equal(cl_file_bytes_open(path, &file, &error), CL_ERR_FORMAT);
    if (!strstr(error.message, "it is a pointer of Git LFS, not the file itself")) fail_msg("%s", error.message);
    unlink(path);
}

/* A pipe that nobody writes to is not waited for; without the mend this test does not end. */
static void what_is_no_regular_file_is_refused(void **state) {
    (void)state;
    char path[32];
    cl_file_bytes file;
    cl_error error;
    make_file(path, "", 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    const char *const paths[] = {path, "/tmp", "/dev/null"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(cl_file_bytes_open(paths[i], &file, &error), CL_ERR_FILE);
        if (!strstr(error.message, "not a regular file")) fail_msg("%s", error.message);
    }
    unlink(path);
}

/* ---- Memory ---- */

static void lacking_memory_is_said(void **state) {
    (void)state;
    char path[32];
    cl_file_bytes file;
    cl_error error;
    make_file(path, "some bytes", 10);
    no_addresses = true;
    const cl_status status = cl_file_bytes_open(path, &file, &error);
    no_addresses = false;
    assert_int_equal(status, CL_ERR_NOMEM);
    assert_non_null(strstr(error.message, "not enough memory for its 10 bytes; raise the process's limit"));
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pointer_is_no_file),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(bytes_are_those_of_the_file),
        cmocka_unit_test(a_truncated_file_is_an_error),
        cmocka_unit_test(reads_may_come_in_pieces),
        cmocka_unit_test(a_disk_that_fails_is_an_error),
        cmocka_unit_test(weights_are_read_from_the_file),
        cmocka_unit_test(truncation_while_loading_is_an_error),
        cmocka_unit_test(a_disk_that_fails_while_loading_is_an_error),
        cmocka_unit_test(lacking_memory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
