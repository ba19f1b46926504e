/* Reads a form with libmicrohttpd's post processor. */
#include "upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "chunkllama/common/str.h"

/* Bytes of the buffer in which the form's lines are found; a line of a part's head must fit. */
enum { FORM_BUFFER = 16 << 10 };

struct http_upload {
    batch_content file;
    int64_t max_bytes;              /* of the file */
    struct MHD_PostProcessor *form; /* NULL: the body is no form, or it is complete */
    char purpose[STORE_MAX_PURPOSE + 1];
    size_t purpose_size;
    char name[STORE_MAX_NAME + 1]; /* of the file */
    bool has_file;
    bool failed;
    openai_error error;
};

static void fail(http_upload *u, const char *param, const char *message) {
    if (u->failed) return;
    u->failed = true;
    openai_fail(&u->error, param, "%s", message);
}

/* The last part of a path, since some clients send all of it. */
static const char *last_part(const char *name) {
    for (const char *c = name; *c; c++)
        if (*c == '/' || *c == '\\') name = c + 1;
    return name;
}

/* Set the file's name, cut to whole characters. */
static void set_name(http_upload *u, const char *name) {
    const size_t size = strnlen(name, STORE_MAX_NAME);
    const size_t valid = cl_utf8_valid(name, size);
    memcpy(u->name, name, valid);
    u->name[valid] = '\0';
}

/* Write a piece of the file to the disk. */
static void write_file(http_upload *u, const char *data, size_t size) {
    if ((int64_t)size > u->max_bytes - u->file.bytes) {
        char message[120];
        snprintf(message, sizeof message, "the file is larger than %lld bytes, the limit of this server; send a smaller one",
                 (long long)u->max_bytes);
        fail(u, "file", message);
        u->error.status = MHD_HTTP_CONTENT_TOO_LARGE;
    } else if (!content_write(&u->file, data, size, &u->error)) {
        u->failed = true;
    }
}

static void add_file(http_upload *u, const char *name, const char *data, uint64_t offset, size_t size) {
    if (offset == 0 && u->file.bytes > 0) fail(u, "file", "the form has several parts called file; send them one by one");
    u->has_file = true;
    if (!name) {
        fail(u, "file", "file has no file name; send it as a file of the form, with filename in Content-Disposition");
        return;
    }
    if (u->failed) return;
    if (offset == 0) set_name(u, last_part(name));
    if (size > 0) write_file(u, data, size);
}

static void add_purpose(http_upload *u, const char *data, uint64_t offset, size_t size) {
    if (offset != u->purpose_size || size > STORE_MAX_PURPOSE - u->purpose_size) {
        fail(u, "purpose", "purpose must be \"batch\", once");
        return;
    }
    memcpy(u->purpose + u->purpose_size, data, size);
    u->purpose_size += size;
}

/* libmicrohttpd's callback for each piece of a part. Other parts are ignored, as unknown fields of JSON bodies are. */
static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key, const char *name, const char *type,
                               const char *encoding, const char *data, uint64_t offset, size_t size) {
    http_upload *u = cls;
    (void)kind, (void)type;
    if (!key) return MHD_YES;
    if (encoding && strcasecmp(encoding, "binary") != 0 && strcasecmp(encoding, "8bit") != 0 &&
        strcasecmp(encoding, "7bit") != 0)
        fail(u, NULL, "a part of the form has another Content-Transfer-Encoding than binary; send it as it is");
    else if (strcmp(key, "file") == 0)
        add_file(u, name, data, offset, size);
    else if (strcmp(key, "purpose") == 0)
        add_purpose(u, data, offset, size);
    return u->failed ? MHD_NO : MHD_YES;
}

http_upload *upload_begin(batch_store *s, struct MHD_Connection *connection, int64_t max_bytes) {
    static const char wanted[] = "multipart/form-data";
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    http_upload *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    u->file = content_begin(s);
    u->max_bytes = max_bytes;
    if (type && strncasecmp(type, wanted, sizeof wanted - 1) == 0)
        u->form = MHD_create_post_processor(connection, FORM_BUFFER, on_part, u);
    if (!u->form) {
        fail(u, NULL, "the body must be a form: Content-Type multipart/form-data with a boundary");
        u->error.status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    }
    return u;
}

void upload_add(http_upload *u, const char *data, size_t size) {
    if (u->failed || !u->form) return;
    if (MHD_post_process(u->form, data, size) != MHD_YES) fail(u, NULL, "the form is not valid multipart/form-data");
}

void upload_complete(http_upload *u) {
    if (!u->form) return;
    if (MHD_destroy_post_processor(u->form) != MHD_YES) fail(u, NULL, "the form ends before its last boundary");
    u->form = NULL;
}

bool upload_end(http_upload *u, const store_owner *owner, openai_writer *w, openai_error *error) {
    if (!u->has_file) fail(u, "file", "the form has no file; send it as a part called file");
    if (strcmp(u->purpose, "batch") != 0)
        fail(u, "purpose", "purpose must be \"batch\", the only kind of files that this server uses");
    if (!u->failed) return store_add_file(&u->file, owner, u->name, u->purpose, w, error);
    *error = u->error;
    return false;
}

void upload_free(http_upload *u) {
    if (!u) return;
    if (u->form) MHD_destroy_post_processor(u->form);
    content_end(&u->file);
    free(u);
}
