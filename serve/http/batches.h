/*
 * Files and batches: the endpoints of `serve/batches/`.
 *
 * What only reads the index answers at once. What writes to the disk is prepared as generations are, on a thread of its own,
 * since a disk may take long.
 */
#ifndef SERVE_HTTP_BATCHES_H
#define SERVE_HTTP_BATCHES_H

#include "generation.h"

/* Files that clients send or receive at once, of a tenant at most as many as are free (shares.h); others get status 503. */
enum { BATCHES_MAX_TRANSFERS = 64 };

/* Files that the store, the worker and the transfers may have open. */
enum { BATCHES_FILES = BATCHES_MAX_TRANSFERS + 40 };

/* Open the folder of config.files_dir, if there is one, and start the threads for it. Errors: those of store_open. */
cl_status batches_open(http_server *s, cl_error *error);
void batches_close(http_server *s);

/* Begin to receive a file as x->upload, for which batches_end_upload is due; otherwise returns why its bytes are dropped. */
exchange_body batches_begin_upload(http_exchange *x);
void batches_end_upload(http_server *s, uint32_t domain, struct http_upload *u);

/* Reply that the tenant transfers as many files as it may. */
enum MHD_Result batches_refuse_transfer(http_exchange *x);

/* The handlers of the routes. */
enum MHD_Result batches_list_files(http_exchange *x);
enum MHD_Result batches_get_file(http_exchange *x);
enum MHD_Result batches_get_content(http_exchange *x);
enum MHD_Result batches_list_batches(http_exchange *x);
enum MHD_Result batches_get_batch(http_exchange *x);
enum MHD_Result batches_create_file(http_exchange *x);
enum MHD_Result batches_delete_file(http_exchange *x);
enum MHD_Result batches_delete_batch(http_exchange *x);
enum MHD_Result batches_cancel_batch(http_exchange *x);
extern const generation_kind batches_create_batch;

#endif
