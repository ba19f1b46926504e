/* Files that are being received. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

struct store_upload {
    store *s;
    int64_t bytes, max_bytes;
    int fd;            /* -1: nothing was received yet, or it cannot be written */
    char id[STORE_ID]; /* "": there is none yet */
    char part[80];     /* the name until the end */
    cl_error error;    /* if its code is not CL_OK, the file is not kept */
    bool ended;        /* it has a record */
};

store_upload *store_upload_begin(store *s, int64_t max_bytes) {
    store_upload *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    u->s = s;
    u->max_bytes = max_bytes;
    u->fd = -1;
    return u;
}

/* Create the file with the first bytes, so that bodies without a file leave nothing. */
static void create(store_upload *u) {
    if (!store_new_id(STORE_FILE, u->id)) {
        cl_fail(&u->error, CL_ERR_FILE, "the system has no random numbers");
        return;
    }
    snprintf(u->part, sizeof u->part, "%s.part", u->id);
    u->fd = folder_append(store_folder(u->s), u->part, &u->error);
}

void store_upload_write(store_upload *u, const char *data, size_t size) {
    if (u->error.code == CL_OK && u->fd < 0) create(u);
    if (u->error.code != CL_OK) return;
    if ((int64_t)size > u->max_bytes - u->bytes)
        cl_fail(&u->error, CL_ERR_ARG, "the file is larger than %lld bytes, the limit of this server; send a smaller one",
                (long long)u->max_bytes);
    else if (!folder_write(u->fd, data, size))
        cl_fail(&u->error, CL_ERR_FILE, "cannot write the file: %s; send it again later", strerror(errno));
    u->bytes += (int64_t)size;
}

int64_t store_upload_bytes(const store_upload *u) { return u->bytes; }

json_t *store_file_object(const char *name, const char *purpose, int64_t bytes) {
    return json_pack("{s:s, s:s, s:I, s:i, s:s, s:s, s:s, s:n}", "id", "", "object", "file", "bytes", (json_int_t)bytes,
                     "created_at", 0, "filename", name, "purpose", purpose, "status", "processed", "status_details");
}

cl_status store_upload_end(store_upload *u, const store_owner *owner, const char *name, const char *purpose, json_t **record,
                           cl_error *error) {
    char data[80];
    if (u->error.code == CL_OK && u->fd < 0) create(u); /* an empty file */
    if (u->error.code != CL_OK) {
        *error = u->error;
        return error->code;
    }
    json_t *object = store_file_object(name, purpose, u->bytes);
    if (!object) return cl_fail(error, CL_ERR_NOMEM, "no memory for the record");
    snprintf(data, sizeof data, "%s.data", u->id);
    cl_status status = folder_keep(store_folder(u->s), u->fd, u->part, data, error);
    if (status == CL_OK)
        status = store_add(u->s, STORE_FILE, owner, u->id, object, NULL, record, error);
    else
        json_decref(object);
    u->ended = status == CL_OK;
    if (status != CL_OK) store_remove_data(u->s, u->id);
    return status;
}

void store_upload_free(store_upload **address) {
    store_upload *u = address ? *address : NULL;
    if (!u) return;
    *address = NULL;
    if (u->fd >= 0) {
        close(u->fd);
        if (!u->ended) folder_remove(store_folder(u->s), u->part);
    }
    free(u);
}
