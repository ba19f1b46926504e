/* Contents of files: written, made durable, opened and removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store_index.h"

static bool fail(const char *action, openai_error *error) {
    cl_error cause;
    cl_fail(&cause, CL_ERR_FILE, "cannot %s the file: %s; try again later", action, strerror(errno));
    return openai_fail_from(error, NULL, &cause);
}

void content_name(const char *id, char *name) { snprintf(name, STORE_ID + 8, "%.*s.data", STORE_ID - 1, id); }

batch_content content_begin(batch_store *s) { return (batch_content){.store = s, .fd = -1}; }

/* Create the file with the first bytes, so that uploads without a file leave nothing. */
static bool create(batch_content *c, openai_error *error) {
    char name[STORE_ID + 8];
    if (c->fd >= 0) return true;
    if (!store_new_id(STORE_FILE, c->id, error)) return false;
    content_name(c->id, name);
    c->fd = openat(c->store->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return c->fd >= 0 || fail("create", error);
}

bool content_write(batch_content *c, const char *data, size_t size, openai_error *error) {
    if (!create(c, error)) return false;
    while (size > 0) {
        const ssize_t n = write(c->fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail("write", error);
        data += n;
        size -= (size_t)n;
        c->bytes += n;
    }
    return true;
}

bool content_sync(batch_content *c, openai_error *error) {
    return create(c, error) && ((fsync(c->fd) == 0 && fsync(c->store->folder) == 0) || fail("write", error));
}

int content_open(batch_store *s, const char *id, openai_error *error) {
    char name[STORE_ID + 8];
    content_name(id, name);
    const int fd = openat(s->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) errno == ENOENT ? store_not_found(STORE_FILE, id, error) : fail("open", error);
    return fd;
}

void content_remove(batch_store *s, const char *id) {
    char name[STORE_ID + 8];
    content_name(id, name);
    unlinkat(s->folder, name, 0);
}

void content_end(batch_content *c) {
    if (c->fd < 0) return;
    close(c->fd);
    if (!c->kept) content_remove(c->store, c->id);
    *c = content_begin(c->store);
}
