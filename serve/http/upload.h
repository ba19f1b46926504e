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

typedef struct upload upload;

/* Bytes of a body beside the file. */
enum { UPLOAD_FORM_BYTES = 1 << 20 };

/*
 * Begin with the head of a request. max_bytes: of the file. The store is borrowed until upload_free. NULL: memory is lacking.
 * On the connection's thread, as the next two.
 */
upload *upload_begin(store *s, struct MHD_Connection *connection, int64_t max_bytes);

/* Add a piece of the body. */
void upload_add(upload *u, const char *data, size_t size);

/* The body is complete. */
void upload_complete(upload *u);

/* Make the file durable, add it to the store, and write its object. False: *error says why not. Waits for the disk. */
bool upload_end(upload *u, const store_owner *owner, openai_writer *w, openai_error *error);

/* Free the upload, and remove the file unless it is in the store. NULL is ignored. */
void upload_free(upload *u);

#endif
