/* Filling a model file's handle with metadata that another format holds under other names. */
#ifndef LLAMA_FILE_META_BUILD_H
#define LLAMA_FILE_META_BUILD_H

#include "model_file_data.h"

/* Names are copied. Without memory the key is left out and file->no_memory set. At most META_MAX_KEYS keys, each once. */
enum { META_MAX_KEYS = 64 };

cl_status meta_init(model_file *file, cl_error *error);
void meta_put_u32(model_file *file, const char *name, uint32_t value);
void meta_put_f64(model_file *file, const char *name, double value);
void meta_put_bool(model_file *file, const char *name, bool value);
void meta_put_string(model_file *file, const char *name, str value); /* copied */

/* n elements of fixed size, n strings: zero, to be filled in; NULL without memory. */
void *meta_put_array(model_file *file, const char *name, meta_type elem, size_t n);
str *meta_put_strings(model_file *file, const char *name, size_t n);

/* A copy of a text that lives as long as the handle; empty without memory. */
str meta_copy(model_file *file, str text);

#endif
