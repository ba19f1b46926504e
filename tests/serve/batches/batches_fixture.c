/* Folders for tests, and calls of the disk that fail. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "batches_fixture.h"

#include "tests/support/testing.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "serve/batches/batch.h"
#include "tests/support/folder.h"

/* ---- The disk ---- */

static atomic_int calls_left = -1; /* before the first failure; < 0: none will come */
static atomic_int failures_left;
static atomic_bool failed;

static bool fails(void) {
    if (atomic_load(&failures_left) <= 0) return false;
    if (atomic_fetch_sub(&calls_left, 1) > 1) return false;
    atomic_fetch_sub(&failures_left, 1);
    atomic_store(&failed, true);
    errno = ENOSPC;
    return true;
}

void fail_disk(int n, int times) {
    atomic_store(&failed, false);
    atomic_store(&calls_left, n);
    atomic_store(&failures_left, times);
}

bool mend_disk(void) {
    atomic_store(&failures_left, 0);
    return atomic_load(&failed);
}

/* The library of SQLite finds these before the C library's, if the program exports them. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t write(int fd, const void *data, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!fails()) return real(fd, data, size);
    if (size > 1 && real(fd, data, size / 2) < 0) return -1;
    errno = ENOSPC;
    return -1;
}

EXPORTED ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    if (!fails()) return real(fd, data, size, offset);
    if (size > 1 && real(fd, data, size / 2, offset) < 0) return -1;
    errno = ENOSPC;
    return -1;
}

/* No test turns the power off, and a disk may take seconds for this. */
EXPORTED int fsync(int fd) {
    (void)fd;
    return fails() ? -1 : 0;
}
EXPORTED int fdatasync(int fd) { return fsync(fd); }

/* ---- The folder ---- */

int set_up_folder(void **state) {
    char *path = strdup("/tmp/chunkllama-batches-XXXXXX");
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

int tear_down_folder(void **state) {
    const int status = remove_folder(*state);
    free(*state);
    return status;
}

int count_files(const char *path, const char *suffix) {
    DIR *list = opendir(path);
    assert_non_null(list);
    int n = 0;
    for (const struct dirent *e; (e = readdir(list));) {
        const size_t size = strlen(e->d_name), m = strlen(suffix);
        n += e->d_name[0] != '.' && size >= m && strcmp(e->d_name + size - m, suffix) == 0;
    }
    closedir(list);
    return n;
}

/* ---- The store ---- */

batch_store *open_store(const char *path) {
    batch_store *s;
    cl_error error;
    if (store_open(path, NULL, &s, &error) != CL_OK) fail_msg("%s", error.message);
    return s;
}

/* What was written, as JSON. */
static json_t *parse(openai_writer *w) {
    char *text = writer_end(w, NULL);
    json_t *value = json_loads(text, 0, NULL);
    if (!value) fail_msg("<%s>", text);
    free(text);
    return value;
}

/* Note the id of an object that was written. */
static void take_id(openai_writer *w, char *id) {
    json_t *object = parse(w);
    snprintf(id, STORE_ID, "%s", json_string_value(json_object_get(object, "id")));
    json_decref(object);
}

bool add_file(batch_store *s, const store_owner *owner, const char *text, char *id, openai_error *error) {
    openai_writer w = {0};
    batch_content c = content_begin(s);
    const size_t half = strlen(text) / 2;
    const bool ok = content_write(&c, text, half, error) && content_write(&c, text + half, strlen(text) - half, error) &&
                    store_add_file(&c, owner, "in.jsonl", "batch", &w, error);
    if (ok) take_id(&w, id);
    content_end(&c);
    writer_free(&w);
    return ok;
}

json_t *batch_body(const char *file, const char *window) {
    return json_pack("{s:s, s:s, s:s, s:{s:s}}", "input_file_id", file, "endpoint", "/v1/completions", "completion_window",
                     window, "metadata", "a", "b");
}

void add_batch(batch_store *s, const store_owner *owner, const char *text, const char *window, char *id) {
    char file[STORE_ID];
    openai_error error;
    openai_writer w = {0};
    if (!add_file(s, owner, text, file, &error)) fail_msg("%s", error.message);
    json_t *body = batch_body(file, window);
    if (!batch_create(s, owner, body, &w, &error)) fail_msg("%s", error.message);
    json_decref(body);
    take_id(&w, id);
}

json_t *object_of(batch_store *s, store_kind kind, uint32_t domain, const char *id) {
    openai_writer w = {0};
    openai_error error;
    if (!store_get(s, kind, domain, id, &w, &error)) fail_msg("%s", error.message);
    return parse(&w);
}

json_t *list_of(batch_store *s, store_kind kind, uint32_t domain) {
    openai_writer w = {0};
    openai_error error;
    if (!store_list(s, kind, domain, &(store_query){.limit = 1000}, &w, &error)) fail_msg("%s", error.message);
    return parse(&w);
}

int count_of(batch_store *s, store_kind kind, uint32_t domain) {
    json_t *list = list_of(s, kind, domain);
    const int n = (int)json_array_size(json_object_get(list, "data"));
    json_decref(list);
    return n;
}

bool has_status(const json_t *batch, const char *status) {
    return strcmp(json_string_value(json_object_get(batch, "status")), status) == 0;
}

bool has_ended(const json_t *batch) {
    return has_status(batch, "completed") || has_status(batch, "failed") || has_status(batch, "expired") ||
           has_status(batch, "cancelled");
}

int64_t n_requests(const json_t *batch, const char *which) {
    return json_integer_value(json_object_get(json_object_get(batch, "request_counts"), which));
}

char *read_file(batch_store *s, uint32_t domain, const char *id) {
    openai_error error;
    int64_t size = 0;
    const int fd = store_open_file(s, domain, id, &size, &error);
    if (fd < 0) return NULL;
    char *text = calloc(1, (size_t)size + 1);
    assert_int_equal(pread(fd, text, (size_t)size, 0), size);
    close(fd);
    return text;
}
