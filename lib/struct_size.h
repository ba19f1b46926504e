/*
 * Public structs that grow at the end: reading and writing one of another version's size.
 *
 * Each begins with `size_t struct_size`, the size that the caller was compiled with. `size` is this library's, first_size that
 * of the first version, `type` the struct's name for messages.
 */
#ifndef LIB_STRUCT_SIZE_H
#define LIB_STRUCT_SIZE_H

#include "chunkattn.h"

/* CATTN_ERR_ARG for a struct_size that cannot be, as the other two. */
cattn_status ca_struct_check(const void *caller, size_t first_size, const char *type, cattn_error *error);

/*
 * Copy the caller's struct over *to [size], which holds the defaults: fields that an older caller lacks keep them. A newer
 * caller's further bytes must be zero. CATTN_ERR_ARG for a struct_size that cannot be; CATTN_ERR_UNSUPPORTED for a field that
 * is set and unknown here.
 */
cattn_status ca_struct_read(void *to, size_t size, const void *from, size_t first_size, const char *type, cattn_error *error);

/*
 * Fill the caller's struct *to from *from [size], as far as the caller's struct_size reaches; a newer caller's further bytes
 * become zero. struct_size stays. CATTN_ERR_ARG for a struct_size that cannot be.
 */
cattn_status ca_struct_write(void *to, const void *from, size_t size, size_t first_size, const char *type, cattn_error *error);

/* The same by the struct's type and the last field that its first version had. */
#define CA_STRUCT_CHECK(type, last, caller, error)                                                                             \
    ca_struct_check((caller), offsetof(type, last) + sizeof((caller)->last), #type, (error))
#define CA_STRUCT_READ(type, last, to, from, error)                                                                            \
    ca_struct_read((to), sizeof(type), (from), offsetof(type, last) + sizeof((to)->last), #type, (error))
#define CA_STRUCT_WRITE(type, last, to, from, error)                                                                           \
    ca_struct_write((to), (from), sizeof(type), offsetof(type, last) + sizeof((to)->last), #type, (error))

#endif
