/* Writes files by a temporary name, fsync and rename. */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/protocol/json.h"

static cl_status fail(cl_error *error, const char *action, const char *name) {
    return cl_fail(error, CL_ERR_FILE, "cannot %s %.200s in the folder of --files-dir: %s", action, name, strerror(errno));
}

/* ---- The folder ---- */

cl_status folder_open(folder *f, const char *path, cl_error *error) {
    f->fd = -1;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cl_fail(error, CL_ERR_FILE, "cannot create the folder %.200s: %s", path, strerror(errno));
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open the folder %.200s: %s", path, strerror(errno));
    if (flock(f->fd, LOCK_EX | LOCK_NB) == 0) return CL_OK;
    folder_close(f);
    return cl_fail(error, CL_ERR_FILE, "another process has the folder %.200s; name one that no other server uses", path);
}

void folder_close(folder *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

cl_status folder_list(const folder *f, void (*use)(void *ctx, const char *name), void *ctx, cl_error *error) {
    const int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries) {
        const cl_status status = fail(error, "list", "the files");
        if (fd >= 0) close(fd);
        return status;
    }
    for (const struct dirent *e; (e = readdir(entries));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) use(ctx, e->d_name);
    closedir(entries);
    return CL_OK;
}

/* ---- Files ---- */

bool folder_write(int fd, const char *data, size_t size) {
    while (size > 0) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

int folder_append(const folder *f, const char *name, cl_error *error) {
    const int fd = openat(f->fd, name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) fail(error, "create", name);
    return fd;
}

int folder_read(const folder *f, const char *name) { return openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }

cl_status folder_keep(const folder *f, int fd, const char *from, const char *to, cl_error *error) {
    if (fsync(fd) == 0 && renameat(f->fd, from, f->fd, to) == 0 && fsync(f->fd) == 0) return CL_OK;
    return fail(error, "write", to);
}

bool folder_remove(const folder *f, const char *name) { return unlinkat(f->fd, name, 0) == 0 || errno == ENOENT; }

/*
 * A value as text [*size], allocated; NULL: memory is lacking. Where memory for its buffer is lacking, json_dumps may leave out
 * a part and not say so.
 */
static char *dump(const json_t *value, size_t *size) {
    *size = json_dumpb(value, NULL, 0, JSON_COMPACT);
    char *text = *size > 0 ? malloc(*size) : NULL;
    if (text && json_dumpb(value, text, *size, JSON_COMPACT) == *size) return text;
    free(text);
    return NULL;
}

cl_status folder_write_json(const folder *f, const char *name, const json_t *value, cl_error *error) {
    char temporary[80];
    size_t size;
    snprintf(temporary, sizeof temporary, "%.70s.tmp", name);
    char *text = dump(value, &size);
    if (!text) return cl_fail(error, CL_ERR_NOMEM, "no memory for %s", name);
    folder_remove(f, temporary);
    const int fd = folder_append(f, temporary, error);
    cl_status status = fd < 0 ? CL_ERR_FILE : CL_OK;
    if (fd >= 0 && !folder_write(fd, text, size)) status = fail(error, "write", name);
    if (status == CL_OK) status = folder_keep(f, fd, temporary, name, error);
    if (fd >= 0) close(fd);
    if (status != CL_OK) folder_remove(f, temporary);
    free(text);
    return status;
}

cl_status folder_damaged(const char *name, cl_error *error) {
    return cl_fail(error, CL_ERR_FORMAT, "%.100s in the folder of --files-dir is damaged; remove it", name);
}

/* Parse the contents of an open file. text: [size] for them. */
static cl_status parse_json(int fd, const char *name, char *text, size_t size, json_t **value, cl_error *error) {
    openai_error cause;
    const ssize_t n = pread(fd, text, size, 0);
    if (n < 0) return fail(error, "read", name);
    *value = openai_json_parse("record", text, (size_t)n, &cause);
    if (*value) return CL_OK;
    return cause.status >= 500 ? cl_fail(error, CL_ERR_NOMEM, "no memory for %.200s", name) : folder_damaged(name, error);
}

cl_status folder_read_json(const folder *f, const char *name, json_t **value, cl_error *error) {
    struct stat st;
    *value = NULL;
    const int fd = folder_read(f, name);
    if (fd < 0) return fail(error, "read", name);
    const size_t size = fstat(fd, &st) == 0 ? (size_t)st.st_size : 0;
    char *text = malloc(size + 1);
    const cl_status status =
        text ? parse_json(fd, name, text, size, value, error) : cl_fail(error, CL_ERR_NOMEM, "no memory for %.200s", name);
    free(text);
    close(fd);
    return status;
}
