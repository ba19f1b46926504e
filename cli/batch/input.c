/* Opens the file of requests, and reads its lines. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int batch_scratch_open(cl_error *error) {
    char path[4096];
    const char *folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    snprintf(path, sizeof path, "%s/chunkllama-XXXXXX", folder);
    const int fd = mkstemp(path);
    if (fd < 0)
        cl_fail(error, CL_ERR_FILE, "cannot create a scratch file in %.200s: %s; set TMPDIR to a folder with room", folder,
                strerror(errno));
    else
        unlink(path);
    return fd;
}

/* Copy standard input, or what else has no offsets, to a scratch file. */
static cl_status spool(batch_input *in, cl_error *error) {
    char piece[65536];
    const int from = in->fd, to = batch_scratch_open(error);
    if (to < 0) return CL_ERR_FILE;
    ssize_t n;
    bool written = true;
    while (written && ((n = read(from, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
        for (ssize_t at = 0, k; at < n && written; at += k) {
            k = write(to, piece + at, (size_t)(n - at));
            written = k > 0;
        }
    const int cause = errno;
    if (!in->borrowed) close(from);
    *in = (batch_input){.fd = to, .made_at = (int64_t)time(NULL)};
    if (!written) return cl_fail(error, CL_ERR_FILE, "cannot write the scratch file of the input: %s", strerror(cause));
    return n < 0 ? cl_fail(error, CL_ERR_FILE, "cannot read the input: %s", strerror(cause)) : CL_OK;
}

cl_status batch_input_open(batch_input *in, const char *path, cl_error *error) {
    struct stat st;
    *in = (batch_input){.fd = -1, .borrowed = strcmp(path, "-") == 0};
    in->fd = in->borrowed ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 || fstat(in->fd, &st) != 0) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return cl_fail(error, CL_ERR_FILE, "cannot read %s: it is a folder", path);
    in->start = lseek(in->fd, 0, SEEK_CUR);
    in->made_at = (int64_t)st.st_mtime;
    return S_ISREG(st.st_mode) && in->start >= 0 ? CL_OK : spool(in, error);
}

void batch_input_close(batch_input *in) {
    if (in->fd >= 0 && !in->borrowed) close(in->fd);
    in->fd = -1;
}

bool batch_input_is(const batch_input *in, const char *path) {
    struct stat own, other;
    return fstat(in->fd, &own) == 0 && stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}
