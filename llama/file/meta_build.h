/* Filling a model file's handle with metadata that another format holds under other names. */
#ifndef LLAMA_FILE_META_BUILD_H
#define LLAMA_FILE_META_BUILD_H

#include "model_file_data.h"

/* Names are copied. Without memory the key is left out and file->no_memory set. At most CL_META_MAX_KEYS keys, each once. */
enum { CL_META_MAX_KEYS = 64 };

cl_status cl_meta_init(cl_model_file *file, cl_error *error);
void cl_meta_put_u32(cl_model_file *file, const char *name, uint32_t value);
void cl_meta_put_f64(cl_model_file *file, const char *name, double value);
void cl_meta_put_bool(cl_model_file *file, const char *name, bool value);
void cl_meta_put_string(cl_model_file *file, const char *name, cl_str value); /* copied */

/* n elements of fixed size, n strings: zero, to be filled in; NULL without memory. */
void *cl_meta_put_array(cl_model_file *file, const char *name, cl_meta_type elem, size_t n);
cl_str *cl_meta_put_strings(cl_model_file *file, const char *name, size_t n);

/* A copy of a text that lives as long as the handle; empty without memory. */
cl_str cl_meta_copy(cl_model_file *file, cl_str text);

#endif
