/*
 * The body of POST /v1/files, a form with the fields `purpose` and `file`, while it arrives. The file's bytes go to the disk as
 * they come, so memory holds a few KiB of it.
 *
 * A mistake in the form is kept, and reported by upload_end; the rest of the body is then dropped.
 */
#ifndef SERVE_HTTP_UPLOAD_H
#define SERVE_HTTP_UPLOAD_H

#include <microhttpd.h>

#include "serve/batches/store.h"

typedef struct http_upload http_upload;

/* Bytes of a body beside the file. */
enum { UPLOAD_FORM_BYTES = 1 << 20 };

/*
 * Begin with the head of a request. max_bytes: of the file. The store is borrowed until upload_free. NULL: memory is lacking.
 * On the connection's thread, as the next two.
 */
http_upload *upload_begin(batch_store *s, struct MHD_Connection *connection, int64_t max_bytes);

/* Add a piece of the body. */
void upload_add(http_upload *u, const char *data, size_t size);

/* The body is complete. */
void upload_complete(http_upload *u);

/* Make the file durable, add it to the store, and write its object. False: *error says why not. Waits for the disk. */
bool upload_end(http_upload *u, const store_owner *owner, openai_writer *w, openai_error *error);

/* Free the upload, and remove the file unless it is in the store. NULL is ignored. */
void upload_free(http_upload *u);

#endif
