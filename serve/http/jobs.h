/*
 * Files and batches: the endpoints of `serve/batches/`.
 *
 * What only reads the index answers at once. What writes to the disk is prepared as generations are, on a thread of its own,
 * since a disk may take long.
 */
#ifndef SERVE_HTTP_JOBS_H
#define SERVE_HTTP_JOBS_H

#include "generation.h"

/* Files that clients send or receive at once; further ones are refused with status 503. */
enum { JOBS_MAX_TRANSFERS = 64 };

/* Files that the store, the worker and the transfers may have open. */
enum { JOBS_FILES = JOBS_MAX_TRANSFERS + 40 };

/* Open the folder of config.files_dir, if there is one, and start the threads for it. Errors: those of store_open. */
cl_status jobs_open(server *s, cl_error *error);
void jobs_close(server *s);

/* Begin to receive a file; NULL: memory is lacking, or too many are transferred. jobs_end_upload is due afterwards. */
struct upload *jobs_begin_upload(exchange *x);
void jobs_end_upload(server *s, struct upload *u);

/* The handlers of the routes. */
enum MHD_Result jobs_list_files(exchange *x);
enum MHD_Result jobs_get_file(exchange *x);
enum MHD_Result jobs_get_content(exchange *x);
enum MHD_Result jobs_list_batches(exchange *x);
enum MHD_Result jobs_get_batch(exchange *x);
enum MHD_Result jobs_create_file(exchange *x);
enum MHD_Result jobs_delete_file(exchange *x);
enum MHD_Result jobs_cancel_batch(exchange *x);
extern const generation_kind jobs_create_batch;

#endif
